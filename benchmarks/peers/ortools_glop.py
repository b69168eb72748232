"""OR-tools' GLOP, a simplex solver: cells x ≥ 0 with the least Σ w|Ax − y|, as a linear program."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp

NAME, MODULE = "OR-tools GLOP", "ortools"


def least_absolute_answers(
    strategy: Any, noisy: np.ndarray, weights: np.ndarray, *, time_limit: float
) -> Callable[[], np.ndarray | None]:
    """The residual is up − down, both at least 0. (The dual program takes GLOP as long, or twice as long.)"""
    program = import_module("ortools.linear_solver.python.model_builder_helper")
    rows, cells = strategy.shape
    eye, free = sp.identity(rows, format="csr"), strategy.shape[1] + 2 * rows
    model = program.ModelBuilderHelper()
    model.fill_model_from_sparse_data(
        np.zeros(free),
        np.full(free, np.inf),
        np.concatenate([np.zeros(cells), weights, weights]),
        noisy,
        noisy,
        sp.csr_matrix(sp.hstack([sp.csr_matrix(strategy), -eye, eye])),
    )

    def solve() -> np.ndarray | None:
        solver = program.ModelSolverHelper("GLOP")
        solver.set_time_limit_in_seconds(time_limit)
        solver.solve(model)
        if solver.status() != program.SolveStatus.OPTIMAL:
            return None
        return np.array(solver.variable_values())[:cells]

    return solve
