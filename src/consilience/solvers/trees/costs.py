"""What each node of a forest costs, as records for the kernels, and the words of the kernels.

Node v with count x costs, with residual r = x − y,

    φ_v(x) = a·|r| + q·r²   for lower ≤ x ≤ upper,   infinite outside,

where a and q may differ below and above y: below its 0, a clipped value costs nothing. The slope φ' is a broken line
that jumps at the kink x = y. So at any moment a node is in one of five states: at its lower bound, on the piece below
its kink, at the kink, on the piece above, or at its upper bound. Once the states of all nodes are known, the rest is
linear algebra.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import announce
from consilience.solvers.losses import Array, Loss
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
    announce(_fill)
    costs = np.empty(layout.nodes, dtype=COST)
    _fill(layout.first, noisy, weights, loss.linear, loss.square, 0.0 if nonnegative else -np.inf, costs)
    if clipped is not None:
        costs["linear_below"][clipped] = costs["square_below"][clipped] = 0.0
    if exact is not None:
        for field in ("linear", "square", "linear_below", "square_below"):
            costs[field][exact] = 0.0
        costs["lower"][exact] = costs["upper"][exact] = noisy[exact]
    return costs


@numba.njit(nogil=True, cache=True, error_model="numpy")
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
    announce(_fill_box)
    boxed = np.empty(len(costs), dtype=COST)
    _fill_box(costs, lower, upper, boxed)
    return boxed


@numba.njit(nogil=True, cache=True, error_model="numpy")
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


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def has_kink(cost):  # pragma: no cover - compiled
    return cost.linear + cost.linear_below > 0 or cost.square != cost.square_below


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def piece(cost, state):  # pragma: no cover - compiled
    """(σ, q) such that the slope on a piece is σ + 2q·(x − y)."""
    if state == BELOW:
        return -cost.linear_below, cost.square_below
    return cost.linear, cost.square


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def slope_at(cost, count, state):  # pragma: no cover - compiled
    """The slope of the cost on a piece."""
    sigma, square = piece(cost, state)
    return sigma + 2.0 * square * (count - cost.noisy)
