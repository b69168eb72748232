"""What has been spent on one dataset: an SQLite file that cannot be overspent and survives a crash.

The order is: reserve, draw, record, show. `Ledger.reserve` charges the whole cost before any noise exists;
`Reservation.record` makes noisy values durable before anyone sees them; `Reservation.complete` closes the
entry. Whatever fails after the reservation leaves the budget spent, and a retry of the same id continues where
the dead owner stopped, uncharged. A completed id answers with its recorded values for ever. The file holds
noisy values only: neither noise nor an exact count is ever given to it.

Every operation opens its own connection and nothing read is kept, so threads and processes share one ledger.
While SQLite has the file open, ordinary file functions of the same process must leave it alone: closing such a
second handle would drop SQLite's locks.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_UP, Decimal, InvalidOperation
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from consilience.errors import BudgetExceeded, DeclarationError, FileFormatError, LedgerError
from consilience.privacy.budgets import (
    LARGEST_CHARGE,
    MOST_PLACES,
    AdditiveUnit,
    Budget,
    Number,
    budget,
    decimal_text,
    exact_difference,
    exact_sum,
    shortened,
)
from consilience.privacy.ledger_file import connected, create_file, damaged, now, reading, writing
from consilience.privacy.owners import Owner, refuse_living_owner


@dataclass(frozen=True)
class LedgerEntry:
    """One charge: what for, what it cost in the ledger's additive unit, and whether it was completed."""

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).absolute())

    @classmethod
    def create(cls, path: str | Path, *, dataset: str, total: Budget) -> Ledger:
        """A new ledger at `path`, which no other process had created before."""
        _require_text("dataset", dataset)
        ledger = cls(Path(path))
        try:
            create_file(ledger.path, dataset=dataset, total=total)
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
        ledger = cls(Path(path))
        given = any(number is not None for number in (epsilon, delta, rho))
        total = budget(epsilon=epsilon, delta=delta, rho=rho) if given else None
        if dataset is not None:
            _require_text("dataset", dataset)
        if not os.path.exists(ledger.path):
            if total is None:
                raise LedgerError(
                    f"there is no ledger at {ledger.path}; give its total, such as epsilon=1, to create it"
                )
            with suppress(FileExistsError):  # another process was faster: its ledger is the one to open
                create_file(ledger.path, dataset=dataset, total=total)
        ledger._check(dataset=dataset, total=total)
        return ledger

    @property
    def uid(self) -> str:
        """A random name that tells this ledger from every other; measurement sets that carry it may be merged."""
        with connected(self.path) as connection:
            (found,) = connection.execute("SELECT uid FROM ledger").fetchone()
        return str(found)

    @property
    def dataset(self) -> str | None:
        """The name of the dataset that the ledger is bound to, if any yet."""
        with connected(self.path) as connection:
            return _header(connection, self.path)[0]

    @property
    def total(self) -> Budget:
        """The budget that the ledger was created with."""
        with connected(self.path) as connection:
            return _header(connection, self.path)[1]

    @property
    def spent(self) -> Decimal:
        """The sum of all charges, reserved or committed, in the additive unit of the total."""
        with connected(self.path) as connection:
            return _spent(connection, self.path)

    @property
    def remaining(self) -> Decimal:
        """What may still be charged, in the additive unit of the total."""
        with connected(self.path) as connection, reading(connection):
            return exact_difference(_header(connection, self.path)[1].amount, _spent(connection, self.path))

    @property
    def remaining_text(self) -> str:
        """What may still be charged, as people say it; never more than there is."""
        return f"{self.total.additive_unit} {shortened(self.remaining, rounding=ROUND_DOWN)}"

    def entries(self) -> tuple[LedgerEntry, ...]:
        """All charges, oldest first."""
        with connected(self.path) as connection:
            rows = connection.execute(
                "SELECT id, description, cost, budget, state, created, completed FROM entries ORDER BY rowid"
            ).fetchall()
        return tuple(
            LedgerEntry(name, description, _read_cost(cost, self.path), _read_budget(text, self.path), *rest)
            for name, description, cost, text, *rest in rows
        )

    def bind(self, dataset: str) -> None:
        """The ledger belongs to `dataset` from now on; one that belongs to another refuses."""
        _require_text("dataset", dataset)
        with connected(self.path) as connection, writing(connection):
            bound = _header(connection, self.path)[0]
            if bound is None:
                connection.execute("UPDATE ledger SET dataset = ?", (dataset,))
            elif bound != dataset:
                raise LedgerError(_other_dataset(self.path, bound, dataset))

    def reserve(
        self,
        id: str,  # noqa: A002  (the word that users, files and the command line share)
        *,
        fingerprint: str,
        cost: Budget,
        description: str,
        take_over: bool = False,
    ) -> Reservation:
        """The right to draw noise for `id`, charged durably; for an id known already, uncharged.

        A completed id is replayed. A reservation whose owner died or gave up is taken over with what it had
        recorded; `take_over` vouches that an owner on another machine, which cannot be seen from here, ended.
        """
        _require_text("id", id)
        _require_text("fingerprint", fingerprint)
        _require_text("description", description, empty=True)
        owner = Owner.this_process()
        with connected(self.path) as connection, writing(connection):
            known = connection.execute(
                "SELECT fingerprint, budget, state, owner_token, owner_host, owner_process, owner_started"
                " FROM entries WHERE id = ?",
                (id,),
            ).fetchone()
            if known is None:
                self._charge(connection, id, fingerprint, cost, description)
            else:
                known_fingerprint, known_budget, state, *known_owner = known
                if known_fingerprint != fingerprint or _read_budget(known_budget, self.path) != cost:
                    raise LedgerError(_other_contents(self.path, id))
                if state == "committed":
                    return Reservation(self, id, token=None)
                refuse_living_owner(self.path, id, Owner(*known_owner), take_over=take_over)
            connection.execute(
                "UPDATE entries SET owner_token = ?, owner_host = ?, owner_process = ?, owner_started = ? WHERE id = ?",
                (owner.token, owner.host, owner.process, owner.started, id),
            )
        return Reservation(self, id, token=owner.token)

    def knows(self, id: str) -> bool:  # noqa: A002
        """Whether the id was ever reserved here."""
        with connected(self.path) as connection:
            return connection.execute("SELECT 1 FROM entries WHERE id = ?", (id,)).fetchone() is not None

    def check(self, cost: Budget) -> None:
        """Refuse a cost that does not fit now; `reserve` decides it for good."""
        with connected(self.path) as connection, reading(connection):
            self._affordable(connection, cost)

    def _affordable(self, connection: sqlite3.Connection, cost: Budget) -> Decimal:
        """What the cost charges, in the ledger's additive unit; refused where less remains."""
        total = _header(connection, self.path)[1]
        charge = cost.cost_in(total.unit)
        remaining = exact_difference(total.amount, _spent(connection, self.path))
        if charge > remaining:
            raise BudgetExceeded(_exceeded(self.path, cost, charge=charge, remaining=remaining, total=total))
        return charge

    def _charge(
        self, connection: sqlite3.Connection, entry: str, fingerprint: str, cost: Budget, description: str
    ) -> None:
        if _header(connection, self.path)[0] is None:
            raise LedgerError(f"{self.path} is not bound to a dataset yet; call bind with its name first")
        charge = self._affordable(connection, cost)
        connection.execute(
            "INSERT INTO entries (id, fingerprint, description, budget, cost, state, created)"
            " VALUES (?, ?, ?, ?, ?, 'reserved', ?)",
            (entry, fingerprint, description, json.dumps(cost.to_json()), decimal_text(charge), now()),
        )

    def _check(self, *, dataset: str | None, total: Budget | None) -> None:
        """The file is sound, and is the ledger that the caller means."""
        with connected(self.path) as connection, reading(connection):
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()
            (page_size,) = connection.execute("PRAGMA page_size").fetchone()
            # SQLite reads a last page that was cut short as if zeros followed.
            if verdict != ("ok",) or os.stat(self.path).st_size % page_size:
                raise FileFormatError(damaged(self.path))
            bound, stored = _header(connection, self.path)
            _spent(connection, self.path)
        if dataset is not None and bound is not None and dataset != bound:
            raise LedgerError(_other_dataset(self.path, bound, dataset))
        if total is not None and total != stored:
            raise LedgerError(
                f"the total of {self.path} is {stored.describe()}, and {total.describe()} was given; "
                "leave the total out to use the stored one: it never changes"
            )


