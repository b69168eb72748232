"""The sentences of a report that rest on the privacy statement and the settings, for readers who are no experts."""

import math
from collections.abc import Mapping
from typing import Any

from consilience.measurements import PrivacyStatement

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
        epsilon, delta = rho + 2 * math.sqrt(rho * math.log(1 / SMALL_DELTA)), f"{SMALL_DELTA:g}"
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
