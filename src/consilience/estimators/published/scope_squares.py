"""Least squares for the table of one scope, from the queries about just that scope.

One Kronecker query with the factors F_i has the shortest solution ⊗ F_i⁺ y, an axis at a time, with
F⁺ = (FᵀF)⁺Fᵀ; the noise's variance v becomes, for a cell of the marginal of some axes C,

    v Π_{i∈C} tr((FᵢᵀFᵢ)⁺)/n_i · Π_{i∉C} 1ᵀ(FᵢᵀFᵢ)⁺1      (the mean over cells),

infinite where a factor does not determine what is asked of it. Several queries about one scope are weighted by 1/v and
solved by iteration (Fong, Saunders 2011); the precisions of a cell are taken to add up.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray

from consilience.kernels.linear_maps import IdentityMap, Kronecker, LinearMap
from consilience.strategies.workload_grams import ROUNDING, gram_matrix

Array = NDArray[np.float64]

DETERMINED = 1e-6
"""A factor tells a sum that its inverse gives back to this precision."""

MOST_STEPS = 5000


@dataclass(frozen=True, eq=False)
class ScopeAnswers:
    """The noisy answers of one query about a scope, an axis for each map, and the variance of their noise."""

    maps: tuple[LinearMap, ...]
    values: Array
    variance: float

    @property
    def operator(self) -> Kronecker:
        return Kronecker(self.maps)

    def solved(self) -> Array:
        """The shortest least-squares table."""
        table = self.values.reshape(self.operator.shape_out)
        for axis, each in enumerate(self.maps):
            if not isinstance(each, IdentityMap):
                moved = np.moveaxis(np.asarray(each.adjoint(table, axis), dtype=np.float64), axis, 0)
                solved = _axis(each).inverse @ moved.reshape(len(moved), -1)
                table = np.moveaxis(solved.reshape(moved.shape), 0, axis)
        return np.array(table, dtype=np.float64)

    def cell_variance(self, kept: Collection[int]) -> float:
        """The mean variance of the cells of the marginal of some axes."""
        found = self.variance
        for axis, each in enumerate(self.maps):
            found *= _axis(each).cells if axis in kept else _axis(each).total
        return found


@dataclass(frozen=True, eq=False)
class SolvedTable:
    """The least-squares table of a scope, Σ (answers missed)²/v, and whether the solver came to its end."""

    table: Array
    objective: float
    converged: bool


def solve_scope(answers: Sequence[ScopeAnswers]) -> SolvedTable:
    """The least-squares table of one scope; all queries have their axes in the same order."""
    if len(answers) == 1:
        table, converged = answers[0].solved(), True
    elif all(isinstance(each, IdentityMap) for one in answers for each in one.maps):
        shape, precisions = answers[0].operator.shape_in, [1.0 / one.variance for one in answers]
        table = sum(share * one.values for share, one in zip(precisions, answers, strict=True)) / math.fsum(precisions)
        table, converged = np.asarray(table).reshape(shape), True
    else:
        table, converged = _iterated(answers)
    missed = ((one.operator.apply(table).ravel() - one.values) ** 2 / one.variance for one in answers)
    return SolvedTable(table, math.fsum(float(each.sum()) for each in missed), converged)


def marginal_variance(answers: Sequence[ScopeAnswers], kept: Collection[int]) -> float:
    """About the variance of a cell of the marginal of some axes of a scope."""
    precision = math.fsum(1.0 / each.cell_variance(kept) for each in answers)
    return 1.0 / precision if precision > 0 else math.inf


def _iterated(answers: Sequence[ScopeAnswers]) -> tuple[Array, bool]:
    stacked = _Stacked(answers)
    operator: Any = scipy.sparse.linalg.aslinearoperator(stacked)
    weighted = np.concatenate([one.values / math.sqrt(one.variance) for one in answers])
    solved: Any = scipy.sparse.linalg.lsmr(operator, weighted, atol=1e-12, btol=1e-12, conlim=0, maxiter=MOST_STEPS)
    return np.asarray(solved[0], dtype=np.float64).reshape(stacked.shape_in), int(solved[1]) != 7


class _Stacked:
    """All queries one below the other, each divided by the standard deviation of its noise, in SciPy's words."""

    dtype = np.dtype(np.float64)

    def __init__(self, answers: Sequence[ScopeAnswers]) -> None:
        self._operators = [(one.operator, math.sqrt(one.variance)) for one in answers]
        self.shape_in = answers[0].operator.shape_in
        self.shape = (sum(one.values.size for one in answers), math.prod(self.shape_in))

    def matvec(self, cells: Array) -> Array:
        table = np.ravel(cells).reshape(self.shape_in)
        return np.concatenate([operator.apply(table).ravel() / size for operator, size in self._operators])

    def rmatvec(self, answers: Array) -> Array:
        found, start = np.zeros(self.shape_in), 0
        for operator, size in self._operators:
            stop = start + math.prod(operator.shape_out)
            found += operator.adjoint(np.ravel(answers)[start:stop].reshape(operator.shape_out)) / size
            start = stop
        return found.ravel()


@dataclass(frozen=True, eq=False)
class _Axis:
    """(FᵀF)⁺ of a map, and the variances of a cell and of the sum over its axis."""

    inverse: Array
    cells: float
    total: float


@lru_cache(maxsize=256)
def _axis(each: LinearMap) -> _Axis:
    size = each.columns
    if isinstance(each, IdentityMap):
        return _Axis(np.empty((0, 0)), 1.0, float(size))
    gram = gram_matrix(each)
    inverse = np.asarray(np.linalg.pinv(gram, rcond=ROUNDING, hermitian=True), dtype=np.float64)
    told = inverse @ gram
    sums = bool(np.abs(told.sum(axis=1) - 1.0).max() < DETERMINED)
    cells = bool(np.abs(told - np.eye(size)).max() < DETERMINED)
    return _Axis(
        inverse,
        float(np.trace(inverse)) / size if cells else math.inf,
        float(inverse.sum()) if sums else math.inf,
    )
