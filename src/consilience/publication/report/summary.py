"""The beginning of a report: who publishes what about whom, how sure it is, and what to be careful with.

Everything here is counted from the release and from `publication.toml`; sentences are chosen by what is there.
"""

import itertools
import math
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from consilience.domain.declarations import spell_attribute
from consilience.domain.factors import Identity
from consilience.publication.about import Named
from consilience.publication.report.evidence import count, linked_groups, percent
from consilience.publication.report.facts import ReportFacts
from consilience.publication.report.privacy import budget_in_words, odds
from consilience.publication.report.tables import noisy_tables
from consilience.publication.report.texts import Texts
from consilience.publication.report_page import (
    Content,
    Markup,
    element,
    facts,
    folded,
    join,
    paragraphs,
    table,
)

CAVEATS = 3
MANY_WIDE = 0.1
"""From this share on it is a caveat that counts have an interval wider than themselves."""
GREEK = {"epsilon": "ε", "delta": "δ", "rho": "ρ", "failure_delta": "failure δ"}


def budget(spent: Mapping[str, str]) -> str:
    return ", ".join(f"{GREEK[name]} = {amount}" for name, amount in spent.items())


def title(known: ReportFacts) -> str:
    return known.details.title or known.say("title", name=known.estimate.domain.name)


def _day(known: ReportFacts) -> str:
    return str(known.manifest.get("created", known.say("unknown_day"))).partition("T")[0]


def _stated(known: ReportFacts) -> dict[str, str | None]:
    """What the publisher says, as texts; an address follows the name, and links nowhere."""
    told = known.details
    contact = [] if told.contact is None else [told.contact.name, told.contact.email, told.contact.url]

    def named(each: Named | None) -> str | None:
        return None if each is None else each.name + (f" ({each.url})" if each.url else "")

    return {
        "description": told.description,
        "publisher": None if told.publisher is None else told.publisher.name,
        "contact": ", ".join(filter(None, contact)) or None,
        "population": told.population,
        "region": None if told.region is None else told.region.name,
        "period": None if told.period is None else str(told.period),
        "licence": named(told.licence),
        "intended_use": told.intended_use,
        "unsuitable_use": told.unsuitable_use,
    }


def heading(known: ReportFacts) -> Markup:
    """The title, who made it and when, and the banner where nothing is protected."""
    say, publisher = known.say, _stated(known)["publisher"]
    tool = str(known.manifest.get("tool", "consilience"))
    by = say("released_by", publisher=publisher, day=_day(known), tool=tool) if publisher else ""
    banner = None if known.estimate.private else element("p", say("banner"), class_="banner", role="note")
    name = say("title", name=known.estimate.domain.name) if known.details.title else None
    return join(
        element("h1", title(known)),
        element("p", name, class_="soft") if name else None,
        element("p", by or say("released", day=_day(known), tool=tool), class_="soft"),
        banner,
    )


# ----------------------------------------------------------------------------------------------------------------------
# The summary.


def summary(known: ReportFacts) -> Markup:
    """What was published, about whom, how sure, and the caveats that matter most; then the key figures."""
    say, details = known.say, _stated(known)
    licence = details["licence"]
    passing = say("summary.licence", licence=licence) if licence else say("summary.no_licence")
    if not known.estimate.private:
        passing = say("summary.pass_on_simulated")
    return join(
        paragraphs(_what(known), _how_sure(known), class_="lead"),
        paragraphs(_privacy(known), passing),
        element("h3", say("summary.caveats")),
        element("ol", *(element("li", each) for each in caveats(known)[:CAVEATS])),
        _boxes(known),
    )


def _what(known: ReportFacts) -> str:
    say, details, estimate = known.say, _stated(known), known.estimate
    tables, sums = len(noisy_tables(estimate)), len(estimate.measurements.sums)
    numbers = sum(each.values.size for each in (*noisy_tables(estimate), *estimate.measurements.sums))
    about = details["population"] or say("summary.the_table", name=estimate.domain.name)
    where = [details[key] for key in ("region", "period") if details[key]]
    about = ", ".join([about, *filter(None, where)])
    who = details["publisher"] or say("summary.this_release")
    listed = say("summary.tables", n=tables)
    listed = say("summary.and_sums", tables=listed, n=sums) if sums else listed
    return say("summary.what", who=who, tables=listed, numbers=numbers, about=about) + " " + _records(known)


