"""The counting kernels agree with slow twins: NumPy's bincount, Python loops, and Python's csv module."""

import csv
import io
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.numerics import counting
from consilience.numerics.counting import (
    WIDTHS,
    CodeMatrices,
    MarginalLayout,
    UnitTable,
    add_counts,
    gather_fields,
    look_up,
    split_records,
    width_of,
)

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


def first_rows(table, units, limit):
    """The rows a unit table keeps, given units as bytes or None."""
    text = b"".join(unit or b"" for unit in units)
    offsets = np.cumsum([0, *(len(unit or b"") for unit in units)], dtype=np.int64)
    present = np.array([unit is not None for unit in units], dtype=np.bool_)
    return table.keep_first(np.frombuffer(text, dtype=np.uint8), offsets, present, limit).tolist()


def first_rows_slowly(met, units, limit):
    kept = []
    for unit in units:
        met[unit] = met.get(unit, 0) + 1
        kept.append(unit is not None and met[unit] <= limit)
    return kept


units = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"ab", b"a\x00"]), st.binary(max_size=3))


@given(st.lists(st.lists(units, max_size=12), max_size=6), st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_the_first_rows_of_each_unit_are_kept_across_batches(batches, limit):
    table, met = UnitTable(), {}
    for batch in batches:
        assert first_rows(table, batch, limit) == first_rows_slowly(met, batch, limit)


def test_many_units_are_told_apart_while_the_table_grows():
    rng = np.random.default_rng(3)
    table, met = UnitTable(), {}
    for size in (10, 5000, 1, 20_000, 20_000):
        batch = [str(number).encode() for number in rng.integers(0, 15_000, size)]
        assert first_rows(table, batch, 2) == first_rows_slowly(met, batch, 2)


def test_units_of_equal_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr(counting, "_keep_first", counting._keep_first.py_func)
    monkeypatch.setattr(counting, "_place_units", counting._place_units.py_func)
    monkeypatch.setattr(counting, "_hash", lambda *_: np.uint64(7))
    monkeypatch.setattr(counting, "_announce", lambda *_: None)
    table, met = UnitTable(), {}
    for batch in ([b"a", b"b", b"a"], [b"c", b"b", b"a", b"b"], [b"a", b"d", b"c"]):
        assert first_rows(table, batch, 2) == first_rows_slowly(met, batch, 2)


def split_slowly(text: bytes, delimiter: bytes, longest: int) -> list[list[bytes]]:
    """The grammar of the module, one record at a time, on the whole text."""
    records, at = [], 0
    while at < len(text):
        if text[at : at + 1] in (b"\n", b"\r"):
            at += 1
            continue
        window, cut = text[at : at + longest], len(text) - at >= longest
        fields, length = fields_of(window, delimiter, quotes=True, ends=not cut)
        if length is None:
            fields, length = fields_of(window, delimiter, quotes=False, ends=not cut)
        records.append(fields)
        at += len(window) if length is None else length
        if length is None or (length == len(window) and cut):
            while at < len(text) and text[at : at + 1] not in (b"\n", b"\r"):
                at += 1
    return records


def fields_of(window: bytes, delimiter: bytes, *, quotes: bool, ends: bool):
    """The complete fields of the record a window begins with and its length; None for an unclosed quote."""
    fields, at = [], 0
    while True:
        begin = at + len(window[at:]) - len(window[at:].lstrip(b" "))
        value = b""
        if quotes and window[begin : begin + 1] == b'"':
            at = begin + 1
            while window[at : at + 1] != b'"' or window[at : at + 2] == b'""':
                if at >= len(window):
                    return fields, None
                step = 2 if window[at : at + 2] == b'""' else 1
                value += window[at : at + 1]
                at += step
            at += 1
        rest = at
        while at < len(window) and window[at : at + 1] not in (delimiter, b"\n", b"\r"):
            at += 1
        if at == len(window) and not ends:
            return fields, at
        fields.append((value + window[rest:at]).strip(b" \t\n\v\f\r"))
        if window[at : at + 1] != delimiter:
            return fields, at
        at += 1


def split_in_chunks(text: bytes, delimiter: bytes, longest: int, *, chunk: int, limit: int, width: int):
    """The records by the kernels, fed as a reader feeds them."""
    records, rest, skipping = [], b"", False
    chunks = [text[i : i + chunk] for i in range(0, len(text), chunk)] + [b""]
    for piece in chunks:
        data = np.frombuffer(rest + piece, dtype=np.uint8)
        while True:
            fields = split_records(
                data,
                delimiter=delimiter[0],
                slots=np.arange(width),
                longest=longest,
                limit=limit,
                final=not piece,
                skipping=skipping,
            )
            columns = []
            for starts, ends in zip(fields.starts, fields.ends, strict=True):
                gathered, offsets = gather_fields(data, starts, ends)
                whole = gathered.tobytes()
                columns.append([whole[a:b] for a, b in itertools.pairwise(offsets)])
            records += [list(record) for record in zip(*columns, strict=True)]
            data, skipping = data[fields.consumed :], fields.skipping
            if fields.records < limit:
                break
        rest = data.tobytes()
    assert not rest
    return records


def padded(records, width):
    return [[*record[:width], *[b""] * (width - len(record))] for record in records]


@given(
    st.lists(st.sampled_from(list(b'a1, "\n\r;\xff\x00')), max_size=60).map(bytes),
    st.integers(2, 30),
    st.integers(1, 40),
    st.integers(1, 5),
)
@settings(max_examples=400, deadline=None)
def test_every_text_is_split_by_the_grammar_whatever_the_chunks(text, longest, chunk, limit):
    found = split_in_chunks(text, b",", longest, chunk=chunk, limit=limit, width=3)
    assert found == padded(split_slowly(text, b",", longest), 3)


cells = st.text(alphabet="ab1é \"',;\t\n\r", max_size=6)


@given(st.lists(st.lists(cells, min_size=1, max_size=4), max_size=8), st.sampled_from(",;\t|"))
@settings(max_examples=200, deadline=None)
def test_what_a_csv_writer_writes_is_read_as_the_csv_module_reads_it(rows, delimiter):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter).writerows(rows)
    text = file.getvalue()
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    expected = [[cell.encode().strip(b" \t\n\v\f\r") for cell in row] for row in reader if row]
    found = split_in_chunks(text.encode(), delimiter.encode(), 1000, chunk=17, limit=100, width=4)
    assert found == padded(expected, 4)


