"""Whole numbers that follow given shares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.kernels.rng import generator
from consilience.solvers.fit import shares_of_rows


@given(
    weights=st.lists(st.floats(0, 1e9), min_size=1, max_size=30),
    rows=st.integers(0, 10**7),
    seed=st.integers(0, 1000),
)
def test_counts_sum_to_the_rows_and_are_shares_rounded(weights: list[float], rows: int, seed: int) -> None:
    given_weights = np.array(weights)
    counts = shares_of_rows(given_weights, rows, generator(seed))
    assert counts.sum() == rows
    assert counts.min() >= 0
    total = given_weights.sum()
    shares = given_weights / total * rows if total > 0 else np.full(len(weights), rows / len(weights))
    assert np.abs(counts - shares).max() < 1 + 1e-6 * max(rows, 1)


@pytest.mark.slow
def test_counts_are_right_on_average() -> None:
    rng = generator(0)
    weights = np.array([0.2, 0.5, 1.3, 0.0, 2.0])
    draws = np.array([shares_of_rows(weights, 2, rng) for _ in range(20_000)])
    assert np.abs(draws.mean(axis=0) - weights / 2).max() < 0.02
    assert draws[:, 3].sum() == 0
