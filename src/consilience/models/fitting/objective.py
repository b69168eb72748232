"""Measured rows of a model, what they cost, and the best model an optimiser has met.

A query measures the table of one scope: attributes it does not name are summed away, a Kronecker product acts on the
axes of the others, and every answer is times a weight, 1 over the scale of its noise as a rule. All answers of all
queries, one after another, are the rows B of a model; B takes the flat marginals of a `TableLayout` to them. Where a
query is the table itself, its rows are a gather and a product, and all such queries are done in one pass.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import IdentityMap, Kronecker
from consilience.marginals.table_stacks import Scope, summed
from consilience.models.oracle import CountedOracle
from consilience.models.tables import TableLayout
from consilience.solvers.fit import Status
from consilience.solvers.tables.row_costs import RowCosts

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MeasuredQuery:
    """A query about one scope's table, with a weight for each of its answers.

    The answers are in row-major order of the query's own axes.
    """

    scope: int
    """Which of the layout's scopes is measured."""
    attributes: Scope
    """What the axes of the query are; attributes of the scope that are not among them are summed away."""
    weights: Array
    kronecker: Kronecker | None = None
    """What acts on these axes; None keeps every cell."""

    @property
    def is_marginal(self) -> bool:
        """Whether the answers are the cells of the marginal on `attributes`."""
        return self.kronecker is None or all(isinstance(each, IdentityMap) for each in self.kronecker.maps)


