"""Error bars: how far an answer may be from the truth, because of the noise and of what a model fills in.

*Refits.* An account θ₀ stands in for the data, the estimate θ̂ itself in most cases; noise is drawn around it and the
method repeated (see `refits`). With θ* the refitted answers the interval is

    θ̂ ± w,    where |θ* − θ₀| ≤ w in a share `level` of the refits,

cut off at 0 where the answer cannot be negative. Measured from θ₀ and not from the middle of the θ*, w holds the bias
of the method as well as its spread. That matters next to zero: non-negativity pushes small counts up and takes from
large ones, the quantiles of θ* by themselves then lie to one side of θ₀, and reflecting them puts them on the other.
An interval that is symmetric in |θ* − θ₀| is right in both cases, and where θ̂ = 0 it reaches from 0 up to the quantile.
What θ₀ cannot show is the error of a count that is nothing in the data and something in θ₀: a smooth account puts
records there, and puts more the less there are. So a low end next to zero, nearer than `NEXT_TO_ZERO` of w, is zero.
Nor can θ₀ show how much is taken from a small count that the noise, or its neighbours, let pass for nothing: around
nothing, nothing is taken. There the high end is at least that of the answer's own measurement, y + the (1 + `level`)/2
quantile of its noise, which holds whatever the data.

*Least squares.* A method that smooths (`Estimate.smooths`) draws a count that stands out toward its neighbours, in all
draws of the noise alike, and no refit around a smooth θ₀ shows by how much. But what was measured also has an answer
without bias, u, that of least squares with counts of either sign (or of its own measurement alone, where these are not
to be had). Its error is one of the noise and of nothing else, so that

    u ± w,    where the error of u is at most w in a share `level` of the draws of the noise,

holds every single answer with that probability, whatever the data. It is cut off at 0, and goes as far as θ̂ where that
lies outside.

*Covariances.* Weighted least squares without non-negativity are linear: θ̂ − θ = L·noise, whatever the data. Then the
law of L·noise itself is used, exactly for Gaussian noise and by drawing noise for other laws (`linear_errors`).

*Quantiles.* D(x), the records below x less those that should be, is a sum of counts for every x (`questions`). The
interval of a quantile holds the x of which that of D(x) holds 0: as often as these hold their sums, whatever the shape
of the counts. Of a difference or a ratio with a quantile in it each draw of the noise gives one value, from the sums
that the draw says might be true, and the interval reaches as far to either side as a share `level` of them.

*Sums.* The errors of measured sums are those of least squares, and of the noise alone. A mean, which is a sum S divided
by a count n, has the interval of all m for which S − m·n may be 0 (Fieller 1954): those where in no more than
(1 − `level`)/2 of the draws of both it is above, or below. It ends at the bounds to which the numbers are clipped.

*Between measured answers.* Values of one attribute that no measurement tells apart, such as those that DAWA joined,
have a measured count c_g = Σ_{i∈g} c_i for each group g, and nothing says how it divides. As counts are not negative,

    Σ_g (min_{i∈g} r_i) c_g  ≤  Σ_i r_i c_i  ≤  Σ_g (max_{i∈g} r_i) c_g,

so that the low end of an answer about that attribute is that of the left side, and its high end that of the right one.

*What is covered.* Answers that measurements determine are covered whatever the data. Of other modelled ones the model
is part of the answer: its errors, as `drawn_errors` has them, are added to those of the refits, and the interval is
never narrower than without them. What is not measured, or public alone, has no interval (`measurements.basis`).
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.descriptions import Described, Description
from consilience.domain.factors import Matrix
from consilience.domain.queries import Query
from consilience.domain.questions import Question
from consilience.estimators.amount_sums import measured_sums
from consilience.estimators.base import Estimate, Progress, check_level
from consilience.kernels.rng import generator
from consilience.measurements import Exact
from consilience.measurements.basis import MEASURED, Basis, BasisName
from consilience.publication.intervals.drawn_errors import ModelErrors, as_many, linear_errors, ratio_ends, unbiased
from consilience.publication.intervals.refits import Replicates, check_refits, replicates
from consilience.publication.questions import BoundQuestion, Quantiles, Side, as_question, basis_of, ratio

Array = NDArray[np.float64]

# ----------------------------------------------------------------------------------------------------------------------
# Error bars: how far an answer may be from the truth, because of the noise and of what a model fills in.


How = Literal["refits", "least squares", "covariances"]

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

NEXT_TO_ZERO = 0.2
"""Chosen on 150 draws of the model of `python -m benchmarks coverage`: its empty cell was held in 87, 93, 97 and 99 %
of them with 0, 0.1, 0.2 and 0.3."""

MOST_WEIGHTS = 2**24
"""Answers times values of one attribute: of more than these it is not looked for what lies between."""

SAME = 1e-11
"""Sums of random numbers that differ by less than this share of themselves are the same sum."""

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
    pieces = [_pieces(estimate, each) for each in asked]
    known: dict[int, _Bounds] = {}
    every = [piece for own in pieces for piece in own]
    for account in dict.fromkeys(piece.account for piece in every):
        own = [piece for piece in every if piece.account is account]
        own_seed = seed if account is estimate else seed + OF_SUMS
        draws = partial(replicates, refits=refits, seed=own_seed, progress=progress)
        known |= zip(map(id, own), _bounds(account, own, level, own_seed, draws), strict=True)
    return [
        _described(estimate, each, level, [known[id(piece)] for piece in own], refits)
        for each, own in zip(asked, pieces, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class _Piece:
    """Answers of which intervals are found: those that are asked for, or D(x) of a quantile."""

    parts: tuple[Query, ...]
    make: Callable[[Sequence[Array]], Array]
    """The answers, from those to the parts."""
    stands_on: Basis
    are_counts: bool
    query: Query | None
    """The query whose own answers these are."""
    account: Estimate
    """The estimate whose answers they are made of: that of the counts, or of sums."""

    def center(self, estimate: Estimate) -> Array:
        return self.make([np.ravel(estimate.answer(part)) for part in self.parts])


def _pieces(estimate: Estimate, asked: BoundQuestion) -> list[_Piece]:
    """The answers themselves, or each side: where there are quantiles with D(x) in their place, and where there are
    measured sums what they are and what they are divided by."""
    if not _by_sides(estimate, asked):
        basis, query = asked.basis(estimate), asked.question.query if asked.is_plain else None
        return [_Piece(asked.parts, asked.made, basis, asked.are_counts, query, estimate)]
    pieces = []
    for side in asked.sides:
        parts, quantiles = side.question.bare.parts, side.quantiles
        if side.sums(estimate) is not None:
            pieces += [_of_part(estimate, part) for part in parts]
        elif quantiles is None:
            pieces.append(_Piece(parts, side.made, side.basis(estimate), side.are_counts, None, estimate))
        else:
            basis = quantiles.basis(estimate.basis(parts[0]), points=len(quantiles.points))
            pieces.append(_Piece(parts, partial(_surplus, quantiles), basis, False, None, estimate))
    return pieces


def _by_sides(estimate: Estimate, asked: BoundQuestion) -> bool:
    return asked.has_quantiles or any(side.sums(estimate) is not None for side in asked.sides)


def _of_part(estimate: Estimate, part: Query) -> _Piece:
    """The answers to one query, of counts or of measured sums."""
    sums, basis = measured_sums(estimate, part), basis_of(estimate, part)
    if sums is None:
        are_counts = all(each.nonnegative for each in part.bind(estimate.domain).maps)
        return _Piece((part,), _first, basis, are_counts, part, estimate)
    groups = sums.groups(part)
    nonnegative = all(each.nonnegative for each in groups.bind(sums.unbiased.domain).maps)
    return _Piece((groups,), _first, basis, nonnegative and sums.least >= 0.0, groups, sums.unbiased)


def _first(answers: Sequence[Array]) -> Array:
    return answers[0]


def _surplus(quantiles: Quantiles, answers: Sequence[Array]) -> Array:
    return quantiles.surplus(answers[0])


@dataclass(frozen=True, eq=False)
class _Bounds:
    """The ends for the answers of a piece, and what each draw of the noise says that the truth might be."""

    low: Array
    high: Array
    might_be: Array
    how: How


Draws = Callable[[Estimate, Sequence[Query]], Sequence[Replicates]]


def _bounds(estimate: Estimate, asked: Sequence[_Piece], level: float, seed: int, draws: Draws) -> list[_Bounds]:
    """The bounds of each piece, where answers divide what was measured together by those of the answers around them."""
    around = {place: ends for place, each in enumerate(asked) if (ends := _around(estimate, each)) is not None}
    found = _bounds_of(estimate, [*asked, *itertools.chain(*around.values())], level, seed, draws)
    more = iter(found[len(asked) :])
    for place in around:
        divided, below, above = asked[place].stands_on.modelled, next(more), next(more)
        center = asked[place].center(estimate)
        low = np.where(divided, np.minimum(below.low, center), found[place].low)
        high = np.where(divided, np.maximum(above.high, center), found[place].high)
        found[place] = replace(found[place], low=low, high=high)
    return found[: len(asked)]


def _around(estimate: Estimate, asked: _Piece) -> tuple[_Piece, _Piece] | None:
    """Measured answers that are at most, and at least, as large as these; None where there is no need, or no way."""
    if asked.query is None or len(asked.query.attributes) != 1 or not asked.stands_on.modelled.any():
        return None
    (rows,), (name,) = asked.query.bind(estimate.domain).maps, asked.query.attributes
    groups = _told_apart(estimate, name)
    if rows.rows * rows.columns > MOST_WEIGHTS or groups.size == 0:
        return None
    of_groups = Query.of({name: Matrix.of(np.eye(groups.max() + 1)[groups].T)})
    if not estimate.basis(of_groups).measured.all():
        return None
    order = np.argsort(groups, kind="stable")
    starts, weights = np.searchsorted(groups[order], np.arange(groups.max() + 1)), rows.dense()[:, order]
    stands_on = Basis(np.full(rows.rows, MEASURED, dtype=np.int8))
    below, above = (
        _Piece(
            (of_groups,),
            partial(_weighted, end.reduceat(weights, starts, axis=1)),
            stands_on,
            asked.are_counts,
            None,
            estimate,
        )
        for end in (np.minimum, np.maximum)
    )
    return below, above


def _weighted(weights: Array, counts: Sequence[Array]) -> Array:
    return counts[0] @ weights.T


def _told_apart(estimate: Estimate, name: str) -> NDArray[np.intp]:
    """The group of each value of an attribute: values of one group are counted alike by every measurement."""
    marks = []
    for each in estimate.measurements:
        if each.kind == "linear" and (name,) in (bound := each.query.bind(estimate.domain)).groups:
            rows = bound.maps[bound.groups.index((name,))]
            marks.append(rows.adjoint(generator(0, len(marks)).random(rows.rows), 0))
    if not marks:
        return np.zeros(0, dtype=np.intp)
    return np.ravel(np.unique(np.round(marks, 12), axis=1, return_inverse=True)[1])


def _bounds_of(estimate: Estimate, asked: Sequence[_Piece], level: float, seed: int, draws: Draws) -> list[_Bounds]:
    sure = _whatever_the_data(estimate, asked, level, draws)
    pairs = zip(sure, asked, strict=True)
    left = [bool((np.isnan(found.high) & _noisy(each.stands_on)).any()) for found, each in pairs]
    rest = list(dict.fromkeys(part for each, more in zip(asked, left, strict=True) if more for part in each.parts))
    linear = linear_errors(estimate)
    if linear is None:
        found = draws(estimate, rest) if rest else []
    else:
        centers = [np.ravel(estimate.answer(query)) for query in rest]
        found = [Replicates(at, at + linear.draws(query, seed)) for query, at in zip(rest, centers, strict=True)]
    drawn = dict(zip(rest, found, strict=True))
    model = ModelErrors(estimate, seed)
    made = []
    for each, known, more in zip(asked, sure, left, strict=True):
        if not more:
            made.append(known)
            continue
        errors = _Errors.of(each, drawn)
        off = errors.errors()
        if linear is not None and each.query is not None:
            width = linear.half_width(each.query, level, seed)
        else:
            width = _quantile_of_errors(off, level)
        if each.stands_on.modelled.any():
            off, width = _with_the_model(model, each, errors, width, level)
        low, high = _around_the_estimate(estimate, each, level, width, exact=linear is not None)
        missing = np.isnan(known.high)
        might_be = each.center(estimate) - off
        if known.might_be.size and not missing.all():
            might_be = np.where(missing, might_be[: len(known.might_be)], known.might_be)
        low, high = np.where(missing, low, known.low), np.where(missing, high, known.high)
        made.append(_Bounds(low, high, might_be, "covariances" if linear is not None else "refits"))
    return made


def _noisy(basis: Basis) -> NDArray[np.bool_]:
    """Which answers have noise in them."""
    return basis.measured | basis.modelled


@dataclass(frozen=True, eq=False)
class _Errors:
    """The errors of answers in draws of the noise, made of those of their parts."""

    make: Callable[[Sequence[Array]], Array]
    parts: tuple[Replicates, ...]

    @classmethod
    def of(cls, asked: _Piece, drawn: Mapping[Query, Replicates]) -> "_Errors":
        return cls(asked.make, tuple(drawn[part] for part in asked.parts))

    @property
    def truth(self) -> Array:
        """What the errors are measured from."""
        return self.make([each.truth for each in self.parts])

    def errors(self, *more: Array) -> Array:
        """The errors in each draw, with further ones of each part."""
        added = more or (0.0,) * len(self.parts)
        return self.make([each.answers + extra for each, extra in zip(self.parts, added, strict=True)]) - self.truth


def _with_the_model(
    model: ModelErrors, asked: _Piece, errors: _Errors, width: Array, level: float
) -> tuple[Array, Array]:
    """Errors and width of modelled answers with those of the model, never less than without them; not a number where
    they are unknown."""
    names = model.estimate.domain.ordered({name for query in asked.parts for name in query.attributes})
    off, modelled = errors.errors(), asked.stands_on.modelled
    filled = model.draws(names, asked.parts, len(off)) if len(names) > 1 else None
    if filled is None:
        return off, np.where(modelled, np.nan, width)
    more = errors.errors(*filled)
    wider = np.where(modelled, np.maximum(width, _quantile_of_errors(more, level)), width)
    return np.where(modelled, more, off), wider


Ends = tuple[Array, Array]


def _around_the_estimate(estimate: Estimate, asked: _Piece, level: float, width: Array, *, exact: bool) -> Ends:
    """The estimate ± the width; next to zero from 0 up to at least what the answer's own measurement says."""
    center = asked.center(estimate)
    low, high = center - width, center + width
    if asked.are_counts:
        next_to_zero = low <= (0.0 if exact else NEXT_TO_ZERO * width)
        low = np.where(next_to_zero, np.minimum(center, 0.0), low)
        if not exact and asked.query is not None:
            high = np.where(next_to_zero, np.fmax(high, _by_itself(estimate, asked.query, level)[1]), high)
    return low, high


