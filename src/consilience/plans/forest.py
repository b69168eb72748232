"""`Independent`, `Mst` and `Forest`: no pairs, the pairs of a tree, and the pairs that are worth their noise."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.factors import Tree
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.graphical import Graphical
from consilience.measurements import MeasurementSet
from consilience.plans.answering import AnswersWorkload, answering_sizes
from consilience.plans.base import check_share
from consilience.plans.histogram import AskedRanges, best_tree
from consilience.plans.spanning_pairs import (
    Joining,
    OneWayCounts,
    Pair,
    grow_forest,
    joined_below,
    joined_table,
    mean_absolute,
    pair_weights,
    separate,
)
from consilience.privacy.budgets import AdditiveUnit, Budget
from consilience.privacy.gate import Gate
from consilience.privacy.scores import JoinedTable, JoinedValues

# ----------------------------------------------------------------------------------------------------------------------
# Independent: the counts of each attribute alone, and a model in which attributes say nothing of each other.
#
# Where there are few records, or many attributes, this is often the best buy: every other table costs more noise than
# it tells. Shares. Attribute a has n_a values and matters v_a, by how much of the workload names it. Its answers have
# noise of a size proportional to 1/√ρ_a under ρ and to 1/ε_a under a pure ε, so that all of them together are off by
# about
#
#     Σ_a v_a n_a / √ρ_a    or    Σ_a v_a n_a / ε_a,
#
# which is least, for a given sum of the shares, where ρ_a ∝ (v_a n_a)^(2/3) or ε_a ∝ (v_a n_a)^(1/2).


@dataclass(frozen=True)
class Independent(AnswersWorkload):
    """One-way marginals of the attributes that the workload names, or of all; noise balanced by their sizes.

    In place of the marginal of an attribute in `trees` the levels of a tree of counts share what it gets, for the least
    expected error of what the workload asks of that attribute alone.

    >>> Independent().to_json()
    {'plan': 'independent', 'workload': None}
    """

    name = "independent"
    workload: Workload | None = None
    trees: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "trees", tuple(self.trees))
        if self.trees and self.workload is None:
            raise DeclarationError(f"trees of {', '.join(self.trees)} need a workload to go by; give one")

    def run(self, gate: Gate) -> None:
        weights = attribute_importance(self.workload, gate.domain)
        shares = balanced_shares(one_way_cells(weights, gate.domain), gate.budget.additive_unit)
        parts = [
            (query, share * part)
            for name, share in zip(weights, shares, strict=True)
            for query, part in self._queries(name, gate)
        ]
        gate.measure([query for query, _ in parts], gate.budget, shares=[share for _, share in parts])

    def _queries(self, name: str, gate: Gate) -> list[tuple[Query, float]]:
        """What is measured of an attribute, each with its part of what the attribute gets."""
        if name not in self.trees or self.workload is None:
            return [(Query.marginal(name), 1.0)]
        asked, size = AskedRanges.of(self.workload, gate.domain, name), gate.domain[name].size
        branching, shares = best_tree(asked, range(size), size, gate.budget.additive_unit)
        levels = [(Query.of({name: Tree(branching, level)}), share) for level, share in enumerate(shares)]
        return [(query, share) for query, share in levels if share > 0]

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in super().to_json().items() if key != "trees" or value}

    def estimator(self) -> Graphical:
        """The nearest non-negative counts of each attribute: nothing but the noise of single values is to be lost."""
        return Graphical(stop="converged")

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What is measured and what to expect, in sentences."""
        noise = sum(each.values.size * each.noise.variance**0.5 for each in example) / max(1, len(example))
        trees = f", and the levels of trees over {', '.join(self.trees)}" if self.trees else ""
        tables = sum(each.query.attributes[0] not in self.trees for each in example)
        return (
            f"{tables} one-way marginals{trees}; attributes are taken to be independent of each other",
            f"noise of a marginal, all its values together: about {noise:,.0f} records in the mean",
        )


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
            "there is nothing to tell apart: no attribute of two values or more is declared, or the workload names "
            'none; the plan "total" counts all records'
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


# ----------------------------------------------------------------------------------------------------------------------
# MST: one-way marginals, then the pairs of a spanning tree that is selected privately (McKenna, Miklau, Sheldon 2021).
#
# A third of the budget measures all one-way marginals. The second third grows a tree: each of d − 1 selections takes,
# among the pairs that join two components, the one whose counts are farthest in L1 distance from what independence
# would lead one to expect, as with Kruskal's algorithm for the greatest spanning tree (privacy/scores.py proves the
# sensitivity). The last third measures the pairs of the tree.
#
# Rare values. For selecting and measuring pairs the values of an attribute whose noisy count is below `rare` standard
# deviations of its noise are joined into one. How they divide is then known from the one-way marginals alone.
#
# The paper has ρ; with a pure ε the same thirds buy Laplace noise. `Forest` spends the same budget with more care.


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

    name = "mst"
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
        expected = known.expected(gate.domain, values)
        tables = {pair: JoinedTable(each, expected[pair]) for pair, each in values.items()}
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


def tree_sentences(example: MeasurementSet) -> tuple[str, ...]:
    """How many one-way marginals and pairs such measurements hold."""
    attributes: Sequence[str] = [each.query.attributes[0] for each in example if len(each.query.attributes) == 1]
    pairs = sum(len(each.query.attributes) == 2 for each in example)
    return (
        f"the one-way marginals of {len(set(attributes))} attributes, then up to {pairs} pairs that join them without "
        "a cycle; which pairs is selected privately, so that those shown here stand for others",
    )


