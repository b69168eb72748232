"""The rows of each unit, and which of them are counted where a unit has more than it may.

A *row* is the tuple of codes c₁ … c_k that the domain gives a record. Among the rows of a unit u, equal ones are
numbered 0, 1, 2, …; the number is the row's ordinal o. Kept are the m rows with the smallest

    SHA-256( "consilience row 1" LF c₁ "," … "," c_k LF o LF u )

as 256-bit numbers, where codes and ordinals are decimal texts and u is the unit's text as bytes. SHA-256 spreads like
a random function, so every m rows are equally likely to be kept, whatever they say; and which ones are follows from
the unit's own rows alone: neither their order nor any other unit matters.

Equal rows are stored once, with their number. Units and rows lie in hash tables with open addressing and are compared
in full, so two are never taken for one. A distinct row takes 32 to 40 bytes and its codes, a unit 36 to 44 and its
text, and their tables up to half as much again while they grow. Adding a row is one look-up in each table; choosing
takes one digest for each row of a unit that has more than m.

Compiled on first use and cached on disk.
"""

import hashlib
from collections.abc import Generator, Sequence
from concurrent.futures import Executor
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit

Bytes = NDArray[np.uint8]
Places = NDArray[np.int32]
Integers = NDArray[np.int64]
Marks = NDArray[np.bool_]
Words = NDArray[np.uint32]

FORMAT = np.frombuffer(b"consilience row 1\n", dtype=np.uint8)
NOWHERE = -1
"""The content of an empty slot, and the end of a list."""

MOST_SPLITS = 16
"""Units are divided into at most 2^16 parts."""


class Part(NamedTuple):
    """Those of all units, or of all values, whose hashes end in these bits: all of them where no bits are given."""

    bits: int = 0
    ending: int = 0

    def halves(self) -> "tuple[Part, Part]":
        """The part in two, each of about half the units."""
        return Part(self.bits + 1, self.ending), Part(self.bits + 1, self.ending | 1 << self.bits)

    def holds(self, text: bytes) -> bool:
        """Whether a text is in this part of all texts."""
        hashed = int.from_bytes(hashlib.sha256(text).digest()[:8], "little") if self.bits else 0
        return hashed & ((1 << self.bits) - 1) == self.ending


class _Units(NamedTuple):
    """The units met: unit i has the text text[ends[i]:ends[i + 1]], so many rows, and a list of distinct ones."""

    slots: NDArray[np.int32]
    hashes: NDArray[np.uint64]
    ends: NDArray[np.int64]
    rows: NDArray[np.int64]
    first: NDArray[np.int32]
    text: NDArray[np.uint8]


class _Rows(NamedTuple):
    """The distinct rows met: row j is `codes[j]`, occurs `times[j]` times, and is followed in its unit by `then[j]`."""

    slots: NDArray[np.int32]
    hashes: NDArray[np.uint64]
    unit: NDArray[np.int32]
    then: NDArray[np.int32]
    times: NDArray[np.int64]
    codes: NDArray[np.uint8]