def _records(known: ReportFacts) -> str:
    say, total = known.say, known.total
    weight = known.estimate.domain.weight is not None
    if total.basis.not_measured.any():
        return say("summary.no_total")
    number = count(float(total.estimates[0]))
    if total.interval is None:
        return say("summary.weighed" if weight else "summary.counted", number=number)
    ends = {"low": count(float(total.interval.low[0])), "high": count(float(total.interval.high[0]))}
    return say("summary.weighed_between" if weight else "summary.counted_between", number=number, **ends)


def widths(known: ReportFacts) -> tuple[float, float]:
    """The median half-width of all measured counts of the page that have an interval, and the share of wide ones."""
    bars = [each.interval for each in known.margins]
    bars += [each.answers.interval for each in known.tables if each.what == "records"]
    found = [each for each in bars if each is not None]
    halves = np.concatenate([np.zeros(0), *((each.high - each.low) / 2 for each in found)])
    wide = np.concatenate([np.zeros(0, dtype=np.bool_), *(each.uncertain for each in found)])
    known_ones = np.isfinite(halves)
    if not known_ones.any():
        return math.nan, math.nan
    return float(np.median(halves[known_ones])), float(wide[known_ones].mean())


def _how_sure(known: ReportFacts) -> str:
    say = known.say
    half, wide = widths(known)
    if not math.isfinite(half):
        return say("summary.not_sure")
    told = {"level": f"{100 * known.settings.level:g}", "half": count(half)}
    return say("summary.sure", **told) + " " + (say("summary.wide", share=percent(wide)) if wide else "")


def _privacy(known: ReportFacts) -> str:
    say, privacy = known.say, known.estimate.measurements.privacy
    if not known.estimate.private:
        return say("nothing_protected")
    found = odds(privacy)
    if privacy.spent is None or found is None:
        return say("privacy.no_budget")
    told = {"budget": budget(privacy.spent), "factor": found.in_words()}
    return say("summary.promises_little" if found.promises_little else "summary.privacy", **told)


def _boxes(known: ReportFacts) -> Markup:
    """The numbers that matter most."""
    say, estimate, total = known.say, known.estimate, known.total
    spent = estimate.measurements.privacy.spent
    unmeasured = bool(total.basis.not_measured.any())
    kind = "modelled" if total.basis.modelled.any() else "estimated"
    named = say("boxes.weighed" if estimate.domain.weight is not None else "boxes.records")
    named = say("boxes.not_measured" if unmeasured else f"boxes.{kind}", what=named)
    if total.interval is not None and not unmeasured:
        half = float((total.interval.high - total.interval.low)[0] / 2)
        named = say("boxes.give_or_take", what=named, half=count(half))
    half, wide = widths(known)
    numbers = [
        ("–" if unmeasured else f"≈ {count(float(total.estimates[0]))}", named),
        (say("boxes.not_known") if spent is None else budget(spent), say("boxes.budget")),
        (f"{len(noisy_tables(estimate)) + len(estimate.measurements.sums):,}", say("boxes.tables")),
        (f"{len(estimate.domain.counted_names):,}", say("boxes.attributes")),
    ]
    if math.isfinite(half):
        numbers.append((f"± {count(half)}", say("boxes.typical")))
        numbers.append((percent(wide), say("boxes.wide")))
    boxes = [element("div", element("strong", value), element("span", name)) for value, name in numbers]
    return element("div", *boxes, class_="numbers")


