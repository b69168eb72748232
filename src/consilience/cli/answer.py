"""`consilience answer`: ask an estimate what a person would type."""

import math
import shutil
import sys
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from consilience.cli import options
from consilience.cli.console import echo, listen, note, print_table, progress
from consilience.errors import FileFormatError

if TYPE_CHECKING:
    from consilience.estimators import Estimate
    from consilience.measurements.basis import Basis
    from consilience.publication import AnswerTable, CrossTable
    from consilience.publication.answers.cross_tables import Percent
    from consilience.publication.bundle import Bundle
    from consilience.publication.release import Answers


# ----------------------------------------------------------------------------------------------------------------------
# Answers on a terminal: long tables and cross-tables, with marks and a legend.


MODELLED_LEGEND = "~ modelled: no measurement determines it; the model fills in from what was measured in parts"
MISSING_LEGEND = "– {}."
GUESS_LEGEND = "– {}. With --guess you see what the account assumes instead."
GUESSED_LEGEND = "guess: {}. The account only assumes that values are equally frequent, or attributes independent."
SPACE_BETWEEN = 3
"""What a column takes beside its text."""


def print_answers(table: "AnswerTable | CrossTable") -> None:
    """A table for people."""
    from consilience.publication import CrossTable

    if isinstance(table, CrossTable):
        print_cross_table(table)
    else:
        print_long_table(table)


def print_long_table(table: "AnswerTable") -> None:
    """A row for each answer, then a legend where there are marks."""
    from consilience.publication.answers import Style, likely

    names = table.numeric_columns
    noisy = Style()
    rows = []
    for place, (labels, row) in enumerate(zip(table.shown_labels, table.rows(), strict=True)):
        written = {"noisy": noisy.text, "sure": likely, "among": likely}
        shown = [written.get(name, table.style.text)(row[name]) for name in names]
        if table.interval is not None:
            shown[names.index("estimate")] += "*" if table.uncertain[place] else " "
        rows.append([*labels, row["basis"], *shown])
    told = {"sure": "sure of its place", "among": f"one of the top {table.question.top}"}
    told |= {} if table.change is None else {"estimate": "change"}
    heads = [told.get(name, name) for name in names]
    print_table((*table.shown_columns, "basis", *heads), rows, numeric=len(names), title=table.title)
    doubt = table.doubt if table.uncertain.any() else ""
    missing = MISSING_LEGEND if table.change is not None else GUESSED_LEGEND if table.guess else GUESS_LEGEND
    _print_legend(table.basis, doubt=doubt, missing=missing, notes=table.notes)


def print_cross_table(table: "CrossTable") -> None:
    """The table as people print it; where it is wider than the terminal, in parts that each repeat the labels."""
    heads = ["\n".join(labels) for labels in zip(*table.shown_header, strict=True)]
    texts = [[text + " " * (table.any_wide and not text.endswith("*")) for text in row] for row in table.texts()]
    title = table.title if not table.across else f"{table.title} ({', '.join(table.shown_across)} across)"
    down = zip(table.shown_down, _columns_of(table.shown_row_labels), strict=True)
    lead = sum(_width([name, *labels]) for name, labels in down)
    widths = [_width([*head.split("\n"), *column]) for head, column in zip(heads, _columns_of(texts), strict=True)]
    limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
    for part in parts(widths, limit - lead):
        pairs = zip(table.shown_row_labels, texts, strict=True)
        rows = [[*labels, *(row[k] for k in part)] for labels, row in pairs]
        print_table((*table.shown_down, *(heads[k] for k in part)), rows, numeric=len(part), title=title)
    guessed = any(cell.guess is not None for row in table.cells for cell in row)
    doubt, missing = table.doubt if table.any_wide else "", GUESSED_LEGEND if guessed else GUESS_LEGEND
    _print_legend(table.basis, doubt=doubt, missing=missing, marked=table.any_modelled, notes=table.notes)


def parts(widths: Sequence[int], room: float) -> list[list[int]]:
    """Columns in groups that have room beside each other, at least one each.

    >>> parts([10, 10, 10, 40, 5], 25)
    [[0, 1], [2], [3], [4]]
    """
    groups: list[list[int]] = []
    taken = 0
    for place, width in enumerate(widths):
        taken += width
        if not groups or taken > room:
            groups.append([])
            taken = width
        groups[-1].append(place)
    return groups