def _whatever_the_data(
    estimate: Estimate,
    asked: Sequence[_Piece],
    level: float,
    draws: Draws,
) -> list[_Bounds]:
    """For measured answers of an estimate that smooths, intervals that hold each of them; others are not numbers.

    Those of least squares, or of an answer's own measurement where least squares are not to be had.
    """
    nowhere = [np.full(each.stands_on.codes.size, np.nan) for each in asked]
    if not estimate.smooths:
        return [_Bounds(none, none, np.zeros((0, 0)), "least squares") for none in nowhere]
    least_squares = unbiased(estimate)
    measured = [each for each in asked if each.stands_on.measured.any()]
    drawn: dict[Query, Replicates] = {}
    if least_squares is not None and measured:
        parts = list(dict.fromkeys(part for each in measured for part in each.parts))
        drawn = dict(zip(parts, draws(least_squares, parts), strict=True))
    found = []
    for each, low in zip(asked, nowhere, strict=True):
        on, high, might_be = each.stands_on, low, np.zeros((0, 0))
        if on.measured.any() and drawn:
            errors = _Errors.of(each, drawn)
            off = errors.errors()
            width, might_be = _quantile_of_errors(off, level), errors.truth - off
            low, high = errors.truth - width, errors.truth + width
        elif on.measured.any() and each.query is not None:
            low, high = _by_itself(estimate, each.query, level)
        known = on.measured & np.isfinite(low) & np.isfinite(high)
        low, high = (np.where(known, end, np.nan) for end in (low, high))
        if each.are_counts:
            low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
        center = each.center(estimate)
        found.append(_Bounds(np.minimum(low, center), np.maximum(high, center), might_be, "least squares"))
    return found


