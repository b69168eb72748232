"""Scopes, sets of attributes by their numbers, and the one order of axes in which tables over them are kept."""

from collections.abc import Iterable, Sequence

Scope = tuple[int, ...]


def stored_order(sizes: Sequence[int], attributes: Iterable[int]) -> Scope:
    """The attributes by ascending size, ties by number: the one order of axes in which every table is stored.

    >>> stored_order([9, 2, 9], (2, 0, 1))
    (1, 0, 2)
    """
    return tuple(sorted(attributes, key=lambda attribute: (sizes[attribute], attribute)))
