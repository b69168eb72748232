"""What is asked of a confidential table: checked, priced, charged and measured.

    Request ──► price ──► checks ──► ledger ──► measure ──► estimate ──► bundle
    (declared)  (one run of the plan)           (the other run)          `Release`

Everything declared is checked before anything is spent: what no estimator could fit, what nobody could answer and where
nothing could be written. What happens is told to the logger "consilience": in a line each, details at the level DEBUG.
"""

import filecmp
import itertools
import logging
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from consilience.domain.domains import Domain
from consilience.domain.files import shown_path
from consilience.domain.queries import Query
from consilience.domain.sensitivity import check_neighbours
from consilience.domain.workloads import Workload
from consilience.errors import BudgetExceeded, DeclarationError, LedgerError
from consilience.estimators import estimate
from consilience.estimators.base import Estimator, Progress, Suitability, check_level
from consilience.estimators.choose import check_answers, check_method
from consilience.measurements import MeasurementSet
from consilience.measuring import DryRun, measure_as_priced, price
from consilience.plans import chosen_plan, plan_from_text
from consilience.plans.answering import asked_queries
from consilience.plans.base import in_two_parts
from consilience.plans.best_buy import BUYING, BestBuy
from consilience.plans.sums import SUMS_SHARE, WithSums, counts_and_sums
from consilience.privacy.budgets import Budget, Number, budget
from consilience.privacy.ledger import Ledger
from consilience.privacy.measure import Plan, charged_elsewhere, ledger_place
from consilience.publication.bundle import is_bundle
from consilience.publication.intervals.refits import check_refits
from consilience.publication.release import Release, publish
from consilience.source import Source, open_table
from consilience.source.tables import is_address, matching_files

if TYPE_CHECKING:
    from consilience.discovering import DiscoveredDomain, Discovery
    from consilience.estimators.reweighted import PublicRecords

logger = logging.getLogger("consilience")

File = str | os.PathLike[str]


