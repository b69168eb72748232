"""Delimited text: CSV and its relatives, also compressed with gzip.

The first record is the header. The delimiter is the declared one, or the comma, semicolon, tab or bar with which the
header names most declared columns; nothing else is guessed, and every value is read as text. Text is UTF-8 unless
another encoding is declared, from which it is turned into UTF-8 while it is read: bytes that mean nothing in it become
U+FFFD, and the values that hold them follow the domain's rule. Whitespace around values is dropped, and an empty value
is missing. `source.delimited_text` gives the grammar, which has a meaning for every sequence
of bytes: a record with too few fields lacks the others, surplus fields are not read, and a stray quote costs its own
record alone, unless the next single quote of the file ends a field on a later line.
"""

import codecs
import gzip
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from consilience.domain.source_format import SourceFormat
from consilience.domain.spelling import guarded
from consilience.errors import SourceError
from consilience.source.delimited_text import NOWHERE, Fields, gather_fields, split_records
from consilience.source.notation import meant_batches, writings_of
from consilience.source.readers import ROWS_PER_BATCH, Required, check_columns
from consilience.source.records import Batch
from consilience.source.refusals import attempt, attempt_each

DELIMITERS = ",;\t|"
BYTES_PER_BATCH = 2**23
LONGEST_RECORD = 2**20
"""Records, and the header, are read up to this many bytes."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

OTHER_ENCODING = (
    'If it is in another encoding, say so: encoding = "latin-1" or "utf-16" under [source] in the domain file, or '
    "--encoding; or save it as UTF-8"
)


@dataclass(frozen=True)
class Header:
    """What the first record of a file says: how fields are separated, and their names."""

    delimiter: str
    names: tuple[str, ...]

    @property
    def is_text(self) -> bool:
        """Whether all bytes of the names meant something in the encoding that they were read in."""
        return not any(sign == "\ufffd" or "\udc80" <= sign <= "\udcff" for name in self.names for sign in name)


class DelimitedReader:
    """Reads delimited text files in the order given."""

    runs_code = False

    def __init__(self, shown: str, paths: Sequence[Path], required: Required, how: SourceFormat) -> None:
        self._refusal = f"{shown} cannot be read; check that every file is whole and that you may read it"
        self._encoding = how.encoding
        self._writings = writings_of(required, how)
        self._headers: dict[Path, Header] = {}
        for path in paths:
            start = attempt(lambda path=path: beginning(path, how.encoding), self._refusal)
            header = read_header(start, wanted=tuple(required), delimiter=how.delimiter)
            if header is None:
                raise SourceError(
                    f"{shown} does not begin with a header in {how.encoding}; its first line must name the columns. "
                    f"{OTHER_ENCODING}"
                )
            if not header.is_text and not set(required) <= set(header.names):
                raise SourceError(
                    f"the header of {shown} is no text in {how.encoding}, and a declared column is not found in it. "
                    f"{OTHER_ENCODING}"
                )
            check_columns(shown, header.names, required)
            self._headers[path] = header

    @property
    def columns(self) -> tuple[str, ...]:
        return next(iter(self._headers.values())).names

    def batches(self, names: Sequence[str]) -> Generator[Batch]:
        return attempt_each(meant_batches(self._batches(tuple(names)), self._writings), self._refusal)

    def _batches(self, names: tuple[str, ...]) -> Generator[Batch]:
        for path, header in self._headers.items():
            with open_bytes(path) as file:
                yield from read_records(in_utf8(file, self._encoding), header, names)


def read_header(start: bytes, *, wanted: Sequence[str], delimiter: str | None = None) -> Header | None:
    """The header at the beginning of a file, or None where there is no text.

    Of several delimiters it is the one that names most wanted columns, and most columns where these are equally many.

    >>> read_header(b"age; sex; region\\n17; F; north\\n", wanted=["age", "sex"])
    Header(delimiter=';', names=('age', 'sex', 'region'))
    """
    text = start.removeprefix(BYTE_ORDER_MARK)
    meant = {guarded(name): name for name in wanted if guarded(name) not in wanted}  # as our own files write them
    records = [(sign, first_record(text, sign)) for sign in delimiter or DELIMITERS]
    readings = [Header(sign, tuple(meant.get(name, name) for name in names)) for sign, names in records]
    best = max(readings, key=lambda header: (len(set(wanted).intersection(header.names)), len(header.names)))
    return None if not best.names or any("\0" in name for name in best.names) else best


def first_record(text: bytes, delimiter: str) -> tuple[str, ...]:
    """The names in the first record, by the grammar of all others."""
    signs = np.frombuffer(text, dtype=np.uint8)
    fields = split_records(
        signs,
        delimiter=ord(delimiter),
        slots=np.arange(text.count(delimiter.encode()) + 1),
        longest=LONGEST_RECORD,
        limit=1,
        final=len(text) < LONGEST_RECORD,
    )
    if not fields.records:
        return ()
    there = fields.starts[:, 0] != NOWHERE
    gathered, offsets = gather_fields(signs, fields.starts[there, 0], fields.ends[there, 0])
    names = (gathered[begin:end].tobytes() for begin, end in pairwise(offsets))
    return tuple(name.decode("utf-8", "surrogateescape").strip() for name in names)


def read_records(file: "BinaryIO | _InUtf8", header: Header, names: Sequence[str]) -> Generator[Batch]:
    """The records after the header, in batches limited in bytes and in rows."""
    slots = np.full(len(header.names), -1, dtype=np.int64)
    for slot, name in enumerate(names):
        slots[header.names.index(name)] = slot
    chunk = file.read(BYTES_PER_BATCH).removeprefix(BYTE_ORDER_MARK)
    rest, skipping, headers = b"", False, 1
    while chunk or rest:
        text = np.frombuffer(rest + chunk, dtype=np.uint8)
        while True:
            fields = split_records(
                text,
                delimiter=ord(header.delimiter),
                slots=slots,
                longest=LONGEST_RECORD,
                limit=ROWS_PER_BATCH,
                final=not chunk,
                skipping=skipping,
            )
            yield TextBatch(text, fields, names, first=headers)
            headers = max(headers - fields.records, 0)
            text, skipping = text[fields.consumed :], fields.skipping
            if fields.records < ROWS_PER_BATCH:
                break
        rest = text.tobytes()
        chunk = file.read(BYTES_PER_BATCH) if chunk else b""


class TextBatch:
    """Records of delimited text; a column's bytes are put together when it is asked for."""

    def __init__(self, text: NDArray[np.uint8], fields: Fields, names: Sequence[str], *, first: int) -> None:
        self._text = text
        self._starts = fields.starts[:, first:]
        self._ends = fields.ends[:, first:]
        self._slots = {name: slot for slot, name in enumerate(names)}

    @property
    def num_rows(self) -> int:
        return self._starts.shape[1]

    def column(self, name: str, /) -> Any:
        slot = self._slots[name]
        gathered, offsets = gather_fields(self._text, self._starts[slot], self._ends[slot])
        present = offsets[1:] > offsets[:-1]
        validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(gathered)]
        return pa.Array.from_buffers(pa.binary(), self.num_rows, buffers)


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of a file, without the compression."""
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]


def beginning(path: Path, encoding: str) -> bytes:
    """The bytes in which the header must end, in UTF-8."""
    with open_bytes(path) as file:
        return in_utf8(file, encoding).read(LONGEST_RECORD + len(BYTE_ORDER_MARK))


def in_utf8(file: BinaryIO, encoding: str) -> "BinaryIO | _InUtf8":
    """The file as if it had been saved in UTF-8; what is in UTF-8 is passed on as it is, valid or not."""
    return file if encoding == "utf-8" else _InUtf8(file, encoding)


class _InUtf8:
    """A file that turns its text into UTF-8 piece by piece; bytes without a meaning become U+FFFD."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read(self, size: int) -> bytes:
        """The text of the next so many bytes; empty at the end alone."""
        while True:
            piece = self._file.read(size)
            text = self._decoder.decode(piece, final=not piece)
            if text or not piece:
                return text.encode("utf-8", "surrogatepass")
