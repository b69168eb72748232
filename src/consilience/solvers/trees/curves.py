"""The states of all nodes at the optimum, from one walk over the forest.

Let f_v(x) be the least cost of the subtree of v when its count is x. Its slope, drawn as a curve of duals λ = f_v'(x)
against counts x, rises in both directions, and the two steps from children to parents are two ways of adding curves:

    children share a dual:    x = Σ_c x_c   at the same λ        (f is the infimal convolution of the children's f_c)
    a node adds its cost:     λ = μ + φ_v'(x)   at the same x    (μ is the dual its children share)

All curves are broken lines. A corner of the curve of v is where the state of some node u of its subtree changes, and
every count in the subtree grows along the curve. So corners never overtake each other on the way up, and those left of
λ = 0 on the curve of a root tell the state of every node: nothing needs to be kept for a way down. A corner that a
bound cuts off has been passed for good, or will never be reached.

Straight pieces of slope 1/2q stand for quadratic costs; without curvature (L1) the pieces run parallel to the axes: on
a flat piece, λ constant, one leaf takes or gives; on a steep one, x constant, nothing moves. The ends of a curve
are rays, given by their slope dx/dλ: 0 at a bound, infinite for a flat ray, which no dual goes beyond.

The walk is depth-first with the curves on a stack, so that small subtrees stay in the fastest cache. A corner takes
part in one merge on each level above it: O(n · height) for n nodes. Where that is much, `deep` does the same with
ropes.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.solvers.trees.certificate import ABOVE, BELOW, HIGH, KINK, LOW, Costs, has_kink, piece, slope_at
from consilience.solvers.trees.layout import Layout

CORNER = np.dtype([("dual", np.float64), ("count", np.float64), ("mark", np.int64)])
"""A point of a curve; the mark says which node enters which state there."""

CURVE = np.dtype([("start", np.int64), ("size", np.int64), ("before", np.float64), ("after", np.float64)])
"""The corners start … start + size − 1, and the slopes dx/dλ of the rays before and after them."""

NO_CORNER = -1
"""The mark of the one point that stands for a straight line."""


class Curve(NamedTuple):
    """A record of type CURVE, as the kernels pass it on."""

    start: int
    size: int
    before: float
    after: float


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def mark_of(v, state):  # pragma: no cover - compiled
    return v * 8 + state + 2


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def enter(states, mark):  # pragma: no cover - compiled
    """Put a node into the state that it has after a corner."""
    if mark >= 0:
        states[mark >> 3] = (mark & 7) - 2


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def put(corners, at, dual, count, mark):  # pragma: no cover - compiled
    corner = corners[at]
    corner.dual = dual
    corner.count = count
    corner.mark = mark
    return at + 1


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def inverse(slope):  # pragma: no cover - compiled
    return 1.0 / slope if slope > 0 else np.inf


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def steeper(slope, square):  # pragma: no cover - compiled
    """dx/dλ after a cost with this curvature was added: 1 / (1/slope + 2q)."""
    return inverse(1.0 / slope + 2.0 * square) if slope > 0 else 0.0


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def finite(slope):  # pragma: no cover - compiled
    """A ray's slope where it is used: on a flat ray there is no dual to go to."""
    return slope if slope < np.inf else 0.0


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def slope_between(left, right):  # pragma: no cover - compiled
    """dx/dλ between two corners; 0 for a flat piece, on which there is no dual to ask at."""
    width = right.dual - left.dual
    return (right.count - left.count) / width if width > 0 else 0.0


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def slope_before(corners, curve, following):  # pragma: no cover - compiled
    """dx/dλ on the piece that ends at the corner `following`, or on the last ray."""
    if following == curve.start + curve.size:
        return finite(curve.after)
    return slope_between(corners[following - 1], corners[following])


