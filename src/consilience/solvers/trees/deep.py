"""The states of all nodes at the optimum, in near-linear time on any tree: paths, stars, caterpillars.

The curves are those of `curves`, and so are the two ways of adding them. Here a curve is a rope of steps from corner to
corner (see `rope`), so that a node adds its cost by one cut at its kink and one map for each side, whatever the number
of corners. Of siblings the curve with most corners takes up the others: each corner of a smaller curve cuts it, and the
pieces between are mapped. A corner changes rope at most log₂ n times, each time into one at least twice as large, and
each change costs a cut: O(n log² n) altogether.
"""

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.solvers.trees.certificate import ABOVE, BELOW, HIGH, KINK, LOW, Costs, has_kink, piece, slope_at
from consilience.solvers.trees.curves import corners_needed, enter, finite, mark_of, steeper
from consilience.solvers.trees.layout import Layout
from consilience.solvers.trees.rope import (
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
        ("dual", np.float64),
        ("count", np.float64),
        ("before", np.float64),
        ("after", np.float64),
        ("top", np.float64),
        ("root", np.int64),
        ("size", np.int64),
    ]
)
"""A curve: a point on its first ray, or the first corner; the slopes dx/dλ of its rays; the dual of its last ray if
that is flat, else infinity; its steps, and a bound on how many they are. A straight line has no steps."""

LEAST = 5e-324
"""The least positive number: a step in dual that is longer than none."""


@njit(nogil=True, cache=True, error_model="numpy")
def pass_all(steps, root, path, listed, states):  # pragma: no cover - compiled
    """Put nodes into the states that they have after the corners of a sequence."""
    for i in range(list_corners(steps, root, path, listed)):
        enter(states, steps[listed[i]].mark)


@njit(nogil=True, cache=True, error_model="numpy")
def reach_back(steps, rope, value, by_count, path):  # pragma: no cover - compiled
    """Move the start of a curve back on its first ray, to a smaller count or dual."""
    if by_count:
        count = rope.count - value
        dual = count / rope.before if rope.before > 0 else 0.0
    else:
        dual = rope.dual - value
        count = dual * rope.before if dual > 0 and rope.before < np.inf else 0.0
    if count <= 0 and dual <= 0:
        return
    rope.dual -= dual
    rope.count -= count
    if rope.root != EMPTY:
        first = first_step(steps, rope.root)
        set_first_step(steps, rope.root, first[0] + dual, first[1] + count, path)


@njit(nogil=True, cache=True, error_model="numpy")
def cut(steps, root, target, by_count, after, path):  # pragma: no cover - compiled
    """Cut a sequence at a distance from its start, in dual or in count.

    Returns the corners before and those from the cut on, and the step from the last corner before to the cut. The first
    step after the cut is shortened to what remains of it.
    """
    left, right = split(steps, root, target, by_count, path)
    gone_dual, gone_count = totals(steps, left)
    rest = max(target - (gone_count if by_count else gone_dual), 0.0)
    if right == EMPTY:
        if by_count:
            return left, right, rest / after if after > 0 else 0.0, rest
        return left, right, rest, rest * after if rest > 0 and after < np.inf else 0.0
    dual, count = first_step(steps, right)
    whole = count if by_count else dual
    part = min(rest / whole, 1.0) if whole > 0 else 0.0
    set_first_step(steps, right, dual * (1.0 - part), count * (1.0 - part), path)
    return left, right, dual * part, count * part


@njit(nogil=True, cache=True, error_model="numpy")
def add_corner(steps, sequence, at, dual, count, mark, path):  # pragma: no cover - compiled
    return join(steps, sequence, new_step(steps, at, dual, count, mark), path)


# A node adds its slope to the dual at each count; see `curves.add_cost`.
@njit(nogil=True, cache=True, error_model="numpy")
def add_cost(cost, v, rope, steps, used, path, listed, states):  # pragma: no cover - compiled
    y, low, high = cost.noisy, cost.lower, cost.upper
    least = rope.count if rope.before == 0 else -np.inf
    most = rope.count + totals(steps, rope.root)[1] if rope.after == 0 else np.inf
    if low >= high or low > most or high < least:
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
        left, right, dual, count = cut(steps, rope.root, y - rope.count, True, rope.after, path)
        add_curvature(steps, left, cost.square_below)
        add_curvature(steps, right, cost.square)
        rope.dual += slope_at(cost, rope.count, BELOW)
        dual += 2.0 * cost.square_below * count
        left = add_corner(steps, left, used, dual, count, mark_of(v, KINK), path)
        left = add_corner(steps, left, used + 1, cost.linear + cost.linear_below, 0.0, mark_of(v, ABOVE), path)
        used += 2
        rope.root = join(steps, left, right, path)
        rope.size += 2
        side = ABOVE
    else:
        rope.dual += slope_at(cost, rope.count, side)
        add_curvature(steps, rope.root, piece(cost, side)[1])
    rope.before = before
    rope.after = steeper(rope.after, piece(cost, side)[1])
    rope.top = rope.top + piece(cost, side)[0] if rope.after == np.inf else np.inf
    if high < most:
        if high < rope.count:
            reach_back(steps, rope, high, True, path)
        left, _, dual, count = cut(steps, rope.root, high - rope.count, True, rope.after, path)
        rope.root = add_corner(steps, left, used, dual, count, mark_of(v, HIGH), path)
        rope.after, rope.top = 0.0, np.inf
        rope.size += 1
        used += 1
    return used


