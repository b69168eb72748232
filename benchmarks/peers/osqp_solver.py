"""OSQP, an operator-splitting solver: least Σ q·(x − y)² under equations and x ≥ 0, at its default accuracy."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp

NAME, MODULE = "OSQP", "osqp"


def least_squares(
    equations: Any, noisy: np.ndarray, square: np.ndarray, *, time_limit: float
) -> Callable[[], np.ndarray | None]:
    """Counts with equations @ counts = 0, about."""
    osqp = import_module(MODULE)
    values, rows = len(noisy), equations.shape[0]
    constraints = sp.csc_matrix(sp.vstack([equations, sp.identity(values)]))
    least = np.zeros(rows + values)
    most = np.concatenate([np.zeros(rows), np.full(values, np.inf)])
    quadratic = sp.csc_matrix(sp.diags_array(2 * square))

    def solve() -> np.ndarray | None:
        solver = osqp.OSQP()
        options = {"verbose": False, "max_iter": 1_000_000, "time_limit": time_limit}
        solver.setup(quadratic, -2 * square * noisy, constraints, least, most, **options)
        solved = solver.solve()
        return np.array(solved.x) if solved.info.status == "solved" else None

    return solve
