"""How `Graphical` fits a model that is known to be small enough: settings, total, rows, centre, search, report."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.errors import DeclarationError
from consilience.estimators.base import Estimate, MarginalLoss, Progress, check_choice, named_marginals, reported
from consilience.estimators.evidence import OwnLoss, check_loss, places_of
from consilience.estimators.graphical_model import GraphicalEstimate, MeasuredModel, Prior
from consilience.kernels.linear_maps import Kronecker
from consilience.marginals.table_stacks import stored_order
from consilience.measurements import MeasurementSet
from consilience.models.fitting.first_order import AcceleratedDescent, Direct, DualAveraging, MirrorDescent
from consilience.models.fitting.fit_model import ModelFit, Optimiser, Proximal, fit_model
from consilience.models.fitting.least_risk import (
    TWINS_OF_OPTIMUM,
    LeastRiskFit,
    fit_least_risk,
    free_numbers,
    is_beyond_noise,
    risk_of_optimum,
)
from consilience.models.fitting.objective import MeasuredQuery, MeasuredRows, RowLoss
from consilience.models.fitting.retraced_fits import RetracedFit, Way
from consilience.models.model import carry_potentials
from consilience.models.oracle import CountedOracle, Oracle
from consilience.models.tables import TableLayout
from consilience.solvers.fit import Loss, Status
from consilience.solvers.tables.row_costs import RowCosts

Array = NDArray[np.float64]
Stop = Literal["auto", "least-risk", "noise", "converged"]
Step = Literal["auto", "line-search", "decreasing"]
OptimiserName = Literal["proximal", "mirror-descent", "dual-averaging", "accelerated", "direct"]
Report = Callable[[int, float, float], None]
Found = tuple[Array, Status, dict[str, float | int | str]]
"""The potentials, why the search ended, and how it went."""

LARGEST_TREE = 100_000_000
"""Cells of all cliques together: a pass over them takes about a tenth of a second, and a fit hundreds of passes."""

SMALLEST_TOTAL = 1e-9
"""What a public total of 0 is taken for: a model has some record."""

MOST_RISK_STEPS = 300
"""Where the estimated error still falls after so many steps, noise hardly matters, and the optimum itself is found."""

NEARLY_ALL = 0.9
"""A fit that has taken in this share of the noise that a model can take in is nearly the optimum, which may then have
the smaller error: it is found as well, and the estimated errors are compared, with no more work than the search took.
"""

OPTIMISERS = {
    "proximal": Proximal(),
    "dual-averaging": DualAveraging(),
    "accelerated": AcceleratedDescent(),
    "direct": Direct(),
}


@dataclass(frozen=True)
class GraphicalSettings:
    """The settings of `Graphical`, checked when they are made; there stands what each means."""

    loss: OwnLoss | MarginalLoss = "l2"
    alpha: float = 0.9
    stop: Stop = "auto"
    optimiser: OptimiserName = "proximal"
    step: Step | float = "auto"
    also: tuple[tuple[str, ...], ...] = ()
    total: float | None = None
    tolerance: float = 1e-3
    max_steps: int = 10_000
    time_limit: float | None = None
    largest_tree: int = LARGEST_TREE
    memory_limit: int = 4_000_000_000
    prior: Prior | None = None

    name: ClassVar[str] = "graphical"

    def __post_init__(self) -> None:
        object.__setattr__(self, "also", named_marginals(self.also))
        if not isinstance(self.loss, MarginalLoss):
            check_loss(self.loss, get_args(OwnLoss), was_auto="l2")
        check_choice(self.stop, "the stop", get_args(Stop))
        check_choice(self.optimiser, "the optimiser", get_args(OptimiserName))
        if isinstance(self.step, str):
            check_choice(self.step, "the step", get_args(Step))
        elif not (np.isfinite(self.step) and self.step > 0):
            raise DeclarationError(
                f"the step is {self.step!r}; give a number above 0, or one of {', '.join(get_args(Step))}"
            )
        if self.step != "auto" and self.optimiser != "mirror-descent":
            raise DeclarationError(
                f'a step is for optimiser="mirror-descent", and the optimiser is {self.optimiser!r}; leave one out'
            )
        Loss.named("elastic", alpha=self.alpha)
        if not 0.0 < self.tolerance < 1.0:
            raise DeclarationError(f"the tolerance is {self.tolerance!r}; give a relative gap such as 1e-3")
        if self.total is not None and not (np.isfinite(self.total) and self.total > 0):
            raise DeclarationError(f"the total is {self.total!r}; give a number above 0, or None to estimate it")
        if self.stop == "least-risk" and self.loss != "l2":
            raise DeclarationError('stop="least-risk" is for squares; with another loss choose another stop')

    def describe(self) -> dict[str, Any]:
        """The settings as plain data."""
        loss = "custom" if isinstance(self.loss, MarginalLoss) else self.loss
        settings: dict[str, Any] = {"method": self.name, "loss": loss, "stop": self.stop}
        settings |= {"optimiser": self.optimiser, "tolerance": self.tolerance}
        settings |= {} if self.step == "auto" else {"step": self.step}
        return settings | ({"alpha": self.alpha} if self.loss == "elastic" else {})


Made = TypeVar("Made", bound=Estimate)


@dataclass(frozen=True, eq=False)
class Fitting(ABC, Generic[Made]):
    """One fit: the settings, what was measured, and the scopes; what the distributions are is left to each kind."""

    settings: GraphicalSettings
    problem: MeasuredModel
    scopes: tuple[tuple[int, ...], ...]

    @abstractmethod
    def _oracle(self, total: float) -> Oracle:
        """The marginals of the distributions among which the fit is sought."""

    @abstractmethod
    def _sizes(self) -> dict[str, float | int | str]:
        """What the fit tells of its size."""

    @abstractmethod
    def _origin(self, layout: TableLayout) -> Array:
        """Where a search that goes to the optimum begins."""

    def _centre(self, layout: TableLayout, perturbation: Array | None = None) -> Array:
        """Where a search that ends early begins, and so what its answers are drawn to.

        With a perturbation it is where the search would begin if the rows were moved by it.
        """
        return self._origin(layout)

    def _marginals_of_centre(self, oracle: Oracle) -> Array | None:
        """The marginals of the centre where they are known without the oracle."""
        return None

    @property
    def _most_free(self) -> float:
        """How many free numbers the distributions have beyond what their scopes say; infinite where they limit none."""
        return math.inf

    @abstractmethod
    def _estimate(
        self,
        measured: MeasurementSet,
        oracle: Oracle,
        potentials: Array,
        status: Status,
        stats: dict[str, float | int | str],
    ) -> Made:
        """The estimate with these potentials."""

    def run(
        self,
        measured: MeasurementSet,
        progress: Progress | None,
        start: GraphicalEstimate | None,
        *,
        to_the_end: bool = False,
    ) -> Made:
        """The fit; `to_the_end` goes to the optimum where the settings would look for the least risk."""
        began = time.monotonic()
        total, source = self._total()
        oracle = self._oracle(total)
        stats = {"total_from": source, **self._sizes(), "model_cells": oracle.layout.size}
        potentials, status, found = self._search(
            oracle, reported(progress, self.settings.max_steps), start, to_the_end=to_the_end
        )
        stats |= found | {"seconds": time.monotonic() - began}
        return self._estimate(measured, oracle, potentials, status, stats)

    def run_again(
        self,
        measured: MeasurementSet,
        fitted: Estimate,
        *,
        times: float = 1.0,
        least_steps: int = 0,
        way: Way | None = None,
    ) -> Made:
        """What `fitted` would have been with this noise, gone so many times as far, or along a way known before."""
        if not self._ends_early(fitted):
            return self.run(measured, None, None, to_the_end=True)
        again, effort = self._retraced(fitted), float(fitted.stats["effort"])
        oracle = again.oracle
        if way is None:
            potentials = again.searched(times * effort, least_steps=least_steps)
        else:
            potentials = again.along(way, self._marginals_of_centre(oracle))
        return self._estimate(measured, oracle, potentials, fitted.status, {"effort": effort})

    def way(self, fitted: Estimate) -> Way | None:
        """The way that `run_again` goes; None where `fitted` did not stop at its least estimated error."""
        if not self._ends_early(fitted):
            return None
        return self._retraced(fitted).rehearse(float(fitted.stats["effort"]))

    def _ends_early(self, fitted: Estimate) -> bool:
        """Whether `fitted` stopped at its least estimated error, and a fit to these measurements can stop there too."""
        return bool(self._stop == "least-risk" and "effort" in fitted.stats and self._kept)

    def _retraced(self, fitted: Estimate) -> RetracedFit:
        """This fit, to end where another one ended."""
        oracle = self._oracle(self._total()[0])
        start, noise = self._centre(oracle.layout), float(fitted.stats["degrees_of_freedom"])
        steps = 2 * MOST_RISK_STEPS  # with other noise the same way may take more of them
        return RetracedFit(oracle, self._rows(oracle.layout), self._costs.observed, start, noise, steps)

    def _total(self) -> tuple[float, str]:
        """The number of records, and where it comes from."""
        if self.settings.total is not None:
            return self.settings.total, "the caller"
        known = self.problem.known_total()
        if known is not None:
            return max(known, SMALLEST_TOTAL), "a public fact"
        return self.problem.estimated_total()

    @property
    def _stop(self) -> str:
        """When the search ends: for "auto" where the estimated error is least, if that can be estimated."""
        if self.settings.stop != "auto":
            return self.settings.stop
        return "converged" if self._reason_against_least_risk() else "least-risk"

    def _reason_against_least_risk(self) -> str | None:
        costs = self._costs
        if self.settings.loss != "l2":
            return "the loss is not that of squares"
        if costs.exact.any():
            return "exact facts beyond the total must be met"
        return "of some answers only a bound is known" if costs.one_sided.any() else None

    @cached_property
    def _kept(self) -> list[int]:
        """The places of the queries that say more than the total."""
        return [place for place, query in enumerate(self.problem.queries) if query.scope]

    @cached_property
    def _costs(self) -> RowCosts:
        costs, order = self.problem.costs(), self._order
        return RowCosts(
            costs.observed[order],
            costs.slope[order],
            costs.curvature[order],
            costs.exact[order],
            costs.one_sided[order],
        )

    def _rows(self, layout: TableLayout) -> MeasuredRows:
        queries = []
        for place in self._kept:
            query = self.problem.queries[place]
            maps = None if query.is_marginal else Kronecker(query.maps)
            axes = query.axes if maps else stored_order(layout.sizes, query.axes)
            queries.append(MeasuredQuery(self.scopes.index(query.scope), axes, self.problem.weights[place], maps))
        return MeasuredRows(layout, queries)

    @property
    def _order(self) -> NDArray[np.intp]:
        """The answers in the order of the rows: marginals as the model stores them, so that nothing is moved about."""
        sizes, start, order = self.problem.domain.shape, 0, []
        for query, weights in zip(self.problem.queries, self.problem.weights, strict=True):
            cells = np.arange(start, start := start + weights.size)
            if query.is_marginal and query.scope:
                stored = stored_order(sizes, query.axes)
                table = cells.reshape([sizes[attribute] for attribute in query.axes])
                cells = table.transpose([query.axes.index(attribute) for attribute in stored]).ravel()
            order += [cells] if query.scope else []
        return np.concatenate([np.empty(0, dtype=np.intp), *order])

    def _search(
        self, oracle: Oracle, report: Report | None, start: GraphicalEstimate | None, *, to_the_end: bool
    ) -> Found:
        """The potentials, why the search ended, and how it went."""
        if isinstance(self.settings.loss, MarginalLoss):
            return self._custom(oracle, self.settings.loss, report, start)
        if not self._kept:
            return self._origin(oracle.layout), Status.CONVERGED, {"objective": 0.0, "gap": 0.0, "oracle_calls": 0}
        rows = self._rows(oracle.layout)
        begin = self._origin if self._stop == "converged" else self._centre
        first = begin(oracle.layout) if start is None else self._carried(oracle.layout, start)
        if self._stop == "least-risk" and not to_the_end:
            return self._least_risk(oracle, rows, first, report, from_centre=start is None)
        max_steps, time_limit = self.settings.max_steps, self.settings.time_limit
        return self._described(self._converge(oracle, rows, self._costs, first, report, max_steps, time_limit))

    def _converge(
        self,
        oracle: Oracle,
        rows: MeasuredRows,
        costs: RowCosts,
        first: Array,
        report: Report | None,
        max_steps: int,
        time_limit: float | None,
    ) -> ModelFit:
        return fit_model(
            oracle,
            rows,
            costs,
            optimiser=self._optimiser(kinks=bool(costs.slope.any())),
            stop="noise" if self._stop == "noise" else "converged",
            tolerance=self.settings.tolerance,
            max_steps=max_steps,
            time_limit=time_limit,
            start=first,
            names=[self.problem.names[place] for place in self._kept],
            progress=report,
        )

    def _custom(
        self, oracle: Oracle, loss: MarginalLoss, report: Report | None, start: GraphicalEstimate | None
    ) -> Found:
        """The model of least loss, where the loss is the user's own."""
        if self.problem.table.other_facts:
            names = ", ".join(fact.name for fact in self.problem.table.other_facts)
            raise DeclarationError(
                f"a loss of marginals cannot keep exact facts beyond the total, found {names}; leave them out, or make "
                "them part of the loss"
            )
        return self._described(
            fit_model(
                oracle,
                None,
                loss.of_layout(oracle.layout, self.problem.domain),
                optimiser=None if self.settings.optimiser == "proximal" else self._optimiser(kinks=False),
                tolerance=self.settings.tolerance,
                max_steps=self.settings.max_steps,
                time_limit=self.settings.time_limit,
                start=self._origin(oracle.layout) if start is None else self._carried(oracle.layout, start),
                progress=report,
            )
        )

    def _optimiser(self, *, kinks: bool) -> Optimiser:
        if self.settings.optimiser != "mirror-descent":
            return OPTIMISERS[self.settings.optimiser]
        by_itself = "decreasing" if kinks else "line-search"
        return MirrorDescent(by_itself if self.settings.step == "auto" else self.settings.step)

    def _described(self, fit: ModelFit) -> Found:
        noisy = fit.stats.get("stop") == "noise level"
        stats = {"objective": fit.objective, "gap": fit.gap, **fit.stats}
        return np.array(fit.potentials), Status.NOISE_LEVEL if noisy else fit.status, stats

    def _least_risk(
        self, oracle: Oracle, rows: MeasuredRows, first: Array, report: Report | None, *, from_centre: bool
    ) -> Found:
        reason = self._reason_against_least_risk()
        if reason is not None:
            raise DeclarationError(f'stop="least-risk" cannot be used, because {reason}; choose another stop')
        costs, settings, began = self._costs, self.settings, time.monotonic()
        laplace = np.repeat(
            [self.problem.is_laplace(place) for place in self._kept],
            [self.problem.weights[place].size for place in self._kept],
        )
        scopes = [self.problem.queries[place].scope for place in self._kept]
        most = min(free_numbers(scopes, self.problem.domain.shape), costs.observed.size, self._most_free)
        fit = fit_least_risk(
            oracle,
            rows,
            costs.observed,
            laplace,
            start=first,
            moved_start=(lambda perturbation: self._centre(oracle.layout, perturbation)) if from_centre else None,
            most=most,
            max_steps=min(settings.max_steps, MOST_RISK_STEPS),
            time_limit=settings.time_limit,
            progress=report,
        )
        late = settings.time_limit is not None and fit.seconds > settings.time_limit
        objective = costs.value(rows.apply(fit.marginals) - costs.observed)
        beyond = is_beyond_noise(objective, costs.expected)
        unfinished = fit.limited or fit.full or beyond  # the estimated error was still falling
        if (unfinished or fit.freedom >= NEARLY_ALL * most) and not late and fit.steps < settings.max_steps:
            few = min(settings.max_steps, fit.oracle_calls // (1 + TWINS_OF_OPTIMUM))

            def optimum(observed: Array, max_steps: int = few) -> ModelFit:
                left = None if settings.time_limit is None else began + settings.time_limit - time.monotonic()
                origin, moved = self._origin(oracle.layout), replace(costs, observed=observed)
                return self._converge(oracle, rows, moved, origin, report, max_steps, left)

            found = optimum(costs.observed, settings.max_steps if unfinished else few)
            if fit.limited or beyond or self._is_better(found, fit, rows, optimum, laplace):
                return self._described(found)
        counted = CountedOracle(oracle)
        stats: dict[str, float | int | str] = {
            "objective": objective,
            "gap": RowLoss(rows, costs).gap(counted, fit.marginals),
            "expected_cost": costs.expected,
            "estimated_risk": fit.risk,
            "degrees_of_freedom": fit.freedom,
            "steps": fit.steps,
            "best_step": fit.best_step,
            "effort": float(fit.effort),
            "oracle_calls": fit.oracle_calls + counted.calls,
        }
        ended = Status.TIME_LIMIT if late else Status.STEP_LIMIT
        return fit.potentials, ended if fit.limited else Status.LEAST_RISK, stats

    def _is_better(
        self,
        found: ModelFit,
        fit: LeastRiskFit,
        rows: MeasuredRows,
        optimum: Callable[[Array], ModelFit],
        laplace: NDArray[np.bool_],
    ) -> bool:
        """Whether the optimum has a smaller estimated error than `fit`; if unknown, whether `fit` was going there."""

        def twin(observed: Array) -> Array | None:
            near = optimum(observed)
            return rows.apply(near.marginals) if near.status is Status.CONVERGED else None

        if found.status is not Status.CONVERGED:
            return fit.full
        risk = risk_of_optimum(fit, rows.apply(found.marginals), twin, self._costs.observed, laplace)
        return fit.full if math.isnan(risk) else risk < fit.risk

    def _carried(self, layout: TableLayout, start: GraphicalEstimate) -> Array:
        """The potentials of an earlier estimate in this layout."""
        if start.domain.shape != self.problem.domain.shape:
            raise DeclarationError(
                f"the estimate to start from has the shape {start.domain.shape}, the domain "
                f"{self.problem.domain.shape}; start from an estimate of the same domain"
            )
        return carried(start.domain, start.scopes, start.potentials, layout)


def carried(domain: Domain, scopes: Sequence[Sequence[str]], potentials: Sequence[Array], layout: TableLayout) -> Array:
    """The potentials of a model over the domain in the layout of another."""
    places = places_of(domain)
    old = TableLayout(domain.shape, [tuple(places[name] for name in scope) for scope in scopes])
    return carry_potentials(old, old.pack(potentials), layout)
