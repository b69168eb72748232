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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.errors import TooLarge, readable_bytes, readable_count
from consilience.estimators.base import Progress, Suitability
from consilience.estimators.evidence import gather, refuse_nothing_to_fit
from consilience.estimators.marginals_estimate import LARGEST_ANSWER, MarginalsEstimate
from consilience.estimators.published.scope_squares import ScopeAnswers, marginal_variance, solve_scope
from consilience.estimators.query_on_scope import QueryOnScope, marginal_scope
from consilience.kernels.linear_maps import IdentityMap, LinearMap
from consilience.marginals.table_stacks import Scope, TableStack, stored_order, summed
from consilience.measurements import Exact, MeasurementSet
from consilience.solvers.fit import Status

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
        places, scopes = _places(measured.domain), dict[Scope, None]()
        for each in measured:
            exact = isinstance(each.noise, Exact)
            if not exact and (each.clipped or (each.censored is not None and each.censored.any())):
                return Suitability(
                    False, f"the answers to {each.query.describe()!r} were clipped or withheld; least squares need all"
                )
            scope, large = marginal_scope(each.query, places), []
            if scope is None:
                query = QueryOnScope.of(each.bind(measured.domain), places)
                scope, large = query.scope, [each for each in query.maps if not _is_invertible(each)]
            scopes |= {} if exact else {scope: None}
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
        suitable = self.suitability(measured)
        if not suitable.possible:
            raise TooLarge(f"local-squares cannot fit these measurements: {suitable.reason}. Use another estimator")
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
    domain = measured.domain
    places = _places(domain)
    found: ByScope = {}
    for evidence in gather(measured):
        if evidence.exact:
            continue
        query = QueryOnScope.of(evidence.bind(domain), places)
        scope = stored_order(domain.shape, query.scope)
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


def _places(domain: Domain) -> dict[str, int]:
    return {name: place for place, name in enumerate(domain.counted_names)}


def _is_invertible(each: LinearMap) -> bool:
    return isinstance(each, IdentityMap) or each.rows == 1 or each.columns <= MOST_VALUES
