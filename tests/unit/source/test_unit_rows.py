"""The rows that units keep are those of a slow twin, which uses Python's own SHA-256."""

import hashlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.source import unit_rows
from consilience.source.unit_rows import Part, UnitRows

TYPES = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.int64))


def add(rows, batch):
    """Add (unit or None, codes) pairs."""
    units = [unit or b"" for unit, _ in batch]
    rows.add(
        np.frombuffer(b"".join(units), dtype=np.uint8),
        np.cumsum([0, *map(len, units)], dtype=np.int64),
        np.array([unit is not None for unit, _ in batch], dtype=np.bool_),
        rows.packed([np.array([codes[place] for _, codes in batch], dtype=kind) for place, kind in enumerate(TYPES)]),
    )


def chosen(batches, limit, *, part=Part(), threads=1, size=5):  # noqa: B008 (frozen)
    """How often each row is kept, given out so many rows at a time."""
    rows = UnitRows(TYPES, part)
    for batch in batches:
        add(rows, batch)
    with ThreadPoolExecutor(threads) as workers:
        parts = list(rows.chosen(limit, workers, shares=threads, size=size))
    assert [len(columns[0]) for columns in parts[:-1]] == [size] * (len(parts) - 1)
    return Counter(row for columns in parts for row in zip(*(column.tolist() for column in columns), strict=True))


def chosen_slowly(batches, limit):
    ordinals, hashed = Counter(), {}
    for unit, codes in (row for batch in batches for row in batch if row[0] is not None):
        message = b"consilience row 1\n%s\n%d\n%s" % (
            ",".join(map(str, codes)).encode(),
            ordinals[unit, codes],
            unit,
        )
        ordinals[unit, codes] += 1
        hashed.setdefault(unit, []).append((hashlib.sha256(message).digest(), codes))
    return Counter(codes for own in hashed.values() for _, codes in sorted(own)[:limit])


units = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"ab", b"a\x00", b"x" * 200]), st.binary(max_size=3))
codes = st.tuples(
    st.integers(0, 2), st.sampled_from([0, 255, 256, 65535]), st.sampled_from([0, -1, 10, -(2**63), 2**63 - 1])
)
batches = st.lists(st.lists(st.tuples(units, codes), max_size=12), max_size=5)


def test_a_row_that_occurs_often_is_given_out_in_parts():
    often, once = (0, 255, -1), (1, 256, 10)
    batch = [(b"a", often)] * 11 + [(b"b", once)] + [(b"c", often)] * 4
    for size in (1, 2, 4, 5, 16, 100):
        assert chosen([batch], 20, size=size) == {often: 15, once: 1}
        assert chosen([batch], 3, size=size) == {often: 6, once: 1}


@given(batches, st.integers(1, 4), st.sampled_from([1, 3]))
@settings(max_examples=60, deadline=None)
def test_the_rows_with_the_smallest_hashes_are_kept(batches, limit, threads):
    assert chosen(batches, limit, threads=threads) == chosen_slowly(batches, limit)


@given(batches, st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_of_rows_does_not_matter(batches, limit, random):
    turned = [row for batch in batches for row in batch]
    random.shuffle(turned)
    assert chosen([turned], limit) == chosen(batches, limit)


@given(batches, st.integers(1, 3), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_parts_hold_every_unit_once(batches, limit, splits):
    parts = [Part()]
    for _ in range(splits):
        parts = [half for part in parts for half in part.halves()]
    assert sum((chosen(batches, limit, part=part) for part in parts), Counter()) == chosen(batches, limit)


def test_many_units_and_rows_are_told_apart_while_the_tables_grow():
    rng = np.random.default_rng(3)
    many = [
        [(str(unit).encode(), (int(a), int(b), 7)) for unit, a, b in rng.integers(0, [1500, 3, 300], (size, 3))]
        for size in (10, 5000, 1, 4000)
    ]
    assert chosen(many, 2, threads=2) == chosen_slowly(many, 2)


def test_units_and_rows_of_equal_hash_are_told_apart(monkeypatch):
    for name in ("_add", "_unit", "_row", "_place"):
        monkeypatch.setattr(unit_rows, name, getattr(unit_rows, name).py_func)
    monkeypatch.setattr(unit_rows, "_hash", lambda *_: np.uint64(7))
    alike = [[(b"a", (0, 0, 0)), (b"b", (0, 0, 0)), (b"a", (1, 0, 0))], [(b"c", (0, 0, 0)), (b"b", (0, 1, 0))]]
    assert chosen(alike, 1) == chosen_slowly(alike, 1)


@pytest.mark.parametrize("length", [0, 1, 54, 55, 56, 63, 64, 65, 119, 120, 1000])
def test_digests_are_those_of_python(length):
    message = np.zeros(length + 80, dtype=np.uint8)
    message[:length] = np.random.default_rng(length).integers(0, 256, length)
    expected = hashlib.sha256(message[:length].tobytes()).digest()
    digest = np.empty(8, dtype=np.uint32)
    unit_rows._sha256(message, length, digest, np.empty(64, dtype=np.uint32))
    assert digest.astype(">u4").tobytes() == expected


def unlikeness(kept):
    """The chi-squared statistic, with two degrees of freedom, of rows of which one is there twice being kept evenly."""
    expected = np.array([2, 1, 1]) * sum(kept) / 4
    return float(((np.array(kept) - expected) ** 2 / expected).sum())


def test_every_row_is_equally_likely_to_be_kept():
    rows = [(b"person %d" % unit, (place, unit % 7, -5)) for unit in range(20_000) for place in (0, 0, 1, 2)]
    found = Counter()
    for (place, *_), times in chosen([rows], 1).items():
        found[place] += times
    assert found.total() == 20_000
    assert unlikeness([found[0], found[1], found[2]]) < 25  # more has a probability of 4e-6
    assert unlikeness([6667, 6667, 6666]) > 25, "taking equal rows for one must fail the same test"
    assert unlikeness([9600, 5200, 5200]) > 25, "a share that is off by a twenty-fifth must fail the same test"
