"""Many marginals of one table at once, sharing one pass over the table.

Marginals whose attributes fit together into a group of few cells are summed from that group's table; all groups' tables
are summed from the full one in a single pass. The axes are cut into an outer and an inner part. With x[i, j] the cell
of outer index i and inner index j, a group's cell is o[i] + n[j] for two small arrays of offsets, so that

    down:  t[o[i] + n[j]] += x[i, j]          up:  x[i, j] += t[o[i] + n[j]]

for every group; where a group has no inner axis, n is zero and the inner part is summed first. The cost is one addition
for each cell and group, whatever the order and the sizes of the axes; what follows happens in small tables.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GroupSettings:
    """How many cells a group has at most, so that what follows it costs little; by trial, no figures kept."""

    always: int = 4_000
    """Cells that a group may have whatever the table."""
    share_of_table: int = 20
    """Of so many cells of the table a group may have one."""


SETTINGS = GroupSettings()


class MarginalSums:
    """The marginals of tables of one shape over given sets of axes, each in the order its set names."""

    def __init__(self, shape: Sequence[int], axis_sets: Sequence[tuple[int, ...]]) -> None:
        self.shape = tuple(shape)
        self.axis_sets = tuple(axis_sets)
        self.groups = _groups(self.shape, self.axis_sets)
        self._homes = [next(i for i, group in enumerate(self.groups) if set(axes) <= set(group)) for axes in axis_sets]
        sizes = [_cells(self.shape, group) for group in self.groups]
        self._ends = np.cumsum(sizes, dtype=np.int64)
        cut = _cut(self.shape)
        starts = self._ends - np.array(sizes, dtype=np.int64)
        self._outer = np.array([_offsets(self.shape[:cut], group, self.shape, 0) for group in self.groups])
        self._outer += starts[:, None]
        self._inner = np.array([_offsets(self.shape[cut:], group, self.shape, cut) for group in self.groups])
        self._flat = np.array([not any(axis >= cut for axis in group) for group in self.groups], dtype=np.bool_)

    def of(self, table: Array) -> list[Array]:
        """The marginals of a table."""
        gathered = np.empty(self._ends[-1])
        sum_down(np.ascontiguousarray(table).reshape(-1), self._outer, self._inner, self._flat, gathered)
        tables = self._split(gathered)
        found = []
        for axes, home in zip(self.axis_sets, self._homes, strict=True):
            kept = tuple(sorted(axes))
            away = tuple(place for place, axis in enumerate(self.groups[home]) if axis not in kept)
            found.append(tables[home].sum(axis=away).transpose([kept.index(axis) for axis in axes]))
        return found

    def spread(self, marginals: Sequence[Array]) -> Array:
        """The transposed operation: the table in which every cell is the sum of its marginal cells' values."""
        gathered = np.zeros(self._ends[-1])
        tables = self._split(gathered)
        for axes, home, values in zip(self.axis_sets, self._homes, marginals, strict=True):
            ordered = values.transpose(sorted(range(len(axes)), key=axes.__getitem__))
            tables[home] += ordered.reshape([self.shape[axis] if axis in axes else 1 for axis in self.groups[home]])
        result = np.empty(math.prod(self.shape))
        spread_up(gathered, self._outer, self._inner, self._flat, result)
        return result.reshape(self.shape)

    def _split(self, gathered: Array) -> list[Array]:
        """Each group's table, as a view."""
        parts = np.split(gathered, self._ends[:-1])
        return [
            part.reshape([self.shape[axis] for axis in group]) for part, group in zip(parts, self.groups, strict=True)
        ]


@njit(nogil=True, cache=True)
def sum_down(table, outer, inner, even, gathered):  # pragma: no cover - compiled
    """Write the marginals of a flat table, one after another."""
    gathered[:] = 0.0
    width = inner.shape[1]
    for i in range(outer.shape[1]):
        row = table[i * width : (i + 1) * width]
        total = 0.0
        for j in range(width):
            total += row[j]
        for group in range(outer.shape[0]):
            start = outer[group, i]
            if even[group]:
                gathered[start] += total
            else:
                offsets = inner[group]
                for j in range(width):
                    gathered[start + offsets[j]] += row[j]


