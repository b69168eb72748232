"""Plans as people type them on the command line: `2-way`, `flat`, `marginals age,sex; income`, `histogram age 16`."""

import re

from consilience.errors import DeclarationError
from consilience.plans.histogram import Histogram
from consilience.plans.marginals import Direct, Flat, Marginals
from consilience.privacy.measure import Plan

EXAMPLES = ("flat", "2-way", "marginals age,sex; income", "histogram age", "histogram age 16 geometric")


def plan_from_text(text: str) -> Plan:
    """The plan that a text names.

    >>> plan_from_text("2-way")
    Direct(ways=2)
    >>> plan_from_text("marginals age,sex; income").to_json()["marginals"]
    [['age', 'sex'], ['income']]
    """
    words = text.strip().split(maxsplit=1)
    name = words[0].lower() if words else ""
    rest = words[1] if len(words) > 1 else ""
    ways = re.fullmatch(r"(\d+)-way", name)
    if name == "flat" and not rest:
        return Flat()
    if ways and not rest:
        return Direct(ways=int(ways.group(1)))
    if name == "marginals" and rest:
        sets = [tuple(part.strip() for part in each.split(",")) for each in rest.split(";")]
        return Marginals([names for names in sets if names != ("",)])
    if name == "histogram" and rest:
        return _histogram(rest)
    raise DeclarationError(f"the plan {text!r} is not known; examples: {', '.join(repr(each) for each in EXAMPLES)}")


def _histogram(text: str) -> Histogram:
    """`ATTRIBUTE [BRANCHING] [uniform|geometric]`; the attribute may hold spaces."""
    words = text.split()
    budgets = "uniform"
    if len(words) > 1 and words[-1] in ("uniform", "geometric"):
        budgets = "geometric" if words.pop() == "geometric" else "uniform"
    branching = int(words.pop()) if len(words) > 1 and words[-1].isdigit() else None
    return Histogram(" ".join(words), branching=branching, level_budgets=budgets)
