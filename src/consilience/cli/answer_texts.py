"""Answers on a terminal: long tables and cross-tables, with marks and a legend."""

import math
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from consilience.cli.console import echo, print_table

if TYPE_CHECKING:
    from consilience.measurements.basis import Basis
    from consilience.publication import AnswerTable, CrossTable

MARK_LEGEND = "* the interval is wider than the answer"
MODELLED_LEGEND = "~ modelled: no measurement determines it; the model fills in from what was measured in parts"
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
    names = table.numeric_columns
    decimals = 0 if table.whole else 4 if table.per is not None else 1
    rows = []
    for place, (labels, row) in enumerate(zip(table.labels, table.rows(), strict=True)):
        shown = [_number(row[name], 1 if name == "noisy" else decimals) for name in names]
        if table.interval is not None:
            shown[0] += "*" if table.uncertain[place] else " "
        rows.append([*labels, row["basis"], *shown])
    print_table((*table.columns, "basis", *names), rows, numeric=len(names), title=table.title)
    _print_legend(table.basis, wide=bool(table.uncertain.any()), guess=table.guess, notes=table.notes)


def print_cross_table(table: "CrossTable") -> None:
    """The table as people print it; where it is wider than the terminal, in parts that each repeat the labels."""
    heads = ["\n".join(labels) for labels in zip(*table.header, strict=True)]
    texts = [[text + " " * (table.any_wide and not text.endswith("*")) for text in row] for row in table.texts()]
    title = table.title if not table.across else f"{table.title} ({', '.join(table.across)} across)"
    lead = sum(_width([name, *labels]) for name, labels in zip(table.down, _columns_of(table.row_labels), strict=True))
    widths = [_width([*head.split("\n"), *column]) for head, column in zip(heads, _columns_of(texts), strict=True)]
    limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
    for part in parts(widths, limit - lead):
        rows = [[*labels, *(row[k] for k in part)] for labels, row in zip(table.row_labels, texts, strict=True)]
        print_table((*table.down, *(heads[k] for k in part)), rows, numeric=len(part), title=title)
    guessed = any(cell.guess is not None for row in table.cells for cell in row)
    _print_legend(table.basis, wide=table.any_wide, guess=guessed, marked=table.any_modelled, notes=table.notes)


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


def _number(value: float | None, decimals: int) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.{decimals}f}" if math.isfinite(value) else "∞"


def _print_legend(basis: "Basis", *, wide: bool, guess: bool, marked: bool = False, notes: Sequence[str] = ()) -> None:
    lines = [MARK_LEGEND] * wide + [MODELLED_LEGEND] * marked + list(notes)
    if basis.explain():
        lines.append((GUESSED_LEGEND if guess else GUESS_LEGEND).format(basis.explain()))
    if lines:
        echo("\n".join(lines) + "\n")
