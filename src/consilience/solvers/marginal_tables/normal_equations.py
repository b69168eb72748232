"""Symmetric positive definite systems that may be nearly singular, solved with refinement."""

import numba
import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from consilience.kernels.compilation import announce

REGULARISATION = 1e-14
"""What is added to the diagonal, in units of its largest entry; a failed factorisation asks for ten times more."""

REFINEMENTS = 2

SMALL = 256
"""Up to this size a plain loop beats LAPACK, whose threads take longer to wake than to work."""


class NormalEquations:
    """A Cholesky factorisation of a matrix plus a diagonal."""

    def __init__(self, matrix: NDArray[np.float64], diagonal: NDArray[np.float64] | float = 0.0) -> None:
        self._matrix = matrix
        places = np.diag_indices_from(matrix)
        matrix[places] += diagonal
        largest = float(np.max(matrix[places], initial=np.finfo(np.float64).tiny))
        damping = REGULARISATION * largest
        while True:
            factor = matrix.copy()
            factor[places] += damping
            if _factorise(factor):
                self._factor = factor
                return
            damping *= 10.0

    def solve(self, right: NDArray[np.float64], *, refinements: int = REFINEMENTS) -> NDArray[np.float64]:
        """The solution, refined by its residual, which takes the damping away again where the matrix is regular."""
        solution = self._substitute(right)
        for _ in range(refinements):
            solution += self._substitute(right - self._matrix @ solution)
        return solution

    def _substitute(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        if right.size <= SMALL:
            solution = right.copy()
            _substitute(self._factor, solution)
            return solution
        return scipy.linalg.cho_solve((self._factor, True), right, check_finite=False)


def _factorise(matrix: NDArray[np.float64]) -> bool:
    """Replace the lower triangle by its Cholesky factor; False when the matrix is not positive definite."""
    if len(matrix) <= SMALL:
        announce(_factorise_in_place)
        return bool(_factorise_in_place(matrix))
    try:
        factor, _ = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    matrix[:] = factor
    return True


# L[i, j] = (M[i, j] − Σ_{k<j} L[i, k] L[j, k]) / L[j, j], and the root of the same for i = j.
@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def _factorise_in_place(matrix):  # pragma: no cover - compiled
    for i in range(matrix.shape[0]):
        row = matrix[i]
        for j in range(i):
            other = matrix[j]
            total = 0.0
            for k in range(j):
                total += row[k] * other[k]
            row[j] = (row[j] - total) / other[j]
        total = 0.0
        for k in range(i):
            total += row[k] * row[k]
        pivot = row[i] - total
        if not pivot > 0.0:
            return False
        row[i] = np.sqrt(pivot)
    return True


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def _substitute(factor, x):  # pragma: no cover - compiled
    size = x.shape[0]
    for i in range(size):
        row = factor[i]
        total = 0.0
        for k in range(i):
            total += row[k] * x[k]
        x[i] = (x[i] - total) / row[i]
    for i in range(size - 1, -1, -1):
        row = factor[i]
        x[i] /= row[i]
        for k in range(i):
            x[k] -= row[k] * x[i]
