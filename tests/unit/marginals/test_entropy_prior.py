"""The pull toward smaller marginals: its limits, its optimum, and tables of greatest entropy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.marginals.decomposition import residual_of
from consilience.marginals.level_fits import _posterior, drawn_to_prior
from consilience.marginals.margins import greatest_entropy

RNG = np.random.default_rng(0)
GUESS = np.outer([30.0, 20.0, 5.0, 1.0], [25.0, 15.0, 10.0, 6.0]) / 56
TRUTH = np.maximum(GUESS + RNG.normal(0, 3.0, GUESS.shape) * np.sqrt(GUESS), 0.0)


def test_precise_residuals_stay_and_noisy_ones_become_the_guess() -> None:
    residual = residual_of(TRUTH)[None]
    assert np.allclose(drawn_to_prior(residual, GUESS[None], np.array([1e-9])), residual, atol=1e-4)
    assert np.allclose(drawn_to_prior(residual, GUESS[None], np.array([1e9]))[0], residual_of(GUESS), atol=1e-6)
    assert np.allclose(drawn_to_prior(residual, GUESS[None], np.array([np.inf]))[0], residual_of(GUESS))
    assert np.array_equal(drawn_to_prior(residual, GUESS[None], np.array([0.0])), residual)


def test_the_pull_reduces_the_error_of_noisy_residuals() -> None:
    rng = np.random.default_rng(1)
    errors = np.zeros(2)
    for _ in range(50):
        noisy = residual_of(TRUTH + rng.normal(0, 4.0, TRUTH.shape))
        drawn = drawn_to_prior(noisy[None], GUESS[None], np.array([16.0]))[0]
        errors += [np.sum((noisy - residual_of(TRUTH)) ** 2), np.sum((drawn - residual_of(TRUTH)) ** 2)]
    assert errors[1] < 0.8 * errors[0]


def test_tables_too_small_to_learn_from_stay_as_measured() -> None:
    residual = residual_of(np.array([[9.0, 1.0, 4.0], [2.0, 7.0, 3.0]]))[None]
    assert np.array_equal(drawn_to_prior(residual, np.ones((1, 2, 3)), np.array([5.0])), residual)


def test_each_table_is_drawn_by_its_own_noise() -> None:
    residual = np.stack([residual_of(TRUTH)] * 3)
    variances = np.array([0.5, 1e9, np.inf])
    together = drawn_to_prior(residual, np.stack([GUESS] * 3), variances)
    for k in range(3):
        alone = drawn_to_prior(residual[k : k + 1], GUESS[None], variances[k : k + 1])
        assert np.allclose(together[k], alone[0])


def test_the_expected_residual_is_the_least_of_its_quadratic() -> None:
    # δ minimises Σ (δ − d)²/v + δ²/s over tables with vanishing sums: solved densely with Lagrange multipliers.
    rng = np.random.default_rng(2)
    noise, signal = 2.0, rng.uniform(0.1, 6.0, (3, 4))
    difference = residual_of(rng.normal(0, 3, (3, 4)))
    sums = np.concatenate([np.kron(np.eye(3), np.ones(4)), np.kron(np.ones(3), np.eye(4))])
    hessian = np.diag((1 / noise + 1 / signal).ravel())
    system = np.block([[hessian, sums.T], [sums, np.zeros((7, 7))]])
    expected = np.linalg.lstsq(system, np.concatenate([difference.ravel() / noise, np.zeros(7)]), rcond=None)[0][:12]
    found = _posterior(difference[None], (noise / (signal + noise))[None])[0]
    assert np.allclose(found.ravel(), expected, atol=1e-4)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_greatest_entropy_has_the_marginals_and_no_interaction_of_its_own(seed: int) -> None:
    table = np.random.default_rng(seed).uniform(0.5, 5.0, (2, 3, 2))
    margins = [((0, 1), table.sum(2)[None]), ((1, 2), table.sum(0)[None]), ((0, 2), table.sum(1)[None])]
    fitted = greatest_entropy(np.ones((1, 2, 3, 2)), margins, most_passes=2000)
    assert fitted.violation < 1e-7 * table.sum()
    assert np.allclose(fitted.tables[0].sum(2), table.sum(2), rtol=1e-6)
    logs = np.log(fitted.tables[0])
    assert np.abs(residual_of(logs)).max() < 1e-9


def test_marginals_without_a_table_are_told_apart() -> None:
    equal, opposite = np.array([[5.0, 0.0], [0.0, 5.0]])[None], np.array([[0.0, 5.0], [5.0, 0.0]])[None]
    margins = [((0, 1), equal), ((1, 2), equal), ((0, 2), opposite)]
    assert greatest_entropy(np.ones((1, 2, 2, 2)), margins).violation > 1.0


def test_a_start_that_is_not_even_needs_more_than_one_pass() -> None:
    start = np.array([[[8.0, 1.0], [1.0, 1.0]]])
    fitted = greatest_entropy(start, [((0,), np.array([[4.0, 6.0]])), ((1,), np.array([[5.0, 5.0]]))])
    assert fitted.tables[0].sum(axis=1) == pytest.approx([4.0, 6.0])
    assert fitted.tables[0].sum(axis=0) == pytest.approx([5.0, 5.0])


def test_cells_next_to_nothing_do_not_overflow() -> None:
    """A start whose marginal is a number near the least there is, where a large one is wanted."""
    start = np.array([[[5e-324, 5e-324], [1.0, 1.0]]])
    fitted = greatest_entropy(start, [((0,), np.array([[4.0, 6.0]])), ((1,), np.array([[5.0, 5.0]]))])
    assert np.isfinite(fitted.tables).all()
