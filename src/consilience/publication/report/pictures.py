"""The pictures of a report: counts with error bars, how far measurements moved, and the Q–Q plot of the noise.

They are narrow enough for a phone, need no colour in print, and have words and a table beside them, every one. Of a
cross-table there is a panel of bars for each value across where these are few, else a heat map with numbers in it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.publication.diagnostics import Moved
from consilience.publication.noise_checks import QuantilePlot
from consilience.publication.report.texts import Texts
from consilience.publication.report_page import BLUE, DARK, GREY, ORANGE, Picture, altair, picture

if TYPE_CHECKING:
    from consilience.publication.report.tables import Margin, ShownTable

WIDTH = 215
LABELS = 125
"""Pixels for labels beside a picture; what is longer is cut short there, and stands in full in the table."""
MOST_BARS = 24
MOST_PERIODS = 12
"""More dates than these are a curve over time."""
BESIDE = 34
"""Pixels for each value that stands beside a curve."""
MOST_MOVED = 40
MOST_PANELS = 4
"""Of more values across, a heat map is drawn."""
MOST_PANEL_ROWS = 26
MOST_LETTERS = 40
"""Of the names above panels, all as long as the longest."""
MOST_HEAT_ROWS, MOST_HEAT_COLUMNS = 60, 24
"""Larger heat maps show the rows and columns with the largest sums."""
MOST_NUMBERS = 160
"""Heat maps of more cells than these have no numbers in them."""
MOST_STACKED = 6
"""Of three attributes, one with more values than these is not drawn."""
MOST_DRAWN = 400
"""Cells of one picture of three attributes; no picture of more."""


def draw_margin(margin: "Margin", number: int, say: Texts, *, level: float, private: bool) -> Picture:
    """The counts of one attribute's values with their error bars."""
    rows = _margin_rows(margin)
    most = MOST_PERIODS if margin.kind == "date" else MOST_BARS
    if len(rows) <= most or margin.kind in ("numeric", "date"):
        shown = rows
    else:  # what is no number comes last
        kept = set(np.argsort(-margin.estimates, kind="stable")[:MOST_BARS].tolist())
        shown = [row for row in rows if row["place"] in kept]
    if len(shown) <= most:
        chart = _bars(shown, say)
    else:
        own = len(margin.labels) if margin.ordinary is None else margin.ordinary
        chart = _curve([row for row in shown if row["place"] < own], [row for row in shown if row["place"] >= own], say)
    if len(shown) < len(rows):
        counts = say("pictures.largest_counts", n=len(shown))
    else:
        counts = say("pictures.modelled_counts" if margin.basis.modelled.all() else "pictures.counts")
    below = [counts]
    if margin.interval is not None:
        below.append(say("pictures.with_intervals", level=f"{100 * level:g}"))
    if any(row["mark"].startswith("~") for row in rows):
        below.append(say("pictures.some_modelled"))
    return picture(
        chart,
        name=f"margin-{number:02d}",
        title=margin.heading,
        subtitle="; ".join(below),
        description=_margin_words(margin, len(shown), say),
        private=private,
        stamp=say("simulated_stamp"),
    )


def _margin_rows(margin: "Margin") -> list[dict[str, Any]]:
    """The values that are drawn: not those that nothing was measured for; where only some are modelled, with a mark."""
    some = not margin.basis.modelled.all()
    bars = margin.interval
    low, high = (margin.estimates, margin.estimates) if bars is None else (bars.low, bars.high)
    low, high = (np.where(np.isnan(ends), margin.estimates, ends) for ends in (low, high))
    return [
        {
            "place": i,
            "label": label,
            "estimate": float(margin.estimates[i]),
            "low": float(low[i]),
            "high": float(high[i]),
            "mark": "~" * bool(some and margin.basis.modelled[i]) + "†" * bool(margin.uncertain[i]),
        }
        for i, label in enumerate(margin.labels)
        if not margin.basis.not_measured[i]
    ]


