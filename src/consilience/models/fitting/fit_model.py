"""`fit_model`: the graphical model of least cost behind measured rows.

    min over models μ with the total N of Σ φ(Bμ − c),    exact rows met,

or of any convex loss. The default for costs of rows is the proximal point method; costs with kinks or ends begin where
squares in their place are nearly best. For other losses it is accelerated mirror descent. Every answer is a model: its
marginals are those of its potentials.

*When to stop.* "converged" stops at a proven gap. "noise" stops at the first model whose cost has come down to what
noise alone leads one to expect, and then goes back on its last step to where the cost is just that: beyond that point a
model follows the noise, and its error may rise while its cost falls (McKenna, Sheldon & Miklau 2019, appendix D.1).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.models.fitting.first_order import AcceleratedDescent, Direct, DualAveraging, MirrorDescent
from consilience.models.fitting.objective import ConvexLoss, CustomLoss, Monitor, Progress, RowLoss, SmoothSearch
from consilience.models.fitting.proximal_fit import Proximal, ProximalFit
from consilience.models.fitting.rows import MeasuredRows
from consilience.models.oracle import CountedOracle, Oracle
from consilience.solvers.fit import Status
from consilience.solvers.tables.row_costs import RowCosts

Array = NDArray[np.float64]
Optimiser = Proximal | MirrorDescent | DualAveraging | AcceleratedDescent | Direct

NOISE_ACCURACY = 0.02
"""A stop at the noise level is at an objective between this much below it and the level itself."""

RETREATS = 12


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
