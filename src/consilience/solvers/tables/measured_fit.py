"""`fit_measured_table`: the non-negative table of least cost behind measured rows and exact facts.

    min over x ≥ 0 of Σ φ(Bx − c)    with exact rows met, Σx = T where it is known, and x = 0 outside allowed cells.

Costs are those of `row_costs`: squares, absolute values, both, or one side of them, row by row. The way there: facts
alone first, which finds a table that meets them or shows that none does; then squares in place of all costs; then the
costs themselves. Each leg begins where the last one ended. `entropic_proximal_point` is the method; B is implicit, its
rows are divided by the scale of their noise, and a table may have 10⁷ cells.

**Which minimiser.** For squares the fitted values Bx of all minimisers agree; the tables need not. Every iterate has
the form x = start·exp(−Bᵀθ), so among all tables with the same Bx (and the same total, if it is fixed) it is the one
nearest to the start in relative entropy. The default start, uniform with the least-squares total, thus leads to the
table of greatest entropy, which holds no association that was not measured: one-way marginals alone give their product.
Cells that no row touches keep their start (rescaled, if the total is fixed). Cells at their bound approach zero without
reaching it exactly.

**Why this method.** Accelerated projected gradients bring the objective down as fast, but a small gap asks for a
gradient that is right to about 10⁻⁸ in its worst cell, and there they crawl, the more so on prefix sums and trees,
whose rows are nearly collinear.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError, MeasurementError
from consilience.solvers.fit import Fit, Infeasible, Status
from consilience.solvers.tables.entropic_proximal_point import SETTINGS as SEARCH
from consilience.solvers.tables.entropic_proximal_point import Progress, Search
from consilience.solvers.tables.row_costs import RowCosts, RowProducts
from consilience.solvers.tables.table_problem import (
    Array,
    NewtonEquations,
    Operator,
    Problem,
    half_square,
    inner,
    offer_cover,
    seek_cover,
)

# ----------------------------------------------------------------------------------------------------------------------
# Exact facts about a table: whether any table meets them, a first table that does, and the last correction.
#
# The facts are rows E with values e. The table of greatest entropy that meets them is found as the non-negative
# least-squares fit of the facts alone, whose objective ½‖Ex − e‖² then is 0; if the facts contradict each other it is
# not, and its certificate proves that. A table that nearly meets the facts is corrected to x·exp(−Eᵀμ), by Newton's
# method for Ex = e.


@dataclass(frozen=True)
class FactSettings:
    """How long tables that meet facts are sought; by trial, no figures kept."""

    restoring_steps: int = 30
    """Newton steps of the last correction."""
    feasibility_steps: int = 20_000
    """Steps towards a first table that meets them."""


SETTINGS = FactSettings()


@dataclass(frozen=True, eq=False)
class Facts:
    """Exact rows: their operator, their values, and a name for each group of rows, which ends at `ends`."""

    operator: Operator
    values: Array
    names: Sequence[str]
    ends: NDArray[np.intp]
    products: RowProducts | None = None
    unit: float = 1.0
    """What a row's value is times to be a count."""

    @property
    def size(self) -> float:
        """The largest value, to which errors are compared."""
        return max(float(np.abs(self.values).max(initial=0.0)), np.finfo(np.float64).tiny)

    def misses(self, table: Array) -> list[float]:
        """By how much, at most, each group is missed."""
        away = np.abs(self.operator.apply(table) - self.values)
        return [float(part.max(initial=0.0)) for part in np.split(away, self.ends[:-1])]

    def refuse_beyond(self, share: float, table: Array, *, kind: str, remedy: str) -> None:
        """Raise `Infeasible` where the nearest table of its kind misses a fact by more than this share of the size."""
        misses = self.misses(table)
        violation = max(misses)
        if violation <= share * self.size:
            return
        involved = [name for name, miss in zip(self.names, misses, strict=True) if miss > 0.01 * violation]
        shown = "; ".join(involved[:6]) + (f" and {len(involved) - 6} more" if len(involved) > 6 else "")
        raise Infeasible(
            f"no {kind} agrees with {shown}; the nearest misses one of them by {violation * self.unit:.6g}. {remedy}, "
            "or bring them as measurements with noise",
            violation=violation * self.unit,
            constraints=involved,
        )


