"""Clusters from counts of cells, alone or together with rounds of k-means, and from centroids of blocks.

*Counts of cells* (EUGkM). With w the non-negative counts nearest to the noisy ones, centroids are those of k-means on
the cells' centres.

*Cells and rounds* (the hybrid). Both are sums over the same records and are read as one: kriging (iterates/kriging.py),
with the counts in place of the chains. The last round began at centroids θ; reported are the expected sums over the
expected counts of the clusters around θ, given everything. Where noise is small these are the centroids that the round
led to, and where it is large they stay where the grid saw them.

*What is open*, for both: the noise, and where in its cell a cell's records are. They are taken to come in a few lumps
at places of the cell, `LUMPS_OF_CELL`; and those of a cluster to be more frequent or rarer than supposed in all cells
together (`iterates.kriging.GROUP_SPREAD`). In a ball the places are half those of records anywhere in the box, half
those of records as the counts suggest (`likely_records`), and either half may be the truer one.

*Sizes* are not negative and add up to the number of records: `possible_sizes`.

*Blocks* (GUPT). The noisy average of the blocks' centroids says neither how many records are nearest to each, nor how
far their mean is from it. What its noise leaves open is the average itself: an interval of a centroid is about that, by
the exact law of the noise, and there are no sizes.

Nothing here sees data or spends budget.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
from consilience.kernels.simplex import project_to_simplex
from consilience.measurements import Measurement, MeasurementSet

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

RESTARTS = 20
LUMPS_OF_CELL = 4.0
"""Where a cell is as its neighbours. Of 2, 3, 4 and 6 lumps for all cells alike 3 were right on S1, Adult and the
check-ins (ball, ε = 0.1 and 0.5; box, ε = 0.5; seeds 0 to 4). With 3 for even cells and one for uneven ones intervals
of S1 became a third wider, with 4 and one a quarter, and those of Lifesci by half; with half of an uneven cell's
records in one lump they become little wider."""
EVEN_POINTS, MOST_EVEN = 12_000, 8
"""Every cell with records has an equal share of these points, up to so many: one that clusters divide needs some."""
MOVED_RECORDS = 100_000
BINS, AT_BOUNDS = 8, 0.1
"""Of each side of the box, and the share of records at its two bounds before the counts are heard."""
BELIEVED, STEPS = 0.2, 20
"""The weight of what was supposed before, per record, and the steps of EM: of 0.02, 0.1, 0.2 and 0.3 the first where
centres of S1 in the ball hold about as often as without (grid, ε = 0.1: 63 to 78 % with less)."""
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
        means, counts = np.array([each[1] for each in drawn]), np.array([each[0] for each in drawn])
        sizes, counts = possible_sizes(expected[: len(centroids)], counts)
        return Reading(centroids, sizes, means, counts, about)


def cell_means(sums: Array, centroids: Array) -> tuple[Array, Array]:
    """How many records are nearest to each centroid, and their mean within the bounds: the centroid where none is."""
    counts, totals = sums[: len(centroids), None], sums[len(centroids) :].reshape(centroids.shape)
    some = counts > 0
    return counts[:, 0], np.where(some, np.clip(totals / np.where(some, counts, 1.0), -1.0, 1.0), centroids)


def possible_sizes(expected: Array, drawn: Array) -> tuple[Array, Array]:
    """The non-negative sizes nearest to the expected ones, of the same sum; draws are moved as far as these were.

    Given noisy values, sums may be expected to be negative, and every draw of one: draws are then about 0 instead.

    >>> possible_sizes(np.array([7.0, 5.0, -2.0]), np.array([[7.0, 6.0, -3.0]]))
    (array([6., 4., 0.]), array([[ 6.,  5., -1.]]))
    """
    sizes = project_to_simplex(expected, max(float(expected.sum()), 0.0))
    return sizes, drawn + (sizes - expected)


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

    if rounds is not None:
        before = rounds.thetas[-1]
        sums, _ = conditional.draws(statistics_of(KMEANS, before, cells.base.points), 1, rng)
        moved = sums[len(before) :].reshape(before.shape)
        centroids = next_centroids(sums[: len(before)], moved, before, rounds.region)
    pieces = _pieces(cells, [centroids, *(() if rounds is None else rounds.thetas)])
    conditional = Kriging.of_cells(told, replace(cells, groups=(*cells.groups, pieces)), lumps=LUMPS_OF_CELL)
    sums, drawn = conditional.draws(statistics_of(KMEANS, centroids, cells.base.points), DRAWS, rng)
    return Reading.of_draws(centroids, sums, [cell_means(each, centroids) for each in drawn], misfit=conditional.misfit)


def _pieces(cells: CountedCells, thetas: Sequence[Array]) -> Integers:
    """For each point that is no copy, in which cluster of each of these centroids it is, as one number."""
    points = cells.base.points[: len(cells.cells)]
    labels = [np.argmax(statistics_of(KMEANS, theta, points)[: len(theta)], axis=0) for theta in thetas]
    return np.unique(np.array(labels), axis=1, return_inverse=True)[1].ravel()


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
    if grid.region.kind == "box":
        points, groups = points_within(grid, cells, rng), ()
    else:
        records, likely = likely_records(grid, fitted, rng)
        points, chosen = moved_points_within(grid, cells, records, rng)
        groups = (np.where(chosen < 0, 0, likely[chosen]),)
    found = CountedCells.of(points, cells, fitted, noisy.values, variance=noisy.noise.variance, grid=grid)
    return replace(found, groups=groups)


def points_within(grid: CellGrid, cells: Integers, rng: Generator) -> Array:
    """Points anywhere in these cells, a point each, moved into the region."""
    lows = 2.0 * grid.parts[cells] / grid.divisions - 1.0
    return grid.region.project(lows + rng.random(lows.shape) * (2.0 / grid.divisions))


def moved_points_within(grid: CellGrid, cells: Integers, records: Array, rng: Generator) -> tuple[Array, Integers]:
    """Points of these cells, which are in order, where records of the box come to lie that are moved to the region.

    Most of the box is moved to the border of a ball, and to places where many coordinates are 0. The second result says
    which record each point is, and is −1 in a cell with too few of them: there points are anywhere.
    """
    points = points_within(grid, cells, rng)
    moved = grid.region.project(records)
    where = grid.holding(moved)
    order, found = np.argsort(where, kind="stable"), np.bincount(where, minlength=grid.size)
    numbers = np.bincount(cells, minlength=grid.size)
    ranks = np.arange(len(cells)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    there = ranks < found[cells]
    chosen = np.full(len(cells), -1)
    chosen[there] = order[(np.cumsum(found) - found)[cells[there]] + ranks[there]]
    points[there] = moved[chosen[there]]
    return points, chosen


# Many records have a value at a bound, and a ball moves them together to few places: which, the counts of cells tell in
# more than two dimensions. Suppose that the attributes are independent, and that attribute j has the law f_j on the two
# bounds and equal bins between them. The likeliest laws are found by EM: with x_i records drawn from the laws f⁰
# supposed before, C(i) the cell that x_i is moved to, n_c its count and w_i = Π_j f_j(x_ij) / f⁰_j(x_ij),
#
#     r_i = n_C(i) w_i / Σ_{l: C(l) = C(i)} w_l,     f_j(b) ∝ Σ_{i: x_ij in b} r_i + a Σ_i r_i f⁰_j(b).
#
# Only the places within a cell follow from this: how many records it has is its count. Each step costs O(records · d).


def likely_records(grid: CellGrid, counts: Array, rng: Generator) -> tuple[Array, Integers]:
    """Records of the box in any order, half of them anywhere in it, half as these counts of cells make likely.

    The second result is 1 where a record is of the second half.
    """
    number, dimensions = MOVED_RECORDS // 2, grid.region.dimensions
    likely = np.concatenate([np.zeros(number, dtype=np.int64), np.ones(number, dtype=np.int64)])
    anywhere = rng.uniform(-1.0, 1.0, (number, dimensions))
    records = np.concatenate([anywhere, _records_of(_likeliest_laws(grid, counts, rng), number, rng)[1]])
    order = rng.permutation(len(records))
    return records[order], likely[order]


def _likeliest_laws(grid: CellGrid, counts: Array, rng: Generator) -> Array:
    """The share of each attribute's lower bound, its bins and its upper bound, a row for each attribute."""
    within = np.full(BINS, (1 - AT_BOUNDS) / BINS)
    before = np.tile(np.concatenate([[AT_BOUNDS / 2], within, [AT_BOUNDS / 2]]), (grid.region.dimensions, 1))
    bins, records = _records_of(before, MOVED_RECORDS // 2, rng)
    where = grid.holding(grid.region.project(records))
    laws = before
    for _ in range(STEPS):
        logs = np.sum([np.log(law / old)[each] for law, old, each in zip(laws, before, bins.T, strict=True)], axis=0)
        weights = np.exp(logs - logs.max())
        totals = np.bincount(where, weights, grid.size)
        shares = weights * np.divide(counts, totals, out=np.zeros(grid.size), where=totals > 0)[where]
        heard = max(float(shares.sum()), 1.0)
        laws = np.array([np.bincount(each, shares, BINS + 2) for each in bins.T]) + BELIEVED * heard * before
        laws /= laws.sum(axis=1, keepdims=True)
    return laws


def _records_of(laws: Array, number: int, rng: Generator) -> tuple[Integers, Array]:
    """The bin of each coordinate of so many records, and the records."""
    uniform = rng.random((number, len(laws)))
    ends = np.cumsum(laws, axis=1)
    bins = np.array([np.searchsorted(end[:-1], each) for end, each in zip(ends, uniform.T, strict=True)]).T
    inner = (bins - rng.random(bins.shape)) * (2.0 / BINS) - 1.0
    return bins, np.where(bins == 0, -1.0, np.where(bins == BINS + 1, 1.0, inner))


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
