"""The kernels under counting: codes into marginal counts, and the first rows of each unit.

*Counting.* A marginal over attributes with sizes n₁ … n_k is a flat array in which the record with codes c₁ … c_k
falls into cell Σ_j c_j s_j, where s_j = n_{j+1} ⋯ n_k. Blocks of records that fit the fastest cache are taken through
all marginals in turn, so a batch is read once however many marginals are counted.

Compiled on first use and cached on disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.numerics.compilation import announce

Codes = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]

WIDTHS = (np.uint8, np.uint16, np.uint32)
"""The types of codes, narrow to wide."""

ROWS_PER_BLOCK = 4096
"""Records per block: their cell numbers take 16 kB, half of a usual first-level cache."""

NOWHERE = -1
"""The content of an empty slot."""


def width_of(size: int) -> int:
    """The place in WIDTHS of the narrowest type that holds the codes 0 … size − 1.

    >>> width_of(256), width_of(257)
    (0, 1)
    """
    return next(place for place, kind in enumerate(WIDTHS) if size - 1 <= np.iinfo(kind).max)


@dataclass(frozen=True)
class MarginalLayout:
    """Where the terms of each marginal come from and where its counts go, as arrays for the kernel.

    Term t of marginal m, for t in bounds[m] … bounds[m + 1], is the row `rows[t]` of the code matrix of width
    `widths[t]`, times `strides[t]`. The counts of marginal m begin at `offsets[m]` and end at `offsets[m + 1]`.
    """

    shapes: tuple[tuple[int, ...], ...]
    bounds: NDArray[np.int64]
    widths: NDArray[np.int64]
    rows: NDArray[np.int64]
    strides: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @staticmethod
    def of(
        marginals: Sequence[Sequence[int]], sizes: Sequence[int], places: Sequence[tuple[int, int]]
    ) -> "MarginalLayout":
        """The layout of marginals over columns that have these sizes and (width, row) places."""
        shapes = tuple(tuple(sizes[column] for column in marginal) for marginal in marginals)
        strides = [int(np.prod(shape[j + 1 :], dtype=np.int64)) for shape in shapes for j in range(len(shape))]
        terms = [places[column] for marginal in marginals for column in marginal]
        return MarginalLayout(
            shapes,
            np.cumsum([0, *(len(shape) for shape in shapes)], dtype=np.int64),
            np.array([width for width, _ in terms], dtype=np.int64),
            np.array([row for _, row in terms], dtype=np.int64),
            np.array(strides, dtype=np.int64),
            np.cumsum([0, *(int(np.prod(shape, dtype=np.int64)) for shape in shapes)], dtype=np.int64),
        )

    def shares(self, parts: int) -> list[NDArray[np.int64]]:
        """The marginals in groups of about equal work, so that threads count without sharing a cell."""
        heaviest_first = np.argsort(-np.diff(self.bounds), kind="stable")
        return [heaviest_first[part::parts] for part in range(min(parts, len(self.shapes)))]

    def split(self, counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The flat counts as one array for each marginal."""
        ends = zip(self.offsets[:-1], self.offsets[1:], strict=True)
        return [counts[a:b].reshape(shape) for (a, b), shape in zip(ends, self.shapes, strict=True)]


