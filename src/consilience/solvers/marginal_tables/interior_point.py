"""A primal–dual interior point for tables with known marginals, in the few dimensions of the dual.

Mehrotra's predictor–corrector method (1992) on the split costs of `cell_kernels`. Each iteration solves two systems
with the p × p matrix ΦDΦᵀ, which `MarginalBasis.gram` reads off one transform; all else is one pass over the cells.
The steps are exact where the parts are far from their ends and degrade at the very end, where ΦDΦᵀ becomes singular:
the best iterate is kept, and the iteration ends when nothing has become better for a while.
"""

from dataclasses import dataclass

import numpy as np

from consilience.kernels.compilation import announce
from consilience.solvers.marginal_tables import cell_kernels as kernels
from consilience.solvers.marginal_tables.marginal_basis import Vector
from consilience.solvers.marginal_tables.normal_equations import NormalEquations
from consilience.solvers.marginal_tables.problem import TableProblem

NEGLIGIBLE = 1e-12
"""A noisy value this small, in units of the noise, counts as 0 in the split of its cost."""

TO_THE_END = 0.995
"""The share of the way to the nearest end of a part that a step may go."""

CENTRING = 0.3
"""How strongly a short predicted step asks for centring first."""

LARGEST_SCALING = 1e150
"""Parts this many times larger than their multipliers have nowhere to go, and their squares would not be numbers."""

PATIENCE = 15
"""Iterations without progress, of iterates or of products, after which the iteration ends; at once when a good
iterate has been lost again."""


@dataclass(frozen=True, eq=False)
class InteriorPoint:
    """Where the iteration ended: moves that nearly fit, and prices whose lower bound is `bound`."""

    moves: Vector
    prices: Vector
    objective: float
    bound: float
    misfit: float
    steps: int
    contradiction: bool
    """True when the bound exceeds what any table can cost, so that no table has these marginals."""


@dataclass
class _State:
    """The iterate; arrays change in place."""

    parts: kernels.Parts
    prices: Vector
    pay: Vector


