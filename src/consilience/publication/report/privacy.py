"""What a report says of privacy: the budget in odds, what is protected, a self-assessment, and what could be learned.

The questions of the self-assessment are those of NIST SP 800-226 (Near, Darais, Lefkovitz and Howarth 2025), from its
pyramid of what a guarantee stands on: unit and parameters above, algorithms and composition, then side channels, trust,
and how data are collected. What no file can know is answered by `publication.toml`, or is said not to be stated.

A guess with probability p, of whom ε-differential privacy protects, is at most F·p / (F·p + 1 − p) afterwards and at
least p / (p + F·(1 − p)), with F = e^ε: the posterior odds are those of before times a ratio between 1/F and F.
"""

import math
from dataclasses import dataclass

from consilience.measurements import PrivacyStatement
from consilience.publication.report.evidence import count
from consilience.publication.report.facts import ReportFacts
from consilience.publication.report.tables import Margin, noisy_tables
from consilience.publication.report.texts import Texts
from consilience.publication.report_page import Content, Markup, bullets, element, folded, join, paragraphs, table

SMALL_DELTA = 1e-6
"""The delta at which a budget in rho is put in words."""
LARGE_EPSILON = 12
"""A larger one promises next to nothing: odds may change by more than 100,000."""
GUESSES = (0.01, 0.1, 0.5)
"""What somebody thinks likely before, in the examples."""

# ----------------------------------------------------------------------------------------------------------------------
# The budget as what it does to a guess.


@dataclass(frozen=True)
class Odds:
    """By which factor the odds of a guess may change, but for a chance `delta`."""

    epsilon: float
    delta: str | None

    @property
    def factor(self) -> float:
        return math.exp(min(self.epsilon, 700.0))

    @property
    def promises_little(self) -> bool:
        return self.epsilon > LARGE_EPSILON

    def highest(self, guess: float) -> float:
        return self.factor * guess / (self.factor * guess + 1 - guess)

    def lowest(self, guess: float) -> float:
        return guess / (guess + self.factor * (1 - guess))

    def in_words(self) -> str:
        return f"{self.factor:,.0f}" if self.factor >= 100 else f"{self.factor:.3g}"


def odds(privacy: PrivacyStatement, *, steps: int = 1) -> Odds | None:
    """The odds between neighbours, or those who are `steps` neighbours apart; None where the budget is not known.

    With s steps ε becomes s·ε, δ becomes δ·(1 + e^ε + ... + e^((s−1)ε)), and ρ becomes s²·ρ, of which
    ε = ρ + 2·√(ρ·ln(1/δ)) follows for any δ (Bun and Steinke 2016).
    """
    spent = privacy.spent
    if spent is None:
        return None
    failing = float(spent.get("failure_delta", 0))
    if "rho" in spent:
        rho = float(spent["rho"]) * steps**2
        return Odds(rho + 2 * math.sqrt(rho * math.log(1 / SMALL_DELTA)), f"{SMALL_DELTA + steps * failing:g}")
    epsilon = float(spent["epsilon"])
    if "delta" not in spent or steps == 1:
        return Odds(steps * epsilon, spent.get("delta"))
    slack = float(spent["delta"]) * sum(math.exp(min(step * epsilon, 700.0)) for step in range(steps))
    return Odds(steps * epsilon, f"{min(slack, 1.0):.3g}")


def unit_in_words(privacy: PrivacyStatement, say: Texts) -> str:
    return say("privacy.row") if privacy.unit == "row" else say("privacy.unit", unit=privacy.unit)