def first_table(facts: Facts, start: Array, *, total: float | None, allowed: NDArray[np.bool_] | None) -> Array:
    """The table nearest to the start, in relative entropy, that meets the facts; `Infeasible` where none does."""
    met = Search.settings.met
    kind, remedy = "table of non-negative counts", "Correct them or the impossible cells"
    if not start.any():
        facts.refuse_beyond(met, start, kind=kind, remedy=remedy)
        return start
    fit = fit_measured_table(
        facts.operator,
        RowCosts.squares(facts.values),
        products=facts.products,
        start=start,
        total=total,
        allowed=allowed,
        tolerance=0.1,
        noise_energy=max(0.5 * (met * facts.size) ** 2, SEARCH.hardly_matters * half_square(facts.values)),
        max_steps=SETTINGS.feasibility_steps,
    )
    table = np.array(fit.counts)
    if max(facts.misses(table)) > met * facts.size and fit.objective > 0:
        corrected = restored(facts, total, allowed, table)
        table = corrected if max(facts.misses(corrected)) < max(facts.misses(table)) else table
    share = met if fit.objective > fit.gap else 1e3 * met
    facts.refuse_beyond(share, table, kind=kind, remedy=remedy)
    return table


def restored(facts: Facts, total: float | None, allowed: NDArray[np.bool_] | None, table: Array) -> Array:
    """The table, which nearly meets the facts, corrected."""
    problem = Problem(facts.operator, facts.values, total, allowed)
    equations = NewtonEquations(problem, facts.products)
    best, fitted = table, problem.apply(table)
    least = float(np.abs(fitted - facts.values).max())
    nothing = np.zeros_like(facts.values)
    for _ in range(SETTINGS.restoring_steps):
        if least <= 1e-14 * facts.size:
            break
        change = problem.adjoint(equations.solve(best, fitted, 1.0, nothing, fitted - facts.values))
        # Facts that contradict each other send the correction to infinity; it is then not taken.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            corrected = best * np.exp(-change)
            if total is not None:
                corrected *= np.divide(total, corrected.sum())
        if not np.all(np.isfinite(corrected)):
            break
        fitted = problem.apply(corrected)
        misfit = float(np.abs(fitted - facts.values).max())
        if not misfit < least:
            break
        best, least = corrected, misfit
    return best


# ----------------------------------------------------------------------------------------------------------------------
# `fit_measured_table`: the non-negative table of least cost behind measured rows and exact facts.


BYTES_PER_CELL, BYTES_PER_ROW = 66, 450
"""What a cell, in eight arrays, and a measured answer take at the peak."""


def predicted_bytes(cells: int, rows: int) -> int:
    """The memory that a fit of so many cells to so many answers takes, besides the row products'."""
    return BYTES_PER_CELL * cells + BYTES_PER_ROW * rows


