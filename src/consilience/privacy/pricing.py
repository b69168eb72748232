"""From queries and a budget to noise scales, looking at declarations alone.

Queries measured together share one budget. Query q gets the share s_q of it. With a_q(x) what one record in cell x
adds to the answers of q, and m the records one protected unit may contribute:

    pure ε:  scale_q  = m · S₁ / (ε · s_q),           S₁ = the L1 sensitivity of the stack weighted by s_q
    ρ-zCDP:  stddev_q = m · S₂ / √(2 ρ · s_q),         S₂ = the L2 sensitivity of the stack weighted by √s_q

so that max_x Σ_q ‖a_q(x)‖₁ / scale_q = ε, and max_x Σ_q ‖a_q(x)‖₂² / (2 stddev_q²) = ρ. Queries on disjoint cells are
parallel by that maximum. Scales are raised by a relative 10⁻¹², which covers the rounding of floating-point sums, so
that the price is never above the budget.

A caller may ask for noise as if the sensitivity were larger than it is, as published mechanisms do whose bound is not
tight. S becomes the larger of the two numbers: more noise than the price needs, never less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery, Query
from consilience.domain.sensitivity import Neighbours, Sensitivity, sensitivity
from consilience.errors import DeclarationError
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
    """Answers are integers in units of 2^−bits."""

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
        return self.bound.query.describe()

    def measurement(self, units: NDArray[np.int64], identity: str) -> Measurement:
        """The measurement whose noisy values are so many lattice units."""
        values = np.ldexp(units.astype(np.float64), -self.bits)
        return Measurement(query=self.bound.query, values=values, noise=self.noise, id=identity)


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
) -> Price:
    """The noise scales at which measuring the queries together costs exactly the budget.

    With `sensitivity_at_least` above the queries' own sensitivity it costs no more than the budget.
    """
    fractions = normalised_shares(shares, len(queries))
    bounds = [_on_lattice(query.bind(domain)) for query in queries]
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
    amount = float(budget.amount)
    common = rows_per_unit * stacked.value / (amount if pure else math.sqrt(2 * amount)) * (1 + ROUNDING_MARGIN)
    law = DiscreteLaplace if pure else DiscreteGaussian
    priced = [
        PricedQuery(bound, law(common / weight, 2.0**-bound.lattice_bits), bound.lattice_bits)
        for bound, weight in zip(bounds, weights, strict=True)
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


def _on_lattice(bound: BoundQuery) -> BoundQuery:
    """The query with real entries rounded to a public lattice; refused where exact integers would not fit."""
    rounded = bound.rounded() if bound.lattice_bits else bound
    if rounded.largest_entry * 2.0**rounded.lattice_bits * LARGEST_RECORDS >= 2.0**62:
        raise DeclarationError(
            f"the query {bound.query.describe()!r} has entries up to {bound.largest_entry:.3g} on a lattice of "
            f"2^-{rounded.lattice_bits}, too wide for exact arithmetic; use fewer moments or coarser bins"
        )
    return rounded
