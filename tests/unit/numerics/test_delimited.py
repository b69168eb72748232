"""The splitting of delimited text agrees with a slow twin and with Python's csv module."""

import csv
import io
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.numerics.delimited import gather_fields, split_records


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
