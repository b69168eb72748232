"""Clusters of points, and of noisy counts, that have been published: where they start, how noise moves them.

Nearest centroids are those of `privacy/cluster_statistics.py`.
"""

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.kernels.kernel_cache import njit
from consilience.kernels.regions import LARGEST_GRID, CellGrid, Region, RegionKind
from consilience.kernels.rng import Generator, generator
from consilience.kernels.simplex import project_to_simplex

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Negatives = Literal["project", "zero"]


# ----------------------------------------------------------------------------------------------------------------------
# How noisy counts and sums move the centroids: one rule for every method that is compared.


LEAST_COUNT = 1.0
"""Below this noisy count a centroid stays where it was."""


def next_centroids(counts: ArrayLike, sums: ArrayLike, previous: ArrayLike, region: Region) -> NDArray[np.float64]:
    """Each cluster's sum over its count, moved into the region; where the count is below 1, the previous centroid.

    Noise makes counts negative and sums large; whatever they are, the result lies in the region if `previous` does.

    >>> region = Region("box", 1)
    >>> next_centroids([4.0, -2.0, 1.0], [[2.0], [1.0], [7.0]], [[0.1], [0.2], [0.3]], region).ravel()
    array([0.5, 0.2, 1. ])
    """
    sizes = np.asarray(counts, dtype=np.float64)
    totals = np.asarray(sums, dtype=np.float64)
    stay = np.asarray(previous, dtype=np.float64)
    if stay.ndim != 2 or sizes.shape != stay.shape[:1] or totals.shape != stay.shape:
        raise DeclarationError(
            f"counts of the shape {sizes.shape} and sums of the shape {totals.shape} do not fit centroids of the "
            f"shape {stay.shape}; give one count and one row of sums for each centroid"
        )
    moved = sizes >= LEAST_COUNT
    means = np.where(moved[:, None], totals / np.maximum(sizes, LEAST_COUNT)[:, None], stay)
    return np.where(moved[:, None], region.project(means), stay)


# ----------------------------------------------------------------------------------------------------------------------
# Where centroids start: far from each other, and chosen without looking at any data.
#
# A packing of balls, as Su et al. (2015) begin: K centres drawn one after another, each at least a from the border
# of the region and at least 2a from those before it. A centre that is not found in some draws starts the packing again
# with a smaller radius a. What comes out is a function of the shape of the region and a public seed.


DRAWS = 100
SHRINKAGE = 0.9


def initial_centroids(clusters: int, dimensions: int, region: RegionKind | Region, seed: int) -> Floats:
    """Well-separated centroids in normalised coordinates: a function of the arguments alone.

    >>> initial_centroids(1, 2, "ball", seed=0)
    array([[0., 0.]])
    >>> initial_centroids(5, 3, "box", seed=7).shape
    (5, 3)
    """
    if not isinstance(clusters, int) or isinstance(clusters, bool) or clusters < 1:
        raise DeclarationError(f"{clusters!r} clusters were asked for; ask for a whole number from 1 up")
    place = region if isinstance(region, Region) else Region(region, dimensions)
    if place.dimensions != dimensions:
        raise DeclarationError(f"centroids of {dimensions} dimensions were asked for in one of {place.dimensions}")
    rng = generator(seed)
    radius = _inradius(place)
    while (found := _packed(clusters, place, radius, rng)) is None:
        radius *= SHRINKAGE
    return found


def _inradius(region: Region) -> float:
    """The radius of the largest Euclidean ball in the region."""
    return 1.0 if region.kind == "box" else 1.0 / math.sqrt(region.dimensions)


def _packed(clusters: int, region: Region, radius: float, rng: Generator) -> Floats | None:
    """Centres of balls of the radius that do not overlap, or None where chance did not find them."""
    found = np.empty((clusters, region.dimensions))
    shrunk = 1.0 - radius / _inradius(region)
    for k in range(clusters):
        drawn = shrunk * _uniform(region, DRAWS, rng)
        free = np.ones(DRAWS, dtype=np.bool_)
        for earlier in found[:k]:
            free &= np.sum((drawn - earlier) ** 2, axis=1) >= (2 * radius) ** 2
        if not free.any():
            return None
        found[k] = drawn[np.argmax(free)]
    return found + 0.0  # no negative zeros


