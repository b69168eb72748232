"""What Direct, Fourier and Flat make of marginals of many flags, where none of them can be run in whole.

All marginals of 8 of 32 flags have 2.7 billion cells. Only those that are asked get noise here, with the scale that the
whole plan needs. Fourier's coefficients are drawn anew for each marginal, where the plan would share those of smaller
sets: a marginal's own error is distributed as in the plan.

Negative counts are removed and the difference spread evenly over all cells, as in the paper (§5.2). Read by the word,
this keeps a table's own noisy total, and errors of up to ten thousand times the number of records with it. To give the
table the total N of the records is kinder to both methods.
"""

import math

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce.qardaji2014.asked import Asked
from benchmarks.reproduce.qardaji2014.expected_errors import flat_error, fourier_coefficients, normalised_error
from consilience.estimators.published.fourier import spread_negatives
from consilience.solvers.marginal_sums import walsh_transform

Array = NDArray[np.float64]


def direct(asked: Asked, epsilon: float, rng: np.random.Generator) -> Array:
    """All C(d, k) marginals, each with Laplace noise of scale C(d, k)/ε; nothing is removed yet."""
    scale = math.comb(asked.records.flags, asked.k) / epsilon
    return asked.exact + rng.laplace(scale=scale, size=asked.exact.shape)


def fourier(asked: Asked, epsilon: float, rng: np.random.Generator) -> Array:
    """The coefficients of all sets of up to k flags, m in all, with Laplace noise of scale m/ε; nothing is removed yet.

    A cell of a marginal is the mean of its 2^k coefficients with signs, so the noise that reaches the cells is the
    Walsh–Hadamard transform of the coefficients' noise, divided by 2^k.
    """
    scale = fourier_coefficients(asked.records.flags, asked.k) / epsilon
    noise = rng.laplace(scale=scale, size=asked.exact.shape)
    walsh_transform(noise)
    return asked.exact + noise / 2**asked.k


def flat_distance(asked: Asked, epsilon: float) -> float:
    """The expected normalised error of the full table, equation (3), capped at 1 as the paper plots it."""
    return normalised_error(flat_error(asked.records.flags, epsilon=epsilon), asked.records.total, largest=1.0)


def without_negatives(tables: Array, total: float | None = None) -> Array:
    """Each row with negative counts removed and the difference spread evenly, also that to the total if it is given.

    >>> without_negatives(np.array([[5.0, -1.0, 3.0, 0.2]])), without_negatives(np.array([[5.0, -1.0, 3.0, 0.2]]), 11.2)
    (array([[4.6, 0. , 2.6, 0. ]]), array([[6. , 0. , 4. , 1.2]]))
    """
    if total is not None:
        tables = tables + (total - tables.sum(axis=1, keepdims=True)) / tables.shape[1]
    return np.array([spread_negatives(table) for table in tables])
