"""Exponentials and maxima of rows."""

import numpy as np
import pytest

from consilience.models.passes import exponential, largest_entry


def test_exponentials_are_within_two_units_in_the_last_place() -> None:
    values = np.concatenate([np.linspace(-707.9, 0, 100_003), np.linspace(-1e-9, 0, 1001), [-np.log(2) / 2]])
    found = np.empty_like(values)
    assert exponential(values, 0.0, found) == 0
    np.testing.assert_allclose(found, np.exp(values), rtol=4.5e-16, atol=0)


def test_a_shift_is_taken_away_first() -> None:
    found = np.empty(2)
    exponential(np.array([1000.0, 999.0]), 1000.0, found)
    np.testing.assert_allclose(found, [1, np.exp(-1)], rtol=4.5e-16)


def test_exponentials_of_very_negative_values_are_zero_and_infinities_are_counted() -> None:
    found = np.ones(4)
    assert exponential(np.array([-709.0, -1e300, -np.inf, 0.0]), 0.0, found) == 1
    np.testing.assert_array_equal(found, [0, 0, 0, 1])
    assert exponential(np.array([np.nan, np.inf]), 0.0, np.empty(2)) == 2


@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_largest_entry_is_found_among_any_signs(size) -> None:
    rng = np.random.default_rng(size)
    for shift in (-50.0, 0.0, 50.0):
        values = rng.normal(size=size) + shift
        values[rng.random(size) < 0.2] = -np.inf
        assert largest_entry(values) == values.max()
