"""`fit_model`: the graphical model of least cost behind measured rows.

*The proximal point method*, from any start and for any costs of rows: exact rows alone first, which finds a model that
meets them or shows that none does; then squares in place of costs with kinks or ends, until they are nearly best; then
the costs themselves. Each leg begins where the last one ended. Where conjugate gradients get no farther, the last leg
goes on with Newton's equations factored.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.models.fitting.first_order import AcceleratedDescent, Direct, DualAveraging, MirrorDescent
from consilience.models.fitting.newton_equations import FactoredEquations
from consilience.models.fitting.objective import (
    ConvexLoss,
    CustomLoss,
    MeasuredRows,
    Monitor,
    Progress,
    RowLoss,
    SmoothSearch,
)
from consilience.models.fitting.proximal_point import ProximalSearch
from consilience.models.oracle import CountedOracle, Oracle
from consilience.solvers.fit import Infeasible, Status
from consilience.solvers.tables.row_costs import RowCosts

# ----------------------------------------------------------------------------------------------------------------------
# Exact rows of a model: a model that meets them, near a given one, or the proof that none does.
#
# The rows are met by least squares on them alone, ½Σ(Bμ − c)², from the given potentials on: its proximal points are
# the models that follow from these by multiplication with functions of the exact rows. If some model meets the rows the
# least value is 0 and is approached ever faster; if none does, the certificate of the fit shows a value above 0.


Array = NDArray[np.float64]


@dataclass(frozen=True)
class ExactSettings:
    """When exact rows are met, in parts of the largest of them."""

    met: float = ProximalSearch.settings.met
    """Rows that are missed by less are met."""
    met_where_stuck: float = 1e-5
    """Where the search cannot go on, rows that are missed by less are met as well as numbers allow."""
    contradicted: float = 1e-2
    """A misfit that is proven to be the least to this share of itself is one that no model can avoid."""


EXACT_ROWS = ExactSettings()


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
        goal = 0.5 * (0.1 * EXACT_ROWS.met * self.size) ** 2
        monitor = limits.for_another_objective(tolerance=EXACT_ROWS.contradicted, scale=0.0, noise_level=goal)
        status = ProximalSearch(oracle, self.rows, costs, monitor, start).run()
        if status is Status.STALLED:
            equations = FactoredEquations.of(oracle, self.rows)
            if equations is not None:
                again = ProximalSearch(oracle, self.rows, costs, monitor, monitor.potentials, equations=equations)
                status = again.run()
        misfit = self.misfit(monitor.marginals)
        if misfit <= EXACT_ROWS.met or (misfit <= EXACT_ROWS.met_where_stuck and monitor.bound <= goal):
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


# ----------------------------------------------------------------------------------------------------------------------
# The proximal point method from any start, for any costs of rows, exact rows among them.


@dataclass(frozen=True)
class Proximal:
    """The proximal point method with Newton's method on the duals of rows; it has no options."""

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
            status = search.run()
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
        status = search.run()
        self._count(search)
        return status

    def _first_leg(self, start: Array, exact: ExactRows | None, warm: bool) -> tuple[Array, float, Status | None]:
        """Potentials at which squares in place of all costs are nearly least, and a ρ to go on with."""
        costs = self.costs.stand_in()
        monitor = self.monitor.for_another_objective(tolerance=ProximalSearch.settings.roughly, scale=costs.expected)
        keeper = _Keeper(self, exact, monitor)
        search = ProximalSearch(self.oracle, self.rows, costs, monitor, start, keeper, warm=warm, roughly=True)
        search.run()
        self._count(search)
        stopped = self.monitor.verdict() if np.isfinite(self.monitor.objective) else self.monitor.limit()
        return search.point.potentials, search.settings.step_back * search.rho, stopped

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
        if self.exact is not None and self.exact.misfit(marginals) > EXACT_ROWS.met:
            return own or self.fit.monitor.limit()
        cost = objective if self.own is None else self.fit.cost(marginals)
        return self.fit.monitor.meet(potentials, marginals, cost) or own

    def end_stage(self, potentials: Array, objective: float) -> Status | None:
        if self.exact is None or self.own is not None:
            return None
        monitor = self.fit.monitor
        marginals = self.fit.oracle.marginals(potentials).values
        near = objective - monitor.bound <= 2.0 * monitor.enough
        settings = ProximalSearch.settings
        worth = settings.far_from_met if near else settings.nearly_met
        if not EXACT_ROWS.met < self.exact.misfit(marginals) <= worth:
            return None
        restored, limit = self.exact.met_from(self.fit.oracle, potentials, monitor)
        if limit is not None:
            return limit
        marginals = self.fit.oracle.marginals(restored).values
        return monitor.meet(restored, marginals, self.fit.cost(marginals))


