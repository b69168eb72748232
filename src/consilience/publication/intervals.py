"""Error bars: how far an answer may be from the truth, because of the noise.

*Refits.* An account θ₀ stands in for the data, the estimate θ̂ itself in most cases; noise is drawn around it and the
method repeated (see `replicates`). With θ* the refitted answers the interval is

    θ̂ ± w,    where |θ* − θ₀| ≤ w in a share `level` of the refits,

cut off at 0 where the answer cannot be negative. Measured from θ₀ and not from the middle of the θ*, w holds the bias
of the method as well as its spread. That matters next to zero: non-negativity pushes small counts up and takes from
large ones, the quantiles of θ* by themselves then lie to one side of θ₀, and reflecting them puts them on the other.
An interval that is symmetric in |θ* − θ₀| is right in both cases, and where θ̂ = 0 it reaches from 0 up to the quantile.
What θ₀ cannot show is the error of a count that is nothing in the data and something in θ₀: a smooth account puts
records there, and puts more the less there are. So a low end next to zero, nearer than `NEXT_TO_ZERO` of w, is zero.

*Covariances.* Weighted least squares without non-negativity are linear: θ̂ − θ = L·noise, whatever the data. Then the
law of L·noise itself is used, exactly for Gaussian noise and by drawing noise for other laws (`linear_errors`).

*What is covered.* Answers that measurements determine are covered whatever the data. Of modelled ones the model is part
of the answer, and its own error is not in the interval. Those that are not measured have none (`measurements.basis`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import Query
from consilience.errors import DeclarationError
from consilience.estimators.base import Estimate, Progress
from consilience.measurements.basis import BasisName, basis
from consilience.publication.answers import as_query, check_divisor, ratio
from consilience.publication.linear_errors import LinearErrors, linear_errors
from consilience.publication.replicates import check_refits, replicates

Array = NDArray[np.float64]
How = Literal["refits", "covariances"]

SPENDS_NOTHING = "Intervals are computed from published numbers alone: they spend no budget."
NOISE_ONLY = "The intervals of modelled answers hold the noise only, not the error of the model that fills the gap."
ADAPTIVE = (
    "What to measure was chosen by looking at the data, privately; the intervals take that choice as given, and are "
    "somewhat too narrow for it."
)

NEXT_TO_ZERO = 0.2
"""Chosen on 150 draws of the model of `python -m benchmarks coverage`: its empty cell was held in 87, 93, 97 and 99 %
of them with 0, 0.1, 0.2 and 0.3."""

ADAPTIVE_PLANS = {"aim", "best-buy", "dawa", "dual-query", "efpa", "forest", "mst", "mwem", "mwem-models", "php"}
ADAPTIVE_PLANS |= {"privbayes", "views"}


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
    query: Query | str,
    level: float = 0.95,
    *,
    per: Query | str | None = None,
    refits: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Interval:
    """The interval that holds each answer of a query with the probability `level`.

    With `per` the answers are divided by those of another query, which is one number or has the same shape: shares,
    and means as in `interval(estimate, "mean(age) by sex", per="by sex")`. Spends no budget.
    """
    divisor = None if per is None else as_query(per)
    return _intervals(estimate, [(as_query(query), divisor)], level, refits, seed, progress)[0]


def intervals(
    estimate: Estimate,
    queries: Sequence[Query | str],
    level: float = 0.95,
    *,
    per: Query | str | None = None,
    refits: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Interval]:
    """The intervals of several queries, which share the refits, and the query that all are divided by if one is."""
    divisor = None if per is None else as_query(per)
    return _intervals(estimate, [(as_query(each), divisor) for each in queries], level, refits, seed, progress)


Asked = tuple[Query, Query | None]


def _intervals(
    estimate: Estimate, asked: Sequence[Asked], level: float, refits: int, seed: int, progress: Progress | None
) -> list[Interval]:
    check_level(level)
    check_refits(refits)
    for query, per in asked:
        if per is not None:
            check_divisor(estimate, query, per)
    linear = linear_errors(estimate)
    if linear is not None:
        return [_linear_interval(estimate, linear, pair, level, seed) for pair in asked]
    queries = list(dict.fromkeys(each for pair in asked for each in pair if each is not None))
    drawn = dict(zip(queries, replicates(estimate, queries, refits=refits, seed=seed, progress=progress), strict=True))
    found = []
    for query, per in asked:
        center, truth, moved = np.ravel(estimate.answer(query)), drawn[query].truth, drawn[query].answers
        if per is not None:
            center = ratio(center, np.ravel(estimate.answer(per)))
            truth, moved = ratio(truth, drawn[per].truth), ratio(moved, drawn[per].answers)
        width = _quantile_of_errors(moved - truth, level)
        found.append(_bounded(estimate, (query, per), level, center, width, "refits", refits))
    return found


def _linear_interval(estimate: Estimate, linear: LinearErrors, pair: Asked, level: float, seed: int) -> Interval:
    query, per = pair
    center = np.ravel(estimate.answer(query))
    if per is None:
        width = linear.half_width(query, level, seed)
    else:
        below = np.ravel(estimate.answer(per))
        moved = ratio(center + linear.draws(query, seed), below + linear.draws(per, seed))
        center = ratio(center, below)
        width = _quantile_of_errors(moved - center, level)
    return _bounded(estimate, pair, level, center, width, "covariances", 0)


def _bounded(
    estimate: Estimate, pair: Asked, level: float, center: Array, width: Array, how: How, refits: int
) -> Interval:
    """The interval with its notes, cut off at 0 where the answer is a sum of counts or a ratio of two."""
    query, per = pair
    queries = [each for each in pair if each is not None]
    maps = [each for query in queries for each in query.bind(estimate.domain).maps]
    low = center - width
    if all(each.nonnegative for each in maps):
        told_from_zero = low > (NEXT_TO_ZERO * width if how == "refits" else 0.0)
        low = np.where(told_from_zero, low, np.minimum(center, 0.0))
    found = basis(estimate.measurements, query, per)
    notes = [SPENDS_NOTHING]
    notes += [NOISE_ONLY] * bool(found.modelled.any()) + [ADAPTIVE] * _is_adaptive(estimate)
    center, low, high = (np.where(found.not_measured, np.nan, each) for each in (center, low, center + width))
    return Interval(query, per, level, center, low, high, found.worst, how, refits, tuple(notes))


def _quantile_of_errors(errors: Array, level: float) -> Array:
    """The size that a share `level` of the errors does not exceed, column by column.

    Of n errors it is the ⌈level·(n + 1)⌉-th smallest, so that one more draw exceeds it with a chance of at most
    1 − level; an error that is not finite counts as the largest.
    """
    sizes = np.where(np.isnan(errors), np.inf, np.abs(errors))
    place = min(math.ceil(level * (len(sizes) + 1)), len(sizes)) - 1
    return np.asarray(np.partition(sizes, place, axis=0)[place], dtype=np.float64)


def check_level(level: float) -> None:
    """Refuse a level that is no share."""
    if not 0.0 < level < 1.0:
        raise DeclarationError(f"the level is {level!r}; give a share between 0 and 1, such as 0.95")


def _is_adaptive(estimate: Estimate) -> bool:
    """Whether the plan that measured is one that chooses by the data."""
    plan = estimate.measurements.provenance.get("plan")
    return isinstance(plan, Mapping) and plan.get("plan") in ADAPTIVE_PLANS
