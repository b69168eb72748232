"""GUPT: the average of clusterings of blocks of records (Mohan et al. 2012, after Nissim et al. 2007).

Records are divided into ℓ blocks; each is clustered by itself without noise, and the average of the blocks' centroids
is published with noise in proportion to 1/ℓ. privacy/cluster_statistics.py has the proof, and what it rests on: a record's
block is decided by that record and a public seed, never by its place in the table, and ℓ by a public or noisy number
of records. GUPT takes ℓ = N^0.4.

What is private here is this average of k-means alone. GUPT runs any programme on the blocks; that would rest on
the programme being unable to pass anything from one block to another, which nothing here could promise.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.regions import Region, RegionKind, in_original_units
from consilience.measurements import MeasurementSet
from consilience.plans.budget_parts import check_share
from consilience.plans.kmeans import KMeans
from consilience.plans.record_numbers import TOTAL_SHARE, count_records, measured_sums
from consilience.privacy.budgets import Budget
from consilience.privacy.cluster_statistics import LARGEST_BLOCKS, BlockCentroids, declared_bounds
from consilience.privacy.gate import Gate

BLOCKS_EXPONENT = 0.4


@dataclass(frozen=True)
class SampleAndAggregate:
    """The sum of the centroids of all blocks, each clustered from the same public start.

    `blocks` is their number: N^0.4 by default, with the number of records measured for `total_share` of the budget
    unless it is public. `seed` decides the start and the blocks. `region` and `attributes` are those of `KMeans`.

    >>> SampleAndAggregate(3, blocks=40).to_json()["blocks"]
    40
    """

    clusters: int
    attributes: tuple[str, ...] | None = None
    blocks: int | None = None
    region: RegionKind = "box"
    total_share: float = TOTAL_SHARE
    seed: int = 0

    def __post_init__(self) -> None:
        self._points()
        check_share(self.total_share, "the number of records")
        whole = isinstance(self.blocks, int) and not isinstance(self.blocks, bool)
        if self.blocks is not None and not (whole and 1 <= self.blocks <= LARGEST_BLOCKS):
            raise DeclarationError(f"{self.blocks!r} blocks were asked for; use from 1 to {LARGEST_BLOCKS:,}")

    def run(self, gate: Gate) -> None:
        points = self._points()
        names = points.names(gate.domain)
        start = tuple(tuple(map(float, row)) for row in points.start(gate.domain))
        if self.blocks is not None:
            blocks, rest = self.blocks, gate.budget
        else:
            records, _, rest = count_records(gate, names, gate.budget, self.total_share)
            blocks = suggested_blocks(records)
        bounds = declared_bounds(gate.domain, names)
        gate.sum_records([BlockCentroids(names, bounds, self.region, start, blocks, self.seed)], rest)

    def centroids(self, measured: MeasurementSet) -> NDArray[np.float64]:
        """Centroids in original units: the noisy sum over the number of blocks, moved into the region."""
        found = measured_sums(measured, "sample-and-aggregate", "centroids")[-1]
        about = found.statistic or {}
        shape = (len(about["start"]), len(about["attributes"]))
        means = found.values.reshape(shape) / float(about["blocks"])
        return in_original_units(Region(about["region"], shape[1]).project(means), about["bounds"])

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """How many blocks there will be, and what their number means for the noise."""
        found = measured_sums(example, "sample-and-aggregate", "centroids")[-1]
        spread = math.sqrt(found.noise.variance)
        noise = (
            f"On an average of ℓ blocks the noise has a standard deviation of {spread / 2:.3g}/ℓ of the bounds' width."
        )
        if self.blocks is not None or example.domain.public.total is not None:
            return (f"There are {(found.statistic or {})['blocks']} blocks.", noise)
        return (
            f"A share of {self.total_share:g} of the budget measures the number of records N, and there will be "
            "ℓ = N^0.4 blocks: a preview shows one.",
            noise,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": "sample-and-aggregate",
            "clusters": self.clusters,
            "attributes": None if self.attributes is None else list(self.attributes),
            "blocks": self.blocks,
            "region": self.region,
            "total_share": self.total_share,
            "seed": self.seed,
        }

    def _points(self) -> KMeans:
        """The plan whose attributes, region and start these are."""
        return KMeans(self.clusters, self.attributes, region=self.region, seed=self.seed)


def suggested_blocks(records: float) -> int:
    """N^0.4 blocks, as GUPT has them: at least 1.

    >>> suggested_blocks(5_000), suggested_blocks(-3.0)
    (30, 1)
    """
    return min(max(1, round(max(records, 1.0) ** BLOCKS_EXPONENT)), LARGEST_BLOCKS)
