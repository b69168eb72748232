"""Effective sample sizes and R-hat of series whose truth is known."""

import math

import numpy as np
import pytest

from consilience.iterates.chain import effective_sample_size, split_rhat


def autoregressive(rho, length, chains, seed=0):
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(chains, length)) * math.sqrt(1 - rho**2)
    series = np.empty((chains, length))
    series[:, 0] = rng.normal(size=chains)
    for t in range(1, length):
        series[:, t] = rho * series[:, t - 1] + noise[:, t]
    return series


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5, 0.9])
def test_autoregressive_series_are_worth_what_theory_says(rho):
    found = effective_sample_size(autoregressive(rho, 20_000, 4))
    assert found == pytest.approx(80_000 * (1 - rho) / (1 + rho), rel=0.2)


def test_chains_at_different_places_are_worth_little():
    series = autoregressive(0.0, 1000, 4) + np.array([[0.0], [5.0], [10.0], [15.0]])
    assert effective_sample_size(series) < 20
    assert split_rhat(series) > 3


def test_rhat_sees_a_drift_within_one_chain():
    assert split_rhat(autoregressive(0.3, 5000, 2)) < 1.02
    assert split_rhat(autoregressive(0.3, 5000, 1) + np.linspace(0, 5, 5000)) > 1.5


def test_series_that_do_not_move_or_are_too_short_have_defined_values():
    assert effective_sample_size(np.ones((2, 50))) == 1
    assert split_rhat(np.ones((2, 50))) == 1
    assert split_rhat([[0.0] * 10, [1.0] * 10]) == math.inf
    assert effective_sample_size([[1.0, 2.0]]) == 2
    assert math.isnan(split_rhat([[1.0, 2.0, 3.0]]))
