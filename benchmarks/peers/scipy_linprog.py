"""`scipy.optimize.linprog` (HiGHS): least Σ w|x − y| under equations and x ≥ 0, as a linear program."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

NAME, MODULE = "scipy.optimize.linprog", "scipy"

Solve = Callable[[], np.ndarray | None]


def least_absolute(equations: Any, noisy: np.ndarray, weights: np.ndarray, *, time_limit: float) -> Solve:
    """Counts with equations @ counts = 0, in the usual form: the residual is up − down, both at least 0."""
    values = len(noisy)
    eye = sp.identity(values, format="csr")
    rows = sp.vstack(
        [sp.hstack([equations, sp.csr_matrix((equations.shape[0], 2 * values))]), sp.hstack([eye, -eye, eye])]
    )
    right = np.concatenate([np.zeros(equations.shape[0]), noisy])
    prices = np.concatenate([np.zeros(values), weights, weights])
    return _solving(prices, rows, right, np.full(3 * values, np.inf), lambda found: found[:values], time_limit)


def least_absolute_as_flow(equations: Any, noisy: np.ndarray, weights: np.ndarray, *, time_limit: float) -> Solve:
    """The same with fewer unknowns: x = below + above, where a unit below y, of which there are y, earns w."""
    values, positive = len(noisy), np.flatnonzero(noisy > 0)
    rows = sp.hstack([equations.tocsc()[:, positive], equations])
    prices = np.concatenate([-weights[positive], weights])
    most = np.concatenate([noisy[positive], np.full(values, np.inf)])

    def counts(found: np.ndarray) -> np.ndarray:
        both = found[len(positive) :].copy()
        both[positive] += found[: len(positive)]
        return both

    return _solving(prices, rows, np.zeros(equations.shape[0]), most, counts, time_limit)


def _solving(
    prices: np.ndarray, rows: Any, right: np.ndarray, most: np.ndarray,
    counts: Callable[[np.ndarray], np.ndarray], time_limit: float,
) -> Solve:  # fmt: skip
    from scipy.optimize import linprog

    matrix, bounds = sp.csr_matrix(rows), np.stack([np.zeros(len(most)), most], axis=1)

    def solve() -> np.ndarray | None:
        options = {"time_limit": time_limit}
        solved: Any = linprog(prices, A_eq=matrix, b_eq=right, bounds=bounds, method="highs", options=options)
        return counts(solved.x) if solved.status == 0 else None

    return solve
