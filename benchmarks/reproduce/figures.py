"""What a reproduction leaves behind: a CSV of its numbers, a PNG of its picture, and a verdict on each claim."""

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

RESULTS = Path(__file__).parents[1] / "results"

# Okabe and Ito's colours, which readers with any kind of colour vision can tell apart, darkest for the methods of
# interest; shapes repeat the distinction for print in grey.
COLOURS = ("#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c", "#7a5c00")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left", "triangle-right")

READABLE = "datum.value < 1000 ? format(datum.value, '~g') : format(datum.value, '~s')"
"""How errors are written on an axis: 0.01, 10, 1k, 1M."""

PLAIN = "datum.value < 1000 ? format(datum.value, '~g') : format(datum.value, ',')"
"""How other numbers are: 0.01, 10, 2,048."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and whether it held here."""

    text: str
    held: bool
    evidence: str

    def line(self) -> str:
        return f"{'HELD    ' if self.held else 'NOT HELD'} {self.text} ({self.evidence})"


class Drawing(Protocol):
    """What can draw the rows of a reproduction."""

    def draw(self, path: Path, rows: Sequence[Row]) -> None:
        """Write the picture of the rows to the path, as a PNG."""
        ...


@dataclass(frozen=True)
class Picture:
    """Lines of one number against another, a panel for each combination of `row` and `column`."""

    title: str
    x: str
    x_title: str
    column: str
    row: str | None = None
    y: str = "mse"
    y_title: str = "mean squared error"
    series: str = "method"
    x_log: bool = True
    bars: bool = False

    def draw(self, path: Path, rows: Sequence[Row]) -> None:
        draw(path, rows, self)


def publish(name: str, rows: Sequence[Row], picture: Drawing, claims: Iterable[Claim], *, quick: bool) -> bool:
    """Write the CSV, the PNG and the verdicts under `benchmarks/results`; True when every claim held.

    A quick look goes to `results/quick`, which is not kept.
    """
    folder = RESULTS / "quick" if quick else RESULTS
    folder.mkdir(exist_ok=True)
    write_csv(folder / f"{name}.csv", rows)
    print(f"{name}: wrote {name}.csv, .png and .txt to {folder.relative_to(RESULTS.parents[1])}")
    return _judge(folder / name, rows, picture, claims)


def _judge(path: Path, rows: Sequence[Row], picture: Drawing, claims: Iterable[Claim]) -> bool:
    """Draw the picture, write and print the verdicts."""
    picture.draw(path.with_name(f"{path.name}.png"), rows)
    verdicts = list(claims)
    lines = [claim.line() for claim in verdicts]
    path.with_name(f"{path.name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for line in lines:
        print(f"  {line}")
    held = all(claim.held for claim in verdicts)
    print(
        f"{path.name}: {'every claim of the paper holds here' if held else 'not every claim of the paper holds here'}"
    )
    return held


def judge_again(name: str, picture: Drawing, claims: Callable[[list[dict[str, Any]]], list[Claim]]) -> bool:
    """The picture and the verdicts anew, from the CSV that is there."""
    with (RESULTS / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        rows = [{key: _read(value) for key, value in row.items()} for row in csv.DictReader(file)]
    return _judge(RESULTS / name, rows, picture, claims(rows))


def brief(value: float) -> str:
    """A ratio with two digits, without an exponent."""
    return f"{float(f'{value:.2g}'):,g}"


def _read(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """The rows as a table; numbers with six digits."""
    header = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([_written(row.get(key, "")) for key in header] for row in rows)


def _written(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def draw(path: Path, rows: Sequence[Row], picture: Picture) -> None:
    """The picture as a PNG, by altair."""
    import altair

    shown = [dict(row) for row in rows if row[picture.y] > 0 and math.isfinite(row[picture.y])]
    series = list(dict.fromkeys(row[picture.series] for row in shown))
    columns = list(dict.fromkeys(row[picture.column] for row in shown))
    alt: Any = altair
    base = alt.Chart(alt.Data(values=shown)).encode(
        y=_vertical(alt, picture, [row[picture.y] for row in shown]),
        color=alt.Color(
            f"{picture.series}:N", title=None, sort=series, scale=alt.Scale(domain=series, range=COLOURS[: len(series)])
        ),
    )
    panel = _bars(alt, base, picture, series) if picture.bars else _lines(alt, base, picture, series)
    across = alt.Column(f"{picture.column}:N", title=None, sort=columns)
    facets: dict[str, Any] = {"column": across}
    if picture.row is not None:
        down = list(dict.fromkeys(row[picture.row] for row in shown))
        facets["row"] = alt.Row(f"{picture.row}:N", title=None, sort=down)
    chart = (
        panel.properties(width=230, height=200)
        .facet(**facets)
        .properties(title=alt.TitleParams(picture.title, anchor="start", fontSize=14))
        .configure_view(stroke="#cccccc")
        .configure_axis(labelFontSize=11, titleFontSize=12, gridColor="#eeeeee")
        .configure_header(labelFontSize=12)
        .configure_legend(labelFontSize=12, symbolSize=90, orient="bottom", columns=2 * len(columns), labelLimit=260)
    )
    chart.save(str(path), scale_factor=2)


def _lines(alt: Any, base: Any, picture: Picture, series: list[str]) -> Any:
    scale = alt.Scale(type="log" if picture.x_log else "linear", nice=False, padding=8)
    places = sorted({row[picture.x] for row in base.data.values})
    axis = alt.Axis(labelExpr=PLAIN, values=places[:: 1 + len(places) // 8])
    horizontal = alt.X(f"{picture.x}:Q", title=picture.x_title, scale=scale, axis=axis)
    shape = _shapes(alt, picture, series)
    return alt.layer(
        base.mark_line(strokeWidth=1.6).encode(x=horizontal),
        base.mark_point(filled=True, size=45, opacity=0.9).encode(x=horizontal, shape=shape),
    )


def _bars(alt: Any, base: Any, picture: Picture, series: list[str]) -> Any:
    """Dots in place of bars, side by side: on a logarithmic scale a bar's length would mean nothing."""
    places = list(dict.fromkeys(row[picture.x] for row in base.data.values))
    return base.mark_point(filled=True, size=60, opacity=0.9).encode(
        x=alt.X(f"{picture.x}:N", title=picture.x_title, sort=places, axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset(f"{picture.series}:N", sort=series),
        shape=_shapes(alt, picture, series),
    )


def _shapes(alt: Any, picture: Picture, series: list[str]) -> Any:
    shapes = [SHAPES[i % len(SHAPES)] for i in range(len(series))]
    return alt.Shape(f"{picture.series}:N", title=None, sort=series, scale=alt.Scale(domain=series, range=shapes))


def _vertical(alt: Any, picture: Picture, values: list[float]) -> Any:
    """A logarithmic scale from power to power of ten, the same in all panels."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    step = 1 if high - low <= 8 else 2
    axis = alt.Axis(labelExpr=READABLE, values=[10.0**power for power in range(low, high + 1, step)])
    scale = alt.Scale(type="log", domain=[10.0**low, 10.0**high])
    return alt.Y(f"{picture.y}:Q", title=picture.y_title, scale=scale, axis=axis)
