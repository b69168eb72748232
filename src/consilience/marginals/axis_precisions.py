"""How precisely the answers of a map along one axis tell the sum over that axis, and the differences along it.

With G = FᵀF for the map F over n values and noise of variance 1, a table that is even along the axis is told with the
precision 1ᵀG1/n², and a direction whose sum is 0 with a precision that varies: the harmonic mean of the non-zero
eigenvalues of G between such directions stands for all, so that the variances are right on average. For the identity
these are 1/n and 1, and exact.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.sparse as sp

from consilience.kernels.linear_maps import IdentityMap, LinearMap, PrefixMap, SparseMap

LARGEST_WRITTEN_OUT = 4_000_000
"""Entries of the largest map that is written out."""

RANK_TOLERANCE = 1e-9


@dataclass(frozen=True)
class AxisPrecision:
    """The precision of the sum along an axis, spread evenly, and of the differences."""

    sums: float
    contrasts: float


def determines_its_axis(each: LinearMap) -> bool | None:
    """Whether the answers of a map leave nothing open; None where that is too large to find out."""
    if isinstance(each, IdentityMap | PrefixMap):
        return True
    if each.rows < each.columns:
        return False
    if each.rows * each.columns > LARGEST_WRITTEN_OUT:
        return None
    values = np.linalg.svd(each.dense(), compute_uv=False)
    return bool(values.min(initial=np.inf) > RANK_TOLERANCE * values.max(initial=0.0))


def axis_precision(each: LinearMap) -> AxisPrecision:
    """The precisions of a map that determines its axis."""
    count = each.columns
    if isinstance(each, IdentityMap):
        return AxisPrecision(1.0 / count, 1.0)
    return _written_out(each)


@lru_cache(maxsize=256)
def _written_out(each: LinearMap) -> AxisPrecision:
    matrix = each.dense()
    count = each.columns
    gram = matrix.T @ matrix
    centring = np.eye(count) - 1.0 / count
    values = np.linalg.eigvalsh(centring @ gram @ centring)
    kept = values[values > RANK_TOLERANCE * values.max(initial=0.0)]
    contrasts = kept.size / float(np.sum(1.0 / kept)) if kept.size else 1.0
    return AxisPrecision(float(gram.sum()) / count**2, contrasts)


@lru_cache(maxsize=256)
def inverse_map(each: LinearMap) -> LinearMap:
    """The least-squares inverse of a map that determines its axis."""
    return SparseMap(sp.csr_array(np.linalg.pinv(each.dense())))
