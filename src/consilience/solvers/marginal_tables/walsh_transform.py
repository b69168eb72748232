"""The Walsh–Hadamard transform in place: the Fourier transform of attributes with two values each.

For a vector a of length 2^m, with bits written as numbers,

    â[u] = Σ_i (−1)^{popcount(i & u)} a[i],

by m passes of sums and differences, two at a time: n log₂ n additions, no multiplication and no second array.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import announce


def walsh_transform(rows: NDArray[np.float64]) -> None:
    """Replace every row, of a length that is a power of 2, by its transform.

    >>> rows = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> walsh_transform(rows)
    >>> rows
    array([[10., -2., -4.,  0.]])
    """
    announce(_walsh_transform)
    _walsh_transform(rows)


BLOCK = 8192
"""Entries that are taken through all their passes while they lie in the second-level cache."""


@numba.njit(nogil=True, cache=True, fastmath=True)
def _walsh_transform(rows):  # pragma: no cover - compiled
    length = rows.shape[1]
    block = min(length, BLOCK)
    for r in range(rows.shape[0]):
        for begin in range(0, length, block):
            _passes(rows[r, begin : begin + block], 1)
        if block < length:
            _passes(rows[r], block)


@numba.njit(nogil=True, cache=True, fastmath=True)
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
