"""What every estimator is and what every estimate offers.

An estimator is a small frozen configuration with a `fit`. An estimate answers any linear query about its domain and
says how it came about: the method, a status that gives the reason when it is not "converged", and the optimality gap.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.domain.descriptions import Described, Description
from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery, Query
from consilience.errors import (
    DeclarationError,
    FileFormatError,
    MeasurementError,
    TooLarge,
    all_or_unanswered,
    readable_count,
    refused,
)
from consilience.kernels.rng import Generator, generator
from consilience.measurements import MeasurementSet
from consilience.measurements.basis import Basis, ColumnsBasis, basis, columns_basis
from consilience.measurements.measurement_set import NOT_PRIVATE
from consilience.models.tables import TableLayout
from consilience.solvers.fit import Status, shares_of_rows

Array = NDArray[np.float64]
Progress = Callable[[str, int, int], None]
"""Told (what is going on, how much of it is done, out of how much)."""

LARGEST_ANSWER = 2**26
"""The most cells of a marginal that is put together on request: half a gigabyte."""


@dataclass(frozen=True)
class Suitability:
    """Whether an estimator can fit some measurements, what that would take, and why."""

    possible: bool
    reason: str
    predicted_bytes: int = 0
    predicted_seconds: float = 0.0
    """Roughly, on one core of today; 0 where nobody has to wait."""

    def require(self, method: str, advice: str = "") -> None:
        """Raise `TooLarge` with the reason where the method cannot fit the measurements."""
        if not self.possible:
            raise TooLarge(f"{method} cannot fit these measurements: {self.reason}{advice}")


class Estimator(Protocol):
    """A way to turn measurements into one account of the data."""

    name: ClassVar[str]

    def suitability(self, measured: MeasurementSet) -> Suitability:
        """Whether this estimator can fit these measurements, found without allocating anything large."""
        ...

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "Estimate":
        """One consistent account of the data.

        Its status says how the search ended, and nothing of the noise: plans and intervals fit hundreds of times and
        need no verdict. `estimate` gives one, and so does `judged` of what was fitted here.
        """
        ...


@dataclass(frozen=True, eq=False)
class SavedModel:
    """What a model file holds of an estimate."""

    method: Mapping[str, Any]
    status: Status
    stats: Mapping[str, float | int | str]
    arrays: Mapping[str, NDArray[np.float64]]
    origin: Mapping[str, Any] | None = None
    """What the file says of the measurements that the estimate was fitted to; None where it says nothing."""

    def check_arrays(self, what: str, names: Collection[str]) -> None:
        """Refuse a model that does not hold just these arrays."""
        if set(self.arrays) != set(names):
            raise FileFormatError(f"{what} holds {sorted(names)}, found {sorted(self.arrays)}; write the bundle anew")

    def tables(self, what: str, kind: str, scopes: Sequence[Sequence[str]], domain: Domain) -> tuple[Array, ...]:
        """The arrays "kind 0", "kind 1", … of a model that holds one for each scope, and the total."""
        names = [f"{kind} {k}" for k in range(len(scopes))]
        self.check_arrays(what, ["total", *names])
        for name, scope in zip(names, scopes, strict=True):
            if self.arrays[name].shape != domain.sizes(scope):
                raise FileFormatError(
                    f"the {kind} by {', '.join(scope)} have shape {self.arrays[name].shape}, the domain "
                    f"{domain.sizes(scope)}; write the bundle anew"
                )
        return tuple(self.arrays[name] for name in names)

    @property
    def total(self) -> float:
        """The number of records, where a model holds it by itself."""
        if self.arrays["total"].shape != (1,):
            raise FileFormatError(f"a model has one total, found {self.arrays['total'].size}; write the bundle anew")
        return float(self.arrays["total"][0])


@dataclass(frozen=True)
class PublicTables:
    """What an estimate holds from public data besides the measurements."""

    name: str = ""
    scopes: tuple[tuple[str, ...], ...] = ()
    """The sets of attributes whose joint tables they are."""


@dataclass(frozen=True, eq=False)
class Estimate(Described, ABC):
    """One account of the data: consistent, and non-negative unless its method says otherwise.

    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> measured = cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0))
    >>> account = cs.estimate(measured)
    >>> account.marginal("age", "sex").shape, bool(account.answer("age=1..2").min() >= 0)
    ((3, 2), True)
    """

    measurements: MeasurementSet
    method: Mapping[str, Any]
    """The estimator's name and settings, as plain data."""
    status: Status
    stats: Mapping[str, float | int | str]
    """How the fit went: steps, seconds, objective, gap."""

    judged_by_tables: ClassVar[bool] = False
    """Whether noise must explain each measured table by itself: a few wrong answers do not show among millions."""

    @property
    def domain(self) -> Domain:
        return self.measurements.domain

    @property
    def private(self) -> bool:
        """False when any of the noise was simulated, and protects nothing."""
        return self.measurements.private

    def described(self) -> Description:
        """How it was fitted, and what its attributes stand on."""
        stands_on = self.basis("total").worst
        total = "not measured" if stands_on == "not measured" else f"{self.total:,.1f} ({stands_on})"
        columns = self.columns_basis
        lines = [f"records: {total}", self.status.explanation]
        if len(columns.linked) > 1:
            groups = " | ".join(", ".join(group) for group in columns.linked)
            lines.append(f"never measured together, so nothing is said of how they go together: {groups}")
        title = f"Estimate of {self.domain.name!r} by {self.method['method']}: {self.status.value}"
        rows = tuple(columns.columns.items())
        warning = "" if self.private else NOT_PRIVATE
        return Description(title, tuple(lines), ("attribute", "basis"), rows, warning=warning, open=False)

    @property
    def total(self) -> float:
        """The estimated number of records."""
        return float(self.marginal())

    def check_names(self, attributes: Sequence[str], most_cells: int | None = None) -> None:
        """Refuse attributes that have no cells, are unknown or named twice, and more cells than are put together."""
        for name in attributes:
            self.domain[name].labels  # noqa: B018 - refuses unknown and continuous attributes
            if attributes.count(name) > 1:
                raise DeclarationError(f"the attribute {name!r} is named twice; name it once")
        cells = math.prod(self.domain.sizes(attributes))
        if most_cells is not None and cells > most_cells:
            raise TooLarge(
                f"the marginal by {len(attributes)} attributes has {readable_count(cells)} cells, and {most_cells:,} "
                "are allowed; ask for fewer attributes"
            )

    @abstractmethod
    def marginal(self, *attributes: str) -> NDArray[np.float64]:
        """The estimated counts by these attributes, one axis for each, in this order."""

    def sample(self, rows: int, rng: Generator | None = None) -> NDArray[np.int64]:
        """Codes of synthetic records, one row each and a column for each counted attribute.

        Each cell of a full table gets its share of rows rounded down or up. Where tables share attributes, as in a
        graphical model, what rounding gains and loses can add up to a few records; `publication.synthesize` settles it,
        and gives labels. Without a generator the same call gives the same records: its seed is 0, and public.
        """
        return self.draw(rows, generator(0) if rng is None else rng)

    @abstractmethod
    def draw(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        """What `sample` returns, from this generator."""

    @abstractmethod
    def arrays(self) -> Mapping[str, NDArray[np.float64]]:
        """The numbers that a saved model holds; `restore` reads them back."""

    @classmethod
    @abstractmethod
    def restore(cls, saved: "SavedModel", measured: MeasurementSet) -> "Estimate":
        """The estimate that was saved."""

    def answer(self, query: Query | str) -> NDArray[np.float64]:
        """The estimated answers to a query, or to a text in the query language; one axis for each factor.

        Bare numbers, for computing: `basis` says what each of them stands on, and `publication.answer_table` gives
        both with labels, and no number for what was not measured.
        """
        bound = self.bound(query)
        return np.asarray(bound.answer(self.marginal(*bound.attributes)), dtype=np.float64)

    def bound(self, query: Query | str) -> BoundQuery:
        """A query, or a text in the query language, bound to the domain."""
        return (Query.parse(query) if isinstance(query, str) else query).bind(self.domain)

    def basis(self, query: Query | str, per: Query | str | None = None) -> Basis:
        """What each answer stands on: measured, modelled, public or not measured; of ratios the worse of both parts."""
        return basis(self.measurements, query, per, public=self.public_tables.scopes)

    @property
    def columns_basis(self) -> ColumnsBasis:
        """What the columns of records made from the estimate stand on."""
        return columns_basis(self.measurements, public=self.public_tables.scopes)

    def never_has(self, query: Query) -> NDArray[np.bool_]:
        """Which answers are 0 because the method can put no record there, whatever was measured."""
        return np.zeros(query.bind(self.domain).size, dtype=np.bool_)

    @property
    def public_tables(self) -> PublicTables:
        """The public data that stand for what was not measured; none for most methods."""
        return PublicTables()

    def answers(self, queries: Sequence[Query | str]) -> list[NDArray[np.float64]]:
        """The answers to several queries; methods that can share work between them do.

        Where some need too much memory, `errors.Unanswered` says which and why, and holds the answers to the others.
        """
        return all_or_unanswered([refused(partial(self.answer, query)) for query in queries])

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The settings of the estimator that are more than plain data, such as public records."""
        return {}

    @property
    def smooths(self) -> bool:
        """Whether answers were drawn toward what a simpler account says, so that some are off in all draws alike."""
        return False

    def stand_in(self, estimator: "Estimator") -> "Estimate":
        """The account around which noise is drawn again, to see how far the estimate is off; `estimator` made it."""
        return self

    def refitter(
        self,
        estimator: "Estimator",
        without_noise: MeasurementSet | None = None,
    ) -> "Callable[[MeasurementSet], Estimate]":
        """How the estimate is fitted again to other noise; `without_noise` are the answers that noise is added to."""
        return estimator.fit

    def redrawn(self, queries: Sequence[Query], number: int, seed: int) -> list[tuple[Array, Array]] | None:
        """For each query what this account answers, and what so many refits to other noise would, a row each.

        None where there is no shorter way to them than refits.
        """
        return None

    def asking(self, queries: Sequence[Query]) -> Callable[[Any], list[NDArray[np.float64]]]:
        """How this estimate and its refits are best asked these queries."""
        return lambda estimate: estimate.answers(queries)


def check_rows(rows: int) -> int:
    """The number of synthetic rows, refused when it is not one."""
    if not isinstance(rows, int | np.integer) or isinstance(rows, bool) or rows < 0:
        raise DeclarationError(f"{rows!r} synthetic rows were asked for; ask for a whole number from 0 up")
    return int(rows)


def are_codes(found: Array, domain: Domain) -> bool:
    """Whether these numbers are records of the domain: rows of whole codes, one for each counted attribute."""
    if found.ndim != 2 or not len(found) or found.shape[1] != len(domain.shape):
        return False
    return bool(np.all((found == np.floor(found)) & (found >= 0) & (found < np.array(domain.shape))))


def drawn_cells(counts: Array, rows: int, rng: Generator) -> NDArray[np.intp]:
    """The cells of so many rows in random order: each cell gets its share of them, rounded down or up."""
    shares = shares_of_rows(counts.ravel(), rows, rng)
    cells = np.repeat(np.arange(shares.size), shares)
    rng.shuffle(cells)
    return cells


def independent_rows(
    domain: Domain, tables: Mapping[tuple[str, ...], Array], rows: int, rng: Generator
) -> NDArray[np.int64]:
    """Codes of synthetic records of which these tables, one for each group of attributes, are independent."""
    names = domain.counted_names
    columns = np.empty((check_rows(rows), len(names)), dtype=np.int64)
    for group, counts in tables.items():
        codes = np.unravel_index(drawn_cells(counts, rows, rng), domain.sizes(group))
        for name, column in zip(group, codes, strict=True):
            columns[:, names.index(name)] = column
    return columns


def reported(progress: Progress | None, most: int) -> Callable[[int, float, float], None] | None:
    """The progress of a solver's steps in our words."""
    if progress is None:
        return None
    return lambda steps, _objective, _gap: progress("fitting", min(steps, most), most)


# ----------------------------------------------------------------------------------------------------------------------
# The checks of options, of estimators and of plans.


def check_whole(value: object, what: str, least: int = 1, *, optional: bool = False) -> None:
    """Refuse what is no whole number from `least` up; `optional` lets None through."""
    if optional and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise DeclarationError(f"{what} is {value!r}; give a whole number from {least} up")


def check_level(level: float) -> None:
    """Refuse what is no probability that an interval could have."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise DeclarationError(f"the level is {level!r}; give a share between 0 and 1, such as 0.95")


def check_choice(value: object, what: str, choices: Sequence[str]) -> None:
    """Refuse what is none of the choices."""
    if value not in choices:
        raise DeclarationError(f"{what} is {value!r}; choose one of {', '.join(choices)}")


def named_marginals(marginals: Sequence[Sequence[str] | str]) -> tuple[tuple[str, ...], ...]:
    """The attributes of each marginal; one that is named by a text has that attribute alone."""
    return tuple((each,) if isinstance(each, str) else tuple(each) for each in marginals)


# ----------------------------------------------------------------------------------------------------------------------
# An estimate as the counts of the full table, whatever estimator found them.


@dataclass(frozen=True, eq=False)
class FullTableEstimate(Estimate):
    """An estimate that holds the count of every cell; `Tree`, `Table` and `Matrix` return it."""

    counts: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.counts.shape != self.domain.shape:
            raise MeasurementError(
                f"the estimated table has shape {self.counts.shape}, the domain {self.domain.shape}; they must agree"
            )

    def marginal(self, *attributes: str) -> NDArray[np.float64]:
        self.check_names(attributes)
        names = self.domain.counted_names
        axes = [names.index(name) for name in attributes]
        away = tuple(axis for axis in range(len(names)) if axis not in axes)
        kept = sorted(axes)
        return np.asarray(self.counts.sum(axis=away)).transpose([kept.index(axis) for axis in axes])

    def arrays(self) -> Mapping[str, NDArray[np.float64]]:
        return {"counts": self.counts}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "FullTableEstimate":
        saved.check_arrays("a model of the full table", ["counts"])
        return cls(measured, saved.method, saved.status, saved.stats, saved.arrays["counts"])

    def draw(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        cells = drawn_cells(np.maximum(self.counts, 0.0), check_rows(rows), rng)
        return np.stack(np.unravel_index(cells, self.domain.shape), axis=1).astype(np.int64)


# ----------------------------------------------------------------------------------------------------------------------
# A convex loss of marginals that the user wrote, with its gradient.


@dataclass(frozen=True)
class MarginalLoss:
    """Any convex function of some marginals, such as the log-likelihood of a mechanism that adds no noise to counts.

    `marginals` names the attributes of each marginal. `evaluate` is given these marginals in counts, one array each
    with its axes in the order named, and returns the loss and its gradient, one array of the same shape for each; or
    the loss alone. The gradient is then found by differences, with two evaluations for every cell of the marginals in
    every step: slow, and for losses without kinks.
    """

    marginals: tuple[tuple[str, ...], ...]
    evaluate: Callable[[Sequence[Array]], tuple[float, Sequence[Array]] | float]

    def __post_init__(self) -> None:
        named = named_marginals(self.marginals)
        object.__setattr__(self, "marginals", named)
        if not named or not all(named):
            raise DeclarationError("a loss of marginals names at least one marginal, and an attribute in each")
        if len({frozenset(each) for each in named}) < len(named):
            raise DeclarationError(f"the loss names a marginal twice among {list(named)}; name each once")

    def scopes(self, domain: Domain) -> tuple[tuple[int, ...], ...]:
        """The places of the attributes of each marginal, ascending."""
        names = domain.counted_names
        return tuple(tuple(sorted(names.index(name) for name in domain.ordered(each))) for each in self.marginals)

    def of_layout(self, layout: TableLayout, domain: Domain) -> "FlatLoss":
        """The loss as a function of flat marginals."""
        names = domain.counted_names
        orders = [tuple(np.argsort([names.index(name) for name in each])) for each in self.marginals]
        places = [layout.scopes.index(scope) for scope in self.scopes(domain)]
        return FlatLoss(self, layout, places, orders)


RELATIVE_DIFFERENCE = float(np.cbrt(np.finfo(np.float64).eps))
"""The step of differences, in units of a cell or the usual cell: errors of rounding and of the step are then alike."""


@dataclass(frozen=True, eq=False)
class FlatLoss:
    """A loss of named marginals on the flat marginals of a layout."""

    loss: MarginalLoss
    layout: TableLayout
    places: list[int]
    orders: list[tuple[int, ...]]
    """For each marginal the axes of its own order, ascending by attribute."""

    def value_and_gradient(self, answers: Array) -> tuple[float, Array]:
        tables = self.layout.unpack(answers)
        asked = [
            tables[place].transpose(np.argsort(order)) for place, order in zip(self.places, self.orders, strict=True)
        ]
        found = self.loss.evaluate(asked)
        value, gradients = found if isinstance(found, tuple) else (found, self._differences(asked, float(found)))
        if len(gradients) != len(asked):
            raise DeclarationError(f"the loss has {len(asked)} marginals and returned {len(gradients)} gradients")
        flat = [np.zeros(self.layout.shape(k)) for k in range(len(self.layout.scopes))]
        for place, order, table, gradient in zip(self.places, self.orders, asked, gradients, strict=True):
            found = np.asarray(gradient, dtype=np.float64)
            if found.shape != table.shape:
                raise DeclarationError(
                    f"a gradient of the loss has shape {found.shape} and its marginal {table.shape}; they must agree"
                )
            flat[place] = found.transpose(order)
        return float(value), self.layout.pack(flat)

    def _differences(self, tables: Sequence[Array], first: float) -> list[Array]:
        """The gradient from differences of second order: central ones, and next to zero of larger counts alone."""
        moved = [np.array(table) for table in tables]

        def loss_at(cell: tuple[int, ...], table: Array, count: float) -> float:
            kept, table[cell] = table[cell], count
            found = self.loss.evaluate(moved)
            table[cell] = kept
            return float(found[0] if isinstance(found, tuple) else found)

        gradients = [np.empty(table.shape) for table in moved]
        for gradient, table in zip(gradients, moved, strict=True):
            usual = float(table.mean())
            for cell, count in np.ndenumerate(table):
                step = RELATIVE_DIFFERENCE * max(count, usual)
                above = loss_at(cell, table, count + step)
                if count > step:
                    gradient[cell] = (above - loss_at(cell, table, count - step)) / (2.0 * step)
                else:
                    gradient[cell] = (4.0 * above - 3.0 * first - loss_at(cell, table, count + 2.0 * step)) / (
                        2.0 * step
                    )
        return gradients
