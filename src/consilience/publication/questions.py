"""What is asked of an estimate, and how its answers are made of those to queries: ratios, quantiles, differences.

*Ratios and differences* pair each answer with the one of the same labels, or with the only one there is.

*Quantiles* come from counts by bins, whose records are taken to lie evenly in their bin. With C(x) the records below x,
which is linear between edges, and N all of them, the quantile of a share s is where

    D(x) = C(x) − s·N

crosses 0. D(x) is a sum of counts for every x, so that it has an interval like any other (`intervals`); the x of which
it holds 0 are an interval for the quantile of the true binned counts (Woodruff 1952), whatever their shape. Whole
numbers fill their bin from half below its first to half above its last, so that the middle is that of `mean`. Dates
are days since 1 January 1970, which a period holds from the beginning of its first to the end of its last. The
quantile of the records themselves lies in the same bin as that of their binned counts: no count says where in it.
A bin that also holds what lies beyond it has no edge there: a quantile in it is not known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Numeric
from consilience.domain.dates import Date, first_day
from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery, Query
from consilience.domain.questions import Question
from consilience.errors import DeclarationError
from consilience.estimators.amount_sums import AmountSums, measured_sums, with_sums
from consilience.estimators.base import Estimate
from consilience.measurements.basis import Basis

Array = NDArray[np.float64]
Places = NDArray[np.intp]

NOBODY = 1e-8
"""Records that are none: a model of nobody has next to nothing in its cells, and not 0."""

MOST_POINTS, POINTS_OF_A_BIN = 2048, 8
"""D(x) is looked at in so many points of a bin, or in fewer if there are many bins."""


def as_query(query: Query | str) -> Query:
    return Query.parse(query) if isinstance(query, str) else query


def as_question(query: Query | Question | str, per: Query | str | None = None) -> Question:
    """What is asked, divided by `per` where that is given; what is divided already is refused another divisor."""
    asked = Question.parse(query) if isinstance(query, str) else query
    asked = Question(asked) if isinstance(asked, Query) else asked
    if per is None:
        return asked
    if asked.per is not None:
        raise DeclarationError(
            f"{asked.describe()!r} is divided by {asked.per.describe()!r} already, and was to be divided by "
            f"{as_query(per).describe()!r}, too; leave that away, or ask for {asked.query.describe()!r}, which mean() "
            "was in earlier versions"
        )
    if asked != Question(asked.query):
        raise DeclarationError(
            f"{asked.describe()!r} is no list of counts or sums to be divided by {as_query(per).describe()!r}; write "
            "one answer per another in the query language: mean(age) where sex=Female per mean(age)"
        )
    return Question(asked.query, as_query(per))


def basis_of(estimate: Estimate, query: Query) -> Basis:
    """What answers stand on, of sums that were measured and of all else."""
    sums = measured_sums(estimate, query)
    return estimate.basis(query) if sums is None else sums.unbiased.basis(sums.groups(query))


def ratio(above: Array, below: Array) -> Array:
    """The ratio, which is not a number where there is nothing to divide by."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > NOBODY, above / below, np.nan)


# ----------------------------------------------------------------------------------------------------------------------
# The labels of answers, and which answers belong to each other.


