"""`scipy.optimize.linprog` (HiGHS): least Σ w|x − y| under equations and x ≥ 0, as a linear program."""

from typing import Any

import numpy as np
import scipy.sparse as sp

NAME = "scipy.optimize.linprog"


def least_absolute(equations: Any, noisy: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Counts with equations @ counts = 0; the residual is up − down, both at least 0."""
    from scipy.optimize import linprog

    values = len(noisy)
    eye = sp.identity(values, format="csr")
    rows = sp.vstack(
        [sp.hstack([equations, sp.csr_matrix((equations.shape[0], 2 * values))]), sp.hstack([eye, -eye, eye])]
    )
    right = np.concatenate([np.zeros(equations.shape[0]), noisy])
    prices = np.concatenate([np.zeros(values), weights, weights])
    solved = linprog(prices, A_eq=rows.tocsr(), b_eq=right, bounds=(0, None), method="highs")
    return solved.x[:values]
