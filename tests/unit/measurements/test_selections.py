"""Measurements that are choices among candidates: they say what was chosen from, and pass for no answer to a query."""

from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

from consilience.domain import Domain, Query
from consilience.errors import MeasurementError
from consilience.estimators.choose import choose
from consilience.estimators.table import Table
from consilience.kernels.rng import generator
from consilience.measurements import DiscreteLaplace, Gumbel, Laplace, Measurement, MeasurementSet, noise_law

DOMAIN = Domain.from_sizes({"a": 2, "b": 3}, name="tiny")
SELECTION = {"algorithm": "dual-query", "part": "draws", "found": [[0, 1], [1, 2]]}


def choices(**changes) -> Measurement:
    fields = {
        "query": Query(()),
        "values": [3.0, 0.0, 7.0],
        "noise": Gumbel(5.5),
        "kind": "selections",
        "extra": {"selection": SELECTION},
    }
    return Measurement(**(fields | changes))


def test_they_are_named_by_their_algorithm_and_have_any_number_of_values() -> None:
    assert len(MeasurementSet(DOMAIN, (choices(), choices(values=[1.0])))) == 2
    assert choices().selection == SELECTION
    assert choices().statistic is None
    assert choices().describe() == "dual-query draws: 3 values with gumbel noise of scale 5.5"
    assert choices(extra={"selection": {"x": 1}}).asks == "choices among candidates"


def test_they_are_saved_and_loaded_digit_for_digit(tmp_path: Path) -> None:
    measured = MeasurementSet(DOMAIN, (choices(id="a", noise=Gumbel(1 / 3)), choices(id="b", round=4)))
    measured.save(tmp_path / "m.parquet")
    again = MeasurementSet.load(tmp_path / "m.parquet")
    assert again.measurements == measured.measurements
    assert again.measurements[0].noise == Gumbel(1 / 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": {}}, "does not say of what"),
        ({"extra": {"statistic": SELECTION}}, "does not say of what"),
        ({"query": Query.marginal("a")}, "no query of cells"),
        ({"noise": Laplace(1.0)}, "gumbel"),
        ({"values": [0.5]}, "whole number"),
        ({"values": [-1.0]}, "whole number"),
        ({"values": [1.0, np.nan]}, "NaN"),
        ({"clipped": True}, "neither clipped"),
        ({"threshold": 0.0}, "neither clipped"),
        ({"kind": "linear", "values": [1.0]}, "gumbel"),
        ({"kind": "record-sums", "extra": {"statistic": SELECTION}}, "gumbel"),
        ({"kind": "selection"}, "selections"),
    ],
)
def test_what_is_no_selection_is_refused(changes, message) -> None:
    with pytest.raises(MeasurementError, match=message):
        choices(**changes)


def test_they_answer_no_query_of_cells_and_estimators_of_cells_refuse_them() -> None:
    with pytest.raises(MeasurementError, match="estimator of that algorithm"):
        choices().bind(DOMAIN)
    marginal = Measurement(Query.marginal("a"), [3.0, 4.0], DiscreteLaplace(1.0))
    measured = MeasurementSet(DOMAIN, (marginal, choices()))
    for refuse in (choose, Table().suitability):
        with pytest.raises(MeasurementError, match=r"selections|run of DualQuery"):
            refuse(measured)


def test_the_gumbel_law_is_that_of_its_density_and_of_its_draws() -> None:
    law = Gumbel(2.5)
    assert noise_law("gumbel", 2.5) == law
    for x in (-3.0, 0.0, 4.0):
        assert law.cdf(x) == pytest.approx(quad(lambda r: np.exp(law.log_density(r)), -40, x)[0], abs=1e-7)
        assert law.quantile(law.cdf(x)) == pytest.approx(x)
    assert law.quantile([0.0, 1.0]).tolist() == [-np.inf, np.inf]
    drawn = law.simulate(200_000, generator(0))
    assert drawn.var() == pytest.approx(law.variance, rel=0.02)
    assert np.mean(drawn <= 1.0) == pytest.approx(float(law.cdf(1.0)), abs=0.005)
    assert law.cdf([-1e9, 1e9]).tolist() == [0.0, 1.0]
    with pytest.raises(MeasurementError):
        Gumbel(0.0)


def test_the_greatest_of_scores_with_gumbel_noise_is_the_exponential_mechanism() -> None:
    scores, law = np.array([0.0, 2.0, 3.0]), Gumbel(1.5)
    drawn = np.argmax(scores + law.simulate((100_000, 3), generator(1)), axis=1)
    weights = np.exp(scores / 1.5)
    assert np.bincount(drawn) / 100_000 == pytest.approx(weights / weights.sum(), abs=0.006)
