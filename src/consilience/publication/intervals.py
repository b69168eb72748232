"""Error bars: how far an answer may be from the truth, because of the noise and of what a model fills in.

*Refits.* An account θ₀ stands in for the data, the estimate θ̂ itself in most cases; noise is drawn around it and the
method repeated (see `replicates`). With θ* the refitted answers the interval is

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

*What is covered.* Answers that measurements determine are covered whatever the data. Of modelled ones the model is part
of the answer: its errors, as `drawn_errors` has them, are added to those of the refits, and the interval is never
narrower than without them. What is not measured, or public alone, has no interval (`measurements.basis`).
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import Query, Question
from consilience.errors import DeclarationError, TooLarge, readable_bytes
from consilience.estimators.base import Estimate, Progress, check_level, check_whole
from consilience.kernels.rng import generator
from consilience.measurements import Exact
from consilience.measurements.basis import Basis, BasisName
from consilience.publication.drawn_errors import ModelErrors, Refits, linear_errors, unbiased

# ----------------------------------------------------------------------------------------------------------------------
# What is asked of an estimate, however it was said, and ratios of answers.


def as_query(query: Query | str) -> Query:
    return Query.parse(query) if isinstance(query, str) else query


def as_question(query: Query | Question | str, per: Query | str | None = None) -> Question:
    """What is asked, divided by `per` where that is given; a mean divides by itself and is refused another divisor."""
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
    return Question(asked.query, as_query(per))


def check_divisor(estimate: Estimate, asked: Query, divisor: Query) -> None:
    """Refuse to divide answers by another number of answers, unless by one."""
    above, below = (query.bind(estimate.domain).size for query in (asked, divisor))
    if below not in (1, above):
        raise DeclarationError(
            f"{asked.describe()!r} has {above} answers and {divisor.describe()!r} has {below}; a ratio is per one "
            "number, or per as many: name another query"
        )


def ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ratio, which is not a number where there is nothing to divide by."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0.0, above / below, np.nan)


# ----------------------------------------------------------------------------------------------------------------------
# Replicates: the answers of an estimate, refitted many times to noise drawn anew around it (parametric bootstrap).
#
# An account stands in for the data: the estimate, or one less smooth (`Estimate.stand_in`). Each replicate
# answers the measured queries from it, adds new noise of the laws that the measurements state, clips and withholds as
# they were, fits by the same method and answers again. Only public numbers are used: nothing is spent.
#
# Refits that take long run on the machine's cores in threads (the kernels work outside the interpreter's lock); quick
# ones are mostly Python, to which threads are a hindrance. Replicate i draws from the stream (seed, i), so that results
# depend on neither the number of threads nor their order.


Array = NDArray[np.float64]

MOST_BYTES = 2_000_000_000
FEWEST_REFITS = 20
"""With fewer, the tails of the answers are not seen at all."""

QUICK = 0.1
"""Seconds of a refit below which threads do not pay."""


@dataclass(frozen=True, eq=False)
class Replicates:
    """Of one query the answers of the account that stood in for the data, and those of every refit, a row each."""

    truth: Array
    answers: Array


def replicates(
    fitted: Estimate, queries: Sequence[Query], *, refits: int, seed: int, progress: Progress | None = None
) -> list[Replicates]:
    """The replicates of each query."""
    check_refits(refits)
    sizes = [query.bind(fitted.domain).size for query in queries]
    need = 8 * refits * sum(sizes)
    if need > MOST_BYTES:
        raise TooLarge(
            f"{sum(sizes):,} answers in {refits} refits take {readable_bytes(need)}, and the limit is "
            f"{readable_bytes(MOST_BYTES)}; ask for fewer answers at a time, or for fewer refits"
        )
    shared = Refits.of(fitted, queries)
    found = [np.empty((refits, size)) for size in sizes]

    def run(number: int) -> None:
        for place, values in enumerate(shared.draw(generator(seed, number))):
            found[place][number] = np.ravel(values)

    began = time.perf_counter()
    run(0)
    threads = 1 if time.perf_counter() - began < QUICK else os.cpu_count() or 1
    with ThreadPoolExecutor(max_workers=threads) as pool:
        for done, _ in enumerate(pool.map(run, range(1, refits)), start=2):
            if progress is not None:
                progress("refitting", done, refits)
    truths = [np.ravel(values) for values in shared.answers(shared.account)]
    return [Replicates(truth, answers) for truth, answers in zip(truths, found, strict=True)]


def check_refits(refits: int) -> None:
    """Refuse a number of refits that is none, or too small to say anything."""
    check_whole(refits, "the number of refits", FEWEST_REFITS)


# ----------------------------------------------------------------------------------------------------------------------
# Error bars: how far an answer may be from the truth, because of the noise and of what a model fills in.


How = Literal["refits", "least squares", "covariances"]

SPENDS_NOTHING = "Intervals are computed from published numbers alone: they spend no budget."
MODELLED = (
    "No measurement determines these answers: the interval holds the noise, and errors of the model as large as the "
    "interactions that were measured lead one to expect."
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
ADAPTIVE = (
    "What to measure was chosen by looking at the data, privately; the intervals take that choice as given, and are "
    "somewhat too narrow for it."
)

NEXT_TO_ZERO = 0.2
"""Chosen on 150 draws of the model of `python -m benchmarks coverage`: its empty cell was held in 87, 93, 97 and 99 %
of them with 0, 0.1, 0.2 and 0.3."""

SAME = 1e-11
"""Sums of random numbers that differ by less than this share of themselves are the same sum."""

ADAPTIVE_PLANS = {"aim", "best-buy", "dawa", "dual-query", "efpa", "forest", "mst", "mwem", "mwem-models", "php"}
ADAPTIVE_PLANS |= {"dawa-published", "efpa-published", "php-published", "privbayes", "views"}


@dataclass(frozen=True, eq=False)
class Interval:
    """Low and high ends for every answer of a query, flat, in the order of the answers."""

    query: Query
    per: Query | None
    """The query whose answers these are divided by."""
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

    @property
    def uncertain(self) -> NDArray[np.bool_]:
        """Where the interval is wider than the answer itself."""
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
    asked = [as_question(each, per).over(estimate.domain) for each in queries]
    check_level(level)
    check_refits(refits)
    for each in asked:
        if each.per is not None:
            check_divisor(estimate, each.query, each.per)
    draws = partial(replicates, refits=refits, seed=seed, progress=progress)
    stands_on = [estimate.basis(each.query, each.per) for each in asked]
    sure = _whatever_the_data(estimate, asked, stands_on, level, draws)
    pairs = zip(sure, stands_on, strict=True)
    left = [bool((np.isnan(high) & (on.measured | on.modelled)).any()) for (_, high), on in pairs]
    rest = list(dict.fromkeys(part for each, more in zip(asked, left, strict=True) if more for part in _parts(each)))
    linear = linear_errors(estimate)
    if linear is None:
        found = draws(estimate, rest) if rest else []
    else:
        centers = [np.ravel(estimate.answer(query)) for query in rest]
        found = [Replicates(at, at + linear.draws(query, seed)) for query, at in zip(rest, centers, strict=True)]
    drawn = dict(zip(rest, found, strict=True))
    model = ModelErrors(estimate, seed)
    made = []
    for each, on, (low, high), more in zip(asked, stands_on, sure, left, strict=True):
        if more:
            errors = _Errors.of(each, drawn)
            if linear is not None and each.per is None:
                width = linear.half_width(each.query, level, seed)
            else:
                width = _quantile_of_errors(errors.errors(), level)
            if on.modelled.any():
                width = np.where(on.modelled, _with_the_model(model, each, errors, width, level), width)
            around = _around_the_estimate(estimate, each, level, width, exact=linear is not None)
            low, high = (np.where(np.isnan(high), *ends) for ends in zip(around, (low, high), strict=True))
        how: How = "covariances" if linear is not None else "refits" if more else "least squares"
        made.append(_described(estimate, each, level, (low, high), on, how, 0 if linear else refits))
    return made


def _parts(asked: Question) -> list[Query]:
    """What is asked for, and what it is divided by."""
    return [asked.query, *([] if asked.per is None else [asked.per])]


def _center(estimate: Estimate, asked: Question) -> Array:
    """The estimated answers, or their ratios."""
    answers = [np.ravel(estimate.answer(part)) for part in _parts(asked)]
    return answers[0] if asked.per is None else ratio(*answers)


def _are_counts(estimate: Estimate, asked: Question) -> bool:
    """Whether the answers are sums of counts or ratios of two, which are not negative."""
    return all(each.nonnegative for part in _parts(asked) for each in part.bind(estimate.domain).maps)


@dataclass(frozen=True, eq=False)
class _Errors:
    """The errors of an answer, or of a ratio of two, in draws of the noise."""

    above: Replicates
    below: Replicates | None

    @classmethod
    def of(cls, asked: Question, drawn: Mapping[Query, Replicates]) -> "_Errors":
        return cls(drawn[asked.query], None if asked.per is None else drawn[asked.per])

    @property
    def truth(self) -> Array:
        """What the errors are measured from."""
        return self.above.truth if self.below is None else ratio(self.above.truth, self.below.truth)

    def errors(self, *more: Array) -> Array:
        """The errors, with further ones of the answers, and of those that they are divided by, in each draw."""
        above = self.above.answers + (more[0] if more else 0.0)
        if self.below is None:
            return above - self.truth
        return ratio(above, self.below.answers + (more[1] if more else 0.0)) - self.truth


def _with_the_model(model: ModelErrors, asked: Question, errors: _Errors, width: Array, level: float) -> Array:
    """The width with the errors of the model, never less than without them; not a number where they are unknown."""
    queries = _parts(asked)
    names = model.estimate.domain.ordered({name for query in queries for name in query.attributes})
    filled = model.draws(names, queries, len(errors.above.answers))
    if filled is None:
        return np.full(width.shape, np.nan)
    return np.maximum(width, _quantile_of_errors(errors.errors(*filled), level))


Ends = tuple[Array, Array]


def _around_the_estimate(estimate: Estimate, asked: Question, level: float, width: Array, *, exact: bool) -> Ends:
    """The estimate ± the width; next to zero from 0 up to at least what the answer's own measurement says."""
    center = _center(estimate, asked)
    low, high = center - width, center + width
    if _are_counts(estimate, asked):
        next_to_zero = low <= (0.0 if exact else NEXT_TO_ZERO * width)
        low = np.where(next_to_zero, np.minimum(center, 0.0), low)
        if not exact and asked.per is None:
            high = np.where(next_to_zero, np.fmax(high, _by_itself(estimate, asked.query, level)[1]), high)
    return low, high


