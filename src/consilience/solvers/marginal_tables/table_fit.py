"""`fit_table`: the most likely table among those with known marginals (Lee, Wang and Kifer 2015, §5.1)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.solvers.fit import Fit, Status
from consilience.solvers.losses import Loss, checked_clipped, checked_noisy, checked_weights
from consilience.solvers.marginal_tables.controlled_rounding import check_whole, round_cells
from consilience.solvers.marginal_tables.grouped_totals import fit_groups
from consilience.solvers.marginal_tables.known_marginals import KnownMarginals, fill_cells, read_marginals
from consilience.solvers.marginal_tables.marginal_basis import CellLayout, MarginalBasis, Vector
from consilience.solvers.marginal_tables.optimum import TOLERATED, find_optimum, refuse_if_infeasible, refuse_impossible
from consilience.solvers.marginal_tables.problem import CellCosts, build_problem

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
