"""Sets of cells of a table, written as layers: the sets of a layer are disjoint, so a cell has one number in each.

A measured answer that adds up cells is a product of sets of codes, one for each axis. Along one axis the rows of a 0/1
matrix are dealt into layers of disjoint rows, and a layer says for each code which row holds it. A cell is then held by
the set with the number base + Σ_axes (row of its code × stride) of every layer, unless an axis says that none does.
Nothing is written out cell by cell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.kernels.compilation import announce
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, LinearMap, PrefixMap, SparseMap, SumMap

ABSENT = -1

NO_SETS = "it has entries other than 0 and 1"

LARGEST_PATTERN = 1 << 27
"""The most numbers that the layers of one axis may hold: half a gigabyte."""


@dataclass(frozen=True, eq=False)
class AxisPattern:
    """The rows of a 0/1 matrix over the codes of one axis, in layers."""

    rows_of: NDArray[np.int32]
    """For each code and each layer, the row that holds the code, or ABSENT."""
    sizes: NDArray[np.int64]
    """How many codes each row holds."""


def axis_pattern(each: LinearMap) -> AxisPattern | str:
    """The sets that a map adds up, or the reason why there are none or too many."""
    columns = each.columns
    if isinstance(each, IdentityMap):
        return AxisPattern(np.arange(columns, dtype=np.int32)[:, None], np.ones(columns, dtype=np.int64))
    if isinstance(each, SumMap):
        return AxisPattern(np.zeros((columns, 1), dtype=np.int32), np.array([columns], dtype=np.int64))
    if isinstance(each, PrefixMap):
        if columns * columns > LARGEST_PATTERN:
            return f"its {columns:,} prefixes lie one in another, more deeply than can be kept in memory"
        row, code = np.arange(columns, dtype=np.int32), np.arange(columns, dtype=np.int32)[:, None]
        return AxisPattern(np.where(row >= code, row, np.int32(ABSENT)), np.arange(1, columns + 1, dtype=np.int64))
    if isinstance(each, AllRangesMap) and columns > 2:
        return "its ranges overlap each other"
    if isinstance(each, SparseMap):
        return _sparse_pattern(each.matrix)
    if not each.nonnegative or each.lattice_bits or each.rows * columns > LARGEST_PATTERN:
        return NO_SETS
    return _sparse_pattern(sp.csr_array(each.dense()))


def _sparse_pattern(matrix: Any) -> AxisPattern | str:
    if not np.all((matrix.data == 0.0) | (matrix.data == 1.0)):
        return NO_SETS
    if not (matrix.has_canonical_format and np.all(matrix.data)):
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    announce(_deal)
    rows, columns = matrix.shape
    layer = np.empty(rows, dtype=np.int32)
    layers = int(_deal(matrix.indptr, matrix.indices, np.zeros(columns, dtype=np.int32), layer))
    if layers * columns > LARGEST_PATTERN:
        return f"a value is in {layers:,} of its sets, more than can be kept in memory"
    rows_of = np.full((columns, max(layers, 1)), ABSENT, dtype=np.int32)
    _place(matrix.indptr, matrix.indices, layer, rows_of)
    return AxisPattern(rows_of, np.diff(matrix.indptr).astype(np.int64))


@numba.njit(nogil=True, cache=True)
def _deal(begins, codes, reached, layer):  # pragma: no cover - compiled
    """Give each row the first layer that is free for all of its codes; returns how many layers there are."""
    layers = 0
    for row in range(len(layer)):
        layer[row] = 0
        for place in range(begins[row], begins[row + 1]):
            layer[row] = max(layer[row], reached[codes[place]])
        for place in range(begins[row], begins[row + 1]):
            reached[codes[place]] = layer[row] + 1
            layers = max(layers, layer[row] + 1)
    return layers


@numba.njit(nogil=True, cache=True)
def _place(begins, codes, layer, rows_of):  # pragma: no cover - compiled
    for row in range(len(layer)):
        for place in range(begins[row], begins[row + 1]):
            rows_of[codes[place], layer[row]] = row


@dataclass(frozen=True, eq=False)
class SetFamily:
    """Sets of cells of a table with this shape, in layers of disjoint sets."""

    shape: tuple[int, ...]
    parts: NDArray[np.int32]
    """For each code of the first axis, then of the second, …: the part of the set's number in each layer, or ABSENT."""
    bases: NDArray[np.int64]
    """The least number of a set of each layer."""
    sizes: NDArray[np.int64]
    """How many cells each set holds."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where the codes of each axis begin in `parts`."""
        return np.cumsum([0, *self.shape[:-1]]).astype(np.int64)

    @staticmethod
    def of(shape: Sequence[int], queries: Sequence[Mapping[int, AxisPattern]]) -> "SetFamily":
        """The sets of some queries, numbered query after query; in each, the last pattern varies fastest.

        A query maps axes to patterns and takes all codes of the axes that it leaves out.
        """
        sizes = tuple(shape) or (1,)
        bases, columns, numbers, first = [], [], [], 0
        for query in queries:
            held = np.array([int(np.prod([sizes[axis] for axis in range(len(sizes)) if axis not in query]))])
            for pattern in query.values():
                held = np.multiply.outer(held, pattern.sizes).ravel()
            for layers in product(*(range(pattern.rows_of.shape[1]) for pattern in query.values())):
                bases.append(first)
                columns.append(_layer(sizes, query, layers))
            numbers.append(held)
            first += held.size
        parts = np.ascontiguousarray(np.stack(columns, axis=1))
        return SetFamily(sizes, parts, np.array(bases, dtype=np.int64), np.concatenate(numbers).astype(np.int64))


def _layer(shape: Sequence[int], query: Mapping[int, AxisPattern], layers: Sequence[int]) -> NDArray[np.int32]:
    """One column of `SetFamily.parts`."""
    parts = [np.zeros(size, dtype=np.int32) for size in shape]
    stride = 1
    for (axis, pattern), layer in reversed(list(zip(query.items(), layers, strict=True))):
        rows = pattern.rows_of[:, layer]
        parts[axis] = np.where(rows == ABSENT, np.int32(ABSENT), rows * np.int32(stride))
        stride *= pattern.sizes.size
    return np.concatenate(parts)
