"""Answer tables: labels, estimates, error bars and notes, in every form alike."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from consilience.domain import Attribute, Domain, Query
from consilience.domain.questions import Question
from consilience.errors import DeclarationError
from consilience.estimators import Estimate, estimate
from consilience.measurements import Laplace, Measurement, MeasurementSet
from consilience.publication import answer_table, cross_table, in_whole_numbers, interval
from consilience.publication.intervals import Interval

DOMAIN = Domain(
    "people",
    (Attribute.numeric("age", [0, 18, 65, 100], missing="Unknown"), Attribute.categorical("sex", ["F", "M"])),
)


@pytest.fixture(scope="module")
def fitted() -> Estimate:
    tables = {("age", "sex"): np.arange(8.0).reshape(4, 2) * 3, "age": [1.0, 15.0, 27.0, 39.0]}
    return estimate(MeasurementSet.from_marginals(DOMAIN, tables, noise=Laplace(1.0)))


def bars(fitted: Estimate, query: str, *, half: float = 2.0, per: str | None = None, covers: str = "measured"):
    """Error bars of a fixed half-width, made by hand."""
    asked, divisor = Query.parse(query), None if per is None else Query.parse(per)
    found = answer_table(fitted, asked, per=divisor).estimates
    return Interval(
        Question(asked, divisor), 0.9, found, found - half, found + half, covers, "refits", 50, ("A note.",)
    )


def test_without_an_interval_a_table_is_what_it_was(fitted) -> None:
    table = answer_table(fitted, "by age")
    assert table.header == ("age", "estimate", "noisy", "basis")
    assert set(next(table.rows())) == {"age", "estimate", "noisy", "basis"}
    assert set(json.loads(table.to_json())) == {"query", "private", "basis", "answers"}


def test_an_interval_adds_low_high_and_a_note(fitted) -> None:
    table = answer_table(fitted, "by age", bars(fitted, "by age"))
    assert table.header == ("age", "estimate", "low", "high", "noisy", "basis", "note")
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [float(row["low"]) for row in rows] == pytest.approx(table.estimates - 2)
    assert [float(row["high"]) for row in rows] == pytest.approx(table.estimates + 2)
    document = json.loads(table.to_json())
    assert (document["level"], document["covers"], document["notes"]) == (0.9, "measured", ["A note."])
    assert document["answers"][3]["high"] == pytest.approx(table.estimates[3] + 2)


def test_answers_with_an_interval_wider_than_themselves_are_noted(fitted) -> None:
    table = answer_table(fitted, "by age", bars(fitted, "by age", half=10.0))
    wide = table.estimates < 20.0
    assert wide.any()
    assert not wide.all()
    assert [bool(row["note"]) for row in table.rows()] == wide.tolist()


@pytest.fixture(scope="module")
def in_parts() -> Estimate:
    """Of d nobody measured anything, of c only how it goes with b."""
    domain = Domain.from_sizes({"a": 2, "b": 2, "c": 2, "d": 2, "e": 2})
    tables = {("a", "b"): [[10.0, 20], [30, 40]], ("b", "c"): [[10.0, 30], [20, 40]], "e": [60.0, 40.0]}
    return estimate(MeasurementSet.from_marginals(domain, tables, noise=Laplace(1.0)))


def test_every_row_says_what_it_stands_on(in_parts) -> None:
    for query, expected in (("by a", "measured"), ("by a, c", "modelled"), ("by d", "not measured")):
        table = answer_table(in_parts, query)
        assert {row["basis"] for row in table.rows()} == {expected}
        assert {row["basis"] for row in csv.DictReader(io.StringIO(table.to_csv()))} == {expected}
        assert json.loads(table.to_json())["basis"] == expected


def test_what_was_not_measured_has_no_number_and_says_why(in_parts) -> None:
    table = answer_table(in_parts, "by a, e", interval(in_parts, "by a, e", refits=20))
    assert np.isnan(table.estimates).all()
    assert np.isnan(table.guesses).all()
    assert all(row[name] is None for row in table.rows() for name in ("estimate", "low", "high"))
    document = json.loads(table.to_json())
    assert document["why"] == "no measurement links 'a' with 'e'"
    assert document["next_time"] == ["by a, e"]
    assert "guess" not in table.header
    assert "no measurement links" in repr(table)
    ratio = answer_table(in_parts, "d=0", per="total")
    assert np.isnan(ratio.estimates).all()


def test_guesses_stand_in_a_column_of_their_own(in_parts) -> None:
    table = answer_table(in_parts, "by d", guess=True)
    assert np.isnan(table.estimates).all()
    assert table.guesses == pytest.approx(in_parts.marginal("d"))
    assert [row["guess"] for row in table.rows()] == pytest.approx(in_parts.marginal("d"))
    assert {row["basis"] for row in table.rows()} == {"not measured"}
    assert np.isnan(answer_table(in_parts, "by a", guess=True).guesses).all()


def test_one_query_may_have_answers_of_several_kinds(in_parts) -> None:
    domain = Domain.from_sizes({"x": 4})
    measured = MeasurementSet(domain, (Measurement(Query.parse("x=0..1"), np.array([7.0]), Laplace(1.0)),))
    table = answer_table(estimate(measured), "ranges(x)")
    assert set(table.basis.names) == {"measured", "modelled", "not measured"}
    assert [row["estimate"] is None for row in table.rows()] == table.basis.not_measured.tolist()


def test_ratios_are_answers_divided_and_show_no_noisy_values(fitted) -> None:
    shares = answer_table(fitted, "by age", per="total")
    assert shares.estimates.sum() == pytest.approx(1.0)
    assert shares.noisy is None
    assert shares.title == "age per total"
    assert json.loads(shares.to_json())["per"] == "total"


def test_a_mean_divides_by_the_records_that_have_a_number(fitted) -> None:
    means = answer_table(fitted, "mean(age) by sex")
    middles, halves = np.array([8.5, 41.0, 82.0]), np.array([8.5, 23.0, 17.0])
    counts = fitted.answer("by age, sex")[:3]  # without Unknown
    assert means.estimates == pytest.approx(middles @ counts / counts.sum(axis=0))
    off = [float(text.removeprefix("bins: ± ")) for text in means.remarks]
    assert off == pytest.approx(halves @ counts / counts.sum(axis=0), rel=5e-3)
    assert means.title == "mean(age) by sex"
    assert means.labels[0] == ("mean of age", "F")
    document = json.loads(means.to_json())
    assert document["query"] == "mean(age) by sex"
    assert "middle of its bin" in document["notes"][0]
    assert "sum(age)" in document["notes"][0]
    assert "bins: ±" in means.to_csv().splitlines()[1]
    sums = answer_table(fitted, "sum(age) by sex")
    assert sums.estimates == pytest.approx(middles @ counts)
    assert sums.notes == ()


def test_open_ended_bins_warn_of_means() -> None:
    closed = Domain("people", (Attribute.numeric("income", [0, 1000, 5000, 9000], unlisted="drop"),))
    kept = estimate(MeasurementSet.from_marginals(closed, {"income": [10.0, 60.0, 30.0]}, noise=Laplace(0.1)))
    assert len(answer_table(kept, "mean(income)").notes) == 1
    domain = Domain("people", (Attribute.numeric("income", [0, 1000, 5000, 9000], unlisted="clip"),))
    clipped = estimate(MeasurementSet.from_marginals(domain, {"income": [10.0, 60.0, 30.0]}, noise=Laplace(0.1)))
    table = answer_table(clipped, "mean(income)")
    (warning,) = [note for note in table.notes if "open-ended" in note]
    assert "Up to 40 % of the records" in warning


def test_a_mean_has_an_interval_and_takes_no_other_divisor(fitted) -> None:
    found = interval(fitted, "mean(age) by sex", refits=20)
    table = answer_table(fitted, "mean(age) by sex", found)
    assert table.estimates == pytest.approx(answer_table(fitted, "mean(age) by sex").estimates)
    assert (found.low <= table.estimates).all()
    assert (found.high >= table.estimates).all()
    for refused in (answer_table, interval):
        with pytest.raises(DeclarationError, match=r"divided by 'age=.. by sex' already.*'sex', too.*sum.age., sex"):
            refused(fitted, "mean(age) by sex", per="by sex")


def test_a_ratio_to_nothing_is_no_number_and_valid_json(fitted) -> None:
    zero = replace(answer_table(fitted, "by sex", per="total"), numbers=np.array([np.nan, 1.0]))
    document = json.loads(zero.to_json(), parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert document["answers"][0]["estimate"] is None


def test_a_ratio_to_another_number_of_answers_is_refused(fitted) -> None:
    with pytest.raises(DeclarationError, match=r"4 answers and 'sex' has 2"):
        answer_table(fitted, "by age", per="by sex")


def test_an_interval_of_another_query_is_refused(fitted) -> None:
    with pytest.raises(DeclarationError, match=r"interval is of 'sex', and the answers are to 'age'"):
        answer_table(fitted, "by age", bars(fitted, "by sex"))
    with pytest.raises(DeclarationError, match="'age per total'"):
        answer_table(fitted, "by age", bars(fitted, "by age", per="total"))


def test_whole_numbers_have_whole_intervals_around_them(fitted) -> None:
    table = answer_table(fitted, "by age", bars(fitted, "by age", half=2.25))
    whole = in_whole_numbers(table, np.rint(table.estimates).astype(np.int64))
    for row, low, high in zip(whole.rows(), table.interval.low, table.interval.high, strict=True):
        assert all(isinstance(row[name], int) for name in ("estimate", "low", "high"))
        assert row["low"] <= low
        assert row["high"] >= high
        assert row["high"] - row["low"] < high - low + 2


def test_an_attribute_may_be_called_like_a_column_of_ours() -> None:
    domain = Domain.from_sizes({"estimate": 2, "low": 2})
    fitted = estimate(
        MeasurementSet.from_marginals(domain, {("estimate", "low"): [[1.0, 2], [3, 4]]}, noise=Laplace(1))
    )
    lines = answer_table(fitted, "by estimate, low").to_csv().splitlines()
    assert lines[0] == "estimate,low,estimate,noisy,basis"
    assert lines[2].startswith("0,1,")


@pytest.mark.parametrize(
    ("query", "adds_up"),
    [
        ("by age, sex", True),
        ("total", True),
        ("age=18..64 by sex", True),
        ("by prefix(age)", False),
        ("by ranges(age), sex", False),
    ],
)
def test_a_table_knows_whether_its_rows_add_up(fitted, query: str, adds_up: bool) -> None:
    assert answer_table(fitted, query).adds_up is adds_up
    assert not answer_table(fitted, query, per="total").adds_up


def test_modelled_answers_of_which_no_error_is_known_have_no_ends(in_parts) -> None:
    found = interval(in_parts, "by a, c", refits=20)
    unknown = replace(found, low=np.full(4, np.nan), high=np.full(4, np.nan))
    table = answer_table(in_parts, "by a, c", unknown)
    assert all(row["low"] is None and row["high"] is None and row["estimate"] > 0 for row in table.rows())
    assert "nan" not in table.to_csv() + cross_table(table).to_csv() + table.to_json()
