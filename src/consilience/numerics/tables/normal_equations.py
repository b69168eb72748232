"""Symmetric positive definite systems that may be nearly singular, solved with refinement."""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

REGULARISATION = 1e-14
"""What is added to the diagonal, in units of its largest entry; a failed factorisation asks for ten times more."""

REFINEMENTS = 2


class NormalEquations:
    """A factorisation of a matrix plus a diagonal."""

    def __init__(
        self, matrix: NDArray[np.float64], diagonal: NDArray[np.float64] | float = 0.0, *, damping: float = 0.0
    ) -> None:
        self._matrix = matrix
        places = np.diag_indices_from(matrix)
        self._matrix[places] += diagonal
        largest = float(np.max(self._matrix[places], initial=np.finfo(np.float64).tiny))
        damping = max(damping, REGULARISATION * largest)
        while True:
            damped = self._matrix.copy()
            damped[places] += damping
            try:
                self._factor = scipy.linalg.cho_factor(damped, lower=True, overwrite_a=True, check_finite=False)
                return
            except np.linalg.LinAlgError:
                damping *= 10.0

    def solve(self, right: NDArray[np.float64], *, refinements: int = REFINEMENTS) -> NDArray[np.float64]:
        """The solution, refined by its residual, which takes the damping away again where the matrix is regular."""
        solution = scipy.linalg.cho_solve(self._factor, right, check_finite=False)
        for _ in range(refinements):
            residual = right - self._matrix @ solution
            solution += scipy.linalg.cho_solve(self._factor, residual, check_finite=False)
        return solution
