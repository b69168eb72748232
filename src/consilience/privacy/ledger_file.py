"""The ledger's SQLite file: created whole or not at all, opened durably, its errors translated."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from consilience.errors import FileFormatError, LedgerError
from consilience.privacy.budgets import Budget

BUSY_SECONDS = 20.0
FORMAT_VERSION = 1
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

_UNUSABLE_HERE = {
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


def create_file(path: Path, *, dataset: str | None, total: Budget) -> None:
    """A complete ledger appears at `path` in one step, or FileExistsError and nothing."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            _fill_new_file(unfinished, dataset=dataset, total=total)
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


def _fill_new_file(path: Path, *, dataset: str | None, total: Budget) -> None:
    with opened(path) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")  # no side file: nobody else knows this name
        connection.executescript(
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT_VERSION}; {_SCHEMA}"
        )
        connection.execute(
            "INSERT INTO ledger (only_row, uid, dataset, total, created) VALUES (1, ?, ?, ?, ?)",
            (uuid.uuid4().hex, dataset, json.dumps(total.to_json()), now()),
        )


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
def opened(path: Path) -> Iterator[sqlite3.Connection]:
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
        yield connection


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for one operation to a file that is known to be a ledger of a version we can read."""
    with opened(path) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID or version < 1:
            raise FileFormatError(damaged(path))
        if version > FORMAT_VERSION:
            raise FileFormatError(
                f"{path} is a ledger of format {version}, and this version of consilience reads format "
                f"{FORMAT_VERSION}; install a newer consilience"
            )
        yield connection


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction that locks out other writers from its first statement, and is durable at its end."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def reading(connection: sqlite3.Connection) -> Iterator[None]:
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
        if code in _UNUSABLE_HERE:
            raise LedgerError(
                f"{path} cannot be used: {error}; check that the file exists, that it and its directory are "
                "writable, and that the disk is not full"
            ) from error
        raise FileFormatError(damaged(path)) from error
    except UnicodeDecodeError as error:  # SQLite quotes damaged text in a message that Python cannot decode
        raise FileFormatError(damaged(path)) from error


def damaged(path: Path) -> str:
    return (
        f"{path} is not a sound ledger of consilience: it is foreign, truncated or damaged; "
        "check the path, or restore the ledger from a backup"
    )


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