class MeasuredRows:
    """All rows of a model: `apply` gives the weighted answers at some marginals, `adjoint` is the transposed map.

    >>> layout = TableLayout([2, 2], [(0, 1)])
    >>> rows = MeasuredRows(layout, [MeasuredQuery(0, (1,), np.array([1.0, 10.0]))])
    >>> rows.apply(layout.pack([[[1, 2], [3, 4]]]))
    array([ 4., 60.])
    """

    def __init__(self, layout: TableLayout, queries: Sequence[MeasuredQuery]) -> None:
        self.layout = layout
        self.queries = tuple(queries)
        answers = [_checked_answers(layout, place, query) for place, query in enumerate(self.queries)]
        ends = np.cumsum([0, *answers])
        self.size = int(ends[-1])
        self.slices = tuple(slice(a, b) for a, b in pairwise(ends.tolist()))
        self.weights = np.concatenate([np.empty(0), *(query.weights for query in self.queries)])
        """The weights of all rows."""
        whole = [query.is_marginal and len(query.attributes) == len(self._axes(query)) for query in self.queries]
        self._others = [place for place in range(len(self.queries)) if not whole[place]]
        self._gathered = [place for place in range(len(self.queries)) if whole[place]]

    def _axes(self, query: MeasuredQuery) -> Scope:
        return self.layout.axes[query.scope]

    @cached_property
    def _cells(self) -> NDArray[np.intp]:
        """For each row that is a cell of a scope's own table, which cell; queries of this kind one after another."""
        found = [np.empty(0, dtype=np.intp)]
        for place in self._gathered:
            query = self.queries[place]
            part = self.layout.slices[query.scope]
            cells = np.arange(part.start, part.stop).reshape([self.layout.sizes[a] for a in self._axes(query)])
            found.append(cells.transpose([self._axes(query).index(a) for a in query.attributes]).ravel())
        return np.concatenate(found)

    @cached_property
    def _rows(self) -> slice | NDArray[np.intp]:
        """The rows that are cells of tables, in the order of `_cells`."""
        if not self._others:
            return slice(0, self.size)
        parts = [np.arange(self.slices[place].start, self.slices[place].stop) for place in self._gathered]
        return np.concatenate([np.empty(0, dtype=np.intp), *parts])

    @cached_property
    def _in_storage_order(self) -> bool:
        """Whether the rows are the flat marginals themselves, cell by cell."""
        measured = [(query.scope, query.attributes) for query in self.queries]
        return not self._others and measured == list(enumerate(self.layout.axes))

    @cached_property
    def _cells_differ(self) -> bool:
        return np.unique(self._cells).size == self._cells.size

    def apply(self, marginals: Array, *, out: Array | None = None) -> Array:
        """B times flat marginals."""
        if self._in_storage_order:
            return np.multiply(marginals, self.weights, out=out)
        answers = np.empty(self.size) if out is None else out
        answers[self._rows] = marginals[self._cells]
        for place in self._others:
            answers[self.slices[place]] = self._answers(self.queries[place], marginals)
        answers *= self.weights
        return answers

    def adjoint(self, rows: Array, *, out: Array | None = None) -> Array:
        """Bᵀ times rows: a flat vector in the layout of the marginals."""
        if self._in_storage_order:
            return np.multiply(rows, self.weights, out=out)
        weighted = rows * self.weights
        flat = np.empty(self.layout.size) if out is None else out
        if self._cells_differ:
            flat.fill(0.0)
            flat[self._cells] = weighted[self._rows]
        else:
            flat[:] = np.bincount(self._cells, weighted[self._rows], self.layout.size)
        for place in self._others:
            self._spread(self.queries[place], weighted[self.slices[place]], flat)
        return flat

    def apply_squared(self, marginals: Array) -> Array:
        """Σ_j B_ij² m_j for each row i."""
        return self._squared.apply(marginals)

    @cached_property
    def _squared(self) -> "MeasuredRows":
        """The rows with every entry squared."""
        return MeasuredRows(self.layout, [_squared(query) for query in self.queries])

    def adjoint_squared(self, rows: Array) -> Array:
        """Σ_i B_ij² r_i for each cell j of the marginals."""
        return self._squared.adjoint(rows)

    def in_storage_order(self) -> tuple["MeasuredRows", NDArray[np.intp]]:
        """The same rows, ordered as far as may be like the cells of the flat marginals, and where they were."""
        order = sorted(range(len(self.queries)), key=lambda place: self.queries[place].scope)
        queries, rows = [], [np.empty(0, dtype=np.intp)]
        for place in order:
            query, part = self.queries[place], self.slices[place]
            where = np.arange(part.start, part.stop)
            if query.is_marginal:
                stored = tuple(attribute for attribute in self._axes(query) if attribute in query.attributes)
                table = where.reshape([self.layout.sizes[attribute] for attribute in query.attributes])
                where = table.transpose([query.attributes.index(attribute) for attribute in stored]).ravel()
                query = MeasuredQuery(query.scope, stored, self.weights[where])
            queries.append(query)
            rows.append(where)
        return MeasuredRows(self.layout, queries), np.concatenate(rows)

    def subset(self, places: Sequence[int]) -> tuple["MeasuredRows", NDArray[np.intp]]:
        """The rows of some queries alone, and where these rows are among all."""
        rows = [np.arange(self.slices[place].start, self.slices[place].stop) for place in places]
        return (
            MeasuredRows(self.layout, [self.queries[place] for place in places]),
            np.concatenate([np.empty(0, dtype=np.intp), *rows]),
        )

    def _answers(self, query: MeasuredQuery, marginals: Array) -> Array:
        table = summed(self.layout.view(marginals, query.scope), self._axes(query), query.attributes)
        if query.kronecker is not None:
            table = query.kronecker.apply(table)
        return np.asarray(table).ravel()

    def _spread(self, query: MeasuredQuery, weighted: Array, flat: Array) -> None:
        axes, sizes = self._axes(query), self.layout.sizes
        if query.kronecker is None:
            table = weighted.reshape([sizes[attribute] for attribute in query.attributes])
        else:
            table = query.kronecker.adjoint(weighted.reshape(query.kronecker.shape_out))
        kept = [attribute for attribute in axes if attribute in query.attributes]
        table = table.transpose([query.attributes.index(attribute) for attribute in kept])
        view = self.layout.view(flat, query.scope)
        view += table.reshape([sizes[attribute] if attribute in kept else 1 for attribute in axes])


def _squared(query: MeasuredQuery) -> MeasuredQuery:
    kronecker = query.kronecker
    if kronecker is not None:
        kronecker = Kronecker(tuple(each.squared() for each in kronecker.maps))
    return MeasuredQuery(query.scope, query.attributes, query.weights**2, kronecker)


def _checked_answers(layout: TableLayout, place: int, query: MeasuredQuery) -> int:
    """How many answers a query has; refuses one that does not fit its scope."""
    if not 0 <= query.scope < len(layout.scopes):
        raise DeclarationError(f"query {place} is about scope {query.scope}; there are {len(layout.scopes)} scopes")
    scope = layout.scopes[query.scope]
    if len(set(query.attributes)) < len(query.attributes) or not set(query.attributes) <= set(scope):
        raise DeclarationError(
            f"query {place} is about attributes {query.attributes} of the scope {scope}: name some of the scope's "
            "attributes, each once"
        )
    shape = tuple(layout.sizes[attribute] for attribute in query.attributes)
    if query.kronecker is not None and query.kronecker.shape_in != shape:
        raise DeclarationError(
            f"query {place} takes a table of shape {query.kronecker.shape_in}; its attributes {query.attributes} have "
            f"shape {shape}: give one map for each attribute"
        )
    answers = int(np.prod(shape if query.kronecker is None else query.kronecker.shape_out))
    if query.weights.shape != (answers,):
        raise DeclarationError(f"query {place} has {answers} answers and {query.weights.size} weights: give as many")
    if not (np.isfinite(query.weights).all() and query.weights.min(initial=1.0) > 0):
        raise DeclarationError(f"query {place} has a weight that is not a positive number; weights are 1 over a scale")
    return answers