def caveats(known: ReportFacts) -> list[str]:
    """What speaks for being careful, the worst first; there are always some."""
    say, estimate, diagnosis = known.say, known.estimate, known.diagnosis
    privacy = estimate.measurements.privacy
    found, basis = odds(privacy), estimate.columns_basis
    half, wide = widths(known)
    many_wide = math.isfinite(wide) and wide >= MANY_WIDE
    apart = count(half * math.sqrt(2.0))  # of two independent errors
    said = [
        (not estimate.private, say("caveats.simulated")),
        (privacy.spent is None, say("privacy.no_budget")),
        (found is not None and found.promises_little, say("caveats.promises_little")),
        (not diagnosis.noise.as_declared, diagnosis.noise.verdict),
        (not estimate.status.on_purpose, say("caveats.status", explanation=estimate.status.explanation)),
        (known.no_intervals is not None, say("caveats.no_intervals")),
        (many_wide, say("caveats.wide", share=percent(wide), apart=apart)),
        (
            bool(basis.not_measured),
            say("caveats.not_measured", names=say.listed(known.headings(basis.not_measured), most=5)),
        ),
        (
            len(basis.linked) > 1,
            say("caveats.unlinked", groups=linked_groups(known, most=5)),
        ),
        (
            any(each.cross.any_modelled for each in known.tables) or any(m.basis.modelled.any() for m in known.margins),
            say("caveats.modelled"),
        ),
        (bool(privacy.public_facts), say("caveats.public_facts", facts="; ".join(privacy.public_facts))),
        (bool(estimate.measurements.sums), say("caveats.clipped")),
        (not many_wide, say("caveats.small" if math.isfinite(half) else "caveats.small_unknown", apart=apart)),
        (True, say("caveats.noise")),
        (True, say("caveats.dropped")),
    ]
    return [words for holds, words in said if holds]


# ----------------------------------------------------------------------------------------------------------------------
# Who publishes it and for what; what was measured, in words; how to cite and to repeat it.

DETAILS = (
    "description",
    "publisher",
    "contact",
    "population",
    "region",
    "period",
    "licence",
    "intended_use",
    "unsuitable_use",
)


def publication(known: ReportFacts) -> Markup:
    """Publisher, contact, population, period, licence and use; what is not stated is said not to be."""
    say, details = known.say, _stated(known)
    rows: list[tuple[Content, Content]] = [
        (say(f"publication.{key}"), details[key] or say("publication.not_stated")) for key in DETAILS
    ]
    rows.append((say("publication.table"), known.estimate.domain.name))
    rows.append((say("publication.day"), _day(known)))
    nothing = None if known.details else paragraphs(say("publication.nothing"), class_="soft")
    return join(facts(rows), nothing, paragraphs(say("publication.passing_on")))


def asked(known: ReportFacts) -> Markup:
    """What was measured and spent, in words that a manager understands."""
    say, measured = known.say, known.estimate.measurements
    choices = sum(each.kind == "selections" for each in measured)
    return join(
        paragraphs(" ".join([*plan_in_words(known), *_noise(known)]), class_="lead"),
        paragraphs(say("asked.choices", n=choices)) if choices else None,
        None if known.estimate.private else paragraphs(say("nothing_protected"), class_="warning"),
        paragraphs(*budget_in_words(measured.privacy, say)),
        paragraphs(say("asked.account")),
        folded(say("asked.technical"), _technical(measured.provenance, say)),
    )


def plan_in_words(known: ReportFacts) -> list[str]:
    """What was counted, from the measurements themselves: it holds whatever plan, or tool, they come from."""
    say, estimate = known.say, known.estimate
    names = estimate.domain.counted_names
    linear = [each for each in noisy_tables(estimate) if each.kind == "linear"]
    marginals = {
        frozenset(each.query.attributes)
        for each in linear
        if all(isinstance(factor, Identity) for _, factor in each.query.factors)
    }
    said = [say("asked.total")] if frozenset() in marginals else []
    for ways, number in sorted(Counter(len(each) for each in marginals if each).items()):
        all_of_them = math.comb(len(names), ways)
        if ways == len(names) and ways > 1:
            said.append(say("asked.all_together", columns=len(names)))
        elif number == all_of_them and ways <= 2:
            said.append(say("asked.each_column" if ways == 1 else "asked.each_pair", n=number, columns=len(names)))
        elif ways == 1:
            said.append(say("asked.columns", n=number, columns=len(names)))
        elif ways == 2:
            said.append(say("asked.pairs", n=number, all=all_of_them))
        else:
            said.append(say("asked.wider", n=number, ways=ways))
    other = sum(not all(isinstance(factor, Identity) for _, factor in each.query.factors) for each in linear)
    said += [say("asked.groups", n=other)] if other else []
    algorithms = sorted({each.asks for each in noisy_tables(estimate) if each.kind != "linear"})
    said += [say("asked.others", names=say.listed(algorithms))] if algorithms else []
    amounts = sorted({str(each.amount) for each in estimate.measurements.sums})
    headings = [estimate.domain[name].heading for name in amounts]
    said += [say("asked.sums", names=say.listed(headings))] if amounts else []
    return said or [say("asked.nothing")]


