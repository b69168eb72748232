"""The counts and prices of least cost once the state of every node is known, in two linear passes.

With the states fixed, every node is either held at a known count or has the slope σ + 2q·(x − y). Let x₀ be any
consistent counts and r = y − x₀; we look for the step z to x = x₀ + z. In each subtree z is then a linear function of
the price, z_v = A_v + S_v·λ_v, found from the leaves upwards with A = Σ_c A_c and S = Σ_c S_c over the children:

    held at count h:   A_v = h − x₀,                               S_v = 0
    free leaf:         A_v = r − σ/2q,                             S_v = 1/2q
    free inner node:   A_v = (A + S·(2q·r − σ)) / (1 + 2q·S),      S_v = S / (1 + 2q·S)

From the roots down, λ = 0 at a root, the price that the children of v share is

    held:  μ = (A_v − A) / S          free:  μ = (λ_v − σ + 2q·(r − A)) / (1 + 2q·S)

When all nodes are free, with σ = 0, these are the two passes of Hay et al. (2010, §4.1), for any tree and any weights.
S is a sum and quotient of positive numbers, so weights may differ by many orders of magnitude.

Where S = 0 a whole family stands still and many prices will do. Such nodes carry an interval of prices upwards
instead, and on the way down a price is chosen from it.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.numerics.compilation import announce
from consilience.numerics.losses import Array
from consilience.numerics.trees.certificate import Certificate, certify
from consilience.numerics.trees.costs import ABOVE, BELOW, HIGH, KINK, LOW, Costs, has_kink, piece, slope_at
from consilience.numerics.trees.layout import Layout

RESPONSE = np.dtype([("offset", np.float64), ("slope", np.float64), ("low", np.float64), ("high", np.float64)])
"""A_v and S_v; where S_v = 0, between which prices node v stands still."""

MOST_STEPS, TIGHT = 10, 1e-13

VANISHING = 1e-60
"""The curvature of a leaf that nothing measures, in units of the least one that is measured: too little to change any
other count, and enough to share a parent's count evenly among several such leaves."""


def vanishing_square(costs: Costs) -> float:
    """The curvature given to leaves without any."""
    positive = costs["square"][costs["square"] > 0]
    return VANISHING * float(positive.min()) if positive.size else 1.0


@numba.njit(nogil=True, cache=True, forceinline=True)
def held_count(cost, state):  # pragma: no cover - compiled
    if state == KINK:
        return cost.noisy
    return cost.lower if state == LOW else cost.upper


@numba.njit(nogil=True, cache=True, forceinline=True)
def is_held(state):  # pragma: no cover - compiled
    return state == KINK or state == LOW or state == HIGH


# A node held at its kink adds any slope between its pieces' to the price; at a bound, any that presses against it.
@numba.njit(nogil=True, cache=True, forceinline=True)
def slopes_held(cost, state):  # pragma: no cover - compiled
    if state == KINK:
        return piece(cost, BELOW)[0], cost.linear
    if cost.lower >= cost.upper:
        return -np.inf, np.inf
    side = side_at(cost, held_count(cost, state), state)
    if state == LOW:
        return -np.inf, slope_at(cost, cost.lower, side)
    return slope_at(cost, cost.upper, side), np.inf


@numba.njit(nogil=True, cache=True, forceinline=True)
def side_at(cost, count, state):  # pragma: no cover - compiled
    """The piece next to a bound, inside it."""
    if not has_kink(cost) or count > cost.noisy or (count == cost.noisy and state == LOW):
        return ABOVE
    return BELOW


@numba.njit(nogil=True, cache=True)
def respond(costs, first, states, counts, spare, responses):  # pragma: no cover - compiled
    """From the leaves upwards: how every node answers to a price."""
    for v in range(len(costs) - 1, -1, -1):
        cost, state, mine = costs[v], states[v], responses[v]
        offset, slope, low, high = 0.0, 0.0, -np.inf, np.inf
        for c in range(first[v], first[v + 1]):
            child = responses[c]
            offset += child.offset
            slope += child.slope
            low = max(low, child.low)
            high = min(high, child.high)
        if first[v] == first[v + 1]:
            low, high = 0.0, 0.0
        if is_held(state):
            mine.offset = held_count(cost, state) - counts[v]
            mine.slope = 0.0
            if slope > 0:
                low = high = (mine.offset - offset) / slope
            least, most = slopes_held(cost, state)
            mine.low, mine.high = low + least, high + most
            continue
        sigma, square = piece(cost, state)
        gap = cost.noisy - counts[v]
        if first[v] == first[v + 1]:
            mine.slope = 0.5 / max(square, spare)
            mine.offset = gap - sigma * mine.slope
        else:
            shrink = 1.0 / (1.0 + 2.0 * square * slope)
            mine.slope = slope * shrink
            mine.offset = (offset + slope * (2.0 * square * gap - sigma)) * shrink
        added = sigma + 2.0 * square * (offset - gap)
        mine.low = low + added if mine.slope == 0 else -np.inf
        mine.high = high + added if mine.slope == 0 else np.inf