# ----------------------------------------------------------------------------------------------------------------------
# `fit_model`: the graphical model of least cost behind measured rows.
#
#     min over models μ with the total N of Σ φ(Bμ − c),    exact rows met,
#
# or of any convex loss. The default for costs of rows is the proximal point method; costs with kinks or ends begin
# where squares in their place are nearly best. For other losses it is accelerated mirror descent. Every answer is a
# model: its marginals are those of its potentials.
#
# *When to stop.* "converged" stops at a proven gap. "noise" stops at the first model whose cost has come down to what
# noise alone leads one to expect, and then goes back on its last step to where the cost is just that: beyond that point
# a model follows the noise, and its error may rise while its cost falls (McKenna, Sheldon & Miklau 2019, appendix D.1).


Optimiser = Proximal | MirrorDescent | DualAveraging | AcceleratedDescent | Direct

NOISE_ACCURACY = 0.02
"""A stop at the noise level is at an objective between this much below it and the level itself."""

RETREATS = 12
"""Halvings of the last step, at the most, that lead there."""


@dataclass(frozen=True, eq=False)
class ModelFit:
    """A model with a certificate: its objective exceeds the smallest possible one by at most `gap`.

    `marginals` are the marginals of `potentials`, both flat in the oracle's layout and read-only.
    """

    potentials: Array
    marginals: Array
    objective: float
    gap: float
    status: Status
    stats: Mapping[str, float | int | str]

    def __post_init__(self) -> None:
        for name in ("potentials", "marginals"):
            values = getattr(self, name).view()
            values.flags.writeable = False
            object.__setattr__(self, name, values)