@njit(nogil=True, cache=True, error_model="numpy")
def pass_below(corners, curve, bottom, bottom_too, states):  # pragma: no cover - compiled
    """Pass the corners below a dual; the next corner, and a point and the slope of the piece before it."""
    i, end = curve.start, curve.start + curve.size
    dual, count, slope = corners[i].dual, corners[i].count, finite(curve.before)
    while i < end and (corners[i].dual < bottom or (bottom_too and corners[i].dual == bottom)):
        dual, count = corners[i].dual, corners[i].count
        enter(states, corners[i].mark)
        i += 1
        slope = slope_before(corners, curve, i)
    return i, dual, count, slope


# Children share a dual, so counts add. A flat ray is the end of all duals: corners of the other curve beyond it are
# never reached, or passed for good. If both first rays are flat at one dual, the second curve stands still at the end
# of its own, so that one curve alone moves there and its limits are kept. At every moment the pieces of both curves at
# the current dual are known by a point and a slope.
@njit(nogil=True, cache=True, error_model="numpy")
def merge(corners, one, two, out, start, states):  # pragma: no cover - compiled
    both_flat = one.before == np.inf and two.before == np.inf
    if both_flat and corners[two.start].mark == NO_CORNER:
        one, two = two, one
    i_end, j_end = one.start + one.size, two.start + two.size
    bottom_i = corners[one.start].dual if one.before == np.inf else -np.inf
    bottom_j = corners[two.start].dual if two.before == np.inf else -np.inf
    top_i = corners[i_end - 1].dual if one.after == np.inf else np.inf
    top_j = corners[j_end - 1].dual if two.after == np.inf else np.inf
    bottom, top = max(bottom_i, bottom_j), min(top_i, top_j)
    i, dual_i, count_i, slope_i = pass_below(corners, one, bottom, False, states)
    j, dual_j, count_j, slope_j = pass_below(corners, two, bottom, both_flat and bottom_i == bottom_j, states)
    at, dual = start, dual_i
    while True:
        next_i = corners[i].dual if i < i_end else np.inf
        next_j = corners[j].dual if j < j_end else np.inf
        if min(next_i, next_j) > top or (i == i_end and j == j_end):
            break
        if next_i <= next_j:
            dual_i, count_i, mark = next_i, corners[i].count, corners[i].mark
            i += 1
            slope_i = slope_before(corners, one, i)
            dual, count = dual_i, count_i + (count_j + slope_j * (dual_i - dual_j))
        else:
            dual_j, count_j, mark = next_j, corners[j].count, corners[j].mark
            j += 1
            slope_j = slope_before(corners, two, j)
            dual, count = dual_j, count_j + (count_i + slope_i * (dual_j - dual_i))
        if mark != NO_CORNER:
            at = put(out, at, dual, count, mark)
    if at == start:
        dual = max(min(dual, top), bottom)
        count = (count_i + slope_i * (dual - dual_i)) + (count_j + slope_j * (dual - dual_j))
        at = put(out, at, dual, count, NO_CORNER)
    return Curve(start, at - start, one.before + two.before, one.after + two.after)


@njit(nogil=True, cache=True, error_model="numpy")
def dual_at(corners, curve, following, count):  # pragma: no cover - compiled
    """The dual on a curve at a count between the corners `following` − 1 and `following`."""
    end = curve.start + curve.size
    if following == curve.start:
        beyond = count - corners[following].count
        return corners[following].dual + (beyond / curve.before if curve.before > 0 else 0.0)
    left = corners[following - 1]
    if following == end:
        return left.dual + (count - left.count) / curve.after
    right = corners[following]
    return right.dual - (right.dual - left.dual) * ((right.count - count) / (right.count - left.count))


@njit(nogil=True, cache=True, error_model="numpy")
def copy_below(cost, side, limit, corners, i, end, out, at):  # pragma: no cover - compiled
    """Copy the corners with counts below a limit, raised by the slope of a piece."""
    y = cost.noisy
    sigma, square = piece(cost, side)
    while i < end and corners[i].count < limit:
        corner = corners[i]
        if corner.mark != NO_CORNER:
            at = put(out, at, corner.dual + (sigma + 2.0 * square * (corner.count - y)), corner.count, corner.mark)
        i += 1
    return i, at


