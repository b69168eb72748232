"""From queries and a budget to noise scales, looking at declarations alone.

Queries measured together share one budget. Query q gets the share s_q of it. With a_q(x) what one record in cell x
adds to the answers of q, and m the records one protected unit may contribute:

    pure ε:  scale_q  = m · S₁ / (ε · s_q),           S₁ = the L1 sensitivity of the stack weighted by s_q
    ρ-zCDP:  stddev_q = m · S₂ / √(2 ρ · s_q),         S₂ = the L2 sensitivity of the stack weighted by √s_q

so that max_x Σ_q ‖a_q(x)‖₁ / scale_q = ε, and max_x Σ_q ‖a_q(x)‖₂² / (2 stddev_q²) = ρ. Queries on disjoint cells are
parallel by that maximum. Scales are raised by a relative 10⁻¹², which covers the rounding of floating-point sums, so
that the price is never above the budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
) -> Price:
    """The noise scales at which measuring the queries together costs exactly the budget."""
    fractions = normalised_shares(shares, len(queries))
    bounds = [_on_lattice(query.bind(domain)) for query in queries]
    pure = budget.additive_unit == "epsilon"
    norm = 1 if pure else 2
    weights = fractions if pure else [math.sqrt(share) for share in fractions]
    stacked = sensitivity(bounds, norm=norm, neighbours=neighbours, weights=weights)
    if stacked.value <= 0:
        raise DeclarationError("these queries do not depend on the data under this neighbour relation; measure others")
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


# ----------------------------------------------------------------------------------------------------------------------
# What a ledger protects, and what a request costs a ledger that protects something else.
#
# Privacy losses add up only for the same pairs of tables. A ledger is therefore bound to one unit of protection (a row,
# or a value of one column of which at most m rows are counted) and to one neighbour relation. A request of another kind
# is refused, or charged what it costs *between the ledger's neighbours*. That is group privacy: if every two neighbours
# of the ledger are joined by at most k steps, each of which leads from one neighbour of the request to another, then
#
#     pure ε:  the request costs k·ε       (k factors of exp(ε))
#     ρ:       the request costs k²·ρ      (Bun, Steinke 2016, Proposition 1.9; (ε, δ) is carried by its ρ)
#
# How many steps there are at most depends on the units and relations alone:
#
#     the ledger protects          the request protects        k   the steps
#     unit c, add-remove           c, add-remove, other m      1   a unit is added or removed, however many rows count
#     unit c, replace-one          c, replace-one, other m     1   likewise
#     row, replace-one             row, add-remove             2   remove the old row, add the new one
#     unit c, replace-one          unit c, add-remove          2   remove the unit, add it with its new rows
#     row, add-remove              unit c, add-remove          2   a unit gains a row: remove it, add it with that row
#     row, replace-one             unit c, add-remove          4   one unit loses a row and another one gains one
#
# For the rest no finite k exists, and there is no conversion:
#
#   - From replace-one to add-remove: replacing never changes the number of rows or units, so that no number of such
#     steps
#     leads from a table to one with a row more. That covers units under replace-one and rows as well: a row may be the
#     only one of its unit.
#   - From a row to a unit: a unit may have any number of rows, and each is a step.
#   - From one column's units to another's: a unit of the one may have rows in any number of units of the other.


STEPS = {
    ("same", "add-remove", "add-remove"): 1,
    ("same", "replace-one", "replace-one"): 1,
    ("same", "replace-one", "add-remove"): 2,
    ("row", "add-remove", "add-remove"): 2,
    ("row", "replace-one", "add-remove"): 4,
}
"""At most so many steps, by: the ledger has the request's unit or the row; its relation; the request's relation."""


@dataclass(frozen=True)
class Protection:
    """What is protected: one row, or one value of the column `unit`, of which at most `max_rows` rows are counted."""

    unit: str | None = None
    max_rows: int = 1
    neighbours: Neighbours = "add-remove"

    @property
    def unit_text(self) -> str:
        """The unit as privacy statements name it."""
        return "row" if self.unit is None else f"{self.unit}, at most {self.max_rows} rows"

    def describe(self) -> str:
        """
        >>> Protection("person", 3).describe()
        "one value of 'person' (at most 3 rows), add-remove"
        """
        rows = f"at most {self.max_rows} row{'' if self.max_rows == 1 else 's'}"
        what = "one row" if self.unit is None else f"one value of {self.unit!r} ({rows})"
        return f"{what}, {self.neighbours}"

    def to_json(self) -> dict[str, Any]:
        return {"unit": self.unit, "max_rows_per_unit": self.max_rows, "neighbours": self.neighbours}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Protection:
        """The protection that `to_json` wrote; anything else is a ValueError."""
        found = cls(data["unit"], data["max_rows_per_unit"], data["neighbours"])
        if not isinstance(found.unit, str | None) or not isinstance(found.max_rows, int) or found.max_rows < 1:
            raise ValueError(f"no unit of protection: {data!r}")
        if found.neighbours not in ("add-remove", "replace-one"):
            raise ValueError(f"no neighbour relation: {data!r}")
        return found


def steps_between(bound: Protection, asked: Protection) -> int | None:
    """How many steps of what was asked for join neighbours of what is bound at most; None where no number does."""
    if bound.unit == asked.unit:
        place = "same"
    elif bound.unit is None:
        place = "row"
    else:
        return None
    return STEPS.get((place, bound.neighbours, asked.neighbours))


def why_not_convertible(bound: Protection, asked: Protection) -> str:
    """Why no finite cost under what is bound follows from a guarantee for what was asked for."""
    if bound.unit is not None and asked.unit is None:
        return (
            f"one value of {bound.unit!r} may have any number of rows, and a guarantee for one row says nothing of many"
        )
    if bound.unit is not None and bound.unit != asked.unit:
        return f"one value of {bound.unit!r} may have rows in any number of values of {asked.unit!r}"
    return "replacing never changes how many there are, so it says nothing about adding or removing one"