def _whatever_the_data(
    estimate: Estimate,
    asked: Sequence[Question],
    stands_on: Sequence[Basis],
    level: float,
    draws: Callable[[Estimate, Sequence[Query]], Sequence[Replicates]],
) -> list[Ends]:
    """For measured answers of an estimate that smooths, intervals that hold each of them; others are not numbers.

    Those of least squares, or of an answer's own measurement where least squares are not to be had.
    """
    nothing: list[Ends] = [(np.full(on.codes.size, np.nan), np.full(on.codes.size, np.nan)) for on in stands_on]
    if not estimate.smooths:
        return nothing
    least_squares = unbiased(estimate)
    measured = [each for each, on in zip(asked, stands_on, strict=True) if on.measured.any()]
    drawn: dict[Query, Replicates] = {}
    if least_squares is not None and measured:
        parts = list(dict.fromkeys(part for each in measured for part in _parts(each)))
        drawn = dict(zip(parts, draws(least_squares, parts), strict=True))
    found = []
    for each, on, (low, high) in zip(asked, stands_on, nothing, strict=True):
        if on.measured.any() and drawn:
            errors = _Errors.of(each, drawn)
            width = _quantile_of_errors(errors.errors(), level)
            low, high = errors.truth - width, errors.truth + width
        elif on.measured.any() and each.per is None:
            low, high = _by_itself(estimate, each.query, level)
        known = on.measured & np.isfinite(low) & np.isfinite(high)
        low, high = (np.where(known, end, np.nan) for end in (low, high))
        if _are_counts(estimate, each):
            low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
        center = _center(estimate, each)
        found.append((np.minimum(low, center), np.maximum(high, center)))
    return found


