"""The matrix A of a problem min cost(Ax − y), however it is stored: its products, and the systems that solvers need."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.linalg
import scipy.linalg.blas
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import NDArray

Array = NDArray[np.float64]

REGULARISATION = 1e-13
"""What is added to a diagonal, relative to its largest entry, so that a factorisation exists; more if it must be."""


class Factored(Protocol):
    """A factorisation of Θ + AᵀWA."""

    def solve(self, right: Array) -> Array: ...


class Strategy(Protocol):
    """A matrix known by its products, with the factorisations of Θ + AᵀWA for diagonal Θ and W."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def apply(self, cells: Array) -> Array: ...
    def adjoint(self, answers: Array) -> Array: ...
    def factored(self, weights: Array, diagonal: Array) -> Factored: ...


@dataclass(frozen=True, eq=False)
class DenseStrategy:
    """A matrix with most entries."""

    matrix: Array

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.matrix.shape
        return rows, columns

    def apply(self, cells: Array) -> Array:
        return self.matrix @ cells

    def adjoint(self, answers: Array) -> Array:
        return self.matrix.T @ answers

    def factored(self, weights: Array, diagonal: Array) -> Factored:
        rows, columns = self.matrix.shape
        if rows < columns and diagonal.min(initial=np.inf) > 0.0:
            return _ByRows(self.matrix, weights, diagonal)
        return _ByColumns(self.matrix, weights, diagonal)


class _ByColumns:
    """Θ + AᵀWA itself, by a symmetric product and a Cholesky factorisation."""

    def __init__(self, matrix: Array, weights: Array, diagonal: Array) -> None:
        scaled = matrix * np.sqrt(weights)[:, None]
        product = scipy.linalg.blas.dsyrk(1.0, scaled.T, lower=1)
        product[np.diag_indices_from(product)] += diagonal
        self._factor = _cholesky(product)

    def solve(self, right: Array) -> Array:
        return scipy.linalg.cho_solve(self._factor, right, check_finite=False)


class _ByRows:
    """The same through the smaller W⁻¹ + AΘ⁻¹Aᵀ: (Θ + AᵀWA)⁻¹ = Θ⁻¹ − Θ⁻¹Aᵀ(W⁻¹ + AΘ⁻¹Aᵀ)⁻¹AΘ⁻¹."""

    def __init__(self, matrix: Array, weights: Array, diagonal: Array) -> None:
        self._matrix, self._diagonal = matrix, diagonal
        scaled = matrix / np.sqrt(diagonal)
        product = scipy.linalg.blas.dsyrk(1.0, np.asfortranarray(scaled), lower=1)
        product[np.diag_indices_from(product)] += 1.0 / weights
        self._factor = _cholesky(product)

    def solve(self, right: Array) -> Array:
        inner = scipy.linalg.cho_solve(self._factor, self._matrix @ (right / self._diagonal), check_finite=False)
        return (right - self._matrix.T @ inner) / self._diagonal


def _cholesky(matrix: Array) -> tuple[Array, bool]:
    """The factor of a positive definite matrix of which the lower triangle is given, regularised if necessary."""
    places = np.diag_indices_from(matrix)
    amount = REGULARISATION * float(np.max(matrix[places], initial=1e-300))
    while True:
        regular = matrix.copy()
        regular[places] += amount
        try:
            return scipy.linalg.cho_factor(regular, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            amount *= 10.0


@dataclass(frozen=True, eq=False)
class SparseStrategy:
    """A matrix with few entries."""

    matrix: Any
    """A SciPy CSR array."""

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.matrix.shape
        return int(rows), int(columns)

    @cached_property
    def _transposed(self) -> Any:
        return sp.csr_array(self.matrix.T)

    def apply(self, cells: Array) -> Array:
        return np.asarray(self.matrix @ cells)

    def adjoint(self, answers: Array) -> Array:
        return np.asarray(self._transposed @ answers)

    def factored(self, weights: Array, diagonal: Array) -> Factored:
        return _Augmented(self.matrix, weights, diagonal)


class _Augmented:
    """Θ + AᵀWA through the larger and sparser [[Θ, Aᵀ], [A, −W⁻¹]], which a row of ones does not fill."""

    def __init__(self, matrix: Any, weights: Array, diagonal: Array) -> None:
        self._rows = int(matrix.shape[0])
        smallest = REGULARISATION * max(float(diagonal.max(initial=0.0)), 1e-300)
        upper = sp.diags_array(np.maximum(diagonal, smallest))
        system = sp.block_array([[upper, matrix.T], [matrix, -sp.diags_array(1.0 / weights)]], format="csc")
        self._factor = scipy.sparse.linalg.splu(
            system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )

    def solve(self, right: Array) -> Array:
        return self._factor.solve(np.concatenate([right, np.zeros(self._rows)]))[: right.size]
