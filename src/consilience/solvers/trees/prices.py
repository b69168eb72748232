"""Prices that prove an L1 optimum, from the states of the nodes.

Without curvature every node stands still at the optimum, and its state says between which slopes its cost may lie:

    below the kink: −a       at the kink: −a … a       above: a       at a lower bound: anything up to the slope there
    at an exact count: anything

From the leaves upwards, node v can bear the prices λ_v in the interval of its children's common prices plus its own
slopes. A root must bear the price 0. From the roots down, each inner node picks the middle of what is left for the
price μ_v of its children.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import announce
from consilience.solvers.losses import Array
from consilience.solvers.trees.costs import Costs, piece
from consilience.solvers.trees.layout import Layout
from consilience.solvers.trees.pieces import is_held, slopes_held


def prices_from_states(layout: Layout, costs: Costs, states: NDArray[np.int8]) -> tuple[Array, Array]:
    """A price for every node that fits the states, and the slopes g that follow, free of the rounding of prices."""
    announce(_price)
    low, high = np.empty(layout.nodes), np.empty(layout.nodes)
    prices, slopes = np.empty(layout.nodes), np.empty(layout.nodes)
    _price(costs, layout.first, layout.roots, states, low, high, prices, slopes)
    return prices, slopes


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def slopes_in(cost, state):  # pragma: no cover - compiled
    """The least and the greatest slope of the cost in a state."""
    if is_held(state):
        return slopes_held(cost, state)
    sigma = piece(cost, state)[0]
    return sigma, sigma


@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def common(first, v, low, high):  # pragma: no cover - compiled
    """The prices that all children of v can bear."""
    least, most = -np.inf, np.inf
    for c in range(first[v], first[v + 1]):
        least = max(least, low[c])
        most = min(most, high[c])
    return least, most


# Rounding can leave nothing between them; prices that are too high are the ones that no count answers. Below an exact
# node one end or both may be infinitely far.
@numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def between(bottom, top, otherwise):  # pragma: no cover - compiled
    """The middle of what is left for a price, or its finite end, or any other price if it has none."""
    if bottom > -np.inf and top < np.inf:
        return 0.5 * (bottom + top) if bottom <= top else top
    if bottom > -np.inf:
        return bottom
    return top if top < np.inf else otherwise


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _price(costs, first, roots, states, low, high, prices, slopes):  # pragma: no cover - compiled
    for v in range(len(costs) - 1, -1, -1):
        least, most = slopes_in(costs[v], states[v])
        if first[v] < first[v + 1]:
            children = common(first, v, low, high)
            least += children[0]
            most += children[1]
        low[v], high[v] = least, most
    prices[:roots] = 0.0
    for v in range(len(costs)):
        least, most = slopes_in(costs[v], states[v])
        if first[v] == first[v + 1]:
            slopes[v] = min(max(prices[v], least), most)
            continue
        borne = common(first, v, low, high)
        bottom, top = max(prices[v] - most, borne[0]), min(prices[v] - least, borne[1])
        shared = between(bottom, top, prices[v])
        slopes[v] = min(max(prices[v] - shared, least), most)
        for c in range(first[v], first[v + 1]):
            prices[c] = shared