class Reservation:
    """The right to draw noise for one id, and the noisy values recorded under it.

    Leaving its `with` block without `complete()` gives the right up, so that a retry of the id can take it
    over; the budget stays spent.
    """

    def __init__(self, ledger: Ledger, entry: str, *, token: str | None) -> None:
        self.ledger = ledger
        self.id = entry
        self.replayed = token is None
        """Whether the id was completed before: everything is recorded and nothing may be drawn."""
        self._token = token

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
        with connected(self.ledger.path) as connection:
            return connection.execute(
                "SELECT fingerprint, payload FROM steps WHERE entry = ? AND step = ?", (self.id, step)
            ).fetchone()

    def record(self, step: int, *, fingerprint: str, payload: str) -> None:
        """The noisy payload of the step is on disk when this returns; only then may anyone see it."""
        _require_text("fingerprint", fingerprint)
        _require_text("payload", payload, empty=True)
        with connected(self.ledger.path) as connection, writing(connection):
            self._require_ownership(connection)
            known = connection.execute("SELECT 1 FROM steps WHERE entry = ? AND step = ?", (self.id, step)).fetchone()
            if known is not None:
                raise LedgerError(
                    f"step {step} of {self.id!r} is recorded already; use recorded({step}), draw nothing new"
                )
            connection.execute(
                "INSERT INTO steps (entry, step, fingerprint, payload) VALUES (?, ?, ?, ?)",
                (self.id, step, fingerprint, payload),
            )

    def complete(self) -> None:
        """The entry is committed, and every later request of this id is answered from it."""
        if self.replayed:
            return
        with connected(self.ledger.path) as connection, writing(connection):
            self._require_ownership(connection)
            connection.execute(
                "UPDATE entries SET state = 'committed', completed = ?, owner_token = NULL WHERE id = ?",
                (now(), self.id),
            )
        self._token = None

    def _release(self) -> None:
        if self._token is None:
            return
        with connected(self.ledger.path) as connection, writing(connection):
            connection.execute(
                "UPDATE entries SET owner_token = NULL WHERE id = ? AND owner_token = ?",
                (self.id, self._token),
            )
        self._token = None

    def _require_ownership(self, connection: sqlite3.Connection) -> None:
        row = connection.execute("SELECT state, owner_token FROM entries WHERE id = ?", (self.id,)).fetchone()
        if row is not None and row[0] == "committed":
            raise LedgerError(f"{self.id!r} is completed in {self.ledger.path}; its values can only be read")
        if self._token is None or row is None or row[1] != self._token:
            raise LedgerError(
                f"this reservation of {self.id!r} in {self.ledger.path} was given up, or taken over by "
                "another process; discard what was drawn and reserve the id again"
            )


