"""The pictures of a report: margins with error bars, associations, how far measurements moved, and the Q–Q plot.

They are narrow enough for a phone, in print they need no colour, and every one of them has words and a table beside it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience.publication.diagnostics import Moved
from consilience.publication.noise_checks import QuantilePlot
from consilience.publication.report_facts import Associations, Margin
from consilience.publication.report_page import BLUE, DARK, GREY, ORANGE, Picture, altair, picture

WIDTH = 215
LABELS = 125
"""Pixels for labels beside a picture; what is longer is cut short there, and stands in full in the table."""
MOST_BARS = 24
MOST_PERIODS = 12
"""More dates than these are a curve over time."""
MOST_MOVED = 40
NUMBERS_UP_TO = 12
"""Heat maps of more attributes than these have no numbers in their cells."""


def draw_margin(margin: Margin, number: int, *, level: float, private: bool) -> Picture:
    """The counts of one attribute's values with their error bars."""
    rows = _margin_rows(margin)
    shown = rows if len(rows) <= MOST_BARS else _thinned(margin, rows)
    many = len(rows) > {"numeric": MOST_BARS, "date": MOST_PERIODS}.get(margin.kind, len(rows))
    chart = _curve(shown) if many else _bars(shown)
    bars = f" with {100 * level:g} % intervals" if margin.interval is not None else ""
    counts = "estimated counts" if len(shown) == len(rows) else f"the {len(shown)} largest counts"
    counts = f"modelled {counts}" if margin.basis.modelled.all() else counts
    if any(row["mark"].startswith("~") for row in rows):
        bars += "; ~ modelled"
    return picture(
        chart,
        name=f"margin-{number:02d}",
        title=margin.heading,
        subtitle=counts + bars,
        description=_margin_words(margin, len(shown)),
        private=private,
    )


def _margin_rows(margin: Margin) -> list[dict[str, Any]]:
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


