"""Clarabel, an interior-point solver: least Σ a|r| + q·r² with r = x − y, under equations and x ≥ 0."""

from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp

NAME = "Clarabel"


def least_elastic(equations: Any, noisy: np.ndarray, linear: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Counts with equations @ counts = 0; the residual is up − down, both at least 0."""
    clarabel = import_module("clarabel")

    values, rows = len(noisy), equations.shape[0]
    eye = sp.identity(values, format="csr")
    equal = sp.vstack([sp.hstack([equations, sp.csr_matrix((rows, 2 * values))]), sp.hstack([eye, -eye, eye])])
    constraints = sp.vstack([equal, -sp.identity(3 * values)]).tocsc()
    right = np.concatenate([np.zeros(rows), noisy, np.zeros(3 * values)])
    quadratic = sp.diags_array(np.concatenate([2 * square, np.zeros(2 * values)]), format="csc")
    gradient = np.concatenate([-2 * square * noisy, linear, linear])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(rows + values), clarabel.NonnegativeConeT(3 * values)]
    solved = clarabel.DefaultSolver(sp.csc_matrix(quadratic), gradient, constraints, right, cones, settings).solve()
    return np.array(solved.x)[:values]
