"""Sums of amounts that were measured beside counts: consistent with each other, and with the counts of an account.

The sums S by the measured sets of attributes are fitted by weighted least squares (`Residual` with values of either
sign), so that sums of parts are sums of wholes. Each record of a bin [a, b) adds between a and b, so that with the
account's counts n by bins

    Σ a·n  ≤  S  ≤  Σ b·n

for every group, where the account was measured by bins and groups together; where it was measured by the groups alone,
a and b are the bounds to which the amount is clipped. Counts that are modelled bind nothing: what was measured is not
to yield to what was assumed. The nearest sums within these limits, in the squares that least squares minimise, are
found by alternating directions (Boyd et al. 2011, §5): with y the measured sums, and all variances as they are,

    x ← least squares fit to (y + z − u) / 2,    z ← x + u within its limits,    u ← u + x − z.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Numeric
from consilience.domain.domains import Domain
from consilience.domain.factors import Identity, Matrix, Mean
from consilience.domain.public_facts import PublicFacts
from consilience.domain.queries import Query
from consilience.estimators.base import Estimate
from consilience.estimators.choose import ESTIMATORS
from consilience.measurements import Measurement, MeasurementSet

Array = NDArray[np.float64]
Limits = tuple[Array, Array]

MOST_STEPS = 500
NEAR = 1e-3
"""In parts of the noise of each sum: how far sums may lie outside their limits. Steps end there, or after the most."""


@dataclass(frozen=True, eq=False)
class AmountSums:
    """The sums of one attribute's amounts by everything that they were measured by."""

    attribute: Numeric
    unbiased: Estimate
    """The least-squares sums: right on average, and with errors of the noise alone."""
    fitted: Estimate
    """The nearest sums that the counts allow."""

    @property
    def least(self) -> float:
        """The least that the mean of records can be."""
        return float(self.attribute.ends()[0].min())

    @property
    def most(self) -> float:
        """The most that the mean of records can be."""
        return float(self.attribute.ends()[1].max())

    def groups(self, query: Query) -> Query:
        """What a query of sums asks of the groups."""
        return Query(tuple((name, factor) for name, factor in query.factors if not isinstance(factor, Mean)))

    def answer(self, query: Query) -> Array:
        """The answers to a query of sums, flat."""
        return np.ravel(self.fitted.answer(self.groups(query)))


_FITTED: WeakKeyDictionary[Estimate, dict[str, AmountSums]] = WeakKeyDictionary()


def measured_sums(estimate: Estimate, query: Query) -> AmountSums | None:
    """The sums that answer a query; None where it asks for none, or where they were not measured."""
    names = [name for name, factor in query.factors if isinstance(factor, Mean)]
    if len(names) != 1 or all(each.amount != names[0] for each in estimate.measurements.sums):
        return None
    found = _FITTED.setdefault(estimate, {})
    if names[0] not in found:
        found[names[0]] = _fitted_sums(estimate, names[0])
    sums = found[names[0]]
    groups = sums.groups(query)
    known = all(name in sums.unbiased.domain for name in groups.attributes)
    return sums if known and sums.unbiased.basis(groups).measured.all() else None


def _fitted_sums(estimate: Estimate, name: str) -> AmountSums:
    attribute = estimate.domain.amount(name)[1]
    measured = [each for each in estimate.measurements.sums if each.amount == name]
    domain = _plain(estimate.domain, [each for one in measured for each in one.query.attributes] or [name])
    values = tuple(replace(each, kind="linear", extra={}) for each in measured)
    asked = MeasurementSet(domain, values, private=estimate.private)
    unbiased = _least_squares(asked)
    limits = [_limits(estimate, attribute, each) for each in measured]
    return AmountSums(attribute, unbiased, _within(asked, unbiased, limits))


def _least_squares(measured: MeasurementSet) -> Estimate:
    return ESTIMATORS["residual"](nonnegative=False).fit(measured)  # type: ignore[call-arg]


def _plain(domain: Domain, names: Sequence[str]) -> Domain:
    """The attributes of the sums, without what is declared of counts."""
    found = domain.project(dict.fromkeys(names))
    return replace(found, impossible=(), constraints=(), public=PublicFacts(), weight=None)


