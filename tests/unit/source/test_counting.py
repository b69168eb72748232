"""The counting kernels agree with slow twins: NumPy's bincount and Python loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.source import coding as counting
from consilience.source.coding import WIDTHS, CodeMatrices, MarginalLayout, add_counts, look_up, width_of

NARROW, MEDIUM, WIDE = 3, 300, 70_000


def coded(columns, sizes):
    """Code columns sorted into matrices by width, and the place of each."""
    groups = [[] for _ in WIDTHS]
    places = []
    for column, size in zip(columns, sizes, strict=True):
        width = width_of(size)
        places.append((width, len(groups[width])))
        groups[width].append(column)
    records = len(columns[0])
    matrices = CodeMatrices.empty([len(group) for group in groups], records)
    for matrix, group in zip(matrices, groups, strict=True):
        for row, column in enumerate(group):
            matrix[row] = column
    return matrices, places


def count_slowly(marginal, columns, sizes, kept):
    shape = tuple(sizes[column] for column in marginal)
    if not marginal:
        return np.array(kept.sum())
    cells = np.ravel_multi_index([columns[column][kept] for column in marginal], shape)
    return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)


@st.composite
def tables(draw):
    sizes = draw(st.lists(st.sampled_from([1, 2, NARROW, 256, MEDIUM]), min_size=1, max_size=5))
    records = draw(st.sampled_from([0, 1, 7, counting.ROWS_PER_BLOCK, 2 * counting.ROWS_PER_BLOCK + 3]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = [rng.integers(0, size, records) for size in sizes]
    kept = rng.random(records) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    subsets = st.lists(st.sampled_from(range(len(sizes))), unique=True, max_size=2)
    return sizes, columns, kept, draw(st.lists(subsets, min_size=1, max_size=4))


@given(tables(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_marginals_equal_bincounts_however_they_are_shared_among_threads(table, parts):
    sizes, columns, kept, marginals = table
    matrices, places = coded(columns, sizes)
    layout = MarginalLayout.of(marginals, sizes, places)
    counts = np.zeros(layout.offsets[-1], dtype=np.int64)
    for share in layout.shares(parts):
        add_counts(layout, matrices, kept, counts, chosen=share)
    for found, marginal in zip(layout.split(counts), marginals, strict=True):
        assert np.array_equal(found, count_slowly(marginal, columns, sizes, kept))


def test_codes_of_all_widths_meet_in_one_marginal():
    rng = np.random.default_rng(5)
    sizes = [NARROW, MEDIUM, WIDE]
    columns = [rng.integers(0, size, 10_000) for size in sizes]
    kept = rng.random(10_000) < 0.9
    matrices, places = coded(columns, sizes)
    layout = MarginalLayout.of([(2, 0), (1, 0), (0, 1), ()], sizes, places)
    counts = np.zeros(layout.offsets[-1], dtype=np.int64)
    add_counts(layout, matrices, kept, counts)
    for found, marginal in zip(layout.split(counts), [(2, 0), (1, 0), (0, 1), ()], strict=True):
        assert np.array_equal(found, count_slowly(marginal, columns, sizes, kept))


def test_counts_of_several_batches_add_up():
    layout = MarginalLayout.of([(0,)], [2], [(0, 0)])
    counts = np.zeros(2, dtype=np.int64)
    for column in ([0, 1, 1], [1, 1]):
        matrices, _ = coded([np.array(column)], [2])
        add_counts(layout, matrices, np.ones(len(column), dtype=np.bool_), counts)
    assert counts.tolist() == [1, 4]


@pytest.mark.parametrize(("size", "width"), [(1, 0), (256, 0), (257, 1), (65_536, 1), (65_537, 2)])
def test_codes_take_the_narrowest_type_that_holds_them(size, width):
    assert width_of(size) == width


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int64])
def test_looking_up_is_indexing(kind):
    table = np.arange(200, dtype=np.uint16)[::-1].copy()
    places = np.random.default_rng(0).integers(0, 200, 1000).astype(kind)
    assert np.array_equal(look_up(table, places), table[places])
