"""The counts and duals of least cost once the state of every node is known, in two linear passes.

With the states fixed, every node is either held at a known count or has the slope φ'(x) = σ + 2q·(x − y). Start from
consistent counts x and from duals λ, and let g be the dual of a node minus the dual that its children share. We look
for the steps z in counts and ζ in duals to the optimum. With ρ = g − φ'(x), what is missing between dual and slope,
each subtree answers with a linear function z = A_v + S_v·ζ, found from the leaves upwards; with A and S the sums of the
children's A_c and S_c,

    held at count h:   A_v = h − x,                         S_v = 0
    free leaf:         A_v = ρ / 2q,                        S_v = 1/2q
    free inner node:   A_v = (A + S·ρ) / (1 + 2q·S),        S_v = S / (1 + 2q·S)

From the roots down, where ζ = 0, the dual that the children of v share moves by

    held:  (A_v − A) / S          free:  (ζ + ρ − 2q·A) / (1 + 2q·S)

When all nodes are free, with σ = 0, these are the two passes of Hay et al. (2010, §4.1), for any tree and any weights.
S is a sum and quotient of positive numbers, so weights may differ by many orders of magnitude. Working with steps
instead of the counts themselves, a second round removes most of the rounding of the first.

Where S = 0 a whole family stands still and many duals will do. Such nodes carry an interval of steps in dual upwards
instead, and on the way down the smallest step is chosen from it.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import announce
from consilience.solvers.losses import Array
from consilience.solvers.trees.certificate import (
    ABOVE,
    BELOW,
    HIGH,
    KINK,
    LOW,
    Certificate,
    Costs,
    certify,
    has_kink,
    piece,
    slope_at,
)
from consilience.solvers.trees.layout import Layout

RESPONSE = np.dtype(
    [
        ("offset", np.float64),
        ("slope", np.float64),
        ("low", np.float64),
        ("high", np.float64),
        ("rise", np.float64),
    ]
)
"""A_v and S_v; where S_v = 0, between which steps in dual node v stands still; and the step in dual."""

TIGHT = 1e-13
"""The relative gap at which steps end."""

MOST_MENDED = 3

VANISHING = 1e-60
"""The curvature of a free leaf that has none, in units of the least there is: too little to change any other count, and
enough to share a parent's count evenly among several such leaves."""


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def held_count(cost, state):  # pragma: no cover - compiled
    if state == KINK:
        return cost.noisy
    return cost.lower if state == LOW else cost.upper


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def is_held(state):  # pragma: no cover - compiled
    return state != BELOW and state != ABOVE


# A node held at its kink adds any slope between its pieces' to the dual; at a bound, any that presses against it.
@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def slopes_held(cost, state):  # pragma: no cover - compiled
    if state == KINK:
        return piece(cost, BELOW)[0], cost.linear
    if cost.lower >= cost.upper:
        return -np.inf, np.inf
    side = side_at(cost, held_count(cost, state), state)
    if state == LOW:
        return -np.inf, slope_at(cost, cost.lower, side)
    return slope_at(cost, cost.upper, side), np.inf


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def side_at(cost, count, state):  # pragma: no cover - compiled
    """The piece next to a bound, inside it."""
    if not has_kink(cost) or count > cost.noisy or (count == cost.noisy and state == LOW):
        return ABOVE
    return BELOW


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def family(first, v, responses):  # pragma: no cover - compiled
    """The answers of all children of v together: A and S, and the steps in dual that all of them stand."""
    offset, slope, low, high = 0.0, 0.0, -np.inf, np.inf
    for c in range(first[v], first[v + 1]):
        child = responses[c]
        offset += child.offset
        slope += child.slope
        low = max(low, child.low)
        high = min(high, child.high)
    return offset, slope, low, high


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def slope_by_dual(first, v, duals):  # pragma: no cover - compiled
    """g: the dual of a node minus the dual that its children share."""
    return duals[v] - duals[first[v]] if first[v] < first[v + 1] else duals[v]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def respond(costs, first, states, counts, duals, vanishing, responses):  # pragma: no cover - compiled
    """From the leaves upwards: how every node answers to a step in dual."""
    for v in range(len(costs) - 1, -1, -1):
        cost, state, mine = costs[v], states[v], responses[v]
        offset, slope, low, high = family(first, v, responses)
        if first[v] == first[v + 1]:
            low = high = 0.0
        given = slope_by_dual(first, v, duals)
        if is_held(state):
            mine.offset = held_count(cost, state) - counts[v]
            mine.slope = 0.0
            if slope > 0:
                low = high = (mine.offset - offset) / slope
            least, most = slopes_held(cost, state)
            mine.low, mine.high = low + (least - given), high + (most - given)
            continue
        sigma, square = piece(cost, state)
        if first[v] == first[v + 1]:
            square = max(square, vanishing)
        missing = given - (sigma + 2.0 * square * (counts[v] - cost.noisy))
        if first[v] == first[v + 1]:
            mine.slope = 0.5 / square
            mine.offset = missing * mine.slope
        else:
            shrink = 1.0 / (1.0 + 2.0 * square * slope)
            mine.slope = slope * shrink
            mine.offset = (offset + slope * missing) * shrink
        still = mine.slope == 0
        mine.low = low + (2.0 * square * offset - missing) if still else -np.inf
        mine.high = high + (2.0 * square * offset - missing) if still else np.inf


