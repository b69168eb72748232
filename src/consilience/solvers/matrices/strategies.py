"""The matrix A of a problem min cost(Ax − y), however it is stored: its products, and the systems that solvers need."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.linalg
import scipy.linalg.blas
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, LinearMap, PrefixMap, SparseMap, SumMap
from consilience.solvers.conjugate_gradients import shortest_least_squares
from consilience.solvers.matrices.sparse_factor import Pattern, SparseFactor, cholesky, find_pattern

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FactoringSettings:
    """What makes systems regular, and what matrices take; by trial, no figures kept, unless a reason is named."""

    least_theta: float = 1e-14
    """What is added to Θ in sparse systems, in units of the mean of W, where columns have length 1."""
    unnoticed: float = 1e-12
    """A residual of a sparse system of this part of its right-hand side is not worth a correction."""
    least_gram: float = 1e-12
    """And in AᵀA, where its own columns are to be combined."""
    most_work: float = 3e9
    """Multiplications above which a sparse system is factored by blocks of its entries (SuperLU), not one by one."""
    hard: float = 1e-8
    """What stands in sparse systems for the 0 in W⁻¹ of a row that must be met, in units of the others; corrections by
    the residual of the true system remove it."""
    bytes_per_entry: int = 40
    """What an entry takes while a product is written out and stacked: its value and place, twice."""


SETTINGS = FactoringSettings()


class Factored(Protocol):
    """A factorisation of the system  Θ dx + Aᵀ dl = f,  A dx − W⁻¹ dl = h  for diagonal Θ and W.

    An infinite weight marks a row that must be met: its part of W⁻¹ is 0.
    """

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
        """The shortest Δ for which AᵀΔ comes nearest to the slopes: A(AᵀA)⁺ = (AAᵀ)⁺A times them."""
        rows, columns = self.matrix.shape
        if rows < columns:
            return self._smaller_gram.solve(self.matrix @ slopes)
        return self.matrix @ self._smaller_gram.solve(slopes)

    @cached_property
    def _smaller_gram(self) -> "FactoredMatrix":
        """AᵀA, or AAᵀ where that is smaller, made safe to factor."""
        rows, columns = self.matrix.shape
        if rows < columns:
            return FactoredMatrix(_symmetric_product(self.matrix), np.full(rows, 1e-14 * columns))
        return self._normal(np.ones(rows), np.full(columns, 1e-14 * rows))

    def factored(self, weights: Array, diagonal: Array) -> Factored:
        hard = np.flatnonzero(np.isinf(weights))
        if hard.size:
            soft = np.where(np.isinf(weights), _mean_of_finite(weights), weights)
            bordered = _Bordered(self.factored(soft, diagonal), self.matrix[hard], hard)
            return Refined(self, weights, diagonal, bordered)
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
        self._factor = cholesky(matrix)

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


# Where rows E must be met, every ρ > 0 gives the same solution: Eᵀρ(E dx − h) vanishes there. With E among the rows of
# finite weight ρ, the multiplier ν that is still missing for E dx = h follows from Z = (Θ + AᵀWA + ρEᵀE)⁻¹Eᵀ by
# (EZ)ν = E dx₀ − h, and dx = dx₀ − Zν.
class _Bordered:
    """The system with rows that must be met, on top of its factorisation with a finite weight for them."""

    def __init__(self, inner: Factored, equations: Array, rows: NDArray[np.intp]) -> None:
        self._inner, self._equations, self._rows = inner, equations, rows
        total = int(rows.max()) + 1
        self._answers = [inner.solve(row, np.zeros(total)) for row in equations]
        system = equations @ np.stack([dx for dx, _ in self._answers], axis=1)
        self._system = FactoredMatrix(np.tril(0.5 * (system + system.T)), np.zeros(rows.size))

    def solve(self, f: Array, h: Array) -> tuple[Array, Array]:
        dx, dl = self._inner.solve(f, h)
        multipliers = self._system.solve(self._equations @ dx - h[self._rows])
        for multiplier, (by_x, by_l) in zip(multipliers, self._answers, strict=True):
            dx, dl = dx - multiplier * by_x, dl - multiplier * by_l
        dl[self._rows] += multipliers
        return dx, dl


def _mean_of_finite(weights: Array) -> float:
    mean = float(weights.mean())
    if np.isfinite(mean):
        return mean
    finite = weights[np.isfinite(weights)]
    return float(finite.mean()) if finite.size else 1.0


def _symmetric_product(matrix: Array) -> Array:
    """The lower triangle of M Mᵀ, at half the cost of the whole, for M stored by columns."""
    (product,) = scipy.linalg.blas.get_blas_funcs(("syrk",), (matrix,))
    return product(1.0, matrix, lower=1)


@dataclass(frozen=True, eq=False)
class SparseStrategy:
    """A matrix with few entries."""

    matrix: Any
    """A SciPy CSR array."""
    most_work: float | None = None
    """Multiplications that factors may take to have a pattern; by default those of the settings."""

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.matrix.shape
        return int(rows), int(columns)

    @cached_property
    def transposed(self) -> Any:
        return self.matrix.T.tocsr()

    def apply(self, cells: Array) -> Array:
        return row_sums(self.matrix.indptr, self.matrix.indices, self.matrix.data, cells)

    def adjoint(self, answers: Array) -> Array:
        return row_sums(self.transposed.indptr, self.transposed.indices, self.transposed.data, answers)

    @cached_property
    def pattern(self) -> Pattern | None:
        """How the system is eliminated; None where its factor has so many entries that blocks of them are faster."""
        most = SETTINGS.most_work if self.most_work is None else min(self.most_work, SETTINGS.most_work)
        return find_pattern(self.matrix, self.transposed, most)

    def lift(self, slopes: Array) -> Array:
        """The shortest Δ for which AᵀΔ comes nearest to the slopes."""
        if self.pattern is None:
            return lift_by_iteration(self, slopes)
        return self._gram.solve(slopes, np.zeros(self.shape[0]))[1]

    @cached_property
    def _gram(self) -> Factored:
        """AᵀA dx = f, dl = A dx, made safe to factor."""
        rows, columns = self.shape
        return self.factored(np.ones(rows), np.full(columns, SETTINGS.least_gram))

    def factored(self, weights: Array, diagonal: Array) -> Factored:
        return _Augmented(self, weights, diagonal)


class _Augmented:
    """The system as it is, which a row of ones in A does not fill, as it would fill AᵀWA."""

    def __init__(self, strategy: SparseStrategy, weights: Array, diagonal: Array) -> None:
        mean, hard = _mean_of_finite(weights), np.isinf(weights)
        upper = diagonal + SETTINGS.least_theta * mean
        self._strategy, self._diagonal = strategy, np.concatenate([upper, -1.0 / weights])
        self._corrections = 3 if hard.any() else 1
        lower = np.where(hard, SETTINGS.hard / mean, 1.0 / weights)
        self._factor: Any
        pattern = strategy.pattern
        ordered = pattern is not None
        if pattern is not None:
            self._factor = SparseFactor.of(pattern, np.concatenate([upper, -lower]))
            if self._factor.exists:
                return
        matrix = strategy.matrix
        regular = sp.block_array([[sp.diags_array(upper), matrix.T], [matrix, -sp.diags_array(lower)]], format="csc")
        self._factor = scipy.sparse.linalg.splu(
            regular,
            permc_spec="COLAMD" if ordered else "MMD_AT_PLUS_A",
            diag_pivot_thresh=1.0 if ordered else 0.0,  # where one order broke down, the largest entries are the pivots
            options={"SymmetricMode": not ordered},
        )

    def solve(self, f: Array, h: Array) -> tuple[Array, Array]:
        right = np.concatenate([f, h])
        solution = self._factor.solve(right)
        for _ in range(self._corrections):
            dx, dl = solution[: f.size], solution[f.size :]
            missing = right - self._diagonal * solution
            missing[: f.size] -= self._strategy.adjoint(dl)
            missing[f.size :] -= self._strategy.apply(dx)
            if np.abs(missing).max() <= SETTINGS.unnoticed * np.abs(right).max():
                break
            solution += self._factor.solve(missing)
        return solution[: f.size], solution[f.size :]


# SciPy takes longer to look at a product than small ones take.
@njit(nogil=True, cache=True)
def row_sums(starts, columns, values, x):  # pragma: no cover - compiled
    """A x for a matrix by rows."""
    found = np.empty(starts.size - 1)
    for i in range(found.size):
        total = 0.0
        for entry in range(starts[i], starts[i + 1]):
            total += values[entry] * x[columns[entry]]
        found[i] = total
    return found


def lift_by_iteration(strategy: Strategy, slopes: Array) -> Array:
    """The shortest Δ for which AᵀΔ comes nearest to the slopes."""
    rows, columns = strategy.shape
    return shortest_least_squares(
        strategy.adjoint, strategy.apply, slopes, rows, precision=1e-14, most_steps=2 * columns
    )[0]


# ----------------------------------------------------------------------------------------------------------------------
# Linear maps and their products as sparse matrices, with their size known beforehand.


def entries(each: LinearMap) -> int:
    """How many entries of a map are not 0, at most."""
    columns = each.columns
    if isinstance(each, IdentityMap | SumMap):
        return columns
    if isinstance(each, PrefixMap):
        return columns * (columns + 1) // 2
    if isinstance(each, AllRangesMap):
        return columns * (columns + 1) * (columns + 2) // 6
    return int(each.matrix.nnz) if isinstance(each, SparseMap) else each.rows * columns


def entries_of_product(maps: Sequence[LinearMap]) -> int:
    """How many entries of a Kronecker product are not 0, at most."""
    return math.prod(entries(each) for each in maps)


def as_matrix(each: LinearMap) -> Any:
    """A map as a CSR array."""
    columns = each.columns
    if isinstance(each, IdentityMap):
        return sp.eye_array(columns, format="csr")
    if isinstance(each, SumMap):
        return sp.csr_array(np.ones((1, columns)))
    if isinstance(each, AllRangesMap):
        first, last = each.ends
        lengths = last - first + 1
        begins = np.concatenate([[0], np.cumsum(lengths)])
        codes = np.arange(begins[-1]) - np.repeat(begins[:-1] - first, lengths)
        return sp.csr_array((np.ones(begins[-1]), codes, begins), (each.rows, columns))
    return each.matrix if isinstance(each, SparseMap) else sp.csr_array(each.dense())


def sparse_product(maps: Sequence[LinearMap]) -> Any:
    """A Kronecker product as a CSR array, the last factor varying fastest in rows and columns.

    >>> sparse_product([SumMap(2), IdentityMap(2)]).toarray()
    array([[1., 0., 1., 0.],
           [0., 1., 0., 1.]])
    """
    product: Any = sp.csr_array(np.ones((1, 1)))
    for each in maps:
        product = as_matrix(each) if product.shape == (1, 1) else sp.kron(product, as_matrix(each), format="csr")
    return sp.csr_array(product)
