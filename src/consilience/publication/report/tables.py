"""The measured tables of a report: which are shown, each as a cross-table with intervals, and how they look.

Every table that was measured is shown while there are no more than `MOST_TABLES`; of more, those whose attributes go
together the most. Of a large table the first rows are shown, the next ones are folded, and the page says how many are
left to the files of the release. So a page has at most about `MOST_TABLES` × `MOST_CELLS` numbers, whatever is in it.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.domain.factors import AllRanges, Haar, Identity, Mean, Nominal, Tree
from consilience.domain.queries import Query
from consilience.domain.questions import Question, mean_divisor
from consilience.estimators import Estimate
from consilience.measurements import Measurement
from consilience.measurements.basis import Basis
from consilience.publication.answers import AnswerTable, answer_table, table_of
from consilience.publication.answers.cross_tables import (
    ABOUT,
    Cell,
    CrossTable,
    cross_table,
    listing_axes,
    margin_queries,
)
from consilience.publication.answers.writing import MISSING, outward
from consilience.publication.intervals import Interval
from consilience.publication.report.texts import Texts
from consilience.publication.report_page import Content, Markup, Picture, element, figure, folded, join, paragraphs

Floats = NDArray[np.float64]

MOST_TABLES = 60
"""Of more measured tables these are shown; the page names the others."""
MOST_NAMED = 60
LARGEST_TABLE = 50_000
"""Tables of more numbers are named, and not shown: nobody reads them on a page."""
MOST_CELLS = 1_200
"""Numbers of one table on the page, in whole rows."""
FIRST_ROWS = 30
"""Rows that are not folded."""
MOST_ACROSS = 8
"""Columns beside each other; more go below, so that a printed page holds them."""
MOST_COLUMNS = 32

What = str
"""What the numbers of a table are: "records", "sums" or "means"."""


@dataclass(frozen=True, eq=False)
class Margin:
    """The counts of each value of one attribute, or, without an attribute, of all records."""

    attribute: str | None
    kind: str
    labels: tuple[str, ...]
    """The values as people read them."""
    estimates: Floats
    """Not a number where nothing was measured."""
    interval: Interval | None
    basis: Basis
    heading: str = "total"
    """The attribute's title with its unit, or its name."""
    ordinary: int | None = None
    """How many of the labels are its own values; those after them stand for what is missing or unlisted."""

    @property
    def uncertain(self) -> NDArray[np.bool_]:
        """Where the interval is wider than the answer; nowhere without an interval."""
        return np.zeros(len(self.labels), dtype=np.bool_) if self.interval is None else self.interval.uncertain


