"""Which plan to take for a workload, and why: by declared facts alone.

What is declared are the domain with its public facts, the workload, the budget and the neighbour relation. What is
not known beforehand, above all the number of records and how much attributes say of each other, is decided inside the
chosen plan, from noisy facts that it pays for.

1. A workload about a single attribute that asks for more than its counts (ranges, prefixes, …) is for the matrix
   mechanism, whose strategy is the best for that workload whatever the data.
   Of more than 1,024 values it is for `Dawa`, told the workload: values that are alike are joined with a tenth of the
   budget, and the tree over what is left has the least expected error for that workload.
2. A workload whose queries are each about one attribute is for `Independent`: there is no pair to ask about.
3. Anything else is for `BestBuy`: the tables themselves where there are records enough; rounds that select tables
   (AIM) where pairs can be told from noise; else one-way marginals and a forest of those pairs that are worth their
   noise, which may be none.

Attributes that the workload does not name are measured, too, each by itself and with a small share of the budget
(`WithUnnamed`): an account that knows nothing of an attribute can say nothing of it. What that costs the workload is
known: its noise grows by 1/(1 − share) under a pure ε and by 1/√(1 − share) under ρ, 5.3 % and 2.6 % for a share of
0.05. The share is divided evenly, so that a wide attribute, whose table may be all noise, takes nothing from others.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from consilience.domain.domains import Domain
from consilience.domain.factors import AllRanges, Identity, Prefix, Range
from consilience.domain.queries import Query
from consilience.domain.sensitivity import check_neighbours
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.measurements import Measurement, MeasurementSet
from consilience.measuring import AnsweringPlan, ExplainedPlan
from consilience.plans.base import PartialGate, check_share, in_two_parts
from consilience.plans.best_buy import BUYING, BestBuy
from consilience.plans.forest import Independent, attribute_importance
from consilience.plans.matrix_mechanism import MatrixMechanism
from consilience.plans.published.histograms import Dawa
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.measure import ChangedPlan, Plan


@dataclass(frozen=True)
class ChoiceSettings:
    """What decides between plans for one attribute, and what attributes get that nobody asks about."""

    largest_strategy: int = 1024
    """Strategies are optimised for attributes of up to so many values."""
    partition_share: float = 0.1
    """Of the budget, for joining values of larger attributes that are alike."""
    unnamed_share: float = 0.05
    """Of the budget, for the tables of attributes that a workload does not name."""
    most_named: int = 6
    """Attributes that a sentence names."""


CHOICE = ChoiceSettings()


def chosen_plan(
    domain: Domain,
    workload: Workload,
    budget: Budget,
    neighbours: str = "add-remove",
    *,
    unnamed_share: float = CHOICE.unnamed_share,
) -> tuple[Plan, tuple[str, ...]]:
    """The plan for a workload, and sentences that say why.

    Attributes of the domain that the workload does not name get `unnamed_share` of the budget for a table each; with 0
    nothing is measured of them, and nothing can be said.

    >>> from consilience.domain import Query
    >>> from consilience.privacy.budgets import budget
    >>> domain = Domain.from_sizes({"a": 4, "b": 3})
    >>> plan, reasons = chosen_plan(domain, Workload.of([Query.marginal("a"), Query.marginal("b")]), budget(rho=0.1))
    >>> plan.to_json()["plan"], reasons[0]
    ('independent', 'every query is about one attribute, so that one-way marginals hold all that is asked for')
    """
    check_neighbours(neighbours)
    if not len(workload):
        raise DeclarationError("the workload is empty, and a plan is chosen by what is asked for; name a query")
    workload.check(domain)
    named = set(attribute_importance(workload, domain))
    unnamed = tuple(name for name in domain.counted_names if domain[name].size > 1 and name not in named)
    if not unnamed:
        return _for_workload(domain, workload, budget, neighbours)
    if unnamed_share == 0:
        plan, reasons = _for_workload(domain, workload, budget, neighbours)
        return plan, (*reasons, f"nothing is measured of {_listed(unnamed)}, so that nothing can be said of them")
    check_share(unnamed_share, "attributes that the workload does not name")
    rest = in_two_parts(budget, unnamed_share)[1]
    plan, reasons = _for_workload(domain, workload, rest, neighbours)
    found = WithUnnamed(plan, unnamed, unnamed_share)
    return found, (*reasons, found.why)


@dataclass(frozen=True)
class WithUnnamed:
    """A plan for a workload, and before it the one-way tables of attributes that the workload does not name."""

    plan: Plan
    names: tuple[str, ...]
    share: float = CHOICE.unnamed_share

    def run(self, gate: Gate) -> None:
        first, rest = in_two_parts(gate.budget, self.share)
        gate.measure([Query.marginal(name) for name in self.names], first)
        self.plan.run(PartialGate(gate, rest))

    @property
    def why(self) -> str:
        """What is done, and how to have it otherwise."""
        return (
            f"the workload does not name {_listed(self.names)}: {100 * self.share:g} % of the budget measures the "
            "table of each by itself (another share: unnamed_share=; none for one: release = false in the domain)"
        )

    @property
    def earlier(self) -> "WithUnnamed | None":
        """What this was with the plan's earlier defaults."""
        plan = self.plan.earlier if isinstance(self.plan, ChangedPlan) else None
        return None if plan is None else replace(self, plan=plan)

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What the plan says of itself, and how far the tables that were added will be off."""
        added = {Query.marginal(name) for name in self.names}
        mine = [each for each in example if each.query in added]
        others = MeasurementSet(
            example.domain, tuple(each for each in example if each.query not in added), example.privacy, {}, False
        )
        rest = in_two_parts(budget, self.share)[1]
        said = self.plan.explain(others, rest) if isinstance(self.plan, ExplainedPlan) else ()
        worst = sorted(mine, key=_error, reverse=True)[: CHOICE.most_named]
        return (*said, self.why, *(_off_by(each, example.domain) for each in worst))

    def check_answers(self, example: MeasurementSet) -> None:
        """Refuse what the plan for the workload refuses."""
        if isinstance(self.plan, AnsweringPlan):
            self.plan.check_answers(example)

    def to_json(self) -> dict[str, Any]:
        return self.plan.to_json() | {"unnamed": {"attributes": list(self.names), "share": self.share}}


def _error(table: Measurement) -> float:
    """By how many records a table is off, all values together: n E|noise| / 2."""
    return BUYING.mean_noise / 2.0 * table.values.size * table.noise.stddev_of_noise


def _off_by(measurement: Measurement, domain: Domain) -> str:
    name, off = measurement.query.attributes[0], _error(measurement)
    known = domain.public.total
    noise = "among so few records it is noise and tells nothing"
    if known is not None:
        verdict = f", of {known:,.0f}" + (f": {noise}" if off > known / 2 else "")
    else:
        verdict = f"; {noise}"
    return f"the table of {name} ({measurement.values.size:,} values) will be off by about {off:,.0f} records{verdict}"


def _listed(names: tuple[str, ...]) -> str:
    """Some names, and how many more there are.

    >>> _listed(("a", "b"))
    'a and b'
    """
    shown = list(names[: CHOICE.most_named])
    if len(names) > CHOICE.most_named:
        return f"{', '.join(shown)} and {len(names) - CHOICE.most_named:,} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _for_workload(domain: Domain, workload: Workload, budget: Budget, neighbours: str) -> tuple[Plan, tuple[str, ...]]:
    """The plan for what the workload names."""
    names = tuple(attribute_importance(workload, domain))
    choices = domain.weight is None  # private choices count records as they are
    counts_only = all(isinstance(factor, Identity) for query in workload.queries for _, factor in query.factors)
    if len(names) == 1 and not counts_only and (choices or domain[names[0]].size <= CHOICE.largest_strategy):
        return _for_one_attribute(workload, domain, names[0])
    varying = set(names)
    if all(len(varying.intersection(query.attributes)) <= 1 for query in workload.queries):
        large = _large_in_order(workload, domain)
        trees = (
            (f"of {_listed(large)}, asked for ranges, the levels of a tree of counts are measured",) if large else ()
        )
        return Independent(workload, large), (
            "every query is about one attribute, so that one-way marginals hold all that is asked for",
            "budget is divided so that the noise of all values together is least",
            *trees,
        )
    plan = BestBuy(workload, neighbours=check_neighbours(neighbours))
    return plan, (_why(plan, domain, budget),)


def _large_in_order(workload: Workload, domain: Domain) -> tuple[str, ...]:
    """The attributes of very many values of which more than their counts is asked."""
    asked = {
        name
        for query in workload.queries
        for name, factor in query.factors
        if len(query.attributes) == 1 and isinstance(factor, AllRanges | Prefix | Range)
    }
    return tuple(name for name in domain.ordered(asked) if domain[name].size > CHOICE.largest_strategy)


def _for_one_attribute(workload: Workload, domain: Domain, name: str) -> tuple[Plan, tuple[str, ...]]:
    """The matrix mechanism over the queries that name the attribute; others of one value say nothing."""
    kept = [(query, weight) for query, weight in workload if query.attributes == (name,)]
    if len(kept) < len(workload):
        return Independent(workload), (f"the only attribute of several values is {name}; its counts are measured",)
    if domain[name].size > CHOICE.largest_strategy:
        return Dawa(name, CHOICE.partition_share, "nested", workload=workload), (
            f"every query is about {name} alone, which has {domain[name].size:,} values, and asks for more than its "
            f"counts; {100 * CHOICE.partition_share:g} % of the budget joins values that are alike, and the rest "
            "measures the tree of counts with the least expected error for these queries (DAWA)",
        )
    return MatrixMechanism(workload, name), (
        f"every query is about {name} alone and asks for more than its counts; the strategy is optimised for these "
        f"queries over its {domain[name].size:,} values",
    )


def _why(plan: BestBuy, domain: Domain, budget: Budget) -> str:
    """What decides between the tables themselves and a forest, with the numbers known so far."""
    considered, known = plan.considered(domain), domain.public.total
    parts = []
    if domain.weight is not None:
        rules = [f"{each.ways} from {math.ceil(plan.needed_records(each, budget)):,} on" for each in considered]
        tables = f"tables of attributes together, {', '.join(rules)}, " if rules else ""
        parts.append(f"by the sum of weights {tables}or single attributes are measured, without choices among records")
    elif considered:
        needed = math.ceil(plan.needed_records(considered[0], budget))
        parts.append(f"from {needed:,} records on tables are measured themselves")
        parts.append("with fewer, noisy one-way marginals tell whether these would still stand out from noise")
        rounds = " rounds that select those that matter (AIM), or" if considered[0].ways > considered[-1].ways else ""
        parts.append(f"and if not,{rounds} one-way marginals and a forest of pairs are measured")
    else:
        parts.append(
            "there are too many tables to measure them all, so that the noise of pairs decides between rounds "
            "that select some (AIM) and a forest of pairs"
        )
    decides = "a noisy total decides" if known is None else f"there are {known:,.0f}, by public knowledge"
    return f"queries are about several attributes: {', '.join(parts)}; {decides}"