# ----------------------------------------------------------------------------------------------------------------------
# The best model an optimiser has met, what is proven about it, and when to stop.


Progress = Callable[[int, float, float], None]

SETTLED = 0.5
"""The share of the gap that is asked for at which an earlier model is as good as the last one."""


@dataclass
class Monitor:
    """Keeps the best potentials and the best lower bound, and says when to stop and why."""

    oracle: CountedOracle
    tolerance: float
    scale: float
    """The cost that noise alone leads one to expect; gaps are compared with it where it exceeds the objective."""
    max_steps: int
    deadline: float
    noise_level: float = -np.inf
    """The objective at which to stop at once; −∞ for never."""
    progress: Progress | None = None
    potentials: Array = field(default_factory=lambda: np.empty(0))
    marginals: Array = field(default_factory=lambda: np.empty(0))
    objective: float = np.inf
    bound: float = -np.inf
    steps: int = 0
    _remembered: list[tuple[Array, float]] = field(default_factory=list)
    above: Array | None = None
    """The last potentials whose objective was above the noise level."""

    @property
    def gap(self) -> float:
        return max(self.objective - self.bound, 0.0)

    @property
    def enough(self) -> float:
        """The gap at which to stop."""
        objective = abs(self.objective) if np.isfinite(self.objective) else 0.0
        return self.tolerance * max(objective, self.scale)

    def meet(self, potentials: Array, marginals: Array, objective: float) -> Status | None:
        """Take note of a model; a status if it is time to stop."""
        self.steps += 1
        if objective > self.noise_level > -np.inf:
            self.above = potentials
        if objective < self.objective:
            self.potentials, self.marginals, self.objective = potentials, marginals, objective
        if self.progress is not None:
            self.progress(self.oracle.calls, self.objective, self.gap)
        return self.verdict()

    def prove(self, bound: float) -> Status | None:
        """Take note of a proven lower bound; a status if it is time to stop."""
        self.bound = max(self.bound, bound)
        if self.progress is not None:
            self.progress(self.oracle.calls, self.objective, self.gap)
        return self.verdict()

    def for_another_objective(self, *, tolerance: float, scale: float, noise_level: float = -np.inf) -> "Monitor":
        """A monitor with the same limits that knows no model yet."""
        limits = (self.max_steps, self.deadline)
        return Monitor(self.oracle, tolerance, scale, *limits, noise_level=noise_level, bound=0.0)

    def remember(self, potentials: Array, objective: float) -> None:
        """Keep a model that may turn out to have been good enough."""
        self._remembered.append((potentials, objective))

    def settle(self) -> None:
        """Go back to the first model remembered that is now known to be good enough.

        Proofs take steps in which the model hardly gets better, while its potentials still grow: the earlier one is as
        good, kinder to exponentials, and easier to begin another fit with.
        """
        for potentials, objective in self._remembered:
            if objective - self.bound <= SETTLED * self.enough:
                self.potentials, self.objective = potentials, objective
                self.marginals = self.oracle.marginals(potentials).values
                return

    def verdict(self) -> Status | None:
        """Why to stop now; None to go on."""
        if self.gap <= self.enough or self.objective <= self.noise_level:
            return Status.CONVERGED
        return self.limit()

    def limit(self) -> Status | None:
        """The limit that has been reached, if any."""
        if self.oracle.calls >= self.max_steps:
            return Status.STEP_LIMIT
        return Status.TIME_LIMIT if time.monotonic() >= self.deadline else None


# ----------------------------------------------------------------------------------------------------------------------
# How far a model can be from the best one at most: bounds from duals of rows, and from gradients.
#
# For duals ν at which the conjugates φ* are finite, every model μ with the total N has the cost
#
#     Σ φ(Bμ − c) ≥ νᵀ(Bμ − c) − Σ φ*(ν) ≥ −N·max over cells x of (−Bᵀν)(x) − cᵀν − Σ φ*(ν),
#
# because the marginals of a model mix those of single cells. The largest potential of a cell is exact (max-sum), so the
# bound is proven. For any convex loss with gradient g at μ, likewise, L(μ) − L(best) ≤ g·μ + N·max(−g) (Frank & Wolfe
# 1956, Nav. Res. Logist. Q. 3). Both need the same number of the linear function ν·B or g: its slack. `RowCosts.gap`
# does the rest for duals.


