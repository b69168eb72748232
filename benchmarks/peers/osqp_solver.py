"""OSQP, an operator-splitting solver: least Σ q·(x − y)² under equations and x ≥ 0, at its default accuracy."""

from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp

NAME = "OSQP"


def least_squares(equations: Any, noisy: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Counts with equations @ counts = 0, about."""
    osqp = import_module("osqp")

    values, rows = len(noisy), equations.shape[0]
    constraints = sp.vstack([equations, sp.identity(values)]).tocsc()
    least = np.zeros(rows + values)
    most = np.concatenate([np.zeros(rows), np.full(values, np.inf)])
    solver = osqp.OSQP()
    quadratic = sp.csc_matrix(sp.diags_array(2 * square))
    solver.setup(quadratic, -2 * square * noisy, constraints, least, most, verbose=False, max_iter=100_000)
    return np.array(solver.solve().x)
