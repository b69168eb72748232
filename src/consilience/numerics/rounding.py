"""Whole numbers that follow given shares."""

import numpy as np
from numpy.typing import NDArray

from consilience.numerics.rng import Generator


def shares_of_rows(weights: NDArray[np.float64], rows: int, rng: Generator) -> NDArray[np.int64]:
    """Whole counts that sum to `rows`, each its exact share rounded down or up, right on average.

    Systematic rounding: with cumulated shares C_k and one uniform u, cell k gets ⌊C_k + u⌋ − ⌊C_{k−1} + u⌋.
    """
    total = float(weights.sum())
    if total <= 0:
        weights = np.ones_like(weights)
        total = float(weights.size)
    cumulated = np.cumsum(weights) * (rows / total)
    cumulated[-1] = rows
    floors = np.floor(np.minimum(cumulated, rows) + rng.random())
    floors[-1] = rows
    return np.diff(np.minimum(floors, rows), prepend=0.0).astype(np.int64)