def slack_of(oracle: CountedOracle, gradient: Array, marginals: Array) -> float:
    """g·μ + N·max(−g): how much lower than at these marginals a linear function can be, at most."""
    work = float(np.einsum("i,i->", gradient, marginals))
    return max(work + oracle.total * oracle.largest(-gradient), 0.0)


# ----------------------------------------------------------------------------------------------------------------------
# What a model is judged by: the costs of its measured rows, or any convex loss of its marginals.
#
# First-order optimisers need a loss, its gradient in the flat marginals, and a bound on how far it is above its least
# value. For costs of rows the bound comes from duals (`slack_of`); a loss that is known by value and gradient alone
# has the bound g·μ + N·max(−g) of its gradient.


class ConvexLoss(Protocol):
    """Any convex function of answers with its gradient; answers are rows, or flat marginals where there are none."""

    def value_and_gradient(self, answers: Array) -> tuple[float, Array]: ...


@dataclass(frozen=True, eq=False)
class RowLoss:
    """The costs of measured rows; where a cost has a kink its gradient is one of its slopes there."""

    rows: MeasuredRows
    costs: RowCosts

    def __post_init__(self) -> None:
        if self.costs.exact.any():
            raise DeclarationError(
                f"{np.count_nonzero(self.costs.exact)} rows are exact, which gradients cannot keep: use the proximal "
                "optimiser, or give these rows noise"
            )

    def value(self, marginals: Array) -> float:
        return self.costs.value(self.rows.apply(marginals) - self.costs.observed)

    def value_and_gradient(self, marginals: Array) -> tuple[float, Array]:
        residual = self.rows.apply(marginals) - self.costs.observed
        return self.costs.value(residual), self.rows.adjoint(self._duals(residual))

    def gap(self, oracle: CountedOracle, marginals: Array) -> float:
        """By how much, at most, the loss at these marginals exceeds that of the best model."""
        residual = self.rows.apply(marginals) - self.costs.observed
        duals = self._duals(residual)
        return self.costs.gap(residual, duals, slack_of(oracle, self.rows.adjoint(duals), marginals))

    def _duals(self, residual: Array) -> Array:
        """φ'(r)."""
        felt = self.costs.felt(residual)
        return np.where(felt > 0, np.sign(residual) * (self.costs.slope + self.costs.curvature * felt), 0.0)


@dataclass(frozen=True, eq=False)
class CustomLoss:
    """A convex loss that someone else wrote, of rows or of flat marginals; what is not finite is refused."""

    loss: ConvexLoss
    rows: MeasuredRows | None

    def value(self, marginals: Array) -> float:
        return self.value_and_gradient(marginals)[0]

    def value_and_gradient(self, marginals: Array) -> tuple[float, Array]:
        answers = marginals if self.rows is None else self.rows.apply(marginals)
        value, gradient = self.loss.value_and_gradient(answers)
        gradient = np.asarray(gradient, dtype=np.float64)
        if gradient.shape != answers.shape:
            raise DeclarationError(
                f"the gradient of the loss has shape {gradient.shape} for answers of shape {answers.shape}: give one "
                "derivative for each answer"
            )
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            raise DeclarationError(
                f"the loss is {value} and {np.count_nonzero(~np.isfinite(gradient))} of its {gradient.size} "
                "derivatives are not finite: a loss must be finite at the marginals of every model, with zeros too"
            )
        return float(value), gradient if self.rows is None else self.rows.adjoint(gradient)

    def gap(self, oracle: CountedOracle, marginals: Array) -> float:
        return slack_of(oracle, self.value_and_gradient(marginals)[1], marginals)


# ----------------------------------------------------------------------------------------------------------------------
# What all first-order optimisers over models share: where they start, what they minimise, who watches.


STEPS_BETWEEN_BOUNDS = 20
"""Steps of first-order optimisers from one bound, which takes the oracle another pass, to the next."""


@dataclass(frozen=True, eq=False)
class SmoothSearch:
    """A loss to be made small over models, from some potentials on."""

    oracle: CountedOracle
    loss: RowLoss | CustomLoss
    monitor: Monitor
    start: Array

    def note(self, potentials: Array, marginals: Array, objective: float) -> Status | None:
        """Take note of a model, and now and then of what its gradient proves; a status if it is time to stop."""
        status = self.monitor.meet(potentials, marginals, objective)
        if status is None and self.monitor.steps % STEPS_BETWEEN_BOUNDS == 0:
            status = self.monitor.prove(objective - self.loss.gap(self.oracle, marginals))
        return status
