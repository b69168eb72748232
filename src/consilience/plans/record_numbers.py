"""How many records there are, for plans whose choices depend on it, and what a budget buys for a count."""

import math
from collections.abc import Sequence

from consilience.errors import MeasurementError
from consilience.measurements import Measurement, MeasurementSet
from consilience.plans.budget_parts import in_two_parts
from consilience.privacy.budgets import Budget
from consilience.privacy.cluster_statistics import GridCounts, declared_bounds
from consilience.privacy.gate import Gate

TOTAL_SHARE = 0.05


def count_records(
    gate: Gate, names: tuple[str, ...], budget: Budget, share: float
) -> tuple[float, tuple[Measurement, ...], Budget]:
    """The number of records, how it was measured, and what is left of the budget.

    A public number costs nothing; else it is measured with this share. A noisy number below 1 is taken for 1.
    """
    if gate.domain.public.total is not None:
        return float(gate.domain.public.total), (), budget
    part, rest = in_two_parts(budget, share)
    everything = GridCounts(names, declared_bounds(gate.domain, names), "box", 1)
    found = gate.sum_records([everything], part)
    return max(1.0, float(found[0].values[0])), found, rest


def measured_total(counts: Sequence[Measurement]) -> float:
    """The number of records from measurements that each count all of them: their sums, weighted by their noise.

    With n counts of variance v each, a sum has the variance n·v; weights in inverse proportion leave the least.
    """
    weights = [1.0 / (each.values.size * each.noise.variance) for each in counts]
    sums = [float(each.values.sum()) for each in counts]
    return math.fsum(weight * total for weight, total in zip(weights, sums, strict=True)) / math.fsum(weights)


def equivalent_epsilon(budget: Budget) -> float:
    """The ε whose Laplace noise on a count has the variance that this budget buys: ε, or 2√ρ.

    >>> from consilience.privacy.budgets import budget
    >>> equivalent_epsilon(budget(epsilon=0.5)), equivalent_epsilon(budget(rho=0.25))
    (0.5, 1.0)
    """
    amount = float(budget.amount)
    return amount if budget.additive_unit == "epsilon" else 2.0 * math.sqrt(amount)


def measured_sums(measured: MeasurementSet, algorithm: str, part: str) -> tuple[Measurement, ...]:
    """The measurements of this part of an algorithm, in their order; refused where there is none."""
    found = tuple(
        each
        for each in measured.measurements
        if (about := each.statistic) is not None and (about.get("algorithm"), about.get("part")) == (algorithm, part)
    )
    if not found:
        raise MeasurementError(f"the measurements hold no {part} of {algorithm!r}; give what such a plan measured")
    return found
