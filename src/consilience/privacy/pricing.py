"""From queries and a budget to noise scales, looking at declarations alone.

Queries measured together share one budget. Query q gets the share s_q of it. With a_q(x) what one record in cell x
adds to the answers of q, and m the records one protected unit may contribute:

    pure ε:  scale_q  = m · S₁ / (ε · s_q),           S₁ = the L1 sensitivity of the stack weighted by s_q
    ρ-zCDP:  stddev_q = m · S₂ / √(2 ρ · s_q),         S₂ = the L2 sensitivity of the stack weighted by √s_q

so that max_x Σ_q ‖a_q(x)‖₁ / scale_q = ε, and max_x Σ_q ‖a_q(x)‖₂² / (2 stddev_q²) = ρ. Where records have weights
from 0 to W, a record in x adds w·a_q(x), and m·W takes the place of m: the largest ‖w a(x) − w' a(x')‖ over weights is
at their ends, W‖a(x) − a(x')‖ or W‖a(x)‖. Sums of an amount are the same with amounts from l to h for weights, and with
max(|l|, |h|) for W. Where l < 0 < h one record replaced by another can also move them by ‖h a(x) − l a(x')‖, which is
at most (h − l) max_x ‖a(x)‖. Queries on disjoint cells are
parallel by that maximum. Scales are raised by a relative 10⁻¹², which covers the rounding of floating-point sums, so
that the price is never above the budget.

A caller may ask for noise as if the sensitivity were larger than it is, as published mechanisms do whose bound is not
tight. S becomes the larger of the two numbers: more noise than the price needs, never less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery, Query
from consilience.domain.sensitivity import Neighbours, Sensitivity, sensitivity
from consilience.domain.source_format import Summand
from consilience.errors import ConsilienceError, DeclarationError
from consilience.measurements.measurement import Measurement
from consilience.measurements.noise_laws import DiscreteGaussian, DiscreteLaplace
from consilience.privacy.budgets import Budget

ROUNDING_MARGIN = 1e-12
LARGEST_RECORDS = 2**33
"""No source has more records than this; exact answers of that many must fit in 62 bits."""


@dataclass(frozen=True)
class PricedQuery:
    """A query on its lattice, with the noise that its share of the budget buys."""

    bound: BoundQuery
    noise: DiscreteLaplace | DiscreteGaussian
    bits: int
    """Answers are integers in units of 2^−bits: the product of the lattices of the query and of what is added up."""
    amount: Summand | None = None
    """What records add, where they are not counted."""

    @property
    def unit_scale(self) -> float:
        """The noise's scale or standard deviation in lattice units."""
        return math.ldexp(self.noise.scale_parameter, self.bits)

    @property
    def size(self) -> int:
        """How many noisy numbers there will be."""
        return self.bound.size

    @property
    def asks(self) -> str:
        """What is measured, in words."""
        return self.measurement(np.zeros(self.size, np.int64), "").asks

    def measurement(self, units: NDArray[np.int64], identity: str) -> Measurement:
        """The measurement whose noisy values are so many lattice units."""
        values = np.ldexp(units.astype(np.float64), -self.bits)
        if self.amount is None:
            return Measurement(query=self.bound.query, values=values, noise=self.noise, id=identity)
        told = {"attribute": self.amount.column, "bounds": list(self.amount.range)}
        return Measurement(self.bound.query, values, self.noise, identity, kind="amount-sums", extra={"amount": told})


@dataclass(frozen=True)
class Price:
    """What measuring some queries together costs, and the noise it buys."""

    budget: Budget
    queries: tuple[PricedQuery, ...]
    sensitivity: Sensitivity

    @property
    def parts(self) -> tuple[PricedQuery, ...]:
        """What is measured, one by one."""
        return self.queries


