"""Sums of amounts beside counts: what a workload asks, what is spent, and what is told."""

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience import plans, release
from consilience.domain import Attribute, Domain, Query, Workload
from consilience.errors import DeclarationError, MeasurementError
from consilience.measurements import MeasurementSet
from consilience.measuring import measure, price
from consilience.plans.sums import WithSums, counts_and_sums
from consilience.request import Request
from consilience.source import open_table

DOMAIN = Domain(
    "people",
    (
        Attribute.categorical("sex", ["F", "M"]),
        Attribute.categorical("place", ["a", "b", "c"]),
        Attribute.numeric("pay", [0, 10, 100, 1000], amount=(0, 800)),
        Attribute.numeric("rent", [0, 10, 100], missing="unknown", amount=True),
        Attribute.numeric("age", [0, 50, 100]),
    ),
)


def people(rows: int = 400) -> pa.Table:
    rng = np.random.default_rng(0)
    pay = np.exp(rng.normal(4.0, 1.5, rows))
    rent = pa.array(np.where(rng.random(rows) < 0.2, np.nan, 100 * rng.random(rows)), from_pandas=True)
    labels = {"sex": rng.choice(["F", "M"], rows), "place": rng.choice(["a", "b", "c"], rows)}
    return pa.table({**labels, "pay": pay, "rent": rent, "age": rng.integers(0, 100, rows)})


def test_a_workload_is_told_apart_into_counts_and_the_largest_sets_of_sums() -> None:
    asked = ["mean(pay) by sex", "mean(pay) by place, sex", "sum(rent)", "mean(rent) by sex", "mean(age) by sex"]
    counts, sums = counts_and_sums(Workload.of(asked), DOMAIN)
    assert sums == (("pay", (("place", "sex"),)), ("rent", (("sex",),)))
    assert [query.describe() for query in counts.queries] == [
        "sex",
        "place, sex",
        "rent=.. by sex",  # not everybody has one
        "sum(age), sex",  # no amount is declared
        "age=.. by sex",
    ]
    only, sums = counts_and_sums(Workload.of(["sum(pay) by place"]), DOMAIN)
    assert [query.describe() for query in only.queries] == ["place"]
    plain = Workload.of(["by sex"])
    assert counts_and_sums(plain, DOMAIN) == (plain, ())


@pytest.mark.parametrize("amounts", [{"epsilon": 1.0}, {"rho": 0.3}, {"epsilon": 1.0, "delta": 1e-6}])
def test_the_steps_add_up_to_the_budget(amounts: dict[str, float]) -> None:
    plan = WithSums(plans.Direct(ways=1), (("pay", (("sex",), ("place",))), ("rent", ((),))), share=0.4)
    priced = price(DOMAIN, plan, **amounts)
    spent = [float(each.budget.amount) for each in priced.prices]
    assert sum(spent) == pytest.approx(float(priced.budget.amount), rel=1e-12)
    assert spent[0] == pytest.approx(2 * spent[1]) == pytest.approx(0.4 * 2 / 3 * float(priced.budget.amount))


def test_plans_are_typed() -> None:
    alone = plans.plan_from_text("sums pay by sex; rent")
    assert alone.to_json() == {
        "plan": "marginals",
        "marginals": [["sex"], []],
        "sums": {"of": [["pay", [["sex"]]], ["rent", [[]]]], "share": 0.5},
    }
    assert plans.plan_from_text("2-way with sums pay by sex, place").ways == 2
    for wrong in ("sums pay by prefix(age)", "sums pay by sex=F"):
        with pytest.raises(DeclarationError, match=r"by attributes|too late"):
            plans.plan_from_text(wrong)
    with pytest.raises(DeclarationError, match="declare amount"):
        price(DOMAIN, plans.plan_from_text("sums age by sex"), epsilon=1)


