"""The sections of a report that are words: what was asked, what is protected, how it was made and can be repeated."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version

import numpy as np

from consilience.domain.spelling import spell_attribute
from consilience.measurements import Measurement
from consilience.measurements.basis import columns_basis
from consilience.publication.report_facts import ReportFacts
from consilience.publication.report_numbers import count
from consilience.publication.report_page import (
    Content,
    Markup,
    bullets,
    element,
    facts,
    folded,
    join,
    paragraphs,
    section,
    table,
)
from consilience.publication.report_words import GLOSSARY, LIMITS, budget_in_words, plan_in_words, protected
from consilience.solvers.fit import Status


def heading(known: ReportFacts) -> Markup:
    """The title, the banner where nothing is protected, and the numbers that matter most."""
    estimate, manifest = known.estimate, known.manifest
    banner = None
    if not estimate.private:
        banner = element(
            "p",
            "NOT PRIVATE. The noise was simulated from a seed and can be taken away again: this report protects nobody "
            "and must not be published as if it did.",
            class_="banner",
            role="note",
        )
    spent = estimate.measurements.privacy.spent
    total = known.total.basis
    records = "records, modelled" if total.modelled.any() else "records, estimated"
    if total.not_measured.any():
        records = "records: not measured"
    elif known.total.interval is not None:
        records += f" (±\u00a0{count(float((known.total.interval.high - known.total.interval.low)[0] / 2))})"
    numbers = [
        ("–" if total.not_measured.any() else f"≈ {count(float(known.total.estimates[0]))}", records),
        ("not known" if spent is None else _budget(spent), "privacy budget spent"),
        (f"{len(_noisy_tables(known)):,}", "tables measured"),
        (f"{len(estimate.domain.counted_names):,}", "attributes"),
    ]
    boxes = [element("div", element("strong", value), element("span", name)) for value, name in numbers]
    return join(
        element("h1", f"{estimate.domain.name}: a release with differential privacy"),
        element("p", f"Released {_day(known)} with {manifest.get('tool', 'consilience')}.", class_="soft"),
        banner,
        element("div", *boxes, class_="numbers"),
    )


GREEK = {"epsilon": "ε", "delta": "δ", "rho": "ρ"}


def _budget(spent: Mapping[str, str]) -> str:
    return ", ".join(f"{GREEK[name]} = {amount}" for name, amount in spent.items())


def _day(known: ReportFacts) -> str:
    return str(known.manifest.get("created", "on an unknown day")).partition("T")[0]


def asked(known: ReportFacts) -> Markup:
    """What was asked and spent."""
    measured = known.estimate.measurements
    tables = _noisy_tables(known)
    values = sum(each.values.size for each in tables)
    deviations = sorted({each.noise.stddev_of_noise for each in tables})
    choices = sum(each.kind == "selections" for each in measured)
    chosen = (
        f" What to measure was itself chosen in {choices:,} noisy steps, which are paid for, too." if choices else ""
    )
    size = "" if not deviations else f" with a standard deviation of {_range(deviations)} records"
    return section(
        "asked",
        "What was asked, and what it cost",
        paragraphs(
            f"From a confidential table, {_tables(len(tables))} with {values:,} numbers in all "
            f"{'was' if len(tables) == 1 else 'were'} measured, following {plan_in_words(measured.provenance)}. Random "
            f"noise{size} was added to every number before it left the confidential side.{chosen} Nothing else was "
            "taken from the data.",
            class_="lead",
        ),
        None if known.estimate.private else paragraphs(NOTHING_PROTECTED, class_="warning"),
        paragraphs(*budget_in_words(measured.privacy)),
        paragraphs(
            "Noisy numbers contradict each other: the same total comes out differently from every table, and counts "
            "may fall below zero. All other numbers of this report come from one account that fits all of them "
            "together, without contradictions. Making it used the noisy numbers alone and cost no further privacy.",
        ),
    )


def _noisy_tables(known: ReportFacts) -> list[Measurement]:
    """What was measured of the confidential table: neither public facts nor choices."""
    return [each for each in known.estimate.measurements if each.kind != "selections" and each.noise.variance > 0]


def _tables(number: int) -> str:
    return "one table of counts" if number == 1 else f"{number:,} tables of counts"


def _range(values: Sequence[float]) -> str:
    low, high = values[0], values[-1]
    return f"{low:,.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:,.3g} to {high:,.3g}"


def protection(known: ReportFacts) -> Markup:
    """What is protected and what is not."""
    privacy = known.estimate.measurements.privacy
    outside: Content = None
    if privacy.public_facts:
        outside = paragraphs(
            f"Taken as public from outside: {'; '.join(privacy.public_facts)}. The promise is about tables that share "
            "these facts; they are exact here and not protected.",
            class_="warning",
        )
    return section(
        "protection",
        "What is protected, and what is not",
        None if known.estimate.private else paragraphs(NOTHING_PROTECTED, class_="warning"),
        paragraphs(protected(privacy)),
        outside,
        bullets(list(LIMITS)),
        folded("The promise in technical words", *(element("p", line) for line in privacy.describe().splitlines())),
    )


NOTHING_PROTECTED = (
    "Nothing is protected here, because the noise was simulated. With real noise the following would hold."
)


def method(known: ReportFacts) -> Markup:
    """How the account was made, and how good a fit it is."""
    estimate = known.estimate
    rows: list[tuple[Content, Content]] = [("Method", str(estimate.method["method"]))]
    if "reason" in estimate.method:
        rows.append(("Why this one", str(estimate.method["reason"])))
    rows.append(("Status", f"{estimate.status.value}. {estimate.status.explanation}"))
    if "gap" in estimate.stats and estimate.status not in (Status.LEAST_RISK, Status.NOISE_LEVEL):
        rows.append(("Optimality gap", f"{_number(estimate.stats['gap'])} of {_number(estimate.stats['objective'])}"))
    elif "gap" in estimate.stats:
        rows.append(("Optimality gap", "not sought: the fit stopped on purpose before the optimum, which fits noise"))
    settings = {key: value for key, value in estimate.method.items() if isinstance(value, str | int | float | bool)}
    details = {key: value for key, value in settings.items() if key not in ("method", "reason")} | dict(estimate.stats)
    body: list[list[Content]] = [[key.replace("_", " "), _number(value)] for key, value in details.items()]
    return section(
        "method",
        "How the account was made",
        facts(rows),
        folded("All settings and statistics", table("Settings and statistics of the fit", ["name", "value"], body)),
    )


def _number(value: object) -> str:
    if isinstance(value, float | np.floating):
        return f"{float(value):,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def cite(known: ReportFacts) -> Markup:
    """How to cite the release and how to repeat the report."""
    manifest, settings = known.manifest, known.settings
    name = known.release.path.name or "release"
    year = _day(known)[:4]
    budget = known.estimate.measurements.privacy.spent
    spent = "privacy budget not stated" if budget is None else _budget(budget)
    citation = (
        f"{known.estimate.domain.name} ({year}). Counts released with differential privacy ({spent}), made consistent "
        f"with {manifest.get('tool', 'consilience')}. Measurements SHA-256 {known.checksum[:16]}…"
    )
    columns = columns_basis(known.estimate.measurements).columns
    first = next((name for name, basis in columns.items() if basis != "not measured"), None)
    query = "total" if first is None else f"by {spell_attribute(first)}"
    commands = [
        f"consilience check {name}",
        f"consilience report {name} --level {settings.level:g} --refits {settings.refits} --seed {settings.seed}",
        f'consilience answer {name} "{query}" --interval',
        f"consilience estimate {name}/measurements.parquet --method {known.estimate.method['method']} --out again",
    ]
    versions = ", ".join(f"{each} {version(each)}" for each in ("consilience", "numpy", "scipy"))
    return section(
        "cite",
        "How to cite it, and how to repeat it",
        paragraphs(citation, class_="note"),
        paragraphs("Check the files, make this report again, ask questions of your own, fit the measurements again:"),
        element("pre", "\n".join(commands)),
        facts(
            [
                ("SHA-256 of the measurements", element("code", known.checksum)),
                ("Versions", f"{versions}, Python {platform.python_version()}"),
                ("Error bars", f"level {settings.level:g}, {settings.refits} refits, seed {settings.seed}"),
                ("Release", str(known.estimate.measurements.provenance.get("release", "not named"))),
            ]
        ),
        paragraphs(
            "All of this is post-processing of the published measurements: it needs neither the confidential table nor "
            "any budget."
        ),
    )


def glossary() -> Markup:
    return section("glossary", "Words used here", facts(list(GLOSSARY.items())))