# A node adds its slope to the dual at each count. Where its kink or a bound lies inside the range of the curve, the
# curve gets new corners; what a bound cuts off is settled.
@njit(nogil=True, cache=True, error_model="numpy")
def add_cost(cost, v, corners, curve, out, start, states):  # pragma: no cover - compiled
    y, low, high = cost.noisy, cost.lower, cost.upper
    i, end, at = curve.start, curve.start + curve.size, start
    least = corners[i].count if curve.before == 0 else -np.inf
    most = corners[end - 1].count if curve.after == 0 else np.inf
    if low >= high or low > most or high < least:
        return fix_count(cost, v, most, corners, curve, out, start, states)
    side = BELOW if has_kink(cost) and y > max(low, least) else ABOVE
    states[v] = side
    before = steeper(curve.before, piece(cost, side)[1])
    if low > least:
        states[v] = LOW
        before = 0.0
        while i < end and corners[i].count < low:
            enter(states, corners[i].mark)
            i += 1
        dual = dual_at(corners, curve, i, low)
        at = put(out, at, dual + slope_at(cost, low, side), low, mark_of(v, side))
    if side == BELOW and y < min(high, most):
        i, at = copy_below(cost, BELOW, y, corners, i, end, out, at)
        dual = dual_at(corners, curve, i, y)
        at = put(out, at, dual - cost.linear_below, y, mark_of(v, KINK))
        at = put(out, at, dual + cost.linear, y, mark_of(v, ABOVE))
        side = ABOVE
    i, at = copy_below(cost, side, high if high < most else np.inf, corners, i, end, out, at)
    after = steeper(curve.after, piece(cost, side)[1])
    if high < most:
        after = 0.0
        dual = dual_at(corners, curve, i, high)
        at = put(out, at, dual + slope_at(cost, high, side), high, mark_of(v, HIGH))
    if at == start:
        only = corners[curve.start]
        at = put(out, at, only.dual + slope_at(cost, only.count, side), only.count, NO_CORNER)
    return Curve(start, at - start, before, after)


@njit(nogil=True, cache=True, error_model="numpy")
def fix_count(cost, v, most, corners, curve, out, start, states):  # pragma: no cover - compiled
    """The curve of a node whose bounds leave one count: everything below it is settled."""
    at_low = cost.lower >= cost.upper or cost.lower > most
    states[v] = LOW if at_low else HIGH
    fixed = cost.lower if at_low else cost.upper
    for i in range(curve.start, curve.start + curve.size):
        if corners[i].count >= fixed:
            break
        enter(states, corners[i].mark)
    put(out, start, 0.0, fixed, NO_CORNER)
    return Curve(start, 1, 0.0, 0.0)


# No optimum needs counts beyond the bound, and duals would grow there from level to level. Duals beyond the window
# are left out on a guess (see `certificate`): high in a tree, most corners are there.
@njit(nogil=True, cache=True, error_model="numpy")
def trim(corners, curve, bound, window, states):  # pragma: no cover - compiled
    """The curve without corners of counts beyond ±bound or duals beyond ±window; it goes on straight instead."""
    start, size, before, after = curve.start, curve.size, curve.before, curve.after
    while size > 1 and (corners[start + size - 1].count > bound or corners[start + size - 1].dual > window):
        last, previous = corners[start + size - 1], corners[start + size - 2]
        after = slope_between(previous, last) if last.dual > previous.dual else np.inf
        size -= 1
    while size > 1 and (corners[start].count < -bound or corners[start].dual < -window):
        first, second = corners[start], corners[start + 1]
        before = slope_between(first, second) if second.dual > first.dual else np.inf
        enter(states, first.mark)
        start += 1
        size -= 1
    return Curve(start, size, before, after)


