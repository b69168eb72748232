"""What has been spent on one dataset: an SQLite file that cannot be overspent and survives a crash.

The order is: reserve, draw, record, show. `Ledger.reserve` charges the whole cost before any noise exists;
`Reservation.record` makes noisy values durable before anyone sees them; `Reservation.complete` closes the entry.
Whatever fails after the reservation leaves the budget spent, and a retry of the same id continues where the dead
owner stopped, uncharged. A completed id answers with its recorded values for ever. The file holds noisy values
only: neither noise nor an exact count is ever given to it.

Every operation opens its own connection and nothing read is kept, so threads and processes share one ledger. An
open SQLite file must not be opened a second time by ordinary file functions in the same process: closing that
second handle would drop SQLite's locks. Hence nothing here does.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import sqlite3
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_DOWN, ROUND_UP, Decimal, InvalidOperation
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from consilience.errors import BudgetExceeded, DeclarationError, FileFormatError, LedgerError
from consilience.privacy.budgets import (
    AdditiveUnit,
    Budget,
    Number,
    budget,
    decimal_text,
    exact_difference,
    exact_sum,
    shortened,
)

BUSY_SECONDS = 20.0
FORMAT_VERSION = 1
APPLICATION_ID = 0x434E534C  # "CNSL"

_SCHEMA = """
CREATE TABLE ledger (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    dataset TEXT,
    total TEXT NOT NULL,
    created TEXT NOT NULL
);
CREATE TABLE entries (
    id TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    description TEXT NOT NULL,
    budget TEXT NOT NULL,
    cost TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'committed')),
    created TEXT NOT NULL,
    completed TEXT,
    owner_token TEXT,
    owner_host TEXT NOT NULL,
    owner_process INTEGER NOT NULL,
    owner_started TEXT NOT NULL
);
CREATE TABLE steps (
    entry TEXT NOT NULL REFERENCES entries (id),
    step INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (entry, step)
);
"""


@dataclass(frozen=True)
class LedgerEntry:
    """One charge: what it was for, what it cost in the ledger's additive unit, and whether it was completed."""

    id: str
    description: str
    cost: Decimal
    budget: Budget
    state: Literal["reserved", "committed"]
    created: str
    completed: str | None


