"""Shared marginal sums equal sums made one by one, in both directions."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.solvers import marginal_sums
from consilience.solvers.marginal_sums import MarginalSums, walsh_transform


@st.composite
def cases(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=0, max_size=5)))
    axes = st.lists(st.sampled_from(range(len(shape))), unique=True) if shape else st.just([])
    sets = [tuple(each) for each in draw(st.lists(axes, min_size=1, max_size=6))]
    return shape, sets, draw(st.sampled_from([1, 8, 1000])), draw(st.integers(0, 99))


@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_marginals_and_their_transpose_equal_the_plain_ones(case) -> None:
    shape, sets, limit, seed = case
    rng = np.random.default_rng(seed)
    table = rng.normal(size=shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marginal_sums, "SETTINGS", replace(marginal_sums.SETTINGS, always=limit))
        sums = MarginalSums(shape, sets)
    found = sums.of(table)
    values = [rng.normal(size=[shape[axis] for axis in axes]) for axes in sets]
    inner = 0.0
    for axes, marginal, value in zip(sets, found, values, strict=True):
        letters = list(range(len(shape)))
        assert np.allclose(marginal, np.einsum(table, letters, list(axes)))
        inner += float((marginal * value).sum())
    assert np.isclose(inner, (table * sums.spread(values)).sum())


def test_pairs_share_few_passes_over_the_table() -> None:
    sums = MarginalSums((10,) * 6, list(itertools.combinations(range(6), 2)))
    assert len(sums.groups) <= 5


@pytest.mark.parametrize("bits", [0, 1, 2, 5, 14, 15])
def test_walsh_transform_equals_products_of_signs(bits):
    values = np.random.default_rng(bits).normal(size=(2, 2**bits))
    expected = values.reshape(2, *(2,) * bits)
    for axis in range(1, bits + 1):
        first, second = np.take(expected, 0, axis), np.take(expected, 1, axis)
        expected = np.stack([first + second, first - second], axis=axis)
    walsh_transform(values)
    np.testing.assert_allclose(values, expected.reshape(2, -1), atol=1e-9)
