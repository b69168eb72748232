"""The kernels under counting: codes into marginal counts.

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

from consilience.kernels.compilation import announce

Codes = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]

WIDTHS = (np.uint8, np.uint16, np.uint32)
"""The types of codes, narrow to wide."""

ROWS_PER_BLOCK = 4096
"""Records per block: their cell numbers take 16 kB, half of a usual first-level cache."""


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
