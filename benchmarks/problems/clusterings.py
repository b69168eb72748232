"""How good a clustering of points is: nearest centroids, by `privacy/cluster_statistics.py`, and their squares."""

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.kernel_cache import njit
from consilience.privacy.cluster_statistics import closest

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def nearest(points: Floats, centroids: Floats) -> Integers:
    """The index of the nearest centroid of each point, the lowest of equally near ones.

    >>> nearest(np.array([[0.0], [0.5], [0.9]]), np.array([[0.0], [1.0]]))
    array([0, 0, 1])
    """
    points, centroids = _matching(points, centroids)
    return _nearest(points, centroids)


def wcss(points: Floats, centroids: Floats, *, weights: Floats | None = None) -> float:
    """The within-cluster sum of squares: Σ over points of weight × squared distance to the nearest centroid.

    >>> wcss(np.array([[0.0], [0.5], [0.9]]), np.array([[0.0], [1.0]]))
    0.26
    """
    points, centroids = _matching(points, centroids)
    return float(_wcss(points, centroids, _weights(weights, len(points))))


def _matching(points: Floats, centroids: Floats) -> tuple[Floats, Floats]:
    points = np.ascontiguousarray(points, dtype=np.float64)
    centroids = np.ascontiguousarray(centroids, dtype=np.float64)
    if points.ndim != 2 or centroids.ndim != 2 or points.shape[1] != centroids.shape[1] or not len(centroids):
        raise DeclarationError(
            f"points of the shape {points.shape} and centroids of the shape {centroids.shape} do not match; "
            "both need a row for each and equal columns, and there must be a centroid"
        )
    return points, centroids


def _weights(weights: Floats | None, count: int) -> Floats:
    if weights is None:
        return np.ones(count)
    found = np.ascontiguousarray(weights, dtype=np.float64)
    if found.shape != (count,) or not (np.isfinite(found).all() and (found >= 0).all()):
        raise DeclarationError(f"{count} points need as many finite weights from 0 up; the shape is {found.shape}")
    return found


@njit(nogil=True, cache=True)
def _nearest(points, centroids):  # pragma: no cover - compiled
    labels = np.empty(points.shape[0], np.int64)
    for i in range(points.shape[0]):
        labels[i], _ = closest(points, i, 1.0, centroids)
    return labels


@njit(nogil=True, cache=True)
def _wcss(points, centroids, weights):  # pragma: no cover - compiled
    total = 0.0
    for i in range(points.shape[0]):
        _, distance = closest(points, i, 1.0, centroids)
        if weights[i] > 0.0:
            total += weights[i] * distance
    return total
