"""Cross-tables as people print them: some attributes down, others across, with totals that add up.

Totals are sums of the very numbers shown, so that they agree with them by construction. They are there where every
record that the table is about lies in one of its cells, and the answers are counts. A total may be measured where the
cells that it sums are not: it has a basis of its own.
"""

import io
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.descriptions import Described, Description
from consilience.domain.factors import Identity
from consilience.domain.queries import Query
from consilience.domain.questions import Question
from consilience.errors import DeclarationError
from consilience.measurements.basis import BASES, Basis, BasisName
from consilience.publication.answers.tables import WIDE, AnswerTable, described_basis, described_interval
from consilience.publication.answers.writing import HEADING, MISSING, CsvWriter, Style, cell, heading, outward

TOTAL = "Total"
MARK = "*"
"""Follows an answer whose interval is wider than the answer."""
ABOUT = "~"
"""Stands before an answer that is modelled."""
GUESS = "guess "
"""Stands before what the account assumes of an answer that was not measured, where guesses were asked for."""


@dataclass(frozen=True)
class Cell:
    """One number of a cross-table, with its interval where there is one."""

    estimate: float
    """Not a number where nothing was measured."""
    low: float | None = None
    high: float | None = None
    wide: bool = False
    """The interval is wider than the answer."""
    basis: BasisName = "measured"
    guess: float | None = None
    """What the account assumes where nothing was measured, if that was asked for."""


