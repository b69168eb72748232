"""Nearest centroids, and sums over the clusters that they make.

A point x belongs to the cluster argmin_k Σ_j (x_j − c_kj)², the lowest k where several are equal. The distances of one
point are summed coordinate by coordinate, so that its cluster depends on that point and the centroids alone: a product
of whole matrices would be faster, and could settle a near-tie by the position of a row.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.compilation import announce
from consilience.kernels.regions import LATTICE_BITS

Numbers = NDArray[Any]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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


@numba.njit(nogil=True, cache=True)
def closest(
    points: Numbers, i: int, unit: float, centroids: Floats
) -> tuple[int, float]:  # pragma: no cover - compiled
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
def _cluster_sums(
    units: Numbers, centroids: Floats, unit: float
) -> tuple[Integers, Integers]:  # pragma: no cover - compiled
    counts = np.zeros(centroids.shape[0], np.int64)
    sums = np.zeros(centroids.shape, np.int64)
    for i in range(units.shape[0]):
        k, _ = closest(units, i, unit, centroids)
        counts[k] += 1
        for j in range(units.shape[1]):
            sums[k, j] += units[i, j]
    return counts, sums
