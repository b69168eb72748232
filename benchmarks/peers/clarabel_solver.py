"""Clarabel, an interior-point solver: least Σ a|r| + q·r² with r = x − y under equations, or with r = Ax − y; x ≥ 0."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp

NAME, MODULE = "Clarabel", "clarabel"

Solve = Callable[[], np.ndarray | None]


def least_elastic(
    equations: Any, right: np.ndarray, noisy: np.ndarray, linear: np.ndarray, square: np.ndarray, *, time_limit: float
) -> Solve:
    """Counts with equations @ counts = right, in the usual form: the residual is up − down, both at least 0."""
    values, rows = len(noisy), equations.shape[0]
    eye = sp.identity(values, format="csr")
    equal = sp.vstack([sp.hstack([equations, sp.csr_matrix((rows, 2 * values))]), sp.hstack([eye, -eye, eye])])
    constraints = sp.vstack([equal, -sp.identity(3 * values)])
    limits = np.concatenate([right, noisy, np.zeros(3 * values)])
    curvature = np.concatenate([2 * square, np.zeros(2 * values)])
    gradient = np.concatenate([-2 * square * noisy, linear, linear])
    return _solving(curvature, gradient, constraints, limits, rows + values, lambda found: found[:values], time_limit)


def least_elastic_by_parts(
    equations: Any, right: np.ndarray, noisy: np.ndarray, linear: np.ndarray, square: np.ndarray,
    *, bounded: np.ndarray, time_limit: float,
) -> Solve:  # fmt: skip
    """The same with fewer unknowns, where some counts are known to be non-negative if those marked `bounded` are.

    x = start + up − down. For most counts start = y. Where a bounded y > 0, down ≤ y stands for x ≥ 0; where y ≤ 0,
    start = 0 and there is nothing to take away, so the residual is up − y.
    """
    values, rows = len(noisy), equations.shape[0]
    negative = bounded & (noisy <= 0)
    start, falling = np.where(negative, 0.0, noisy), np.flatnonzero(~negative)
    limited: Any = sp.csr_array(sp.identity(len(falling)))[np.flatnonzero(bounded[falling])]
    free = values + len(falling)
    constraints = sp.vstack(
        [
            sp.hstack([equations, -equations.tocsc()[:, falling]]),
            -sp.identity(free),
            sp.hstack([sp.csr_matrix((limited.shape[0], values)), limited]),
        ]
    )
    limits = np.concatenate([right - equations @ start, np.zeros(free), limited @ noisy[falling]])
    curvature = 2 * np.concatenate([square, square[falling]])
    gradient = np.concatenate([linear - 2 * square * np.where(negative, noisy, 0.0), linear[falling]])

    def counts(found: np.ndarray) -> np.ndarray:
        moved = start + found[:values]
        moved[falling] -= found[values:]
        return moved

    return _solving(curvature, gradient, constraints, limits, rows, counts, time_limit)


def least_absolute_answers(strategy: Any, noisy: np.ndarray, linear: np.ndarray, *, time_limit: float) -> Solve:
    """Cells x ≥ 0 with the least Σ a|Ax − y|; the residual is up − down, both at least 0."""
    rows, cells = strategy.shape
    eye, free = sp.identity(rows, format="csr"), strategy.shape[1] + 2 * rows
    constraints = sp.vstack([sp.hstack([sp.csr_matrix(strategy), -eye, eye]), -sp.identity(free)])
    gradient = np.concatenate([np.zeros(cells), linear, linear])
    limits = np.concatenate([noisy, np.zeros(free)])
    return _solving(np.zeros(free), gradient, constraints, limits, rows, lambda found: found[:cells], time_limit)


def _solving(
    curvature: np.ndarray, gradient: np.ndarray, constraints: Any, limits: np.ndarray, equal: int,
    counts: Callable[[np.ndarray], np.ndarray], time_limit: float,
) -> Solve:  # fmt: skip
    """Minimise zᵀ diag(curvature) z/2 + gradientᵀz; the first `equal` constraints hold with equality, the others ≤."""
    clarabel = import_module(MODULE)
    quadratic, matrix = sp.csc_matrix(sp.diags_array(curvature)), sp.csc_matrix(constraints)
    quadratic.eliminate_zeros()
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads, settings.time_limit = False, 1, time_limit
    cones = [clarabel.ZeroConeT(equal), clarabel.NonnegativeConeT(len(limits) - equal)]

    def solve() -> np.ndarray | None:
        solved = clarabel.DefaultSolver(quadratic, gradient, matrix, limits, cones, settings).solve()
        if solved.status == clarabel.SolverStatus.MaxTime:
            return None
        return counts(np.array(solved.x))

    return solve
