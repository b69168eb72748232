"""Noise keeps shapes and positions, saturates, fails without quoting data, and costs exactly its budget."""

import math
import re
import subprocess
import sys
import traceback

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.errors import ConsilienceError, DeclarationError
from consilience.privacy import exact_draws, noise
from consilience.privacy.noise import (
    CHUNK,
    NoiseSource,
    SecureNoise,
    SimulatedNoise,
    gaps_below_greatest,
    laplace_scale,
)

INT64 = np.iinfo(np.int64)
SOURCES: list[NoiseSource] = [SecureNoise(), SimulatedNoise(5)]
sources = pytest.mark.parametrize("source", SOURCES, ids=["secure", "simulated"])
methods = pytest.mark.parametrize("method", ["laplace", "gaussian"])
laws = pytest.mark.parametrize("law", ["exponential", "gumbel", "laplace"])
ALMOST_NO_NOISE = 1e-3


@sources
@methods
@pytest.mark.parametrize("shape", [(), (1,), (0,), (7,), (3, 4), (2, 0, 5), (2, 3, 4)])
def test_the_shape_and_type_survive(source: NoiseSource, method: str, shape: tuple[int, ...]):
    noisy = getattr(source, method)(np.zeros(shape, dtype=np.int64), 2.0)
    assert noisy.shape == shape
    assert noisy.dtype == np.int64


@sources
@methods
def test_every_value_gets_its_own_noise_in_its_own_place(source: NoiseSource, method: str):
    exact = np.arange(3 * CHUNK + 18, dtype=np.int64)[::-1].reshape(5, -1) * 1000
    before = exact.copy()
    np.testing.assert_array_equal(getattr(source, method)(exact, ALMOST_NO_NOISE), exact)
    noisy = getattr(source, method)(exact, 20.0)
    assert 0 < np.abs(noisy - exact).max() < 1000
    np.testing.assert_array_equal(exact, before)


@methods
def test_no_chunk_repeats_the_noise_of_another(method: str):
    drawn = getattr(SecureNoise(), method)(np.zeros(4 * CHUNK, dtype=np.int64), 1e6).reshape(4, CHUNK)
    assert np.unique(drawn[:, :8], axis=0).shape[0] == 4
    assert np.unique(drawn).size > 3.9 * CHUNK


@sources
@methods
@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.bool_])
def test_smaller_integers_are_widened(source: NoiseSource, method: str, dtype: type):
    noisy = getattr(source, method)(np.array([0, 1, 1, 0], dtype=dtype)[::2], ALMOST_NO_NOISE)
    assert noisy.tolist() == [0, 1]
    assert noisy.dtype == np.int64


@sources
@methods
@pytest.mark.parametrize("dtype", [np.float64, np.uint64, np.complex128])
def test_values_that_are_not_int64_are_refused_by_their_type(source: NoiseSource, method: str, dtype: type):
    with pytest.raises(DeclarationError, match=np.dtype(dtype).name):
        getattr(source, method)(np.zeros(3, dtype=dtype), 1.0)


@sources
@methods
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_a_scale_must_be_positive_and_finite(source: NoiseSource, method: str, scale: float):
    with pytest.raises(DeclarationError, match=repr(scale)):
        getattr(source, method)(np.zeros(3, dtype=np.int64), scale)


@sources
@methods
@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-5])
def test_a_scale_too_small_to_ever_move_a_value_is_legal(source: NoiseSource, method: str, scale: float):
    exact = np.array([5, -6, INT64.max, INT64.min])
    np.testing.assert_array_equal(getattr(source, method)(exact, scale), exact)


@sources
@methods
def test_values_saturate_at_the_ends_of_int64(source: NoiseSource, method: str):
    exact = np.repeat(np.array([INT64.max, INT64.min]), 60)
    noisy = getattr(source, method)(exact, 50.0)
    assert (noisy[:60] > INT64.max - 5000).all()
    assert (noisy[60:] < INT64.min + 5000).all()
    assert (noisy[:60] == INT64.max).any()
    assert (noisy[:60] != INT64.max).any()


@sources
@methods
def test_noise_wider_than_int64_saturates_on_both_sides(source: NoiseSource, method: str):
    noisy = getattr(source, method)(np.zeros(60, dtype=np.int64), 1e300)
    assert (np.abs(noisy.astype(float)) > 9e18).all()
    assert (noisy > 0).any()
    assert (noisy < 0).any()