@dataclass(frozen=True, eq=False)
class CrossTable(Described):
    """A table as it is printed: plain data, for terminals, files and pages.

    `header` has a row for each attribute across (one that says "count" where there is none), and each row an entry for
    every column of cells; `row_labels` has an entry for each attribute down. The last row and the last column are
    totals where `total_row` and `total_column` say so.
    """

    title: str
    down: tuple[str, ...]
    across: tuple[str, ...]
    header: tuple[tuple[str, ...], ...]
    row_labels: tuple[tuple[str, ...], ...]
    cells: tuple[tuple[Cell, ...], ...]
    total_row: bool
    total_column: bool
    style: Style
    private: bool
    whole: bool = False
    """The numbers were rounded to whole ones."""
    interval: dict[str, Any] | None = None
    """What the intervals are: level, covers, how, refits and notes."""
    basis: Basis = field(default_factory=Basis.of_nothing)
    """What the cells stand on, without the totals."""
    notes: tuple[str, ...] = ()
    """What is to be said of all answers, in sentences."""
    headings: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """`down` and `across` as people read them; empty where that is the same."""
    header_words: tuple[tuple[str, ...], ...] = ()
    """`header` in the words of the domain's labels; empty where that is the same."""
    row_words: tuple[tuple[str, ...], ...] = ()
    """`row_labels` in the words of the domain's labels; empty where that is the same."""

    doubt: str = WIDE
    """What the mark after an answer says of it."""

    @property
    def shown_down(self) -> tuple[str, ...]:
        return self.headings[0] or self.down

    @property
    def shown_across(self) -> tuple[str, ...]:
        return self.headings[1] or self.across

    @property
    def shown_header(self) -> tuple[tuple[str, ...], ...]:
        return self.header_words or self.header

    @property
    def shown_row_labels(self) -> tuple[tuple[str, ...], ...]:
        return self.row_words or self.row_labels

    def described(self) -> Description:
        """The table as it is printed; a dash where nothing was measured."""
        across = (", ".join(parts) for parts in zip(*self.shown_header, strict=True))
        rows = ((*labels, *texts) for labels, texts in zip(self.shown_row_labels, self.texts(), strict=True))
        title = f"{self.title} ({', '.join(self.shown_across)} across)" if self.across else self.title
        warning = "" if self.private else f"{HEADING}: these numbers come from simulated noise, and protect nobody"
        legend = [f"{MARK} {self.doubt}"] * self.any_wide + [
            f"{ABOUT} modelled, not measured itself"
        ] * self.any_modelled
        lines = (*legend, *self.notes, *filter(None, [self.basis.explain()]))
        return Description(title, lines, (*self.shown_down, *across), tuple(rows), warning=warning)

    @property
    def any_modelled(self) -> bool:
        return any(cell.basis == "modelled" for row in self.cells for cell in row)

    @property
    def any_wide(self) -> bool:
        return any(cell.wide for row in self.cells for cell in row)

    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The cells as they are printed: 123, 123 ± 8 or 123 (115–131), with a mark where the interval is wide.

        Modelled ones are marked ~, those not measured are a dash, or a guess where guesses were asked for.
        """
        bars = [cell for row in self.cells for cell in row if cell.low is not None and math.isfinite(cell.estimate)]
        symmetric = all(self._is_symmetric(cell) for cell in bars)
        return tuple(tuple(self._text(cell, symmetric=symmetric) for cell in row) for row in self.cells)

    def _text(self, cell: Cell, *, symmetric: bool) -> str:
        style = self.style
        if cell.guess is not None:
            return GUESS + style.text(cell.guess)
        if math.isnan(cell.estimate):
            return MISSING
        text = ABOUT * (cell.basis in ("modelled", "public")) + style.text(cell.estimate)
        of_itself = style.percent and cell.low == cell.high  # a total in shares of itself is 100 %, whatever the noise
        if cell.low is not None and cell.high is not None and not of_itself:
            low, high = self._ends(cell)
            if symmetric:
                half = style.shown(high) - style.shown(cell.estimate)
                text = text.removesuffix(" %") + f" ± {half:,.{style.decimals}f}" + " %" * style.percent
            else:
                ends = [style.text(end).removesuffix(" %") for end in (low, high)]
                text += f" ({(' to ' if low < 0 or self.style.days is not None else '–').join(ends)})"
        return text + (MARK if cell.wide else "")

    def _ends(self, cell: Cell) -> tuple[float, float]:
        """The ends of the interval as they are printed: of whole numbers the whole ones around them."""
        low, high = float(cell.low or 0.0), float(cell.high or 0.0)
        return outward(low, high) if self.whole else (low, high)

    def _is_symmetric(self, cell: Cell) -> bool:
        if self.style.days is not None:
            return False
        low, middle, high = map(self.style.shown, (self._ends(cell)[0], cell.estimate, self._ends(cell)[1]))
        return math.isfinite(high - low) and abs((high - middle) - (middle - low)) < 10.0**-self.style.decimals / 2

    def to_csv(self) -> str:
        """The table as comma-separated text: numbers in full, but cells with intervals as they are printed.

        Cells that are not measured are marked as they are in print. Of simulated noise the first column says so. What
        has labels in words has a line or column more for them, after that of its values.
        """
        stream = io.StringIO()
        writer = CsvWriter(stream)
        down = (*self.down, *(f"{name}_label" for name in self.down if self.row_words))
        lines = [*self.header, *self.header_words]
        for place, labels in enumerate(lines):
            last = place == len(lines) - 1
            writer.writerow([*heading(private=self.private), *(name if last else "" for name in down), *labels])
        numbers = [[_in_full(cell, self.style, whole=self.whole) for cell in row] for row in self.cells]
        body = numbers if self.interval is None else self.texts()
        words = self.row_words or ((),) * len(self.row_labels)
        for labels, more, row in zip(self.row_labels, words, body, strict=True):
            writer.writerow([*cell(private=self.private), *labels, *more, *row])
        return stream.getvalue()

    def to_json(self) -> str:
        """The table as JSON, with every part of it by name."""
        cells = [[_plain_cell(cell, self.style, whole=self.whole) for cell in row] for row in self.cells]
        document = {
            "title": self.title,
            "private": self.private,
            "down": list(self.down),
            "across": list(self.across),
            "header": [list(labels) for labels in self.header],
            "row_labels": [list(labels) for labels in self.row_labels],
            **self._in_words(),
            "total_row": self.total_row,
            "total_column": self.total_column,
            **described_basis(self.basis),
            **(self.interval or {}),
            **({"notes": [*self.notes, *(self.interval or {}).get("notes", ())]} if self.notes else {}),
            "cells": cells,
        }
        return json.dumps(document, indent=2, ensure_ascii=False)

    def _in_words(self) -> dict[str, Any]:
        """Titles and labels by name, where there are any."""
        words: dict[str, Any] = {}
        if (self.shown_down, self.shown_across) != (self.down, self.across):
            words |= {"down_headings": list(self.shown_down), "across_headings": list(self.shown_across)}
        if self.header_words:
            words["header_words"] = [list(labels) for labels in self.header_words]
        if self.row_words:
            words["row_words"] = [list(labels) for labels in self.row_words]
        return words


def cross_table(
    table: AnswerTable, *, columns: Sequence[str] | None = None, margins: Sequence[AnswerTable] = ()
) -> CrossTable:
    """Answers as a cross-table: the attributes `columns` across (the last, if none are named), the others down.

    Conditions stay in the title. `margins` are the answers to `margin_queries`: totals take from them what they stand
    on and their error bars. Without them they have no error bars, and stand on no more than the cells that they sum.
    """
    free = listing_axes(table.query, [len(labels) for labels in table.axes])
    across = across_axes(table.columns, free, columns)
    down = [axis for axis in free if axis not in across]
    by_query = {each.query: each for each in margins}
    adds_up = table.adds_up and (bool(margins) or not table.style.percent)
    inner = _Block.of(table, down, across)
    total_column, total_row = adds_up and bool(across), adds_up and bool(down)
    rows, row_labels = inner.rows(), _combined(table.axes, down)
    row_words = _combined(table.shown_axes, down)
    if total_column:
        sums = inner.summed(1, by_query.get(without(table, across)), table, down)
        rows = [[*row, *more] for row, more in zip(rows, sums.rows(), strict=True)]
    if total_row:
        by_column = inner.summed(0, by_query.get(without(table, down)), table, across)
        last = by_column.rows()[0]
        if total_column:
            last += inner.summed(0, None, table, ()).summed(1, by_query.get(without(table, free)), table, ()).rows()[0]
        rows.append(last)
        row_labels.append((TOTAL, *[""] * (len(down) - 1)))
        row_words.append(row_labels[-1])
    header, header_words = (_header(table, axes, across, total=total_column) for axes in (table.axes, table.shown_axes))
    return CrossTable(
        title=table.title,
        down=tuple(table.columns[axis] for axis in down),
        across=tuple(table.columns[axis] for axis in across),
        header=header,
        row_labels=tuple(row_labels),
        cells=tuple(tuple(row) for row in rows),
        total_row=total_row,
        total_column=total_column,
        style=table.style,
        whole=table.whole,
        doubt=table.doubt,
        private=table.private,
        interval=None if table.interval is None else described_interval(table.interval),
        basis=table.basis,
        notes=table.notes,
        headings=(
            tuple(table.shown_columns[axis] for axis in down),
            tuple(table.shown_columns[axis] for axis in across),
        ),
        header_words=() if header_words == header else header_words,
        row_words=() if row_words == row_labels else tuple(row_words),
    )


def margin_queries(table: AnswerTable, *, columns: Sequence[str] | None = None) -> tuple[Question, ...]:
    """What the totals of a cross-table ask for: by row, by column, and in all; nothing where there are no totals."""
    if not table.adds_up:
        return ()
    free = listing_axes(table.query, [len(labels) for labels in table.axes])
    across = across_axes(table.columns, free, columns)
    down = [axis for axis in free if axis not in across]
    wanted = [across] * bool(across) + [down] * bool(down) + [free]
    found = dict.fromkeys(without(table, axes) for axes in wanted)
    return tuple(_margin(table, query) for query in found if query != table.query)


def _margin(table: AnswerTable, query: Query) -> Question:
    """A total of the table, divided by the same total of what the table is divided by."""
    if table.per is None:
        return Question(query)
    kept = {name for name, _ in query.factors}
    gone = {name for name, _ in table.query.factors} - kept
    return Question(query, Query(tuple(factor for factor in table.per.factors if factor[0] not in gone)))


Percent = Literal["row", "column", "total"]
PERCENT: tuple[Percent, ...] = ("row", "column", "total")


def share_of(table: AnswerTable, percent: Percent, *, columns: Sequence[str] | None = None) -> Question:
    """The question whose answers are the table's in shares of their row, of their column, or of all."""
    if percent not in PERCENT:
        raise DeclarationError(f"percent is one of {', '.join(PERCENT)}, and was {percent!r}")
    if table.question != Question(table.query):
        raise DeclarationError(
            f"{table.title!r} is no table of counts or sums, of which there are percentages; ask for the counts"
        )
    free = listing_axes(table.query, [len(labels) for labels in table.axes])
    across = across_axes(table.columns, free, columns)
    down = [axis for axis in free if axis not in across]
    if percent == "row" and not across:
        raise DeclarationError(
            f"each row of {table.title!r} is one number, which is all of its row; take percent of the column, or of "
            "the total"
        )
    return Question(table.query, without(table, {"row": across, "column": down, "total": free}[percent]))


