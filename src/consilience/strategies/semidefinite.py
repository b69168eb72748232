"""The best strategy for noise of L2 sensitivity, in the semidefinite form of Li et al. 2010 and Yuan et al. 2012.

Write M = AᵀA. The squared L2 sensitivity of A is the largest diagonal entry of M, and the error of a workload with Gram
matrix G is maxᵢ Mᵢᵢ · tr(G M⁻¹): with the scale of M fixed, a convex problem,

    minimise tr(G M⁻¹)   over M ≻ 0 with Mᵢᵢ ≤ 1.                                                  (P)

For Laplace noise the sensitivity is the L1 norm, which is no function of M. Yuan et al. 2012 (their implementation of
the matrix mechanism) solve the L2 problem in its place, take A = M^½, and pay A's L1 norm. They smooth the maximum and
descend along projected gradients. The same optimum is reached faster through the dual. With multipliers v > 0 and
D = diag(v), stationarity is M D M = G, so that M = D^(−½) (D^½ G D^½)^½ D^(−½), and the dual function is

    d(v) = 2 tr (D^½ G D^½)^½ − Σ vᵢ = 2 ‖R D^½‖_* − Σ vᵢ,      G = RᵀR.

The nuclear norm is the largest inner product with a matrix of spectral norm 1. Taking the polar factor of R D^½ at
the current v for that matrix gives the lower bound d(v′) ≥ Σᵢ (2 Mᵢᵢ √(vᵢ v′ᵢ) − v′ᵢ), with equality at v′ = v, whose
maximum is v′ᵢ = vᵢ Mᵢᵢ². That is the iteration: d never falls, and M / maxᵢ Mᵢᵢ is feasible with value Σ vᵢ Mᵢᵢ ·
maxᵢ Mᵢᵢ, so that every step knows its distance from the optimum. (Denisov, McMahan et al. 2022 use vᵢ Mᵢᵢ for the
same problem.)
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from consilience.strategies.expected_error import column_norm
from consilience.strategies.grams import Matrix, asked_cells, checked_gram

MOST_STEPS = 200


@dataclass(frozen=True, eq=False)
class SemidefiniteStrategy:
    """A strategy, the L2 error it has (Gaussian noise at ρ = ½), and a proven lower bound on that of every strategy."""

    strategy: Matrix
    objective: float
    lower_bound: float
    steps: int


def semidefinite_strategy(gram: ArrayLike, *, tolerance: float = 1e-6) -> SemidefiniteStrategy:
    """The strategy of least error under L2 noise, symmetric, scaled to L1 sensitivity 1.

    `tolerance` is the relative distance from the optimum at which it stops. Cells that no query touches are not
    measured.

    >>> semidefinite_strategy(np.eye(2)).strategy.round(6).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    workload = checked_gram(gram)
    asked = asked_cells(workload)
    found = _solve(workload[np.ix_(asked, asked)], tolerance)
    strategy = np.zeros_like(workload)
    strategy[np.ix_(asked, asked)] = found.strategy
    return SemidefiniteStrategy(
        strategy / column_norm(strategy, norm=1), found.objective, found.lower_bound, found.steps
    )


def _solve(gram: Matrix, tolerance: float) -> SemidefiniteStrategy:
    """The iteration of the module's head, from multipliers that balance the diagonal of G."""
    multipliers = np.sqrt(np.diag(gram))
    best_bound, steps = 0.0, 0
    while True:
        roots = np.sqrt(multipliers)
        values, vectors = np.linalg.eigh(roots[:, None] * gram * roots)
        singular = np.sqrt(np.maximum(values, 0.0))
        middle = (vectors * singular) @ vectors.T
        diagonal = np.diag(middle) / multipliers
        best_bound = max(best_bound, 2.0 * float(singular.sum()) - float(multipliers.sum()))
        objective = float(singular.sum()) * float(diagonal.max())
        steps += 1
        if objective - best_bound <= tolerance * objective or steps >= MOST_STEPS:
            return SemidefiniteStrategy(_root(middle / np.outer(roots, roots)), objective, best_bound, steps)
        multipliers = np.maximum(multipliers * diagonal**2, 1e-14 * float(multipliers.max()))


def _root(matrix: Matrix) -> Matrix:
    """The symmetric square root."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
