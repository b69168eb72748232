"""DualQuery: draw the queries that the records so far get wrong, find a record that they ask for, repeat.

Gaboardi, Gallego Arias, Hsu, Roth, Wu (2014). A distribution over the single answers of a workload and their
complements starts even. Each of T rounds draws s of them, and finds the record x that is in as few of the drawn sets as
possible; then the weight of every q is multiplied by exp(η(q(x) − q(D))). The data enters through q(D) alone, in the
draws: each is an exponential mechanism on scores whose sensitivity privacy/query_scores.py proves, and the search for a
record never looks at the data. In the search of McKenna et al. (2019, Algorithm 4) a term of the data's answers is the
same for all records, and is left out. plans/published/dual_query.py has s, T, η and the cost of the draws.

The result holds no noisy counts but one measurement of all the draws, from which `estimators.DualQuery` takes the
records as published, and `estimators.DualQueryModel` the most likely graphical model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from consilience.domain.answer_sets import AnswerSets
from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.base import check_whole
from consilience.estimators.published.dual_query import DualQuery as PublishedRecords
from consilience.estimators.published.dual_query import selections
from consilience.kernels.rng import Generator, generator
from consilience.measurements import MeasurementSet
from consilience.plans.answering import AnswersWorkload
from consilience.plans.base import PUBLISHED_TOTAL_SHARE, check_share, without_totals
from consilience.plans.published.record_search import RECORD_SEARCH, Conjunction, best_record
from consilience.privacy.budgets import Budget, epsilon_from_rho
from consilience.privacy.gate import Gate
from consilience.privacy.pricing import LARGEST_RECORDS
from consilience.privacy.query_scores import DualScore
from consilience.privacy.scores import epsilon_for_rho, selection_scale

# ----------------------------------------------------------------------------------------------------------------------
# How a run of DualQuery divides its budget, and what its draws cost by each rule of composition.
#
# With N records, s draws in each of T rounds and the learning rate η, a draw of round t is an exponential mechanism
# with
#
#     ε_t = 2η(t − 1)/N
#
# (privacy/query_scores.py: with k = t − 1 records found, no score N·h − k·n moves by more than k, and the weights are
# exp(η·score/N)). The first round costs nothing. All of them together are
#
#     basic       Σ s·ε_t = ηsT(T − 1)/N                                  pure ε  (Gaboardi et al. 2014)
#     advanced    ε_T (√(2s(T−1) ln(1/δ)) + s(T−1)(exp(ε_T) − 1))         (ε, δ)  (the same; Dwork, Rothblum, Vadhan
#       2010)
#     zCDP        Σ s·ε_t²/8 = sη²(T−1)T(2T−1)/12N²                       ρ       (Cesar, Rogers 2021)
#
# and the run is charged in the unit that its budget has: the basic sum for pure ε, the last one for ρ and for (ε, δ).
# It is the least of the three for (ε, δ) wherever T is not tiny.
#
# Given s and T the whole budget buys a certain η, and that is the one taken. Otherwise T is as large as the budget
# allows at a rate of at least 2, the rate of the public implementation by McKenna et al., who draw s = 50. With less
# data fewer draws serve better: an error A/√s of finding a record from s draws beside B/T of following T of them, with
# the T that the budget leaves at a fixed rate, is least at s ∝ (N√ρ)^(4/5), or for pure ε at s ∝ √(Nε). The constants,
# about 5 draws for a thousand records and 50 for fifty thousand at ε = 1, were set by trying a few on the four tables
# of the benchmark.


@dataclass(frozen=True)
class ScheduleSettings:
    """What a schedule is made of where the options leave it open; the reasons are above."""

    rate: float = 2.0
    """The least learning rate η: that of the public implementation."""
    fewest_draws: int = 5
    """Draws in a round, at least,"""
    most_draws: int = 50
    """and at most."""
    most_rounds: int = 500
    """More rounds take longer than they gain; a budget for more is left over in part."""


SCHEDULES = ScheduleSettings()


@dataclass(frozen=True)
class Schedule:
    """So many draws in each of so many rounds, and the share of the budget that all of them take together."""

    draws: int
    rounds: int
    pure: bool
    share: Fraction

    def share_of_draw(self, found: int) -> Fraction:
        """The share of one draw after so many records were found; ε grows with their number, ρ with its square."""
        return self.share * self._part(found) / (self.draws * sum(map(self._part, range(1, self.rounds))))

    def _part(self, found: int) -> int:
        return found if self.pure else found * found


def schedule(
    budget: Budget,
    *,
    records: int,
    share: Fraction = Fraction(1),
    draws: int | None = None,
    rounds: int | None = None,
    rate: float = SCHEDULES.rate,
    rows_per_unit: int = 1,
) -> Schedule:
    """The draws and rounds for a share of a budget; those that are given stay as they are.

    >>> from consilience.privacy.budgets import budget
    >>> found = schedule(budget(epsilon=1, delta=0.001), records=48842)
    >>> found.draws, found.rounds
    (50, 162)
    """
    pure = budget.additive_unit == "epsilon"
    amount = float(budget.amount) * float(share)
    units = max(1.0, records / rows_per_unit)
    if draws is None:
        usual = math.sqrt(units * amount) / 5 if pure else (units * math.sqrt(amount)) ** 0.8 / 20
        draws = min(SCHEDULES.most_draws, max(SCHEDULES.fewest_draws, round(usual)))
    if rounds is not None:
        return Schedule(draws, rounds, pure, share)
    rounds = 2
    while rounds < SCHEDULES.most_rounds and bought_rate(amount, draws, rounds + 1, units, pure=pure) >= rate:
        rounds += 1
    bought = bought_rate(amount, draws, rounds, units, pure=pure)
    if rounds < SCHEDULES.most_rounds or bought <= rate:
        return Schedule(draws, rounds, pure, share)
    return Schedule(draws, rounds, pure, share * Fraction((rate / bought) ** (1 if pure else 2)))


def bought_rate(amount: float, draws: int, rounds: int, units: float, *, pure: bool) -> float:
    """η for an amount of ε, or of ρ; `units` is the number of records in units of what is protected.

    >>> round(bought_rate(1.0, 10, 11, 1000.0, pure=True), 4)
    0.9091
    """
    found = rounds - 1
    if pure:
        return units * amount / (draws * found * (found + 1))
    return units * math.sqrt(12.0 * amount / (draws * found * (found + 1) * (2 * found + 1)))


@dataclass(frozen=True)
class DrawCosts:
    """What the draws of a run cost by three rules; `advanced` and `from_zcdp` are ε at one δ."""

    basic: float
    advanced: float
    rho: float
    from_zcdp: float


def draw_costs(*, draws: int, rounds: int, rate: float, units: float, delta: float) -> DrawCosts:
    """The cost of all draws by basic and advanced composition and by zCDP, for a reader; the ledger has exact numbers.

    >>> costs = draw_costs(draws=50, rounds=162, rate=2.0, units=48842, delta=0.001)
    >>> round(costs.basic, 2), round(costs.advanced, 2), round(costs.rho, 4), round(costs.from_zcdp, 2)
    (53.4, 5.81, 0.0589, 0.99)
    """
    found = rounds - 1
    last = 2.0 * rate * found / units
    many = draws * found
    advanced = last * (math.sqrt(2.0 * many * math.log(1.0 / delta)) + many * math.expm1(last))
    rho = draws * rate**2 * found * (found + 1) * (2 * found + 1) / (12.0 * units**2)
    return DrawCosts(
        basic=rate * draws * rounds * found / units,
        advanced=advanced,
        rho=rho,
        from_zcdp=float(epsilon_from_rho(rho, delta)),
    )


# ----------------------------------------------------------------------------------------------------------------------
# DualQuery: draw the queries that the records so far get wrong, find a record that they ask for, repeat.


SAID_DELTA = 1e-6
"""The δ at which the cost of the draws is told where the budget has none."""


@dataclass(frozen=True)
class DualQuery(AnswersWorkload):
    """Rounds of drawing queries and finding a record for them.

    `draws` is the number of draws in each round and `rounds` that of rounds; without them they follow from the budget
    and the number of records, with a learning rate of at least `rate`. Given `rounds`, the budget decides the rate. The
    number of records is public or is measured with `total_share` of the budget. `seed` is that of the first draws,
    which are even, and of ties between records; it is no secret. `largest_search` is the most cells of a table of the
    exact search for a record, beyond which it is a local one.

    >>> domain = Domain.from_sizes({"a": 2, "b": 2})
    >>> DualQuery(Workload.marginals(domain, ways=2), rounds=20).to_json()["rounds"]
    20
    """

    name = "dual-query"
    workload: Workload
    rounds: int | None = None
    draws: int | None = None
    rate: float = SCHEDULES.rate
    total_share: float = PUBLISHED_TOTAL_SHARE
    seed: int = 0
    largest_search: int = RECORD_SEARCH.largest_table

    def __post_init__(self) -> None:
        check_whole(self.rounds, "the number of rounds", 2, optional=True)
        check_whole(self.draws, "the number of draws", optional=True)
        check_whole(self.seed, "the seed", 0)
        check_whole(self.largest_search, "the most cells of a search")
        if not 0 < self.rate < float("inf"):
            raise DeclarationError(f"the learning rate is {self.rate}; give a finite number above 0, such as 2")
        check_share(self.total_share, "the total")
        without_totals(self.workload)
        if len(set(self.workload.weights)) > 1:
            raise DeclarationError(
                "the queries have different weights, and DualQuery counts every single answer alike; give equal weights"
            )

    def estimator(self) -> PublishedRecords:
        """The estimator that takes the synthetic records as published."""
        return PublishedRecords()

    def run(self, gate: Gate) -> None:
        if gate.domain.public.margins:
            names = ", ".join(gate.domain.public.margins[0].attributes)
            raise DeclarationError(
                f"the counts by {names} are public, and DualQuery's records cannot keep exact counts; leave them out "
                "of the domain, or use another plan"
            )
        sets = AnswerSets(without_totals(self.workload), gate.domain)
        records, rest = self._records(gate)
        plan = self._schedule(gate.budget, records, rest, gate.rows_per_unit)
        search = _RecordSearch(sets, generator(self.seed), self.largest_search)
        drawn: list[list[int]] = []
        found = [search.record(search.even_draws(plan.draws))]
        held = sets.holding(found[0]).astype(np.int64)
        for k in range(1, plan.rounds):
            score = DualScore(sets, held, found=k, records=records)
            price = gate.budget.scaled(plan.share_of_draw(k))
            drawn.append([gate.select(score, price, selector="exponential") for _ in range(plan.draws)])
            found.append(search.record(drawn[-1]))
            held = held + sets.holding(found[-1])
        scale = _scale(gate.budget.scaled(plan.share_of_draw(1)), gate.rows_per_unit)
        gate.keep(selections(sets, records=records, drawn=drawn, found=found, scale=scale))

    def _records(self, gate: Gate) -> tuple[int, Fraction]:
        """The number of records, public or measured, as a whole number, and the share of the budget that is left."""
        if gate.domain.public.total is not None:
            return _whole_records(gate.domain.public.total), Fraction(1)
        share = Fraction(self.total_share)
        (measurement,) = gate.measure(Query(()), gate.budget.scaled(share))
        return _whole_records(measurement.values[0]), 1 - share

    def _schedule(self, budget: Budget, records: int, share: Fraction, rows: int) -> Schedule:
        return schedule(
            budget,
            records=records,
            share=share,
            draws=self.draws,
            rounds=self.rounds,
            rate=self.rate,
            rows_per_unit=rows,
        )

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What the draws cost by each rule, where the number of records is public."""
        total = example.domain.public.total
        if total is None:
            return (
                f"DualQuery measures the number of records with a share of {self.total_share:g}; the number of rounds, "
                f"up to {SCHEDULES.most_rounds}, and of draws follow from it.",
            )
        records = _whole_records(total)
        plan = self._schedule(budget, records, Fraction(1), 1)
        amount = float(budget.amount) * float(plan.share)
        rate = bought_rate(amount, plan.draws, plan.rounds, float(records), pure=plan.pure)
        delta = SAID_DELTA if budget.delta is None else float(budget.delta)
        costs = draw_costs(draws=plan.draws, rounds=plan.rounds, rate=rate, units=float(records), delta=delta)
        return (
            f"DualQuery draws {plan.draws} queries in each of {plan.rounds} rounds at the learning rate {rate:.3g} "
            "(of single rows; fewer rounds where a unit has several) and finds a synthetic record in each.",
            f"The draws together are epsilon {costs.basic:.3g} by basic composition; at delta {delta:g} epsilon "
            f"{costs.advanced:.3g} by advanced composition, and {costs.from_zcdp:.3g} by zCDP (rho {costs.rho:.3g}). "
            f"Charged: {'basic' if plan.pure else 'zCDP'}.",
        )


