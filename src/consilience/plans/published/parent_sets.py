"""Whom an attribute may depend on: sets of parents that are as large as a table may be (Zhang et al. 2017, section 5).

A set of parents is *maximal* when its combinations of values are no more than a limit, and no attribute can be added to
it. All maximal sets are listed where they are few. Where they are many, some are drawn: attributes in random order,
each taken that still fits, which always ends in a maximal set.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from consilience.kernels.rng import Generator

ParentSet = tuple[int, ...]

TRIES_FOR_EACH = 4
"""How often a set is drawn for each that is wanted, at most: the same set may come again."""

ORDERS_AT_ONCE = 256


def all_maximal_sets(
    sizes: Sequence[int], limit: float, *, most: int, degree: int | None = None
) -> list[ParentSet] | None:
    """Every maximal set of attributes with at most `limit` combinations; None where there are more than `most`.

    `sizes` are those of the attributes to choose from, and the sets hold their places. With a `degree`, sets have at
    most so many attributes. Where nothing fits, the empty set is the one maximal set.

    >>> all_maximal_sets([2, 3, 4], 8, most=10)
    [(0, 1), (0, 2)]
    """
    found: list[ParentSet] = []
    # Smallest first: the first attribute that a set leaves out and could take tells that the set is not maximal.
    order = sorted(range(len(sizes)), key=lambda place: (sizes[place], place))
    deepest = len(sizes) if degree is None else min(degree, len(sizes))
    visits = 0
    waiting: list[tuple[ParentSet, int, int, int | None]] = [((), 0, 1, None)]
    while waiting:
        chosen, place, cells, smallest_left = waiting.pop()
        visits += 1
        if len(found) > most or visits > 50 * (most + len(sizes) + 1):
            return None
        full = len(chosen) == deepest
        if full or place == len(order) or cells * sizes[order[place]] > limit:
            if full or smallest_left is None or cells * smallest_left > limit:
                found.append(tuple(sorted(chosen)))
            continue
        size = sizes[order[place]]
        if smallest_left is None or cells * smallest_left <= limit:
            left = size if smallest_left is None else smallest_left
            waiting.append((chosen, place + 1, cells, left))
        waiting.append(((*chosen, order[place]), place + 1, cells * size, smallest_left))
    return found if len(found) <= most else None


def some_maximal_sets(
    sizes: Sequence[int], limit: float, *, count: int, rng: Generator, degree: int | None = None
) -> list[ParentSet]:
    """Up to `count` different maximal sets, drawn at random."""
    deepest = len(sizes) if degree is None else min(degree, len(sizes))
    smallest = min(sizes, default=1)
    found: dict[ParentSet, None] = {}
    for order in _random_orders(len(sizes), TRIES_FOR_EACH * count, rng):
        chosen: list[int] = []
        cells = 1
        for place in order:
            if len(chosen) == deepest or cells * smallest > limit:
                break
            if cells * sizes[place] <= limit:
                chosen.append(place)
                cells *= sizes[place]
        found[tuple(sorted(chosen))] = None
        if len(found) == count:
            break
    return list(found)


def sets_of_degree(attributes: int, degree: int, *, most: int, rng: Generator) -> list[ParentSet]:
    """Every set of `degree` of so many attributes, or `most` different ones drawn at random where there are more."""
    if math.comb(attributes, degree) <= most:
        return list(itertools.combinations(range(attributes), degree))
    found: dict[ParentSet, None] = {}
    for order in _random_orders(attributes, TRIES_FOR_EACH * most, rng):
        found[tuple(sorted(order[:degree]))] = None
        if len(found) == most:
            break
    return list(found)


def _random_orders(attributes: int, count: int, rng: Generator) -> Iterator[list[int]]:
    """So many random orders of attributes, drawn some hundreds at a time."""
    for begin in range(0, count, ORDERS_AT_ONCE):
        keys = rng.random((min(ORDERS_AT_ONCE, count - begin), attributes))
        yield from np.argsort(keys, axis=1).tolist()
