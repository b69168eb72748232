"""The noise that is drawn has the declared law: the right scale is accepted and a wrong one rejected.

Each test compares one sample with three hypotheses by Pearson's chi-squared statistic: the declared scale and scales
somewhat smaller and larger. A hypothesis is rejected when its p-value is below 10^-7, so a right implementation fails
about once in 10^7 runs; the sizes of the samples put the wrong scales hundreds of units of the statistic away.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from consilience.privacy.exact_draws import LARGEST_SCALE, DiscreteLaw
from consilience.privacy.noise import CHUNK, NoiseSource, SecureNoise, SimulatedNoise

REJECTED_BELOW = 1e-7
SCALES = [0.5, 3.0, 40.0]
FEW = 10_000
"""So many values are drawn by OpenDP, for they are fewer than a chunk."""
methods = pytest.mark.parametrize("method", ["laplace", "gaussian"])
scales = pytest.mark.parametrize("scale", SCALES)


def _probabilities(method: str, scale: float, reach: int) -> NDArray[np.float64]:
    """The definition of the law on −reach … reach."""
    z = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(z) / scale) if method == "laplace" else np.exp(-(z**2) / (2 * scale**2))
    return weights / weights.sum()


def _p_value(noise: NDArray[np.int64], method: str, scale: float) -> float:
    """Pearson's test of the sample against the law, in bins of at least one hundredth each."""
    reach = math.ceil(45 * scale) + 5
    cells = _probabilities(method, scale, reach)
    bins = np.zeros(cells.size, dtype=np.intp)
    filled, current = 0.0, 0
    for i, share in enumerate(cells):
        bins[i] = current
        filled += share
        if filled >= 0.01 and 1.0 - cells[: i + 1].sum() >= 0.01:
            filled, current = 0.0, current + 1
    observed = np.bincount(bins[np.clip(noise, -reach, reach) + reach], minlength=current + 1)
    expected = np.bincount(bins, weights=cells) * noise.size
    return float(stats.chisquare(observed, expected, sum_check=False).pvalue)


def _assert_only_the_declared_scale_fits(noise: NDArray[np.int64], method: str, scale: float, *, off: float) -> None:
    assert _p_value(noise, method, scale) > REJECTED_BELOW
    assert _p_value(noise, method, scale * (1 + off)) < REJECTED_BELOW
    assert _p_value(noise, method, scale * (1 - off)) < REJECTED_BELOW


@methods
@scales
@pytest.mark.parametrize("make", [SecureNoise, lambda: SimulatedNoise(11)], ids=["secure", "simulated"])
@pytest.mark.parametrize("count", [FEW, 2 * CHUNK])
def test_noise_fits_its_scale_and_none_a_fifth_off(
    make: Callable[[], NoiseSource], method: str, scale: float, count: int
):
    exact = np.full(count, 1234, dtype=np.int64)
    noise = getattr(make(), method)(exact, scale) - exact
    _assert_only_the_declared_scale_fits(noise, method, scale, off=0.2)


@scales
def test_the_laws_are_told_apart(scale: float):
    zeros = np.zeros(20_000, dtype=np.int64)
    stddev = math.sqrt(2) * scale
    assert _p_value(SecureNoise().laplace(zeros, scale), "gaussian", stddev) < REJECTED_BELOW
    assert _p_value(SecureNoise().gaussian(zeros, stddev), "laplace", scale) < REJECTED_BELOW