def _described(
    estimate: Estimate, asked: Question, level: float, ends: Ends, stands_on: Basis, how: How, refits: int
) -> Interval:
    """The interval with its notes; no numbers for what was not measured."""
    center = _center(estimate, asked)
    unknown = stands_on.modelled & np.isnan(ends[1]) & ~np.isnan(center)
    never = stands_on.modelled & estimate.never_has(asked.query)
    notes = [
        SPENDS_NOTHING,
        *[MODELLED] * bool((stands_on.modelled & ~unknown & ~never).any()),
        *[UNKNOWN] * bool(unknown.any()),
        *[PUBLIC_ONLY.format(estimate.public_tables.name)] * bool((stands_on.public | never).any()),
    ]
    notes += [ADAPTIVE] * _is_adaptive(estimate)
    low, high = (np.where(_cannot_occur(estimate, asked), 0.0, end) for end in ends)
    low, high = (np.where(stands_on.public | never, np.nan, end) for end in (low, high))
    center, low, high = (np.where(stands_on.not_measured, np.nan, each) for each in (center, low, high))
    return Interval(asked.query, asked.per, level, center, low, high, stands_on.worst, how, refits, tuple(notes))


def _cannot_occur(estimate: Estimate, asked: Question) -> NDArray[np.bool_]:
    """Which answers count nothing but cells that the domain declares impossible: these are 0, whatever the noise."""
    bound = asked.query.bind(estimate.domain)
    allowed = estimate.domain.allowed_cells(bound.attributes)
    if allowed is None or asked.per is not None or not all(each.nonnegative for each in bound.maps):
        return np.zeros(bound.size, dtype=np.bool_)
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


def _is_adaptive(estimate: Estimate) -> bool:
    """Whether the plan that measured is one that chooses by the data."""
    plan = estimate.measurements.provenance.get("plan")
    return isinstance(plan, Mapping) and plan.get("plan") in ADAPTIVE_PLANS
