"""The benchmark of totals: its problems are sparse, and its rows say what was asked of them."""

import numpy as np
import pytest

from benchmarks.accuracy.totals import SparseProblem, _told, range_errors, range_summaries, sparse_problems, total_row
from benchmarks.problems.histograms import stand_in
from consilience.domain import Domain, Query
from consilience.estimators import Table


def test_problems_are_sparse_and_the_same_each_time():
    for one, again in zip(sparse_problems(quick=True), sparse_problems(quick=True), strict=True):
        assert np.array_equal(one.truth, again.truth)
        assert one.truth.min() == 0
        assert np.mean(one.truth == 0) > 0.5


def test_a_row_of_ranges_compares_with_the_best_rival_of_each_histogram():
    rivals = [[9.0] * 4, [2.0, 2.0, 2.0, 8.0], [4.0] * 4]
    row = _told(np.array([[[2.0, 2.0, 4.0, 4.0], *rivals], [[2.0, 2.0, 8.0, 8.0], *rivals]]))
    assert row["auto, worst length"] == 4.0
    assert row["auto within 5 %"] == 1
    assert row["auto, worst overall"] == pytest.approx(np.sqrt(2.0))
    judged = [row | {"half": half} for half in ("chosen on", "judged on")]
    assert [each["met"] for each in range_summaries(judged)] == ["no", "no"]


def test_ranges_are_fitted_in_all_ways():
    histogram = stand_in("small", bins=1024, total=5000, empty=0.9, smoothness=4, seed=1)
    errors = range_errors(histogram, branching=2, epsilon=1.0, runs=1)
    assert errors.shape == (4, 4)
    assert errors.min() > 0


def test_a_row_of_totals_finds_the_bias_of_a_fit_that_does_not_hold_it():
    domain, truth = Domain.from_sizes({"a": 40}), np.zeros(40)
    truth[:2] = 50.0
    free = Table(hold_total=False).fit
    row = total_row(SparseProblem("small", domain, truth, (Query.marginal("a"),), free), 1.0, 20)
    assert abs(row["in standard errors"]) < 3.5
    assert row["mean error, not held"] > 10
    biased = total_row(SparseProblem("small", domain, truth, (Query.marginal("a"),), free, free), 1.0, 20)
    assert biased["in standard errors"] > 3.5
    assert biased["met"] == "no"
