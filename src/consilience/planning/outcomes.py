"""What each budget buys, as a table, a frame, a picture and sentences.

`Outcome` (a budget, told in one way)  ──►  `WhatIf` (all budgets)
"""

import io
import itertools
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.domain.descriptions import Described, Description
from consilience.domain.files import write_atomically
from consilience.errors import DeclarationError
from consilience.planning.expected_errors import ExpectedError
from consilience.privacy.budgets import Budget
from consilience.publication.intervals.error_bars import ADAPTIVE_PLANS
from consilience.publication.report_page import BLUE, GREY, ORANGE, altair, picture

if TYPE_CHECKING:
    import pyarrow as pa

Basis = Literal["least squares", "simulated"]


@dataclass(frozen=True)
class Outcome:
    """What one budget buys: what would be measured, and how far answers would be off."""

    budget: Budget
    plan: str
    measured: str
    """What is measured, in words."""
    how: Basis
    stand_in: str | None
    """The made-up table of a simulation."""
    rows: tuple[ExpectedError, ...]
    """Of each query, then of each set of sums of an amount."""

    @property
    def amount(self) -> float:
        """The epsilon, or the rho."""
        return float(self.budget.epsilon or self.budget.rho or 0)

    @property
    def counts(self) -> tuple[ExpectedError, ...]:
        return tuple(row for row in self.rows if row.amount is None)

    @property
    def error(self) -> float:
        """The mean absolute error of a count, in records: the mean over queries, by their weights."""
        return _mean(self.counts, [row.error for row in self.counts])

    @property
    def margin(self) -> float:
        """95 % of counts are off by less; smaller counts drown, as their intervals reach zero."""
        return _mean(self.counts, [row.margin for row in self.counts])

    @property
    def in_words(self) -> str:
        """How much noise there is, in words."""
        if not self.counts:
            return "no counts are asked for"
        return f"counts below {readable(self.margin)} will drown"

    def to_json(self) -> dict[str, Any]:
        return {
            "budget": self.budget.to_json(),
            "plan": self.plan,
            "measured": self.measured,
            "how": self.how,
            "stand_in": self.stand_in,
            "error": self.error if self.counts else None,
            "margin": self.margin if self.counts else None,
            "in_words": self.in_words,
            "queries": [row.to_json() for row in self.rows],
        }


def _mean(rows: Sequence[ExpectedError], numbers: Sequence[float]) -> float:
    weights = [row.weight for row in rows]
    return sum(w * x for w, x in zip(weights, numbers, strict=True)) / sum(weights) if rows else math.nan


def readable(number: float) -> str:
    """A number in two digits, as people say it; counts from 1 up are whole.

    >>> readable(61.7), readable(0.04321), readable(12345.6)
    ('62', '0.043', '12,000')
    """
    if not math.isfinite(number) or number == 0:
        return f"{number:g}"
    digits = 1 - math.floor(math.log10(abs(number)))
    rounded = round(number, digits)
    return f"{rounded:,.0f}" if abs(rounded) >= 10 else f"{rounded:.{max(digits, 0)}f}"


