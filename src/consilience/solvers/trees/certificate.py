"""What each node of a forest costs, as records for the kernels, and the words of the kernels.

Node v with count x costs, with residual r = x − y,

    φ_v(x) = a·|r| + q·r²   for lower ≤ x ≤ upper,   infinite outside,

where a and q may differ below and above y: below its 0, a clipped value costs nothing. The slope φ' is a broken line
that jumps at the kink x = y. So at any moment a node is in one of five states: at its lower bound, on the piece below
its kink, at the kink, on the piece above, or at its upper bound. Once the states of all nodes are known, the rest is
linear algebra.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.solvers.fit import Array, Loss
from consilience.solvers.trees.layout import Layout

Costs = NDArray[Any]
"""One record of type COST for each node, in breadth-first order."""

COST = np.dtype(
    [
        ("noisy", np.float64),
        ("linear", np.float64),
        ("square", np.float64),
        ("linear_below", np.float64),
        ("square_below", np.float64),
        ("lower", np.float64),
        ("upper", np.float64),
    ]
)

LOW, BELOW, KINK, ABOVE, HIGH = -2, -1, 0, 1, 2


def costs_of(
    layout: Layout,
    loss: Loss,
    noisy: Array,
    weights: Array,
    *,
    clipped: NDArray[np.bool_] | None,
    nonnegative: bool,
    exact: NDArray[np.bool_] | None = None,
) -> Costs:
    """The costs of measured nodes. Non-negative leaves make non-negative sums, so only leaves are bounded.

    An exact node costs nothing, and has its value for both bounds.
    """
    costs = np.empty(layout.nodes, dtype=COST)
    _fill(layout.first, noisy, weights, loss.linear, loss.square, 0.0 if nonnegative else -np.inf, costs)
    if clipped is not None:
        costs["linear_below"][clipped] = costs["square_below"][clipped] = 0.0
    if exact is not None:
        for field in ("linear", "square", "linear_below", "square_below"):
            costs[field][exact] = 0.0
        costs["lower"][exact] = costs["upper"][exact] = noisy[exact]
    return costs


@njit(nogil=True, cache=True, error_model="numpy")
def _fill(first, noisy, weights, linear, square, lower, costs):  # pragma: no cover - compiled
    for v in range(len(costs)):
        cost, weight = costs[v], weights[v]
        cost.noisy = noisy[v]
        cost.linear = cost.linear_below = linear * weight
        cost.square = cost.square_below = square * weight * weight
        cost.lower = lower if first[v] == first[v + 1] else -np.inf
        cost.upper = np.inf


def squares_in_box(costs: Costs, lower: Array, upper: Array) -> Costs:
    """The costs a²r² in a box, for costs a·|r|."""
    boxed = np.empty(len(costs), dtype=COST)
    _fill_box(costs, lower, upper, boxed)
    return boxed


@njit(nogil=True, cache=True, error_model="numpy")
def _fill_box(costs, lower, upper, boxed):  # pragma: no cover - compiled
    for v in range(len(costs)):
        cost, box = costs[v], boxed[v]
        box.noisy, box.linear, box.linear_below = cost.noisy, 0.0, 0.0
        box.square, box.square_below = cost.linear * cost.linear, cost.linear_below * cost.linear_below
        box.lower, box.upper = lower[v], upper[v]


# A basic solution of a tree sets as many nodes to noisy values or to zero as there are leaves and gets every other
# count by adding and subtracting them, each at most once, because the sets of leaves under the nodes are nested. An
# optimum is a weighted least-squares solution for some weights, hence a mean of basic solutions (Ben-Tal and Teboulle
# 1990).
def largest_count(noisy: Array) -> float:
    """A bound on the size of every count in some optimum: the sum of all |y|."""
    return float(np.abs(noisy).sum())


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def has_kink(cost):  # pragma: no cover - compiled
    return cost.linear + cost.linear_below > 0 or cost.square != cost.square_below


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def piece(cost, state):  # pragma: no cover - compiled
    """(σ, q) such that the slope on a piece is σ + 2q·(x − y)."""
    if state == BELOW:
        return -cost.linear_below, cost.square_below
    return cost.linear, cost.square


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def slope_at(cost, count, state):  # pragma: no cover - compiled
    """The slope of the cost on a piece."""
    sigma, square = piece(cost, state)
    return sigma + 2.0 * square * (count - cost.noisy)


# ----------------------------------------------------------------------------------------------------------------------
# How far counts can be from the optimum, proved by duals.
#
# Let μ_v be the dual of the sum at inner node v, that is the Lagrange multiplier of x_v = Σ_c x_c over its children c,
# let λ_v be the dual of node v (its parent's μ, 0 for a root) and g_v = λ_v − μ_v, with μ_v = 0 for a leaf. For
# consistent counts Σ_v g_v·x_v = Σ_v μ_v·(Σ_c x_c − x_v) = 0, so
#
#     Σ_v φ_v(x_v) ≥ Σ_v min_z [φ_v(z) − g_v·z]      for all consistent x, and any duals,
#
# and the counts x are within
#
#     gap = Σ_v [φ_v(x_v) − g_v·x_v] − min_z [φ_v(z) − g_v·z]
#
# of the optimum: a sum of terms that are not negative, each computed from differences that stay small where x_v is
# close to its best answer z to the dual. It holds whatever made the counts and the duals. Costs are not negative, so
# the gap is never more than the objective.
#
# A cost that grows no faster than its absolute value has no best answer to a slope above a, and rounding may leave a
# dual a little too high. Two cures are at hand, and the better one is taken. Some optimum keeps all counts within a
# bound, so the minimum may be taken over |z| ≤ bound. Or all duals are divided by the largest g/a, which costs that
# part of the objective.


class CertificateSettings(NamedTuple):
    """What is rounding in a certificate, and how wide the first guess of duals is."""

    last_place: float = 2.0**-50
    """By which part of the largest count all counts may move: about four units in the last place of a number."""
    negligible_gap: float = 1e-14
    """The relative gap at which dividing the duals is no longer tried: about 45 units in the last place."""
    broken: float = 1e-10
    """A violation of more than this part of the largest count is no rounding. By trial; no figure kept."""
    window: float = 2.0
    """Beyond which dual none is expected, in units of the height times the mean slope; optima of sparse and of empty
    histograms reach 1.4."""


SETTINGS = CertificateSettings()


@dataclass(frozen=True)
class Certificate:
    """The objective is at most `gap` above the optimum; the gap is infinite for counts that break a condition."""

    objective: float
    gap: float
    violation: float
    """The largest amount by which a count differs from the sum of its children, or lies outside its bounds."""
    rounding: float
    """What the objective changes by if every count moves by a few units in the last place of the largest."""

    @property
    def relative_gap(self) -> float:
        """The gap in units of the objective."""
        if self.gap == 0:
            return 0.0
        return self.gap / self.objective if self.objective > 0 else np.inf

    def within(self, tolerance: float) -> bool:
        """Whether the relative gap is at most this, or the gap no more than what rounding does to the objective."""
        return self.gap <= max(tolerance * self.objective, self.rounding)


def certify(layout: Layout, costs: Costs, counts: Array, duals: Array, *, bound: float) -> Certificate:
    """What these duals prove of these counts, both in breadth-first order."""
    objective, gap, violation, largest, linear, square = _certify(costs, layout.first, counts, duals, bound)
    gap = min(gap, objective) if violation <= SETTINGS.broken * largest else np.inf
    move = SETTINGS.last_place * largest
    return Certificate(objective, gap, violation, linear * move + square * move**2)


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def value_at(cost, residual):  # pragma: no cover - compiled
    if residual < 0:
        return cost.linear_below * -residual + cost.square_below * residual * residual
    return cost.linear * residual + cost.square * residual * residual


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def best_answer(cost, slope, bound):  # pragma: no cover - compiled
    """A count that minimises the cost minus slope times count."""
    answer = cost.noisy
    if slope > cost.linear:
        answer = cost.noisy + (slope - cost.linear) / (2.0 * cost.square) if cost.square > 0 else bound
    elif slope < -cost.linear_below:
        below = slope + cost.linear_below
        answer = cost.noisy + below / (2.0 * cost.square_below) if cost.square_below > 0 else -bound
    return min(max(answer, cost.lower), cost.upper)


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def shortfall(cost, count, slope, bound):  # pragma: no cover - compiled
    """What a node loses by its count against its best answer to the slope."""
    answer = best_answer(cost, slope, bound)
    if answer == count:
        return 0.0
    here, there = count - cost.noisy, answer - cost.noisy
    if (here < 0) == (there < 0):
        sigma, square = piece(cost, BELOW if here < 0 else ABOVE)
        return max((here - there) * (sigma + square * (here + there) - slope), 0.0)
    return max(value_at(cost, here) - value_at(cost, there) - slope * (count - answer), 0.0)


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def excess(cost, slope):  # pragma: no cover - compiled
    """By what factor a slope is above the steepest that a cost without curvature can answer."""
    if slope > 0 and cost.linear > 0 and cost.square == 0 and cost.upper == np.inf:
        return slope / cost.linear
    if slope < 0 and cost.linear_below > 0 and cost.square_below == 0 and cost.lower == -np.inf:
        return -slope / cost.linear_below
    return 1.0


@njit(nogil=True, cache=True, error_model="numpy")
def _certify(costs, first, counts, duals, bound):  # pragma: no cover - compiled
    objective, gap, violation, largest, linear, square, divisor = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0
    for v in range(len(costs)):
        cost, count = costs[v], counts[v]
        slope, total = duals[v], count
        if first[v] < first[v + 1]:
            slope -= duals[first[v]]
            total = 0.0
            for c in range(first[v], first[v + 1]):
                total += counts[c]
        gap += shortfall(cost, count, slope, bound)
        divisor = max(divisor, excess(cost, slope))
        objective += value_at(cost, count - cost.noisy)
        violation = max(violation, abs(count - total), cost.lower - count, count - cost.upper)
        largest = max(largest, abs(cost.noisy), abs(count))
        # Moving an exact count costs what its dual says.
        linear += cost.linear if cost.lower < cost.upper else abs(slope)
        square += cost.square
    if divisor > 1 and gap > SETTINGS.negligible_gap * objective:
        gap = min(gap, _gap_after_division(costs, first, counts, duals, divisor, bound))
    return objective, gap, violation, largest, linear, square


@njit(nogil=True, cache=True, error_model="numpy")
def _gap_after_division(costs, first, counts, duals, divisor, bound):  # pragma: no cover - compiled
    gap = 0.0
    for v in range(len(costs)):
        slope = duals[v] - duals[first[v]] if first[v] < first[v + 1] else duals[v]
        gap += shortfall(costs[v], counts[v], slope / divisor, bound)
    return gap


# ----------------------------------------------------------------------------------------------------------------------
# A guess between which duals the optimum lies, so that curves need not be drawn beyond.
#
# A node's dual is minus the sum of the slopes of its ancestors, and a slope is about a + 2q·|r|, where r is what is
# missing between a noisy value and the sum of its children's. Slopes have both signs, so duals rarely come near the
# number of ancestors times the mean slope; twice that is the guess. The curve of a large subtree reaches far beyond:
# its dual changes by about q for each unit of noise in each of its leaves. Left alone, all corners climb to the root,
# O(n · height) steps; within the window few do, and the steps are near O(n).
#
# A wrong guess gives wrong states, which their certificate shows.


def likely_window(layout: Layout, costs: Costs) -> float:
    """A dual beyond which no node of the optimum is expected."""
    return SETTINGS.window * (layout.height + 1) * float(_mean_slope(costs, layout.first))


@njit(nogil=True, cache=True, error_model="numpy")
def _mean_slope(costs, first):  # pragma: no cover - compiled
    """The mean of a + 2q·|r| over the nodes with children; infinite where there are none."""
    total, inner = 0.0, 0
    for v in range(len(costs)):
        if first[v] == first[v + 1]:
            continue
        missing = costs[v].noisy
        for c in range(first[v], first[v + 1]):
            missing -= min(max(costs[c].noisy, costs[c].lower), costs[c].upper)
        total += costs[v].linear + 2.0 * costs[v].square * abs(missing)
        inner += 1
    return total / inner if inner > 0 else np.inf