def test_a_release_measures_what_its_workload_names_unless_told_otherwise() -> None:
    workload = Workload.of(["mean(pay) by sex", "by place"])
    asked = {"data": people(), "domain": DOMAIN, "workload": workload, "epsilon": 1.0, "simulate": 0}
    assert Request(**asked).chosen.to_json()["sums"] == {"of": [["pay", [["sex"]]]], "share": 0.25}
    assert Request(**asked, sums_share=0.5).chosen.share == 0.5
    assert "sums" not in Request(**asked, sums_share=0).chosen.to_json()
    assert Request(**asked, plan="independent").chosen.to_json()["sums"]["share"] == 0.25
    assert "clipped to its declared bounds" in Request(**asked).priced.notes[0]


def test_sums_are_those_of_the_clipped_numbers_but_for_the_noise(tmp_path: Path) -> None:
    rows = people()
    plan = WithSums(plans.Marginals([()]), (("pay", (("sex",),)), ("rent", ((),))), share=0.9)
    found = measure(open_table(rows, DOMAIN), plan, epsilon=1e6, simulate=1)
    pay, sex = np.clip(rows["pay"].to_numpy(), 0, 800), rows["sex"].to_numpy(zero_copy_only=False)
    np.testing.assert_allclose(found.sums[0].values, [pay[sex == label].sum() for label in "FM"], atol=1.0)
    assert found.sums[1].values[0] == pytest.approx(np.nansum(rows["rent"].to_numpy(zero_copy_only=False)), abs=0.1)
    assert [each.asks for each in found.sums] == ["sum(pay) by sex", "sum(rent)"]
    assert len(found) == 1
    assert "clipped: a record adds 0 to 800" in " ".join(found.privacy.notes)
    found.save(tmp_path / "file.parquet")
    again = MeasurementSet.load(tmp_path / "file.parquet")
    assert again == found
    assert again.as_drawn


def test_sums_between_other_bounds_than_declared_are_refused() -> None:
    found = measure(open_table(people(), DOMAIN), plans.plan_from_text("sums pay by sex"), epsilon=1, simulate=1)
    wider = Domain(
        "people",
        tuple(
            Attribute.numeric("pay", [0, 10, 100, 1000], amount=(0, 900)) if e.name == "pay" else e
            for e in DOMAIN.attributes
        ),
    )
    with pytest.raises(MeasurementError, match="adds between 0 and 800"):
        MeasurementSet(wider, found.sums)


def test_a_release_answers_by_its_sums_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    workload = Workload.of(["mean(pay) by sex, place", "by pay, age"])
    made = release(
        people(), DOMAIN, epsilon=20, simulate=1, workload=workload, out=tmp_path / "r", interval=0.9, refits=20
    )
    by_sex = made.answer("mean(pay) by sex", interval=0.95, refits=40)
    assert set(by_sex.basis.names) == {"measured"}
    assert "clipped to 0 to 800" in by_sex.notes[0]
    truth = np.array(
        [
            np.clip(people()["pay"].to_numpy()[people()["sex"].to_numpy(zero_copy_only=False) == s], 0, 800).mean()
            for s in "FM"
        ]
    )
    assert np.all((by_sex.interval.low < truth * 1.2) & (truth * 0.8 < by_sex.interval.high))
    (whole,) = made.answer("sum(pay)").numbers
    np.testing.assert_allclose(made.answer("sum(pay) by sex").numbers.sum(), whole)
    np.testing.assert_allclose(made.answer("sum(pay) by sex per sum(pay)").numbers.sum(), 1.0)
    assert "middle of its bin" in " ".join(made.answer("mean(pay) by age").notes)
    difference = made.answer("mean(pay) where sex=F minus mean(pay) where sex=M", interval=0.95, refits=20)
    np.testing.assert_allclose(difference.numbers[0], by_sex.numbers[0] - by_sex.numbers[1])
    assert difference.interval.low[0] < difference.numbers[0] < difference.interval.high[0]
    assert (tmp_path / "r" / "tables" / "mean-pay-by-sex-place.csv").exists()
    with pytest.raises(DeclarationError, match="measured as sums"):
        made.answer("sum(pay) by sex", integers=True)
    assert Query.parse("by sex") not in [each.query for each in made.estimate.measurements.sums]
