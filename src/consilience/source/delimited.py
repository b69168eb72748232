"""Delimited text: CSV and its relatives, also compressed with gzip.

The first record is the header. The delimiter is the declared one, or the comma, semicolon, tab or bar with which the
header names most declared columns; nothing else is guessed, and every value is read as text. Text is UTF-8 unless
another encoding is declared, from which it is turned into UTF-8 while it is read: bytes that mean nothing in it become
U+FFFD, and the values that hold them follow the domain's rule. Whitespace around values is dropped, and an empty value
is missing. The grammar below has a meaning for every sequence of bytes: a record with too few fields lacks the others,
surplus fields are not read, and a stray quote costs its own record alone, unless the next single quote of the file ends
a field on a later line.
"""

import gzip
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from consilience.domain.declarations import guarded
from consilience.domain.source_format import SourceFormat
from consilience.errors import SourceError
from consilience.kernels.kernel_cache import njit
from consilience.source.readers import ROWS_PER_BATCH, InUtf8, Required, attempt, attempt_each, check_columns, in_utf8
from consilience.source.records import Batch, meant_batches, writings_of

Bytes = NDArray[np.uint8]
Places = NDArray[np.int32]
Integers = NDArray[np.int64]
Marks = NDArray[np.bool_]

# ----------------------------------------------------------------------------------------------------------------------
# Delimited text into fields, and fields into columns; compiled on first use and cached on disk.
#
# Every sequence of bytes is a table here: the grammar leaves no input without a meaning.
#
# - A record ends at a line feed or a carriage return outside quotes; a line without bytes is no record.
# - A quote opens a field only at its beginning, after blanks (spaces and tabs) or none, and closes it only before the
#   delimiter, a line end or the end of the text, after blanks or none. Within the field two quotes stand for one.
# - A field may go on over line ends. From its second line on, the first quote that is not doubled must close it.
# - A quote that does neither is an ordinary byte. So is one that would open a field which is not closed within the
#   longest record allowed: it costs its own record at most.
# - A record that reaches the longest length allowed keeps the fields that end before; the rest of its line is skipped.
#
# The time is linear in the bytes: from a line's beginning on, the quote that closes a field begun on an earlier line is
# the same whichever line that was, so it is looked for once.


TAB, LINE_FEED, CARRIAGE_RETURN, SPACE, QUOTE = 9, 10, 13, 32, 34
NOWHERE = -1
"""The start of a field that its record does not have."""

UNCLOSED, UNDECIDED = -1, -2
"""No quote closes the field; or the text ends before that can be known."""


class Fields(NamedTuple):
    """Where the wanted fields of each record lie in a text: row s, record r is text[starts[s, r]:ends[s, r]]."""

    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    records: int
    consumed: int
    skipping: bool


