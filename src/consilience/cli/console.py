"""What the command line shows: results on standard output, everything else on standard error."""

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from consilience.errors import ConsilienceError

if TYPE_CHECKING:
    from decimal import Decimal

    from consilience.privacy.ledger import Ledger


class Interrupted(BaseException):
    """Ctrl-C, by a name that no library takes for its own matter."""


@contextmanager
def stopping_at_interrupt() -> Iterator[None]:
    """Raise `Interrupted` at the first Ctrl-C within the block; the next one does what it always did."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(*_: object) -> NoReturn:
        signal.signal(signal.SIGINT, before)
        raise Interrupted

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_charged: "list[tuple[Ledger, Decimal]]" = []
"""The ledger that the running command charges, and what was spent of it before."""


def watch_spending(ledger: "Ledger | None") -> None:
    """Remember what is spent now, to be able to say later what this command spent."""
    _charged[:] = [] if ledger is None else [(ledger, ledger.spent)]


def what_was_recorded() -> list[str]:
    """What to know after a command ended early: what it spent, and how to go on. Nothing where it spent nothing."""
    if not _charged:
        return []
    ledger, before = _charged[0]
    place = shown_path(Path(ledger.path))
    try:
        if ledger.spent == before or ledger.entries()[-1].state == "failed":  # a failure says itself what it cost
            return []
        left = f"{ledger.remaining_text} remains"
    except ConsilienceError:
        left = f"see `consilience ledger show {place}`"
    return [
        f"The budget of this request is spent and recorded in {place} ({left}). Repeat the same command to go on: what "
        "was recorded is used again, and nothing is charged twice."
    ]


def refuse(message: str) -> NoReturn:
    """Say why nothing was done, and leave with exit code 1."""
    note(f"consilience: {message}")
    sys.exit(1)


def report_bug(error: Exception) -> NoReturn:
    """Say where an unexpected error came from, without its text, which could quote confidential data."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "unknown"
    refuse(
        f"internal error ({type(error).__name__} at {place}); please report it. "
        "Its details were withheld: they may be confidential"
    )


def note(message: str) -> None:
    """A line about what is going on, for people."""
    echo(message, err=True)


def echo(message: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text in which nothing is an order to the terminal: files may hold labels that were made to be one."""
    typer.echo(_harmless(message), err=err, nl=nl)


def _harmless(text: str) -> str:
    from consilience.domain.spelling import visible

    return "\n".join(visible(line) for line in text.split("\n"))


def shown_path(path: Path) -> str:
    """A path as it is seen from the current folder, where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def print_json(document: Any) -> None:
    echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: int = 0, title: str | None = None
) -> None:
    """A table for people; the last `numeric` columns are aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    rows = [[_harmless(part) for part in row] for row in rows]
    table = Table(
        title=None if title is None else _harmless(title), box=SIMPLE_HEAD, title_justify="left", pad_edge=False
    )
    for position, name in enumerate(header):
        right = position >= len(header) - numeric
        table.add_column(_harmless(name), justify="right" if right else "left", no_wrap=right)
    for row in rows:
        table.add_row(*row)
    wide = max([len(part) for row in [header, *rows] for part in row], default=0) * len(header) + 20
    Console(width=None if sys.stdout.isatty() else max(wide, 80), highlight=False, markup=False).print(table)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """A progress bar on a terminal, and nothing in a pipe. It shows only publicly known sizes."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    )
    with bar:
        task = bar.add_task("starting", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total if total > 1 else None)

        yield show


def announce_compilation() -> None:
    """Say on standard error when a kernel is compiled for the first time, which takes a moment."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("consilience")
    if not logger.handlers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
