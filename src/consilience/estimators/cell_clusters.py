"""Clusters from counts of cells, alone or together with rounds of k-means, and from centroids of blocks.

*Counts of cells* (EUGkM). With w the non-negative counts nearest to the noisy ones, centroids are those of k-means on
the cells' centres.

*Cells and rounds* (the hybrid). Both are sums over the same records and are read as one: kriging (iterates/kriging.py),
with the counts in place of the chains. The last round began at centroids θ; reported are the expected sums over the
expected counts of the clusters around θ, given everything. Where noise is small these are the centroids that the round
led to, and where it is large they stay where the grid saw them.

*What is open*, for both: the noise, and where in its cell a cell's records are. They are taken to come in a few lumps
at places of the cell, `LUMPS_OF_CELL`.

*Blocks* (GUPT). The noisy average of the blocks' centroids says neither how many records are nearest to each, nor how
far their mean is from it. What its noise leaves open is the average itself: an interval of a centroid is about that, by
the exact law of the noise, and there are no sizes.

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
from consilience.iterates.chain_kernels import KMEANS
from consilience.iterates.clustering import Negatives, cell_weights, clusters_of_cells, next_centroids
from consilience.iterates.kriging import POINTS, CountedCells, Kriging, NoisySums, statistics_of
from consilience.iterates.problems import NoisyRounds, cluster_problem
from consilience.kernels.regions import CellGrid, Region
from consilience.kernels.rng import Generator, generator
from consilience.measurements import Measurement, MeasurementSet

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

RESTARTS = 20
LUMPS_OF_CELL = 3.0
"""Of 2, 3, 4 and 6 the one whose 90 % intervals came nearest to 90 % on S1, Adult and the check-ins (ball, ε = 0.1 and
0.5; box, ε = 0.5; seeds 0 to 4): those of sizes held 60 % in a row with 4."""
EVEN_POINTS, MOST_EVEN = 12_000, 8
"""Every cell with records has an equal share of these points, up to so many: one that clusters divide needs some."""
MOVED_POINTS = 200_000
MOST_CELLS, MOST_NUMBERS = 2**17, 50_000_000
"""Larger grids, and rounds that would take more numbers than these with the points of the cells, have no error bars."""
EXACT_SCALE = 1e-3
"""In records: the noise that a public number of records is taken to have."""
DRAWS = 400
ABOUT_BLOCKS = (
    "sizes are not measured by sample and aggregate, and its intervals are about the average of the blocks' centroids "
    "without noise, not about the records nearest to them"
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
    intervals_of: str = ""
    """What they are about, if not the records nearest to a centroid."""

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
    average, region, _ = _average_of_blocks(measured)
    return region.project(average)


def _average_of_blocks(measured: MeasurementSet) -> tuple[Array, Region, Measurement]:
    """The noisy average, wherever it is."""
    found = measured_sums(measured, "sample-and-aggregate", "centroids")[-1]
    about = found.statistic or {}
    shape = (len(about["start"]), len(about["attributes"]))
    if not float(about["blocks"]) >= 1:
        raise MeasurementError(f"measurement {found.name} is of {about['blocks']!r} blocks; there are 1 or more")
    return found.values.reshape(shape) / float(about["blocks"]), Region(about["region"], shape[1]), found


# ----------------------------------------------------------------------------------------------------------------------
# Clusters with their draws.


def read_cells(
    counts: Sequence[Measurement],
    rounds: NoisyRounds | None,
    domain: Domain,
    clusters: int,
    *,
    seed: int,
    negatives: Negatives,
) -> Reading:
    """Clusters of counts of cells, the last of these counts, and of rounds about the same records, if any."""
    rng = generator(seed)
    if rounds is None:
        centroids = cell_centroids(counts, domain, clusters, seed=seed, negatives=negatives)
    else:
        centroids = rounds.last_iterate
    cells = _counted_cells(counts, domain, negatives, rng)
    told = None if cells is None else _sums_beside(counts, rounds, domain, cells.base.points)
    if cells is None or told is None:
        return Reading.without_intervals(centroids, NO_BARS_OF_MANY)
    conditional = Kriging.of_cells(told, cells, lumps=LUMPS_OF_CELL)

    def expected(around: Array, draws: int) -> tuple[Array, Array]:
        return conditional.draws(statistics_of(KMEANS, around, cells.base.points), draws, rng)

    if rounds is not None:
        before = rounds.thetas[-1]
        sums, _ = expected(before, 1)
        moved = sums[len(before) :].reshape(before.shape)
        centroids = next_centroids(sums[: len(before)], moved, before, rounds.region)
    sums, drawn = expected(centroids, DRAWS)
    return Reading.of_draws(centroids, sums, [cell_means(each, centroids) for each in drawn], misfit=conditional.misfit)


def _counted_cells(
    counts: Sequence[Measurement], domain: Domain, negatives: Negatives, rng: Generator
) -> CountedCells | None:
    """What the last of these counts say of their cells, with points anywhere in them; None where they are too many."""
    grid, noisy = grid_of(counts[-1]), counts[-1]
    if grid.size > MOST_CELLS:
        return None
    total = max(grid_total(counts, domain), 1.0)
    fitted = cell_weights(noisy.values, total, negatives=negatives)
    held = fitted > 0
    even = np.clip(EVEN_POINTS // max(np.count_nonzero(held), 1), 1, MOST_EVEN)
    numbers = np.where(held, np.maximum(POINTS * fitted / max(fitted.sum(), 1.0), even), 1).astype(np.int64)
    cells = np.repeat(np.arange(grid.size), numbers)
    points = points_within(grid, cells, rng)
    return CountedCells.of(points, cells, fitted, noisy.values, variance=noisy.noise.variance, grid=grid)


def points_within(grid: CellGrid, cells: Integers, rng: Generator) -> Array:
    """Points of these cells, which are in order, a point each: as records of the box lie that were moved to the region.

    Most of the box is moved to the border of a ball, and to places where many coordinates are 0. Cells into which no
    such record is moved in many draws have points anywhere in them.
    """
    lows = 2.0 * grid.parts[cells] / grid.divisions - 1.0
    points = grid.region.project(lows + rng.random(lows.shape) * (2.0 / grid.divisions))
    if grid.region.kind == "box":
        return points
    moved = grid.region.project(rng.uniform(-1.0, 1.0, (MOVED_POINTS, grid.region.dimensions)))
    where = grid.holding(moved)
    order, found = np.argsort(where, kind="stable"), np.bincount(where, minlength=grid.size)
    numbers = np.bincount(cells, minlength=grid.size)
    ranks = np.arange(len(cells)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    there = ranks < found[cells]
    points[there] = moved[order[(np.cumsum(found) - found)[cells[there]] + ranks[there]]]
    return points


def _sums_beside(
    counts: Sequence[Measurement], rounds: NoisyRounds | None, domain: Domain, points: Array
) -> NoisySums | None:
    """What was measured besides the last of the counts: the number of records, and rounds."""
    none = np.zeros((0, len(points)))
    laplace = counts[-1].noise.law.removeprefix("discrete-") == "laplace"
    found = NoisySums(none, none[:, 0], none[:, 0], laplace)
    if rounds is not None:
        found = NoisySums.of_rounds(cluster_problem(rounds).target, points)
        if found is None or found.statistics.size > MOST_NUMBERS:
            return None
    if domain.public.total is not None:
        return found.and_total(float(domain.public.total), EXACT_SCALE)
    for each in counts[:-1]:
        found = found.and_total(float(each.values.sum()), each.noise.scale_parameter * each.values.size**0.5)
    return found


def read_blocks(measured: MeasurementSet, rng: Generator) -> Reading:
    """Centroids of blocks, and what their average may be without noise: within the bounds, as every block's are."""
    average, region, found = _average_of_blocks(measured)
    noise = found.noise.quantile((np.arange(DRAWS) + 0.5) / DRAWS) / float((found.statistic or {})["blocks"])
    away = rng.permuted(np.broadcast_to(noise[:, None, None], (DRAWS, *average.shape)), axis=0)
    centroids = region.project(average)
    unknown = np.full((DRAWS, len(average)), np.nan)
    return Reading(centroids, unknown[0], np.clip(average - away, -1.0, 1.0), unknown, intervals_of=ABOUT_BLOCKS)
