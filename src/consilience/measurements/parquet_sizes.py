"""How much a Parquet file holds, told from its page headers before anything is decompressed.

Compression and dictionaries let a file of a few kilobytes hold gigabytes, and its footer may say otherwise. What a
reader allocates follows from the headers of the pages: how many values each has, and how large it is when decompressed.
They are walked here, as the reader will walk them, and a file that would take more than it may is refused unread. Texts
are read as dictionaries, in which a long text that is repeated takes its place once, and measured before they are
written out.

Footer and headers are in Thrift's compact protocol (https://parquet.apache.org/docs/file-format/metadata) and are read
here: pyarrow ends the whole process when it is asked about a column whose statistics do not fit its type.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import TYPE_CHECKING, Any

from consilience.errors import FileFormatError

if TYPE_CHECKING:
    import pyarrow as pa

Content = bytes | mmap

LARGEST_CONTENTS = 2**28
"""Bytes that any file may hold: 33 million numbers."""
LARGEST_GROWTH = 32
"""A larger file may hold this many times its own size. Noise hardly shrinks; empty tables do, and are small."""
MOST_PAGES = 100_000
DEEPEST_HEADER = 8

WIDTHS = (1, 4, 8, 12, 4, 8, 4)
"""Bytes of one value of each physical type, in the format's order, apart from the letters of texts."""
BYTE_ARRAY, FIXED_LENGTH_BYTES = 6, 7
DELTA_BYTE_ARRAY = 7
"""The encoding that writes texts as the beginnings of others: a few bytes may stand for any number of long texts."""

TRUE, FALSE, BYTE, INT16, INT32, INT64, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12


def read_bounded(content: bytes, *, where: str, columns: Sequence[str] | None = None) -> "pa.Table":
    """The table in the bytes of a file; texts are dictionaries. One that would take too much is refused unread."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = pq.ParquetFile(pa.BufferReader(content)).metadata
    check_contents(content, where=where)
    texts = [
        metadata.schema.column(i).path
        for i in range(metadata.num_columns)
        if metadata.schema.column(i).physical_type == "BYTE_ARRAY"
    ]
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts, page_checksum_verification=True)
    # A short program may end while Arrow's threads are still starting, which aborts it; one thread is fast enough here.
    table = file.read(columns=None if columns is None else list(columns), use_threads=False)
    letters = sum(_letters(chunk) for column in table.columns for chunk in column.chunks)
    _refuse_too_much(letters, len(content), where, LARGEST_GROWTH)
    return table


def check_contents(content: Content, *, where: str, growth: int = LARGEST_GROWTH) -> None:
    """Refuse a file whose pages hold more than a file of its size may; texts that are repeated count once."""
    total = pages = 0
    for chunk in column_chunks(content, where=where):
        for size in page_sizes(content, chunk, where=where):
            total, pages = total + size, pages + 1
            _refuse_too_much(total, len(content), where, growth)
            if pages > MOST_PAGES:
                raise FileFormatError(f"{where} has more than {MOST_PAGES:,} pages; write it anew with larger ones")


def _refuse_too_much(size: int, file_size: int, where: str, growth: int) -> None:
    if size > max(LARGEST_CONTENTS, growth * file_size):
        raise FileFormatError(
            f"{where} has {file_size:,} bytes but would take more than {size / 1e6:,.0f} MB when read, which no file "
            "of ours does; do not trust it, and ask for it anew"
        )


@dataclass(frozen=True)
class ColumnChunk:
    """One column of one group of rows: where its pages are, and what its values are."""

    is_text: bool
    width: int
    first_page: int
    size: int


def column_chunks(content: Content, *, where: str) -> Iterator[ColumnChunk]:
    """The columns of all groups of rows, as the footer lists them."""
    damaged = FileFormatError(f"{where} is damaged: what it says of its columns cannot be read; copy it again")
    try:
        length = int.from_bytes(content[-8:-4], "little")
        footer, _ = _struct(content, len(content) - 8 - length)
        columns = [element for element in footer[2][1:] if not element.get(5)]
        groups = [group[1] for group in footer[4]]
    except UNREADABLE:
        raise damaged from None
    for group in groups:
        if len(group) != len(columns):
            raise damaged
        for column, chunk in zip(columns, group, strict=True):
            try:
                yield _column_chunk(column, chunk[3])
            except UNREADABLE:
                raise damaged from None


def _column_chunk(column: dict[int, Any], about: dict[int, Any]) -> ColumnChunk:
    """A column as the schema has it, and as one group of rows has it."""
    kind = column[1]
    if kind != about[1]:
        raise ValueError("the schema and the group of rows have different types")
    width = column[2] if kind == FIXED_LENGTH_BYTES else WIDTHS[kind]
    first, dictionary = about[9], about.get(11, 0)
    first_page = dictionary if 0 < dictionary < first else first
    size = about[7] if about[5] else 0  # a reader then reads no page
    if min(width, first_page, size) < 0:
        raise ValueError("a negative size")
    return ColumnChunk(kind == BYTE_ARRAY, width, first_page, size)


def page_sizes(content: Content, chunk: ColumnChunk, *, where: str) -> Iterator[int]:
    """The bytes that each page of a column takes when it is read."""
    at, end = chunk.first_page, chunk.first_page + chunk.size
    while at < end:
        try:
            header, at = _struct(content, at)
            data = header.get(5) or header.get(8) or {}
            values, unpacked, packed = data.get(1, 0), header[2], header[3]
        except UNREADABLE:
            raise FileFormatError(f"{where} is damaged: the header of a page cannot be read; copy it again") from None
        if min(values, unpacked, packed) < 0:
            raise FileFormatError(f"{where} is damaged: a page has a negative size; copy it again")
        if data.get(4 if 8 in header else 2) == DELTA_BYTE_ARRAY:
            raise FileFormatError(
                f"{where} writes texts in an encoding whose size cannot be told in advance (DELTA_BYTE_ARRAY); "
                "write it anew without"
            )
        yield values * chunk.width + unpacked if chunk.is_text else max(values * chunk.width, unpacked)
        at += packed


UNREADABLE = (IndexError, KeyError, ValueError, AttributeError, TypeError)
"""What reading bytes that are not Thrift, or not the structures expected, raises."""


def _struct(content: Content, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields by their numbers, and where what follows begins; texts are passed over."""
    if depth > DEEPEST_HEADER:
        raise ValueError("nested too deeply")
    if at < 0:
        raise ValueError("before the beginning")
    found: dict[int, Any] = {}
    field = 0
    while content[at]:
        kind, step = content[at] & 15, content[at] >> 4
        at += 1
        if step:
            field += step
        else:
            field, at = _zigzag(content, at)
        if kind in (TRUE, FALSE):
            found[field] = kind == TRUE
        else:
            found[field], at = _value(content, at, kind, depth)
    return found, at + 1