def _described(
    estimate: Estimate, asked: BoundQuestion, level: float, found: Sequence[_Bounds], refits: int
) -> Interval:
    """The interval with its notes; no numbers for what was not measured."""
    center, stands_on = asked.answers(estimate), asked.basis(estimate)
    by_sides = [found] if not _by_sides(estimate, asked) else _sides(estimate, asked, found)
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


def _sides(estimate: Estimate, asked: BoundQuestion, found: Sequence[_Bounds]) -> list[Sequence[_Bounds]]:
    """The bounds of each side: one, or those of its sum and of what it is divided by."""
    sizes = [side.number if side.sums(estimate) is not None else 1 for side in asked.sides]
    starts = itertools.accumulate(sizes, initial=0)
    return [found[start : start + size] for start, size in zip(starts, sizes, strict=False)]


def _might_be(estimate: Estimate, asked: BoundQuestion, found: Sequence[Sequence[_Bounds]]) -> Array | None:
    """What each draw of the noise says that the answers might be; None where nothing was drawn."""
    if any(not bounds.might_be.size for side in found for bounds in side):
        return None
    if not _by_sides(estimate, asked):
        return found[0][0].might_be
    each = [_values(side, bounds) for side, bounds in zip(asked.sides, found, strict=True)]
    return each[0] if len(each) == 1 else asked.compared(*as_many(each[0], each[1]))


