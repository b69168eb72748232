"""Sequences of steps that can be cut, joined, and transformed as a whole, in logarithmic time.

A broken line is a sequence of steps (Δdual, Δcount) from corner to corner. Adding a straight line to it maps every
step in the same way: a step (p, c) becomes (p + 2q·c, c) when a cost of curvature q is added, and (p, c + s·p) when a
curve of slope s is. Both maps are linear, so any number of them is one 2 × 2 matrix that waits at the top of a balanced
binary tree until somebody looks below. All entries and all steps are at least 0: nothing cancels.

The tree is a treap (Seidel and Aragon 1996) over corners. Its priorities come from hashing the corner's number, so
results are repeatable. A sequence is known by its root, and −1 is the empty one.
"""

import numpy as np

from consilience.kernels.kernel_cache import njit

STEP = np.dtype(
    [
        ("dual", np.float64),
        ("count", np.float64),
        ("mark", np.int64),
        ("total_dual", np.float64),
        ("total_count", np.float64),
        ("dual_by_dual", np.float64),
        ("dual_by_count", np.float64),
        ("count_by_dual", np.float64),
        ("count_by_count", np.float64),
        ("left", np.int32),
        ("right", np.int32),
        ("priority", np.uint32),
        ("waiting", np.bool_),
    ],
    align=True,
)
"""The step that leads to a corner, what all steps of its subtree add up to, and the map that waits for those below."""

EMPTY = -1

DEEPEST = 512
"""Longer paths do not occur: among 2³⁰ corners one of 200 has a chance below 10⁻²⁰."""


@njit(nogil=True, cache=True, error_model="numpy")
def new_step(steps, at, dual, count, mark):  # pragma: no cover - compiled
    """A sequence of one step."""
    step = steps[at]
    step.dual, step.count, step.mark = dual, count, mark
    step.total_dual, step.total_count = dual, count
    step.left, step.right, step.waiting = EMPTY, EMPTY, False
    mixed = np.uint64(at) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    step.priority = np.uint32((mixed ^ (mixed >> np.uint64(31))) & np.uint64(0xFFFFFFFF))
    return at


@njit(nogil=True, cache=True, error_model="numpy")
def transform(steps, root, pp, pc, cp, cc):  # pragma: no cover - compiled
    """Map every step (p, c) of a sequence to (pp·p + pc·c, cp·p + cc·c)."""
    if root == EMPTY:
        return
    step = steps[root]
    # All steps of the subtree are 0, and a map that nobody needs could grow beyond all numbers.
    if step.total_dual == 0 and step.total_count == 0:
        return
    step.dual, step.count = pp * step.dual + pc * step.count, cp * step.dual + cc * step.count
    step.total_dual, step.total_count = (
        pp * step.total_dual + pc * step.total_count,
        cp * step.total_dual + cc * step.total_count,
    )
    if not step.waiting:
        step.dual_by_dual, step.dual_by_count, step.count_by_dual, step.count_by_count = pp, pc, cp, cc
        step.waiting = True
        return
    a, b, c, d = step.dual_by_dual, step.dual_by_count, step.count_by_dual, step.count_by_count
    step.dual_by_dual, step.dual_by_count = pp * a + pc * c, pp * b + pc * d
    step.count_by_dual, step.count_by_count = cp * a + cc * c, cp * b + cc * d


@njit(nogil=True, cache=True, error_model="numpy")
def add_curvature(steps, root, square):  # pragma: no cover - compiled
    if square > 0:
        transform(steps, root, 1.0, 2.0 * square, 0.0, 1.0)


@njit(nogil=True, cache=True, error_model="numpy")
def add_slope(steps, root, slope):  # pragma: no cover - compiled
    if slope > 0:
        transform(steps, root, 1.0, 0.0, slope, 1.0)


@njit(nogil=True, cache=True, error_model="numpy")
def hand_down(steps, root):  # pragma: no cover - compiled
    """Pass the waiting map on to the two subtrees."""
    step = steps[root]
    if step.waiting:
        step.waiting = False
        pp, pc, cp, cc = step.dual_by_dual, step.dual_by_count, step.count_by_dual, step.count_by_count
        transform(steps, step.left, pp, pc, cp, cc)
        transform(steps, step.right, pp, pc, cp, cc)