def _margin_words(margin: "Margin", shown: int, say: Texts) -> str:
    """The picture in words: how many values, the largest and the smallest."""
    most, least = int(np.nanargmax(margin.estimates)), int(np.nanargmin(margin.estimates))
    known = len(margin.labels) - int(margin.basis.not_measured.sum())
    words = [say("pictures.margin", values=known, heading=margin.heading)]
    if margin.basis.modelled.any():
        words.append(say("pictures.margin_modelled", n=int(margin.basis.modelled.sum())))
    if known < len(margin.labels):
        words.append(say("pictures.margin_not_measured", n=len(margin.labels) - known))
    ends = {"largest": margin.labels[most], "most": f"{margin.estimates[most]:,.0f}"}
    ends |= {"smallest": margin.labels[least], "least": f"{max(margin.estimates[least], 0.0):,.0f}"}
    words.append(say("pictures.ends", **ends))
    if shown < known:
        words.append(say("pictures.largest_drawn", n=shown))
    if margin.interval is not None:
        words.append(say("pictures.wide", n=int(margin.uncertain.sum())))
    return " ".join(words)


def _bars(rows: list[dict[str, Any]], say: Texts, *, what: str = "records") -> Any:
    alt = altair()
    order = [row["label"] for row in rows]
    y = alt.Y("label:N", sort=order, title=None, axis=alt.Axis(labelLimit=LABELS, minExtent=40))
    base = alt.Chart(alt.Data(values=rows)).encode(y=y)
    x = alt.X("estimate:Q", title=say(f"pictures.{what}"), axis=alt.Axis(tickCount=3, format=",~f"))
    layers = [
        base.mark_bar(height={"band": 0.66}, color="#a6cee3", stroke=BLUE, strokeWidth=0.8).encode(x=x),
        base.mark_rule(color=DARK, strokeWidth=1.6).encode(x=alt.X("low:Q"), x2="high:Q"),
        base.mark_tick(color=DARK, thickness=1.6, size=8).encode(x="low:Q"),
        base.mark_tick(color=DARK, thickness=1.6, size=8).encode(x="high:Q"),
        base.mark_text(align="left", dx=4, fontSize=13, color=DARK).encode(x="high:Q", text="mark:N"),
    ]
    return alt.layer(*layers).properties(width=WIDTH, height=20 * len(rows))


