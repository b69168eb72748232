"""`measure`: from a confidential source to noisy measurements, for a price that the ledger holds.

The order is fixed: check everything that is declared, count, reserve the whole budget, draw, commit, show. An error
before the reservation, such as a file that cannot be read, costs nothing; one after it leaves the budget spent, and
the same request may be repeated, uncharged. A query, a view or a lazy plan is code that may fail on some rows and not
on others: for these the budget is reserved before the first row is read.

A request is its plan, domain, budget, neighbours and unit (together its fingerprint), and its source. The ledger keeps
the source in full; what is published holds a digest of it that nobody can guess at without the ledger's secret.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, Protocol, overload, runtime_checkable

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours, check_neighbours
from consilience.errors import DeclarationError, LedgerError
from consilience.measurements.measurement import Measurement
from consilience.measurements.measurement_set import MeasurementSet, checksum
from consilience.measurements.privacy_statement import PrivacyStatement
from consilience.privacy.budgets import Budget, budget
from consilience.privacy.gate import DataGate, Gate, PricingGate, Progress, zero_measurement
from consilience.privacy.ledger import Ledger, told_apart_by
from consilience.privacy.ledger_file import LedgerEntry
from consilience.privacy.ledger_places import ledger_place
from consilience.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise
from consilience.privacy.pricing import Price
from consilience.privacy.protection import Protection
from consilience.privacy.record_statistics import StatisticsPrice
from consilience.privacy.reservations import Reservation
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


@runtime_checkable
class AnsweringPlan(Protocol):
    """A plan for a workload, which is asked before anything is spent whether its account could answer that."""

    def check_answers(self, example: MeasurementSet) -> None:
        """Refuse the workload where an account of such measurements, with zeros for answers, could not answer it."""
        ...


@runtime_checkable
class ChangedPlan(Protocol):
    """A plan whose defaults measure something else than they did in earlier versions."""

    @property
    def earlier(self) -> Plan | None:
        """The plan that these settings were; None where they are no defaults. Its requests answer where recorded."""
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
    plan = priced.plan
    request = _Request(source, plan, priced.budget, priced.neighbours)
    if simulate is not None:
        if ledger is not None:
            raise DeclarationError("a simulation spends nothing and takes no ledger; drop 'simulate' or 'ledger'")
        priced.check_answers()
        return _run_simulated(request, request.earlier_id if id is None else id, simulate, progress)
    book = _ledger_of(source, ledger)
    noise = SecureNoise()  # refuses a biased sampler before the ledger is touched
    book.bind(source.domain.name)
    request = request.as_recorded(book, id)
    release_id = request.id_in(book) if id is None else id
    begun = book.knows(release_id)
    if not begun:
        priced.check_answers()
        book.check(request.cost, protection=request.protection, convert=convert, size=priced.recorded_bytes)

    def reserve() -> Reservation:
        return book.reserve(
            release_id,
            fingerprint=request.fingerprint,
            cost=request.cost,
            description=json.dumps(request.plan.to_json(), sort_keys=True),
            source=request.source_seen_from(book),
            protection=request.protection,
            convert=convert,
            take_over=take_over,
        )

    return _run_charged(request, release_id, book, reserve, noise, progress, begun=begun)


def charged_elsewhere(
    source: Source, plan: Plan, ledger: Ledger, cost: Budget, neighbours: str
) -> tuple[LedgerEntry, ...]:
    """Charges in this ledger for the same request of other sources; none where this source's own is there."""
    request = _Request(source, plan, cost, check_neighbours(neighbours)).as_recorded(ledger)
    if ledger.knows(request.id_in(ledger)):
        return ()
    return ledger.elsewhere(request.fingerprint, request.source_seen_from(ledger))


