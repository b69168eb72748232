"""`measure`: from a confidential source to noisy measurements, for a price that the ledger holds.

The order is fixed: check everything that is declared, count, reserve the whole budget, draw, commit, show. An error
before the reservation, such as a source that cannot be read, costs nothing; one after it leaves the budget spent, and
the same request may be repeated, uncharged.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, overload, runtime_checkable

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours, check_neighbours
from consilience.errors import DeclarationError, LedgerError
from consilience.measurements import Measurement, MeasurementSet, PrivacyStatement
from consilience.privacy.budgets import Budget, budget
from consilience.privacy.gate import DataGate, Gate, PricingGate, Progress, zero_measurement
from consilience.privacy.ledger import Ledger, Reservation
from consilience.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise
from consilience.privacy.pricing import Price
from consilience.privacy.record_statistics import StatisticsPrice
from consilience.source import Source


class Plan(Protocol):
    """What to measure with which share of the budget."""

    def run(self, gate: Gate) -> None:
        """Measure through the gate; everything that was measured there becomes the result."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Plain data that identifies the plan: equal for equal plans."""
        ...


@runtime_checkable
class ExplainedPlan(Protocol):
    """A plan that makes choices of its own, and tells them to who pays."""

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """Sentences about what was chosen and what to expect, from measurements with zeros for answers."""
        ...


@dataclass(frozen=True)
class DryRun:
    """What a plan would cost and yield, found without touching data or ledger."""

    domain: Domain
    budget: Budget
    neighbours: Neighbours
    prices: tuple[Price | StatisticsPrice, ...]
    selections: tuple[Budget, ...]
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

    def example(self) -> MeasurementSet:
        """The measurements with zeros for answers, to ask an estimator whether it could fit such a set."""
        empty = tuple(zero_measurement(each) for price in self.prices for each in price.parts)
        return MeasurementSet(
            self.domain, (*empty, *self.kept), PrivacyStatement(neighbours=self.neighbours), {}, private=False
        )

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
    simulate: int | None = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> MeasurementSet | DryRun:
    """Noisy measurements of the source by the plan, charged to the ledger.

    `epsilon` alone is pure differential privacy with discrete Laplace noise; `rho`, or `epsilon` with `delta`, is
    zero-concentrated with discrete Gaussian noise. Without an `id` the request identifies itself by its contents (plan,
    domain, budget, neighbours, unit): repeating it returns the recorded values, uncharged. `take_over` vouches that a
    process on another machine, which began this request, has ended. `simulate` is a seed for noise that protects
    nothing: the result is stamped `private=False` and no ledger is charged. `dry_run` tells the price.
    """
    domain = source if isinstance(source, Domain) else source.domain
    rows_per_unit = 1 if isinstance(source, Domain) else source.max_rows_per_unit
    amounts = {"epsilon": epsilon, "delta": delta, "rho": rho}
    preview = price(domain, plan, **amounts, neighbours=neighbours, rows_per_unit=rows_per_unit)
    if dry_run or isinstance(source, Domain):
        return preview
    cost, relation = preview.budget, preview.neighbours
    release_id = _request_id(source, plan, cost, relation) if id is None else id
    if simulate is not None:
        if ledger is not None:
            raise DeclarationError("a simulation spends nothing and takes no ledger; drop 'simulate' or 'ledger'")
        return _run_simulated(source, plan, cost, relation, release_id, simulate, progress)
    book = _ledger_of(source, ledger)
    return _run_charged(source, plan, cost, relation, release_id, book, progress, take_over=take_over)


