"""Which L1 optimum: the tie rules.

The L1 optimum is rarely unique, and equally likely optima differ much in the accuracy of small counts. Any optimal
prices give *all* optima: they are the consistent counts for which each node answers its slope g as best it can,

    g = a:  x ≥ y        −a < g < a:  x = y        g = −a:  x ≤ y        and x at its lower bound if g is smaller still.

So the optima are the consistent counts in a box, and a tie rule is a choice there. From the leaves upwards, sums of the
children's ranges narrow the range of each node; from the roots down, the children share their parent's count:

    "vertex"        one child after the other is filled up; whole numbers stay whole
    "proportional"  every child is at the same place of its range
    "min-l2"        the least Σ w²r² in the box, which is the limit of the elastic net for α → 1
"""

from typing import Literal

import numba
import numpy as np

from consilience.kernels.compilation import announce
from consilience.solvers.losses import Array
from consilience.solvers.trees.costs import Costs
from consilience.solvers.trees.layout import Layout
from consilience.solvers.trees.pieces import add_up

TieRule = Literal["min-l2", "proportional", "vertex"]

SAME = 1e-11
"""Slopes that differ by less, in units of the weight, are the same."""

ROUNDED = 1e-14
"""And so are those that differ by what rounding does to a price."""


def optimal_box(costs: Costs, prices: Array, slopes: Array) -> tuple[Array, Array]:
    """Between which counts each node may lie in an L1 optimum, as far as its own slope says."""
    announce(_bound_by_slope)
    lower, upper = np.empty(len(costs)), np.empty(len(costs))
    _bound_by_slope(costs, prices, slopes, lower, upper)
    return lower, upper


def share_box(layout: Layout, lower: Array, upper: Array, *, whole: bool) -> Array:
    """Consistent counts in a box: children filled one after the other if `whole`, else in proportion."""
    announce(_share)
    low, high = lower.copy(), upper.copy()
    counts = np.empty(layout.nodes)
    _narrow(layout.first, low, high)
    _share(layout.first, layout.roots, low, high, whole, counts)
    add_up(layout.first, counts)
    return counts


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _bound_by_slope(costs, prices, slopes, lower, upper):  # pragma: no cover - compiled
    for v in range(len(costs)):
        cost, slope = costs[v], slopes[v]
        if cost.lower >= cost.upper:
            lower[v], upper[v] = cost.lower, cost.upper
            continue
        near = SAME * cost.linear + ROUNDED * abs(prices[v])
        sigma = -cost.linear_below
        kink = max(cost.noisy, cost.lower)
        lower[v], upper[v] = kink, kink
        if slope >= cost.linear - near:
            upper[v] = np.inf
        if cost.noisy > cost.lower or cost.linear == 0:
            if slope <= sigma + near:
                lower[v] = cost.lower
            if slope < sigma - near and cost.lower > -np.inf:
                upper[v] = cost.lower


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _narrow(first, low, high):  # pragma: no cover - compiled
    for v in range(len(low) - 1, -1, -1):
        if first[v] == first[v + 1]:
            continue
        least, most = 0.0, 0.0
        for c in range(first[v], first[v + 1]):
            least += low[c]
            most += high[c]
        low[v] = max(low[v], least)
        high[v] = max(min(high[v], most), low[v])


# Children begin at their lower ends, and the rest of the parent's count is shared; where a lower end is infinitely far
# they begin at their upper ends, and give back.
@numba.njit(nogil=True, cache=True, error_model="numpy")
def _share(first, roots, low, high, whole, counts):  # pragma: no cover - compiled
    for v in range(len(low)):
        if v < roots:
            finite = low[v] > -np.inf and high[v] < np.inf
            counts[v] = 0.5 * (low[v] + high[v]) if finite and not whole else end_of(low[v], high[v])
        begin, end = first[v], first[v + 1]
        if begin == end:
            continue
        least, most = 0.0, 0.0
        for c in range(begin, end):
            least += low[c]
            most += high[c]
        if not whole and least > -np.inf and most < np.inf:
            part = (counts[v] - least) / (most - least) if most > least else 0.0
            for c in range(begin, end):
                counts[c] = low[c] + min(max(part, 0.0), 1.0) * (high[c] - low[c])
            continue
        rest = counts[v]
        for c in range(begin, end):
            counts[c] = high[c] if least == -np.inf and most < np.inf else end_of(low[c], high[c])
            rest -= counts[c]
        move(low, high, whole, rest, begin, end, counts)


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def end_of(low, high):  # pragma: no cover - compiled
    """The lower end of a range if it is finite, else the upper, else 0."""
    if low > -np.inf:
        return low
    return high if high < np.inf else 0.0


@numba.njit(nogil=True, cache=True, error_model="numpy")
def move(low, high, whole, rest, begin, end, counts):  # pragma: no cover - compiled
    """Add the rest to the children from `begin` to `end`, within their ranges: in turn, or to the unlimited evenly."""
    unlimited = 0
    for c in range(begin, end):
        unlimited += (high[c] if rest > 0 else -low[c]) == np.inf
    for c in range(begin, end):
        room = high[c] - counts[c] if rest > 0 else counts[c] - low[c]
        if whole:
            step = min(abs(rest), room)
            counts[c] += step if rest > 0 else -step
            rest -= step if rest > 0 else -step
        elif room == np.inf:
            counts[c] += rest / unlimited
