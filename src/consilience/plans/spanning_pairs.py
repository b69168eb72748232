"""What plans that join attributes by pairs share: one-way counts, the noise to come, and a forest grown privately."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute
from consilience.domain.domains import Domain
from consilience.domain.factors import Buckets, Factor, Identity, Matrix
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.estimators.base import Estimate
from consilience.estimators.graphical import Graphical
from consilience.plans.answering import ModelSizes, RunningEstimate
from consilience.plans.base import best_selector
from consilience.privacy.budgets import AdditiveUnit
from consilience.privacy.gate import Gate, epsilon_of
from consilience.privacy.scores import GREATEST_ESTIMATE, JoinedTable, JoinedValues, MarginalGain

# ----------------------------------------------------------------------------------------------------------------------
# Values joined into groups, so that a table has no more cells than its records can tell from noise.
#
# N records over m cells are N/m in the mean. Where that is less than the noise σ of a cell, most cells say nothing, and
# their noise adds up all the same. Joining rare values keeps the cells above the noise; how the records of a group
# divide among its values is then taken from what is known of the attribute alone, because the model of greatest entropy
# keeps those shares. McKenna, Miklau and Sheldon (2021, §4) join, for each attribute, the values whose noisy count is
# below 3σ into one; here a table of two attributes is joined until it has at most N/(kσ) cells, and rare values make as
# many groups as reach the same count together, neighbours first: for an ordered attribute they are ranges of rare
# values.
#
# All of this looks at noisy counts alone.


Counts = NDArray[np.float64]
Groups = NDArray[np.intp]

LEAST_GROUP, GROUP_GROWTH = 1.0 / 2048.0, 1.25
"""The least count of a group begins at this share of all records and grows by this factor."""


def separate(size: int) -> Groups:
    """Every value in a group of its own."""
    return np.arange(size, dtype=np.intp)


def joined_below(counts: Counts, least: float) -> Groups:
    """All values with a count below `least` in one group, the last; the others by themselves, in order.

    >>> joined_below(np.array([5.0, 90.0, 1.0, 30.0]), 10.0).tolist()
    [2, 0, 2, 1]
    """
    rare = counts < least
    if rare.sum() < 2:
        return separate(len(counts))
    groups = np.cumsum(~rare) - 1
    groups[rare] = (~rare).sum()
    return groups.astype(np.intp)


def joined_to(counts: Counts, least: float) -> Groups:
    """Values below `least` joined in order until each group reaches it; what falls short joins the group before.

    >>> joined_to(np.array([6.0, 90.0, 5.0, 30.0, 8.0, 4.0]), 10.0).tolist()
    [0, 1, 0, 2, 3, 3]
    """
    groups = np.full(len(counts), -1, dtype=np.intp)
    number, gathered, members = 0, 0.0, []
    for value in np.flatnonzero(counts < least):
        members.append(value)
        gathered += max(0.0, float(counts[value]))
        if gathered >= least:
            groups[members] = number
            number, gathered, members = number + 1, 0.0, []
    if members:
        number = max(number, 1)
        groups[members] = number - 1
    common = np.flatnonzero(groups < 0)
    groups[common] = np.arange(number, number + len(common))
    return _in_order(groups)


def _in_order(groups: Groups) -> Groups:
    """The same groups, numbered by their first values."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.intp)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse]


class Joining:
    """The groups of one attribute's values at growing least counts, each found once."""

    def __init__(self, counts: Counts, records: float) -> None:
        self._counts = counts
        self._first = max(records, 1.0) * LEAST_GROUP
        self._found = [separate(len(counts))]

    def at(self, level: int) -> Groups:
        """The values by themselves at level 0; from then on the least count grows by a factor."""
        while len(self._found) <= level:
            self._found.append(joined_to(self._counts, self._first * GROUP_GROWTH ** (len(self._found) - 1)))
        return self._found[level]


def joined_table(attributes: Sequence[Joining], most_cells: float) -> JoinedValues:
    """The values of some attributes joined to at most so many cells together, with one least count for all groups.

    Where even two groups each are too many cells, some attribute has a single group.
    """
    level = 0
    while True:
        groups = tuple(each.at(level) for each in attributes)
        if math.prod(int(group.max()) + 1 for group in groups) <= max(most_cells, 1.0):
            return JoinedValues(groups)
        level += 1


