"""Negative counts are spread over all cells, as passes of clipping and subtracting would in the end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from consilience.errors import ConsilienceError
from consilience.estimators.published.fourier import spread_negatives


def by_passes(table: np.ndarray, passes: int = 20_000) -> np.ndarray:
    """The correction as it is told: set negatives to 0, take the difference from all cells alike, again and again."""
    total = table.sum()
    found = np.array(table, dtype=float)
    for _ in range(passes):
        if found.min() >= 0:
            break
        found = np.maximum(found, 0.0)
        found -= (found.sum() - total) / found.size
    return found


@pytest.mark.parametrize("seed", range(5))
def test_it_is_where_the_passes_end(seed: int) -> None:
    table = np.random.default_rng(seed).laplace(5.0, 5.0, (2, 2, 2, 2))
    assert table.min() < 0 < table.sum()
    assert np.allclose(spread_negatives(table), by_passes(table), atol=1e-6)


@given(arrays(float, (3, 4), elements=st.floats(-1e6, 1e6)))
def test_no_count_is_negative_and_the_total_stays(table: np.ndarray) -> None:
    found = spread_negatives(table)
    assert found.shape == table.shape
    assert found.min() >= 0
    assert found.sum() == pytest.approx(max(table.sum(), 0.0), rel=1e-9, abs=1e-6)


def test_a_table_without_negative_counts_is_left_alone() -> None:
    table = np.array([[0.0, 2.0], [3.5, 1.0]])
    found = spread_negatives(table)
    assert np.array_equal(found, table)
    assert found is not table


def test_counts_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ConsilienceError):
        spread_negatives([1.0, -1.0, np.inf])
