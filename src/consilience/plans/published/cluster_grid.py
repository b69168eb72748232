"""EUGkM: noisy counts of an equal grid, then k-means on the cells without noise (Su, Cao, Li, Bertino, Jin 2016).

The cells' counts are measured once; everything after that is free of charge, so that k-means can be run to its end,
from many starts. The number of cells balances the spread of the points within a cell and the noise on its count
(kernels/cell_grids.py). It needs the number of records, which is public or measured with
a share of the budget. Few dimensions suit this plan: a grid over many has empty cells and little else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.errors import DeclarationError
from consilience.kernels.cell_grids import CellGrid, Negatives, clusters_of_cells, suggested_divisions
from consilience.kernels.regions import Region, RegionKind, in_original_units
from consilience.measurements import Measurement, MeasurementSet
from consilience.plans.budget_parts import check_share
from consilience.plans.kmeans import KMeans
from consilience.plans.record_numbers import (
    TOTAL_SHARE,
    count_records,
    equivalent_epsilon,
    measured_sums,
    measured_total,
)
from consilience.privacy.budgets import Budget
from consilience.privacy.cluster_statistics import GridCounts, declared_bounds
from consilience.privacy.gate import Gate

RESTARTS = 20


@dataclass(frozen=True)
class ClusterGrid:
    """The counts of equal cells over continuous attributes, for clusters of them.

    `divisions` is how many parts each side is cut into; by default Su et al.'s rule decides, for which the number of
    records is measured with `total_share` of the budget unless it is public. `region` and `attributes` are those of
    `KMeans`. `negatives` is what becomes of negative noisy counts before the cells are clustered. `seed` is that of
    the starts of k-means.

    >>> ClusterGrid(3, divisions=8).to_json()["divisions"]
    8
    """

    clusters: int
    attributes: tuple[str, ...] | None = None
    divisions: int | None = None
    region: RegionKind = "box"
    total_share: float = TOTAL_SHARE
    negatives: Negatives = "project"
    seed: int = 0

    def __post_init__(self) -> None:
        self._points()
        check_share(self.total_share, "the number of records")
        if self.divisions is not None:
            CellGrid(self.divisions, Region("box", 1))
        if self.negatives not in ("project", "zero"):
            raise DeclarationError(f"negative counts are to be {self.negatives!r}; use 'project' or 'zero'")

    def run(self, gate: Gate) -> None:
        self.measure_cells(gate, gate.budget)

    def measure_cells(self, gate: Gate, budget: Budget) -> tuple[Measurement, ...]:
        """The noisy counts of the cells, last, for this part of the gate's budget; the number of records before."""
        names = self._points().names(gate.domain)
        bounds = declared_bounds(gate.domain, names)
        before: tuple[Measurement, ...] = ()
        divisions, rest = self.divisions, budget
        if divisions is None:
            records, before, rest = count_records(gate, names, budget, self.total_share)
            divisions = suggested_divisions(records, equivalent_epsilon(rest), len(names))
        return *before, *gate.sum_records([GridCounts(names, bounds, self.region, divisions)], rest)

    def centroids(self, measured: MeasurementSet) -> NDArray[np.float64]:
        """Centroids in original units, from what this plan measured."""
        counts = measured_sums(measured, "cell-grid", "counts")
        bounds = declared_bounds(measured.domain, self._points().names(measured.domain))
        return in_original_units(self.centroids_of(counts, measured.domain), bounds)

    def centroids_of(self, counts: Sequence[Measurement], domain: Domain) -> NDArray[np.float64]:
        """Centroids in normalised coordinates, by k-means on the cells of the last of these counts."""
        cells = counts[-1]
        about = cells.statistic or {}
        grid = CellGrid(int(about["divisions"]), Region(about["region"], len(about["attributes"])))
        public = domain.public.total
        total = measured_total(counts) if public is None else float(public)
        return clusters_of_cells(
            grid, cells.values, total, self.clusters, seed=self.seed, restarts=RESTARTS, negatives=self.negatives
        )

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """How the grid is chosen, where a preview cannot know."""
        if self.divisions is not None:
            return (f"Each side is cut into {self.divisions} parts; k-means on the cells is free of charge.",)
        if example.domain.public.total is not None:
            return ("The grid follows from the public number of records; k-means on its cells is free of charge.",)
        return (
            f"A share of {self.total_share:g} of what the grid may spend measures the number of records, from which "
            "the grid follows: a preview shows the coarsest one.",
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": "cluster-grid",
            "clusters": self.clusters,
            "attributes": None if self.attributes is None else list(self.attributes),
            "divisions": self.divisions,
            "region": self.region,
            "total_share": self.total_share,
            "negatives": self.negatives,
            "seed": self.seed,
        }

    def _points(self) -> KMeans:
        """The plan whose attributes and region these are."""
        return KMeans(self.clusters, self.attributes, region=self.region, seed=self.seed)
