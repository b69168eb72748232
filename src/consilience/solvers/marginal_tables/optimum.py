"""The optimum of a table problem, by the method that its costs allow.

*Strictly convex costs* (L2, the elastic net): Newton's method on duals; where it does not settle, an interior point
gives it a start from which it does.

*Costs with flat stretches* (L1, cells without weight): the interior point finds duals λ and their bound on the
optimum. The optimum is seldom unique. Of all optima the one with the least Σ w²(x − y)² is the limit of the elastic
net as its square vanishes, and more than a limit: for every small enough κ > 0 it *is* the minimiser of loss + κ Σ
w²(x − y)² (Mangasarian and Meyer 1979). So κ is lowered (and raised where rounding would drown it) until Newton's
method for that strictly convex problem, started from λ, ends at moves whose loss meets the bound; then they are
optimal for the loss, and hence of least square among its optima. Cells without weight are held near where the
interior point put them, as nothing else speaks about them.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from consilience.solvers.fit import Infeasible
from consilience.solvers.marginal_tables.dual_newton import Convexity, NewtonPoint, restore, solve_by_newton
from consilience.solvers.marginal_tables.interior_point import InteriorPoint, solve_by_interior_point
from consilience.solvers.marginal_tables.known_marginals import KnownMarginals
from consilience.solvers.marginal_tables.marginal_basis import MarginalBasis, Vector
from consilience.solvers.marginal_tables.problem import CellCosts, TableProblem

FIRST_SHARE, TRIALS = 1e-3, 5
"""The first κ, in units of the mean slope over the noise, and how many are tried."""

QUICK = 25
"""Newton steps after which an interior point for the same costs gives a better start."""

ACCEPTABLE_MISFIT = 1e-6
"""A Newton iterate that misses the marginals by less than this, relatively, is on the right piece."""

FITTING = 1e-10
"""Moves that miss the marginals by less than this, relatively, fit."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """Moves, a bound below which no table with the same marginals can be, and how they were found."""

    moves: Vector
    bound: float
    solver: str
    ties: str
    steps: int
    contradiction: bool = False


def find_optimum(problem: TableProblem, *, tolerance: float) -> Optimum:
    """The optimum, with a bound that proves it to `tolerance` where rounding allows."""
    if problem.solved_by_noisy_values:
        return Optimum(np.zeros_like(problem.low), 0.0, "closed form", "unique", 0)
    flat = (problem.costs.curvature == 0.0) & ~problem.fixed
    if flat.any():
        return _with_flat_stretches(problem, tolerance)
    return _strictly_convex(problem, tolerance)


def _strictly_convex(problem: TableProblem, tolerance: float) -> Optimum:
    convexity = Convexity(problem.costs.curvature, np.zeros_like(problem.low))
    point = solve_by_newton(problem, convexity, max_steps=2 * QUICK)
    directly = _from_newton(problem, point, "semismooth Newton", point.steps)
    if point.misfit <= ACCEPTABLE_MISFIT and problem.misfit(directly.moves) <= FITTING:
        return directly
    inner = solve_by_interior_point(problem, tolerance=min(tolerance, 1e-9))
    if inner.contradiction:
        return _from_interior(problem, inner)
    again = solve_by_newton(problem, convexity, start=inner.duals)
    steps = point.steps + inner.steps + again.steps
    indirectly = _from_newton(problem, again, "interior point, semismooth Newton", steps)
    return _best(problem, [indirectly, _from_interior(problem, inner), directly])


def _best(problem: TableProblem, found: list[Optimum]) -> Optimum:
    """The first that fits and is proven, or the one that is nearest to it, with the best bound of all."""
    bound = max(each.bound for each in found)

    def shortcoming(each: Optimum) -> float:
        objective = problem.costs.of_moves(each.moves)
        gap = (objective - bound) / problem.costs.gap_unit(objective)
        return max(gap, problem.misfit(each.moves), FITTING)

    return replace(min(found, key=shortcoming), bound=bound)


def _from_newton(problem: TableProblem, point: NewtonPoint, solver: str, steps: int) -> Optimum:
    moves = restore(problem, point.moves, point.softness)
    bound = problem.lower_bound(point.duals, problem.basis.adjoint(point.duals))
    return Optimum(moves, bound, solver, "unique", steps)


def _from_interior(problem: TableProblem, inner: InteriorPoint) -> Optimum:
    room = np.where(np.isfinite(problem.low), inner.moves - problem.low, 1.0)
    moves = restore(problem, inner.moves, np.where(problem.fixed, 0.0, room))
    return Optimum(moves, inner.bound, "interior point", "interior", inner.steps, inner.contradiction)


def _with_flat_stretches(problem: TableProblem, tolerance: float) -> Optimum:
    inner = solve_by_interior_point(problem, tolerance=0.3 * tolerance)
    found = _from_interior(problem, inner)
    if inner.contradiction or inner.misfit > 1e-4:
        return found
    steps, share = inner.steps, FIRST_SHARE
    for _ in range(TRIALS):
        convexity = _small_squares(problem, share, inner.moves)
        point = solve_by_newton(problem, convexity, start=inner.duals, max_steps=QUICK)
        if point.misfit > ACCEPTABLE_MISFIT:
            point = _by_way_of_interior_point(problem, convexity)
        steps += point.steps
        if point.misfit > ACCEPTABLE_MISFIT:
            share *= 10.0
            continue
        moves = restore(problem, point.moves, point.softness)
        objective = problem.costs.of_moves(moves)
        allowed = tolerance * problem.costs.gap_unit(objective)
        bound = inner.bound
        if objective - bound > allowed:
            nearby = replace(convexity, centre=moves)
            proof = solve_by_newton(problem, nearby, start=inner.duals, max_steps=QUICK)
            bound = max(bound, problem.lower_bound(proof.duals, problem.basis.adjoint(proof.duals)))
            steps += proof.steps
        found = replace(found, bound=max(found.bound, bound))
        if objective - found.bound <= allowed:
            return Optimum(moves, found.bound, "interior point, semismooth Newton", "min-l2", steps)
        if objective < problem.costs.of_moves(found.moves) and problem.misfit(moves) <= problem.misfit(found.moves):
            found = Optimum(moves, found.bound, "interior point, semismooth Newton", "near min-l2", steps)
        share *= 0.01
    return replace(found, steps=steps)


def _small_squares(problem: TableProblem, share: float, inner: Vector) -> Convexity:
    """Curvature κw² where a cell has none; cells without weight count as ordinary, around their inner point."""
    costs = problem.costs
    unmeasured = (costs.slope == 0.0) & (costs.curvature == 0.0)
    weight = np.where(unmeasured, 1.0, costs.slope)
    curvature = np.where(costs.curvature == 0.0, share * weight**2, costs.curvature)
    return Convexity(curvature, np.where(unmeasured, inner, 0.0))


def _by_way_of_interior_point(problem: TableProblem, convexity: Convexity) -> NewtonPoint:
    """Newton's method from the interior point's duals for the same strictly convex costs.

    The interior point measures moves from where a cell costs least, so its cells without weight start at their centres.
    """
    centre = convexity.centre
    costs = CellCosts(problem.costs.noisy + centre, problem.costs.slope, convexity.curvature)
    target = problem.target - problem.basis.apply(centre)
    around = replace(problem, costs=costs, target=target, low=problem.low - centre, high=problem.high - centre)
    inner = solve_by_interior_point(around, tolerance=1e-10)
    return solve_by_newton(problem, convexity, start=inner.duals)


# ----------------------------------------------------------------------------------------------------------------------
# How nearly a table can have marginals that no table has.
#
#     min over x ≥ 0 of ½ Σ_B ‖m_B(x) − m_B‖²
#
# is always attained. In coordinates it reads ½ Σ_u κ_u (c_u(x) − c̄_u)² plus a constant, where κ_u = Σ_B 1/(cells of B)
# over the marginals that fix u, and c̄_u is their weighted mean. The interior point solves it with slack: c(x) + λ/κ =
# c̄.


TOLERATED = 1e-8
"""Marginals that are missed by this share of the largest value are met."""


@dataclass(frozen=True, eq=False)
class NearestMarginals:
    """The least-squares violation: its largest entry, and for each marginal the largest of its own."""

    violation: float
    each: tuple[float, ...]


def nearest_marginals(known: KnownMarginals, *, free: NDArray[np.bool_], floor: bool) -> NearestMarginals:
    """How far the marginals of a table must stay from the known ones."""
    coordinates = known.coordinates
    basis = MarginalBasis(known.layout, coordinates.frequencies)
    unit = max(known.largest / max(known.layout.cells, 1), np.finfo(float).tiny) * 10.0
    if floor:
        zeros = np.zeros(known.layout.cells)
        high = np.where(free, np.inf, 0.0)
        problem = TableProblem(basis, coordinates.target / unit, CellCosts(zeros, zeros, zeros), zeros, high)
        slack = 1.0 / (coordinates.weight * known.layout.cells)
        inner = solve_by_interior_point(problem, tolerance=1e-10, slack=slack)
        reached = basis.apply(inner.moves) * unit
    else:
        reachable, size = basis.gram(free.astype(np.float64)), np.sqrt(coordinates.weight)
        best = np.linalg.lstsq(size[:, None] * reachable, size * coordinates.target, rcond=1e-10)[0]
        reached = reachable @ best
    misfits = known.misfits(reached)
    each = tuple(float(np.abs(misfit).max(initial=0.0)) for misfit in misfits)
    return NearestMarginals(max(each, default=0.0), each)


def refuse_impossible(known: KnownMarginals, *, free: NDArray[np.bool_], floor: bool) -> None:
    """Raise `Infeasible` where a glance shows that no table has these marginals."""
    if not known.each:
        return
    if any(known.coordinates.contradicted):
        pairs = zip(known.each, known.coordinates.contradicted, strict=True)
        involved = [each.name for each, bad in pairs if bad]
        _refuse(known, involved, "contradict each other where they overlap", free=free, floor=floor)
    for each in known.each:
        if floor and each.values.min(initial=0.0) < 0.0:
            _refuse(known, [each.name], "hold a negative value, and counts are not negative", free=free, floor=floor)
        if free.all():
            continue
        room = known.layout.marginal(free.astype(np.float64), each.places)
        if np.any((room == 0.0) & (each.values != 0.0)):
            _refuse(known, [each.name], "are not 0 where all cells are structural zeros", free=free, floor=floor)


def refuse_if_infeasible(known: KnownMarginals, *, free: NDArray[np.bool_], floor: bool) -> None:
    """Raise `Infeasible` if the nearest marginals are not the known ones."""
    nearest = nearest_marginals(known, free=free, floor=floor)
    if nearest.violation <= TOLERATED * max(known.largest, np.finfo(float).tiny):
        return
    pairs = zip(known.each, nearest.each, strict=True)
    involved = [each.name for each, amount in pairs if amount > 0.01 * nearest.violation]
    raise _infeasible(involved, "belong to no table of non-negative counts", nearest.violation)


def _refuse(known: KnownMarginals, involved: list[str], reason: str, *, free: NDArray[np.bool_], floor: bool) -> None:
    nearest = nearest_marginals(known, free=free, floor=floor)
    raise _infeasible(involved, reason, nearest.violation)


def _infeasible(involved: list[str], reason: str, violation: float) -> Infeasible:
    shown = ", ".join(involved[:6]) + (f" and {len(involved) - 6} more" if len(involved) > 6 else "")
    return Infeasible(
        f"the marginals on {shown} {reason}; the closest table misses one of them by {violation:.6g}. Correct them, or "
        "give them as measurements with noise instead of as exact",
        violation=violation,
        constraints=involved,
    )
