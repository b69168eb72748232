"""The bounds of answers that are sums of counts: by refits, by least squares, or by exact covariances.

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
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.factors import Matrix
from consilience.domain.queries import Query
from consilience.estimators.amount_sums import measured_sums
from consilience.estimators.base import Estimate
from consilience.kernels.rng import generator
from consilience.measurements import Exact
from consilience.measurements.basis import MEASURED, Basis
from consilience.publication.intervals.drawn_errors import ModelErrors, linear_errors, unbiased
from consilience.publication.intervals.refits import Replicates
from consilience.publication.questions import BoundQuestion, Quantiles, basis_of

Array = NDArray[np.float64]

How = Literal["refits", "least squares", "covariances"]

NEXT_TO_ZERO = 0.2
"""Chosen on 150 draws of the model of `python -m benchmarks coverage`: its empty cell was held in 87, 93, 97 and 99 %
of them with 0, 0.1, 0.2 and 0.3."""

MOST_WEIGHTS = 2**24
"""Answers times values of one attribute: of more than these it is not looked for what lies between."""

SAME = 1e-11
"""Sums of random numbers that differ by less than this share of themselves are the same sum."""


@dataclass(frozen=True, eq=False)
class Piece:
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


def pieces_of(estimate: Estimate, asked: BoundQuestion) -> list[Piece]:
    """The answers themselves, or each side: where there are quantiles with D(x) in their place, and where there are
    measured sums what they are and what they are divided by."""
    if not found_by_sides(estimate, asked):
        basis, query = asked.basis(estimate), asked.question.query if asked.is_plain else None
        return [Piece(asked.parts, asked.made, basis, asked.are_counts, query, estimate)]
    pieces = []
    for side in asked.sides:
        parts, quantiles = side.question.bare.parts, side.quantiles
        if side.sums(estimate) is not None:
            pieces += [_of_part(estimate, part) for part in parts]
        elif quantiles is None:
            pieces.append(Piece(parts, side.made, side.basis(estimate), side.are_counts, None, estimate))
        else:
            basis = quantiles.basis(estimate.basis(parts[0]), points=len(quantiles.points))
            pieces.append(Piece(parts, partial(_surplus, quantiles), basis, False, None, estimate))
    return pieces


def found_by_sides(estimate: Estimate, asked: BoundQuestion) -> bool:
    """Whether each side of the question has a piece of its own."""
    return asked.has_quantiles or any(side.sums(estimate) is not None for side in asked.sides)


def _of_part(estimate: Estimate, part: Query) -> Piece:
    """The answers to one query, of counts or of measured sums."""
    sums, basis = measured_sums(estimate, part), basis_of(estimate, part)
    if sums is None:
        are_counts = all(each.nonnegative for each in part.bind(estimate.domain).maps)
        return Piece((part,), _first, basis, are_counts, part, estimate)
    groups = sums.groups(part)
    nonnegative = all(each.nonnegative for each in groups.bind(sums.unbiased.domain).maps)
    return Piece((groups,), _first, basis, nonnegative and sums.least >= 0.0, groups, sums.unbiased)


def _first(answers: Sequence[Array]) -> Array:
    return answers[0]


def _surplus(quantiles: Quantiles, answers: Sequence[Array]) -> Array:
    return quantiles.surplus(answers[0])


@dataclass(frozen=True, eq=False)
class Bounds:
    """The ends for the answers of a piece, and what each draw of the noise says that the truth might be."""

    low: Array
    high: Array
    might_be: Array
    how: How


Draws = Callable[[Estimate, Sequence[Query]], Sequence[Replicates]]


def bounds(estimate: Estimate, asked: Sequence[Piece], level: float, seed: int, draws: Draws) -> list[Bounds]:
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


def _around(estimate: Estimate, asked: Piece) -> tuple[Piece, Piece] | None:
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
        Piece(
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


def _bounds_of(estimate: Estimate, asked: Sequence[Piece], level: float, seed: int, draws: Draws) -> list[Bounds]:
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
            width = quantile_of_errors(off, level)
        if each.stands_on.modelled.any():
            off, width = _with_the_model(model, each, errors, width, level)
        low, high = _around_the_estimate(estimate, each, level, width, exact=linear is not None)
        missing = np.isnan(known.high)
        might_be = each.center(estimate) - off
        if known.might_be.size and not missing.all():
            might_be = np.where(missing, might_be[: len(known.might_be)], known.might_be)
        low, high = np.where(missing, low, known.low), np.where(missing, high, known.high)
        made.append(Bounds(low, high, might_be, "covariances" if linear is not None else "refits"))
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
    def of(cls, asked: Piece, drawn: Mapping[Query, Replicates]) -> "_Errors":
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
    model: ModelErrors, asked: Piece, errors: _Errors, width: Array, level: float
) -> tuple[Array, Array]:
    """Errors and width of modelled answers with those of the model, never less than without them; not a number where
    they are unknown."""
    names = model.estimate.domain.ordered({name for query in asked.parts for name in query.attributes})
    off, modelled = errors.errors(), asked.stands_on.modelled
    filled = model.draws(names, asked.parts, len(off)) if len(names) > 1 else None
    if filled is None:
        return off, np.where(modelled, np.nan, width)
    more = errors.errors(*filled)
    wider = np.where(modelled, np.maximum(width, quantile_of_errors(more, level)), width)
    return np.where(modelled, more, off), wider


Ends = tuple[Array, Array]


def _around_the_estimate(estimate: Estimate, asked: Piece, level: float, width: Array, *, exact: bool) -> Ends:
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
    asked: Sequence[Piece],
    level: float,
    draws: Draws,
) -> list[Bounds]:
    """For measured answers of an estimate that smooths, intervals that hold each of them; others are not numbers.

    Those of least squares, or of an answer's own measurement where least squares are not to be had.
    """
    nowhere = [np.full(each.stands_on.codes.size, np.nan) for each in asked]
    if not estimate.smooths:
        return [Bounds(none, none, np.zeros((0, 0)), "least squares") for none in nowhere]
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
            width, might_be = quantile_of_errors(off, level), errors.truth - off
            low, high = errors.truth - width, errors.truth + width
        elif on.measured.any() and each.query is not None:
            low, high = _by_itself(estimate, each.query, level)
        known = on.measured & np.isfinite(low) & np.isfinite(high)
        low, high = (np.where(known, end, np.nan) for end in (low, high))
        if each.are_counts:
            low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
        center = each.center(estimate)
        found.append(Bounds(np.minimum(low, center), np.maximum(high, center), might_be, "least squares"))
    return found


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


def quantile_of_errors(errors: Array, level: float) -> Array:
    """The size that a share `level` of the errors does not exceed, column by column.

    Of n errors it is the ⌈level·(n + 1)⌉-th smallest, so that one more draw exceeds it with a chance of at most
    1 − level; an error that is not finite counts as the largest.
    """
    sizes = np.where(np.isnan(errors), np.inf, np.abs(errors))
    place = min(math.ceil(level * (len(sizes) + 1)), len(sizes)) - 1
    return np.asarray(np.partition(sizes, place, axis=0)[place], dtype=np.float64)
