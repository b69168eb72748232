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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.factors import Identity
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError, TooLarge, readable_count
from consilience.estimators.published.multiplicative_weights import (
    LARGEST_WORK,
    Iterate,
    MultiplicativeWeights,
    check_sweeps,
    follow,
    measured_total,
    starting_weights,
)
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.query_scores import QueryError, WorkloadRows
from consilience.privacy.scores import MarginalError
from consilience.privacy.selection import Selector
from consilience.solvers.multiplicative_weights import WeightedTable

USUAL_ROUNDS = 10
MOST_ROUNDS = 50
TOTAL_SHARE = 0.05

Candidates = Literal["answers", "marginals"]


@dataclass(frozen=True)
class Mwem:
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

    workload: Workload
    rounds: int | None = None
    sweeps: int = 100
    iterate: Iterate = "last"
    total_share: float = TOTAL_SHARE
    selector: Selector = "exponential"
    candidates: Candidates = "answers"

    def __post_init__(self) -> None:
        if self.rounds is not None and (not isinstance(self.rounds, int) or self.rounds < 1):
            raise DeclarationError(f"{self.rounds!r} rounds were asked for; ask for a whole number from 1 up")
        if not 0 < self.total_share < 1:
            raise DeclarationError(
                f"the share of the budget for the total is {self.total_share}; it lies between 0 and 1, such as 0.05"
            )
        check_sweeps(self.sweeps)
        if not any(query.factors for query in self.workload.queries):
            raise DeclarationError("the workload asks for nothing but the total; name queries about attributes")
        if self.candidates not in ("answers", "marginals"):
            raise DeclarationError(f"the candidates are {self.candidates!r}; use 'answers' or 'marginals'")
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

    def _choices(self, domain: Domain) -> "_Choices":
        if self.candidates == "marginals":
            return _WholeMarginals(_without_totals(self.workload), domain)
        return _SingleAnswers(_without_totals(self.workload), domain)

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
            return USUAL_ROUNDS
        return balanced_rounds(gate.budget, records=float(total), cells=gate.domain.cells, candidates=candidates)

    def to_json(self) -> dict[str, Any]:
        described = {
            "plan": "mwem",
            "workload": self.workload.to_json(),
            "rounds": self.rounds,
            "sweeps": self.sweeps,
            "total_share": self.total_share,
            "selector": self.selector,
        }
        return described if self.candidates == "answers" else described | {"candidates": self.candidates}


class _Choices(Protocol):
    """What a round can measure, and how one is selected."""

    @property
    def most_answers(self) -> int:
        """The most answers that one of them has."""
        ...

    def __len__(self) -> int: ...

    def select(self, counts: NDArray[np.float64], gate: Gate, budget: Budget, selector: Selector) -> Query:
        """The one that the estimated counts get most wrong, chosen privately at this price."""
        ...


class _SingleAnswers:
    """Every single answer of a workload."""

    most_answers = 1

    def __init__(self, workload: Workload, domain: Domain) -> None:
        self.rows = WorkloadRows(workload, domain)

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, counts: NDArray[np.float64], gate: Gate, budget: Budget, selector: Selector) -> Query:
        estimates = [bound.answer_full(counts) for bound in self.rows.bounds]
        return gate.select(QueryError(self.rows, estimates), budget, selector=selector)


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


def marginal_rounds(attributes: int) -> int:
    """⌈4 log₂ d⌉ + 2, the rounds that Qardaji, Yang and Li (2014, §5.1) take for marginals of d attributes.

    >>> marginal_rounds(9)
    15
    """
    if attributes < 1:
        raise DeclarationError(f"rounds for {attributes} attributes were asked for; give 1 or more")
    return math.ceil(4 * math.log2(attributes)) + 2


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
    return min(MOST_ROUNDS, max(1, round(best)))


def _without_totals(workload: Workload) -> Workload:
    """The queries that name attributes; the total is known or measured apart."""
    kept = [(query, weight) for query, weight in workload if query.factors]
    return Workload.of([query for query, _ in kept], weights=[weight for _, weight in kept])


def _refuse_other_queries(workload: Workload) -> None:
    for query in workload.queries:
        if not all(isinstance(factor, Identity) for _, factor in query.factors):
            raise DeclarationError(
                f"the query {query.describe()!r} is no marginal, and whole marginals are selected from; name marginals "
                'alone, or use candidates="answers"'
            )