class _RecordSearch:
    """Finds records for drawn candidates; it knows the domain and nothing of the data."""

    def __init__(self, sets: AnswerSets, rng: Generator, largest: int) -> None:
        self._sets = sets
        self._rng = rng
        self._largest = largest
        self._forbidden = _impossible(sets.domain)

    def even_draws(self, draws: int) -> list[int]:
        """Candidates drawn evenly: the first round, before any record could be compared."""
        return self._rng.integers(2 * len(self._sets), size=draws).tolist()

    def record(self, drawn: Sequence[int]) -> NDArray[np.int64]:
        """A record in as few of the drawn sets as possible: out of those drawn, and in those whose complement was."""
        sets = self._sets
        asked = [Conjunction(-1.0 if place < len(sets) else 1.0, sets.members(place % len(sets))) for place in drawn]
        return best_record(sets.domain.shape, [*asked, *self._forbidden], self._rng, largest_table=self._largest).codes


def _impossible(domain: Domain) -> list[Conjunction]:
    """The cells that cannot occur, as conjunctions that no record may meet."""
    names, found = domain.counted_names, []
    for rule in domain.impossible:
        members = []
        for name, codes in rule.codes:
            chosen = np.zeros(domain[name].size, dtype=np.bool_)
            chosen[list(codes)] = True
            members.append((names.index(name), chosen))
        found.append(Conjunction(-np.inf, tuple(members)))
    return found


def _scale(price: Budget, rows: int) -> float:
    """The scale of the Gumbel noise of all draws in units of the scores: that of a draw after one record."""
    amount = float(price.amount)
    epsilon = amount if price.additive_unit == "epsilon" else epsilon_for_rho(amount, "exponential")
    return selection_scale(sensitivity=rows, epsilon=epsilon)


def _whole_records(total: float) -> int:
    return min(LARGEST_RECORDS, max(1, round(float(total))))
