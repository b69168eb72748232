"""How far estimated marginals are from the exact ones, in the two measures of Qardaji, Yang and Li (2014), §2."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DISTANCE, DIVERGENCE = "L2 error / N", "JS divergence"


def distances(estimates: Array, exact: Array, total: float) -> Array:
    """For each row the Euclidean distance of the two tables, as a share of the records.

    >>> distances(np.array([[3.0, 4.0]]), np.array([[0.0, 0.0]]), 10.0)
    array([0.5])
    """
    return np.asarray(np.linalg.norm(estimates - exact, axis=-1) / total)


def divergences(estimates: Array, exact: Array) -> Array:
    """For each row the Jensen–Shannon divergence, in nats, of the two tables scaled to sum to 1.

    With M the mean of P and Q it is ½ Σ P ln(P/M) + ½ Σ Q ln(Q/M), equation (1). A table of zeros counts as uniform.

    >>> divergences(np.array([[0.0, 8.0], [2.0, 2.0]]), np.array([[3.0, 0.0], [5.0, 5.0]])).round(6)
    array([0.693147, 0.      ])
    """
    p, q = _shares(estimates), _shares(exact)
    middle = (p + q) / 2
    return (_relative_entropies(p, middle) + _relative_entropies(q, middle)) / 2


def _shares(tables: Array) -> Array:
    kept = np.maximum(tables, 0.0)
    sums = kept.sum(axis=-1, keepdims=True)
    return np.where(sums > 0, kept / np.where(sums > 0, sums, 1.0), 1.0 / tables.shape[-1])


def _relative_entropies(p: Array, q: Array) -> Array:
    """Σ p ln(p/q); where half of p is no number above 0, p is nothing."""
    ratios = np.divide(p, q, out=np.ones_like(p), where=(p > 0) & (q > 0))
    return np.asarray((p * np.log(ratios)).sum(axis=-1))