def _curve(rows: list[dict[str, Any]], apart: list[dict[str, Any]], say: Texts) -> Any:
    """Many bins in order: a line within the band of its intervals. What has no place in the order stands beside it."""
    alt = altair()
    every = max(1, -(-len(rows) // 6))
    ticks = [row["label"] for row in rows[::every]]
    order = [row["label"] for row in rows]
    axis = alt.Axis(values=ticks, labelAngle=-40, labelLimit=90)
    x = alt.X("label:O", sort=order, title=None, axis=axis)
    base = alt.Chart(alt.Data(values=rows)).encode(x=x)
    y = alt.Y("estimate:Q", title=say("pictures.records"), axis=alt.Axis(tickCount=5, format=",~f"))
    layers = [
        base.mark_area(color="#a6cee3", opacity=0.8, interpolate="step").encode(y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_line(color=BLUE, strokeWidth=1.4, interpolate="step").encode(y=y),
        base.mark_text(dy=-6, fontSize=10, color=DARK).encode(y="high:Q", text="mark:N"),
    ]
    beside = BESIDE * len(apart)
    curve = alt.layer(*layers).properties(width=280 - beside, height=180)
    if not apart:
        return curve
    x = alt.X("label:O", sort=[row["label"] for row in apart], title=None, axis=alt.Axis(labelAngle=-40, labelLimit=90))
    base = alt.Chart(alt.Data(values=apart)).encode(x=x)
    y = alt.Y("estimate:Q", title=None, axis=alt.Axis(tickCount=5, labels=False, ticks=False))
    layers = [
        base.mark_bar(width={"band": 0.6}, color="#a6cee3", stroke=BLUE, strokeWidth=0.8).encode(y=y),
        base.mark_rule(color=DARK, strokeWidth=1.6).encode(y=alt.Y("low:Q", title=None), y2="high:Q"),
        base.mark_text(dy=-6, fontSize=10, color=DARK).encode(y="high:Q", text="mark:N"),
    ]
    others = alt.layer(*layers).properties(width=beside, height=180)
    return alt.hconcat(curve, others, spacing=4).resolve_scale(y="shared")


# ----------------------------------------------------------------------------------------------------------------------
# Measured tables: bars of one attribute, panels of bars or a heat map of two, these stacked of three.


Rows = list[dict[str, Any]]
Ends = tuple[float, float]
"""Between which numbers the axis, or the colour, of all parts of a picture runs."""


def draw_table(shown: "ShownTable", number: int, say: Texts, *, level: float, private: bool) -> Picture | None:
    """The table with its intervals; None where it lists more than a picture can hold, or nothing that was measured."""
    sizes = [len(labels) for labels in shown.axes]
    if len(sizes) > 3 or not sizes or not np.isfinite(shown.estimates).any():
        return None
    if len(sizes) == 3 and (min(sizes) > MOST_STACKED or np.prod(sizes) > MOST_DRAWN):
        return None
    drawn, part = _drawn(shown, say)
    below = [say("pictures.part")] * part + [say(f"pictures.{shown.what}_in_it")]
    if shown.answers.interval is not None:
        below.append(say("pictures.with_intervals", level=f"{100 * level:g}"))
    known = int(np.isfinite(shown.estimates).sum())
    flat = np.ravel(shown.estimates)
    most = np.unravel_index(int(np.nanargmax(flat)), shown.estimates.shape)
    label = ", ".join(labels[place] for labels, place in zip(shown.axes, most, strict=True))
    words = [say("pictures.table", n=known, title=shown.title(say))]
    words.append(say("pictures.table_largest", largest=label, most=f"{float(np.nanmax(flat)):,.0f}"))
    return picture(
        drawn,
        name=f"table-{number:02d}",
        title=shown.title(say),
        subtitle="; ".join(below),
        description=" ".join(words),
        private=private,
        stamp=say("simulated_stamp"),
    )


def _drawn(shown: "ShownTable", say: Texts) -> tuple[Any, bool]:
    """The chart, and whether it is of a part of the table."""
    arrays = [shown.estimates, shown.low, shown.high]
    if len(shown.axes) == 1:
        rows = _bar_rows(shown.axes[0], arrays, shown.wide)
        kept = _largest(np.nan_to_num(shown.estimates), MOST_HEAT_ROWS)
        return _bars([row for row in rows if row["place"] in set(kept.tolist())], say, what=shown.what), len(
            kept
        ) < len(shown.axes[0])
    highest = float(np.nanmax(np.maximum(shown.high, shown.estimates)))
    ends, titled = (min(0.0, float(np.nanmin(shown.estimates))), max(highest, 1e-9)), say(f"pictures.{shown.what}")
    if len(shown.axes) == 2:
        return _two_way(shown.axes, arrays, shown.wide, ends, titled)
    stack = int(np.argmin([len(labels) for labels in shown.axes[:2]]))
    others = [labels for axis, labels in enumerate(shown.axes) if axis != stack]
    charts, part = [], False
    for place, label in enumerate(shown.axes[stack]):
        chart, cut = _two_way(
            others, [np.take(a, place, stack) for a in arrays], np.take(shown.wide, place, stack), ends, titled
        )
        charts.append(chart.properties(title=_small_title(f"{shown.headings[stack]}: {label}")))
        part |= cut
    return altair().vconcat(*charts, spacing=14), part


def _small_title(text: str) -> Any:
    return altair().TitleParams(text, anchor="start", fontSize=12, color=DARK, limit=320, offset=4)


def _largest(sums: NDArray[np.float64], most: int) -> NDArray[np.intp]:
    """The places of the largest, in their order."""
    return np.sort(np.argsort(-sums, kind="stable")[:most])


def _bar_rows(labels: Sequence[str], arrays: Sequence[NDArray[np.float64]], wide: NDArray[np.bool_]) -> Rows:
    return [
        {
            "place": i,
            "label": label,
            "estimate": float(arrays[0][i]),
            "low": float(arrays[1][i]),
            "high": float(arrays[2][i]),
            "mark": "†" * bool(wide[i]),
        }
        for i, label in enumerate(labels)
        if np.isfinite(arrays[0][i])
    ]


def _two_way(
    axes: Sequence[Sequence[str]],
    arrays: Sequence[NDArray[np.float64]],
    wide: NDArray[np.bool_],
    ends: Ends,
    titled: str,
) -> tuple[Any, bool]:
    """Panels of bars side by side where few values go across, else a heat map; and whether a part was left out."""
    down, across = axes
    letters = len(across) * max(map(len, across))
    if len(across) <= MOST_PANELS and len(down) <= MOST_PANEL_ROWS and letters <= MOST_LETTERS:
        return _panels(down, across, arrays, wide, ends), False
    sums = np.nan_to_num(arrays[0])
    rows = _largest(sums.sum(axis=1), MOST_HEAT_ROWS)
    columns = _largest(sums.sum(axis=0), MOST_HEAT_COLUMNS)
    kept = np.ix_(rows, columns)
    labels: list[Sequence[Any]] = [[down[i] for i in rows.tolist()], [across[j] for j in columns.tolist()]]
    chart = _heat(labels, [array[kept] for array in arrays], ends, titled)
    return chart, len(rows) < len(down) or len(columns) < len(across)


def _panels(
    down: Sequence[str],
    across: Sequence[str],
    arrays: Sequence[NDArray[np.float64]],
    wide: NDArray[np.bool_],
    ends: Ends,
) -> Any:
    """A panel of bars for each value across; all share their axes, so that lengths compare."""
    alt = altair()
    width = (WIDTH + 15) // len(across) - 8
    scale = alt.Scale(domain=list(ends), nice=False)
    panels = []
    for place, label in enumerate(across):
        rows = _bar_rows(down, [array[:, place] for array in arrays], wide[:, place])
        axis = alt.Axis(labelLimit=LABELS, minExtent=40) if place == 0 else None
        y = alt.Y("label:N", sort=list(down), title=None, axis=axis, scale=alt.Scale(domain=list(down)))
        base = alt.Chart(alt.Data(values=rows)).encode(y=y)
        x = alt.X("estimate:Q", title=None, scale=scale, axis=alt.Axis(tickCount=2, format=",~s", labelFontSize=10))
        layers = [
            base.mark_bar(height={"band": 0.66}, color="#a6cee3", stroke=BLUE, strokeWidth=0.8, clip=True).encode(x=x),
            base.mark_rule(color=DARK, strokeWidth=1.4, clip=True).encode(x=alt.X("low:Q"), x2="high:Q"),
        ]
        title = alt.TitleParams(label, anchor="start", fontSize=11, fontWeight="normal", color=DARK, limit=width + 6)
        height = max(17 * len(down), 30)
        panels.append(alt.layer(*layers).properties(width=width, height=height, title=title))
    return alt.hconcat(*panels, spacing=8)


def _heat(labels: Sequence[Sequence[str]], arrays: Sequence[NDArray[np.float64]], ends: Ends, titled: str) -> Any:
    """Darker is more; each cell has its number and, where there is room, half the width of its interval."""
    alt = altair()
    estimates, low, high = arrays
    numbers = estimates.size <= MOST_NUMBERS
    rows = []
    for i, row in enumerate(labels[0]):
        for j, column in enumerate(labels[1]):
            value = float(estimates[i, j])
            known = bool(np.isfinite(value))
            half = (float(high[i, j]) - float(low[i, j])) / 2 if np.isfinite(high[i, j] - low[i, j]) else 0.0
            text, bar = (f"{value:,.0f}", f"±{half:,.0f}" if half else "") if known and numbers else ("", "")
            cell = {"row": row, "column": column, "value": value if known else None}
            rows.append(cell | {"text": text if known else "–", "bar": bar})
    side, height = (46, 32) if numbers else (20, 14)
    top = ends[1]
    x = alt.X("column:N", sort=list(labels[1]), title=None, axis=alt.Axis(labelAngle=-45, labelLimit=LABELS))
    y = alt.Y("row:N", sort=list(labels[0]), title=None, axis=alt.Axis(labelLimit=LABELS))
    base = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y)
    scale = alt.Scale(domain=list(ends), range=["#f7fbff", "#6baed6", "#08306b"])
    legend = alt.Legend(orient="top", title=titled, gradientLength=140, gradientThickness=9, format=",~s", tickCount=3)
    cells = base.mark_rect(stroke="#bbbbbb", strokeWidth=0.5).encode(
        color=alt.Color("value:Q", scale=scale, legend=legend)
    )
    color = alt.condition(f"datum.value > {0.55 * top}", alt.value("white"), alt.value(DARK))
    layers = [cells, base.mark_text(fontSize=11, dy=-5 if numbers else 0).encode(text="text:N", color=color)]
    if numbers:
        layers.append(base.mark_text(fontSize=9, dy=8).encode(text="bar:N", color=color))
    return alt.layer(*layers).properties(width=side * len(labels[1]), height=height * len(labels[0]))


# ----------------------------------------------------------------------------------------------------------------------
# How far measurements moved, and the noise.


def draw_moved(moved: Sequence[Moved], say: Texts, *, private: bool) -> Picture:
    """How far the account moved each measurement, the farthest first."""
    alt = altair()
    noisy = [each for each in moved if each.stddev > 0]
    farthest = sorted(noisy, key=lambda each: -each.root_mean_square)[:MOST_MOVED]
    rows = [{"place": i, "asks": each.asks, "moved": each.root_mean_square} for i, each in enumerate(farthest)]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("place:O", title=None, axis=alt.Axis(labels=False, ticks=False, domain=False))
    )
    axis = alt.Axis(tickCount=4)
    x = alt.X("moved:Q", title=say("moved.axis"), axis=axis, scale=alt.Scale(zero=True, nice=True))
    names = base.mark_text(align="right", dx=-6, limit=175, color=DARK, fontSize=12)
    one = alt.Chart(alt.Data(values=[{"moved": 1.0}])).mark_rule(color=ORANGE, strokeDash=[5, 3], strokeWidth=1.6)
    layers = [
        one.encode(x=x),
        base.mark_rule(color=GREY, strokeWidth=1).encode(x=alt.X("zero:Q"), x2="moved:Q").transform_calculate(zero="0"),
        base.mark_point(color=BLUE, filled=True, size=55, opacity=1).encode(x=x),
        names.encode(x=alt.value(0), text="asks:N"),
    ]
    words = [say("moved.picture" if len(rows) == len(noisy) else "moved.picture_part", n=len(rows))]
    if farthest:
        distance = f"{farthest[0].root_mean_square:.2f}"
        words.append(say("moved.farthest_is", asks=farthest[0].asks, distance=distance))
    chart = alt.layer(*layers).properties(width=190, height=20 * max(len(rows), 1))
    return picture(
        chart,
        name="moved",
        title=say("moved.picture_title"),
        subtitle=say("moved.picture_subtitle"),
        description=" ".join(words),
        private=private,
        stamp=say("simulated_stamp"),
    )


def draw_quantiles(plot: QuantilePlot, verdict: str, say: Texts, *, private: bool) -> Picture:
    """Observed against expected quantiles of the noise: on the diagonal where the noise is as declared."""
    alt = altair()
    points = zip(plot.expected, plot.observed, plot.low, plot.high, strict=True)
    names = ("expected", "observed", "low", "high")
    rows = [dict(zip(names, map(float, point), strict=True)) for point in points if np.isfinite(point).all()]
    ends = [min(row["expected"] for row in rows), max(row["expected"] for row in rows)]
    base = alt.Chart(alt.Data(values=rows))
    x = alt.X("expected:Q", title=say("noise.axis_expected"), scale=alt.Scale(zero=False, nice=True))
    y = alt.Y("observed:Q", title=say("noise.axis_observed"), scale=alt.Scale(zero=False, nice=True))
    diagonal = alt.Chart(alt.Data(values=[{"expected": end, "observed": end} for end in ends]))
    layers = [
        base.mark_area(color="#cccccc", opacity=0.6).encode(
            x=x, y=alt.Y("low:Q", title=say("noise.axis_observed")), y2="high:Q"
        ),
        diagonal.mark_line(color=DARK, strokeWidth=1, strokeDash=[5, 3]).encode(x=x, y=y),
        base.mark_point(color=BLUE, size=26, strokeWidth=1.3).encode(x=x, y=y),
    ]
    chart = alt.layer(*layers).properties(width=270, height=270)
    return picture(
        chart,
        name="noise",
        title=say("noise.picture_title"),
        subtitle=say("noise.picture_subtitle"),
        description=say("noise.picture", what=plot.what, verdict=verdict),
        private=private,
        stamp=say("simulated_stamp"),
    )
