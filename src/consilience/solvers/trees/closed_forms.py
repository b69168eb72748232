"""L1 on a complete tree whose nodes all weigh the same, in linear time.

Let f_v(x) be the least Σ|x_u − y_u| over the subtree of v when its count is x. A leaf's f has one breakpoint, y, and
slopes −1 and 1. If the children of v are of height t − 1, their f have t breakpoints and the slopes −t, −t + 2, …, t.
Since siblings share these slopes, the least cost of all children together has the same slopes again, and each of its
breakpoints is the *sum* of theirs. Adding |x − y_v| puts one more breakpoint in between and makes the slopes −t − 1, …,
t + 1. With x ≥ 0 breakpoints below zero move to zero.

A root is best at its middle breakpoint, or anywhere between the two middle ones. From there down, a count lies between
two breakpoints of its children's sum, and the children share that stretch in proportion to their own. Slopes are
duals.
"""

import numpy as np

from consilience.kernels.kernel_cache import njit
from consilience.solvers.fit import Array
from consilience.solvers.trees.certificate import SETTINGS, Certificate
from consilience.solvers.trees.layout import Layout
from consilience.solvers.trees.states import Solution


def fit_equal_weights(noisy: Array, branching: int, height: int, *, nonnegative: bool) -> tuple[Array, Array]:
    """Consistent counts of least Σ|x − y|, ties shared in proportion, and the duals that prove it, in breadth-first
    order. Both are for weight 1; for another weight, multiply the duals by it."""
    widths = np.array([branching ** (height - t) for t in range(height + 1)], dtype=np.int64)
    offsets = np.concatenate([np.cumsum(widths[::-1])[::-1][1:], [0]]).astype(np.int64)
    places = np.concatenate([[0], np.cumsum(widths * np.arange(1, height + 2))]).astype(np.int64)
    breaks = np.empty(places[-1])
    counts, duals = np.empty_like(noisy), np.empty_like(noisy)
    _rise(noisy, branching, widths, offsets, places, nonnegative, breaks)
    _descend(noisy, branching, widths, offsets, places, nonnegative, breaks, counts, duals)
    _sum_up(branching, counts)
    return counts, duals


# The terms of `certificate` where every slope g lies between −1 and 1: a node's best answer is y, or 0 for a leaf with
# y < 0, and it loses |r| − g·r against that. Below −1, the best answer of a leaf that may not be negative is 0.
def certify_equal_weights(
    noisy: Array, branching: int, counts: Array, duals: Array, *, weight: float, nonnegative: bool
) -> Certificate:
    """What `certify` says of such counts and duals, faster: there is one cost for all nodes."""
    objective, gap, violation, largest = _certify(noisy, branching, counts, duals, nonnegative)
    gap = min(gap, objective) if violation <= SETTINGS.broken * largest else np.inf
    return Certificate(weight * objective, weight * gap, violation, weight * len(noisy) * SETTINGS.last_place * largest)


@njit(nogil=True, cache=True, error_model="numpy")
def _certify(noisy, branching, counts, duals, nonnegative):  # pragma: no cover - compiled
    objective, gap, violation, largest = 0.0, 0.0, 0.0, 0.0
    inner = (len(noisy) - 1) // branching
    for v in range(inner):
        child = branching * v + 1
        total = 0.0
        for c in range(branching):
            total += counts[child + c]
        residual, slope = counts[v] - noisy[v], duals[v] - duals[child]
        objective += abs(residual)
        gap += abs(residual) - slope * residual if abs(slope) <= 1.0 else np.inf
        violation = max(violation, abs(counts[v] - total))
        largest = max(largest, abs(counts[v]), abs(noisy[v]))
    for v in range(inner, len(noisy)):
        count, slope = counts[v], duals[v]
        best = max(noisy[v], 0.0) if nonnegative else noisy[v]
        objective += abs(count - noisy[v])
        if nonnegative and slope < -1.0:
            gap += abs(count - best) - best - slope * count
        else:
            gap += abs(count - best) - slope * (count - best) if abs(slope) <= 1.0 else np.inf
        violation = max(violation, -count if nonnegative else 0.0)
        largest = max(largest, abs(count), abs(noisy[v]))
    return objective, gap, violation, largest


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def _sum_of_breaks(breaks, family, t, branching):  # pragma: no cover - compiled
    """One breakpoint of the children's sum; siblings' breakpoints are t places apart."""
    total = breaks[family] + breaks[family + t]
    for c in range(2, branching):
        total += breaks[family + c * t]
    return total


