"""Running an ADMM iteration: when to stop, when to change the penalty, when to give up, and what to report."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from consilience.errors import DeclarationError
from consilience.solvers.admm.certificate import lower_bound
from consilience.solvers.admm.problem import Setting
from consilience.solvers.admm.steps import Iteration
from consilience.solvers.fit import Fit, Status
from consilience.solvers.projections.convex_set import Array, ConvexSet, SeparableSet
from consilience.solvers.projections.intersection import DisjointnessSearch, toward_all
from consilience.solvers.projections.separable import Box

CHECK_EVERY = 10
FIRST_SEARCH = 128
"""The step at which it is first asked whether the sets meet at all; then at each fourfold."""
LARGEST_DRIFT = 1e8
"""The penalty stays within this factor of where it started."""


class HistoryEntry(NamedTuple):
    """What one step left behind."""

    step: int
    objective: float
    primal: float
    dual: float
    rho: float


@dataclass(frozen=True, eq=False)
class AdmmFit(Fit):
    """A fit, and the way to it where that was asked for."""

    history: tuple[HistoryEntry, ...] = ()


@dataclass(frozen=True)
class Options:
    """How to iterate, checked."""

    rho: Any
    relaxation: float
    adaptive: bool
    tolerance: float
    max_steps: int
    history: bool
    preset: str | None

    def __post_init__(self) -> None:
        if not (isinstance(self.rho, str) and self.rho == "auto") and not _is_between(self.rho, 0, np.inf):
            raise DeclarationError(f'the penalty rho is {self.rho!r}; give a positive number, or "auto"')
        if not _is_between(self.relaxation, 0, 2):
            raise DeclarationError(f"the relaxation is {self.relaxation!r}; give a number between 0 and 2, such as 1.6")
        if not _is_between(self.tolerance, 0, np.inf):
            raise DeclarationError(f"the tolerance is {self.tolerance!r}; give a positive number, such as 1e-6")
        if not _is_between(self.max_steps, 0, np.inf):
            raise DeclarationError(f"max_steps is {self.max_steps!r}; allow at least one step")
        if self.preset not in (None, "paper"):
            raise DeclarationError(f'there is no preset {self.preset!r}; use "paper", or None for the defaults')


def _is_between(value: Any, low: float, high: float) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and low < float(value) < high


@dataclass(eq=False)
class Run:
    """What is known while an iteration runs."""

    setting: Setting
    sets: Sequence[ConvexSet]
    options: Options
    bound: float = -np.inf
    rule: str = "none"
    history: list[HistoryEntry] = field(default_factory=list)

    def cell_sets(self) -> list[ConvexSet]:
        """The sets over cells; those that bound single cells are one box, which comes last."""
        low, high = (self.setting.cells(each) for each in (self.setting.problem.low, self.setting.problem.high))
        names = [each.name for each in self.sets if isinstance(each, SeparableSet)]
        others = [each for each in self.sets if not isinstance(each, SeparableSet)]
        return [*others, Box(low, high, name=" and ".join(names))] if names else others


def iterate(run: Run, iteration: Iteration) -> AdmmFit:
    """Advance until a rule stops the iteration, the steps run out, or the sets prove to be disjoint."""
    printed = run.options.preset == "paper"
    disjointness, balance = _Disjointness(run), _Balance(iteration.rho)
    step = 0
    while step < run.options.max_steps:
        step += 1
        iteration.advance()
        if run.options.history:
            objective = run.setting.problem.value(iteration.point)
            run.history.append(HistoryEntry(step, objective, iteration.primal, iteration.dual, iteration.rho))
        if printed and _rule_22_holds(run, iteration):
            return finished(run, iteration.point, iteration, Status.CONVERGED, step)
        if not printed and step % CHECK_EVERY == 0:
            status = _scale_free_rule(run, iteration)
            if status is not None:
                return finished(run, iteration.point, iteration, status, step)
            if run.options.adaptive:
                balance.apply(run, iteration, step)
        disjointness.check(iteration, step)
    return finished(run, iteration.point, iteration, Status.STEP_LIMIT, step)


def _rule_22_holds(run: Run, iteration: Iteration) -> bool:
    """Lee et al., (22), with τ₁ = τ₂ = the tolerance: every ‖r_i‖₂ ≤ τ₁ and ‖ρ(xᵏ⁺¹ − xᵏ)‖₂ ≤ τ₂, in absolute norms."""
    if max(iteration.primal, iteration.dual) > run.options.tolerance:
        return False
    run.rule = "residuals (22)"
    return True


# (22) without units: what the copies of x differ by is measured in the size of the noise, what the dual variables
# change by in the slope of the loss at residuals of that size, and both per cell. They decide alone only where there
# is no certificate.
def _scale_free_rule(run: Run, iteration: Iteration) -> Status | None:
    """Why to stop now, if there is a reason."""
    problem, tolerance = run.setting.problem, run.options.tolerance
    bound = lower_bound(problem, iteration.normals(), iteration.point)
    run.bound = max(run.bound, bound)
    objective = problem.value(iteration.point)
    noise = problem.noise_at(iteration.point, tolerance)
    cells = np.sqrt(problem.noisy.size)
    primal = iteration.primal / (cells * noise)
    dual = iteration.dual / (cells * problem.slope_at(noise))
    size = max(objective, problem.value((1.0 + tolerance) * problem.noisy))
    if primal <= tolerance and abs(objective - run.bound) <= tolerance * size:
        run.rule = "gap"
        return Status.CONVERGED
    if max(primal, dual) <= 0.1 * tolerance and run.bound <= problem.least():
        run.rule = "residuals (22)"
        return Status.CONVERGED
    moved = max(iteration.primal, iteration.dual / iteration.rho)
    if moved <= np.finfo(float).eps * float(np.linalg.norm(iteration.point)):
        run.rule = "rounding"
        return Status.STALLED
    return None


# Residual balancing (Boyd et al. 2011, §3.4.1) with residuals relative to what they should vanish against. A change
# restarts the extrapolation, so changes become rarer; that they end is also what guarantees convergence.
class _Balance:
    """Changes the penalty where one residual lags behind the other."""

    def __init__(self, rho: float) -> None:
        self._first, self._next, self._pause = rho, CHECK_EVERY, float(CHECK_EVERY)

    def apply(self, run: Run, iteration: Iteration, step: int) -> None:
        if step < self._next or iteration.primal == 0 or iteration.dual == 0:
            return
        noise = run.setting.problem.noise_at(iteration.point, run.options.tolerance)
        primal, dual = iteration.primal / noise, iteration.dual / run.setting.problem.slope_at(noise)
        factor = float(np.clip(np.sqrt(primal / dual), 0.2, 5.0))
        self._next = step + CHECK_EVERY
        if 0.5 <= factor <= 2.0:
            return
        wanted = float(np.clip(iteration.rho * factor, self._first / LARGEST_DRIFT, self._first * LARGEST_DRIFT))
        iteration.change_rho(wanted)
        self._pause *= 1.5
        self._next = step + self._pause


class _Disjointness:
    """Asks from time to time, where the copies do not come together, whether the sets meet at all."""

    def __init__(self, run: Run) -> None:
        self._run, self._next, self._before = run, FIRST_SEARCH, np.inf
        self._search: DisjointnessSearch | None = None

    def check(self, iteration: Iteration, step: int) -> None:
        """Raise `Infeasible` once that is proved."""
        if 2 * step == self._next:
            self._before = iteration.primal
        if step < self._next:
            return
        self._next *= 4
        if iteration.primal <= 0.5 * self._before:
            return
        setting = self._run.setting
        cells = setting.cells(iteration.point)
        if self._search is None:
            size = float(np.linalg.norm(setting.cells(setting.problem.noisy)))
            self._search = DisjointnessSearch(self._run.cell_sets(), cells, size)
        disjoint = self._search.run(step // 2)
        if disjoint is not None:
            raise disjoint


def finished(
    run: Run, point: Array, iteration: Iteration | None = None, status: Status = Status.CONVERGED, steps: int = 0
) -> AdmmFit:
    """The report. The default iteration's point is first moved onto the sets; the paper's x is left as it is."""
    setting, problem = run.setting, run.setting.problem
    counts = setting.cells(point)
    if run.options.preset is None:
        counts = toward_all(run.cell_sets(), counts)
    if iteration is not None:
        run.bound = max(run.bound, lower_bound(problem, iteration.normals(), iteration.point))
    objective = problem.value(setting.point(counts))
    bound = max(run.bound, problem.least())
    stats = {
        "steps": steps,
        "rule": run.rule if iteration is not None else "closed form",
        "rho": iteration.rho if iteration is not None else 0.0,
        "primal": iteration.primal if iteration is not None else 0.0,
        "dual": iteration.dual if iteration is not None else 0.0,
        "violation": max((each.violation(counts) for each in run.sets), default=0.0),
    }
    return AdmmFit(counts, objective, abs(objective - bound), status, stats, tuple(run.history))