def _noise(known: ReportFacts) -> list[str]:
    say, estimate = known.say, known.estimate
    linear = [each for each in noisy_tables(estimate) if each.kind == "linear"]
    tables = [each for each in linear if each.query.factors] or linear
    deviations = sorted({each.noise.stddev_of_noise for each in tables})
    said = []
    if deviations:
        low, high = deviations[0], deviations[-1]
        same = f"{low:.2g}" == f"{high:.2g}"
        told = {"low": _digits(low), "high": _digits(high)}
        said.append(say("asked.noise" if same else "asked.noises", **told))
    spread = sorted({(each.amount, each.noise.stddev_of_noise) for each in estimate.measurements.sums}, key=str)
    for amount, stddev in itertools.islice(spread, 5):
        heading = estimate.domain[str(amount)].heading
        said.append(say("asked.noise_of_sums", amount=heading, stddev=_digits(stddev)))
    return [*said, say("asked.elsewhere" if known.diagnosis.noise.as_drawn is None else "asked.nothing_else")]


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _technical(provenance: Mapping[str, Any], say: Texts) -> Markup:
    """The plan and its settings as the provenance tells them."""
    plan = provenance.get("plan")
    if not isinstance(plan, Mapping) or not isinstance(plan.get("plan"), str):
        merged = provenance.get("merged")
        told = say("asked.merged", n=len(merged)) if isinstance(merged, list) else say("asked.no_plan")
        return paragraphs(told)
    simple = {key: value for key, value in plan.items() if isinstance(value, str | int | float | bool)}
    rows: list[Sequence[Content]] = [[key.replace("_", " "), str(value)] for key, value in simple.items()]
    return table(say("asked.caption"), [say("columns.name"), say("columns.value")], rows)


def cite(known: ReportFacts) -> Markup:
    """How to cite the release and how to repeat the report."""
    say, settings, estimate = known.say, known.settings, known.estimate
    name = known.release.path.name or "release"
    spent = estimate.measurements.privacy.spent
    told = {"name": title(known), "year": _day(known)[:4], "tool": str(known.manifest.get("tool", "consilience"))}
    told |= {"budget": say("cite.no_budget") if spent is None else budget(spent), "checksum": known.checksum[:16]}
    publisher = _stated(known)["publisher"]
    citation = say("cite.by", publisher=publisher, **told) if publisher else say("cite.citation", **told)
    columns = estimate.columns_basis.columns
    first = next((name for name, basis in columns.items() if basis != "not measured"), None)
    query = "total" if first is None else f"by {spell_attribute(first)}"
    options = f"--level {settings.level:g} --refits {settings.refits} --seed {settings.seed}"
    commands = [
        f"consilience check {name}",
        f"consilience report {name} {options}",
        f'consilience answer {name} "{query}" --interval',
        f"consilience estimate {name}/measurements.parquet --method {estimate.method['method']} --out again",
    ]
    versions = ", ".join(f"{each} {version(each)}" for each in ("consilience", "numpy", "scipy"))
    bars = {"level": f"{100 * settings.level:g}", "refits": settings.refits, "seed": str(settings.seed)}
    release = str(estimate.measurements.provenance.get("release", say("cite.not_named")))
    return join(
        paragraphs(citation, class_="note"),
        paragraphs(say("cite.lead")),
        element("pre", "\n".join(commands)),
        facts(
            [
                (say("cite.checksum"), element("code", known.checksum)),
                (say("cite.versions"), say("cite.with_python", versions=versions, python=platform.python_version())),
                (say("cite.bars"), say("cite.settings", **bars)),
                (say("cite.release"), release),
            ]
        ),
        paragraphs(say("cite.free")),
    )


WORDS = (
    "account",
    "attribute",
    "cell",
    "cramers_v",
    "interval",
    "margin",
    "measurement",
    "basis",
    "gap",
    "p_value",
    "post_processing",
    "budget",
    "plot",
    "stddev",
    "unit",
)


def glossary(known: ReportFacts) -> Markup:
    say = known.say
    return facts([(say(f"glossary.{word}"), say(f"glossary.{word}_meaning")) for word in WORDS])
