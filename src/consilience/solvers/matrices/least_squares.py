"""Least squares with x ≥ 0, by an interior point; without it, directly.

    min Σ q(Ax − y)² over x ≥ 0    is where    Aᵀl = z ≥ 0,   x·z = 0,   l = 2q(Ax − y).

Newton's method on the products leads to (Θ + AᵀWA) dx = f, with Θ = z/x and W = 2q: the system of `strategies` with h
= 0.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp
import scipy.sparse.linalg

from consilience.solvers.matrices.certificates import Array, Certifier, RowCosts
from consilience.solvers.matrices.equations import Equations
from consilience.solvers.matrices.interior_point import CENTRING, PATIENCE, TO_THE_END, Solution, reach
from consilience.solvers.matrices.strategies import DenseStrategy, SparseStrategy, Strategy

DEPENDENT = 1e-13
"""Columns of which so small a share is left, once the others are taken out, follow from them."""


def solve_nonnegative_least_squares(
    strategy: Strategy, costs: RowCosts, certifier: Certifier, *, tolerance: float, max_steps: int = 100
) -> Solution:
    """Non-negative cells whose gap is at most `tolerance` of the objective, or the best ones found."""
    weights = 2.0 * costs.up.curvature
    x, z = _start(strategy, costs, weights)
    best, smallest, bound, least, idle, steps = x, np.inf, 0.0, np.inf, 0, 0
    while True:
        residual = strategy.apply(x) - costs.noisy
        objective = costs.cost(residual)
        if objective < smallest:
            best, smallest = x, objective
        bound = max(bound, certifier.bound(weights * residual, best))
        least, idle = (smallest - bound, 0) if smallest - bound < 0.9 * least else (least, idle + 1)
        if smallest - bound <= tolerance * smallest + costs.unnoticed or idle >= PATIENCE or steps == max_steps:
            break
        wrong = strategy.adjoint(weights * residual) - z
        factored = strategy.factored(weights, z / x)
        nothing = np.zeros_like(residual)
        dx, _ = factored.solve(-wrong - z, nothing)
        dz = -z - z * dx / x
        primal, dual = min(reach(x, dx), 1.0), min(reach(z, dz), 1.0)
        centre = float(x @ z) / x.size
        ahead = float((x + primal * dx) @ (z + dual * dz)) / x.size
        share = min(max((ahead / centre) ** 3, CENTRING * (1.0 - min(primal, dual)) ** 3, 1e-6), 1.0)
        kappa = share * centre - x * z - dx * dz
        dx, _ = factored.solve(-wrong + kappa / x, nothing)
        del factored  # Not two of them at once: they are most of the memory.
        dz = (kappa - z * dx) / x
        length = min(1.0, TO_THE_END * reach(x, dx), TO_THE_END * reach(z, dz))
        x, z = x + length * dx, z + length * dz
        steps += 1
    return Solution(best, smallest, bound, steps)


def _start(strategy: Strategy, costs: RowCosts, weights: Array) -> tuple[Array, Array]:
    """The least-squares cells made positive, and multipliers of the size that their slopes have."""
    columns = strategy.shape[1]
    slopes = strategy.adjoint(weights * costs.noisy)
    factored = strategy.factored(weights, np.full(columns, 1e-8 * float(np.sum(weights)) / columns))
    cells, _ = factored.solve(slopes, np.zeros_like(weights))
    cells = np.maximum(cells, 0.0) + 0.1 * float(np.mean(np.abs(cells))) + 1e-8
    wrong = strategy.adjoint(weights * (strategy.apply(cells) - costs.noisy))
    size = float(np.mean(np.abs(wrong))) + 1e-8 * float(np.mean(np.abs(slopes))) + 1e-300
    return cells, np.maximum(wrong, 0.0) + 0.1 * size


# With equations, x = s + Pu, where s is the shortest solution of Ex = e and P the projection on what E does not see.
# The shortest u lies in the range of P, because AP sees nothing else, at right angles to s: so x is the shortest too.
def solve_least_squares(
    strategy: Strategy, costs: RowCosts, certifier: Certifier, *, equations: Equations | None = None
) -> Solution:
    """The shortest least-squares cells; with equations, among those that satisfy them.

    The rows of the equations are not among those of the strategy; they are the last ones of the certifier's.
    """
    size = np.sqrt(costs.up.curvature)
    start = np.zeros(strategy.shape[1]) if equations is None else equations.shortest()
    right = size * (costs.noisy - strategy.apply(start))
    if isinstance(strategy, DenseStrategy):
        weighted = size[:, None] * strategy.matrix
        if equations is not None:
            weighted = np.stack([equations.without(row) for row in weighted])
        solved: Any = scipy.linalg.lstsq(weighted, right, cond=DEPENDENT, lapack_driver="gelsy", check_finite=False)
        found, steps = solved[0], 0
    else:
        operator: Any = scipy.sparse.linalg.aslinearoperator(_Weighted(strategy.shape, strategy, size, equations))
        limit = 20 * strategy.shape[1]
        found, _, steps, *_ = scipy.sparse.linalg.lsmr(operator, right, atol=1e-14, btol=1e-14, maxiter=limit)
    cells = start + np.asarray(found, dtype=np.float64)
    multipliers = 2.0 * costs.up.curvature * (strategy.apply(cells) - costs.noisy)
    if equations is not None:
        restored = equations.restored(cells, nonnegative=False)
        cells = cells if restored is None else restored
        multipliers = np.concatenate([multipliers, equations.multipliers(-strategy.adjoint(multipliers))])
    objective = costs.cost(strategy.apply(cells) - costs.noisy)
    return Solution(cells, objective, certifier.bound(multipliers, cells), int(steps))


@dataclass(frozen=True, eq=False)
class _Weighted:
    """diag(√q) A, or diag(√q) A P, with the names of its products that SciPy expects."""

    shape: tuple[int, int]
    strategy: Strategy
    size: Array
    equations: Equations | None

    def matvec(self, cells: Array) -> Array:
        free = np.ravel(cells) if self.equations is None else self.equations.without(np.ravel(cells))
        return self.size * self.strategy.apply(free)

    def rmatvec(self, answers: Array) -> Array:
        slopes = self.strategy.adjoint(self.size * np.ravel(answers))
        return slopes if self.equations is None else self.equations.without(slopes)


# ----------------------------------------------------------------------------------------------------------------------
# L1 with a sparse strategy as a linear programme, solved by HiGHS.
#
#     min Σ a·p + ā·m   with   Ax − p + m = y,   p ≥ 0,   m ≥ 0,   x ≥ 0 or free.
#
# The optimal multiplier of row i of the equation is −l_i, so the programme hands over its own certificate. Rows that
# must be met come last, and have no p and m.


FEASIBILITY = 1e-10


def solve_by_linear_programme(
    strategy: SparseStrategy,
    costs: RowCosts,
    certifier: Certifier,
    *,
    nonnegative: bool,
    equations: Equations | None = None,
) -> Solution | None:
    """The optimum and its proof; None where HiGHS gives up.

    With equations, their rows are the last ones of the strategy, and of the certifier's costs.
    """
    rows, columns = costs.noisy.size, strategy.shape[1]
    ones = sp.eye_array(strategy.shape[0], rows)
    system = sp.csc_array(sp.hstack([strategy.matrix, -ones, ones]))
    right = costs.noisy if equations is None else np.concatenate([costs.noisy, equations.values])
    cost = np.concatenate([np.zeros(columns), costs.up.slope, costs.down.slope])
    lower = np.concatenate([np.full(columns, 0.0 if nonnegative else -np.inf), np.zeros(2 * rows)])
    found = scipy.optimize.linprog(
        cost,
        A_eq=system,
        b_eq=right,
        bounds=np.stack([lower, np.full_like(lower, np.inf)], axis=1),
        method="highs",
        options={"primal_feasibility_tolerance": FEASIBILITY, "dual_feasibility_tolerance": FEASIBILITY},
    )
    if found.x is None:
        return None
    cells = np.asarray(found.x[:columns], dtype=np.float64)
    if nonnegative:
        cells = np.maximum(cells, 0.0)
    if equations is not None:
        restored = equations.restored(cells, nonnegative=nonnegative)
        if restored is None:
            return None
        cells = restored
    objective = costs.cost(strategy.apply(cells)[:rows] - costs.noisy)
    bound = certifier.bound(-np.asarray(found.eqlin.marginals, dtype=np.float64), cells)
    return Solution(cells, objective, bound, int(found.nit))
