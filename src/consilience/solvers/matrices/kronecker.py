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
from consilience.solvers.matrices.interior_point import Solution
from consilience.solvers.matrices.problem import SIGNS, Array, Certifier, RowCosts
from consilience.solvers.matrices.strategies import ByColumns, Factored, FactoredMatrix, Refined


@dataclass(frozen=True)
class ProductSettings:
    """How large factors may be, and what tunes alternating directions; by trial, no figures kept, unless named."""

    most_columns: int = 4096
    """The most columns of one factor, of which a full eigenbasis is kept."""
    largest_pairs: int = 1 << 26
    """The most entries of rows × columns² of one factor, the products of any two columns, that are kept: half a
    gigabyte. A factor with more of them is most of the product, which is better written out."""
    relaxation: float = 1.6
    """κ of over-relaxation (Eckstein and Bertsekas 1992), as in `admm`."""
    steps_between_gaps: int = 20
    """Steps from one look at the gap and the penalty to the next."""


SETTINGS = ProductSettings()


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
            most = SETTINGS.most_columns
            if each.columns > most:
                raise TooLarge(
                    f"a factor of the strategy has {each.columns:,} columns, the limit is {most:,}; use "
                    "more and smaller factors, or a sparse matrix"
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
        return self.apply(self.diagonal_product(inverse, slopes))

    def diagonal_product(self, diagonal: Array, cells: Array) -> Array:
        """The product with the matrix that has this diagonal in the eigenbasis."""
        return self._along_axes(diagonal * self._along_axes(cells, transposed=True), transposed=False)

    def _along_axes(self, flat: Array, *, transposed: bool) -> Array:
        """The product with all eigenbases, or with their transposes."""
        table: NDArray[np.float64] = flat.reshape(self.product.shape_in)
        for axis, (_, vectors) in enumerate(self.bases):
            if vectors is not None:
                matrix = vectors.T if transposed else vectors
                table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
        return np.ascontiguousarray(table).reshape(-1)


# ----------------------------------------------------------------------------------------------------------------------
# Strategies F₁ ⊗ F₂ ⊗ … with too many cells to factor a matrix of that size: alternating directions.
#
# Lee, Wang and Kifer (2015), Algorithm 4, in the form of two blocks: with B = A/s and u = s·x,
#
#     min cost(z − y)   with   z = Bu,   v = u,   v ≥ 0,
#
# alternating between u and the pair (z, v), with penalty ρ and multipliers l = ρμ and ρν. The update of u solves (BᵀB +
# I)u = …, which is diagonal in the eigenbasis of the factors, so an iteration costs a few products along each axis.
# Over-relaxation by 1.6 and a penalty that balances the two residuals (Boyd et al. 2011, §3.4); s, which makes columns
# about as long as 1, matters more than either.


def solve_by_admm(
    strategy: KroneckerStrategy,
    costs: RowCosts,
    certifier: Certifier,
    *,
    nonnegative: bool,
    tolerance: float,
    max_steps: int,
) -> Solution:
    """Cells of B whose gap is at most `tolerance` of the objective, or the best ones found in so many steps."""
    rows, columns = strategy.shape
    copies = 1.0 if nonnegative else 0.0
    inverse = 1.0 / (strategy.eigenvalues + max(copies, 1e-12))
    z, mu = costs.noisy.copy(), np.zeros(rows)
    v, nu = np.zeros(columns), np.zeros(columns)
    rho = _first_penalty(costs)
    best, smallest, bound, steps = v, np.inf, 0.0, 0
    for steps in range(1, max_steps + 1):
        u = strategy.diagonal_product(inverse, strategy.adjoint(z - mu) + copies * (v - nu))
        answers = strategy.apply(u)
        relaxed = SETTINGS.relaxation * answers + (1.0 - SETTINGS.relaxation) * z
        relaxed_cells = SETTINGS.relaxation * u + (1.0 - SETTINGS.relaxation) * v
        before = z, v
        z = costs.noisy + _proximal(costs, relaxed + mu - costs.noisy, rho)
        v = np.maximum(relaxed_cells + nu, 0.0) if nonnegative else u
        mu = mu + relaxed - z
        nu = nu + relaxed_cells - v if nonnegative else nu
        if steps % SETTINGS.steps_between_gaps == 0 or steps == max_steps:
            objective = costs.cost(strategy.apply(v) - costs.noisy)
            if objective < smallest:
                best, smallest = v, objective
            bound = max(bound, certifier.bound(rho * mu, best))
            if smallest - bound <= tolerance * smallest + costs.unnoticed:
                break
            primal = np.hypot(np.linalg.norm(answers - z), np.linalg.norm(u - v))
            dual = np.hypot(np.linalg.norm(z - before[0]), np.linalg.norm(v - before[1]))
            change = _balance(primal, dual, steps)
            rho, mu, nu = rho * change, mu / change, nu / change
    return Solution(best, smallest, bound, steps)


def _first_penalty(costs: RowCosts) -> float:
    """A penalty that moves a residual of one noise by one noise: slope over noise, where the noise is 1/weight."""
    weight = float(np.mean(costs.slope[0] + np.sqrt(costs.curvature[0])))
    return max(weight, 1e-300) ** 2


def _balance(primal: float, dual: float, steps: int) -> float:
    """The factor for the penalty: towards equal residuals, more and more slowly so that it settles."""
    if primal == 0.0 or dual == 0.0:
        return 1.0
    strength = min(1.0, 200.0 / steps)
    return float(np.clip(primal / dual, 0.2, 5.0) ** (0.5 * strength))


def _proximal(costs: RowCosts, point: Array, rho: float) -> Array:
    """argmin over t of cost(t) + ρ/2·(t − point)²."""
    rise, fall = np.maximum(SIGNS * point - costs.slope / rho, 0.0) * (rho / (2.0 * costs.curvature + rho))
    return rise - fall