def look_up(table: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    """The entries of a table at these places, none of which lies outside it."""
    found = np.empty(len(places), dtype=table.dtype)
    announce(_look_up)
    _look_up(table, places, found)
    return found


@numba.njit(nogil=True, cache=True)
def _look_up(table, places, found):  # pragma: no cover - compiled
    for i in range(places.shape[0]):
        found[i] = table[places[i]]


class CodeMatrices(NamedTuple):
    """Codes of a batch of records, a row for each column, in one matrix for each width."""

    narrow: NDArray[np.uint8]
    medium: NDArray[np.uint16]
    wide: NDArray[np.uint32]

    @staticmethod
    def empty(rows: Sequence[int], records: int) -> "CodeMatrices":
        """Room for codes: so many rows of each width."""
        narrow, medium, wide = rows
        return CodeMatrices(
            np.empty((narrow, records), dtype=np.uint8),
            np.empty((medium, records), dtype=np.uint16),
            np.empty((wide, records), dtype=np.uint32),
        )


def add_counts(
    layout: MarginalLayout,
    codes: CodeMatrices,
    kept: NDArray[np.bool_],
    counts: NDArray[np.int64],
    *,
    chosen: NDArray[np.int64] | None = None,
) -> None:
    """Add the records that are kept to the counts of the chosen marginals, by default of all."""
    chosen = np.arange(len(layout.shapes)) if chosen is None else chosen
    announce(_add_counts)
    _add_counts(
        codes.narrow, codes.medium, codes.wide, kept.view(np.uint8),
        layout.bounds, layout.widths, layout.rows, layout.strides, layout.offsets, chosen, counts,
    )  # fmt: skip


@numba.njit(nogil=True, cache=True)
def _add_counts(
    narrow, medium, wide, kept, bounds, widths, rows, strides, offsets, chosen, counts
):  # pragma: no cover - compiled
    records = kept.shape[0]
    cells = np.empty(ROWS_PER_BLOCK, dtype=np.uint32)
    for begin in range(0, records, ROWS_PER_BLOCK):
        length = min(ROWS_PER_BLOCK, records - begin)
        for marginal in chosen:
            for i in range(length):
                cells[i] = 0
            for term in range(bounds[marginal], bounds[marginal + 1]):
                stride = np.uint32(strides[term])
                if widths[term] == 0:
                    _add_term(cells, narrow[rows[term], begin : begin + length], stride)
                elif widths[term] == 1:
                    _add_term(cells, medium[rows[term], begin : begin + length], stride)
                else:
                    _add_term(cells, wide[rows[term], begin : begin + length], stride)
            own = counts[offsets[marginal] : offsets[marginal + 1]]
            for i in range(length):
                own[cells[i]] += kept[begin + i]


@numba.njit(nogil=True, cache=True)
def _add_term(cells, codes, stride):  # pragma: no cover - compiled
    for i in range(codes.shape[0]):
        cells[i] += np.uint32(codes[i]) * stride


class UnitTable:
    """Counts the rows of each unit, a string of bytes, to keep no more than the first few.

    A hash table with open addressing. Units are compared byte by byte, so two of them are never taken for one. Memory
    grows with the number of units: about 60 bytes each, and their own.
    """

    def __init__(self) -> None:
        self._units = 0
        self._slots = np.full(2, NOWHERE, dtype=np.int64)
        self._hashes = np.empty(0, dtype=np.uint64)
        self._seen = np.empty(0, dtype=np.int64)
        self._ends = np.zeros(1, dtype=np.int64)
        self._text = np.empty(0, dtype=np.uint8)

    def keep_first(
        self,
        text: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        present: NDArray[np.bool_],
        limit: int,
    ) -> NDArray[np.bool_]:
        """Whether each row is among the first `limit` of its unit, text[offsets[r]:offsets[r + 1]], if it has one."""
        self._make_room(len(present), int(offsets[-1] - offsets[0]))
        kept = np.zeros(len(present), dtype=np.bool_)
        announce(_keep_first)
        self._units = _keep_first(
            text, offsets, present, limit, self._units,
            self._slots, self._hashes, self._seen, self._ends, self._text, kept,
        )  # fmt: skip
        return kept

    def _make_room(self, rows: int, size: int) -> None:
        """Room for rows whose units are all new: at most half of the slots are ever taken."""
        units = self._units + rows
        if units > len(self._seen):
            self._hashes = _grown(self._hashes, 2 * units)
            self._seen = _grown(self._seen, 2 * units)
            self._ends = _grown(self._ends, 2 * units + 1)
        if self._ends[self._units] + size > len(self._text):
            self._text = _grown(self._text, 2 * (int(self._ends[self._units]) + size))
        if 2 * units > len(self._slots):
            self._slots = np.full(1 << (2 * units).bit_length(), NOWHERE, dtype=np.int64)
            _place_units(self._hashes[: self._units], self._slots)


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.empty(size, dtype=array.dtype)
    grown[: len(array)] = array
    return grown


@numba.njit(nogil=True, cache=True)
def _keep_first(
    text, offsets, present, limit, units, slots, hashes, seen, ends, own, kept
):  # pragma: no cover - compiled
    last = len(slots) - 1
    for row in range(len(kept)):
        if not present[row]:
            continue
        begin, end = offsets[row], offsets[row + 1]
        mixed = _hash(text, begin, end)
        slot = np.int64(mixed & np.uint64(last))
        unit = slots[slot]
        while unit != NOWHERE and not (
            hashes[unit] == mixed and _same(text, begin, end, own, ends[unit], ends[unit + 1])
        ):
            slot = (slot + 1) & last
            unit = slots[slot]
        if unit == NOWHERE:
            unit = units
            slots[slot], hashes[unit], seen[unit] = unit, mixed, 0
            ends[unit + 1] = ends[unit] + end - begin
            for i in range(end - begin):
                own[ends[unit] + i] = text[begin + i]
            units += 1
        if seen[unit] < limit:
            seen[unit] += 1
            kept[row] = True
    return units


@numba.njit(nogil=True, cache=True)
def _place_units(hashes, slots):  # pragma: no cover - compiled
    last = len(slots) - 1
    for unit in range(len(hashes)):
        slot = np.int64(hashes[unit] & np.uint64(last))
        while slots[slot] != NOWHERE:
            slot = (slot + 1) & last
        slots[slot] = unit


@numba.njit(nogil=True, cache=True)
def _hash(text, begin, end):  # pragma: no cover - compiled
    """FNV-1a over the bytes, its upper half folded into the lower, which chooses the slot."""
    mixed = np.uint64(14695981039346656037)
    for at in range(begin, end):
        mixed = (mixed ^ np.uint64(text[at])) * np.uint64(1099511628211)
    return mixed ^ (mixed >> np.uint64(32))


@numba.njit(nogil=True, cache=True)
def _same(text, begin, end, other, other_begin, other_end):  # pragma: no cover - compiled
    length = end - begin
    same = 0
    while same < length and text[begin + same] == other[other_begin + same]:
        same += 1
    return same == length == other_end - other_begin
