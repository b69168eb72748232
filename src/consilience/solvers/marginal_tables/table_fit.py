"""`fit_table`: the most likely table with known marginals, by the method that its costs allow.

*Strictly convex costs* (L2, the elastic net): Newton's method on duals; where it does not settle, an interior point
gives it a start from which it does.

*Costs with flat stretches* (L1, cells without weight): the interior point finds duals λ and their bound on the
optimum. The optimum is seldom unique. An interior point ends where parts and their multipliers are strictly
complementary, so it shows the face of all optima: which cells keep their noisy value or are 0 in every optimum, and
which way the others move (Güler and Ye 1993). Of all optima the one with the least Σ w²(x − y)², the limit of the
elastic net as its square vanishes, is then the shortest point of the face, which Newton's method finds exactly. Where
its loss meets the bound it is optimal. Cells without weight are held near where the interior point put them, as nothing
else speaks about them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.solvers.fit import (
    SHARED,
    Fit,
    Infeasible,
    Loss,
    Status,
    checked_clipped,
    checked_noisy,
    checked_weights,
)
from consilience.solvers.marginal_tables.controlled_rounding import check_whole, round_cells
from consilience.solvers.marginal_tables.dual_methods import (
    Convexity,
    NewtonPoint,
    fit_groups,
    normal_equations,
    solve_by_newton,
)
from consilience.solvers.marginal_tables.interior_point import InteriorPoint, solve_by_interior_point
from consilience.solvers.marginal_tables.marginal_basis import CellLayout, Vector
from consilience.solvers.marginal_tables.problem import (
    CellCosts,
    KnownMarginals,
    TableProblem,
    build_problem,
    fill_cells,
    read_marginals,
)


@dataclass(frozen=True)
class MarginalTableSettings:
    """How the methods take turns; pure numbers, by trial, no figures kept. Misfits are relative to the largest."""

    unweighted_curvature: float = 1e-3
    """The curvature of cells without weight, in units of the mean slope over the noise."""
    newton_limit: int = 25
    """Newton steps after which an interior point for the same costs gives a better start."""
    right_piece: float = 1e-6
    """A Newton iterate that misses the marginals by less than this is on the right piece."""
    fitting: float = 1e-10
    """Moves that miss the marginals by less than this fit."""
    restorations: int = 4
    """How often moves are corrected by their misfit."""


SETTINGS = MarginalTableSettings()


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
    point = solve_by_newton(problem, convexity, max_steps=2 * SETTINGS.newton_limit)
    directly = _from_newton(problem, point, "semismooth Newton", point.steps)
    if point.misfit <= SETTINGS.right_piece and problem.misfit(directly.moves) <= SETTINGS.fitting:
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
        return max(gap, problem.misfit(each.moves), SETTINGS.fitting)

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
    face, convexity, start = _optimal_face(problem, inner)
    point = solve_by_newton(face, convexity, start=start, max_steps=2 * SETTINGS.newton_limit)
    steps = inner.steps + point.steps
    if point.misfit > SETTINGS.right_piece:
        return replace(found, steps=steps)
    moves = restore(face, point.moves, point.softness)
    objective = problem.costs.of_moves(moves)
    allowed = tolerance * problem.costs.gap_unit(objective)
    bound = inner.bound
    if objective - bound > allowed:
        nearby = Convexity(np.where(convexity.curvature > 0.0, convexity.curvature, 1.0), moves)
        proof = solve_by_newton(problem, nearby, start=inner.duals, max_steps=SETTINGS.newton_limit)
        bound = max(bound, problem.lower_bound(proof.duals, problem.basis.adjoint(proof.duals)))
        steps += proof.steps
    shortest = Optimum(moves, bound, "interior point, semismooth Newton", "near min-l2", steps)
    if objective - bound <= allowed:
        return replace(shortest, ties="min-l2") if inner.parted else shortest
    return _best(problem, [shortest, replace(found, bound=bound, steps=steps)])


def _optimal_face(problem: TableProblem, inner: InteriorPoint) -> tuple[TableProblem, Convexity, Vector | None]:
    """The shortest point of the optima as a problem with strictly convex costs, and a start.

    Where the loss has curvature only cells without weight are flat, and they alone are held near their inner point.
    """
    costs, zeros = problem.costs, np.zeros_like(problem.low)
    unmeasured = (costs.slope == 0.0) & (costs.curvature == 0.0)
    centre = np.where(unmeasured, inner.moves, 0.0)
    if costs.curvature.any():
        return (
            problem,
            Convexity(np.where(unmeasured, SETTINGS.unweighted_curvature, costs.curvature), centre),
            inner.duals,
        )
    low, high = inner.face(problem.low)
    curvature = np.where(unmeasured, 1.0, costs.slope**2)
    face = replace(problem, costs=CellCosts(costs.noisy, zeros, zeros), low=low, high=high)
    soft = np.where(face.fixed, 0.0, 0.5 / curvature)
    held = np.where(face.fixed, low, centre)
    missing = problem.target - problem.basis.apply(held)
    start = normal_equations(problem.basis, soft).solve(missing) if soft.any() else None
    return face, Convexity(curvature, centre), start


# ----------------------------------------------------------------------------------------------------------------------
# How nearly a table can have marginals that no table has.
#
#     min over x ≥ 0 of ½ Σ_B ‖m_B(x) − m_B‖²
#
# is always attained. In coordinates it reads ½ Σ_u κ_u (c_u(x) − c̄_u)² plus a constant, where κ_u = Σ_B 1/(cells of B)
# over the marginals that fix u, and c̄_u is their weighted mean. The interior point solves it with slack: c(x) + λ/κ =
# c̄.


def nearest_marginals(known: KnownMarginals) -> list[float]:
    """How far each marginal of a table must stay from the known ones, at its largest entry, in least squares."""
    coordinates, basis, cells = known.coordinates, known.basis, known.layout.cells
    unit = max(known.largest / max(cells, 1), np.finfo(float).tiny) * 10.0
    if known.floor:
        zeros = np.zeros(cells)
        high = np.where(known.free, np.inf, 0.0)
        problem = TableProblem(basis, coordinates.target / unit, CellCosts(zeros, zeros, zeros), zeros, high)
        inner = solve_by_interior_point(problem, tolerance=1e-10, slack=1.0 / (coordinates.weight * cells))
        reached = basis.apply(inner.moves) * unit
    else:
        reachable, size = basis.gram(known.free.astype(np.float64)), np.sqrt(coordinates.weight)
        best = np.linalg.lstsq(size[:, None] * reachable, size * coordinates.target, rcond=1e-10)[0]
        reached = reachable @ best
    return [float(np.abs(misfit).max(initial=0.0)) for misfit in known.misfits(reached)]


def refuse_impossible(known: KnownMarginals) -> None:
    """Raise `Infeasible` where a glance shows that no table has these marginals."""
    if not known.each:
        return
    contradicted = known.coordinates.contradicted
    if any(contradicted):
        involved = [each.name for each, bad in zip(known.each, contradicted, strict=True) if bad]
        raise _infeasible(involved, "contradict each other where they overlap", max(nearest_marginals(known)))
    for each in known.each:
        reason = ""
        if known.floor and each.values.min(initial=0.0) < 0.0:
            reason = "hold a negative value, and counts are not negative"
        elif not known.free.all():
            room = known.layout.marginal(known.free.astype(np.float64), each.places)
            if np.any((room == 0.0) & (each.values != 0.0)):
                reason = "are not 0 where all cells are structural zeros"
        if reason:
            raise _infeasible([each.name], reason, max(nearest_marginals(known)))


def refuse_if_infeasible(known: KnownMarginals) -> None:
    """Raise `Infeasible` if the nearest marginals are not the known ones."""
    nearest = nearest_marginals(known)
    violation = max(nearest, default=0.0)
    if violation > SHARED.tolerated * max(known.largest, np.finfo(float).tiny):
        pairs = zip(known.each, nearest, strict=True)
        involved = [each.name for each, amount in pairs if amount > 0.01 * violation]
        raise _infeasible(involved, "belong to no table of non-negative counts", violation)


def _infeasible(involved: list[str], reason: str, violation: float) -> Infeasible:
    shown = ", ".join(involved[:6]) + (f" and {len(involved) - 6} more" if len(involved) > 6 else "")
    return Infeasible(
        f"the marginals on {shown} {reason}; the closest table misses one of them by {violation:.6g}. Correct them, or "
        "give them as measurements with noise instead of as exact",
        violation=violation,
        constraints=involved,
    )


# ----------------------------------------------------------------------------------------------------------------------
# `fit_table`: the most likely table among those with known marginals (Lee, Wang and Kifer 2015, §5.1).


Marginals = Mapping[tuple[int, ...], ArrayLike]


def fit_table(
    noisy: ArrayLike,
    marginals: Marginals,
    *,
    loss: str = "elastic",
    alpha: float = 0.9,
    weights: ArrayLike | None = None,
    clipped: ArrayLike | None = None,
    nonnegative: bool = True,
    zeros: ArrayLike | None = None,
    integers: bool = False,
    tolerance: float = 1e-9,
    memory_limit: int = SHARED.memory_limit,
) -> Fit:
    """The table of least loss against the noisy one, among all tables with exactly these marginals.

    `marginals` maps tuples of axes to the sums over all other axes, with axes in the order of the tuple; () is the
    total. `zeros` is True where a cell cannot occur. Losses and weights are those of `losses`; a weight of 0 says that
    a cell was not measured. `clipped` marks noisy values that were negative and published as 0; in a table without
    negative counts they count as measured zeros.

    Of several L1 optima the result is the one with the least Σ w²(x − y)²; `stats["ties"]` says "min-l2" when
    that is certain. Cells that were not measured are left open by the loss and take some optimal value. With `integers`
    the fitted table is rounded to whole counts that keep every marginal, each cell next to its fitted value wherever
    such a table exists; the gap then includes what rounding costs. Marginals that no table has raise `Infeasible`.

    >>> fit = fit_table([[3.2, 0.7], [-1.4, 5.9]], {(0,): [4, 5], (1,): [3, 6]}, loss="l2")
    >>> fit.counts.round(6)
    array([[3., 1.],
           [0., 5.]])
    """
    shape = np.shape(noisy)
    layout, weight = CellLayout(shape), checked_weights(weights, shape)
    values = checked_noisy(noisy, weights=weight).reshape(shape)
    _check_values(values, clipped, nonnegative=nonnegative)
    costs = CellCosts(layout.flat(values), *Loss.named(loss, alpha=alpha).coefficients(layout.flat(weight)))
    free = ~layout.flat(_structural_zeros(zeros, shape))
    known = read_marginals(marginals, layout, free=free, floor=nonnegative)
    if not 0.0 < tolerance < 1.0:
        raise DeclarationError(f"the tolerance is {tolerance!r}; give a relative gap between 0 and 1, such as 1e-9")
    if integers:
        check_whole(known)
    refuse_impossible(known)
    optimum = _fitted(known, costs, tolerance, memory_limit)
    violation = known.violation(optimum.cells)
    met = violation <= SHARED.tolerated * max(known.largest, float(np.abs(costs.noisy).max()))
    if optimum.contradiction or not met:
        refuse_if_infeasible(known)
    return _report(known, costs, optimum, violation, tolerance=tolerance, met=met, integers=integers)


def _check_values(values: Vector, clipped: ArrayLike | None, *, nonnegative: bool) -> None:
    if values.size == 0:
        raise DeclarationError(f"the noisy table has shape {values.shape} and no cell; give a table with at least one")
    if checked_clipped(clipped, values) is not None and not nonnegative:
        raise DeclarationError(
            "clipped values are at most 0 before clipping, which a table with negative counts would need to know; use "
            "nonnegative=True, or weight 0 for clipped values"
        )


def _structural_zeros(zeros: ArrayLike | None, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    mask = np.zeros(shape, dtype=np.bool_) if zeros is None else np.asarray(zeros)
    if mask.dtype != np.bool_ or mask.shape != shape:
        raise DeclarationError(
            f"`zeros` has shape {mask.shape} and type {mask.dtype} for a table of shape {shape}; "
            "give True or False for each cell"
        )
    return mask


@dataclass(frozen=True, eq=False)
class _Fitted:
    """Cells, the proof of how good they are, and where they came from."""

    cells: Vector
    bound: float
    solver: str = "closed form"
    ties: str = "min-l2"
    steps: int = 0
    contradiction: bool = False


def _fitted(known: KnownMarginals, costs: CellCosts, tolerance: float, memory_limit: int) -> _Fitted:
    if not known.each:
        cells = np.where(known.free, np.maximum(costs.noisy, 0.0) if known.floor else costs.noisy, 0.0)
        return _Fitted(cells, costs.of_moves(cells - costs.noisy))
    widest = known.widest()
    if widest is None:
        return _by_iteration(known, costs, tolerance, memory_limit)
    return _Fitted(*fit_groups(known, widest, costs))


def predicted_table_bytes(cells: int, rows: int) -> int:
    """The memory of an interior point over so many cells and independent marginal values."""
    return 8 * (42 * cells + 5 * rows * rows)


def _by_iteration(known: KnownMarginals, costs: CellCosts, tolerance: float, memory_limit: int) -> _Fitted:
    rows, size = known.coordinates.frequencies.size, known.layout.cells
    need = predicted_table_bytes(size, rows)
    if need > memory_limit:
        raise TooLarge(
            f"fitting {size:,} cells to {rows:,} independent marginal values needs {need / 1e9:.1f} GB, the limit is "
            f"{memory_limit / 1e9:.1f} GB; fix fewer marginals, merge values, or raise memory_limit"
        )
    unmeasured = (costs.slope == 0.0) & (costs.curvature == 0.0) & known.free
    left_out = unmeasured if not known.floor and unmeasured.any() else None
    problem = build_problem(known, costs, left_out=left_out)
    found = find_optimum(problem, tolerance=tolerance)
    # Cells that moved to their lower end are exactly 0, and cells that did not move keep their noisy value exactly.
    cells = np.where(problem.fixed, 0.0, costs.noisy + found.moves * problem.unit)
    if known.floor:
        cells[found.moves <= problem.low] = 0.0
        np.maximum(cells, 0.0, out=cells)
    held = costs.of_moves(np.where(problem.fixed, costs.noisy, 0.0))
    if left_out is not None:
        cells = fill_cells(known.basis, known.coordinates.target, cells, left_out)
    bound = held + found.bound * problem.loss_unit
    return _Fitted(cells, bound, found.solver, found.ties, found.steps, found.contradiction)


def _report(
    known: KnownMarginals,
    costs: CellCosts,
    optimum: _Fitted,
    violation: float,
    *,
    tolerance: float,
    met: bool,
    integers: bool,
) -> Fit:
    cells, objective = optimum.cells, costs.of_moves(optimum.cells - costs.noisy)
    proven = objective - optimum.bound <= tolerance * costs.gap_unit(objective) + costs.of_rounding(cells)
    stats: dict[str, float | int | str] = {
        "solver": optimum.solver,
        "ties": optimum.ties,
        "steps": optimum.steps,
        "constraints": known.coordinates.frequencies.size if known.each else 0,
    }
    if integers:
        cells = round_cells(cells, known, costs)
        before, objective = objective, costs.of_moves(cells - costs.noisy)
        stats["rounding_cost"], violation = objective - before, known.violation(cells)
    stats["violation"] = violation
    return Fit(
        counts=np.asarray(known.layout.table(cells), dtype=np.float64),
        objective=objective,
        gap=max(objective - optimum.bound, 0.0),
        status=Status.CONVERGED if proven and met else Status.STALLED,
        stats=stats,
    )


# ----------------------------------------------------------------------------------------------------------------------
# Moves that nearly give the right marginals, corrected the last bit.
#
# The correction diag(softness) Φᵀ dλ with Φ diag(softness) Φᵀ dλ = r − Φδ is the least one that removes the misfit,
# each cell's square divided by its softness. It is computed from the small misfit itself, so it is accurate where moves
# that are recomputed from duals are not.


def restore(problem: TableProblem, moves: Vector, softness: Vector) -> Vector:
    """Moves whose marginals fit as well as rounding allows, corrected only where cells are soft."""
    best, least = moves, problem.misfit(moves)
    if least <= 1e-15 or not softness.any():
        return moves
    equations = normal_equations(problem.basis, softness)
    for _ in range(SETTINGS.restorations):
        residual = problem.target - problem.basis.apply(best)
        corrected = best + softness * problem.basis.adjoint(equations.solve(residual))
        np.maximum(corrected, problem.low, out=corrected)
        misfit = problem.misfit(corrected)
        if not misfit < 0.5 * least:
            return corrected if misfit < least else best
        best, least = corrected, misfit
    return best
