"""Kronecker products F₁ ⊗ F₂ ⊗ … that are never written out, with the systems that solvers need of them.

BᵀB + shift·I is diagonal in the eigenbases of the F_kᵀF_k, one small basis for each axis. And the entry of AᵀWA for
the cells j = (j₁, j₂, …) and k = (k₁, k₂, …) is

    Σ_i W_i Π_a F_a[i_a, j_a] F_a[i_a, k_a],

a sum in which each axis can be taken in turn: AᵀWA costs little more than its own size, however many rows A has.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.errors import TooLarge
from consilience.kernels.linear_maps import IdentityMap, Kronecker
from consilience.solvers.matrices.row_costs import Array
from consilience.solvers.matrices.strategies import ByColumns, Factored, FactoredMatrix, Refined

LARGEST_FACTOR = 4096
"""The most columns of one factor, of which a full eigenbasis is kept."""

LARGEST_PAIRS = 1 << 26
"""The most entries of rows × columns² of one factor, the products of any two columns, that are kept: half a gigabyte. A
factor with more of them is most of the product, which is better written out."""


@dataclass(frozen=True, eq=False)
class KroneckerStrategy:
    """A Kronecker product B = A/s on flat vectors, where s is the root mean square length of the columns of A."""

    product: Kronecker

    @property
    def shape(self) -> tuple[int, int]:
        return int(np.prod(self.product.shape_out)), int(np.prod(self.product.shape_in))

    @cached_property
    def bases(self) -> list[tuple[Array, Array | None]]:
        """The eigenvalues of each F_kᵀF_k and its eigenvectors, None for an identity."""
        found: list[tuple[Array, Array | None]] = []
        for each in self.product.maps:
            if isinstance(each, IdentityMap):
                found.append((np.ones(each.columns), None))
                continue
            if each.columns > LARGEST_FACTOR:
                raise TooLarge(
                    f"a factor of the strategy has {each.columns:,} columns, the limit is {LARGEST_FACTOR:,}; use more "
                    "and smaller factors, or a sparse matrix"
                )
            matrix = each.dense()
            values, vectors = np.linalg.eigh(matrix.T @ matrix)
            found.append((np.maximum(values, 0.0), vectors))
        return found

    @cached_property
    def scale(self) -> float:
        """s, so that the eigenvalues of BᵀB have the mean 1."""
        return float(np.sqrt(np.prod([norms.mean() for norms in self.product.column_norms(2)]))) or 1.0

    @cached_property
    def eigenvalues(self) -> Array:
        """The eigenvalues of BᵀB, flat."""
        product = np.ones(1)
        for values, _ in self.bases:
            product = np.outer(product, values / (float(values.mean()) or 1.0)).ravel()
        return product

    @cached_property
    def touched(self) -> NDArray[np.bool_]:
        """Which columns are not 0."""
        product = np.ones(1)
        for norms in self.product.column_norms(1):
            product = np.outer(product, norms).ravel()
        return product > 0.0

    def apply(self, cells: Array) -> Array:
        return self.product.apply(cells.reshape(self.product.shape_in)).reshape(-1) / self.scale

    def adjoint(self, answers: Array) -> Array:
        return self.product.adjoint(answers.reshape(self.product.shape_out)).reshape(-1) / self.scale

    def shifted_inverse(self, shift: float) -> "InEigenbasis":
        """(BᵀB + shift·I)⁻¹."""
        return InEigenbasis(self, 1.0 / (self.eigenvalues + shift))

    def factored(self, weights: Array, diagonal: Array) -> Factored:
        """The system by elimination, with Θ + BᵀWB written out."""
        table = weights.reshape(self.product.shape_out) / self.scale**2
        for each in self.product.maps:
            matrix = each.dense()
            pairs = (matrix[:, :, None] * matrix[:, None, :]).reshape(each.rows, -1)
            table = np.tensordot(table, pairs, axes=(0, 0))
        sizes = self.product.shape_in
        normal = table.reshape([size for size in sizes for _ in (0, 1)])
        order = [*range(0, 2 * len(sizes), 2), *range(1, 2 * len(sizes), 2)]
        columns = self.shape[1]
        matrix = FactoredMatrix(normal.transpose(order).reshape(columns, columns), diagonal)
        return Refined(self, weights, diagonal, ByColumns(self, weights, matrix))

    def lift(self, slopes: Array) -> Array:
        """The shortest Δ for which BᵀΔ comes nearest to the slopes: B(BᵀB)⁺ times them."""
        present = self.eigenvalues > 1e-13 * float(self.eigenvalues.max())
        inverse = np.where(present, 1.0, 0.0) / np.where(present, self.eigenvalues, 1.0)
        return self.apply(InEigenbasis(self, inverse).solve(slopes))

    def along_axes(self, flat: Array, *, transposed: bool) -> Array:
        """The product with all eigenbases, or with their transposes."""
        table: NDArray[np.float64] = flat.reshape(self.product.shape_in)
        for axis, (_, vectors) in enumerate(self.bases):
            if vectors is not None:
                matrix = vectors.T if transposed else vectors
                table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
        return np.ascontiguousarray(table).reshape(-1)


class InEigenbasis:
    """A matrix that is diagonal in the eigenbasis of a strategy."""

    def __init__(self, strategy: KroneckerStrategy, diagonal: Array) -> None:
        self._strategy, self._diagonal = strategy, diagonal

    def solve(self, right: Array) -> Array:
        inner = self._strategy.along_axes(right, transposed=True)
        return self._strategy.along_axes(inner * self._diagonal, transposed=False)
