"""What the command line shows: results on standard output, everything else on standard error."""

import json
import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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


def watch_spending(ledger: "Ledger") -> None:
    """Remember what is spent now, to be able to say later what this command spent."""
    _charged[:] = [(ledger, ledger.spent)]


def what_was_recorded() -> list[str]:
    """What to know after a command ended early: what it spent, and how to go on. Nothing where it spent nothing."""
    if not _charged:
        return []
    from consilience.domain.files import shown_path

    ledger, before = _charged[0]
    place = shown_path(ledger.path)
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


RENAMED = {"query": "sql"}
"""Options that are not called as the keyword is."""
_OPTIONS = (
    "allow_misfit budget chains clusters columns convert cross decimal delimiter delta encoding epsilon "
    "fill_unmeasured guess id integers ledger level max_rows_per_unit method missing_tokens name neighbours out "
    "overwrite per plan query records refits rho rounds rows seed simulate spread steps sums_share table take_over "
    "thousands unit unnamed_share workload"
)
_LEDGER = re.compile(r"\bledger=Ledger\.open\([^)]*\)")
_QUOTED = r"""(?<!\w)(?P<quote>['"`]).*?(?P=quote)(?!\w)"""
_KEYWORD = re.compile(
    rf"{_QUOTED}|(?<![\w.-])(?P<name>{'|'.join(_OPTIONS.split())})=(?P<flag>True\b)?(?=(?P<value>\S?))"
)


def in_words_of_the_command_line(message: str) -> str:
    """A message of the library, with its keywords as the options that they are here; what it quotes stays as it is.

    >>> in_words_of_the_command_line("no budget was given; add epsilon=1, or take_over=True; drop unit= and query=")
    'no budget was given; add --epsilon 1, or --take-over; drop --unit and --sql'
    """

    def option(found: re.Match[str]) -> str:
        if found["quote"]:
            return found[0]
        word = "--" + RENAMED.get(found["name"], found["name"]).replace("_", "-")
        valued = found["flag"] is None and re.match(r"[\w.'\"]", found["value"]) is not None
        return f"{word} " if valued else word

    return _KEYWORD.sub(option, _LEDGER.sub("--ledger PATH", message))


def refuse(message: str) -> NoReturn:
    """Say why nothing was done, and leave with exit code 1."""
    note(f"consilience: {in_words_of_the_command_line(message)}")
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
    from consilience.domain.declarations import visible

    return "\n".join(visible(line) for line in text.split("\n"))


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


LARGEST_HAT = 1.2
"""Chains whose R-hat is above this have not come to an agreement."""
LARGEST_MISFIT = 1.5
"""Rounds that miss what they are expected to be by more than this, squared and on average, are not explained."""


def tell_chains(diagnostics: Mapping[str, Any], *, better: str, many: str) -> None:
    """Say what speaks against trusting what chains found: they disagree, or nothing explains the rounds."""
    hat, misfit = diagnostics["rhat"], diagnostics["misfit"]
    if hat is None or hat > LARGEST_HAT:
        note(f"the chains have not come to an agreement; with more --steps they may find better {better}")
    if misfit is None or misfit > LARGEST_MISFIT:
        reason = f"there are too many {many}" if misfit is None else "no records explain the rounds"
        note(f"the error bars may be too narrow: {reason}")


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
    from consilience.kernels.compilation import compilation

    with bar, compilation.watched_by(lambda said: bar.update(task, description=said)):
        task = bar.add_task("starting", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total if total > 1 else None)

        yield show


class _Notes(logging.Handler):
    """What the library tells, on standard error and in the words of the command line."""

    def emit(self, record: logging.LogRecord) -> None:
        note(in_words_of_the_command_line(record.getMessage()))


def listen(*, verbose: bool = False) -> None:
    """Show what the library tells; with `verbose` its details too."""
    logger = logging.getLogger("consilience")
    if not any(isinstance(each, _Notes) for each in logger.handlers):
        logger.addHandler(_Notes())
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
