"""`Table`: the full table that agrees best with any set of measured queries and keeps every exact fact.

With measured queries A_q, noisy answers y_q and noise of scale b_q, or standard deviation σ_q = b_q√2, the estimate is

    min over x ≥ 0 of Σ_q loss(A_q x − y_q),    "l2": r²/2σ²,   "l1": |r|/b,   "elastic": α·|r|/b + (1 − α)·r²/b²,

over the cells of the full table, with all exact facts met and x = 0 where a cell is impossible (Lee, Wang and Kifer
2015, §4). "likelihood" is each measurement's own, "l1" for Laplace and "l2" for Gaussian noise, side by side.

Three ways lead there. Where the cells themselves were measured and all facts are marginals, `fit_table` finds the exact
optimum. Where squares determine every cell of a small table, `fit_exactly` does. Otherwise the queries act by their
Kronecker structure, no matrix over the cells is built, and `fit_measured_table` takes, among the tables with the same
fitted answers, the one of greatest entropy.

*The total.* That optimum pushes the total of sparse tables up, since every empty cell keeps the positive half of its
noise. Each measured query whose rows add up to all cells tells the total without bias, and by default the table has
the total that they tell together, by inverse variance.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError, MeasurementError, TooLarge, readable_bytes, readable_count
from consilience.estimators.base import FullTableEstimate, Progress, Suitability, reported
from consilience.estimators.evidence import Evidence, OwnLoss, check_loss
from consilience.estimators.measured_table import HELD_TOTAL, MeasuredTable
from consilience.measurements import MeasurementSet
from consilience.solvers.fit import SHARED, Fit, Infeasible, Loss, LossName, Status
from consilience.solvers.marginal_tables.table_fit import fit_table, predicted_table_bytes
from consilience.solvers.matrices.matrix_fit import fit_matrix
from consilience.solvers.tables import row_costs as row_products
from consilience.solvers.tables import signed_fit as exact_least_squares
from consilience.solvers.tables.measured_fit import fit_measured_table, predicted_bytes
from consilience.solvers.tables.signed_fit import fit_exactly, fit_signed_table

# ----------------------------------------------------------------------------------------------------------------------
# The ways from a `MeasuredTable` to `fit_table`: the cells themselves were measured, or whole counts are asked for.


Array = NDArray[np.float64]
Marginals = Mapping[tuple[int, ...], Evidence]

BYTES_PER_CELL = 105
"""What a cell takes at the peak of a fit without facts (`python -m benchmarks memory`)."""

BYTES_PER_CELL_WITH_TOTAL = 190
"""The same where the total is held."""

EXACTLY = 1e-9
"""The relative gap that `fit_table` is asked for: it costs no more than a larger one."""


def fits_as_cells(table: MeasuredTable) -> bool:
    """Whether the full table was measured, once or with squares, and all facts are marginals, few enough to fit."""
    if table.fact_marginals() is None or table.bounded_answers or not all(each.is_full_table for each in table.noisy):
        return False
    return (len(table.noisy) == 1 or all(each.loss == "l2" for each in table.noisy)) and (
        predicted_bytes_as_cells(table) <= SHARED.memory_limit
    )


def predicted_bytes_as_cells(table: MeasuredTable, *, total_held: bool = False) -> int:
    """The memory of `fit_table`: the marginals' values bound the number of independent ones.

    Without facts every cell is fitted by itself.
    """
    if not table.facts:
        return (BYTES_PER_CELL_WITH_TOTAL if total_held else BYTES_PER_CELL) * table.domain.cells
    return predicted_table_bytes(table.domain.cells, sum(fact.values.size for fact in table.facts))


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


# ----------------------------------------------------------------------------------------------------------------------
# `Table`: the full table that agrees best with any set of measured queries and keeps every exact fact.


LARGEST_TABLE = 10_000_000
LARGEST_SIGNED_TABLE = 2_000
"""Cells; absolute values over tables that may be negative are fitted through a written-out matrix."""

SECONDS_PER_CELL, USUAL_STEPS = 3e-9, 1_000
"""What a cell takes in a step, for each query, and how many steps are usual."""


@dataclass(frozen=True)
class Table:
    """The best fit over the full table, up to ten million cells, for any queries and exact facts.

    `loss` is "l2", "l1", "elastic" with the share `alpha` of the absolute value, or "likelihood", each
    measurement's own. `tolerance` bounds the optimality gap in units of the objective or of the expected noise,
    whichever is larger; `max_steps` and `time_limit` (seconds) end the search earlier, and the status then says so.
    `nonnegative=False` lets counts be negative: the shortest least-squares table for "l2", and for other losses
    tables of up to 2,000 cells. The total is held where counts are not negative and there are no exact facts, unless
    `hold_total=False` leaves it to the fit. `integers=True` gives whole counts that keep every fact, where all facts
    are marginals.

    Public totals and margins, and measurements with the noise law `Exact`, are kept. Answers below a threshold, which
    were not released, cost something only where the fit exceeds the threshold; so do values clipped at zero. That is
    the likelihood's own for Laplace noise, up to a constant, where the fit exceeds the threshold, and flat below.
    """

    loss: OwnLoss = "l2"
    alpha: float = 0.9
    nonnegative: bool = True
    tolerance: float = 1e-4
    integers: bool = False
    hold_total: bool = True
    max_steps: int = 50_000
    time_limit: float | None = None

    name: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        check_loss(self.loss, get_args(OwnLoss), was_auto="likelihood")
        Loss.named("elastic", alpha=self.alpha)
        if not 0.0 <= self.tolerance < 1.0:
            raise DeclarationError(f"the tolerance is {self.tolerance!r}; give a relative gap such as 1e-4")

    def suitability(self, measured: MeasurementSet) -> Suitability:
        cells = measured.domain.cells
        if cells > LARGEST_TABLE:
            need = predicted_bytes(min(cells, 2**56), sum(each.values.size for each in measured))
            return Suitability(
                False,
                f"the full table has {readable_count(cells)} cells and would need {readable_bytes(need)} of memory; "
                f"Table fits up to {LARGEST_TABLE:,} cells",
                need,
            )
        table = MeasuredTable.of(measured, loss=self.loss, alpha=self.alpha)
        need = self._predicted_bytes(table)
        if not self.nonnegative and not fits_as_cells(table) and not _squares(table) and cells > LARGEST_SIGNED_TABLE:
            return Suitability(
                False,
                f"the full table has {readable_count(cells)} cells; with nonnegative=False Table fits absolute "
                "values to tables of "
                f'up to {LARGEST_SIGNED_TABLE:,} cells, and larger ones with loss="l2"',
                need,
            )
        seconds = SECONDS_PER_CELL * USUAL_STEPS * cells * len(table.noisy)
        return Suitability(
            True,
            f"the full table has {readable_count(cells)} cells and fits in memory ({readable_bytes(need)})",
            need,
            seconds,
        )

    def _predicted_bytes(self, table: MeasuredTable) -> int:
        if fits_as_cells(table):
            return predicted_bytes_as_cells(table, total_held=self.hold_total and self.nonnegative)
        rows = sum(each.values.size for each in (*table.noisy, *table.other_facts))
        factored = table.operator(facts=True).has_products(squares=_is_plain(table))
        return predicted_bytes(table.domain.cells, rows) + (row_products.predicted_bytes(rows) if factored else 0)

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> FullTableEstimate:
        suitable = self.suitability(measured)
        if not suitable.possible:
            raise TooLarge(f"{suitable.reason}. Otherwise measure fewer attributes, or project the domain to fewer")
        table = self._measured_table(measured, self.loss)
        if fits_as_cells(table):
            fit = solve_as_cells(table, nonnegative=self.nonnegative, integers=self.integers, tolerance=self.tolerance)
            return self._estimate(measured, table, fit)
        fit = self._solve(table, reported(progress, self.max_steps))
        if fit.status is not Status.CONVERGED and self.nonnegative and not _is_plain(table):
            fit = self._or_least_squares(measured, table, fit)
        if self.integers:
            fit = whole_counts(table, fit, nonnegative=self.nonnegative)
        return self._estimate(measured, table, fit)

    def _measured_table(self, measured: MeasurementSet, loss: OwnLoss) -> MeasuredTable:
        table = MeasuredTable.of(measured, loss=loss, alpha=self.alpha)
        return table.with_total_held(whole=self.integers) if self.hold_total and self.nonnegative else table

    def _solve(self, table: MeasuredTable, progress: "Callable[[int, float, float], None] | None") -> Fit:
        if not self.nonnegative:
            return self._solve_signed(table)
        plain = _is_plain(table)
        if plain and (exact := _solve_exactly(table)) is not None:
            return exact
        operator = table.operator(facts=True)
        return fit_measured_table(
            operator,
            table.costs(),
            products=operator.products(squares=plain),
            facts=table.as_solvers_take(table.other_facts),
            total=table.total,
            allowed=table.allowed,
            cover=operator.cover(),
            tolerance=self.tolerance,
            max_steps=self.max_steps,
            time_limit=self.time_limit,
            progress=progress,
        )

    def _or_least_squares(self, measured: MeasurementSet, table: MeasuredTable, fit: Fit) -> Fit:
        """What was found, or the least-squares table where that is closer to the optimum of the loss asked for.

        Squares have no kinks, and their search is the more dependable one. The bound that was proven holds for both.
        """
        if table.other_facts or table.bounded_answers:
            return fit
        squares = self._solve(self._measured_table(measured, "l2"), None)
        operator, costs = table.operator(facts=True), table.costs()
        objective = costs.value(operator.apply(squares.counts) - costs.observed)
        if objective >= fit.objective:
            return fit
        gap = max(0.0, objective - (fit.objective - fit.gap))
        return Fit(squares.counts, objective, gap, fit.status, {**fit.stats, "fallback": "least squares"})

    def _solve_signed(self, table: MeasuredTable) -> Fit:
        """Counts of either sign: least squares by iteration, other losses through a written-out matrix."""
        if table.bounded_answers:
            raise MeasurementError(
                f"of {table.bounded_answers} answers only a bound was released, and a table that may hold negative "
                "counts cannot make use of it; use nonnegative=True"
            )
        facts, costs = table.as_solvers_take(table.facts), table.costs()
        operator = table.operator(facts=False)
        observed = costs.observed[~costs.exact]
        if _squares(table):
            return fit_signed_table(
                operator,
                observed,
                facts=facts,
                allowed=table.domain.allowed_cells(),
                tolerance=self.tolerance,
                noise_energy=operator.rows / 2,
                max_steps=self.max_steps,
            )
        losses = {each.loss for each in table.noisy}
        if len(losses) > 1:
            raise DeclarationError(
                'the noise follows different laws, for which loss="likelihood" with nonnegative=False has no solver; '
                'choose "l1", "l2" or "elastic"'
            )
        allowed = table.domain.allowed_cells()
        chosen = np.arange(table.domain.cells) if allowed is None else np.flatnonzero(allowed)
        equations = None if facts is None else (table.facts_operator(table.facts).matrix()[:, chosen], facts.values)
        fit = fit_matrix(
            operator.matrix()[:, chosen],
            observed,
            loss=losses.pop(),
            alpha=self.alpha,
            nonnegative=False,
            equations=equations,
        )
        counts: NDArray[np.float64] = np.zeros(table.domain.cells)
        counts[chosen] = fit.counts
        return Fit(counts.reshape(table.domain.shape), fit.objective, fit.gap, fit.status, fit.stats)

    def _estimate(self, measured: MeasurementSet, table: MeasuredTable, fit: Fit) -> FullTableEstimate:
        return FullTableEstimate(measured, self._describe(), fit.status, _stats(fit, table), fit.counts)

    def _describe(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"method": self.name, "loss": self.loss, "tolerance": self.tolerance}
        settings |= {"nonnegative": self.nonnegative, "integers": self.integers, "hold_total": self.hold_total}
        return settings | ({"alpha": self.alpha} if self.loss == "elastic" else {})


def _solve_exactly(table: MeasuredTable) -> Fit | None:
    """Squares, and no fact but the total, where the table is small and all of it determined; else None."""
    if table.domain.cells > exact_least_squares.SETTINGS.largest_table:
        return None
    operator, observed = table.operator(facts=False), table.costs().observed
    exact = fit_exactly(operator.matrix(), observed, total=table.total, allowed=table.allowed)
    return None if exact is None else replace(exact, counts=exact.counts.reshape(table.domain.shape))


def _squares(table: MeasuredTable) -> bool:
    return all(each.loss == "l2" for each in table.noisy)


def _is_plain(table: MeasuredTable) -> bool:
    """Whether all costs are squares, of both sides, and no more than a total is known."""
    return _squares(table) and not table.other_facts and not table.bounded_answers


def _stats(fit: Fit, table: MeasuredTable) -> Mapping[str, float | int | str]:
    return {
        "objective": fit.objective,
        "gap": fit.gap,
        "expected_noise_energy": table.costs().expected,
        "measured_answers": table.measured_answers,
        "bounded_answers": table.bounded_answers,
        "exact_answers": sum(fact.values.size for fact in table.facts if fact.name != HELD_TOTAL),
        **fit.stats,
    }
