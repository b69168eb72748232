"""Who holds a reservation, and whether that process may still be running."""

from __future__ import annotations

import os
import platform
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from consilience.errors import LedgerError


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
