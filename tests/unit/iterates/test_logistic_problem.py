"""The chain over records of a logistic regression: the right sums, the right prior, and points in the region."""

from typing import Any

import numpy as np
import pytest

from consilience.iterates.chain import Chain, ChainSettings, run_chains
from consilience.iterates.problems import (
    FEWEST_POINTS,
    MOST_POINTS,
    NoisyGradients,
    followed,
    logistic_problem,
    refit,
    signed_records,
    simulated_size,
)
from consilience.kernels.record_functions import clipped_gradient
from consilience.kernels.regions import Region
from consilience.kernels.rng import generator


def some_rounds(*, rounds=4, dimensions=2, scale=20.0, laplace=True, region: Any = "box", clip_norm: Any = 1, seed=0):
    """Gradients of 1,000 records at random coefficients, with noise."""
    rng = np.random.default_rng(seed)
    points = Region(region, dimensions).project(rng.uniform(-1, 1, (1000, dimensions)))
    labels = np.where(points[:, 0] > rng.normal(0, 0.4, 1000), 1.0, -1.0)
    thetas = rng.normal(0, 1, (rounds, dimensions + 1))
    gradients = np.array([sum_of_gradients(points, labels, theta, 0.8, clip_norm) for theta in thetas])
    noise = rng.laplace if laplace else rng.normal
    return NoisyGradients(
        thetas=thetas,
        counts=1000 + noise(0, scale, rounds),
        gradients=gradients + noise(0, scale, gradients.shape),
        count_scales=np.full(rounds, scale),
        gradient_scales=np.full(rounds, scale),
        laplace=laplace,
        clip=0.8,
        clip_norm=clip_norm,
        region=Region(region, dimensions),
    )


def sum_of_gradients(points, labels, theta, clip, norm, masses=None):
    total, one = np.zeros(len(theta)), np.empty(len(theta))
    for i in range(len(points)):
        clipped_gradient(theta, points[i], labels[i], clip, norm, one)
        total += one * (1.0 if masses is None else masses[i])
    return total


@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.parametrize(("region", "clip_norm"), [("box", 1), ("ball", 2)])
def test_sums_kept_up_step_by_step_are_those_of_the_points(laplace, region, clip_norm):
    rounds = some_rounds(laplace=laplace, region=region, clip_norm=clip_norm)
    settings = ChainSettings(size=50, walk_share=0.4, transfer_share=0.3)
    chain = Chain(logistic_problem(rounds), settings, generator(1))
    chain.take(20_000)
    state = chain.state
    points, labels = state.points[:, :-1], state.points[:, -1]
    residuals = []
    for t, theta in enumerate(rounds.thetas):
        expected = sum_of_gradients(points, labels, theta, 0.8, clip_norm, state.masses)
        np.testing.assert_allclose(state.sums[t], [state.masses.sum(), *expected], rtol=0, atol=1e-8)
        residuals.append(np.append(rounds.counts[t], rounds.gradients[t]) - state.sums[t])
    energy = np.abs(residuals).sum() / 20 if laplace else (np.array(residuals) ** 2).sum() / 800
    assert state.scores[0] == pytest.approx(-energy, rel=1e-9)
    assert Region(region, 2).contains(points).all()
    assert set(labels.tolist()) == {-1.0, 1.0}
    assert state.masses.sum() == pytest.approx(rounds.records)
    assert state.masses.min() >= 0


@pytest.mark.parametrize("region", ["box", "ball"])
def test_without_information_points_are_uniform_and_labels_fair(region):
    rounds = some_rounds(scale=1e9, region=region)
    settings = ChainSettings(size=40, steps=60_000, burn_in=10_000, walk_share=0.3, transfer_share=0.2, draws=500)
    runs = run_chains(logistic_problem(rounds), settings, chains=2, seed=0)
    points = np.concatenate([draw.points for draw in runs.draws])
    variance = 1 / 3 if region == "box" else 2 / (3 * 4)
    np.testing.assert_allclose(points[:, :2].var(axis=0), variance, rtol=0.1)
    np.testing.assert_allclose(points[:, :2].mean(axis=0), 0, atol=0.05)
    assert abs(points[:, 2].mean()) < 0.05
    # Masses uniform on the simplex: each of n has the variance (n−1)/n²(n+1) of the total's square.
    shares = np.concatenate([draw.masses for draw in runs.draws]) / runs.draws[0].masses.sum()
    assert shares.var() == pytest.approx(39 / (40**2 * 41), rel=0.15)


def test_a_regression_on_the_posterior_finds_the_direction():
    rounds = some_rounds(rounds=8, scale=10.0)
    settings = ChainSettings(size=60, steps=40_000, burn_in=20_000, walk_share=0.4, transfer_share=0.3, draws=50)
    pooled = run_chains(logistic_problem(rounds), settings, chains=2, seed=3).pooled
    found = refit(pooled.points, pooled.masses, ridge=1e-3)
    assert found[0] > 1
    assert abs(found[1]) < found[0] / 2


def test_a_refit_is_no_other_than_that_of_the_signed_records():
    points = np.array([[0.5, 1.0], [-0.5, -1.0], [0.2, -1.0], [-0.1, 1.0]])
    found = refit(points, np.array([3.0, 3.0, 1.0, 1.0]), ridge=0.01)
    signed = signed_records(points[:, :1], points[:, 1])
    misfits = np.array([3, 3, 1, 1]) / 8 / (1 + np.exp(signed @ found))
    np.testing.assert_allclose(signed.T @ misfits, 0.01 * found, atol=1e-5)


def test_points_are_as_many_as_the_noise_can_tell_apart_within_limits():
    sizes = [simulated_size(some_rounds(scale=scale), records_per_point=3.0) for scale in (1e-6, 2.0, 8.0, 1e9)]
    assert sizes[0] == MOST_POINTS
    assert sizes[1] == int(some_rounds(scale=2.0).records / (3 * 2 * 2**0.5))
    assert sizes[1] > sizes[2]
    assert sizes[3] == FEWEST_POINTS


def test_the_number_of_records_is_at_least_one_and_the_last_step_then_stays():
    rounds = some_rounds()
    rounds.counts[:] = -500.0
    assert rounds.records == 1.0
    np.testing.assert_array_equal(followed(rounds, step=1.0, radius=10.0), rounds.thetas[-1])
