"""Which plan to take for a workload, and why: by declared facts alone.

What is declared are the domain with its public facts, the workload, the budget and the neighbour relation. What is not
known beforehand, above all the number of records and how much attributes say of each other, is decided inside the
chosen plan, from noisy facts that it pays for.

1. A workload about a single attribute that asks for more than its counts (ranges, prefixes, …) is for the matrix
   mechanism, whose strategy is the best for that workload whatever the data.
2. A workload whose queries are each about one attribute is for `Independent`: there is no pair to ask about.
3. Anything else is for `BestBuy`: the tables themselves where there are records enough; rounds that select tables
   (AIM) where pairs can be told from noise; else one-way marginals and a forest of those pairs that are worth their
   noise, which may be none.
"""

import math

from consilience.domain.domains import Domain
from consilience.domain.factors import Identity
from consilience.domain.sensitivity import check_neighbours
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.plans.best_buy import BestBuy
from consilience.plans.independent import Independent, attribute_importance
from consilience.plans.matrix_mechanism import MatrixMechanism
from consilience.privacy.budgets import Budget
from consilience.privacy.measure import Plan

LARGEST_STRATEGY = 1024
"""Strategies are optimised for attributes of up to so many values."""


def chosen_plan(
    domain: Domain, workload: Workload, budget: Budget, neighbours: str = "add-remove"
) -> tuple[Plan, tuple[str, ...]]:
    """The plan for a workload, and sentences that say why.

    >>> from consilience.domain import Query
    >>> from consilience.privacy.budgets import budget
    >>> domain = Domain.from_sizes({"a": 4, "b": 3})
    >>> plan, reasons = chosen_plan(domain, Workload.of([Query.marginal("a"), Query.marginal("b")]), budget(rho=0.1))
    >>> plan.to_json()["plan"], reasons[0]
    ('independent', 'every query is about one attribute, so that one-way marginals hold all that is asked for')
    """
    relation = check_neighbours(neighbours)
    if not len(workload):
        raise DeclarationError("the workload is empty, and a plan is chosen by what is asked for; name a query")
    names = tuple(attribute_importance(workload, domain))
    counts_only = all(isinstance(factor, Identity) for query in workload.queries for _, factor in query.factors)
    if len(names) == 1 and not counts_only and domain[names[0]].size <= LARGEST_STRATEGY:
        return _for_one_attribute(workload, domain, names[0])
    varying = set(names)
    if all(len(varying.intersection(query.attributes)) <= 1 for query in workload.queries):
        return Independent(workload), (
            "every query is about one attribute, so that one-way marginals hold all that is asked for",
            "budget is divided so that the noise of all values together is least",
        )
    plan = BestBuy(workload, neighbours=relation)
    return plan, (_why(plan, domain, budget),)


def _for_one_attribute(workload: Workload, domain: Domain, name: str) -> tuple[Plan, tuple[str, ...]]:
    """The matrix mechanism over the queries that name the attribute; others of one value say nothing."""
    kept = [(query, weight) for query, weight in workload if query.attributes == (name,)]
    if len(kept) < len(workload):
        return Independent(workload), (f"the only attribute of several values is {name}; its counts are measured",)
    return MatrixMechanism(workload, name), (
        f"every query is about {name} alone and asks for more than its counts; the strategy is optimised for these "
        f"queries over its {domain[name].size:,} values",
    )


def _why(plan: BestBuy, domain: Domain, budget: Budget) -> str:
    """What decides between the tables themselves and a forest, with the numbers known so far."""
    considered, pairs, known = plan.considered(domain), plan.joining_pairs(domain), domain.public.total
    parts = []
    if considered:
        needed = min(math.ceil(plan.needed_records(each, budget)) for each in considered)
        parts.append(f"from {needed:,} records on tables are measured themselves")
    if pairs is not None:
        needed = math.ceil(plan.needed_records(pairs, budget, plan.most_pair_noise))
        parts.append(f"from {needed:,} on rounds select those that matter (AIM)")
    parts.append("with fewer, one-way marginals and a forest of pairs are measured")
    decides = "a noisy total decides" if known is None else f"there are {known:,.0f}, by public knowledge"
    return f"queries are about several attributes: {', '.join(parts)}; {decides}"
