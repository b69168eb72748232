"""The search for smaller designs: promises, circles, and what is written."""

from time import monotonic

import numpy as np
import pytest

from benchmarks.coverings.bounds import schonheim_bound
from benchmarks.coverings.candidates import GEOMETRIES, sizes_so_far, split_candidates
from benchmarks.coverings.constructing import construct, enter, level, settle
from benchmarks.coverings.dependencies import affected_by, leads_to, references
from benchmarks.coverings.searching import improve
from benchmarks.coverings.table_files import write_table
from consilience.coverings.designs import SEARCHED, DesignTable, cooked, read_table, shipped_table
from consilience.coverings.searches import greedy_rows
from consilience.coverings.sets import uncovered

KEYS = [(points, block, 2) for points in range(4, 14) for block in (3, 4, 5) if block < points]


def silent(text: str) -> None:
    """Reports go nowhere."""


@pytest.fixture(scope="module")
def table() -> DesignTable:
    made = DesignTable({}, {})
    construct(made, KEYS, report=silent)
    return made


def test_splits_keep_their_promises_before_tidying(table: DesignTable) -> None:
    sizes = sizes_so_far(table)
    for key in [(13, 5, 2), (12, 4, 2), (13, 3, 2)]:
        for promised, recipe in split_candidates(key, sizes):
            rows = cooked(recipe, *key, table.rows)
            assert len(rows) <= promised
            assert uncovered(rows.tolist(), key[0], key[2]) == 0


def test_geometries_are_described_as_they_are() -> None:
    for recipe, points, block, number, strength in GEOMETRIES:
        if points <= 64 and strength <= 4 and number <= 1500:
            rows = cooked(f"{recipe} 0", points, block, strength, shipped_table().rows)
            assert rows.shape == (number, block)


def test_no_shipped_design_is_made_from_itself() -> None:
    shipped = shipped_table()
    for key, design in shipped.designs.items():
        if key[2] == 2:
            assert not leads_to(shipped, design.recipe, key), key


def test_a_circle_of_recipes_is_noticed(table: DesignTable) -> None:
    made = DesignTable(dict(table.designs), dict(table.searched))
    enter(made, (12, 4, 2), table.rows(12, 4, 2), "split 1 0 0 0 1 1 1")
    assert references("split 1 0 0 0 1 1 1", (12, 4, 2)) == [(1, 0, 0), (11, 4, 2), (1, 1, 1), (11, 3, 1)]
    assert leads_to(made, "multiplied 12 4 0", (11, 4, 2))
    assert (12, 4, 2) in affected_by(made, [(11, 4, 2)])
    assert (11, 4, 2) not in affected_by(made, [(12, 4, 2)])


def test_nothing_is_below_the_bound(table: DesignTable) -> None:
    for key, design in {**table.designs, **shipped_table().designs}.items():
        assert design.size >= schonheim_bound(*key)


@pytest.mark.slow
def test_searching_writing_and_reading_give_the_same_table(table: DesignTable, tmp_path) -> None:
    enter(table, (13, 5, 2), greedy_rows(13, 5, 2), "greedy 0")
    improve(table, (13, 5, 2), until=monotonic() + 2, seed=0)
    assert table.designs[13, 5, 2].recipe == SEARCHED
    level(table, report=silent)
    settle(table, table.designs, report=silent)
    write_table(table, tmp_path)
    read = read_table(tmp_path)
    assert read.designs == table.designs
    for key in KEYS:
        rows = read.rows(*key)
        assert len(rows) == read.designs[key].size
        assert uncovered(rows.tolist(), key[0], key[2]) == 0
        assert (np.sort(rows, axis=0) == np.sort(table.rows(*key), axis=0)).all()