@methods
@given(value=st.integers(INT64.min, INT64.max), seed=st.integers(0, 2**32))
def test_simulated_sums_equal_the_clipped_sums_of_whole_numbers(method: str, value: int, seed: int):
    scale = 2e18
    exact = np.full(3, value, dtype=np.int64)
    drawn = getattr(SimulatedNoise(seed), method)(np.zeros(3, dtype=np.int64), scale)
    noisy = getattr(SimulatedNoise(seed), method)(exact, scale)
    assert noisy.tolist() == [min(max(value + z, INT64.min), INT64.max) for z in drawn.tolist()]


def _failing_measurement(*_: object):
    def fail(values: np.ndarray) -> None:
        raise ValueError(f"cannot sample for {values.tolist()}")

    return fail


def _no_entropy(_: int) -> bytes:
    raise OSError("no entropy")


@pytest.mark.parametrize("size", [3, 3 * CHUNK])
def test_a_failing_sampler_does_not_quote_the_data(monkeypatch: pytest.MonkeyPatch, size: int):
    for make in ("_laplace_measurement", "_gaussian_measurement", "_noisy_max_measurement"):
        monkeypatch.setattr(noise, make, _failing_measurement)
    monkeypatch.setattr(exact_draws.os, "urandom", _no_entropy)
    canary = 31337_000_731
    exact = np.full(size, canary, dtype=np.int64)
    source = SecureNoise()
    for attempt in (
        lambda: source.laplace(exact, 1.0),
        lambda: source.gaussian(exact, 1.0),
        lambda: source.noisy_argmax(exact, 1.0, law="gumbel"),
        lambda: source.noisy_argmax(exact, 1.0, law="exponential"),
        lambda: source.noisy_argmax(exact, 1.0, law="laplace"),
    ):
        with pytest.raises(ConsilienceError) as caught:
            attempt()
        assert caught.value.__context__ is None
        assert caught.value.__cause__ is None
        assert str(canary) not in "".join(traceback.format_exception(caught.value))
        assert "entropy" in str(caught.value)


def test_only_the_secure_source_calls_itself_private():
    assert SecureNoise().private is True
    assert SimulatedNoise(0).private is False


@methods
def test_a_seed_repeats_simulated_noise_and_nothing_repeats_secure_noise(method: str):
    zeros = np.zeros(50, dtype=np.int64)
    first = getattr(SimulatedNoise(3), method)(zeros, 1e6)
    np.testing.assert_array_equal(first, getattr(SimulatedNoise(3), method)(zeros, 1e6))
    assert (first != getattr(SimulatedNoise(4), method)(zeros, 1e6)).any()
    source = SimulatedNoise(3)
    assert (getattr(source, method)(zeros, 1e6) != getattr(source, method)(zeros, 1e6)).any()
    secure = SecureNoise()
    assert (getattr(secure, method)(zeros, 1e6) != getattr(secure, method)(zeros, 1e6)).any()


@pytest.mark.parametrize("installed", ["0.9.2", "0.13.0", "0.14.0", "0.14.1", "0.14.2.dev20260301", "0.14.2rc1"])
def test_a_biased_opendp_is_refused_by_name_and_version(monkeypatch: pytest.MonkeyPatch, installed: str):
    monkeypatch.setattr("importlib.metadata.version", {"opendp": installed}.__getitem__)
    with pytest.raises(ConsilienceError, match=rf"opendp {re.escape(installed)} .* pip install 'opendp>=0\.14\.2'"):
        SecureNoise()


@pytest.mark.parametrize("installed", ["0.14.2", "0.14.10", "0.15.0", "0.16.0.dev1", "1.0"])
def test_an_opendp_of_the_floor_or_later_is_taken(monkeypatch: pytest.MonkeyPatch, installed: str):
    monkeypatch.setattr("importlib.metadata.version", {"opendp": installed}.__getitem__)
    assert SecureNoise().private


def test_a_negative_seed_is_refused():
    with pytest.raises(DeclarationError, match="-1"):
        SimulatedNoise(-1)


