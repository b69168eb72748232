"""Builders, combinations and searches keep every set covered, and do what their promises say."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.coverings.chosen_flats import chosen_flats, few_holders
from benchmarks.coverings.table_files import ranked
from consilience.coverings.designs import Group, split_rows, spread_weights, trivial_rows, weighted_rows
from consilience.coverings.geometries import affine_flats, inversive_plane
from consilience.coverings.searches import alone_counts, annealed, fewer_blocks, greedy_rows, tidied
from consilience.coverings.sets import block_rows, places_with, row_blocks, uncovered, unranked


def small_design(points: int, block: int, strength: int):
    trivial = trivial_rows(points, block, strength)
    return greedy_rows(points, block, strength) if trivial is None else trivial


@st.composite
def parameters(draw):
    strength = draw(st.integers(1, 4))
    block = draw(st.integers(strength, 7))
    return draw(st.integers(block + 1, 13)), block, strength


@pytest.mark.parametrize(("points", "size"), [(7, 1), (9, 3), (12, 4)])
def test_numbers_of_sets_are_their_places_in_colexicographic_order(points: int, size: int) -> None:
    listed = sorted(combinations(range(points), size), key=lambda chosen: chosen[::-1])
    assert unranked(np.arange(comb(points, size)), points, size).tolist() == [list(chosen) for chosen in listed]
    assert ranked(np.array(listed), points).tolist() == list(range(len(listed)))


def test_places_with_a_place_are_the_subsets_that_hold_it() -> None:
    for place, subsets in enumerate(places_with(6, 3)):
        assert subsets.tolist() == [list(each) for each in combinations(range(6), 3) if place in each]


@settings(deadline=None, max_examples=40)
@given(parameters(), st.integers(0, 5))
def test_greedy_blocks_cover_every_set(key, seed: int) -> None:
    points, block, strength = key
    rows = greedy_rows(points, block, strength, seed=seed)
    assert rows.shape[1] == block
    assert (np.diff(rows, axis=1) > 0).all()
    assert uncovered(rows.tolist(), points, strength) == 0


@settings(deadline=None, max_examples=40)
@given(parameters(), st.data())
def test_tidied_blocks_cover_what_was_covered_with_no_more_blocks(key, data) -> None:
    points, block, strength = key
    one = st.sets(st.integers(0, points - 1), min_size=1, max_size=block)
    given_blocks = data.draw(st.lists(one, min_size=1, max_size=12))
    rows = tidied(block_rows([sorted(each) for each in given_blocks], block), points, strength)
    assert len(rows) <= len(given_blocks)
    held = {chosen for each in rows.tolist() for chosen in combinations(each, strength)}
    for each in given_blocks:
        assert held.issuperset(combinations(sorted(each), strength))
    assert all(len(set(each)) == block and min(each) >= 0 for each in rows.tolist())


def test_tidying_drops_doubles_and_merges_what_fits_together() -> None:
    rows = np.array([[0, 1, 2, 3], [0, 1, 2, -1], [4, 5, -1, -1], [6, 7, -1, -1]])
    assert len(tidied(rows, 8, 2)) == 2


def test_what_a_block_covers_alone_is_what_is_missing_without_it() -> None:
    rows = greedy_rows(14, 5, 2)
    for number, count in enumerate(alone_counts(rows, 14, 2)):
        assert uncovered(np.delete(rows, number, axis=0).tolist(), 14, 2) == count


@pytest.mark.parametrize(("points", "block"), [(32, 8), (29, 8), (12, 4), (40, 8)])
def test_points_multiplied_or_taken_away_leave_every_set_covered(points: int, block: int) -> None:
    for strength, blocks in ((2, affine_flats(2, 4, 1)), (3, inversive_plane(4))):
        size = 16 if strength == 2 else 17
        weights = spread_weights(points, size, range(size))
        rows = weighted_rows(blocks, weights, block, strength, small_design)
        assert sum(weights) == points
        assert uncovered(row_blocks(rows), points, strength) == 0


def test_doubled_points_of_the_affine_plane_keep_its_twenty_lines() -> None:
    assert len(weighted_rows(affine_flats(2, 4, 1), [2] * 16, 8, 2, small_design)) == 20


@settings(deadline=None, max_examples=40)
@given(parameters(), st.data())
def test_products_over_all_ways_to_split_a_set_cover_everything(key, data) -> None:
    points, block, strength = key
    first = data.draw(st.integers(1, points - 1))
    second = points - first
    groups, low = [], max(0, strength - second)
    while low <= min(strength, first):
        high = data.draw(st.integers(low, min(strength, first)))
        least, most = max(high, block - second), min(first, block - min(strength - low, second))
        if least > most:
            return
        groups.append(Group(low, high, data.draw(st.integers(least, most))))
        low = high + 1
    rows = split_rows(first, points, block, strength, groups, small_design)
    assert uncovered(row_blocks(rows), points, strength) == 0


def test_annealing_reports_what_is_left_uncovered() -> None:
    start = greedy_rows(20, 6, 2)[:15]
    rows, left = annealed(start, 20, 2, moves=20_000, hot=0.6, cold=0.15, seed=1)
    assert rows.shape == start.shape
    assert left == uncovered(rows.tolist(), 20, 2) < uncovered(start.tolist(), 20, 2)


def test_annealing_finds_the_affine_plane_with_doubled_points() -> None:
    start = greedy_rows(32, 8, 2)[:20]
    tries = (annealed(start, 32, 2, moves=300_000, hot=0.4, cold=0.2, seed=seed)[1] for seed in range(10))
    assert min(tries) == 0


def test_annealing_leaves_fewer_blocks_that_still_cover_everything() -> None:
    start = greedy_rows(24, 8, 2, seed=1)
    rows = fewer_blocks(start, 24, 2, moves=50_000)
    assert len(rows) <= 13 < len(start)
    assert uncovered(rows.tolist(), 24, 2) == 0


def test_the_same_seed_anneals_the_same_way() -> None:
    start = greedy_rows(18, 5, 3)[:60]
    first, second = (annealed(start, 18, 3, moves=5_000, hot=0.5, cold=0.2, seed=4)[0] for _ in range(2))
    assert (first == second).all()


@pytest.mark.slow
def test_chosen_flats_hold_every_smaller_flat() -> None:
    chosen = chosen_flats(5, 2, 3, 2, rounds=5_000)
    assert len(chosen) <= 112
    assert set(chosen) <= set(affine_flats(5, 2, 3))
    assert uncovered(chosen, 32, 3) == 0


def test_few_holders_finds_the_smallest_cover_of_a_small_family() -> None:
    held = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [0, 5]], dtype=np.int32)
    chosen = few_holders(held, rounds=50)
    assert len(chosen) == 3
    assert {element for number in chosen for element in held[number].tolist()} == set(range(6))