@numba.njit(nogil=True, cache=True)
def settle(costs, first, roots, states, counts, responses, prices):  # pragma: no cover - compiled
    """From the roots down: the price of every node, and the counts of the leaves."""
    prices[:roots] = 0.0
    for v in range(len(costs)):
        price = prices[v]
        if first[v] == first[v + 1]:
            moved = counts[v] + (responses[v].offset + responses[v].slope * price)
            counts[v] = min(max(moved, costs[v].lower), costs[v].upper)
            continue
        offset, slope, low, high = 0.0, 0.0, -np.inf, np.inf
        for c in range(first[v], first[v + 1]):
            child = responses[c]
            offset += child.offset
            slope += child.slope
            low = max(low, child.low)
            high = min(high, child.high)
        if not is_held(states[v]):
            sigma, square = piece(costs[v], states[v])
            gap = costs[v].noisy - counts[v]
            shared = (price - sigma + 2.0 * square * (gap - offset)) / (1.0 + 2.0 * square * slope)
        elif slope > 0:
            shared = (responses[v].offset - offset) / slope
        else:
            least, most = slopes_held(costs[v], states[v])
            shared = min(max(price, price - most), price - least)
            shared = min(max(shared, low), high)
        for c in range(first[v], first[v + 1]):
            prices[c] = shared


@numba.njit(nogil=True, cache=True)
def add_up(first, counts):  # pragma: no cover - compiled
    """Make every inner count the sum of its children's."""
    for v in range(len(counts) - 1, -1, -1):
        if first[v] < first[v + 1]:
            total = 0.0
            for c in range(first[v], first[v + 1]):
                total += counts[c]
            counts[v] = total


@numba.njit(nogil=True, cache=True, forceinline=True)
def state_for(cost, slope):  # pragma: no cover - compiled
    """The state of a node whose cost has this slope."""
    if cost.lower >= cost.upper:
        return LOW
    if cost.lower > -np.inf and slope < slopes_held(cost, LOW)[1]:
        return LOW
    if cost.upper < np.inf and slope > slopes_held(cost, HIGH)[0]:
        return HIGH
    if has_kink(cost) and slope < piece(cost, BELOW)[0]:
        return BELOW
    if cost.linear > 0 and slope <= cost.linear:
        return KINK
    return BELOW if cost.one_sided and slope <= 0 else ABOVE


@numba.njit(nogil=True, cache=True)
def restate(costs, first, prices, states):  # pragma: no cover - compiled
    """Set the states that fit the prices."""
    for v in range(len(costs)):
        slope = prices[v] - prices[first[v]] if first[v] < first[v + 1] else prices[v]
        states[v] = state_for(costs[v], slope)


class Solution(NamedTuple):
    """Consistent counts, the prices that certify them, and what they certify; all in breadth-first order."""

    counts: Array
    prices: Array
    certificate: Certificate
    steps: int


# In exact arithmetic one step from the right states is enough. Where rounding put a corner on the wrong side of the
# optimum, the states that fit the new prices are a better guess, and one more step repairs it; starting from the
# counts reached, a step also removes most of the rounding of the step before.
def solve_pieces(layout: Layout, costs: Costs, states: NDArray[np.int8], *, bound: float) -> Solution:
    """The least cost for given states; the states are mended where the prices contradict them."""
    announce(respond)
    first, spare = layout.first, vanishing_square(costs)
    counts, prices = np.clip(costs["noisy"], costs["lower"], costs["upper"]), np.zeros(layout.nodes)
    responses = np.empty(layout.nodes, dtype=RESPONSE)
    best: Solution | None = None
    for step in range(1, MOST_STEPS + 1):
        add_up(first, counts)
        respond(costs, first, states, counts, spare, responses)
        settle(costs, first, layout.roots, states, counts, responses, prices)
        add_up(first, counts)
        certificate = certify(layout, costs, counts, prices, bound=bound)
        improved = best is None or certificate.gap < best.certificate.gap
        if improved:
            best = Solution(counts.copy(), prices.copy(), certificate, step)
        if certificate.relative_gap <= TIGHT or not improved:
            break
        restate(costs, first, prices, states)
    return best
