"""A plan run on a confidential source: noisy measurements, for a price that the ledger holds.

The order is fixed: check everything that is declared, count, reserve the whole budget, draw, commit, show. An error
before the reservation, such as a file that cannot be read, costs nothing; one after it leaves the budget spent, and
the same request may be repeated, uncharged. A query, a view or a lazy plan is code that may fail on some rows and not
on others: for these the budget is reserved before the first row is read.

A request is its plan, domain, budget, neighbours and unit (together its fingerprint), and its source. The ledger keeps
the source in full; what is published holds a digest of it that nobody can guess at without the ledger's secret.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from consilience.domain.sensitivity import Neighbours, check_neighbours
from consilience.errors import BudgetExceeded, ConsilienceError, LedgerError
from consilience.measurements.measurement import Measurement, checksum
from consilience.privacy.budgets import Budget, Protection
from consilience.privacy.gate import DataGate, Gate, Progress
from consilience.privacy.ledger import Ledger, told_apart_by
from consilience.privacy.ledger_file import LedgerEntry
from consilience.privacy.noise import SecureNoise, SimulatedNoise
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
class ChangedPlan(Protocol):
    """A plan whose defaults measure something else than they did in earlier versions."""

    @property
    def earlier(self) -> Plan | None:
        """The plan that these settings were; None where they are no defaults. Its requests answer where recorded."""
        ...


@dataclass(frozen=True)
class Drawn:
    """What a run has shown: noisy measurements, whom their noise protects, and where they come from."""

    measurements: tuple[Measurement, ...]
    protection: Protection
    provenance: dict[str, Any]
    private: bool


def run_charged(
    source: Source,
    plan: Plan,
    cost: Budget,
    neighbours: Neighbours,
    *,
    ledger: Ledger | None,
    id: str | None,  # noqa: A002 (the word that users, files and the command line share)
    take_over: bool,
    convert: bool,
    size: int,
    check: Callable[[], None],
    progress: Progress | None,
) -> Drawn:
    """What the plan measures of the source, charged to the ledger: reserve, draw, commit, and only then return.

    A request that the ledger does not know yet is refused where `check` refuses it, and where the cost, or `size` bytes
    of noisy values, do not fit.
    """
    request = _Request(source, plan, cost, check_neighbours(neighbours))
    book = _ledger_of(source, ledger)
    noise = SecureNoise()  # refuses a biased sampler before the ledger is touched
    book.bind(source.domain.name)
    request = request.as_recorded(book, id)
    release_id = request.id_in(book) if id is None else id
    begun = book.knows(release_id)
    if not begun:
        check()
        try:
            book.check(cost, protection=request.protection, convert=convert, size=size)
        except BudgetExceeded:
            begun = book.knows(release_id)  # another process may have begun this very request since, with what was left
            if not begun:
                raise

    def reserve() -> Reservation:
        return book.reserve(
            release_id,
            fingerprint=request.fingerprint,
            cost=cost,
            description=json.dumps(request.plan.to_json(), sort_keys=True),
            source=request.source_seen_from(book),
            protection=request.protection,
            convert=convert,
            take_over=take_over,
        )

    with ExitStack() as held:
        gate = DataGate(
            source,
            cost,
            neighbours=request.neighbours,
            noise=noise,
            release_id=release_id,
            reserve=lambda: held.enter_context(reserve()),
            begun=begun,
            progress=progress,
        )
        request.plan.run(gate)
        replayed = gate.complete()
    drawn = request.drawn(gate, release_id, private=noise.private)
    drawn.provenance.update(ledger=book.uid, replayed=replayed)
    drawn.provenance["source"]["digest"] = book.salted(request.source_text(book))
    return drawn


def run_simulated(
    source: Source,
    plan: Plan,
    cost: Budget,
    neighbours: Neighbours,
    *,
    id: str | None,  # noqa: A002 (as above)
    seed: int,
    progress: Progress | None,
) -> Drawn:
    """What the plan measures of the source with noise that can be repeated: it protects nobody and costs nothing."""
    request = _Request(source, plan, cost, check_neighbours(neighbours))
    release_id = request.earlier_id if id is None else id
    noise = SimulatedNoise(seed)
    gate = DataGate(source, cost, neighbours=request.neighbours, noise=noise, release_id=release_id, progress=progress)
    plan.run(gate)
    drawn = request.drawn(gate, release_id, private=noise.private)
    drawn.provenance.update(simulation_seed=seed)
    return drawn


def charged_elsewhere(
    source: Source, plan: Plan, ledger: Ledger, cost: Budget, neighbours: str
) -> tuple[LedgerEntry, ...]:
    """Charges in this ledger for the same request of other sources; none where this source's own is there."""
    request = _Request(source, plan, cost, check_neighbours(neighbours)).as_recorded(ledger)
    if ledger.knows(request.id_in(ledger)):
        return ()
    return ledger.elsewhere(request.fingerprint, request.source_seen_from(ledger))


