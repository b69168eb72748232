"""Whole numbers in place of fitted counts, consistent and each within 1 of the fit.

A root is rounded to the nearest whole number. Below a node that became X, every child is rounded down, which leaves m
units to give, and the remainders r₁, r₂, … of the children sum to R within 1 of m. With an offset 0 ≤ u < 1 such that
⌊R + u⌋ = m, child i gets ⌊r₁ + … + r_i + u⌋ − ⌊r₁ + … + r_{i−1} + u⌋ of them: none or one, and none if it was whole.

L1 optima of whole data lie between whole bounds (see `faces`), and rounding down or up does not leave them: then the
rounded counts are optimal too.
"""

import numba
import numpy as np

from consilience.errors import MeasurementError
from consilience.kernels.compilation import announce
from consilience.solvers.losses import Array
from consilience.solvers.trees.layout import Layout

LARGEST_WHOLE = 2.0**52
"""Beyond this the whole numbers have gaps."""


def rounded(layout: Layout, counts: Array) -> Array:
    """Consistent whole counts, each within 1 of these consistent counts."""
    largest = float(np.abs(counts).max())
    if largest > LARGEST_WHOLE:
        raise MeasurementError(
            f"the largest count is {largest:.3g}; whole numbers are exact up to {LARGEST_WHOLE:.3g}: "
            "leave out `integers`"
        )
    announce(_round)
    whole = np.empty(layout.nodes)
    _round(layout.first, layout.roots, counts, whole)
    return whole


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def floor_of(count):  # pragma: no cover - compiled
    """Rounded down, where what lacks to a whole number is more than rounding."""
    return np.floor(count + (1e-7 + 1e-13 * abs(count)))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _round(first, roots, counts, whole):  # pragma: no cover - compiled
    for v in range(roots):
        whole[v] = np.floor(counts[v] + 0.5)
    for v in range(len(counts)):
        units, remainders = whole[v], 0.0
        for c in range(first[v], first[v + 1]):
            whole[c] = floor_of(counts[c])
            units -= whole[c]
            remainders += max(counts[c] - whole[c], 0.0)
        if units != 0:
            hand_out(first[v], first[v + 1], units, remainders, counts, whole)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def hand_out(begin, end, units, remainders, counts, whole):  # pragma: no cover - compiled
    """Give the children from `begin` to `end` so many units by their remainders."""
    if begin == end:
        return
    offset = 0.5 * (max(0.0, units - remainders) + min(1.0, units + 1.0 - remainders))
    reached, given = min(max(offset, 0.0), 1.0), 0.0
    for c in range(begin, end):
        reached += max(counts[c] - whole[c], 0.0)
        whole[c] += np.floor(reached) - given
        given = np.floor(reached)
    # Many remainders that rounding alone made can be off by a unit; it goes to, or comes from, whoever has room.
    while given != units:
        for c in range(begin, end):
            if given < units:
                whole[c] += 1.0
                given += 1.0
            elif given > units and (whole[c] > 0 or counts[c] < 0):
                whole[c] -= 1.0
                given -= 1.0
