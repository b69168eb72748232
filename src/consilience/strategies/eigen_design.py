"""Eigen-design: the workload's own eigenvectors as strategy, with the best weights (Li, Miklau 2012).

Let G = WᵀW = Σᵢ sᵢ² qᵢ qᵢᵀ. The strategy has the rows λᵢ qᵢᵀ, whose error is Σᵢ sᵢ²/λᵢ² times the squared sensitivity.
With p = 1 for Laplace and 2 for Gaussian noise, and uᵢ = λᵢᵖ, the best weights solve the convex problem

    minimise Σᵢ cᵢ uᵢ^(−a)   over u > 0 with B u ≤ 1,       cᵢ = sᵢ², a = 2/p, Bⱼᵢ = |qᵢⱼ|ᵖ.

Given multipliers v ≥ 0 and s = Bᵀv the minimiser is uᵢ = (a cᵢ/sᵢ)^(1/(1+a)), and the dual function is a sum of
multiples of sᵢ^θ, θ = a/(1 + a), less Σ vⱼ. By the concavity of t ↦ t^θ, sᵢ^θ ≥ Σⱼ (Bⱼᵢvⱼ/sᵢ) sᵢ^θ (v′ⱼ/vⱼ)^θ;
maximising that lower bound gives v′ⱼ = vⱼ (B u)ⱼ^(1+a), a step that never lowers the dual. u / maxⱼ (B u)ⱼ is
feasible and tells how far the optimum can be.

Columns whose norm stays below the largest get a row of their own for the difference, which costs no privacy (ibid.,
§4.1, step 4).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.strategies.expected_error import Norm, column_norm
from consilience.strategies.grams import ROUNDING, Matrix, asked_cells, checked_gram

MOST_STEPS = 2000


def eigen_design(gram: ArrayLike, *, norm: Norm = 1, tolerance: float = 1e-4) -> Matrix:
    """The best weighting of the workload's eigenvectors for L1 or L2 noise, scaled to that sensitivity 1.

    >>> abs(eigen_design(np.ones((3, 3)))).round(6).tolist()
    [[1.0, 1.0, 1.0]]
    """
    workload = checked_gram(gram)
    values, vectors = np.linalg.eigh(workload)
    kept = values > ROUNDING * values[-1]
    weights = _weights(values[kept], np.abs(vectors[:, kept]) ** norm, 2.0 / norm, tolerance) ** (1.0 / norm)
    designed = (weights * vectors[:, kept]).T
    completed = _completed(designed / column_norm(designed, norm=norm), asked_cells(workload), norm)
    return completed / column_norm(completed, norm=norm)


def _weights(costs: Matrix, shares: Matrix, power: float, tolerance: float) -> Matrix:
    """The u of the module's head."""
    touched = shares.sum(axis=1) > ROUNDING
    shares = shares[touched]
    multipliers = np.full(len(shares), costs.sum() / len(shares))
    best_bound, weights = 0.0, np.ones_like(costs)
    for _ in range(MOST_STEPS):
        pressure = np.maximum(shares.T @ multipliers, 1e-300)
        weights = (power * costs / pressure) ** (1.0 / (1.0 + power))
        used = shares @ weights
        objective = float((costs * weights**-power).sum())
        best_bound = max(best_bound, objective + float(pressure @ weights) - float(multipliers.sum()))
        reachable = objective * float(used.max()) ** power
        if reachable - best_bound <= tolerance * reachable:
            break
        multipliers = np.maximum(multipliers * used ** (1.0 + power), 1e-14 * float(multipliers.max()))
    return weights


def _completed(strategy: Matrix, asked: NDArray[np.bool_], norm: Norm) -> Matrix:
    """The strategy with a row for each asked cell whose column is shorter than the longest, filling it up."""
    room = np.where(asked, 1.0 - (np.abs(strategy) ** norm).sum(axis=0), 0.0)
    short = np.flatnonzero(room > 1e-6)
    rows = np.zeros((len(short), strategy.shape[1]))
    rows[np.arange(len(short)), short] = room[short] ** (1.0 / norm)
    return np.concatenate([strategy, rows])
