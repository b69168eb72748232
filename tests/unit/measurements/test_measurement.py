"""A measurement holds numbers that fit its query, and says so when they do not."""

import pickle

import numpy as np
import pytest

from consilience.domain import Attribute, Domain, Query, factors
from consilience.errors import DeclarationError, MeasurementError
from consilience.measurements import DiscreteLaplace, Exact, Laplace, Measurement

DOMAIN = Domain("town", (Attribute.numeric("age", [0, 18, 65, 100]), Attribute.categorical("sex", ["F", "M"])))
SEX = Query.marginal("sex")
NOISE = Laplace(2.0)


def test_values_are_a_flat_read_only_copy() -> None:
    given = np.arange(6).reshape(3, 2)
    measurement = Measurement(Query.marginal("age", "sex"), given, NOISE)
    given[0, 0] = 99
    np.testing.assert_array_equal(measurement.values, np.arange(6.0))
    assert measurement.values.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        measurement.values[0] = 1.0


def test_a_transposed_array_is_flattened_in_the_order_of_its_axes() -> None:
    table = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).T
    np.testing.assert_array_equal(Measurement(Query.marginal("age", "sex"), table, NOISE).values, [1, 4, 2, 5, 3, 6])


def test_equality_is_by_contents() -> None:
    one = Measurement(SEX, [1.0, 2.0], NOISE, id="a", extra={"levels": (1, 2)})
    assert one == Measurement(SEX, np.array([1.0, 2.0]), NOISE, id="a", extra={"levels": [1, 2]})
    assert hash(one) == hash(pickle.loads(pickle.dumps(one)))
    assert one == pickle.loads(pickle.dumps(one))
    for other in (
        Measurement(SEX, [1.0, 2.5], NOISE, id="a", extra={"levels": [1, 2]}),
        Measurement(SEX, [1.0, 2.0], Laplace(2.1), id="a", extra={"levels": [1, 2]}),
        Measurement(SEX, [1.0, 2.0], NOISE, id="b", extra={"levels": [1, 2]}),
        Measurement(SEX, [1.0, 2.0], NOISE, id="a"),
        Measurement(SEX, [1.0, 2.0], NOISE, id="a", extra={"levels": [1, 2]}, clipped=True),
        Measurement(SEX, [1.0, 2.0], NOISE, id="a", extra={"levels": [1, 2]}, round=0),
        "a",
    ):
        assert one != other


def test_censored_values_are_nan_and_compare_equal() -> None:
    one, other = (
        Measurement(SEX, [12.0, hidden], NOISE, censored=np.array([False, True]), threshold=10.0)
        for hidden in (3.0, np.nan)
    )
    assert np.isnan(one.values[1])
    assert one == other
    assert one != Measurement(SEX, [12.0, 13.0], NOISE, threshold=10.0)


def test_marks_that_mark_nothing_are_none() -> None:
    assert Measurement(SEX, [12.0, 11.0], NOISE, censored=np.zeros(2, dtype=bool), threshold=10).censored is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(MeasurementError, match="'sex' has 1 of 2 values that are NaN or infinite"):
        Measurement(SEX, [1.0, bad], NOISE)


@pytest.mark.parametrize(
    "values", [["1", "2"], [True, False], [1j, 2], [[1], [2, 3]], [object(), 1], np.ma.array([1.0, 2.0], mask=[0, 1])]
)
def test_values_of_other_types_are_refused(values: object) -> None:
    with pytest.raises(MeasurementError, match="'sex'"):
        Measurement(SEX, values, NOISE)


def test_wrong_length_names_both_sides() -> None:
    measurement = Measurement(Query.marginal("age", "sex"), [1.0, 2.0], NOISE, id="m1")
    with pytest.raises(MeasurementError, match=r"'m1' has 2 values.* 6 \(shape 3 × 2\) answers over the domain 'town'"):
        measurement.check(DOMAIN)


def test_a_fitting_measurement_binds() -> None:
    measurement = Measurement(Query.parse("prefix(age)"), [1.0, 2.0, 3.0], NOISE)
    measurement.check(DOMAIN)
    assert measurement.bind(DOMAIN).shape == (3,)


def test_unknown_attributes_are_refused_with_a_suggestion() -> None:
    with pytest.raises(DeclarationError, match="did you mean 'sex'"):
        Measurement(Query.marginal("sexe"), [1.0, 2.0], NOISE).check(DOMAIN)


@pytest.mark.parametrize("factor", [factors.Moments(10**12), factors.Matrix(10**12, ())])
def test_queries_that_claim_absurdly_many_answers_are_refused_before_they_are_built(factor: factors.Factor) -> None:
    with pytest.raises(MeasurementError, match="at least 1000000000000 answers"):
        Measurement(Query.of({"age": factor}), [1.0, 2.0], NOISE).check(DOMAIN)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"kind": "quadratic"}, "kind 'quadratic', which this version does not know; there is: linear"),
        ({"noise": 2.0}, "needs its noise law"),
        ({"id": 7}, "id of a measurement is a text"),
        ({"clipped": 1}, "clipped is True or False"),
        ({"clipped": True}, "called clipped at 0 but has the value -2"),
        ({"round": -1}, "round is a whole number"),
        ({"round": 1.5}, "round is a whole number"),
        ({"round": True}, "round is a whole number"),
        ({"round": 2**40}, "round is a whole number"),
        ({"extra": {"step": 1}}, "'step' may not be a key of extra"),
        ({"extra": {"x": np.float64}}, "cannot be written as JSON"),
        ({"extra": {"x": float("nan")}}, "cannot be written as JSON"),
        ({"extra": "text"}, "must be a mapping"),
        ({"threshold": 0.0}, "released the value -2, below its threshold 0"),
        ({"threshold": float("nan")}, "must be a finite number"),
        ({"censored": np.array([True, False])}, "no threshold"),
        ({"censored": np.array([True]), "threshold": -9.0}, "must be 2 truth values.* found 1"),
        ({"censored": np.array([0, 1]), "threshold": -9.0}, "must be 2 truth values"),
    ],
)
def test_contradictions_are_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(MeasurementError, match=problem):
        Measurement(**({"query": SEX, "values": [5.0, -2.0], "noise": NOISE} | fields))  # type: ignore[arg-type]


def test_description_says_what_a_reader_must_know() -> None:
    marks = np.array([False, True])
    measurement = Measurement(
        SEX, [12.0, 0.0], DiscreteLaplace(3.0), clipped=True, censored=marks, threshold=10, round=2
    )
    assert measurement.describe() == (
        "sex: 2 values with discrete-laplace noise of scale 3, clipped at 0, "
        "released from 10 up (1 were not), in round 2"
    )
    assert Measurement(Query(()), [5.0], Exact()).describe() == "total: 1 value known exactly from outside"
