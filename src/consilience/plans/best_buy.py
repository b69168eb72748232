"""BestBuy: the tables of a workload themselves, or rounds that choose among them, or a forest of pairs: by their noise.

To measure everything that is asked for is best where there are many records: nothing is then taken for granted. Its
noise is known beforehand: the budget is divided so that all cells together have the least variance (`ResidualPlanner`),
and a table of n cells with the standard deviation σ is off by about

    n · ¾σ / 2N    of all N records (total variation),

for the mean size of the noise, Laplace's or Gaussian, is about ¾σ. A fit leaves less of it: counts are not negative,
and add up. A cell that holds fewer records than its noise is known to hold few, and what is left is about

    Σ_c min(¾σ, e_c) / 2N,

with e_c the records of cell c if attributes were independent, by noisy one-way marginals.

1. The tables of the workload's queries are measured where the noise left is at most `most_noise`. One-way marginals
   get `one_way_share` of the budget before, which the account has the use of in any case; where n · ¾σ / 2N is no more
   than that by itself, they need not be asked.
2. Else, for queries of three attributes and more, `plans.Aim` selects tables that matter, where no more noise would be
   left of the pairs in these queries.
3. Else `plans.Forest` measures one-way marginals and the pairs that are worth their noise, with rare values joined; it
   may find that no pair is.

N is public, or measured first with `total_share` of the budget. Nothing else but declarations decides.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any, Literal

import numpy as np

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload, attribute_sets
from consilience.errors import DeclarationError
from consilience.estimators.base import LARGEST_ANSWER, Estimator, check_choice, check_whole
from consilience.estimators.choose import is_slow
from consilience.estimators.graphical import Graphical
from consilience.estimators.residual import Residual
from consilience.measurements import MeasurementSet
from consilience.plans.aim import Aim
from consilience.plans.answering import AnswersWorkload
from consilience.plans.base import PartialGate, check_share, in_two_parts
from consilience.plans.forest import Forest, Independent, attribute_importance
from consilience.plans.marginals import Marginals
from consilience.plans.residual_planner import MOST_ATTRIBUTES_OF_A_MARGINAL, ResidualPlanner
from consilience.plans.spanning_pairs import OneWayCounts, pair_weights
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.measure import Plan

Names = tuple[str, ...]
Split = Literal["optimal", "even"]


@dataclass(frozen=True)
class BuyingSettings:
    """What is measured directly, with how much of the budget."""

    most_noise: float = 0.035
    """The most noise that a fit leaves of tables measured themselves, in parts of all records. On 191 generated tables
    of `benchmarks.problems.shaped_tables`, ε from 0.05 to 20, 85 % of choices between them and a forest were within 5 %
    of the best plan with it, and 80 to 85 % with 0.015 to 0.06; chains and trees are better off with less, hidden
    groups with more. For triples on 16 of these tables, rounds were within 5 % of the best of rounds, forests,
    single attributes and pairs where no more was left of pairs, and forests or single attributes where more was."""
    most_noise_before_fit: float = 0.06
    """The same before a fit, by which an even split is judged."""
    most_tables: int = 20_000
    """More tables than this are not measured directly, however little noise they had,"""
    most_cells: int = 5_000_000
    """nor more cells."""
    most_listed: int = 50_000
    """Of more pairs than this no list is made: a plan for all pairs says so. Nor do rounds select among so many."""
    mean_noise: float = 0.75
    """E|noise| in standard deviations: 0.71 for Laplace noise, 0.80 for Gaussian noise."""


BUYING = BuyingSettings()


@dataclass(frozen=True)
class DirectTables:
    """All parts of `ways` attributes of a workload's queries, each with how much it counts, and the noise to expect."""

    domain: Domain
    ways: int
    tables: tuple[Names, ...]
    weights: tuple[float, ...]

    @property
    def cells(self) -> int:
        """Of all tables together."""
        return sum(math.prod(self.domain.sizes(names)) for names in self.tables)

    @property
    def plan(self) -> Plan:
        """How they are measured: with the least noise in sum, or, where tables have very many attributes, evenly."""
        if max(map(len, self.tables)) > MOST_ATTRIBUTES_OF_A_MARGINAL:
            return Marginals(self.tables)
        marginals = [Query.marginal(*names) for names in self.tables]
        return ResidualPlanner(Workload.of(marginals, weights=self.weights))

    def deviations(self, budget: Budget, split: Split = "optimal") -> dict[Names, float]:
        """The standard deviation of the cells of each table, when records are added or removed."""
        plan = self.plan
        if split == "even" or not isinstance(plan, ResidualPlanner):
            return dict.fromkeys(self.tables, _even_deviation(len(self.tables), budget))
        return {names: math.sqrt(variance) for names, variance in plan.variances(self.domain, budget).items()}

    def spread(self, budget: Budget, split: Split = "optimal") -> float:
        """The standard deviations of all cells of a table, added up, in the mean over the tables."""
        found = self.deviations(budget, split)
        return sum(math.prod(self.domain.sizes(names)) * found[names] for names in self.tables) / len(self.tables)

    def left(self, budget: Budget, known: OneWayCounts, times: float) -> float:
        """What a fit leaves of the noise, `times` the deviations, in parts of all records: the mean over the tables."""
        deviations, shares = self.deviations(budget), {name: c / known.records for name, c in known.counts.items()}
        noise = 0.0
        for names in self.tables:
            expected = known.records * reduce(np.multiply.outer, [shares[name] for name in names])
            noise += float(np.minimum(times * BUYING.mean_noise * deviations[names], expected).sum())
        return noise / (2.0 * known.records * len(self.tables))


