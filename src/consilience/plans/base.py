"""What plans share: how they are described, the checks of their options, and one budget in two parts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.measurements import Measurement
from consilience.privacy.budgets import AdditiveUnit, Budget, budget, exact_difference
from consilience.privacy.gate import Candidate, Gate, Taken
from consilience.privacy.partitions import PartitionRule
from consilience.privacy.pricing import RecordStatistic
from consilience.privacy.scores import Score, Selector


@dataclass(frozen=True)
class DescribedPlan:
    """A plan that is told by its name and its fields.

    The description is the identity of a request: a ledger that holds one with the same description answers it again.
    """

    name: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        return {"plan": self.name} | {each.name: _plain(getattr(self, each.name)) for each in fields(self)}


def _plain(value: Any) -> Any:
    """A field as JSON has it."""
    if isinstance(value, Workload):
        return value.to_json()
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


def in_two_parts(whole: Budget, share: float) -> tuple[Budget, Budget]:
    """A part of about `share` of the budget, and all the rest of it.

    >>> from consilience.privacy.budgets import budget
    >>> [part.describe() for part in in_two_parts(budget(epsilon=1), 0.3)]
    ['epsilon 0.3', 'epsilon 0.7']
    """
    first = whole.scaled(share)
    rest = exact_difference(whole.amount, first.amount)
    return first, budget(epsilon=rest) if whole.additive_unit == "epsilon" else budget(rho=rest)


PUBLISHED_TOTAL_SHARE = 0.05
"""Of the budget, for the total or the number of records, in plans as published where it is not public."""


def check_share(share: float, what: str) -> None:
    """Refuse a share that leaves nothing for one of the two parts."""
    if not (isinstance(share, int | float) and 0 < share < 1):
        raise DeclarationError(
            f"the share for {what} is {share!r}; give a part of the budget between 0 and 1, such as 0.25"
        )


def without_totals(workload: Workload) -> Workload:
    """The queries that name attributes; refused where there is none. The total is known, or measured apart."""
    kept = [(query, weight) for query, weight in workload if query.factors]
    if not kept:
        raise DeclarationError("the workload asks for nothing but the total; name queries about attributes")
    return Workload.of([query for query, _ in kept], weights=[weight for _, weight in kept])


def best_selector(unit: AdditiveUnit) -> Selector:
    """The selector that is most exact at a price: a pure ε buys permute-and-flip, ρ the exponential mechanism."""
    return "permute-and-flip" if unit == "epsilon" else "exponential"


class PartialGate:
    """A gate whose plan is told a part of the budget; every step goes to the gate itself."""

    def __init__(self, gate: Gate, part: Budget) -> None:
        self._gate = gate
        self.domain = gate.domain
        self.budget = part
        self.rows_per_unit = gate.rows_per_unit

    def measure(
        self,
        queries: Query | Sequence[Query],
        budget: Budget,
        *,
        shares: Sequence[float] | None = None,
        sensitivity_at_least: float = 0.0,
    ) -> tuple[Measurement, ...]:
        return self._gate.measure(queries, budget, shares=shares, sensitivity_at_least=sensitivity_at_least)

    def measure_sums(
        self, amount: str, queries: Sequence[Query], budget: Budget, *, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        return self._gate.measure_sums(amount, queries, budget, shares=shares)

    def sum_records(
        self,
        statistics: Sequence[RecordStatistic],
        budget: Budget,
        *,
        shares: Sequence[float] | None = None,
        round: int | None = None,  # noqa: A002 (the field of a measurement)
    ) -> tuple[Measurement, ...]:
        return self._gate.sum_records(statistics, budget, shares=shares, round=round)

    def select(
        self, score: Score[Candidate], budget: Budget, *, selector: Selector = "permute-and-flip", besides: Taken = ()
    ) -> Candidate:
        return self._gate.select(score, budget, selector=selector, besides=besides)

    def partition(self, rule: PartitionRule, budget: Budget) -> tuple[int, ...]:
        return self._gate.partition(rule, budget)

    def find_values(self, attribute: str, budget: Budget) -> tuple[str, ...]:
        return self._gate.find_values(attribute, budget)

    def keep(self, selections: Measurement) -> None:
        self._gate.keep(selections)


# ----------------------------------------------------------------------------------------------------------------------
# What plans with private buckets share: the price of a bucket, and the least number of them.


def mean_absolute_noise(budget: Budget) -> float:
    """E|noise| on each of some disjoint counts that are measured with this budget, one record per unit, add-remove.

    Under ε the noise is Laplace of scale 1/ε, and its mean absolute value is that scale; under ρ it is Gaussian of
    stddev 1/√(2ρ), with √(2/π) times that.

    >>> from consilience.privacy.budgets import budget
    >>> mean_absolute_noise(budget(epsilon=0.5)), round(mean_absolute_noise(budget(rho=0.5)), 4)
    (2.0, 0.7979)
    """
    amount = float(budget.amount)
    return 1.0 / amount if budget.additive_unit == "epsilon" else 1.0 / math.sqrt(math.pi * amount)


def at_least_two(starts: Sequence[int], size: int) -> tuple[int, ...]:
    """The buckets, or the two halves of the only one.

    A single bucket would measure nothing but the total.

    >>> at_least_two((0, 3), 8), at_least_two((0,), 8), at_least_two((0,), 1)
    ((0, 3), (0, 4), (0,))
    """
    return tuple(starts) if len(starts) > 1 or size == 1 else (0, size // 2)