@njit(nogil=True, cache=True, error_model="numpy")
def raise_start(low, mark, rope, steps, used, path, listed, states):  # pragma: no cover - compiled
    """Cut off the counts below a lower bound, and put a corner there."""
    if low < rope.count:
        reach_back(steps, rope, low, True, path)
    left, right, dual, _ = cut(steps, rope.root, low - rope.count, True, rope.after, path)
    gone = totals(steps, left)
    rope.dual += gone[0] + dual
    rope.count = low
    pass_all(steps, left, path, listed, states)
    rope.root = join(steps, new_step(steps, used, 0.0, 0.0, mark), right, path)
    rope.size += 1
    return used + 1


@njit(nogil=True, cache=True, error_model="numpy")
def fix_count(cost, v, most, rope, steps, path, listed, states):  # pragma: no cover - compiled
    """The curve of a node whose bounds leave one count: everything below it is settled."""
    at_low = cost.lower >= cost.upper or cost.lower > most
    states[v] = LOW if at_low else HIGH
    fixed = cost.lower if at_low else cost.upper
    left, _ = split(steps, rope.root, fixed - rope.count, True, path)
    pass_all(steps, left, path, listed, states)
    rope.dual, rope.count, rope.before, rope.after, rope.top = 0.0, fixed, 0.0, 0.0, np.inf
    rope.root, rope.size = EMPTY, 0


@njit(nogil=True, cache=True, error_model="numpy")
def trim(rope, steps, bound, path, listed, states):  # pragma: no cover - compiled
    """Forget the corners whose counts lie beyond ±bound; the curve goes on straight instead."""
    if rope.root != EMPTY and rope.count + totals(steps, rope.root)[1] > bound and rope.count < bound:
        left, right = split(steps, rope.root, bound - rope.count, True, path)
        if right != EMPTY:
            dual, count = first_step(steps, right)
            rope.after = count / dual if dual > 0 else np.inf
            rope.top = np.inf if dual > 0 else rope.dual + totals(steps, left)[0]
            rope.root = left
    if rope.root != EMPTY and rope.before > 0 and rope.count < -bound:
        left, right, dual, count = cut(steps, rope.root, -bound - rope.count, True, rope.after, path)
        gone = totals(steps, left)
        rope.dual += gone[0] + dual
        rope.count += gone[1] + count
        if left != EMPTY:
            rope.before = rope.after
            if right != EMPTY:
                rest_dual, rest_count = first_step(steps, right)
                rope.before = (count + rest_count) / (dual + rest_dual) if dual + rest_dual > 0 else np.inf
            pass_all(steps, left, path, listed, states)
        rope.root = right


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def least_dual(rope, bound):  # pragma: no cover - compiled
    """The dual at which the count on the first ray is −bound: no optimum needs a lower one."""
    return rope.dual - max(rope.count + bound, 0.0) / rope.before if rope.before > 0 else -np.inf


@njit(nogil=True, cache=True, error_model="numpy")
def align(large, small, steps, bound, path, listed, states):  # pragma: no cover - compiled
    """Start the larger curve where the sum begins; list the corners of the smaller one.

    The sum begins at the first corner, or at the least dual that both curves need; corners below that are passed.
    Returns which of the listed corners come next and how many they are, and the dual and count of the smaller curve
    before.
    """
    number = list_corners(steps, small.root, path, listed)
    bottom = max(least_dual(small, bound), least_dual(large, bound))
    both = small.before == np.inf and large.before == np.inf and small.dual == large.dual
    dual, count, following = small.dual, small.count, 0
    while following < number:
        step = steps[listed[following]]
        if not (dual + step.dual < bottom or (both and dual + step.dual <= bottom)):
            break
        dual, count = dual + step.dual, count + step.count
        enter(states, step.mark)
        following += 1
    if bottom > large.dual or (both and number == 0):
        target = max(bottom - large.dual, LEAST)
        left, right, _, step_count = cut(steps, large.root, target, False, large.after, path)
        gone = totals(steps, left)
        pass_all(steps, left, path, listed[number:], states)
        large.dual, large.count, large.root = bottom, large.count + (gone[1] + step_count), right
        return following, number, dual, count
    next_dual = dual + steps[listed[following]].dual if following < number else np.inf
    if min(next_dual, small.top) < large.dual:
        reach_back(steps, large, min(next_dual, small.top), False, path)
    return following, number, dual, count


