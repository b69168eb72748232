"""Answers as tables of other libraries and as pictures: the same numbers, and none where nothing was measured."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import consilience as cs
from consilience.domain import Attribute, Domain, Query
from consilience.errors import DeclarationError, TooLarge
from consilience.measurements import Measurement, MeasurementSet
from consilience.publication import answer_table

HOSTILE = "<script>alert(1)</script>"


def estimate(*, private: bool = True, names: tuple[str, str] = ("age", "sex")) -> cs.Estimate:
    domain = Domain(
        "people",
        (
            Attribute.numeric(names[0], [0, 10, 20, 30]),
            Attribute.categorical(names[1], ["Female", HOSTILE]),
            Attribute.categorical("never", ["Yes", "No"]),
        ),
    )
    noisy = Measurement(Query.marginal(*names), np.array([4.0, 9.0, 12.0, 7.0, 30.0, 31.0]), cs.Laplace(2.0))
    return cs.estimate(MeasurementSet(domain, (noisy,), private=private))


@pytest.fixture(scope="module")
def answers():
    fitted = estimate()
    return answer_table(fitted, "by age, sex", cs.interval(fitted, "by age, sex", 0.9, refits=20))


@pytest.fixture(scope="module")
def unknown():
    return answer_table(estimate(), "by never, sex")


def test_every_form_has_the_numbers_of_the_table(answers) -> None:
    expected = {name: [row[name] for row in answers.rows()] for name in ("estimate", "low", "high", "noisy", "basis")}
    tables = {
        "dict": answers.to_dict(),
        "arrow": answers.to_arrow().to_pydict(),
        "pandas": answers.to_pandas().to_dict("list"),
        "polars": answers.to_polars().to_dict(as_series=False),
        "arrow protocol": pa.table(answers).to_pydict(),
        "polars by protocol": pl.DataFrame(answers).to_dict(as_series=False),
        "interchange": pl.from_dataframe(answers).to_dict(as_series=False),
    }
    for name, found in tables.items():
        assert list(found) == list(answers.header), name
        assert {key: list(found[key]) for key in expected} == expected, name
        assert list(zip(found["age"], found["sex"], strict=True)) == list(answers.labels), name


def test_what_was_not_measured_is_missing_in_every_form(unknown) -> None:
    assert unknown.to_dict()["estimate"] == [None] * 4
    assert unknown.to_arrow().column("estimate").null_count == 4
    assert unknown.to_pandas()["estimate"].isna().all()
    assert unknown.to_polars()["estimate"].null_count() == 4
    assert set(unknown.to_dict()["basis"]) == {"not measured"}
    assert "4 not measured" in unknown.describe()
    assert json.loads(unknown.plot().to_json())["data"]["values"] == []
    assert [row[2] for row in unknown.described().rows] == ["–"] * 4


def test_types_are_numbers_where_there_are_numbers(answers, unknown) -> None:
    assert {str(answers.to_arrow().schema.field(name).type) for name in ("estimate", "low", "noisy")} == {"double"}
    assert str(unknown.to_arrow().schema.field("estimate").type) == "double"
    whole = cs.answer(estimate(), "by sex", integers=True)
    assert str(whole.to_arrow().schema.field("estimate").type) == "int64"
    assert isinstance(answers.to_pandas(), pd.DataFrame)


def test_dates_are_texts() -> None:
    domain = Domain("stays", (cs.Date.between("day", "2024-01-01", "2024-01-04", "day"),))
    noisy = MeasurementSet.from_marginals(domain, {"day": [5.0, 90.0, 5.0, 2.0]}, noise=cs.Laplace(1.0))
    table = answer_table(cs.estimate(noisy), "median(day)")
    assert str(table.to_arrow().schema.field("estimate").type) == "string"
    with pytest.raises(DeclarationError, match="dates"):
        table.plot()


def test_simulated_noise_is_said_in_every_form() -> None:
    table = answer_table(estimate(private=False), "by sex")
    assert table.to_arrow().column_names[0] == "NOT PRIVATE"
    assert next(iter(table.to_pandas().columns)) == "NOT PRIVATE"
    assert "NOT PRIVATE" in table._repr_html_()
    assert "NOT PRIVATE" in table.describe()
    assert "NOT PRIVATE" in table.plot().to_json()


def test_an_attribute_that_is_called_as_our_columns_stays_apart() -> None:
    table = answer_table(estimate(names=("estimate", "basis")), "by estimate, basis")
    found = table.to_dict()
    assert list(found) == ["estimate (attribute)", "basis (attribute)", "estimate", "noisy", "basis"]
    assert found["basis (attribute)"][0] == "Female"
    assert found["basis"][0] == "measured"


def test_a_picture_has_a_mark_for_every_answer_and_its_interval(answers) -> None:
    drawn = json.loads(answers.plot().to_json())
    values = drawn["data"]["values"]
    assert [each["estimate"] for each in values] == [row["estimate"] for row in answers.rows()]
    assert [(each["low"], each["high"]) for each in values] == [(row["low"], row["high"]) for row in answers.rows()]
    assert len(drawn["layer"]) == 2
    bars = json.loads(answer_table(estimate(), "by sex").plot().to_json())
    assert bars["mark"]["type"] == "bar"


def test_a_picture_of_too_many_answers_is_refused() -> None:
    domain = Domain.from_sizes({"a": 61})
    noisy = MeasurementSet.from_marginals(domain, {"a": np.arange(61.0)}, noise=cs.Laplace(1.0))
    with pytest.raises(TooLarge, match="61 answers"):
        answer_table(cs.estimate(noisy), "by a").plot()


def objects(tmp_path) -> list[object]:
    fitted = estimate()
    bundle = cs.write_bundle(fitted, tmp_path / "release")
    return [
        fitted.domain,
        fitted.measurements,
        fitted,
        cs.interval(fitted, "by sex", refits=20),
        cs.open_release(bundle),
        cs.Ledger.open(tmp_path / "people.ledger", dataset="people", epsilon=1),
        answer_table(fitted, "by age, sex"),
    ]


def test_objects_show_themselves_escaped_and_without_scripts(tmp_path) -> None:
    for each in objects(tmp_path):
        page = each._repr_html_()
        assert "<script" not in page, type(each)
        assert page.count("<div>") == page.count("</div>")
    assert "&lt;script&gt;" in estimate().domain._repr_html_()
    assert "<details" in estimate().domain._repr_html_()


def test_objects_say_in_plain_text_what_they_are(tmp_path) -> None:
    domain, measured, fitted, interval, release, ledger, table = (repr(each) for each in objects(tmp_path))
    assert domain.startswith("Domain 'people': 3 attributes, 12 cells")
    assert "1 measurement over" in measured
    assert "laplace noise of scale 2" in measured
    assert "Estimate of 'people' by" in fitted
    assert "never      not measured" in fitted
    assert "95 % intervals of sex" in interval
    assert "Release of 'people'" in release
    assert "no result is more than" in ledger.lower() or "epsilon 1 in all" in ledger
    assert table.startswith("age, sex")


def test_a_cross_table_is_shown_as_it_is_printed() -> None:
    crossed = cs.answer(estimate(), "by age, sex", cross=True, integers=True)
    first, header, *rows = repr(crossed).splitlines()
    assert first == "age, sex (sex across)"
    assert header.split()[0] == "age"
    assert [row.split()[0] for row in rows] == ["0..9", "10..19", "20..29", "Total"]
    assert HOSTILE not in crossed._repr_html_()


def test_a_ledger_that_is_gone_says_so(tmp_path) -> None:
    ledger = cs.Ledger.open(tmp_path / "people.ledger", dataset="people", epsilon=1)
    (tmp_path / "people.ledger").unlink()
    assert "people.ledger" in repr(ledger)


def test_synthetic_codes_need_no_generator() -> None:
    fitted = estimate()
    assert fitted.sample(5).shape == (5, 3)
    assert np.array_equal(fitted.sample(5), fitted.sample(5))


def test_a_number_in_place_of_noise_is_told_what_to_write() -> None:
    domain = Domain.from_sizes({"a": 2})
    with pytest.raises(cs.ConsilienceError, match=r"noise=20\.0 .*write Laplace\(20\.0\).*Gaussian\(20\.0\)"):
        MeasurementSet.from_marginals(domain, {"a": [1.0, 2.0]}, noise=20.0)
    with pytest.raises(cs.ConsilienceError, match=r"write Laplace\(3\)"):
        Measurement(Query.marginal("a"), np.array([1.0, 2.0]), 3)