def _ends(
    estimate: Estimate, asked: BoundQuestion, level: float, center: Array, found: Sequence[Sequence[_Bounds]]
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
        width = _quantile_of_errors(might_be - center, level)
        low, high = center - width, center + width
    return np.where(np.isinf(width), -np.inf, low), np.where(np.isinf(width), np.inf, high)


def _ends_of_ratio(estimate: Estimate, asked: BoundQuestion, level: float, found: Sequence[_Bounds]) -> Ends:
    """The ends of sums divided by counts, or by other sums."""
    side, (above, below) = asked.sides[0], found
    sums, divisors = side.sums(estimate), side.divisors
    if above.might_be.size and below.might_be.size:
        limits = (sums.least, sums.most) if sums is not None and side.question.mean_of is not None else None
        return ratio_ends(*as_many(above.might_be, below.might_be[:, divisors]), level, limits)
    low, high = below.low[divisors], below.high[divisors]
    corners = [ratio(end, by) for end in (above.low, above.high) for by in (low, high)]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _values(side: Side, found: Sequence[_Bounds]) -> Array:
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


def _by_itself(estimate: Estimate, query: Query, level: float) -> Ends:
    """The ends for each answer by its own measurement alone, or by the one with the least noise of several.

    Not numbers where an answer was not measured; it was where a measured one is the same sum of random numbers.
    """
    asked = _sums_of_random_numbers(estimate, query)
    low, high, least = (np.full(asked.shape, value) for value in (np.nan, np.nan, np.inf))
    for each in estimate.measurements:
        if each.kind != "linear" or each.clipped or each.threshold is not None or isinstance(each.noise, Exact):
            continue
        known = _sums_of_random_numbers(estimate, each.query)
        order = np.argsort(known)
        places = order[np.minimum(np.searchsorted(known[order], asked * (1.0 - SAME)), known.size - 1)]
        better = np.isclose(known[places], asked, rtol=SAME, atol=0.0) & (each.noise.variance < least)
        values, width = np.ravel(each.values)[places], float(each.noise.quantile(0.5 + level / 2.0))
        low, high = np.where(better, values - width, low), np.where(better, values + width, high)
        least = np.where(better, each.noise.variance, least)
    return low, high


def _sums_of_random_numbers(estimate: Estimate, query: Query) -> Array:
    """Each answer for a table of random numbers that is a product of one vector for each attribute, of sum 1."""
    bound, names = query.bind(estimate.domain), estimate.domain.counted_names
    sums = np.ones(1)
    for group, each in zip(bound.groups, bound.maps, strict=True):
        product = np.ones(1)
        for name in group:
            vector = generator(0, names.index(name)).random(estimate.domain[name].size)
            product = np.multiply.outer(product, vector / vector.sum()).ravel()
        sums = np.multiply.outer(sums, np.asarray(each.apply(product, 0))).ravel()
    return sums


def _quantile_of_errors(errors: Array, level: float) -> Array:
    """The size that a share `level` of the errors does not exceed, column by column.

    Of n errors it is the ⌈level·(n + 1)⌉-th smallest, so that one more draw exceeds it with a chance of at most
    1 − level; an error that is not finite counts as the largest.
    """
    sizes = np.where(np.isnan(errors), np.inf, np.abs(errors))
    place = min(math.ceil(level * (len(sizes) + 1)), len(sizes)) - 1
    return np.asarray(np.partition(sizes, place, axis=0)[place], dtype=np.float64)


def is_adaptive(estimate: Estimate) -> bool:
    """Whether the plan that measured is one that chooses by the data."""
    plan = estimate.measurements.provenance.get("plan")
    return isinstance(plan, Mapping) and plan.get("plan") in ADAPTIVE_PLANS
