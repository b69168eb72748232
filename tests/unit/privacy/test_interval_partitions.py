"""The partition found is the least of all partitions, in an order that the costs alone do not decide."""

import itertools

import numpy as np
import pytest

from consilience.privacy.partitions import MOST_INTERVALS, interval_family, least_cost_starts


def all_partitions(size: int, family: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Every partition as a list of (start, width), of intervals in the family."""
    if size == 0:
        return [[]]
    found = []
    for width, step in family:
        first = size - width
        if first >= 0 and first % step == 0:
            found += [[*rest, (first, width)] for rest in all_partitions(first, family)]
    return found


@pytest.mark.parametrize("intervals", ["dyadic", "all"])
@pytest.mark.parametrize("spread", [1, 3, 1000])
def test_the_partition_is_the_first_among_those_of_least_cost(intervals: str, spread: int) -> None:
    rng = np.random.default_rng(spread)
    for size in range(1, 9):
        family = interval_family(size, intervals)  # type: ignore[arg-type]
        partitions = all_partitions(size, family)
        for _ in range(20):
            costs = [rng.integers(-spread, spread + 1, (size - width) // step + 1) for width, step in family]
            places = {width: i for i, (width, _) in enumerate(family)}

            def key(partition: list[tuple[int, int]], costs=costs, places=places, family=family) -> tuple:
                total = sum(costs[places[width]][first // family[places[width]][1]] for first, width in partition)
                return total, [-width for _, width in reversed(partition)]

            best = min(partitions, key=key)
            assert least_cost_starts(size, family, costs) == [first for first, _ in best]


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 4096, 2**16, 2**16 + 1, 2**18, 2**20])
def test_dyadic_families_reach_every_code_within_the_limit(size: int) -> None:
    family = interval_family(size, "dyadic")
    assert family[0] == (1, 1)
    assert [width for width, _ in family] == [2**power for power in range(size.bit_length())]
    for (_, step), (_, wider) in itertools.pairwise(family):
        assert wider % step == 0
    count = sum((size - width) // step + 1 for width, step in family)
    assert count <= max(MOST_INTERVALS, 2 * size)


def test_up_to_four_thousand_codes_every_start_is_allowed() -> None:
    assert {step for _, step in interval_family(4096, "dyadic")} == {1}