def _value(content: Content, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """A value of a kind, and where what follows begins."""
    if kind in (INT16, INT32, INT64):
        return _zigzag(content, at)
    if kind == STRUCT:
        return _struct(content, at, depth + 1)
    if kind == BINARY:
        length, at = _varint(content, at)
        return None, at + length
    if kind in (LIST, SET):
        return _list(content, at, depth + 1)
    if kind in (TRUE, FALSE, BYTE, DOUBLE):
        return None, at + (8 if kind == DOUBLE else 1)
    raise ValueError("a kind of field that Parquet does not have")


def _list(content: Content, at: int, depth: int) -> tuple[list[Any], int]:
    """The elements of a list; each takes a byte at least, so that there are no more than bytes."""
    length, kind = content[at] >> 4, content[at] & 15
    at += 1
    if length == 15:
        length, at = _varint(content, at)
    found: list[Any] = []
    for _ in range(length):
        element, at = _value(content, at, kind, depth)
        if at > len(content):
            raise IndexError("after the end")
        found.append(element)
    return found, at


def _zigzag(content: Content, at: int) -> tuple[int, int]:
    number, at = _varint(content, at)
    return (number >> 1) ^ -(number & 1), at


def _varint(content: Content, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise ValueError("a number that is too long")


def _letters(array: Any) -> int:
    """The bytes of all texts of an array that holds them as dictionaries, or as lists of them; 0 of other arrays."""
    import pyarrow as pa
    import pyarrow.compute

    compute: Any = pyarrow.compute
    if pa.types.is_list(array.type):
        return _letters(array.flatten())
    if not pa.types.is_dictionary(array.type):
        return 0
    lengths = compute.binary_length(array.dictionary)
    return compute.sum(lengths.cast(pa.int64()).take(array.indices)).as_py() or 0