def charged_before(source: Source, plan: Plan, ledger: Ledger, neighbours: str) -> tuple[LedgerEntry, ...]:
    """What this ledger holds of this plan on this source, whatever it cost: what is completed is answered for free."""
    found = []
    for entry in ledger.entries():
        request = _Request(source, plan, entry.budget, check_neighbours(neighbours))
        here = entry.source is not None and told_apart_by(entry.source) == told_apart_by(
            request.source_seen_from(ledger)
        )
        if here and entry.state != "failed" and entry.fingerprint == request.fingerprint:
            found.append(entry)
    return tuple(found)


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

    def drawn(self, gate: DataGate, release_id: str, *, private: bool) -> Drawn:
        """What the gate has shown, and to whom it is a promise."""
        from importlib.metadata import version

        provenance = {
            "tool": "consilience",
            "version": version("consilience"),
            "plan": self.plan.to_json(),
            "release": release_id,
            "source": {"name": self.source.identity.name or self.source.name, "counted": self.source.place},
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "checksum": checksum(gate.measurements),
        }
        return Drawn(tuple(gate.measurements), self.protection, provenance, private)


def _ledger_of(source: Source, ledger: Ledger | None) -> Ledger:
    if ledger is not None:
        return ledger
    if source.default_ledger_path is None:
        raise LedgerError(
            "measuring spends privacy budget and needs a ledger; pass ledger=Ledger.open(path, epsilon=TOTAL)"
        )
    return Ledger.open(ledger_place(source))


# ----------------------------------------------------------------------------------------------------------------------
# Where the ledger of a source is: beside the data, one for all the names that the data has.


def ledger_place(source: Source) -> Path:
    """Where the ledger of the source is, or where a new one may be created.

    It lies beside the files that the data really is. A ledger that an earlier version put beside the name that was
    given, such as a symbolic link's, is found as well. Where there is neither, but another ledger lies there that holds
    the same data or is bound to the same dataset, nobody but the caller can say which of them is to be charged.
    """
    place, spelled = source.identity.ledger_path, source.identity.spelled_ledger_path
    if place is None or spelled is None:
        raise LedgerError(
            "this source has no place of its own for a ledger; name one with ledger=Ledger.open(path, ...)"
        )
    existing = [path for path in _distinct([place, spelled]) if os.path.exists(path)]
    if len(existing) == 1:
        return existing[0]
    others = existing or [path for path in _ledgers_beside([place, spelled]) if _concerns(path, source)]
    if others:
        raise LedgerError(
            f"{_listed(others)} {'is' if len(others) == 1 else 'are'} for the same data as {source.identity.given!r}, "
            f"or for a dataset of the same name, {source.name!r}, and one more ledger would allow the whole budget "
            "again; say which one to charge with ledger=Ledger.open(path). If this is other data, give its "
            "domain another name, or name its new ledger there"
        )
    return place


def _ledgers_beside(places: Iterable[Path]) -> list[Path]:
    folders = _distinct(place.parent for place in places)
    return _distinct(path for folder in folders for path in sorted(folder.glob("*.ledger")) if path.is_file())


def _concerns(path: Path, source: Source) -> bool:
    """Whether a ledger is named after one of the source's files, holds charges for one, or has the dataset's name."""
    if _among(path.with_suffix(""), source.identity.files):
        return True
    try:
        ledger = Ledger(path)
        sources = [entry.source for entry in ledger.entries() if entry.source is not None]
        return ledger.dataset == source.name or any(
            _among(file, source.identity.files) for each in sources for file in _files_of(each, path)
        )
    except ConsilienceError:  # somebody else's file; a damaged ledger is refused when it is to be used
        return False


def _files_of(source: Mapping[str, Any], ledger: Path) -> list[Path]:
    """The files of a recorded source, as they lie from the ledger now."""
    folder = Path(os.path.realpath(ledger)).parent
    return [folder / file for file in source.get("files", ())]


def _among(file: Path, files: Iterable[Path]) -> bool:
    """Whether the file is one of these, also under another name (a hard link)."""
    return any(file == each or (file.exists() and each.exists() and file.samefile(each)) for each in files)


def _distinct(paths: Iterable[Path]) -> list[Path]:
    return list({os.path.realpath(path): path for path in paths}.values())


def _listed(paths: list[Path]) -> str:
    return " and ".join(str(path) for path in paths)
