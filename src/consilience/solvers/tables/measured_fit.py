"""`fit_measured_table`: the non-negative table of least cost behind measured rows and exact facts.

    min over x ≥ 0 of Σ φ(Bx − c)    with exact rows met, Σx = T where it is known, and x = 0 outside allowed cells.

Costs are those of `row_costs`: squares, absolute values, both, or one side of them, row by row. The way there: facts
alone first, which finds a table that meets them or shows that none does; then squares in place of all costs; then the
costs themselves. Each leg begins where the last one ended, and each iterate is the table of greatest entropy among
those with the same fitted values, as in `nonnegative_least_squares`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.solvers.fit import Fit, Infeasible, Status
from consilience.solvers.tables.entropic_proximal_point import UNNOTICED
from consilience.solvers.tables.least_squares_problem import (
    Array,
    Operator,
    Problem,
    half_square,
    inner,
    offer_cover,
    seek_cover,
)
from consilience.solvers.tables.newton_equations import NewtonEquations
from consilience.solvers.tables.nonnegative_least_squares import fit_nonnegative_least_squares
from consilience.solvers.tables.proximal_stages import Progress, Search, run
from consilience.solvers.tables.row_costs import RowCosts, RowProducts

# ----------------------------------------------------------------------------------------------------------------------
# Exact facts about a table: whether any table meets them, a first table that does, and the last correction.
#
# The facts are rows E with values e. The table of greatest entropy that meets them is found as the non-negative
# least-squares fit of the facts alone, whose objective ½‖Ex − e‖² then is 0; if the facts contradict each other it is
# not, and its certificate proves that. A table that nearly meets the facts is corrected to x·exp(−Eᵀμ), by Newton's
# method for Ex = e.


MET = 1e-9
"""Facts that are missed by this share of the largest are met; the search for a table aims at a tenth of it."""

RESTORING_STEPS = 30

FEASIBILITY_STEPS = 20_000


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


def first_table(facts: Facts, start: Array, *, total: float | None, allowed: NDArray[np.bool_] | None) -> Array:
    """The table nearest to the start, in relative entropy, that meets the facts; `Infeasible` where none does."""
    if not start.any():
        _refuse_beyond(facts, start, 1.0)
        return start
    fit = fit_nonnegative_least_squares(
        facts.operator,
        facts.values,
        start=start,
        total=total,
        allowed=allowed,
        tolerance=0.1,
        noise_energy=max(0.5 * (MET * facts.size) ** 2, UNNOTICED * half_square(facts.values)),
        max_steps=FEASIBILITY_STEPS,
    )
    table = np.array(fit.counts)
    if max(facts.misses(table)) > MET * facts.size and fit.objective > 0:
        table = _restored_from(facts, table, total=total, allowed=allowed)
    _refuse_beyond(facts, table, max(fit.objective - fit.gap, 0.0))
    return table


def _restored_from(facts: Facts, table: Array, *, total: float | None, allowed: NDArray[np.bool_] | None) -> Array:
    corrected = Restorer(facts, total, allowed)(table)
    return corrected if max(facts.misses(corrected)) < max(facts.misses(table)) else table


def _refuse_beyond(facts: Facts, table: Array, proven: float) -> None:
    """Raise `Infeasible` where the nearest table misses a fact by more than rounding."""
    misses = facts.misses(table)
    violation = max(misses)
    if violation <= (MET if proven > 0 else 1e3 * MET) * facts.size:
        return
    involved = [name for name, miss in zip(facts.names, misses, strict=True) if miss > 0.01 * violation]
    shown = "; ".join(involved[:6]) + (f" and {len(involved) - 6} more" if len(involved) > 6 else "")
    raise Infeasible(
        f"no table of non-negative counts agrees with {shown}; the nearest misses one of them by "
        f"{violation * facts.unit:.6g}. Correct them or the impossible cells, or bring them as measurements with noise",
        violation=violation * facts.unit,
        constraints=involved,
    )


@dataclass
class Restorer:
    """Corrects tables that nearly meet the facts."""

    facts: Facts
    total: float | None
    allowed: NDArray[np.bool_] | None

    def __call__(self, table: Array) -> Array:
        facts = self.facts
        problem = Problem(facts.operator, facts.values, self.total, self.allowed)
        equations = NewtonEquations(problem, facts.products)
        best, fitted = table, problem.apply(table)
        least = float(np.abs(fitted - facts.values).max())
        nothing = np.zeros_like(facts.values)
        for _ in range(RESTORING_STEPS):
            if least <= 1e-14 * facts.size:
                break
            change = problem.adjoint(equations.solve(best, fitted, 1.0, nothing, fitted - facts.values))
            # Facts that contradict each other send the correction to infinity; it is then not taken.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                corrected = best * np.exp(-change)
                if self.total is not None:
                    corrected *= np.divide(self.total, corrected.sum())
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


ROUGHLY = 1e-2
"""The relative gap at which squares have served as a first approximation of other costs."""

STEP_BACK = 0.03
"""Other costs begin with this share of the ρ at which their first approximation ended."""

BYTES_PER_CELL, BYTES_PER_ROW = 60, 260
"""What a cell and a measured answer take at the peak (`python -m benchmarks memory`)."""


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
    cover: Array | None = None,
    tolerance: float = 1e-4,
    max_steps: int = 50_000,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Fit:
    """The table of least cost, to within a certified gap of `tolerance` · max(objective, expected noise).

    `facts` are the exact rows of the costs once more, alone. `products` are the row products of all rows; without them
    Newton's equations are solved by iteration. `stats["violation"]` is what remains of the facts' errors.
    """
    started = time.monotonic()
    problem = Problem(operator, costs.observed, total, allowed)
    if total is None:
        _provide_cover(problem, cover)
    table = _start(problem, costs, facts)
    search = Search(
        problem,
        costs.stand_in(),
        NewtonEquations(problem, products),
        Restorer(facts, total, allowed) if facts is not None else np.copy,
        tolerance=tolerance if costs.squares_alone else ROUGHLY,
        scale=max(costs.stand_in().expected, 1e-12 * costs.stand_in().value(-costs.observed)),
        max_steps=max_steps,
        deadline=np.inf if time_limit is None else started + time_limit,
        progress=progress,
        counts=table,
        rho=1.0,
    )
    if not table.any():
        return _report(search, table, Status.CONVERGED, facts, started)
    search.rho = _first_rho(search)
    status = run(search)
    if not costs.squares_alone and status not in (Status.STEP_LIMIT, Status.TIME_LIMIT):
        search = _second_leg(search, costs, tolerance)
        status = run(search)
    return _report(search, search.best.counts if search.best.counts is not None else table, status, facts, started)


def _second_leg(first: Search, costs: RowCosts, tolerance: float) -> Search:
    """The search for the costs themselves, from where their first approximation ended."""
    first.move_centre()
    return Search(
        first.problem,
        costs,
        first.equations,
        first.restore,
        tolerance=tolerance,
        scale=costs.expected,
        max_steps=first.max_steps,
        deadline=first.deadline,
        progress=first.progress,
        counts=first.counts,
        rho=STEP_BACK * first.rho,
        stages=first.stages,
        newton_steps=first.newton_steps,
        started_from=first.logarithms,
    )


def _start(problem: Problem, costs: RowCosts, facts: Facts | None) -> Array:
    """A uniform table with the total, or the least-squares one; where there are facts, the nearest that meets them."""
    table = problem.allowed_table()
    if problem.total is not None:
        table *= problem.total / max(float(table.sum()), 1.0)
    else:
        weight = costs.stand_in().curvature
        fitted = problem.apply(table)
        gain, size = inner(weight * fitted, problem.observed), inner(weight * fitted, fitted)
        largest = float(np.abs(fitted).max(initial=0.0))
        table *= max(gain / size if size > 0 else 0.0, 1.0 / largest) if largest > 0 else 0.0
    return table if facts is None else first_table(facts, table, total=problem.total, allowed=problem.allowed)


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
    """The caller's cover, or a better one where that leaves cells uncovered."""
    if cover is not None:
        offer_cover(problem, cover, problem.adjoint(cover))
    if problem.cover_image is None or not np.all(problem.cover_image[problem.allowed_table() > 0]):
        seek_cover(problem)


def _report(search: Search, table: Array, status: Status, facts: Facts | None, started: float) -> Fit:
    objective = search.costs.value(search.problem.apply(table) - search.costs.observed)
    stats: dict[str, float | int | str] = {
        "solver": "row products" if search.equations.products is not None else "conjugate gradients",
        "stages": search.stages,
        "newton_steps": search.newton_steps,
        "steps": search.problem.adjoints,
        "operator_applications": search.problem.adjoints + search.problem.applies,
        "violation": max(facts.misses(table)) * facts.unit if facts is not None else 0.0,
        "seconds": time.monotonic() - started,
    }
    only_one = not table.any() and search.best.counts is None
    gap = 0.0 if only_one else max(objective - search.best.bound, 0.0)
    return Fit(table, objective, gap, status, stats)