def group_factor(attribute: Attribute, groups: Groups) -> Factor:
    """The factor that asks for the groups: the values themselves where nothing is joined.

    >>> from consilience.domain.attributes import Attribute
    >>> group_factor(Attribute.categorical("a", ["x", "y", "z"]), np.array([0, 1, 0])).groups
    (('x and 1 more', ('x', 'z')), ('y', ('y',)))
    """
    count = int(groups.max(initial=-1)) + 1
    if count == len(groups):
        return Identity()
    labels = attribute.labels
    members = [np.flatnonzero(groups == group) for group in range(count)]
    names = [labels[codes[0]] + (f" and {len(codes) - 1} more" if len(codes) > 1 else "") for codes in members]
    if all(attribute.codes(label) == (code,) for code, label in enumerate(labels)) and len(set(names)) == count:
        return Buckets(
            tuple((name, tuple(labels[c] for c in codes)) for name, codes in zip(names, members, strict=True))
        )
    rows = np.zeros((count, len(groups)))
    rows[groups, np.arange(len(groups))] = 1.0
    return Matrix.of(rows)


# ----------------------------------------------------------------------------------------------------------------------
# What plans that join attributes by pairs share: one-way counts, the noise to come, and a forest grown privately.


Pair = tuple[str, str]

MOST_SCORED_ANEW = 50_000
"""Of more pairs all rounds of a selection go by one score; of fewer each has its own, as it was in earlier versions."""


@dataclass(frozen=True, eq=False)
class OneWayCounts:
    """Noisy one-way marginals, the estimate in which all attributes are independent, and the price of noise."""

    names: tuple[str, ...]
    estimate: Estimate
    counts: Mapping[str, NDArray[np.float64]]
    records: float
    """The estimated number of records, at least 1."""
    told: bool
    """False where every answer is zero, as in a dry run: then nothing is known of the data."""
    unit: AdditiveUnit
    unit_noise: float
    """The standard deviation of a marginal's noise at the price of the whole budget."""

    @staticmethod
    def measure(gate: Gate, names: Sequence[str], share: Fraction, shares: Sequence[float]) -> "OneWayCounts":
        """Measure these attributes with a share of the budget, divided among them by `shares`."""
        found = gate.measure([Query.marginal(name) for name in names], gate.budget.scaled(share), shares=shares)
        running = RunningEstimate(gate.domain, Graphical(stop="converged"))
        running.add(found)
        estimate = running.estimate
        unit = gate.budget.additive_unit
        part = float(share) * shares[0] / math.fsum(shares)
        return OneWayCounts(
            tuple(names),
            estimate,
            {name: np.maximum(estimate.marginal(name), 0.0) for name in names},
            max(1.0, estimate.total),
            any(each.values.any() for each in found),
            unit,
            found[0].noise.variance ** 0.5 * (part if unit == "epsilon" else math.sqrt(part)),
        )

    def stddev(self, share: float) -> float:
        """The standard deviation of the noise of a marginal that is measured with this share of the budget."""
        return self.unit_noise / (share if self.unit == "epsilon" else math.sqrt(share))

    def query(self, domain: Domain, pair: Pair, values: JoinedValues) -> Query:
        """The question for the joined cells of a pair."""
        pairs = zip(pair, values.groups, strict=True)
        return Query(tuple((name, group_factor(domain[name], groups)) for name, groups in pairs))

    def expected(self, domain: Domain, values: Mapping[Pair, JoinedValues]) -> dict[Pair, NDArray[np.float64]]:
        """The joined cells of each pair if its attributes were independent.

        The estimate is that of independence, but for impossible cells and public margins: without those a pair's
        counts are the product of its attributes'.
        """
        if domain.impossible or domain.public.margins:
            answers = self.estimate.answers([self.query(domain, pair, each) for pair, each in values.items()])
            return {pair: np.asarray(each, dtype=np.float64) for pair, each in zip(values, answers, strict=True)}
        found, joined = {}, dict[tuple[str, int], NDArray[np.float64]]()
        for pair, each in values.items():
            parts = [(name, id(groups)) for name, groups in zip(pair, each.groups, strict=True)]
            for key, groups in zip(parts, each.groups, strict=True):
                if key not in joined:  # pairs share the groups of an attribute
                    joined[key] = JoinedValues((groups,)).joined(self.counts[key[0]])
            found[pair] = np.multiply.outer(joined[parts[0]], joined[parts[1]]) / self.records
        return found


class Forest:
    """Attributes in components that grow together as pairs are joined."""

    def __init__(self, names: Iterable[str]) -> None:
        self._component = {name: place for place, name in enumerate(names)}

    def joins(self, pair: Pair) -> bool:
        """Whether the two attributes are in different components, so that joining them makes no cycle."""
        return self._component[pair[0]] != self._component[pair[1]]

    def join(self, pair: Pair) -> None:
        kept, gone = self._component[pair[0]], self._component[pair[1]]
        for name, component in self._component.items():
            if component == gone:
                self._component[name] = kept