def solve_by_interior_point(
    problem: TableProblem, *, tolerance: float, slack: Vector | None = None, max_steps: int = 150
) -> InteriorPoint:
    """Moves and prices whose gap is at most `tolerance` of the objective, or the best ones found.

    With `slack`, the marginals may be missed at a cost: Φδ + slack·λ = r, which is the least-squares problem
    min ½ Σ (r − Φδ)² / slack + costs.
    """
    announce(kernels.take_step)
    costs = _split(problem)
    state = _start(problem, costs)
    slack = np.zeros(problem.basis.rows) if slack is None else slack
    best = _Candidate.of(problem, _moves(problem, costs, state.parts), state.prices, slack)
    bound, prices, steps, idle, least = -np.inf, state.prices, 0, 0, np.full(2, np.inf)
    products = np.inf
    while True:
        here = _Candidate.of(problem, _moves(problem, costs, state.parts), state.prices, slack)
        lower = problem.lower_bound(state.prices, state.pay) - here.missed
        if lower > bound:
            bound, prices = lower, state.prices.copy()
        best = here if here.merit(bound) < best.merit(bound) else best
        merit = best.merit(bound)
        progress = np.array([merit, products])
        idle = 0 if np.any(progress < 0.9 * least) else idle + 1
        least = np.minimum(least, progress)
        contradiction = bound > problem.worst and not slack.any()
        lost = merit < 1e-6 and here.merit(bound) > 100.0 * merit
        if merit <= tolerance or idle >= PATIENCE or lost or contradiction or steps == max_steps:
            break
        products = _step(problem, costs, state, here.residual, slack)
        if not np.isfinite(products):
            break
        steps += 1
    return InteriorPoint(best.moves, prices, best.objective, bound, best.misfit, steps, contradiction)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Moves, what they cost, and by how much they miss the marginals."""

    moves: Vector
    objective: float
    missed: float
    residual: Vector
    misfit: float
    """The largest error of a coordinate relative to the largest coordinate."""
    worth: float
    """What the error is worth at the present prices: the first-order change of the objective when it is removed."""
    unit: float
    """What a gap is relative to."""

    @staticmethod
    def of(problem: TableProblem, moves: Vector, prices: Vector, slack: Vector) -> "_Candidate":
        residual = problem.target - problem.basis.apply(moves) - slack * prices
        misfit = float(np.abs(residual).max(initial=0.0)) / problem.largest_target
        missed = 0.5 * float(slack @ prices**2)
        objective = problem.costs.of_moves(moves) + missed
        missed_by_nothing = 0.5 * float(np.sum(problem.target[slack > 0.0] ** 2 / slack[slack > 0.0]))
        unit = max(problem.costs.gap_unit(objective), 1e-9 * missed_by_nothing)
        return _Candidate(moves, objective, missed, residual, misfit, abs(float(prices @ residual)), unit)

    def merit(self, bound: float) -> float:
        """How far these moves are from optimal: relative gap, relative misfit or its worth, whichever is largest."""
        return max(max(abs(self.objective - bound), self.worth) / self.unit, self.misfit)


def _step(problem: TableProblem, costs: kernels.Costs, state: _State, residual: Vector, slack: Vector) -> float:
    """One predictor–corrector step; returns the sum of the products before it, not finite when no step was found."""
    basis, parts, pay = problem.basis, state.parts, state.pay
    scaling, shift = np.empty_like(pay), np.empty_like(pay)
    products, count = kernels.predictor_terms(costs, parts, pay, scaling, shift)
    if not scaling.max(initial=0.0) < LARGEST_SCALING:
        return np.inf
    centre = products / max(count, 1)
    equations = NormalEquations(basis.gram(scaling), slack)
    predicted = basis.adjoint(equations.solve(residual - basis.apply(shift)))
    primal, dual, in_primal, in_dual, in_both = kernels.predicted_products(costs, parts, pay, predicted)
    ahead = (products + primal * in_primal + dual * in_dual + primal * dual * in_both) / max(count, 1)
    centre *= _centring(ahead / centre if centre > 0.0 else 0.0, min(primal, dual))
    kernels.corrector_shift(costs, parts, pay, predicted, centre, shift)
    change = equations.solve(residual - basis.apply(shift))
    if not np.all(np.isfinite(change)):
        return np.inf
    change_of_pay = basis.adjoint(change)
    primal, dual = kernels.longest_steps(costs, parts, pay, predicted, change_of_pay, centre)
    primal, dual = min(1.0, TO_THE_END * primal), min(1.0, TO_THE_END * dual)
    if problem.costs.curvature.any() or slack.any():
        primal = dual = min(primal, dual)
    kernels.take_step(costs, parts, pay, predicted, change_of_pay, centre, primal, dual)
    state.prices += dual * change
    state.pay = basis.adjoint(state.prices)
    return products


def _centring(ratio: float, step: float) -> float:
    """How much of the products' mean to aim at: Mehrotra's cube of the predicted ratio, more where steps are short."""
    return min(max(ratio**3, CENTRING * (1.0 - step) ** 3, 1e-6), 1.0)


def _split(problem: TableProblem) -> kernels.Costs:
    """The kinds of all cells and the costs of their parts."""
    noisy, slope, curvature = problem.costs.noisy, problem.costs.slope, problem.costs.curvature
    floor = np.isfinite(problem.low)
    kind = np.where(floor, kernels.BOTH, kernels.FREE).astype(np.int8)
    kind[floor & ((noisy <= NEGLIGIBLE) | ((slope == 0.0) & (curvature == 0.0)))] = kernels.OVER
    kind[problem.fixed] = kernels.FIXED
    up = np.where(kind == kernels.OVER, slope - 2.0 * curvature * noisy, slope)
    return kernels.Costs(kind, up, slope, curvature)


def _start(problem: TableProblem, costs: kernels.Costs) -> _State:
    """Parts about as large as the noise, and multipliers that make all products about equal at prices 0.

    The noise of a cell is about the inverse of its slope; without slopes or curvatures all cells count alike.
    """
    noisy, q = problem.costs.noisy, costs.q
    weight = costs.a + np.sqrt(q)
    ordinary = float(np.mean(weight)) or 1.0
    weight = np.clip(np.where(weight > 0.0, weight, ordinary) / ordinary, 1e-3, 1e3)
    size = 1.0 / weight
    linear = costs.kind == kernels.OVER
    p = size.copy()
    m = np.where(costs.kind == kernels.BOTH, np.minimum(size, 0.5 * noisy), size)
    v = np.where(linear, 1.0, noisy - m)
    zp = np.maximum(costs.c + 2.0 * q * p, 0.1 * weight)
    zv = np.zeros_like(v)
    both = costs.kind == kernels.BOTH
    zv[both] = 1.0 / v[both]
    zm = np.maximum(costs.a + 2.0 * q * m, 0.1 * weight) + zv
    return _State(kernels.Parts(p, zp, m, zm, v, zv), np.zeros(problem.basis.rows), np.zeros(noisy.size))


def _moves(problem: TableProblem, costs: kernels.Costs, parts: kernels.Parts) -> Vector:
    moves = np.where(costs.kind == kernels.OVER, parts.p - problem.costs.noisy, parts.p - parts.m)
    moves[costs.kind == kernels.FIXED] = 0.0
    return moves
