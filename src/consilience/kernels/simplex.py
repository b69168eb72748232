"""The point of a scaled simplex that is nearest to a given point.

The projection of p onto {x ≥ 0, Σx = T} is x = max(p − θ, 0), where the threshold θ is the one number
that makes the sum right: φ(θ) = Σ max(p − θ, 0) = T. φ is convex, piecewise linear and decreasing, so
Newton's method started to the left of the root climbs to it from below, and lands on it exactly after
finitely many steps: the iteration of Michelot (1986, J. Optim. Theory Appl. 50), in which every step drops
the cells at or below the threshold and never needs them again (Condat 2016, Math. Program. 158, compares
the variants). Each step costs one pass over the cells that are left; on random data about ten passes in all.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError, MeasurementError


def project_to_simplex(point: ArrayLike, total: float) -> NDArray[np.float64]:
    """The non-negative array of the given total, in the shape of `point`, nearest to it in the Euclidean norm.

    >>> project_to_simplex([3.0, 1.0, -5.0], 2.0)
    array([2., 0., 0.])
    """
    values = np.asarray(point, dtype=np.float64)
    if not np.isfinite(total) or total < 0:
        raise DeclarationError(f"the total must be finite and at least 0, got {total}; give the total of the table")
    if total > 0 and values.size == 0:
        raise DeclarationError(f"there is no cell, but the total is {total}; give a cell or declare a total of 0")
    if not np.all(np.isfinite(values)):
        raise MeasurementError("the point to project holds NaN or infinite values; every cell needs a number")
    return _project_flat(values.ravel(), float(total)).reshape(values.shape) if total > 0 else np.zeros(values.shape)


def _project_flat(values: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The projection of a non-empty vector, for a positive total.

    Measured from the largest value, θ lies in [−total, 0]: cells at −total or below are zero for certain,
    and the differences that matter are computed without the rounding of a far-away origin. The last lines
    refine θ once: rounded, it shifts millions of cells the same way, which their sum would show.
    """
    shifted = values - values.max()
    live = shifted[shifted > -total]
    threshold = (live.sum() - total) / live.size
    while True:
        kept = live[live > threshold]
        if kept.size in (0, live.size):
            break
        live = kept
        threshold = (live.sum() - total) / live.size
    shifted -= threshold
    np.maximum(shifted, 0.0, out=shifted)
    support = shifted > 0
    np.add(shifted, (total - shifted.sum()) / max(1, np.count_nonzero(support)), out=shifted, where=support)
    return np.maximum(shifted, 0.0, out=shifted)
