"""From the states of nodes to counts and duals, in two linear passes, and which L1 optimum is taken.

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

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.solvers.fit import Array
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


class StateSettings(NamedTuple):
    """When steps end, and which slopes are the same; by trial, no figures kept, unless a reason is named."""

    tight: float = 1e-13
    """The relative gap at which steps end: about 450 units in the last place."""
    most_mended: int = 3
    """How often states are mended."""
    vanishing: float = 1e-60
    """The curvature of a free leaf that has none, in units of the least there is: too little to change any other count,
    and enough to share a parent's count evenly among several such leaves."""
    same_slope: float = 1e-11
    """Slopes that differ by less, in units of the weight, are the same."""
    rounded_dual: float = 1e-14
    """And so are those that differ by this part of a dual, which is what rounding does to it."""


SETTINGS = StateSettings()


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def held_count(cost, state):  # pragma: no cover - compiled
    if state == KINK:
        return cost.noisy
    return cost.lower if state == LOW else cost.upper


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def is_held(state):  # pragma: no cover - compiled
    return state != BELOW and state != ABOVE


# A node held at its kink adds any slope between its pieces' to the dual; at a bound, any that presses against it.
@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def slopes_held(cost, state):  # pragma: no cover - compiled
    if state == KINK:
        return piece(cost, BELOW)[0], cost.linear
    if cost.lower >= cost.upper:
        return -np.inf, np.inf
    side = side_at(cost, held_count(cost, state), state)
    if state == LOW:
        return -np.inf, slope_at(cost, cost.lower, side)
    return slope_at(cost, cost.upper, side), np.inf


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def side_at(cost, count, state):  # pragma: no cover - compiled
    """The piece next to a bound, inside it."""
    if not has_kink(cost) or count > cost.noisy or (count == cost.noisy and state == LOW):
        return ABOVE
    return BELOW


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
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


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def slope_by_dual(first, v, duals):  # pragma: no cover - compiled
    """g: the dual of a node minus the dual that its children share."""
    return duals[v] - duals[first[v]] if first[v] < first[v + 1] else duals[v]


@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True, error_model="numpy")
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
    return SETTINGS.vanishing * least if least < np.inf else 1.0


@njit(nogil=True, cache=True, error_model="numpy")
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
@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
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


@njit(nogil=True, cache=True, error_model="numpy")
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
    counts = np.empty(layout.nodes)
    vanishing = begin(costs, layout.first, counts)
    start = Solution(counts, np.zeros(layout.nodes), Certificate(np.inf, np.inf, np.inf, 0.0), 0)
    best = latest = _step(layout, costs, states, start, vanishing=vanishing, bound=bound)
    mended = 0
    while not best.certificate.gap <= SETTINGS.tight * best.certificate.objective:
        latest = _step(layout, costs, states, latest, vanishing=vanishing, bound=bound)
        helped = latest.certificate.gap < 0.5 * best.certificate.gap
        if latest.certificate.gap < best.certificate.gap:
            best = latest
        if mended == SETTINGS.most_mended:
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


# ----------------------------------------------------------------------------------------------------------------------
# Which L1 optimum: the tie rules.
#
# The L1 optimum is rarely unique, and equally likely optima differ much in the accuracy of small counts. Any optimal
# duals give *all* optima: they are the consistent counts for which each node answers its slope g as best it can,
#
#     g = a:  x ≥ y        −a < g < a:  x = y        g = −a:  x ≤ y        and x at its lower bound if g is smaller
#       still.
#
# So the optima are the consistent counts in a box, and a tie rule is a choice there. From the leaves upwards, sums of
# the children's ranges narrow the range of each node; from the roots down, the children share their parent's count:
#
#     "vertex"        one child after the other is filled up; whole numbers stay whole
#     "proportional"  every child is at the same place of its range
#     "min-l2"        the least Σ w²r² in the box, which is the limit of the elastic net for α → 1


TieRule = Literal["min-l2", "proportional", "vertex"]


def optimal_box(costs: Costs, duals: Array, slopes: Array) -> tuple[Array, Array]:
    """Between which counts each node may lie in an L1 optimum, as far as its own slope says."""
    lower, upper = np.empty(len(costs)), np.empty(len(costs))
    _bound_by_slope(costs, duals, slopes, lower, upper)
    return lower, upper


def share_box(layout: Layout, lower: Array, upper: Array, *, whole: bool) -> Array:
    """Consistent counts in a box: children filled one after the other if `whole`, else in proportion."""
    low, high = lower.copy(), upper.copy()
    counts = np.empty(layout.nodes)
    _narrow(layout.first, low, high)
    _share(layout.first, layout.roots, low, high, whole, counts)
    add_up(layout.first, counts)
    return counts


@njit(nogil=True, cache=True, error_model="numpy")
def _bound_by_slope(costs, duals, slopes, lower, upper):  # pragma: no cover - compiled
    for v in range(len(costs)):
        cost, slope = costs[v], slopes[v]
        if cost.lower >= cost.upper:
            lower[v], upper[v] = cost.lower, cost.upper
            continue
        near = SETTINGS.same_slope * cost.linear + SETTINGS.rounded_dual * abs(duals[v])
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


@njit(nogil=True, cache=True, error_model="numpy")
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
@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def end_of(low, high):  # pragma: no cover - compiled
    """The lower end of a range if it is finite, else the upper, else 0."""
    if low > -np.inf:
        return low
    return high if high < np.inf else 0.0


@njit(nogil=True, cache=True, error_model="numpy")
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
    low, high = np.empty(layout.nodes), np.empty(layout.nodes)
    duals, slopes = np.empty(layout.nodes), np.empty(layout.nodes)
    _fill_duals(costs, layout.first, layout.roots, states, low, high, duals, slopes)
    return duals, slopes


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def slopes_in(cost, state):  # pragma: no cover - compiled
    """The least and the greatest slope of the cost in a state."""
    if is_held(state):
        return slopes_held(cost, state)
    sigma = piece(cost, state)[0]
    return sigma, sigma


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def common(first, v, low, high):  # pragma: no cover - compiled
    """The duals that all children of v can bear."""
    least, most = -np.inf, np.inf
    for c in range(first[v], first[v + 1]):
        least = max(least, low[c])
        most = min(most, high[c])
    return least, most


# Rounding can leave nothing between them; duals that are too high are the ones that no count answers. Below an exact
# node one end or both may be infinitely far.
@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def between(bottom, top, otherwise):  # pragma: no cover - compiled
    """The middle of what is left for a dual, or its finite end, or any other dual if it has none."""
    if bottom > -np.inf and top < np.inf:
        return 0.5 * (bottom + top) if bottom <= top else top
    if bottom > -np.inf:
        return bottom
    return top if top < np.inf else otherwise


@njit(nogil=True, cache=True, error_model="numpy")
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