def _exceeded(path: Path, cost: Budget, *, charge: Decimal, remaining: Decimal, total: Budget) -> str:
    # The request is rounded up and the rest down, so that the shortened numbers never seem to fit.
    unit: AdditiveUnit = total.additive_unit
    asked = f"{unit} {shortened(charge, rounding=ROUND_UP)}"
    declared = "" if cost.unit == unit else f" ({cost.describe()})"
    rest = shortened(remaining, rounding=ROUND_DOWN)
    return (
        f"asked for {asked}{declared}, {rest} of {shortened(total.amount)} remains in {path}; "
        f"lower {cost.unit.replace('-', ' or ')}, or use what was released already, which is free"
    )


def _header(connection: sqlite3.Connection, path: Path) -> tuple[str | None, Budget]:
    row = connection.execute("SELECT dataset, total FROM ledger").fetchone()
    if row is None or not isinstance(row[0], str | None):
        raise FileFormatError(damaged(path))
    return row[0], _read_budget(row[1], path)


def _spent(connection: sqlite3.Connection, path: Path) -> Decimal:
    return exact_sum(_read_cost(cost, path) for (cost,) in connection.execute("SELECT cost FROM entries"))


def _read_cost(text: object, path: Path) -> Decimal:
    try:
        cost = Decimal(text) if isinstance(text, str) else Decimal("NaN")
    except InvalidOperation:
        cost = Decimal("NaN")
    exponent = cost.as_tuple().exponent
    if not isinstance(exponent, int) or cost <= 0 or cost > LARGEST_CHARGE or exponent < -MOST_PLACES:
        raise FileFormatError(damaged(path))
    return cost


def _read_budget(text: object, path: Path) -> Budget:
    try:
        return Budget.from_json(json.loads(str(text)))
    except (ValueError, TypeError, AttributeError, DeclarationError) as error:
        raise FileFormatError(damaged(path)) from error


def _other_contents(path: Path, entry: str) -> str:
    return (
        f"{entry!r} is in {path} with other contents: its plan, domain or budget differ from those of this "
        "request; choose another id, or repeat the first request unchanged"
    )


def _other_dataset(path: Path, bound: str, dataset: str) -> str:
    return f"{path} is the ledger of {bound!r}, not of {dataset!r}; use the ledger of {dataset!r}"


def _require_text(name: str, value: str, *, empty: bool = False) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise LedgerError(f"the {name} is not valid Unicode text; spell it without stray bytes") from error
    if not value and not empty:
        raise LedgerError(f"the {name} is empty; give it some text")