def _columns_of(rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return list(zip(*rows, strict=True))


def _width(texts: Sequence[str]) -> int:
    return max(len(text) for text in texts) + SPACE_BETWEEN


def _print_legend(basis: "Basis", *, doubt: str, missing: str, marked: bool = False, notes: Sequence[str] = ()) -> None:
    lines = (
        [f"* {doubt.replace('interval wider', 'the interval is wider')}"] * bool(doubt)
        + [MODELLED_LEGEND] * marked
        + list(notes)
    )
    if basis.explain():
        lines.append(missing.format(basis.explain()))
    if lines:
        echo("\n".join(lines) + "\n")


# ----------------------------------------------------------------------------------------------------------------------
# `consilience answer`: ask an estimate what a person would type.


OutFile = Annotated[Path | None, typer.Option("--out", help="Write to a new file instead: .csv, .json or .xlsx.")]
EXAMPLE = 'Example: consilience answer release "age=25..34 by sex" --interval'


def answer_command(
    source: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release bundle, or a measurement file.")],
    queries: Annotated[
        list[str] | None, typer.Argument(metavar="QUERY", help='Such as "age=25..34 by sex" or "total".')
    ] = None,
    queries_file: Annotated[
        Path | None, typer.Option("--queries", metavar="FILE", help="A text file of more queries, one a line.")
    ] = None,
    interval: Annotated[bool, typer.Option("--interval", help="Add error bars. They spend no budget.")] = False,
    level: options.Level = 0.95,
    refits: options.Refits = 200,
    seed: Annotated[int, typer.Option("--seed", help="With --interval: a public seed of the repetitions.")] = 0,
    per: Annotated[
        str | None, typer.Option("--per", metavar="QUERY", help='Divide by the answers to this: shares "per total".')
    ] = None,
    integers: Annotated[bool, typer.Option("--integers", help="Whole numbers that add up.")] = False,
    cross: Annotated[bool, typer.Option("--cross", help="Cross-tables with totals, as people print them.")] = False,
    percent: Annotated[
        str | None,
        typer.Option("--percent", metavar="OF", help="Shares of each row, of each column, or of the total: 9.9 %."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="ATTR",
            help="With --cross or --percent: what goes across; repeatable. Else the last.",
        ),
    ] = None,
    guess: Annotated[
        bool, typer.Option("--guess", help="Show what the account assumes where nothing was measured, marked as guess.")
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated text.")] = False,
    json: options.AsJson = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write to a new file instead: .csv, .json or .xlsx.")
    ] = None,
) -> None:
    """Answer queries from a release: a table, CSV, JSON or Excel. Spends nothing, error bars included."""
    from consilience.publication.questions import as_question
    from consilience.publication.release import answers

    form = _form(csv=csv, json=json, out=out)
    _refuse_contradictions(per=per, integers=integers, cross=cross, columns=columns, percent=percent)
    listen()
    texts = [*(queries or ()), *([] if queries_file is None else queries_of(queries_file))]
    if not texts:
        raise typer.BadParameter('ask something: a query such as "by sex", or --queries and a file of them')
    parsed = [as_question(query, per) for query in texts]
    opened = open_source(source)
    with progress() as show:
        found = answers(
            opened,
            parsed,
            interval=level if interval else None,
            refits=refits,
            seed=seed,
            integers=integers,
            cross=cross,
            columns=columns,
            percent=cast("Percent | None", percent),
            guess=guess,
            progress=show,
        )
    _write(found, form, out, private=private_of(opened))
    for query, why in found.unanswered.items():
        note(f"no answer to {query!r}: {why}")
    if found.unanswered:
        raise typer.Exit(1)


def queries_of(path: Path) -> list[str]:
    """The queries of a text file, one a line; empty lines and those that start with # are left out."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise FileFormatError(f"there is no file of queries {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"the file of queries {path} cannot be read as text: {error}") from None
    found = [line.strip() for line in lines]
    found = [line for line in found if line and not line.startswith("#")]
    if not found:
        raise FileFormatError(f"the file {path} holds no query; write one a line, such as: age=25..34 by sex")
    return found


def _write(found: "Answers", form: str | None, out: Path | None, *, private: bool) -> None:
    """Print the tables, or write them to a file."""
    from consilience.domain.files import write_atomically
    from consilience.publication.answers.workbook import workbook

    if not private:
        note("NOT PRIVATE: these numbers come from simulated noise")
    if form is None:
        for table in found.tables:
            print_answers(table)
    elif out is None:
        show_text = echo if form == "json" or sys.stdout.isatty() else typer.echo  # CSV in a pipe is left as it is
        show_text(_text(found, form), nl=False)
    else:
        write_atomically(out, workbook(found) if form == "xlsx" else _text(found, form).encode())
        note(f"wrote {out}")


COMPARE_EXAMPLE = 'Example: consilience compare release-2023 release-2024 "by district" "median(age) by sex"'


def compare_command(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="The earlier release bundle, or measurement file.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The later one, of the same series.")],
    queries: Annotated[list[str], typer.Argument(metavar="QUERY...", help='Such as "by district" or "total".')],
    level: options.Level = 0.95,
    refits: options.Refits = 200,
    seed: Annotated[int, typer.Option("--seed", help="A public seed of the repetitions.")] = 0,
    csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated text.")] = False,
    json: options.AsJson = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write to a new file instead: .csv, .json or .xlsx.")
    ] = None,
) -> None:
    """What changed between two releases of one series, told apart from noise. Spends nothing."""
    from consilience.publication.release import Answers, compare

    form = _form(csv=csv, json=json, out=out)
    listen()
    pair = [open_source(path) for path in (before, after)]
    names = before.name, after.name
    with progress() as show:
        tables = compare(pair[0], pair[1], queries, level=level, refits=refits, seed=seed, names=names, progress=show)
    _write(Answers(tuple(tables), {}), form, out, private=all(map(private_of, pair)))


def open_estimate(path: Path) -> "Estimate":
    """The estimate of a bundle, or one fitted now to a measurement file."""
    from consilience.publication.bundle import Bundle

    found = open_source(path)
    return found.estimate if isinstance(found, Bundle) else found


def private_of(source: "Estimate | Bundle") -> bool:
    from consilience.publication.bundle import Bundle

    return source.estimate.private if isinstance(source, Bundle) else source.private


def open_source(path: Path) -> "Estimate | Bundle":
    """A bundle, which keeps the refits of its error bars, or an estimate fitted now to a measurement file."""
    from consilience.estimators import estimate
    from consilience.measurements import MeasurementSet
    from consilience.publication import open_release

    if path.is_dir():
        return open_release(path)
    if not path.exists():
        raise FileFormatError(f"there is no release bundle or measurement file {path}")
    measured = MeasurementSet.load(path)
    with progress() as show:
        return estimate(measured, progress=show)


def _form(*, csv: bool, json: bool, out: Path | None) -> str | None:
    """How answers are written: "csv", "json", "xlsx", or None for people."""
    if csv and json:
        raise typer.BadParameter("choose one of --csv and --json")
    form = "csv" if csv else "json" if json else None
    if out is None:
        return form
    options.refuse_existing(out)
    if form is None:
        form = out.suffix.lower().removeprefix(".")
    if form not in ("csv", "json", "xlsx"):
        raise typer.BadParameter(f"{out} is neither .csv, .json nor .xlsx; name it so, or add --csv or --json")
    return form


def _refuse_contradictions(
    *, per: str | None, integers: bool, cross: bool, columns: list[str] | None, percent: str | None
) -> None:
    if percent is not None and percent not in ("row", "column", "total"):
        raise typer.BadParameter("choose row, column or total", param_hint="--percent")
    if percent is not None and (per is not None or integers):
        raise typer.BadParameter(
            "it says what answers are shares of; leave --per and --integers away", param_hint="--percent"
        )
    if per is not None and integers:
        raise typer.BadParameter("ratios are no whole numbers; choose one of --per and --integers")
    if columns and not cross and percent is None:
        raise typer.BadParameter(
            "it says what goes across in a cross-table; add --cross, or --percent", param_hint="--columns"
        )


def _text(found: "Answers", form: str) -> str:
    """All tables as one text; tables of comma-separated text are divided by an empty line."""
    if form == "csv":
        return "\n".join(table.to_csv() for table in found.tables)
    documents = [table.to_json() for table in found.tables]
    documents += [
        dumps({"query": query, "answers": None, "reason": why}, indent=2, ensure_ascii=False)
        for query, why in found.unanswered.items()
    ]
    return (documents[0] if len(documents) == 1 else "[\n" + ",\n".join(documents) + "\n]") + "\n"