def _correlation_p_value(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Of independence: the correlation of n independent pairs is nearly normal with variance 1/n."""
    correlation = np.corrcoef(left, right)[0, 1]
    return float(2 * stats.norm.sf(abs(correlation) * math.sqrt(left.size)))


@methods
def test_neighbouring_draws_and_chunks_are_uncorrelated(method: str):
    drawn = getattr(SecureNoise(), method)(np.zeros(6 * CHUNK, dtype=np.int64), 40.0).astype(np.float64)
    for lag in (1, 2, CHUNK, 3 * CHUNK):
        assert _correlation_p_value(drawn[:-lag], drawn[lag:]) > REJECTED_BELOW
    echo = drawn[1:] + drawn[:-1] / 10
    assert _correlation_p_value(drawn[:-1], echo) < REJECTED_BELOW


def _draws(method: str, scale: float, count: int, *, word: int = 64) -> NDArray[np.int64]:
    return DiscreteLaw("laplace" if method == "laplace" else "gaussian", scale).draw(count, word=word)


@methods
@pytest.mark.parametrize("scale", [*SCALES, 700.3])
def test_a_million_exact_draws_fit_their_scale_and_none_three_percent_off(method: str, scale: float):
    noise = _draws(method, scale, 1_000_000)
    _assert_only_the_declared_scale_fits(noise, method, scale, off=0.03)


@pytest.mark.slow
@methods
@pytest.mark.parametrize("scale", [*SCALES, 700.3])
def test_ten_million_exact_draws_fit_their_scale_and_none_a_hundredth_off(method: str, scale: float):
    _assert_only_the_declared_scale_fits(_draws(method, scale, 10_000_000), method, scale, off=0.01)


@methods
@scales
@pytest.mark.parametrize("word", [1, 5])
def test_draws_that_need_more_digits_have_the_law_too(method: str, scale: float, word: int):
    """With words of few bits nearly every draw is decided by the digits that follow."""
    _assert_only_the_declared_scale_fits(_draws(method, scale, 10_000, word=word), method, scale, off=0.2)


@methods
@pytest.mark.parametrize("scale", [1e6 + 0.5, LARGEST_SCALE])
def test_draws_in_wide_blocks_have_the_law_and_even_low_bits(method: str, scale: float):
    noise = _draws(method, scale, 300_000)
    law = stats.laplace if method == "laplace" else stats.norm
    assert stats.kstest(noise / scale, law.cdf).pvalue > REJECTED_BELOW
    assert stats.kstest(noise / (1.03 * scale), law.cdf).pvalue < REJECTED_BELOW
    low_bits = np.bincount(noise & 7, minlength=8)
    assert stats.chisquare(low_bits).pvalue > REJECTED_BELOW
    low_bits[3] += low_bits[3] // 20
    assert stats.chisquare(low_bits).pvalue < REJECTED_BELOW


@methods
@scales
def test_exact_draws_are_distributed_as_those_of_opendp(method: str, scale: float):
    """By the two-sample test of Pearson, which tells a scale a tenth off."""
    add = getattr(SecureNoise(), method)
    opendp = np.concatenate([add(np.zeros(FEW, dtype=np.int64), scale) for _ in range(5)])
    assert _two_samples_p_value(opendp, _draws(method, scale, 500_000)) > REJECTED_BELOW
    assert _two_samples_p_value(opendp, _draws(method, 1.1 * scale, 500_000)) < REJECTED_BELOW


def _two_samples_p_value(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    ends = np.unique(np.quantile(np.concatenate([one, other]), np.linspace(0.0, 1.0, 41)[1:-1]).round())
    counts = [np.bincount(np.searchsorted(ends, each), minlength=ends.size + 1) for each in (one, other)]
    return float(stats.chi2_contingency(np.array(counts)[:, np.sum(counts, axis=0) > 0]).pvalue)


@pytest.mark.slow
@methods
@scales
@pytest.mark.parametrize("make", [SecureNoise, lambda: SimulatedNoise(12)], ids=["secure", "simulated"])
def test_a_million_draws_fit_their_scale_and_none_two_percent_off(
    make: Callable[[], NoiseSource], method: str, scale: float
):
    noise = getattr(make(), method)(np.zeros(1_000_000, dtype=np.int64), scale)
    _assert_only_the_declared_scale_fits(noise, method, scale, off=0.02)
