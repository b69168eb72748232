"""Clusters from what is no run of rounds: counts of cells, such a grid with one round of k-means, centroids of blocks.

*Counts of cells* (EUGkM). With w the non-negative counts nearest to the noisy ones, centroids are those of k-means on
the cells' centres. What is open: the noise, and where in its cell a cell's records are. A draw has both. Noise is drawn
anew around w and projected to w*, and the draw's counts are 2w − w*, which takes away what the projection adds (a
parametric bootstrap; Efron and Tibshirani 1993, §13.4); and all records of a cell lie at one place, anywhere in it.

*Cells and a round* (the hybrid). Centroids are those that the round led to. Counts and sums of the round are as exact
as its noise, and what lies between its cells and those of the reported centroids is as uncertain as records that come
in lumps where the grid saw them: kriging (iterates/kriging.py), with the grid in place of the chains.

*Blocks* (GUPT). The noisy average of the blocks' centroids says neither how many records are nearest to each, nor how
far their mean is from it. No interval is given.

Nothing here sees data or spends budget.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.errors import ConsilienceError, MeasurementError
from consilience.iterates.chain import Simulated
from consilience.iterates.chain_kernels import KMEANS
from consilience.iterates.clustering import Negatives, cell_weights, clusters_of_cells
from consilience.iterates.kriging import POINTS, Kriging, statistics_of
from consilience.iterates.problems import NoisyRounds, cluster_problem
from consilience.kernels.regions import CellGrid, Region
from consilience.kernels.rng import Generator, generator
from consilience.measurements import Measurement, MeasurementSet

Array = NDArray[np.float64]

RESTARTS = 20
DRAWS = 400
NO_BARS_OF_BLOCKS = (
    "sample and aggregate measures no sizes, and the noise alone does not say how far the average of the blocks' "
    "centroids is from the records nearest to it: there are no error bars"
)
NO_BARS_OF_MANY = "a round of so many clusters and attributes is too large for error bars"


@dataclass(frozen=True, eq=False)
class Reading:
    """Centroids in normalised coordinates, sizes, and draws of both; NaN where nothing can be said."""

    centroids: Array
    sizes: Array
    drawn_centroids: Array
    drawn_sizes: Array
    diagnostics: dict[str, Any] = field(default_factory=dict)
    no_intervals: str = ""
    """Why there are none; empty where there are."""

    @staticmethod
    def without_intervals(centroids: Array, reason: str) -> "Reading":
        """Centroids alone."""
        unknown = np.full(centroids.shape, np.nan)
        return Reading(centroids, unknown[:, 0], unknown[None], unknown[None, :, 0], no_intervals=reason)

    @staticmethod
    def of_draws(centroids: Array, expected: Array, drawn: Sequence[tuple[Array, Array]], **about: Any) -> "Reading":
        """Centroids, the expected sums over the records of their cells, and draws of sizes and means of these."""
        sizes = np.maximum(expected[: len(centroids)], 0.0)
        means, counts = np.array([each[1] for each in drawn]), np.array([each[0] for each in drawn])
        return Reading(centroids, sizes, means, counts, about)


def cell_means(sums: Array, centroids: Array) -> tuple[Array, Array]:
    """How many records are nearest to each centroid, and their mean within the bounds: the centroid where none is."""
    counts, totals = sums[: len(centroids), None], sums[len(centroids) :].reshape(centroids.shape)
    some = counts > 0
    return counts[:, 0], np.where(some, np.clip(totals / np.where(some, counts, 1.0), -1.0, 1.0), centroids)


# ----------------------------------------------------------------------------------------------------------------------
# What a set of measurements holds.


def measured_sums(measured: MeasurementSet, algorithm: str, part: str) -> tuple[Measurement, ...]:
    """The measurements of this part of an algorithm, in their order; refused where there is none."""
    found = tuple(
        each
        for each in measured.measurements
        if (about := each.statistic) is not None and (about.get("algorithm"), about.get("part")) == (algorithm, part)
    )
    if not found:
        raise MeasurementError(f"the measurements hold no {part} of {algorithm!r}; give what such a plan measured")
    return found


def measured_total(counts: Sequence[Measurement]) -> float:
    """The number of records from measurements that each count all of them: their sums, weighted by their noise.

    With n counts of variance v each, a sum has the variance n·v; weights in inverse proportion leave the least.
    """
    return _weighted_total(counts, [float(each.values.sum()) for each in counts])


def _weighted_total(counts: Sequence[Measurement], sums: Sequence[float]) -> float:
    weights = [1.0 / (each.values.size * each.noise.variance) for each in counts]
    return math.fsum(weight * total for weight, total in zip(weights, sums, strict=True)) / math.fsum(weights)


def grid_of(cells: Measurement) -> CellGrid:
    """The grid whose cells were counted."""
    about = cells.statistic or {}
    try:
        grid = CellGrid(int(about["divisions"]), Region(about["region"], len(about["attributes"])))
    except (ConsilienceError, KeyError, TypeError, ValueError) as error:
        raise MeasurementError(f"measurement {cells.name} describes no grid: {error}") from None
    if grid.size != cells.values.size:
        raise MeasurementError(f"measurement {cells.name} has {cells.values.size} counts for {grid.size} cells")
    return grid


def grid_total(counts: Sequence[Measurement], domain: Domain) -> float:
    """The public number of records, or what all counts together say of it."""
    return measured_total(counts) if domain.public.total is None else float(domain.public.total)


def cell_centroids(
    counts: Sequence[Measurement], domain: Domain, clusters: int, *, seed: int, negatives: Negatives = "project"
) -> Array:
    """Centroids in normalised coordinates, by k-means on the cells of the last of these counts."""
    cells = counts[-1]
    return clusters_of_cells(
        grid_of(cells),
        cells.values,
        grid_total(counts, domain),
        clusters,
        seed=seed,
        restarts=RESTARTS,
        negatives=negatives,
    )


def block_means(measured: MeasurementSet) -> Array:
    """The noisy average of the blocks' centroids, moved into the region; normalised coordinates."""
    found = measured_sums(measured, "sample-and-aggregate", "centroids")[-1]
    about = found.statistic or {}
    shape = (len(about["start"]), len(about["attributes"]))
    if not float(about["blocks"]) >= 1:
        raise MeasurementError(f"measurement {found.name} is of {about['blocks']!r} blocks; there are 1 or more")
    return Region(about["region"], shape[1]).project(found.values.reshape(shape) / float(about["blocks"]))


