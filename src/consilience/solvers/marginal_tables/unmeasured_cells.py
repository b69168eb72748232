"""Cells without weight in tables that may be negative: they take up any misfit for nothing.

Such cells Z leave only those combinations of marginals to be met in which they do not occur: the rows NᵀΦ with NᵀΦ_Z
= 0. The other cells are fitted to these, and Z then fills what is missing with the least sum of squares.
"""

import numpy as np
from numpy.typing import NDArray

from consilience.solvers.marginal_tables.marginal_basis import CellLayout, MarginalBasis, Vector

DEPENDENT = 1e-10
"""An eigenvalue this small, relative to the largest, counts as 0."""


class ProjectedBasis:
    """The rows NᵀΦ, known by their products like the rows of a `MarginalBasis`."""

    def __init__(self, basis: MarginalBasis, combinations: NDArray[np.float64]) -> None:
        self._basis = basis
        self.combinations = combinations

    @property
    def layout(self) -> CellLayout:
        return self._basis.layout

    @property
    def rows(self) -> int:
        return int(self.combinations.shape[1])

    def restricted(self, kept: NDArray[np.intp]) -> "ProjectedBasis":
        return ProjectedBasis(self._basis, self.combinations[:, kept])

    def apply(self, cells: Vector) -> Vector:
        return self.combinations.T @ self._basis.apply(cells)

    def adjoint(self, coordinates: Vector) -> Vector:
        return self._basis.adjoint(self.combinations @ coordinates)

    def gram(self, diagonal: Vector) -> NDArray[np.float64]:
        return self.combinations.T @ self._basis.gram(diagonal) @ self.combinations


def without_cells(basis: MarginalBasis, cells: NDArray[np.bool_]) -> ProjectedBasis:
    """The combinations of the rows in which these cells do not occur."""
    values, vectors = np.linalg.eigh(basis.gram(cells.astype(np.float64)))
    return ProjectedBasis(basis, vectors[:, values <= DEPENDENT * max(float(values[-1]), 1e-300)])


def fill_cells(basis: MarginalBasis, target: Vector, cells: Vector, chosen: NDArray[np.bool_]) -> Vector:
    """The cells with the chosen ones changed, by the least sum of squares, so that the coordinates are the target's."""
    matrix = basis.gram(chosen.astype(np.float64))
    filled = np.where(chosen, 0.0, cells)
    for _ in range(2):
        missing = target - basis.apply(filled)
        change = np.asarray(np.linalg.lstsq(matrix, missing, rcond=DEPENDENT)[0], dtype=np.float64)
        filled += chosen * basis.adjoint(change)
    return filled
