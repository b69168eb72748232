"""Forest: one-way marginals and the pairs that are worth their noise, joined as finely as the records allow.

The outline is that of MST (McKenna, Miklau, Sheldon 2021; plans/mst.py): one-way marginals, a private selection of
pairs without a cycle, their measurement. Four things differ, and all follow from what noise costs.

*Shares.* One-way marginals get `one_way_share` of the budget, divided so that noise is balanced (plans/independent.py).
A selection tells totals of hundreds of records apart and needs little: `selection_share` for all. The rest is for
pairs, again balanced by their cells.

*Cells.* With σ the noise to expect of a pair's cells and N the estimated number of records, a pair is measured with at
most N/(2σ) cells: rare values are joined (plans/value_groups.py).

*Scores.* A difference from independence that is smaller than σ would be lost in noise. A pair's score adds up, over
its joined cells, what the differences exceed σ by; the sensitivity is that of the L1 distance (privacy/scores.py).

*Worth.* Measuring one more pair of n cells takes its share from the others. With k pairs of n cells each, noise adds up
to k·n·E|noise| ∝ k^(3/2) under ρ, so that one more costs half of its own noise again: ½ n E|noise|, times `care`. That
is the penalty of its score, and "nothing", with a score of 0, is a candidate: a forest may end before it is a tree.
What the selections left is spent on what was selected.

Weights. A pair counts by how much of the workload names both attributes. Pairs with which the model would take hours
to answer some query of the workload are not selected.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.graphical import Graphical
from consilience.measurements import MeasurementSet
from consilience.plans.answering import AnswersWorkload, answering_sizes
from consilience.plans.budget_parts import check_share
from consilience.plans.independent import attribute_importance, balanced_shares, one_way_cells
from consilience.plans.mst import tree_sentences
from consilience.plans.spanning_pairs import OneWayCounts, Pair, grow_forest, joined_tables, mean_absolute, pair_weights
from consilience.plans.value_groups import Joining, joined_table
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.scores import JoinedTable, JoinedValues

CELLS_ABOVE_NOISE = 2.0
"""A joined cell holds at least about this many standard deviations of its noise, in the mean."""

USUAL_CELLS = 1_000.0
"""The cells of a pair that a dry run prices at most; there is no count to join values by."""


@dataclass(frozen=True)
class Forest(AnswersWorkload):
    """One-way marginals, and a private forest of pairs that tell more than their noise.

    `workload` is what matters; without it all pairs of attributes matter the same. `care` is how strictly a pair is
    measured against what its noise takes from others; 0 always ends with a tree.

    >>> Forest(care=0).to_json()["care"]
    0
    """

    workload: Workload | None = None
    one_way_share: float = 0.3
    selection_share: float = 0.1
    care: float = 0.5

    def __post_init__(self) -> None:
        check_share(self.one_way_share, "one-way marginals")
        check_share(self.selection_share, "selections")
        if not self.one_way_share + self.selection_share < 1:
            raise DeclarationError(
                f"one-way marginals and selections get {self.one_way_share} and {self.selection_share} of the budget; "
                "leave some of it for pairs"
            )
        if not 0 <= self.care < float("inf"):
            raise DeclarationError(f"care is {self.care}; give a number from 0 up, such as 0.5")

    def run(self, gate: Gate) -> None:
        weights = attribute_importance(self.workload, gate.domain)
        names, unit = tuple(weights), gate.budget.additive_unit
        pairs = pair_weights(self.workload, gate.domain, names)
        shares = balanced_shares(one_way_cells(weights, gate.domain), unit)
        if not pairs:
            OneWayCounts.measure(gate, names, Fraction(1), shares)
            return
        first, selections = Fraction(self.one_way_share), Fraction(self.selection_share)
        known = OneWayCounts.measure(gate, names, first, shares)
        most_pairs = len(names) - 1
        tables = self._tables(gate.domain, known, pairs, float(1 - first - selections) / most_pairs)
        nothing = None if self.care == 0 else 0.0
        sizes = answering_sizes(self.workload, gate.domain)
        chosen, spent = grow_forest(gate, names, tables, selections / most_pairs, nothing=nothing, sizes=sizes)
        self._measure(gate, known, {pair: tables[pair] for pair in chosen}, 1 - first - spent, shares)

    def _tables(
        self, domain: Domain, known: OneWayCounts, pairs: dict[Pair, float], share: float
    ) -> dict[Pair, JoinedTable]:
        """The pairs to select from, at the noise of a pair that gets this share of the budget."""
        stddev = known.stddev(share)
        noise = mean_absolute(stddev, known.unit)
        most_cells = max(4.0, known.records / (CELLS_ABOVE_NOISE * stddev)) if known.told else USUAL_CELLS

        def table(pair: Pair, values: JoinedValues, expected: NDArray[np.float64]) -> JoinedTable:
            weight = pairs[pair]
            penalty = weight * self.care * 0.5 * noise * values.cells
            return JoinedTable(values, expected, hidden=stddev, weight=weight, penalty=penalty)

        values = _joined(known, pairs, most_cells)
        worth = {pair: each for pair, each in values.items() if min(each.shape) > 1}
        return joined_tables(domain, known, worth, table)

    def _measure(
        self, gate: Gate, known: OneWayCounts, chosen: dict[Pair, JoinedTable], share: Fraction, shares: list[float]
    ) -> None:
        """The selected pairs with all that is left; the one-way marginals once more where none was selected."""
        queries = [known.query(gate.domain, pair, table.values) for pair, table in chosen.items()]
        cells = [table.weight * table.values.cells for table in chosen.values()]
        if not queries:
            gate.measure([Query.marginal(name) for name in known.names], gate.budget.scaled(share), shares=shares)
            return
        gate.measure(queries, gate.budget.scaled(share), shares=balanced_shares(cells, known.unit))

    def estimator(self) -> Graphical:
        """The graphical model of the forest."""
        return Graphical()

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What is measured, in sentences."""
        return (
            *tree_sentences(example),
            "a pair is measured only if it is found to tell more than its noise takes from the others, and rare values "
            "are joined until its cells stand out from noise",
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": "forest",
            "workload": None if self.workload is None else self.workload.to_json(),
            "one_way_share": self.one_way_share,
            "selection_share": self.selection_share,
            "care": self.care,
        }


def _joined(known: OneWayCounts, pairs: Iterable[Pair], most_cells: float) -> dict[Pair, JoinedValues]:
    """The values of each pair, joined to at most so many cells; where nothing is known, as if they were alike."""
    joining = {
        name: Joining(counts, known.records) if known.told else Joining(np.ones(len(counts)), float(len(counts)))
        for name, counts in known.counts.items()
    }
    return {pair: joined_table([joining[name] for name in pair], most_cells) for pair in pairs}