def _uniform(region: Region, count: int, rng: Generator) -> Floats:
    """Points uniform in the region; in the ball, d of d + 1 shares of a random partition of 1, with random signs."""
    if region.kind == "box":
        return rng.uniform(-1.0, 1.0, size=(count, region.dimensions))
    parts = rng.exponential(size=(count, region.dimensions + 1))
    shares = parts[:, :-1] / parts.sum(axis=1, keepdims=True)
    return shares * (2.0 * rng.integers(2, size=shares.shape) - 1.0)


# ----------------------------------------------------------------------------------------------------------------------
# K-means without noise: Lloyd's steps from greedy k-means++ starts, the best of several.
#
# One step moves every centroid to the mean of the points that are nearest to it; the within-cluster sum of squares
# never grows, and the run ends when no centroid moves. Starts are drawn by k-means++ (Arthur and Vassilvitskii 2007): a
# point is drawn with probability proportional to weight × squared distance to the nearest start so far. Greedily: of 2
# + ⌊ln K⌋ such draws the one that leaves the least sum of squares is taken.


RESTARTS = 10
MOST_STEPS = 300


def lloyd(
    points: ArrayLike,
    clusters: int,
    rng: Generator,
    *,
    restarts: int | None = None,
    weights: ArrayLike | None = None,
    start: ArrayLike | None = None,
    most_steps: int = MOST_STEPS,
) -> Floats:
    """The centroids with the least within-cluster sum of squares that the starts lead to.

    `start` is one start; `restarts` random ones are tried besides it: by default none where a start is given, and 10
    where none is. Equal points, more clusters than points, or no points at all are no error: centroids without points
    stay where they started, and without points and start they are zeros.

    >>> from consilience.kernels.rng import generator
    >>> sorted(lloyd([[0.0], [0.2], [0.9], [1.1]], 2, generator(0)).ravel().round(12).tolist())
    [0.1, 1.0]
    """
    rows, sizes, first = _checked(points, clusters, weights, start)
    if restarts is None:
        restarts = 0 if first is not None else RESTARTS
    if restarts < 0 or (restarts == 0 and first is None):
        raise DeclarationError(f"{restarts} restarts leave nowhere to start; ask for 1 or more, or give a start")
    starts = [] if first is None else [first]
    best = np.zeros((clusters, rows.shape[1])) if first is None else first
    if not np.any(sizes > 0):
        return best
    starts += [_random_start(rows, sizes, clusters, rng) for _ in range(restarts)]
    least = math.inf
    for each in starts:
        centroids, squares = _descend(rows, sizes, each, most_steps)
        if squares < least:
            best, least = centroids, squares
    return best


def _checked(
    points: ArrayLike, clusters: int, weights: ArrayLike | None, start: ArrayLike | None
) -> tuple[Floats, Floats, Floats | None]:
    rows = np.ascontiguousarray(points, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] < 1 or clusters < 1:
        raise DeclarationError(f"points of the shape {rows.shape} cannot make {clusters} clusters; give rows of points")
    sizes = np.ones(len(rows)) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    if sizes.shape != (len(rows),) or not (np.isfinite(sizes).all() and (sizes >= 0).all()):
        raise DeclarationError(f"{len(rows)} points need as many finite weights from 0 up; found {sizes.shape}")
    if start is None:
        return rows, sizes, None
    first = np.array(start, dtype=np.float64)
    if first.shape != (clusters, rows.shape[1]):
        raise DeclarationError(f"the start has the shape {first.shape}, not {(clusters, rows.shape[1])}")
    return rows, sizes, first


def _random_start(points: Floats, weights: Floats, clusters: int, rng: Generator) -> Floats:
    candidates = 2 + int(math.log(clusters))
    return _spread_start(points, weights, rng.random((clusters, candidates)))


@njit(nogil=True, cache=True)
def _spread_start(points, weights, uniforms):  # pragma: no cover - compiled
    """A greedy k-means++ start; `uniforms` has a row for each cluster and a column for each candidate."""
    rows, dimensions = points.shape
    clusters, candidates = uniforms.shape
    centroids = np.empty((clusters, dimensions))
    distances = np.ones(rows)  # the first draw goes by weight alone
    masses = np.empty(rows)
    trial = np.empty(rows)
    chosen = np.empty(rows)
    for k in range(clusters):
        total = 0.0
        for i in range(rows):
            total += weights[i] * distances[i]
            masses[i] = total
        least = np.inf
        for c in range(candidates):
            drawn = min(np.searchsorted(masses, uniforms[k, c] * total, side="right"), rows - 1)
            left = 0.0
            for i in range(rows):
                gap = _squared_distance(points, i, points, drawn)
                trial[i] = gap if k == 0 else min(distances[i], gap)
                left += weights[i] * trial[i]
            if left < least:
                least = left
                chosen, trial = trial, chosen
                centroids[k] = points[drawn]
        distances, chosen = chosen, distances
    return centroids