@njit(nogil=True, cache=True, error_model="numpy")
def count_before(small, steps, listed, following, number, dual, count, at):  # pragma: no cover - compiled
    """The count of a curve at a dual just before its corner `following`, from the point before that corner."""
    if at < dual:
        slope = finite(small.before)
    elif following < number:
        step = steps[listed[following]]
        slope = step.count / step.dual if step.dual > 0 else 0.0
    else:
        slope = finite(small.after)
    return count + slope * (at - dual)


# At each corner of the smaller curve the larger one is cut, and the piece before the cut gets the slope that the
# smaller curve has there. A flat ray ends all duals, as in `curves.merge`.
@njit(nogil=True, cache=True, error_model="numpy")
def take_up(large, small, steps, bound, path, listed, states):  # pragma: no cover - compiled
    """Add the counts of a smaller curve to a larger one, at the same duals."""
    following, number, dual, count = align(large, small, steps, bound, path, listed, states)
    next_dual, next_count = dual, count
    count = count_before(small, steps, listed, following, number, dual, count, large.dual)
    dual = large.dual
    large.count += count
    taken, rest, last_slope = EMPTY, large.root, finite(small.after)
    for i in range(following, number):
        corner = listed[i]
        next_dual, next_count = next_dual + steps[corner].dual, next_count + steps[corner].count
        slope = (next_count - count) / (next_dual - dual) if next_dual > dual else 0.0
        if next_dual > large.top:
            last_slope = slope
            break
        left, rest, step_dual, step_count = cut(steps, rest, next_dual - dual, False, large.after, path)
        add_slope(steps, left, slope)
        step_count += next_count - count if left == EMPTY else slope * step_dual
        taken = join(steps, taken, left, path)
        taken = add_corner(steps, taken, corner, step_dual, step_count, steps[corner].mark, path)
        dual, count = next_dual, next_count
    if small.top < large.top:
        rest = EMPTY
    add_slope(steps, rest, last_slope)
    large.root = join(steps, taken, rest, path)
    large.before += small.before
    large.after += small.after
    large.top = min(large.top, small.top)
    large.size += small.size


@njit(nogil=True, cache=True, error_model="numpy")
def climb(costs, first, roots, bound, ropes, steps, listed, states):  # pragma: no cover - compiled
    """Set the states of all nodes at the optimum."""
    path = np.empty(DEEPEST, dtype=np.int64)
    used = 0
    for v in range(len(costs) - 1, -1, -1):
        rope = ropes[v]
        if first[v] == first[v + 1]:
            # Before its cost is added, a leaf may have any count at dual 0.
            rope.dual, rope.count, rope.before, rope.after, rope.top = 0.0, costs[v].noisy, np.inf, np.inf, 0.0
            rope.root, rope.size = EMPTY, 0
        else:
            largest = first[v]
            for c in range(first[v], first[v + 1]):
                if ropes[c].size > ropes[largest].size:
                    largest = c
            for c in range(first[v], first[v + 1]):
                if c != largest:
                    take_up(ropes[largest], ropes[c], steps, bound, path, listed, states)
            ropes[v] = ropes[largest]
        used = add_cost(costs[v], v, rope, steps, used, path, listed, states)
        trim(rope, steps, bound, path, listed, states)
        if v < roots:
            left, _ = split(steps, rope.root, np.nextafter(-rope.dual, np.inf), False, path)
            pass_all(steps, left, path, listed, states)


def states_by_ropes(layout: Layout, costs: Costs, bound: float) -> NDArray[np.int8]:
    """The state of every node at an optimum, by cutting and joining ropes."""
    room = int(corners_needed(costs))
    steps, listed = np.empty(room, dtype=STEP), np.empty(2 * room, dtype=np.int64)
    ropes = np.empty(layout.nodes, dtype=ROPE)
    states = np.empty(layout.nodes, dtype=np.int8)
    climb(costs, layout.first, layout.roots, bound, ropes, steps, listed, states)
    return states
