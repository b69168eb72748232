"""Numbers of small sets: the t-sets {p₁ < p₂ < … < p_t} of points in colexicographic order.

    rank = C(p₁, 1) + C(p₂, 2) + … + C(p_t, t),

so that a table over all t-sets of v points is a plain array of C(v, t) entries, and a set keeps its number when points
are added behind.
"""

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

MOST_PAIRED = 1 << 62
"""Binomial coefficients above this are cut off; no table that is ever allocated reaches it."""


@lru_cache(maxsize=256)
def binomials(points: int, strength: int) -> NDArray[np.int64]:
    """The coefficients C(p, i) for p up to `points` and i up to `strength`."""
    entries = [[min(comb(p, i), MOST_PAIRED) for i in range(strength + 1)] for p in range(points + 1)]
    return np.array(entries, dtype=np.int64)


@lru_cache(maxsize=256)
def places(block: int, strength: int) -> NDArray[np.int64]:
    """The `strength`-subsets of the places 0..block−1 of a block, one in each row.

    >>> places(3, 2).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    chosen = list(combinations(range(block), strength))
    return np.array(chosen, dtype=np.int64).reshape(len(chosen), strength)


@lru_cache(maxsize=256)
def places_with(block: int, strength: int) -> NDArray[np.int64]:
    """For each place of a block, the subsets of its places that hold it: shape (block, C(block−1, t−1), t)."""
    chosen = places(block, strength)
    return np.stack([chosen[(chosen == place).any(axis=1)] for place in range(block)])


def unranked(ranks: NDArray[np.int64], points: int, size: int) -> NDArray[np.int64]:
    """The sets with these numbers, one ascending row each.

    >>> unranked(np.array([0, 1, 5]), points=4, size=2).tolist()
    [[0, 1], [0, 2], [2, 3]]
    """
    coefficients = binomials(points, size)
    left = np.array(ranks, dtype=np.int64)
    sets = np.empty((left.size, size), dtype=np.int64)
    for i in range(size, 0, -1):
        sets[:, i - 1] = np.searchsorted(coefficients[:, i], left, side="right") - 1
        left -= coefficients[sets[:, i - 1], i]
    return sets


def ranked(sets: NDArray[np.integer], points: int) -> NDArray[np.int64]:
    """The numbers of sets given as ascending rows.

    >>> ranked(np.array([[0, 1], [0, 2], [2, 3]]), points=4).tolist()
    [0, 1, 5]
    """
    size = sets.shape[1]
    coefficients = binomials(points, size)
    return sum((coefficients[sets[:, i], i + 1] for i in range(size)), np.zeros(len(sets), dtype=np.int64))
