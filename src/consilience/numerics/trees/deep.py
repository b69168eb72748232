"""The states of all nodes at the optimum, in near-linear time on any tree: paths, stars, caterpillars.

The curves are those of `curves`, and so are the two ways of adding them. Here a curve is a rope of steps from corner to
corner (see `rope`), so that a node adds its cost by one cut at its kink and one map for each side, whatever the number
of corners. Of siblings the curve with most corners takes up the others: each corner of a smaller curve cuts it, and the
pieces between are mapped. A corner changes rope at most log₂ n times, each time into one at least twice as large, and
each change costs a cut: O(n log² n) altogether.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.numerics.compilation import announce
from consilience.numerics.trees.costs import ABOVE, BELOW, HIGH, KINK, LOW, Costs, has_kink, piece, slope_at
from consilience.numerics.trees.curves import corners_needed, enter, inverse, mark_of, steeper
from consilience.numerics.trees.layout import Layout
from consilience.numerics.trees.rope import (
    DEEPEST,
    EMPTY,
    STEP,
    add_curvature,
    add_slope,
    first_step,
    join,
    list_corners,
    new_step,
    set_first_step,
    split,
    totals,
)

ROPE = np.dtype(
    [
        ("price", np.float64),
        ("count", np.float64),
        ("before", np.float64),
        ("after", np.float64),
        ("root", np.int64),
        ("size", np.int64),
    ]
)
"""A curve: a point on its first ray, or the first corner; the slopes dx/dλ of its rays; its steps, and a bound on how
many they are. A straight line has no steps."""


@numba.njit(nogil=True, cache=True)
def pass_all(steps, root, path, listed, states):  # pragma: no cover - compiled
    """Put nodes into the states that they have after the corners of a sequence."""
    for i in range(list_corners(steps, root, path, listed)):
        enter(states, steps[listed[i]].mark)


@numba.njit(nogil=True, cache=True)
def reach_back(steps, rope, value, by_count, path):  # pragma: no cover - compiled
    """Move the start of a curve back on its first ray, to a smaller count or price."""
    if by_count:
        count = rope.count - value
        price = count / rope.before
    else:
        price = rope.price - value
        count = price * rope.before if price > 0 and rope.before < np.inf else 0.0
    if count <= 0 and price <= 0:
        return
    rope.price -= price
    rope.count -= count
    if rope.root != EMPTY:
        first = first_step(steps, rope.root)
        set_first_step(steps, rope.root, first[0] + price, first[1] + count, path)


@numba.njit(nogil=True, cache=True)
def cut(steps, root, target, by_count, after, path):  # pragma: no cover - compiled
    """Cut a sequence at a distance from its start, in price or in count.

    Returns the corners before and those from the cut on, and the step from the last corner before to the cut. The first
    step after the cut is shortened to what remains of it.
    """
    left, right = split(steps, root, target, by_count, path)
    gone_price, gone_count = totals(steps, left)
    rest = max(target - (gone_count if by_count else gone_price), 0.0)
    if right == EMPTY:
        if by_count:
            return left, right, rest / after, rest
        return left, right, rest, rest * after if rest > 0 and after < np.inf else 0.0
    price, count = first_step(steps, right)
    whole = count if by_count else price
    part = min(rest / whole, 1.0) if whole > 0 else 0.0
    set_first_step(steps, right, price * (1.0 - part), count * (1.0 - part), path)
    return left, right, price * part, count * part


@numba.njit(nogil=True, cache=True)
def add_corner(steps, sequence, at, price, count, mark, path):  # pragma: no cover - compiled
    return join(steps, sequence, new_step(steps, at, price, count, mark), path)


@numba.njit(nogil=True, cache=True)
def leaf_rope(cost, v, rope, states):  # pragma: no cover - compiled
    """The curve of a leaf before its cost: any count, at price 0."""
    rope.price, rope.count, rope.root, rope.size = 0.0, cost.noisy, EMPTY, 0
    rope.before, rope.after = np.inf, np.inf


# A node adds its slope to the price at each count; see `curves.add_cost`.
@numba.njit(nogil=True, cache=True)
def add_cost(cost, v, rope, steps, used, path, listed, states):  # pragma: no cover - compiled
    y, low, high = cost.noisy, cost.lower, cost.upper
    least = rope.count if rope.before == 0 else -np.inf
    most = rope.count + totals(steps, rope.root)[1] if rope.after == 0 else np.inf
    if low >= high or low >= most or high <= least:
        fix_count(cost, v, most, rope, steps, path, listed, states)
        return used
    side = BELOW if has_kink(cost) and y > max(low, least) else ABOVE
    states[v] = side
    before = steeper(rope.before, piece(cost, side)[1])
    if low > least:
        states[v] = LOW
        before = 0.0
        used = raise_start(low, mark_of(v, side), rope, steps, used, path, listed, states)
    if side == BELOW and y < min(high, most):
        if y < rope.count:
            reach_back(steps, rope, y, True, path)
        left, right, price, count = cut(steps, rope.root, y - rope.count, True, rope.after, path)
        sigma, square = piece(cost, BELOW)
        add_curvature(steps, left, square)
        add_curvature(steps, right, cost.square)
        rope.price += slope_at(cost, rope.count, BELOW)
        price += 2.0 * square * count
        if cost.linear > 0:
            left = add_corner(steps, left, used, price, count, mark_of(v, KINK), path)
            used, price, count = used + 1, cost.linear - sigma, 0.0
        left = add_corner(steps, left, used, price, count, mark_of(v, ABOVE), path)
        used += 1
        rope.root = join(steps, left, right, path)
        rope.size += 2
        side = ABOVE
    else:
        rope.price += slope_at(cost, rope.count, side)
        add_curvature(steps, rope.root, piece(cost, side)[1])
    rope.before = before
    rope.after = steeper(rope.after, piece(cost, side)[1])
    if high < most:
        left, _, price, count = cut(steps, rope.root, high - rope.count, True, rope.after, path)
        rope.root = add_corner(steps, left, used, price, count, mark_of(v, HIGH), path)
        rope.after = 0.0
        rope.size += 1
        used += 1
    return used


@numba.njit(nogil=True, cache=True)
def raise_start(low, mark, rope, steps, used, path, listed, states):  # pragma: no cover - compiled
    """Cut off the counts below a lower bound, and put a corner there."""
    if low < rope.count:
        reach_back(steps, rope, low, True, path)
    left, right, price, count = cut(steps, rope.root, low - rope.count, True, rope.after, path)
    gone = totals(steps, left)
    rope.price += gone[0] + price
    rope.count = low
    pass_all(steps, left, path, listed, states)
    rope.root = join(steps, new_step(steps, used, 0.0, 0.0, mark), right, path)
    rope.size += 1
    return used + 1


@numba.njit(nogil=True, cache=True)
def fix_count(cost, v, most, rope, steps, path, listed, states):  # pragma: no cover - compiled
    """The curve of a node whose bounds leave one count: everything below it is settled."""
    at_low = cost.lower >= cost.upper or cost.lower >= most
    states[v] = LOW if at_low else HIGH
    fixed = cost.lower if at_low else cost.upper
    left, _ = split(steps, rope.root, fixed - rope.count, True, path)
    pass_all(steps, left, path, listed, states)
    rope.price, rope.count, rope.before, rope.after = 0.0, fixed, 0.0, 0.0
    rope.root, rope.size = EMPTY, 0


@numba.njit(nogil=True, cache=True)
def trim(rope, steps, bound, path, listed, states):  # pragma: no cover - compiled
    """Forget the corners whose counts lie beyond ±bound; the curve goes on straight instead."""
    if rope.root != EMPTY and rope.count + totals(steps, rope.root)[1] > bound and rope.count < bound:
        left, right = split(steps, rope.root, bound - rope.count, True, path)
        if right != EMPTY:
            price, count = first_step(steps, right)
            rope.after = count / price if price > 0 else np.inf
            rope.root = left
    if rope.root != EMPTY and rope.before > 0 and rope.count + first_step(steps, rope.root)[1] < -bound:
        left, right = split(steps, rope.root, -bound - rope.count, True, path)
        gone = totals(steps, left)
        rope.price += gone[0]
        rope.count += gone[1]
        rope.before = rope.after
        if right != EMPTY:
            price, count = first_step(steps, right)
            rope.before = count / price if price > 0 else np.inf
        pass_all(steps, left, path, listed, states)
        rope.root = right


# `large` takes up `small`: at each corner of the small curve the large one is cut, and the piece before the cut gets the
# slope that the small curve has there. Flat rays end all prices, as in `curves.merge`.
@numba.njit(nogil=True, cache=True)
def take_up(large, small, steps, path, listed, states):  # pragma: no cover - compiled
    bottom = max(
        large.price if large.before == np.inf else -np.inf,
        small.price if small.before == np.inf else -np.inf,
    )
    small_end = small.price + totals(steps, small.root)[0]
    large_end = large.price + totals(steps, large.root)[0]
    small_top = small_end if small.after == np.inf else np.inf
    large_top = large_end if large.after == np.inf else np.inf
    if bottom > large.price:
        left, right, price, count = cut(steps, large.root, bottom - large.price, False, large.after, path)
        gone = totals(steps, left)
        pass_all(steps, left, path, listed, states)
        large.price, large.count, large.root = bottom, large.count + gone[1] + count, right
    number = list_corners(steps, small.root, path, listed)
    price, count, slope = small.price, small.count, small.before if small.before < np.inf else 0.0
    begin = 0
    while begin < number:
        step = steps[listed[begin]]
        if price + step.price >= bottom:
            break
        price, count = price + step.price, count + step.count
        enter(states, step.mark)
        begin += 1
    return begin, number, price, count, slope, small_top, large_top