@dataclass(frozen=True)
class WhatIf(Described):
    """What each budget buys: a table, a frame and a picture of expected errors, made without data."""

    dataset: str
    records: int
    asked: str
    """What the errors are of, in words."""
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return self.outcomes[0].budget.additive_unit

    @property
    def by_budget(self) -> tuple[tuple[Outcome, ...], ...]:
        """The outcomes of each budget."""
        return tuple(tuple(group) for _, group in itertools.groupby(self.outcomes, key=lambda each: each.amount))

    def described(self) -> Description:
        rows = tuple(
            (f"{group[0].amount:g}", _measured_in(group), _said(group, "error"), _said(group, "margin"))
            for group in self.by_budget
        )
        lines = (
            f"{self.asked}, of about {self.records:,} records. The error is what a count is off by on average, in "
            "records; 95 % of counts are off by less than what the last column says, and smaller ones drown in the "
            "noise.",
            *self.notes,
        )
        header = (self.unit, "would be measured", "error of a count", "counts below this drown")
        return Description(f"What if: {self.dataset!r}, before any data are read", lines, header, rows)

    @property
    def sentences(self) -> tuple[str, ...]:
        """For each budget two sentences: what is measured, and how far counts are off."""
        return tuple(_two_sentences(group, self.records, self.asked) for group in self.by_budget)

    def to_arrow(self) -> "pa.Table":
        """A row for each budget, stand-in and query."""
        import pyarrow as pa

        return pa.Table.from_pylist(
            [
                {
                    self.unit: each.amount,
                    "query": row.query,
                    "answers": row.answers,
                    "error": row.error,
                    "margin": row.margin,
                    "basis": row.basis,
                    "told_by": each.how,
                    "stand_in": each.stand_in,
                    "measured": each.measured,
                }
                for each in self.outcomes
                for row in each.rows
            ]
        )

    def to_pandas(self) -> Any:
        """A row for each budget, stand-in and query, as a pandas data frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """A row for each budget, stand-in and query, as a polars data frame."""
        import polars as pl

        return pl.from_arrow(self.to_arrow())

    def to_csv(self) -> str:
        """A row for each budget, stand-in and query, as a CSV file."""
        import pyarrow.csv as pc

        stream = io.BytesIO()
        pc.write_csv(self.to_arrow(), stream)
        return stream.getvalue().decode()

    def to_json(self) -> str:
        """All of it as JSON."""
        document = {"dataset": self.dataset, "records": self.records, "asked": self.asked, "notes": list(self.notes)}
        document |= {"sentences": list(self.sentences), "outcomes": [each.to_json() for each in self.outcomes]}
        return json.dumps(document, indent=2, ensure_ascii=False)

    def plot(self) -> Any:
        """An altair chart: the error of a count, and what drowns, against the budget."""
        alt = altair()
        data = [
            {"amount": each.amount, "records": number, "what": what, "told": each.stand_in or "least squares"}
            for each in self.outcomes
            if each.counts
            for what, number in (("error of a count, on average", each.error), ("smaller counts drown", each.margin))
        ]
        colours = alt.Scale(domain=["least squares", "uniform", "skewed"], range=[GREY, BLUE, ORANGE])
        base = alt.Chart(alt.Data(values=data)).encode(
            x=alt.X("amount:Q", scale=alt.Scale(type="log"), title=self.unit),
            y=alt.Y("records:Q", scale=alt.Scale(type="log"), title="records"),
            color=alt.Color("told:N", scale=colours, title="told by"),
            detail="what:N",
            tooltip=["amount:Q", "records:Q", "what:N", "told:N"],
        )
        dashes = alt.Legend(labelLimit=260, symbolType="stroke", symbolSize=400)
        lines = base.mark_line().encode(strokeDash=alt.StrokeDash("what:N", title=None, legend=dashes))
        return (lines + base.mark_point(filled=True, size=50)).properties(width=460, height=280)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture (.png, .svg), or the numbers (.csv, .json)."""
        place = Path(path)
        kind = check_what_if_file(place)
        if kind == ".csv":
            content = self.to_csv().encode()
        elif kind == ".json":
            content = (self.to_json() + "\n").encode()
        else:
            title = f"What if: {self.dataset}"
            words = f"Errors of {self.asked}, about {self.records:,} records"
            drawn = picture(self.plot(), name=place.stem, title=title, subtitle=words, description=words, private=True)
            content = drawn.png if kind == ".png" else drawn.svg.encode()
        write_atomically(place, content)


def check_what_if_file(path: Path) -> str:
    """The kind of file by its name, refused before any work."""
    kind = path.suffix.lower()
    if kind not in (".png", ".svg", ".csv", ".json"):
        raise DeclarationError(f"what is in {path.name!r} is told by its name; end it in .png, .svg, .csv or .json")
    return kind


def _simulated(group: Sequence[Outcome]) -> list[Outcome]:
    return [each for each in group if each.how == "simulated"]


def _said(group: Sequence[Outcome], what: str) -> str:
    """A number of each way that it was told by: `25 to 33 (noise alone: 61)`."""
    if not group[0].counts:
        return "–"
    made_up = sorted(float(getattr(each, what)) for each in _simulated(group))
    texts = list(dict.fromkeys(readable(number) for number in made_up))
    alone = [readable(getattr(each, what)) for each in group if each.how == "least squares"]
    if not texts:
        return alone[0]
    return " to ".join(texts) + (f" (noise alone: {alone[0]})" if alone else "")


def _measured_in(group: Sequence[Outcome]) -> str:
    """What is measured, of each made-up table where that differs."""
    if len({each.measured for each in group}) == 1:
        return group[0].measured
    return "; ".join(f"{each.stand_in}: {each.measured}" for each in group if each.stand_in is not None)


def _two_sentences(group: Sequence[Outcome], records: int, asked: str) -> str:
    """What is measured, and how far counts are off."""
    of = f"With {group[0].budget.describe()} and about {records:,} records"
    chooses = group[0].plan in ADAPTIVE_PLANS
    if len({each.measured for each in group}) == 1:
        tried = "the same on both made-up tables that it was tried on" if chooses else "whatever is in the data"
        doing = f"{of} it measures {group[0].measured}: {tried}."
    else:
        each = "; ".join(f"on a {one.stand_in} one, {one.measured}" for one in group)
        doing = f"{of} it chooses what to measure by the data: of two made-up tables, {each}."
    if not group[0].counts:
        return doing
    how = " in a simulation on made-up tables, one uniform and one skewed" if _simulated(group) else ""
    off = f"Of {asked}, a count would be off by about {_said(group, 'error')} records on average{how}, and counts below"
    return f"{doing} {off} {_said(group, 'margin')} would drown in the noise."