def _pairs(domain: Domain) -> int:
    return math.comb(len(domain.counted_names), 2)


def _even_deviation(tables: int, budget: Budget) -> float:
    """The standard deviation of a cell where so many tables share the budget evenly, and records are added."""
    if budget.additive_unit == "rho":
        return math.sqrt(tables / (2.0 * float(budget.amount)))
    return math.sqrt(2.0) * tables / float(budget.amount)


@dataclass(frozen=True)
class BestBuy(AnswersWorkload):
    """The workload's own tables, or `Aim`, or a `Forest`, by how much of the noise of tables a fit would leave.

    Without a `workload` it is all marginals over `ways` attributes.

    >>> BestBuy(ways=2).to_json()["most_noise"], BestBuy(ways=2, split="even").to_json()["most_noise"]
    (0.035, 0.06)
    """

    name = "best-buy"
    workload: Workload | None = None
    ways: int = 3
    most_noise: float | None = None
    most_pair_noise: float = 0.25
    total_share: float = 0.01
    one_way_share: float = 0.03
    split: Split = "optimal"
    """How tables that are measured themselves share the budget: for the least variance of all cells, or evenly, with
    the rule of earlier versions: `most_noise` is then before a fit, 0.06 by default, and `Aim` takes what is above it
    where the pairs that it takes to join all attributes have at most `most_pair_noise`."""
    neighbours: str = "add-remove"
    """For the prediction of noise; the run's own relation decides what is added."""

    def __post_init__(self) -> None:
        check_share(self.total_share, "the total")
        check_share(self.one_way_share, "one-way marginals")
        check_choice(self.split, "the split", ("optimal", "even"))
        for option, value in (("most_noise", self.noise_allowed), ("most_pair_noise", self.most_pair_noise)):
            if not 0 < value < float("inf"):
                raise DeclarationError(f"{option} is {value}; give a part of all records, such as 0.01")
        check_whole(self.ways, "ways")

    @property
    def noise_allowed(self) -> float:
        """`most_noise`, or its usual value for this split."""
        if self.most_noise is not None:
            return self.most_noise
        return BUYING.most_noise if self.split == "optimal" else BUYING.most_noise_before_fit

    def run(self, gate: Gate) -> None:
        considered = self.considered(gate.domain)
        records, rest = self._records(gate, considered)
        if gate.domain.weight is not None:
            self._without_choices(considered, records, rest).run(PartialGate(gate, rest))
            return
        if self.split == "even" or not considered:
            self._by_noise_before_fit(gate, considered, records, rest)
            return
        whole = considered[0]
        if self.needed_records(whole, rest) <= records:
            whole.plan.run(PartialGate(gate, rest))
            return
        names = tuple(attribute_importance(self.workload, gate.domain))
        asked, rest = in_two_parts(rest, self.one_way_share)
        known = OneWayCounts.measure(PartialGate(gate, asked), names, Fraction(1), [1.0] * len(names))
        self._chosen(considered, rest, known).run(PartialGate(gate, rest))

    def _chosen(self, considered: Sequence[DirectTables], budget: Budget, known: OneWayCounts) -> Plan:
        """The plan by the noise that a fit would leave, where one-way counts are known."""
        whole, pairs = considered[0], considered[-1]
        times = self._times(budget, whole.domain)
        if known.told and whole.left(budget, known, times) <= self.noise_allowed:
            return whole.plan
        rounds = known.told and pairs.ways < whole.ways
        if rounds and pairs.left(budget, known, times) <= self.noise_allowed:
            return self.aim()
        return self.forest()

    def _without_choices(self, considered: Sequence[DirectTables], records: float, budget: Budget) -> Plan:
        """The largest tables whose noise is small enough, else single attributes: what needs no choice by records, as
        rounds and forests do, and so has a weighted form."""
        told = (each.plan for each in considered if self.needed_records(each, budget) <= records)
        return next(told, Independent(self.workload))

    def _by_noise_before_fit(
        self, gate: Gate, considered: Sequence[DirectTables], records: float, rest: Budget
    ) -> None:
        """The rule of earlier versions, and where tables are too large or too many to be considered."""
        direct = next((each for each in considered if self.needed_records(each, rest) <= records), None)
        needed = self.pair_records(gate.domain, rest)
        if direct is not None:
            plan: Plan = Marginals(direct.tables)
        else:
            rounds = needed is not None and needed <= records and _pairs(gate.domain) <= BUYING.most_listed
            plan = self.aim() if rounds else self.forest()
        plan.run(PartialGate(gate, rest))

    @property
    def earlier(self) -> "BestBuy | None":
        """What this was before the split was optimal: such a request is answered from the ledger that holds it."""
        return replace(self, split="even") if self.split == "optimal" else None

    def to_json(self) -> dict[str, Any]:
        found = super().to_json() | {"most_noise": self.noise_allowed}
        if self.split == "even":
            del found["split"], found["one_way_share"]
        return found

    def aim(self) -> Aim:
        """What is done where tables of several attributes can be told from noise."""
        return Aim(workload=self.workload, ways=self.ways)

    def forest(self) -> Forest:
        """What is done where they cannot."""
        return Forest(self.workload, wary=self.split == "optimal")

    def pair_records(self, domain: Domain, budget: Budget) -> float | None:
        """From how many records on pairs are told well enough to select tables (AIM); None without a pair.

        As many pairs, of mean size, as it takes to join all attributes then have at most `most_pair_noise`.
        """
        names = tuple(attribute_importance(self.workload, domain))
        pairs = tuple(pair_weights(self.workload, domain, names))
        if not pairs:
            return None
        cells = sum(math.prod(domain.sizes(pair)) for pair in pairs) / len(pairs)
        spread = cells * _even_deviation(len(names) - 1, budget)
        return self._records_for(spread, budget, domain, self.most_pair_noise)

    def considered(self, domain: Domain) -> tuple[DirectTables, ...]:
        """The tables that may be measured directly, by declared sizes, those of most attributes first."""
        varying = set(attribute_importance(self.workload, domain))
        if self.workload is None:
            if _pairs(domain) > BUYING.most_listed:
                return ()
            sets = attribute_sets(domain, min(self.ways, len(varying)), [n for n in domain.names if n in varying])
            weights = [1.0] * len(sets)
        else:
            weights = [weight for _, weight in self.workload]
            sets = [tuple(n for n in domain.ordered(q.attributes) if n in varying) for q in self.workload.queries]
        if any(math.prod(domain.sizes(names)) > LARGEST_ANSWER for names in sets):
            return ()  # few answers about so many cells need a model, and many tables may be too much for one
        found = []
        for ways in range(max(map(len, sets), default=0), 1, -1):
            if sum(math.comb(len(names), min(ways, len(names))) for names in sets) > 50 * BUYING.most_tables:
                continue
            tables: dict[Names, float] = {}
            for names, weight in zip(sets, weights, strict=True):
                for part in itertools.combinations(names, min(ways, len(names))):
                    tables[part] = tables.get(part, 0.0) + weight
            tables.pop((), None)
            direct = DirectTables(domain, ways, tuple(tables), tuple(tables.values()))
            if len(tables) <= BUYING.most_tables and direct.cells <= BUYING.most_cells:
                found.append(direct)
        return tuple(found)

    def needed_records(self, tables: DirectTables, budget: Budget) -> float:
        """From how many records on the noise of these tables is at most `most_noise` of them."""
        return self._records_for(tables.spread(budget, self.split), budget, tables.domain, self.noise_allowed)

    def _records_for(self, spread: float, budget: Budget, domain: Domain, most_noise: float) -> float:
        return BUYING.mean_noise * spread * self._times(budget, domain) / (2.0 * most_noise)

    def _times(self, budget: Budget, domain: Domain) -> float:
        """The noise in units of that for records of weight 1 that are added or removed."""
        sensitivity = 1.0 if self.neighbours == "add-remove" else 2.0
        return domain.most_counted * (math.sqrt(sensitivity) if budget.additive_unit == "rho" else sensitivity)

    def _records(self, gate: Gate, considered: Sequence[DirectTables]) -> tuple[float, Budget]:
        """The number of records, public or noisy, and the budget that is left."""
        if gate.domain.public.total is not None:
            return float(gate.domain.public.total), gate.budget
        if not considered and self.pair_records(gate.domain, gate.budget) is None:
            return 0.0, gate.budget
        first, rest = in_two_parts(gate.budget, self.total_share)
        (measurement,) = gate.measure(Query(()), first)
        return float(measurement.values[0]), rest

    def estimator(self, measured: MeasurementSet | None = None) -> Estimator:
        """A graphical model, or `Residual` where the measurements given would make it too large, or take minutes."""
        suitable = None if measured is None else Graphical().suitability(measured)
        if suitable is None or (suitable.possible and not is_slow(suitable)):
            return Graphical()
        return Residual()

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """The rule with its numbers, and what the forest does."""
        considered, known = self.considered(example.domain), example.domain.public.total
        before_fit = self.split == "even" or not considered or example.domain.weight is not None
        by_weight = "" if example.domain.weight is None else ", by weight,"
        lines = [
            f"all {len(each.tables):,} tables of {each.ways} attributes are measured themselves from "
            f"{math.ceil(self.needed_records(each, budget)):,} records{by_weight} on, where their noise is at most "
            f"{self.noise_allowed:g} of all records"
            for each in (considered if before_fit else considered[:1])
        ]
        pairs = self.pair_records(example.domain, budget)
        if example.domain.weight is not None:
            lines.append("with fewer single attributes are measured: private choices have no weighted form")
        elif not before_fit:
            lines.append(
                f"with fewer records {100 * self.one_way_share:g} % of the budget measures one-way marginals, which "
                "tell how many cells stand out from noise; they are still measured where a fit leaves no more than that"
            )
            if considered[-1].ways < considered[0].ways:
                lines.append("else rounds select tables (AIM), where a fit leaves no more than that of pairs")
            lines.append("else one-way marginals and a forest of pairs are measured")
        else:
            if pairs is not None and _pairs(example.domain) <= BUYING.most_listed:
                lines.append(f"else, from {math.ceil(pairs):,} records on, rounds select tables (AIM)")
            lines.append("with fewer records one-way marginals and a forest of pairs are measured")
        if known is None:
            lines.append(f"the number of records is measured first, with {100 * self.total_share:g} % of the budget")
        else:
            lines.append(f"the number of records is public: {known:,.0f}")
        return tuple(lines)