def split_records(
    text: NDArray[np.uint8],
    *,
    delimiter: int,
    slots: NDArray[np.int64],
    longest: int,
    limit: int,
    final: bool,
    skipping: bool = False,
) -> Fields:
    """The fields of the complete records in a text, up to a limit of records, by the grammar above.

    `slots` tells for each field of a record the row it goes to, or −1. The last record ends with the text only if that
    is `final`; otherwise what follows `consumed` (shorter than `longest`, unless the limit was met) belongs before the
    next text. `skipping` says that the text begins, or ends, within the rest of a line that is not read.
    """
    ending = np.zeros(256, dtype=np.bool_)
    ending[[delimiter, LINE_FEED, CARRIAGE_RETURN]] = True
    blank = np.zeros(256, dtype=np.bool_)
    blank[[SPACE, TAB]] = True
    blank &= ~ending
    lines = int(np.count_nonzero((text == LINE_FEED) | (text == CARRIAGE_RETURN)))
    capacity = min(limit, lines + len(text) // longest + 2)
    wanted = int(slots.max(initial=-1)) + 1
    starts = np.empty((wanted, capacity), dtype=np.int32)
    ends = np.empty((wanted, capacity), dtype=np.int32)
    records, consumed, skipping = _split_records(
        text, delimiter, ending, blank, slots, longest, final, skipping, starts, ends
    )
    return Fields(starts[:, :records], ends[:, :records], int(records), int(consumed), bool(skipping))


@njit(nogil=True, cache=True)
def _split_records(
    text: Bytes,
    delimiter: int,
    ending: Marks,
    blank: Marks,
    slots: Integers,
    longest: int,
    final: bool,
    skipping: bool,
    starts: Places,
    ends: Places,
) -> tuple[Any, Any, bool]:  # pragma: no cover - compiled
    at, record, size = np.int64(0), np.int64(0), len(text)
    known = np.array([0, NOWHERE, UNCLOSED])
    while at < size and record < starts.shape[1]:
        if text[at] == LINE_FEED or text[at] == CARRIAGE_RETURN:
            skipping = False
            at += 1
            continue
        if skipping:
            at += 1
            continue
        cut = size - at >= longest
        stop = min(size, at + longest)
        following = _split_one(text, at, stop, cut, final, delimiter, ending, blank, slots, record, starts, ends, known)
        if following < 0 and not cut:
            break
        skipping = following < 0
        at = stop if skipping else following
        record += 1
    return record, at, skipping


@njit(nogil=True, cache=True)
def _split_one(
    text: Bytes,
    at: int,
    stop: int,
    cut: bool,
    final: bool,
    delimiter: int,
    ending: Marks,
    blank: Marks,
    slots: Integers,
    record: int,
    starts: Places,
    ends: Places,
    known: Integers,
) -> int:  # pragma: no cover - compiled
    """Place the fields of the record that begins at `at`; its end, or UNDECIDED where it has none before `stop`."""
    for slot in range(starts.shape[0]):
        starts[slot, record] = NOWHERE
    field, complete, any_closes = 0, final and not cut, True
    while True:
        start = at
        while at < stop and text[at] <= SPACE and blank[text[at]]:
            at += 1
        end = UNCLOSED
        if at < stop and text[at] == QUOTE:
            end = _closing_quote(text, at + 1, stop, cut, final, ending, blank, any_closes, known)
            if end == UNDECIDED:
                return UNDECIDED
            if end == UNCLOSED:
                any_closes = False
            else:
                start, at = at + 1, end + 1
                while at < stop and not ending[text[at]]:
                    at += 1
        if end == UNCLOSED:
            while at < stop and not ending[text[at]]:
                at += 1
            end = at
        if at == stop and not complete:
            return UNDECIDED
        if field < len(slots) and slots[field] >= 0:
            starts[slots[field], record] = start
            ends[slots[field], record] = end
        if at == stop or text[at] != delimiter:
            return at
        at += 1
        field += 1


@njit(nogil=True, cache=True)
def _closing_quote(
    text: Bytes,
    at: int,
    stop: int,
    cut: bool,
    final: bool,
    ending: Marks,
    blank: Marks,
    any_closes: bool,
    known: Integers,
) -> int:  # pragma: no cover - compiled
    """The quote that closes the field whose opening quote `at` follows, and where the field ends.

    `any_closes` is false where a field before it in the record was not closed: then no quote further on in this line or
    a later one closes a field, but those that directly follow the opening quote still may.
    """
    complete = final and not cut
    open_end = UNCLOSED if complete or cut else UNDECIDED
    while at < stop:
        if text[at] != QUOTE:
            if not any_closes:
                return UNCLOSED
            if text[at] == LINE_FEED or text[at] == CARRIAGE_RETURN:
                break
            at += 1
            while at < stop and text[at] > QUOTE:
                at += 1
            continue
        first = at
        while at < stop and text[at] == QUOTE:
            at += 1
        following = at
        while following < stop and text[following] <= SPACE and blank[text[following]]:
            following += 1
        if following == stop and not complete:
            return open_end
        if (at - first) % 2 == 1 and (following == stop or ending[text[following]]):
            return at - 1
    if at == stop:
        return open_end
    return _closing_quote_from_line(text, at + 1, stop, cut, final, ending, blank, known)


@njit(nogil=True, cache=True)
def _closing_quote_from_line(
    text: Bytes, line: int, stop: int, cut: bool, final: bool, ending: Marks, blank: Marks, known: Integers
) -> int:  # pragma: no cover - compiled
    """The same for a field that began before the line given: its first quote that is not doubled, if that closes it.

    `known` keeps how far the text was searched, the last such quote found, and the end of a field that it closes.
    """
    size = len(text)
    if known[1] < line:
        at = max(line, known[0])
        known[0] = size
        while at < size:
            if text[at] != QUOTE:
                at += 1
                continue
            first = at
            while at < size and text[at] == QUOTE:
                at += 1
            following = at
            while following < size and blank[text[following]]:
                following += 1
            if following == size and not final:
                break
            if (at - first) % 2 == 1:
                closes = following == size or ending[text[following]]
                known[0], known[1], known[2] = at, at - 1, following if closes else UNCLOSED
                break
    if known[1] < line:
        return UNCLOSED if final or cut else UNDECIDED
    if known[2] == UNCLOSED or known[2] > stop or (known[2] == stop and (cut or not final)):
        return UNCLOSED
    return known[1]


def gather_fields(
    text: NDArray[np.uint8], starts: NDArray[np.int32], ends: NDArray[np.int32]
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """The fields end to end without quotes and surrounding whitespace, and the offsets at which each begins.

    A field that its record does not have is empty.
    """
    return _gather_fields(text, starts, ends)


@njit(nogil=True, cache=True)
def _gather_fields(text: Bytes, starts: Places, ends: Places) -> tuple[Bytes, Places]:  # pragma: no cover - compiled
    room = 0
    for record in range(len(starts)):
        if starts[record] >= 0:
            room += ends[record] - starts[record]
    gathered = np.empty(room, dtype=np.uint8)
    offsets = np.zeros(len(starts) + 1, dtype=np.int32)
    written = np.int64(0)
    for record in range(len(starts)):
        start, end = starts[record], ends[record]
        if start > 0 and text[start - 1] == QUOTE:
            written = _write_quoted(text, start, end, gathered, written)
        elif start >= 0:
            while start < end and _is_space(text[start]):
                start += 1
            while start < end and _is_space(text[end - 1]):
                end -= 1
            for at in range(start, end):
                gathered[written] = text[at]
                written += 1
        offsets[record + 1] = written
    return gathered[:written], offsets


@njit(nogil=True, cache=True)
def _write_quoted(text: Bytes, at: int, end: int, gathered: Bytes, written: Any) -> Any:  # pragma: no cover - compiled
    """Write what stands between two quotes; where the next field is to be written."""
    begin = written
    while at < end:
        byte = text[at]
        at += 2 if byte == QUOTE and at + 1 < end and text[at + 1] == QUOTE else 1
        if written > begin or not _is_space(byte):
            gathered[written] = byte
            written += 1
    while written > begin and _is_space(gathered[written - 1]):
        written -= 1
    return written


@njit(nogil=True, cache=True, inline="always")
def _is_space(byte: Any) -> bool:  # pragma: no cover - compiled
    return byte == SPACE or (byte >= 9 and byte <= CARRIAGE_RETURN)


# ----------------------------------------------------------------------------------------------------------------------
# Delimited text: CSV and its relatives, also compressed with gzip.


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
    reads_once = False

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


def read_records(file: BinaryIO | InUtf8, header: Header, names: Sequence[str]) -> Generator[Batch]:
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
    """The bytes in which the header must end, in UTF-8: all of them, or as many as a record may have."""
    text, wanted = b"", LONGEST_RECORD + len(BYTE_ORDER_MARK)
    with open_bytes(path) as file:
        source = in_utf8(file, encoding)
        while len(text) < wanted and (more := source.read(wanted)):
            text += more
    return text