def grow_forest(
    gate: Gate,
    names: Sequence[str],
    tables: Mapping[Pair, JoinedTable],
    step: Fraction,
    *,
    nothing: float | None,
    even_odds: bool = False,
    sizes: ModelSizes | None = None,
) -> tuple[list[Pair], Fraction]:
    """Pairs that make no cycle, each selected privately for `step` of the budget, and the share that was spent.

    It ends when no pair joins two components, or when "nothing" is selected. The last selection among a single
    candidate is free: there is nothing to choose. With `even_odds` "nothing" is as likely as all pairs together where
    none is worth more: of k pairs the greatest noise alone reaches b ln k, with b the scale of the selection. With
    `sizes`, pairs with which the model would not answer everything asked for are left out.
    """
    if len(tables) > MOST_SCORED_ANEW:
        return _grown_by_one_score(gate, names, tables, step, nothing=nothing, even_odds=even_odds, sizes=sizes)
    forest, chosen, spent = Forest(names), [], Fraction(0)
    part, selector = gate.budget.scaled(step), best_selector(gate.budget.additive_unit)
    scale = 2.0 * gate.rows_per_unit / epsilon_of(part, selector)
    while True:
        left = {pair: table for pair, table in tables.items() if forest.joins(pair)}
        if sizes is not None:
            left = {pair: table for pair, table in left.items() if sizes.allows(pair)}
        if not left:
            return chosen, spent
        odds = min(scale * math.log(len(left)), GREATEST_ESTIMATE) if even_odds else 0.0
        score = MarginalGain(left, None if nothing is None else nothing + odds)
        if len(score.candidates) == 1:
            found = score.candidates[0]
        else:
            spent += step
            found = gate.select(score, part, selector=selector)
        if found is None:
            return chosen, spent
        pair = (found[0], found[1])
        forest.join(pair)
        chosen.append(pair)
        if sizes is not None:
            sizes.add([pair])


def _grown_by_one_score(
    gate: Gate,
    names: Sequence[str],
    tables: Mapping[Pair, JoinedTable],
    step: Fraction,
    *,
    nothing: float | None,
    even_odds: bool,
    sizes: ModelSizes | None,
) -> tuple[list[Pair], Fraction]:
    """As in `grow_forest`, but all rounds select by one score, besides pairs that would make a cycle.

    Half a million tables are then scored and described once and not in each of a thousand rounds. The odds of
    "nothing" are those against all pairs, also in later rounds, when fewer are left.
    """
    pairs, places = list(tables), {name: place for place, name in enumerate(names)}
    ends = np.array([[places[name] for name in pair] for pair in pairs])
    component, chosen, spent = np.arange(len(names)), list[Pair](), Fraction(0)
    part, selector = gate.budget.scaled(step), best_selector(gate.budget.additive_unit)
    scale = 2.0 * gate.rows_per_unit / epsilon_of(part, selector)
    odds = min(scale * math.log(len(pairs)), GREATEST_ESTIMATE) if even_odds else 0.0
    score = MarginalGain(tables, None if nothing is None else nothing + odds)
    while True:
        joins = component[ends[:, 0]] != component[ends[:, 1]]
        if sizes is not None:
            joins[[place for place in np.flatnonzero(joins) if not sizes.allows(pairs[place])]] = False
        left = np.flatnonzero(joins)
        if not left.size:
            return chosen, spent
        if left.size == 1 and nothing is None:
            found = pairs[left[0]]
        else:
            spent += step
            found = gate.select(score, part, selector=selector, besides=np.flatnonzero(~joins))
        if found is None:
            return chosen, spent
        pair = (found[0], found[1])
        one, other = (component[places[name]] for name in pair)
        component[component == other] = one
        chosen.append(pair)
        if sizes is not None:
            sizes.add([pair])


def mean_absolute(stddev: float, unit: AdditiveUnit) -> float:
    """E|noise|: σ/√2 for Laplace noise, σ√(2/π) for Gaussian."""
    return stddev / math.sqrt(2.0) if unit == "epsilon" else stddev * math.sqrt(2.0 / math.pi)


def pair_weights(workload: Workload | None, domain: Domain, names: Sequence[str]) -> dict[Pair, float]:
    """For each pair of attributes how much of the workload, by weight, names both, in parts of the greatest.

    Pairs that no query names are left out, unless no query names two attributes at all.

    >>> domain = Domain.from_sizes({"a": 2, "b": 2, "c": 2})
    >>> asked = Workload.of([Query.marginal("a", "b"), Query.marginal("a", "b", "c")])
    >>> pair_weights(asked, domain, ("a", "b", "c"))
    {('a', 'b'): 1.0, ('a', 'c'): 0.5, ('b', 'c'): 0.5}
    """
    everything = list(itertools.combinations(names, 2))
    if workload is None:
        return dict.fromkeys(everything, 1.0)
    known, found = set(names), dict.fromkeys(everything, 0.0)
    for query, weight in workload:
        for pair in itertools.combinations([n for n in domain.ordered(query.attributes) if n in known], 2):
            found[pair] += weight
    largest = max(found.values(), default=0.0)
    return {pair: weight / largest for pair, weight in found.items() if weight > 0}
