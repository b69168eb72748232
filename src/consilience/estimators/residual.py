"""`Residual`: consistent, non-negative marginals of hundreds of attributes, where no model of the joint table fits.

Three steps, none of them exponential in the number of attributes (marginals has the mathematics):

1. The residuals (ANOVA components) of all measured marginals, by weighted least squares. Noisy marginals have a closed
   form; other queries that determine their marginal (prefixes, ranges, trees, ...), or all differences along some of
   its axes where something else tells the sums, are solved by iteration.
2. Each residual is drawn toward what the smaller marginals imply, as far as its noise explains the difference. Those
   of other queries than marginals stay as measured: their noise is not alike in all directions, as this takes it to be.
3. The marginals of the workload are made non-negative and stay consistent (GReM-LNN, Mullins et al. 2024), as near to
   the answers as can be in squares divided by variances.

All answers come from the tables of step 3. A marginal that none of them contains is the one of greatest entropy given
those it overlaps with. Where all measured attributes together have few cells, their joint table is one more table of
step 3, so that everything else is summed from it.

*What is known exactly* (public totals and margins, measurements without noise) is kept, and so are impossible cells
in every table that has all their attributes. *Clipped* answers: a 0 stands for an unknown negative value, and taking it
for 0 would push all counts up; its expectation is put in its place: −b for Laplace noise, which is right whatever the
count, and −σ√(2/π) for Gaussian noise, which is right for a count of 0 and nearly so elsewhere. *Answers below a
threshold T*, not released, count as 0 with the variance σ² + T².
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError, readable_bytes, readable_count
from consilience.estimators.base import Progress, Suitability, check_whole, named_marginals
from consilience.estimators.marginals import MarginalsEstimate, MeasuredMarginals, MeasuredScopes, noisy_table
from consilience.kernels.linear_maps import Kronecker
from consilience.marginals.decomposition import Decomposition
from consilience.marginals.least_squares import FittedResiduals
from consilience.marginals.level_fits import LocalProblem, fit_locally
from consilience.marginals.local_marginals import LocalMarginals, fit_joint_table
from consilience.marginals.nonnegative_marginals import NonnegativeFit
from consilience.measurements import MeasurementSet
from consilience.solvers.fit import Infeasible, Status

Array = NDArray[np.float64]

MOST_ATTRIBUTES = 12
"""The most attributes of one marginal: it has 2^k residuals."""

BYTES_PER_CELL, SIGNED_BYTES_PER_CELL = 165, 80
"""Fitting holds some 20 numbers for each cell of the workload's tables, half as many where counts may be negative."""

LARGEST_MISFIT = 2.0
"""The mean squared residual, in units of the noise, up to which the prior and the joint table are kept: as much again
as noise alone leaves, so that without them the error is likely less."""

IMPOSSIBLE = 0.01
"""The share of negative counts, left after all steps, from which on facts are said to contradict each other."""


