"""The likelihood of signed choices: against the sum written out, with a gradient that differences confirm."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from consilience.errors import DeclarationError
from consilience.estimators.published.dual_query_model import SignedChoices


def drawn_choices(seed: int, *, rows: int = 5, steps: int = 6, draws: int = 4, rate: float = 0.7) -> SignedChoices:
    rng = np.random.default_rng(seed)
    met = (rng.random((steps, rows)) < 0.4).astype(np.uint8)
    return SignedChoices(met, rng.integers(0, 2 * rows, (steps, draws)), rate)


def written_out(choices: SignedChoices, shares: np.ndarray) -> float:
    steps, rows = choices.met.shape
    loss = 0.0
    for t in range(steps):
        history = choices.met[: t + 1].sum(axis=0)
        exponents = [choices.rate * (history[q] - (t + 1) * shares[q]) for q in range(rows)]
        weights = [math.exp(v) for v in exponents] + [math.exp(-v) for v in exponents]
        loss -= sum(math.log(weights[place] / sum(weights)) for place in choices.drawn[t])
    return loss


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), rate=st.sampled_from([0.01, 0.7, 3.0]))
def test_the_loss_is_the_one_written_out(seed, rate) -> None:
    choices = drawn_choices(seed, rate=rate)
    shares = np.random.default_rng(seed + 1).random(5)
    assert choices.loss_and_gradient(shares)[0] == pytest.approx(written_out(choices, shares), rel=1e-10)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_gradient_is_that_of_differences(seed) -> None:
    choices = drawn_choices(seed)
    shares = np.random.default_rng(seed + 1).random(5)
    _, gradient = choices.loss_and_gradient(shares)
    for q in range(5):
        step = np.zeros(5)
        step[q] = 1e-5
        difference = written_out(choices, shares + step) - written_out(choices, shares - step)
        assert gradient[q] == pytest.approx(difference / 2e-5, abs=1e-5)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_loss_is_convex(seed) -> None:
    choices = drawn_choices(seed)
    one, other = np.random.default_rng(seed + 1).random((2, 5))
    ends = choices.loss_and_gradient(one)[0] + choices.loss_and_gradient(other)[0]
    assert choices.loss_and_gradient((one + other) / 2)[0] <= ends / 2 + 1e-9


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_kernel_agrees_with_the_formula(seed) -> None:
    choices = drawn_choices(seed, rows=30, steps=25, rate=2.0)
    shares = np.random.default_rng(seed + 1).random(30)
    logs, slopes = choices._by_kernel(shares)
    expected_logs, expected_slopes = choices._by_formula(shares)
    np.testing.assert_allclose(logs, expected_logs, rtol=1e-12)
    np.testing.assert_allclose(slopes, expected_slopes, rtol=1e-9, atol=1e-12)


def test_exponents_too_large_for_floats_are_no_trouble() -> None:
    choices = drawn_choices(0, steps=40, rate=500.0)
    loss, gradient = choices.loss_and_gradient(np.linspace(0.1, 0.9, 5))
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()


def test_draws_from_the_law_have_their_least_loss_near_the_truth() -> None:
    rng = np.random.default_rng(0)
    rows, steps, draws, rate = 4, 30, 2000, 0.5
    truth = np.array([0.1, 0.3, 0.5, 0.8])
    met = (rng.random((steps, rows)) < 0.5).astype(np.uint8)
    drawn = []
    for t in range(steps):
        v = rate * (met[: t + 1].sum(axis=0) - (t + 1) * truth)
        weights = np.exp(np.concatenate([v, -v]))
        drawn.append(rng.choice(2 * rows, draws, p=weights / weights.sum()))
    choices = SignedChoices(met, np.array(drawn), rate)
    found = minimize(choices.loss_and_gradient, np.full(rows, 0.5), jac=True, method="L-BFGS-B")
    assert found.x == pytest.approx(truth, abs=0.03)


def test_what_does_not_fit_together_is_refused() -> None:
    met = np.zeros((2, 3), np.uint8)
    fine = np.zeros((2, 4), np.int64)
    for parts in (
        (met, np.zeros((3, 4), np.int64), 1.0),
        (met, fine + 6, 1.0),
        (met, fine - 1, 1.0),
        (met, fine, 0.0),
        (met[:0], fine[:0], 1.0),
    ):
        with pytest.raises(DeclarationError):
            SignedChoices(*parts)
