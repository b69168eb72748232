"""Answers as tables of other libraries, and as a picture. What was not measured is missing there, and never drawn.

Columns are those of the CSV. An attribute that is called as one of our own columns gets ` (attribute)` behind its name:
data frames do not bear two columns of one name. Dates are texts, and so is what lies beyond the first and last bin.
`answers` is an `AnswerTable`; these are its methods.
"""

import math
from typing import TYPE_CHECKING, Any

from consilience.errors import DeclarationError, TooLarge
from consilience.publication.answers.writing import CELL, HEADING
from consilience.publication.report_page import check_pictures

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BARS = 60
"""How many answers a picture shows."""


def arrow_table(answers: Any) -> "pa.Table":
    """The answers with a type for each column; of simulated noise the first column says so."""
    import pyarrow as pa

    rows = list(answers.rows())
    labels = list(zip(*answers.label_cells(), strict=True)) or [()] * len(answers.label_columns)
    own = answers.header[len(answers.label_columns) :]
    columns: dict[str, Any] = {}
    if not answers.private:
        columns[HEADING] = pa.array([CELL] * len(rows), pa.string())
    for (name, _, _), values in zip(answers.label_columns, labels, strict=True):
        taken = name in own or name in columns
        columns[f"{name} (attribute)" if taken else name] = pa.array(values, pa.string())
    for name in own:
        columns[name] = _column([row[name] for row in rows], numeric=name in answers.numeric_columns)
    return pa.table(columns)


def _column(values: list[Any], *, numeric: bool) -> "pa.Array":
    """Numbers as numbers, and None where there is none; texts and dates as texts."""
    import pyarrow as pa

    if not numeric or any(isinstance(value, str) for value in values):
        return pa.array([value if isinstance(value, str) else None for value in values], pa.string())
    if all(isinstance(value, int) for value in values) and values:
        return pa.array(values, pa.int64())
    known = [None if value is None or math.isnan(value) else float(value) for value in values]
    return pa.array(known, pa.float64())


def chart(answers: Any) -> Any:
    """An altair chart: a bar, or a point with its error bar, for each answer that has a basis."""
    check_pictures()
    import altair as alt

    if answers.style.days is not None:
        raise DeclarationError("dates are no heights of bars; print the table, or plot the counts by date")
    if len(answers) > MOST_BARS:
        raise TooLarge(
            f"{len(answers):,} answers do not fit one picture, which shows up to {MOST_BARS}; ask for fewer, or take "
            "to_pandas() and draw what you need"
        )
    data = [
        {"answer": ", ".join(labels) or "total", "place": place}
        | {name: row[name] for name in ("estimate", "low", "high", "basis") if name in row}
        for place, (labels, row) in enumerate(zip(answers.shown_labels, answers.rows(), strict=True))
        if row["estimate"] is not None and math.isfinite(row["estimate"])
    ]
    missing = int(answers.basis.not_measured.sum())
    notes = ["NOT PRIVATE: simulated noise"] if not answers.private else []
    notes += [f"{missing} of {len(answers)} answers were not measured, and are not shown"] if missing else []
    axis = alt.Y("answer:N", sort=alt.SortField("place"), title=", ".join(answers.shown_columns) or None)
    told = ["answer:N", "estimate:Q", "basis:N"]
    base = alt.Chart(alt.Data(values=data), title=alt.TitleParams(answers.title, subtitle=notes)).encode(y=axis)
    if answers.interval is None:
        return base.mark_bar().encode(x=alt.X("estimate:Q"), tooltip=told)
    bars = base.mark_rule(strokeWidth=3).encode(x=alt.X("low:Q", title="estimate"), x2="high:Q")
    return bars + base.mark_point(filled=True, size=60).encode(x="estimate:Q", tooltip=told)


def words(answers: Any) -> str:
    """What there is to say of the answers: how many, what they stand on, how sure they are."""
    names = list(answers.basis.names)
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    standing = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    lines = [f"{answers.title}: {len(answers):,} answer{'s' * (len(answers) != 1)}: {standing}."]
    if answers.interval is not None and not answers.basis.not_measured.all():
        unsure = int(answers.uncertain.sum())
        level = f"Intervals hold with probability {answers.interval.level:g}"
        lines.append(f"{level}; of {unsure:,} answers: {answers.doubt}." if unsure else f"{level}.")
    if not answers.private:
        lines.insert(0, "NOT PRIVATE: these numbers come from simulated noise, and protect nobody.")
    return "\n".join([*lines, *filter(None, [answers.basis.explain()]), *answers.notes])
