"""The benchmark of logistic regressions: problems as described, and rows that hold what they say."""

import numpy as np
import pytest

from benchmarks.accuracy.iterate_coverage import regression_outcome
from benchmarks.accuracy.regression import judged, last_round, source_of
from benchmarks.problems.labelled_points import PROBLEMS, LabelledPoints, labelled_points
from consilience.estimators.iterates import Iterates
from consilience.iterates.problems import fit_logistic, signed_records
from consilience.measuring import measure
from consilience.plans.rounds import Logistic


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_without_their_files_are_stand_ins_within_bounds(name, monkeypatch):
    monkeypatch.delenv("CONSILIENCE_DATA", raising=False)
    found = labelled_points(name)
    assert ("stand-in" in found.name) == (name != "generated")
    assert np.abs(found.points).max() <= 1
    assert set(np.unique(found.labels)) == {-1.0, 1.0}
    assert len(found.training_rows()) + len(found.held_out()) == len(found.points)
    np.testing.assert_array_equal(found.points, labelled_points(name).points)


def test_held_out_records_are_those_not_trained_on():
    points = np.arange(10.0)[:, None] / 10
    found = LabelledPoints("ten", points, np.ones(10))
    np.testing.assert_allclose(found.training_rows()[:, 0], points[:8, 0])
    np.testing.assert_allclose(found.held_out(), [[0.8, 1.0], [0.9, 1.0]])


def test_intervals_are_judged_by_the_fit_to_all_training_records():
    found = regression_outcome(small(), 2.0, 0, Iterates(steps=6000, draws=20))
    assert found.held.shape == found.widths.shape == found.errors.shape == (4,)
    assert (found.widths > 0).all()
    assert found.held.any()


def small():
    whole = labelled_points("generated")
    return LabelledPoints("small", whole.points[:2000], whole.labels[:2000])


def test_the_last_round_of_ample_rounds_and_budget_is_the_fit_without_noise():
    problem = small()
    rows = problem.training_rows()
    plan = Logistic("label", rounds=300, step=4.0, clip=1.0)
    found = last_round(measure(source_of(problem), plan, epsilon=1e7, simulate=0))
    expected = fit_logistic(signed_records(rows[:, :-1], rows[:, -1]), ridge=1e-9).coefficients
    np.testing.assert_allclose(found, expected, atol=0.1)


@pytest.mark.slow
def test_a_row_compares_all_ways_on_the_same_records(monkeypatch):
    monkeypatch.setattr("benchmarks.accuracy.regression.PAIRS", (Logistic("label", rounds=5, step=8.0),))
    row = judged(small(), 2.0, runs=2, tuning_runs=1, settings=Iterates(steps=15_000))
    assert row["runs"] == 2
    assert 0 <= row["runs improved"] <= 2
    assert 0.3 < row["loss without noise"] < 0.6
    assert row["all rounds"] < row["last round"]
    assert (row["tuned rounds"], row["tuned step"]) == (5, 8.0)
    assert 0.6 < row["right, all rounds"] <= 1
