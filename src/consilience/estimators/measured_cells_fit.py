"""The ways from a `MeasuredTable` to `fit_table`: the cells themselves were measured, or whole counts are asked for."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.estimators.measured_table import ExactAnswers, MeasuredTable
from consilience.solvers.fit import Fit, Infeasible, Status
from consilience.solvers.losses import LossName
from consilience.solvers.marginal_tables.table_fit import MEMORY_LIMIT, fit_table
from consilience.solvers.marginal_tables.table_fit import predicted_table_bytes as predicted_bytes

Array = NDArray[np.float64]
Marginals = Mapping[tuple[int, ...], ExactAnswers]

BYTES_PER_CELL = 105
"""What a cell takes at the peak of a fit without facts (`python -m benchmarks memory`)."""

EXACTLY = 1e-9
"""The relative gap that `fit_table` is asked for: it costs no more than a larger one."""


def fits_as_cells(table: MeasuredTable) -> bool:
    """Whether the full table was measured, once or with squares, and all facts are marginals, few enough to fit."""
    if table.fact_marginals() is None or table.bounded_answers or not all(each.is_full_table for each in table.noisy):
        return False
    return (len(table.noisy) == 1 or all(each.loss == "l2" for each in table.noisy)) and (
        predicted_bytes_as_cells(table) <= MEMORY_LIMIT
    )


def predicted_bytes_as_cells(table: MeasuredTable) -> int:
    """The memory of `fit_table`: the marginals' values bound the number of independent ones.

    Without facts every cell is fitted by itself.
    """
    if not table.facts:
        return BYTES_PER_CELL * table.domain.cells
    return predicted_bytes(table.domain.cells, sum(fact.values.size for fact in table.facts))


def solve_as_cells(table: MeasuredTable, *, nonnegative: bool, integers: bool, tolerance: float) -> Fit:
    """The exact fit of measured cells to the facts.

    With squares, several measurements of a cell count as one: their mean, weighted by 1/σ². What they differ by among
    themselves is added to the objective, which no table can change.
    """
    first = table.noisy[0]
    values, weights, apart = first.as_table(first.values), float(first.weights[0]), 0.0
    loss: LossName = first.loss
    if loss == "l2":
        squares = np.array([each.weights[0] ** 2 for each in table.noisy])
        tables = [each.as_table(each.values) for each in table.noisy]
        values = sum(square * each for square, each in zip(squares, tables, strict=True)) / squares.sum()
        pairs = zip(squares, tables, strict=True)
        apart = 0.5 * float(sum(square * np.sum((each - values) ** 2) for square, each in pairs))
        weights = float(np.sqrt(0.5 * squares.sum()))
    options: dict[str, Any] = {"loss": loss, "alpha": table.alpha, "weights": weights, "tolerance": EXACTLY}
    fit = _fit_to_facts(table, values, nonnegative=nonnegative, integers=integers, **options)
    objective = fit.objective + apart
    enough = tolerance * max(objective, table.costs().expected)
    met = float(fit.stats["violation"]) <= 1e-8 * max(float(np.abs(fit.counts).sum()), 1.0)
    status = Status.CONVERGED if fit.gap <= enough and met else fit.status
    return Fit(fit.counts, objective, fit.gap, status, fit.stats)


def whole_counts(table: MeasuredTable, fit: Fit, *, nonnegative: bool) -> Fit:
    """The fit with whole counts next to its own that keep every fact; without facts, the nearest whole total.

    The objective and the gap are those of the fit before rounding.
    """
    marginals = table.fact_marginals()
    if marginals is None:
        wrong = next(fact for fact in table.facts if fact.marginal is None or table.facts.count(fact) > 1)
        raise DeclarationError(
            f"whole counts are found where all exact facts are marginals, but {wrong.name} is none; leave out "
            "integers=True, or bring the fact as a measurement with little noise"
        )
    known = None if marginals else {(): np.round(fit.counts.sum())}
    rounded = _fit_to_facts(
        table, fit.counts, nonnegative=nonnegative, integers=True, loss="l2", tolerance=EXACTLY, known=known
    )
    stats = {**fit.stats, "violation": rounded.stats["violation"], "moved_by_rounding": rounded.objective}
    return Fit(rounded.counts, fit.objective, fit.gap, fit.status, stats)


def _fit_to_facts(
    table: MeasuredTable, values: Array, *, known: Mapping[tuple[int, ...], Any] | None = None, **options: Any
) -> Fit:
    """`fit_table` with the facts as marginals, and its refusals in the facts' own names."""
    marginals: Marginals = table.fact_marginals() or {}
    allowed = table.domain.allowed_cells()
    arrays = known or {axes: fact.as_marginal() for axes, fact in marginals.items()}
    try:
        return fit_table(values, arrays, zeros=None if allowed is None else ~allowed, **options)
    except Infeasible as error:
        message = str(error)
        constraints = list(error.constraints)
        for axes, fact in marginals.items():
            label = "the total" if not axes else f"axis {axes[0]}" if len(axes) == 1 else f"axes {axes}"
            message = re.sub(rf"{re.escape(label)}(?!\d)", lambda _, name=fact.name: name, message)
            constraints = [fact.name if each == label else each for each in constraints]
        raise Infeasible(message, violation=error.violation, constraints=constraints) from error