def budget_in_words(privacy: PrivacyStatement, say: Texts) -> list[str]:
    """What the budget means for one protected unit, in odds."""
    spent, found = privacy.spent, odds(privacy)
    if spent is None or found is None:
        return [say("privacy.no_budget")]
    what = say(
        "privacy.presence" if privacy.neighbours == "add-remove" else "privacy.values",
        unit=say("privacy.row_short" if privacy.unit == "row" else "privacy.unit_short"),
    )
    if "rho" in spent:
        start = say("privacy.rho", rho=spent["rho"], epsilon=f"{found.epsilon:.3g}", delta=found.delta or "")
    elif "delta" in spent:
        start = say("privacy.epsilon_delta", epsilon=spent["epsilon"], delta=spent["delta"])
    else:
        start = say("privacy.epsilon", epsilon=spent["epsilon"])
    if found.promises_little:
        return [f"{start} {say('privacy.promises_little', what=what)}"]
    except_for = say("privacy.except_for", delta=found.delta) if found.delta else ""
    high = {"highest": percent_text(found.highest(0.5)), "lowest": percent_text(found.lowest(0.5))}
    return [f"{start} {say('privacy.odds', what=what, factor=found.in_words(), except_for=except_for, **high)}"]


def percent_text(share: float) -> str:
    return f"{100 * share:.3g} %"


def protected(privacy: PrivacyStatement, say: Texts) -> str:
    """What the promise is about."""
    change = say("privacy.present" if privacy.neighbours == "add-remove" else "privacy.other_values")
    unit = unit_in_words(privacy, say)
    return say("privacy.protected", unit=unit, change=change, neighbours=privacy.neighbours)


def protection(known: ReportFacts) -> Markup:
    """What is protected and what is not."""
    privacy, say = known.estimate.measurements.privacy, known.say
    outside: Content = None
    if privacy.public_facts:
        outside = paragraphs(say("privacy.public_facts", facts="; ".join(privacy.public_facts)), class_="warning")
    limits = [say(f"limits.{name}") for name in ("many", "several", "groups", "domain", "dropped")]
    technical = [element("p", line) for line in privacy.describe().splitlines()]
    return join(
        None if known.estimate.private else paragraphs(say("nothing_protected"), class_="warning"),
        paragraphs(protected(privacy, say), *budget_in_words(privacy, say)),
        outside,
        bullets(list(limits)),
        folded(say("privacy.technical"), *technical),
    )


# ----------------------------------------------------------------------------------------------------------------------
# What somebody could learn, with numbers of this release.


def attacker(known: ReportFacts) -> Markup:
    """Guesses about one person before and after, and what is a statistic and no leak."""
    privacy, say = known.estimate.measurements.privacy, known.say
    presence = odds(privacy)
    if presence is None:
        return paragraphs(say("privacy.no_budget"))
    adds = privacy.neighbours == "add-remove"
    values = odds(privacy, steps=2) if adds else presence
    parts = [paragraphs(say("attacker.lead"))]
    if not known.estimate.private:
        parts.insert(0, paragraphs(say("nothing_protected"), class_="warning"))
    kinds = [(say("attacker.in_the_table"), presence)] if adds else []
    kinds += [(say("attacker.value"), values)] if values is not None else []
    rows: list[list[Content]] = []
    for name, found in kinds:
        for guess in GUESSES:
            ends = percent_text(found.lowest(guess)), percent_text(found.highest(guess))
            rows.append([name, percent_text(guess), say("tables.between", low=ends[0], high=ends[1])])
    header = [say("attacker.column_guess"), say("attacker.column_before"), say("attacker.column_after")]
    parts.append(table(say("attacker.caption"), header, rows, numeric=2))
    example = _example(known)
    if example is not None and values is not None:
        margin, most, share = example
        told = {"heading": margin.heading, "label": margin.labels[most], "share": percent_text(round(share, 3))}
        parts.append(paragraphs(say("attacker.statistic", **told)))
        after = {"highest": percent_text(values.highest(share)), "lowest": percent_text(values.lowest(share))}
        parts.append(paragraphs(say("attacker.own", **told, **after)))
    if (small := _small_count(known)) is not None:
        margin, place = small
        bars = margin.interval
        told = {"heading": margin.heading, "label": margin.labels[place], "n": count(float(margin.estimates[place]))}
        if bars is not None:
            told |= {"low": count(float(bars.low[place])), "high": count(float(bars.high[place]))}
            parts.append(paragraphs(say("attacker.small", **told)))
    except_for = {each.delta for _, each in kinds if each.delta}
    if except_for:
        parts.append(paragraphs(say("attacker.delta", delta=" / ".join(sorted(except_for))), class_="soft"))
    return join(*parts)


