"""MWEM: select the answer that the estimate gets most wrong, measure it, learn, repeat (Hardt, Ligett, McSherry 2012).

Each of T rounds gets an equal part of the budget, half for a private selection among all single answers of the
workload (privacy/query_scores.py proves its sensitivity) and half for measuring the one that was selected. The
estimate between rounds is multiplicative weights over the full table; it is made of public numbers alone. The number
of records is taken from the domain's public facts, or measured first with a share of the budget. With d cells, k
single answers, N records and pure ε the paper's Theorem 2.2 bounds the largest error by

    2N √(ln d / T) + 10 T ln k / ε,

with probability 1 − 2T/k. T is public: given, or what makes this bound least when N is public, or else 10.

With `candidates="marginals"` a round selects a whole marginal of the workload, by the L1 distance of its counts from
the estimate's (privacy/scores.py), and measures all its cells for the price of one: a record is in one of them. This is
MWEM as Qardaji, Yang and Li (2014, §3.6) compare with it; they take T = ⌈4 log₂ d⌉ + 2 for d attributes.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.factors import Identity
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError, TooLarge, readable_count
from consilience.estimators.base import check_choice, check_whole
from consilience.estimators.graphical import Graphical
from consilience.estimators.published.multiplicative_weights import (
    LARGEST_WORK,
    FactoredWeights,
    Iterate,
    MultiplicativeWeights,
    WeightedTable,
    components,
    follow,
    measured_total,
    starting_weights,
)
from consilience.measurements import MeasurementSet
from consilience.plans.answering import AnswersWorkload, ModelSizes, RunningEstimate, single_row
from consilience.plans.base import (
    PUBLISHED_TOTAL_SHARE,
    DescribedPlan,
    best_selector,
    check_share,
    mean_absolute_noise,
    without_totals,
)
from consilience.plans.forest import attribute_importance
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.query_scores import QueryError, WorkloadRows
from consilience.privacy.scores import JoinedTable, JoinedValues, MarginalError, MarginalGain, Selector

MWEM_ROUNDS = 10
"""Rounds where the number of records is not public."""

MOST_MWEM_ROUNDS = 50
"""Rounds that are chosen at most."""

Candidates = Literal["answers", "marginals"]


@dataclass(frozen=True)
class Mwem(DescribedPlan):
    """Rounds of selecting and measuring one answer of the workload each, or one of its marginals.

    `candidates` is what a round selects: "answers", single numbers, or "marginals", whole tables. `sweeps` is how often
    the estimate between rounds visits all answers so far. `estimator` fits what was measured as the plan did; `iterate`
    is what it gives and does not change what is measured. `total_share` is the share of the budget that measures the
    number of records where it is not public.

    >>> from consilience.domain import Domain
    >>> domain = Domain.from_sizes({"a": 2, "b": 2})
    >>> Mwem(Workload.marginals(domain, ways=1), rounds=3).to_json()["rounds"]
    3
    """

    name = "mwem"
    workload: Workload
    rounds: int | None = None
    sweeps: int = 100
    iterate: Iterate = "last"
    total_share: float = PUBLISHED_TOTAL_SHARE
    selector: Selector = "exponential"
    candidates: Candidates = "answers"

    def __post_init__(self) -> None:
        check_whole(self.rounds, "the number of rounds", optional=True)
        check_share(self.total_share, "the total")
        check_whole(self.sweeps, "the number of sweeps")
        without_totals(self.workload)
        check_choice(self.candidates, "the kind of candidates", get_args(Candidates))
        if self.candidates == "marginals":
            _refuse_other_queries(self.workload)
        self.estimator()

    def estimator(self) -> MultiplicativeWeights:
        """The estimator whose estimate is the one that this plan makes between rounds."""
        return MultiplicativeWeights(sweeps=self.sweeps, iterate=self.iterate)

    def run(self, gate: Gate) -> None:
        choices = self._choices(gate.domain)
        rounds = self._rounds(gate, len(choices))
        if (rounds * choices.most_answers + 4) * gate.domain.cells > LARGEST_WORK:
            raise TooLarge(
                f"MWEM keeps the full table of {readable_count(gate.domain.cells)} cells for {rounds} rounds of up to "
                f"{choices.most_answers:,} answers, more than memory is meant to hold; project the domain to fewer "
                "attributes"
            )
        total, rest = self._total(gate)
        table = WeightedTable(starting_weights(gate.domain), total)
        step = gate.budget.scaled(rest / (2 * rounds))
        for _ in range(rounds):
            chosen = choices.select(table.counts(), gate, step, self.selector)
            (measurement,) = gate.measure(chosen, step)
            follow(table, measurement, measurement.query.bind(gate.domain))
            table.sweep(self.sweeps)

    def _choices(self, domain: Domain) -> "_SingleAnswers | _WholeMarginals":
        kind = _WholeMarginals if self.candidates == "marginals" else _SingleAnswers
        return kind(without_totals(self.workload), domain)

    def _total(self, gate: Gate) -> tuple[float, Fraction]:
        """The number of records, public or measured, and the share of the budget that is left."""
        if gate.domain.public.total is not None:
            return float(gate.domain.public.total), Fraction(1)
        share = Fraction(self.total_share)
        (measurement,) = gate.measure(Query(()), gate.budget.scaled(share))
        return measured_total(measurement.values[0]), 1 - share

    def _rounds(self, gate: Gate, candidates: int) -> int:
        if self.rounds is not None:
            return self.rounds
        total = gate.domain.public.total
        if total is None:
            return MWEM_ROUNDS
        return balanced_rounds(gate.budget, records=float(total), cells=gate.domain.cells, candidates=candidates)

    def to_json(self) -> dict[str, Any]:
        described = super().to_json()
        del described["iterate"]
        if self.candidates == "answers":
            del described["candidates"]
        return described


class _SingleAnswers:
    """What a round can measure: every single answer of a workload."""

    most_answers = 1

    def __init__(self, workload: Workload, domain: Domain) -> None:
        self.rows = WorkloadRows(workload, domain)

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, counts: NDArray[np.float64], gate: Gate, budget: Budget, selector: Selector) -> Query:
        """The one that the estimated counts get most wrong, chosen privately at this price."""
        estimates = [bound.answer_full(counts) for bound in self.rows.bounds]
        return single_row(*self.rows.answer(gate.select(QueryError(self.rows, estimates), budget, selector=selector)))


class _WholeMarginals:
    """The marginals of a workload that have more than one cell, each once; weights of repeated ones add up."""

    def __init__(self, workload: Workload, domain: Domain) -> None:
        weights: dict[tuple[str, ...], float] = {}
        for query, weight in workload:
            names = domain.ordered(query.attributes)
            if math.prod(domain.sizes(names)) > 1:
                weights[names] = weights.get(names, 0.0) + weight
        if not weights:
            raise DeclarationError("the workload asks for nothing but the total; name marginals of several cells")
        self.bounds = {names: Query.marginal(*names).bind(domain) for names in weights}
        largest = max(weights.values())
        self.weights = {names: weight / largest for names, weight in weights.items()}

    @property
    def most_answers(self) -> int:
        return max(bound.size for bound in self.bounds.values())

    def __len__(self) -> int:
        return len(self.bounds)

    def select(self, counts: NDArray[np.float64], gate: Gate, budget: Budget, selector: Selector) -> Query:
        estimates = {names: bound.answer_full(counts) for names, bound in self.bounds.items()}
        chosen: Sequence[str] = gate.select(MarginalError(estimates, self.weights), budget, selector=selector)
        return Query.marginal(*chosen)


def balanced_rounds(budget: Budget, *, records: float, cells: int, candidates: int) -> int:
    """The number of rounds, 1 to 50, at which the bound on the error is least.

    For pure ε it is T with N √(ln d) T^(−3/2) = 10 ln k/ε. For ρ-zCDP a round's noise grows with √T: 10 T ln k/ε
    becomes 10 ln k √(T/ρ), and the bound is least at T = N √(ρ ln d) / (5 ln k).

    >>> from consilience.privacy.budgets import budget
    >>> balanced_rounds(budget(epsilon=1), records=1841, cells=64, candidates=72)
    20
    """
    spread = records * math.sqrt(math.log(max(cells, 2)))
    choices = math.log(max(candidates, 2))
    amount = float(budget.amount)
    if budget.additive_unit == "epsilon":
        best = (amount * spread / (10.0 * choices)) ** (2.0 / 3.0)
    else:
        best = math.sqrt(amount) * spread / (5.0 * choices)
    return min(MOST_MWEM_ROUNDS, max(1, round(best)))


def _refuse_other_queries(workload: Workload) -> None:
    for query in workload.queries:
        if not all(isinstance(factor, Identity) for _, factor in query.factors):
            raise DeclarationError(
                f"the query {query.describe()!r} is no marginal, and whole marginals are selected from; name marginals "
                'alone, or use candidates="answers"'
            )


# ----------------------------------------------------------------------------------------------------------------------
# MWEM with models in place of the full table, for domains of any size (McKenna, Sheldon, Miklau 2019, §4.1).
#
# As in `mwem`, each of T rounds gets an equal part of the budget, half for selecting what the estimate gets most wrong
# and half for measuring it. What differs is the estimate between rounds:
#
#     "graphical"  the graphical model of all answers so far (`estimators.Graphical`), begun where the last one ended;
#     "factored"   multiplicative weights on a product of independent tables (`estimators.FactoredWeights`), which is
#                  Hardt, Ligett and McSherry's own way to larger domains.
#
# *Sizes.* Before a round selects, every query of the workload is asked how large the model would become with it: cells
# of the junction tree, or answers times cells of the largest component. Queries that would go beyond `largest_model`
# are left out, by declared sizes and what was measured before, so that nothing confidential decides it. With
# `beyond="refuse"` they stay, and selecting one ends the run with `TooLarge`, as the published mechanism ends; what was
# measured until then is spent.
#
# *Candidates.* "answers": single answers of the workload, as published. "marginals": the marginals over the attributes
# of each query and, with `parts`, all their parts, by L1 distance, each measured whole; a part matters as much as the
# query that matters most and has it. Differences of a cell that are smaller than its noise will be lost in it: with
# `beyond_noise` a marginal's score adds up what the differences of its cells exceed E|noise| by (privacy/scores.py).


Estimation = Literal["graphical", "factored"]
ModelCandidates = Literal["marginals", "answers"]
Beyond = Literal["leave-out", "refuse"]
Names = tuple[str, ...]

LARGEST_MODEL = {"graphical": 2_000_000, "factored": 2**25}
"""The most cells of a model, by how it is fitted, unless asked otherwise."""

LARGEST_MARGINAL = 2_000_000
"""The most cells of a marginal that is a candidate."""


@dataclass(frozen=True)
class MwemModels(AnswersWorkload):
    """Rounds of selecting and measuring what a model of all answers so far gets most wrong.

    `rounds` is twice the number of attributes that the workload names, at most 50, unless given. `largest_model` is in
    cells of the junction tree, or in answers times cells of a component. `total_share` of the budget measures the
    number of records where it is not public.

    >>> domain = Domain.from_sizes({"a": 2, "b": 2})
    >>> MwemModels(Workload.marginals(domain, ways=2)).to_json()["estimation"]
    'graphical'
    """

    name = "mwem-models"
    workload: Workload
    rounds: int | None = None
    estimation: Estimation = "graphical"
    candidates: ModelCandidates = "marginals"
    largest_model: int | None = None
    beyond: Beyond = "leave-out"
    parts: bool = True
    beyond_noise: bool = True
    total_share: float = PUBLISHED_TOTAL_SHARE

    def __post_init__(self) -> None:
        for option, choices in (("estimation", Estimation), ("candidates", ModelCandidates), ("beyond", Beyond)):
            check_choice(getattr(self, option), option, get_args(choices))
        for option in ("rounds", "largest_model"):
            check_whole(getattr(self, option), option, optional=True)
        check_share(self.total_share, "the total")
        without_totals(self.workload)

    def estimator(self) -> Graphical | FactoredWeights:
        """The estimator that this plan uses between rounds."""
        return Graphical() if self.estimation == "graphical" else FactoredWeights(largest_work=self._most)

    @property
    def _most(self) -> int:
        return LARGEST_MODEL[self.estimation] if self.largest_model is None else self.largest_model

    def run(self, gate: Gate) -> None:
        queries = _Questions(self, gate.domain)
        sizes = (_TreeSizes if self.estimation == "graphical" else _ComponentSizes)(gate.domain, queries.asked)
        rounds = self.rounds or min(MOST_MWEM_ROUNDS, 2 * len(attribute_importance(self.workload, gate.domain)))
        self._within(queries, sizes)  # refused here if nothing fits, before anything is spent
        running = RunningEstimate(gate.domain, self.estimator())
        rest = Fraction(1)
        if gate.domain.public.total is None:
            rest -= Fraction(self.total_share)
            running.add(gate.measure(Query(()), gate.budget.scaled(Fraction(self.total_share))))
        step, selector = gate.budget.scaled(rest / (2 * rounds)), best_selector(gate.budget.additive_unit)
        for _ in range(rounds):
            kept = self._within(queries, sizes)
            chosen = queries.select(kept, running, gate, step, selector)
            if sizes.size_with(chosen) > self._most:
                raise TooLarge(
                    f"{chosen.describe()!r} was selected, and the {self.estimation} model of all answers so far would "
                    f"have a size of {sizes.size_with(chosen):,}; {self._most:,} are allowed. Use estimation="
                    '"graphical", or beyond="leave-out", which leaves such queries out'
                )
            running.add(gate.measure(chosen, step))
            sizes.add(chosen)

    def _within(self, queries: "_Questions", sizes: "_TreeSizes | _ComponentSizes") -> list[int]:
        """The places of the queries whose model is small enough; with `beyond="refuse"`, of all."""
        places = range(len(queries.asked))
        if self.beyond == "refuse":
            return list(places)
        small = [place for place in places if sizes.size_with(queries.asked[place]) <= self._most]
        kept = [place for place in small if sizes.answers_with(queries.asked[place])]
        if not kept:
            raise TooLarge(
                f"every query of the workload needs a {self.estimation} model of a size above {self._most:,}; raise "
                "largest_model, or ask about fewer attributes at once"
            )
        return kept

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What is measured, in sentences."""
        rounds = sum(bool(each.query.factors) for each in example)
        return (
            f"{rounds} rounds, each of which selects one of the {self.candidates} of the workload privately and "
            f"measures it; those shown here stand for others. Between rounds a {self.estimation} model is fitted",
        )


