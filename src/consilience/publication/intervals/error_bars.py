"""The interval of a question, made of the bounds of its pieces.

A question about counts is one piece, and its interval is what `bounds` finds. Quantiles, and means and ratios of
measured sums, have pieces of their own.

*Quantiles.* D(x), the records below x less those that should be, is a sum of counts for every x (`questions`). The
interval of a quantile holds the x of which that of D(x) holds 0: as often as these hold their sums, whatever the shape
of the counts. Of a difference or a ratio with a quantile in it each draw of the noise gives one value, from the sums
that the draw says might be true, and the interval reaches as far to either side as a share `level` of them.

*Sums.* The errors of measured sums are those of least squares, and of the noise alone. A mean, which is a sum S divided
by a count n, has the interval of all m for which S − m·n may be 0 (Fieller 1954): those where in no more than
(1 − `level`)/2 of the draws of both it is above, or below. It ends at the bounds to which the numbers are clipped.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from consilience.domain.descriptions import Described, Description
from consilience.domain.queries import Query
from consilience.domain.questions import Question
from consilience.estimators.base import Estimate, Progress, check_level
from consilience.measurements.basis import BasisName
from consilience.publication.intervals.bounds import (
    Bounds,
    Ends,
    How,
    bounds,
    found_by_sides,
    pieces_of,
    quantile_of_errors,
)
from consilience.publication.intervals.drawn_errors import as_many, ratio_ends
from consilience.publication.intervals.refits import check_refits, replicates
from consilience.publication.questions import BoundQuestion, Side, as_question, ratio

Array = NDArray[np.float64]

SPENDS_NOTHING = "Intervals are computed from published numbers alone: they spend no budget."
MODELLED = (
    "No measurement determines these answers: the interval holds the noise, and errors of the model as large as the "
    "interactions that were measured lead one to expect."
)
BETWEEN = (
    "Some answers divide values that were measured only together: their intervals reach from the least to the most "
    "that these values can hold, however they are spread."
)
UNKNOWN = (
    "How far the model is off cannot be said of these answers, so they have no interval: their table is too large, no "
    "two attributes were measured together, or counts may be negative. Ask about fewer or coarser attributes, or fit "
    "with counts that are not negative."
)
PUBLIC_ONLY = (
    "Some answers rest on {} alone, or are 0 because it has no such record: nothing that was measured says how far "
    "they are off, so they have no interval."
)
CLIPPED = (
    "Sums and means are of numbers clipped to their declared bounds, and the intervals hold these: how much clipping "
    "leaves out is not known, and is not in them."
)
ADAPTIVE = (
    "What to measure was chosen by looking at the data, privately; the intervals take that choice as given, and are "
    "somewhat too narrow for it."
)

OF_SUMS = 2**20
"""What is added to the seed where the errors of sums are drawn, so that they are no copies of those of counts."""

ADAPTIVE_PLANS = {"aim", "best-buy", "dawa", "dual-query", "efpa", "forest", "mst", "mwem", "mwem-models", "php"}
ADAPTIVE_PLANS |= {"dawa-published", "efpa-published", "php-published", "privbayes", "views"}


@dataclass(frozen=True, eq=False)
class Interval(Described):
    """Low and high ends for every answer of a query, flat, in the order of the answers."""

    question: Question
    level: float
    estimates: Array
    low: Array
    high: Array
    covers: BasisName
    """What the answer with the least stands on; those that are not measured have no interval, and are not numbers."""
    how: How
    refits: int
    notes: tuple[str, ...]
    """What a reader should know, in sentences."""
    might_be: Array | None = field(default=None, repr=False)
    """Of the largest answers: what each draw of the noise says that the truth might be."""

    @property
    def query(self) -> Query:
        return self.question.query

    @property
    def per(self) -> Query | None:
        """The query whose answers these are divided by."""
        return self.question.per

    def described(self) -> Description:
        """The ends of every interval; none, and no number, where nothing was measured."""
        rows = tuple(
            (str(place + 1), *("–" if np.isnan(number) else f"{number:,.4g}" for number in numbers))
            for place, numbers in enumerate(zip(self.estimates, self.low, self.high, strict=True))
        )
        title = f"{100 * self.level:g} % intervals of {self.question.describe()}: {self.covers}"
        return Description(title, self.notes, ("answer", "estimate", "low", "high"), rows)

    @property
    def uncertain(self) -> NDArray[np.bool_]:
        """Where the interval is wider than the answer itself; of differences, where it holds 0."""
        if self.question.word == "minus":
            return (self.low <= 0.0) & (self.high >= 0.0)
        with np.errstate(invalid="ignore"):
            return self.high - self.low > np.abs(self.estimates)


def interval(
    estimate: Estimate,
    query: Query | Question | str,
    level: float = 0.95,
    *,
    per: Query | str | None = None,
    refits: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Interval:
    """The interval that holds each answer of a query with the probability `level`.

    With `per` the answers are divided by those of another query, which is one number or has the same shape: shares, as
    in `interval(estimate, "by sex", per="total")`. Means as in "mean(age) by sex" divide by themselves. Spends no
    budget.

    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> measured = cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0))
    >>> found = interval(cs.estimate(measured), "by sex", level=0.9, refits=20)
    >>> bool((found.low <= found.estimates).all() and (found.estimates <= found.high).all())
    True
    """
    return intervals(estimate, [query], level, per=per, refits=refits, seed=seed, progress=progress)[0]


def intervals(
    estimate: Estimate,
    queries: Sequence[Query | Question | str],
    level: float = 0.95,
    *,
    per: Query | str | None = None,
    refits: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Interval]:
    """The intervals of several queries, which share the refits, and the query that all are divided by if one is."""
    domain = estimate.domain
    asked = [BoundQuestion(as_question(each, per).over(domain), domain) for each in queries]
    check_level(level)
    check_refits(refits)
    pieces = [pieces_of(estimate, each) for each in asked]
    known: dict[int, Bounds] = {}
    every = [piece for own in pieces for piece in own]
    for account in dict.fromkeys(piece.account for piece in every):
        own = [piece for piece in every if piece.account is account]
        own_seed = seed if account is estimate else seed + OF_SUMS
        draws = partial(replicates, refits=refits, seed=own_seed, progress=progress)
        known |= zip(map(id, own), bounds(account, own, level, own_seed, draws), strict=True)
    return [
        _described(estimate, each, level, [known[id(piece)] for piece in own], refits)
        for each, own in zip(asked, pieces, strict=True)
    ]


def _described(
    estimate: Estimate, asked: BoundQuestion, level: float, found: Sequence[Bounds], refits: int
) -> Interval:
    """The interval with its notes; no numbers for what was not measured."""
    center, stands_on = asked.answers(estimate), asked.basis(estimate)
    by_sides = [found] if not found_by_sides(estimate, asked) else _sides(estimate, asked, found)
    low, high = _ends(estimate, asked, level, center, by_sides)
    sums = any(side.sums(estimate) is not None for side in asked.sides)
    if sums:
        low, high = np.fmin(low, center), np.fmax(high, center)
    unknown = stands_on.modelled & np.isnan(high) & ~np.isnan(center)
    never = stands_on.modelled & asked.never_has(estimate)
    divided = BETWEEN if asked.is_plain and len(asked.question.query.attributes) == 1 else MODELLED
    notes = [
        SPENDS_NOTHING,
        *[divided] * bool((stands_on.modelled & ~unknown & ~never).any()),
        *[UNKNOWN] * bool(unknown.any()),
        *[CLIPPED] * sums,
        *[PUBLIC_ONLY.format(estimate.public_tables.name)] * bool((stands_on.public | never).any()),
    ]
    notes += [ADAPTIVE] * is_adaptive(estimate)
    low, high = (np.where(_cannot_occur(estimate, asked), 0.0, end) for end in (low, high))
    low, high = (np.where(stands_on.public | never, np.nan, end) for end in (low, high))
    center, low, high = (np.where(stands_on.not_measured, np.nan, each) for each in (center, low, high))
    might_be = None if asked.question.top is None else _might_be(estimate, asked, by_sides)
    how = found[-1].how
    refits = 0 if all(each.how == "covariances" for each in found) else refits
    return Interval(asked.question, level, center, low, high, stands_on.worst, how, refits, tuple(notes), might_be)


def _sides(estimate: Estimate, asked: BoundQuestion, found: Sequence[Bounds]) -> list[Sequence[Bounds]]:
    """The bounds of each side: one, or those of its sum and of what it is divided by."""
    sizes = [side.number if side.sums(estimate) is not None else 1 for side in asked.sides]
    starts = itertools.accumulate(sizes, initial=0)
    return [found[start : start + size] for start, size in zip(starts, sizes, strict=False)]


def _might_be(estimate: Estimate, asked: BoundQuestion, found: Sequence[Sequence[Bounds]]) -> Array | None:
    """What each draw of the noise says that the answers might be; None where nothing was drawn."""
    if any(not bounds.might_be.size for side in found for bounds in side):
        return None
    if not found_by_sides(estimate, asked):
        return found[0][0].might_be
    each = [_values(side, bounds) for side, bounds in zip(asked.sides, found, strict=True)]
    return each[0] if len(each) == 1 else asked.compared(*as_many(each[0], each[1]))


def _ends(
    estimate: Estimate, asked: BoundQuestion, level: float, center: Array, found: Sequence[Sequence[Bounds]]
) -> Ends:
    """The ends of the answers, from those of the pieces."""
    first = found[0]
    if len(found) == 1 and (quantiles := asked.sides[0].quantiles) is not None:
        ends = quantiles.first_from(first[0].high), quantiles.last_up_to(first[0].low)
        return quantiles.opened(ends[0]), quantiles.opened(ends[1])
    if len(found) == 1:
        return (first[0].low, first[0].high) if len(first) == 1 else _ends_of_ratio(estimate, asked, level, first)
    might_be = _might_be(estimate, asked, found)
    if might_be is None:
        return np.full(center.shape, np.nan), np.full(center.shape, np.nan)
    with np.errstate(invalid="ignore"):
        width = quantile_of_errors(might_be - center, level)
        low, high = center - width, center + width
    return np.where(np.isinf(width), -np.inf, low), np.where(np.isinf(width), np.inf, high)


def _ends_of_ratio(estimate: Estimate, asked: BoundQuestion, level: float, found: Sequence[Bounds]) -> Ends:
    """The ends of sums divided by counts, or by other sums."""
    side, (above, below) = asked.sides[0], found
    sums, divisors = side.sums(estimate), side.divisors
    if above.might_be.size and below.might_be.size:
        limits = (sums.least, sums.most) if sums is not None and side.question.mean_of is not None else None
        return ratio_ends(*as_many(above.might_be, below.might_be[:, divisors]), level, limits)
    low, high = below.low[divisors], below.high[divisors]
    corners = [ratio(end, by) for end in (above.low, above.high) for by in (low, high)]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _values(side: Side, found: Sequence[Bounds]) -> Array:
    """What each draw says that the answers of a side might be."""
    if side.quantiles is not None:
        return side.quantiles.values(found[0].might_be)
    if len(found) == 1:
        return found[0].might_be
    return ratio(*as_many(found[0].might_be, found[1].might_be[:, side.divisors]))


def _cannot_occur(estimate: Estimate, asked: BoundQuestion) -> NDArray[np.bool_]:
    """Which answers count nothing but cells that the domain declares impossible: these are 0, whatever the noise."""
    bound = asked.sides[0].bound
    allowed = estimate.domain.allowed_cells(bound.attributes)
    if allowed is None or not asked.is_plain or not asked.are_counts:
        return np.zeros(asked.axes.size, dtype=np.bool_)
    return np.ravel(bound.answer(allowed.astype(np.float64))) == 0.0


def is_adaptive(estimate: Estimate) -> bool:
    """Whether the plan that measured is one that chooses by the data."""
    plan = estimate.measurements.provenance.get("plan")
    return isinstance(plan, Mapping) and plan.get("plan") in ADAPTIVE_PLANS
