"""The sections of a report that show numbers besides the measured tables: margins, certainty, moves, the noise."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from consilience.publication.diagnostics import Moved, checks_in_words
from consilience.publication.intervals import MODELLED, SPENDS_NOTHING
from consilience.publication.report.facts import Certainty, ReportFacts
from consilience.publication.report.tables import MOST_NAMED, Margin, ShownTable, table_figure
from consilience.publication.report.texts import Texts
from consilience.publication.report_page import (
    Content,
    Markup,
    Picture,
    bullets,
    element,
    facts,
    figure,
    folded,
    join,
    paragraphs,
    table,
)
from consilience.solvers.fit import Status

Pictures = Mapping[str, Picture]

MOST_ROWS = 200
MOST_MEASUREMENTS = 60
FEW = 8
"""How many of the most and of the least certain tables are listed."""


def count(value: float) -> str:
    """A count for people: whole, thousands apart, and never a negative zero."""
    return f"{round(value) + 0:,}" if math.isfinite(value) else "–"


def percent(share: float) -> str:
    """A share for people, with two digits that matter."""
    if not math.isfinite(share):
        return "–"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


# ----------------------------------------------------------------------------------------------------------------------
# One attribute at a time, and the measured tables.


SAID = frozenset({SPENDS_NOTHING, MODELLED})
"""Notes of intervals that the page has words of its own for."""


def margins(known: ReportFacts, pictures: Pictures) -> Markup:
    """The total and the 1-way margins, with error bars."""
    say, level = known.say, f"{100 * known.settings.level:g}"
    if known.no_intervals is None:
        about = say("margins.lead", level=level)
    else:
        about = say("margins.no_intervals", why=known.no_intervals)
    left_out = [say("margins.left_out", n=known.margins_left_out)] if known.margins_left_out else []
    modelled = any(each.basis.modelled.any() for each in (known.total, *known.margins))
    shown = [
        _margin(each, pictures.get(f"margin-{number:02d}"), level, say) for number, each in enumerate(known.margins, 1)
    ]
    return join(
        paragraphs(" ".join([about, *left_out]), class_="lead"),
        paragraphs(say("margins.modelled"), class_="warning") if modelled else None,
        paragraphs(*(note for note in known.notes if note not in SAID), class_="note"),
        _margin_table(known.total, level, say),
        element("div", *shown, class_="columns"),
    )


def _margin(margin: Margin, drawn: Picture | None, level: str, say: Texts) -> Markup:
    """The picture and the table of one attribute; words alone where nothing was measured."""
    missing = margin.basis.explain()
    why = paragraphs(say("margins.not_measured", heading=margin.heading, why=missing), class_="note")
    if margin.basis.not_measured.all():
        return element("figure", why)
    shown = _margin_table(margin, level, say)
    return figure(drawn, why if missing else None, folded(say("same_as_table"), shown))


def _margin_table(margin: Margin, level: str, say: Texts) -> Markup:
    rows: list[list[Content]] = []
    flagged, bases = bool(margin.uncertain.any()), margin.basis.names[:MOST_ROWS]
    for i, label in enumerate(margin.labels[:MOST_ROWS]):
        missing = bool(margin.basis.not_measured[i])
        row: list[Content] = [label, "–" if missing else count(float(margin.estimates[i]))]
        if margin.interval is not None:
            low, high = float(margin.interval.low[i]), float(margin.interval.high[i])
            row.append("–" if math.isnan(low) else say("tables.between", low=count(low), high=count(high)))
        row.append(say(f"basis.{bases[i].replace(' ', '_')}"))
        row += [say("margins.wide") if margin.uncertain[i] else ""] if flagged else []
        rows.append(row)
    bars = [say("columns.interval", level=level)] if margin.interval is not None else []
    note = [say("columns.note")] if flagged else []
    header = [margin.heading, say("columns.estimate"), *bars, say("columns.basis"), *note]
    more = len(margin.labels) - len(rows)
    caption = say("margins.total_caption")
    if margin.attribute is not None:
        caption = say("margins.caption", heading=margin.heading)
        caption = say("margins.caption_part", heading=margin.heading, shown=len(rows), n=more) if more else caption
    return table(caption, header, rows, numeric=len(header) - 1)


def measured_tables(known: ReportFacts, pictures: Pictures) -> Markup | None:
    """Every measured table, or as many as a page can hold."""
    say, numbered = known.say, list(enumerate(known.tables, 1))
    counts = [(number, each) for number, each in numbered if each.what == "records"]
    left_out = known.choice.left_out
    if not counts and not left_out:
        return None
    shown = [_figure(known, pictures, *each) for each in counts]
    marks = [say("tables.marks")] + [say("tables.modelled_mark")] * any(each.cross.any_modelled for _, each in counts)
    rest: list[Content] = []
    if left_out:
        named: list[Content] = list(left_out[:MOST_NAMED])
        more = len(left_out) - len(named)
        named += [say("tables.and_more", n=more)] if more else []
        rest = [
            paragraphs(say("tables.left_out", n=len(left_out)) + " " + say("tables.left_out_where"), class_="note"),
            folded(say("tables.left_out_names"), bullets(named)),
        ]
    links = [element("li", element("a", each.title(say), href=f"#table-{number}")) for number, each in counts]
    listed = element("nav", element("ol", *links), aria_label=say("tables.list")) if len(links) > 3 else None
    lead = say("tables.lead", level=f"{100 * known.settings.level:g}") if known.no_intervals is None else ""
    return join(paragraphs(" ".join(filter(None, [lead, *marks])), class_="lead"), listed, *rest, *shown)


def sums_and_means(known: ReportFacts, pictures: Pictures) -> Markup | None:
    """The measured sums of amounts, and the means made of them."""
    numbered = [(number, each) for number, each in enumerate(known.tables, 1) if each.what != "records"]
    if not numbered:
        return None
    return join(
        paragraphs(known.say("tables.sums_lead"), class_="lead"),
        *(_figure(known, pictures, number, each) for number, each in numbered),
    )


def _figure(known: ReportFacts, pictures: Pictures, number: int, shown: ShownTable) -> Markup:
    return table_figure(shown, number, pictures.get(f"table-{number:02d}"), known.settings.level, known.say)


def not_measured(known: ReportFacts) -> Markup:
    """What nobody looked at, and what to measure next time."""
    say, domain, basis = known.say, known.estimate.domain, known.estimate.columns_basis
    items = (
        [say("missing.attributes", names=say.listed(known.headings(basis.not_measured)))] if basis.not_measured else []
    )
    hidden = [each.name for each in domain.attributes if not each.release]
    items += [say("missing.withheld", names=say.listed(known.headings(hidden)))] if hidden else []
    if len(basis.linked) > 1:
        items.append(say("missing.unlinked", groups=linked_groups(known)))
    widest = max((len(each.answers.query.attributes) for each in known.tables), default=1)
    items.append(say("missing.finer", n=widest))
    items.append(say("missing.domain"))
    lead = "missing.lead" if len(items) > 2 else "missing.nothing"
    return join(paragraphs(say(lead), class_="lead"), bullets(list(items)))


def linked_groups(known: ReportFacts, most: int = 12) -> str:
    """The attributes in groups that measurements link, as text."""
    groups = (known.say.listed(known.headings(group), most=most) for group in known.estimate.columns_basis.linked)
    return known.say("missing.group_mark").join(groups)


# ----------------------------------------------------------------------------------------------------------------------
# How certain the tables are, and how far measurements moved.


def certainty(known: ReportFacts) -> Markup | None:
    """The most and the least certain tables."""
    found, say = known.certainty, known.say
    if not found:
        return None
    least = list(reversed(found[max(FEW, len(found) - FEW) :]))
    left_out = [say("certainty.left_out", n=known.tables_left_out)] if known.tables_left_out else []
    return join(
        paragraphs(" ".join([say("certainty.lead"), *left_out])),
        element(
            "div",
            _certainty_table(say("certainty.most"), found[:FEW], say),
            _certainty_table(say("certainty.least"), least, say) if least else None,
            class_="pair",
        ),
    )


def _certainty_table(caption: str, found: Sequence[Certainty], say: Texts) -> Markup:
    rows: list[list[Content]] = [
        [
            say("certainty.modelled", asks=each.asks) if each.covers == "modelled" else each.asks,
            f"± {percent(each.relative)}",
            say("certainty.wide", n=each.uncertain, all=each.answers),
        ]
        for each in found
    ]
    header = [say("columns.table"), say("certainty.width"), say("certainty.wide_counts")]
    return table(caption, header, rows, numeric=2)


def measurements(known: ReportFacts, pictures: Pictures) -> Markup:
    """The measurements, how far the account moved each, and where non-negativity bit."""
    say = known.say
    moved = sorted(known.diagnosis.moved, key=lambda each: -each.root_mean_square)
    rows = [_moved_row(each, say) for each in moved[:MOST_MEASUREMENTS]]
    columns = ("measured", "numbers", "stddev", "moved", "farthest", "below", "now", "lowest")
    left_out = len(moved) - len(rows)
    legend = [say("moved.legend"), *([say("moved.left_out", n=left_out)] if left_out else [])]
    listed = table(say("moved.caption"), [say(f"moved.column_{name}") for name in columns], rows, numeric=7)
    return join(
        paragraphs(say("moved.lead"), _bit_in_words(moved, say)),
        figure(
            pictures.get("moved"), folded(say("same_as_table"), listed, paragraphs(" ".join(legend), class_="soft"))
        ),
    )


def _moved_row(each: Moved, say: Texts) -> list[Content]:
    numbers = [f"{each.values:,}", f"{each.stddev:,.3g}" if each.stddev else say("moved.exact")]
    numbers += [f"{each.root_mean_square:.2f}", f"{each.largest:.1f}"]
    return [each.asks, *numbers, f"{each.negative:,}", f"{each.raised:,}", f"{each.most_negative:.1f}"]


def _bit_in_words(moved: Sequence[Moved], say: Texts) -> str:
    """Where non-negativity and consistency bit."""
    negative, raised = sum(each.negative for each in moved), sum(each.raised for each in moved)
    values = sum(each.values for each in moved)
    if not negative:
        return say("moved.none_below", values=values)
    lowest = f"{-min(each.most_negative for each in moved):.1f}"
    return say("moved.some_below", values=values, negative=negative, lowest=lowest, raised=raised)


# ----------------------------------------------------------------------------------------------------------------------
# The noise, and the method.


def noise(known: ReportFacts, pictures: Pictures) -> Markup:
    """Whether the noise is as declared, with the Q–Q plot."""
    diagnosis, say = known.diagnosis, known.say
    plot = diagnosis.noise.quantiles
    rows: list[list[Content]] = [list(row) for row in checks_in_words(diagnosis.noise.checks)]
    points: Content = None
    if plot is not None:
        columns = (plot.expected, plot.observed, plot.low, plot.high)
        body: list[list[Content]] = [[f"{value:.2f}" for value in row] for row in zip(*columns, strict=True)]
        header = [say(f"noise.column_{name}") for name in ("expected", "observed", "from", "to")]
        points = folded(say("same_as_table"), table(say("noise.caption"), header, body, numeric=4, heads=0))
    header = [say(f"noise.column_{name}") for name in ("check", "about", "found", "p_value")]
    return join(
        paragraphs(diagnosis.noise.verdict, class_="note" if diagnosis.noise.as_declared else "warning"),
        paragraphs(
            diagnosis.noise.next_step if not diagnosis.noise.as_declared else None,
            say("noise.contrasts") if plot is not None else None,
        ),
        figure(pictures.get("noise"), points),
        table(say("noise.checks"), header, rows, numeric=1) if rows else None,
        paragraphs(say("noise.p_value"), class_="soft") if rows else None,
    )


def method(known: ReportFacts) -> Markup:
    """How the account was made, and how good a fit it is."""
    estimate, say = known.estimate, known.say
    rows: list[tuple[Content, Content]] = [(say("method.method"), str(estimate.method["method"]))]
    if "reason" in estimate.method:
        rows.append((say("method.reason"), str(estimate.method["reason"])))
    rows.append((say("method.status"), f"{estimate.status.value}. {estimate.status.explanation}"))
    if "gap" in estimate.stats and estimate.status not in (Status.LEAST_RISK, Status.NOISE_LEVEL):
        of = {"gap": _number(estimate.stats["gap"]), "objective": _number(estimate.stats["objective"])}
        rows.append((say("method.gap"), say("method.gap_of", **of)))
    elif "gap" in estimate.stats:
        rows.append((say("method.gap"), say("method.not_sought")))
    settings = {key: value for key, value in estimate.method.items() if isinstance(value, str | int | float | bool)}
    details = {key: value for key, value in settings.items() if key not in ("method", "reason")} | dict(estimate.stats)
    body: list[list[Content]] = [[key.replace("_", " "), _number(value)] for key, value in details.items()]
    header = [say("columns.name"), say("columns.value")]
    return join(facts(rows), folded(say("method.all"), table(say("method.caption"), header, body)))


def _number(value: object) -> str:
    if isinstance(value, float | np.floating):
        return f"{float(value):,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