def price_queries(
    queries: Sequence[Query],
    domain: Domain,
    budget: Budget,
    *,
    shares: Sequence[float] | None = None,
    neighbours: Neighbours = "add-remove",
    rows_per_unit: int = 1,
    sensitivity_at_least: float = 0.0,
    amount: str | None = None,
) -> Price:
    """The noise scales at which measuring the queries together costs exactly the budget.

    With `sensitivity_at_least` above the queries' own sensitivity it costs no more than the budget. With an `amount`
    the queries are of the sums of that attribute's numbers in each cell, and not of counts.
    """
    fractions = normalised_shares(shares, len(queries))
    if amount is not None:
        domain.refuse_unreleased([amount], "the plan")
    summand = domain.summand(amount)
    bounds = [_on_lattice(query.bind(domain), summand) for query in queries]
    pure = budget.additive_unit == "epsilon"
    norm = 1 if pure else 2
    weights = fractions if pure else [math.sqrt(share) for share in fractions]
    stacked = sensitivity(bounds, norm=norm, neighbours=neighbours, weights=weights)
    if stacked.value <= 0:
        raise DeclarationError("these queries do not depend on the data under this neighbour relation; measure others")
    if not 0 <= sensitivity_at_least < math.inf:
        raise DeclarationError(f"a sensitivity of at least {sensitivity_at_least} was asked for; give a finite number")
    if sensitivity_at_least > stacked.value:
        stacked = Sensitivity(sensitivity_at_least, exact=False)
    moved = (1.0 if summand is None else summand.largest) * stacked.value
    if summand is not None and neighbours == "replace-one" and summand.range[0] < 0.0 < summand.range[1]:
        alone = sensitivity(bounds, norm=norm, neighbours="add-remove", weights=weights)
        moved = max(moved, (summand.range[1] - summand.range[0]) * alone.value)
    spent = float(budget.amount) if pure else math.sqrt(2 * float(budget.amount))
    common = rows_per_unit * moved / spent * (1 + ROUNDING_MARGIN)
    law = DiscreteLaplace if pure else DiscreteGaussian
    bits = [bound.lattice_bits + (0 if summand is None else summand.bits) for bound in bounds]
    priced = [
        PricedQuery(bound, law(common / weight, 2.0**-own), own, None if amount is None else summand)
        for bound, weight, own in zip(bounds, weights, bits, strict=True)
    ]
    return Price(budget, tuple(priced), stacked)


def normalised_shares(shares: Sequence[float] | None, count: int, *, what: str = "queries") -> list[float]:
    """The shares of the budget, one for each of so many things measured together, made to sum to 1."""
    if count == 0:
        raise DeclarationError(f"there is nothing to measure; name one or more {what}")
    if shares is None:
        return [1.0 / count] * count
    if len(shares) != count:
        raise DeclarationError(f"{count} {what} were given {len(shares)} budget shares; give one for each")
    for share in shares:
        if not (math.isfinite(share) and share > 0):
            raise DeclarationError(f"a budget share of {share} was given; shares are above 0 and finite")
    return [share / math.fsum(shares) for share in shares]


def _on_lattice(bound: BoundQuery, summand: Summand | None) -> BoundQuery:
    """The query with real entries rounded to a public lattice; refused where exact integers would not fit.

    Where records add more than 1, the digits that are left after theirs are the query's.
    """
    steps = 1.0 if summand is None else summand.largest / summand.step
    digits = None if summand is None else max(0, 28 - math.ceil(math.log2(steps)))
    rounded = bound.rounded(digits=digits) if bound.lattice_bits else bound
    if rounded.largest_entry * 2.0**rounded.lattice_bits * steps * LARGEST_RECORDS >= 2.0**62:
        wide = "" if summand is None else f", for records that add up to {steps:.3g} steps of {summand.step:g}"
        raise DeclarationError(
            f"the query {bound.query.describe()!r} has entries up to {bound.largest_entry:.3g} on a lattice of "
            f"2^-{rounded.lattice_bits}{wide}, too wide for exact arithmetic; use fewer moments or coarser bins"
            f"{' or steps' if wide else ''}"
        )
    return rounded


# ----------------------------------------------------------------------------------------------------------------------
# Statistics that are sums over records of a bounded vector, and what measuring them costs.
#
# An iterative algorithm asks, round after round, for y = Σ over records x of φ(x, θ), where θ follows from the answers
# before. Neither clusters nor gradients are cells of a domain, so such a statistic is no query: it is a function with a
# bound that holds for *every* record. φ takes values on a lattice 2^−bits, so that the sum is an exact integer in
# lattice units and discrete noise on the same lattice protects it.
#
# Statistics measured together share one budget by composition. With the share s_q of it, Δ₁ and Δ₂ the most that one
# record moves the statistic in the L1 and the L2 norm, and m the records that one protected unit may contribute:
#
#     pure ε:  scale_q  = m · Δ₁ / (ε · s_q)             Σ_q m·Δ₁/scale_q = ε
#     ρ-zCDP:  stddev_q = m · Δ₂ / √(2 ρ · s_q)          Σ_q (m·Δ₂)²/(2 stddev_q²) = ρ
#
# Scales are raised by the same relative margin as those of queries (pricing.py), so the price is never above the
# budget.


CANNOT_SUM = "the records could not be summed, for want of memory or because a kernel failed; nothing was released"