class _TreeSizes:
    """How large a model would become with one more query: cells of the junction tree."""

    def __init__(self, domain: Domain, asked: Sequence[Query]) -> None:
        self._sizes = ModelSizes(domain, [query.attributes for query in asked])

    def size_with(self, query: Query) -> int:
        return self._sizes.cells_with(query.attributes)

    def answers_with(self, query: Query) -> bool:
        """Whether every query of the workload would be answered in reasonable time."""
        return self._sizes.allows(query.attributes, math.inf)

    def add(self, query: Query) -> None:
        self._sizes.add([query.attributes])


class _ComponentSizes:
    """Answers times cells of the component that a query would be part of."""

    def __init__(self, domain: Domain, _asked: Sequence[Query]) -> None:
        self._domain = domain
        self._measured: list[Query] = []

    def size_with(self, query: Query) -> int:
        rounds = [*self._measured, query]
        parts = components(self._domain, [each.attributes for each in rounds])
        own = next(names for names in parts if query.attributes[0] in names)
        answers = sum(each.bind(self._domain).size for each in rounds if each.attributes[0] in own)
        return (answers + 4) * int(np.prod([float(size) for size in self._domain.sizes(own)]))

    def answers_with(self, query: Query) -> bool:
        return True

    def add(self, query: Query) -> None:
        self._measured.append(query)


