"""Plans as people type them."""

import pytest

from consilience.domain import Query, Workload
from consilience.errors import DeclarationError
from consilience.plans import (
    Dawa,
    DawaAsPublished,
    Direct,
    Efpa,
    EfpaAsPublished,
    Flat,
    Histogram,
    KMeans,
    LowRank,
    LowRankAsPublished,
    Marginals,
    MatrixMechanism,
    Mwem,
    Php,
    PhpAsPublished,
    Queries,
    Wavelet,
    plan_from_text,
)
from consilience.privacy.measure import Plan


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("flat", Flat()),
        ("2-way", Direct(ways=2)),
        ("  3-way ", Direct(ways=3)),
        ("marginals age,sex; income", Marginals([("age", "sex"), ("income",)])),
        ("marginals hours per week, sex", Marginals([("hours per week", "sex")])),
        ("queries home==work by sex; prefix(age)", Queries(Workload.of(["home==work by sex", "prefix(age)"]))),
        ("queries name='a;b' ;; by \"x;y\";", Queries(Workload.of(["name='a;b'", 'by "x;y"']))),
        ("histogram age", Histogram("age")),
        ("histogram age 16", Histogram("age", branching=16)),
        ("histogram hours per week 4 geometric", Histogram("hours per week", branching=4, level_budgets="geometric")),
        ("wavelet", Wavelet()),
        ("wavelet age, hours per week", Wavelet(["age", "hours per week"])),
        ("efpa age", Efpa("age")),
        ("php hours per week", Php("hours per week")),
        ("dawa age", Dawa("age")),
        ("efpa-published hours per week", EfpaAsPublished("hours per week")),
        ("php-published age", PhpAsPublished("age")),
        ("dawa-published age", DawaAsPublished("age")),
        ("matrix age", MatrixMechanism("ranges", "age")),
        ("matrix age prefix eigen", MatrixMechanism("prefix", "age", "eigen")),
        ("low-rank hours per week identity", LowRank("identity", "hours per week")),
        ("low-rank-published age prefix", LowRankAsPublished("prefix", "age")),
        ("mwem age,sex; income", Mwem(Workload.of([Query.marginal("age", "sex"), Query.marginal("income")]))),
        ("k-means 5", KMeans(5)),
        ("k-means 3 x, hours per week", KMeans(3, ["x", "hours per week"])),
    ],
)
def test_texts_name_plans(text: str, plan: Plan) -> None:
    assert plan_from_text(text).to_json() == plan.to_json()


def test_plans_of_one_attribute_take_a_workload() -> None:
    asked = Workload.of(["prefix(age)"])
    for text, plan in (
        ("dawa age", Dawa("age", workload=asked)),
        ("histogram age", Histogram("age", workload=asked)),
    ):
        assert plan_from_text(text, asked).to_json() == plan.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "everything",
        "2 way",
        "marginals",
        "marginals ;",
        "histogram",
        "flat 2",
        "dawa",
        "mwem",
        "k-means",
        "k-means x",
    ],
)
def test_other_texts_are_refused_with_examples(text: str) -> None:
    with pytest.raises(DeclarationError, match=r"such as|examples"):
        plan_from_text(text)


@pytest.mark.parametrize(("text", "meant"), [("2way", "2-way"), ("3 way", "3-way"), ("histgram age", "histogram")])
def test_what_may_have_been_meant_is_suggested(text: str, meant: str) -> None:
    with pytest.raises(DeclarationError, match=f"did you mean '{meant}'"):
        plan_from_text(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mwem", "such as 'mwem age,sex; income', or give a workload"),
        ("dual-query", "such as 'dual-query age,sex; income', or give a workload"),
        ("histogram", "such as 'histogram age'$"),
        ("k-means", "such as 'k-means 5 x,y'$"),
    ],
)
def test_a_plan_without_what_it_is_about_says_what_is_missing(text, said):
    with pytest.raises(DeclarationError, match=said):
        plan_from_text(text)
