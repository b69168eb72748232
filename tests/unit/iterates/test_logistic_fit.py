"""Logistic regression without noise: the least penalised loss, however the records lie; and the rule of the rounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from consilience.errors import DeclarationError
from consilience.iterates.problems import fit_logistic, logistic_loss, next_coefficients, signed_records


def drawn(records=400, dimensions=3, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.uniform(-1, 1, (records, dimensions))
    chances = 1 / (1 + np.exp(-(points @ rng.normal(0, 2, dimensions) + 0.5)))
    return signed_records(points, np.where(rng.random(records) < chances, 1.0, -1.0))


@pytest.mark.parametrize("ridge", [1e-6, 0.1])
def test_the_fit_is_that_of_a_general_optimiser(ridge):
    signed = drawn()
    weights = np.random.default_rng(1).uniform(0.1, 3, len(signed))

    def penalised(theta):
        return logistic_loss(theta, signed, weights=weights) + ridge / 2 * theta @ theta

    slow = minimize(penalised, np.zeros(4), method="BFGS", options={"gtol": 1e-7})
    fast = fit_logistic(signed, weights=weights, ridge=ridge, tolerance=1e-14)
    assert fast.converged
    np.testing.assert_allclose(fast.coefficients, slow.x, atol=1e-4)
    assert penalised(fast.coefficients) <= penalised(slow.x) + 1e-12
    assert fast.loss == pytest.approx(logistic_loss(fast.coefficients, signed, weights=weights), rel=1e-12)


def test_weights_count_like_repeated_records():
    signed = drawn(50)
    repeats = np.random.default_rng(2).integers(1, 5, 50)
    weighted = fit_logistic(signed, weights=repeats.astype(float), ridge=1e-3)
    repeated = fit_logistic(np.repeat(signed, repeats, axis=0), ridge=1e-3)
    np.testing.assert_allclose(weighted.coefficients, repeated.coefficients, atol=1e-8)


def test_separable_records_and_a_single_class_have_a_finite_fit():
    points = np.linspace(-1, 1, 20)[:, None]
    for labels in (np.sign(points[:, 0]), np.ones(20)):
        found = fit_logistic(signed_records(points, labels), ridge=1e-6)
        assert found.converged
        assert np.isfinite(found.coefficients).all()
        assert found.loss < 0.01


@given(st.integers(0, 10**6), st.floats(-30, 30))
@settings(deadline=None, max_examples=30)
def test_where_the_search_starts_does_not_matter(seed, far):
    signed = drawn(60, seed=seed)
    np.testing.assert_allclose(
        fit_logistic(signed, ridge=1e-2, start=np.full(4, far), tolerance=1e-14).coefficients,
        fit_logistic(signed, ridge=1e-2, tolerance=1e-14).coefficients,
        atol=1e-4,
    )


@pytest.mark.parametrize("ridge", [0.0, -1.0, np.nan])
def test_a_fit_without_a_ridge_is_refused(ridge):
    with pytest.raises(DeclarationError, match="ridge"):
        fit_logistic(drawn(10), ridge=ridge)


def test_no_records_are_refused():
    with pytest.raises(DeclarationError, match="no records"):
        fit_logistic(np.empty((0, 2)), ridge=1.0)


def test_steps_without_noise_lead_to_the_fit():
    signed = drawn()
    theta = np.zeros(4)
    for _ in range(3000):
        misfits = 1 / (1 + np.exp(signed @ theta))
        theta = next_coefficients(theta, -signed.T @ misfits, float(len(signed)), step=2.0, radius=50.0)
    np.testing.assert_allclose(theta, fit_logistic(signed, ridge=1e-9).coefficients, atol=1e-3)


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), st.floats(-1e3, 1e6), st.floats(0.1, 20))
def test_coefficients_stay_within_the_radius_and_still_without_records(gradient, records, radius):
    previous = np.array([0.01, 0.02, -0.03])
    found = next_coefficients(previous, np.array(gradient), records, step=2.0, radius=radius)
    assert np.linalg.norm(found) <= radius * (1 + 1e-12)
    if records < 1:
        np.testing.assert_array_equal(found, previous)
