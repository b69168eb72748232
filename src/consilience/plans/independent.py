"""Independent: the counts of each attribute alone, and a model in which attributes say nothing of each other.

Where there are few records, or many attributes, this is often the best buy: every other table costs more noise than it
tells. Shares. Attribute a has n_a values and matters v_a, by how much of the workload names it. Its answers have noise
of a size proportional to 1/√ρ_a under ρ and to 1/ε_a under a pure ε, so that all of them together are off by about

    Σ_a v_a n_a / √ρ_a    or    Σ_a v_a n_a / ε_a,

which is least, for a given sum of the shares, where ρ_a ∝ (v_a n_a)^(2/3) or ε_a ∝ (v_a n_a)^(1/2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.graphical import Graphical
from consilience.measurements import MeasurementSet
from consilience.plans.answering import AnswersWorkload
from consilience.privacy.budgets import AdditiveUnit, Budget
from consilience.privacy.gate import Gate


@dataclass(frozen=True)
class Independent(AnswersWorkload):
    """One-way marginals of the attributes that the workload names, or of all; noise balanced by their sizes.

    >>> Independent().to_json()
    {'plan': 'independent', 'workload': None}
    """

    workload: Workload | None = None

    def run(self, gate: Gate) -> None:
        weights = attribute_importance(self.workload, gate.domain)
        shares = balanced_shares(one_way_cells(weights, gate.domain), gate.budget.additive_unit)
        gate.measure([Query.marginal(name) for name in weights], gate.budget, shares=shares)

    def estimator(self) -> Graphical:
        """The nearest non-negative counts of each attribute: nothing but the noise of single values is to be lost."""
        return Graphical(stop="converged")

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What is measured and what to expect, in sentences."""
        noise = sum(each.values.size * each.noise.variance**0.5 for each in example) / max(1, len(example))
        return (
            f"{len(example)} one-way marginals; attributes are taken to be independent of each other",
            f"noise of a marginal, all its values together: about {noise:,.0f} records in the mean",
        )

    def to_json(self) -> dict[str, Any]:
        return {"plan": "independent", "workload": None if self.workload is None else self.workload.to_json()}


def attribute_importance(workload: Workload | None, domain: Domain) -> dict[str, float]:
    """How much of the workload, by weight, names each attribute of several values; of no workload, all the same."""
    varying = [name for name in domain.counted_names if domain[name].size > 1]
    if workload is None:
        found = dict.fromkeys(varying, 1.0)
    else:
        named = dict.fromkeys(varying, 0.0)
        for query, weight in workload:
            for name in domain.ordered(query.attributes):
                if name in named:
                    named[name] += weight
        found = {name: weight for name, weight in named.items() if weight > 0}
    if not found:
        raise DeclarationError(
            "there is nothing to tell apart: no attribute of two values or more is declared, or the workload names none"
        )
    return found


def one_way_cells(weights: Mapping[str, float], domain: Domain) -> list[float]:
    """For each attribute its importance times the number of its values."""
    return [weight * domain[name].size for name, weight in weights.items()]


def balanced_shares(cells: Sequence[float], unit: AdditiveUnit) -> list[float]:
    """Shares of the budget for tables of so many cells at which all noise together is least (above).

    >>> [round(share, 6) for share in balanced_shares([8.0, 27.0], "rho")]
    [4.0, 9.0]
    >>> balanced_shares([4.0, 9.0], "epsilon")
    [2.0, 3.0]
    """
    power = 0.5 if unit == "epsilon" else 2.0 / 3.0
    return [each**power for each in cells]