def _limits(estimate: Estimate, attribute: Numeric, measured: Measurement) -> Limits:
    """The least and the most that each measured sum can be, given the account's counts; none for other tables."""
    nothing = np.full(measured.values.size, np.inf)
    if not all(isinstance(factor, Identity) for _, factor in measured.query.factors):
        return -nothing, nothing
    by_bins = [_weighed(estimate, measured.query, attribute.name, ends) for ends in attribute.ends()]
    low, high = attribute.ends()
    at_least, at_most = np.full_like(low, low.min()), np.full_like(high, high.max())
    by_groups = [_weighed(estimate, measured.query, attribute.name, ends) for ends in (at_least, at_most)]
    ends = [np.where(np.isnan(fine), coarse, fine) for fine, coarse in zip(by_bins, by_groups, strict=True)]
    known = ~np.isnan(ends[0] + ends[1])
    least, most = np.minimum(*ends), np.maximum(*ends)
    return np.where(known, least, -nothing), np.where(known, most, nothing)


def _weighed(estimate: Estimate, groups: Query, name: str, ends: Array) -> Array:
    """The account's counts by groups, each bin times a number; not a number where they were not measured."""
    if name in groups.attributes:
        counts, shape = np.ravel(estimate.answer(groups)), [1] * len(groups.factors)
        shape[groups.attributes.index(name)] = ends.size
        times = np.broadcast_to(ends.reshape(shape), estimate.domain.sizes(groups.attributes))
        return np.where(estimate.basis(groups).measured, counts * times.ravel(), np.nan)
    if not ends.any():
        return np.zeros(groups.bind(estimate.domain).size)
    query = Query((*groups.factors, (name, Matrix.of(ends))))
    return np.where(estimate.basis(query).measured, np.ravel(estimate.answer(query)), np.nan)


def _within(measured: MeasurementSet, unbiased: Estimate, limits: Sequence[Limits]) -> Estimate:
    """The fit that comes nearest to the measured sums within their limits."""
    queries = [each.query for each in measured]
    near = [NEAR * each.noise.stddev_of_noise for each in measured]
    found, fitted = _flat(unbiased, queries), unbiased
    zeros = [np.zeros_like(each) for each in found]
    inside = [np.clip(each, *ends) for each, ends in zip(found, limits, strict=True)]
    off = zeros
    for _ in range(MOST_STEPS):
        if all(np.abs(x - z).max(initial=0.0) <= most for x, z, most in zip(found, inside, near, strict=True)):
            break
        off = [u + x - z for u, x, z in zip(off, found, inside, strict=True)]
        pulled = [(each.values + z - u) / 2.0 for each, z, u in zip(measured, inside, off, strict=True)]
        moved = tuple(replace(each, values=values) for each, values in zip(measured, pulled, strict=True))
        fitted = _least_squares(replace(measured, measurements=moved))
        found = _flat(fitted, queries)
        inside = [np.clip(x + u, *ends) for x, u, ends in zip(found, off, limits, strict=True)]
    return fitted


def _flat(estimate: Estimate, queries: Sequence[Query]) -> list[Array]:
    return [np.ravel(each) for each in estimate.answers(queries)]


def with_sums(estimate: Estimate, queries: Sequence[Query]) -> list[Array]:
    """The answers to queries of counts, and to those of sums that were measured; flat."""
    sums = [measured_sums(estimate, query) for query in queries]
    rest = [query for query, each in zip(queries, sums, strict=True) if each is None]
    counts = iter(estimate.answers(rest) if len(rest) > 1 else [estimate.answer(query) for query in rest])
    return [
        np.ravel(next(counts)) if each is None else each.answer(query)
        for query, each in zip(queries, sums, strict=True)
    ]


def sums_of_amounts(estimate: Estimate) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """By what the sums of each amount were measured."""
    found: dict[str, dict[tuple[str, ...], None]] = {}
    for each in estimate.measurements.sums:
        found.setdefault(str(each.amount), {})[each.query.attributes] = None
    return {name: tuple(sets) for name, sets in found.items()}
