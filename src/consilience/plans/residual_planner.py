"""ResidualPlanner: the best Gaussian noise for a workload of marginals (Xiao, He, Zhang, Kifer 2023).

The marginals of a workload are made of residuals, and strategies/residual_noise.py finds how precisely each of
those is to be told. Xiao et al. measure differences between values with correlated noise. The Gate's noise is
independent, so other queries of whole numbers are measured, whose answers have the same information at the same price
(strategies/residual_noise.py): where that serves, marginals themselves; else tables in which the counts of
an attribute of n values are multiplied by s n + 1, each less s times their sum. Least squares gives every marginal of
the workload with the variance that the closed form says, when records are added or removed.

Under a pure ε the noise is Laplace's, for which no closed form is known. Marginals, and for flags the differences of
their two counts, get shares of ε that a search finds (strategies/residual_noise.py): never worse in sum than equal
shares of the workload's own tables, and no promise that nothing is better.

Under replace-one the same queries are measured. Their price is then the Gate's: exact for small domains, and else a
bound of twice the largest column, for the entries have both signs; the noise is up to √2 times what it must be there.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from consilience.domain.domains import Domain
from consilience.domain.factors import Factor, Identity, Matrix, Total
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError, TooLarge
from consilience.estimators.base import check_choice
from consilience.estimators.residual import Residual
from consilience.marginals.table_stacks import Scope
from consilience.measurements import MeasurementSet
from consilience.plans.answering import AnswersWorkload
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.strategies.residual_noise import (
    LaplaceShares,
    Objective,
    ResidualNoise,
    difference_matrix,
    laplace_shares,
    residual_noise,
    residual_queries,
)

MOST_ATTRIBUTES_OF_A_MARGINAL = 12
"""The most attributes of one marginal: it has 2^k residuals."""

MOST_CELLS_OF_A_MARGINAL = 10**7
"""The most cells of one marginal: noise is drawn for each."""


@dataclass(frozen=True)
class ResidualPlanner(AnswersWorkload):
    """The least error that marginals can have under ρ or (ε, δ), by unbiased answers with Gaussian noise.

    `workload` holds marginals; a weight says how much squared errors of its cells count. `objective="sum"` minimises
    the weighted sum of all cells' variances, "max" the largest weighted variance of a cell. Under a pure ε the sum is
    made as small as a search can, with Laplace noise.

    >>> domain = Domain.from_sizes({"a": 2, "b": 3})
    >>> plan = ResidualPlanner(Workload.marginals(domain, ways=1))
    >>> round(plan.noise(domain).variance((0,)), 4)
    1.7409
    """

    name = "residual-planner"
    workload: Workload
    objective: Objective = "sum"

    def __post_init__(self) -> None:
        check_choice(self.objective, "the objective", ("sum", "max"))
        if not len(self.workload):
            raise DeclarationError("the workload holds no marginal; name at least one")
        for query in self.workload.queries:
            if not all(isinstance(factor, Identity | Total) for _, factor in query.factors):
                raise DeclarationError(
                    f"the query {query.describe()!r} is no marginal, and ResidualPlanner is optimal for marginals; "
                    "leave it out, or use the plan Hdmm"
                )

    def noise(self, domain: Domain) -> ResidualNoise:
        """The best noise on a domain at ρ = ½; scopes are places among the domain's counted attributes."""
        return _noise(domain.shape, tuple(self._weights(domain).items()), self.objective)

    def laplace(self, domain: Domain) -> LaplaceShares:
        """Tables and their shares of a pure ε."""
        if self.objective != "sum":
            raise DeclarationError(
                f"the objective {self.objective!r} takes Gaussian noise; give rho, or epsilon with delta, or the "
                "objective 'sum'"
            )
        return _laplace(domain.shape, tuple(self._weights(domain).items()))

    def variances(self, domain: Domain, budget: Budget) -> dict[tuple[str, ...], float]:
        """The variance of a cell of each marginal of the workload, when records are added or removed."""
        names, amount = domain.counted_names, float(budget.amount)
        if budget.additive_unit == "rho":
            found, scale = self.noise(domain), 2.0 * amount
        else:
            found, scale = self.laplace(domain).noise, amount**2
        return {
            tuple(names[place] for place in scope): found.variance(scope) / scale for scope in self._weights(domain)
        }

    def queries(self, domain: Domain, unit: str = "rho") -> tuple[tuple[Query, ...], tuple[float, ...]]:
        """What is measured under ρ, or a pure ε, and the share of the budget that each query gets."""
        if unit == "rho":
            found = residual_queries(domain.shape, self.noise(domain).precisions)
            levels, shares = found.levels, {scope: 1.0 / each for scope, each in found.variances.items()}
            factors = [
                _differences(size, level) if level else Identity()
                for size, level in zip(domain.shape, levels, strict=True)
            ]
        else:
            divided = self.laplace(domain)
            shares = divided.shares
            factors = [_FLAG if size == 2 and divided.differences else Identity() for size in domain.shape]
        names = domain.counted_names
        scopes = sorted(shares, key=lambda scope: (len(scope), scope))
        queries = tuple(Query(tuple((names[place], factors[place]) for place in scope)) for scope in scopes)
        return queries, tuple(shares[scope] for scope in scopes)

    def run(self, gate: Gate) -> None:
        queries, shares = self.queries(gate.domain, gate.budget.additive_unit)
        gate.measure(queries, gate.budget, shares=shares)

    def estimator(self) -> Residual:
        """Least squares in residuals: unbiased, with counts of either sign, as published."""
        return Residual(nonnegative=False)

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What is measured, and the error to expect of the workload's marginals."""
        domain = example.domain
        deviations = [math.sqrt(each) for each in self.variances(domain, budget).values()]
        plain = sum(all(isinstance(factor, Identity) for _, factor in each.query.factors) for each in example)
        span = f"{min(deviations):.4g}" if len(deviations) == 1 else f"{min(deviations):.4g} to {max(deviations):.4g}"
        aim = "the sum of all variances" if self.objective == "sum" else "the largest variance"
        if budget.additive_unit == "rho":
            least = "is the least that unbiased answers with Gaussian noise can have"
        else:
            least = "is the least that a search found for Laplace noise"
        return (
            f"{len(example)} queries, {plain} of them plain marginals, tell {len(deviations)} marginals; {aim} {least}",
            f"standard deviation of a cell, by marginal, when records are added or removed: {span}",
        )

    def _weights(self, domain: Domain) -> Mapping[Scope, float]:
        """The weight of each scope; of a marginal that is named twice the sum, or for a maximum the larger one."""
        places = {name: place for place, name in enumerate(domain.counted_names)}
        found: dict[Scope, float] = {}
        for query, weight in self.workload:
            told = [name for name, factor in query.factors if isinstance(factor, Identity)]
            for name in itertools.chain(told, query.attributes):
                domain[name].labels  # noqa: B018 - refuses unknown and continuous attributes
            scope = tuple(sorted(places[name] for name in told))
            _refuse_large(query, [domain.shape[place] for place in scope])
            before = found.get(scope, 0.0)
            found[scope] = before + weight if self.objective == "sum" else max(before, weight)
        return found


