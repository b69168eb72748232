"""The hybrid of Su et al. (2016): clusters of a noisy grid, then one round of DP-KMEANS from there.

The grid finds good places to start and keeps an error of about a cell; one round of noisy counts and sums around them
takes much of that error away, where there are enough records for its noise.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.cell_grids import Negatives
from consilience.kernels.clustering import next_centroids
from consilience.kernels.regions import Region, RegionKind, in_original_units
from consilience.measurements import MeasurementSet
from consilience.plans.budget_parts import check_share, in_two_parts
from consilience.plans.published.cluster_grid import ClusterGrid
from consilience.plans.record_numbers import TOTAL_SHARE, measured_sums
from consilience.privacy.budgets import Budget
from consilience.privacy.cluster_statistics import cluster_statistics
from consilience.privacy.gate import Gate


@dataclass(frozen=True)
class HybridClusters:
    """A share of the budget for the counts of a grid, the rest for one round of k-means from its clusters.

    `grid_share` is half in the paper. Within the round, counts get `count_share`. The other options are those of
    `ClusterGrid`.

    >>> HybridClusters(3).to_json()["grid_share"]
    0.5
    """

    clusters: int
    attributes: tuple[str, ...] | None = None
    divisions: int | None = None
    region: RegionKind = "box"
    grid_share: float = 0.5
    count_share: float = 0.5
    total_share: float = TOTAL_SHARE
    negatives: Negatives = "project"
    seed: int = 0

    def __post_init__(self) -> None:
        check_share(self.grid_share, "the grid")
        check_share(self.count_share, "the counts of a round")
        self.grid()

    def grid(self) -> ClusterGrid:
        """The plan of the first part."""
        return ClusterGrid(
            self.clusters, self.attributes, self.divisions, self.region, self.total_share, self.negatives, self.seed
        )

    def run(self, gate: Gate) -> None:
        first, rest = in_two_parts(gate.budget, self.grid_share)
        cells = self.grid().measure_cells(gate, first)
        names = tuple((cells[-1].statistic or {})["attributes"])
        # Means of points of a region lie in it up to the last place; the statistics take none outside.
        start = Region(self.region, len(names)).project(self.grid().centroids_of(cells, gate.domain))
        asked = cluster_statistics(gate.domain, names, self.region, start)
        gate.sum_records(asked, rest, shares=(self.count_share, 1 - self.count_share), round=1)

    def centroids(self, measured: MeasurementSet) -> NDArray[np.float64]:
        """Centroids in original units, from what this plan measured."""
        counts = measured_sums(measured, "k-means", "counts")[-1]
        sums = measured_sums(measured, "k-means", "sums")[-1]
        about = counts.statistic or {}
        before = np.array(about["centroids"], dtype=np.float64)
        region = Region(about["region"], before.shape[1])
        found = next_centroids(counts.values, sums.values.reshape(before.shape), before, region)
        return in_original_units(found, about["bounds"])

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What each part gets, and how the grid is chosen."""
        shares = f"The grid gets a share of {self.grid_share:g} of the budget, and one round of k-means the rest."
        return (shares, *self.grid().explain(example, budget))

    def to_json(self) -> dict[str, Any]:
        shared = self.grid().to_json() | {"grid_share": self.grid_share, "count_share": self.count_share}
        return shared | {"plan": "hybrid-clusters"}