@njit(nogil=True, cache=True, error_model="numpy")
def taken(curves, place):  # pragma: no cover - compiled
    curve = curves[place]
    return Curve(curve.start, curve.size, curve.before, curve.after)


@njit(nogil=True, cache=True, error_model="numpy")
def keep(curves, place, curve):  # pragma: no cover - compiled
    kept = curves[place]
    kept.start = curve.start
    kept.size = curve.size
    kept.before = curve.before
    kept.after = curve.after


# Neighbours are merged in rounds, from the stack to the room beside it and back, until one curve is left.
@njit(nogil=True, cache=True, error_model="numpy")
def merge_children(curves, bottom, children, stack, beside, states):  # pragma: no cover - compiled
    """One curve, in the room beside, for the children whose curves begin at place `bottom`."""
    base = curves[bottom].start
    source, target, on_stack = stack, beside, True
    while children > 1 or on_stack:
        at = 0 if on_stack else base
        for pair in range(0, children, 2):
            one = taken(curves, bottom + pair)
            if pair + 1 < children:
                merged = merge(source, one, taken(curves, bottom + pair + 1), target, at, states)
            else:
                target[at : at + one.size] = source[one.start : one.start + one.size]
                merged = Curve(at, one.size, one.before, one.after)
            keep(curves, bottom + pair // 2, merged)
            at += merged.size
        children = (children + 1) // 2
        source, target, on_stack = target, source, not on_stack
    return taken(curves, bottom)


@njit(nogil=True, cache=True, error_model="numpy")
def walk(costs, first, roots, height, bound, window, curves, stack, beside, states):  # pragma: no cover - compiled
    """Set the states of all nodes at the optimum."""
    path = np.empty(height + 1, dtype=np.int64)
    following = np.empty(height + 1, dtype=np.int64)
    for root in range(roots):
        depth, place, at = 0, 0, 0
        path[0], following[0] = root, first[root]
        while depth >= 0:
            v = path[depth]
            child = following[depth]
            if child < first[v + 1]:
                following[depth] += 1
                depth += 1
                path[depth], following[depth] = child, first[child]
                continue
            children = child - first[v]
            if children == 0:
                # Before its cost is added, a leaf may have any count at dual 0.
                put(beside, 0, 0.0, costs[v].noisy, NO_CORNER)
                curve = Curve(0, 1, np.inf, np.inf)
            else:
                place -= children
                at = curves[place].start
                curve = merge_children(curves, place, children, stack, beside, states)
            curve = add_cost(costs[v], v, beside, curve, stack, at, states)
            curve = trim(stack, curve, bound, window, states)
            keep(curves, place, curve)
            place += 1
            at = curve.start + curve.size
            depth -= 1
        for i in range(curves[0].start, at):
            if stack[i].dual > 0:
                break
            enter(states, stack[i].mark)


@njit(nogil=True, cache=True, error_model="numpy")
def corners_needed(costs):  # pragma: no cover - compiled
    """How many corners all costs together have, with one more for each node that may be a line."""
    needed = 0
    for v in range(len(costs)):
        needed += 1 + (costs[v].lower > -np.inf) + (costs[v].upper < np.inf) + 2 * has_kink(costs[v])
    return needed


def states_by_curves(layout: Layout, costs: Costs, bound: float, *, window: float = np.inf) -> NDArray[np.int8]:
    """The state of every node at an optimum whose duals are within ±window, by merging curves on a stack."""
    room = int(corners_needed(costs))
    stack, beside = np.empty(room, dtype=CORNER), np.empty(room, dtype=CORNER)
    curves = np.empty(layout.nodes, dtype=CURVE)
    states = np.empty(layout.nodes, dtype=np.int8)
    walk(costs, layout.first, layout.roots, layout.height, bound, window, curves, stack, beside, states)
    return states