class RecordStatistic(Protocol):
    """What the Gate needs to know of a sum over records.

    Whoever writes one owes a proof: `exact` of two sets of points that differ in one record differs by at most
    `sensitivity`, whatever that record holds, and no record makes it raise.
    """

    @property
    def attributes(self) -> tuple[str, ...]:
        """The continuous attributes whose points are summed, in the order of their coordinates."""
        ...

    @property
    def additive(self) -> bool:
        """Whether `exact` of some points and `exact` of the others add up to `exact` of all."""
        ...

    @property
    def size(self) -> int:
        """How many numbers the statistic has; public, and the same for all data."""
        ...

    @property
    def bits(self) -> int:
        """The sums are whole numbers of 2^−bits."""
        ...

    def sensitivity(self, norm: Literal[1, 2], neighbours: Neighbours) -> float:
        """How far one record moves the statistic at most, in this norm, in the statistic's own units."""
        ...

    def exact(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """The sums over points (a row each, in original units) in lattice units, flat. Confidential."""
        ...

    def describe(self) -> dict[str, Any]:
        """Plain data from which φ can be written down again: what a measurement file keeps."""
        ...

    def check(self, domain: Domain) -> None:
        """Refuse a statistic that does not fit the domain; declarations alone decide."""
        ...


@dataclass(frozen=True)
class PricedStatistic:
    """A statistic over records, with the noise that its share of the budget buys."""

    statistic: RecordStatistic
    noise: DiscreteLaplace | DiscreteGaussian
    round: int | None = None

    @property
    def bits(self) -> int:
        """The sums are integers in units of 2^−bits."""
        return self.statistic.bits

    @property
    def unit_scale(self) -> float:
        """The noise's scale or standard deviation in lattice units."""
        return math.ldexp(self.noise.scale_parameter, self.bits)

    @property
    def size(self) -> int:
        """How many noisy numbers there will be."""
        return self.statistic.size

    @property
    def asks(self) -> str:
        """What is measured, in words."""
        return self.measurement(np.zeros(self.size, np.int64), "").asks

    def measurement(self, units: NDArray[np.int64], identity: str) -> Measurement:
        """The measurement whose noisy values are so many lattice units."""
        return Measurement(
            query=Query(()),
            values=np.ldexp(units.astype(np.float64), -self.bits),
            noise=self.noise,
            id=identity,
            kind="record-sums",
            round=self.round,
            extra={"statistic": self.statistic.describe()},
        )


@dataclass(frozen=True)
class StatisticsPrice:
    """What measuring some statistics over records together costs, and the noise it buys."""

    budget: Budget
    statistics: tuple[PricedStatistic, ...]

    @property
    def parts(self) -> tuple[PricedStatistic, ...]:
        """What is measured, one by one."""
        return self.statistics


def price_statistics(
    statistics: Sequence[RecordStatistic],
    domain: Domain,
    budget: Budget,
    *,
    shares: Sequence[float] | None = None,
    round: int | None = None,  # noqa: A002 (the field of a measurement)
    neighbours: Neighbours = "add-remove",
    rows_per_unit: int = 1,
) -> StatisticsPrice:
    """The noise scales at which measuring the statistics together costs exactly the budget."""
    domain.refuse_weight("a sum over points")
    fractions = normalised_shares(shares, len(statistics), what="statistics")
    pure = budget.additive_unit == "epsilon"
    amount = float(budget.amount)
    priced = []
    for statistic, share in zip(statistics, fractions, strict=True):
        statistic.check(domain)
        domain.refuse_unreleased(statistic.attributes, "the plan")
        _refuse_overflow(statistic)
        moved = rows_per_unit * _positive_sensitivity(statistic, 1 if pure else 2, neighbours)
        scale = moved / (amount * share if pure else math.sqrt(2 * amount * share)) * (1 + ROUNDING_MARGIN)
        law = DiscreteLaplace if pure else DiscreteGaussian
        priced.append(PricedStatistic(statistic, law(scale, 2.0**-statistic.bits), round))
    return StatisticsPrice(budget, tuple(priced))


def checked_sums(statistic: RecordStatistic, found: NDArray[np.int64]) -> NDArray[np.int64]:
    """The exact sums of a statistic, which are whole numbers, so many of them as it declares. Confidential."""
    if found.dtype != np.int64 or found.shape != (statistic.size,):
        raise ConsilienceError(
            "a statistic over records did not give one whole number for each value it declares; nothing was released"
        )
    return found


def _positive_sensitivity(statistic: RecordStatistic, norm: Literal[1, 2], neighbours: Neighbours) -> float:
    found = statistic.sensitivity(norm, neighbours)
    if not (math.isfinite(found) and found > 0):
        raise DeclarationError(
            f"a statistic over {', '.join(statistic.attributes)} claims a sensitivity of {found}; sums over records "
            "are measured with a positive and finite one"
        )
    return found


def _refuse_overflow(statistic: RecordStatistic) -> None:
    """No coordinate of φ exceeds its L2 norm; that many records of it must fit in 62 bits."""
    largest = _positive_sensitivity(statistic, 2, "add-remove")
    if statistic.bits < 0 or largest * 2.0**statistic.bits * LARGEST_RECORDS >= 2.0**62:
        raise DeclarationError(
            f"a statistic over {', '.join(statistic.attributes)} adds up to {largest:.3g} a record on a lattice of "
            f"2^-{statistic.bits}, too wide for exact arithmetic; use a coarser lattice or fewer dimensions"
        )
