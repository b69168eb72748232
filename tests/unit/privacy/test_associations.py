"""Measures of dependence against their formulas, in fractions and by trying every half."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.errors import TooLarge
from consilience.privacy.network_scores import (
    MOST_RECORDS_IN_WORDS,
    distances_from_independence,
    distances_to_dependence,
    informations,
    ladder,
)


@st.composite
def tables(draw: st.DrawFn, columns: int | None = None, largest: int = 40) -> np.ndarray:
    shape = (draw(st.integers(1, 5)), columns or draw(st.integers(1, 4)))
    cells = draw(st.lists(st.integers(0, largest), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return np.array(cells, dtype=np.int64).reshape(shape)


def slow_distance(table: np.ndarray) -> Fraction:
    records = int(table.sum())
    if not records:
        return Fraction(0)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    cells = itertools.product(range(table.shape[0]), range(table.shape[1]))
    return (
        sum(
            (abs(Fraction(int(table[i, j])) - Fraction(int(rows[i]) * int(columns[j]), records)) for i, j in cells),
            Fraction(0),
        )
        / 2
    )


def slow_dependence(table: np.ndarray, records: int) -> int:
    least = 2 * records
    for halves in itertools.product((0, 1), repeat=len(table)):
        first = sum(int(row[0]) for row, half in zip(table, halves, strict=True) if half == 0)
        second = sum(int(row[1]) for row, half in zip(table, halves, strict=True) if half == 1)
        least = min(least, max(records - 2 * first, 0) + max(records - 2 * second, 0))
    return -least


@given(st.lists(tables(), min_size=1, max_size=6), st.integers(0, 12))
def test_the_distance_from_independence_is_its_formula_rounded_down(found: list[np.ndarray], bits: int) -> None:
    expected = [math.floor(slow_distance(table) * 2**bits) for table in found]
    assert distances_from_independence(found, bits).tolist() == expected


@given(tables(largest=2**33 // 20))
def test_billions_of_records_are_counted_exactly(table: np.ndarray) -> None:
    table = table + MOST_RECORDS_IN_WORDS // table.size + 1
    assert distances_from_independence([table], 10).tolist() == [math.floor(slow_distance(table) * 1024)]


@settings(deadline=None)  # the first call compiles
@given(tables(columns=2), st.integers(1, 400))
def test_the_nearest_dependence_is_that_of_the_best_halves(table: np.ndarray, records: int) -> None:
    assert distances_to_dependence([table], records).tolist() == [slow_dependence(table, records)]


def test_both_ways_to_the_nearest_dependence_agree() -> None:
    rng = np.random.default_rng(0)
    for rows in (1, 4, 9, 12):
        table = rng.integers(0, 9, (rows, 2))
        records = int(table.sum())
        few, many = distances_to_dependence([table, np.vstack([table, np.zeros((30, 2), dtype=np.int64)])], records)
        assert few == many == slow_dependence(table, records)


@given(tables(largest=300))
def test_information_is_the_mutual_information_times_the_records(table: np.ndarray) -> None:
    records = int(table.sum())
    shares = table / max(records, 1)
    product = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    full = shares > 0
    expected = records * float((shares[full] * np.log(shares[full] / product[full])).sum())
    found = informations([table], ladder(records, 16))[0] / 2**16
    assert found == pytest.approx(expected, abs=4 * (records + 1) * 2.0**-17 + 1e-9)


def test_steps_never_fall_and_go_on_alike_beyond_the_last() -> None:
    steps = ladder(1000, 16)
    assert steps[0] == 0
    assert len(steps) == 1001
    assert (np.diff(steps) >= 0).all()
    assert steps[1000] / 2**16 == pytest.approx(1001 * math.log(1001) - 1000 * math.log(1000), abs=1e-4)
    short = ladder(3, 8)
    added = informations([np.array([[50]]), np.array([[51]])], short)
    assert added.tolist() == [0, 0]  # one cell: every part moves by the same step
    with pytest.raises(TooLarge, match="use the score"):
        ladder(2**25, 16)


def test_tables_without_records_have_no_dependence() -> None:
    empty = np.zeros((3, 2), dtype=np.int64)
    assert distances_from_independence([empty], 10).tolist() == [0]
    assert informations([empty], ladder(5, 8)).tolist() == [0]
    assert distances_to_dependence([empty], 6).tolist() == [-12]
