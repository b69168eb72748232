"""Exact rows of a model: a model that meets them, near a given one, or the proof that none does.

The rows are met by least squares on them alone, ½Σ(Bμ − c)², from the given potentials on: its proximal points are the
models that follow from these by multiplication with functions of the exact rows. If some model meets the rows the least
value is 0 and is approached ever faster; if none does, the certificate of the fit shows a value above 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.models.counted_oracle import CountedOracle
from consilience.models.fitting.factored_equations import FactoredEquations
from consilience.models.fitting.monitor import Monitor
from consilience.models.fitting.proximal_point import ProximalSearch, run
from consilience.models.fitting.rows import MeasuredRows
from consilience.solvers.fit import Infeasible, Status
from consilience.solvers.tables.row_costs import RowCosts

Array = NDArray[np.float64]

MET = 1e-9
"""Rows that are missed by this share of the largest are met; the search for a model aims at a tenth of it."""

NEARLY_MET = 1e-5
"""Where the search cannot go on, rows that are missed by less are met as well as numbers allow."""

CONTRADICTED = 1e-2
"""A misfit that is proven to be the least to this share of itself is one that no model can avoid."""


@dataclass(frozen=True, eq=False)
class ExactRows:
    """The exact rows among measured ones, and what messages call the queries they come from."""

    rows: MeasuredRows
    observed: Array
    names: Sequence[str]

    @staticmethod
    def among(rows: MeasuredRows, costs: RowCosts, names: Sequence[str]) -> "ExactRows | None":
        """The queries with exact rows; None where there are none."""
        places = [place for place, part in enumerate(rows.slices) if costs.exact[part].any()]
        if not places:
            return None
        own, where = rows.subset(places)
        observed = np.where(costs.exact[where], costs.observed[where], np.nan)
        return ExactRows(own, observed, [names[place] for place in places])

    @property
    def size(self) -> float:
        """The largest value, to which errors are compared."""
        return max(float(np.nanmax(np.abs(self.observed), initial=0.0)), np.finfo(np.float64).tiny)

    def misses(self, marginals: Array) -> list[float]:
        """By how much, at most, the rows of each query are missed."""
        away = np.abs(np.nan_to_num(self.rows.apply(marginals) - self.observed, nan=0.0))
        return [float(away[part].max(initial=0.0)) for part in self.rows.slices]

    def misfit(self, marginals: Array) -> float:
        """By how much rows are missed at most, relative to the largest."""
        return max(self.misses(marginals)) / self.size

    def violation(self, marginals: Array) -> float:
        """By how much rows are missed at most, in counts."""
        away = np.abs(np.nan_to_num(self.rows.apply(marginals) - self.observed, nan=0.0))
        return float((away / self.rows.weights).max(initial=0.0))

    def met_from(self, oracle: CountedOracle, start: Array, limits: Monitor) -> tuple[Array, Status | None]:
        """Potentials near these that meet the rows; `Infeasible` where none do; a status where a limit came first."""
        exact = np.isfinite(self.observed)
        nobody, nothing = np.zeros_like(exact), np.zeros(exact.shape)
        costs = RowCosts(np.nan_to_num(self.observed), nothing, exact.astype(np.float64), nobody, nobody)
        goal = 0.5 * (0.1 * MET * self.size) ** 2
        monitor = limits.for_another_objective(tolerance=CONTRADICTED, scale=0.0, noise_level=goal)
        status = run(ProximalSearch(oracle, self.rows, costs, monitor, start))
        if status is Status.STALLED:
            equations = FactoredEquations.of(oracle, self.rows)
            if equations is not None:
                status = run(ProximalSearch(oracle, self.rows, costs, monitor, monitor.potentials, equations=equations))
        misfit = self.misfit(monitor.marginals)
        if misfit <= MET or (misfit <= NEARLY_MET and monitor.bound <= goal):
            return monitor.potentials, None
        if status in (Status.STEP_LIMIT, Status.TIME_LIMIT) and monitor.bound <= goal:
            return monitor.potentials, status
        raise self._infeasible(monitor)

    def _infeasible(self, monitor: Monitor) -> Infeasible:
        misses, violation = self.misses(monitor.marginals), self.violation(monitor.marginals)
        involved = [name for name, miss in zip(self.names, misses, strict=True) if miss > 0.01 * max(misses)]
        shown = "; ".join(involved[:6]) + (f" and {len(involved) - 6} more" if len(involved) > 6 else "")
        return Infeasible(
            f"no model with the total {monitor.oracle.total:g} agrees with {shown}; the nearest misses one of them by "
            f"{violation:.6g}. Correct them, the total or the impossible cells, or bring them as noisy measurements",
            violation=violation,
            constraints=involved,
        )