@pytest.mark.parametrize(
    ("text", "records"),
    [
        (b"a,b\n", [[b"a", b"b"]]),
        (b"a,b", [[b"a", b"b"]]),
        (b"\n\r\n\n", []),
        (b"a\n,\n", [[b"a", b""], [b"", b""]]),
        (b'"a,b",c\n', [[b"a,b", b"c"]]),
        (b'"say ""no""",c\n', [[b'say "no"', b"c"]]),
        (b'"x"y,c\n', [[b"xy", b"c"]]),
        (b'5" pipe,c\n', [[b'5" pipe', b"c"]]),
        (b'"open,c\nnext,d\n', [[b'"open', b"c"], [b"next", b"d"]]),
        (b'"two\nlines",c\n', [[b"two\nlines", b"c"]]),
        (b"a,b,surplus\nshort\n", [[b"a", b"b"], [b"short", b""]]),
        (b"  a\t, b \n", [[b"a", b"b"]]),
        (b'  "a" ,b\n', [[b"a", b"b"]]),
        (b"old\rmac,x\r", [[b"old", b""], [b"mac", b"x"]]),
    ],
)
def test_a_record_means(text, records):
    assert split_in_chunks(text, b",", 100, chunk=1000, limit=10, width=2) == records


def test_a_line_beyond_the_longest_record_is_one_record_of_the_fields_before():
    text = b"a," + b"x" * 50 + b",y\nb,c\n"
    assert split_in_chunks(text, b",", 20, chunk=7, limit=10, width=3) == [[b"a", b"", b""], [b"b", b"c", b""]]


def test_the_first_use_of_a_kernel_is_announced(caplog):
    class Unprepared:
        signatures = ()

    with caplog.at_level("INFO", logger="consilience"):
        counting._announce(Unprepared())
    assert "compiled once" in caplog.text
