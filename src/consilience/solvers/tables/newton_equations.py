"""Newton's equations between rows: (diag(stiffness) + ρ·B(diag x − xxᵀ/T)Bᵀ) d = target.

Where the matrix of row products can be had and factored, that is done: a factorisation does not mind that the
stiffnesses of rows differ by ten orders of magnitude, as they do near an optimum of absolute values. Otherwise
conjugate gradients take many steps, and `max_steps` ends them.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from consilience.solvers.tables.least_squares_problem import Array, Problem, SquaringOperator, inner
from consilience.solvers.tables.row_costs import RowProducts

RIDGES = (1e-13, 1e-11, 1e-9, 1e-7, 1e-5)
"""What is added to a matrix, relative to its diagonal, until it can be factored: rows that others imply need it."""

CLOSE = 1e-5
"""How far conjugate gradients reduce the error of the equations."""

CONJUGATE_GRADIENT_LIMIT = 500


@dataclass
class NewtonEquations:
    """Solves the equations at any table; counts what that takes in the problem's own counters."""

    problem: Problem
    products: RowProducts | None

    def solve(self, counts: Array, fitted: Array, rho: float, stiffness: Array, target: Array) -> Array:
        """d for the table `counts`, whose rows have the values `fitted`."""
        if self.products is None:
            return self._by_conjugate_gradients(counts, fitted, rho, stiffness, target)
        self.problem.adjoints += 1
        return factored_solution(self.products.of(counts), fitted, rho, stiffness, target, self.problem.total)

    def _by_conjugate_gradients(
        self, counts: Array, fitted: Array, rho: float, stiffness: Array, target: Array
    ) -> Array:
        problem = self.problem
        scale = stiffness + rho * self._squares(counts, fitted)
        scale = np.maximum(scale, np.finfo(np.float64).tiny)
        solution, remainder = np.zeros_like(target), target.copy()
        search = remainder / scale
        slope = first = inner(remainder, search)
        for _ in range(CONJUGATE_GRADIENT_LIMIT):
            curved = stiffness * search + rho * problem.curvature(counts, search)
            bend = inner(search, curved)
            if slope <= CLOSE**2 * first or not bend > 0:
                break
            solution += (slope / bend) * search
            remainder -= (slope / bend) * curved
            scaled = remainder / scale
            previous, slope = slope, inner(remainder, scaled)
            search = scaled + (slope / previous) * search
        return solution

    def _squares(self, counts: Array, fitted: Array) -> Array:
        """The diagonal of B(diag x − xxᵀ/T)Bᵀ, or of what is known of it."""
        operator = self.problem.operator
        if not isinstance(operator, SquaringOperator):
            return np.abs(fitted)
        self.problem.applies += 1
        squares = operator.apply_squared(counts)
        if self.problem.total is None:
            return squares
        return np.maximum(squares - fitted**2 / self.problem.total, 0.0)


def factored_solution(
    products: Array, fitted: Array, rho: float, stiffness: Array, target: Array, total: float | None
) -> Array:
    """d where `products` is B diag(x) Bᵀ, which is overwritten, and the total is T, or None where it is free."""
    matrix = products
    matrix *= rho
    diagonal = np.einsum("ii->i", matrix)
    size = diagonal + stiffness  # what rounding is relative to, before the total is taken out
    size[size <= 0.0] = 1.0
    if total is not None:
        matrix -= np.outer(fitted, fitted * (rho / total))
    exact = diagonal + stiffness
    for ridge in RIDGES:
        np.copyto(diagonal, exact + ridge * size)
        try:
            factor = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue
        return np.asarray(scipy.linalg.cho_solve((factor, True), target, check_finite=False))
    return target / size
