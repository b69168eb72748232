"""Lines and dots of one number against another, in panels, as PNG by altair.

No curve hides another: marks of different methods are moved sideways a little, lines have dashes of their own, and of
curves that coincide the lower ones are broader. What failed is written at the top of its panel.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.reproduce.figures import Row

# Okabe and Ito's colours, which readers with any kind of colour vision can tell apart, darkest for the methods of
# interest; shapes and dashes repeat the distinction for print in grey.
COLOURS = ("#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c", "#7a5c00")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left", "triangle-right")
WIDTHS, SIZES = (3.4, 1.0), (100, 26)
"""The breadth of lines and the size of marks, from the first to the last: of curves that coincide all can be seen."""
DASHES = ([1, 0], [7, 3], [2, 2], [9, 2, 2, 2], [4, 4], [1, 0], [7, 3], [2, 2], [9, 2, 2, 2])

READABLE = "format(datum.value, datum.value < 0.0005 ? '~e' : datum.value < 1000 ? '~g' : '~s')"
"""How errors are written on an axis: 1e-6, 0.01, 10, 1k, 1M."""

PLAIN = "datum.value < 1000 ? format(datum.value, '~g') : format(datum.value, ',')"
"""How other numbers are: 0.01, 10, 2,048."""

SPREAD, MOST_SPREAD = 0.6, 0.3
"""The share of the smallest gap between two abscissae over which the marks of one are spread; on a logarithmic scale at
most by a factor of exp(0.3) in all."""

AIR = 8
"""How far the marks of a logarithmic axis stay from its ends, in units of the picture's height."""


@dataclass(frozen=True)
class Picture:
    """A panel for each combination of `row` and `column`; without a row, so many panels `across` to a line.

    `own_scale` gives every panel a vertical scale of its own; `zoom` ends that of a panel at so many times its least
    value, and what lies above is cut off. `x_from` is where abscissae begin. `bars` has categories for abscissae.
    `dashed` names a series that is a line to compare with and has no marks. Where no curves are alike, marks need
    not be moved `apart`.
    """

    title: str
    x: str
    x_title: str
    column: str
    row: str | None = None
    y: str = "mse"
    y_title: str = "mean squared error"
    series: str = "method"
    note: str = ""
    x_log: bool = True
    x_from: float = -math.inf
    y_log: bool = True
    bars: bool = False
    own_scale: bool = False
    zoom: Mapping[str, float] | None = None
    dashed: str = ""
    apart: bool = True
    across: int = 3
    width: int = 230
    height: int = 200

    def draw(self, path: Path, rows: Sequence[Row]) -> None:
        import altair

        alt: Any = altair
        shown = [_without_lists(row) for row in rows if self.bars or row[self.x] >= self.x_from]
        drawer = _Drawer(alt, self, shown)
        lines = [alt.hconcat(*panels, spacing=14) for panels in drawer.panels()]
        title = alt.TitleParams(self.title, subtitle=self.note.splitlines(), anchor="start", fontSize=15, offset=10)
        chart = (
            alt.vconcat(*lines, spacing=12)
            .properties(title=title, padding={"left": 6, "top": 6, "right": 6, "bottom": 10})
            .configure_title(subtitleFontSize=12, subtitleColor="#444444")
            .configure_view(stroke="#cccccc")
            .configure_axis(labelFontSize=11, titleFontSize=12, gridColor="#eeeeee")
            .configure_legend(labelFontSize=12, symbolSize=110, orient="bottom", columns=4, labelLimit=300, title=None)
        )
        chart.save(str(path), scale_factor=2)


