"""Cells together with what a strategy answers about them: the pairs (x, r) with r = B x."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import NDArray

from consilience.errors import TooLarge
from consilience.solvers.projections.affine import LARGEST_FACTOR, SMALL, row_space, symmetric_solver
from consilience.solvers.projections.convex_set import Array, ConvexSet, lies_in_subspace


class SquareSolver:
    """Solves (cI + KᵀK) x = q for one matrix K, factored once.

    Where K Kᵀ is smaller or sparser than KᵀK it factors cI + K Kᵀ instead: (cI + KᵀK)⁻¹ = (I − Kᵀ(cI + K Kᵀ)⁻¹K)/c. A
    hierarchy of sums, for instance, has a row of ones at the top, which fills all of KᵀK and one row of K Kᵀ.
    """

    def __init__(self, matrix: Any, shift: float) -> None:
        self._matrix, self._shift = matrix, shift
        by_columns, by_rows = _predicted_bytes(matrix)
        self._by_rows = by_rows < by_columns
        if min(by_rows, by_columns) > LARGEST_FACTOR:
            raise TooLarge(
                f"a strategy of {matrix.shape[0]:,} × {matrix.shape[1]:,} needs factors of at least "
                f"{min(by_rows, by_columns) / 2**30:.1f} GB and may take {LARGEST_FACTOR / 2**30:.0f} GB; "
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
        if sp.issparse(self.matrix) and self.matrix.shape[0] * self.matrix.shape[1] > SMALL:
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
