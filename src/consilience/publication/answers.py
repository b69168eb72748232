"""Answers as people read them: labels, the estimate with its error bars, what it stands on, the noisy measurement.

An answer that nothing was measured for has no number here, but for who asks for guesses: then what the account assumes
stands in a column of its own, never among the estimates.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import BoundQuery, Query
from consilience.domain.spelling import guarded
from consilience.errors import DeclarationError
from consilience.estimators import Estimate
from consilience.measurements.basis import Basis
from consilience.publication.simulated_tables import cell, heading

if TYPE_CHECKING:
    from consilience.publication.intervals import Interval

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
    interval: "Interval | None" = None
    whole: bool = False
    """The estimates were rounded to whole numbers."""
    guess: bool = False
    """What the account assumes of answers that were not measured is shown, as guesses."""

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
    def title(self) -> str:
        """The question as a person would type it."""
        return self.query.describe() + ("" if self.per is None else f" per {self.per.describe()}")

    def note(self, place: int) -> str:
        """What there is to say against one answer; empty where there is nothing."""
        return WIDE if self.uncertain[place] else ""

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each answer as a mapping from column names to values; None where nothing was measured."""
        missing, names = self.basis.not_measured, self.basis.names
        for i, labels in enumerate(self.labels):
            row: dict[str, Any] = dict(zip(self.columns, labels, strict=True))
            number = int(self.numbers[i]) if self.whole else float(self.numbers[i])
            row["estimate"] = None if missing[i] else number
            if self.guess:
                row["guess"] = number if missing[i] else None
            if self.interval is not None:
                low, high = float(self.interval.low[i]), float(self.interval.high[i])
                ends = outward(low, high) if self.whole else (low, high)
                row["low"], row["high"] = (None, None) if missing[i] else ends
            if self.noisy is not None:
                row["noisy"] = float(self.noisy[i])
            row["basis"] = names[i]
            if self.interval is not None:
                row["note"] = self.note(i)
            yield row

    @property
    def numeric_columns(self) -> tuple[str, ...]:
        """The columns of numbers."""
        bars = () if self.interval is None else ("low", "high")
        return ("estimate", *(("guess",) * self.guess), *bars, *(() if self.noisy is None else ("noisy",)))

    @property
    def header(self) -> tuple[str, ...]:
        return (*self.columns, *self.numeric_columns, "basis", *(() if self.interval is None else ("note",)))

    def to_csv(self) -> str:
        """The answers as comma-separated text, numbers in full; of simulated noise the first column says so."""
        stream = io.StringIO()
        # By position: an attribute may be called like one of our columns.
        writer = CsvWriter(stream)
        writer.writerow([*heading(private=self.private), *self.header])
        mark = cell(private=self.private)
        for labels, row in zip(self.labels, self.rows(), strict=True):
            writer.writerow([*mark, *labels, *(row[name] for name in self.header[len(self.columns) :])])
        return stream.getvalue()

    def to_json(self) -> str:
        """The answers as JSON: the query, whether the noise was real, what the intervals are, and a list of rows.

        `basis` is that of the worst answer; where some were not measured, `why` and what to measure next time follow.
        """
        document: dict[str, Any] = {"query": self.query.describe()}
        if self.per is not None:
            document["per"] = self.per.describe()
        document["private"] = self.private
        document |= described_basis(self.basis)
        if self.interval is not None:
            document |= described_interval(self.interval)
        answers = [{name: _plain(value) for name, value in row.items()} for row in self.rows()]
        return json.dumps(document | {"answers": answers}, indent=2, ensure_ascii=False)


class CsvWriter:
    """Writes lines of CSV in which no text is a formula to a spreadsheet; see `spelling.guarded`."""

    def __init__(self, stream: IO[str]) -> None:
        self._writer = csv.writer(stream, lineterminator="\n")

    def writerow(self, cells: Iterable[object]) -> None:
        self._writer.writerow([guarded(cell) if isinstance(cell, str) else cell for cell in cells])


def described_basis(basis: Basis) -> dict[str, Any]:
    """What there is to know of what answers stand on, as plain data."""
    missing = {"why": basis.why(), "next_time": list(basis.next_time())} if basis.why() else {}
    return {"basis": basis.worst, **missing}


def described_interval(interval: "Interval") -> dict[str, Any]:
    """What is to be known of intervals, as plain data."""
    return {
        "level": interval.level,
        "covers": interval.covers,
        "how": interval.how,
        "refits": interval.refits,
        "notes": list(interval.notes),
    }


def answer_table(
    estimate: Estimate,
    query: Query | str,
    interval: "Interval | None" = None,
    per: Query | str | None = None,
    *,
    guess: bool = False,
) -> AnswerTable:
    """The estimate's answers to a query, with labels and with what each stands on; no number for what has no basis.

    `guess` adds what the account assumes of answers that were not measured, in a column of its own. `interval` adds
    error bars: what `intervals` found for this query. `per` divides the answers by those to another query, which is one
    number or has as many; where that is not above zero, the ratio is not a number.
    """
    asked = as_query(query)
    divisor = None if per is None else as_query(per)
    if interval is not None and (interval.query, interval.per) != (asked, divisor):
        raise DeclarationError(
            f"the interval is of {_said(interval.query, interval.per)}, and the answers are to "
            f"{_said(asked, divisor)}; take the interval of the same query"
        )
    bound = asked.bind(estimate.domain)
    noisy = [each.values for each in estimate.measurements if each.query == asked] if divisor is None else []
    return AnswerTable(
        query=asked,
        columns=bound.attributes,
        axes=bound.row_labels,
        labels=tuple(bound.label_rows()),
        numbers=_answers(estimate, asked, divisor),
        noisy=noisy[0] if len(noisy) == 1 else None,
        private=estimate.private,
        basis=estimate.basis(asked, divisor),
        adds_up=divisor is None and adds_up(bound),
        per=divisor,
        interval=interval,
        guess=guess,
    )


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


def as_query(query: Query | str) -> Query:
    return Query.parse(query) if isinstance(query, str) else query


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


def check_divisor(estimate: Estimate, asked: Query, divisor: Query) -> None:
    """Refuse to divide answers by another number of answers, unless by one."""
    above, below = (query.bind(estimate.domain).size for query in (asked, divisor))
    if below not in (1, above):
        raise DeclarationError(
            f"{asked.describe()!r} has {above} answers and {divisor.describe()!r} has {below}; a ratio is per one "
            "number, or per as many: name another query"
        )


def ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ratio, which is not a number where there is nothing to divide by."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0.0, above / below, np.nan)


def _plain(value: Any) -> Any:
    """The value, or None for a ratio to nothing: JSON has no word for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _said(query: Query, per: Query | None) -> str:
    return repr(query.describe()) + ("" if per is None else f" per {per.describe()!r}")