class _Drawer:
    """The panels of one picture: colours, shapes and, unless a panel has its own, scales are those of all rows."""

    def __init__(self, alt: Any, picture: Picture, rows: list[dict[str, Any]]) -> None:
        self.alt, self.picture, self.rows = alt, picture, rows
        self.series = list(dict.fromkeys(row[picture.series] for row in rows))
        self.places = list(dict.fromkeys(row[picture.x] for row in rows))
        if not picture.bars:
            self.places = sorted(self.places)
            self.rows = [row | {"_x": self._moved(row)} for row in rows]

    def _moved(self, row: dict[str, Any]) -> float:
        """The abscissa of a mark, moved sideways by the place of its series."""
        picture, x = self.picture, float(row[self.picture.x])
        at = self.series.index(row[picture.series]) / max(len(self.series) - 1, 1) - 0.5
        if not picture.apart or len(self.places) < 2 or row[picture.series] == picture.dashed:
            return x
        measured = [math.log(place) for place in self.places] if picture.x_log else [float(p) for p in self.places]
        gap = min(b - a for a, b in itertools.pairwise(measured))
        return x * math.exp(min(SPREAD * gap, MOST_SPREAD) * at) if picture.x_log else x + SPREAD * gap * at

    def panels(self) -> list[list[Any]]:
        picture = self.picture
        columns = list(dict.fromkeys(row[picture.column] for row in self.rows))
        if picture.row is None:
            made = [
                self._panel([row for row in self.rows if row[picture.column] == name], str(name), place)
                for place, name in enumerate(columns)
            ]
            return [made[i : i + picture.across] for i in range(0, len(made), picture.across)]
        lines = []
        for heading in dict.fromkeys(row[picture.row] for row in self.rows):
            inside = [row for row in self.rows if row[picture.row] == heading]
            lines.append(
                [
                    self._panel([row for row in inside if row[picture.column] == name], f"{name}, {heading}", place)
                    for place, name in enumerate(columns)
                    if any(row[picture.column] == name for row in inside)
                ]
            )
        return lines

    def _panel(self, rows: list[dict[str, Any]], name: str, place: int) -> Any:
        alt, picture = self.alt, self.picture
        shown = [row for row in rows if _drawable(row[picture.y], log=picture.y_log)]
        of_scale = shown if picture.own_scale else self.rows
        values = [row[picture.y] for row in of_scale if _drawable(row[picture.y], log=picture.y_log)]
        scale = self._scale(values, (picture.zoom or {}).get(name))
        first = place % picture.across == 0 or picture.own_scale
        y = alt.Y(f"{picture.y}:Q", title=picture.y_title if place % picture.across == 0 else None, **scale)
        if not first:
            y = alt.Y(f"{picture.y}:Q", title=None, scale=scale["scale"], axis=_unlabelled(alt, scale["axis"]))
        base = alt.Chart(alt.Data(values=shown)).encode(y=y, color=self._by_series("Color", COLOURS))
        marks = self._bars(base, rows, scale) if picture.bars else self._lines(base)
        return marks.properties(
            width=picture.width, height=picture.height, title=alt.TitleParams(name, fontSize=12, offset=4)
        )

    def _by_series(self, channel: str, of: Sequence[Any]) -> Any:
        scale = self.alt.Scale(domain=self.series, range=[of[i % len(of)] for i in range(len(self.series))])
        return getattr(self.alt, channel)(f"{self.picture.series}:N", title=None, sort=self.series, scale=scale)

    def _lines(self, base: Any) -> Any:
        alt, picture = self.alt, self.picture
        kind = {"type": "log"} if picture.x_log else {"type": "linear", "zero": False}
        axis = alt.Axis(labelExpr=PLAIN, values=self._ticks(), labelOverlap=True)
        x = alt.X("_x:Q", title=picture.x_title, scale=alt.Scale(**kind, nice=False, padding=10), axis=axis)
        layers = []
        for place, name in enumerate(self.series):
            of_series = base.transform_filter(alt.datum[picture.series] == name)
            share = place / max(len(self.series) - 1, 1)
            width, size = (first + share * (last - first) for first, last in (WIDTHS, SIZES))
            dash = DASHES[place % len(DASHES)]
            layers.append(of_series.mark_line(strokeWidth=width, strokeDash=dash, clip=True).encode(x=x))
            if name != picture.dashed:
                points = of_series.mark_point(filled=True, opacity=0.9, size=size, clip=True)
                layers.append(points.encode(x=x, shape=self._by_series("Shape", SHAPES)))
        return alt.layer(*layers)

    def _ticks(self) -> list[float]:
        """The abscissae themselves, every second or third if there are many; of very many, 1 and 3 of each power."""
        if not self.picture.x_log or len(self.places) <= 18:
            return self.places[:: 1 + len(self.places) // (9 if self.picture.x_log else 14)]
        powers = range(math.floor(math.log10(self.places[0])), math.ceil(math.log10(self.places[-1])) + 1)
        marks = [step * 10.0**power for power in powers for step in (1, 3)]
        return [mark for mark in marks if self.places[0] <= mark <= self.places[-1]]

    def _bars(self, base: Any, rows: list[dict[str, Any]], scale: dict[str, Any]) -> Any:
        """Dots in place of bars, side by side: on a logarithmic scale a bar's length would mean nothing."""
        alt, picture = self.alt, self.picture
        x = alt.X(
            f"{picture.x}:N", title=picture.x_title, sort=self.places, axis=alt.Axis(labelAngle=0, labelLimit=140)
        )
        offset = alt.XOffset(f"{picture.series}:N", sort=self.series, scale=alt.Scale(domain=self.series))
        dots = base.mark_point(filled=True, size=70, opacity=0.9).encode(
            x=x, xOffset=offset, shape=self._by_series("Shape", SHAPES)
        )
        failed = [row | {picture.y: scale["scale"].domain[1]} for row in rows if row.get("failed")]
        if not failed:
            return dots
        words = (
            alt.Chart(alt.Data(values=failed))
            .mark_text(angle=270, align="right", baseline="middle", fontSize=11, dx=-4, dy=-11)
            .encode(
                x=x,
                xOffset=offset,
                y=alt.Y(f"{picture.y}:Q", title=picture.y_title, **scale),
                color=self._by_series("Color", COLOURS),
                text=alt.Text("failed:N"),
            )
        )
        return alt.layer(dots, words)

    def _scale(self, values: list[float], zoom: float | None) -> dict[str, Any]:
        """The vertical scale of these values, with some air, and its marks."""
        alt, picture = self.alt, self.picture
        low, high = min(values, default=0.1), max(values, default=1.0)
        if zoom is not None:
            high = min(high, low * zoom)
        if not picture.y_log:
            air = 0.06 * (high - low) or 0.1
            return {"scale": alt.Scale(domain=[low - air, high + air], zero=False), "axis": alt.Axis(tickCount=6)}
        if high / low > 30:
            ends = math.floor(math.log10(low)), math.ceil(math.log10(high))
            step = 1 if ends[1] - ends[0] <= 8 else 2
            marks = [10.0**power for power in range(ends[0], ends[1] + 1, step)]
            # A little air, so that neither a number of the axis nor a mark lies on the frame.
            air = AIR * (ends[1] - ends[0]) / picture.height
            low, high = 10.0 ** (ends[0] - air), 10.0 ** (ends[1] + air)
        else:
            low, high = low / 1.1, high * 1.1
            fine = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
            steps = (1.0, 2.0, 3.0, 5.0, 7.0) if high / low > 4 else fine
            powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            marks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        return {"scale": alt.Scale(type="log", domain=[low, high]), "axis": alt.Axis(labelExpr=READABLE, values=marks)}


def _unlabelled(alt: Any, axis: Any) -> Any:
    """The same marks without numbers, for panels beside one that has them."""
    return alt.Axis(values=axis.values, labels=False, ticks=False)


def _drawable(value: Any, *, log: bool) -> bool:
    return not isinstance(value, str) and math.isfinite(value) and (value > 0 or not log)


def _without_lists(row: Row) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not isinstance(value, list | tuple)}