def _example(known: ReportFacts) -> tuple[Margin, int, float] | None:
    """The most frequent value of the first attribute with few values that was measured, and its share."""
    for margin in sorted(known.margins, key=lambda each: each.kind != "categorical"):
        if margin.basis.measured.all() and 2 <= len(margin.labels) <= 30:
            whole, most = float(margin.estimates.sum()), int(margin.estimates.argmax())
            if whole > 0:
                return margin, most, min(max(float(margin.estimates[most]) / whole, 0.001), 0.999)
    return None


def _small_count(known: ReportFacts) -> tuple[Margin, int] | None:
    """The smallest measured count of one attribute with an interval that leaves open how many there are."""
    found = [
        (float(margin.estimates[i]), number, i)
        for number, margin in enumerate(known.margins)
        if margin.interval is not None
        for i in range(len(margin.labels))
        if margin.basis.measured[i] and float(margin.interval.high[i] - margin.interval.low[i]) >= 2.0
    ]
    return (known.margins[min(found)[1]], min(found)[2]) if found else None


# ----------------------------------------------------------------------------------------------------------------------
# The self-assessment: a question, the answer, and who gives it.


def assessment(known: ReportFacts) -> Markup:
    """One page: the questions of NIST SP 800-226, answered from the release and by the publisher."""
    say, stated = known.say, known.details.assessment
    rows: list[list[Content]] = [
        [say(f"assessment.{name}"), answer, say("assessment.from_release")] for name, answer in _from_release(known)
    ]
    for name in ("custodian", "access", "collection", "side_channels", "auxiliary", "other_releases"):
        said = stated.get(name)
        general = say(f"assessment.{name}_general")
        answer = say("assessment.not_stated", general=general) if said is None else f"{said} {general}"
        by = say("assessment.from_nobody" if said is None else "assessment.from_publisher")
        rows.append([say(f"assessment.{name}"), answer, by])
    header = [say("assessment.column_question"), say("assessment.column_answer"), say("assessment.column_from")]
    return join(
        None if known.estimate.private else paragraphs(say("nothing_protected"), class_="warning"),
        paragraphs(say("assessment.lead")),
        table(say("assessment.caption"), header, rows),
    )


def _from_release(known: ReportFacts) -> list[tuple[str, str]]:
    say, measured = known.say, known.estimate.measurements
    privacy, noise = measured.privacy, known.diagnosis.noise
    tables = len(noisy_tables(known.estimate)) + len(measured.sums)
    seen = "assessment.seen_elsewhere" if noise.as_drawn is None else "assessment.seen_answer"
    answers = [
        ("unit", say("assessment.unit_answer", unit=unit_in_words(privacy, say))),
        ("epsilon", " ".join(budget_in_words(privacy, say))),
        ("neighbours", say(f"assessment.{privacy.neighbours.replace('-', '_')}")),
        ("seen", say(seen, n=tables)),
    ]
    drawn = "simulated" if not known.estimate.private else "drawn_here" if noise.as_drawn else "drawn_elsewhere"
    answers.append(("correct", say(f"assessment.{drawn}")))
    choices = sum(each.kind == "selections" for each in measured)
    looked = say("assessment.choices_answer", n=choices) if choices else say("assessment.no_choices")
    answers.append(("choices", looked))
    merged = measured.provenance.get("merged")
    if isinstance(merged, list):
        together = say("assessment.merged", n=len(merged))
    else:
        together = say("assessment.ledger" if measured.provenance.get("ledger") else "assessment.no_ledger")
    answers.append(("composition", together))
    if privacy.public_facts:
        answers.append(("facts", say("privacy.public_facts", facts="; ".join(privacy.public_facts))))
    else:
        answers.append(("facts", say("assessment.no_facts")))
    answers.append(("bias", say("assessment.bias_answer")))
    return answers
