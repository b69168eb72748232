"""Gradients of the logistic loss, record by record: clipped, and on a lattice where sums are exact.

A record is a point x of a region inside [−1, 1]^d with a label y of −1 or 1. With z = y·(x, 1), the last coordinate for
the intercept, and coefficients θ of d + 1 numbers, its loss is ln(1 + exp(−θ·z)), and its clipped gradient

    φ = g · min(1, C / ‖g‖),        g = −s z,        s = 1 / (1 + exp(θ·z)),

in the L1 or the L2 norm. 0 ≤ s ≤ 1 holds in floating point too, so |φ_j| ≤ |z_j|. Each coordinate is rounded toward
zero to the lattice 2^−b, which makes no norm larger. Rounding errors of the clipping itself may leave the norm above C
by a last place: the kernel checks it in whole numbers and takes away any excess, so that the bound rests on integer
arithmetic alone. φ depends on one record and θ, and not on where the record stands among others.
"""

from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.compilation import announce

Places = NDArray[np.int32]
Floats = NDArray[np.float64]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Norm = Literal[1, 2]

LARGEST_LIMIT = 2.0**31
"""A norm of this many lattice units bounds nothing, and its square still fits in 64 bits."""


def gradient_sums(
    points_on_lattice: NDArray[np.int32],
    labels: Array,
    coefficients: Array,
    *,
    bits: int,
    clip: float,
    norm: Norm,
) -> Integers:
    """The sum of the clipped gradients of all records, exact, in lattice units; the intercept's comes last.

    >>> gradient_sums(np.array([[8], [-16]], np.int32), np.array([1.0, 1.0]), np.zeros(2), bits=4, clip=9.0, norm=1)
    array([  4, -16])
    """
    coefficients = np.ascontiguousarray(coefficients, dtype=np.float64)
    rows, columns = points_on_lattice.shape
    if labels.shape != (rows,) or coefficients.shape != (columns + 1,):
        raise DeclarationError(
            f"coefficients of the shape {coefficients.shape} and one label a record do not fit points of {columns} "
            "coordinates; give a coefficient for each, and one for the intercept"
        )
    announce(_gradient_sums)
    units = np.ascontiguousarray(points_on_lattice, dtype=np.int32)
    return _gradient_sums(units, np.ascontiguousarray(labels), coefficients, bits, clip, norm)


@njit(nogil=True, cache=True)
def clipped_gradient(
    coefficients: Floats, point: Floats, label: Any, clip: float, norm: int, gradient: Floats
) -> None:  # pragma: no cover - compiled
    """Write φ of one record to `gradient`."""
    dimensions = coefficients.shape[0] - 1
    margin = coefficients[dimensions]
    for j in range(dimensions):
        margin += coefficients[j] * point[j]
    factor = -label * _misfit(label * margin)
    size = 0.0
    for j in range(dimensions + 1):
        gradient[j] = factor * point[j] if j < dimensions else factor
        size += abs(gradient[j]) if norm == 1 else gradient[j] * gradient[j]
    if norm == 2:
        size = np.sqrt(size)
    if size > clip:
        for j in range(dimensions + 1):
            gradient[j] *= clip / size


@njit(nogil=True, cache=True)
def _misfit(margin: Any) -> float:  # pragma: no cover - compiled
    """1 / (1 + exp(margin)), which never overflows."""
    if margin > 0.0:
        small = np.exp(-margin)
        return small / (1.0 + small)
    return 1.0 / (1.0 + np.exp(margin))


@njit(nogil=True, cache=True)
def _gradient_sums(
    points: Places, labels: Floats, coefficients: Floats, bits: int, clip: float, norm: int
) -> Integers:  # pragma: no cover - compiled
    size = coefficients.shape[0]
    one = 2.0**bits
    limit = np.int64(min(clip * one, LARGEST_LIMIT))
    point, gradient = np.empty(size - 1), np.empty(size)
    units, sums = np.empty(size, np.int64), np.zeros(size, np.int64)
    for i in range(points.shape[0]):
        for j in range(size - 1):
            point[j] = points[i, j] / one
        clipped_gradient(coefficients, point, labels[i], clip, norm, gradient)
        for j in range(size):
            units[j] = np.int64(gradient[j] * one)
        _take_away_excess(units, limit, norm)
        for j in range(size):
            sums[j] += units[j]
    return sums


@njit(nogil=True, cache=True)
def _take_away_excess(units: Integers, limit: Any, norm: int) -> None:  # pragma: no cover - compiled
    """Shrink the largest coordinate by one unit until the norm is within the limit."""
    while True:
        size = 0
        largest = 0
        for j in range(units.shape[0]):
            size += abs(units[j]) if norm == 1 else units[j] * units[j]
            if abs(units[j]) > abs(units[largest]):
                largest = j
        if size <= (limit if norm == 1 else limit * limit):
            return
        units[largest] -= 1 if units[largest] > 0 else -1
