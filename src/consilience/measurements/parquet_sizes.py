"""How much a Parquet file holds, told from its page headers before anything is decompressed.

Compression and dictionaries let a file of a few kilobytes hold gigabytes, and its footer may say otherwise. What a
reader allocates follows from the headers of the pages: how many values each has, and how large it is when decompressed.
They are walked here, as the reader will walk them, and a file that would take more than it may is refused unread. Texts
are read as dictionaries, in which a long text that is repeated takes its place once, and measured before they are
written out.

The headers are in Thrift's compact protocol: https://parquet.apache.org/docs/file-format/metadata.
"""

from collections.abc import Iterator, Sequence
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

WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
"""Bytes of one value, apart from the letters of texts."""
DELTA_BYTE_ARRAY = 7
"""The encoding that writes texts as the beginnings of others: a few bytes may stand for any number of long texts."""

TRUE, FALSE, BYTE, INT16, INT32, INT64, DOUBLE, BINARY, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 12


def read_bounded(content: bytes, *, where: str, columns: Sequence[str] | None = None) -> "pa.Table":
    """The table in the bytes of a file; texts are dictionaries. One that would take too much is refused unread."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = pq.ParquetFile(pa.BufferReader(content)).metadata
    check_contents(content, metadata, where=where)
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


def check_contents(content: Content, metadata: Any, *, where: str, growth: int = LARGEST_GROWTH) -> None:
    """Refuse a file whose pages hold more than a file of its size may; texts that are repeated count once."""
    total = pages = 0
    for chunk in _chunks(metadata):
        for size in _page_sizes(content, chunk, _width(metadata.schema, chunk), where):
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


def _chunks(metadata: Any) -> Iterator[Any]:
    for group in range(metadata.num_row_groups):
        columns = metadata.row_group(group)
        for place in range(columns.num_columns):
            yield columns.column(place)


def _width(schema: Any, chunk: Any) -> int:
    if chunk.physical_type != "FIXED_LEN_BYTE_ARRAY":
        return WIDTHS[chunk.physical_type]
    return next(
        schema.column(i).length for i in range(len(schema.names)) if schema.column(i).path == chunk.path_in_schema
    )


def _page_sizes(content: Content, chunk: Any, width: int, where: str) -> Iterator[int]:
    """The bytes that each page of a column takes when it is read."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    at, end = start, start + chunk.total_compressed_size if chunk.num_values else start  # a reader then reads no page
    while at < end:
        try:
            header, at = _struct(content, at)
            data = header.get(5) or header.get(8) or {}
            values, unpacked, packed = data.get(1, 0), header[2], header[3]
        except (IndexError, KeyError, ValueError, AttributeError):
            raise FileFormatError(f"{where} is damaged: the header of a page cannot be read; copy it again") from None
        if min(values, unpacked, packed) < 0:
            raise FileFormatError(f"{where} is damaged: a page has a negative size; copy it again")
        if data.get(4 if 8 in header else 2) == DELTA_BYTE_ARRAY:
            raise FileFormatError(
                f"{where} writes texts in an encoding whose size cannot be told in advance (DELTA_BYTE_ARRAY); "
                "write it anew without"
            )
        yield values * width + unpacked if chunk.physical_type == "BYTE_ARRAY" else max(values * width, unpacked)
        at += packed


def _struct(content: Content, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The whole numbers and structures by their field numbers, and where what follows begins."""
    if depth > DEEPEST_HEADER:
        raise ValueError("nested too deeply")
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
        elif kind in (INT16, INT32, INT64):
            found[field], at = _zigzag(content, at)
        elif kind == STRUCT:
            found[field], at = _struct(content, at, depth + 1)
        elif kind == BINARY:
            length, at = _varint(content, at)
            at += length
        elif kind in (BYTE, DOUBLE):
            at += 1 if kind == BYTE else 8
        else:
            raise ValueError("a kind of field that page headers do not have")
    return found, at + 1


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
