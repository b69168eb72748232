"""Tables of greatest entropy with given marginals, by iterative proportional fitting, many of one shape at a time.

Each pass multiplies the table so that one of the given marginals holds, and goes through all of them in turn (Deming
and Stephan 1940). Where some table has all these marginals the passes lead to the one of greatest entropy; where none
has, they end near a compromise, and `violation` says how far from the marginals it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Margin = tuple[tuple[int, ...], Array]
"""Ascending axes (from 0) of the tables, and their marginals over these, with a first axis for the tables."""

SMALLEST = 1e-300
"""A marginal that is found to be less than this part of what it should be is 0: no factor may overflow."""


@dataclass(frozen=True, eq=False)
class FittedTables:
    """Non-negative tables, and the largest difference between their marginals and the given ones."""

    tables: Array
    violation: float
    passes: int


def greatest_entropy(
    start: Array, margins: Sequence[Margin], *, tolerance: float = 1e-9, most_passes: int = 200
) -> FittedTables:
    """The tables in proportion to `start` whose marginals are as given; `tolerance` is in parts of the totals.

    >>> pair = [((0,), np.array([[2.0, 6.0]])), ((1,), np.array([[4.0, 4.0]]))]
    >>> greatest_entropy(np.ones((1, 2, 2)), pair).tables
    array([[[1., 1.],
            [3., 3.]]])
    """
    tables = np.array(start, dtype=np.float64)
    violation, passes = math.inf, 0
    size = max((float(margin.sum()) / len(margin) for _, margin in margins), default=0.0)
    while margins and violation > tolerance * size and passes < most_passes:
        violation = 0.0
        for axes, margin in margins:
            away = tuple(axis + 1 for axis in range(tables.ndim - 1) if axis not in axes)
            found = tables.sum(axis=away, keepdims=True)
            wanted = margin.reshape(found.shape)
            violation = max(violation, float(np.abs(found - wanted).max(initial=0.0)) if passes else math.inf)
            tables *= np.divide(wanted, found, out=np.zeros_like(found), where=found > SMALLEST * wanted)
        passes += 1
    return FittedTables(tables, 0.0 if not margins else violation, passes)
