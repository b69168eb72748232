"""Exact facts about a table: whether any table meets them, a first table that does, and the last correction.

The facts are rows E with values e. The table of greatest entropy that meets them is found as the non-negative
least-squares fit of the facts alone, whose objective ½‖Ex − e‖² then is 0; if the facts contradict each other it is
not, and its certificate proves that. A table that nearly meets the facts is corrected to x·exp(−Eᵀμ), by Newton's
method for Ex = e.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.solvers.infeasible import Infeasible
from consilience.solvers.tables.entropic_proximal_point import UNNOTICED
from consilience.solvers.tables.least_squares_problem import Array, Operator, Problem, half_square
from consilience.solvers.tables.newton_equations import NewtonEquations
from consilience.solvers.tables.nonnegative_least_squares import fit_nonnegative_least_squares
from consilience.solvers.tables.row_products import RowProducts

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
