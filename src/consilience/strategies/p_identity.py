"""p-identity strategies: every cell, and p further queries that the optimiser finds (McKenna et al. 2018, OPT₀).

For a matrix Θ ≥ 0 of p rows let tⱼ = 1 + Σₖ Θₖⱼ and A(Θ) = [I; Θ] diag(t)⁻¹: every column has L1 norm 1 whatever Θ.
With G = WᵀW and the matrix inversion lemma,

    tr(G (AᵀA)⁻¹) = tr(G′ X),   G′ = diag(t) G diag(t),   X = (I + ΘᵀΘ)⁻¹ = I − Y Θ,   Y = Θᵀ K,  K = (I_p + ΘΘᵀ)⁻¹.

With P = G diag(t) Θᵀ, the one product of n²p operations, and H = diag(t) P = G′Θᵀ,

    objective = Σⱼ tⱼ² Gⱼⱼ − ⟨H, Y⟩
    gradient  = −2 (Kᵀ Hᵀ − (Kᵀ HᵀY) Θ)  +  2 (tⱼ Gⱼⱼ − Σₖ Pⱼₖ Yⱼₖ) on every row   (through Θ, and through t).

The problem is not convex. The starts are seeded, so that a workload has one strategy.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from consilience.errors import DeclarationError
from consilience.kernels.rng import generator
from consilience.strategies.grams import Matrix, checked_gram


def p_identity(
    gram: ArrayLike, *, rows: int | None = None, restarts: int = 1, seed: int = 0, max_steps: int = 500
) -> Matrix:
    """The strategy of cells and `rows` more queries with the least error found, of L1 sensitivity 1.

    By default there is one further query for every 16 cells (ibid., §8), at least one. The first start is a tree of
    intervals, further ones are random; the best result is kept, and the cells alone where nothing is better.

    >>> p_identity(np.eye(3), rows=1).round(3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    workload = checked_gram(gram)
    size = len(workload)
    count = max(1, round(size / 16)) if rows is None else rows
    if count < 1 or restarts < 1:
        raise DeclarationError(
            f"a p-identity strategy with {count} more rows and {restarts} starts was asked for; both are from 1 up"
        )
    scaled = workload / np.trace(workload)
    found = [_optimised(scaled, start, max_steps) for start in _starts(count, size, restarts, seed)]
    best, theta = min(found, key=lambda pair: pair[0])
    if best >= 1.0 - 1e-9:  # the error of the cells alone, in these units
        return np.eye(size)
    theta = theta[theta.max(axis=1) > 1e-9]
    return np.concatenate([np.eye(size), theta]) / (1.0 + theta.sum(axis=0))


def _starts(rows: int, size: int, restarts: int, seed: int) -> list[Matrix]:
    """A first guess with intervals of halving lengths, and random ones."""
    rng = generator(seed)
    return [_intervals(rows, size)] + [rng.random((rows, size)) for _ in range(restarts - 1)]


def _intervals(rows: int, size: int) -> Matrix:
    """Row k = 2^l + r − 1 marks the r-th of 2^l equal intervals; a little of everything else keeps it free to move."""
    start = np.full((rows, size), 0.01)
    for row in range(rows):
        level = (row + 1).bit_length() - 1
        place = row + 1 - 2**level
        start[row, place * size // 2**level : (place + 1) * size // 2**level] = 1.0
    return start


def _optimised(gram: Matrix, start: Matrix, max_steps: int) -> tuple[float, Matrix]:
    """The least objective that L-BFGS-B reaches from a start, and its Θ."""

    def evaluate(flat: Matrix) -> tuple[float, Matrix]:
        value, gradient = objective_and_gradient(gram, flat.reshape(start.shape))
        return value, gradient.ravel()

    result = minimize(
        evaluate,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * start.size,
        options={"maxiter": max_steps, "maxfun": 2 * max_steps, "maxcor": 20, "ftol": 1e-7, "gtol": 1e-9},
    )
    return float(result.fun), np.asarray(result.x, dtype=np.float64).reshape(start.shape)


def objective_and_gradient(gram: Matrix, theta: Matrix) -> tuple[float, Matrix]:
    """tr(WᵀW (AᵀA)⁻¹) of A(Θ), and its derivative in Θ, as the module's head has them."""
    scale = 1.0 + theta.sum(axis=0)
    factor = cho_factor(np.eye(len(theta)) + theta @ theta.T)
    inner = np.asarray(cho_solve(factor, theta)).T
    product = gram @ (scale * theta).T
    scaled = scale[:, None] * product
    diagonal = np.diag(gram)
    value = float((scale**2 * diagonal).sum() - (scaled * inner).sum())
    lifted = np.asarray(cho_solve(factor, scaled.T))
    through_theta = lifted - (lifted @ inner) @ theta
    through_scale = scale * diagonal - (product * inner).sum(axis=1)
    return value, 2.0 * (through_scale - through_theta)
