"""Selections follow their reference laws: the right epsilon is accepted and a wrong one rejected.

The frequencies of selected candidates are compared, by Pearson's chi-squared statistic, with the reference law at the
declared epsilon and at others. A hypothesis is rejected when its p-value is below 10^-7, so a right implementation
fails about once in 10^7 runs. Many candidates of low score against two of a high one make the choice depend strongly
on epsilon: a wrong hypothesis puts the statistic more than 140 units away, where 42 suffice.
"""

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from benchmarks.problems.selection_laws import selection_probabilities
from consilience.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise
from consilience.privacy.scores import Selector, select

REJECTED_BELOW = 1e-7
SENSITIVITY = 3
EPSILON = 0.75
# In units of the noise scale 2 · 3 / 0.75 = 8: two candidates at 4, four at 2.25, eighteen at 0.
SCORES = np.array([0] * 9 + [32, 18, 18] + [0] * 9 + [18, 18, 32])
# Candidates are pooled by their score and by the half of the list they stand in, so that every bin is well filled.
BINS = np.unique(SCORES, return_inverse=True)[1] + 3 * (np.arange(SCORES.size) >= SCORES.size // 2)

selectors = pytest.mark.parametrize("selector", get_args(Selector))
sources = pytest.mark.parametrize(
    "make",
    [
        pytest.param(SecureNoise, id="secure"),
        pytest.param(lambda: SimulatedNoise(21), id="simulated", marks=pytest.mark.slow),
    ],
)


def _selected(scores: NDArray[np.int64], selector: Selector, noise: NoiseSource, *, draws: int) -> NDArray[np.intp]:
    options = {"sensitivity": SENSITIVITY, "epsilon": EPSILON, "selector": selector}
    return np.array([select(scores, **options, noise=noise) for _ in range(draws)])


def _p_value(chosen: NDArray[np.intp], selector: Selector, epsilon: float) -> float:
    law = selection_probabilities(SCORES, sensitivity=SENSITIVITY, epsilon=epsilon, selector=selector)
    expected = np.bincount(BINS, weights=law) * chosen.size
    return float(stats.chisquare(np.bincount(BINS[chosen], minlength=6), expected, sum_check=False).pvalue)


def _assert_only_the_declared_epsilon_fits(chosen: NDArray[np.intp], selector: Selector, *, off: float) -> None:
    assert _p_value(chosen, selector, EPSILON) > REJECTED_BELOW
    assert _p_value(chosen, selector, EPSILON * (1 + off)) < REJECTED_BELOW
    assert _p_value(chosen, selector, EPSILON * (1 - off)) < REJECTED_BELOW


@selectors
@sources
def test_selections_fit_their_epsilon_and_none_a_fifth_off(make: Callable[[], NoiseSource], selector: Selector):
    chosen = _selected(SCORES, selector, make(), draws=2_400)
    _assert_only_the_declared_epsilon_fits(chosen, selector, off=0.2)


@pytest.mark.slow
@selectors
def test_equal_scores_are_selected_equally_often(selector: Selector):
    # With almost no noise the four greatest tie in every draw; index order must not decide.
    tied = np.array([7, 40, 40, 3, 40, 40, -200])
    noise = SecureNoise()
    chosen = [select(tied, sensitivity=1, epsilon=500.0, selector=selector, noise=noise) for _ in range(1_000)]
    observed = np.bincount(chosen, minlength=tied.size)
    assert observed[[0, 3, 6]].sum() == 0
    assert stats.chisquare(observed[[1, 2, 4, 5]]).pvalue > REJECTED_BELOW


@pytest.mark.slow
@selectors
def test_a_million_selections_fit_one_selector_and_one_epsilon(selector: Selector):
    chosen = _selected(SCORES, selector, SecureNoise(), draws=1_000_000)
    _assert_only_the_declared_epsilon_fits(chosen, selector, off=0.02)
    for other in get_args(Selector):
        assert (_p_value(chosen, other, EPSILON) > REJECTED_BELOW) == (other == selector)
    for score in (0, 18, 32):
        assert stats.chisquare(np.bincount(chosen)[score == SCORES]).pvalue > REJECTED_BELOW