def fit_model(
    oracle: Oracle,
    rows: MeasuredRows | None,
    costs: RowCosts | ConvexLoss,
    *,
    optimiser: Optimiser | None = None,
    stop: Literal["converged", "noise"] = "converged",
    tolerance: float = 1e-3,
    max_steps: int = 20_000,
    time_limit: float | None = None,
    start: Array | None = None,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> ModelFit:
    """The model of least cost, to within a certified gap of `tolerance` · max(objective, expected noise).

    A custom loss is one of the rows, or of the flat marginals where `rows` is None. `start` are potentials to begin
    with, 0 for the uniform model. `names` are what messages call the queries of the rows. `max_steps` counts calls of
    the oracle.
    """
    started = time.monotonic()
    counted = CountedOracle(oracle)
    monitor = Monitor(
        counted,
        tolerance,
        scale=costs.expected if isinstance(costs, RowCosts) else 0.0,
        max_steps=max_steps,
        deadline=np.inf if time_limit is None else started + time_limit,
        noise_level=_noise_level(costs, stop),
        progress=progress,
    )
    potentials = _checked_start(counted, start)
    stats: dict[str, float | int | str] = {}
    if isinstance(costs, RowCosts):
        optimiser = optimiser or Proximal()
        monitor.bound = 0.0
        rows, costs, names = _measured(rows, costs, names)
        if isinstance(optimiser, Proximal):
            fit = ProximalFit(counted, rows, costs, monitor, names, stats)
            status = fit.run(potentials, warm=start is not None)
        else:
            status = optimiser.run(SmoothSearch(counted, RowLoss(rows, costs), monitor, potentials))
        if status is Status.CONVERGED:
            stats["stop"] = _reason(rows, costs, monitor)
    else:
        optimiser = optimiser or AcceleratedDescent()
        if isinstance(optimiser, Proximal):
            raise DeclarationError("the proximal optimiser takes costs of rows alone: choose another for a custom loss")
        status = optimiser.run(SmoothSearch(counted, CustomLoss(costs, rows), monitor, potentials))
    stats |= {"optimiser": optimiser.name, "steps": monitor.steps, "oracle_calls": counted.calls}
    stats |= {"expected_cost": monitor.scale, "seconds": time.monotonic() - started}
    return ModelFit(monitor.potentials, monitor.marginals, monitor.objective, monitor.gap, status, stats)


def _reason(rows: MeasuredRows, costs: RowCosts, monitor: Monitor) -> str:
    """Whether the gap or the noise level ended the fit; in the second case it goes back to that level."""
    if monitor.gap <= monitor.enough:
        return "gap"
    if not costs.exact.any():
        _retreat(RowLoss(rows, costs), monitor)
    return "noise level"


def _checked_start(oracle: CountedOracle, start: Array | None) -> Array:
    if start is None:
        return np.zeros(oracle.layout.size)
    if start.shape != (oracle.layout.size,) or not np.isfinite(start).all():
        raise DeclarationError(
            f"the potentials to start with have shape {start.shape} and {np.count_nonzero(~np.isfinite(start))} "
            f"entries that are not finite; the layout has {oracle.layout.size} cells: give a finite number for each"
        )
    return np.array(start, dtype=np.float64)


def _noise_level(costs: RowCosts | ConvexLoss, stop: str) -> float:
    """The objective at which to stop."""
    if stop == "converged":
        return -np.inf
    if stop != "noise":
        raise DeclarationError(f"the stop is {stop!r}; choose 'converged' or 'noise'")
    if not isinstance(costs, RowCosts):
        raise DeclarationError("the noise level of a custom loss is not known: stop where it has converged")
    return costs.expected


def _measured(
    rows: MeasuredRows | None, costs: RowCosts, names: Sequence[str] | None
) -> tuple[MeasuredRows, RowCosts, Sequence[str]]:
    """The rows of queries of which anything was measured, their costs, and what to call the queries."""
    if rows is None:
        raise DeclarationError("costs are those of measured rows: give the rows")
    if costs.observed.shape != (rows.size,):
        raise DeclarationError(f"{costs.observed.size} costs for {rows.size} measured rows: give one for each row")
    names = names if names is not None else [f"query {place}" for place in range(len(rows.queries))]
    if len(names) != len(rows.queries):
        raise DeclarationError(f"{len(names)} names for {len(rows.queries)} queries: give one for each query")
    cost = costs.exact | (costs.slope > 0) | (costs.curvature > 0)
    numbers = (costs.observed[cost], costs.slope, costs.curvature)
    if not all(np.isfinite(each).all() for each in numbers) or min(costs.slope.min(), costs.curvature.min()) < 0:
        raise DeclarationError("a measured value or its weight is not a finite number, or a weight is below 0")
    kept = [place for place, part in enumerate(rows.slices) if cost[part].any()]
    if not kept:
        raise DeclarationError("no row has a cost: nothing was measured; give at least one measured row")
    some, where = rows.subset(kept)
    stored, order = some.in_storage_order()
    where = where[order]
    known = RowCosts(
        np.where(cost[where], costs.observed[where], 0.0),
        costs.slope[where],
        costs.curvature[where],
        costs.exact[where],
        costs.one_sided[where],
    )
    by_scope = sorted(kept, key=lambda place: rows.queries[place].scope)
    return stored, known, [names[place] for place in by_scope]


def _retreat(loss: RowLoss, monitor: Monitor) -> None:
    """Go back on the last step to where the objective is just below the noise level."""
    if monitor.above is None:
        return
    low, high, origin, step = 0.0, 1.0, monitor.above, monitor.potentials - monitor.above
    for _ in range(RETREATS):
        if monitor.objective >= (1.0 - NOISE_ACCURACY) * monitor.noise_level:
            return
        share = 0.5 * (low + high)
        potentials = origin + share * step
        marginals = monitor.oracle.marginals(potentials).values
        objective = loss.value(marginals)
        if objective > monitor.noise_level:
            low = share
        else:
            high = share
            monitor.potentials, monitor.marginals, monitor.objective = potentials, marginals, objective
