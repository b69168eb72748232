"""Answers as people read them: labels, the estimate with its error bars, what it stands on, the noisy measurement.

An answer that nothing was measured for has no number here, but for who asks for guesses: then what the account assumes
stands in a column of its own, never among the estimates.
"""

import io
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.descriptions import Described, Description
from consilience.domain.factors import Identity, Matrix
from consilience.domain.queries import BoundQuery, Query
from consilience.domain.questions import Question
from consilience.errors import DeclarationError
from consilience.estimators import Estimate
from consilience.estimators.amount_sums import measured_sums
from consilience.measurements.basis import Basis
from consilience.publication.answers import frames
from consilience.publication.answers.bins import said_of_bins
from consilience.publication.answers.writing import HEADING, CsvWriter, Style, cell, heading, likely, outward
from consilience.publication.intervals import Interval
from consilience.publication.questions import BoundQuestion, as_question

if TYPE_CHECKING:
    import pyarrow as pa

WIDE = "interval wider than the answer"
NO_DIFFERENCE = "not told apart from no difference: the interval holds 0"
OF_NOTHING = "Ratios and quantiles of what the account has no records of have no number."
SHOWN_ROWS = 60
"""How many lines of a table a Python prompt shows."""


@dataclass(frozen=True, eq=False, repr=False)
class AnswerTable(Described):
    """The answers to one question: a row for each, with its labels."""

    question: Question
    columns: tuple[str, ...]
    """The attribute of each label column."""
    axes: tuple[tuple[str, ...], ...]
    """The labels of each attribute, in the order of the answers' axes."""
    labels: tuple[tuple[str, ...], ...]
    numbers: NDArray[np.float64]
    """What the account says of every answer, those that nothing was measured for among them."""
    noisy: NDArray[np.float64] | None
    """The measured values, where this very query was measured once."""
    private: bool
    basis: Basis
    """What each answer stands on."""
    adds_up: bool = False
    """Each record that the query is about lies in one answer, so that sums of answers are counts again."""
    interval: Interval | None = None
    whole: bool = False
    """The estimates were rounded to whole numbers."""
    guess: bool = False
    """What the account assumes of answers that were not measured is shown, as guesses."""
    remarks: tuple[str, ...] = ()
    """What is to be said of each answer by itself; none where there is nothing of that kind."""
    notes: tuple[str, ...] = ()
    """What is to be said of all answers, in sentences."""
    headings: tuple[str, ...] = ()
    """The title of each label column with its unit; none where they are called as in `columns`."""
    worded: tuple[tuple[str, ...], ...] = ()
    """`axes` in the words of the domain's labels; none where there are no such words."""
    style: Style = field(default=Style())
    order: "Order | None" = None
    """Of the largest answers: how sure the order is."""
    change: "Change | None" = None
    """Of the difference between two releases: what it is the difference of."""

    @property
    def shown_columns(self) -> tuple[str, ...]:
        """What people read above the columns of labels."""
        return self.headings or self.columns

    @property
    def shown_axes(self) -> tuple[tuple[str, ...], ...]:
        """`axes` as people read them."""
        return self.worded or self.axes

    @property
    def shown_labels(self) -> Iterator[tuple[str, ...]]:
        """`labels` as people read them."""
        return itertools.product(*self.shown_axes)

    @cached_property
    def label_columns(self) -> tuple[tuple[str, int, bool], ...]:
        """The columns of labels in files: name, axis, and whether in words; those with labels have a column more."""
        found: list[tuple[str, int, bool]] = []
        for axis, name in enumerate(self.columns):
            found.append((name, axis, False))
            if self.shown_axes[axis] != self.axes[axis]:
                found.append((f"{name}_label", axis, True))
        return tuple(found)

    def label_cells(self) -> Iterator[list[str]]:
        """What stands in the columns of labels of each row of a file."""
        for values, words in zip(self.labels, self.shown_labels, strict=True):
            yield [words[axis] if worded else values[axis] for _, axis, worded in self.label_columns]

    @property
    def estimates(self) -> NDArray[np.float64]:
        """The answers; not a number where nothing was measured."""
        return np.where(self.basis.not_measured, np.nan, self.numbers)

    @property
    def guesses(self) -> NDArray[np.float64]:
        """What the account assumes where nothing was measured, if guesses were asked for; else not a number."""
        return np.where(self.basis.not_measured & self.guess, self.numbers, np.nan)

    def __repr__(self) -> str:
        lines = self.to_csv().splitlines()
        more = [f"and {len(lines) - SHOWN_ROWS:,} more"] if len(lines) > SHOWN_ROWS else []
        return "\n".join([self.title, *lines[:SHOWN_ROWS], *more, *filter(None, [self.basis.explain()])])

    def described(self) -> Description:
        """The answers in words and rounded numbers; a dash where nothing was measured."""
        sides = {"before", "after"}
        rows = []
        for labels, row in zip(self.shown_labels, self.rows(), strict=True):
            cells = list(labels)
            for name in self.numeric_columns:
                style = self.change.style if self.change is not None and name in sides else self.style
                cells.append(style.text(row[name]) if name not in ("sure", "among") else likely(row[name]))
            rows.append((*cells, row["basis"], *([row["note"]] if self.has_notes else [])))
        warning = "" if self.private else f"{HEADING}: these numbers come from simulated noise, and protect nobody"
        lines = (*self.notes, *filter(None, [self.basis.explain()]))
        header = (*self.shown_columns, *self.numeric_columns, "basis", *(("note",) * self.has_notes))
        return Description(self.title, lines, header, tuple(rows), warning=warning)

    def describe(self) -> str:
        """How many answers there are, what they stand on and how sure they are, in sentences."""
        return frames.words(self)

    def to_arrow(self) -> "pa.Table":
        """The answers as a pyarrow table; null where nothing was measured."""
        return frames.arrow_table(self)

    def to_dict(self) -> dict[str, list[Any]]:
        """The answers as a list for each column; None where nothing was measured."""
        return self.to_arrow().to_pydict()

    def to_pandas(self) -> Any:
        """The answers as a pandas data frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The answers as a polars data frame."""
        import polars as pl

        return pl.from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The answers for whatever reads Arrow: `polars.DataFrame(answers)`, `pyarrow.table(answers)`, DuckDB."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:
        """The answers by the data frame interchange protocol."""
        return self.to_arrow().__dataframe__(nan_as_null, allow_copy)

    def plot(self) -> Any:
        """The answers as an altair chart, with error bars where there are intervals."""
        return frames.chart(self)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def uncertain(self) -> NDArray[np.bool_]:
        """Which answers have an interval wider than themselves; no dates, and none without an interval."""
        if self.interval is None or self.style.days is not None:
            return np.zeros(len(self), dtype=np.bool_)
        return self.interval.uncertain

    @property
    def query(self) -> Query:
        return self.question.query

    @property
    def per(self) -> Query | None:
        """What the answers are divided by; None where they are counts."""
        return self.question.per

    @property
    def title(self) -> str:
        """The question as a person would type it."""
        if self.change is not None:
            return f"{self.question.bare.describe()}: {self.change.names[1]} minus {self.change.names[0]}"
        return self.question.describe()

    @property
    def doubt(self) -> str:
        """What is to be said of uncertain answers."""
        return NO_DIFFERENCE if self.question.word == "minus" else WIDE

    def note(self, place: int) -> str:
        """What there is to say against one answer; empty where there is nothing."""
        words = [self.doubt] if self.uncertain[place] else []
        words += [self.remarks[place]] if self.remarks and self.remarks[place] else []
        return "; ".join(words)

    @property
    def has_notes(self) -> bool:
        """True where each answer has a place for what there is to say against it."""
        return self.interval is not None or bool(self.remarks)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each answer as a mapping from column names to values; None where nothing was measured."""
        missing, names = self.basis.not_measured, self.basis.names
        names_of_labels = [name for name, _, _ in self.label_columns]
        value = self.style.value
        for i, cells in enumerate(self.label_cells()):
            row: dict[str, Any] = dict(zip(names_of_labels, cells, strict=True))
            number = int(self.numbers[i]) if self.whole else value(float(self.numbers[i]))
            if self.change is not None:
                row |= zip(("before", "after"), self.change.row(i), strict=True)
            row["estimate"] = None if missing[i] else number
            if self.guess:
                row["guess"] = number if missing[i] else None
            if self.interval is not None:
                low, high = float(self.interval.low[i]), float(self.interval.high[i])
                ends = outward(low, high) if self.whole else (low, high)
                row["low"], row["high"] = (None if math.isnan(end) else value(end) for end in ends)
            if self.noisy is not None:
                row["noisy"] = float(self.noisy[i])
            if self.order is not None:
                row["sure"], row["among"] = float(self.order.places[i]), float(self.order.among[i])
            row["basis"] = names[i]
            if self.has_notes:
                row["note"] = self.note(i)
            yield row

    @property
    def numeric_columns(self) -> tuple[str, ...]:
        """The columns of numbers."""
        bars = () if self.interval is None else ("low", "high")
        noisy = () if self.noisy is None else ("noisy",)
        sure = () if self.order is None else ("sure", "among")
        sides = () if self.change is None else ("before", "after")
        return (*sides, "estimate", *(("guess",) * self.guess), *bars, *noisy, *sure)

    @property
    def header(self) -> tuple[str, ...]:
        names = (name for name, _, _ in self.label_columns)
        return (*names, *self.numeric_columns, "basis", *(("note",) if self.has_notes else ()))

    def to_csv(self) -> str:
        """The answers as comma-separated text, numbers in full; of simulated noise the first column says so."""
        stream = io.StringIO()
        # By position: an attribute may be called like one of our columns.
        writer = CsvWriter(stream)
        writer.writerow([*heading(private=self.private), *self.header])
        mark = cell(private=self.private)
        numbers = self.header[len(self.label_columns) :]
        for labels, row in zip(self.label_cells(), self.rows(), strict=True):
            writer.writerow([*mark, *labels, *(row[name] for name in numbers)])
        return stream.getvalue()

    def to_json(self) -> str:
        """The answers as JSON: the query, whether the noise was real, what the intervals are, and a list of rows.

        `basis` is that of the worst answer; where some were not measured, `why` and what to measure next time follow.
        """
        shares = self.question == Question(self.query, self.per) and self.question.mean_of is None
        document: dict[str, Any] = {"query": self.query.describe() if shares else self.title}
        if self.per is not None and shares:
            document["per"] = self.per.describe()
        if self.change is not None:
            document |= {"query": self.question.bare.describe()} | dict(
                zip(("before", "after"), self.change.names, strict=True)
            )
        document["private"] = self.private
        document |= described_basis(self.basis)
        if self.interval is not None:
            document |= described_interval(self.interval)
        if self.notes:
            document["notes"] = [*self.notes, *document.get("notes", ())]
        answers = [{name: _plain(value) for name, value in row.items()} for row in self.rows()]
        return json.dumps(document | {"answers": answers}, indent=2, ensure_ascii=False)


def described_basis(basis: Basis) -> dict[str, Any]:
    """What there is to know of what answers stand on, as plain data."""
    missing = {"why": basis.why(), "next_time": list(basis.next_time())} if basis.why() else {}
    return {"basis": basis.worst, **missing}


def described_interval(interval: Interval) -> dict[str, Any]:
    """What is to be known of intervals, as plain data."""
    return {
        "level": interval.level,
        "covers": interval.covers,
        "how": interval.how,
        "refits": interval.refits,
        "notes": list(interval.notes),
    }


def table_of(query: Query) -> Query:
    """What people read of a measured query: of coefficients that only a fit understands, the table they are about.

    >>> from consilience.domain import factors
    >>> table_of(Query.of({"a": factors.Matrix.of([[1.0, -1.0]]), "b": factors.Identity()})).describe()
    'a, b'
    """
    if not any(isinstance(factor, Matrix) for _, factor in query.factors):
        return query
    return Query(tuple((name, Identity() if isinstance(factor, Matrix) else factor) for name, factor in query.factors))


def answer_table(
    estimate: Estimate,
    query: Query | Question | str,
    interval: Interval | None = None,
    per: Query | str | None = None,
    *,
    guess: bool = False,
    percent: bool = False,
) -> AnswerTable:
    """The estimate's answers to a query, with labels and with what each stands on; no number for what has no basis.

    `guess` adds what the account assumes of answers that were not measured, in a column of its own. `interval` adds
    error bars: what `intervals` found for this query. `per` divides the answers by those to another query, which is one
    number, has as many, or lists some of the same attributes; where that is not above zero, the ratio is not a number.
    Means divide by themselves, and say how far the middle of bins may put them off. `percent` writes shares as 9.9 %.
    """
    question = as_question(query, per).over(estimate.domain)
    if interval is not None and interval.question != question:
        raise DeclarationError(
            f"the interval is of {interval.question.describe()!r}, and the answers are to "
            f"{question.describe()!r}; take the interval of the same query"
        )
    asked = BoundQuestion(question, estimate.domain)
    bound = asked.sides[0].bound
    noisy = _noisy(estimate, bound.query) if asked.is_plain else []
    axes = asked.axes
    table = AnswerTable(
        question=question,
        columns=axes.names,
        axes=axes.labels,
        labels=tuple(itertools.product(*axes.labels)),
        numbers=asked.answers(estimate),
        noisy=noisy[0] if len(noisy) == 1 else None,
        private=estimate.private,
        basis=asked.basis(estimate),
        adds_up=(asked.is_plain or percent) and adds_up(bound),
        interval=interval,
        guess=guess,
        headings=axes.headings,
        worded=axes.worded,
        style=Style.of(asked, percent=percent),
    )
    public = f"public: from {estimate.public_tables.name} alone; no measurement speaks of it"
    remarks, notes = said_of_bins(estimate, asked, table.numbers, table.basis.not_measured)
    of_nothing = bool(np.isnan(table.numbers[~table.basis.not_measured]).any())
    said = [public] * bool(table.basis.public.any()) + [OF_NOTHING] * of_nothing
    return replace(table, remarks=remarks, notes=(*said, *notes))


def _noisy(estimate: Estimate, query: Query) -> list[NDArray[np.float64]]:
    """What was measured of this very query, counts or sums."""
    sums = measured_sums(estimate, query)
    if sums is None:
        return [each.values for each in estimate.measurements.by_query.get(query, ())]
    groups, name = sums.groups(query), sums.attribute.name
    return [each.values for each in estimate.measurements.sums if (each.amount, each.query) == (name, groups)]


def in_whole_numbers(table: AnswerTable, answers: NDArray[np.int64]) -> AnswerTable:
    """The table with these whole numbers in place of its estimates."""
    return replace(table, numbers=answers.astype(np.float64), whole=True, style=Style(0))


@dataclass(frozen=True, eq=False)
class Change:
    """What a change between two releases is the difference of."""

    names: tuple[str, str]
    """The earlier and the later release."""
    answers: tuple[NDArray[np.float64], NDArray[np.float64]]
    """Their answers; not a number where one of them did not measure."""
    style: Style
    """How these are written."""

    def row(self, place: int) -> "tuple[float | str | None, float | str | None]":
        before, after = (float(each[place]) for each in self.answers)
        value = self.style.value
        return None if math.isnan(before) else value(before), None if math.isnan(after) else value(after)


@dataclass(frozen=True, eq=False)
class Order:
    """How sure the order of the largest answers is: in which share of the draws of the noise it is the true one."""

    places: NDArray[np.float64]
    """For each answer the share in which it stands at its place."""
    among: NDArray[np.float64]
    """The share in which it is one of the largest at all."""
    together: float
    """The share in which they are the largest, in whatever order."""


def adds_up(bound: BoundQuery) -> bool:
    """True where each factor that lists several values puts every value into exactly one of its rows.

    Its matrix then has one 1 in each column: no entry is negative, and Σ_i F_ij = Σ_i F_ij² = 1. A factor with a single
    row is a condition; it only says what the table is about.
    """
    return all(
        each.rows == 1
        or (each.nonnegative and np.all(each.column_norms(1) == 1.0) and np.all(each.column_norms(2) == 1.0))
        for each in bound.maps
    )


def _plain(value: Any) -> Any:
    """The value, or None for a ratio to nothing: JSON has no word for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
