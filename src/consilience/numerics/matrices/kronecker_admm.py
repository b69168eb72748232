"""Strategies F₁ ⊗ F₂ ⊗ … that are too large to write down: the alternating direction method in their own eigenbasis.

Lee, Wang and Kifer (2015), Algorithm 4, in the form of two blocks: with B = A/‖A‖ and u = ‖A‖x,

    min cost(z − y)   with   z = Bu,   v = u,   v ≥ 0,

alternating between u and the pair (z, v), with penalty ρ and multipliers l = ρμ, ρν. The update of u solves (BᵀB + I)u = …. Its
matrix is diagonal in the eigenbasis of the F_kᵀF_k, one small basis for each axis, so an iteration costs a few products
along each axis. Over-relaxation by 1.6 and a penalty that balances the two residuals (Boyd et al. 2011, §3.4).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.errors import TooLarge
from consilience.numerics.linear_maps import IdentityMap, Kronecker
from consilience.numerics.matrices.certificates import Certifier
from consilience.numerics.matrices.interior_point import Solution
from consilience.numerics.matrices.row_costs import Array, RowCosts
from consilience.numerics.matrices.strategies import Factored

LARGEST_FACTOR = 4096
"""The most columns of one factor, of which a full eigenbasis is kept."""

RELAXATION = 1.6
CHECK_EVERY = 20


@dataclass(frozen=True, eq=False)
class KroneckerStrategy:
    """A Kronecker product divided by its norm, on flat vectors."""

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
    def norm(self) -> float:
        return float(np.sqrt(np.prod([values.max() for values, _ in self.bases])))

    @cached_property
    def eigenvalues(self) -> Array:
        """The eigenvalues of BᵀB, flat."""
        product = np.ones(1)
        for values, _ in self.bases:
            product = np.outer(product, values / max(float(values.max()), 1e-300)).ravel()
        return product

    def apply(self, cells: Array) -> Array:
        return self.product.apply(cells.reshape(self.product.shape_in)).reshape(-1) / self.norm

    def adjoint(self, answers: Array) -> Array:
        return self.product.adjoint(answers.reshape(self.product.shape_out)).reshape(-1) / self.norm

    def factored(self, weights: Array, diagonal: Array) -> Factored:
        """Θ + AᵀWA where both diagonals are constant."""
        return _InEigenbasis(self, 1.0 / (float(diagonal[0]) + float(weights[0]) * self.eigenvalues))

    def spanned_part(self, answers: Array) -> Array:
        """The part of answers in the span of the columns: B(BᵀB)⁺Bᵀ."""
        present = self.eigenvalues > 1e-13
        inverse = np.where(present, 1.0, 0.0) / np.where(present, self.eigenvalues, 1.0)
        return self.apply(_InEigenbasis(self, inverse).solve(self.adjoint(answers)))

    def along_axes(self, flat: Array, *, transposed: bool) -> Array:
        """The product with all eigenbases, or with their transposes."""
        table: NDArray[np.float64] = flat.reshape(self.product.shape_in)
        for axis, (_, vectors) in enumerate(self.bases):
            if vectors is not None:
                matrix = vectors.T if transposed else vectors
                table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
        return np.ascontiguousarray(table).reshape(-1)

    def cover(self) -> Array | None:
        """⊗ v_k with F_kᵀ v_k = 1 in all columns, where there are such."""
        product = np.ones(1)
        for each in self.product.maps:
            if isinstance(each, IdentityMap):
                vector = np.ones(each.rows)
            else:
                matrix = each.dense()
                touched = np.abs(matrix).sum(axis=0) > 0.0
                sums = np.where((matrix >= 0.0).all(axis=1), 1.0, 0.0)
                if (sums @ matrix)[touched].min(initial=1.0) > 0.0:
                    vector = sums
                else:
                    vector = np.linalg.lstsq(matrix.T, touched.astype(np.float64), rcond=None)[0]
            product = np.outer(product, vector).ravel()
        return product


class _InEigenbasis:
    """A matrix that is diagonal in the eigenbasis of a strategy."""

    def __init__(self, strategy: KroneckerStrategy, diagonal: Array) -> None:
        self._strategy, self._diagonal = strategy, diagonal

    def solve(self, right: Array) -> Array:
        inner = self._strategy.along_axes(right, transposed=True)
        return self._strategy.along_axes(inner * self._diagonal, transposed=False)


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
    inverse = strategy.factored(np.ones(1), np.full(1, max(copies, 1e-12)))
    z, mu = costs.noisy.copy(), np.zeros(rows)
    v, nu = np.zeros(columns), np.zeros(columns)
    rho = _first_penalty(costs)
    best, smallest, bound = v, np.inf, 0.0
    for steps in range(1, max_steps + 1):
        u = inverse.solve(strategy.adjoint(z - mu) + copies * (v - nu))
        answers = strategy.apply(u)
        relaxed = RELAXATION * answers + (1.0 - RELAXATION) * z
        relaxed_cells = RELAXATION * u + (1.0 - RELAXATION) * v
        before = z, v
        z = costs.noisy + _proximal(costs, relaxed + mu - costs.noisy, rho)
        v = np.maximum(relaxed_cells + nu, 0.0) if nonnegative else u
        mu = mu + relaxed - z
        nu = nu + relaxed_cells - v if nonnegative else nu
        if steps % CHECK_EVERY == 0 or steps == max_steps:
            objective = costs.cost(strategy.apply(v) - costs.noisy)
            if objective < smallest:
                best, smallest = v, objective
            bound = max(bound, certifier.bound(rho * mu, best))
            if smallest - bound <= tolerance * smallest:
                break
            primal = np.hypot(np.linalg.norm(answers - z), np.linalg.norm(u - v))
            dual = np.hypot(np.linalg.norm(z - before[0]), np.linalg.norm(v - before[1]))
            change = _balance(primal, dual, steps)
            rho, mu, nu = rho * change, mu / change, nu / change
    return Solution(best, smallest, bound, steps)


def _first_penalty(costs: RowCosts) -> float:
    """A penalty that moves a residual of one noise by one noise: slope over noise, where the noise is 1/weight."""
    weight = float(np.mean(costs.up.slope + np.sqrt(costs.up.curvature)))
    return max(weight, 1e-300) ** 2


def _balance(primal: float, dual: float, steps: int) -> float:
    """The factor for the penalty: towards equal residuals, more and more slowly so that it settles."""
    if primal == 0.0 or dual == 0.0:
        return 1.0
    strength = min(1.0, 200.0 / steps)
    return float(np.clip(primal / dual, 0.2, 5.0) ** (0.5 * strength))


def _proximal(costs: RowCosts, point: Array, rho: float) -> Array:
    """argmin over t of cost(t) + ρ/2·(t − point)²."""
    rise = np.maximum(point - costs.up.slope / rho, 0.0) * (rho / (2.0 * costs.up.curvature + rho))
    fall = np.maximum(-point - costs.down.slope / rho, 0.0) * (rho / (2.0 * costs.down.curvature + rho))
    return rise - fall
