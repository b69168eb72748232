"""Answers as people read them: labels, the estimate with its error bars, what it stands on, the noisy measurement.

An answer that nothing was measured for has no number here, but for who asks for guesses: then what the account assumes
stands in a column of its own, never among the estimates.
"""

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Numeric
from consilience.domain.declarations import guarded
from consilience.domain.factors import Identity, Matrix, Mean
from consilience.domain.queries import BoundQuery, Query, Question
from consilience.errors import DeclarationError
from consilience.estimators import Estimate
from consilience.measurements.basis import Basis
from consilience.publication.intervals import Interval, as_question, check_divisor, ratio

# ----------------------------------------------------------------------------------------------------------------------
# Comma-separated text has no place for a privacy statement: of simulated noise its first column says so.


HEADING = "NOT PRIVATE"
CELL = "simulated noise"
_MARKED = re.compile(rb'(\xef\xbb\xbf)?"?' + HEADING.encode() + rb'"?[,;\t\r\n]')


def heading(*, private: bool) -> list[str]:
    """What stands first in the header: nothing where the noise is real."""
    return [] if private else [HEADING]


def cell(*, private: bool) -> list[str]:
    """What stands first in every other line."""
    return [] if private else [CELL]


def is_marked(start: bytes) -> bool:
    """Whether a file that begins so is comma-separated text of simulated noise.

    >>> is_marked(b"NOT PRIVATE,age,estimate"), is_marked(b"age,estimate")
    (True, False)
    """
    return _MARKED.match(start) is not None


# ----------------------------------------------------------------------------------------------------------------------
# Answers as people read them: labels, the estimate with its error bars, what it stands on, the noisy measurement.


WIDE = "interval wider than the answer"
SHOWN_ROWS = 60
"""How many lines of a table a Python prompt shows."""


