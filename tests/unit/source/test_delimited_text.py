"""The splitting of delimited text agrees with a slow twin and with Python's csv module."""

import csv
import io
import itertools
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.source.delimited import gather_fields, split_records

LINE_ENDS = (b"\n", b"\r")


def split_slowly(text: bytes, delimiter: bytes, longest: int) -> list[list[bytes]]:
    """The grammar of the module, one record at a time, on the whole text."""
    records, at = [], 0
    while at < len(text):
        if text[at : at + 1] in LINE_ENDS:
            at += 1
            continue
        window, cut = text[at : at + longest], len(text) - at >= longest
        fields, length = fields_of(window, delimiter, cut=cut)
        records.append(fields)
        at += len(window) if length is None else length
        while length is None and at < len(text) and text[at : at + 1] not in LINE_ENDS:
            at += 1
    return records


def fields_of(window: bytes, delimiter: bytes, *, cut: bool):
    """The complete fields of the record at the start of a window, and its length; None if that is beyond it."""
    fields, at = [], 0
    while True:
        quoted = quoted_field(window, at, delimiter, cut=cut)
        if quoted is not None:
            value, end = quoted
        else:
            end = next((i for i in range(at, len(window)) if window[i : i + 1] in (delimiter, *LINE_ENDS)), len(window))
            value = window[at:end]
            if end == len(window) and cut:
                return fields, None
        fields.append(value.strip(b" \t\n\v\f\r"))
        if window[end : end + 1] != delimiter:
            return fields, end
        at = end + 1


def quoted_field(window: bytes, at: int, delimiter: bytes, *, cut: bool) -> tuple[bytes, int] | None:
    """What stands in quotes from `at` on, and where the field ends; None where it is no field in quotes."""
    blanks = rb"[ \t]*" if delimiter != b"\t" else rb" *"
    opening = re.compile(blanks + b'"').match(window, at)
    if opening is None:
        return None
    closing = re.compile(blanks + b"(?=" + re.escape(delimiter) + rb"|[\r\n]" + (b")" if cut else rb"|\Z)"))
    value, at, spans_lines = b"", opening.end(), False
    while at < len(window):
        byte = window[at : at + 1]
        spans_lines |= byte in LINE_ENDS
        if window[at : at + 2] == b'""':
            at += 1
        elif byte == b'"':
            end = closing.match(window, at + 1)
            if end is not None:
                return value, end.end()
            if spans_lines:
                return None
        value += byte
        at += 1
    return None


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
    st.lists(st.sampled_from(list(b'aa,, \t""""\n\n\r\xff\x00')), max_size=60).map(bytes),
    st.sampled_from([b",", b"\t"]),
    st.integers(2, 40),
    st.integers(1, 40),
    st.integers(1, 5),
)
@settings(max_examples=160, deadline=None)
def test_every_text_is_split_by_the_grammar_whatever_the_chunks(text, delimiter, longest, chunk, limit):
    found = split_in_chunks(text, delimiter, longest, chunk=chunk, limit=limit, width=3)
    assert found == padded(split_slowly(text, delimiter, longest), 3)


@pytest.mark.parametrize("text", [b'a,b\n"a ""b"",c\nd","e"\n"f,g\n"h","i"', b'""x,"\n""x,""\n"y"" \n" ,z"\n'])
def test_all_sizes_of_chunks_give_the_same_records(text):
    expected = padded(split_slowly(text, b",", 30), 3)
    for chunk in range(1, len(text) + 1):
        assert split_in_chunks(text, b",", 30, chunk=chunk, limit=10, width=3) == expected


@pytest.mark.parametrize("line", [b'"x\n', b'""x\n', b'""x,' * 400 + b"\n", b'"x ""\n', b'"x"   \n""', b'a,"" x\n'])
def test_the_time_is_linear_in_the_bytes_however_many_quotes_are_stray(line):
    def seconds(size):
        text = np.frombuffer(line * (size // len(line)), dtype=np.uint8)
        begin = time.perf_counter()
        split_records(text, delimiter=44, slots=np.arange(2), longest=2**20, limit=2**20, final=True)
        return time.perf_counter() - begin

    seconds(1000)
    assert seconds(2**22) < 60  # a tenth of a second; a search for each line anew would take hours


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
        (b'"x"y,c\n', [[b'"x"y', b"c"]]),
        (b'"say "no" now",c\n', [[b'say "no" now', b"c"]]),
        (b'"a" ,"b"\t\n', [[b"a", b"b"]]),
        (b'\t"a",b\n', [[b"a", b"b"]]),
        (b'""x,""\n', [[b'""x', b""]]),
        (b'"open\n"a","b"\n', [[b'"open', b""], [b"a", b"b"]]),
        (b'"open\nc,""\n"a",b\n', [[b'"open', b""], [b"c", b""], [b"a", b"b"]]),
        (b'"open\nc,""","d"\n', [[b'open\nc,"', b"d"]]),
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
