"""Digests over everything a ledger holds, so that no change of its file goes unseen.

    a step's digest     covers its place, the request it answers and its noisy payload
    an entry's `steps`  is a chain over the digests of its steps, in the order in which they were recorded
    an entry's digest   covers all its columns: what was asked, what it costs, its state, its owner, its chain of steps
    the ledger's digest covers the header (dataset, total, what is protected) and its entries' digests in their order

A digest is the SHA-256 of a JSON text. Every transaction that writes ends with `seal`; every reader of what was spent
checks entries and header first. A flipped bit, an edited total, a removed or added entry or value breaks the chain, and
a ledger whose chain is broken is refused. There is no key: whoever may write the file can write a new chain as well.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

from consilience.errors import FileFormatError

HEADER = ("uid", "dataset", "total", "created", "protection", "secret")
ENTRY = (
    "id", "fingerprint", "description", "budget", "cost", "state", "created", "completed", "owner_token", "owner_host",
    "owner_process", "owner_started", "source", "protection", "failed", "steps",
)  # fmt: skip

PART = 2**24
"""Characters of a payload in one row: at most 64 MB, where SQLite holds 10^9 bytes."""

NO_STEPS = ""

# Rows are always read from the tables themselves, NOT INDEXED: a damaged index must hide none.
_ENTRY_COLUMNS = f"{', '.join(ENTRY)}, digest"
_STEP_COLUMNS = "entry, step, fingerprint, payload, digest"


def digest(*values: object) -> str:
    """The SHA-256 of plain values: texts, whole numbers and None. Others, as damage makes them, have one as well."""
    return hashlib.sha256(json.dumps(values, default=repr).encode()).hexdigest()


def seal(connection: sqlite3.Connection, *entries: str) -> None:
    """The digests of these entries and of the ledger fit what the transaction wrote."""
    for name in entries:
        found = _entry_digest(_entry_row(connection, name))
        connection.execute("UPDATE entries NOT INDEXED SET digest = ? WHERE id = ?", (found, name))
    connection.execute("UPDATE ledger SET digest = ?", (_ledger_digest(connection),))


def verified_rows(connection: sqlite3.Connection, path: Path) -> tuple[sqlite3.Row, list[sqlite3.Row]]:
    """The header and all entries of a ledger of format 2, oldest first; refused where the chain is broken."""
    header = verify_header(connection, path)
    rows = connection.execute(f"SELECT {_ENTRY_COLUMNS} FROM entries NOT INDEXED ORDER BY rowid").fetchall()
    if any(row["digest"] != _entry_digest(row) for row in rows):
        raise FileFormatError(broken(path))
    return header, rows


def verify_header(connection: sqlite3.Connection, path: Path) -> sqlite3.Row:
    """The header as it was sealed, together with which entries there are."""
    header = connection.execute(f"SELECT {', '.join(HEADER)}, digest FROM ledger").fetchone()
    if header is None or header["digest"] != _ledger_digest(connection):
        raise FileFormatError(broken(path))
    return header


def verify_entry(connection: sqlite3.Connection, entry: str, path: Path) -> sqlite3.Row:
    """The entry as it was sealed, to be changed; the other entries are only known to be the same ones."""
    verify_header(connection, path)
    row = _entry_row(connection, entry)
    if row is None or row["digest"] != _entry_digest(row):
        raise FileFormatError(broken(path))
    return row


def verify_steps(connection: sqlite3.Connection, entry: str, path: Path) -> None:
    """The steps of an entry are all there, in their order."""
    rows = connection.execute("SELECT digest FROM steps NOT INDEXED WHERE entry = ? ORDER BY rowid", (entry,))
    if _entry_row(connection, entry)["steps"] != reduce(digest, (found for (found,) in rows), NO_STEPS):
        raise FileFormatError(broken(path))


def verify_everything(connection: sqlite3.Connection, path: Path) -> None:
    """The whole file is as it was sealed, payloads included."""
    _, entries = verified_rows(connection, path)
    links = {row["id"]: NO_STEPS for row in entries}
    parts = 0
    for row in connection.execute(f"SELECT {_STEP_COLUMNS} FROM steps NOT INDEXED ORDER BY rowid"):
        parts += len(_parts_of(connection, row, path)) - 1
        links[row["entry"]] = digest(links.get(row["entry"]), row["digest"])
    (stored,) = connection.execute("SELECT count(*) FROM more_payload NOT INDEXED").fetchone()
    if links != {row["id"]: row["steps"] for row in entries} or stored != parts:
        raise FileFormatError(broken(path))


def add_step(connection: sqlite3.Connection, entry: str, step: int, fingerprint: str, payload: str) -> None:
    """The step is the next of its entry, its payload in as many rows as it needs; to be sealed."""
    first, *more = _parts(payload)
    found = _step_digest(entry, step, fingerprint, [first, *more])
    connection.execute(
        "INSERT INTO steps (entry, step, fingerprint, payload, digest) VALUES (?, ?, ?, ?, ?)",
        (entry, step, fingerprint, first, found),
    )
    connection.executemany(
        "INSERT INTO more_payload (entry, step, part, text) VALUES (?, ?, ?, ?)",
        ((entry, step, place, text) for place, text in enumerate(more, start=1)),
    )
    link = digest(_entry_row(connection, entry)["steps"], found)
    connection.execute("UPDATE entries NOT INDEXED SET steps = ? WHERE id = ?", (link, entry))


def recorded_step(connection: sqlite3.Connection, entry: str, step: int, path: Path) -> tuple[str, str] | None:
    """The request fingerprint and the payload of a step, checked; None for a step that was not recorded."""
    found = f"SELECT {_STEP_COLUMNS} FROM steps NOT INDEXED WHERE entry = ? AND step = ?"
    row = connection.execute(found, (entry, step)).fetchone()
    return None if row is None else (row["fingerprint"], "".join(_parts_of(connection, row, path)))


def _parts_of(connection: sqlite3.Connection, row: sqlite3.Row, path: Path) -> list[str]:
    """The parts of what was recorded in this step."""
    more = connection.execute(
        "SELECT text FROM more_payload WHERE entry = ? AND step = ? ORDER BY part", (row["entry"], row["step"])
    )
    parts = [row["payload"], *(text for (text,) in more)]
    if row["digest"] != _step_digest(row["entry"], row["step"], row["fingerprint"], parts):
        raise FileFormatError(broken(path))
    return parts


def chain_everything(connection: sqlite3.Connection) -> None:
    """The digests of everything, for a ledger that had none."""
    names = [name for (name,) in connection.execute("SELECT id FROM entries NOT INDEXED ORDER BY rowid")]
    links = dict.fromkeys(names, NO_STEPS)
    for (rowid,) in connection.execute("SELECT rowid FROM steps NOT INDEXED ORDER BY rowid").fetchall():
        row = connection.execute(f"SELECT {_STEP_COLUMNS} FROM steps WHERE rowid = ?", (rowid,)).fetchone()
        found = _step_digest(row["entry"], row["step"], row["fingerprint"], [row["payload"]])
        connection.execute("UPDATE steps SET digest = ? WHERE rowid = ?", (found, rowid))
        links[row["entry"]] = digest(links[row["entry"]], found)
    connection.executemany("UPDATE entries SET steps = ? WHERE id = ?", ((link, name) for name, link in links.items()))
    seal(connection, *names)


def broken(path: Path) -> str:
    return (
        f"the chain of digests in {path} is broken: the file was edited or damaged, and what it says was spent "
        "cannot be trusted; put its newest backup in its place, and do not measure before: a new ledger would forget "
        "what was spent"
    )


def damaged(path: Path) -> str:
    return (
        f"{path} is not a sound ledger of consilience: it is foreign, truncated or damaged; "
        "check the path, or put the newest backup of the ledger in its place"
    )


def _parts(payload: str) -> list[str]:
    return [payload[begin : begin + PART] for begin in range(0, max(len(payload), 1), PART)]


def _entry_row(connection: sqlite3.Connection, entry: str) -> Any:
    """The row of an entry, or None."""
    return connection.execute(f"SELECT {_ENTRY_COLUMNS} FROM entries NOT INDEXED WHERE id = ?", (entry,)).fetchone()


def _ledger_digest(connection: sqlite3.Connection) -> str:
    header = connection.execute(f"SELECT {', '.join(HEADER)} FROM ledger").fetchone()
    entries = connection.execute("SELECT digest FROM entries NOT INDEXED ORDER BY rowid")
    return digest("ledger", *header, *(found for (found,) in entries))


def _entry_digest(row: sqlite3.Row) -> str:
    return _digest_of_entry(*row[: len(ENTRY)])


# All entries are checked before every charge, and most of them have not changed since the last one.
@lru_cache(maxsize=8192, typed=True)
def _digest_of_entry(*values: object) -> str:
    return digest("entry", *values)


def _step_digest(entry: str, step: int, fingerprint: str, parts: Iterable[object]) -> str:
    payload = hashlib.sha256()
    for part in parts:
        payload.update(part.encode() if isinstance(part, str) else b"no text")
    return digest("step", entry, step, fingerprint, payload.hexdigest())