# ----------------------------------------------------------------------------------------------------------------------
# Clusters with their draws.


def read_cells(
    counts: Sequence[Measurement], domain: Domain, clusters: int, *, seed: int, negatives: Negatives
) -> Reading:
    """Clusters of counts of cells."""
    rng = generator(seed)
    centroids = cell_centroids(counts, domain, clusters, seed=seed, negatives=negatives)
    grid, cells, public = grid_of(counts[-1]), counts[-1], domain.public.total
    weights = cell_weights(cells.values, grid_total(counts, domain), negatives=negatives)
    expected = statistics_of(KMEANS, centroids, grid.centres[weights > 0]) @ weights[weights > 0]
    drawn = []
    for _ in range(DRAWS):
        noise = [_noise(each, rng) for each in counts]
        sums = [float(weights.sum() + each.sum()) for each in noise]
        total = _weighted_total(counts, sums) if public is None else float(public)
        other = cell_weights(weights + noise[-1], total, negatives=negatives)
        used = (weights > 0) | (other > 0)
        places = _anywhere_in_cells(grid, np.flatnonzero(used), rng)
        amounts = 2 * weights[used] - other[used]
        drawn.append(cell_means(statistics_of(KMEANS, centroids, places) @ amounts, centroids))
    return Reading.of_draws(centroids, expected, drawn)


def read_cells_and_round(
    counts: Sequence[Measurement], rounds: NoisyRounds, domain: Domain, *, seed: int, negatives: Negatives, lumps: float
) -> Reading:
    """Clusters of a round that began at the clusters of a grid."""
    rng = generator(seed)
    centroids, grid = rounds.last_iterate, grid_of(counts[-1])
    total = max(grid_total(counts, domain), 1.0)
    weights = cell_weights(counts[-1].values, total, negatives=negatives)
    if not weights.any():
        weights = np.ones(grid.size)
    chosen = rng.choice(grid.size, POINTS, p=weights / weights.sum())
    seen = Simulated(_anywhere_in_cells(grid, chosen, rng), np.full(POINTS, total / POINTS))
    conditional = Kriging.of(cluster_problem(rounds).target, seen, rounds.region, rng, lumps=lumps)
    if conditional is None:
        return Reading.without_intervals(centroids, NO_BARS_OF_MANY)
    expected, sums = conditional.draws(statistics_of(KMEANS, centroids, conditional.base.points), DRAWS, rng)
    drawn = [cell_means(each, centroids) for each in sums]
    return Reading.of_draws(centroids, expected, drawn, lump=conditional.lump, misfit=conditional.misfit)


def read_blocks(measured: MeasurementSet) -> Reading:
    """Centroids of blocks, of which nothing else is known."""
    return Reading.without_intervals(block_means(measured), NO_BARS_OF_BLOCKS)


def _noise(measurement: Measurement, rng: Generator) -> Array:
    """Noise as it was added; a lattice far finer than the noise is left out."""
    noise, size = measurement.noise, measurement.values.size
    laplace = noise.law.removeprefix("discrete-") == "laplace"
    return noise.scale_parameter * (rng.laplace(size=size) if laplace else rng.standard_normal(size))


def _anywhere_in_cells(grid: CellGrid, cells: NDArray[np.intp], rng: Generator) -> Array:
    """A place in each of these cells, within the region."""
    centres = grid.centres[cells]
    return grid.region.project(np.clip(centres + rng.uniform(-1.0, 1.0, centres.shape) / grid.divisions, -1.0, 1.0))
