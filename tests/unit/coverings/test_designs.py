"""Shipped designs cover every set in as many blocks as promised; others are built on the spot, or refused."""

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.coverings.table_files import packed_rows
from consilience.coverings.designs import (
    cooked,
    covering,
    covering_size,
    packed_bytes,
    shipped_table,
    unpacked_rows,
)
from consilience.coverings.sets import uncovered
from consilience.errors import DeclarationError, FileFormatError, TooLarge

PROMISED = {
    (9, 6, 2): 3,
    (16, 8, 2): 6,
    (32, 8, 2): 20,
    (45, 8, 2): 42,
    (64, 8, 2): 72,
    (32, 8, 3): 106,
    (45, 8, 3): 333,
    (32, 8, 4): 620,
}
"""Designs that others rely on, and the most blocks that they may have."""

EVERY = [
    (points, block, strength)
    for strength in (2, 3, 4)
    for block in range(3, 11)
    for points in range(block + 1, 65)
    if strength < block
]
SPREAD = [key for key in EVERY if comb(key[0], key[2]) <= 50_000][::19]


def check(points: int, block: int, strength: int) -> int:
    blocks = covering(points, block, strength)
    assert covering_size(points, block, strength) == len(blocks) == len(set(blocks))
    assert {len(each) for each in blocks} == {block}
    assert all(list(each) == sorted(set(each)) for each in blocks)
    assert uncovered(blocks, points, strength) == 0
    return len(blocks)


@pytest.mark.parametrize("key", PROMISED, ids=str)
def test_the_designs_that_others_rely_on_are_no_larger_than_promised(key) -> None:
    assert check(*key) <= PROMISED[key]


def test_a_spread_of_shipped_designs_covers_every_set() -> None:
    for key in SPREAD:
        check(*key)


@pytest.mark.slow
@pytest.mark.parametrize("strength", [2, 3, 4])
@pytest.mark.parametrize("block", range(3, 11))
def test_every_shipped_design_covers_every_set(block: int, strength: int) -> None:
    for key in EVERY:
        if key[1:] == (block, strength):
            check(*key)


def test_the_table_holds_every_design_that_it_should() -> None:
    assert set(EVERY) == set(shipped_table().designs)


def test_more_points_or_smaller_blocks_never_take_fewer_blocks() -> None:
    sizes = {key: design.size for key, design in shipped_table().designs.items()}
    for (points, block, strength), size in sizes.items():
        assert size <= sizes.get((points + 1, block, strength), size)
        assert size <= sizes.get((points, block - 1, strength), size)


def test_sizes_are_known_without_building(monkeypatch) -> None:
    monkeypatch.setattr("consilience.coverings.designs.cooked", None)
    assert covering_size(61, 7, 4) > 0


@pytest.mark.parametrize("points", [1, 2, 5, 8])
def test_one_block_holds_few_points(points: int) -> None:
    assert covering(points, 8, 3) == (tuple(range(points)),)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 30), st.integers(1, 16), st.integers(1, 4))
def test_any_small_covering_covers(points: int, block: int, strength: int) -> None:
    if block < min(strength, points):
        with pytest.raises(DeclarationError, match="strength"):
            covering(points, block, strength)
        return
    blocks = covering(points, block, strength)
    assert {len(each) for each in blocks} == {min(points, block)}
    assert uncovered(blocks, points, strength) == 0


@pytest.mark.parametrize(("points", "block", "most"), [(121, 11, 132), (100, 16, 55), (300, 8, 2000), (48, 12, 20)])
def test_pairs_beyond_the_table_are_built_on_the_spot(points: int, block: int, most: int) -> None:
    assert check(points, block, 2) <= most


def test_triples_beyond_the_table_use_the_inversive_plane() -> None:
    assert check(82, 10, 3) == 738


def test_too_many_sets_are_refused_before_anything_is_built() -> None:
    with pytest.raises(TooLarge, match="lower the strength"):
        covering(300, 8, 4)
    with pytest.raises(TooLarge, match="lower the strength"):
        covering_size(900, 10, 3)


@pytest.mark.parametrize(("points", "block", "strength"), [(0, 3, 2), (5, 3, 0), (9, 2, 3), (2000, 10, 2)])
def test_impossible_parameters_are_refused(points: int, block: int, strength: int) -> None:
    with pytest.raises(DeclarationError):
        covering(points, block, strength)


def test_packed_blocks_come_back() -> None:
    key = (45, 8, 2)
    rows = np.array(covering(*key), dtype=np.int16)
    packed = packed_rows(rows, key)
    assert len(packed) == packed_bytes(key, len(rows))
    assert {*map(tuple, unpacked_rows(packed, key, len(rows)).tolist())} == set(covering(*key))


def test_a_recipe_of_another_version_is_refused_by_name() -> None:
    with pytest.raises(FileFormatError, match="'sorcery'"):
        cooked("sorcery 1 2", 9, 4, 2, shipped_table().rows)
