"""Measurements that are sums over records: they say what they are, and pass for no answer to a query of cells."""

from pathlib import Path

import numpy as np
import pytest

from consilience.domain import Attribute, Domain, Query
from consilience.errors import MeasurementError
from consilience.measurements import DiscreteGaussian, DiscreteLaplace, Laplace, Measurement, MeasurementSet

DOMAIN = Domain("plane", (Attribute.continuous("x", (0, 1)),))
STATISTIC = {"algorithm": "k-means", "part": "sums", "attributes": ["x"], "centroids": [[0.1], [1 / 3], [-0.5]]}


def sums(**changes) -> Measurement:
    fields = {
        "query": Query(()),
        "values": [1.5, -2.0, 2.0**-20],
        "noise": DiscreteLaplace(4.0, 2.0**-20),
        "kind": "record-sums",
        "round": 3,
        "extra": {"statistic": STATISTIC},
    }
    return Measurement(**(fields | changes))


def test_they_have_as_many_values_as_their_statistic_and_fit_any_domain():
    assert len(MeasurementSet(DOMAIN, (sums(), sums(values=[1.0])))) == 2
    assert sums().statistic == STATISTIC
    assert sums().name == "'k-means sums'"
    assert sums().describe().startswith("k-means sums: 3 values with")
    assert sums().describe().endswith("in round 3")


def test_they_are_saved_and_loaded_digit_for_digit(tmp_path: Path):
    measured = MeasurementSet(DOMAIN, (sums(id="a"), sums(id="b", noise=DiscreteGaussian(1.0 / 3), round=None)))
    measured.save(tmp_path / "m.parquet")
    again = MeasurementSet.load(tmp_path / "m.parquet")
    assert again.measurements == measured.measurements
    assert again.measurements[0].extra["statistic"]["centroids"][1] == [1 / 3]
    assert np.array_equal(again.measurements[0].values, sums().values)


def test_without_a_statistic_they_are_refused():
    for extra in ({}, {"statistic": {}}, {"statistic": "k-means"}, {"other": 1}):
        with pytest.raises(MeasurementError, match="does not say of what"):
            sums(extra=extra)


def test_with_a_query_of_cells_they_are_refused():
    with pytest.raises(MeasurementError, match="no query of cells"):
        sums(query=Query.marginal("x"))


def test_they_answer_no_query_of_cells():
    with pytest.raises(MeasurementError, match="estimator of that algorithm"):
        sums().bind(DOMAIN)


def test_a_linear_measurement_has_no_statistic_whatever_its_extra_says():
    found = Measurement(Query(()), [1.0], noise=Laplace(1.0), extra={"statistic": STATISTIC})
    assert found.statistic is None
    assert found.name == "'total'"


def test_kinds_from_the_future_are_named_and_refused():
    with pytest.raises(MeasurementError, match="record-sum"):
        sums(kind="record-sum")
