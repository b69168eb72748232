"""`fit_table`: the most likely table with known marginals, by the method that its costs allow.

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

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.solvers.fit import Fit, Infeasible, Status
from consilience.solvers.losses import Loss, checked_clipped, checked_noisy, checked_weights
from consilience.solvers.marginal_tables.controlled_rounding import check_whole, round_cells
from consilience.solvers.marginal_tables.dual_methods import (
    Convexity,
    NewtonPoint,
    fit_groups,
    restore,
    solve_by_newton,
)
from consilience.solvers.marginal_tables.interior_point import InteriorPoint, solve_by_interior_point
from consilience.solvers.marginal_tables.marginal_basis import CellLayout, MarginalBasis, Vector
from consilience.solvers.marginal_tables.problem import (
    CellCosts,
    KnownMarginals,
    TableProblem,
    build_problem,
    fill_cells,
    read_marginals,
)

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


# ----------------------------------------------------------------------------------------------------------------------
# `fit_table`: the most likely table among those with known marginals (Lee, Wang and Kifer 2015, §5.1).


MEMORY_LIMIT = 8_000_000_000
"""Bytes; a problem that would need more is refused before anything is allocated."""

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
    memory_limit: int = MEMORY_LIMIT,
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
    table = _read(
        noisy, marginals, loss=loss, alpha=alpha, weights=weights, clipped=clipped, nonnegative=nonnegative, zeros=zeros
    )
    if not 0.0 < tolerance < 1.0:
        raise DeclarationError(f"the tolerance is {tolerance!r}; give a relative gap between 0 and 1, such as 1e-9")
    if integers:
        check_whole(table.known)
    refuse_impossible(table.known, free=table.free, floor=table.floor)
    optimum = _fitted(table, tolerance, memory_limit)
    violation = _violation(table, optimum.cells)
    met = violation <= TOLERATED * max(table.known.largest, float(np.abs(table.costs.noisy).max()))
    if optimum.contradiction or not met:
        refuse_if_infeasible(table.known, free=table.free, floor=table.floor)
    return _report(table, optimum, violation, tolerance=tolerance, met=met, integers=integers)


@dataclass(frozen=True, eq=False)
class _Table:
    """What was asked, in the solvers' order of cells."""

    layout: CellLayout
    known: KnownMarginals
    costs: CellCosts
    free: NDArray[np.bool_]
    floor: bool


def _read(
    noisy: ArrayLike,
    marginals: Marginals,
    *,
    loss: str,
    alpha: float,
    weights: ArrayLike | None,
    clipped: ArrayLike | None,
    nonnegative: bool,
    zeros: ArrayLike | None,
) -> _Table:
    measure = Loss.named(loss, alpha=alpha)
    shape = np.shape(noisy)
    weight = checked_weights(weights, shape)
    values = checked_noisy(noisy, weights=weight).reshape(shape)
    if values.size == 0:
        raise DeclarationError(f"the noisy table has shape {shape} and no cell; give a table with at least one")
    if checked_clipped(clipped, values) is not None and not nonnegative:
        raise DeclarationError(
            "clipped values are at most 0 before clipping, which a table with negative counts would need to know; use "
            "nonnegative=True, or weight 0 for clipped values"
        )
    layout = CellLayout(shape)
    slope, curvature = measure.coefficients(layout.flat(weight))
    known = read_marginals(marginals, layout)
    costs = CellCosts(layout.flat(values), slope, curvature)
    return _Table(layout, known, costs, ~layout.flat(_structural_zeros(zeros, shape)), nonnegative)


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
    solver: str
    ties: str
    steps: int
    contradiction: bool


def _fitted(table: _Table, tolerance: float, memory_limit: int) -> _Fitted:
    costs = table.costs
    if not table.known.each:
        cells = np.maximum(costs.noisy, 0.0) if table.floor else costs.noisy.copy()
        cells[~table.free] = 0.0
        return _Fitted(cells, costs.of_moves(cells - costs.noisy), "closed form", "min-l2", 0, False)
    widest = table.known.widest()
    if widest is None:
        return _by_iteration(table, tolerance, memory_limit)
    ceiling = _ceilings(table)
    grouped = fit_groups(table.layout, widest, costs, free=ceiling > 0.0, floor=table.floor)
    bound = grouped.bound(table.layout, widest, costs, ceiling, table.floor)
    return _Fitted(grouped.cells, bound, "closed form", "min-l2", 0, False)


