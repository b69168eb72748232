"""The ledger's SQLite file: created whole or not at all, opened durably, its errors translated.

Format 2 added to format 1 what a request protects and of which source, a secret, and the digests of `ledger_chain`. A
file of format 1 is read as it is, and brought to format 2 in the transaction of its first write: it is always one or
the other.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import uuid
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from consilience.errors import DeclarationError, FileFormatError, LedgerError
from consilience.privacy.budgets import (
    Budget,
    Protection,
    Unit,
    decimal_text,
    exact_difference,
    exact_sum,
    steps_between,
)
from consilience.privacy.ledger_chain import chain_everything, damaged, seal, verified_rows, verify_header

BUSY_SECONDS = 20.0
FORMAT_VERSION = 2
APPLICATION_ID = 0x434E534C  # "CNSL"

_SCHEMA = """
CREATE TABLE ledger (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    uid TEXT NOT NULL,
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
    owner_host TEXT,
    owner_process INTEGER,
    owner_started TEXT
);
CREATE TABLE steps (
    entry TEXT NOT NULL REFERENCES entries (id),
    step INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (entry, step)
);
"""

_ADDED_BY_FORMAT_2 = """
ALTER TABLE ledger ADD COLUMN protection TEXT;
ALTER TABLE ledger ADD COLUMN secret TEXT;
ALTER TABLE ledger ADD COLUMN digest TEXT;
ALTER TABLE entries ADD COLUMN source TEXT;
ALTER TABLE entries ADD COLUMN protection TEXT;
ALTER TABLE entries ADD COLUMN failed TEXT;
ALTER TABLE entries ADD COLUMN steps TEXT;
ALTER TABLE entries ADD COLUMN digest TEXT;
ALTER TABLE steps ADD COLUMN digest TEXT;
CREATE TABLE more_payload (
    entry TEXT NOT NULL,
    step INTEGER NOT NULL,
    part INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (entry, step, part)
);
"""
"""A payload begins in its step and goes on here, in parts that SQLite can hold."""

_UNUSABLE_HERE = {
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


def create_file(path: Path, *, dataset: str | None, total: Budget, protection: Protection | None = None) -> None:
    """A complete ledger appears at `path` in one step, or FileExistsError and nothing."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            _fill_new_file(unfinished, dataset=dataset, total=total, protection=protection)
            _publish(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
        _sync_directory(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise LedgerError(
            f"no ledger can be created at {path}: {error.strerror}; make the directory exist and be "
            "writable, or choose another path"
        ) from error


def _fill_new_file(path: Path, *, dataset: str | None, total: Budget, protection: Protection | None) -> None:
    with _opened(path) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")  # no side file: nobody else knows this name
        connection.executescript(f"PRAGMA application_id = {APPLICATION_ID}; {_SCHEMA}")
        connection.execute(
            "INSERT INTO ledger (only_row, uid, dataset, total, created) VALUES (1, ?, ?, ?, ?)",
            (uuid.uuid4().hex, dataset, json.dumps(total.to_json()), now()),
        )
        _bring_to_format_2(connection)
        if protection is not None:
            connection.execute("UPDATE ledger SET protection = ?", (json.dumps(protection.to_json()),))
        seal(connection)


def _bring_to_format_2(connection: sqlite3.Connection) -> None:
    for statement in _ADDED_BY_FORMAT_2.split(";")[:-1]:
        connection.execute(statement)
    connection.execute("UPDATE ledger SET secret = ?", (uuid.uuid4().hex + uuid.uuid4().hex,))
    chain_everything(connection)
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def _publish(unfinished: Path, path: Path) -> None:
    """The finished file gets its name, and never takes another file's place."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        raise
    except OSError:
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


@contextmanager
def _opened(path: Path) -> Generator[sqlite3.Connection]:
    """A durable connection to an existing file, with SQLite's errors translated."""
    address = f"{path.as_uri()}?mode=rw"
    with (
        _translated_errors(path),
        closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as connection,
    ):
        # EXTRA is FULL and one more: the removal of the journal, which is the commit, is on disk as well. SQLite's
        # default rollback journal keeps a ledger in one file; what a killed process left half done, the next undoes.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.row_factory = sqlite3.Row
        yield connection


@contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """One transaction whose statements all see the same state of a ledger of a version we can read."""
    with _opened(path) as connection:
        connection.execute("BEGIN")
        try:
            version_of(connection, path)
            yield connection
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


@contextmanager
def writing(path: Path) -> Generator[sqlite3.Connection]:
    """One transaction that locks out other writers from its first statement, and is durable at its end.

    A ledger of an earlier format is brought to this one first. Whoever writes, seals what was written.
    """
    with _opened(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if version_of(connection, path) == 1:
                refuse_damage(connection, path)
                _bring_to_format_2(connection)
            yield connection
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """The format of the file, refused where it is no ledger or one of a later version."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID or version < 1:
        raise FileFormatError(damaged(path))
    if version > FORMAT_VERSION:
        raise FileFormatError(
            f"{path} is a ledger of format {version}, and this version of consilience reads formats up to "
            f"{FORMAT_VERSION}; install a newer consilience"
        )
    return version


def refuse_damage(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file whose pages do not fit together, or that was cut short."""
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    # SQLite reads a last page that was cut short as if zeros followed.
    if tuple(verdict) != ("ok",) or os.stat(path).st_size % page_size:
        raise FileFormatError(damaged(path))


@contextmanager
def _translated_errors(path: Path) -> Generator[None]:
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
        if code in _UNUSABLE_HERE:
            raise LedgerError(
                f"{path} cannot be used: {error}; check that the file exists, that it and its directory are "
                "writable, and that the disk is not full"
            ) from error
        if code == sqlite3.SQLITE_TOOBIG:
            raise LedgerError(
                f"the id or the plan of this request is too long for {path}; nothing was changed: shorten it"
            ) from error
        raise FileFormatError(damaged(path)) from error
    except UnicodeDecodeError as error:  # SQLite quotes damaged text in a message that Python cannot decode
        raise FileFormatError(damaged(path)) from error


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# ----------------------------------------------------------------------------------------------------------------------
# What a ledger's file says, read as a whole and checked: its header, its entries, and what they cost.


@dataclass(frozen=True)
class LedgerEntry:
    """One charge: what for, what it cost in the ledger's additive unit, and whether it was completed."""

    id: str
    description: str
    cost: Decimal
    budget: Budget
    """What was asked for, of what the request protects."""
    state: Literal["reserved", "committed", "failed"]
    created: str
    completed: str | None
    fingerprint: str
    source: Mapping[str, Any] | None = None
    """What was measured; None where an earlier version did not record it."""
    protection: Protection | None = None
    """What the request protects; None where an earlier version did not record it."""
    charged: Budget | None = None
    """What that comes to of what the ledger protects, where that is something else."""

    def to_json(self) -> dict[str, Any]:
        """The charge as plain data."""
        return {
            "id": self.id,
            "state": self.state,
            "cost": decimal_text(self.cost),
            "budget": self.budget.to_json(),
            "protection": None if self.protection is None else self.protection.to_json(),
            "source": self.source,
            "created": self.created,
            "description": self.description,
        }

    @property
    def plan(self) -> str:
        """What the plan is called, or the whole description where it is no plan's."""
        try:
            return str(json.loads(self.description)["plan"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return self.description

    @property
    def source_text(self) -> str:
        """The source in a few words."""
        if self.source is None:
            return "not recorded"
        named = [self.source.get(name) for name in ("name", "table", "query")]
        return " ".join([*self.source.get("files", ["in memory"]), *(name for name in named if name)])


@dataclass(frozen=True)
class LedgerHeader:
    """What was said once about the whole ledger."""

    uid: str
    dataset: str | None
    total: Budget
    protection: Protection | None
    secret: str | None


@dataclass(frozen=True)
class LedgerState(LedgerHeader):
    """All that a ledger holds but its noisy values, as one transaction saw it."""

    entries: tuple[LedgerEntry, ...]

    @property
    def spent(self) -> Decimal:
        return exact_sum(entry.cost for entry in self.entries)

    @property
    def failures(self) -> Decimal:
        """The sum of all failure δ."""
        return exact_sum(entry.budget.failure for entry in self.entries)

    @property
    def remaining(self) -> Decimal:
        """What may still be charged: what the total has room for beside the failures, less what was spent."""
        return exact_difference(self.total.room(self.failures) or Decimal(0), self.spent)

    def entry(self, name: str) -> LedgerEntry | None:
        return next((entry for entry in self.entries if entry.id == name), None)


def read_header(connection: sqlite3.Connection, path: Path) -> LedgerHeader:
    """The header of the ledger as it was sealed."""
    header = (
        _header_of_format_1(connection, path) if version_of(connection, path) == 1 else verify_header(connection, path)
    )
    with _refusing_damage(path):
        return LedgerHeader(**_values(header))


def read_state(connection: sqlite3.Connection, path: Path) -> LedgerState:
    """The state of the ledger: its chain unbroken, and every cost what its budget comes to."""
    if version_of(connection, path) == 1:
        header = _header_of_format_1(connection, path)
        rows = connection.execute("SELECT * FROM entries NOT INDEXED ORDER BY rowid").fetchall()
    else:
        header, rows = verified_rows(connection, path)
    with _refusing_damage(path):
        values = _values(header)
        names = tuple(rows[0].keys()) if rows else ()
        entries = tuple(_entry(names, tuple(row), values["total"].unit, values["protection"]) for row in rows)
        return LedgerState(**values, entries=entries)


def _header_of_format_1(connection: sqlite3.Connection, path: Path) -> sqlite3.Row:
    header = connection.execute("SELECT * FROM ledger").fetchone()
    if header is None or "digest" in header.keys():  # a ledger that has a chain is not read without it
        raise FileFormatError(damaged(path))
    return header


@contextmanager
def _refusing_damage(path: Path) -> Generator[None]:
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, InvalidOperation, DeclarationError) as error:
        raise FileFormatError(damaged(path)) from error


def _values(header: sqlite3.Row) -> dict[str, Any]:
    found = dict(header)
    if not isinstance(found["dataset"], str | None):
        raise TypeError("the dataset is no text")
    return {
        "uid": str(found["uid"]),
        "dataset": found["dataset"],
        "total": Budget.from_json(json.loads(found["total"])),
        "protection": _protection(found.get("protection")),
        "secret": found.get("secret"),
    }


@lru_cache(maxsize=8192)  # all entries are read before every charge, and most are as they were
def _entry(names: tuple[str, ...], values: tuple[Any, ...], unit: Unit, bound: Protection | None) -> LedgerEntry:
    """The entry of a row; a cost that its budget does not come to is a ValueError."""
    row = dict(zip(names, values, strict=True))
    budget, protection = Budget.from_json(json.loads(row["budget"])), _protection(row.get("protection"))
    steps = 1 if bound is None or protection is None else steps_between(bound, protection)
    if steps is None:
        raise ValueError("a charge that has no conversion")
    charged = budget.for_group(steps)
    cost = charged.cost_in(unit)
    if not isinstance(row["cost"], str) or Decimal(row["cost"]) != cost:
        raise ValueError("a cost that the budget does not come to")
    if row["state"] not in ("reserved", "committed"):
        raise ValueError("no state of an entry")
    source = row.get("source")
    return LedgerEntry(
        row["id"],
        row["description"],
        cost,
        budget,
        "failed" if row.get("failed") is not None else row["state"],
        row["created"],
        row["completed"],
        row["fingerprint"],
        None if source is None else json.loads(source),
        protection,
        None if charged == budget else charged,
    )


def _protection(text: str | None) -> Protection | None:
    return None if text is None else Protection.from_json(json.loads(text))
