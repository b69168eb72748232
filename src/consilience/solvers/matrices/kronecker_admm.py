"""Strategies F₁ ⊗ F₂ ⊗ … with too many cells to factor a matrix of that size: alternating directions.

Lee, Wang and Kifer (2015), Algorithm 4, in the form of two blocks: with B = A/s and u = s·x,

    min cost(z − y)   with   z = Bu,   v = u,   v ≥ 0,

alternating between u and the pair (z, v), with penalty ρ and multipliers l = ρμ and ρν. The update of u solves (BᵀB +
I)u = …, which is diagonal in the eigenbasis of the factors, so an iteration costs a few products along each axis.
Over-relaxation by 1.6 and a penalty that balances the two residuals (Boyd et al. 2011, §3.4); s, which makes columns
about as long as 1, matters more than either.
"""

import numpy as np

from consilience.solvers.matrices.certificates import Certifier
from consilience.solvers.matrices.interior_point import Solution
from consilience.solvers.matrices.kronecker_strategy import KroneckerStrategy
from consilience.solvers.matrices.row_costs import Array, RowCosts

RELAXATION = 1.6
CHECK_EVERY = 20


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
    inverse = strategy.shifted_inverse(max(copies, 1e-12))
    z, mu = costs.noisy.copy(), np.zeros(rows)
    v, nu = np.zeros(columns), np.zeros(columns)
    rho = _first_penalty(costs)
    best, smallest, bound, steps = v, np.inf, 0.0, 0
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
            if smallest - bound <= tolerance * smallest + costs.unnoticed:
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
