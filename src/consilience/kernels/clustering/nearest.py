"""Nearest centroids, and sums over the clusters that they make.

A point x belongs to the cluster argmin_k Σ_j (x_j − c_kj)², the lowest k where several are equal. The distances of one
point are summed coordinate by coordinate, so that its cluster depends on that point and the centroids alone: a product
of whole matrices would be faster, and could settle a near-tie by the position of a row.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.clustering.regions import LATTICE_BITS
from consilience.kernels.compilation import announce

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def nearest(points: Floats, centroids: Floats) -> Integers:
    """The index of the nearest centroid of each point, the lowest of equally near ones.

    >>> nearest(np.array([[0.0], [0.5], [0.9]]), np.array([[0.0], [1.0]]))
    array([0, 0, 1])
    """
    points, centroids = _matching(points, centroids)
    announce(_nearest)
    return _nearest(points, centroids)


def wcss(points: Floats, centroids: Floats, *, weights: Floats | None = None) -> float:
    """The within-cluster sum of squares: Σ over points of weight × squared distance to the nearest centroid.

    >>> wcss(np.array([[0.0], [0.5], [0.9]]), np.array([[0.0], [1.0]]))
    0.26
    """
    points, centroids = _matching(points, centroids)
    announce(_wcss)
    return float(_wcss(points, centroids, _weights(weights, len(points))))


def cluster_sums(
    points_on_lattice: NDArray[np.int32] | Integers, centroids: Floats, *, bits: int = LATTICE_BITS
) -> tuple[Integers, Integers]:
    """The number of points in each cluster, and the sum of each cluster's points: exact, in lattice units.

    >>> counts, sums = cluster_sums(np.array([[-8], [3], [4]], np.int32), np.array([[-0.5], [0.5]]), bits=4)
    >>> counts.tolist(), sums.tolist()
    ([1, 2], [[-8], [7]])
    """
    centroids = np.ascontiguousarray(centroids, dtype=np.float64)
    if points_on_lattice.ndim != 2 or centroids.ndim != 2 or points_on_lattice.shape[1] != centroids.shape[1]:
        raise DeclarationError(
            f"points of {points_on_lattice.shape[1:]} coordinates do not fit centroids of the shape {centroids.shape}"
        )
    announce(_cluster_sums)
    return _cluster_sums(np.ascontiguousarray(points_on_lattice), centroids, 2.0**-bits)


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


@numba.njit(nogil=True, cache=True)
def _closest(points, i, unit, centroids):  # pragma: no cover - compiled
    """The nearest centroid of one row, whose coordinates are multiples of `unit`, and its squared distance."""
    best, best_distance = 0, np.inf
    for k in range(centroids.shape[0]):
        distance = 0.0
        for j in range(centroids.shape[1]):
            gap = points[i, j] * unit - centroids[k, j]
            distance += gap * gap
        if distance < best_distance:
            best, best_distance = k, distance
    return best, best_distance


@numba.njit(nogil=True, cache=True)
def _nearest(points, centroids):  # pragma: no cover - compiled
    labels = np.empty(points.shape[0], np.int64)
    for i in range(points.shape[0]):
        labels[i], _ = _closest(points, i, 1.0, centroids)
    return labels


@numba.njit(nogil=True, cache=True)
def _wcss(points, centroids, weights):  # pragma: no cover - compiled
    total = 0.0
    for i in range(points.shape[0]):
        _, distance = _closest(points, i, 1.0, centroids)
        if weights[i] > 0.0:
            total += weights[i] * distance
    return total


@numba.njit(nogil=True, cache=True)
def _cluster_sums(units, centroids, unit):  # pragma: no cover - compiled
    counts = np.zeros(centroids.shape[0], np.int64)
    sums = np.zeros(centroids.shape, np.int64)
    for i in range(units.shape[0]):
        k, _ = _closest(units, i, unit, centroids)
        counts[k] += 1
        for j in range(units.shape[1]):
            sums[k, j] += units[i, j]
    return counts, sums
