"""Newton's method on prices: exact cells where the costs are strictly convex.

For prices λ every cell has one best move δ(λ), a piecewise linear function of its pay s = Φᵀλ, and the concave

    g(λ) = rᵀλ + Σ_i min over ξ of [ cost_i(ξ) − s_i ξ ]     has the gradient  r − Φ δ(λ).

Where it vanishes, the moved cells have the right marginals and are optimal. The gradient is piecewise linear too, so
Newton's method with the matrix Φ diag(dδ/ds) Φᵀ, damped while far away and shortened until g rises, ends on the right
piece and is then exact but for rounding (Qi and Sun 1993; Zhao, Sun and Toh 2010).
"""

from dataclasses import dataclass

import numpy as np

from consilience.kernels.compilation import announce
from consilience.solvers.marginal_tables.best_responses import best_responses
from consilience.solvers.marginal_tables.marginal_basis import Vector
from consilience.solvers.marginal_tables.normal_equations import NormalEquations
from consilience.solvers.marginal_tables.problem import TableProblem

ROUNDING = 1e-15
"""The accuracy with which the pay of a cell is known, relative to the largest price."""

DAMPING = 1e-4
"""How much of the softness that cells have away from their kinks a step assumes everywhere, per misfit of one noise."""

SUFFICIENT = 1e-4
"""The share of the promised rise that a step must achieve (Armijo)."""


@dataclass(frozen=True, eq=False)
class Convexity:
    """Strictly convex costs: the problem's slopes, and curvatures around centres."""

    curvature: Vector
    centre: Vector


@dataclass(frozen=True, eq=False)
class NewtonPoint:
    """Moves that are the best responses to prices, and by how much they miss the marginals."""

    moves: Vector
    softness: Vector
    prices: Vector
    misfit: float
    steps: int


@dataclass
class _Responses:
    """Moves, their softness dδ/ds, and g at some prices."""

    prices: Vector
    moves: Vector
    softness: Vector
    value: float


def solve_by_newton(
    problem: TableProblem,
    convexity: Convexity,
    *,
    start: Vector | None = None,
    tolerance: float = 1e-13,
    acceptable: float = 1e-6,
    max_steps: int = 80,
) -> NewtonPoint:
    """The moves where the gradient vanishes, or the best ones found; below `acceptable` standstill ends the search."""
    announce(best_responses)
    now = _respond(problem, convexity, np.zeros(problem.basis.rows) if start is None else start)
    best = NewtonPoint(now.moves, now.softness, now.prices, np.inf, 0)
    idle = 0
    for steps in range(max_steps + 1):
        gradient = problem.target - problem.basis.apply(now.moves)
        misfit = float(np.abs(gradient).max(initial=0.0)) / problem.largest_target
        idle = 0 if misfit < 0.5 * best.misfit else idle + 1
        if misfit < best.misfit:
            best = NewtonPoint(now.moves, now.softness, now.prices, misfit, steps)
        if misfit <= tolerance or steps == max_steps or (best.misfit <= acceptable and idle >= 3):
            break
        following = _step(problem, convexity, now, gradient)
        if following is None:
            break
        now = following
    return best


def _respond(problem: TableProblem, convexity: Convexity, prices: Vector) -> _Responses:
    pay = problem.basis.adjoint(prices)
    moves, softness = np.empty_like(pay), np.empty_like(pay)
    high = np.where(problem.fixed, problem.high, np.inf)
    least = best_responses(
        problem.costs.slope, convexity.curvature, convexity.centre, problem.low, high, pay, moves, softness
    )
    return _Responses(prices, moves, softness, float(problem.target @ prices + least))


def _step(problem: TableProblem, convexity: Convexity, now: _Responses, gradient: Vector) -> _Responses | None:
    """The responses after one Newton step, or None when no step raises g."""
    distance = float(np.abs(gradient).max()) / np.sqrt(problem.basis.layout.cells)
    damping = DAMPING * min(1.0, distance)
    assumed = now.softness.copy()
    assumed[~problem.fixed] += damping * 0.5 / convexity.curvature[~problem.fixed]
    equations = NormalEquations(problem.basis.gram(assumed))
    direction = equations.solve(gradient, refinements=0)
    promised = float(gradient @ direction)
    rounding = ROUNDING * 100.0 * (abs(now.value) + float(np.abs(now.prices) @ np.abs(problem.target)))
    length = 1.0
    while length > 1e-9:
        ahead = _respond(problem, convexity, now.prices + length * direction)
        if ahead.value >= now.value + SUFFICIENT * length * promised - rounding:
            return ahead
        length *= 0.5
    return None