@njit(nogil=True, cache=True, error_model="numpy")
def total_up(steps, root):  # pragma: no cover - compiled
    step = steps[root]
    step.total_dual, step.total_count = step.dual, step.count
    for below in (step.left, step.right):
        if below != EMPTY:
            step.total_dual += steps[below].total_dual
            step.total_count += steps[below].total_count


@njit(nogil=True, cache=True, error_model="numpy")
def totals(steps, root):  # pragma: no cover - compiled
    """What all steps of a sequence add up to."""
    if root == EMPTY:
        return 0.0, 0.0
    return steps[root].total_dual, steps[root].total_count


@njit(nogil=True, cache=True, error_model="numpy")
def split(steps, root, target, by_count, path):  # pragma: no cover - compiled
    """The corners before the target, in dual or in count from the start of the sequence, and those from it on."""
    left, right, left_end, right_end, depth, gone = EMPTY, EMPTY, EMPTY, EMPTY, 0, 0.0
    while root != EMPTY:
        hand_down(steps, root)
        step = steps[root]
        path[depth] = root
        depth += 1
        before = totals(steps, step.left)
        reached = gone + (before[1] + step.count if by_count else before[0] + step.dual)
        if reached < target:
            gone = reached
            if left_end == EMPTY:
                left = root
            else:
                steps[left_end].right = root
            left_end = root
            root = step.right
        else:
            if right_end == EMPTY:
                right = root
            else:
                steps[right_end].left = root
            right_end = root
            root = step.left
    if left_end != EMPTY:
        steps[left_end].right = EMPTY
    if right_end != EMPTY:
        steps[right_end].left = EMPTY
    for i in range(depth - 1, -1, -1):
        total_up(steps, path[i])
    return left, right


@njit(nogil=True, cache=True, error_model="numpy")
def join(steps, left, right, path):  # pragma: no cover - compiled
    """One sequence after the other."""
    if left == EMPTY:
        return right
    if right == EMPTY:
        return left
    root, end, depth, from_left = EMPTY, EMPTY, 0, False
    while left != EMPTY and right != EMPTY:
        upper = left if steps[left].priority >= steps[right].priority else right
        hand_down(steps, upper)
        path[depth] = upper
        depth += 1
        if end == EMPTY:
            root = upper
        elif from_left:
            steps[end].right = upper
        else:
            steps[end].left = upper
        end, from_left = upper, upper == left
        if from_left:
            left = steps[left].right
        else:
            right = steps[right].left
    if from_left:
        steps[end].right = right if left == EMPTY else left
    else:
        steps[end].left = left if right == EMPTY else right
    for i in range(depth - 1, -1, -1):
        total_up(steps, path[i])
    return root


@njit(nogil=True, cache=True, error_model="numpy")
def first_step(steps, root):  # pragma: no cover - compiled
    """Δdual and Δcount of the first step."""
    while True:
        hand_down(steps, root)
        if steps[root].left == EMPTY:
            return steps[root].dual, steps[root].count
        root = steps[root].left


@njit(nogil=True, cache=True, error_model="numpy")
def set_first_step(steps, root, dual, count, path):  # pragma: no cover - compiled
    depth = 0
    while True:
        hand_down(steps, root)
        path[depth] = root
        depth += 1
        if steps[root].left == EMPTY:
            break
        root = steps[root].left
    steps[root].dual, steps[root].count = dual, count
    for i in range(depth - 1, -1, -1):
        total_up(steps, path[i])


@njit(nogil=True, cache=True, error_model="numpy")
def list_corners(steps, root, path, listed):  # pragma: no cover - compiled
    """Write the corners of a sequence, in order, to an array; how many they are."""
    depth, found = 0, 0
    while root != EMPTY or depth > 0:
        while root != EMPTY:
            hand_down(steps, root)
            path[depth] = root
            depth += 1
            root = steps[root].left
        depth -= 1
        root = path[depth]
        listed[found] = root
        found += 1
        root = steps[root].right
    return found