def _refuse_large(query: Query, sizes: list[int]) -> None:
    if len(sizes) > MOST_ATTRIBUTES_OF_A_MARGINAL or math.prod(sizes) > MOST_CELLS_OF_A_MARGINAL:
        raise TooLarge(
            f"the marginal {query.describe()!r} has {len(sizes)} attributes and {math.prod(sizes):,} cells; "
            f"ResidualPlanner takes up to {MOST_ATTRIBUTES_OF_A_MARGINAL} attributes and "
            f"{MOST_CELLS_OF_A_MARGINAL:,} cells: ask for smaller ones"
        )


_FLAG = Matrix.of([[1.0, -1.0]])
"""The difference between the two counts of a flag."""


@lru_cache(maxsize=64)
def _differences(size: int, level: int) -> Factor:
    return Matrix.of(difference_matrix(size, level))


@lru_cache(maxsize=16)
def _noise(sizes: tuple[int, ...], weights: tuple[tuple[Scope, float], ...], objective: Objective) -> ResidualNoise:
    """The noise, kept for the next run: a plan runs twice, once to tell its price."""
    return residual_noise(sizes, dict(weights), objective=objective)


@lru_cache(maxsize=16)
def _laplace(sizes: tuple[int, ...], weights: tuple[tuple[Scope, float], ...]) -> LaplaceShares:
    return laplace_shares(sizes, dict(weights))
