"""`report`: one page that says what a release is, what it protects, and how far its numbers can be trusted.

The page stands alone: no network, no script, pictures inside. In a bundle it is `report.html`, and each of its pictures
is there as SVG and PNG under `pictures/`, for use elsewhere. Post-processing: it spends no budget.
"""

import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from consilience.domain.declarations import spell_attribute
from consilience.domain.files import write_atomically
from consilience.errors import FileFormatError
from consilience.estimators.base import Progress, check_level, check_whole
from consilience.measurements import Measurement, PrivacyStatement
from consilience.publication import report_numbers
from consilience.publication.bundle import Bundle, add_to_bundle, keep_refits, open_bundle
from consilience.publication.intervals.refits import check_refits
from consilience.publication.report_facts import ReportFacts, Settings, gather
from consilience.publication.report_numbers import count, draw_associations, draw_margin, draw_moved, draw_quantiles
from consilience.publication.report_page import (
    Content,
    Markup,
    Picture,
    bullets,
    check_pictures,
    element,
    facts,
    folded,
    join,
    page,
    paragraphs,
    table,
)
from consilience.solvers.fit import Status

# ----------------------------------------------------------------------------------------------------------------------
# The sentences of a report that rest on the privacy statement and the settings, for readers who are no experts.


SMALL_DELTA = 1e-6
"""The delta at which a budget in rho is put in words."""


def plan_in_words(provenance: Mapping[str, Any]) -> str:
    """What was asked for, as the provenance tells it.

    >>> plan_in_words({"plan": {"plan": "direct", "ways": 2}})
    'the plan “direct” (ways: 2)'
    """
    plan = provenance.get("plan")
    if not isinstance(plan, Mapping) or not isinstance(plan.get("plan"), str):
        merged = provenance.get("merged")
        return f"{len(merged)} releases together" if isinstance(merged, list) else "a plan that is not on record"
    simple = {
        key: value for key, value in plan.items() if key != "plan" and isinstance(value, str | int | float | bool)
    }
    settings = ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in simple.items())
    return f"the plan “{plan['plan']}”" + (f" ({settings})" if settings else "")


def budget_in_words(privacy: PrivacyStatement) -> list[str]:
    """What the budget means for one protected unit, in odds."""
    spent = privacy.spent
    if spent is None:
        return [
            "Who made the measurements did not say how much privacy budget they spent, so nothing can be promised here."
        ]
    what = "whether any one {} is in the table" if privacy.neighbours == "add-remove" else "what any one {} says"
    what = what.format("row" if privacy.unit == "row" else "protected unit")
    if "rho" in spent:
        rho = float(spent["rho"])
        epsilon = rho + 2 * math.sqrt(rho * math.log(1 / SMALL_DELTA))
        delta = f"{SMALL_DELTA + float(spent.get('failure_delta', 0)):g}"
        start = (
            f"The budget is ρ = {spent['rho']} of zero-concentrated differential privacy, which implies ε = "
            f"{epsilon:.3g} with δ = {delta}. "
        )
    else:
        epsilon, delta = float(spent["epsilon"]), spent.get("delta")
        start = f"The budget is ε = {spent['epsilon']}" + (f" with δ = {delta}. " if delta else ". ")
    return [start + _odds(epsilon, delta, what)]


def _odds(epsilon: float, delta: str | None, what: str) -> str:
    """The budget as what it does to a guess."""
    if epsilon > 12:
        return f"That is so large that a reader may learn {what}: it promises next to nothing."
    highest = 1 / (1 + math.exp(-epsilon))
    except_for = f", but for a chance of {delta}" if delta else ""
    return (
        f"Whatever else a reader knows, the numbers published here change the odds of a guess about {what} by a "
        f"factor of at most {_factor(math.exp(epsilon))}{except_for}: who thought 50 % likely may afterwards think at "
        f"most {100 * highest:.3g} %, and at least {100 * (1 - highest):.3g} %."
    )


