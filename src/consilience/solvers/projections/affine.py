"""Linear equations, in any number, dense or sparse, dependent or not."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.solvers.fit import SHARED, Infeasible
from consilience.solvers.projections.cells import SETTINGS, Array, ConvexSet, lies_in_subspace, require_cells


@dataclass(frozen=True, eq=False)
class Affine:
    """{x : A x = b}, A dense or sparse; rows may depend on each other, but not contradict.

    >>> Affine([[1, 1, 1]], [6]).project(np.array([1.0, 1.0, 1.0]))
    array([2., 2., 2.])
    """

    matrix: Any
    values: Any
    name: str = "Affine"
    _rows: "_DenseRows | _SparseRows" = field(init=False, repr=False)
    _offset: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        matrix, values = _checked(self.matrix, self.values, self.name)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "values", values)
        rows = row_space(matrix, self.name)
        object.__setattr__(self, "_rows", rows)
        offset = rows.solve(values)
        object.__setattr__(self, "_offset", offset)
        scale = _unit_rows(matrix)
        broken = scale * np.abs(matrix @ offset - values)
        if broken.max(initial=0.0) > SHARED.contradiction * np.abs(scale * values).max(initial=0.0):
            _refuse(matrix, values, self.name)

    # Π(x) = x₀ + x − (A⁺A) x, where x₀ is the shortest solution and A⁺A projects onto the span of the rows.
    def project(self, point: Array) -> Array:
        flat = self._flat(point)
        return (self._offset + (flat - self._rows.component(flat))).reshape(point.shape)

    def violation(self, point: Array) -> float:
        return float(np.abs(self.matrix @ self._flat(point) - self.values).max(initial=0.0))

    def support(self, direction: Array) -> float:
        flat = self._flat(direction)
        if lies_in_subspace(flat - self._rows.component(flat), flat):
            return float(np.dot(flat, self._offset))
        return float("inf")

    def polar(self, direction: Array) -> Array:
        return self._rows.component(self._flat(direction)).reshape(direction.shape)

    def _flat(self, point: Array) -> Array:
        require_cells(self.name, self.matrix.shape[1], point)
        return point.ravel()


# Aᵀ P = Q R with pivoting: the first `rank` columns of Q are an orthonormal basis of the row space, and
# R₁ᵀ (Qᵀ x) = (Pᵀ b)₁ gives the coordinates of the shortest solution in it.
class _DenseRows:
    def __init__(self, matrix: Array, scale: Array) -> None:
        matrix = scale[:, None] * matrix
        self._scale = scale
        factors: Any = np.zeros((matrix.shape[1], 0)), np.zeros((0, 0)), np.zeros(0, dtype=np.intp)
        if matrix.size:
            factors = scipy.linalg.qr(matrix.T, mode="economic", pivoting=True, check_finite=False)
        basis, triangle, pivots = factors
        diagonal = np.abs(np.diagonal(triangle))
        rank = int(np.count_nonzero(diagonal > SETTINGS.dependent_row))
        self._basis = np.ascontiguousarray(basis[:, :rank])
        self._triangle = triangle[:rank, :rank]
        self._pivots = pivots[:rank]

    def component(self, point: Array) -> Array:
        return self._basis @ (self._basis.T @ point)

    def solve(self, values: Array) -> Array:
        if not self._pivots.size:
            return np.zeros(self._basis.shape[0])
        coordinates = scipy.linalg.solve_triangular(self._triangle, (self._scale * values)[self._pivots], trans=1)
        return self._basis @ coordinates


# (A Aᵀ + δI) is regular whatever the rank. Repeating y ← y + (A Aᵀ + δI)⁻¹(b − A Aᵀ y) leaves, of the error along
# a singular value σ > 0, the fraction δ/(σ² + δ) each time, and leaves contradictions untouched.
class _SparseRows:
    def __init__(self, matrix: Any, scale: Array) -> None:
        self._scale = scale
        self._matrix: Any = sp.csr_array(sp.dia_array((scale[None, :], [0]), shape=(scale.size, scale.size)) @ matrix)
        self._transposed = sp.csr_array(self._matrix.T)
        gram = self._matrix @ self._transposed + SETTINGS.shift * sp.eye_array(matrix.shape[0])
        self._solve_gram = symmetric_solver(gram)

    def component(self, point: Array) -> Array:
        return self._solve(self._matrix @ point)

    def solve(self, values: Array) -> Array:
        return self._solve(self._scale * values)

    def _solve(self, values: Array) -> Array:
        found = np.zeros(self._matrix.shape[1])
        error, last = values, np.inf
        for _ in range(SETTINGS.shift_rounds):
            size = float(np.linalg.norm(error))
            if size == 0 or size > 0.5 * last:
                break
            found += self._transposed @ self._solve_gram(error)
            error, last = values - self._matrix @ found, size
        return found


def symmetric_solver(matrix: Any) -> Callable[[Array], Array]:
    """Solves with a sparse positive definite matrix, factored in an order that keeps the factors sparse."""
    return scipy.sparse.linalg.splu(
        sp.csc_array(matrix), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    ).solve


def row_space(matrix: Any, name: str) -> _DenseRows | _SparseRows:
    """The span of the rows; refuses when its factors would not fit.

    `component` is the part of a point that lies in it, `solve` the shortest x with A x = values, where there is one.
    """
    rows, columns = matrix.shape
    scale = _unit_rows(matrix)
    if not sp.issparse(matrix) or rows * columns <= SETTINGS.dense_cells:
        need = 8 * (2 * rows * columns + min(rows, columns) * (rows + columns))
        _require_memory(need, name, rows, columns)
        dense = matrix.toarray() if sp.issparse(matrix) else matrix
        return _DenseRows(dense, scale)
    entries_by_column = np.diff(sp.csc_array(matrix).indptr).astype(np.float64)
    products = min(float(np.sum(entries_by_column**2)), float(rows) ** 2)
    _require_memory(24 * products, name, rows, columns)
    return _SparseRows(matrix, scale)


def _require_memory(need: float, name: str, rows: int, columns: int) -> None:
    if need > SETTINGS.largest_factor:
        raise TooLarge(
            f"the factors of {name!r}, {rows:,} equations over {columns:,} cells, would take {need / 2**30:.1f} GB "
            f"and may take {SETTINGS.largest_factor / 2**30:.0f} GB; state fewer equations, or a set that "
            "knows their structure"
        )


def _unit_rows(matrix: Any) -> Array:
    """What brings each row to length 1; 1 for rows of zeros."""
    if sp.issparse(matrix):
        lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1), dtype=np.float64).ravel())
    else:
        lengths = np.linalg.norm(matrix, axis=1)
    return np.divide(1.0, lengths, out=np.ones_like(lengths), where=lengths > 0)


def _checked(matrix: Any, values: Any, name: str) -> tuple[Any, Array]:
    matrix = sp.csr_array(matrix, dtype=np.float64) if sp.issparse(matrix) else np.asarray(matrix, dtype=np.float64)
    values = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if matrix.ndim != 2 or values.ndim != 1 or matrix.shape[0] != values.size:
        raise DeclarationError(
            f"{name!r} has a matrix of shape {matrix.shape} and values of shape {values.shape}; "
            "give one row for each value"
        )
    entries = matrix.data if sp.issparse(matrix) else matrix
    if not np.all(np.isfinite(entries)) or not np.all(np.isfinite(values)):
        raise DeclarationError(f"{name!r} holds an entry that is not a finite number; correct the matrix or the values")
    return matrix, values


def _refuse(matrix: Any, values: Array, name: str) -> None:
    """Name the equations that contradict each other: those that least squares cannot satisfy."""
    if sp.issparse(matrix):
        best = scipy.sparse.linalg.lsqr(matrix, values, atol=1e-14, btol=1e-14, iter_lim=10_000)[0]
    else:
        best = np.linalg.lstsq(matrix, values, rcond=None)[0]
    broken = np.abs(matrix @ best - values)
    involved = np.flatnonzero(broken > 1e-6 * broken.max())
    listed = ", ".join(str(row) for row in involved[:10]) + (", …" if involved.size > 10 else "")
    raise Infeasible(
        f"the equations of {name!r} contradict each other: whatever the cells, one of rows {listed} is off by "
        f"{broken.max():.6g} or more in the least-squares compromise; correct or drop one of them",
        violation=float(broken.max()),
        constraints=(f"{name} (rows {listed})",),
    )


# ----------------------------------------------------------------------------------------------------------------------
# Cells together with what a strategy answers about them: the pairs (x, r) with r = B x.


class SquareSolver:
    """Solves (cI + KᵀK) x = q for one matrix K, factored once.

    Where K Kᵀ is smaller or sparser than KᵀK it factors cI + K Kᵀ instead: (cI + KᵀK)⁻¹ = (I − Kᵀ(cI + K Kᵀ)⁻¹K)/c. A
    hierarchy of sums, for instance, has a row of ones at the top, which fills all of KᵀK and one row of K Kᵀ.
    """

    def __init__(self, matrix: Any, shift: float) -> None:
        self._matrix, self._shift = matrix, shift
        by_columns, by_rows = _predicted_bytes(matrix)
        self._by_rows = by_rows < by_columns
        if min(by_rows, by_columns) > SETTINGS.largest_factor:
            raise TooLarge(
                f"a strategy of {matrix.shape[0]:,} × {matrix.shape[1]:,} needs factors of at least "
                f"{min(by_rows, by_columns) / 2**30:.1f} GB and may take {SETTINGS.largest_factor / 2**30:.0f} GB; "
                "use a sparser or a smaller strategy"
            )
        gram = matrix @ matrix.T if self._by_rows else matrix.T @ matrix
        if sp.issparse(gram):
            self._inner = symmetric_solver(gram + shift * sp.eye_array(gram.shape[0]))
        else:
            gram[np.diag_indices_from(gram)] += shift
            self._inner = partial(scipy.linalg.cho_solve, scipy.linalg.cho_factor(gram, lower=True))

    def solve(self, values: Array) -> Array:
        if not self._by_rows:
            return self._inner(values)
        if not self._matrix.shape[0]:
            return values / self._shift
        return (values - self._matrix.T @ self._inner(self._matrix @ values)) / self._shift


def _predicted_bytes(matrix: Any) -> tuple[float, float]:
    """What the factors of KᵀK and of K Kᵀ take at least."""
    rows, columns = matrix.shape
    if not sp.issparse(matrix):
        return 16.0 * columns**2, 16.0 * rows**2
    in_rows = np.diff(sp.csr_array(matrix).indptr).astype(np.float64)
    in_columns = np.diff(sp.csc_array(matrix).indptr).astype(np.float64)
    products = min(float(np.sum(in_rows**2)), float(columns) ** 2), min(float(np.sum(in_columns**2)), float(rows) ** 2)
    return 24.0 * products[0] + 8.0 * columns, 24.0 * products[1] + 8.0 * rows


@dataclass(frozen=True, eq=False)
class Graph:
    """{(x, r) : r = B x}, as one flat array with x first. A subspace, whose normals are the pairs (−Bᵀμ, μ)."""

    matrix: Any
    name: str = "strategy"

    @cached_property
    def _solver(self) -> SquareSolver:
        return SquareSolver(self.matrix, 1.0)

    def split(self, point: Array) -> tuple[Array, Array]:
        """The cells and the answers."""
        cells = self.matrix.shape[1]
        return point[:cells], point[cells:]

    def join(self, cells: Array) -> Array:
        """The cells with their answers."""
        return np.concatenate([cells, self.matrix @ cells])

    # ‖x − p‖² + ‖Bx − q‖² is least where (I + BᵀB) x = p + Bᵀq: the x-update of Lee et al., Algorithm 4.
    def project(self, point: Array) -> Array:
        cells, answers = self.split(point)
        return self.join(self._solver.solve(cells + self.matrix.T @ answers))

    def violation(self, point: Array) -> float:
        cells, answers = self.split(point)
        return float(np.abs(self.matrix @ cells - answers).max(initial=0.0))

    def normal(self, answers: Array) -> Array:
        """The normal direction with this part in the answers."""
        return np.concatenate([-(self.matrix.T @ answers), answers])

    def polar(self, direction: Array) -> Array:
        return direction - self.project(direction)

    def support(self, direction: Array) -> float:
        return 0.0 if lies_in_subspace(self.project(direction), direction) else float("inf")

    def steered(self, normal: Array, low: Array, high: Array) -> Array:
        """A normal near the given one whose part in the cells lies between the bounds, where that can be found.

        The part in the cells ranges over the rows' span. It is moved there by alternating projections; where the
        columns are independent one round is enough. The shortest μ with −Bᵀμ = change makes up for the move.
        """
        cells, answers = self.split(normal)
        span, moved = self._span, cells
        for _ in range(span.rounds):
            clipped = np.clip(moved, low, high)
            if np.array_equal(clipped, moved):
                break
            moved = span.component(clipped)
        return self.normal(answers - span.answers_for(moved - cells))

    def set_to(self, normal: Array, wanted: Array, where: NDArray[np.bool_]) -> Array:
        """The normal changed as little as its answers allow so that its cells have the wanted values there."""
        cells, answers = self.split(normal)
        columns = self.matrix[:, np.flatnonzero(where)]
        columns = columns.toarray() if sp.issparse(columns) else columns
        change = np.linalg.lstsq(columns.T, (cells - wanted)[where], rcond=None)[0]
        return self.normal(answers + change)

    @cached_property
    def _span(self) -> "_FactoredSpan | _IteratedSpan":
        if sp.issparse(self.matrix) and self.matrix.shape[0] * self.matrix.shape[1] > SETTINGS.dense_cells:
            return _IteratedSpan(self.matrix)
        return _FactoredSpan(self.matrix.toarray() if sp.issparse(self.matrix) else self.matrix)


class _FactoredSpan:
    """The span of the rows of a dense matrix B, to full precision."""

    rounds = 200

    def __init__(self, matrix: Array) -> None:
        self._rows, self._columns = row_space(matrix, "strategy"), row_space(matrix.T, "strategy")

    def component(self, cells: Array) -> Array:
        return self._rows.component(cells)

    def answers_for(self, cells: Array) -> Array:
        """The shortest μ with Bᵀμ = cells, for cells in the span."""
        return self._columns.solve(cells)


class _IteratedSpan:
    """The same for a large sparse matrix, by LSQR (Paige and Saunders 1982), as far as a few hundred products lead."""

    rounds = 3

    def __init__(self, matrix: Any) -> None:
        self._transposed = sp.csr_array(matrix.T)

    def component(self, cells: Array) -> Array:
        return self._transposed @ self.answers_for(cells)

    def answers_for(self, cells: Array) -> Array:
        return scipy.sparse.linalg.lsqr(self._transposed, cells, atol=1e-13, btol=1e-13, iter_lim=300)[0]


@dataclass(frozen=True, eq=False)
class OnCells:
    """{(s·x, r) : x in a set}: a constraint on cells, as it looks beside answers and in other units."""

    inner: ConvexSet
    cells: int
    scale: float

    @property
    def name(self) -> str:
        return self.inner.name

    def project(self, point: Array) -> Array:
        inside = self.scale * self.inner.project(point[: self.cells] / self.scale)
        return np.concatenate([inside, point[self.cells :]])

    def violation(self, point: Array) -> float:
        return self.inner.violation(point[: self.cells] / self.scale)
