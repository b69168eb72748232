"""Which L1 optimum: the tie rules.

The L1 optimum is rarely unique, and equally likely optima differ much in the accuracy of small counts. Any optimal
duals give *all* optima: they are the consistent counts for which each node answers its slope g as best it can,

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
from numpy.typing import NDArray

from consilience.kernels.compilation import announce
from consilience.solvers.losses import Array
from consilience.solvers.trees.certificate import Costs, piece
from consilience.solvers.trees.layout import Layout
from consilience.solvers.trees.pieces import add_up, is_held, slopes_held

TieRule = Literal["min-l2", "proportional", "vertex"]

SAME = 1e-11
"""Slopes that differ by less, in units of the weight, are the same."""

ROUNDED = 1e-14
"""And so are those that differ by what rounding does to a dual."""


def optimal_box(costs: Costs, duals: Array, slopes: Array) -> tuple[Array, Array]:
    """Between which counts each node may lie in an L1 optimum, as far as its own slope says."""
    announce(_bound_by_slope)
    lower, upper = np.empty(len(costs)), np.empty(len(costs))
    _bound_by_slope(costs, duals, slopes, lower, upper)
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
def _bound_by_slope(costs, duals, slopes, lower, upper):  # pragma: no cover - compiled
    for v in range(len(costs)):
        cost, slope = costs[v], slopes[v]
        if cost.lower >= cost.upper:
            lower[v], upper[v] = cost.lower, cost.upper
            continue
        near = SAME * cost.linear + ROUNDED * abs(duals[v])
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


# ----------------------------------------------------------------------------------------------------------------------
# Duals that prove an L1 optimum, from the states of the nodes.
#
# Without curvature every node stands still at the optimum, and its state says between which slopes its cost may lie:
#
#     below the kink: −a       at the kink: −a … a       above: a       at a lower bound: anything up to the slope there
#     at an exact count: anything
#
# From the leaves upwards, node v can bear the duals λ_v in the interval of its children's common duals plus its own
# slopes. A root must bear the dual 0. From the roots down, each inner node picks the middle of what is left for the
# dual μ_v of its children.


def duals_from_states(layout: Layout, costs: Costs, states: NDArray[np.int8]) -> tuple[Array, Array]:
    """A dual for every node that fits the states, and the slopes g that follow, free of the rounding of duals."""
    announce(_fill_duals)
    low, high = np.empty(layout.nodes), np.empty(layout.nodes)
    duals, slopes = np.empty(layout.nodes), np.empty(layout.nodes)
    _fill_duals(costs, layout.first, layout.roots, states, low, high, duals, slopes)
    return duals, slopes


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def slopes_in(cost, state):  # pragma: no cover - compiled
    """The least and the greatest slope of the cost in a state."""
    if is_held(state):
        return slopes_held(cost, state)
    sigma = piece(cost, state)[0]
    return sigma, sigma


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def common(first, v, low, high):  # pragma: no cover - compiled
    """The duals that all children of v can bear."""
    least, most = -np.inf, np.inf
    for c in range(first[v], first[v + 1]):
        least = max(least, low[c])
        most = min(most, high[c])
    return least, most


# Rounding can leave nothing between them; duals that are too high are the ones that no count answers. Below an exact
# node one end or both may be infinitely far.
@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def between(bottom, top, otherwise):  # pragma: no cover - compiled
    """The middle of what is left for a dual, or its finite end, or any other dual if it has none."""
    if bottom > -np.inf and top < np.inf:
        return 0.5 * (bottom + top) if bottom <= top else top
    if bottom > -np.inf:
        return bottom
    return top if top < np.inf else otherwise


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _fill_duals(costs, first, roots, states, low, high, duals, slopes):  # pragma: no cover - compiled
    for v in range(len(costs) - 1, -1, -1):
        least, most = slopes_in(costs[v], states[v])
        if first[v] < first[v + 1]:
            children = common(first, v, low, high)
            least += children[0]
            most += children[1]
        low[v], high[v] = least, most
    duals[:roots] = 0.0
    for v in range(len(costs)):
        least, most = slopes_in(costs[v], states[v])
        if first[v] == first[v + 1]:
            slopes[v] = min(max(duals[v], least), most)
            continue
        borne = common(first, v, low, high)
        bottom, top = max(duals[v] - most, borne[0]), min(duals[v] - least, borne[1])
        shared = between(bottom, top, duals[v])
        slopes[v] = min(max(duals[v] - shared, least), most)
        for c in range(first[v], first[v + 1]):
            duals[c] = shared
