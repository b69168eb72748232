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

REGULARISATION = 1e-15
"""By how much diagonal entries grow, relatively, so that a factorisation exists; more if it must be."""


SMALLEST = 1e-14
"""What is added to Θ in sparse systems, in units of the mean of W, where columns have length 1."""


class Factored(Protocol):
    """A factorisation of the system  Θ dx + Aᵀ dl = f,  A dx − W⁻¹ dl = h  for diagonal Θ and W."""

    def solve(self, f: Array, h: Array) -> tuple[Array, Array]:
        """dx and dl."""
        ...


class Strategy(Protocol):
    """A matrix known by its products, with the factorisations that an interior point needs."""

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

    def lift(self, slopes: Array) -> Array:
        """The shortest Δ for which AᵀΔ comes nearest to the slopes: A(AᵀA)⁺ times them."""
        return self.matrix @ self._gram.solve(slopes)

    @cached_property
    def _gram(self) -> "FactoredMatrix":
        rows, columns = self.matrix.shape
        return self._normal(np.ones(rows), np.full(columns, 1e-14 * rows))

    def factored(self, weights: Array, diagonal: Array) -> Factored:
        rows, columns = self.matrix.shape
        if rows < columns and diagonal.min(initial=np.inf) > 0.0:
            return Refined(self, weights, diagonal, _ByRows(self.matrix, weights, diagonal))
        return Refined(self, weights, diagonal, ByColumns(self, weights, self._normal(weights, diagonal)))

    def _normal(self, weights: Array, diagonal: Array) -> "FactoredMatrix":
        scaled = self.matrix * np.sqrt(weights)[:, None]
        return FactoredMatrix(_symmetric_product(scaled.T), diagonal)


class FactoredMatrix:
    """A symmetric matrix plus a diagonal, factored as it stands; the matrix is overwritten."""

    def __init__(self, matrix: Array, diagonal: Array) -> None:
        matrix[np.diag_indices_from(matrix)] += diagonal
        self._factor = _cholesky(matrix)

    def solve(self, right: Array) -> Array:
        return scipy.linalg.cho_solve(self._factor, right, check_finite=False)


@dataclass(frozen=True, eq=False)
class ByColumns:
    """The system by elimination of dl: (Θ + AᵀWA) dx = f + AᵀWh,  dl = W(A dx − h)."""

    strategy: "Strategy"
    weights: Array
    normal: FactoredMatrix

    def solve(self, f: Array, h: Array) -> tuple[Array, Array]:
        dx = self.normal.solve(f + self.strategy.adjoint(self.weights * h))
        return dx, self.weights * (self.strategy.apply(dx) - h)


class _ByRows:
    """The system by elimination of dx: (W⁻¹ + AΘ⁻¹Aᵀ) dl = AΘ⁻¹f − h,  dx = Θ⁻¹(f − Aᵀdl)."""

    def __init__(self, matrix: Array, weights: Array, diagonal: Array) -> None:
        self._matrix, self._diagonal = matrix, diagonal
        scaled = matrix / np.sqrt(diagonal)
        product = _symmetric_product(np.asfortranarray(scaled))
        self._normal = FactoredMatrix(product, 1.0 / weights)

    def solve(self, f: Array, h: Array) -> tuple[Array, Array]:
        dl = self._normal.solve(self._matrix @ (f / self._diagonal) - h)
        return (f - self._matrix.T @ dl) / self._diagonal, dl


@dataclass(frozen=True, eq=False)
class Refined:
    """A solution and one correction by its residual, which elimination with extreme diagonals needs."""

    strategy: "Strategy"
    weights: Array
    diagonal: Array
    inner: Factored

    def solve(self, f: Array, h: Array) -> tuple[Array, Array]:
        dx, dl = self.inner.solve(f, h)
        missing_f = f - self.diagonal * dx - self.strategy.adjoint(dl)
        missing_h = h - self.strategy.apply(dx) + dl / self.weights
        more_dx, more_dl = self.inner.solve(missing_f, missing_h)
        return dx + more_dx, dl + more_dl


def _symmetric_product(matrix: Array) -> Array:
    """The lower triangle of M Mᵀ, at half the cost of the whole, for M stored by columns."""
    (product,) = scipy.linalg.blas.get_blas_funcs(("syrk",), (matrix,))
    return product(1.0, matrix, lower=1)


def _cholesky(matrix: Array) -> tuple[Array, bool]:
    """The factor of a positive definite matrix of which the lower triangle is given, regularised if necessary.

    Diagonal entries grow in proportion, because those of cells on their way to 0 exceed the others by far.
    """
    places = np.diag_indices_from(matrix)
    amount = REGULARISATION
    while True:
        regular = matrix.copy()
        regular[places] *= 1.0 + amount
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
    """The system as it is, which a row of ones in A does not fill, as it would fill AᵀWA."""

    def __init__(self, matrix: Any, weights: Array, diagonal: Array) -> None:
        upper = sp.diags_array(diagonal + SMALLEST * float(weights.mean()))
        self._system = sp.block_array([[upper, matrix.T], [matrix, -sp.diags_array(1.0 / weights)]], format="csc")
        self._factor = scipy.sparse.linalg.splu(
            self._system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )

    def solve(self, f: Array, h: Array) -> tuple[Array, Array]:
        right = np.concatenate([f, h])
        solution = self._factor.solve(right)
        solution += self._factor.solve(right - self._system @ solution)
        return solution[: f.size], solution[f.size :]
