"""What each cell does when prices are put on the marginals, and the lower bound on the optimum that follows.

Cells are known by their moves δ = x − y away from the noisy values, and δ is confined to low ≤ δ ≤ high. With prices
λ on the coordinates and the pay s = Φᵀλ of each cell, all moves with Φδ = r satisfy

    Σ a_i|δ_i| + q_i δ_i²  ≥  rᵀλ + Σ_i min over low_i ≤ ξ ≤ high_i of [ a_i|ξ| + q_i ξ² − s_i ξ ],

whatever λ is. A cell of a non-negative table is at most every marginal that contains it, so `high` costs nothing to
have, and every λ gives a finite bound. The minimiser is the part of s that exceeds the slope a, over 2q, brought into
bounds.
"""

import numba
import numpy as np


@numba.njit(nogil=True, cache=True, error_model="numpy")
def sum_of_costs(a, q, moves):  # pragma: no cover - compiled
    """Σ a|δ| + qδ²."""
    total = 0.0
    for i in range(moves.shape[0]):
        size = abs(moves[i])
        total += size * (a[i] + q[i] * size)
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def best_responses(a, q, centre, low, high, s, moves, softness):  # pragma: no cover - compiled
    """Fills the minimisers of a|ξ| + q(ξ − centre)² − sξ and their derivatives in s; returns the sum of the minima."""
    total = 0.0
    for i in range(s.shape[0]):
        moves[i], softness[i] = _response(a[i], q[i], centre[i], low[i], high[i], s[i])
        away = moves[i] - centre[i]
        total += a[i] * abs(moves[i]) + q[i] * away * away - s[i] * moves[i]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def sum_of_least_costs(a, q, low, high, s):  # pragma: no cover - compiled
    """The sum of the minima for centre 0; −∞ where a cell without bound is paid more than it costs."""
    total = 0.0
    for i in range(s.shape[0]):
        move, _ = _response(a[i], q[i], 0.0, low[i], high[i], s[i])
        if not np.isfinite(move):
            return -np.inf
        size = abs(move)
        total += size * (a[i] + q[i] * size) - s[i] * move
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def largest_overpay(a, q, low, high, s):  # pragma: no cover - compiled
    """The largest |s|/a of a cell without curvature that can follow its pay, at least 1.

    Prices divided by it pay no such cell beyond its slope.
    """
    largest = 1.0
    for i in range(s.shape[0]):
        if q[i] == 0.0 and a[i] > 0.0 and low[i] < high[i] and (s[i] > 0.0 or low[i] == -np.inf):
            largest = max(largest, abs(s[i]) / a[i])
    return largest


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _response(a, q, centre, low, high, s):  # pragma: no cover - compiled
    """The minimiser and its derivative in s.

    Left of 0 the derivative of the cost is −a + 2q(ξ − centre) − s, right of it a + 2q(ξ − centre) − s; the minimiser
    is where one of them vanishes on its own side, and 0 where neither does.
    """
    pull = s + 2.0 * q * centre
    move, softness = 0.0, 0.0
    if pull > a or pull < -a or (a == 0.0 and q > 0.0):
        excess = pull - a if pull > 0.0 else pull + a
        if q > 0.0:
            softness = 0.5 / q
            move = excess * softness
        else:
            move = np.inf if excess > 0.0 else -np.inf
    if move <= low:
        return low, 0.0
    if move >= high:
        return high, 0.0
    return move, softness