def _factor(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def protected(privacy: PrivacyStatement) -> str:
    """What the promise is about."""
    if privacy.unit == "row":
        unit = "One row of the table"
    else:
        unit = f"One unit of protection ({privacy.unit})"
    change = (
        "is present or absent"
        if privacy.neighbours == "add-remove"
        else "holds these or those values, its presence known"
    )
    return (
        f"{unit} is protected: nearly the same publication would come out whether it {change} (neighbour relation: "
        f"{privacy.neighbours}). The promise holds against readers with any amount of computing power and any other "
        "data, and whatever is computed from this publication keeps it."
    )


LIMITS = (
    "What many records reveal together is not hidden. That is what statistics are for.",
    "Someone who is in several tables, or in several editions of this one, is protected by the sum of what was spent "
    "on all of them.",
    "Relatives and households: one unit is protected, not a group of them.",
    "The declared domain (attributes, values, impossible cells) is public and protects nobody; it must not have been "
    "read off the data.",
    "Records that the domain's rules drop are missing from every count, and how many they are is not published.",
)

GLOSSARY = {
    "account": "The estimate: one set of numbers that agree with each other and fit all measurements together.",
    "attribute": "A column of the table, with the values that it may have.",
    "cell": "One combination of values of some attributes; a table of counts has a number for each.",
    "Cramér's V": "How strongly two attributes go together: 0 for not at all, 1 if one says all about the other.",
    "interval, error bar": "A range that holds the true count with the stated probability, as far as noise goes.",
    "margin": "The counts of the values of some attributes, whatever the other attributes are.",
    "measurement": "Exact counts plus random noise. Measurements are all that ever left the confidential table.",
    "measured, modelled, not measured": "What a number stands on: measurements determine it; or its attributes were "
    "measured together in parts, the account fills in the rest, and the interval holds that too; or nobody looked, and "
    "there is no number.",
    "optimality gap": "How much better, at most, any other account would fit the measurements.",
    "p-value": "How likely something at least as odd would be if all were as declared; small values deny it.",
    "post-processing": "Everything computed from measurements and public facts. It costs no privacy.",
    "privacy budget (ε, δ, ρ)": "A limit of what the publication can reveal about one unit: smaller is more private, "
    "and noisier.",
    "Q–Q plot": "Quantiles of what was seen against quantiles of what was expected: points on the line mean agreement.",
    "standard deviation of the noise": "The typical size of the noise in one number, in records.",
    "unit of protection": "Whose presence or values are hidden: a row, or all rows of one person.",
}


# ----------------------------------------------------------------------------------------------------------------------
# The sections of a report that are words: what was asked, what is protected, how it was made and can be repeated.


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
    counted = "records" if estimate.domain.weight is None else "by weight"
    records = f"{counted}, modelled" if total.modelled.any() else f"{counted}, estimated"
    if total.not_measured.any():
        records = f"{counted}: not measured"
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


GREEK = {"epsilon": "ε", "delta": "δ", "rho": "ρ", "failure_delta": "failure δ"}


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
    return join(
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
    return join(
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
    return join(
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
    columns = known.estimate.columns_basis.columns
    first = next((name for name, basis in columns.items() if basis != "not measured"), None)
    query = "total" if first is None else f"by {spell_attribute(first)}"
    commands = [
        f"consilience check {name}",
        f"consilience report {name} --level {settings.level:g} --refits {settings.refits} --seed {settings.seed}",
        f'consilience answer {name} "{query}" --interval',
        f"consilience estimate {name}/measurements.parquet --method {known.estimate.method['method']} --out again",
    ]
    versions = ", ".join(f"{each} {version(each)}" for each in ("consilience", "numpy", "scipy"))
    return join(
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
    return facts(list(GLOSSARY.items()))


# ----------------------------------------------------------------------------------------------------------------------
# `report`: one page that says what a release is, what it protects, and how far its numbers can be trusted.


PAGE = "report.html"
FOLDER = "pictures"


@dataclass(frozen=True, eq=False)
class Report:
    """A finished page, its pictures, and the facts they show."""

    html: str
    pictures: Mapping[str, Picture]
    facts: ReportFacts
    path: Path | None = None
    """Where the page was written."""

    def files(self) -> dict[str, bytes]:
        """What a bundle gets: the page, and every picture in both kinds."""
        found = {PAGE: self.html.encode("utf-8")}
        for name, drawn in self.pictures.items():
            found[f"{FOLDER}/{name}.svg"] = drawn.svg.encode("utf-8")
            found[f"{FOLDER}/{name}.png"] = drawn.png
        return found


def make_report(
    release: Bundle | str | os.PathLike[str],
    *,
    level: float = 0.95,
    refits: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """The report of a release, as a page and pictures that are nowhere on disk yet."""
    settings = _checked(level, refits, seed)
    check_pictures()
    opened = release if isinstance(release, Bundle) else open_bundle(release)
    facts = gather(opened, settings, progress=progress)
    pictures = _pictures(facts, progress)
    return Report(_page(facts, pictures), pictures, facts)


def report(
    release: Bundle | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    level: float = 0.95,
    refits: int = 200,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Report:
    """The report, written into its bundle in place of an earlier one, or the page alone to `out`.

    Its `path` says where. Spends nothing.

    >>> import tempfile
    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> account = cs.estimate(cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(report(cs.write_bundle(account, f"{folder}/release"), refits=20).path.name)
    report.html
    """
    _checked(level, refits, seed)
    if out is not None:
        _refuse_place(Path(out), overwrite=overwrite)
    made = make_report(release, level=level, refits=refits, seed=seed, progress=progress)
    keep_refits(made.facts.release)
    if out is not None:
        write_atomically(Path(out), made.html.encode("utf-8"))
        return replace(made, path=Path(out))
    bundle = release.path if isinstance(release, Bundle) else Path(release)
    add_to_bundle(bundle, made.files(), about={"report": asdict(made.facts.settings)}, in_place_of=(PAGE, FOLDER))
    return replace(made, path=bundle / PAGE)


def _refuse_place(out: Path, *, overwrite: bool) -> None:
    """Refuse, before any work, a place that cannot be written or holds something else."""
    if out.is_dir() or (out.exists() and not overwrite):
        raise FileFormatError(f"{out} exists already; choose another name, or replace a file with overwrite")
    if not out.absolute().parent.is_dir():
        raise FileFormatError(f"there is no folder {out.parent}; create it first")


def _checked(level: float, refits: int, seed: int) -> Settings:
    check_level(level)
    check_refits(refits)
    check_whole(seed, "the seed", 0)
    return Settings(level, refits, seed)


def _pictures(known: ReportFacts, progress: Progress | None) -> dict[str, Picture]:
    """All pictures by name."""
    drawn: list[Picture] = []
    private = known.estimate.private
    for number, margin in enumerate(known.margins, start=1):
        if not margin.basis.not_measured.all():
            drawn.append(draw_margin(margin, number, level=known.settings.level, private=private))
        if progress is not None:
            progress("drawing", number, len(known.margins))
    if any(each.stddev > 0 for each in known.diagnosis.moved):
        drawn.append(draw_moved(known.diagnosis.moved, private=private))
    if known.associations is not None and known.associations.strongest():
        drawn.append(draw_associations(known.associations, private=private))
    if known.diagnosis.noise.quantiles is not None:
        drawn.append(draw_quantiles(known.diagnosis.noise.quantiles, known.diagnosis.noise.verdict, private=private))
    return {each.name: each for each in drawn}


def _page(known: ReportFacts, pictures: Mapping[str, Picture]) -> str:
    sections = [
        ("asked", "What was asked, and what it cost", asked(known)),
        ("protection", "What is protected, and what is not", protection(known)),
        ("margins", "Totals and margins", report_numbers.margins(known, pictures)),
        ("associations", "Which attributes go together", report_numbers.associations(known, pictures)),
        ("certainty", "The most and the least certain tables", report_numbers.certainty(known)),
        (
            "measurements",
            "The measurements, and how far the account moved them",
            report_numbers.measurements(known, pictures),
        ),
        ("noise", "Is the noise what it should be?", report_numbers.noise(known, pictures)),
        ("method", "How the account was made", method(known)),
        ("cite", "How to cite it, and how to repeat it", cite(known)),
        ("glossary", "Words used here", glossary()),
    ]
    title = f"{known.estimate.domain.name}: a release with differential privacy"
    return page(title, heading(known), [each for each in sections if each[2] is not None])