class UnitRows:
    """The distinct rows of each unit of one part, as they are added, and the choice among them."""

    def __init__(self, columns: Sequence[np.dtype[Any]], part: Part = Part()) -> None:  # noqa: B008 (frozen)
        self._columns = [np.dtype(column).newbyteorder("<") for column in columns]
        self._offsets = np.cumsum([0, *(column.itemsize for column in self._columns)], dtype=np.int64)
        self._part = part
        self._met = np.zeros(2, dtype=np.int64)
        self._units = _Units(
            np.full(2, NOWHERE, np.int32), np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.int64),
            np.empty(0, np.int32), np.empty(0, np.uint8),
        )  # fmt: skip
        self._rows = _Rows(
            np.full(2, NOWHERE, np.int32), np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0, np.int32),
            np.empty(0, np.int64), np.empty((0, int(self._offsets[-1])), np.uint8),
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """The memory taken."""
        return sum(array.nbytes for array in (*self._units, *self._rows))

    def packed(self, columns: Sequence[NDArray[Any]]) -> NDArray[np.uint8]:
        """Rows that are given as columns, as the bytes of their codes."""
        codes = np.empty((len(columns[0]), int(self._offsets[-1])), dtype=np.uint8)
        for kind, (begin, end), column in zip(self._columns, pairwise(self._offsets), columns, strict=True):
            codes[:, begin:end] = column.astype(kind).view(np.uint8).reshape(-1, kind.itemsize)
        return codes

    def add(
        self,
        text: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        present: NDArray[np.bool_],
        codes: NDArray[np.uint8],
    ) -> None:
        """Add the packed rows that are present; row r is of the unit text[offsets[r]:offsets[r + 1]]."""
        self._make_room(len(present), int(offsets[-1] - offsets[0]))
        _add(text, offsets, present, codes, self._part.bits, self._part.ending, self._met, self._units, self._rows)

    def chosen(self, limit: int, threads: Executor, *, shares: int, size: int) -> Generator[list[NDArray[Any]]]:
        """The columns of codes of the rows that are counted, at most `limit` for each unit, so many rows at a time."""
        units, rows = self._met.tolist()
        weights = np.zeros(rows, dtype=np.int64)
        signed = np.array([column.kind == "i" for column in self._columns])
        bounds = np.linspace(0, units, shares + 1).astype(np.int64)
        tasks = [
            threads.submit(_choose, begin, end, limit, self._offsets, signed, self._units, self._rows, weights)
            for begin, end in pairwise(bounds)
        ]
        for task in tasks:
            task.result()
        ends = np.cumsum(weights)
        for begin in range(0, int(weights.sum()), size):
            # Equal rows are written out batch by batch: all of them might not fit in memory.
            first, last = np.searchsorted(ends, [begin, begin + size - 1], side="right")
            times = np.diff(np.minimum(ends[first : last + 1], begin + size), prepend=begin)
            codes = np.repeat(self._rows.codes[first : first + len(times)], times, axis=0)
            columns = zip(self._columns, pairwise(self._offsets), strict=True)
            yield [np.ascontiguousarray(codes[:, low:high]).view(kind).ravel() for kind, (low, high) in columns]

    def _make_room(self, added: int, size: int) -> None:
        """Room for rows that are all new, of units that are all new: at most half of the slots are ever taken."""
        units, rows = (self._met + added).tolist()
        used = int(self._units.ends[self._met[0]])
        for name in ("hashes", "rows", "first"):
            self._units = _with_room(self._units, name, units)
        self._units = _with_room(_with_room(self._units, "ends", units + 1), "text", used + size)
        for name in ("hashes", "unit", "then", "times", "codes"):
            self._rows = _with_room(self._rows, name, rows)
        self._units = _with_slots(self._units, int(self._met[0]), units)
        self._rows = _with_slots(self._rows, int(self._met[1]), rows)


Table = TypeVar("Table", _Units, _Rows)


