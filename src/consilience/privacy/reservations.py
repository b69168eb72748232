"""The right to draw noise for one request, and what was recorded under it."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Self

from consilience.errors import BudgetExceeded, FileFormatError, LedgerError
from consilience.privacy.budgets import Budget, exact_difference, exact_sum
from consilience.privacy.ledger_chain import add_step, recorded_step, seal, verify_entry
from consilience.privacy.ledger_file import now, reading, writing

RESULT = -1
"""The step under which the checksum of a whole result is recorded."""


class Reservation:
    """The right to draw noise for one id, and the noisy values recorded under it.

    Leaving its `with` block without `complete()` gives the right up, so that a retry of the id can take it
    over; the budget stays spent.
    """

    def __init__(self, path: Path, entry: str, *, token: str | None) -> None:
        self.path = path
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
        except (LedgerError, FileFormatError) as failure:
            if error is None:
                raise
            error.add_note(f"the reservation of {self.id!r} could not be given up: {failure}")

    def recorded(self, step: int) -> tuple[str, str] | None:
        """The request fingerprint and the noisy payload of a step that was recorded, else None."""
        with reading(self.path) as connection:
            return recorded_step(connection, self.id, step, self.path)

    def record(self, step: int, *, fingerprint: str, payload: str) -> None:
        """The noisy payload of the step is on disk when this returns; only then may anyone see it."""
        require_text("fingerprint", fingerprint)
        require_text("payload", payload, empty=True)
        with writing(self.path) as connection:
            self._require_ownership(connection)
            if recorded_step(connection, self.id, step, self.path) is not None:
                raise LedgerError(
                    f"step {step} of {self.id!r} is recorded already; use recorded({step}), draw nothing new"
                )
            add_step(connection, self.id, step, fingerprint, payload)
            seal(connection, self.id)

    def complete(self, *, checksum: str | None = None) -> None:
        """The entry is committed with the checksum of its result, and every later request is answered from it."""
        if self.replayed:
            return
        if checksum is not None and self.recorded(RESULT) is None:
            self.record(RESULT, fingerprint="checksum", payload=checksum)
        self._close("state = 'committed', completed = ?")

    def fail(self) -> None:
        """The source failed while it was read, which says something about it: the id is spent and never read again."""
        self._close("failed = ?")

    def _close(self, change: str) -> None:
        with writing(self.path) as connection:
            self._require_ownership(connection)
            update = f"UPDATE entries NOT INDEXED SET {change}, owner_token = NULL WHERE id = ?"
            connection.execute(update, (now(), self.id))
            seal(connection, self.id)
        self._token = None

    def _release(self) -> None:
        if self._token is None:
            return
        with writing(self.path) as connection:
            if verify_entry(connection, self.id, self.path)["owner_token"] == self._token:
                connection.execute("UPDATE entries NOT INDEXED SET owner_token = NULL WHERE id = ?", (self.id,))
                seal(connection, self.id)
        self._token = None

    def _require_ownership(self, connection: sqlite3.Connection) -> None:
        row = verify_entry(connection, self.id, self.path)
        if row["state"] == "committed":
            raise LedgerError(f"{self.id!r} is completed in {self.path}; its values can only be read")
        if self._token is None or row["owner_token"] != self._token:
            raise LedgerError(
                f"this reservation of {self.id!r} in {self.path} was given up, or taken over by "
                "another process; discard what was drawn and reserve the id again"
            )


def require_text(name: str, value: str, *, empty: bool = False) -> None:
    """Refuse what SQLite cannot hold as text, and nothing where something is needed."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise LedgerError(f"the {name} is not valid Unicode text; spell it without stray bytes") from error
    if not value and not empty:
        raise LedgerError(f"the {name} is empty; give it some text")


# ----------------------------------------------------------------------------------------------------------------------
# Who holds a reservation, and whether that process may still be running.


@dataclass(frozen=True)
class Owner:
    """The process that holds a reservation; without a token, nobody does any more."""

    token: str | None
    host: str
    process: int
    started: str

    @classmethod
    def this_process(cls) -> Owner:
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


def refuse_living_owner(path: Path, entry: str, owner: Owner, *, take_over: bool) -> None:
    if owner.token is None:
        return
    if owner.host != _host():
        if not take_over:
            raise LedgerError(
                f"{entry!r} in {path} is reserved by process {owner.process} on another machine or container "
                f"({owner.host}; this is {_host()}); when that process has ended, repeat with take_over=True"
            )
    elif owner.alive():
        raise LedgerError(
            f"{entry!r} in {path} is in progress by "
            + ("this process" if owner.process == os.getpid() else f"another process ({owner.process})")
            + "; wait for it to end and try again, or choose another id"
        )


# ----------------------------------------------------------------------------------------------------------------------
# What a run may spend, and what it has spent of it.


class RunAccount:
    """The account of one run; it refuses a step that would exceed the run's budget.

    >>> from consilience.privacy.budgets import budget
    >>> account = RunAccount(budget(epsilon=1))
    >>> account.charge(budget(epsilon=0.75))
    >>> account.spent
    Decimal('0.75')
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.spent = Decimal(0)
        self.failures = Decimal(0)

    def charge(self, cost: Budget) -> None:
        """Take the cost of a step off what is left, or refuse it."""
        amount = cost.cost_in(self.budget.unit)
        remaining = exact_difference(self.budget.amount, self.spent)
        failures = exact_sum([self.failures, cost.failure])
        if amount > remaining or failures > self.budget.failure:
            raise BudgetExceeded(
                f"the plan asked for {cost.describe()}, {remaining} of its {self.budget.describe()} remains; "
                "its steps must sum to what the run was given"
            )
        self.spent, self.failures = exact_sum([self.spent, amount]), failures
