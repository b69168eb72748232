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

import hashlib
import hmac
import json
import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.errors import BudgetExceeded, LedgerError
from consilience.privacy.budgets import (
    AdditiveUnit,
    Budget,
    Number,
    Protection,
    budget,
    decimal_text,
    exact_difference,
    exact_sum,
    shortened,
    steps_between,
    why_not_convertible,
)
from consilience.privacy.ledger_chain import recorded_step, seal, verify_everything, verify_steps
from consilience.privacy.ledger_file import (
    LedgerEntry,
    LedgerHeader,
    LedgerState,
    create_file,
    now,
    read_header,
    read_state,
    reading,
    refuse_damage,
    version_of,
    writing,
)
from consilience.privacy.reservations import RESULT, Owner, Reservation, refuse_living_owner, require_text

if TYPE_CHECKING:
    from consilience.domain.descriptions import Description


@dataclass(frozen=True)
class Ledger:
    """The budget of one dataset, on disk. Every property is read from the file when it is asked for.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.open(Path(folder.name) / "town.ledger", epsilon=2)
    >>> ledger.remaining_text
    'epsilon 2'
    >>> folder.cleanup()
    """

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).absolute())

    @classmethod
    def create(cls, path: str | Path, *, dataset: str, total: Budget, protection: Protection | None = None) -> Ledger:
        """A new ledger at `path`, which no other process had created before.

        Without a protection it is bound to that of its first charge.
        """
        require_text("dataset", dataset)
        ledger = cls(Path(path))
        try:
            create_file(ledger.path, dataset=dataset, total=total, protection=protection)
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
        failure_delta: Number | None = None,
    ) -> Ledger:
        """The ledger at `path`, created when it is missing and a total is given.

        A ledger created without a dataset belongs to the first one that `bind` names.
        """
        ledger = cls(Path(path))
        amounts = {"epsilon": epsilon, "delta": delta, "rho": rho, "failure_delta": failure_delta}
        total = budget(**amounts) if any(number is not None for number in amounts.values()) else None
        if dataset is not None:
            require_text("dataset", dataset)
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
        return self._header().uid

    @property
    def dataset(self) -> str | None:
        """The name of the dataset that the ledger is bound to, if any yet."""
        return self._header().dataset

    @property
    def total(self) -> Budget:
        """The budget that the ledger was created with."""
        return self._header().total

    @property
    def protection(self) -> Protection | None:
        """The unit, its rows and the neighbours to which all charges refer; None before the first charge."""
        return self._header().protection

    @property
    def spent(self) -> Decimal:
        """The sum of all charges, reserved or committed, in the additive unit of the total."""
        return self._state().spent

    @property
    def remaining(self) -> Decimal:
        """What may still be charged, in the additive unit of the total."""
        return self._state().remaining

    @property
    def remaining_text(self) -> str:
        """What may still be charged, as people say it; never more than there is."""
        state = self._state()
        return f"{state.total.additive_unit} {shortened(state.remaining, rounding=ROUND_DOWN)}"

    def entries(self) -> tuple[LedgerEntry, ...]:
        """All charges, oldest first."""
        return self._state().entries

    def entry(self, id: str) -> LedgerEntry | None:  # noqa: A002
        """The charge of this id, if there was one."""
        return self._state().entry(id)

    def checksum(self, id: str) -> str | None:  # noqa: A002
        """The checksum of the measurements that this id gave; None of those of earlier versions, and of unknown ids."""
        self._state()
        with reading(self.path) as connection:
            found = recorded_step(connection, id, RESULT, self.path) if version_of(connection, self.path) > 1 else None
        return None if found is None else found[1]

    def to_json(self) -> dict[str, Any]:
        """The total, what was spent on what, and what remains, as plain data."""
        state = self._state()
        return {
            "dataset": state.dataset,
            "total": state.total.to_json(),
            "unit": state.total.additive_unit,
            "protection": None if state.protection is None else state.protection.to_json(),
            "spent": decimal_text(state.spent),
            "remaining": decimal_text(state.remaining),
            "failure_delta": decimal_text(state.failures),
            "entries": [entry.to_json() for entry in state.entries],
        }

    def __repr__(self) -> str:
        return self.described().text()

    def _repr_html_(self) -> str:
        return self.described().html()

    def described(self) -> Description:
        """What `show` says; where the file cannot be read, why."""
        from consilience.domain.descriptions import Description  # late: who opens a ledger needs no numpy

        try:
            lines = self.show().split("\n")
        except LedgerError as error:
            lines = [str(error)]
        return Description(f"Ledger {self.path.name}", tuple(lines))

    def show(self) -> str:
        """The same for people: two lines about the ledger, and one for each request."""
        state = self._state()
        protects = "what its first request will" if state.protection is None else state.protection.describe()
        lines = [
            f"dataset {state.dataset!r}: {state.total.describe()} in all, {self.remaining_text} remains",
            f"protects {protects}",
        ]
        if state.failures:
            lines.append(
                f"failure deltas add up to {shortened(state.failures)}, and "
                + (
                    f"rho is held to what epsilon {shortened(state.total.epsilon)} allows with the rest of its delta"
                    if state.total.epsilon is not None
                    else f"may to {shortened(state.total.failure)}"
                )
            )
        mixed = any(entry.protection != state.protection for entry in state.entries)
        rows = [
            [
                entry.created[:16].replace("T", " "),
                f"{state.total.additive_unit} {decimal_text(entry.cost)}"
                + (f" and failure delta {decimal_text(entry.budget.failure)}" if entry.budget.failure else ""),
                entry.plan,
                entry.source_text,
                *(["not recorded" if entry.protection is None else entry.protection.describe()] if mixed else []),
                entry.id,
                entry.state,
            ]
            for entry in state.entries
        ]
        texts = [[" ".join(text.split()) for text in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in texts]
        unknown = sum(entry.protection is None for entry in state.entries)
        if unknown:
            lines.append(
                f"{unknown} of these were charged by an earlier version, which did not record the unit and the "
                "neighbours: the sum is a guarantee only if they protect the same"
            )
        return "\n".join(lines)

    def elsewhere(self, fingerprint: str, source: Mapping[str, Any]) -> tuple[LedgerEntry, ...]:
        """Charges for the same request of other sources."""
        return tuple(
            entry
            for entry in self.entries()
            if entry.fingerprint == fingerprint
            and entry.source is not None
            and told_apart_by(entry.source) != told_apart_by(source)
        )

    def _header(self) -> LedgerHeader:
        with reading(self.path) as connection:
            return read_header(connection, self.path)

    def _state(self) -> LedgerState:
        with reading(self.path) as connection:
            return read_state(connection, self.path)

    def salted(self, text: str) -> str:
        """A digest of the text that nobody can guess at without this ledger: what may be published of a secret."""
        secret = self._header().secret
        if secret is None:  # a ledger of format 1 gets its secret with the first write
            with writing(self.path) as connection:
                read_state(connection, self.path)  # what is chained now, is sound
                secret = read_header(connection, self.path).secret
        return hmac.new(str(secret).encode(), text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def bind(self, dataset: str) -> None:
        """The ledger belongs to `dataset` from now on; one that belongs to another refuses."""
        require_text("dataset", dataset)
        bound = self.dataset
        if bound is None:
            with writing(self.path) as connection:
                bound = read_state(connection, self.path).dataset
                if bound is None:
                    connection.execute("UPDATE ledger SET dataset = ?", (dataset,))
                    seal(connection)
        if bound is not None and bound != dataset:
            raise LedgerError(_other_dataset(self.path, bound, dataset))

    def reserve(
        self,
        id: str,  # noqa: A002  (the word that users, files and the command line share)
        *,
        fingerprint: str,
        cost: Budget,
        description: str,
        source: Mapping[str, Any] | None = None,
        protection: Protection = Protection(),  # noqa: B008 (frozen: one row, add-remove)
        convert: bool = False,
        take_over: bool = False,
    ) -> Reservation:
        """The right to draw noise for `id`, charged durably; for an id known already, uncharged.

        A completed id is replayed. A reservation whose owner died or gave up is taken over with what it had
        recorded; `take_over` vouches that an owner on another machine, which cannot be seen from here, ended.
        `convert` accepts the cost under what the ledger protects, where the request protects something else.
        """
        require_text("id", id)
        require_text("fingerprint", fingerprint)
        require_text("description", description, empty=True)
        owner = Owner.this_process()
        with writing(self.path) as connection:
            state = read_state(connection, self.path)
            known = state.entry(id)
            if known is None:
                charge = self._affordable(state, cost, protection, convert=convert)
                self._charge(connection, state, (id, fingerprint, description, source), cost, charge, protection)
            else:
                self._refuse_other_contents(known, fingerprint, cost, source)
                verify_steps(connection, id, self.path)
                if known.state == "committed":
                    return Reservation(self.path, id, token=None)
                refuse_living_owner(self.path, id, _owner_of(connection, id), take_over=take_over)
            connection.execute(
                "UPDATE entries NOT INDEXED SET owner_token = ?, owner_host = ?, owner_process = ?, owner_started = ?"
                " WHERE id = ?",
                (owner.token, owner.host, owner.process, owner.started, id),
            )
            seal(connection, id)
        return Reservation(self.path, id, token=owner.token)

    def knows(self, id: str) -> bool:  # noqa: A002
        """Whether the id was ever reserved here."""
        return self.entry(id) is not None

    def check(
        self,
        cost: Budget,
        *,
        protection: Protection = Protection(),  # noqa: B008
        convert: bool = False,
        size: int = 0,
    ) -> None:
        """Refuse a cost that does not fit now, or `size` bytes of values; `reserve` decides about the cost for good."""
        self._affordable(self._state(), cost, protection, convert=convert)
        free = shutil.disk_usage(self.path.parent).free
        if size > free:
            raise LedgerError(
                f"the noisy values would take about {size / 1e9:,.1f} GB in {self.path}, and {free / 1e9:,.1f} GB are "
                "free there; nothing was spent: make room, or measure less"
            )

    def _affordable(self, state: LedgerState, cost: Budget, protection: Protection, *, convert: bool) -> Decimal:
        """What the cost charges, in the ledger's additive unit; refused where less remains."""
        bound = protection if state.protection is None else state.protection
        steps = steps_between(bound, protection)
        if steps is None or (bound != protection and not convert):
            raise LedgerError(_other_protection(self.path, bound, protection, cost, state.total, steps))
        charge = cost.for_group(steps).cost_in(state.total.unit)
        room = state.total.room(exact_sum([state.failures, cost.failure]))
        if room is None:
            raise BudgetExceeded(_fails_too_often(self.path, cost, state))
        remaining = exact_difference(room, state.spent)
        if charge > remaining:
            raise BudgetExceeded(_exceeded(self.path, cost, charge=charge, remaining=remaining, total=state.total))
        return charge

    def _charge(
        self,
        connection: sqlite3.Connection,
        state: LedgerState,
        request: tuple[str, str, str, Mapping[str, Any] | None],
        cost: Budget,
        charge: Decimal,
        protection: Protection,
    ) -> None:
        if state.dataset is None:
            raise LedgerError(f"{self.path} is not bound to a dataset yet; call bind with its name first")
        protected = json.dumps(protection.to_json())
        if state.protection is None:
            connection.execute("UPDATE ledger SET protection = ?", (protected,))
        *words, source = request
        budgeted, charged = json.dumps(cost.to_json()), decimal_text(charge)
        identity = None if source is None else json.dumps(source, sort_keys=True)
        connection.execute(
            "INSERT INTO entries"
            " (id, fingerprint, description, budget, cost, state, created, source, protection, steps)"
            " VALUES (?, ?, ?, ?, ?, 'reserved', ?, ?, ?, '')",
            (*words, budgeted, charged, now(), identity, protected),
        )

    def _refuse_other_contents(
        self, known: LedgerEntry, fingerprint: str, cost: Budget, source: Mapping[str, Any] | None
    ) -> None:
        if known.fingerprint != fingerprint or known.budget != cost:
            raise LedgerError(_other_contents(self.path, known.id, "plan, domain, budget, neighbours or unit"))
        if source is not None and known.source is not None and told_apart_by(known.source) != told_apart_by(source):
            raise LedgerError(_other_contents(self.path, known.id, "source (file, table or query)"))
        if source is not None and known.source is None and (source.get("table") or source.get("query")):
            raise LedgerError(
                f"{known.id!r} was recorded in {self.path} by an earlier version, which did not note the table or "
                "query it was for, so that nobody can tell whether it is this one; give the request another id: it is "
                "measured anew, and charged"
            )
        if known.state == "failed":
            raise LedgerError(
                f"the source failed while it was read for {known.id!r}, and {self.path} keeps that charge, because the "
                "failure itself may have told something; correct the source or the query and give the request another "
                "id: it is charged anew"
            )

    def _check(self, *, dataset: str | None, total: Budget | None) -> None:
        """The file is sound, and is the ledger that the caller means."""
        with reading(self.path) as connection:
            refuse_damage(connection, self.path)
            if version_of(connection, self.path) > 1:
                verify_everything(connection, self.path)
            state = read_state(connection, self.path)
        if dataset is not None and state.dataset is not None and dataset != state.dataset:
            raise LedgerError(_other_dataset(self.path, state.dataset, dataset))
        if total is not None and total != state.total:
            raise LedgerError(
                f"the total of {self.path} is {state.total.describe()}, and {total.describe()} was given; "
                "leave the total out to use the stored one: it never changes"
            )


def told_apart_by(source: Mapping[str, Any]) -> dict[str, Any]:
    """What tells a recorded source from others: all but the directory in which its ledger lay."""
    return {name: value for name, value in source.items() if name != "directory"}


def _owner_of(connection: sqlite3.Connection, entry: str) -> Owner:
    columns = "owner_token, owner_host, owner_process, owner_started"
    return Owner(*connection.execute(f"SELECT {columns} FROM entries NOT INDEXED WHERE id = ?", (entry,)).fetchone())


def _exceeded(path: Path, cost: Budget, *, charge: Decimal, remaining: Decimal, total: Budget) -> str:
    # The request is rounded up and the rest down, so that the shortened numbers never seem to fit.
    unit: AdditiveUnit = total.additive_unit
    asked = f"{unit} {shortened(charge, rounding=ROUND_UP)}"
    declared = "" if cost.unit == unit and cost.amount == charge else f" ({cost.describe()})"
    rest = shortened(max(remaining, Decimal(0)), rounding=ROUND_DOWN)
    return (
        f"asked for {asked}{declared}, {rest} of {shortened(total.amount)} remains in {path}; "
        f"lower {cost.unit.replace('-', ' or ')}, or use what was released already, which is free"
    )


def _fails_too_often(path: Path, cost: Budget, state: LedgerState) -> str:
    total, spent = state.total, shortened(state.failures)
    if total.unit == "rho" and not total.failure:
        return (
            f"asked for a failure delta of {shortened(cost.failure)}, and the total of {path}, {total.describe()}, "
            "allows none: create a ledger with one, such as rho=0.5 with failure_delta=1e-9, or declare what is to "
            "be found"
        )
    allowed = total.failure_delta if total.unit == "rho" else total.delta
    return (
        f"asked for a failure delta of {shortened(cost.failure)}, {spent} of the {shortened(allowed or Decimal(0))} "
        f"of {path} is spent; ask for less of it, or use what was released already, which is free"
    )


def _other_protection(
    path: Path, bound: Protection, asked: Protection, cost: Budget, total: Budget, steps: int | None
) -> str:
    words = (
        f"{path} protects {bound.describe()}, and this request would protect {asked.describe()}: their costs do not "
        "add up"
    )
    if steps is None:
        return (
            f"{words}, and no finite cost follows, because {why_not_convertible(bound, asked)}; ask for what the "
            "ledger protects, or use a ledger of its own"
        )
    unit: AdditiveUnit = total.additive_unit
    charge = f"{unit} {shortened(cost.for_group(steps).cost_in(total.unit), rounding=ROUND_UP)}"
    rule = "the same" if steps == 1 else f"{steps if unit == 'epsilon' else steps**2} times as much"
    return (
        f"{words}. Between neighbours of the ledger it would cost {charge}, {rule}: repeat with convert=True "
        "to be charged that, or ask for what the ledger protects"
    )


def _other_contents(path: Path, entry: str, differing: str) -> str:
    return (
        f"{entry!r} is in {path} with other contents: its {differing} differ from those of this "
        "request; choose another id, or repeat the first request unchanged"
    )


def _other_dataset(path: Path, bound: str, dataset: str) -> str:
    return f"{path} is the ledger of {bound!r}, not of {dataset!r}; use the ledger of {dataset!r}"
