"""The sections of a report that show numbers: margins, associations, certainty, moves, noise; with their pictures."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.publication import intervals
from consilience.publication.diagnostics import Moved, checks_in_words
from consilience.publication.noise_checks import QuantilePlot
from consilience.publication.report_facts import Associations, Certainty, Margin, ReportFacts
from consilience.publication.report_page import (
    BLUE,
    DARK,
    GREY,
    ORANGE,
    Content,
    Markup,
    Picture,
    altair,
    element,
    figure,
    folded,
    join,
    paragraphs,
    picture,
    table,
)

Pictures = Mapping[str, Picture]

MOST_ROWS = 200
MOST_MEASUREMENTS = 60
MOST_PAIRS = 60
FEW = 8
"""How many of the most and of the least certain tables are listed."""


def count(value: float) -> str:
    """A count for people: whole, thousands apart, and never a negative zero."""
    return f"{round(value) + 0:,}" if math.isfinite(value) else "unknown"


def percent(share: float) -> str:
    """A share for people, with two digits that matter."""
    if not math.isfinite(share):
        return "unknown"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def measurements(known: ReportFacts, pictures: Pictures) -> Markup:
    """The measurements, how far the account moved each, and where non-negativity bit."""
    moved = sorted(known.diagnosis.moved, key=lambda each: -each.root_mean_square)
    rows = [_moved_row(each) for each in moved[:MOST_MEASUREMENTS]]
    header = ["measured", "numbers", "sd of noise", "moved (rms)", "farthest", "below 0", "now 0", "lowest"]
    left_out = len(moved) - len(rows)
    return join(
        paragraphs(
            "To agree with each other and to stay at or above zero, numbers had to move. The distance is given in "
            "standard deviations of each number's own noise: below 1 means that the account moved a table by less than "
            "its noise had. That is what one expects, because part of the noise is averaged away.",
            _bit_in_words(moved),
        ),
        figure(
            pictures.get("moved"),
            folded(
                "The same as a table",
                table("How far the account moved each measurement", header, rows, numeric=7),
                paragraphs(
                    "sd of noise: its standard deviation in records. moved (rms) and farthest: the root mean square "
                    "and the largest move, in standard deviations. below 0: noisy counts that were negative. now 0: "
                    "how many of these are 0 in the account. lowest: the lowest noisy count, in standard deviations."
                    + (f" {left_out:,} tables that moved less are left out." if left_out else ""),
                    class_="soft",
                ),
            ),
        ),
    )


def _moved_row(each: Moved) -> list[Content]:
    numbers = [f"{each.values:,}", f"{each.stddev:,.3g}" if each.stddev else "exact"]
    numbers += [f"{each.root_mean_square:.2f}", f"{each.largest:.1f}"]
    return [each.asks, *numbers, f"{each.negative:,}", f"{each.raised:,}", f"{each.most_negative:.1f}"]


def _bit_in_words(moved: Sequence[Moved]) -> str:
    """Where non-negativity and consistency bit."""
    negative, raised = sum(each.negative for each in moved), sum(each.raised for each in moved)
    values = sum(each.values for each in moved)
    if not negative:
        return f"None of the {values:,} noisy numbers was below zero, so that only consistency moved them."
    lowest = min(each.most_negative for each in moved)
    return (
        f"Of {values:,} noisy numbers {negative:,} were below zero, the lowest by {-lowest:.1f} standard deviations. "
        f"{raised:,} of these are 0 in the account, and the others got counts that the other tables speak for. "
        "Where many small counts are raised to zero, larger ones pay for it: expect small counts to be a little too "
        "large, and large ones a little too small."
    )


def margins(known: ReportFacts, pictures: Pictures) -> Markup:
    """The total and the 1-way margins, with error bars."""
    level = f"{100 * known.settings.level:g} %"
    if known.no_intervals is None:
        about = (
            f"Error bars are {level} intervals: they hold what noise may have done, and cost no privacy. Counts marked "
            "† have an interval wider than themselves and are too uncertain to be quoted alone."
        )
    else:
        about = f"There are no error bars here. {known.no_intervals}"
    left_out = known.margins_left_out
    also = f" {left_out:,} more attributes are in the tables of the release and left out here." if left_out else ""
    shown = [_margin(each, pictures.get(f"margin-{number:02d}"), level) for number, each in enumerate(known.margins, 1)]
    modelled = any(each.basis.modelled.any() for each in (known.total, *known.margins))
    return join(
        paragraphs(about + also, class_="lead"),
        paragraphs(MODELLED, class_="warning") if modelled else None,
        paragraphs(*(note for note in known.notes if note not in SAID), class_="note"),
        _margin_table(known.total, level),
        element("div", *shown, class_="columns"),
    )


SAID = frozenset({intervals.SPENDS_NOTHING, intervals.MODELLED})
"""Notes of intervals that the page has words of its own for."""

MODELLED = (
    "Counts that are called modelled are determined by no measurement: the account fills them in from what was "
    "measured in parts. Their intervals hold what the noise did and how far the model may be off."
)


def _margin(margin: Margin, drawn: Picture | None, level: str) -> Markup:
    """The picture and the table of one attribute; words alone where nothing was measured."""
    missing = margin.basis.explain()
    why = paragraphs(f"{margin.heading}: {missing}.", class_="note") if missing else None
    if margin.basis.not_measured.all():
        return element("figure", why)
    return figure(drawn, why, folded("The same as a table", _margin_table(margin, level)))


def _margin_table(margin: Margin, level: str) -> Markup:
    rows: list[list[Content]] = []
    flagged = bool(margin.uncertain.any())
    for i, label in enumerate(margin.labels[:MOST_ROWS]):
        missing = bool(margin.basis.not_measured[i])
        row: list[Content] = [label, "–" if missing else count(float(margin.estimates[i]))]
        if margin.interval is not None:
            low, high = float(margin.interval.low[i]), float(margin.interval.high[i])
            row.append("–" if math.isnan(low) else f"{count(low)} – {count(high)}")
        row += [margin.basis.names[i], *(["† wide" if margin.uncertain[i] else ""] if flagged else [])]
        rows.append(row)
    name = margin.heading
    bars = [f"{level} interval"] if margin.interval is not None else []
    header = [name, "estimate", *bars, "basis", *(["note"] if flagged else [])]
    more = len(margin.labels) - len(rows)
    caption = "The total" if margin.attribute is None else f"{name}: estimated counts"
    caption += f" of the first {len(rows)} values; {more:,} more are in the release" if more else ""
    return table(caption, header, rows, numeric=len(header) - 1)


def associations(known: ReportFacts, pictures: Pictures) -> Markup | None:
    """The heat map of pairwise associations."""
    found = known.associations
    if found is None or not found.attributes:
        return None
    pairs = found.strongest()
    rows: list[list[Content]] = [
        [
            f"{one} – {other}",
            f"{strength:.3f}",
            "measured" if frozenset((one, other)) in found.measured else "modelled *",
        ]
        for one, other, strength in pairs[:MOST_PAIRS]
    ]
    left_out = f" The {len(found.attributes)} attributes with the strongest associations are shown; "
    left_out = left_out + f"{found.left_out:,} others are left out." if found.left_out else ""
    more = f", the strongest {len(rows)} of {len(pairs):,}" if len(pairs) > len(rows) else ""
    return join(
        paragraphs(
            "The measure is Cramér's V, computed from the account's 2-way margins: 0 where two attributes have nothing "
            "to do with each other, 1 where one says all about the other. Noise makes weak associations look a little "
            "stronger than they are. Pairs marked * are modelled: they were not measured together, but through other "
            "attributes. " + _unlooked_at(known, found) + left_out
        ),
        figure(
            pictures.get("associations"),
            folded(
                "The same as a table",
                table(f"Cramér's V of pairs of attributes{more}", ["pair", "Cramér's V", "basis"], rows, numeric=2),
            ),
        ),
    )


def _unlooked_at(known: ReportFacts, found: Associations) -> str:
    """Which pairs have no association because nobody looked, in words."""
    alone = [name for name in known.estimate.domain.counted_names if name not in found.attributes]
    words = "Pairs with a dash were never looked at together, so nothing is said of them. " * bool(found.not_measured)
    if alone and not found.left_out:
        words += f"Never looked at together with any other, and left out: {', '.join(alone)}."
    return words.rstrip()


def certainty(known: ReportFacts) -> Markup | None:
    """The most and the least certain tables."""
    found = known.certainty
    if not found:
        return None
    least = list(reversed(found[max(FEW, len(found) - FEW) :]))
    left_out = f" {known.tables_left_out:,} larger tables were not looked at." if known.tables_left_out else ""
    return join(
        paragraphs(
            "How wide the intervals are, in parts of the counts: the half-widths of all error bars of a table, added "
            "up and divided by the sum of its counts. Use the least certain ones with care: their small counts say "
            "little, even where their large counts are good. What was not measured has no rank." + left_out
        ),
        element(
            "div",
            _certainty_table("Most certain", found[:FEW]),
            _certainty_table("Least certain", least) if least else None,
            class_="pair",
        ),
    )


def _certainty_table(caption: str, found: Sequence[Certainty]) -> Markup:
    rows: list[list[Content]] = [
        [
            each.asks + (" (modelled)" if each.covers == "modelled" else ""),
            f"± {percent(each.relative)}",
            f"{each.uncertain:,} of {each.answers:,}",
        ]
        for each in found
    ]
    return table(caption, ["table", "width", "† counts"], rows, numeric=2)


def noise(known: ReportFacts, pictures: Pictures) -> Markup:
    """Whether the noise is as declared, with the Q–Q plot."""
    diagnosis = known.diagnosis
    plot = diagnosis.noise.quantiles
    rows: list[list[Content]] = [list(row) for row in checks_in_words(diagnosis.noise.checks)]
    points: Content = None
    if plot is not None:
        columns = (plot.expected, plot.observed, plot.low, plot.high)
        body: list[list[Content]] = [[f"{value:.2f}" for value in row] for row in zip(*columns, strict=True)]
        points = folded(
            "The same as a table",
            table(
                "Quantiles of the noise, in units of what was declared",
                ["expected", "observed", "95 % band from", "to"],
                body,
                numeric=4,
                heads=0,
            ),
        )
    return join(
        paragraphs(diagnosis.noise.verdict, class_="note" if diagnosis.noise.as_declared else "warning"),
        paragraphs(
            diagnosis.noise.next_step if not diagnosis.noise.as_declared else None,
            "Where two measurements imply the same number, their difference is noise and nothing else, and its law is "
            "known. The plot compares such differences with that law. It would show a wrong noise scale, a wrong law, "
            "and counts that were cut off at zero."
            if plot is not None
            else None,
        ),
        figure(pictures.get("noise"), points),
        table("The checks", ["check", "about", "found", "p-value"], rows, numeric=1) if rows else None,
        paragraphs("The p-value of the verdict is the least of these times their number.", class_="soft")
        if rows
        else None,
    )


# ----------------------------------------------------------------------------------------------------------------------
# The pictures: margins with error bars, associations, how far measurements moved, and the Q–Q plot.
#
# They are narrow enough for a phone, need no colour in print, and have words and a table beside them, every one.


WIDTH = 215
LABELS = 125
"""Pixels for labels beside a picture; what is longer is cut short there, and stands in full in the table."""
MOST_BARS = 24
MOST_PERIODS = 12
"""More dates than these are a curve over time."""
BESIDE = 34
"""Pixels for each value that stands beside a curve."""
MOST_MOVED = 40
NUMBERS_UP_TO = 12
"""Heat maps of more attributes than these have no numbers in their cells."""


def draw_margin(margin: Margin, number: int, *, level: float, private: bool) -> Picture:
    """The counts of one attribute's values with their error bars."""
    rows = _margin_rows(margin)
    most = MOST_PERIODS if margin.kind == "date" else MOST_BARS
    if len(rows) <= most or margin.kind in ("numeric", "date"):
        shown = rows
    else:  # what is no number comes last
        kept = set(np.argsort(-margin.estimates, kind="stable")[:MOST_BARS].tolist())
        shown = [row for row in rows if row["place"] in kept]
    if len(shown) <= most:
        chart = _bars(shown)
    else:
        own = len(margin.labels) if margin.ordinary is None else margin.ordinary
        chart = _curve([row for row in shown if row["place"] < own], [row for row in shown if row["place"] >= own])
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


def _curve(rows: list[dict[str, Any]], apart: list[dict[str, Any]]) -> Any:
    """Many bins in order: a line within the band of its intervals. What has no place in the order stands beside it."""
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
    names = base.mark_text(align="right", dx=-6, limit=175, color=DARK, fontSize=12)
    one = alt.Chart(alt.Data(values=[{"moved": 1.0}])).mark_rule(color=ORANGE, strokeDash=[5, 3], strokeWidth=1.6)
    layers = [
        one.encode(x=x),
        base.mark_rule(color=GREY, strokeWidth=1).encode(x=alt.X("zero:Q"), x2="moved:Q").transform_calculate(zero="0"),
        base.mark_point(color=BLUE, filled=True, size=55, opacity=1).encode(x=x),
        names.encode(x=alt.value(0), text="asks:N"),
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
    points = zip(plot.expected, plot.observed, plot.low, plot.high, strict=True)
    names = ("expected", "observed", "low", "high")
    rows = [dict(zip(names, map(float, point), strict=True)) for point in points if np.isfinite(point).all()]
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
