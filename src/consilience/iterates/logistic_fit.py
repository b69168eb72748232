"""Logistic regression without noise: the coefficients that make the loss of weighted records least.

    minimise over θ   Σ_i w_i ln(1 + exp(−θ·z_i)) / Σ_i w_i + ridge/2 ‖θ‖²,        z_i = y_i (x_i, 1)

by Newton's method, each step halved until the loss falls by a part of what its slope promises (Armijo; Boyd and
Vandenberghe 2004, §9.5). ridge > 0 makes the minimum exist and be unique, for separable records too.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError

Array = NDArray[np.float64]

MOST_STEPS = 200
ENOUGH = 1e-4
SHORTEST = 2.0**-40


@dataclass(frozen=True, eq=False)
class LogisticFit:
    """Coefficients, the intercept last; the mean loss without the penalty; whether Newton's method arrived."""

    coefficients: Array
    loss: float
    converged: bool


def signed_records(points: Array, labels: Array) -> Array:
    """z = y·(x, 1) for each record.

    >>> signed_records(np.array([[0.5], [0.25]]), np.array([1.0, -1.0]))
    array([[ 0.5 ,  1.  ],
           [-0.25, -1.  ]])
    """
    return np.column_stack([points, np.ones(len(points))]) * labels[:, None]


def logistic_loss(coefficients: Array, signed: Array, *, weights: Array | None = None) -> float:
    """The weighted mean of ln(1 + exp(−θ·z)).

    >>> round(logistic_loss(np.zeros(2), np.array([[0.5, 1.0]])), 4)
    0.6931
    """
    return float(np.average(np.logaddexp(0.0, -(signed @ coefficients)), weights=weights))


def fit_logistic(
    signed: Array, *, weights: Array | None = None, ridge: float, start: Array | None = None, tolerance: float = 1e-10
) -> LogisticFit:
    """The coefficients with the least penalised loss; the squared Newton decrement there is below 2 × tolerance.

    >>> z = signed_records(np.array([[1.0], [-1.0], [1.0]]), np.array([1.0, -1.0, -1.0]))
    >>> fit_logistic(z, ridge=1e-3).converged
    True
    """
    if not (np.isfinite(ridge) and ridge > 0):
        raise DeclarationError(f"the ridge is {ridge}; it is a finite number above 0, such as 1e-6")
    if signed.ndim != 2 or not len(signed):
        raise DeclarationError("there are no records to fit; give one or more")
    shares = np.full(len(signed), 1 / len(signed)) if weights is None else weights / weights.sum()
    found = np.zeros(signed.shape[1]) if start is None else np.array(start, dtype=np.float64)
    converged = False
    for _ in range(MOST_STEPS):
        slope, step = _newton_step(found, signed, shares, ridge)
        promised = float(slope @ step)
        if promised <= 2 * tolerance:
            converged = True
            break
        length = _acceptable_length(found, step, promised, signed, shares, ridge)
        if length == 0.0:
            break
        found = found - length * step
    return LogisticFit(found, logistic_loss(found, signed, weights=shares), converged)


def _newton_step(found: Array, signed: Array, shares: Array, ridge: float) -> tuple[Array, Array]:
    margins = signed @ found
    misfits = np.exp(-np.logaddexp(0.0, margins))
    slope = ridge * found - signed.T @ (shares * misfits)
    curvature = signed.T @ (signed * (shares * misfits * (1 - misfits))[:, None])
    curvature[np.diag_indices_from(curvature)] += ridge
    return slope, np.asarray(np.linalg.solve(curvature, slope), dtype=np.float64)


def _acceptable_length(found: Array, step: Array, promised: float, signed: Array, shares: Array, ridge: float) -> float:
    """The first of 1, 1/2, 1/4, … with enough descent, or 0 where rounding errors leave none."""

    def penalised(coefficients: Array) -> float:
        penalty = ridge / 2 * float(coefficients @ coefficients)
        return logistic_loss(coefficients, signed, weights=shares) + penalty

    here = penalised(found)
    length = 1.0
    while length >= SHORTEST:
        if penalised(found - length * step) <= here - ENOUGH * length * promised:
            return length
        length /= 2
    return 0.0
