"""What each cell does when prices are put on the marginals, and the lower bound on the optimum that follows.

With prices λ on the coordinates and s = Φᵀλ, every table x with Φx = b, 0 ≤ x ≤ u satisfies

    Σ loss_i(x_i − y_i)  ≥  bᵀλ + Σ_i min over 0 ≤ ξ ≤ u_i of [ a_i|ξ − y_i| + q_i(ξ − y_i)² − s_i ξ ],

whatever λ is. A cell of a non-negative table is at most every marginal that contains it, so u costs nothing to
have, and every λ gives a finite bound. The minimiser is y moved by the part of s that exceeds the slope a, over 2q.
"""

import numba
import numpy as np


@numba.njit(nogil=True, cache=True, error_model="numpy")
def sum_of_costs(y, a, q, x):  # pragma: no cover - compiled
    """Σ a|x − y| + q(x − y)²."""
    total = 0.0
    for i in range(x.shape[0]):
        move = abs(x[i] - y[i])
        total += move * (a[i] + q[i] * move)
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def best_responses(y, a, q, centre, ceiling, floor, s, x, softness):  # pragma: no cover - compiled
    """Fills the minimisers of a|ξ − y| + q(ξ − centre)² − sξ and their derivatives in s; returns the sum of the minima."""
    total = 0.0
    for i in range(s.shape[0]):
        x[i], softness[i] = _response(y[i], a[i], q[i], centre[i], ceiling[i], floor, s[i])
        move = x[i] - centre[i]
        total += a[i] * abs(x[i] - y[i]) + q[i] * move * move - s[i] * x[i]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def sum_of_least_costs(y, a, q, ceiling, floor, s):  # pragma: no cover - compiled
    """The sum of the minima for centre y; −∞ where a cell without ceiling or floor is paid more than it costs."""
    total = 0.0
    for i in range(s.shape[0]):
        x, _ = _response(y[i], a[i], q[i], y[i], ceiling[i], floor, s[i])
        if not np.isfinite(x):
            return -np.inf
        move = abs(x - y[i])
        total += move * (a[i] + q[i] * move) - s[i] * x
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def largest_overpay(a, q, ceiling, floor, s):  # pragma: no cover - compiled
    """The largest s/a of a cell without curvature, at least 1; divided by it, prices pay no such cell beyond its slope."""
    largest = 1.0
    for i in range(s.shape[0]):
        if q[i] == 0.0 and a[i] > 0.0 and ceiling[i] > 0.0:
            pay = s[i] if floor else abs(s[i])
            largest = max(largest, pay / a[i])
    return largest


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _response(y, a, q, centre, ceiling, floor, s):  # pragma: no cover - compiled
    """The minimiser and its derivative in s.

    Left of y the derivative of the cost is −a + 2q(ξ − centre) − s, right of it a + 2q(ξ − centre) − s; the minimiser
    is where one of them vanishes on its own side, and y where neither does.
    """
    if ceiling == 0.0:
        return 0.0, 0.0
    pull = s - 2.0 * q * (y - centre)
    softness = 0.0
    if -a <= pull <= a and (a > 0.0 or q == 0.0):
        x = y
    elif q > 0.0:
        softness = 1.0 / (2.0 * q)
        x = y + (pull - a if pull > 0.0 else pull + a) * softness
    else:
        x = np.inf if pull > 0.0 else -np.inf
    if floor and x <= 0.0:
        return 0.0, 0.0
    if x >= ceiling:
        return ceiling, 0.0
    return x, softness
