"""What a ledger's file says, read as a whole and checked: its header, its entries, and what they cost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from consilience.errors import DeclarationError, FileFormatError
from consilience.privacy.budgets import Budget, Unit, exact_difference, exact_sum
from consilience.privacy.ledger_chain import damaged, verified_rows, verify_header
from consilience.privacy.ledger_file import version_of
from consilience.privacy.protection import Protection, steps_between


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
    def remaining(self) -> Decimal:
        return exact_difference(self.total.amount, self.spent)

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
def _refusing_damage(path: Path) -> Iterator[None]:
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