def _thinned(margin: Margin, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All bins of numbers and dates, which become a curve; of others the values with the largest counts."""
    if margin.kind in ("numeric", "date"):
        return rows
    kept = set(np.argsort(-margin.estimates, kind="stable")[:MOST_BARS].tolist())  # what is no number comes last
    return [row for row in rows if row["place"] in kept]


def _margin_words(margin: Margin, shown: int) -> str:
    """The picture in words: how many values, the largest and the smallest."""
    most, least = int(np.nanargmax(margin.estimates)), int(np.nanargmin(margin.estimates))
    known = len(margin.labels) - int(margin.basis.not_measured.sum())
    words = f"Estimated counts of the {known} values of {margin.heading}. "
    if margin.basis.modelled.any():
        words += f"{int(margin.basis.modelled.sum())} of them are modelled, not measured. "
    if known < len(margin.labels):
        words += f"{len(margin.labels) - known} other values were not measured and are not drawn. "
    words += f"The largest is {margin.labels[most]} with {margin.estimates[most]:,.0f}, "
    words += f"the smallest {margin.labels[least]} with {max(margin.estimates[least], 0.0):,.0f}. "
    if shown < known:
        words += f"The {shown} largest are drawn. "
    wide = int(margin.uncertain.sum())
    if margin.interval is not None:
        words += f"{wide or 'None'} of them {'has' if wide == 1 else 'have'} an interval wider than the answer."
    return words.strip()


def _bars(rows: list[dict[str, Any]]) -> Any:
    alt = altair()
    order = [row["label"] for row in rows]
    y = alt.Y("label:N", sort=order, title=None, axis=alt.Axis(labelLimit=LABELS, minExtent=40))
    base = alt.Chart(alt.Data(values=rows)).encode(y=y)
    x = alt.X("estimate:Q", title="records", axis=alt.Axis(tickCount=3, format=",~f"))
    layers = [
        base.mark_bar(height={"band": 0.66}, color="#a6cee3", stroke=BLUE, strokeWidth=0.8).encode(x=x),
        base.mark_rule(color=DARK, strokeWidth=1.6).encode(x=alt.X("low:Q"), x2="high:Q"),
        base.mark_tick(color=DARK, thickness=1.6, size=8).encode(x="low:Q"),
        base.mark_tick(color=DARK, thickness=1.6, size=8).encode(x="high:Q"),
        base.mark_text(align="left", dx=4, fontSize=13, color=DARK).encode(x="high:Q", text="mark:N"),
    ]
    return alt.layer(*layers).properties(width=WIDTH, height=20 * len(rows))


def _curve(rows: list[dict[str, Any]]) -> Any:
    """Many bins in order: a line within the band of its intervals."""
    alt = altair()
    every = max(1, -(-len(rows) // 6))
    ticks = [row["label"] for row in rows[::every]]
    order = [row["label"] for row in rows]
    axis = alt.Axis(values=ticks, labelAngle=-40, labelLimit=90)
    x = alt.X("label:O", sort=order, title=None, axis=axis)
    base = alt.Chart(alt.Data(values=rows)).encode(x=x)
    y = alt.Y("estimate:Q", title="records", axis=alt.Axis(tickCount=5, format=",~f"))
    layers = [
        base.mark_area(color="#a6cee3", opacity=0.8, interpolate="step").encode(y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_line(color=BLUE, strokeWidth=1.4, interpolate="step").encode(y=y),
        base.mark_text(dy=-6, fontSize=10, color=DARK).encode(y="high:Q", text="mark:N"),
    ]
    return alt.layer(*layers).properties(width=280, height=180)


def draw_moved(moved: Sequence[Moved], *, private: bool) -> Picture:
    """How far the account moved each measurement, the farthest first."""
    alt = altair()
    noisy = [each for each in moved if each.stddev > 0]
    farthest = sorted(noisy, key=lambda each: -each.root_mean_square)[:MOST_MOVED]
    rows = [{"place": i, "asks": each.asks, "moved": each.root_mean_square} for i, each in enumerate(farthest)]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("place:O", title=None, axis=alt.Axis(labels=False, ticks=False, domain=False))
    )
    axis = alt.Axis(tickCount=4)
    x = alt.X("moved:Q", title="standard deviations of its noise", axis=axis, scale=alt.Scale(zero=True, nice=True))
    names = base.mark_text(align="right", dx=-6, limit=175, color=DARK, fontSize=12).encode(
        x=alt.value(0), text="asks:N"
    )
    one = alt.Chart(alt.Data(values=[{"moved": 1.0}])).mark_rule(color=ORANGE, strokeDash=[5, 3], strokeWidth=1.6)
    layers = [
        one.encode(x=x),
        base.mark_rule(color=GREY, strokeWidth=1).encode(x=alt.X("zero:Q"), x2="moved:Q").transform_calculate(zero="0"),
        base.mark_point(color=BLUE, filled=True, size=55, opacity=1).encode(x=x),
        names,
    ]
    drawn = f"{len(rows)} measurements" if len(rows) == len(noisy) else f"the {len(rows)} that moved farthest"
    words = (
        f"For {drawn}, the root mean square difference between noisy values and account, in standard deviations "
        "of the noise. The dashed line at 1 is the size of the noise. "
    )
    if farthest:
        words += f"The farthest is {farthest[0].asks} with {farthest[0].root_mean_square:.2f}."
    chart = alt.layer(*layers).properties(width=190, height=20 * max(len(rows), 1))
    return picture(
        chart,
        name="moved",
        title="How far the tables moved",
        subtitle="root mean square; the dashed line is the noise",
        description=words,
        private=private,
    )


def draw_associations(found: Associations, *, private: bool) -> Picture:
    """The heat map of Cramér's V: darker is stronger, and numbers say how strong where there is room."""
    alt = altair()
    names = found.attributes
    numbers = len(names) <= NUMBERS_UP_TO
    rows = []
    for i in range(1, len(names)):
        for j in range(i):
            strength = found.strengths[i, j]
            mark = "" if frozenset((names[i], names[j])) in found.measured else "*"
            known = bool(np.isfinite(strength))
            text = (f"{strength:.2f}".removeprefix("0") + mark if numbers else mark) if known else "–"
            rows.append({"row": names[i], "column": names[j], "v": float(strength) if known else None, "text": text})
    side = 36 if numbers else 19
    x = alt.X("column:N", sort=list(names[:-1]), title=None, axis=alt.Axis(labelAngle=-45, labelLimit=LABELS))
    y = alt.Y("row:N", sort=list(names[1:]), title=None, axis=alt.Axis(labelLimit=LABELS))
    base = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y)
    scale = alt.Scale(domain=[0, 1], range=["#ffffff", "#c6dbef", "#6baed6", "#2171b5", "#08306b"], interpolate="lab")
    legend = alt.Legend(orient="top", title="Cramér's V", gradientLength=160, gradientThickness=10, titleLimit=200)
    cells = base.mark_rect(stroke="#bbbbbb", strokeWidth=0.5).encode(color=alt.Color("v:Q", scale=scale, legend=legend))
    color = alt.condition("datum.v > 0.5", alt.value("white"), alt.value(DARK))
    texts = base.mark_text(fontSize=11).encode(text="text:N", color=color)
    chart = alt.layer(cells, texts).properties(width=side * (len(names) - 1), height=side * (len(names) - 1))
    strongest = found.strongest()
    words = f"A triangle of {len(rows)} cells, one for each pair of {len(names)} attributes; darker is stronger. "
    if strongest:
        one, other, strength = strongest[0]
        words += f"The strongest association is between {one} and {other}, with Cramér's V {strength:.2f}. "
    words += "Pairs marked * are modelled: they were not measured together, but through other attributes. "
    words += "Of pairs with a dash nobody measured how they go together."
    return picture(
        chart,
        name="associations",
        title="Associations of attributes",
        subtitle="darker is stronger" + ("; * modelled" if any(row["text"].endswith("*") for row in rows) else ""),
        description=words,
        private=private,
    )


