"""The proximal point method from any start, for any costs of rows, exact rows among them.

The way there: exact rows alone first, which finds a model that meets them or shows that none does; then squares in
place of costs with kinks or ends, until they are nearly best; then the costs themselves. Each leg begins where the last
one ended. Where conjugate gradients get no farther, the last leg goes on with Newton's equations factored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.models.counted_oracle import CountedOracle
from consilience.models.fitting.exact_rows import MET, ExactRows
from consilience.models.fitting.factored_equations import FactoredEquations
from consilience.models.fitting.monitor import Monitor
from consilience.models.fitting.proximal_point import ProximalSearch, run
from consilience.models.fitting.rows import MeasuredRows
from consilience.solvers.fit import Status
from consilience.solvers.tables.row_costs import RowCosts

Array = NDArray[np.float64]

ROUGHLY = 1e-2
"""Squares have served as a first approximation of other costs when a stage changes them by less than this share."""

STEP_BACK = 0.03
"""Other costs begin with this share of the ρ at which their first approximation ended."""

FAR_FROM_MET, NEARLY_MET = 1e-2, 1e-6
"""Exact rows that are missed by less than this, relatively, are worth restoring: near the end, and before."""


@dataclass(frozen=True)
class Proximal:
    """The proximal point method with Newton's method on the prices of rows; it has no options."""

    name = "proximal point"


@dataclass
class ProximalFit:
    """One fit: what is asked for, who watches, and what happened."""

    oracle: CountedOracle
    rows: MeasuredRows
    costs: RowCosts
    monitor: Monitor
    names: Sequence[str]
    stats: dict[str, float | int | str]

    def run(self, start: Array, *, warm: bool = False) -> Status:
        """All legs; the result is in the monitor. Warm: the start is a model to be changed rather than found."""
        exact = ExactRows.among(self.rows, self.costs, self.names)
        status = None
        if exact is not None:
            start, limit = exact.met_from(self.oracle, start, self.monitor)
            status = self._meet(start)
            status = limit or status
        rho = 0.0
        if status is None and self.costs.components().confined:
            start, rho, status = self._first_leg(start, exact, warm)
        if status is None:
            keeper = None if exact is None else _Keeper(self, exact, None)
            search = ProximalSearch(self.oracle, self.rows, self.costs, self.monitor, start, keeper, rho, warm=warm)
            status = run(search)
            self._count(search)
            if status is Status.STALLED and not isinstance(search.newton, FactoredEquations):
                status = self._by_factorisation(keeper, start)
        if self.monitor.gap <= self.monitor.enough:
            self.monitor.settle()
        if exact is not None:
            self.stats["violation"] = exact.violation(self.monitor.marginals)
        return status

    def _by_factorisation(self, keeper: "_Keeper | None", start: Array) -> Status:
        """Go on from the best model so far with Newton's equations factored, where they are small enough for that."""
        equations = FactoredEquations.of(self.oracle, self.rows)
        if equations is None:
            return Status.STALLED
        first = self.monitor.potentials if self.monitor.potentials.size else start
        search = ProximalSearch(self.oracle, self.rows, self.costs, self.monitor, first, keeper, equations=equations)
        status = run(search)
        self._count(search)
        return status

    def _first_leg(self, start: Array, exact: ExactRows | None, warm: bool) -> tuple[Array, float, Status | None]:
        """Potentials at which squares in place of all costs are nearly least, and a ρ to go on with."""
        costs = self.costs.stand_in()
        monitor = self.monitor.for_another_objective(tolerance=ROUGHLY, scale=costs.expected)
        keeper = _Keeper(self, exact, monitor)
        search = ProximalSearch(self.oracle, self.rows, costs, monitor, start, keeper, warm=warm)
        run(search, roughly=True)
        self._count(search)
        stopped = self.monitor.verdict() if np.isfinite(self.monitor.objective) else self.monitor.limit()
        return search.point.potentials, STEP_BACK * search.rho, stopped

    def _meet(self, potentials: Array) -> Status | None:
        """Take note of a model that meets the exact rows."""
        marginals = self.oracle.marginals(potentials).values
        return self.monitor.meet(potentials, marginals, self.cost(marginals))

    def cost(self, marginals: Array) -> float:
        """What a model costs."""
        return self.costs.value(self.rows.apply(marginals) - self.costs.observed)

    def _count(self, search: ProximalSearch) -> None:
        for name, value in (("stages", search.stages), ("newton_steps", search.newton_steps)):
            self.stats[name] = int(self.stats.get(name, 0)) + value


@dataclass(frozen=True, eq=False)
class _Keeper:
    """Judges models by the true costs, whatever costs the search has, and only those that meet the exact rows."""

    fit: ProximalFit
    exact: ExactRows | None
    own: Monitor | None
    """The monitor of a search with other costs."""

    def meet(self, potentials: Array, marginals: Array, objective: float) -> Status | None:
        own = None if self.own is None else self.own.meet(potentials, marginals, objective)
        if self.exact is not None and self.exact.misfit(marginals) > MET:
            return own or self.fit.monitor.limit()
        cost = objective if self.own is None else self.fit.cost(marginals)
        return self.fit.monitor.meet(potentials, marginals, cost) or own

    def end_stage(self, potentials: Array, objective: float) -> Status | None:
        if self.exact is None or self.own is not None:
            return None
        monitor = self.fit.monitor
        marginals = self.fit.oracle.marginals(potentials).values
        near = objective - monitor.bound <= 2.0 * monitor.enough
        if not MET < self.exact.misfit(marginals) <= (FAR_FROM_MET if near else NEARLY_MET):
            return None
        restored, limit = self.exact.met_from(self.fit.oracle, potentials, monitor)
        if limit is not None:
            return limit
        marginals = self.fit.oracle.marginals(restored).values
        return monitor.meet(restored, marginals, self.fit.cost(marginals))