@dataclass(frozen=True)
class Axes:
    """The axes of answers: what each is called, and the labels along it, as values and in words."""

    names: tuple[str, ...]
    headings: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    worded: tuple[tuple[str, ...], ...]

    @staticmethod
    def of(bound: BoundQuery) -> "Axes":
        return Axes(bound.axis_names, bound.axis_headings, bound.row_labels, bound.worded_rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.labels))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def relabelled(self, name: str, labels: Sequence[str], worded: Sequence[str]) -> "Axes":
        """The same with other labels along one axis."""

        def changed(now: tuple[tuple[str, ...], ...], new: Sequence[str]) -> tuple[tuple[str, ...], ...]:
            return tuple(tuple(new) if each == name else old for each, old in zip(self.names, now, strict=True))

        return Axes(self.names, self.headings, changed(self.labels, labels), changed(self.worded, worded))

    def places_in(self, other: "Axes", said: tuple[str, str]) -> Places:
        """For each answer here the place of the one there that it is compared with."""
        if other.size == 1:
            return np.zeros(self.size, dtype=np.intp)
        wide = {name: labels for name, labels in zip(other.names, other.labels, strict=True) if len(labels) > 1}
        own = dict(zip(self.names, self.labels, strict=True))
        if any(own.get(name) != labels for name, labels in wide.items()):
            if self.size == other.size:
                return np.arange(self.size)
            raise DeclarationError(
                f"{said[0]!r} has {self.size} answers and {said[1]!r} has {other.size}; what is compared has one "
                "answer, as many, or one for each value of some attributes that both list: name another query"
            )
        places = np.arange(other.size).reshape([len(labels) for labels in wide.values()])
        order = [name for name in self.names if name in wide]
        places = places.transpose([list(wide).index(name) for name in order])
        shape = [len(labels) if name in wide else 1 for name, labels in own.items()]
        return np.broadcast_to(places.reshape(shape), self.shape).ravel()

    def against(self, other: "Axes", sign: str) -> "Axes":
        """The axes with both labels where one answer is compared with another: Female − Male."""
        found = self
        for name, labels, worded in zip(self.names, self.labels, self.worded, strict=True):
            if len(labels) > 1:
                continue
            at = other.names.index(name) if name in other.names else None
            there = (("all",), ("all",)) if at is None else (other.labels[at], other.worded[at])
            if there[0] != labels and len(there[0]) == 1:
                pairs = zip((*labels, *worded), (*there[0], *there[1]), strict=True)
                value, word = (f"{here} {sign} {away}" for here, away in pairs)
                found = found.relabelled(name, [value], [word])
        return found


# ----------------------------------------------------------------------------------------------------------------------
# Quantiles of numbers and dates.


