"""Delimited text into fields, and fields into columns; compiled on first use and cached on disk.

Every sequence of bytes is a table here: the grammar leaves no input without a meaning.

- A record ends at a line feed or a carriage return outside quotes; a line without bytes is no record.
- A field that begins with a quote, after spaces or none, ends at the next quote that is not doubled; what follows up
  to the delimiter belongs to it as it stands. A quote anywhere else is an ordinary byte.
- A quote that is not closed within the longest record allowed, or within the text, is an ordinary byte, and so are
  all quotes of its record.
- A record that reaches the longest length allowed keeps the fields that end before; the rest of its line is skipped.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.numerics.compilation import announce

SPACE, QUOTE, LINE_FEED, CARRIAGE_RETURN = 32, 34, 10, 13
NOWHERE = -1
"""The start of a field that its record does not have."""

UNCLOSED, UNFINISHED = -1, -2


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
    lines = int(np.count_nonzero((text == LINE_FEED) | (text == CARRIAGE_RETURN)))
    capacity = min(limit, lines + len(text) // longest + 2)
    wanted = int(slots.max(initial=-1)) + 1
    starts = np.empty((wanted, capacity), dtype=np.int32)
    ends = np.empty((wanted, capacity), dtype=np.int32)
    announce(_split_records)
    records, consumed, skipping = _split_records(text, delimiter, ending, slots, longest, final, skipping, starts, ends)
    return Fields(starts[:, :records], ends[:, :records], int(records), int(consumed), bool(skipping))


@numba.njit(nogil=True, cache=True)
def _split_records(
    text, delimiter, ending, slots, longest, final, skipping, starts, ends
):  # pragma: no cover - compiled
    at, record, size = np.int64(0), np.int64(0), len(text)
    while at < size and record < starts.shape[1]:
        if text[at] == LINE_FEED or text[at] == CARRIAGE_RETURN:
            skipping = False
            at += 1
            continue
        if skipping:
            at += 1
            continue
        cut = size - at >= longest
        stop, complete = min(size, at + longest), final and not cut
        following = _split_one(text, at, stop, complete, True, delimiter, ending, slots, record, starts, ends)
        if following == UNCLOSED and (complete or cut):
            following = _split_one(text, at, stop, complete, False, delimiter, ending, slots, record, starts, ends)
        if following < 0 and not cut:
            break
        skipping = following < 0
        at = stop if skipping else following
        record += 1
    return record, at, skipping


@numba.njit(nogil=True, cache=True)
def _split_one(
    text, at, stop, complete, quotes, delimiter, ending, slots, record, starts, ends
):  # pragma: no cover - compiled
    """Place the fields of the record that begins at `at`; its end, or why it has none before `stop`."""
    for slot in range(starts.shape[0]):
        starts[slot, record] = NOWHERE
    field = 0
    while True:
        start = at
        while at < stop and text[at] == SPACE:
            at += 1
        if quotes and at < stop and text[at] == QUOTE:
            at += 1
            start = at
            while at < stop and (text[at] != QUOTE or (at + 1 < stop and text[at + 1] == QUOTE)):
                at += 1 if text[at] != QUOTE else 2
            if at >= stop:
                return UNCLOSED
            at += 1
        while at < stop and not ending[text[at]]:
            at += 1
        if at == stop and not complete:
            return UNFINISHED
        if field < len(slots) and slots[field] >= 0:
            starts[slots[field], record] = start
            ends[slots[field], record] = at
        if at == stop or text[at] != delimiter:
            return at
        at += 1
        field += 1


def gather_fields(
    text: NDArray[np.uint8], starts: NDArray[np.int32], ends: NDArray[np.int32]
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """The fields end to end without quotes and surrounding whitespace, and the offsets at which each begins.

    A field that its record does not have is empty.
    """
    announce(_gather_fields)
    return _gather_fields(text, starts, ends)


@numba.njit(nogil=True, cache=True)
def _gather_fields(text, starts, ends):  # pragma: no cover - compiled
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


@numba.njit(nogil=True, cache=True)
def _write_quoted(text, at, end, gathered, written):  # pragma: no cover - compiled
    """Write a field that began with a quote, which `at` follows; where the next one is to be written."""
    begin, inside = written, True
    while at < end:
        byte = text[at]
        at += 1
        if inside and byte == QUOTE:
            if at >= end or text[at] != QUOTE:
                inside = False
                continue
            at += 1
        if written > begin or not _is_space(byte):
            gathered[written] = byte
            written += 1
    while written > begin and _is_space(gathered[written - 1]):
        written -= 1
    return written


@numba.njit(nogil=True, cache=True, inline="always")
def _is_space(byte):  # pragma: no cover - compiled
    return byte == SPACE or (byte >= 9 and byte <= CARRIAGE_RETURN)