class _Questions:
    """What a round can select: whole marginals, or single answers of queries."""

    def __init__(self, plan: MwemModels, domain: Domain) -> None:
        self._domain, self._kind, self._beyond_noise = domain, plan.candidates, plan.beyond_noise
        found: dict[Query, float] = {}
        for query, weight in plan.workload:
            varying = tuple(name for name in domain.ordered(query.attributes) if domain[name].size > 1)
            sizes = range(1 if plan.parts else len(varying), len(varying) + 1) if varying else ()
            sets = [each for size in sizes for each in itertools.combinations(varying, size)]
            marginals = [Query.marginal(*each) for each in sets]
            for asked in marginals if self._kind == "marginals" else [query][: len(varying)]:
                cells = math.prod(float(domain[name].size) for name in asked.attributes)
                if cells <= LARGEST_MARGINAL:
                    found[asked] = max(found.get(asked, 0.0), weight)
        if not found:
            raise DeclarationError(
                f"no query of the workload is about attributes of several values with up to {LARGEST_MARGINAL:,} "
                "cells; name smaller ones"
            )
        self.asked = tuple(found)
        self._weights = tuple(weight / max(found.values()) for weight in found.values())
        self._rows: tuple[list[int], WorkloadRows] | None = None
        self._known([*range(len(self.asked))])

    def _known(self, places: Sequence[int]) -> WorkloadRows | None:
        """The single answers of these queries, made anew only where they are others than before."""
        if self._kind == "marginals":
            return None
        if self._rows is None or self._rows[0] != list(places):
            kept = [(self.asked[place], self._weights[place]) for place in places]
            workload = Workload.of([query for query, _ in kept], weights=[weight for _, weight in kept])
            self._rows = (list(places), WorkloadRows(workload, self._domain))
        return self._rows[1]

    def select(
        self, places: Sequence[int], running: RunningEstimate, gate: Gate, budget: Budget, selector: Selector
    ) -> Query:
        """One of these queries, or an answer of one, chosen privately at this price."""
        asked = [self.asked[place] for place in places]
        # With a public total the first round knows nothing else: a product of no measured tables is the even table.
        known = running.estimate if running.measurements else FactoredWeights().fit(running.measured())
        estimates = known.answers(asked)
        rows = self._known(places)
        if rows is not None:
            return single_row(*rows.answer(gate.select(QueryError(rows, estimates), budget, selector=selector)))
        tables: dict[Names, JoinedTable] = {}
        for place, query, table in zip(places, asked, estimates, strict=True):
            values, weight = JoinedValues.separate(table.shape), self._weights[place]
            hidden = mean_absolute_noise(budget) if self._beyond_noise else 0.0
            tables[query.attributes] = JoinedTable(values, table, hidden, weight)
        chosen = gate.select(MarginalGain(tables), budget, selector=selector)
        return Query.marginal(*(chosen or ()))
