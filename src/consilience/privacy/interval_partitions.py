"""Partitions of n codes into intervals of a fixed family, and the one of least cost."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import announce

Integers = NDArray[np.int64]
IntervalFamily = Literal["dyadic", "all"]

MOST_INTERVALS = 2**18
"""Each interval's cost takes a draw of noise, about twenty microseconds."""


def interval_family(size: int, intervals: IntervalFamily) -> list[tuple[int, int]]:
    """The lengths of the intervals over so many codes, each with the step between its first codes.

    >>> interval_family(5, "all")
    [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]
    >>> interval_family(5, "dyadic")
    [(1, 1), (2, 1), (4, 1)]
    >>> interval_family(2**16, "dyadic")[:5]
    [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4)]
    """
    if intervals == "all":
        return [(width, 1) for width in range(1, size + 1)]
    widths = [2**power for power in range(size.bit_length())]
    finest = widths[-1]
    while finest > 1:
        family = [(width, max(1, width // finest)) for width in widths]
        if sum((size - width) // step + 1 for width, step in family) <= MOST_INTERVALS:
            return family
        finest //= 2
    return [(width, width) for width in widths]


def least_cost_starts(size: int, family: Sequence[tuple[int, int]], costs: Sequence[Integers]) -> list[int]:
    """The first codes of the partition of least cost; among equals, the one with the longest last bucket, and so on.

    >>> least_cost_starts(2, [(1, 1), (2, 1)], [np.array([1, 2]), np.array([3])])
    [0]
    """
    from consilience.privacy.interval_kernels import best_last_buckets

    announce(best_last_buckets)
    longest_first = sorted(range(len(family)), key=lambda i: -family[i][0])
    offsets = np.cumsum([0, *(costs[i].size for i in longest_first)])[:-1].astype(np.int64)
    widths, steps = (np.array([family[i][part] for i in longest_first], dtype=np.int64) for part in (0, 1))
    last = best_last_buckets(size, widths, steps, offsets, np.concatenate([costs[i] for i in longest_first]))
    starts, after = [], size
    while after > 0:
        after -= int(last[after])
        starts.append(after)
    return starts[::-1]
