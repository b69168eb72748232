"""How the coefficients of a logistic regression follow from noisy sums: the public rule of its rounds.

    θ_t = Π(θ_{t−1} − step · gradient / n̂),      Π = the nearest point with ‖θ‖₂ ≤ radius,

and θ_t = θ_{t−1} where the noisy number of records n̂ is below 1.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def next_coefficients(previous: Array, gradient: Array, records: float, *, step: float, radius: float) -> Array:
    """The coefficients after one step of projected gradient descent.

    >>> next_coefficients(np.zeros(2), np.array([-3.0, 4.0]), 10.0, step=1.0, radius=0.25)
    array([ 0.15, -0.2 ])
    >>> next_coefficients(np.ones(1), np.array([5.0]), -2.0, step=1.0, radius=9.0)
    array([1.])
    """
    if records < 1:
        return previous.copy()
    moved = previous - step * gradient / records
    size = float(np.linalg.norm(moved))
    return moved * (radius / size) if size > radius else moved
