"""`LocalSquares`: least squares for each measured set of attributes by itself (HDMM+LLS, McKenna et al. 2019, §5.1).

HDMM fits all cells of the domain by least squares. Where they are too many, its authors compare with this: the answers
about each scope, the set of attributes that a query tells apart, are fitted by the shortest least-squares table of
that scope, whatever the other scopes say. A marginal comes from the scope that gives it with the least variance. One
that no scope holds is put together from the parts that some scope holds, with all other interactions 0.

It is a comparator. Two scopes may contradict each other, counts may be negative, and neither public facts nor
impossible cells are kept, as published. `Graphical` fits the same answers consistently.
"""

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray

from consilience.errors import readable_bytes, readable_count
from consilience.estimators.base import LARGEST_ANSWER, Progress, Suitability
from consilience.estimators.evidence import gather, query_on_scope, refuse_nothing_to_fit
from consilience.estimators.marginals import MarginalsEstimate
from consilience.kernels.linear_maps import IdentityMap, Kronecker, LinearMap
from consilience.marginals.table_stacks import Scope, TableStack, stored_order, summed
from consilience.measurements import Exact, MeasurementSet
from consilience.solvers.fit import Status
from consilience.strategies.attribute_strategies import GRAM_ROUNDING, gram_matrix

# ----------------------------------------------------------------------------------------------------------------------
# Least squares for the table of one scope, from the queries about just that scope.
#
# One Kronecker query with the factors F_i has the shortest solution ⊗ F_i⁺ y, an axis at a time, with
# F⁺ = (FᵀF)⁺Fᵀ; the noise's variance v becomes, for a cell of the marginal of some axes C,
#
#     v Π_{i∈C} tr((FᵢᵀFᵢ)⁺)/n_i · Π_{i∉C} 1ᵀ(FᵢᵀFᵢ)⁺1      (the mean over cells),
#
# infinite where a factor does not determine what is asked of it. Several queries about one scope are weighted by 1/v
# and solved by iteration (Fong, Saunders 2011); the precisions of a cell are taken to add up.


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
    cells, converged = np.zeros(stacked.shape[1]), True
    for _ in range(2):  # the second round removes what the first one's rounding left
        left = weighted - stacked.matvec(cells)
        solved: Any = scipy.sparse.linalg.lsmr(operator, left, atol=1e-12, btol=1e-12, conlim=0, maxiter=MOST_STEPS)
        cells, converged = cells + solved[0], int(solved[1]) != 7
    return np.asarray(cells, dtype=np.float64).reshape(stacked.shape_in), converged


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
    inverse = np.asarray(np.linalg.pinv(gram, rcond=GRAM_ROUNDING, hermitian=True), dtype=np.float64)
    told = inverse @ gram
    sums = bool(np.abs(told.sum(axis=1) - 1.0).max() < DETERMINED)
    cells = bool(np.abs(told - np.eye(size)).max() < DETERMINED)
    return _Axis(
        inverse,
        float(np.trace(inverse)) / size if cells else math.inf,
        float(inverse.sum()) if sums else math.inf,
    )


# ----------------------------------------------------------------------------------------------------------------------
# `LocalSquares`: least squares for each measured set of attributes by itself (HDMM+LLS, McKenna et al. 2019, §5.1).


MOST_VALUES = 4096
"""Factors other than the values themselves are inverted for attributes of up to so many values."""

BYTES_PER_CELL = 36

ByScope = dict[Scope, list[ScopeAnswers]]


