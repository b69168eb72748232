"""Negative counts removed and the difference spread evenly, the correction of Qardaji, Yang, Li 2014, §5.2.

One pass sets the negative cells to 0, which raises the sum by some c ≥ 0, and takes c/n from each of the n cells. That
may make other cells negative, so it is repeated. A cell that was set to 0 is pushed below 0 by every later pass and set
to 0 again, and every other cell has been lowered by the same amount so far. So the passes tend to

    max(x − θ, 0),   with the θ at which it sums to the total of x:

the nearest table without negative counts that has this total (kernels/simplex.py), which is found in one go.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.kernels.simplex import project_to_simplex


def spread_negatives(table: ArrayLike) -> NDArray[np.float64]:
    """The table without negative counts that has the same total; all zeros where that total is not above 0.

    >>> spread_negatives([[5.0, -1.0], [3.0, 0.2]])
    array([[4.6, 0. ],
           [2.6, 0. ]])
    """
    counts = np.asarray(table, dtype=np.float64)
    if counts.min(initial=0.0) >= 0:
        return np.array(counts)
    return project_to_simplex(counts, max(float(counts.sum()), 0.0))
