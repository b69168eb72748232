"""MWEM: select the answer that the estimate gets most wrong, measure it, learn, repeat (Hardt, Ligett, McSherry 2012).

Each of T rounds gets an equal part of the budget, half for a private selection among all single answers of the
workload (privacy/query_scores.py proves its sensitivity) and half for measuring the one that was selected. The
estimate between rounds is multiplicative weights over the full table; it is made of public numbers alone. The number
of records is taken from the domain's public facts, or measured first with a share of the budget. With d cells, k
single answers, N records and pure ε the paper's Theorem 2.2 bounds the largest error by

    2N √(ln d / T) + 10 T ln k / ε,

with probability 1 − 2T/k. T is public: given, or what makes this bound least when N is public, or else 10.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError, TooLarge
from consilience.estimators.multiplicative_weights import (
    LARGEST_WORK,
    Iterate,
    MultiplicativeWeights,
    check_sweeps,
    follow,
    measured_total,
    starting_weights,
)
from consilience.numerics.multiplicative_weights import WeightedTable
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.query_scores import QueryError, WorkloadRows
from consilience.privacy.selection import Selector

USUAL_ROUNDS = 10
MOST_ROUNDS = 50
TOTAL_SHARE = 0.05


@dataclass(frozen=True)
class Mwem:
    """Rounds of selecting and measuring one answer of the workload each.

    `sweeps` is how often the estimate between rounds visits all answers so far. `estimator` fits what was measured as
    the plan did; `iterate` is what it gives and does not change what is measured. `total_share` is the share of the
    budget that measures the number of records where it is not public.

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
        self.estimator()

    def estimator(self) -> MultiplicativeWeights:
        """The estimator whose estimate is the one that this plan makes between rounds."""
        return MultiplicativeWeights(sweeps=self.sweeps, iterate=self.iterate)

    def run(self, gate: Gate) -> None:
        rows = WorkloadRows(_without_totals(self.workload), gate.domain)
        rounds = self._rounds(gate, rows)
        if (rounds + 4) * gate.domain.cells > LARGEST_WORK:
            raise TooLarge(
                f"MWEM keeps the full table of {gate.domain.cells:,} cells for {rounds} rounds, more than memory is "
                "meant to hold; project the domain to fewer attributes"
            )
        total, rest = self._total(gate)
        table = WeightedTable(starting_weights(gate.domain), total)
        step = gate.budget.scaled(rest / (2 * rounds))
        for _ in range(rounds):
            counts = table.counts()
            estimates = [bound.answer_full(counts) for bound in rows.bounds]
            chosen = gate.select(QueryError(rows, estimates), step, selector=self.selector)
            (measurement,) = gate.measure(chosen, step)
            follow(table, measurement, measurement.query.bind(gate.domain))
            table.sweep(self.sweeps)

    def _total(self, gate: Gate) -> tuple[float, Fraction]:
        """The number of records, public or measured, and the share of the budget that is left."""
        if gate.domain.public.total is not None:
            return float(gate.domain.public.total), Fraction(1)
        share = Fraction(self.total_share)
        try:
            (measurement,) = gate.measure(Query(()), gate.budget.scaled(share))
        except DeclarationError as error:
            raise DeclarationError(
                "MWEM needs the number of records, which replacing one record does not change and no noise protects; "
                "declare it as the domain's public total, or use the add-remove relation"
            ) from error
        return measured_total(measurement.values[0]), 1 - share

    def _rounds(self, gate: Gate, rows: WorkloadRows) -> int:
        if self.rounds is not None:
            return self.rounds
        total = gate.domain.public.total
        if total is None:
            return USUAL_ROUNDS
        return balanced_rounds(gate.budget, records=float(total), cells=gate.domain.cells, candidates=len(rows))

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": "mwem",
            "workload": self.workload.to_json(),
            "rounds": self.rounds,
            "sweeps": self.sweeps,
            "total_share": self.total_share,
            "selector": self.selector,
        }


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
