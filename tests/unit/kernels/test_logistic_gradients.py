"""Gradients of single records: the derivative of the loss, never longer than the clip, exact in sums."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.errors import DeclarationError
from consilience.iterates.chain_kernels import contribute_to_gradient
from consilience.iterates.problems import logistic_loss, signed_records
from consilience.kernels.record_functions import clipped_gradient, gradient_sums


def some_records(records=200, dimensions=3, seed=0, bits=20):
    rng = np.random.default_rng(seed)
    units = rng.integers(-(2**bits), 2**bits, (records, dimensions), endpoint=True).astype(np.int32)
    return units, rng.choice([-1.0, 1.0], records), rng.normal(0, 2, dimensions + 1)


def test_an_unclipped_gradient_is_the_slope_of_the_loss():
    units, labels, theta = some_records(1)
    signed = signed_records(units / 2**20, labels)
    found = np.empty(4)
    clipped_gradient(theta, units[0] / 2**20, labels[0], 100.0, 1, found)
    for j in range(4):
        nudge = np.eye(4)[j] * 1e-6
        slope = (logistic_loss(theta + nudge, signed) - logistic_loss(theta - nudge, signed)) / 2e-6
        assert found[j] == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("clip", [0.3, 1.0, 50.0])
def test_sums_are_those_of_the_obvious_loop(norm, clip):
    units, labels, theta = some_records()
    expected = [0, 0, 0, 0]
    for row, label in zip(units.tolist(), labels, strict=True):
        z = [label * unit / 2**20 for unit in row] + [label]
        misfit = 1 / (1 + math.exp(math.fsum(t * each for t, each in zip(theta, z, strict=True))))
        gradient = [-misfit * each for each in z]
        size = sum(map(abs, gradient)) if norm == 1 else math.hypot(*gradient)
        for j, each in enumerate(gradient):
            expected[j] += math.trunc(each * min(1, clip / size) * 2**20)
    found = gradient_sums(units, labels, theta, bits=20, clip=clip, norm=norm)
    assert found.dtype == np.int64
    # A record loses a unit where the norm of its whole numbers lies between the clip rounded down and the clip.
    np.testing.assert_allclose(found, expected, rtol=0, atol=len(units))


@given(
    st.lists(st.integers(-(2**20), 2**20), min_size=1, max_size=6),
    st.sampled_from([-1.0, 1.0]),
    st.lists(st.floats(-1e6, 1e6), min_size=7, max_size=7),
    st.floats(2.0**-20, 8.0),
    st.sampled_from([1, 2]),
)
@settings(deadline=None, max_examples=60)
def test_no_record_is_longer_than_the_clip_in_whole_numbers(units, label, theta, clip, norm):
    found = gradient_sums(
        np.array([units], np.int32), np.array([label]), np.array(theta[: len(units) + 1]), bits=20, clip=clip, norm=norm
    )
    sizes = [Fraction(int(each), 2**20) for each in found]
    assert all(abs(size) <= abs(Fraction(unit, 2**20)) for size, unit in zip(sizes, units, strict=False))
    if norm == 1:
        assert sum(map(abs, sizes)) <= Fraction(clip)
    else:
        assert sum(size * size for size in sizes) <= Fraction(clip) ** 2


def test_the_order_of_records_changes_nothing_and_sums_add_up():
    units, labels, theta = some_records(500)
    whole = gradient_sums(units, labels, theta, bits=20, clip=0.7, norm=1)
    backwards = gradient_sums(units[::-1], labels[::-1], theta, bits=20, clip=0.7, norm=1)
    parts = [gradient_sums(units[s], labels[s], theta, bits=20, clip=0.7, norm=1) for s in (slice(9), slice(9, None))]
    np.testing.assert_array_equal(whole, backwards)
    np.testing.assert_array_equal(whole, sum(parts))


def test_huge_coefficients_overflow_nothing():
    units, labels, _ = some_records(50)
    found = gradient_sums(units, labels, np.full(4, 1e300), bits=20, clip=4.0, norm=2)
    assert np.abs(found).max() <= 50 * 2**20


@pytest.mark.parametrize("norm", [1, 2])
def test_a_point_of_the_chain_counts_once_and_adds_its_gradient(norm):
    units, labels, theta = some_records(1)
    point = np.array([*(units[0] / 2**20), labels[0]])
    places, amounts = np.full(5, -1), np.full(5, np.nan)
    stacked = np.zeros((2, 4))
    stacked[0], stacked[1, :2] = theta, (0.4, norm)
    assert contribute_to_gradient(stacked, point, places, amounts) == 5
    expected = np.empty(4)
    clipped_gradient(theta, point[:3], labels[0], 0.4, norm, expected)
    np.testing.assert_array_equal(places, range(5))
    np.testing.assert_array_equal(amounts, [1.0, *expected])
    exact = gradient_sums(units, labels, theta, bits=20, clip=0.4, norm=norm)
    np.testing.assert_allclose(amounts[1:], exact / 2**20, atol=2.0**-19)


def test_coefficients_of_another_size_are_refused():
    units, labels, theta = some_records(5)
    with pytest.raises(DeclarationError, match="one for the intercept"):
        gradient_sums(units, labels, theta[:3], bits=20, clip=1.0, norm=1)