@njit(nogil=True, cache=True)
def _squared_distance(points, i, others, k):  # pragma: no cover - compiled
    distance = 0.0
    for j in range(points.shape[1]):
        gap = points[i, j] - others[k, j]
        distance += gap * gap
    return distance


@njit(nogil=True, cache=True)
def _descend(points, weights, start, most_steps):  # pragma: no cover - compiled
    """Lloyd's steps until no label changes; the centroids, and the sum of squares around them."""
    rows, dimensions = points.shape
    clusters = start.shape[0]
    centroids = start.copy()
    labels = np.full(rows, -1)
    counts = np.empty(clusters)
    sums = np.empty((clusters, dimensions))
    squares = np.inf
    for _ in range(most_steps + 1):
        changed = False
        squares = 0.0
        counts[:] = 0.0
        sums[:] = 0.0
        for i in range(rows):
            if weights[i] == 0.0:
                continue
            best, least = 0, np.inf
            for k in range(clusters):
                distance = _squared_distance(points, i, centroids, k)
                if distance < least:
                    best, least = k, distance
            changed |= labels[i] != best
            labels[i] = best
            squares += weights[i] * least
            counts[best] += weights[i]
            for j in range(dimensions):
                sums[best, j] += weights[i] * points[i, j]
        if not changed:
            break
        for k in range(clusters):
            if counts[k] > 0.0:
                centroids[k] = sums[k] / counts[k]
    return centroids, squares


# ----------------------------------------------------------------------------------------------------------------------
# Clusters of the counts of the cells of a grid (EUGkM: Su et al. 2016).
#
# With too few cells the points of a cell are too different, with too many the noise on their counts adds up. Su et al.
# balance the two at
#
#     M = (N ε / 10)^(2d / (2 + d))  cells in all,  g = M^(1/d) on each side,
#
# where ε is what pays for one record's cell, and 10 their choice of a constant.


CELLS_CONSTANT = 10.0


def suggested_divisions(records: float, epsilon: float, dimensions: int) -> int:
    """How many parts Su et al.'s rule cuts each side into: at least 2, at most what LARGEST_GRID allows.

    >>> suggested_divisions(5_000, 1.0, 2), suggested_divisions(5_000, 0.05, 2), suggested_divisions(27_000, 1.0, 10)
    (22, 5, 4)
    """
    cells = max(records * epsilon / CELLS_CONSTANT, 1.0) ** (2.0 * dimensions / (2.0 + dimensions))
    wanted = max(2, round(cells ** (1.0 / dimensions)))
    allowed = math.floor(LARGEST_GRID ** (1.0 / dimensions) + 1e-9)
    return max(2, min(wanted, allowed))


def clusters_of_cells(
    grid: CellGrid,
    noisy_counts: Floats,
    total: float,
    clusters: int,
    *,
    seed: int,
    restarts: int = 10,
    negatives: Negatives = "project",
) -> Floats:
    """Centroids of noise-free k-means on the cells' centres, weighted by their noisy counts.

    A weight cannot be negative. "project" takes the non-negative counts of the given total that are nearest to the
    noisy ones, which leaves little on cells that hold nothing but noise; "zero" puts zeros for negative counts, which
    keeps the upper half of that noise. Where no weight is left all cells weigh the same.
    """
    weights = cell_weights(noisy_counts, total, negatives=negatives)
    if not weights.any():
        weights = np.ones(grid.size)
    used = weights > 0
    return lloyd(grid.centres[used], clusters, generator(seed), restarts=restarts, weights=weights[used])


def cell_weights(noisy_counts: Floats, total: float, *, negatives: Negatives = "project") -> Floats:
    """Counts that are not negative, of the given total where they are projected; see `clusters_of_cells`.

    >>> cell_weights(np.array([5.0, 3.0, -1.0]), 6.0), cell_weights(np.array([5.0, -1.0]), 6.0, negatives="zero")
    (array([4., 2., 0.]), array([5., 0.]))
    """
    if negatives == "project":
        return project_to_simplex(noisy_counts, max(total, 0.0))
    return np.maximum(noisy_counts, 0.0)
