"""MST: one-way marginals, then the pairs of a spanning tree that is selected privately (McKenna, Miklau, Sheldon 2021).

A third of the budget measures all one-way marginals. The second third grows a tree: each of d − 1 selections takes,
among the pairs that join two components, the one whose counts are farthest in L1 distance from what independence would
lead one to expect, as with Kruskal's algorithm for the greatest spanning tree (privacy/scores.py proves the
sensitivity). The last third measures the pairs of the tree.

Rare values. For selecting and measuring pairs the values of an attribute whose noisy count is below `rare` standard
deviations of its noise are joined into one. How they divide is then known from the one-way marginals alone.

The paper has ρ; with a pure ε the same thirds buy Laplace noise. `plans.Forest` spends the same budget with more care.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.graphical import Graphical
from consilience.measurements import MeasurementSet
from consilience.plans.answering import AnswersWorkload, answering_sizes
from consilience.plans.independent import attribute_importance
from consilience.plans.spanning_pairs import OneWayCounts, Pair, grow_forest, joined_tables, pair_weights
from consilience.plans.value_groups import joined_below, separate
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.scores import JoinedTable, JoinedValues

THIRD = Fraction(1, 3)


@dataclass(frozen=True)
class Mst(AnswersWorkload):
    """One-way marginals and the pairs of a private spanning tree, a third of the budget for each step.

    `workload` bounds the attributes to those it names, and the tree to one that answers its queries within memory and
    minutes, which may leave it in parts; it is not used otherwise, and without it all attributes are taken. `rare` is
    how many standard deviations of its noise a count has at least whose value is not joined with others; 0 joins none.

    >>> Mst().to_json()
    {'plan': 'mst', 'workload': None, 'rare': 3.0}
    """

    workload: Workload | None = None
    rare: float = 3.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rare) and self.rare >= 0):
            raise DeclarationError(
                f"values are joined below {self.rare} deviations; give a number from 0 up, such as 3"
            )

    def run(self, gate: Gate) -> None:
        names = tuple(attribute_importance(self.workload, gate.domain))
        if len(names) == 1:
            OneWayCounts.measure(gate, names, Fraction(1), [1.0])
            return
        known = OneWayCounts.measure(gate, names, THIRD, [1.0] * len(names))
        groups = self._groups(known)
        pairs = pair_weights(None, gate.domain, names)
        values = {pair: JoinedValues((groups[pair[0]], groups[pair[1]])) for pair in pairs}
        tables = joined_tables(gate.domain, known, values, _as_scored)
        sizes = answering_sizes(self.workload, gate.domain)
        chosen, _ = grow_forest(gate, names, tables, THIRD / max(1, len(names) - 1), nothing=None, sizes=sizes)
        gate.measure([known.query(gate.domain, pair, values[pair]) for pair in chosen], gate.budget.scaled(THIRD))

    def _groups(self, known: OneWayCounts) -> dict[str, NDArray[np.intp]]:
        if not (known.told and self.rare):
            return {name: separate(len(known.counts[name])) for name in known.names}
        least = self.rare * known.stddev(float(THIRD) / len(known.names))
        return {name: joined_below(known.counts[name], least) for name in known.names}

    def estimator(self) -> Graphical:
        """The graphical model of the tree."""
        return Graphical()

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What is measured, in sentences."""
        return tree_sentences(example)

    def to_json(self) -> dict[str, Any]:
        workload = None if self.workload is None else self.workload.to_json()
        return {"plan": "mst", "workload": workload, "rare": self.rare}


def _as_scored(_pair: Pair, values: JoinedValues, expected: NDArray[np.float64]) -> JoinedTable:
    return JoinedTable(values, expected)


def tree_sentences(example: MeasurementSet) -> tuple[str, ...]:
    """How many one-way marginals and pairs such measurements hold."""
    attributes: Sequence[str] = [each.query.attributes[0] for each in example if len(each.query.attributes) == 1]
    pairs = sum(len(each.query.attributes) == 2 for each in example)
    return (
        f"the one-way marginals of {len(set(attributes))} attributes, then up to {pairs} pairs that join them without "
        "a cycle; which pairs is selected privately, so that those shown here stand for others",
    )