class Asked(TypedDict, total=False):
    """What a request may say beside its data, its domain and its plan; `Request` has the meanings."""

    epsilon: float | None
    delta: float | None
    rho: float | None
    ledger: Ledger | File | None
    budget: float | None
    id: str | None
    neighbours: str
    unit: str | None
    max_rows_per_unit: int | None
    table: str | None
    query: str | None
    name: str | None
    simulate: int | None
    take_over: bool
    convert: bool
    allow_cluster_disk: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """What is to be measured, of which table, with which budget. The plan is run once to price it, once for real."""

    data: object
    """The confidential table: whatever `open_table` takes."""
    domain: Domain
    plan: Plan | str | None = None
    """What to measure, as a plan or as its text; without one it is chosen for the workload."""
    workload: Workload | None = None
    """What the release will be asked; all pairs of attributes where neither this nor a plan is given."""
    unnamed_share: float | None = None
    """Of the budget, for attributes that the workload does not name."""
    sums_share: float | None = None
    """Of the budget, for sums of declared amounts that the workload names; with 0 they are made of bins."""
    epsilon: Number | None = None
    delta: Number | None = None
    rho: Number | None = None
    failure_delta: Number | None = None
    """With rho: how often what is found of open lists may break its promise."""
    discover_share: float | None = None
    """Of the budget, for what the domain leaves to be found."""
    ledger: Ledger | File | None = None
    """By default it lies beside the data, and is created on first use."""
    budget: float | None = None
    """The total of a new ledger, in the unit asked with; by default this first request."""
    id: str | None = None
    neighbours: str = "add-remove"
    unit: str | None = None
    max_rows_per_unit: int | None = None
    table: str | None = None
    query: str | None = None
    name: str | None = None
    simulate: int | None = None
    """A seed for noise that protects nothing; then no ledger is opened."""
    take_over: bool = False
    convert: bool = False
    allow_cluster_disk: bool = False
    """On Spark: shuffles may write codes of records and units to disks that Spark does not encrypt."""

    def __post_init__(self) -> None:
        if self.workload is not None:
            object.__setattr__(self, "workload", self.workload.over(self.domain))

    @cached_property
    def chosen(self) -> Plan:
        """The plan that was asked for, or the one that suits the workload."""
        if self.discovery is not None:
            return self.expected.chosen
        for line in () if self.workload is None else self.workload.notes:
            logger.info("%s", line)
        for_sums = SUMS_SHARE if self.sums_share is None else self.sums_share
        wanted, sums = self.workload, ()
        if wanted is not None and for_sums != 0:
            wanted, sums = counts_and_sums(wanted, self.domain)
        if self.plan is not None:
            if self.unnamed_share is not None:
                raise DeclarationError("a named plan measures what it names; choose one of plan= and unnamed_share=")
            plan = plan_from_text(self.plan, wanted) if isinstance(self.plan, str) else self.plan
            if isinstance(plan, WithSums):
                return plan if self.sums_share is None else replace(plan, share=self.sums_share)
            return WithSums(plan, sums, for_sums) if sums and isinstance(self.plan, str) else plan
        if wanted is None and math.comb(len(self.domain.counted_names), 2) > BUYING.most_listed:
            logger.info("plan: best-buy, for all pairs of attributes")
            return BestBuy(ways=2, neighbours=self.neighbours)
        if wanted is None:
            wanted = Workload.marginals(self.domain, ways=min(2, len(self.domain.counted_names)))
        asked = in_two_parts(self.asked, for_sums)[1] if sums else self.asked
        share = {} if self.unnamed_share is None else {"unnamed_share": self.unnamed_share}
        plan, reasons = chosen_plan(self.domain, wanted, asked, self.neighbours, **share)
        logger.info("plan: %s", plan.to_json()["plan"])
        for reason in reasons:
            logger.debug("  %s", reason)
        return WithSums(plan, sums, for_sums) if sums else plan

    @cached_property
    def asked(self) -> Budget:
        """The budget, all of it."""
        return budget(epsilon=self.epsilon, delta=self.delta, rho=self.rho, failure_delta=self.failure_delta)

    @cached_property
    def discovery(self) -> "Discovery | None":
        """What is to be found first, and the budget for it; None where the domain declares everything."""
        if not self.domain.to_find:
            if self.discover_share is not None or self.failure_delta is not None:
                raise DeclarationError(
                    f"domain {self.domain.name!r} leaves nothing to be found: leave out discover_share= and "
                    "failure_delta=, or write 'discover' in place of values, edges or bounds"
                )
            return None
        from consilience.discovering import DEFAULT_SHARE, Discovery

        share = DEFAULT_SHARE if self.discover_share is None else self.discover_share
        relation = check_neighbours(self.neighbours)
        return Discovery(self.domain, self.asked, share, relation, self.max_rows_per_unit or 1)

    def _over(self, domain: Domain, rest: Budget) -> "Request":
        """What is asked when this domain was found, and so much is left for it."""
        none = dict.fromkeys(("epsilon", "delta", "rho", "failure_delta", "discover_share", "budget"))
        return replace(self, **none | {"domain": domain, rest.additive_unit: rest.amount})

    @cached_property
    def expected(self) -> "Request":
        """The request for a domain of the size that may be found."""
        found = self.discovery
        return self if found is None else self._over(found.expected, found.rest)

    @cached_property
    def priced(self) -> DryRun:
        """What the request would cost and yield; neither data nor ledger is touched."""
        if self.discovery is not None:
            expected = self.expected.priced
            return replace(expected, notes=(*self.discovery.notes, *expected.notes))
        return price(
            self.domain,
            self.chosen,
            epsilon=self.epsilon,
            delta=self.delta,
            rho=self.rho,
            neighbours=self.neighbours,
            rows_per_unit=self.max_rows_per_unit or 1,
        )

    @property
    def queries(self) -> Sequence[Query]:
        """What the release will be asked: the workload that was given, or the one that the plan is for."""
        if self.discovery is not None:
            return self.expected.queries
        return asked_queries(self.chosen, self.domain) if self.workload is None else tuple(self.workload.queries)

    def check(self, method: Estimator | str = "auto", public: "PublicRecords | None" = None) -> Suitability:
        """What the fit would take. What the estimator could not fit, or could not answer the workload from, is refused;
        nothing is touched."""
        example = self.priced.example()
        if public is not None:
            from consilience.estimators.reweighted import with_public

            _refuse_own_records(self.data, public)
            method = with_public(method, public, example)
        suitable = check_method(example, method)
        check_answers(example, method, self.queries)
        return suitable

    def find(
        self, *, before_charge: Callable[[Ledger], None] | None = None, progress: Progress | None = None
    ) -> "DiscoveredDomain":
        """Find what the domain leaves to be found, charged to the ledger; what was found before is found there."""
        discovery = self.discovery
        if discovery is None:
            raise DeclarationError(
                f"domain {self.domain.name!r} leaves nothing to be found; write 'discover' in place of values, "
                "edges or bounds"
            )
        source = self._opened(discovery.expected)
        if source.reads_once:
            raise DeclarationError(
                "what is to be found takes a reading of its own, and the data is a stream that is gone when it has "
                "been read; save it as Parquet and open that"
            )
        book = None if self.simulate is not None else self._open_ledger(source)
        if book is not None and before_charge is not None:
            before_charge(book)
        spent = None if book is None else book.spent
        options = {"simulate": self.simulate, "take_over": self.take_over, "convert": self.convert}
        found = discovery.find(self._opened, book, progress=progress, **options)
        logger.info("%s", found.describe())
        if book is not None and book.spent == spent:
            logger.info("all of it was found before: nothing was spent for it")
        return found

    def domain_beside(self, out: File, *, overwrite: bool = False) -> Path | None:
        """Where the domain that is found is written, beside what is made with it; None where all was declared."""
        if self.discovery is None:
            return None
        place = Path(out).absolute()
        place = place.with_name(f"{place.stem if place.suffix == '.parquet' else place.name}.domain.toml")
        if place.exists() and (not overwrite or Domain.load(place).to_find):
            raise DeclarationError(
                f"{shown_path(place)} exists already, and the domain that is found is written there; choose another "
                "name for what is made, or move that file"
            )
        return place

    def measure(
        self,
        *,
        domain_out: Path | None = None,
        ready: "Callable[[Request], object] | None" = None,
        before_charge: Callable[[Ledger], None] | None = None,
        progress: Progress | None = None,
    ) -> MeasurementSet:
        """Measure and charge the ledger, or simulate; everything declared is checked before anything is spent.

        What the domain leaves to be found is found first, and the domain then written to `domain_out`; `ready` is
        called with the request for it before that is measured. `before_charge` is called with the ledger before
        anything is drawn.
        """
        if self.discovery is not None:
            self.priced.check_answers()
            found = self.find(before_charge=before_charge, progress=progress)
            if domain_out is not None:
                found.save(domain_out)
            asked = self._over(found.domain, self.discovery.rest)
            if ready is not None:
                ready(asked)
            return found.stated_with(asked.measure(progress=progress), self.asked, self.discovery.rest)
        priced = self.priced
        source = self._opened()
        book = None if self.simulate is not None else self._open_ledger(source)
        if book is not None:
            self._tell_charged_elsewhere(source, book)
            if before_charge is not None:
                before_charge(book)
        measured = measure_as_priced(
            source,
            priced,
            ledger=book,
            id=self.id,
            take_over=self.take_over,
            convert=self.convert,
            simulate=self.simulate,
            progress=progress,
        )
        _tell_spent(measured, priced.budget, book)
        return measured

    def statements(self) -> list[str]:
        """The SQL that would count what the plan asks for; the engine describes the table, and no row is read."""
        return self._opened().statements(self.priced.marginals)

    def _opened(self, domain: Domain | None = None) -> Source:
        return open_table(
            self.data,
            self.domain if domain is None else domain,
            table=self.table,
            query=self.query,
            unit=self.unit,
            max_rows_per_unit=self.max_rows_per_unit,
            name=self.name,
            allow_cluster_disk=self.allow_cluster_disk,
        )

    def release(
        self,
        out: File,
        *,
        method: Estimator | str = "auto",
        public: "PublicRecords | None" = None,
        allow_misfit: bool = False,
        interval: float | None = None,
        refits: int = 200,
        seed: int = 0,
        overwrite: bool = False,
        before_charge: Callable[[Ledger], None] | None = None,
        progress: Progress | None = None,
    ) -> Release:
        """Measure, estimate and write the bundle, as `release` does."""
        place = Path(out)
        if place.exists() and not (overwrite and is_bundle(place)):
            raise DeclarationError(f"{place} exists already; choose another name, or replace a bundle: overwrite=True")
        if interval is not None:
            check_level(interval)
            check_refits(refits)
        self.check(method, public)
        measured = self.measure(
            domain_out=self.domain_beside(place, overwrite=overwrite),
            ready=lambda asked: asked.check(method, public),
            before_charge=before_charge,
            progress=progress,
        )
        fitted = estimate(measured, method=method, public=public, allow_misfit=allow_misfit, progress=progress)
        return publish(
            fitted, place, interval=interval, refits=refits, seed=seed, overwrite=overwrite, progress=progress
        )

    def _open_ledger(self, source: Source) -> Ledger:
        """The ledger of the source, created on first use with the total that was asked for, or with this request."""
        place = self.ledger.path if isinstance(self.ledger, Ledger) else Path(self.ledger or ledger_place(source))
        if not place.exists():
            if self.discover_share != 1:
                self.priced.check_answers()
            return Ledger.create(place, dataset=source.domain.name, total=self._total)
        if self.budget is not None:
            given = Ledger.open(place).total
            if float(given.epsilon or given.rho or 0) != self.budget:
                raise LedgerError(
                    f"budget={self.budget:g} was given, but the ledger {place} holds a total of {given.describe()}; "
                    "a total is set once: leave budget= out"
                )
        return Ledger.open(place, dataset=source.domain.name)

    @property
    def _total(self) -> Budget:
        asked = self.asked
        if self.budget is None:
            return asked
        failing = {"rho": self.budget, "failure_delta": self.failure_delta}
        total = budget(**failing) if asked.unit == "rho" else budget(epsilon=self.budget, delta=asked.delta)
        if asked.amount > total.amount:
            raise BudgetExceeded(
                f"asked for {asked.describe()}, but the new ledger's total would be {total.describe()}; "
                "lower the request or raise budget="
            )
        return total

    def _tell_charged_elsewhere(self, source: Source, book: Ledger) -> None:
        """Before anything is spent: the same request of another source was charged already, and this one will be."""
        if self.id is None:
            for entry in charged_elsewhere(source, self.chosen, book, self.priced.budget, self.neighbours):
                told = ", ".join(f"{name} {value!r}" for name, value in (entry.source or {}).items() if value)
                logger.info(
                    "the ledger holds this request for another source (%s); for this one it is charged anew", told
                )


