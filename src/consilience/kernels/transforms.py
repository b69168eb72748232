"""The real Fourier basis over n cells on a lattice, with rows made on the fly: never a matrix of rows × n.

The rows, in order, over the cells t = 0 … n − 1:

    1;   √2 cos(2πjt/n), √2 sin(2πjt/n)  for j = 1, 2, …;   and (−1)^t for j = n/2 where n is even.

They are orthogonal and each has the squared norm n, so the columns of all n rows have it too. An entry depends on
jt mod n alone: a table of n cosines and one of n sines hold the whole basis. The tables are rounded to multiples of
2^−b, which makes every entry exact and known; sums over records are then exact integers in units of 2^−b.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import Array, LinearMap, SparseMap, fractional_bits

Integers = NDArray[np.int64]

MOST_BITS = 30


def most_frequencies(cells: int) -> int:
    """How many frequencies there are, from 0 up: those of all n rows.

    >>> most_frequencies(4), most_frequencies(5)
    (3, 3)
    """
    return cells // 2 + 1


def rows_of(cells: int, frequencies: int) -> int:
    """How many rows the first so many frequencies have: one for 0 and for n/2, two for each of the others.

    >>> [rows_of(4, f) for f in (1, 2, 3)], [rows_of(5, f) for f in (1, 2, 3)]
    ([1, 3, 4], [1, 3, 5])
    """
    return min(2 * frequencies - 1, cells)


def lattice_tables(cells: int, bits: int) -> tuple[Integers, Integers]:
    """√2 cos(2πm/n) and √2 sin(2πm/n) for m = 0 … n − 1 in units of 2^−bits, each within one unit of the truth.

    Both are made from the first half, so that cosines are exactly even in m and sines exactly odd.
    """
    half = np.arange(cells // 2 + 1)
    angles = 2.0 * np.pi * half / cells
    size = math.ldexp(math.sqrt(2.0), bits)
    cosines, sines = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    cosines[half % cells] = np.rint(size * np.cos(angles)).astype(np.int64)
    sines[half % cells] = np.rint(size * np.sin(angles)).astype(np.int64)
    sines[0] = 0
    if cells % 2 == 0:
        sines[cells // 2] = 0
    mirrored = np.arange(1, (cells + 1) // 2)
    cosines[cells - mirrored], sines[cells - mirrored] = cosines[mirrored], -sines[mirrored]
    return cosines, sines


@dataclass(frozen=True, eq=False)
class FourierMap(LinearMap):
    """The rows of the first frequencies.

    `tables` holds the cosines and the sines by jt mod n; `ends` the entry of frequency 0, that of n/2 in even cells
    and that of n/2 in odd cells.
    """

    frequencies: int
    tables: tuple[Array, Array]
    ends: tuple[float, float, float]

    @staticmethod
    def on_lattice(cells: int, frequencies: int, bits: int) -> "FourierMap":
        """The map with entries rounded to multiples of 2^−bits."""
        if not 1 <= frequencies <= most_frequencies(cells):
            raise DeclarationError(
                f"{frequencies} frequencies were asked of {cells} cells; they have 1 to {most_frequencies(cells)}"
            )
        if not 1 <= bits <= MOST_BITS:
            raise DeclarationError(f"a lattice of {bits} bits was asked for; use 1 to {MOST_BITS}")
        cosines, sines = (np.ldexp(table.astype(np.float64), -bits) for table in lattice_tables(cells, bits))
        return FourierMap(frequencies, (cosines, sines), (1.0, 1.0, -1.0))

    @property
    def columns(self) -> int:  # type: ignore[override]
        return int(self.tables[0].size)

    @property
    def rows(self) -> int:  # type: ignore[override]
        return rows_of(self.columns, self.frequencies)

    @property
    def pairs(self) -> int:
        """How many frequencies have both a cosine and a sine."""
        return (self.rows - 1) // 2

    def apply(self, array: Array, axis: int) -> Array:
        from consilience.kernels.fourier_kernels import forward

        return self._by_columns(forward, array, axis, self.rows)

    def adjoint(self, array: Array, axis: int) -> Array:
        from consilience.kernels.fourier_kernels import backward

        return self._by_columns(backward, array, axis, self.columns)

    def _by_columns(self, kernel: Any, array: Array, axis: int, size: int) -> Array:
        """The kernel on every line along the axis, in integers where both the entries and the array are."""
        whole = np.issubdtype(array.dtype, np.integer) and self.lattice_bits == 0
        kind = np.int64 if whole else np.float64
        cosines, sines = (table.astype(kind) for table in self.tables)
        ends = np.array(self.ends).astype(kind)
        moved = np.moveaxis(array, axis, 0)
        lines = np.ascontiguousarray(moved.reshape(moved.shape[0], -1).T.astype(kind))
        found = np.empty((lines.shape[0], size), dtype=kind)
        for line, out in zip(lines, found, strict=True):
            kernel(line, cosines, sines, ends, self.pairs, out)
        return np.moveaxis(found.T.reshape(size, *moved.shape[1:]), 0, axis)

    def column_norms(self, power: int) -> NDArray[np.float64]:
        raised = self._mapped(lambda entries: np.abs(entries) ** power)
        return np.asarray(raised.adjoint(np.ones(self.rows), 0), dtype=np.float64)

    def squared(self) -> LinearMap:
        return self._mapped(np.square)

    def in_lattice_units(self) -> LinearMap:
        return self._mapped(lambda entries: np.ldexp(entries, self.lattice_bits)) if self.lattice_bits else self

    def _mapped(self, function: Any) -> "FourierMap":
        cosines, sines = (function(table) for table in self.tables)
        first, even, odd = function(np.array(self.ends)).tolist()
        return FourierMap(self.frequencies, (cosines, sines), (first, even, odd))

    @cached_property
    def lattice_bits(self) -> int:  # type: ignore[override]
        return fractional_bits(self._entries)

    @property
    def largest_entry(self) -> float:
        return float(np.abs(self._entries).max())

    @property
    def nonnegative(self) -> bool:
        return bool(self._entries.min() >= 0)

    @property
    def _entries(self) -> Array:
        """All the entries there are, each at least once."""
        ends = self.ends[:1] if self.rows % 2 else self.ends
        return np.concatenate([ends, *self.tables]) if self.pairs else np.array(ends)

    def dense(self) -> NDArray[np.float64]:
        cells = np.arange(self.columns)
        matrix = np.full((self.rows, self.columns), float(self.ends[0]))
        turns = np.outer(np.arange(1, self.pairs + 1), cells) % self.columns
        matrix[1 : 2 * self.pairs : 2], matrix[2 : 2 * self.pairs + 1 : 2] = (table[turns] for table in self.tables)
        if self.rows % 2 == 0:
            matrix[-1] = np.where(cells % 2 == 0, *self.ends[1:])
        return matrix


def exact_coefficients(counts: Integers, frequencies: int, bits: int) -> Integers:
    """The answers of the rows of the first frequencies in units of 2^−bits, exactly, for a vector of whole numbers.

    Cosines are even in t and sines odd, so cells t and n − t are added or subtracted first, and half of the products
    remain. The sums fit while the counts' total times 2^(bits + 1) stays below 2^63.
    """
    from consilience.kernels.fourier_kernels import folded

    cells = counts.size
    found = np.zeros(rows_of(cells, frequencies), dtype=np.int64)
    folded(np.ascontiguousarray(counts, dtype=np.int64), *lattice_tables(cells, bits), np.int64(1) << bits, found)
    return found


# ----------------------------------------------------------------------------------------------------------------------
# The nominal wavelet of a tree of cells (Xiao, Wang, Gehrke 2011, section V) in whole numbers, never as one matrix.
#
# Let s_v be the sum of the cells below node v. The weighted coefficients are s at the root, and for each child v of a
# node p that has f ≥ 2 children
#
#     W · (s_v − s_p/f)  with  W = f/(2f − 2),   that is   (f · s_v − s_p) / (2(f − 1)).
#
# All are multiplied by one number L that makes them whole, which changes nothing when their noise grows by L as well:
#
#     L · s_root,      ⌊L / (2(f − 1))⌋ · (f · s_v − s_p).
#
# A cell adds at most L · (f − 1)/(2(f − 1)) = L/2 to the row of the child above it and as much to the rows of its
# siblings together: at most L per level. The rows of siblings sum to zero.


def whole_scale(fanouts: Sequence[int]) -> int:
    """L: the least common multiple of all 2(f − 1); or, where that is large, a power of two that loses at most 1/32.

    >>> whole_scale([2, 3, 5]), whole_scale([]), whole_scale(range(2, 40))
    (8, 1, 4096)
    """
    doubled = [2 * (fanout - 1) for fanout in fanouts]
    return min(math.lcm(*doubled), 2 ** (32 * max(doubled) - 1).bit_length()) if doubled else 1


@dataclass(frozen=True, eq=False)
class NominalMap(LinearMap):
    """Row i is `own[i]` on the cells below `node[i]` and `shared[i]` on the others below `parent[i]`: whole numbers."""

    members: SparseMap
    """A row of zeros and ones for each node: the cells below it."""
    node: NDArray[np.intp]
    parent: NDArray[np.intp]
    own: NDArray[np.float64]
    shared: NDArray[np.float64]

    @property
    def rows(self) -> int:  # type: ignore[override]
        return int(self.node.size)

    @property
    def columns(self) -> int:  # type: ignore[override]
        return self.members.columns

    @cached_property
    def _from_sums(self) -> SparseMap:
        """From the sums of nodes to the rows: (own − shared) s_node + shared s_parent."""
        rows = np.arange(self.rows)
        entries = np.concatenate([self.own - self.shared, self.shared])
        places = (np.concatenate([rows, rows]), np.concatenate([self.node, self.parent]))
        return SparseMap(sp.csr_array((entries, places), (self.rows, self.members.rows)))

    def apply(self, array: Array, axis: int) -> Array:
        return self._from_sums.apply(self.members.apply(array, axis), axis)

    def adjoint(self, array: Array, axis: int) -> Array:
        return self.members.adjoint(self._from_sums.adjoint(array, axis), axis)

    def column_norms(self, power: int) -> NDArray[np.float64]:
        raised = self._with_entries(np.abs(self.own) ** power, np.abs(self.shared) ** power)
        return np.asarray(raised.adjoint(np.ones(self.rows), 0), dtype=np.float64)

    def squared(self) -> LinearMap:
        return self._with_entries(self.own**2, self.shared**2)

    def _with_entries(self, own: NDArray[np.float64], shared: NDArray[np.float64]) -> "NominalMap":
        return NominalMap(self.members, self.node, self.parent, own, shared)

    @property
    def largest_entry(self) -> float:
        return float(max(np.abs(self.own).max(), np.abs(self.shared).max()))

    @property
    def nonnegative(self) -> bool:
        return bool(self.own.min() >= 0 and self.shared.min() >= 0)
