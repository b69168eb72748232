"""How far a model can be from the best one at most: bounds from prices of rows, and from gradients.

For prices ν at which the conjugates φ* are finite, every model μ with the total N has the cost

    Σ φ(Bμ − c) ≥ νᵀ(Bμ − c) − Σ φ*(ν) ≥ −N·max over cells x of (−Bᵀν)(x) − cᵀν − Σ φ*(ν),

because the marginals of a model mix those of single cells. The largest potential of a cell is exact (max-sum), so the
bound is proven. For any convex loss with gradient g at μ, likewise, L(μ) − L(best) ≤ g·μ + N·max(−g) (Frank & Wolfe
1956, Nav. Res. Logist. Q. 3). Both need the same number of the linear function ν·B or g: its slack. `RowCosts.gap` does
the rest for prices.
"""

import numpy as np
from numpy.typing import NDArray

from consilience.models.counted_oracle import CountedOracle

Array = NDArray[np.float64]


def slack_of(oracle: CountedOracle, gradient: Array, marginals: Array) -> float:
    """g·μ + N·max(−g): how much lower than at these marginals a linear function can be, at most."""
    work = float(np.einsum("i,i->", gradient, marginals))
    return max(work + oracle.total * oracle.largest(-gradient), 0.0)
