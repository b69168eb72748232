"""Plans that measure what is named, as it stands: `Flat`, `Direct`, `Marginals` and `Queries`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload, attribute_sets
from consilience.errors import DeclarationError, readable_count
from consilience.estimators.base import named_marginals
from consilience.measurements import MeasurementSet
from consilience.plans.base import DescribedPlan, check_share
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate

FLAT_TOTAL_SHARE = 0.01
"""Of the budget, for a total that the cells tell badly. The cells then have 1 % more noise under a pure ε, and 0.5 %
under ρ."""
TOTAL_GAIN = 3.0
"""A total is bought where that makes its noise less than a third."""


@dataclass(frozen=True)
class Flat(DescribedPlan):
    """Every cell of the full table, and the total where the cells tell it badly.

    The sum of n cells has √n times their noise σ. With a share s of the budget the total itself has σ/s under a pure ε
    and σ/√s under ρ. It is measured, with `total_share`, where that is less than a third: with 1 % from 90,000 cells on
    under ε and from 900 on under ρ, unless the total is public. With `total_share=0` the cells get the whole budget,
    as in the Laplace mechanism.

    >>> Flat(total_share=0).to_json()
    {'plan': 'flat'}
    """

    name = "flat"
    total_share: float = FLAT_TOTAL_SHARE

    def __post_init__(self) -> None:
        if self.total_share != 0:
            check_share(self.total_share, "the total")

    def run(self, gate: Gate) -> None:
        cells = Query.marginal(*gate.domain.counted_names)
        if self.buys_total(gate.domain, gate.budget):
            gate.measure([Query(()), cells], gate.budget, shares=[self.total_share, 1 - self.total_share])
        else:
            gate.measure(cells, gate.budget)

    def buys_total(self, domain: Domain, budget: Budget) -> bool:
        """Whether the total is measured, by declarations alone."""
        if domain.public.total is not None or domain.public.margins:
            return False
        noise = self.total_share if budget.additive_unit == "epsilon" else math.sqrt(self.total_share)
        return math.sqrt(domain.cells) * noise >= TOTAL_GAIN

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """Why the total is measured, where it is."""
        if not self.buys_total(example.domain, budget):
            return ()
        return (
            f"{100 * self.total_share:g} % of the budget measures the total, which the sum of "
            f"{readable_count(example.domain.cells)} noisy cells tells badly (nothing for it: `flat 0`, or "
            "Flat(total_share=0))",
        )

    @property
    def earlier(self) -> "Flat | None":
        """What this was before totals were bought: such a request is answered from the ledger that holds it."""
        return Flat(total_share=0) if self.total_share == FLAT_TOTAL_SHARE else None

    def to_json(self) -> dict[str, Any]:
        return super().to_json() if self.total_share else {"plan": self.name}


@dataclass(frozen=True)
class Direct(DescribedPlan):
    """All marginals over `ways` attributes, with equal shares of the budget."""

    name = "direct"
    ways: int = 2

    def run(self, gate: Gate) -> None:
        sets = attribute_sets(gate.domain, _possible_ways(self.ways, gate.domain))
        gate.measure([Query.marginal(*names) for names in sets], gate.budget)


@dataclass(frozen=True)
class Marginals(DescribedPlan):
    """The marginals that the user names, with equal or given shares of the budget.

    >>> Marginals([("age", "sex"), "income"]).to_json()["marginals"]
    [['age', 'sex'], ['income']]
    """

    name = "marginals"
    marginals: Sequence[tuple[str, ...] | str]
    shares: Sequence[float] | None = None

    def __post_init__(self) -> None:
        named = named_marginals(self.marginals)
        object.__setattr__(self, "marginals", named)
        if self.shares is not None:
            object.__setattr__(self, "shares", tuple(float(share) for share in self.shares))
        if not named:
            raise DeclarationError("no marginals were named; name at least one, such as [('age', 'sex')]")

    def run(self, gate: Gate) -> None:
        gate.measure([Query.marginal(*names) for names in self.marginals], gate.budget, shares=self.shares)

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in super().to_json().items() if value is not None}


@dataclass(frozen=True)
class Queries(DescribedPlan):
    """The queries of a workload as they stand, with equal or given shares of the budget; its weights play no part.

    A mean is measured as the two tables that it divides, each with a share of its own.

    >>> plan = Queries(Workload.of(["home==work by sex", "by age"]))
    >>> [query.describe() for query in plan.workload.queries]
    ['home==work by sex', 'age']
    """

    name = "queries"
    workload: Workload
    shares: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.shares is not None:
            object.__setattr__(self, "shares", tuple(float(share) for share in self.shares))
        if not len(self.workload):
            raise DeclarationError("no queries were named; name at least one, such as 'home==work by sex'")

    def run(self, gate: Gate) -> None:
        gate.measure(self.workload.queries, gate.budget, shares=self.shares)

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in super().to_json().items() if value is not None}


def _possible_ways(ways: int, domain: Domain) -> int:
    if ways < 0:
        raise DeclarationError(f"{ways}-way marginals were asked for; a number of ways is from 0 up")
    return min(ways, len(domain.counted))
