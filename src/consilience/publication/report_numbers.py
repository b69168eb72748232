"""The sections of a report that show numbers: margins, associations, certainty, measurements and their noise."""

import math
from collections.abc import Mapping, Sequence

from consilience.publication import intervals
from consilience.publication.diagnostics import Moved, checks_in_words
from consilience.publication.report_facts import Associations, Certainty, Margin, ReportFacts
from consilience.publication.report_page import (
    Content,
    Markup,
    Picture,
    element,
    figure,
    folded,
    join,
    paragraphs,
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
    shown = moved[:MOST_MEASUREMENTS]
    rows = [_moved_row(each) for each in shown]
    header = ["measured", "numbers", "sd of noise", "moved (rms)", "farthest", "below 0", "now 0", "lowest"]
    left_out = len(moved) - len(shown)
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
    left_out = (
        f" The {len(found.attributes)} attributes with the strongest associations are shown; {found.left_out:,} others "
        "are left out."
        if found.left_out
        else ""
    )
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
    words = (
        "Pairs with a dash were never looked at together, so nothing is said of them. " if found.not_measured else ""
    )
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