def price(
    domain: Domain,
    plan: Plan,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    neighbours: str = "add-remove",
    rows_per_unit: int = 1,
) -> DryRun:
    """What the plan would cost and yield on this domain; declarations alone decide it."""
    domain.refuse_draft()
    cost = budget(epsilon=epsilon, delta=delta, rho=rho)
    relation = check_neighbours(neighbours)
    gate = PricingGate(domain, cost, neighbours=relation, rows_per_unit=rows_per_unit)
    plan.run(gate)
    found = DryRun(domain, cost, relation, tuple(gate.prices), tuple(gate.selections), tuple(gate.kept))
    return replace(found, notes=plan.explain(found.example(), cost)) if isinstance(plan, ExplainedPlan) else found


def _ledger_of(source: Source, ledger: Ledger | None) -> Ledger:
    if ledger is not None:
        return ledger
    if source.default_ledger_path is None:
        raise LedgerError(
            "measuring spends privacy budget and needs a ledger; pass ledger=Ledger.open(path, epsilon=TOTAL)"
        )
    return Ledger.open(source.default_ledger_path)


def _run_charged(
    source: Source,
    plan: Plan,
    cost: Budget,
    neighbours: Neighbours,
    release_id: str,
    ledger: Ledger,
    progress: Progress | None,
    *,
    take_over: bool,
) -> MeasurementSet:
    """Check, reserve, draw, commit, and only then return."""
    noise = SecureNoise()  # refuses a biased sampler before the ledger is touched
    ledger.bind(source.domain.name)
    begun = ledger.knows(release_id)
    if not begun:
        ledger.check(cost)
    fingerprint = _contents(source, plan, cost, neighbours)
    description = json.dumps(plan.to_json(), sort_keys=True)
    with ExitStack() as held:

        def reserve() -> Reservation:
            return held.enter_context(
                ledger.reserve(
                    release_id, fingerprint=fingerprint, cost=cost, description=description, take_over=take_over
                )
            )

        gate = DataGate(
            source,
            cost,
            neighbours=neighbours,
            noise=noise,
            release_id=release_id,
            reserve=reserve,
            begun=begun,
            progress=progress,
        )
        plan.run(gate)
        replayed = gate.complete()
    provenance = _provenance(plan, release_id) | {"ledger": ledger.uid, "replayed": replayed}
    return _result(source, gate, cost, neighbours, provenance, private=True)


def _run_simulated(
    source: Source,
    plan: Plan,
    cost: Budget,
    neighbours: Neighbours,
    release_id: str,
    seed: int,
    progress: Progress | None,
) -> MeasurementSet:
    noise: NoiseSource = SimulatedNoise(seed)
    gate = DataGate(source, cost, neighbours=neighbours, noise=noise, release_id=release_id, progress=progress)
    plan.run(gate)
    provenance = _provenance(plan, release_id) | {"simulation_seed": seed}
    return _result(source, gate, cost, neighbours, provenance, private=False)


def _result(
    source: Source,
    gate: DataGate,
    cost: Budget,
    neighbours: Neighbours,
    provenance: Mapping[str, Any],
    *,
    private: bool,
) -> MeasurementSet:
    statement = PrivacyStatement(
        neighbours=neighbours,
        unit=_unit_of_protection(source),
        spent=cost.to_json(),
        public_facts=source.domain.public.describe(),
    )
    return MeasurementSet(source.domain, tuple(gate.measurements), statement, provenance, private)


def _unit_of_protection(source: Source) -> str:
    """What one protected unit is, in words."""
    return "row" if source.unit is None else f"{source.unit}, at most {source.max_rows_per_unit} rows"


def _provenance(plan: Plan, release_id: str) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "tool": "consilience",
        "version": version("consilience"),
        "plan": plan.to_json(),
        "release": release_id,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _contents(source: Source, plan: Plan, cost: Budget, neighbours: Neighbours) -> str:
    """A digest of everything that decides what is measured, and nothing of the data."""
    contents = [plan.to_json(), source.domain.fingerprint, cost.to_json(), neighbours, _unit_of_protection(source)]
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def _request_id(source: Source, plan: Plan, cost: Budget, neighbours: Neighbours) -> str:
    return "request-" + _contents(source, plan, cost, neighbours)[:16]