def draw_quantiles(plot: QuantilePlot, verdict: str, *, private: bool) -> Picture:
    """Observed against expected quantiles of the noise: on the diagonal where the noise is as declared."""
    alt = altair()
    columns = zip(plot.expected, plot.observed, plot.low, plot.high, strict=True)
    rows = [
        {"expected": float(x), "observed": float(y), "low": float(low), "high": float(high)}
        for x, y, low, high in columns
        if np.isfinite([x, y, low, high]).all()
    ]
    ends = [min(row["expected"] for row in rows), max(row["expected"] for row in rows)]
    base = alt.Chart(alt.Data(values=rows))
    x = alt.X("expected:Q", title="expected from the declared noise", scale=alt.Scale(zero=False, nice=True))
    y = alt.Y("observed:Q", title="observed", scale=alt.Scale(zero=False, nice=True))
    diagonal = alt.Chart(alt.Data(values=[{"expected": end, "observed": end} for end in ends]))
    layers = [
        base.mark_area(color="#cccccc", opacity=0.6).encode(x=x, y=alt.Y("low:Q", title="observed"), y2="high:Q"),
        diagonal.mark_line(color=DARK, strokeWidth=1, strokeDash=[5, 3]).encode(x=x, y=y),
        base.mark_point(color=BLUE, size=26, strokeWidth=1.3).encode(x=x, y=y),
    ]
    words = (
        f"Quantiles of {plot.what}, in units of the declared noise, against those that the declared noise leads one to "
        f"expect. The grey band holds 95 % of simulated noise at each point; the dashed line is equality. {verdict}"
    )
    chart = alt.layer(*layers).properties(width=270, height=270)
    return picture(
        chart,
        name="noise",
        title="Is the noise as declared?",
        subtitle="quantiles of noise, in declared units; grey: 95 % band",
        description=words,
        private=private,
    )
