"""Coverings bounded by cells cover everything, keep to the bound, and do not depend on the order of attributes."""

from collections import Counter
from itertools import combinations
from math import prod

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consilience.coverings.designs import covering
from consilience.coverings.sets import uncovered
from consilience.coverings.weighted import weighted_covering
from consilience.errors import DeclarationError, TooLarge

ADULT = (32, 9, 32, 16, 16, 7, 15, 6, 5, 2, 32, 32, 32, 42, 2)

PROBLEMS = st.tuples(st.lists(st.integers(1, 12), min_size=1, max_size=9), st.integers(1, 500), st.integers(1, 3))


def cells(block, sizes) -> int:
    return prod(sizes[attribute] for attribute in block)


@settings(deadline=None, max_examples=20)
@given(PROBLEMS)
@example(([1, 1, 1, 7, 3], 5, 2))
@example(([12, 11, 10], 5, 2))
def test_every_set_is_covered_and_only_sets_that_must_exceed_the_bound(problem) -> None:
    sizes, most_cells, strength = problem
    blocks = weighted_covering(sizes, most_cells, strength)
    assert uncovered(blocks, len(sizes), strength) == 0
    assert len(set(blocks)) == len(blocks)
    for block in blocks:
        assert list(block) == sorted(set(block))
        assert cells(block, sizes) <= most_cells or len(block) == min(strength, len(sizes))


@settings(deadline=None, max_examples=20)
@given(PROBLEMS, st.randoms(use_true_random=False))
def test_permuted_attributes_give_permuted_blocks(problem, random) -> None:
    sizes, most_cells, strength = problem
    order = list(range(len(sizes)))
    random.shuffle(order)
    permuted = [sizes[attribute] for attribute in order]

    def shapes(blocks, of) -> Counter:
        return Counter(tuple(sorted(of[attribute] for attribute in block)) for block in blocks)

    plain = weighted_covering(sizes, most_cells, strength)
    assert shapes(plain, sizes) == shapes(weighted_covering(permuted, most_cells, strength), permuted)


@pytest.mark.parametrize(
    ("most_cells", "strength", "most"), [(2_000, 2, 54), (20_000, 2, 27), (100_000, 2, 18), (100_000, 3, 130)]
)
def test_few_blocks_cover_the_attributes_of_a_census(most_cells: int, strength: int, most: int) -> None:
    blocks = weighted_covering(ADULT, most_cells, strength)
    assert uncovered(blocks, len(ADULT), strength) == 0
    assert len(blocks) <= most
    assert max(cells(block, ADULT) for block in blocks) <= most_cells


def test_no_block_keeps_an_attribute_that_it_does_not_need() -> None:
    blocks = weighted_covering(ADULT, 20_000, 2)
    pairs = Counter(pair for block in blocks for pair in combinations(block, 2))
    for block in blocks:
        for attribute in block:
            assert any(pairs[pair] == 1 for pair in combinations(block, 2) if attribute in pair)


def test_the_same_seed_gives_the_same_blocks() -> None:
    assert weighted_covering(ADULT, 5_000, 2, seed=3) == weighted_covering(ADULT, 5_000, 2, seed=3)


@pytest.mark.parametrize(("size", "most_cells", "block"), [(2, 256, 8), (2, 511, 8), (3, 81, 4), (10, 1000, 3)])
def test_attributes_of_one_size_use_the_table_of_designs(size: int, most_cells: int, block: int) -> None:
    assert weighted_covering([size] * 20, most_cells, 2) == covering(20, block, 2)


def test_equal_attributes_too_large_for_any_set_get_a_block_each() -> None:
    assert weighted_covering([10] * 5, 50, 2) == tuple(combinations(range(5), 2))


def test_few_attributes_are_one_block() -> None:
    assert weighted_covering([3, 4], 5, 2) == ((0, 1),)
    assert weighted_covering([3, 4, 5], 60, 2) == ((0, 1, 2),)


def test_too_many_sets_are_refused() -> None:
    with pytest.raises(TooLarge, match="lower the strength"):
        weighted_covering([2, 3] * 150, 64, 4)


@pytest.mark.parametrize(("sizes", "most_cells", "strength"), [([], 5, 2), ([2, 0], 5, 2), ([2, 3], 0, 2), ([2], 5, 0)])
def test_contradictory_declarations_are_refused(sizes, most_cells: int, strength: int) -> None:
    with pytest.raises(DeclarationError):
        weighted_covering(sizes, most_cells, strength)
