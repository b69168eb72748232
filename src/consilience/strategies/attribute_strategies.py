"""OPT₀: the strategy for the queries of one attribute, by the noise at hand (McKenna et al. 2018).

Every strategy has sensitivity 1: the largest L1 norm of a column for Laplace noise, the largest L2 norm for Gaussian
noise. For Laplace noise it is the cells, the total, or a p-identity strategy, whichever costs least. For Gaussian noise
the semidefinite programme has the optimum itself.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from consilience.strategies.expected_error import Norm, column_norm
from consilience.strategies.grams import ROUNDING, Matrix, checked_gram
from consilience.strategies.p_identity import p_identity
from consilience.strategies.semidefinite import semidefinite_strategy

DIGITS = 12
"""Gram matrices that agree in so many digits have the same strategy, found once."""

FEW_VALUES = 64
"""Up to so many values more than the usual number of further queries are tried; they cost little there."""


@dataclass(frozen=True, eq=False)
class AttributeStrategy:
    """The cells, the total, or the rows of a matrix, of sensitivity 1."""

    size: int
    matrix: Matrix | None = None
    is_total: bool = False

    @property
    def is_identity(self) -> bool:
        return self.matrix is None and not self.is_total

    def dense(self) -> Matrix:
        """The rows that are measured."""
        if self.matrix is not None:
            return self.matrix
        return np.ones((1, self.size)) if self.is_total else np.eye(self.size)

    @cached_property
    def inverse(self) -> Matrix:
        """(AᵀA)⁺."""
        matrix = self.dense()
        return np.asarray(np.linalg.pinv(matrix.T @ matrix, rcond=ROUNDING, hermitian=True), dtype=np.float64)

    def cost(self, gram: Matrix | None) -> float:
        """tr(G (AᵀA)⁺); without a Gram matrix that of the total, G = J. Infinite where A does not tell what G asks."""
        if self.is_total:
            return 1.0 if gram is None else float(gram[0, 0]) if _is_constant(gram) else math.inf
        if self.is_identity:
            return float(self.size) if gram is None else float(np.trace(gram))
        return float(self.inverse.sum()) if gram is None else float((self.inverse * gram).sum())


def attribute_strategy(gram: Matrix, *, norm: Norm, restarts: int = 1, seed: int = 0) -> AttributeStrategy:
    """The best strategy found for queries of one attribute with the Gram matrix WᵀW.

    >>> attribute_strategy(np.ones((4, 4)), norm=1).is_total, attribute_strategy(np.eye(4), norm=2).is_identity
    (True, True)
    """
    workload = checked_gram(gram)
    scaled = np.round(workload / workload.max(), DIGITS)
    return _optimised(scaled.tobytes(), norm, restarts, seed)


@lru_cache(maxsize=256)
def _optimised(gram: bytes, norm: Norm, restarts: int, seed: int) -> AttributeStrategy:
    flat = np.frombuffer(gram)
    size = round(math.sqrt(len(flat)))
    workload = flat.reshape(size, size)
    if _is_constant(workload):
        return AttributeStrategy(size, is_total=True) if size > 1 else AttributeStrategy(size)
    if _is_even_diagonal(workload):
        return AttributeStrategy(size)
    if norm == 2:
        found = semidefinite_strategy(workload, tolerance=1e-4).strategy
        candidates = [found / column_norm(found, norm=2)]
    else:
        rows = {max(1, round(size / 16))} | ({2, max(1, size // 4)} if size <= FEW_VALUES else set())
        candidates = [
            p_identity(workload, rows=count, restarts=restarts, seed=seed) for count in sorted(rows) if count < size
        ]
    strategies = [AttributeStrategy(size), *(AttributeStrategy(size, each) for each in candidates)]
    best = min(strategies, key=lambda each: each.cost(workload))
    if best.matrix is not None:
        best.matrix.setflags(write=False)
    return best


def _is_constant(gram: Matrix) -> bool:
    """Whether only the total is asked for."""
    return bool(np.ptp(gram) <= ROUNDING * abs(float(gram[0, 0])))


def _is_even_diagonal(gram: Matrix) -> bool:
    """Whether all cells are asked for alike and nothing else, where the cells are best."""
    return bool(np.abs(gram - gram[0, 0] * np.eye(len(gram))).max() <= ROUNDING * abs(float(gram[0, 0])))
