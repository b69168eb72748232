"""Where the tables of a model lie: one after another in a single vector, all in one order of axes.

The attributes of a model are numbered 0 … d − 1 and have sizes n₀ … n_{d−1}. A *scope* is a tuple of attributes, and a
model has one table for each of its scopes. Every table is stored with its axes by ascending size, ties by number.
Then any table is a projection of one order of axes, and along the last axis of any loop over cells each table either
moves by one place or stays where it is: nothing is ever transposed.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.marginals.table_stacks import Scope, stored_order


def checked_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes as plain integers, each at least one."""
    for attribute, size in enumerate(sizes):
        if int(size) != size or size < 1:
            raise DeclarationError(
                f"attribute {attribute} has size {size}; an attribute has at least one value: give sizes of 1 or more"
            )
    return tuple(int(size) for size in sizes)


def checked_scopes(sizes: Sequence[int], scopes: Sequence[Sequence[int]]) -> tuple[Scope, ...]:
    """The scopes as tuples of plain integers, each naming known attributes at most once."""
    checked = []
    for place, scope in enumerate(scopes):
        for attribute in scope:
            if int(attribute) != attribute or not 0 <= attribute < len(sizes):
                raise DeclarationError(
                    f"scope {place} is {tuple(scope)} and names attribute {attribute}; the attributes are 0 to "
                    f"{len(sizes) - 1}: give the sizes of all attributes, or drop the scope"
                )
        if len(set(scope)) < len(scope):
            raise DeclarationError(f"scope {place} is {tuple(scope)}, which repeats an attribute: name each one once")
        checked.append(tuple(int(attribute) for attribute in scope))
    return tuple(checked)


def cells_of(sizes: Sequence[int], attributes: Sequence[int]) -> int:
    """How many cells a table over these attributes has: an exact integer, however large.

    >>> cells_of([2, 3, 5], (0, 2))
    10
    """
    return math.prod(sizes[attribute] for attribute in attributes)


class TableLayout:
    """The tables of all scopes one after another in one flat vector, each with its axes in stored order.

    >>> layout = TableLayout([3, 2], [(0, 1), (1,)])
    >>> layout.axes, layout.size
    (((1, 0), (1,)), 8)
    >>> layout.pack([[[1, 2], [3, 4], [5, 6]], [7, 8]])
    array([1., 3., 5., 2., 4., 6., 7., 8.])
    """

    def __init__(self, sizes: Sequence[int], scopes: Sequence[Sequence[int]]) -> None:
        self.sizes = checked_sizes(sizes)
        self.scopes = checked_scopes(self.sizes, scopes)
        self._refuse_repeated_scopes()
        self.axes: tuple[Scope, ...] = tuple(stored_order(self.sizes, scope) for scope in self.scopes)
        """The attributes of each scope in the order in which its table is stored."""
        ends = np.cumsum([0, *(cells_of(self.sizes, scope) for scope in self.scopes)])
        self.offsets: NDArray[np.int64] = ends.astype(np.int64)
        """Where each table begins, and after the last one where it ends."""
        self.size = int(ends[-1])
        """The length of the flat vector."""

    def _refuse_repeated_scopes(self) -> None:
        seen: dict[frozenset[int], int] = {}
        for place, scope in enumerate(self.scopes):
            first = seen.setdefault(frozenset(scope), place)
            if first != place:
                raise DeclarationError(
                    f"scopes {first} and {place} are {self.scopes[first]} and {scope}, the same attributes: a model "
                    "has one table for each set of attributes, so add the two tables and give the scope once"
                )

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where each table lies in the flat vector."""
        ends = self.offsets.tolist()
        return tuple(slice(begin, end) for begin, end in pairwise(ends))

    @cached_property
    def _stored_shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self.sizes[attribute] for attribute in axes) for axes in self.axes)

    @cached_property
    def _into_storage(self) -> tuple[tuple[int, ...], ...]:
        """For each scope, the axes of its own order by their place in storage."""
        return tuple(
            tuple(scope.index(attribute) for attribute in axes)
            for scope, axes in zip(self.scopes, self.axes, strict=True)
        )

    def shape(self, k: int) -> tuple[int, ...]:
        """The shape of table k with its axes in the order of its scope."""
        return tuple(self.sizes[attribute] for attribute in self.scopes[k])

    def pack(self, tables: Sequence[ArrayLike]) -> NDArray[np.float64]:
        """The flat vector of these tables, whose axes (or flat cells) are in the order of their scopes."""
        if len(tables) != len(self.scopes):
            raise DeclarationError(f"{len(tables)} tables for {len(self.scopes)} scopes: give one table for each scope")
        flat = np.empty(self.size)
        for k, table in enumerate(tables):
            values = np.asarray(table, dtype=np.float64)
            if values.shape != self.shape(k) and values.shape != (math.prod(self.shape(k)),):
                raise DeclarationError(
                    f"table {k} has shape {values.shape}; its scope {self.scopes[k]} has shape {self.shape(k)}: "
                    "give the table with its axes in the order of the scope"
                )
            self.view(flat, k)[...] = values.reshape(self.shape(k)).transpose(self._into_storage[k])
        return flat

    def unpack(self, flat: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """The tables as arrays of their own, with axes in the order of their scopes."""
        return [np.ascontiguousarray(self.unpack_one(flat, k)) for k in range(len(self.scopes))]

    def unpack_one(self, flat: NDArray[np.float64], k: int) -> NDArray[np.float64]:
        """Table k of the flat vector with axes in the order of its scope, without a copy."""
        return self.view(flat, k).transpose(np.argsort(self._into_storage[k])).reshape(self.shape(k))

    def view(self, flat: NDArray[np.float64], k: int) -> NDArray[np.float64]:
        """Table k of the flat vector in stored order, without a copy."""
        return flat[self.slices[k]].reshape(self._stored_shapes[k])
