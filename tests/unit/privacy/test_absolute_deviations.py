"""Sums of absolute deviations from the median are exact, and one record changes them by no more than is declared."""

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.privacy.partitions import deviation_sensitivity, prefix_deviations, window_deviations

counted = st.lists(st.integers(0, 40), min_size=1, max_size=12)


def deviation(counts: list[int]) -> int:
    """The definition."""
    middle = statistics.median_low(counts) if counts else 0
    return sum(abs(count - middle) for count in counts)


@settings(deadline=None)  # the first example compiles a kernel
@given(counted)
def test_prefixes_and_windows_have_the_deviation_of_the_definition(counts: list[int]) -> None:
    found = prefix_deviations(np.array(counts))
    assert found.tolist() == [deviation(counts[:i]) for i in range(len(counts) + 1)]
    for width in range(1, len(counts) + 1):
        windows = [deviation(counts[i : i + width]) for i in range(len(counts) - width + 1)]
        assert window_deviations(np.array(counts), width).tolist() == windows


def test_large_counts_stay_exact() -> None:
    counts = np.random.default_rng(0).integers(0, 2**31, 1000)
    assert prefix_deviations(counts)[-1] == deviation(counts.tolist())


@pytest.mark.parametrize("width", range(1, 7))
def test_the_declared_sensitivity_is_the_largest_change_by_one_record(width: int) -> None:
    largest = 0
    rng = np.random.default_rng(width)
    for table in rng.integers(0, 8, (100, width)):
        before = window_deviations(table, width)[0]
        for code in range(width):
            after = window_deviations(table + (np.arange(width) == code), width)[0]
            largest = max(largest, abs(int(after) - int(before)))
    assert largest == deviation_sensitivity(width)


@given(st.lists(st.integers(0, 40), min_size=2, max_size=12))
def test_the_deviation_from_the_mean_lies_within_what_the_median_says(counts: list[int]) -> None:
    width, from_median = len(counts), deviation(counts)
    from_mean = sum(abs(width * count - sum(counts)) for count in counts)  # times the width
    assert width * from_median <= from_mean <= 2 * (width - 1) * from_median