@numba.njit(nogil=True, cache=True, error_model="numpy")
def settle(costs, first, roots, states, counts, duals, responses):  # pragma: no cover - compiled
    """From the roots down: move the duals of all nodes, and the counts of the leaves."""
    for v in range(roots):
        responses[v].rise = 0.0
    for v in range(len(costs)):
        cost, rise = costs[v], responses[v].rise
        if first[v] == first[v + 1]:
            moved = counts[v] + (responses[v].offset + responses[v].slope * rise)
            counts[v] = min(max(moved, cost.lower), cost.upper)
            duals[v] += rise
            continue
        offset, slope, low, high = family(first, v, responses)
        given = slope_by_dual(first, v, duals)
        if not is_held(states[v]):
            missing = given - slope_at(cost, counts[v], states[v])
            square = piece(cost, states[v])[1]
            shared = (rise + missing - 2.0 * square * offset) / (1.0 + 2.0 * square * slope)
        elif slope > 0:
            shared = (responses[v].offset - offset) / slope
        else:
            least, most = slopes_held(cost, states[v])
            low, high = max(low, rise + (given - most)), min(high, rise + (given - least))
            shared = min(max(0.0, low), high)
        for c in range(first[v], first[v + 1]):
            responses[c].rise = shared
        duals[v] += rise


@numba.njit(nogil=True, cache=True, error_model="numpy")
def begin(costs, first, counts):  # pragma: no cover - compiled
    """Start from the leaves' noisy values and their sums; returns the curvature for free leaves that have none."""
    least = np.inf
    for v in range(len(costs) - 1, -1, -1):
        cost = costs[v]
        if cost.square > 0:
            least = min(least, cost.square)
        counts[v] = min(max(cost.noisy, cost.lower), cost.upper)
        if first[v] < first[v + 1]:
            counts[v] = 0.0
            for c in range(first[v], first[v + 1]):
                counts[v] += counts[c]
    return VANISHING * least if least < np.inf else 1.0


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_up(first, counts):  # pragma: no cover - compiled
    """Make every inner count the sum of its children's."""
    for v in range(len(counts) - 1, -1, -1):
        if first[v] < first[v + 1]:
            total = 0.0
            for c in range(first[v], first[v + 1]):
                total += counts[c]
            counts[v] = total


# A count x answers a slope g best if it minimises φ(z) + (z − x − t·g)²/2t over z, for any t > 0. Where it does not,
# the state of that minimiser is a better one.
@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def state_for(cost, count, slope):  # pragma: no cover - compiled
    """The state that fits a count and a slope best."""
    if cost.lower >= cost.upper:
        return LOW
    curvature = max(cost.square, cost.square_below)
    reach = 0.5 / curvature if curvature > 0 else 1.0
    point = count + reach * slope
    if cost.lower > -np.inf and point < cost.lower + reach * slopes_held(cost, LOW)[1]:
        return LOW
    if cost.upper < np.inf and point > cost.upper + reach * slopes_held(cost, HIGH)[0]:
        return HIGH
    if not has_kink(cost) or point > cost.noisy + reach * cost.linear:
        return ABOVE
    return BELOW if point < cost.noisy - reach * cost.linear_below else KINK


@numba.njit(nogil=True, cache=True, error_model="numpy")
def restate(costs, first, counts, duals, states):  # pragma: no cover - compiled
    """Set the states that fit the counts and duals."""
    for v in range(len(costs)):
        states[v] = state_for(costs[v], counts[v], slope_by_dual(first, v, duals))


def slopes_of_duals(layout: Layout, duals: Array) -> Array:
    """g for every node: its dual minus the dual that its children share."""
    slopes = duals.copy()
    inner = ~layout.is_leaf
    slopes[inner] -= duals[layout.first[:-1][inner]]
    return slopes


class Solution(NamedTuple):
    """Consistent counts, the duals that certify them, and what they certify; all in breadth-first order."""

    counts: Array
    duals: Array
    certificate: Certificate
    steps: int


# In exact arithmetic one step from the right states is enough, and a second removes most of the rounding of the first.
# Where rounding put a corner on the wrong side of the optimum, no repetition helps; then the states that fit the new
# duals are a better guess.
def solve_pieces(layout: Layout, costs: Costs, states: NDArray[np.int8], *, bound: float) -> Solution:
    """The least cost for given states; the states are mended where the duals contradict them."""
    announce(respond)
    counts = np.empty(layout.nodes)
    vanishing = begin(costs, layout.first, counts)
    start = Solution(counts, np.zeros(layout.nodes), Certificate(np.inf, np.inf, np.inf, 0.0), 0)
    best = latest = _step(layout, costs, states, start, vanishing=vanishing, bound=bound)
    mended = 0
    while not best.certificate.gap <= TIGHT * best.certificate.objective:
        latest = _step(layout, costs, states, latest, vanishing=vanishing, bound=bound)
        helped = latest.certificate.gap < 0.5 * best.certificate.gap
        if latest.certificate.gap < best.certificate.gap:
            best = latest
        if mended == MOST_MENDED:
            break
        if not helped:
            restate(costs, layout.first, latest.counts, latest.duals, states)
            mended += 1
    return best


def _step(
    layout: Layout, costs: Costs, states: NDArray[np.int8], start: Solution, *, vanishing: float, bound: float
) -> Solution:
    counts, duals = start.counts.copy(), start.duals.copy()
    responses = np.empty(layout.nodes, dtype=RESPONSE)
    respond(costs, layout.first, states, counts, duals, vanishing, responses)
    settle(costs, layout.first, layout.roots, states, counts, duals, responses)
    add_up(layout.first, counts)
    return Solution(counts, duals, certify(layout, costs, counts, duals, bound=bound), start.steps + 1)