# ----------------------------------------------------------------------------------------------------------------------
# Forest: one-way marginals and the pairs that are worth their noise, joined as finely as the records allow.
#
# The outline is that of MST (McKenna, Miklau, Sheldon 2021): one-way marginals, a private selection of
# pairs without a cycle, their measurement. Four things differ, and all follow from what noise costs.
#
# *Shares.* One-way marginals get `one_way_share` of the budget, divided so that noise is balanced
# (see `Independent`). A selection tells totals of hundreds of records apart and needs little: `selection_share` for
# all. The rest is for pairs, again balanced by their cells.
#
# *Cells.* With σ the noise to expect of a pair's cells and N the estimated number of records, a pair is measured with
# at most N/(2σ) cells: rare values are joined (plans/spanning_pairs.py).
#
# *Scores.* A difference from independence that is smaller than σ would be lost in noise. A pair's score adds up, over
# its joined cells, what the differences exceed σ by; the sensitivity is that of the L1 distance (privacy/scores.py).
#
# *Worth.* Measuring one more pair of n cells takes its share from the others. With k pairs of n cells each, noise adds
# up to k·n·E|noise| ∝ k^(3/2) under ρ, so that one more costs half of its own noise again: ½ n E|noise|, times `care`.
# That is the penalty of its score, and "nothing" is a candidate: a forest may end before it is a tree. Its score is
# that by which the best of all pairs seems better than it is: where no pair is worth anything, it is as likely as all
# of them together.
#
# *Attributes alone.* What the selections left is spent on the pairs and on one-way marginals of attributes that no pair
# has; each attribute is otherwise known by the first share alone, which one lonely pair would not deserve.
#
# Weights. A pair counts by how much of the workload names both attributes. Pairs with which the model would take hours
# to answer some query of the workload are not selected.


CELLS_ABOVE_NOISE = 2.0
"""A joined cell holds at least about this many standard deviations of its noise, in the mean."""

USUAL_CELLS = 1_000.0
"""The cells of a pair that a dry run prices at most; there is no count to join values by."""


@dataclass(frozen=True)
class Forest(AnswersWorkload):
    """One-way marginals, and a private forest of pairs that tell more than their noise.

    `workload` is what matters; without it all pairs of attributes matter the same. `care` is how strictly a pair is
    measured against what its noise takes from others; 0 always ends with a tree. With `wary=False` "nothing" has a
    score of 0 and the last share is for pairs alone, as in earlier versions.

    >>> Forest(care=0).to_json()["care"]
    0
    """

    name = "forest"
    workload: Workload | None = None
    one_way_share: float = 0.3
    selection_share: float = 0.1
    care: float = 0.5
    wary: bool = True

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
        step = selections / most_pairs
        chosen, spent = grow_forest(gate, names, tables, step, nothing=nothing, even_odds=self.wary, sizes=sizes)
        self._measure(gate, known, {pair: tables[pair] for pair in chosen}, 1 - first - spent, shares)

    @property
    def earlier(self) -> "Forest | None":
        """What this was before: such a request is answered from the ledger that holds it."""
        return replace(self, wary=False) if self.wary else None

    def to_json(self) -> dict[str, Any]:
        found = super().to_json()
        if not self.wary:
            del found["wary"]
        return found

    def _tables(
        self, domain: Domain, known: OneWayCounts, pairs: dict[Pair, float], share: float
    ) -> dict[Pair, JoinedTable]:
        """The pairs to select from, at the noise of a pair that gets this share of the budget."""
        stddev = known.stddev(share)
        noise = mean_absolute(stddev, known.unit)
        most_cells = max(4.0, known.records / (CELLS_ABOVE_NOISE * stddev)) if known.told else USUAL_CELLS
        values = {pair: each for pair, each in _joined(known, pairs, most_cells).items() if min(each.shape) > 1}
        expected = known.expected(domain, values)
        price = self.care * 0.5 * noise
        return {
            pair: JoinedTable(
                each, expected[pair], hidden=stddev, weight=pairs[pair], penalty=pairs[pair] * price * each.cells
            )
            for pair, each in values.items()
        }

    def _measure(
        self, gate: Gate, known: OneWayCounts, chosen: dict[Pair, JoinedTable], share: Fraction, shares: list[float]
    ) -> None:
        """The selected pairs with all that is left, and the one-way marginals once more of what they do not have."""
        queries = [known.query(gate.domain, pair, table.values) for pair, table in chosen.items()]
        cells = [table.weight * table.values.cells for table in chosen.values()]
        if not queries:
            gate.measure([Query.marginal(name) for name in known.names], gate.budget.scaled(share), shares=shares)
            return
        had = set(itertools.chain(*chosen))
        alone = [name for name in known.names if name not in had] if self.wary else []
        queries += [Query.marginal(name) for name in alone]
        cells += [float(gate.domain[name].size) for name in alone]
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


def _joined(known: OneWayCounts, pairs: Iterable[Pair], most_cells: float) -> dict[Pair, JoinedValues]:
    """The values of each pair, joined to at most so many cells; where nothing is known, as if they were alike."""
    joining = {
        name: Joining(counts, known.records) if known.told else Joining(np.ones(len(counts)), float(len(counts)))
        for name, counts in known.counts.items()
    }
    return {pair: joined_table([joining[name] for name in pair], most_cells) for pair in pairs}