def test_importing_noise_loads_no_opendp_and_drawing_enables_contrib_alone():
    program = """
import sys
import numpy as np
from consilience.privacy.noise import SecureNoise
assert not [name for name in sys.modules if name.split(".")[0] == "opendp"]
source = SecureNoise()
source.laplace(np.zeros(2, dtype=np.int64), 1.0)
source.noisy_argmax(np.zeros(2, dtype=np.int64), 1.0, law="gumbel")
assert "opendp.prelude" not in sys.modules
from opendp.mod import GLOBAL_FEATURES
assert GLOBAL_FEATURES == {"contrib"}, GLOBAL_FEATURES
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@sources
@laws
def test_the_only_candidate_is_chosen(source: NoiseSource, law: noise.SelectionLaw):
    assert source.noisy_argmax(np.array([-3]), 10.0, law=law) == 0


@sources
@laws
def test_a_candidate_far_ahead_is_chosen_whatever_the_size_of_scores(source: NoiseSource, law: noise.SelectionLaw):
    assert source.noisy_argmax(np.array([INT64.min, 0, INT64.max]), 1e-3, law=law) == 2
    # One unit apart near 2^62, where floats are 512 apart.
    assert source.noisy_argmax(np.array([2**62, 2**62 + 1]), 1e-2, law=law) == 1


@sources
@laws
def test_equal_scores_are_all_chosen(source: NoiseSource, law: noise.SelectionLaw):
    scores = np.array([4, 9, 9, 1, 9])
    chosen = {source.noisy_argmax(scores, ALMOST_NO_NOISE, law=law) for _ in range(100)}
    assert chosen == {1, 2, 4}


@sources
@laws
@pytest.mark.parametrize("shape", [(0,), (), (2, 2)])
def test_selection_needs_a_row_of_candidates(source: NoiseSource, law: noise.SelectionLaw, shape: tuple[int, ...]):
    with pytest.raises(DeclarationError, match="at least one candidate"):
        source.noisy_argmax(np.zeros(shape, dtype=np.int64), 1.0, law=law)


@sources
@laws
@pytest.mark.parametrize("scale", [0.0, -2.0, math.nan, math.inf])
def test_selection_needs_a_positive_finite_scale(source: NoiseSource, law: noise.SelectionLaw, scale: float):
    with pytest.raises(DeclarationError, match=repr(scale)):
        source.noisy_argmax(np.array([1, 2]), scale, law=law)


@sources
def test_an_unknown_law_of_selection_is_refused(source: NoiseSource):
    with pytest.raises(DeclarationError, match=r"'cauchy'.*gumbel"):
        source.noisy_argmax(np.array([1, 2]), 1.0, law="cauchy")  # pyright: ignore[reportArgumentType]


@given(st.lists(st.integers(INT64.min, INT64.max), min_size=1, max_size=8))
def test_gaps_are_differences_of_whole_numbers(scores: list[int]):
    assert gaps_below_greatest(np.array(scores, dtype=np.int64)).tolist() == [max(scores) - s for s in scores]


def _below(value: float) -> float:
    return math.nextafter(value, 0.0)


@settings(max_examples=40, deadline=None)
@given(epsilon=st.floats(1e-9, 1e6), sensitivity=st.integers(1, 2**62))
def test_the_laplace_scale_is_the_least_within_the_budget(epsilon: float, sensitivity: int):
    scale = laplace_scale(epsilon, sensitivity)
    assert noise._laplace_measurement(scale).map(sensitivity) <= epsilon
    assert noise._laplace_measurement(_below(scale)).map(sensitivity) > epsilon
    assert scale == pytest.approx(sensitivity / epsilon, rel=1e-15)


@pytest.mark.parametrize(("budget", "sensitivity"), [(1e-300, 1.0), (1e300, 1.0), (1e-307, 3.0), (1e-30, 1e18)])
def test_extreme_budgets_have_their_least_scale_too(budget: float, sensitivity: float):
    scale = laplace_scale(budget, sensitivity)
    assert noise._laplace_measurement(scale).map(int(sensitivity)) <= budget
    assert noise._laplace_measurement(_below(scale)).map(int(sensitivity)) > budget


def test_a_fractional_l1_sensitivity_counts_as_the_next_whole_unit():
    assert laplace_scale(1.0, 2.000001) == laplace_scale(1.0, 3) == 3.0
    assert laplace_scale(1.0, 0.25) == 1.0


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_budgets_and_sensitivities_must_be_positive_and_finite(value: float):
    with pytest.raises(DeclarationError, match=f"epsilon is {value!r}"):
        laplace_scale(value, 1)
    with pytest.raises(DeclarationError, match=f"sensitivity is {value!r}"):
        laplace_scale(1.0, value)


def test_a_budget_that_no_finite_noise_meets_is_refused():
    with pytest.raises(DeclarationError, match=r"5e-324.*larger budget"):
        laplace_scale(5e-324, 1)
    with pytest.raises(DeclarationError, match=r"1e\+300.*coarser lattice"):
        laplace_scale(1.0, 1e300)