def _with_room(table: Table, name: str, size: int) -> Table:
    """The table with an array that holds so many entries; one that has to grow, grows by half at least."""
    array = getattr(table, name)
    if size <= len(array):
        return table
    grown = np.empty((max(size, len(array) * 3 // 2), *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    return table._replace(**{name: grown})


def _with_slots(table: Table, met: int, size: int) -> Table:
    if 2 * size <= len(table.slots):
        return table
    slots = np.full(1 << (2 * size - 1).bit_length(), NOWHERE, dtype=np.int32)
    _place(table.hashes[:met], slots)
    return table._replace(slots=slots)


@njit(nogil=True, cache=True)
def _place(hashes: NDArray[np.uint64], slots: Places) -> None:  # pragma: no cover - compiled
    last = len(slots) - 1
    for entry in range(len(hashes)):
        slot = np.int64(hashes[entry] & np.uint64(last))
        while slots[slot] != NOWHERE:
            slot = (slot + 1) & last
        slots[slot] = entry


@njit(nogil=True, cache=True)
def _add(
    text: Bytes,
    offsets: Integers,
    present: Marks,
    codes: Bytes,
    bits: int,
    ending: int,
    met: Integers,
    units: _Units,
    rows: _Rows,
) -> None:  # pragma: no cover - compiled
    mask = np.uint64((1 << bits) - 1)
    for record in range(len(present)):
        if not present[record]:
            continue
        begin, end = offsets[record], offsets[record + 1]
        hashed = _hash(np.uint64(14695981039346656037), text, begin, end)
        if (hashed >> np.uint64(40)) & mask != np.uint64(ending):
            continue
        unit = _unit(hashed, text, begin, end, met, units)
        row = _row(unit, _hash(hashed, codes[record], 0, codes.shape[1]), codes[record], met, units, rows)
        units.rows[unit] += 1
        rows.times[row] += 1


@njit(nogil=True, cache=True)
def _unit(
    hashed: np.uint64, text: Bytes, begin: int, end: int, met: Integers, units: _Units
) -> Any:  # pragma: no cover - compiled
    """The number of the unit with this text, which it gets if it has none yet."""
    last = len(units.slots) - 1
    slot = np.int64(hashed & np.uint64(last))
    unit = units.slots[slot]
    while unit != NOWHERE:
        if units.hashes[unit] == hashed and _same(text, begin, end, units.text, units.ends[unit], units.ends[unit + 1]):
            return unit
        slot = (slot + 1) & last
        unit = units.slots[slot]
    unit = np.int32(met[0])
    units.slots[slot], units.hashes[unit], units.rows[unit], units.first[unit] = unit, hashed, 0, NOWHERE
    units.ends[unit + 1] = units.ends[unit] + end - begin
    for i in range(end - begin):
        units.text[units.ends[unit] + i] = text[begin + i]
    met[0] += 1
    return unit


@njit(nogil=True, cache=True)
def _row(
    unit: int, hashed: np.uint64, codes: Bytes, met: Integers, units: _Units, rows: _Rows
) -> Any:  # pragma: no cover - compiled
    """The number of this row of the unit, which it gets if it has none yet."""
    last = len(rows.slots) - 1
    slot = np.int64(hashed & np.uint64(last))
    row = rows.slots[slot]
    while row != NOWHERE:
        if (
            rows.hashes[row] == hashed
            and rows.unit[row] == unit
            and _same(codes, 0, len(codes), rows.codes[row], 0, len(codes))
        ):
            return row
        slot = (slot + 1) & last
        row = rows.slots[slot]
    row = np.int32(met[1])
    rows.slots[slot], rows.hashes[row], rows.unit[row], rows.times[row] = row, hashed, unit, 0
    rows.then[row], units.first[unit] = units.first[unit], row
    rows.codes[row] = codes
    met[1] += 1
    return row


@njit(nogil=True, cache=True)
def _hash(start: np.uint64, text: Bytes, begin: int, end: int) -> np.uint64:  # pragma: no cover - compiled
    """FNV-1a over the bytes, its upper half folded into the lower, which chooses the slot."""
    mixed = start
    for at in range(begin, end):
        mixed = (mixed ^ np.uint64(text[at])) * np.uint64(1099511628211)
    return mixed ^ (mixed >> np.uint64(32))


@njit(nogil=True, cache=True)
def _same(
    text: Bytes, begin: int, end: int, other: Bytes, other_begin: Any, other_end: Any
) -> bool:  # pragma: no cover - compiled
    length = end - begin
    if length != other_end - other_begin:
        return False
    same = 0
    while same < length and text[begin + same] == other[other_begin + same]:
        same += 1
    return same == length


@njit(nogil=True, cache=True)
def _choose(
    begin: int, end: int, limit: int, offsets: Integers, signed: Marks, units: _Units, rows: _Rows, weights: Integers
) -> None:  # pragma: no cover - compiled
    """Count every row of the units from `begin` to `end` that have at most `limit`, and `limit` of each other."""
    schedule = np.empty(64, dtype=np.uint32)
    for unit in range(begin, end):
        if units.rows[unit] <= limit:
            row = units.first[unit]
            while row != NOWHERE:
                weights[row] = rows.times[row]
                row = rows.then[row]
        else:
            _choose_among(unit, limit, offsets, signed, units, rows, weights, schedule)


@njit(nogil=True, cache=True)
def _choose_among(
    unit: int,
    limit: int,
    offsets: Integers,
    signed: Marks,
    units: _Units,
    rows: _Rows,
    weights: Integers,
    schedule: Words,
) -> None:  # pragma: no cover - compiled
    text = units.text[units.ends[unit] : units.ends[unit + 1]]
    message = np.empty(len(FORMAT) + 21 * (len(signed) + 1) + len(text) + 72, dtype=np.uint8)
    smallest = np.empty((limit, 8), dtype=np.uint32)
    of_row = np.empty(limit, dtype=np.int32)
    digest = np.empty(8, dtype=np.uint32)
    held = 0
    row = units.first[unit]
    while row != NOWHERE:
        head = _write_codes(rows.codes[row], offsets, signed, message)
        for ordinal in range(rows.times[row]):
            length = _write_number(np.uint64(ordinal), False, message, head)
            message[length] = 10
            length += 1
            message[length : length + len(text)] = text
            _sha256(message, length + len(text), digest, schedule)
            if held < limit:
                smallest[held], of_row[held] = digest, row
                held += 1
                _sift_up(smallest, of_row, held - 1)
            elif _less(digest, smallest[0]):
                smallest[0], of_row[0] = digest, row
                _sift_down(smallest, of_row, held)
        row = rows.then[row]
    for place in range(held):
        weights[of_row[place]] += 1


@njit(nogil=True, cache=True)
def _write_codes(codes: Bytes, offsets: Integers, signed: Marks, message: Bytes) -> int:  # pragma: no cover - compiled
    """Write the format and the codes, little-endian numbers at their offsets; the length of what was written."""
    length = len(FORMAT)
    message[:length] = FORMAT
    for column in range(len(signed)):
        if column:
            message[length] = 44
            length += 1
        number = np.uint64(0)
        for at in range(offsets[column + 1] - 1, offsets[column] - 1, -1):
            number = (number << np.uint64(8)) | np.uint64(codes[at])
        negative = signed[column] and number >> np.uint64(63) == np.uint64(1)
        if negative:
            number = ~number + np.uint64(1)
        length = _write_number(number, negative, message, length)
    message[length] = 10
    return length + 1


@njit(nogil=True, cache=True)
def _write_number(number: np.uint64, negative: bool, message: Bytes, length: int) -> int:  # pragma: no cover - compiled
    """Write a whole number in decimal; the length of what was written."""
    if negative:
        message[length] = 45
        length += 1
    digits = 1
    rest = number // np.uint64(10)
    while rest > np.uint64(0):
        digits += 1
        rest //= np.uint64(10)
    for at in range(length + digits - 1, length - 1, -1):
        message[at] = np.uint8(np.uint64(48) + number % np.uint64(10))
        number //= np.uint64(10)
    return length + digits


@njit(nogil=True, cache=True)
def _less(digest: Words, other: Words) -> bool:  # pragma: no cover - compiled
    for word in range(8):
        if digest[word] != other[word]:
            return digest[word] < other[word]
    return False


@njit(nogil=True, cache=True)
def _exchange(smallest: Words, of_row: Places, one: int, two: int) -> None:  # pragma: no cover - compiled
    for word in range(8):
        smallest[one, word], smallest[two, word] = smallest[two, word], smallest[one, word]
    of_row[one], of_row[two] = of_row[two], of_row[one]


@njit(nogil=True, cache=True)
def _sift_up(smallest: Words, of_row: Places, place: int) -> None:  # pragma: no cover - compiled
    """Restore the heap, largest digest first, after one was put at its end."""
    while place > 0 and _less(smallest[(place - 1) // 2], smallest[place]):
        _exchange(smallest, of_row, place, (place - 1) // 2)
        place = (place - 1) // 2


@njit(nogil=True, cache=True)
def _sift_down(smallest: Words, of_row: Places, held: int) -> None:  # pragma: no cover - compiled
    """Restore the heap, largest digest first, after its first was replaced."""
    place = 0
    while 2 * place + 1 < held:
        larger = 2 * place + 1
        if larger + 1 < held and _less(smallest[larger], smallest[larger + 1]):
            larger += 1
        if not _less(smallest[place], smallest[larger]):
            return
        _exchange(smallest, of_row, place, larger)
        place = larger


def _fractions_of_roots(root: int, count: int) -> NDArray[np.uint32]:
    """The first 32 bits behind the point of the square or cube roots of the first primes: what SHA-256 starts from."""
    primes = [number for number in range(2, 312) if all(number % divisor for divisor in range(2, number))]
    return np.array([_whole_root(prime << 32 * root, root) % 2**32 for prime in primes[:count]], dtype=np.uint32)


def _whole_root(number: int, root: int) -> int:
    low, high = 0, number
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**root <= number else (low, middle)
    return low


INITIAL_STATE = _fractions_of_roots(2, 8)
ROUND_CONSTANTS = _fractions_of_roots(3, 64)


@njit(nogil=True, cache=True)
def _sha256(message: Bytes, length: int, digest: Words, w: Words) -> None:  # pragma: no cover - compiled
    """The SHA-256 of message[:length] (FIPS 180-4), as eight words; the message is padded in place."""
    message[length] = 128
    padded = (length + 8) // 64 * 64 + 64
    message[length + 1 : padded] = 0
    for byte in range(8):
        message[padded - 1 - byte] = (8 * length >> (8 * byte)) & 255
    digest[:] = INITIAL_STATE
    for begin in range(0, padded, 64):
        _compress(message[begin : begin + 64], digest, w)


@njit(nogil=True, cache=True, inline="always")
def _rotated(word: np.uint32, by: int) -> np.uint32:  # pragma: no cover - compiled
    return np.uint32((word >> np.uint32(by)) | (word << np.uint32(32 - by)))


@njit(nogil=True, cache=True)
def _compress(block: Bytes, state: Words, w: Words) -> None:  # pragma: no cover - compiled
    for t in range(16):
        word = np.uint32(0)
        for byte in range(4):
            word = np.uint32((word << np.uint32(8)) | np.uint32(block[4 * t + byte]))
        w[t] = word
    for t in range(16, 64):
        before, near = w[t - 15], w[t - 2]
        small = _rotated(before, 7) ^ _rotated(before, 18) ^ (before >> np.uint32(3))
        large = _rotated(near, 17) ^ _rotated(near, 19) ^ (near >> np.uint32(10))
        w[t] = np.uint32(w[t - 16] + small + w[t - 7] + large)
    a, b, c, d = state[0], state[1], state[2], state[3]
    e, f, g, h = state[4], state[5], state[6], state[7]
    for t in range(64):
        choice = (e & f) ^ (~e & g)
        turned = _rotated(e, 6) ^ _rotated(e, 11) ^ _rotated(e, 25)
        first = np.uint32(h + turned + choice + ROUND_CONSTANTS[t] + w[t])
        majority = (a & b) ^ (a & c) ^ (b & c)
        second = np.uint32((_rotated(a, 2) ^ _rotated(a, 13) ^ _rotated(a, 22)) + majority)
        h, g, f, e = g, f, e, np.uint32(d + first)
        d, c, b, a = c, b, a, np.uint32(first + second)
    state[0] = np.uint32(state[0] + a)
    state[1] = np.uint32(state[1] + b)
    state[2] = np.uint32(state[2] + c)
    state[3] = np.uint32(state[3] + d)
    state[4] = np.uint32(state[4] + e)
    state[5] = np.uint32(state[5] + f)
    state[6] = np.uint32(state[6] + g)
    state[7] = np.uint32(state[7] + h)
