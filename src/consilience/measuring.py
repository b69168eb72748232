"""`measure`: a plan is priced without data, then run on a confidential source for a price that the ledger holds.

What reads records and spends is `privacy.measure`. Here is what stands around it and sees neither: the price of a plan,
what the plan has to say about it, and the noisy measurements as a set.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol, overload, runtime_checkable

import numpy as np

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.sensitivity import Neighbours, check_neighbours
from consilience.domain.source_format import describe_amount, describe_weight
from consilience.errors import DeclarationError
from consilience.estimators.base import Suitability
from consilience.measurements.measurement import Measurement
from consilience.measurements.measurement_set import MeasurementSet
from consilience.measurements.privacy_statement import PrivacyStatement
from consilience.privacy.budgets import Budget, Number, budget
from consilience.privacy.gate import (
    Candidate,
    PricedRun,
    Progress,
    Taken,
    as_list,
    places_left,
    selections_named,
)
from consilience.privacy.ledger import Ledger
from consilience.privacy.measure import Plan, run_charged, run_simulated
from consilience.privacy.partitions import PartitionRule
from consilience.privacy.pricing import (
    Price,
    PricedQuery,
    PricedStatistic,
    RecordStatistic,
    StatisticsPrice,
    price_queries,
    price_statistics,
)
from consilience.privacy.scores import RecordScore, Score, Selector
from consilience.source import Source

AT_REST, BYTES_PER_ANSWER, BYTES_PER_MARGINAL = 250_000_000, 60, 2_000
"""What the program takes by itself, and above that for each noisy number and each table that is counted: by trial, the
rows of `python -m benchmarks scale`. A noisy number is held as a number, as text for the ledger, and in the result."""


@runtime_checkable
class ExplainedPlan(Protocol):
    """A plan that makes choices of its own, and tells them to who pays."""

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """Sentences about what was chosen and what to expect, from measurements with zeros for answers."""
        ...


@runtime_checkable
class AnsweringPlan(Protocol):
    """A plan for a workload, which is asked before anything is spent whether its account could answer that."""

    def check_answers(self, example: MeasurementSet) -> None:
        """Refuse the workload where an account of such measurements, with zeros for answers, could not answer it."""
        ...


@dataclass(frozen=True)
class DryRun:
    """What a plan would cost and yield, found without touching data or ledger."""

    domain: Domain
    plan: Plan
    budget: Budget
    neighbours: Neighbours
    rows_per_unit: int
    prices: tuple[Price | StatisticsPrice, ...]
    selections: tuple[Budget, ...]
    readings: int = 1
    """How often the records would be read, where what was counted or brought together fits in memory."""
    marginals: tuple[tuple[str, ...], ...] = ()
    """What would be counted: where choices depend on what was measured, as if the first candidate was chosen."""
    kept: tuple[Measurement, ...] = ()
    """What private selections would leave in the result."""
    notes: tuple[str, ...] = ()
    """What the plan has to say about its choices."""

    @property
    def answers(self) -> int:
        """How many noisy numbers would be made."""
        return sum(each.size for price in self.prices for each in price.parts)

    @property
    def bytes(self) -> int:
        """About how large the measurement file would be, before compression."""
        return 8 * self.answers

    @property
    def recorded_bytes(self) -> int:
        """About how much the ledger would hold at most: a whole number of 20 digits and a separator for each answer."""
        return 22 * self.answers

    @property
    def peak_bytes(self) -> int:
        """About how much memory measuring takes at its peak, the program included."""
        counted = sum(math.prod(self.domain.sizes(names)) for names in self.marginals)
        return AT_REST + BYTES_PER_ANSWER * self.answers + 8 * counted + BYTES_PER_MARGINAL * len(self.marginals)

    def peak_bytes_of(self, fit: Suitability) -> int:
        """About how much memory a release takes at its peak, which is in measuring or in the fit."""
        return max(self.peak_bytes, AT_REST + self.bytes + fit.predicted_bytes)

    def example(self) -> MeasurementSet:
        """The measurements with zeros for answers, to ask an estimator whether it could fit such a set."""
        empty = tuple(zero_measurement(each) for price in self.prices for each in price.parts)
        return MeasurementSet(
            self.domain, (*empty, *self.kept), PrivacyStatement(neighbours=self.neighbours), {}, private=False
        )

    def check_answers(self) -> None:
        """Refuse a plan whose measurements could not be turned into the answers that it is for; looks once."""
        return self._answers_checked

    @cached_property
    def _answers_checked(self) -> None:
        if isinstance(self.plan, AnsweringPlan):
            self.plan.check_answers(self.example())

    def rows(self) -> list[dict[str, Any]]:
        """One row for each query or statistic: what it asks, how many answers, and the noise on each."""
        return [
            {
                "query": each.asks,
                "answers": each.size,
                "noise": each.noise.law,
                "scale": each.noise.scale_parameter,
                "stddev": each.noise.variance**0.5,
            }
            for price in self.prices
            for each in price.parts
        ]


@overload
def measure(
    source: Source,
    plan: Plan,
    *,
    ledger: Ledger | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    neighbours: str = "add-remove",
    id: str | None = None,
    take_over: bool = False,
    convert: bool = False,
    simulate: int | None = None,
    progress: Progress | None = None,
    dry_run: Literal[False] = False,
) -> MeasurementSet: ...


@overload
def measure(
    source: Source | Domain,
    plan: Plan,
    *,
    ledger: Ledger | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    neighbours: str = "add-remove",
    id: str | None = None,
    take_over: bool = False,
    convert: bool = False,
    simulate: int | None = None,
    progress: Progress | None = None,
    dry_run: Literal[True],
) -> DryRun: ...


def measure(
    source: Source | Domain,
    plan: Plan,
    *,
    ledger: Ledger | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    neighbours: str = "add-remove",
    id: str | None = None,  # noqa: A002 (the word that users, files and the command line share)
    take_over: bool = False,
    convert: bool = False,
    simulate: int | None = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> MeasurementSet | DryRun:
    """Noisy measurements of the source by the plan, charged to the ledger.

    `epsilon` alone is pure differential privacy with discrete Laplace noise; `rho`, or `epsilon` with `delta`, is
    zero-concentrated with discrete Gaussian noise. Without an `id` the request identifies itself by its contents (plan,
    domain, budget, neighbours, unit) and its source: repeating it returns the recorded values, uncharged. `take_over`
    vouches that a process on another machine, which began this request, has ended. `convert` accepts the cost under
    what the ledger protects, where the request protects another unit or neighbour relation. `simulate` is a seed for
    noise that protects nothing: the result is stamped `private=False` and no ledger is charged. `dry_run` tells the
    price.

    >>> import consilience as cs
    >>> import pyarrow as pa
    >>> domain = cs.Domain("survey", (cs.Attribute.categorical("sex", ["F", "M"]),))
    >>> source = cs.open_table(pa.table({"sex": ["F", "M", "F"]}), domain)
    >>> measured = measure(source, cs.plans.Marginals(["sex"]), epsilon=1, simulate=0)
    >>> len(measured), measured.private
    (1, False)
    """
    domain = source if isinstance(source, Domain) else source.domain
    rows_per_unit = 1 if isinstance(source, Domain) else source.max_rows_per_unit
    amounts = {"epsilon": epsilon, "delta": delta, "rho": rho}
    priced = price(domain, plan, **amounts, neighbours=neighbours, rows_per_unit=rows_per_unit)
    if dry_run or isinstance(source, Domain):
        return priced
    return measure_as_priced(
        source,
        priced,
        ledger=ledger,
        id=id,
        take_over=take_over,
        convert=convert,
        simulate=simulate,
        progress=progress,
    )


def measure_as_priced(
    source: Source,
    priced: DryRun,
    *,
    ledger: Ledger | None = None,
    id: str | None = None,  # noqa: A002 (as in `measure`)
    take_over: bool = False,
    convert: bool = False,
    simulate: int | None = None,
    progress: Progress | None = None,
) -> MeasurementSet:
    """What `measure` gives of a plan whose price is known: it is not run again to find that out.

    The price must be of this source: of its domain, and of as many rows for each protected unit.
    """
    declared = (priced.domain.fingerprint, priced.rows_per_unit)
    if declared != (source.domain.fingerprint, source.max_rows_per_unit):
        raise DeclarationError(
            f"the price is of {priced.domain.name!r} with {priced.rows_per_unit} rows for each protected unit, and the "
            f"source is declared as {source.domain.name!r} with {source.max_rows_per_unit}; price what is measured"
        )
    if source.reads_once and priced.readings > 1:
        raise DeclarationError(
            f"this plan reads the records about {priced.readings} times, each step after what the one before it gave, "
            "and the data is a stream that is gone when it has been read; save it as Parquet and open that, or choose "
            "a plan that measures everything at once"
        )
    run = (source, priced.plan, priced.budget, priced.neighbours)
    if simulate is None:
        drawn = run_charged(
            *run,
            ledger=ledger,
            id=id,
            take_over=take_over,
            convert=convert,
            size=priced.recorded_bytes,
            check=priced.check_answers,
            progress=progress,
        )
    elif ledger is not None:
        raise DeclarationError("a simulation spends nothing and takes no ledger; drop 'simulate' or 'ledger'")
    else:
        priced.check_answers()
        drawn = run_simulated(*run, id=id, seed=simulate, progress=progress)
    statement = PrivacyStatement(
        neighbours=drawn.protection.neighbours,
        unit=drawn.protection.unit_text,
        spent=priced.budget.to_json(),
        public_facts=source.domain.public.describe(),
        notes=_notes_on_what_is_added(source.domain, drawn.measurements),
    )
    return MeasurementSet(source.domain, drawn.measurements, statement, drawn.provenance, drawn.private)


def _notes_on_what_is_added(domain: Domain, measurements: Iterable[Measurement]) -> tuple[str, ...]:
    """What records add to counts, and to sums, where that is not 1."""
    amounts = dict.fromkeys(each.amount for each in measurements if each.amount is not None)
    weights = () if domain.weight is None else (describe_weight(domain.weight),)
    return (*weights, *(describe_amount(domain.amount(name)[0]) for name in amounts))


def price(
    domain: Domain,
    plan: Plan,
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    failure_delta: Number | None = None,
    neighbours: str = "add-remove",
    rows_per_unit: int = 1,
) -> DryRun:
    """What the plan would cost and yield on this domain; declarations alone decide it."""
    domain.refuse_draft()
    cost = budget(epsilon=epsilon, delta=delta, rho=rho, failure_delta=failure_delta)
    relation = check_neighbours(neighbours)
    gate = PricingGate(domain, cost, neighbours=relation, rows_per_unit=rows_per_unit)
    plan.run(gate)
    found = DryRun(
        domain=domain,
        plan=plan,
        budget=cost,
        neighbours=relation,
        rows_per_unit=rows_per_unit,
        prices=tuple(gate.prices),
        selections=tuple(gate.selections),
        readings=gate.readings,
        marginals=tuple(gate.marginals),
        kept=tuple(gate.kept),
    )
    return replace(found, notes=plan.explain(found.example(), cost)) if isinstance(plan, ExplainedPlan) else found


class PricingGate(PricedRun):
    """A gate without data, for dry runs: it prices every step and answers with zeros."""

    def __init__(self, domain: Domain, budget: Budget, *, neighbours: Neighbours, rows_per_unit: int) -> None:
        super().__init__(domain, budget, neighbours=neighbours, rows_per_unit=rows_per_unit)
        self.prices: list[Price | StatisticsPrice] = []
        self.selections: list[Budget] = []
        self.kept: list[Measurement] = []
        self.readings = 0
        self.marginals: dict[tuple[str, ...], None] = {}
        self._points: tuple[str, ...] | None = None
        self._scored: object = None

    def _read(self, marginals: Iterable[tuple[str, ...]] = (), *, points: tuple[str, ...] | None = None) -> None:
        """Note what a step would read, besides what the gate to the data has kept from steps before."""
        missing = [names for names in marginals if names not in self.marginals]
        self.readings += bool(missing) + (points not in (None, self._points))
        self.marginals |= dict.fromkeys(missing)
        self._points = self._points if points is None else points

    def measure(
        self,
        queries: Query | Sequence[Query],
        budget: Budget,
        *,
        shares: Sequence[float] | None = None,
        sensitivity_at_least: float = 0.0,
    ) -> tuple[Measurement, ...]:
        asked, least = as_list(queries), sensitivity_at_least
        price = self.priced(price_queries, asked, budget, shares=shares, sensitivity_at_least=least)
        self.account.charge(budget)
        self.prices.append(price)
        self._read(each.bound.attributes for each in price.queries)
        return tuple(zero_measurement(each) for each in price.queries)

    def measure_sums(
        self, amount: str, queries: Sequence[Query], budget: Budget, *, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        price = self.priced(price_queries, queries, budget, shares=shares, amount=amount)
        self.account.charge(budget)
        self.prices.append(price)
        self.readings += 1
        return tuple(zero_measurement(each) for each in price.queries)

    def sum_records(
        self,
        statistics: Sequence[RecordStatistic],
        budget: Budget,
        *,
        shares: Sequence[float] | None = None,
        round: int | None = None,  # noqa: A002
    ) -> tuple[Measurement, ...]:
        price = self.priced(price_statistics, statistics, budget, shares=shares, round=round)
        self.account.charge(budget)
        self.prices.append(price)
        for each in price.statistics:
            self._read(points=each.statistic.attributes)
        return tuple(zero_measurement(each) for each in price.statistics)

    def select(
        self, score: Score[Candidate], budget: Budget, *, selector: Selector = "permute-and-flip", besides: Taken = ()
    ) -> Candidate:
        score.check(self.domain)
        self.domain.refuse_weight("a private choice")
        if score is not self._scored:  # one score may be drawn by a thousand times
            self.domain.refuse_unreleased(dict.fromkeys(itertools.chain(*score.marginals)), "the plan")
        self.account.charge(budget)
        self.selections.append(budget)
        if isinstance(score, RecordScore):
            self._read(points=score.attributes)
        elif score is not self._scored:
            self._read(score.marginals)
        self._scored = score
        return score.candidates[places_left(score, besides)[0]]

    def partition(self, rule: PartitionRule, budget: Budget) -> tuple[int, ...]:
        rule.check(self.domain)
        self.domain.refuse_weight("a private partition")
        self.domain.refuse_unreleased([rule.attribute], "the plan")
        self.account.charge(budget)
        self.selections.append(budget)
        self._read([(rule.attribute,)])
        return (0,)

    def find_values(self, attribute: str, budget: Budget) -> tuple[str, ...]:
        self.value_selection(attribute, budget)
        self.selections.append(budget)
        return ()

    def keep(self, selections: Measurement) -> None:
        self.kept.append(selections_named(selections, ""))


def zero_measurement(priced: PricedQuery | PricedStatistic) -> Measurement:
    """A measurement of this query or statistic with zeros for answers."""
    return priced.measurement(np.zeros(priced.size, np.int64), "")