@dataclass(frozen=True, eq=False, repr=False)
class AnswerTable:
    """The answers to one query: a row for each, with its labels."""

    query: Query
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
    per: Query | None = None
    """What the answers are divided by; None where they are counts."""
    interval: Interval | None = None
    whole: bool = False
    """The estimates were rounded to whole numbers."""
    guess: bool = False
    """What the account assumes of answers that were not measured is shown, as guesses."""
    within_bins: NDArray[np.float64] | None = None
    """Of means: how far each may be off because records count as the middle of their bin."""
    notes: tuple[str, ...] = ()
    """What is to be said of all answers, in sentences."""
    headings: tuple[str, ...] = ()
    """The title of each label column with its unit; none where they are called as in `columns`."""
    worded: tuple[tuple[str, ...], ...] = ()
    """`axes` in the words of the domain's labels; none where there are no such words."""

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

    def _label_cells(self) -> Iterator[list[str]]:
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

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def uncertain(self) -> NDArray[np.bool_]:
        """Which answers have an interval wider than themselves; none without an interval."""
        return np.zeros(len(self), dtype=np.bool_) if self.interval is None else self.interval.uncertain

    @property
    def question(self) -> Question:
        return Question(self.query, self.per)

    @property
    def title(self) -> str:
        """The question as a person would type it."""
        return self.question.describe()

    def note(self, place: int) -> str:
        """What there is to say against one answer; empty where there is nothing."""
        words = [WIDE] if self.uncertain[place] else []
        if self.within_bins is not None and math.isfinite(self.within_bins[place]):
            words.append(f"bins: ± {self.within_bins[place]:.3g}")
        return "; ".join(words)

    @property
    def has_notes(self) -> bool:
        """True where each answer has a place for what there is to say against it."""
        return self.interval is not None or self.within_bins is not None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each answer as a mapping from column names to values; None where nothing was measured."""
        missing, names = self.basis.not_measured, self.basis.names
        names_of_labels = [name for name, _, _ in self.label_columns]
        for i, cells in enumerate(self._label_cells()):
            row: dict[str, Any] = dict(zip(names_of_labels, cells, strict=True))
            number = int(self.numbers[i]) if self.whole else float(self.numbers[i])
            row["estimate"] = None if missing[i] else number
            if self.guess:
                row["guess"] = number if missing[i] else None
            if self.interval is not None:
                low, high = float(self.interval.low[i]), float(self.interval.high[i])
                ends = outward(low, high) if self.whole else (low, high)
                row["low"], row["high"] = (None if math.isnan(end) else end for end in ends)
            if self.noisy is not None:
                row["noisy"] = float(self.noisy[i])
            row["basis"] = names[i]
            if self.has_notes:
                row["note"] = self.note(i)
            yield row

    @property
    def numeric_columns(self) -> tuple[str, ...]:
        """The columns of numbers."""
        bars = () if self.interval is None else ("low", "high")
        return ("estimate", *(("guess",) * self.guess), *bars, *(() if self.noisy is None else ("noisy",)))

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
        for labels, row in zip(self._label_cells(), self.rows(), strict=True):
            writer.writerow([*mark, *labels, *(row[name] for name in numbers)])
        return stream.getvalue()

    def to_json(self) -> str:
        """The answers as JSON: the query, whether the noise was real, what the intervals are, and a list of rows.

        `basis` is that of the worst answer; where some were not measured, `why` and what to measure next time follow.
        """
        mean = self.question.mean_of is not None
        document: dict[str, Any] = {"query": self.title if mean else self.query.describe()}
        if self.per is not None and not mean:
            document["per"] = self.per.describe()
        document["private"] = self.private
        document |= described_basis(self.basis)
        if self.interval is not None:
            document |= described_interval(self.interval)
        if self.notes:
            document["notes"] = [*self.notes, *document.get("notes", ())]
        answers = [{name: _plain(value) for name, value in row.items()} for row in self.rows()]
        return json.dumps(document | {"answers": answers}, indent=2, ensure_ascii=False)


class CsvWriter:
    """Writes lines of CSV in which no text is a formula to a spreadsheet; see `declarations.guarded`."""

    def __init__(self, stream: IO[str]) -> None:
        self._writer = csv.writer(stream, lineterminator="\n")

    def writerow(self, cells: Iterable[object]) -> None:
        self._writer.writerow([guarded(cell) if isinstance(cell, str) else cell for cell in cells])


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
) -> AnswerTable:
    """The estimate's answers to a query, with labels and with what each stands on; no number for what has no basis.

    `guess` adds what the account assumes of answers that were not measured, in a column of its own. `interval` adds
    error bars: what `intervals` found for this query. `per` divides the answers by those to another query, which is one
    number or has as many; where that is not above zero, the ratio is not a number. Means divide by themselves, and say
    how far the middle of bins may put them off.
    """
    question = as_question(query, per).over(estimate.domain)
    asked, divisor = question.query, question.per
    if interval is not None and (interval.query, interval.per) != (asked, divisor):
        raise DeclarationError(
            f"the interval is of {_said(interval.query, interval.per)}, and the answers are to "
            f"{_said(asked, divisor)}; take the interval of the same query"
        )
    bound = asked.bind(estimate.domain)
    noisy = [each.values for each in estimate.measurements if each.query == bound.query] if divisor is None else []
    mean = question.mean_of
    axes = tuple(
        (f"mean of {mean}",) if name == mean else labels
        for name, labels in zip(bound.axis_names, bound.row_labels, strict=True)
    )
    worded = tuple(
        (f"mean of {heading}",) if name == mean else labels
        for name, heading, labels in zip(bound.axis_names, bound.axis_headings, bound.worded_rows, strict=True)
    )
    table = AnswerTable(
        query=asked,
        columns=bound.axis_names,
        axes=axes,
        labels=tuple(itertools.product(*axes)),
        numbers=_answers(estimate, asked, divisor),
        noisy=noisy[0] if len(noisy) == 1 else None,
        private=estimate.private,
        basis=estimate.basis(bound.query, divisor),
        adds_up=divisor is None and adds_up(bound),
        per=divisor,
        interval=interval,
        guess=guess,
        headings=bound.axis_headings,
        worded=worded,
    )
    if table.basis.public.any():
        said = f"public: from {estimate.public_tables.name} alone; no measurement speaks of it"
        table = replace(table, notes=(said,))
    if mean is None:
        return table
    within_bins, notes = bins_of_mean(estimate, question)
    return replace(table, within_bins=within_bins, notes=(*table.notes, *notes))


def in_whole_numbers(table: AnswerTable, answers: NDArray[np.int64]) -> AnswerTable:
    """The table with these whole numbers in place of its estimates."""
    return replace(table, numbers=answers.astype(np.float64), whole=True)


def outward(low: float, high: float) -> tuple[float, float]:
    """The interval between whole numbers around this one.

    >>> outward(-0.5, 3.2)
    (-1, 4)
    """
    return (
        math.floor(low) if math.isfinite(low) else low,
        math.ceil(high) if math.isfinite(high) else high,
    )


def bins_of_mean(estimate: Estimate, question: Question) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """How far a mean may be off because each record counts as the middle of its bin, and what is to be said of that.

    A record lies at most half a bin's width from the middle: Σ half width × count / Σ count. Of bins that also hold
    what lies beyond them there is no such limit, and their share of the records is told instead. Of means that were not
    measured nothing is said.
    """
    name, per = question.mean_of, question.per
    attribute = None if name is None else estimate.domain[name]
    if not isinstance(attribute, Numeric) or name is None or per is None:
        raise DeclarationError(f"{question.describe()!r} is no mean; only means of numbers have bins")
    ends = np.zeros(attribute.size)
    ends[[0, len(attribute.bins) - 1]] = 1.0
    weighed = [_weighed(question.query, name, entries) for entries in (attribute.half_widths(), ends)]
    wide, open_ended, below = (np.ravel(each) for each in estimate.answers([*weighed, per]))
    off, share = (
        np.where(estimate.basis(each, per).not_measured, np.nan, ratio(above, below))
        for each, above in zip(weighed, (wide, open_ended), strict=True)
    )
    if estimate.basis(question.query, per).not_measured.all():
        return off, ()
    notes = [
        f"Each record counts as the middle of its bin of {name}: whatever the noise, a mean may be off by up to "
        f"{_span(off)}, which error bars do not hold. The sum is {Mean().describe(name)}."
    ]
    if attribute.clips:
        notes.append(
            f"WARNING: the first and the last bin of {name} are open-ended, for they also hold what lies beyond them "
            f'(unlisted = "clip"). Up to {_span(100 * share)} % of the records are in these bins, and nothing limits'
            " how far their values lie outside: the mean may be off by that share of the distance, on top of the above."
        )
    return off, tuple(notes)


def _weighed(query: Query, name: str, entries: NDArray[np.float64]) -> Query:
    """The query with these numbers for the values of one attribute."""
    return Query(tuple((each, Matrix.of(entries) if each == name else factor) for each, factor in query.factors))


def _span(values: NDArray[np.float64]) -> str:
    known = values[np.isfinite(values)]
    if not known.size:
        return "an unknown amount"
    low, high = f"{known.min():,.3g}", f"{known.max():,.3g}"
    return low if low == high else f"{low} to {high}"


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


def _answers(estimate: Estimate, asked: Query, divisor: Query | None) -> NDArray[np.float64]:
    if divisor is None:
        return estimate.answer(asked).ravel()
    check_divisor(estimate, asked, divisor)
    above, below = (each.ravel() for each in estimate.answers([asked, divisor]))
    return ratio(above, below)


def _plain(value: Any) -> Any:
    """The value, or None for a ratio to nothing: JSON has no word for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _said(query: Query, per: Query | None) -> str:
    return repr(Question(query, per).describe())
