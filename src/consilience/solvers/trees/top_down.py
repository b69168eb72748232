"""Large sums kept as unbiased estimates have them, and divided from the top down among those below.

Every non-negative fit keeps the positive half of an empty leaf's noise, and a sum over many empty leaves adds these
halves up. Least squares without a sign have no such bias, and over a tree they are the best unbiased linear estimate.
So their total stays. Below a node that has the amount X, child c with the signed estimate s_c takes

    x_c = max(s_c − θ·S_c, l_c),   with the θ at which Σ x_c = X,

the nearest amounts that sum to X where S_c is the variance that c's own subtree leaves it with, up to one factor (with
q = w²: S = 1/2q for a leaf, S/(1 + 2q·S) for an inner node with S summed over its children, as in `two_passes`). It is
the division by least squares with the sign added; with one S for all children the projection to a simplex. l_c is
what exact counts below c need: 0 without any. A child that nothing was measured of takes what the others leave.
"""

import numpy as np
from numpy.typing import NDArray

from consilience.errors import MeasurementError
from consilience.kernels.kernel_cache import njit
from consilience.solvers.fit import Array
from consilience.solvers.trees.layout import Layout

Mask = NDArray[np.bool_]


def divide_top_down(
    layout: Layout, signed: Array, weights: Array, exact: Mask | None, *, block: int
) -> tuple[Array, Mask, Mask]:
    """Amounts of the largest nodes with up to `block` leaves; which nodes these are, and which lie above them.

    `signed` are consistent least-squares counts that have the exact counts. Nodes that exact counts below them
    determine are left out of the first mask.
    """
    leaves = np.empty(layout.nodes, dtype=np.int64)
    slopes, least, amounts = np.empty(layout.nodes), np.empty(layout.nodes), np.zeros(layout.nodes)
    facts = np.zeros(layout.nodes, dtype=np.bool_) if exact is None else exact
    _summarise(layout.first, signed, weights, facts, leaves, slopes, least)
    reached = np.zeros(layout.nodes, dtype=np.bool_)
    _descend(layout.first, layout.roots, block, signed, leaves, slopes, least, reached, amounts)
    above = reached & (leaves > block)
    return amounts, reached & ~above & (slopes > 0.0), above


@njit(nogil=True, cache=True, error_model="numpy")
def _summarise(first, signed, weights, exact, leaves, slopes, least):  # pragma: no cover - compiled
    """Of every subtree: its leaves, S (0 where exact counts leave no choice), and the least it can have."""
    for v in range(len(signed) - 1, -1, -1):
        number, slope, low = 0, 0.0, 0.0
        for c in range(first[v], first[v + 1]):
            number += leaves[c]
            slope += slopes[c]
            low += least[c]
        if number == 0:
            number, slope = 1, np.inf
        leaves[v], least[v] = number, low
        double = 2.0 * weights[v] * weights[v]
        if exact[v]:
            slopes[v], least[v] = 0.0, signed[v]
        elif slope == np.inf:
            slopes[v] = 1.0 / double if double > 0.0 else np.inf
        else:
            slopes[v] = slope / (1.0 + double * slope)


@njit(nogil=True, cache=True, error_model="numpy")
def _descend(first, roots, block, signed, leaves, slopes, least, reached, amounts):  # pragma: no cover - compiled
    total, low, determined = 0.0, 0.0, True
    for v in range(roots):
        reached[v] = True
        amounts[v] = max(signed[v], least[v]) if slopes[v] > 0.0 else least[v]
        total += signed[v]
        low += least[v]
        determined = determined and slopes[v] < np.inf
    if determined:
        _divide(max(total, low), 0, roots, signed, slopes, least, amounts)
    for v in range(len(signed)):
        if reached[v] and leaves[v] > block:
            for c in range(first[v], first[v + 1]):
                reached[c] = True
            _divide(amounts[v], first[v], first[v + 1], signed, slopes, least, amounts)


@njit(nogil=True, cache=True, error_model="numpy")
def _divide(total, begin, end, signed, slopes, least, amounts):  # pragma: no cover - compiled
    """Divide a total among the nodes from `begin` to `end`."""
    others, floor, open_nodes = 0.0, 0.0, 0
    for c in range(begin, end):
        if slopes[c] == np.inf:
            floor += least[c]
            open_nodes += 1
        else:
            amounts[c] = max(signed[c], least[c]) if slopes[c] > 0.0 else least[c]
            others += amounts[c]
    if open_nodes > 0 and total - others >= floor:
        _project(total - others, begin, end, True, signed, slopes, least, amounts)
        return
    for c in range(begin, end):
        if slopes[c] == np.inf:
            amounts[c] = least[c]
    _project(total - floor, begin, end, False, signed, slopes, least, amounts)


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def _slope(slope, unmeasured):  # pragma: no cover - compiled
    """S among the nodes that share: 1 for all of those that nothing was measured of."""
    if unmeasured:
        return 1.0 if slope == np.inf else -1.0
    return -1.0 if slope == np.inf else slope


@njit(nogil=True, cache=True, error_model="numpy")
def _project(total, begin, end, unmeasured, signed, slopes, least, amounts):  # pragma: no cover - compiled
    """Newton's method from the left: the sum is convex and decreasing in θ, so every step drops nodes for good."""
    theta, kept = -np.inf, -1
    while True:
        number, top, bottom = 0, 0.0, 0.0
        for c in range(begin, end):
            slope = _slope(slopes[c], unmeasured)
            if slope > 0.0 and (theta == -np.inf or signed[c] - theta * slope > least[c]):
                number += 1
                top += signed[c]
                bottom += slope
            elif slope >= 0.0:
                top += least[c]
        if number == 0 or number == kept:
            break
        kept, theta = number, (top - total) / bottom
    missing = total
    for c in range(begin, end):
        slope = _slope(slopes[c], unmeasured)
        if slope >= 0.0:
            amounts[c] = max(signed[c] - theta * slope, least[c]) if slope > 0.0 and number > 0 else least[c]
            missing -= amounts[c]
    # Rounded, θ moves millions of nodes the same way, which their sum would show.
    for c in range(begin, end):
        slope = _slope(slopes[c], unmeasured)
        if slope > 0.0 and amounts[c] > least[c]:
            amounts[c] = max(amounts[c] + missing * (slope / bottom), least[c])


# ----------------------------------------------------------------------------------------------------------------------
# Whole numbers in place of fitted counts, consistent and each within 1 of the fit.
#
# A root is rounded to the nearest whole number. Below a node that became X, every child is rounded down, which leaves m
# units to give, and the remainders r₁, r₂, … of the children sum to R within 1 of m. With an offset 0 ≤ u < 1 such that
# ⌊R + u⌋ = m, child i gets ⌊r₁ + … + r_i + u⌋ − ⌊r₁ + … + r_{i−1} + u⌋ of them: none or one, and none if it was whole.
#
# L1 optima of whole data lie between whole bounds (see `states`), and rounding down or up does not leave them: then the
# rounded counts are optimal too.


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
    whole = np.empty(layout.nodes)
    _round(layout.first, layout.roots, counts, whole)
    return whole


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def floor_of(count):  # pragma: no cover - compiled
    """Rounded down, where what lacks to a whole number is more than rounding."""
    return np.floor(count + (1e-7 + 1e-13 * abs(count)))


@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True, error_model="numpy")
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
