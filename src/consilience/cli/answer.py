"""`consilience answer`: ask an estimate what a person would type."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.cli import options
from consilience.cli.answer_texts import print_answers
from consilience.cli.console import announce_compilation, echo, note, progress
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError, TooLarge

if TYPE_CHECKING:
    from consilience.domain.queries import Question
    from consilience.estimators import Estimate
    from consilience.publication import AnswerTable, CrossTable
    from consilience.publication.intervals import Interval

EXAMPLE = 'Example: consilience answer release "age=25..34 by sex" --interval'


def answer_command(
    source: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release bundle, or a measurement file.")],
    queries: Annotated[list[str], typer.Argument(metavar="QUERY...", help='Such as "age=25..34 by sex" or "total".')],
    interval: Annotated[bool, typer.Option("--interval", help="Add error bars. They spend no budget.")] = False,
    level: options.Level = 0.95,
    refits: options.Refits = 200,
    seed: Annotated[int, typer.Option("--seed", help="With --interval: a public seed of the repetitions.")] = 0,
    per: Annotated[
        str | None, typer.Option("--per", metavar="QUERY", help='Divide by the answers to this: shares "per total".')
    ] = None,
    integers: Annotated[bool, typer.Option("--integers", help="Whole numbers that add up.")] = False,
    cross: Annotated[bool, typer.Option("--cross", help="Cross-tables with totals, as people print them.")] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", metavar="ATTR", help="With --cross: what goes across; repeatable. Else the last."),
    ] = None,
    guess: Annotated[
        bool, typer.Option("--guess", help="Show what the account assumes where nothing was measured, marked as guess.")
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated text.")] = False,
    json: options.AsJson = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write to a new file instead: .csv or .json.")] = None,
) -> None:
    """Answer queries from a release: a table, CSV or JSON. Spends nothing, error bars included."""
    from consilience.domain.files import write_atomically
    from consilience.publication.answers import as_question

    form = _form(csv=csv, json=json, out=out)
    _refuse_contradictions(per=per, integers=integers, cross=cross, columns=columns)
    parsed = [as_question(query, per) for query in queries]
    estimate = open_estimate(source)
    across = tuple(columns) if columns else None
    asked = _Asked(estimate, parsed, across, integers=integers, cross=cross, guess=guess)
    asked.check()
    bars = _error_bars(asked, level, refits, seed) if interval else {}
    tables = [asked.form(table, bars) for table in asked.plain]
    if not estimate.private:
        note("NOT PRIVATE: these numbers come from simulated noise")
    if form is None:
        for table in tables:
            print_answers(table)
    elif out is None:
        show = echo if form == "json" or sys.stdout.isatty() else typer.echo  # CSV in a pipe is data, left as it is
        show(_text(tables, form, asked.unanswered), nl=False)
    else:
        write_atomically(out, _text(tables, form, asked.unanswered).encode())
        note(f"wrote {out}")
    for query, why in asked.unanswered.items():
        note(f"no answer to {query!r}: {why}")
    if asked.unanswered:
        raise typer.Exit(1)


def open_estimate(path: Path) -> "Estimate":
    """The estimate of a bundle, or one fitted now to a measurement file."""
    from consilience.estimators import estimate
    from consilience.measurements import MeasurementSet
    from consilience.publication import open_release

    if path.is_dir():
        return open_release(path).estimate
    if not path.exists():
        raise FileFormatError(f"there is no release bundle or measurement file {path}")
    measured = MeasurementSet.load(path)
    announce_compilation()
    with progress() as show:
        return estimate(measured, progress=show)


@dataclass(frozen=True, eq=False)
class _Asked:
    """What the user asked for, once it is known of what."""

    estimate: "Estimate"
    questions: "list[Question]"
    columns: tuple[str, ...] | None
    integers: bool
    cross: bool
    guess: bool
    unanswered: dict[str, str] = field(default_factory=dict)
    """Why there is no answer, by the queries that need too much memory; the others are answered."""

    @cached_property
    def plain(self) -> "list[AnswerTable]":
        """The answers without error bars; whole numbers where they are wanted."""
        from consilience.publication import answer_table, in_whole_numbers, whole_answers

        tables = []
        for each in self.questions:
            try:
                tables.append(answer_table(self.estimate, each, guess=self.guess))
            except TooLarge as error:
                if len(self.questions) == 1:
                    raise
                self.unanswered[each.describe()] = str(error)
        if not self.integers:
            return tables
        whole = whole_answers(self.estimate, [table.query for table in tables], columns=self.columns)
        note(f"whole numbers: {whole.note}")
        return [in_whole_numbers(*pair) for pair in zip(tables, whole.answers, strict=True)]

    def check(self) -> None:
        """Refuse what cannot be answered or printed, before error bars take their time."""
        for table in self.plain:
            self.form(table, {})

    def margins(self, table: "AnswerTable") -> "list[Question]":
        """What the totals of a cross-table ask for."""
        from consilience.domain.queries import Question
        from consilience.publication import margin_queries

        return [Question(query) for query in margin_queries(table, columns=self.columns)] if self.cross else []

    def form(self, table: "AnswerTable", bars: "dict[Question, Interval]") -> "AnswerTable | CrossTable":
        """The table with its error bars as it is to be shown."""
        from consilience.publication import answer_table, cross_table

        table = replace(table, interval=bars.get(table.question))
        if not self.cross:
            return table
        margins = [answer_table(self.estimate, each, bars.get(each)) for each in self.margins(table)]
        return cross_table(table, columns=self.columns, margins=margins)


def _error_bars(asked: _Asked, level: float, refits: int, seed: int) -> "dict[Question, Interval]":
    """The intervals of all queries and margins, from the same refits; none, and why, where there can be none."""
    from consilience.publication.intervals import intervals

    announce_compilation()
    totals = [each for table in asked.plain for each in asked.margins(table)]
    wanted = list(dict.fromkeys([*(table.question for table in asked.plain), *totals]))
    try:
        with progress() as show:
            found = intervals(asked.estimate, wanted, level=level, refits=refits, seed=seed, progress=show)
    except DeclarationError:
        raise
    except ConsilienceError as error:
        note(f"no error bars: {error}")
        return {}
    how = f"{refits} refits, seed {seed}" if any(each.how == "refits" for each in found) else "exact covariances"
    note(f"error bars: {level * 100:g} % intervals by {how}")
    for line in dict.fromkeys(line for each in found for line in each.notes):
        note(f"  {line}")
    return dict(zip(wanted, found, strict=True))


def _form(*, csv: bool, json: bool, out: Path | None) -> str | None:
    """How answers are written: "csv", "json", or None for people."""
    if csv and json:
        raise typer.BadParameter("choose one of --csv and --json")
    form = "csv" if csv else "json" if json else None
    if out is None:
        return form
    options.refuse_existing(out)
    if form is None:
        form = out.suffix.lower().removeprefix(".")
    if form not in ("csv", "json"):
        raise typer.BadParameter(f"{out} is neither .csv nor .json; name it so, or add --csv or --json")
    return form


def _refuse_contradictions(*, per: str | None, integers: bool, cross: bool, columns: list[str] | None) -> None:
    if per is not None and integers:
        raise typer.BadParameter("ratios are no whole numbers; choose one of --per and --integers")
    if columns and not cross:
        raise typer.BadParameter("it says what goes across in a cross-table; add --cross", param_hint="--columns")


def _text(tables: "Sequence[AnswerTable | CrossTable]", form: str, unanswered: dict[str, str]) -> str:
    """All tables as one text; tables of comma-separated text are divided by an empty line."""
    if form == "csv":
        return "\n".join(table.to_csv() for table in tables)
    documents = [table.to_json() for table in tables]
    documents += [
        dumps({"query": query, "answers": None, "reason": why}, indent=2, ensure_ascii=False)
        for query, why in unanswered.items()
    ]
    return (documents[0] if len(documents) == 1 else "[\n" + ",\n".join(documents) + "\n]") + "\n"
