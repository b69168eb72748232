"""Whether the account of a plan will answer what the plan is for, known before anything is spent.

Two things can be in the way. The cells of a query may be too many for an answer to be put together: these are declared,
and `AnswersWorkload` refuses such a workload. And a model in which the attributes of a query are far apart may take
hours to answer it: that depends on what a plan selects, and plans that select hold their choices to `answering_sizes`.

*Forests.* In a forest of pairs over d attributes the marginal by S is found along the paths between its attributes.
Let the sums be taken towards an attribute where three such paths meet: every table on the way is by one pair and those
of S that lie behind it, at most all but two, and the last one by S and the attribute itself. With l₁ ≥ l₂ ≥ l₃ the
largest attributes and s₁ ≤ s₂ the smallest of S, all of them together have at most

    |S| l₁ + d l₁ l₂ max(|S| / s₁s₂, l₃)    cells.
"""

import math
from typing import Any

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.estimators.choose import check_answers
from consilience.measurements import MeasurementSet
from consilience.models import elimination_plans
from consilience.plans.model_sizes import ModelSizes

CAREFUL = 10
"""How many times the bound may be exceeded by orders of summation that are found greedily."""


class AnswersWorkload:
    """A plan for a workload, which `measure` refuses where the account could not answer some of it."""

    def check_answers(self, example: MeasurementSet) -> None:
        """Refuse the workload where an account of such measurements could not answer it."""
        check_answers(example, "auto", asked_queries(self, example.domain))


def asked_queries(plan: Any, domain: Domain) -> tuple[Query, ...]:
    """What a plan is for, as far as it says so; of all marginals over some attributes the largest stands for all."""
    workload, ways = getattr(plan, "workload", None), getattr(plan, "ways", None)
    if isinstance(workload, Workload):
        return tuple(workload.queries)
    if workload is None and isinstance(ways, int):
        return (Query.marginal(*sorted(domain.counted_names, key=lambda name: -domain[name].size)[:ways]),)
    return ()


def answering_sizes(workload: Workload | None, domain: Domain) -> ModelSizes | None:
    """The sizes to which the pairs of a forest are held; None where every forest answers the workload soon enough."""
    asked = {query.attributes for query in workload.queries} if workload is not None else set()
    if not (domain.impossible or domain.public.margins):
        asked = {names for names in asked if CAREFUL * _most_work(names, domain) > elimination_plans.MOST_WORK}
    asked = {names for names in asked if len(names) > 1}
    return ModelSizes(domain, asked) if asked else None


def _most_work(names: tuple[str, ...], domain: Domain) -> float:
    """The bound above.

    >>> _most_work(("a", "b"), Domain.from_sizes({"a": 2, "b": 3, "c": 5}))
    120
    """
    own, sizes = sorted(domain.sizes(names)), sorted(domain.shape, reverse=True)
    first, second, third = (*sizes, 1, 1)[:3]
    return math.prod(own) * first + len(sizes) * first * second * max(math.prod(own[2:]), third)