@njit(nogil=True, cache=True, error_model="numpy")
def _rise(noisy, branching, widths, offsets, places, nonnegative, breaks):  # pragma: no cover - compiled
    """The breakpoints of all nodes: those of node i of height t begin at places[t] + i·(t + 1)."""
    floor = 0.0 if nonnegative else -np.inf
    for i in range(widths[0]):
        breaks[i] = max(noisy[offsets[0] + i], floor)
    for t in range(1, len(widths)):
        family, at = places[t - 1], places[t]
        for i in range(widths[t]):
            y = max(noisy[offsets[t] + i], floor)
            before = 0
            for s in range(t):
                total = _sum_of_breaks(breaks, family + s, t, branching)
                after = y <= total
                before += not after
                breaks[at + s + after] = total
            breaks[at + before] = y
            family += branching * t
            at += t + 1


@njit(nogil=True, cache=True, error_model="numpy")
def _descend(
    noisy, branching, widths, offsets, places, nonnegative, breaks, counts, duals
):  # pragma: no cover - compiled
    height = len(widths) - 1
    middle = places[height]
    counts[0] = 0.5 * (breaks[middle + height // 2] + breaks[middle + (height + 1) // 2])
    duals[0] = 0.0
    for t in range(height, 0, -1):
        family, child = places[t - 1], offsets[t - 1]
        for v in range(offsets[t], offsets[t] + widths[t]):
            count, y = counts[v], noisy[v]
            under, reached = 0, 0
            left, right = 0.0, 0.0
            for s in range(t):
                total = _sum_of_breaks(breaks, family + s, t, branching)
                under += total < count
                if total > count:
                    right = total
                    break
                reached += 1
                left = total
            _share(breaks, family, t, branching, reached, count, left, right, nonnegative, counts, child)
            least, most = 2.0 * under - t, 2.0 * reached - t
            if nonnegative and count <= 0:
                least = -np.inf
            if count < y:
                shared = duals[v] + 1.0
            elif count > y:
                shared = duals[v] - 1.0
            else:
                shared = 0.5 * (max(least, duals[v] - 1.0) + min(most, duals[v] + 1.0))
            for c in range(branching):
                duals[child + c] = shared
            family += branching * t
            child += branching


@njit(nogil=True, cache=True, error_model="numpy")
def _sum_up(branching, counts):  # pragma: no cover - compiled
    for v in range((len(counts) - 1) // branching - 1, -1, -1):
        total = 0.0
        for child in range(branching * v + 1, branching * (v + 1) + 1):
            total += counts[child]
        counts[v] = total


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def _share(
    breaks, family, t, branching, reached, count, left, right, nonnegative, counts, child
):  # pragma: no cover - compiled
    """Split a count that lies between the breakpoints `left` and `right` of the children's sum."""
    if reached == t or (reached == 0 and not nonnegative):
        end = t - 1 if reached == t else 0
        rest = (count - (left if reached == t else right)) / branching
        for c in range(branching):
            counts[child + c] = breaks[family + c * t + end] + rest
    elif reached > 0:
        part = (count - left) / (right - left)
        for c in range(branching):
            begin = breaks[family + c * t + reached - 1]
            counts[child + c] = begin + part * (breaks[family + c * t + reached] - begin)
    else:
        for c in range(branching):
            counts[child + c] = breaks[family + c * t] * (count / right)


# ----------------------------------------------------------------------------------------------------------------------
# Least squares on trees without x ≥ 0, where every node was measured: two passes (Hay et al. 2010, §4.1).
#
# `states` for the one case in which all nodes are free and none is at a kink, with nothing to remember but numbers.
# Start from consistent counts x, the leaves' noisy values and their sums, and let d = y − x be what is missing at a
# node. From the leaves upwards, the step of a subtree's count answers a dual λ by A + S·λ: with A and S summed over
# the children,
#
#     leaf:    A_v = 0,                              S_v = 1/2q
#     inner:   A_v = (A + 2q·S·d) / (1 + 2q·S),      S_v = S / (1 + 2q·S)
#
# with q = w², and from the roots down, where λ = 0, children share the dual (λ − 2q·(A − d)) / (1 + 2q·S). With g = λ
# minus the children's dual and residual r, each node is (g − 2q·r)² / 4q from its best answer: its part of the gap.


def solve_two_passes(layout: Layout, noisy: Array, weights: Array) -> Solution:
    """The consistent counts of least Σ w²(x − y)², for weights w > 0."""
    counts, duals = np.empty(layout.nodes), np.empty(layout.nodes)
    offsets, slopes = np.empty(layout.nodes), np.empty(layout.nodes)
    _rise_squares(layout.first, noisy, weights, counts, offsets, slopes)
    _descend_squares(layout.first, layout.roots, noisy, weights, counts, offsets, slopes, duals)
    objective, gap, largest, square = _sum_up_squares(layout.first, noisy, weights, counts, duals)
    certificate = Certificate(objective, min(gap, objective), 0.0, square * (SETTINGS.last_place * largest) ** 2)
    return Solution(counts, duals, certificate, 1)


@njit(nogil=True, cache=True, error_model="numpy")
def _rise_squares(first, noisy, weights, counts, offsets, slopes):  # pragma: no cover - compiled
    for v in range(len(noisy) - 1, -1, -1):
        if first[v] == first[v + 1]:
            counts[v], offsets[v], slopes[v] = noisy[v], 0.0, 0.5 / (weights[v] * weights[v])
            continue
        total, offset, slope = 0.0, 0.0, 0.0
        for c in range(first[v], first[v + 1]):
            total += counts[c]
            offset += offsets[c]
            slope += slopes[c]
        steep = 2.0 * weights[v] * weights[v] * slope
        counts[v] = total
        offsets[v] = (offset + steep * (noisy[v] - total)) / (1.0 + steep)
        slopes[v] = slope / (1.0 + steep)


@njit(nogil=True, cache=True, error_model="numpy")
def _descend_squares(first, roots, noisy, weights, counts, offsets, slopes, duals):  # pragma: no cover - compiled
    for v in range(roots):
        duals[v] = 0.0
    for v in range(len(noisy)):
        if first[v] == first[v + 1]:
            counts[v] += slopes[v] * duals[v]
            continue
        offset, slope = 0.0, 0.0
        for c in range(first[v], first[v + 1]):
            offset += offsets[c]
            slope += slopes[c]
        double = 2.0 * weights[v] * weights[v]
        shared = (duals[v] - double * (offset - (noisy[v] - counts[v]))) / (1.0 + double * slope)
        for c in range(first[v], first[v + 1]):
            duals[c] = shared


@njit(nogil=True, cache=True, error_model="numpy")
def _sum_up_squares(first, noisy, weights, counts, duals):  # pragma: no cover - compiled
    """Make every inner count the sum of its children's; returns what the certificate says."""
    objective, gap, largest, square = 0.0, 0.0, 0.0, 0.0
    for v in range(len(noisy) - 1, -1, -1):
        given = duals[v]
        if first[v] < first[v + 1]:
            given -= duals[first[v]]
            total = 0.0
            for c in range(first[v], first[v + 1]):
                total += counts[c]
            counts[v] = total
        residual, q = counts[v] - noisy[v], weights[v] * weights[v]
        short = given - 2.0 * q * residual
        objective += q * residual * residual
        gap += short * short / (4.0 * q)
        largest = max(largest, abs(noisy[v]), abs(counts[v]))
        square += q
    return objective, gap, largest, square