@dataclass(frozen=True)
class LocalSquares:
    """Least squares scope by scope; the answers of different scopes need not agree."""

    memory_limit: int = 4_000_000_000

    name: ClassVar[str] = "local-squares"

    def suitability(self, measured: MeasurementSet) -> Suitability:
        refuse_nothing_to_fit(measured)
        scopes = dict[Scope, None]()
        for each in measured:
            exact = isinstance(each.noise, Exact)
            if not exact and (each.clipped or (each.censored is not None and each.censored.any())):
                return Suitability(
                    False, f"the answers to {each.query.describe()!r} were clipped or withheld; least squares need all"
                )
            query = query_on_scope(each.query, measured.domain)
            if query.is_joint:
                return Suitability(
                    False,
                    f"the query {each.query.describe()!r} is about several attributes together; it takes products",
                )
            large = [each for each in query.maps if not _is_invertible(each)]
            scopes |= {} if exact else {query.scope: None}
            if large:
                return Suitability(
                    False,
                    f"the query {each.query.describe()!r} has a factor over {large[0].columns:,} values; factors of up "
                    f"to {MOST_VALUES:,} are inverted",
                )
        shape = measured.domain.shape
        cells = [math.prod(shape[place] for place in scope) for scope in scopes]
        need = BYTES_PER_CELL * sum(cells)
        text = f"{len(scopes):,} scopes have {readable_count(sum(cells))} cells and take about {readable_bytes(need)}"
        if max(cells) > LARGEST_ANSWER or need > self.memory_limit:
            return Suitability(False, f"{text}; the limit is {readable_bytes(self.memory_limit)}", need)
        return Suitability(True, f"{text} of memory, however large the joint table is", need)

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "LocalSquaresEstimate":
        self.suitability(measured).require(self.name, ". Use another estimator")
        began = time.perf_counter()
        answers = answers_by_scope(measured)
        stack = TableStack(measured.domain.shape, answers)
        counts = np.empty(stack.size)
        objective, converged = 0.0, True
        for done, (scope, each) in enumerate(answers.items()):
            solved = solve_scope(each)
            stack.table(counts, scope)[...] = solved.table
            objective, converged = objective + solved.objective, converged and solved.converged
            if progress is not None:
                progress("fitting", done + 1, len(answers))
        best = _best_scope(answers, ())
        total = float(stack.table(counts, best).sum()) if best is not None else 0.0
        stats: dict[str, float | int | str] = {
            "objective": objective / 2.0,
            "gap": 0.0,
            "scopes": len(answers),
            "cells": stack.size,
            "measured_answers": sum(one.values.size for each in answers.values() for one in each),
            "seconds": time.perf_counter() - began,
        }
        status = Status.CONVERGED if converged else Status.STEP_LIMIT
        method: dict[str, Any] = {"method": self.name, "nonnegative": False}
        return LocalSquaresEstimate(measured, method, status, stats, tuple(stack.scopes), counts, total)


@dataclass(frozen=True, eq=False)
class LocalSquaresEstimate(MarginalsEstimate):
    """Tables over scopes that were fitted by themselves: they may be negative and contradict each other."""

    @cached_property
    def answers_by_scope(self) -> ByScope:
        """What each of the tables was fitted to."""
        return {scope: own for scope, own in answers_by_scope(self.measurements).items() if scope in self.scopes}

    def put_together(self, known: Scope) -> NDArray[np.float64]:
        """The marginal from the scope that gives it with the least variance, or from the parts that are known."""
        best = _best_scope(self.answers_by_scope, known)
        if best is None:
            return self.tables.added_up(known)
        return summed(self.tables.stack.table(self.counts, best), best, known)


def answers_by_scope(measured: MeasurementSet) -> ByScope:
    """The noisy answers about each scope, with axes in stored order."""
    found: ByScope = {}
    for evidence in gather(measured):
        if evidence.exact:
            continue
        query = evidence.scoped
        scope = stored_order(measured.domain.shape, query.scope)
        order = [query.axes.index(place) for place in scope]
        maps = tuple(query.maps[axis] for axis in order)
        values = evidence.values.reshape([each.rows for each in query.maps]).transpose(order).ravel()
        variance = 2.0 / float(evidence.weights[0]) ** 2
        found.setdefault(scope, []).append(ScopeAnswers(maps, np.asarray(values, dtype=np.float64), variance))
    return found


def _best_scope(answers: ByScope, wanted: Sequence[int]) -> Scope | None:
    """The scope that gives a marginal with the least variance; ties to the first. None where no scope holds it."""
    holding = [scope for scope in answers if set(wanted) <= set(scope)]
    return min(
        holding,
        key=lambda scope: marginal_variance(answers[scope], [scope.index(place) for place in wanted]),
        default=None,
    )


def _is_invertible(each: LinearMap) -> bool:
    return isinstance(each, IdentityMap) or each.rows == 1 or each.columns <= MOST_VALUES
