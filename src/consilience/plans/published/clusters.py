"""Private clusterings as others published them: EUGkM, its hybrid with one round of k-means, and GUPT."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.errors import DeclarationError
from consilience.estimators.base import check_choice
from consilience.estimators.cell_clusters import block_means, cell_centroids, measured_sums
from consilience.iterates.clustering import Negatives, next_centroids, suggested_divisions
from consilience.kernels.regions import CellGrid, Region, RegionKind, in_original_units
from consilience.measurements import Measurement, MeasurementSet
from consilience.plans.base import PUBLISHED_TOTAL_SHARE, DescribedPlan, check_share, in_two_parts
from consilience.plans.rounds import KMeans
from consilience.privacy.budgets import Budget
from consilience.privacy.cluster_statistics import (
    LARGEST_BLOCKS,
    BlockCentroids,
    GridCounts,
    cluster_statistics,
    declared_bounds,
)
from consilience.privacy.gate import Gate

# ----------------------------------------------------------------------------------------------------------------------
# How many records there are, for plans whose choices depend on it, and what a budget buys for a count.


def count_records(
    gate: Gate, names: tuple[str, ...], budget: Budget, share: float
) -> tuple[float, tuple[Measurement, ...], Budget]:
    """The number of records, how it was measured, and what is left of the budget.

    A public number costs nothing; else it is measured with this share. A noisy number below 1 is taken for 1.
    """
    if gate.domain.public.total is not None:
        return float(gate.domain.public.total), (), budget
    part, rest = in_two_parts(budget, share)
    everything = GridCounts(names, declared_bounds(gate.domain, names), "box", 1)
    found = gate.sum_records([everything], part)
    return max(1.0, float(found[0].values[0])), found, rest


def equivalent_epsilon(budget: Budget) -> float:
    """The ε whose Laplace noise on a count has the variance that this budget buys: ε, or 2√ρ.

    >>> from consilience.privacy.budgets import budget
    >>> equivalent_epsilon(budget(epsilon=0.5)), equivalent_epsilon(budget(rho=0.25))
    (0.5, 1.0)
    """
    amount = float(budget.amount)
    return amount if budget.additive_unit == "epsilon" else 2.0 * math.sqrt(amount)


# ----------------------------------------------------------------------------------------------------------------------
# EUGkM: noisy counts of an equal grid, then k-means on the cells without noise (Su, Cao, Li, Bertino, Jin 2016).
#
# The cells' counts are measured once; everything after that is free of charge, so that k-means can be run to its end,
# from many starts. The number of cells balances the spread of the points within a cell and the noise on its count
# (kernels/regions.py). It needs the number of records, which is public or measured with a share of the budget. Few
# dimensions suit this plan: a grid over many has empty cells and little else.


@dataclass(frozen=True)
class ClusterGrid(DescribedPlan):
    """The counts of equal cells over continuous attributes, for clusters of them.

    `divisions` is how many parts each side is cut into; by default Su et al.'s rule decides, for which the number of
    records is measured with `total_share` of the budget unless it is public. `region` and `attributes` are those of
    `KMeans`. `negatives` is what becomes of negative noisy counts before the cells are clustered. `seed` is that of
    the starts of k-means.

    >>> ClusterGrid(3, divisions=8).to_json()["divisions"]
    8
    """

    name = "cluster-grid"
    clusters: int
    attributes: tuple[str, ...] | None = None
    divisions: int | None = None
    region: RegionKind = "box"
    total_share: float = PUBLISHED_TOTAL_SHARE
    negatives: Negatives = "project"
    seed: int = 0

    def __post_init__(self) -> None:
        self._points()
        check_share(self.total_share, "the number of records")
        if self.divisions is not None:
            CellGrid(self.divisions, Region("box", 1))
        check_choice(self.negatives, "what becomes of negative counts", get_args(Negatives))

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
        return cell_centroids(counts, domain, self.clusters, seed=self.seed, negatives=self.negatives)

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

    def _points(self) -> KMeans:
        """The plan whose attributes and region these are."""
        return KMeans(self.clusters, self.attributes, region=self.region, seed=self.seed)


# ----------------------------------------------------------------------------------------------------------------------
# The hybrid of Su et al. (2016): clusters of a noisy grid, then one round of DP-KMEANS from there.
#
# The grid finds good places to start and keeps an error of about a cell; one round of noisy counts and sums around them
# takes much of that error away, where there are enough records for its noise.


@dataclass(frozen=True)
class HybridClusters(DescribedPlan):
    """A share of the budget for the counts of a grid, the rest for one round of k-means from its clusters.

    `grid_share` is half in the paper. Within the round, counts get `count_share`. The other options are those of
    `ClusterGrid`.

    >>> HybridClusters(3).to_json()["grid_share"]
    0.5
    """

    name = "hybrid-clusters"
    clusters: int
    attributes: tuple[str, ...] | None = None
    divisions: int | None = None
    region: RegionKind = "box"
    grid_share: float = 0.5
    count_share: float = 0.5
    total_share: float = PUBLISHED_TOTAL_SHARE
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


# ----------------------------------------------------------------------------------------------------------------------
# GUPT: the average of clusterings of blocks of records (Mohan et al. 2012, after Nissim et al. 2007).
#
# Records are divided into ℓ blocks; each is clustered by itself without noise, and the average of the blocks' centroids
# is published with noise in proportion to 1/ℓ. privacy/cluster_statistics.py has the proof, and what it rests on: a
# record's block is decided by that record and a public seed, never by its place in the table, and ℓ by a public or
# noisy number of records. GUPT takes ℓ = N^0.4.
#
# What is private here is this average of k-means alone. GUPT runs any programme on the blocks; that would rest on
# the programme being unable to pass anything from one block to another, which nothing here could promise.


BLOCKS_EXPONENT = 0.4
"""GUPT's."""


@dataclass(frozen=True)
class SampleAndAggregate(DescribedPlan):
    """The sum of the centroids of all blocks, each clustered from the same public start.

    `blocks` is their number: N^0.4 by default, with the number of records measured for `total_share` of the budget
    unless it is public. `seed` decides the start and the blocks. `region` and `attributes` are those of `KMeans`.

    >>> SampleAndAggregate(3, blocks=40).to_json()["blocks"]
    40
    """

    name = "sample-and-aggregate"
    clusters: int
    attributes: tuple[str, ...] | None = None
    blocks: int | None = None
    region: RegionKind = "box"
    total_share: float = PUBLISHED_TOTAL_SHARE
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
        return in_original_units(block_means(measured), (found.statistic or {})["bounds"])

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

    def _points(self) -> KMeans:
        """The plan whose attributes, region and start these are."""
        return KMeans(self.clusters, self.attributes, region=self.region, seed=self.seed)


def suggested_blocks(records: float) -> int:
    """N^0.4 blocks, as GUPT has them: at least 1.

    >>> suggested_blocks(5_000), suggested_blocks(-3.0)
    (30, 1)
    """
    return min(max(1, round(max(records, 1.0) ** BLOCKS_EXPONENT)), LARGEST_BLOCKS)