def listing_axes(query: Query, sizes: Sequence[int]) -> list[int]:
    """The axes that list values. Those with one answer are conditions or sums of numbers, which the title names."""
    return [
        axis
        for axis, ((_, factor), size) in enumerate(zip(query.factors, sizes, strict=True))
        if size > 1 or isinstance(factor, Identity)
    ]


def across_axes(attributes: Sequence[str], free: Sequence[int], columns: Sequence[str] | None) -> list[int]:
    """Which axes of the answers go across: those named, or the last of several."""
    if columns is None:
        return list(free[-1:]) if len(free) > 1 else []
    names = [attributes[axis] for axis in free]
    for name in columns:
        if name not in names:
            said = ", ".join(names) or "none"
            raise DeclarationError(f"{name!r} cannot go across: the attributes listed by this table are {said}")
        if list(columns).count(name) > 1:
            raise DeclarationError(f"{name!r} is to go across twice; name it once")
    return [free[names.index(name)] for name in columns]


def without(table: AnswerTable, axes: Sequence[int]) -> Query:
    """The query summed over some of its attributes."""
    return Query(tuple(factor for axis, factor in enumerate(table.query.factors) if axis not in axes))


@dataclass(frozen=True, eq=False)
class _Block:
    """A part of a cross-table: numbers by row and column."""

    numbers: NDArray[np.float64]
    codes: NDArray[np.int8]
    """The basis of each number."""
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    wide: NDArray[np.bool_]
    guess: bool

    @staticmethod
    def of(table: AnswerTable, down: Sequence[int], across: Sequence[int]) -> "_Block":
        sizes = [len(labels) for labels in table.axes]
        fixed = [axis for axis in range(len(sizes)) if axis not in down and axis not in across]
        shape = (math.prod(sizes[axis] for axis in down), -1)

        def turned(values: NDArray[Any]) -> NDArray[Any]:
            return values.reshape(sizes).transpose([*fixed, *down, *across]).reshape(shape)

        bars = table.interval
        return _Block(
            turned(table.numbers),
            turned(table.basis.codes),
            None if bars is None else turned(bars.low),
            None if bars is None else turned(bars.high),
            turned(table.uncertain),
            table.guess,
        )

    def summed(self, axis: int, margin: AnswerTable | None, table: AnswerTable, kept: Sequence[int]) -> "_Block":
        """The sums along one axis, or the margin's shares, with the basis and the intervals of the margin.

        `kept` are the axes of the table that the sums still list, in the order of this block.
        """
        sums = self.numbers.sum(axis=axis, keepdims=True)
        if margin is None:
            nowhere = np.zeros(sums.shape, dtype=np.bool_)
            return _Block(sums, self.codes.max(axis=axis, keepdims=True), None, None, nowhere, self.guess)
        places = [margin.columns.index(table.columns[place]) for place in kept]
        found = _Block.of(margin, *((places, []) if axis == 1 else ([], places)))
        return replace(found, numbers=found.numbers if table.style.percent else sums, guess=self.guess)

    def rows(self) -> list[list[Cell]]:
        return [[self._cell(i, j) for j in range(self.numbers.shape[1])] for i in range(self.numbers.shape[0])]

    def _cell(self, i: int, j: int) -> Cell:
        number, basis = float(self.numbers[i, j]), BASES[int(self.codes[i, j])]
        if basis == "not measured":
            return Cell(math.nan, basis=basis, guess=number if self.guess else None)
        ends = [None if each is None else float(each[i, j]) for each in (self.low, self.high)]
        low, high = (None if end is None or math.isnan(end) else end for end in ends)
        return Cell(number, low, high, bool(self.wide[i, j]), basis)


