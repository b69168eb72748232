"""Plans as people type them."""

import pytest

from consilience.errors import DeclarationError
from consilience.plans import Direct, Flat, Histogram, Marginals, plan_from_text


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("flat", Flat()),
        ("2-way", Direct(ways=2)),
        ("  3-way ", Direct(ways=3)),
        ("marginals age,sex; income", Marginals([("age", "sex"), ("income",)])),
        ("marginals hours per week, sex", Marginals([("hours per week", "sex")])),
        ("histogram age", Histogram("age")),
        ("histogram age 16", Histogram("age", branching=16)),
        ("histogram hours per week 4 geometric", Histogram("hours per week", branching=4, level_budgets="geometric")),
    ],
)
def test_texts_name_plans(text: str, plan: object) -> None:
    assert plan_from_text(text) == plan


@pytest.mark.parametrize("text", ["", "everything", "2 way", "marginals", "marginals ;", "histogram", "flat 2"])
def test_other_texts_are_refused_with_examples(text: str) -> None:
    with pytest.raises(DeclarationError, match=r"such as|examples"):
        plan_from_text(text)