def fit_measured_table(
    operator: Operator,
    costs: RowCosts,
    *,
    products: RowProducts | None = None,
    facts: Facts | None = None,
    total: float | None = None,
    allowed: NDArray[np.bool_] | None = None,
    start: Array | None = None,
    cover: Array | None = None,
    tolerance: float = 1e-4,
    noise_energy: float | None = None,
    max_steps: int = 50_000,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Fit:
    """The table of least cost, to within a certified gap of `tolerance` · max(objective, expected noise).

    `facts` are the exact rows of the costs once more, alone. `products` are the row products of all rows; without them
    Newton's equations are solved by iteration. `total` fixes Σx; cells outside `allowed` are zero. `noise_energy` is
    the objective to expect from noise alone, by default that of the costs; next to no residual is compared with it, or
    with 10⁻¹² of the objective at zero or at the start where that is larger and noise explains the fit.

    `cover` is a vector v with Bᵀv > 0 on all touched cells, from which the gap is proven if the total is free. Without
    it, or where it leaves cells uncovered, one is sought; if there is none (nothing measured bounds the total) the fit
    ends `UNCERTIFIED`. A cell where `start` is zero is lifted a little, because the method never leaves zero. A step is
    one application of Bᵀ and about one of B; `time_limit` is in seconds; `progress(steps, objective, gap)` is called
    after every Newton step. `stats["violation"]` is what remains of the facts' errors.
    """
    started = time.monotonic()
    _check_options(tolerance, noise_energy, max_steps, time_limit)
    problem = Problem(operator, _numbers(costs.observed, "observed values"), total, _mask(operator, allowed))
    first_costs = costs if costs.squares_alone else costs.stand_in()
    table = _start(problem, first_costs, costs.squares_alone, facts, start)
    if total is None and table.any():
        _provide_cover(problem, cover)
    search = Search(
        problem,
        first_costs,
        NewtonEquations(problem, products),
        partial(restored, facts, total, problem.allowed) if facts is not None else np.copy,
        tolerance=tolerance if costs.squares_alone else Search.settings.roughly,
        scale=first_costs.expected if noise_energy is None or not costs.squares_alone else noise_energy,
        max_steps=max_steps,
        deadline=np.inf if time_limit is None else started + time_limit,
        progress=progress,
        counts=table,
    )
    if not table.any():
        return _report(search, costs, table, Status.CONVERGED, facts, started)
    search.rho = _first_rho(search)
    status = search.run()
    if not costs.squares_alone and status not in (Status.STEP_LIMIT, Status.TIME_LIMIT):
        search.move_centre()
        search = replace(
            search,
            costs=costs,
            tolerance=tolerance,
            scale=costs.expected if noise_energy is None else noise_energy,
            rho=search.settings.step_back * search.rho,
            started_from=search.logarithms,
        )
        status = search.run()
    best = search.best.counts
    return _report(search, costs, table if best is None else best, status, facts, started)


def _start(problem: Problem, costs: RowCosts, squares: bool, facts: Facts | None, start: Array | None) -> Array:
    """A table that is positive on the allowed cells; zero where that is the only table, or for squares the best one.

    Without a start it is uniform, with the total or the least-squares one; where there are facts, the nearest of that
    which meets them.
    """
    table = problem.allowed_table()
    cells = float(table.sum())
    if problem.total is not None:
        _check_total(problem.total, cells)
    if start is not None:
        table *= _lifted(_numbers(start, "cells of the start", problem.operator.shape_in), table)
    if problem.total is not None or cells == 0:
        table *= (problem.total or 0.0) / max(float(table.sum()), np.finfo(np.float64).tiny)
    elif start is None and squares and facts is None:
        table *= _least_squares_total(problem, costs.curvature, table) / cells
    elif start is None:
        fitted = problem.apply(table)
        gain, size = inner(costs.curvature * fitted, problem.observed), inner(costs.curvature * fitted, fitted)
        largest = float(np.abs(fitted).max(initial=0.0))
        table *= max(gain / size if size > 0 else 0.0, 1.0 / largest) if largest > 0 else 0.0
    return table if facts is None else first_table(facts, table, total=problem.total, allowed=problem.allowed)


def _lifted(start: Array, allowed_table: Array) -> Array:
    """The start with its zeros lifted to a millionth of its mean allowed cell."""
    mean = inner(start, allowed_table) / float(allowed_table.sum())
    if start.min() < 0 or mean <= 0:
        raise DeclarationError(
            f"the start has a smallest cell of {start.min():.3g} and a mean of {mean:.3g} on the allowed cells, but "
            "it must be non-negative and not all zero; leave it out to start from a uniform table"
        )
    return np.maximum(start, 1e-6 * mean)


def _least_squares_total(problem: Problem, weight: Array, table: Array) -> float:
    """The total of the best multiple of a table, or 0 if zero is the best fit of all.

    Zero is best exactly if −Bᵀc, the gradient there, has no negative cell. If no positive multiple of the table
    helps, the total is that of the best multiple of the gradient's descent cells, which always does.
    """
    descent = np.maximum(problem.adjoint(weight * problem.observed), 0.0)
    if not descent.any():
        return 0.0
    for direction in (table, descent):
        fitted = problem.apply(direction)
        gain = inner(weight * fitted, problem.observed)
        if gain > 0:
            return gain / inner(weight * fitted, fitted) * float(direction.sum())
    return 0.0


def _first_rho(search: Search) -> float:
    """The ρ at which the cell of a typical record would change by a factor of about e.

    Residuals of a thousandth of the noise are the least that counts.
    """
    counts, mass = search.counts, float(search.counts.sum())
    image = search.problem.adjoint(np.where(search.costs.exact, 0.0, search.costs.curvature * search.residual))
    mean = 0.0 if search.problem.total is None else inner(image, counts) / mass
    spread = (inner((image - mean) ** 2, counts) / mass) ** 0.5
    unit = search.problem.adjoint(np.where(search.costs.exact, 0.0, search.costs.curvature))
    least = 1e-3 * float(np.abs(unit, out=unit).max())
    return 1.0 / max(spread, least, np.finfo(np.float64).tiny ** 0.5)


def _provide_cover(problem: Problem, cover: Array | None) -> None:
    """Uses the caller's cover, and seeks a better one if it leaves cells uncovered."""
    if cover is not None:
        v = _numbers(cover, "values of the cover", problem.observed.shape)
        if not offer_cover(problem, v, problem.adjoint(v)):
            raise DeclarationError(
                "the adjoint of the cover is negative on an allowed cell, but it must be positive on every cell that "
                "a row touches; leave the cover out to have one sought"
            )
    if problem.cover_image is None or not np.all(problem.cover_image[problem.allowed_table() > 0]):
        seek_cover(problem)


def _report(search: Search, costs: RowCosts, table: Array, status: Status, facts: Facts | None, started: float) -> Fit:
    objective = costs.value(search.problem.apply(table) - costs.observed)
    stats: dict[str, float | int | str] = {
        "solver": "row products" if search.equations.products is not None else "conjugate gradients",
        "stages": search.stages,
        "newton_steps": search.newton_steps,
        "steps": search.problem.adjoints,
        "operator_applications": search.problem.adjoints + search.problem.applies,
        "restricted_gap": search.best.restricted_gap,
        "violation": max(facts.misses(table)) * facts.unit if facts is not None else 0.0,
        "seconds": time.monotonic() - started,
    }
    if not table.any() and search.best.counts is None:
        gap = 0.0
    elif search.costs is not costs:  # a limit ended the search before it came to these costs
        gap = objective
    else:
        gap = search.best.gap if table is search.best.counts else max(objective - search.best.bound, 0.0)
    return Fit(table, objective, gap, status, stats)


def _numbers(values: Array, name: str, shape: tuple[int, ...] | None = None) -> Array:
    """The values as finite floats of the expected shape (by default one-dimensional)."""
    numbers = np.asarray(values, dtype=np.float64)
    expected = (numbers.size,) if shape is None else shape
    if numbers.shape != expected:
        raise MeasurementError(f"the {name} have shape {numbers.shape}, but {expected} is needed; reshape them")
    if not np.all(np.isfinite(numbers)):
        bad = int(np.count_nonzero(~np.isfinite(numbers)))
        raise MeasurementError(f"{bad} of the {numbers.size} {name} are NaN or infinite; only numbers can be fitted")
    return numbers


def _mask(operator: Operator, allowed: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """The mask, or None if it allows everything."""
    if allowed is None:
        return None
    if allowed.dtype != np.bool_ or allowed.shape != operator.shape_in:
        raise DeclarationError(
            f"the allowed cells are {allowed.dtype} of shape {allowed.shape}, but the table has shape "
            f"{operator.shape_in}; give one boolean per cell"
        )
    return None if allowed.all() else allowed


def _check_total(total: float, cells: float) -> None:
    if not 0 <= total < np.inf:
        raise DeclarationError(f"the total is {total}, but a table's total is finite and at least 0; correct it")
    if total > 0 and cells == 0:
        raise DeclarationError(
            f"the total is {total}, but no cell is allowed to hold it: the problem is infeasible; allow a cell or "
            "declare a total of 0"
        )


def _check_options(tolerance: float, noise_energy: float | None, max_steps: int, time_limit: float | None) -> None:
    options = {"tolerance": tolerance, "noise_energy": noise_energy, "max_steps": max_steps, "time_limit": time_limit}
    for name, value in options.items():
        if value is not None and not 0 <= value < np.inf:
            raise DeclarationError(f"{name} is {value}, but it must be finite and at least 0; correct it")