def _combined(labels: Sequence[tuple[str, ...]], axes: Sequence[int]) -> list[tuple[str, ...]]:
    """The labels of every combination of values, the last attribute varying fastest."""
    return list(itertools.product(*(labels[axis] for axis in axes)))


def _header(
    table: AnswerTable, labels_of: Sequence[tuple[str, ...]], across: Sequence[int], *, total: bool
) -> tuple[tuple[str, ...], ...]:
    if not across:
        return ((_what(table.question),),)
    by_row = zip(*_combined(labels_of, across), strict=True)
    return tuple((*labels, *([TOTAL if place == 0 else ""] * total)) for place, labels in enumerate(by_row))


def _what(question: Question) -> str:
    """What the numbers are, for a table with nothing across."""
    if question.word:
        return "difference" if question.word == "minus" else "ratio"
    if question.quantiles_of is not None:
        return "median" if question.shares == (0.5,) else "quantile"
    return "count" if question.per is None else "ratio" if question.mean_of is None else "mean"


def _in_full(cell: Cell, style: Style, *, whole: bool) -> float | str:
    """The number of a cell with all its digits; marked as in print where it is not measured."""
    number = cell.estimate if cell.guess is None else cell.guess
    if cell.basis == "not measured" and cell.guess is None:
        return MISSING
    shown = int(number) if whole else style.value(number)
    mark = {"measured": "", "modelled": ABOUT, "public": ABOUT, "not measured": GUESS}[cell.basis]
    return f"{mark}{shown}" if mark else shown


def _plain_cell(cell: Cell, style: Style, *, whole: bool) -> dict[str, Any]:
    plain: dict[str, Any] = {"estimate": _plain(cell.estimate, style, whole=whole), "basis": cell.basis}
    if cell.guess is not None:
        plain["guess"] = _plain(cell.guess, style, whole=whole)
    if cell.low is not None and cell.high is not None:
        low, high = outward(cell.low, cell.high) if whole else (cell.low, cell.high)
        finite = [style.value(end) if math.isfinite(end) else None for end in (low, high)]
        plain |= {"low": finite[0], "high": finite[1], "wide": cell.wide}
    return plain


def _plain(number: float, style: Style, *, whole: bool) -> float | str | None:
    return None if not math.isfinite(number) else int(number) if whole else style.value(number)


@dataclass(frozen=True)
class Answers:
    """The tables of several questions, and why there is none of the others."""

    tables: tuple[AnswerTable | CrossTable, ...]
    unanswered: dict[str, str]
    """Why there is no answer, by the queries that need too much memory."""