@dataclass(frozen=True)
class _Request:
    """What is asked, by everything that decides what is measured, and nothing of the data."""

    source: Source
    plan: Plan
    cost: Budget
    neighbours: Neighbours

    @property
    def protection(self) -> Protection:
        return Protection(self.source.unit, self.source.max_rows_per_unit, self.neighbours)

    @property
    def fingerprint(self) -> str:
        """A digest of everything but the source: its formula is part of the ledger's format."""
        domain, unit = self.source.domain.fingerprint, self.protection.unit_text
        contents = [self.plan.to_json(), domain, self.cost.to_json(), self.neighbours, unit]
        return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()

    @property
    def earlier_id(self) -> str:
        """The id without the source, as earlier versions made it."""
        return "request-" + self.fingerprint[:16]

    def id_in(self, ledger: Ledger) -> str:
        """The id by which the ledger knows this request, or will: it is published, and tells nothing of the source."""
        earlier = ledger.entry(self.earlier_id)
        if earlier is not None and earlier.source is None and earlier.fingerprint == self.fingerprint:
            return self.earlier_id
        return "request-" + ledger.salted(self.fingerprint + self.source_text(ledger))[:16]

    def as_recorded(self, ledger: Ledger, id: str | None = None) -> "_Request":  # noqa: A002 (as in `measure`)
        """The request as it was before its plan's defaults changed, where the ledger holds that one and not this."""
        plan = self.plan.earlier if isinstance(self.plan, ChangedPlan) else None
        if plan is None or (id is None and ledger.knows(self.id_in(ledger))):
            return self
        earlier = replace(self, plan=plan)
        entry = ledger.entry(earlier.id_in(ledger) if id is None else id)
        return earlier if entry is not None and entry.fingerprint == earlier.fingerprint else self

    def source_seen_from(self, ledger: Ledger) -> dict[str, Any]:
        return self.source.identity.seen_from(ledger.path.parent)

    def source_text(self, ledger: Ledger) -> str:
        """What tells the source from others; where data and ledger lie together is no part of it."""
        return json.dumps(told_apart_by(self.source_seen_from(ledger)), sort_keys=True)


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
    found = DryRun(
        domain=domain,
        plan=plan,
        budget=cost,
        neighbours=relation,
        rows_per_unit=rows_per_unit,
        prices=tuple(gate.prices),
        selections=tuple(gate.selections),
        kept=tuple(gate.kept),
    )
    return replace(found, notes=plan.explain(found.example(), cost)) if isinstance(plan, ExplainedPlan) else found


def _ledger_of(source: Source, ledger: Ledger | None) -> Ledger:
    if ledger is not None:
        return ledger
    if source.default_ledger_path is None:
        raise LedgerError(
            "measuring spends privacy budget and needs a ledger; pass ledger=Ledger.open(path, epsilon=TOTAL)"
        )
    return Ledger.open(ledger_place(source))


def _run_charged(
    request: _Request,
    release_id: str,
    ledger: Ledger,
    reserve: Callable[[], Reservation],
    noise: NoiseSource,
    progress: Progress | None,
    *,
    begun: bool,
) -> MeasurementSet:
    """Reserve, draw, commit, and only then return."""
    with ExitStack() as held:
        gate = DataGate(
            request.source,
            request.cost,
            neighbours=request.neighbours,
            noise=noise,
            release_id=release_id,
            reserve=lambda: held.enter_context(reserve()),
            begun=begun,
            progress=progress,
        )
        request.plan.run(gate)
        replayed = gate.complete()
    provenance: dict[str, Any] = {**_provenance(request, release_id), "ledger": ledger.uid, "replayed": replayed}
    provenance["source"]["digest"] = ledger.salted(request.source_text(ledger))
    return _result(request, gate, provenance, private=True)


def _run_simulated(request: _Request, release_id: str, seed: int, progress: Progress | None) -> MeasurementSet:
    noise: NoiseSource = SimulatedNoise(seed)
    gate = DataGate(
        request.source,
        request.cost,
        neighbours=request.neighbours,
        noise=noise,
        release_id=release_id,
        progress=progress,
    )
    request.plan.run(gate)
    provenance = _provenance(request, release_id) | {"simulation_seed": seed}
    return _result(request, gate, provenance, private=False)


def _result(request: _Request, gate: DataGate, provenance: Mapping[str, Any], *, private: bool) -> MeasurementSet:
    domain = request.source.domain
    statement = PrivacyStatement(
        neighbours=request.neighbours,
        unit=request.protection.unit_text,
        spent=request.cost.to_json(),
        public_facts=domain.public.describe(),
    )
    recorded = {"checksum": checksum(gate.measurements)}
    return MeasurementSet(domain, tuple(gate.measurements), statement, {**provenance, **recorded}, private)


def _provenance(request: _Request, release_id: str) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "tool": "consilience",
        "version": version("consilience"),
        "plan": request.plan.to_json(),
        "release": release_id,
        "source": {"name": request.source.identity.name or request.source.name},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
