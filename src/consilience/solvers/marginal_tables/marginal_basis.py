"""Marginals as coordinates: an orthogonal basis in which many marginals become few independent numbers.

Let a table have attributes with k₁ … k_d values, and write θ_u(i) = 2π Σ_a i_a u_a / k_a for a cell i and a frequency
u. The functions cas θ_u = cos θ_u + sin θ_u (Hartley 1942) are an orthogonal basis of all tables, and cas θ_u depends
on the attributes in the support of u alone. The marginal on B therefore fixes exactly the coordinates

    c_u(x) = Σ_i x_i cas θ_u(i)        for all u with support inside B,

and marginals B, C, … fix the union of these sets: p independent numbers, however much the marginals overlap. Because

    cas θ_u · cas θ_v = cos(θ_u − θ_v) + sin(θ_u + θ_v),

the matrix Φ D Φᵀ that Newton's method needs, Φ being the p basis functions as rows and D any diagonal, is read off one
Fourier transform F of D:

    (Φ D Φᵀ)[u, v] = Re F[u − v] − Im F[u + v].

For attributes with two values F is real, u − v = u xor v, and F is the Walsh–Hadamard transform. So a product with Φ or
Φᵀ, and the whole matrix, cost n log n + p² operations, and no array is larger than n or p².
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.solvers.marginal_sums import walsh_transform

Vector = NDArray[np.float64]
Kind = TypeVar("Kind", bound=np.generic)


@dataclass(frozen=True)
class CellLayout:
    """The order in which the solvers keep cells: attributes with two values last, those with one value nowhere."""

    shape: tuple[int, ...]

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The axes with more than one value, those with two values last."""
        several = [axis for axis, size in enumerate(self.shape) if size > 2]
        return (*several, *(axis for axis, size in enumerate(self.shape) if size == 2))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of `axes`, in that order."""
        return tuple(self.shape[axis] for axis in self.axes)

    @property
    def cells(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def numbers(self) -> list[NDArray[np.int64]]:
        """What each value of each axis adds to the flat number of a cell."""
        strides = [math.prod(self.sizes[place + 1 :]) for place in range(len(self.sizes))]
        return [np.arange(size) * stride for size, stride in zip(self.sizes, strides, strict=True)]

    def flat(self, table: NDArray[Kind]) -> NDArray[Kind]:
        """The cells of a table as a vector in this order, a copy."""
        ones = [axis for axis in range(len(self.shape)) if axis not in self.axes]
        return np.array(np.transpose(table, (*ones, *self.axes)), order="C").reshape(-1)

    def table(self, cells: NDArray[Kind]) -> NDArray[Kind]:
        """The inverse of `flat`."""
        ones = [axis for axis in range(len(self.shape)) if axis not in self.axes]
        order = np.argsort([*ones, *self.axes]) if self.shape else ()
        return np.array(np.transpose(cells.reshape((1,) * len(ones) + self.sizes), order), order="C")

    def places(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Where these axes of the table stand in `sizes`, ascending; axes with one value are left out."""
        return tuple(sorted(self.axes.index(axis) for axis in axes if self.shape[axis] > 1))

    def marginal(self, cells: Vector, places: Sequence[int]) -> Vector:
        """The sums over all axes but those at these places."""
        away = tuple(place for place in range(len(self.sizes)) if place not in places)
        return np.asarray(cells.reshape(self.sizes).sum(axis=away))

    def spread(self, marginal: NDArray[Kind], places: Sequence[int]) -> NDArray[Kind]:
        """A marginal with axes of length 1 where the table has other axes, so that it broadcasts over the cells."""
        return marginal.reshape([size if place in places else 1 for place, size in enumerate(self.sizes)])


