"""`fit_measured_table`: the non-negative table of least cost behind measured rows and exact facts.

    min over x ≥ 0 of Σ φ(Bx − c)    with exact rows met, Σx = T where it is known, and x = 0 outside allowed cells.

Costs are those of `row_costs`: squares, absolute values, both, or one side of them, row by row. The way there: facts
alone first, which finds a table that meets them or shows that none does; then squares in place of all costs; then the
costs themselves. Each leg begins where the last one ended, and each iterate is the table of greatest entropy among
those with the same fitted values, as in `nonnegative_least_squares`.
"""

import time

import numpy as np
from numpy.typing import NDArray

from consilience.solvers.fit import Fit, Status
from consilience.solvers.tables.exact_facts import Facts, Restorer, first_table
from consilience.solvers.tables.least_squares_problem import Array, Operator, Problem, inner, offer_cover, seek_cover
from consilience.solvers.tables.newton_equations import NewtonEquations
from consilience.solvers.tables.proximal_stages import Progress, Search, run
from consilience.solvers.tables.row_costs import RowCosts
from consilience.solvers.tables.row_products import RowProducts

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
