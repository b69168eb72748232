"""The loops of `signed_choices`: compiled, and imported only when they are used.

Rows are taken in blocks that stay in the processor's nearest cache, and within a block round after round, so that many
rows are multiplied at once.
"""

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BLOCK = 512


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def add_weights(met: NDArray[np.uint8], fall: Floats, rise: float, sums: Floats) -> None:
    """Add e^v + e^−v of every row to the sum of each round."""
    steps, rows = met.shape
    up = np.empty(BLOCK)
    gain = rise - 1.0
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        down_by = fall[start : start + size]
        up[:size] = 1.0
        for t in range(steps):
            here = met[t, start : start + size]
            total = 0.0
            for q in range(size):
                weight = up[q] * down_by[q] * (1.0 + gain * here[q])
                up[q] = weight
                total += weight + 1.0 / weight
            sums[t] += total


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def add_slopes(met: NDArray[np.uint8], fall: Floats, rise: float, weights: Floats, slopes: Floats) -> None:
    """Add Σ_t weight_t·(e^v − e^−v) to the slope of each row."""
    steps, rows = met.shape
    up = np.empty(BLOCK)
    gain = rise - 1.0
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        down_by = fall[start : start + size]
        slope = slopes[start : start + size]
        up[:size] = 1.0
        for t in range(steps):
            here = met[t, start : start + size]
            for q in range(size):
                weight = up[q] * down_by[q] * (1.0 + gain * here[q])
                up[q] = weight
                slope[q] += weights[t] * (weight - 1.0 / weight)
