"""Points moved into a region and onto a lattice, each by a function of that point alone.

Three regions of d dimensions, all inside [−1, 1]^d, and how a point x gets there:

    box            max(−1, min(1, x_j)) for each coordinate
    ball           the nearest point of {‖x‖₁ ≤ 1} in Euclidean distance: sign(x_j) · max(|x_j| − τ, 0), where τ ≥ 0
                   makes the absolute values sum to 1 (Duchi et al. 2008)
    radial-ball    the point of {‖x‖₁ ≤ 1} on the line to the origin: x / max(1, ‖x‖₁)

τ = (Σ of the k largest |x_j| − 1) / k for the largest k that leaves all k of them positive. It is computed from the
differences to the largest |x_j|, which lose nothing where coordinates are huge.

On the lattice 2^−b each coordinate is rounded toward zero. No absolute value grows, so neither does any norm: the L1
norm of a point of the ball is at most 2^b lattice units. Floating-point sums may put a projected point outside by a
few last places, which the rounding takes away; the kernel still checks it in whole numbers and removes any excess, so
that the bound rests on integer arithmetic alone.
"""

import numba
import numpy as np

BOX = 0
BALL = 1
RADIAL_BALL = 2


@numba.njit(nogil=True, cache=True)
def project_rows(points, kind):  # pragma: no cover - compiled
    """Move every row into the region, in place."""
    scratch = np.empty(points.shape[1])
    for i in range(points.shape[0]):
        _project(points[i], kind, scratch)


@numba.njit(nogil=True, cache=True)
def lattice_rows(points, middles, halves, kind, bits):  # pragma: no cover - compiled
    """The rows in lattice units, without those that hold a NaN; `middles` and `halves` describe the bounds."""
    rows, dimensions = points.shape
    units = np.empty((rows, dimensions), np.int32)
    point = np.empty(dimensions)
    scratch = np.empty(dimensions)
    kept = 0
    for i in range(rows):
        missing = False
        for j in range(dimensions):
            low, high = middles[j] - halves[j], middles[j] + halves[j]
            point[j] = (min(max(points[i, j], low), high) - middles[j]) / halves[j]
            point[j] = min(max(point[j], -1.0), 1.0)
            if np.isnan(points[i, j]):
                missing = True
        if missing:
            continue
        _project(point, kind, scratch)
        _round_toward_zero(point, kind, bits, units[kept])
        kept += 1
    return units[:kept]


@numba.njit(nogil=True, cache=True)
def _round_toward_zero(point, kind, bits, units):  # pragma: no cover - compiled
    one = 1 << bits
    total = 0
    for j in range(len(point)):
        units[j] = np.int32(point[j] * one)
        total += abs(units[j])
    while kind != BOX and total > one:
        largest = 0
        for j in range(1, len(point)):
            if abs(units[j]) > abs(units[largest]):
                largest = j
        units[largest] -= 1 if units[largest] > 0 else -1
        total -= 1


@numba.njit(nogil=True, cache=True)
def _project(point, kind, scratch):  # pragma: no cover - compiled
    if kind == BOX:
        for j in range(len(point)):
            point[j] = min(max(point[j], -1.0), 1.0)
        return
    norm = 0.0
    for j in range(len(point)):
        norm += abs(point[j])
    if norm <= 1.0:
        return
    if kind == RADIAL_BALL:
        for j in range(len(point)):
            point[j] /= norm
        return
    _project_to_nearest(point, scratch)


@numba.njit(nogil=True, cache=True)
def _project_to_nearest(point, gaps):  # pragma: no cover - compiled
    """The Euclidean projection of a point outside the ball, in place; `gaps` is scratch space."""
    dimensions = len(point)
    largest = 0.0
    for j in range(dimensions):
        largest = max(largest, abs(point[j]))
    for j in range(dimensions):
        gaps[j] = abs(point[j]) - largest
    gaps.sort()
    threshold = -1.0
    total = 0.0
    for k in range(1, dimensions + 1):
        gap = gaps[dimensions - k]
        total += gap
        if gap <= (total - 1.0) / k:
            break
        threshold = (total - 1.0) / k
    for j in range(dimensions):
        size = max(abs(point[j]) - largest - threshold, 0.0)
        point[j] = size if point[j] > 0.0 else -size