@njit(nogil=True, cache=True)
def spread_up(gathered, outer, inner, even, table):  # pragma: no cover - compiled
    """Write the flat table in which every cell is the sum of its cells in all marginals."""
    width = inner.shape[1]
    for i in range(outer.shape[1]):
        row = table[i * width : (i + 1) * width]
        common = 0.0
        for group in range(outer.shape[0]):
            if even[group]:
                common += gathered[outer[group, i]]
        row[:] = common
        for group in range(outer.shape[0]):
            if not even[group]:
                start, offsets = outer[group, i], inner[group]
                for j in range(width):
                    row[j] += gathered[start + offsets[j]]


def _groups(shape: tuple[int, ...], axis_sets: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Sets of axes, each small, that together contain every axis set; each set joins where it adds the fewest cells."""
    limit = max(SETTINGS.always, math.prod(shape) // SETTINGS.share_of_table)
    groups: list[set[int]] = []
    for axes in sorted({frozenset(axes) for axes in axis_sets}, key=lambda axes: (-_cells(shape, axes), sorted(axes))):
        if any(axes <= group for group in groups):
            continue
        fitting = [group for group in groups if _cells(shape, group | axes) <= limit]
        if fitting:
            best = min(fitting, key=lambda group: _cells(shape, group | axes) / _cells(shape, group))
            best |= axes
        else:
            groups.append(set(axes))
    return [tuple(sorted(group)) for group in groups]


def _cells(shape: tuple[int, ...], axes: Sequence[int] | frozenset[int] | set[int]) -> int:
    return math.prod(shape[axis] for axis in axes)


def _cut(shape: tuple[int, ...]) -> int:
    """Where outer axes end and inner ones begin: the inner part has about 512 cells, so that it stays in the cache."""
    cut = len(shape)
    while cut > 0 and math.prod(shape[cut - 1 :]) <= 512:
        cut -= 1
    return min(cut, max(len(shape) - 1, 0))


def _offsets(part: tuple[int, ...], group: tuple[int, ...], shape: tuple[int, ...], first: int) -> NDArray[np.int64]:
    """For each index over some axes, which begin with axis `first`, its share of the cell number in the group."""
    found = np.zeros(part, dtype=np.int64)
    for place, axis in enumerate(group):
        if first <= axis < first + len(part):
            stride = math.prod(shape[later] for later in group[place + 1 :])
            steps = np.arange(shape[axis], dtype=np.int64) * stride
            found += steps.reshape([-1 if here + first == axis else 1 for here in range(len(part))])
    return found.ravel()


# ----------------------------------------------------------------------------------------------------------------------
# The Walsh–Hadamard transform in place: the Fourier transform of attributes with two values each.
#
# For a vector a of length 2^m, with bits written as numbers,
#
#     â[u] = Σ_i (−1)^{popcount(i & u)} a[i],
#
# by m passes of sums and differences, two at a time: n log₂ n additions, no multiplication and no second array.


def walsh_transform(rows: NDArray[np.float64]) -> None:
    """Replace every row, of a length that is a power of 2, by its transform.

    >>> rows = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> walsh_transform(rows)
    >>> rows
    array([[10., -2., -4.,  0.]])
    """
    transform_rows(rows)


BLOCK = 8192
"""Entries that are taken through all their passes while they lie in the second-level cache."""


@njit(nogil=True, cache=True, fastmath=True)
def transform_rows(rows):  # pragma: no cover - compiled
    """What `walsh_transform` does, for compiled callers."""
    length = rows.shape[1]
    block = min(length, BLOCK)
    for r in range(rows.shape[0]):
        for begin in range(0, length, block):
            _passes(rows[r, begin : begin + block], 1)
        if block < length:
            _passes(rows[r], block)


@njit(nogil=True, cache=True, fastmath=True)
def _passes(row, half):  # pragma: no cover - compiled
    """The passes that join pieces of length `half`, then longer ones, into the whole row."""
    length = row.shape[0]
    while half * 4 <= length:
        for begin in range(0, length, half * 4):
            first = row[begin : begin + half]
            second = row[begin + half : begin + 2 * half]
            third = row[begin + 2 * half : begin + 3 * half]
            fourth = row[begin + 3 * half : begin + 4 * half]
            for j in range(half):
                plus, minus = first[j] + second[j], first[j] - second[j]
                high_plus, high_minus = third[j] + fourth[j], third[j] - fourth[j]
                first[j], second[j] = plus + high_plus, minus + high_minus
                third[j], fourth[j] = plus - high_plus, minus - high_minus
        half *= 4
    if half < length:
        first, second = row[:half], row[half:]
        for j in range(half):
            plus, minus = first[j] + second[j], first[j] - second[j]
            first[j], second[j] = plus, minus