@dataclass(frozen=True)
class Ledger:
    """The budget of one dataset, on disk. Every property is read from the file when it is asked for."""

    path: Path

    @classmethod
    def create(cls, path: str | Path, *, dataset: str, total: Budget) -> Ledger:
        """A new ledger at `path`, which no other process had created before."""
        ledger = cls(Path(path).absolute())
        try:
            _create_file(ledger.path, dataset=_required_text("dataset", dataset), total=total)
        except FileExistsError as error:
            raise LedgerError(
                f"{ledger.path} exists already; open it with Ledger.open, or choose another path"
            ) from error
        return ledger

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        dataset: str | None = None,
        epsilon: Number | None = None,
        delta: Number | None = None,
        rho: Number | None = None,
    ) -> Ledger:
        """The ledger at `path`, created when it is missing and a total is given.

        A ledger created without a dataset belongs to the first one that `bind` names.
        """
        ledger = cls(Path(path).absolute())
        given = any(number is not None for number in (epsilon, delta, rho))
        total = budget(epsilon=epsilon, delta=delta, rho=rho) if given else None
        if dataset is not None:
            _required_text("dataset", dataset)
        if not ledger.path.exists():
            if total is None:
                raise LedgerError(
                    f"there is no ledger at {ledger.path}; give its total, such as epsilon=1, to create it"
                )
            with suppress(FileExistsError):  # another process was faster: its ledger is the one to open
                _create_file(ledger.path, dataset=dataset, total=total)
        ledger._check(dataset=dataset, total=total)
        return ledger

    @property
    def dataset(self) -> str | None:
        """The name of the dataset that the ledger is bound to, if any yet."""
        with _connected(self.path) as connection:
            return _header(connection, self.path)[0]

    @property
    def total(self) -> Budget:
        """The budget that the ledger was created with."""
        with _connected(self.path) as connection:
            return _header(connection, self.path)[1]

    @property
    def spent(self) -> Decimal:
        """The sum of all charges, reserved or committed, in the additive unit of the total."""
        with _connected(self.path) as connection:
            return _spent(connection, self.path)

    @property
    def remaining(self) -> Decimal:
        """What may still be charged, in the additive unit of the total."""
        with _connected(self.path) as connection, _reading(connection):
            return exact_difference(_header(connection, self.path)[1].amount, _spent(connection, self.path))

    def entries(self) -> tuple[LedgerEntry, ...]:
        """All charges, oldest first."""
        with _connected(self.path) as connection:
            rows = connection.execute(
                "SELECT id, description, cost, budget, state, created, completed FROM entries ORDER BY rowid"
            ).fetchall()
        return tuple(
            LedgerEntry(id, description, _read_cost(cost, self.path), _read_budget(text, self.path), *rest)
            for id, description, cost, text, *rest in rows
        )

    def bind(self, dataset: str) -> None:
        """The ledger belongs to `dataset` from now on; one that belongs to another refuses."""
        _required_text("dataset", dataset)
        with _connected(self.path) as connection, _writing(connection):
            bound = _header(connection, self.path)[0]
            if bound is None:
                connection.execute("UPDATE ledger SET dataset = ?", (dataset,))
            elif bound != dataset:
                raise LedgerError(_other_dataset(self.path, bound, dataset))

    def reserve(
        self, id: str, *, fingerprint: str, cost: Budget, description: str, take_over: bool = False
    ) -> Reservation:
        """The right to draw noise for `id`, charged durably; for an id known already, uncharged.

        A completed id is replayed. A reservation whose owner died or gave up is taken over with what it had
        recorded; `take_over` says the same of an owner on another machine, whose life cannot be seen from here.
        """
        _required_text("id", id)
        _required_text("fingerprint", fingerprint)
        _required_text("description", description, empty=True)
        with _connected(self.path) as connection, _writing(connection):
            known = connection.execute(
                "SELECT fingerprint, budget, state, owner_token, owner_host, owner_process, owner_started"
                " FROM entries WHERE id = ?",
                (id,),
            ).fetchone()
            if known is None:
                token = _charge(connection, self.path, id, fingerprint, cost, description)
                return Reservation(ledger=self, id=id, _token=token)
            known_fingerprint, known_budget, state, *owner = known
            if known_fingerprint != fingerprint or _read_budget(known_budget, self.path) != cost:
                raise LedgerError(
                    f"{id!r} is in {self.path} with other contents: its plan, domain or budget differ from "
                    "those of this request; choose another id, or repeat the first request unchanged"
                )
            if state == "committed":
                return Reservation(ledger=self, id=id, replayed=True, _token="")
            _refuse_living_owner(self.path, id, _Owner(*owner), take_over=take_over)
            heir = _Owner.this_process()
            connection.execute(
                "UPDATE entries SET owner_token = ?, owner_host = ?, owner_process = ?, owner_started = ?"
                " WHERE id = ?",
                (heir.token, heir.host, heir.process, heir.started, id),
            )
            return Reservation(ledger=self, id=id, _token=str(heir.token))

    def _check(self, *, dataset: str | None, total: Budget | None) -> None:
        """The file is sound, and is the ledger that the caller means."""
        with _connected(self.path) as connection:
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != ("ok",):
                raise FileFormatError(_damaged(self.path))
            bound, stored = _header(connection, self.path)
            _spent(connection, self.path)
        if dataset is not None and bound is not None and dataset != bound:
            raise LedgerError(_other_dataset(self.path, bound, dataset))
        if total is not None and total != stored:
            raise LedgerError(
                f"the total of {self.path} is {stored.describe()}, and {total.describe()} was given; "
                "leave the total out to use the stored one: it never changes"
            )


