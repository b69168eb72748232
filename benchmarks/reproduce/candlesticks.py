"""Candlesticks as Qardaji, Yang and Li (2014) draw them: how the errors of many marginals are distributed.

A stick reaches from the 25th to the 95th percentile, its box from the median to the 75th; the mean is a red bar. A
method of which only an expected error is known has the red bar alone. A star marks another number of the same method,
such as its error without noise.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reproduce.figures import Row
from benchmarks.reproduce.pictures import COLOURS

PERCENTILES = (25, 50, 75, 95)
BLUE, LIGHT_BLUE, GREY = COLOURS[2], COLOURS[6], COLOURS[7]
OTHER_COLOURS = (COLOURS[5], COLOURS[3], COLOURS[4], COLOURS[0])
MEAN_COLOUR, STAR_COLOUR = "#d7191c", "#6a3d9a"
STAR = "M0,-1L.23,-.31L.95,-.31L.36,.12L.59,.81L0,.38L-.59,.81L-.36,.12L-.95,-.31L-.23,-.31Z"
BAR = 11
"""How wide a box is drawn."""
ZERO = 1e-6
"""Errors below this part of the largest are not worth the length of the scale: they lie below its end."""


def candlestick(errors: Iterable[float]) -> dict[str, float]:
    """The five numbers of a candlestick.

    >>> candlestick([1.0, 2.0, 3.0, 4.0, 5.0])
    {'p25': 2.0, 'p50': 3.0, 'p75': 4.0, 'p95': 4.8, 'mean': 3.0}
    """
    found = np.fromiter(errors, dtype=np.float64)
    return {f"p{each}": float(np.percentile(found, each)) for each in PERCENTILES} | {"mean": float(found.mean())}


@dataclass(frozen=True)
class Candlesticks:
    """A panel for each `row`, `measure` and `column`, with methods side by side and their names below.

    Panels of one measure share a logarithmic scale, whose title is the measure. `family` gives the colours, in the
    order of `palette`. A method is `step` wide.
    """

    title: str
    note: str = ""
    star: str = ""
    row: str = "panel"
    measure: str = "measure"
    column: str = "k"
    column_title: str = "k = {:g}"
    method: str = "method"
    family: str = "family"
    height: int = 150
    step: int = 22
    palette: tuple[str, ...] = (BLUE, LIGHT_BLUE, GREY, *OTHER_COLOURS)

    def draw(self, path: Path, rows: Sequence[Row]) -> None:
        import altair

        alt: Any = altair
        shown = [_numbers(row) for row in rows]
        drawer = _Drawer(alt, self, shown)
        headings = _distinct(shown, self.row)
        across = [drawer.across(heading, titled=len(headings) > 1) for heading in headings]
        title = alt.TitleParams(self.title, subtitle=self._key(), anchor="start", fontSize=15, offset=12)
        chart = (
            alt.vconcat(*across, spacing=14)
            .properties(title=title, padding={"left": 6, "top": 6, "right": 6, "bottom": 16})
            .configure_title(subtitleFontSize=12, subtitleColor="#444444")
            .configure_view(stroke="#cccccc")
            .configure_axis(labelFontSize=11, titleFontSize=12, gridColor="#eeeeee")
            .configure_legend(labelFontSize=12, orient="bottom", columns=3, labelLimit=320, title=None)
        )
        chart.save(str(path), scale_factor=2)

    def _key(self) -> list[str]:
        """What the marks mean."""
        key = "stick: 25 to 95 %; box: 50 to 75 %; red bar: mean"
        return [key + (f"; star: {self.star}" if self.star else ""), *self.note.splitlines()]


class _Drawer:
    """Panels of one picture: scales and colours are those of all its rows."""

    def __init__(self, alt: Any, picture: Candlesticks, rows: list[dict[str, Any]]) -> None:
        self.alt, self.picture, self.rows = alt, picture, rows
        families = _distinct(rows, picture.family)
        self.colour = alt.Color(
            f"{picture.family}:N",
            sort=families,
            scale=alt.Scale(domain=families, range=picture.palette[: len(families)]),
            legend=alt.Legend(symbolType="square") if len(families) > 1 else None,
        )
        self.reach = {measure: _reach(inside) for measure, inside in _split(rows, picture.measure).items()}
        panels = _split(rows, picture.row, picture.measure, picture.column).values()
        self.width = picture.step * max(len(_distinct(inside, picture.method)) for inside in panels)

    def across(self, heading: str, *, titled: bool) -> Any:
        """The panels of one row from left to right, its name above them."""
        picture = self.picture
        inside = [row for row in self.rows if row[picture.row] == heading]
        panels = []
        for measure, of_measure in _split(inside, picture.measure).items():
            for place, (column, rows) in enumerate(_split(of_measure, picture.column).items()):
                vertical = _vertical(self.alt, *self.reach[measure], title=None if place else measure)
                title = self.alt.TitleParams(picture.column_title.format(column), fontSize=12)
                panels.append(self._panel(rows, vertical).properties(title=title))
        row = self.alt.hconcat(*panels, spacing=10)
        return row.properties(title=self.alt.TitleParams(heading, anchor="start", offset=2)) if titled else row

    def _panel(self, rows: list[dict[str, Any]], vertical: dict[str, Any]) -> Any:
        alt = self.alt
        x = alt.X(
            f"{self.picture.method}:N",
            sort=_distinct(rows, self.picture.method),
            title=None,
            axis=alt.Axis(labelAngle=-50, labelLimit=170, labelOverlap=False, ticks=False, grid=False),
        )
        base = alt.Chart(alt.Data(values=rows)).encode(x=x)
        spread = base.transform_filter("isValid(datum.p25)")
        starred = base.transform_filter("isValid(datum.star)")
        layers = (
            spread.mark_rule(strokeWidth=1.4, clip=True).encode(
                y=alt.Y("p25:Q", **vertical), y2="p95:Q", color=self.colour
            ),
            spread.mark_bar(size=BAR, clip=True).encode(y=alt.Y("p50:Q", **vertical), y2="p75:Q", color=self.colour),
            base.mark_tick(thickness=2, size=BAR + 4, color=MEAN_COLOUR, clip=True).encode(
                y=alt.Y("mean:Q", **vertical)
            ),
            starred.mark_point(shape=STAR, filled=True, size=110, color=STAR_COLOUR, opacity=1).encode(
                y=alt.Y("star:Q", **vertical)
            ),
        )
        return alt.layer(*layers).properties(width=self.width, height=self.picture.height)


def _distinct(rows: Iterable[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows))


def _split(rows: Iterable[dict[str, Any]], *keys: str) -> dict[Any, list[dict[str, Any]]]:
    """The rows by their values of some keys, in the order in which these come."""
    found: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        values = tuple(row[key] for key in keys)
        found.setdefault(values if len(keys) > 1 else values[0], []).append(row)
    return found


def _numbers(row: Row) -> dict[str, Any]:
    """A row without the numbers that it does not have: what a CSV leaves empty, and what has no place on the scale."""
    keys = {*(f"p{each}" for each in PERCENTILES), "mean", "star"}
    return {key: value for key, value in row.items() if key not in keys or _positive(value)}


def _positive(value: Any) -> bool:
    return not isinstance(value, str) and math.isfinite(value) and value > 0


def _reach(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """The scale's ends: the smallest number that is worth it and the largest, and some air."""
    found = [row[key] for row in rows for key in ("p25", "p50", "p95", "mean", "star") if key in row]
    largest = max(found)
    return min(each for each in found if each > ZERO * largest) / 1.3, largest * 1.3


def _vertical(alt: Any, low: float, high: float, *, title: str | None) -> dict[str, Any]:
    """A logarithmic scale; its numbers and its title only where there is a title."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if math.log10(high / low) > 2.5 else (1, 2, 5)
    values = [step * 10.0**power for power in powers for step in steps]
    labels = title is not None
    axis = alt.Axis(values=[each for each in values if low <= each <= high], labels=labels, ticks=labels, format="~g")
    return {"scale": alt.Scale(type="log", domain=[low, high]), "axis": axis, "title": title}