@dataclass(frozen=True)
class Residual:
    """Local non-negativity on the marginals of a workload: the measured ones, and those named in `marginals`.

    `nonnegative=False` ends after step 1: unbiased weighted least squares, in closed form for marginals, with counts of
    either sign; interactions that were not measured are then 0. `prior=False` leaves out step 2, the pull toward what
    smaller marginals imply; the fit is then that of Mullins et al. but for the weights. `tolerance` bounds the
    optimality gap of step 3 in parts of its objective or of the expected noise, whichever is larger; `max_steps` and
    `time_limit` (seconds), for each level of marginals, end it earlier, and the status says so. `memory_limit` is in
    bytes.
    """

    marginals: tuple[tuple[str, ...], ...] = ()
    prior: bool = True
    nonnegative: bool = True
    tolerance: float = 1e-3
    max_steps: int = 5000
    time_limit: float | None = None
    memory_limit: int = 4_000_000_000

    name: ClassVar[str] = "residual"

    def __post_init__(self) -> None:
        object.__setattr__(self, "marginals", named_marginals(self.marginals))
        if not 0.0 < self.tolerance < 1.0:
            raise DeclarationError(f"the tolerance is {self.tolerance!r}; give a relative gap such as 1e-3")
        check_whole(self.max_steps, "max_steps")

    def suitability(self, measured: MeasurementSet) -> Suitability:
        problem = MeasuredScopes.of(measured, self.marginals)
        against = problem.reason_against_residuals()
        if not self.nonnegative and measured.domain.impossible:
            against = "least squares with nonnegative=False keep no impossible cells empty"
        if against is not None:
            return Suitability(False, against)
        largest = max(problem.scopes, key=len)
        if len(largest) > MOST_ATTRIBUTES:
            return Suitability(
                False,
                f"a marginal over {len(largest)} attributes has 2^{len(largest)} residuals; Residual takes marginals "
                f"of up to {MOST_ATTRIBUTES} attributes",
            )
        need = (BYTES_PER_CELL if self.nonnegative else SIGNED_BYTES_PER_CELL) * problem.cells
        text = (
            f"{len(problem.scopes):,} marginals have {readable_count(problem.cells)} cells and take about "
            f"{readable_bytes(need)}"
        )
        if need > self.memory_limit:
            return Suitability(False, f"{text}; the limit is {readable_bytes(self.memory_limit)}", need)
        return Suitability(True, f"{text} of memory, however large the joint table is", need)

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> MarginalsEstimate:
        self.suitability(measured).require(self.name, ". Measure smaller marginals")
        began = time.perf_counter()
        problem = MeasuredMarginals.of(measured, self.marginals)
        fitted = problem.least_squares()
        local = _local_problem(problem, fitted)
        total = local.total
        if not self.nonnegative:
            total = float(problem.decomposition.residuals.table(fitted.residuals, ()))
            fit, decomposition = _signed(problem, fitted), problem.decomposition
        else:
            fit, decomposition = self._solve(problem, local, progress) if total > 0 else _nothing(problem)
        stack = decomposition.tables
        stats: dict[str, float | int | str] = {
            "objective": fit.objective,
            "gap": fit.gap,
            "violation": fit.violation,
            "steps": fit.steps,
            "least_squares_steps": fitted.steps,
            "least_squares_remainder": fitted.remainder,
            "marginals": len(stack.scopes),
            "cells": stack.size,
            "measured_answers": sum(each.values.size for each in problem.answers if not each.exact),
            "seconds": time.perf_counter() - began,
        }
        return MarginalsEstimate(
            measured, self._describe(), fit.status, stats, tuple(stack.scopes), fit.marginals, total
        )

    def _solve(
        self, problem: MeasuredMarginals, local: LocalProblem, progress: Progress | None
    ) -> tuple[NonnegativeFit, Decomposition]:
        """The non-negative tables of the workload, or the joint table where that is small.

        The joint table and the prior are help against noise: where counts are far larger, they may keep the tables from
        what was measured more than noise does, and are left out then.
        """
        tried = []
        for found in self._fits(problem, local, progress):
            tried.append((_misfit(problem, *found), found))
            if tried[-1][0] <= LARGEST_MISFIT:
                break
        return min(tried, key=lambda each: each[0])[1]

    def _fits(
        self, problem: MeasuredMarginals, local: LocalProblem, progress: Progress | None
    ) -> Iterator[tuple[NonnegativeFit, Decomposition]]:
        """The fits that may be taken, the best first: with all help against noise, and with less and less of it."""
        report = None if progress is None else lambda done, most: progress("fitting", done, most)
        limits = {"tolerance": self.tolerance, "max_steps": self.max_steps, "time_limit": self.time_limit}
        for prior in dict.fromkeys((self.prior, False)):
            fit = fit_locally(local, use_prior=prior, progress=report, **limits)
            _refuse_contradictions(fit, problem, local.total)
            if problem.has_small_joint:
                whole, joint = fit_joint_table(local, fit, problem.attributes, **limits)
                _refuse_contradictions(whole, problem, local.total)
                yield whole, joint
            yield fit, local.decomposition

    def _describe(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"method": self.name, "prior": self.prior, "tolerance": self.tolerance}
        settings["nonnegative"] = self.nonnegative
        return settings | ({"marginals": [list(each) for each in self.marginals]} if self.marginals else {})


def _local_problem(problem: MeasuredMarginals, fitted: FittedResiduals) -> LocalProblem:
    """The least-squares residuals as wishes, with a total that is not below 0."""
    residuals = np.array(fitted.residuals)
    decomposition = problem.decomposition
    total = decomposition.residuals.table(residuals, ())
    total[...] = np.maximum(total, 0.0)
    empty = problem.empty_cells().of
    return LocalProblem(decomposition, residuals, fitted.precisions, empty, fitted.precision, fitted.uneven)


def _misfit(problem: MeasuredMarginals, fit: NonnegativeFit, decomposition: Decomposition) -> float:
    """The mean squared residual of the noisy answers, in units of their variances."""
    tables = LocalMarginals(decomposition.tables, fit.marginals, 0.0)
    squares, answers = 0.0, 0
    for noisy in (noisy_table(each) for each in problem.answers if not each.exact and each.values.size):
        known = tables.known(noisy.scope) if noisy.scope else None
        if known is not None:
            missed = np.ravel(Kronecker(noisy.maps).apply(known)) - np.ravel(noisy.values)
            squares, answers = squares + float(np.ravel(noisy.precisions) @ missed**2), answers + missed.size
    return squares / max(answers, 1)


def _nothing(problem: MeasuredMarginals) -> tuple[NonnegativeFit, Decomposition]:
    """Empty tables, for measurements that say that there are no records."""
    decomposition = problem.decomposition
    zeros: Array = np.zeros(decomposition.residuals.size)
    fit = NonnegativeFit(zeros, np.zeros(decomposition.tables.size), 0.0, 0.0, 0.0, Status.CONVERGED, 0)
    return fit, decomposition


def _signed(problem: MeasuredMarginals, fitted: FittedResiduals) -> NonnegativeFit:
    """The least-squares marginals themselves."""
    marginals = problem.decomposition.marginals(fitted.residuals)
    return NonnegativeFit(fitted.residuals, marginals, 0.0, fitted.remainder, 0.0, Status.CONVERGED, 0)


def _refuse_contradictions(fit: NonnegativeFit, problem: MeasuredMarginals, total: float) -> None:
    """Refuse facts and empty cells to which no non-negative marginals were found after all steps."""
    if fit.status is Status.STEP_LIMIT and fit.violation > IMPOSSIBLE and (problem.facts or problem.domain.impossible):
        names = [fact.name for fact in problem.facts]
        names += [f"impossible cells by {', '.join(rule.attributes)}" for rule in problem.domain.impossible]
        raise Infeasible(
            f"no marginals without negative counts were found that keep to {' and '.join(names)}: after {fit.steps} "
            f"steps {fit.violation:.1%} of the counts of a table are still negative; correct the facts, or raise "
            "max_steps",
            violation=fit.violation * total,
            constraints=names,
        )
