"""Scopes, sets of attributes by their numbers, and the one order of axes in which tables over them are kept."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Scope = tuple[int, ...]


def stored_order(sizes: Sequence[int], attributes: Iterable[int]) -> Scope:
    """The attributes by ascending size, ties by number: the one order of axes in which every table is stored.

    >>> stored_order([9, 2, 9], (2, 0, 1))
    (1, 0, 2)
    """
    return tuple(sorted(attributes, key=lambda attribute: (sizes[attribute], attribute)))


# ----------------------------------------------------------------------------------------------------------------------
# Many small tables in one flat vector, those of one shape next to each other, so that NumPy treats them together.
#
# An attribute is a number from 0 up; a *scope* is a tuple of attributes. The axes of a table are in stored order: by
# ascending size, then by number. So tables over different attributes of the same sizes have one shape and form a group:
# the 4,950 pairs of 100 attributes with 10 values each are one array of 4,950 × 10 × 10.


Array = NDArray[np.float64]


def subsets(scope: Scope) -> Iterable[Scope]:
    """All parts of a scope, the smallest first, from the empty one to the scope itself."""
    return itertools.chain.from_iterable(itertools.combinations(scope, count) for count in range(len(scope) + 1))


def maximal(scopes: Iterable[Scope]) -> list[Scope]:
    """The scopes that are part of no other, each once, in an order that depends on the scopes alone.

    >>> maximal([(0,), (0, 1), (1, 0), (2,), ()])
    [(2,), (0, 1)]
    """
    kept: list[Scope] = []
    holders: dict[int, list[set[int]]] = {}
    distinct = {tuple(sorted(scope)): scope for scope in reversed(list(scopes))}.values()
    for scope in sorted(distinct, key=lambda each: (-len(each), each)):
        rivals = holders.get(scope[0], []) if scope else [set(each) for each in kept]
        if any(set(scope) <= rival for rival in rivals):
            continue
        kept.append(scope)
        for attribute in scope:
            holders.setdefault(attribute, []).append(set(scope))
    return sorted(kept, key=lambda each: (len(each), each))


def summed(table: NDArray, scope: Scope, kept: Scope) -> NDArray:
    """A table over `scope` summed down to some of its attributes, with axes in the order of `kept`.

    >>> summed(np.array([[1.0, 2.0], [3.0, 4.0]]), (5, 7), (7,))
    array([4., 6.])
    """
    away = tuple(axis for axis, attribute in enumerate(scope) if attribute not in kept)
    left = [attribute for attribute in scope if attribute in kept]
    return np.asarray(table.sum(axis=away)).transpose([left.index(attribute) for attribute in kept])


@dataclass(frozen=True, eq=False)
class ShapeGroup:
    """The tables of one shape: where they lie in the flat vector, and their scopes in order."""

    shape: tuple[int, ...]
    start: int
    scopes: tuple[Scope, ...]

    @property
    def cells(self) -> int:
        """The cells of one table."""
        return math.prod(self.shape)

    @property
    def stop(self) -> int:
        return self.start + self.cells * len(self.scopes)

    def tables(self, flat: Array) -> Array:
        """The tables in the flat vector, as one array with a first axis for the scopes; a view."""
        return flat[self.start : self.stop].reshape(len(self.scopes), *self.shape)


class TableStack:
    """The tables of distinct scopes, grouped by shape, in one flat vector of `size` numbers."""

    def __init__(self, sizes: Sequence[int], scopes: Iterable[Scope]) -> None:
        self.sizes = tuple(sizes)
        by_shape: dict[tuple[int, ...], list[Scope]] = {}
        for scope in scopes:
            by_shape.setdefault(tuple(self.sizes[each] for each in scope), []).append(scope)
        groups: list[ShapeGroup] = []
        start = 0
        for shape, members in sorted(by_shape.items()):
            groups.append(ShapeGroup(shape, start, tuple(members)))
            start = groups[-1].stop
        self.groups = tuple(groups)
        self.size = start
        self.places = {scope: (k, row) for k, each in enumerate(groups) for row, scope in enumerate(each.scopes)}

    @property
    def scopes(self) -> list[Scope]:
        return [scope for group in self.groups for scope in group.scopes]

    def table(self, flat: Array, scope: Scope) -> Array:
        """The table of one scope, a view."""
        group, row = self.places[scope]
        return self.groups[group].tables(flat)[row, ...]

    def spread(self, each: dict[Scope, float]) -> Array:
        """The flat vector that holds, in all cells of a table, the number given for its scope."""
        numbers = [each[scope] for group in self.groups for scope in group.scopes]
        cells = [group.cells for group in self.groups for _ in group.scopes]
        return np.repeat(np.array(numbers, dtype=np.float64), cells)


# ----------------------------------------------------------------------------------------------------------------------
# The cells of marginals that can hold nothing, from rules and facts about other marginals.
#
# A cell of a table is empty for certain when the attributes that the table shares with a rule or a known marginal
# decide so: every cell of the rule's table with these values is empty.


Mask = NDArray[np.bool_]


class EmptyCells:
    """Known empty cells, asked for by scope."""

    def __init__(self) -> None:
        self._known: list[tuple[Scope, Mask]] = []

    def add(self, scope: Scope, empty: Mask) -> None:
        """Remember the empty cells of a table, with axes in the scope's order."""
        if empty.any():
            self._known.append((scope, empty))

    def of(self, scope: Scope) -> Mask | None:
        """Which cells of a scope are empty, with axes in its order; None where none is known to be."""
        found: Mask | None = None
        for known, empty in self._known:
            shared = tuple(attribute for attribute in scope if attribute in known)
            if not shared:
                continue
            table = summed(~empty, known, shared) == 0
            if table.any():
                mask = table[tuple(slice(None) if each in shared else np.newaxis for each in scope)]
                found = mask if found is None else found | mask
        return found
