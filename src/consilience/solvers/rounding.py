"""Whole numbers that follow given shares."""

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.rng import Generator


def shares_of_rows(weights: NDArray[np.float64], rows: int, rng: Generator) -> NDArray[np.int64]:
    """Whole counts that sum to `rows`, each its exact share rounded down or up, right on average.

    Systematic rounding: with cumulated shares C_k and one uniform u, cell k gets ⌊C_k + u⌋ − ⌊C_{k−1} + u⌋.
    """
    largest = float(weights.max(initial=0.0))
    # In parts of the largest, so that neither the least nor the largest numbers there are overflow.
    parts = weights / largest if largest > 0 else np.ones_like(weights)
    cumulated = np.cumsum(parts) * (rows / float(parts.sum()))
    cumulated[-1] = rows
    floors = np.floor(np.minimum(cumulated, rows) + rng.random())
    floors[-1] = rows
    return np.diff(np.minimum(floors, rows), prepend=0.0).astype(np.int64)