def _tell_spent(measured: MeasurementSet, cost: Budget, book: Ledger | None) -> None:
    if book is None:
        logger.warning("NOT PRIVATE: the noise was simulated from a seed and protects nothing")
    elif measured.provenance["replayed"]:
        logger.info(
            "this request was made before (%s); its recorded values were used again and nothing was spent. For fresh "
            "noise give it another id=",
            measured.provenance["release"],
        )
    else:
        entry = book.entry(measured.provenance["release"])
        charged = f", charged as {entry.charged.describe()}" if entry is not None and entry.charged else ""
        place = shown_path(book.path)
        logger.info("spent %s%s; %s remains in %s", cost.describe(), charged, book.remaining_text, place)


def _refuse_own_records(data: object, public: "PublicRecords") -> None:
    """Refuse public records that are the confidential table itself, or a copy of its file."""
    if not isinstance(data, str | os.PathLike) or is_address(data):
        return
    for own, other in itertools.product(matching_files(os.fsdecode(data)), public.files):
        if os.path.realpath(own) == other or filecmp.cmp(own, other, shallow=False):
            raise DeclarationError(
                f"{shown_path(own)} is to be measured, and {shown_path(Path(other))}, the same table, was given as the "
                "public records: what is confidential is not public; name another file"
            )
