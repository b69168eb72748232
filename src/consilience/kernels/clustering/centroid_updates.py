"""How noisy counts and sums move the centroids: one rule for every method that is compared."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.kernels.clustering.regions import Region

LEAST_COUNT = 1.0
"""Below this noisy count a centroid stays where it was."""


def next_centroids(counts: ArrayLike, sums: ArrayLike, previous: ArrayLike, region: Region) -> NDArray[np.float64]:
    """Each cluster's sum over its count, moved into the region; where the count is below 1, the previous centroid.

    Noise makes counts negative and sums large; whatever they are, the result lies in the region if `previous` does.

    >>> region = Region("box", 1)
    >>> next_centroids([4.0, -2.0, 1.0], [[2.0], [1.0], [7.0]], [[0.1], [0.2], [0.3]], region).ravel()
    array([0.5, 0.2, 1. ])
    """
    sizes = np.asarray(counts, dtype=np.float64)
    totals = np.asarray(sums, dtype=np.float64)
    stay = np.asarray(previous, dtype=np.float64)
    if stay.ndim != 2 or sizes.shape != stay.shape[:1] or totals.shape != stay.shape:
        raise DeclarationError(
            f"counts of the shape {sizes.shape} and sums of the shape {totals.shape} do not fit centroids of the "
            f"shape {stay.shape}; give one count and one row of sums for each centroid"
        )
    moved = sizes >= LEAST_COUNT
    means = np.where(moved[:, None], totals / np.maximum(sizes, LEAST_COUNT)[:, None], stay)
    return np.where(moved[:, None], region.project(means), stay)
