"""A panel for each dataset, each with its own scale: lines of a cost against ε, both logarithmic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.reproduce.figures import COLOURS, PLAIN, READABLE, SHAPES, Row

GREY = COLOURS[7]


@dataclass(frozen=True)
class Panels:
    """Lines of `y` against `x` for each series; `floor` names the series that is drawn as a dashed line."""

    title: str
    subtitle: str
    x: str
    x_title: str
    y: str
    y_title: str
    panel: str
    series: str
    floor: str
    across: int = 3

    def draw(self, path: Path, rows: Sequence[Row]) -> None:
        import altair

        alt: Any = altair
        names = list(dict.fromkeys(row[self.panel] for row in rows))
        panels = [self._panel(alt, name, rows, first=place % self.across == 0) for place, name in enumerate(names)]
        lines = [alt.hconcat(*panels[i : i + self.across], spacing=16) for i in range(0, len(panels), self.across)]
        title = alt.TitleParams(self.title, subtitle=self.subtitle.splitlines(), anchor="start", fontSize=15, offset=12)
        chart = (
            alt.vconcat(*lines, spacing=14)
            .properties(title=title)
            .configure_title(subtitleFontSize=12, subtitleColor="#444444")
            .configure_view(stroke="#cccccc")
            .configure_axis(labelFontSize=11, titleFontSize=12, gridColor="#eeeeee")
            .configure_legend(labelFontSize=12, symbolSize=90, orient="bottom", columns=7, labelLimit=260, title=None)
        )
        chart.save(str(path), scale_factor=2)

    def _panel(self, alt: Any, name: str, rows: Sequence[Row], *, first: bool) -> Any:
        inside = [dict(row) for row in rows if row[self.panel] == name]
        series = list(dict.fromkeys(row[self.series] for row in rows))
        places = sorted({row[self.x] for row in inside})
        x_axis = alt.Axis(labelExpr=PLAIN, values=places)
        y_title = self.y_title if first else None
        base = alt.Chart(alt.Data(values=inside)).encode(
            x=alt.X(f"{self.x}:Q", title=self.x_title, axis=x_axis, scale=alt.Scale(type="log", nice=False, padding=8)),
            y=alt.Y(f"{self.y}:Q", title=y_title, **_scale(alt, [row[self.y] for row in inside])),
            color=alt.Color(f"{self.series}:N", scale=alt.Scale(domain=series, range=self._colours(series))),
        )
        shapes = [SHAPES[i % len(SHAPES)] for i in range(len(series))]
        noisy = base.transform_filter(alt.datum[self.series] != self.floor)
        floor = base.transform_filter(alt.datum[self.series] == self.floor)
        return alt.layer(
            noisy.mark_line(strokeWidth=1.6),
            noisy.mark_point(filled=True, size=45, opacity=0.9).encode(
                shape=alt.Shape(f"{self.series}:N", scale=alt.Scale(domain=series, range=shapes))
            ),
            floor.mark_line(strokeWidth=1.6, strokeDash=[5, 4]),
        ).properties(width=260, height=200, title=alt.TitleParams(name, fontSize=12))

    def _colours(self, series: list[str]) -> list[str]:
        """A colour for each series, grey for the floor."""
        others = iter(colour for colour in COLOURS if colour != GREY)
        return [GREY if name == self.floor else next(others) for name in series]


def _scale(alt: Any, values: list[float]) -> dict[str, Any]:
    """A logarithmic scale that holds the values and some air, with marks at 1, 2 and 5 of each power of ten."""
    low, high = min(values) / 1.1, max(values) * 1.1
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1.0,) if high / low > 1000 else (1.0, 2.0, 5.0) if high / low > 3 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    marks = [step * 10.0**power for power in powers for step in steps]
    axis = alt.Axis(values=[mark for mark in marks if low <= mark <= high], labelExpr=READABLE)
    return {"scale": alt.Scale(type="log", domain=[low, high]), "axis": axis}
