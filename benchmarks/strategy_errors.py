"""The expected error of the matrix mechanism (Li, Hay, Rastogi, Miklau, McGregor 2010, Proposition 7).

The strategy A is measured, y = Ax + z with independent noise of variance v, and the workload W is answered by least
squares, W A⁺ y. If the rows of W lie in the row space of A, the answers are unbiased, and

    E ‖W A⁺ y − W x‖² = v · ‖W A⁺‖_F² = v · tr(WᵀW (AᵀA)⁺).

Noise is calibrated to the largest column norm Δ of A: Laplace noise has v = 2 Δ₁²/ε², Gaussian noise Δ₂²/(2ρ).
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from consilience.errors import DeclarationError
from consilience.strategies.attribute_strategies import GRAM_ROUNDING, Matrix, Norm, checked_gram, column_norm


def strategy_error(gram: ArrayLike, strategy: ArrayLike, *, norm: Norm) -> float:
    """The expected total squared error of a workload through a strategy; infinite where the strategy cannot answer it.

    `norm=1` is Laplace noise at ε = 1: divide by ε². `norm=2` is Gaussian noise at ρ = ½: divide by 2ρ. Neighbours add
    or remove one record.

    >>> strategy_error(np.eye(4), np.eye(4), norm=1), strategy_error(np.eye(4), np.eye(4), norm=2)
    (8.0, 4.0)
    """
    workload = checked_gram(gram)
    found = np.asarray(strategy, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != len(workload) or not np.isfinite(found).all():
        raise DeclarationError(
            f"the strategy has shape {found.shape} and the workload {len(workload)} cells; "
            "a strategy is a finite matrix with a column for each cell"
        )
    variance = 2.0 * column_norm(found, norm=1) ** 2 if norm == 1 else column_norm(found, norm=2) ** 2
    return variance * _answering_cost(workload, found)


def _answering_cost(gram: Matrix, strategy: Matrix) -> float:
    """tr(WᵀW (AᵀA)⁺), or infinity where W asks for what A does not tell."""
    values, vectors = np.linalg.eigh(strategy.T @ strategy)
    told = values > GRAM_ROUNDING * max(float(values[-1]), 0.0)
    energies = np.einsum("ji,jk,ki->i", vectors, gram, vectors, optimize=True)
    if energies[~told].sum() > 1e-8 * energies.sum():
        return math.inf
    return float((energies[told] / values[told]).sum())
