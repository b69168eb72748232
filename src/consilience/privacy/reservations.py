"""The right to draw noise for one request, and what was recorded under it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Self

from consilience.errors import FileFormatError, LedgerError
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
