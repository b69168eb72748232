"""Sums of absolute deviations from the median, of every prefix or window of a list of whole numbers, in whole numbers.

M(x) = Σ|xᵢ − median| = min over c of Σ|xᵢ − c|. With m the median of w numbers, C and S the number and the sum of those
below m,

    M = (m · C − S) + (sum of all − S) − m · (w − C).

Two Fenwick trees over the sorted values hold C and S and find m, so that each number that comes or goes, and each M,
costs O(log n).

*One record.* Σ|xᵢ − c| changes by at most 1 for every c when one xᵢ changes by 1, and so does its minimum. A single
number has M = 0 always.

*Against the mean.* What an even spread of a bucket's total over its w values gets wrong is D(x) = Σ|xᵢ − mean|. One
record changes it by up to 2(1 − 1/w): if x_j grows by 1, |x_j − mean| changes by up to 1 − 1/w, and each of the
others by up to 1/w. D is 0 on constants, and x is M away from one, so M ≤ D ≤ 2(1 − 1/w) · M. In units of what one
record can change, M is therefore never smaller than D, and up to twice as large: the better one to look at through
noise.
"""

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import announce

Integers = NDArray[np.int64]


def deviation_sensitivity(width: int) -> int:
    """The most by which one record more or less changes M of so many counts.

    >>> [deviation_sensitivity(width) for width in (1, 2, 100)]
    [0, 1, 1]
    """
    return min(width - 1, 1)


def prefix_deviations(counts: Integers) -> Integers:
    """M of the first 0, 1, …, n counts.

    >>> prefix_deviations(np.array([2, 4, 3])).tolist()
    [0, 0, 2, 2]
    """
    return _scanned(counts, counts.size)


def window_deviations(counts: Integers, width: int) -> Integers:
    """M of every window of so many neighbouring counts, by its first one.

    >>> window_deviations(np.array([2, 4, 3]), 2).tolist()
    [2, 1]
    """
    return _scanned(counts, width)[width:]


def _scanned(counts: Integers, width: int) -> Integers:
    from consilience.privacy.interval_kernels import scan

    announce(scan)
    values, ranks = np.unique(counts, return_inverse=True)
    found = np.zeros(counts.size + 1, dtype=np.int64)
    scan(np.ascontiguousarray(counts), ranks.astype(np.int64), values, width, found)
    return found