@dataclass(frozen=True, eq=False)
class Quantiles:
    """How the quantiles of one attribute, of which a query lists all values, are made of its answers."""

    attribute: Numeric | Date
    shares: tuple[float, ...]
    bound: BoundQuery

    @staticmethod
    def of(name: str, shares: tuple[float, ...], bound: BoundQuery) -> "Quantiles":
        attribute = bound.domain[name]
        if not isinstance(attribute, Numeric | Date):
            raise DeclarationError(
                f"attribute {name!r} is {attribute.kind}: its values have no order on a line of numbers, and so no "
                f'median or quantile; use a numeric one or a date, or ask "by {name}"'
            )
        return Quantiles(attribute, shares, bound)

    @property
    def name(self) -> str:
        return self.attribute.name

    @property
    def _axis(self) -> int:
        return self.bound.axis_names.index(self.name)

    @cached_property
    def edges(self) -> Array:
        attribute = self.attribute
        if isinstance(attribute, Date):
            periods = range(attribute.first, attribute.last + 2)
            return np.array([first_day(attribute.by, period) for period in periods], dtype=np.float64)
        return np.array(attribute.edges) - (0.5 if attribute.integer else 0.0)

    @cached_property
    def points(self) -> Array:
        """The places where D is looked at: all edges, and some between."""
        places = np.arange((len(self.edges) - 1) * self._points_of_a_bin + 1) / self._points_of_a_bin
        return np.interp(places, np.arange(len(self.edges)), self.edges)

    @property
    def _points_of_a_bin(self) -> int:
        return min(max(MOST_POINTS // (len(self.edges) - 1), 1), POINTS_OF_A_BIN)

    def by_bins(self, answers: NDArray[Any]) -> NDArray[Any]:
        """The query's answers with an axis for groups and one for bins, without labels that are no numbers."""
        shape = answers.shape[:-1]
        table = np.moveaxis(answers.reshape(*shape, *self.bound.shape), len(shape) + self._axis, -1)
        return table.reshape(*shape, -1, table.shape[-1])[..., : len(self.attribute.ordinary_labels)]

    def surplus(self, counts: Array) -> Array:
        """D at every point, flat: for each group, share and point."""
        bins = self.by_bins(counts)
        below = np.concatenate([np.zeros((*bins.shape[:-1], 1)), np.cumsum(bins, axis=-1)], axis=-1)
        first, part = np.divmod(np.arange(len(self.points)), self._points_of_a_bin)
        part = part / self._points_of_a_bin
        after = np.minimum(first + 1, below.shape[-1] - 1)
        at_points = below[..., first] * (1.0 - part) + below[..., after] * part
        wanted = np.array(self.shares)[:, None] * below[..., None, -1:]
        found = at_points[..., None, :] - wanted
        return found.reshape(*counts.shape[:-1], -1)

    def _as_curves(self, values: Array) -> Array:
        return values.reshape(*values.shape[:-1], -1, len(self.points))

    def _in_order(self, found: NDArray[Any]) -> NDArray[Any]:
        """What was found for each group and share, in the order of the answers."""
        shape = list(self.bound.shape)
        rest = [size for axis, size in enumerate(shape) if axis != self._axis]
        table = found.reshape(*found.shape[:-1], *rest, len(self.shares))
        return np.moveaxis(table, -1, found.ndim - 1 + self._axis).reshape(*found.shape[:-1], -1)

    def first_from(self, surplus: Array) -> Array:
        """The first place where D is 0 or more; the last point where it never is."""
        return self._in_order(self._crossing(self._as_curves(surplus)))

    def last_up_to(self, surplus: Array) -> Array:
        """The last place where D is 0 or less; the first point where it never is."""
        turned = -self._as_curves(surplus)[..., ::-1]
        return self._in_order(self._crossing(turned, turned_points=True))

    def _crossing(self, curves: Array, *, turned_points: bool = False) -> Array:
        points = self.points[::-1] if turned_points else self.points
        reached = curves >= 0.0
        at = np.where(reached.any(axis=-1), reached.argmax(axis=-1), len(points) - 1)
        before = np.maximum(at - 1, 0)
        low, high = (np.take_along_axis(curves, each[..., None], -1)[..., 0] for each in (before, at))
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where((low < 0.0) & (high > 0.0), -low / (high - low), 1.0)
        found = points[before] + part * (points[at] - points[before])
        return np.where(np.isnan(curves).any(axis=-1), np.nan, found)

    def values(self, surplus: Array) -> Array:
        """Where D crosses 0, in the middle where it is 0 for a while; infinite in bins without an end."""
        empty = self._as_curves(surplus)[..., 0] >= -NOBODY * np.min(self.shares)
        found = self.opened((self.first_from(surplus) + self.last_up_to(surplus)) / 2.0)
        return np.where(self._in_order(empty), np.nan, found)

    def opened(self, values: Array) -> Array:
        """The same, but −∞ and ∞ inside the first and the last bin where these also hold what lies beyond."""
        if not self.attribute.clips:
            return values
        values = np.where(values > self.edges[-2], np.inf, values)
        return np.where(values < self.edges[1], -np.inf, values)

    def basis(self, found: Basis, *, points: int = 1) -> Basis:
        """That of the worst bin of each group, for each share, or for each of its points."""
        worst = np.repeat(self.by_bins(found.codes).max(axis=-1), len(self.shares))
        codes = self._in_order(worst) if points == 1 else np.repeat(worst, points)
        return Basis(codes, found.unmeasured, found.too_fine, found.asked)

    def axes(self, axes: Axes) -> Axes:
        """The axes of the query with the shares in place of the values."""
        words = ["median" if share == 0.5 else f"{share:g} quantile" for share in self.shares]
        pairs = [[f"{word} of {name}" for word in words] for name in (self.name, self.attribute.heading)]
        return axes.relabelled(self.name, *pairs)


# ----------------------------------------------------------------------------------------------------------------------
# Questions over a domain.


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a comparison, or all of a question that compares nothing."""

    question: Question
    domain: Domain

    @cached_property
    def bound(self) -> BoundQuery:
        return self.question.query.bind(self.domain)

    @cached_property
    def quantiles(self) -> Quantiles | None:
        name = self.question.quantiles_of
        return None if name is None else Quantiles.of(name, self.question.shares, self.bound)

    @cached_property
    def axes(self) -> Axes:
        axes, name = Axes.of(self.bound), self.question.mean_of
        if name is not None:
            return axes.relabelled(name, [f"mean of {name}"], [f"mean of {self.domain[name].heading}"])
        return axes if self.quantiles is None else self.quantiles.axes(axes)

    @cached_property
    def divisors(self) -> Places:
        """For each answer the place of the one that it is divided by."""
        query, per = self.question.query, self.question.per
        if per is None:
            raise ValueError("nothing is divided")
        there = Axes.of(per.bind(self.domain))
        return Axes.of(self.bound).places_in(there, (query.describe(), per.describe()))

    @property
    def of_numbers(self) -> str | None:
        """The attribute in whose numbers the answers are: that of a mean or of quantiles."""
        return self.question.mean_of or self.question.quantiles_of

    @property
    def are_dates(self) -> bool:
        """Whether the answers are days since 1 January 1970."""
        return self.quantiles is not None and isinstance(self.quantiles.attribute, Date)

    @property
    def number(self) -> int:
        """How many queries it is made of."""
        return len(self.question.bare.parts)

    @property
    def are_counts(self) -> bool:
        """Whether the answers are sums of counts or ratios of two, which are not negative."""
        parts = (query.bind(self.domain) for query in self.question.bare.parts)
        return self.quantiles is None and all(each.nonnegative for part in parts for each in part.maps)

    def made(self, answers: Sequence[Array]) -> Array:
        """The answers, made of those to its queries, each flat along the last axis."""
        if self.quantiles is not None:
            return self.quantiles.values(self.quantiles.surplus(answers[0]))
        return answers[0] if self.question.per is None else ratio(answers[0], answers[1][..., self.divisors])

    def sums(self, estimate: Estimate) -> AmountSums | None:
        """The measured sums that answers are made of; None where there are none."""
        found = (measured_sums(estimate, query) for query in self.question.bare.parts)
        return None if self.quantiles is not None else next((each for each in found if each is not None), None)

    def basis(self, estimate: Estimate) -> Basis:
        found = basis_of(estimate, self.bound.query)
        if self.quantiles is not None:
            return self.quantiles.basis(found)
        if self.question.per is None:
            return found
        return found.worse(basis_of(estimate, self.question.per), self.divisors)


@dataclass(frozen=True, eq=False)
class BoundQuestion:
    """A question over a domain: what its answers are called, and how they are made of the answers to queries."""

    question: Question
    domain: Domain

    def __post_init__(self) -> None:
        dates = [side.are_dates for side in self.sides] if self.question.word else [False]
        if any(dates) and not (all(dates) and self.question.word == "minus"):
            raise DeclarationError(
                f"{self.question.describe()!r} compares a date with a number or divides by one; of two dates ask "
                "for the days between them: median(date) where … minus median(date) where …"
            )

    @cached_property
    def sides(self) -> tuple[Side, ...]:
        other = self.question.other
        left = Side(self.question.bare, self.domain)
        return (left,) if other is None else (left, Side(other, self.domain))

    @property
    def parts(self) -> tuple[Query, ...]:
        return self.question.parts

    @cached_property
    def places(self) -> Places:
        """For each answer the place of the one on the other side."""
        left, right = self.sides
        return left.axes.places_in(right.axes, (left.question.describe(), right.question.describe()))

    @cached_property
    def axes(self) -> Axes:
        if len(self.sides) == 1:
            return self.sides[0].axes
        left, right = self.sides
        return left.axes.against(right.axes, "−" if self.question.word == "minus" else "/")

    @property
    def is_plain(self) -> bool:
        """Whether the answers are those to one query."""
        return replace(self.question, top=None) == Question(self.question.query)

    @property
    def has_quantiles(self) -> bool:
        return any(side.quantiles is not None for side in self.sides)

    @property
    def are_counts(self) -> bool:
        """Whether the answers cannot be negative."""
        return self.question.word != "minus" and all(side.are_counts for side in self.sides)

    def made(self, answers: Sequence[Array]) -> Array:
        """The answers, made of those to the parts, each flat along the last axis."""
        left = self.sides[0]
        own = left.made(answers[: left.number])
        if len(self.sides) == 1:
            return own
        return self.compared(own, self.sides[1].made(answers[left.number :]))

    def compared(self, left: Array, right: Array) -> Array:
        """The answers of one side less those of the other, or divided by them."""
        right = right[..., self.places]
        with np.errstate(invalid="ignore"):
            return left - right if self.question.word == "minus" else ratio(left, right)

    def never_has(self, estimate: Estimate) -> NDArray[np.bool_]:
        """Which answers are 0 because the method can put no record there; none that are made of several queries."""
        left = self.sides[0]
        if len(self.sides) > 1 or left.quantiles is not None:
            return np.zeros(self.axes.size, dtype=np.bool_)
        return estimate.never_has(left.question.query)

    def answers(self, estimate: Estimate) -> Array:
        """The answers of an estimate, flat; not finite where a quantile lies in a bin without an end."""
        return self.made(with_sums(estimate, self.parts))

    def basis(self, estimate: Estimate) -> Basis:
        """What each answer stands on: of several that it is made of, the worst."""
        found = [side.basis(estimate) for side in self.sides]
        return found[0] if len(found) == 1 else found[0].worse(found[1], self.places)
