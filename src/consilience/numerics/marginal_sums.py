"""Many marginals of one table at once, sharing the passes over the table.

Marginals whose attributes fit together into a group of few cells are summed from that group's table, which is summed
from the full one: all fifteen 2-way marginals of six attributes take four passes over the table instead of fifteen. The
transposed direction gathers in the groups' tables first and spreads each once.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SMALLEST_LIMIT = 1_000
SHARE_OF_TABLE = 50
"""A group has at most this share of the table's cells, so that what follows it costs little."""


class MarginalSums:
    """The marginals of tables of one shape over given sets of axes, each in the order its set names."""

    def __init__(self, shape: Sequence[int], axis_sets: Sequence[tuple[int, ...]]) -> None:
        self.shape = tuple(shape)
        self.axis_sets = tuple(axis_sets)
        self._groups = _groups(self.shape, self.axis_sets)
        self._homes = [next(i for i, group in enumerate(self._groups) if set(axes) <= set(group)) for axes in axis_sets]

    def of(self, table: Array) -> list[Array]:
        """The marginals of a table."""
        tables = [_sum_to(table, tuple(range(len(self.shape))), group) for group in self._groups]
        found = []
        for axes, home in zip(self.axis_sets, self._homes, strict=True):
            kept = tuple(sorted(axes))
            summed = _sum_to(tables[home], self._groups[home], kept)
            found.append(summed.transpose([kept.index(axis) for axis in axes]))
        return found

    def spread(self, marginals: Sequence[Array]) -> Array:
        """The transposed operation: the table in which every cell is the sum of its marginal cells' values."""
        tables = [np.zeros([self.shape[axis] for axis in group]) for group in self._groups]
        for axes, home, values in zip(self.axis_sets, self._homes, marginals, strict=True):
            ordered = values.transpose(np.argsort(axes)) if len(axes) > 1 else values
            tables[home] += _aligned(ordered, tuple(sorted(axes)), self._groups[home], self.shape)
        result = np.zeros(self.shape)
        for group, gathered in zip(self._groups, tables, strict=True):
            result += _aligned(gathered, group, tuple(range(len(self.shape))), self.shape)
        return result


def _groups(shape: tuple[int, ...], axis_sets: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Sets of axes, each small, that together contain every axis set; each set joins where it adds the fewest cells."""
    limit = max(SMALLEST_LIMIT, math.prod(shape) // SHARE_OF_TABLE)
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


def _cells(shape: tuple[int, ...], axes: frozenset[int] | set[int]) -> int:
    return math.prod(shape[axis] for axis in axes)


def _sum_to(table: Array, axes: tuple[int, ...], kept: tuple[int, ...]) -> Array:
    """A table over `axes` summed down to some of them, in ascending order."""
    away = tuple(place for place, axis in enumerate(axes) if axis not in kept)
    return np.asarray(table.sum(axis=away)) if away else table


def _aligned(values: Array, axes: tuple[int, ...], wider: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Values over ascending `axes`, shaped so that they broadcast against a table over the wider set."""
    return values.reshape([shape[axis] if axis in axes else 1 for axis in wider])
