"""`Graphical`: the graphical model that agrees best with measurements on marginals of a domain of any size.

Among all distributions the one of greatest entropy that minimises a convex loss of its marginals has the form

    p(x) ∝ exp Σ_s θ_s(x_s)       over the measured scopes s      (McKenna, Sheldon, Miklau 2019, §3),

so its tables θ_s are all that must be found. What it costs depends on the junction tree of the scopes, not on the full
table: it is predicted before anything is allocated.

*The total* is a public fact, or the inverse-variance average of what each measurement says of it (appendix E.1), and is
then kept. *Losses* are those of `Table`, each answer's residual in units of its own noise (C.2); answers that were
clipped at zero, or not released, cost what their likelihood says; exact facts are kept.

*When to stop.* The optimum fits noise. "least-risk" begins at the model in which all attributes are independent and
goes towards the optimum as long as the estimated error falls (`models/fitting/least_risk.py`); "noise" stops
when the loss has come down to what noise alone leads one to expect; "converged" goes all the way, from the uniform
distribution, and is the estimator of the paper.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import nnls

from consilience.errors import ConsilienceError, MeasurementError, ModelTooLarge, listed, readable_bytes, readable_count
from consilience.estimators.base import MarginalLoss, Progress, Suitability
from consilience.estimators.graphical_fitting import SMALLEST_TOTAL, Fitting, GraphicalSettings, Report, carried
from consilience.estimators.graphical_model import Array, GraphicalEstimate, MeasuredModel, PublicModel
from consilience.marginals.least_squares import one_way_shares
from consilience.marginals.table_stacks import summed
from consilience.measurements import MeasurementSet
from consilience.models.fitting.fit_model import ModelFit
from consilience.models.fitting.least_risk import is_beyond_noise
from consilience.models.fitting.objective import MeasuredRows, RowLoss
from consilience.models.fitting.retraced_fits import Way
from consilience.models.junction_trees import (
    JunctionTree,
    WorstClique,
    blamed,
    known_tree,
    known_tree_within,
    oracle_work,
    predicted_bytes,
    worst_cliques,
)
from consilience.models.model import independent_marginals, independent_potentials
from consilience.models.oracle import CountedOracle, MarginalOracle, Oracle
from consilience.models.tables import TableLayout
from consilience.solvers.fit import Status
from consilience.solvers.tables.row_costs import RowCosts

LARGEST_ONE_TABLE = 2_000
"""Cells of a model that is one table, and the root of its cells times rows, up to which a search that failed is made up
for by the table itself: some seconds."""

SECONDS_PER_CELL, USUAL_CALLS = 3e-9, 800
"""What a cell of `oracle_work` takes, and how many calls a fit to little noise makes."""


@dataclass(frozen=True, eq=False)
class ModelFitting(Fitting[GraphicalEstimate]):
    """A fit among graphical models, whose marginals come from a junction tree."""

    tree: JunctionTree
    prior: PublicModel | None

    def _sizes(self) -> dict[str, float | int | str]:
        return {"junction_tree_cells": self.tree.cells, "largest_clique": self.tree.largest}

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
        fit = super()._converge(oracle, rows, costs, first, report, max_steps, time_limit)
        if fit.status is Status.CONVERGED or not is_beyond_noise(fit.objective, costs.expected):
            return fit
        exact = self._as_one_table(oracle, rows, costs)
        return fit if exact is None or exact.objective >= fit.objective else exact

    def _as_one_table(self, oracle: Oracle, rows: MeasuredRows, costs: RowCosts) -> ModelFit | None:
        """The best of all tables where one measured scope has every attribute and few cells; None elsewhere.

        Where noise is 10⁻¹² of the counts, its zeros are further away than a search moves potentials, and squared
        conditions lose the noise in rounding: Lawson and Hanson's method (1974, ch. 23) works on the rows themselves.
        """
        layout, place = oracle.layout, max(range(len(self.scopes)), key=lambda each: len(self.scopes[each]))
        axes = layout.axes[place]
        few = self.tree.cells <= LARGEST_ONE_TABLE and rows.size <= LARGEST_ONE_TABLE**2 // self.tree.cells
        squares = not (costs.slope.any() or costs.exact.any() or costs.one_sided.any())
        if not (few and squares and all(set(scope) <= set(axes) for scope in self.scopes)):
            return None
        if self.prior is not None or self.problem.allowed:
            return None
        cells = np.eye(self.tree.cells).reshape(-1, *(layout.sizes[axis] for axis in axes))
        columns = [
            rows.apply(np.concatenate([summed(cell, axes, each).ravel() for each in layout.axes])) for cell in cells
        ]
        weights = np.sqrt(costs.curvature)
        try:
            counts, _ = nnls(np.stack(columns, axis=1) * weights[:, None], costs.observed * weights)
        except RuntimeError:  # too many steps
            return None
        potentials = np.zeros(layout.size)
        shares = counts / max(float(counts.sum()), SMALLEST_TOTAL)
        potentials[layout.slices[place]] = np.log(np.maximum(shares, np.finfo(np.float64).tiny))
        counted = CountedOracle(oracle)
        marginals = counted.marginals(potentials).values
        objective = costs.value(rows.apply(marginals) - costs.observed)
        gap = RowLoss(rows, costs).gap(counted, marginals)
        stats: dict[str, float | int | str] = {"optimiser": "one table", "steps": 1, "oracle_calls": counted.calls}
        stats["expected_cost"] = costs.expected
        return ModelFit(potentials, marginals, objective, gap, Status.CONVERGED, stats)

    def _oracle(self, total: float) -> Oracle:
        return MarginalOracle(self.tree, self.scopes, total=total, allowed=self.problem.allowed)

    def _origin(self, layout: TableLayout) -> Array:
        """The prior, or else the uniform distribution."""
        if self.prior is None:
            return np.zeros(layout.size)
        return carried(self.problem.domain, self.prior.scopes, self.prior.potentials, layout)

    def _centre(self, layout: TableLayout, perturbation: Array | None = None) -> Array:
        """The prior, or else independent attributes."""
        if self.prior is not None:
            return self._origin(layout)
        if perturbation is None:
            return independent_potentials(layout, self._shares)
        moved = np.zeros(sum(each.size for each in self.problem.weights))
        moved[self._order] = perturbation
        return independent_potentials(layout, one_way_shares(self.problem.noisy_products(moved)))

    def _marginals_of_centre(self, oracle: Oracle) -> Array | None:
        if self.problem.allowed or self.prior is not None:
            return None
        return independent_marginals(oracle.layout, self._shares, oracle.total)

    @cached_property
    def _shares(self) -> Mapping[int, Array]:
        """The shares of the values of single attributes, as far as measurements tell them."""
        return one_way_shares(self.problem.noisy_products())

    def _estimate(
        self,
        measured: MeasurementSet,
        oracle: Oracle,
        potentials: Array,
        status: Status,
        stats: dict[str, float | int | str],
    ) -> GraphicalEstimate:
        names = self.problem.domain.counted_names
        scopes = tuple(tuple(names[place] for place in scope) for scope in self.scopes)
        method = self.settings.describe() | {"scopes": [list(scope) for scope in scopes], "stopped": self._stop}
        tables = tuple(oracle.layout.unpack(potentials))
        if self.prior is not None:
            method |= {"prior": {"name": self.prior.name, "scopes": [list(scope) for scope in self.prior.scopes]}}
            measured = measured.relying_on(
                *self.prior.facts, f"{self.prior.name}, as the model that the fit began with"
            )
            measured = replace(measured, private=measured.private and self.prior.private)
        return GraphicalEstimate(measured, method, status, stats, scopes, tables, oracle.total, self.prior)


@dataclass(frozen=True)
class Graphical(GraphicalSettings):
    """The graphical model over the measured scopes, for domains of any size.

    `loss` is "l2", "l1", "elastic" with the share `alpha` of the absolute value, or "likelihood", each measurement's
    own, which our benchmarks and the paper's find to generalise less well than "l2" where noise is Laplace's. A
    `MarginalLoss` is a convex loss of your own, in place of the measured answers.
    `stop` is "least-risk", "noise" or "converged" (above); "auto" takes "least-risk" where it can: for squares, without
    exact facts beyond the total and without answers of which only a bound is known. `optimiser` carries out "noise" and
    "converged": "proximal", or the paper's "mirror-descent", "dual-averaging" and "direct". `step` is that of mirror
    descent: "line-search", "decreasing" like 1/√t, or a number, the η of every step; "auto" takes a line search, and
    for losses with kinks (all but "l2"), where it stalls, decreasing steps. These are slow: "proximal" is not.

    `also` names marginals that will be asked for often: they join the model, so that they are at hand. `tolerance`
    bounds the optimality gap in units of the objective or of the expected noise, whichever is larger; `max_steps` and
    `time_limit` (seconds) end the search earlier, and the status then says so. `largest_tree` is the most cells that
    the cliques of the junction tree may have together. `total` is the number of records where it is known.

    `prior` is what is known from elsewhere, public records or another estimate: the fit begins with it in place of
    independent attributes and leaves it only where measurements say so. At the optimum it is, of all models of least
    loss, the one nearest to the prior in relative entropy. It costs nothing, and the privacy statement names it.
    """

    def suitability(self, measured: MeasurementSet) -> Suitability:
        problem = self._problem(measured)
        if self.total is None and not problem.tells_the_total:
            return Suitability(False, "no measurement has answers that add up to the number of records")
        tree, scopes = self._tree_within(problem), self._scopes(problem)
        if isinstance(tree, WorstClique):
            reason = f"every junction tree found has a clique of more than {self.largest_tree:,} cells"
            return Suitability(False, f"{reason}, which Graphical takes at most", 8 * min(tree.cells, 2**57))
        text = (
            f"the junction tree has {readable_count(tree.cells)} cells, {readable_count(tree.largest)} of them in its "
            "largest clique"
        )
        if tree.cells > self.largest_tree:
            reason = f"{text}; Graphical takes up to {self.largest_tree:,}"
            return Suitability(False, reason, 8 * min(tree.cells, 2**57))
        early, optimal = (predicted_bytes(tree, scopes, problem.rows, optimal=each) for each in (False, True))
        # Which of the two a fit that stops by itself will take, only its noise tells.
        need = round(math.sqrt(early * optimal)) if self.stop in ("auto", "least-risk") else optimal
        if optimal > self.memory_limit:
            return Suitability(
                False,
                f"{text}, and takes up to {readable_bytes(optimal)} of memory; the limit is "
                f"{readable_bytes(self.memory_limit)}",
                need,
            )
        seconds = SECONDS_PER_CELL * USUAL_CALLS * oracle_work(tree, scopes)
        return Suitability(True, f"{text}, and fits in memory ({readable_bytes(need)})", need, seconds)

    def fit(
        self, measured: MeasurementSet, *, progress: Progress | None = None, start: GraphicalEstimate | None = None
    ) -> GraphicalEstimate:
        """The fitted model. `start` is an estimate from fewer or older measurements of the domain, to go on from."""
        suitable = self.suitability(measured)
        if not suitable.possible:
            raise self._refusal(measured, suitable)
        return self._fitting(measured).run(measured, progress, start)

    def refit(
        self,
        measured: MeasurementSet,
        fitted: GraphicalEstimate,
        *,
        times: float = 1.0,
        least_steps: int = 0,
        way: Way | None = None,
    ) -> GraphicalEstimate:
        """What `fitted` would have been with the noise of these measurements, which are of the same queries.

        A fit that stopped where its estimated error was least is repeated as far as it went, without estimating errors,
        or `times` as far, in `least_steps` at least. With the `way` that such a repetition went before, it takes the
        same steps, which is quicker. A search for the optimum begins anew: from the optimum of other noise, at which
        many cells are next to zero, it takes longer.
        """
        return self._fitting(measured).run_again(measured, fitted, times=times, least_steps=least_steps, way=way)

    def way(self, measured: MeasurementSet, fitted: GraphicalEstimate) -> Way | None:
        """The way that refits to measurements like these go; None where `fitted` did not stop on such a way."""
        return self._fitting(measured).way(fitted)

    def _fitting(self, measured: MeasurementSet) -> ModelFitting:
        problem = self._problem(measured)
        prior = None if self.prior is None else self.prior.public_model(measured)
        return ModelFitting(self, problem, self._scopes(problem), self._tree(problem), prior)

    def _problem(self, measured: MeasurementSet) -> MeasuredModel:
        loss = "l2" if isinstance(self.loss, MarginalLoss) else self.loss
        return MeasuredModel.of(measured, loss=loss, alpha=self.alpha)

    def _scopes(self, problem: MeasuredModel) -> tuple[tuple[int, ...], ...]:
        """The scopes of the model: the measured ones, and those asked for."""
        names = problem.domain.counted_names
        also = (*self.also, *(() if self.prior is None else self.prior.scopes))
        asked = (tuple(names.index(name) for name in problem.domain.ordered(each)) for each in also)
        own = self.loss.scopes(problem.domain) if isinstance(self.loss, MarginalLoss) else problem.scopes
        return tuple(dict.fromkeys((*own, *(scope for scope in asked if scope))))

    def _tree(self, problem: MeasuredModel) -> JunctionTree:
        return known_tree(problem.domain.shape, self._all_scopes(problem))

    def _tree_within(self, problem: MeasuredModel) -> JunctionTree | WorstClique:
        return known_tree_within(problem.domain.shape, self._all_scopes(problem), self.largest_tree)

    def _all_scopes(self, problem: MeasuredModel) -> tuple[tuple[int, ...], ...]:
        """The scopes of the model and those of impossible cells."""
        return (*self._scopes(problem), *(scope for scope, _ in problem.allowed))

    def _refusal(self, measured: MeasurementSet, suitable: Suitability) -> ConsilienceError:
        """What is missing; or what is too large, which measurements make it so, and what to do."""
        problem = self._problem(measured)
        if not suitable.predicted_bytes:
            return MeasurementError(
                f"graphical cannot fit these measurements: {suitable.reason}. Declare the public total, give total=, "
                "or measure a marginal"
            )
        tree, names = self._tree_within(problem), problem.domain.counted_names
        parts = []
        scopes = [query.scope for query in problem.queries]
        too_large = isinstance(tree, WorstClique)
        for worst in [blamed(tree.clique, tree.cells, scopes)] if too_large else worst_cliques(tree, scopes, 3):
            clique = listed([names[place] for place in worst.clique])
            causes = listed([problem.names[k] for k in worst.scopes], 4)
            parts.append(f"({clique}) has {readable_count(worst.cells)} cells, from the measurements {causes}")
        return ModelTooLarge(
            f"graphical cannot fit these measurements: {suitable.reason}. The largest cliques: {'. '.join(parts)}. Use "
            "the method residual, which needs no junction tree; or measure fewer overlapping marginals, or coarser "
            "attributes; or raise largest_tree and memory_limit"
        )
