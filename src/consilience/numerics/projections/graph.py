"""Cells together with what a strategy answers about them: the pairs (x, r) with r = B x."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import NDArray

from consilience.errors import TooLarge
from consilience.numerics.projections.affine import LARGEST_FACTOR, row_space
from consilience.numerics.projections.convex_set import Array, ConvexSet, lies_in_subspace

STEERING_ROUNDS = 200


class SquareSolver:
    """Solves (shift·I + Σ KᵀK) x = q for one stacked matrix K, factored once.

    With fewer rows than columns it factors the smaller shift·I + K Kᵀ and uses
    (cI + KᵀK)⁻¹ = (I − Kᵀ(cI + K Kᵀ)⁻¹K)/c.
    """

    def __init__(self, matrix: Any, shift: float) -> None:
        self._matrix, self._shift = matrix, shift
        rows, columns = matrix.shape
        self._wide = rows < columns
        size = min(rows, columns)
        if not sp.issparse(matrix) and 16 * size**2 > LARGEST_FACTOR:
            raise TooLarge(
                f"a dense strategy of {rows:,} × {columns:,} needs factors of {16 * size**2 / 2**30:.1f} GB and may "
                f"take {LARGEST_FACTOR / 2**30:.0f} GB; use a sparse or a smaller strategy"
            )
        gram = matrix @ matrix.T if self._wide else matrix.T @ matrix
        if sp.issparse(gram):
            self._sparse = scipy.sparse.linalg.splu(sp.csc_array(gram + shift * sp.eye_array(size)))
        else:
            self._sparse = None
            self._dense = scipy.linalg.cho_factor(gram + shift * np.eye(size), lower=True) if size else None

    def solve(self, values: Array) -> Array:
        if not self._wide:
            return self._inner(values)
        return (values - self._matrix.T @ self._inner(self._matrix @ values)) / self._shift

    def _inner(self, values: Array) -> Array:
        if self._sparse is not None:
            return self._sparse.solve(values)
        return scipy.linalg.cho_solve(self._dense, values) if self._dense is not None else values / self._shift


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
        moved = cells
        for _ in range(STEERING_ROUNDS):
            clipped = np.clip(moved, low, high)
            if np.array_equal(clipped, moved):
                break
            moved = self._cell_span.component(clipped)
        return self.normal(answers - self._answer_span.solve(moved - cells))

    def set_to(self, normal: Array, wanted: Array, where: NDArray[np.bool_]) -> Array:
        """The normal changed as little as its answers allow so that its cells have the wanted values there."""
        cells, answers = self.split(normal)
        columns = self.matrix[:, np.flatnonzero(where)]
        columns = columns.toarray() if sp.issparse(columns) else columns
        change = np.linalg.lstsq(columns.T, (cells - wanted)[where], rcond=None)[0]
        return self.normal(answers + change)

    @cached_property
    def _cell_span(self) -> Any:
        return row_space(self.matrix, self.name)

    @cached_property
    def _answer_span(self) -> Any:
        transposed = sp.csr_array(self.matrix.T) if sp.issparse(self.matrix) else self.matrix.T
        return row_space(transposed, self.name)


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
