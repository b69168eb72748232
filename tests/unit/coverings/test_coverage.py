"""Counting what blocks cover agrees with listing every set."""

from itertools import combinations
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.coverings.sets import coverage, uncovered
from consilience.errors import DeclarationError, TooLarge


def uncovered_by_listing(blocks, points: int, strength: int) -> int:
    held = {chosen for block in blocks for chosen in combinations(sorted(set(block)), strength)}
    return sum(chosen not in held for chosen in combinations(range(points), strength))


@st.composite
def block_sets(draw):
    points = draw(st.integers(1, 11))
    block = st.sets(st.integers(0, points - 1)).map(lambda held: tuple(sorted(held)))
    return points, draw(st.lists(block, max_size=8)), draw(st.integers(0, 5))


@settings(deadline=None, max_examples=60)
@given(block_sets())
def test_uncovered_sets_are_those_in_no_listed_block(case) -> None:
    points, blocks, strength = case
    expected = uncovered_by_listing(blocks, points, strength)
    assert uncovered(blocks, points, strength) == expected
    sets = comb(points, strength)
    assert coverage(blocks, points, strength) == pytest.approx(1.0 if sets == 0 else 1 - expected / sets)


def test_order_and_repetition_of_points_do_not_matter() -> None:
    assert uncovered([(3, 1, 1, 0)], 4, 2) == uncovered([(0, 1, 3)], 4, 2) == 3


def test_a_block_of_everything_covers_everything() -> None:
    assert uncovered([tuple(range(40))], 40, 4) == 0
    assert coverage([tuple(range(40))], 40, 4) == 1.0


def test_points_outside_the_range_are_refused() -> None:
    with pytest.raises(DeclarationError, match=r"outside 0\.\.3"):
        uncovered([(0, 4)], 4, 2)


def test_the_sampled_share_is_near_the_exact_one() -> None:
    points, half = 300, tuple(range(150))
    blocks = [half, tuple(range(150, 300))]
    exact = 2 * comb(150, 4) / comb(300, 4)
    assert comb(points, 4) > 100_000_000
    sampled = coverage(blocks, points, 4)
    assert sampled == pytest.approx(exact, abs=0.004)
    assert sampled == coverage(blocks, points, 4)


def test_more_sets_than_a_bitmap_holds_are_refused_before_allocating() -> None:
    with pytest.raises(TooLarge, match="coverage"):
        uncovered([(0, 1)], 1000, 5)
