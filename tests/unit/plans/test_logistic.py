"""Logistic regression in rounds: what it spends, what it keeps, and that no data can make it fail."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain
from consilience.errors import BudgetExceeded, DeclarationError
from consilience.iterates.problems import fit_logistic, next_coefficients, signed_records
from consilience.measuring import measure
from consilience.plans.rounds import Logistic
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

DOMAIN = Domain(
    "clinic",
    (
        Attribute.continuous("age", (0.0, 100.0)),
        Attribute.continuous("dose", (-50.0, 50.0), unlisted="drop"),
        Attribute.continuous("cured", (0.0, 1.0)),
        Attribute.categorical("sex", ["Female", "Male"]),
    ),
)


def clinic(records=3000, seed=0):
    """Patients of whom the young with a high dose are cured."""
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 100, records), rng.uniform(-50, 50, records)
    cured = rng.random(records) < 1 / (1 + np.exp((age - 50) / 20 - dose / 15))
    sex = ["Female"] * records
    return open_table(pa.table({"age": age, "dose": dose, "cured": cured.astype(float), "sex": sex}), DOMAIN)


def followed(measured, plan):
    """The coefficients before each round and after the last, as they follow from what was released."""
    coefficients = np.zeros(3)
    counts, path = [], [coefficients]
    for count, gradient in zip(measured.measurements[::2], measured.measurements[1::2], strict=True):
        counts.append(count.values[0])
        coefficients = next_coefficients(
            coefficients, gradient.values, float(np.mean(counts)), step=plan.step, radius=plan.radius
        )
        path.append(coefficients)
    return path


def test_every_round_keeps_the_coefficients_it_asked_with_and_the_next_follow_from_it():
    plan = Logistic("cured", rounds=6, count_share=0.25)
    measured = measure(clinic(), plan, epsilon=1.0, simulate=0)
    assert [each.round for each in measured] == [t for t in range(1, 7) for _ in range(2)]
    assert [each.extra["statistic"]["part"] for each in measured] == ["count", "gradient"] * 6
    path = followed(measured, plan)
    for t, each in enumerate(measured):
        np.testing.assert_array_equal(each.extra["statistic"]["coefficients"], path[t // 2])
        moved, share = (1.0, 0.25) if t % 2 == 0 else (1.5, 0.75)
        assert each.noise.scale_parameter == pytest.approx(moved / (1 / 6 * share))


@pytest.mark.slow
@pytest.mark.parametrize("region", ["box", "ball"])
def test_the_fit_is_found_where_the_budget_and_the_rounds_are_ample(region):
    plan = Logistic("cured", rounds=400, region=region, clip=1.0, step=4.0, radius=30.0)
    last = followed(measure(clinic(), plan, epsilon=1e6, simulate=1), plan)[-1]
    assert last[0] < -1
    assert last[1] > 1
    if region == "box":
        table = clinic().exact_points(("age", "dose", "cured"))
        signed = signed_records(np.column_stack([table[:, 0] / 50 - 1, table[:, 1] / 50]), 2 * table[:, 2] - 1)
        np.testing.assert_allclose(last, fit_logistic(signed, ridge=1e-9).coefficients, atol=0.05)


@pytest.mark.parametrize("amounts", [{"epsilon": 0.7}, {"rho": 0.05}, {"epsilon": 1.0, "delta": 1e-6}])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("region", ["box", "ball"])
def test_the_total_of_a_run_follows_from_its_measurements_and_the_ledger(tmp_path: Path, amounts, neighbours, region):
    ledger = Ledger.create(tmp_path / "l", dataset="clinic", total=budget(**amounts))
    plan = Logistic("cured", rounds=7, count_share=0.3, region=region, clip=0.5)
    measured = measure(clinic(200), plan, ledger=ledger, neighbours=neighbours, **amounts)
    whole = float(budget(**amounts).amount)
    # What one record can move, written down anew: the count by 1, and half the longest gradient of the region.
    pure = "rho" not in amounts and "delta" not in amounts
    longest = {("box", True): 3.0, ("ball", True): 2.0, ("box", False): math.sqrt(3), ("ball", False): math.sqrt(2)}
    gradient = longest[region, pure] / 2 * (2 if neighbours == "replace-one" else 1)
    losses = []
    for each in measured:
        moved = 1.0 if each.extra["statistic"]["part"] == "count" else gradient
        losses.append(moved / each.noise.scale if pure else moved**2 / (2 * each.noise.stddev**2))
    assert len(losses) == 14
    assert whole * (1 - 1e-9) <= math.fsum(losses) <= whole
    assert ledger.remaining == 0
    with pytest.raises(BudgetExceeded):
        measure(clinic(200), plan, ledger=ledger, neighbours=neighbours, **amounts, id="again")


def test_a_repeated_request_is_answered_from_the_ledger_uncharged(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", dataset="clinic", total=budget(epsilon=1.0))
    first = measure(clinic(200), Logistic("cured"), ledger=ledger, epsilon=1.0, id="once")
    again = measure(clinic(200), Logistic("cured"), ledger=ledger, epsilon=1.0, id="once")
    for before, after in zip(first, again, strict=True):
        np.testing.assert_array_equal(before.values, after.values)


def test_a_dry_run_prices_all_rounds_without_data():
    found = measure(DOMAIN, Logistic("cured", rounds=4), epsilon=1.0, dry_run=True)
    assert found.answers == 4 * (1 + 3)
    assert any("4 rounds" in note for note in found.notes)


cells = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([0.0, 0.5, 1.0, 100.0, -50.0]))


@given(st.lists(st.tuples(cells, cells, cells), max_size=5), st.integers(0, 100))
@settings(deadline=None, max_examples=30)
def test_no_records_make_a_run_fail(rows, seed):
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    table = pa.table(
        dict(zip(("age", "dose", "cured"), columns, strict=True)) | {"sex": pa.array(["Male"] * len(rows))}
    )
    measured = measure(open_table(table, DOMAIN), Logistic("cured", rounds=3), epsilon=0.5, simulate=seed)
    assert len(measured) == 6
    plan = Logistic("cured", rounds=3)
    assert all(np.linalg.norm(each) <= plan.radius * (1 + 1e-12) for each in followed(measured, plan))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"label": 3}, "name one attribute"),
        ({"attributes": "age"}, "one text"),
        ({"attributes": []}, "one or more"),
        ({"attributes": ["age", "age"]}, "each once"),
        ({"attributes": ["age", "cured"]}, "leave it out"),
        ({"rounds": 0}, "whole number"),
        ({"rounds": True}, "whole number"),
        ({"step": 0}, "step"),
        ({"step": math.inf}, "step"),
        ({"clip": 1.5}, "up to 1"),
        ({"clip": math.nan}, "largest gradient"),
        ({"count_share": 1.0}, "share"),
        ({"radius": -1.0}, "radius"),
        ({"region": "cube"}, "choose one of box"),
    ],
)
def test_what_cannot_be_asked_is_refused_when_the_plan_is_made(arguments, words):
    with pytest.raises(DeclarationError, match=words):
        Logistic(**{"label": "cured", **arguments})


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Logistic("sex"), "categorical"),
        (Logistic("cured", ["age", "sex"]), "categorical"),
        (Logistic("cured", ["weight"]), "weight"),
        (Logistic("sick"), "sick"),
    ],
)
def test_what_the_domain_does_not_declare_is_refused_and_nothing_spent(tmp_path: Path, plan, words):
    ledger = Ledger.create(tmp_path / "l", dataset="clinic", total=budget(epsilon=1.0))
    with pytest.raises(DeclarationError, match=words):
        measure(clinic(10), plan, ledger=ledger, epsilon=1.0)
    assert ledger.remaining == 1


def test_a_label_alone_is_refused():
    lonely = Domain("lonely", (Attribute.continuous("cured", (0.0, 1.0)),))
    with pytest.raises(DeclarationError, match="besides the label"):
        measure(lonely, Logistic("cured"), epsilon=1.0, dry_run=True)


def test_plans_are_told_apart_by_what_they_say_of_themselves():
    plans = [Logistic("cured"), Logistic("cured", rounds=3), Logistic("cured", step=1), Logistic("cured", clip=1)]
    assert len({str(plan.to_json()) for plan in plans}) == 4
    assert Logistic("cured", ["age"]).to_json()["attributes"] == ["age"]