def hartley(arrays: Sequence[Vector]) -> list[Vector]:
    """For each of some small arrays, the coordinates Σ_i values_i cas θ_u(i) for every frequency u of its axes, flat.

    Arrays of the same shape are transformed together.
    """
    found: list[Any] = [None] * len(arrays)
    for shape in {values.shape for values in arrays}:
        chosen = [place for place, values in enumerate(arrays) if values.shape == shape]
        together = np.stack([arrays[place] for place in chosen])
        spectrum: Any = scipy.fft.fftn(together, axes=range(1, together.ndim)) if shape else together
        for place, values in zip(chosen, (spectrum.real - spectrum.imag).reshape(len(chosen), -1), strict=True):
            found[place] = values
    return found


def frequencies_of(layout: CellLayout, places: Sequence[int]) -> NDArray[np.int64]:
    """The flat numbers of the frequencies that the marginal at these places fixes, in the order of its cells."""
    flat = np.zeros(1, dtype=np.int64)
    for place in places:
        flat = np.add.outer(flat, layout.numbers[place]).reshape(-1)
    return flat


class MarginalBasis:
    """The rows Φ for a set of frequencies, known by their products."""

    def __init__(self, layout: CellLayout, frequencies: NDArray[np.int64]) -> None:
        self.layout = layout
        self.frequencies = frequencies
        self._several = tuple(size for size in layout.sizes if size > 2)
        self._binary = 2 ** sum(size == 2 for size in layout.sizes)
        self._codes = np.unravel_index(frequencies, (*self._several, self._binary))

    @property
    def rows(self) -> int:
        return self.frequencies.size

    def restricted(self, kept: NDArray[np.intp]) -> "MarginalBasis":
        """The basis with only these of its rows."""
        return MarginalBasis(self.layout, self.frequencies[kept])

    def apply(self, cells: Vector) -> Vector:
        """Φ x: the coordinates of a table."""
        spectrum = self._transform(cells)
        if not self._several:
            return spectrum[self._own.index]
        found = spectrum[self._own.index]
        return found.real - self._own.sign * found.imag

    def adjoint(self, coordinates: Vector) -> Vector:
        """Φᵀ λ: the table Σ_u λ_u cas θ_u.

        cas θ = Re (1 − j) e^{jθ}, so the sum is the inverse transform of the Hermitian part of (1 − j) λ.
        """
        if not self._several:
            cells = np.zeros(self.layout.cells)
            cells[self.frequencies] = coordinates
            walsh_transform(cells.reshape(1, -1))
            return cells
        half = np.zeros(self._half_cells, dtype=np.complex128)
        _add_hermitian(coordinates, self._own.place, self._mirror.place, half)
        wave = scipy.fft.irfftn(
            half.reshape(*self._half_shape, self._binary),
            s=self._several,
            axes=range(len(self._several)),
            norm="forward",
            overwrite_x=True,
        )
        cells = np.ascontiguousarray(wave).reshape(-1, self._binary)
        if self._binary > 1:
            walsh_transform(cells)
        return cells.reshape(-1)

    def gram(self, diagonal: Vector) -> NDArray[np.float64]:
        """Φ D Φᵀ for a diagonal D."""
        matrix = np.empty((self.rows, self.rows))
        if self._several:
            _gram(self._transform(diagonal), *self._pairs, matrix)
        else:
            _gram_of_bits(self._transform(diagonal), self.frequencies, matrix)
        return matrix

    def _transform(self, cells: Vector) -> Any:
        """The Fourier transform over all axes, flat; only one of u and −u is kept where they differ."""
        waves = np.array(cells).reshape(-1, self._binary)
        if self._binary > 1:
            walsh_transform(waves)
        if not self._several:
            return waves.reshape(-1)
        table = waves.reshape(*self._several, self._binary)
        spectrum: Any = scipy.fft.rfftn(table, axes=range(len(self._several)), overwrite_x=True)
        return spectrum.reshape(-1)

    @property
    def _half_shape(self) -> tuple[int, ...]:
        return (*self._several[:-1], self._several[-1] // 2 + 1)

    @property
    def _half_cells(self) -> int:
        return math.prod(self._half_shape) * self._binary

    def _find(self, codes: Sequence[NDArray[np.int64]]) -> "Found":
        """Where frequencies with these codes, one array for each axis, stand in the kept half of the spectrum."""
        if not self._several:
            return Found(codes[-1].astype(np.int32), np.ones(1, dtype=np.int8))
        last = codes[len(self._several) - 1]
        kept = last <= self._several[-1] // 2
        index = np.zeros(np.broadcast_shapes(*(code.shape for code in codes)), dtype=np.int64)
        for code, size, length in zip(codes, self._several, self._half_shape, strict=False):
            index *= length
            index += np.where(kept, code, (size - code) % size)
        index = index * self._binary + codes[-1]
        return Found(index.astype(self._index_type), np.where(kept, 1, -1))

    @property
    def _index_type(self) -> type[np.signedinteger]:
        return np.int32 if self._half_cells < 2**31 else np.int64

    @cached_property
    def _own(self) -> "Found":
        return self._find(self._codes)

    @cached_property
    def _mirror(self) -> "Found":
        several = [(size - code) % size for code, size in zip(self._codes, self._several, strict=False)]
        return self._find([*several, self._codes[-1]])

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """The places of u − v and of u + v for every pair of rows, those of a lower triangle, row by row."""
        size = self.rows * (self.rows + 1) // 2
        differences, sums = (np.empty(size, dtype=self._index_type) for _ in range(2))
        codes, sizes = np.stack(self._codes, axis=1).astype(np.int64), np.array(self._several, dtype=np.int64)
        _pair_places(codes, sizes, self._binary, differences, sums)
        return differences, sums


@dataclass(frozen=True)
class Found:
    """Places in the kept half of a spectrum; the sign is −1 where the conjugate stands there."""

    index: NDArray[np.integer]
    sign: NDArray[np.integer]

    @cached_property
    def place(self) -> NDArray[np.integer]:
        """The places of those that are not conjugates; −1 for the others."""
        return np.where(self.sign > 0, self.index, -1)


# Kernels. A place p of a spectrum is noted as p where the number itself stands there, and as −1 − p where its conjugate
# does. Only the triangle of i ≥ j is looked up.


@njit(nogil=True, cache=True)
def _pair_places(codes, sizes, binary, differences, sums):  # pragma: no cover - compiled
    """Fill in where u − v and u + v stand; rows of `codes` are the frequencies, axis by axis, then their bits."""
    axes = sizes.shape[0]
    half = sizes[axes - 1] // 2
    at = 0
    for i in range(codes.shape[0]):
        for j in range(i + 1):
            bits = codes[i, axes] ^ codes[j, axes]
            differences[at], _ = _place(codes[i], codes[j], -1, sizes, half)
            sums[at], kept = _place(codes[i], codes[j], 1, sizes, half)
            differences[at] = differences[at] * binary + bits
            sums[at] = sums[at] * binary + bits
            if not kept:
                sums[at] = -1 - sums[at]
            at += 1


@njit(nogil=True, cache=True)
def _place(one, other, sign, sizes, half):  # pragma: no cover - compiled
    """The place of u + sign·v, or of its negative where that is the one that is kept, and whether it is kept itself."""
    axes = sizes.shape[0]
    kept = (one[axes - 1] + sign * other[axes - 1]) % sizes[axes - 1] <= half
    turn = 1 if kept else -1
    place = 0
    for axis in range(axes):
        length = sizes[axis] if axis < axes - 1 else half + 1
        place = place * length + turn * (one[axis] + sign * other[axis]) % sizes[axis]
    return place, kept


@njit(nogil=True, cache=True)
def _gram(spectrum, differences, sums, matrix):  # pragma: no cover - compiled
    """Re F[u − v] − Im F[u + v] for every pair of rows."""
    at = 0
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            place = sums[at]
            imaginary = spectrum[place].imag if place >= 0 else -spectrum[-1 - place].imag
            matrix[i, j] = matrix[j, i] = spectrum[differences[at]].real - imaginary
            at += 1


@njit(nogil=True, cache=True)
def _gram_of_bits(spectrum, frequencies, matrix):  # pragma: no cover - compiled
    """F[u xor v] for every pair of rows."""
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            matrix[i, j] = matrix[j, i] = spectrum[frequencies[i] ^ frequencies[j]]


@njit(nogil=True, cache=True)
def _add_hermitian(coordinates, own, mirror, half):  # pragma: no cover - compiled
    """Add λ(1 − j)/2 at each frequency and λ(1 + j)/2 at its negative, where they are kept."""
    for row in range(coordinates.shape[0]):
        part = 0.5 * coordinates[row]
        if own[row] >= 0:
            half[own[row]] += complex(part, -part)
        if mirror[row] >= 0:
            half[mirror[row]] += complex(part, part)


# ----------------------------------------------------------------------------------------------------------------------
# Few marginals of many values: rows that are sums of cells, so that most of the normal matrix is 0.
#
# Of each marginal, in turn, the rows are the sums x_M(u) for those values u of its axes whose non-zero ones do not all
# lie in one earlier marginal. They are independent, and there are as many as coordinates c_u: what u fixes beyond its
# parts is an interaction with the value 0 of each axis left out, and sums over earlier marginals have none of it.
#
# Every cell is in at most one row of each marginal, and all rows of the first are disjoint. So its block of ΦDΦᵀ is
# diagonal, and it is eliminated first: with Δ that block, C the border and E the rest,
#
#     E − C Δ⁻¹ Cᵀ
#
# takes the squares of the few rows that share cells with each value of the first marginal.


class IndicatorBasis:
    """The rows as sums of cells, those of the first and largest marginal first; `row_of` has −1 where there is none."""

    def __init__(self, layout: CellLayout, row_of: NDArray[np.int32], rows: int, first: int) -> None:
        self.layout, self.row_of, self.rows, self.first = layout, row_of, rows, first

    @staticmethod
    def of(layout: CellLayout, marginals: Sequence[tuple[Sequence[int], Vector]]) -> "tuple[IndicatorBasis, Vector]":
        """The basis for marginals at these places, and what their values say about its rows."""
        ordered = sorted(marginals, key=lambda known: -known[1].size)
        columns, targets, rows, first = [], [], 0, 0
        for number, (places, values) in enumerate(ordered):
            at = np.indices([size if place in places else 1 for place, size in enumerate(layout.sizes)], sparse=True)
            new = np.ones(np.broadcast_shapes(*(each.shape for each in at)), dtype=np.bool_)
            for earlier, _ in ordered[:number]:
                new &= sum(at[place] for place in places if place not in earlier) > 0
            row = np.where(new, np.cumsum(new).reshape(new.shape) - 1 + rows, -1).astype(np.int32)
            columns.append(np.broadcast_to(row, layout.sizes).reshape(-1))
            targets.append(values.reshape(new.shape)[new])
            rows += targets[-1].size
            first = first or rows
        return IndicatorBasis(layout, np.stack(columns, axis=1), rows, first), np.concatenate(targets)

    def restricted(self, kept: NDArray[np.intp]) -> "IndicatorBasis":
        """The basis with only these of its rows."""
        row = np.full(self.rows + 1, -1, dtype=np.int32)
        row[kept] = np.arange(kept.size)
        return IndicatorBasis(self.layout, row[self.row_of], kept.size, int(np.count_nonzero(kept < self.first)))

    def apply(self, cells: Vector) -> Vector:
        """Φ x."""
        sums = np.zeros(self.rows)
        _add_up(self.row_of, cells, sums)
        return sums

    def adjoint(self, duals: Vector) -> Vector:
        """Φᵀ λ."""
        cells = np.empty(self.layout.cells)
        _spread_out(self.row_of, duals, cells)
        return cells

    def remainder(self, diagonal: Vector, duals: Vector, right: Vector) -> Vector:
        """What Φ D Φᵀ λ leaves of a right-hand side."""
        return _remainder(self.row_of, diagonal, duals, right)

    def gram(self, diagonal: Vector) -> NDArray[np.float64]:
        """Φ D Φᵀ for a diagonal D."""
        matrix = np.zeros((self.rows, self.rows))
        _gram_of_rows(self.row_of, diagonal, matrix)
        return matrix

    def reduced(self, diagonal: Vector) -> tuple[Vector, Vector, NDArray[np.float64]]:
        """Δ, the entries of C at `border`, and E − C Δ⁻¹ Cᵀ, for ΦDΦᵀ."""
        starts, rows, place = self.border
        block, border = np.zeros(self.first), np.zeros(rows.size)
        rest = np.zeros((self.rows - self.first, self.rows - self.first))
        _eliminated(self.row_of, diagonal, self.first, starts, rows, place, block, border, rest)
        return block, border, rest

    @cached_property
    def border(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """Where C has entries, block by block: starts and rows; and which of them each cell adds to."""
        rest = self.rows - self.first
        block, other = self.row_of[:, :1].astype(np.int64), self.row_of - self.first
        meets = (other >= 0) & (block >= 0) & (block < self.first)
        key = np.where(meets, block * rest + other, 0)
        filled = np.zeros(self.first * rest + 1, dtype=np.bool_)
        filled[key[meets]] = True
        before = np.concatenate([[0], np.cumsum(filled)])
        starts = before[np.arange(self.first + 1) * rest].astype(np.int64)
        rows = (np.flatnonzero(filled) % max(rest, 1)).astype(np.int32)
        return starts, rows, np.where(meets, before[key], -1).astype(np.int32)


@njit(nogil=True, cache=True)
def _add_up(row_of, cells, sums):  # pragma: no cover - compiled
    for i in range(row_of.shape[0]):
        for k in range(row_of.shape[1]):
            if row_of[i, k] >= 0:
                sums[row_of[i, k]] += cells[i]


@njit(nogil=True, cache=True)
def _spread_out(row_of, duals, cells):  # pragma: no cover - compiled
    for i in range(row_of.shape[0]):
        total = 0.0
        for k in range(row_of.shape[1]):
            if row_of[i, k] >= 0:
                total += duals[row_of[i, k]]
        cells[i] = total


@njit(nogil=True, cache=True)
def _remainder(row_of, diagonal, duals, right):  # pragma: no cover - compiled
    left = right.copy()
    for i in range(row_of.shape[0]):
        total = 0.0
        for k in range(row_of.shape[1]):
            if row_of[i, k] >= 0:
                total += duals[row_of[i, k]]
        for k in range(row_of.shape[1]):
            if row_of[i, k] >= 0:
                left[row_of[i, k]] -= diagonal[i] * total
    return left


@njit(nogil=True, cache=True)
def _gram_of_rows(row_of, diagonal, matrix):  # pragma: no cover - compiled
    for i in range(row_of.shape[0]):
        for k in range(row_of.shape[1]):
            for j in range(row_of.shape[1]):
                if row_of[i, k] >= 0 and row_of[i, j] >= 0:
                    matrix[row_of[i, k], row_of[i, j]] += diagonal[i]


@njit(nogil=True, cache=True, error_model="numpy")
def _eliminated(row_of, diagonal, first, starts, rows, place, block, border, rest):  # pragma: no cover - compiled
    found = np.empty(row_of.shape[1], dtype=np.int32)
    for i in range(row_of.shape[0]):
        d = diagonal[i]
        if d == 0.0:
            continue
        count = 0
        for k in range(row_of.shape[1]):
            row = row_of[i, k]
            if 0 <= row < first:
                block[row] += d
            elif row >= 0:
                found[count] = row - first
                count += 1
                if place[i, k] >= 0:
                    border[place[i, k]] += d
        for k in range(count):
            line = rest[found[k]]
            for j in range(k + 1):
                line[found[j]] += d
    for b in range(first):
        if block[b] <= 0.0:
            continue
        for x in range(starts[b], starts[b + 1]):
            share = border[x] / block[b]
            line = rest[rows[x]]
            for y in range(starts[b], x + 1):
                line[rows[y]] -= share * border[y]
    for x in range(rest.shape[0]):
        for y in range(x):
            rest[y, x] = rest[x, y]
