"""The loops of `fourier_map`: compiled, and imported only when they are used."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit

Integers = NDArray[np.int64]
Numbers = NDArray[Any]


@njit(nogil=True, cache=True, error_model="numpy")
def forward(line: Numbers, cosines: Numbers, sines: Numbers, ends: Numbers, pairs: int, out: Numbers) -> None:
    """out = F line, a pair of rows at a time."""
    cells = line.size
    out[0] = ends[0] * line.sum()
    for j in range(1, pairs + 1):
        turn = 0
        even = line[0] - line[0]
        odd = even
        for t in range(cells):
            even += cosines[turn] * line[t]
            odd += sines[turn] * line[t]
            turn += j
            if turn >= cells:
                turn -= cells
        out[2 * j - 1] = even
        out[2 * j] = odd
    if out.size % 2 == 0:
        out[-1] = ends[1] * line[::2].sum() + ends[2] * line[1::2].sum()


@njit(nogil=True, cache=True, error_model="numpy")
def backward(line: Numbers, cosines: Numbers, sines: Numbers, ends: Numbers, pairs: int, out: Numbers) -> None:
    """out = Fᵀ line, a cell at a time."""
    cells = out.size
    for t in range(cells):
        turn = 0
        total = ends[0] * line[0]
        for j in range(1, pairs + 1):
            turn += t
            if turn >= cells:
                turn -= cells
            total += cosines[turn] * line[2 * j - 1] + sines[turn] * line[2 * j]
        if line.size % 2 == 0:
            total += ends[1 + t % 2] * line[-1]
        out[t] = total


@njit(nogil=True, cache=True, error_model="numpy")
def folded(counts: Integers, cosines: Integers, sines: Integers, unit: Any, out: Integers) -> None:
    cells = counts.size
    half = (cells - 1) // 2
    sums = np.empty(half, dtype=np.int64)
    differences = np.empty(half, dtype=np.int64)
    for t in range(1, half + 1):
        sums[t - 1] = counts[t] + counts[cells - t]
        differences[t - 1] = counts[t] - counts[cells - t]
    out[0] = unit * counts.sum()
    for j in range(1, (out.size - 1) // 2 + 1):
        even = cosines[0] * counts[0]
        odd = np.int64(0)
        turn = 0
        for t in range(half):
            turn += j
            if turn >= cells:
                turn -= cells
            even += cosines[turn] * sums[t]
            odd += sines[turn] * differences[t]
        if cells % 2 == 0:
            even += cosines[(j * (cells // 2)) % cells] * counts[cells // 2]
        out[2 * j - 1] = even
        out[2 * j] = odd
    if out.size % 2 == 0:
        out[-1] = unit * (counts[::2].sum() - counts[1::2].sum())
