"""Sums of amounts beside counts: what a workload asks of them, and the plan that measures both.

A workload names them by what it asks: `sum(income) by sex`, or `mean(income) by sex`, which is a sum divided by a
count. Where the domain declares between which bounds an amount is clipped, the sum is measured as it is, with a stated
share of the budget; the plan for everything else gets the rest and measures the counts that means are divided by. What
is measured are the sums by the largest sets of attributes that are asked for: those by fewer are sums of these.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from consilience.domain.attributes import Numeric
from consilience.domain.declarations import spell_attribute
from consilience.domain.domains import Domain
from consilience.domain.factors import Factor, Identity, Mean, Range
from consilience.domain.language import QueryParser
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.measurements import MeasurementSet
from consilience.measuring import AnsweringPlan, ExplainedPlan
from consilience.plans.base import PartialGate, check_share, in_two_parts
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.measure import Plan

Names = tuple[str, ...]
Sums = tuple[tuple[str, tuple[Names, ...]], ...]
"""For each amount the sets of attributes by which its sums are measured."""

SUMS_SHARE = 0.25
"""Of the budget, for sums of amounts that a workload asks for beside counts. Counts then have a third more noise under
a pure ε and 15 % more under ρ, and a mean has about the noise of both."""


@dataclass(frozen=True)
class WithSums:
    """Sums of amounts with a share of the budget, and everything else by another plan with the rest.

    Each amount, and each set of attributes, has an equal part of the share.

    >>> from consilience.plans import Marginals
    >>> WithSums(Marginals(["sex"]), (("income", (("sex",),)),)).to_json()["sums"]
    {'of': [['income', [['sex']]]], 'share': 0.25}
    """

    plan: Plan
    sums: Sums
    share: float = SUMS_SHARE

    def __post_init__(self) -> None:
        check_share(self.share, "sums of amounts")
        if not self.sums:
            raise DeclarationError("there are no sums to measure; name an amount and the attributes it is summed by")

    def run(self, gate: Gate) -> None:
        first, rest = in_two_parts(gate.budget, self.share)
        for place, (amount, sets) in enumerate(self.sums):
            left = sum(len(each) for _, each in self.sums[place:])
            part, first = (first, first) if left == len(sets) else in_two_parts(first, len(sets) / left)
            gate.measure_sums(amount, [Query.marginal(*names) for names in sets], part)
        self.plan.run(PartialGate(gate, rest))

    @property
    def workload(self) -> Workload | None:
        """What the counts are for."""
        return getattr(self.plan, "workload", None)

    @property
    def ways(self) -> int | None:
        """Of how many attributes the tables of counts are, where that is what the plan goes by."""
        return getattr(self.plan, "ways", None)

    @property
    def why(self) -> str:
        """What is done, and how to have it otherwise."""
        asked = ", ".join(_in_words(amount, names) for amount, sets in self.sums for names in sets)
        return (
            f"{100 * self.share:g} % of the budget measures sums of numbers, each clipped to its declared bounds: "
            f"{asked} (another share: sums_share=; none, and means from the middle of bins: 0)"
        )

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What is measured, how much noise it has, and what the plan for the counts says of itself."""
        rest = in_two_parts(budget, self.share)[1]
        said = self.plan.explain(example, rest) if isinstance(self.plan, ExplainedPlan) else ()
        noise = tuple(
            f"{each.asks}: noise puts each sum off by about {each.noise.stddev_of_noise:,.3g}, and a mean of 1,000 "
            f"records by {each.noise.stddev_of_noise / 1000:,.3g}"
            for each in example.sums
        )
        return (self.why, *noise, *said)

    def check_answers(self, example: MeasurementSet) -> None:
        """Refuse what the plan for the counts refuses."""
        if isinstance(self.plan, AnsweringPlan):
            self.plan.check_answers(example)

    def to_json(self) -> dict[str, Any]:
        listed = [[amount, [list(names) for names in sets]] for amount, sets in self.sums]
        return self.plan.to_json() | {"sums": {"of": listed, "share": self.share}}


def _in_words(amount: str, names: Names) -> str:
    by = f" by {', '.join(map(spell_attribute, names))}" if names else ""
    return f"sum({spell_attribute(amount)}){by}"


def sums_of(asked: Iterable[tuple[str, Names]]) -> Sums:
    """The sums to measure so that all of these can be had: by the largest sets of attributes of each amount.

    >>> sums_of([("income", ("sex",)), ("income", ()), ("income", ("sex", "region")), ("rent", ())])
    (('income', (('sex', 'region'),)), ('rent', ((),)))
    """
    wanted: dict[str, dict[frozenset[str], Names]] = {}
    for amount, names in asked:
        wanted.setdefault(amount, {}).setdefault(frozenset(names), names)
    return tuple(
        (amount, tuple(names for own, names in sets.items() if not any(own < other for other in sets)))
        for amount, sets in wanted.items()
    )


def counts_and_sums(workload: Workload, domain: Domain) -> tuple[Workload, Sums]:
    """What a workload asks of counts, and the sums of declared amounts that it asks for.

    The number of records that a mean is divided by is among the counts. Of an amount whose records all have a number it
    is the count of the groups.
    """
    sums = [(query, name) for query in workload.queries if (name := summed_amount(query, domain)) is not None]
    counts: dict[Query, float] = {}
    for query, weight in workload:
        if summed_amount(query, domain) is None:
            plain = Query(tuple((n, factor) for n, factor in query.factors if not _is_of_all(n, factor, domain)))
            counts[plain] = counts.get(plain, 0.0) + weight
    if not counts:
        counts = {Query.marginal(*_groups(query, name)): 1.0 for query, name in sums}
    found = sums_of((name, _groups(query, name)) for query, name in sums)
    return Workload(tuple(counts), tuple(counts.values()), workload.notes) if sums else workload, found


def summed_amount(query: Query, domain: Domain) -> str | None:
    """The amount whose sums a query asks for; None of other queries, and where the domain declares no bounds of it."""
    names = [name for name, factor in query.factors if isinstance(factor, Mean)]
    return names[0] if len(names) == 1 and names[0] in domain.amounts else None


def _groups(query: Query, amount: str) -> Names:
    return tuple(name for name in query.attributes if name != amount)


def _is_of_all(name: str, factor: Factor, domain: Domain) -> bool:
    """Whether a factor asks for all records that have a number, and every record of this amount has one."""
    attribute = domain[name] if name in domain.amounts else None
    all_numbers = isinstance(attribute, Numeric) and attribute.size == len(attribute.bins)
    return factor == Range(None, None) and all_numbers


def sums_in_words(text: str) -> list[tuple[str, Names]]:
    """Amounts and the attributes that they are summed by.

    >>> sums_in_words("income by sex, region; rent")
    [('income', ('sex', 'region')), ('rent', ())]
    """
    found: list[tuple[str, Names]] = []
    for part in filter(None, (each.strip() for each in text.split(";"))):
        amount, *by = part.split(" by ", maxsplit=1)
        query = Query(QueryParser(f"by {by[0]}").whole()) if by else Query(())
        if not all(isinstance(factor, Identity) for _, factor in query.factors):
            raise DeclarationError(f"sums are measured by attributes, such as 'income by sex, region'; found {part!r}")
        found.append((amount.strip(), query.attributes))
    return found
