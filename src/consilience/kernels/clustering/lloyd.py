"""K-means without noise: Lloyd's steps from greedy k-means++ starts, the best of several.

One step moves every centroid to the mean of the points that are nearest to it; the within-cluster sum of squares never
grows, and the run ends when no centroid moves. Starts are drawn by k-means++ (Arthur and Vassilvitskii 2007): a point
is drawn with probability proportional to weight × squared distance to the nearest start so far. Greedily: of
2 + ⌊ln K⌋ such draws the one that leaves the least sum of squares is taken.
"""

import math

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.kernels.compilation import announce
from consilience.kernels.rng import Generator

RESTARTS = 10
MOST_STEPS = 300

Floats = NDArray[np.float64]


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
    announce(_descend)
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
    announce(_spread_start)
    candidates = 2 + int(math.log(clusters))
    return _spread_start(points, weights, rng.random((clusters, candidates)))


@numba.njit(nogil=True, cache=True)
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


@numba.njit(nogil=True, cache=True)
def _squared_distance(points, i, others, k):  # pragma: no cover - compiled
    distance = 0.0
    for j in range(points.shape[1]):
        gap = points[i, j] - others[k, j]
        distance += gap * gap
    return distance


@numba.njit(nogil=True, cache=True)
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
