"""Corrected counts and sums agree on totals, and nothing that agrees is nearer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize_scalar

from consilience.iterates.problems import consistent_counts, consistent_sums, weighted_median
from consilience.kernels.simplex import project_to_simplex

VALUES = st.lists(st.lists(st.integers(-30, 60), min_size=3, max_size=3), min_size=1, max_size=4)


def least_absolute(noisy, weights, *, nonnegative):
    """The least Σ w |x − y| with equal row sums, as a linear programme in x and its deviations."""
    rounds, clusters = noisy.shape
    size = noisy.size
    cost = np.concatenate([np.zeros(size), np.repeat(weights, clusters)])
    identity = np.eye(size)
    above = np.block([[identity, -identity], [-identity, -identity]])
    limits = np.concatenate([noisy.ravel(), -noisy.ravel()])
    equal = np.zeros((rounds - 1, 2 * size))
    for t in range(rounds - 1):
        equal[t, t * clusters : (t + 1) * clusters] = 1
        equal[t, (t + 1) * clusters : (t + 2) * clusters] = -1
    bounds = [(0 if nonnegative else None, None)] * size + [(0, None)] * size
    found = linprog(
        cost, above, limits, equal if rounds > 1 else None, np.zeros(rounds - 1) if rounds > 1 else None, bounds
    )
    assert found.success
    return found.fun


@given(VALUES, st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_absolute_deviations_are_those_of_the_linear_programme(values, seed):
    noisy = np.array(values, dtype=float)
    weights = np.random.default_rng(seed).uniform(0.2, 3, len(noisy))
    counts = consistent_counts(noisy, weights, sense="absolute")
    assert counts.min() >= 0
    assert np.ptp(counts.sum(axis=1)) < 1e-9
    cost = (weights[:, None] * np.abs(counts - noisy)).sum()
    assert cost == pytest.approx(least_absolute(noisy, weights, nonnegative=True), abs=1e-6)


@given(VALUES, st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_squares_are_the_least_over_all_totals(values, seed):
    noisy = np.array(values, dtype=float)
    weights = np.random.default_rng(seed).uniform(0.2, 3, len(noisy))

    def cost(total):
        return sum(
            w * ((project_to_simplex(row, max(total, 0.0)) - row) ** 2).sum()
            for w, row in zip(weights, noisy, strict=True)
        )

    counts = consistent_counts(noisy, weights, sense="squares")
    assert counts.min() >= 0
    assert np.ptp(counts.sum(axis=1)) < 1e-9
    best = minimize_scalar(cost, bounds=(0, 400), method="bounded", options={"xatol": 1e-8})
    assert (weights[:, None] * (counts - noisy) ** 2).sum() <= min(best.fun, cost(0.0)) + 1e-6


@given(VALUES, st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_sums_agree_and_are_nearest_in_either_sense(values, seed):
    noisy = np.array(values, dtype=float)
    weights = np.random.default_rng(seed).uniform(0.2, 3, len(noisy))
    absolute = consistent_sums(noisy[:, :, None], weights, sense="absolute")[:, :, 0]
    squares = consistent_sums(noisy[:, :, None], weights, sense="squares")[:, :, 0]
    for found in (absolute, squares):
        assert np.ptp(found.sum(axis=1)) < 1e-9
    cost = (weights[:, None] * np.abs(absolute - noisy)).sum()
    assert cost == pytest.approx(least_absolute(noisy, weights, nonnegative=False), abs=1e-6)
    # Least squares: the multipliers w (x − y) are one number per round, and they sum to zero.
    multipliers = weights[:, None] * (squares - noisy)
    assert np.ptp(multipliers, axis=1).max() < 1e-9
    assert abs(multipliers.mean(axis=1).sum()) < 1e-9


def test_values_that_agree_already_stay_as_they_are():
    noisy = np.array([[5.0, 0.0, 7.0], [4.0, 4.0, 4.0]])
    for sense in ("absolute", "squares"):
        assert np.allclose(consistent_counts(noisy, np.array([1.0, 2.0]), sense=sense), noisy)


@pytest.mark.parametrize("sense", ["absolute", "squares"])
def test_negative_counts_everywhere_leave_nothing(sense):
    assert np.array_equal(
        consistent_counts(np.array([[-3.0, -1.0], [-2.0, -8.0]]), np.ones(2), sense=sense), np.zeros((2, 2))
    )


def test_the_weighted_median_minimises_weighted_deviations():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values, weights = rng.normal(size=7), rng.uniform(0.1, 2, 7)
        found = weighted_median(values, weights)
        assert (weights * np.abs(values - found)).sum() <= min(
            (weights * np.abs(values - c)).sum() for c in values
        ) + 1e-12