def _ceilings(table: _Table) -> Vector:
    """The most that each cell can hold: the least marginal around it, 0 for structural zeros, ∞ without a floor."""
    ceiling = table.known.ceilings() if table.floor else np.full(table.layout.cells, np.inf)
    ceiling[~table.free] = 0.0
    return ceiling


def predicted_table_bytes(cells: int, rows: int) -> int:
    """The memory of an interior point over so many cells and independent marginal values."""
    return 8 * (28 * cells + 5 * rows * rows)


def _by_iteration(table: _Table, tolerance: float, memory_limit: int) -> _Fitted:
    rows = table.known.coordinates.frequencies.size
    need = predicted_table_bytes(table.layout.cells, rows)
    if need > memory_limit:
        raise TooLarge(
            f"fitting {table.layout.cells:,} cells to {rows:,} independent marginal values needs {need / 1e9:.1f} GB, "
            f"the limit is {memory_limit / 1e9:.1f} GB; fix fewer marginals, merge values, or raise memory_limit"
        )
    ceiling = _ceilings(table)
    unmeasured = (table.costs.slope == 0.0) & (table.costs.curvature == 0.0) & table.free
    left_out = unmeasured if not table.floor and unmeasured.any() else None
    problem = build_problem(table.known, table.costs, ceiling=ceiling, floor=table.floor, left_out=left_out)
    found = find_optimum(problem, tolerance=tolerance)
    # Cells that moved to their lower end are exactly 0, and cells that did not move keep their noisy value exactly.
    cells = np.where(problem.fixed, 0.0, table.costs.noisy + found.moves * problem.unit)
    if table.floor:
        cells[found.moves <= problem.low] = 0.0
        np.maximum(cells, 0.0, out=cells)
    held = table.costs.of_moves(np.where(problem.fixed, table.costs.noisy, 0.0))
    if left_out is not None:
        coordinates = table.known.coordinates
        basis = MarginalBasis(table.layout, coordinates.frequencies)
        cells = fill_cells(basis, coordinates.target, cells, left_out)
    bound = held + found.bound * problem.loss_unit
    return _Fitted(cells, bound, found.solver, found.ties, found.steps, found.contradiction)


def _violation(table: _Table, cells: Vector) -> float:
    """The largest error of a marginal value."""
    if not table.known.each:
        return 0.0
    basis = MarginalBasis(table.layout, table.known.coordinates.frequencies)
    misfits = table.known.misfits(basis.apply(cells))
    return max(float(np.abs(misfit).max(initial=0.0)) for misfit in misfits)


def _report(table: _Table, optimum: _Fitted, violation: float, *, tolerance: float, met: bool, integers: bool) -> Fit:
    cells, objective = optimum.cells, table.costs.of_moves(optimum.cells - table.costs.noisy)
    rounding = table.costs.of_rounding(cells)
    proven = objective - optimum.bound <= tolerance * table.costs.gap_unit(objective) + rounding
    stats: dict[str, float | int | str] = {
        "solver": optimum.solver,
        "ties": optimum.ties,
        "steps": optimum.steps,
        "constraints": table.known.coordinates.frequencies.size if table.known.each else 0,
    }
    if integers:
        cells = round_cells(cells, table.known, table.costs, free=table.free, floor=table.floor)
        stats["rounding_cost"] = table.costs.of_moves(cells - table.costs.noisy) - objective
        objective, violation = table.costs.of_moves(cells - table.costs.noisy), _violation(table, cells)
    stats["violation"] = violation
    return Fit(
        counts=np.asarray(table.layout.table(cells), dtype=np.float64),
        objective=objective,
        gap=max(objective - optimum.bound, 0.0),
        status=Status.CONVERGED if proven and met else Status.STALLED,
        stats=stats,
    )