@dataclass(frozen=True)
class Reservation:
    """The right to draw noise for one id, and the noisy values recorded under it.

    Leaving its `with` block without `complete()` gives the right up, so that a retry of the id can take it over;
    the budget stays spent.
    """

    ledger: Ledger
    id: str
    replayed: bool = False
    _token: str = field(default="", repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._release()
        except LedgerError as failure:
            if error is None:
                raise
            error.add_note(f"the reservation of {self.id!r} could not be given up: {failure}")

    def recorded(self, step: int) -> tuple[str, str] | None:
        """The request fingerprint and the noisy payload of a step that was recorded, else None."""
        with _connected(self.ledger.path) as connection:
            return connection.execute(
                "SELECT fingerprint, payload FROM steps WHERE entry = ? AND step = ?", (self.id, step)
            ).fetchone()

    def record(self, step: int, *, fingerprint: str, payload: str) -> None:
        """The noisy payload of the step is on disk when this returns; only then may anyone see it."""
        _required_text("fingerprint", fingerprint)
        _required_text("payload", payload, empty=True)
        with _connected(self.ledger.path) as connection, _writing(connection):
            self._require_ownership(connection)
            known = connection.execute(
                "SELECT 1 FROM steps WHERE entry = ? AND step = ?", (self.id, step)
            ).fetchone()
            if known is not None:
                raise LedgerError(
                    f"step {step} of {self.id!r} is recorded already; use recorded({step}) and draw nothing new"
                )
            connection.execute(
                "INSERT INTO steps (entry, step, fingerprint, payload) VALUES (?, ?, ?, ?)",
                (self.id, step, fingerprint, payload),
            )

    def complete(self) -> None:
        """The entry is committed, and every later request of this id is answered from it."""
        if self.replayed:
            return
        with _connected(self.ledger.path) as connection, _writing(connection):
            self._require_ownership(connection)
            connection.execute(
                "UPDATE entries SET state = 'committed', completed = ?, owner_token = NULL WHERE id = ?",
                (_now(), self.id),
            )

    def _release(self) -> None:
        if self.replayed:
            return
        with _connected(self.ledger.path) as connection, _writing(connection):
            connection.execute(
                "UPDATE entries SET owner_token = NULL WHERE id = ? AND owner_token = ?",
                (self.id, self._token),
            )

    def _require_ownership(self, connection: sqlite3.Connection) -> None:
        row = connection.execute("SELECT state, owner_token FROM entries WHERE id = ?", (self.id,)).fetchone()
        if row is not None and row[0] == "committed":
            raise LedgerError(f"{self.id!r} is completed in {self.ledger.path}; its values can only be read")
        if row is None or row[1] != self._token:
            raise LedgerError(
                f"this reservation of {self.id!r} in {self.ledger.path} was given up or taken over by another "
                "process; discard what was drawn and reserve the id again"
            )


@dataclass(frozen=True)
class _Owner:
    """The process that holds a reservation; without a token, nobody does any more."""

    token: str | None
    host: str
    process: int
    started: str

    @classmethod
    def this_process(cls) -> _Owner:
        return cls(uuid.uuid4().hex, _host(), os.getpid(), _process_start(os.getpid()) or "")

    def alive(self) -> bool:
        """Whether the owner may still be running on this machine, judged in doubt as alive."""
        if sys.platform == "win32":  # there, os.kill with signal 0 would interrupt the process
            return True
        try:
            os.kill(self.process, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:  # it is alive, and another user's
            pass
        started = _process_start(self.process)
        return started is None or not self.started or started == self.started


def _host() -> str:
    """This machine's name and, where the system tells, the namespace in which its process ids count."""
    try:
        return f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _process_start(process: int) -> str | None:
    """The boot and the clock tick at which a process started, 'ended' for a zombie, None where unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses and may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return "ended" if state in "ZX" else f"{boot} {started}"


def _refuse_living_owner(path: Path, id: str, owner: _Owner, *, take_over: bool) -> None:
    if owner.token is None:
        return
    if owner.host != _host():
        if not take_over:
            raise LedgerError(
                f"{id!r} in {path} is reserved by process {owner.process} on another machine or container "
                f"({owner.host}; this is {_host()}); when that process has ended, repeat with take_over=True"
            )
    elif owner.alive():
        raise LedgerError(
            f"{id!r} in {path} is in progress by "
            + ("this process" if owner.process == os.getpid() else f"another process ({owner.process})")
            + "; wait for it to end and try again, or choose another id"
        )


def _charge(
    connection: sqlite3.Connection, path: Path, id: str, fingerprint: str, cost: Budget, description: str
) -> str:
    """The token of the new owner of `id`, after its cost has been charged."""
    dataset, total = _header(connection, path)
    if dataset is None:
        raise LedgerError(f"{path} is not bound to a dataset yet; call bind with the dataset's name first")
    charge = cost.cost_in(total.unit)
    remaining = exact_difference(total.amount, _spent(connection, path))
    if charge > remaining:
        raise BudgetExceeded(_exceeded(path, cost, charge=charge, remaining=remaining, total=total))
    owner = _Owner.this_process()
    connection.execute(
        "INSERT INTO entries (id, fingerprint, description, budget, cost, state, created,"
        " owner_token, owner_host, owner_process, owner_started) VALUES (?, ?, ?, ?, ?, 'reserved', ?, ?, ?, ?, ?)",
        (
            id, fingerprint, description, json.dumps(cost.to_json()), decimal_text(charge), _now(),
            owner.token, owner.host, owner.process, owner.started,
        ),
    )  # fmt: skip
    return str(owner.token)


def _exceeded(path: Path, cost: Budget, *, charge: Decimal, remaining: Decimal, total: Budget) -> str:
    # The request is rounded up and the rest down, so that the shortened numbers never seem to fit.
    unit: AdditiveUnit = total.additive_unit
    asked = f"{unit} {shortened(charge, rounding=ROUND_UP)}"
    declared = "" if cost.unit == unit else f" ({cost.describe()})"
    rest = shortened(remaining, rounding=ROUND_DOWN)
    return (
        f"asked for {asked}{declared}, {rest} of {shortened(total.amount)} remains in {path}; "
        f"lower {cost.unit.replace('-', ' or ')}, or use the values of an earlier release: reading them is free"
    )


def _header(connection: sqlite3.Connection, path: Path) -> tuple[str | None, Budget]:
    row = connection.execute("SELECT dataset, total FROM ledger").fetchone()
    if row is None or not isinstance(row[0], str | None):
        raise FileFormatError(_damaged(path))
    return row[0], _read_budget(row[1], path)


def _spent(connection: sqlite3.Connection, path: Path) -> Decimal:
    return exact_sum(_read_cost(cost, path) for (cost,) in connection.execute("SELECT cost FROM entries"))


def _read_cost(text: object, path: Path) -> Decimal:
    try:
        cost = Decimal(text) if isinstance(text, str) else Decimal("NaN")
    except InvalidOperation:
        cost = Decimal("NaN")
    if not cost.is_finite() or cost <= 0:
        raise FileFormatError(_damaged(path))
    return cost


def _read_budget(text: object, path: Path) -> Budget:
    try:
        return Budget.from_json(json.loads(str(text)))
    except (ValueError, TypeError, AttributeError, DeclarationError) as error:
        raise FileFormatError(_damaged(path)) from error


def _create_file(path: Path, *, dataset: str | None, total: Budget) -> None:
    """A complete ledger appears at `path` in one step, or FileExistsError."""
    if path.exists():
        raise FileExistsError(path)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise LedgerError(
            f"no ledger can be created in {path.parent}: {error.strerror}; make that directory writable, "
            "or choose another path"
        ) from error
    try:
        with _translated_errors(path), closing(_connect(unfinished)) as connection:
            connection.execute("PRAGMA journal_mode = MEMORY")  # no side file: nobody else knows this name
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
            connection.execute(
                "INSERT INTO ledger (only_row, dataset, total, created) VALUES (1, ?, ?, ?)",
                (dataset, json.dumps(total.to_json()), _now()),
            )
        _publish(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    _sync_directory(path.parent)


def _publish(unfinished: Path, path: Path) -> None:
    """The finished file gets its name, and never another process's place."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES, errno.EMLINK}:
            raise
        # A file system without hard links: claim the name first, then put the file in the claim's place.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        unfinished.replace(path)


def _sync_directory(directory: Path) -> None:
    """The directory's new name survives a loss of power, where directories can be synchronised."""
    if sys.platform == "win32":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None
    )
    # EXTRA is FULL and one more: the removal of the journal, which is the commit, is on disk as well. The default
    # rollback journal keeps the ledger in one file, and a killed process's half transaction is undone by the next.
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for one operation to a file that is known to be a ledger of a version we can read."""
    with _translated_errors(path), closing(_connect(path)) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID:
            raise FileFormatError(f"{path} is not a ledger of consilience; check the path")
        if version != FORMAT_VERSION:
            raise FileFormatError(
                f"{path} is a ledger of format {version}, and this version of consilience reads format "
                f"{FORMAT_VERSION}; install a newer consilience"
            )
        yield connection


@contextmanager
def _writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction that locks out other writers from its first statement, and is durable at its end."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def _reading(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction whose statements all see the same state of the file."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


@contextmanager
def _translated_errors(path: Path) -> Iterator[None]:
    """SQLite's errors become ours: locked, unusable here, or damaged."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            raise LedgerError(
                f"{path} is locked by another process for more than {BUSY_SECONDS:g} seconds; nothing was "
                "changed: try again when that process has finished"
            ) from error
        if code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,
                    sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}:  # fmt: skip
            raise LedgerError(
                f"{path} cannot be used: {error}; check that the file exists, that it and its directory are "
                "writable, and that the disk is not full"
            ) from error
        raise FileFormatError(_damaged(path)) from error


def _damaged(path: Path) -> str:
    return f"{path} is not a sound ledger: foreign, truncated or damaged; restore it from a backup and check the path"


def _other_dataset(path: Path, bound: str, dataset: str) -> str:
    return f"{path} is the ledger of {bound!r}, not of {dataset!r}; use the ledger of {dataset!r}"


def _required_text(name: str, value: str, *, empty: bool = False) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise LedgerError(f"the {name} is not valid Unicode text; spell it without stray bytes") from error
    if not value and not empty:
        raise LedgerError(f"the {name} is empty; give it some text")
    return value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