@dataclass(frozen=True, eq=False)
class ShownTable:
    """A measured table as the page shows it."""

    what: What
    answers: AnswerTable
    cross: CrossTable
    amount: str | None = None
    """Of sums and means: the attribute whose numbers are added up."""
    amount_heading: str = ""

    @cached_property
    def _free(self) -> list[int]:
        """The axes that list values, the one across last."""
        free = free_axes(self.answers)
        names = [self.answers.columns[axis] for axis in free]
        across = [free[names.index(name)] for name in self.cross.across]
        return [axis for axis in free if axis not in across] + across

    @property
    def axes(self) -> list[tuple[str, ...]]:
        """The labels of each attribute that is listed, the one across last."""
        return [self.answers.shown_axes[axis] for axis in self._free]

    @property
    def headings(self) -> list[str]:
        return [self.answers.shown_columns[axis] for axis in self._free]

    def _turned(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        sizes = [len(labels) for labels in self.answers.axes]
        rest = [axis for axis in range(len(sizes)) if axis not in self._free]
        turned = values.reshape(sizes).transpose([*rest, *self._free])
        return turned.reshape([sizes[axis] for axis in self._free])

    @cached_property
    def estimates(self) -> Floats:
        """By the axes; not a number where nothing was measured."""
        return np.asarray(self._turned(self.answers.estimates), dtype=np.float64)

    @cached_property
    def low(self) -> Floats:
        """The low ends of the intervals; the answers themselves where there are none."""
        return self._end("low")

    @cached_property
    def high(self) -> Floats:
        return self._end("high")

    def _end(self, name: str) -> Floats:
        bars = self.answers.interval
        if bars is None:
            return self.estimates
        found = np.asarray(self._turned(getattr(bars, name)), dtype=np.float64)
        return np.where(np.isfinite(found), found, self.estimates)

    @cached_property
    def wide(self) -> NDArray[np.bool_]:
        return np.asarray(self._turned(self.answers.uncertain), dtype=np.bool_)

    def title(self, say: Texts) -> str:
        """What the table is of, in words."""
        given = [
            f"{self.answers.shown_columns[axis]}: {self.answers.shown_axes[axis][0]}"
            for axis in range(len(self.answers.columns))
            if axis not in self._free and self.answers.columns[axis] != self.amount
        ]
        by = say("tables.times").join(self.headings)
        if self.what != "records":
            by = say(f"tables.{self.what}_by" if by else f"tables.{self.what}", amount=self.amount_heading, by=by)
        return say("tables.given", title=by or say("total"), given="; ".join(given)) if given else by


def free_axes(answers: AnswerTable) -> list[int]:
    """The axes that list values: not conditions, nor the numbers that are added up."""
    query = answers.query
    if len(query.factors) != len(answers.axes):
        return [axis for axis, labels in enumerate(answers.axes) if len(labels) > 1]
    return listing_axes(query, [len(labels) for labels in answers.axes])


@dataclass(frozen=True)
class Asked:
    """What a table of the page asks for, before it is answered."""

    question: Question
    what: What
    amount: str | None = None


@dataclass(frozen=True)
class Choice:
    """The tables of the page, and those that are left to the files of the release."""

    shown: tuple[Asked, ...]
    left_out: tuple[str, ...]
    """What these ask, in the query language."""
    measured: int
    """How many tables of counts were measured, totals and those of one attribute included."""


def noisy_tables(estimate: Estimate) -> list[Measurement]:
    """What was measured of the confidential table: neither public facts nor choices."""
    return [each for each in estimate.measurements if each.kind != "selections" and each.noise.variance > 0]


def choose_tables(estimate: Estimate, in_margins: Sequence[str], strengths: Mapping[frozenset[str], float]) -> Choice:
    """The measured tables that the page shows besides those of one attribute in `in_margins`.

    Of many, those whose attributes go together the most come first, by `strengths`, and small ones before large ones.
    """
    measured = [each for each in noisy_tables(estimate) if each.kind == "linear"]
    queries = dict.fromkeys(_readable(estimate, each.query) for each in measured if each.query.factors)
    known = {Query.marginal(name) for name in in_margins}
    asked = [query for query in queries if query not in known]
    sizes = {query: query.bind(estimate.domain).size for query in asked}
    fitting = [query for query in asked if sizes[query] <= LARGEST_TABLE]
    if len(fitting) > MOST_TABLES:

        def order(query: Query) -> tuple[float, int]:
            pairs = map(frozenset, itertools.combinations(query.attributes, 2))
            found = [strengths.get(pair, math.nan) for pair in pairs]
            return -max((value for value in found if math.isfinite(value)), default=-1.0), sizes[query]

        chosen = set(sorted(fitting, key=order)[:MOST_TABLES])
        fitting = [query for query in fitting if query in chosen]
    sums: list[Asked] = []
    for each in estimate.measurements.sums:
        query = Query(((str(each.amount), Mean()), *each.query.factors))
        if each.values.size <= LARGEST_TABLE and each.amount not in each.query.attributes:
            amount = estimate.domain[str(each.amount)].name
            sums += [
                Asked(Question(query), "sums", amount),
                Asked(Question(query, mean_divisor(query)), "means", amount),
            ]
    kept = set(fitting)
    left_out = tuple(query.describe() for query in asked if query not in kept)
    shown = (*(Asked(Question(query), "records") for query in fitting), *dict.fromkeys(sums))
    return Choice(shown, left_out, len(queries))


def _readable(estimate: Estimate, query: Query) -> Query:
    """The table that people read of what was measured: of trees and wavelets the values that they determine."""
    plain = table_of(query)
    factors = tuple(
        (name, Identity() if isinstance(factor, Haar | Nominal | AllRanges | Tree) else factor)
        for name, factor in plain.factors
    )
    other = Query(factors)
    if other == plain or other.bind(estimate.domain).size > LARGEST_TABLE:
        return plain
    return other if estimate.basis(other).worst == "measured" else plain


def answered(estimate: Estimate, asked: Asked) -> AnswerTable:
    """The answers, without intervals; counts in whole numbers, as people read them."""
    table = answer_table(estimate, asked.question)
    if asked.what == "records" or (asked.what == "sums" and np.nanmax(np.abs(table.numbers), initial=0.0) >= 1000):
        return replace(table, style=replace(table.style, decimals=0))
    return table


def columns_of(answers: AnswerTable) -> list[str] | None:
    """What goes across: of several attributes the one with the fewest values."""
    free = free_axes(answers)
    if len(free) < 2 or len(answers.query.factors) != len(answers.axes):
        return None
    fewest = min(free, key=lambda axis: (len(answers.axes[axis]), -axis))
    return [answers.columns[fewest]]


def totals_of(answers: AnswerTable) -> tuple[Question, ...]:
    """What the totals of the cross-table ask for."""
    return margin_queries(answers, columns=columns_of(answers))


def shown_table(
    estimate: Estimate, asked: Asked, answers: AnswerTable, bars: Mapping[Question, Interval]
) -> ShownTable:
    """The cross-table with the intervals that were found."""
    answers = replace(answers, interval=bars.get(answers.question))
    margins = [answer_table(estimate, each, bars.get(each)) for each in totals_of(answers)]
    columns = columns_of(answers)
    crossed = cross_table(answers, columns=columns, margins=margins)
    heading = "" if asked.amount is None else estimate.domain[asked.amount].heading
    return ShownTable(asked.what, answers, crossed, asked.amount, heading)


# ----------------------------------------------------------------------------------------------------------------------
# The section: for each table its heading, the picture, and the cross-table.


def table_figure(shown: ShownTable, number: int, drawn: Picture | None, level: float, say: Texts) -> Markup:
    """A table under a heading of its own, with its picture; what is long is folded, and said to be."""
    title = shown.title(say)
    missing = shown.answers.basis.explain()
    rows = len(shown.cross.cells)
    width = max(1, min(len(shown.cross.cells[0]) if rows else 1, MOST_COLUMNS))
    most = max(FIRST_ROWS, MOST_CELLS // width)
    total = [rows - 1] if shown.cross.total_row else []
    body = list(range(rows - len(total)))
    first, more = body[:FIRST_ROWS], body[FIRST_ROWS:most]
    if len(body) <= FIRST_ROWS + 5:
        first, more = body, []
    left_out = len(body) - len(first) - len(more)
    columns_out = max(0, len(shown.cross.cells[0]) - MOST_COLUMNS) if rows else 0
    many = left_out or columns_out
    parts = _parts(shown, [*first, *([] if more else total)], level, say)
    folded_rows = folded(say("tables.next_rows", n=len(more)), *_parts(shown, [*more, *total], level, say))
    return element(
        "figure",
        element("h3", title, id=f"table-{number}"),
        paragraphs(say("tables.not_measured", why=missing), class_="note") if missing else None,
        element("div", None if drawn is None else figure(drawn), element("div", *parts), class_="measured"),
        folded_rows if more else None,
        paragraphs(_cut_in_words(shown, left_out, columns_out, say), class_="soft") if many else None,
        *(element("p", note, class_="soft") for note in shown.answers.notes),
    )


def _cut_in_words(shown: ShownTable, rows: int, columns: int, say: Texts) -> str:
    words = [say("tables.rows_left_out", n=rows)] if rows else []
    words += [say("tables.columns_left_out", n=columns)] if columns else []
    return " ".join([*words, say("tables.where", query=shown.answers.query.describe())])


def _parts(shown: ShownTable, rows: Sequence[int], level: float, say: Texts) -> list[Markup]:
    """The rows as tables of at most so many columns."""
    cross, width = shown.cross, len(shown.cross.cells[0]) if shown.cross.cells else 0
    width = min(width, MOST_COLUMNS)
    starts = range(0, width, MOST_ACROSS) if width > MOST_ACROSS + 2 else range(1)
    found = []
    for start in starts:
        columns = range(start, min(start + MOST_ACROSS, width) if len(starts) > 1 else width)
        caption = shown.title(say)
        if len(starts) > 1:
            caption = say("tables.columns_of", title=caption, first=start + 1, last=columns[-1] + 1, n=width)
        found.append(
            _part(shown, cross, rows, columns, say("tables.caption", title=caption, level=f"{100 * level:g}"), say)
        )
    return found


def _part(
    shown: ShownTable, cross: CrossTable, rows: Sequence[int], columns: range, caption: str, say: Texts
) -> Markup:
    head = []
    if cross.across:
        corner = element("td", colspan=str(len(cross.down)))
        over = element("th", " × ".join(cross.shown_across), scope="colgroup", colspan=str(len(columns)))
        head.append(element("tr", corner, over))
    names = [element("th", name, scope="col") for name in cross.shown_down]
    labels = [", ".join(filter(None, parts)) for parts in zip(*cross.shown_header, strict=True)]
    if not cross.across:
        labels = [say(f"tables.{shown.what}_column")]
    named = [element("th", _total(labels[j], say), scope="col", class_="number") for j in columns]
    head.append(element("tr", *names, *named))
    body = []
    for i in rows:
        heads = [element("th", _total(label, say), scope="row") for label in cross.shown_row_labels[i]]
        cells = [element("td", cell_content(cross.cells[i][j], shown, say), class_="number") for j in columns]
        last = cross.total_row and i == len(cross.cells) - 1
        body.append(element("tr", *heads, *cells, class_="total" if last else None))
    whole = element(
        "table", element("caption", caption), element("thead", *head), element("tbody", *body), class_="cross"
    )
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _total(label: str, say: Texts) -> str:
    return say("tables.total") if label == "Total" else label


def cell_content(cell: Cell, shown: ShownTable, say: Texts) -> Content:
    """The number, with its interval below it; a dash where nothing was measured."""
    style = shown.cross.style
    if math.isnan(cell.estimate):
        return MISSING
    number = ABOUT * (cell.basis in ("modelled", "public")) + style.text(cell.estimate) + "†" * cell.wide
    if cell.low is None or cell.high is None:
        return number
    low, high = outward(cell.low, cell.high) if shown.what == "records" else (cell.low, cell.high)
    between = say("tables.between", low=style.text(low), high=style.text(high))
    return join(number, element("span", between, class_="bars"))
