"""The paper's recipe for everything that no exact solver covers: ADMM with one projection for each constraint.

Lee, Wang and Kifer (2015), §4.3–4.6: the most likely numbers that satisfy all constraints are

    min Σ loss(A x − ỹ)   subject to   x ∈ C₁ ∩ C₂ ∩ …,

where the loss has a closed-form proximal operator and every C_i is known by its Euclidean projection. The iteration
alternates between the two, and a set that somebody thinks of tomorrow is one more projection.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from consilience.errors import DeclarationError, TooLarge
from consilience.solvers.admm.problem import Setting, lower_bound, plain_setting, strategy_setting
from consilience.solvers.admm.steps import SETTINGS as EXTRAPOLATION
from consilience.solvers.admm.steps import AsPrinted, TwoBlocks
from consilience.solvers.fit import Fit, Infeasible, Loss, Status, checked_noisy, checked_weights
from consilience.solvers.projections.cells import Array, Box, ConvexSet, SeparableSet, as_convex_sets


@dataclass(frozen=True)
class AdmmSettings:
    """What tunes the iteration; by trial, no figures kept, unless a source is named."""

    check_every: int = 10
    """Steps from one look at the gap and the residuals to the next."""
    largest_drift: float = 1e8
    """The penalty stays within this factor of where it started."""
    paper_rho: float = 2.0
    """The penalty ρ of the preset "paper"."""
    largest_work: int = 2**33
    """The most bytes that an iteration may take."""
    first_search: int = 128
    """The step at which it is first asked whether the sets meet at all; then at each fourfold."""
    nearby: float = 100.0
    """Sets are called disjoint when no common point lies within this many times the size of the data."""
    meeting: float = 1e-14
    """A violation of this part of the largest number is rounding: about 45 units in the last place."""
    involved: float = 1e-4
    """A set takes part in a contradiction when its gradient is at least this part of the largest."""


SETTINGS = AdmmSettings()

# ----------------------------------------------------------------------------------------------------------------------
# Whether sets have a point in common: approach it, or prove that none is near.


def toward_all(sets: Sequence[ConvexSet], point: Array, *, rounds: int = 400) -> Array:
    """The point moved towards the intersection by projecting onto the sets in turn; the last set holds exactly.

    It stops when what is violated is rounding, or when twenty rounds no longer halve it.
    """
    best, least, least_before = point, np.inf, np.inf
    for at in range(rounds):
        for each in sets:
            point = each.project(point)
        worst = max((each.violation(point) for each in sets), default=0.0)
        if worst < least:
            best, least = point, worst
        if least <= SETTINGS.meeting * float(np.abs(point).max(initial=0.0)):
            break
        if at % 20 == 19:
            if least > 0.5 * least_before:
                break
            least_before = least
    return best


# At any x let v_i = x − Π_i(x). A point p in all sets satisfies ⟨v_i, p⟩ ≤ ⟨v_i, Π_i(x)⟩ = ⟨v_i, x⟩ − ‖v_i‖², so with
# e = Σ v_i it satisfies ⟨e, x − p⟩ ≥ Σ ‖v_i‖², and therefore lies at a distance of at least Σ ‖v_i‖² / ‖e‖ from x.
# Where the sets are disjoint, the minimiser of ½ Σ ‖x − Π_i(x)‖² has e = 0 and v ≠ 0, and the distance grows
# beyond all bounds on the way there. The way is an accelerated gradient descent (Nesterov 1983) with restarts: the
# gradient is e, and the mean of the projections is a step of the right length.
@dataclass(eq=False)
class DisjointnessSearch:
    """Looks for a proof that sets have no point in common; it can be continued."""

    sets: Sequence[ConvexSet]
    point: Array
    data_size: float
    _previous: Array | None = None
    _momentum: float = 1.0

    def run(self, steps: int) -> Infeasible | None:
        """The error to raise once disjointness is proved; None while it is not."""
        for _ in range(steps):
            gradients = [self.point - each.project(self.point) for each in self.sets]
            strength = sum(float(np.vdot(each, each)) for each in gradients)
            gradient = np.sum(gradients, axis=0)
            size = self.data_size + float(np.linalg.norm(self.point))
            if strength <= (1e-12 * size) ** 2:
                return None
            if strength >= SETTINGS.nearby * size * float(np.linalg.norm(gradient)):
                return self._report(gradients)
            self._advance(gradient / len(self.sets))
        return None

    def _advance(self, step: Array) -> None:
        arrived = self.point - step
        previous = arrived if self._previous is None else self._previous
        if float(np.vdot(step, arrived - previous)) > 0:
            self._momentum = 1.0
        momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * self._momentum**2))
        self.point = arrived + ((self._momentum - 1.0) / momentum) * (arrived - previous)
        self._previous, self._momentum = arrived, momentum

    def _report(self, gradients: Sequence[Array]) -> Infeasible:
        strengths = np.array([np.linalg.norm(each) for each in gradients])
        pulling = strengths > SETTINGS.involved * strengths.max()
        involved = [each.name for each, pulls_hard in zip(self.sets, pulling, strict=True) if pulls_hard]
        violation = max(each.violation(self.point) for each in self.sets)
        return Infeasible(
            f"no numbers satisfy {' and '.join(involved)} together: at the nearest point to all, a condition is "
            f"still broken by {violation:.6g}; drop or correct one of them",
            violation=violation,
            constraints=involved,
        )


# ----------------------------------------------------------------------------------------------------------------------
# Running an ADMM iteration: when to stop, when to change the penalty, when to give up, and what to report.


Iteration = TwoBlocks | AsPrinted


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
    disjointness, balance = _Disjointness(run), _Balance(iteration.rho)
    step = 0
    while step < run.options.max_steps:
        step += 1
        iteration.advance()
        if run.options.history:
            objective = run.setting.problem.value(iteration.point)
            run.history.append(HistoryEntry(step, objective, iteration.primal, iteration.dual, iteration.rho))
        if isinstance(iteration, AsPrinted):
            if _rule_22_holds(run, iteration):
                return finished(run, iteration.point, iteration, Status.CONVERGED, step)
        elif step % SETTINGS.check_every == 0:
            status = _scale_free_rule(run, iteration)
            if status is not None:
                return finished(run, iteration.point, iteration, status, step)
            if run.options.adaptive:
                balance.apply(run, iteration, step)
        disjointness.check(iteration, step)
    return finished(run, iteration.point, iteration, Status.STEP_LIMIT, step)


def _rule_22_holds(run: Run, iteration: AsPrinted) -> bool:
    """Lee et al., (22), with τ₁ = τ₂ = the tolerance: every ‖r_i‖₂ ≤ τ₁ and ‖ρ(xᵏ⁺¹ − xᵏ)‖₂ ≤ τ₂, in absolute norms."""
    if max(iteration.primal, iteration.dual) > run.options.tolerance:
        return False
    run.rule = "residuals (22)"
    return True


# (22) without units: what the copies of x differ by is measured in the size of the noise, what the dual variables
# change by in the slope of the loss at residuals of that size, and both per cell. They decide alone only where there
# is no certificate.
def _scale_free_rule(run: Run, iteration: TwoBlocks) -> Status | None:
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
        self._first, self._next, self._pause = rho, SETTINGS.check_every, float(SETTINGS.check_every)

    def apply(self, run: Run, iteration: TwoBlocks, step: int) -> None:
        if step < self._next or iteration.primal == 0 or iteration.dual == 0:
            return
        noise = run.setting.problem.noise_at(iteration.point, run.options.tolerance)
        primal, dual = iteration.primal / noise, iteration.dual / run.setting.problem.slope_at(noise)
        factor = float(np.clip(np.sqrt(primal / dual), 0.2, 5.0))
        self._next = step + SETTINGS.check_every
        if 0.5 <= factor <= 2.0:
            return
        drift = SETTINGS.largest_drift
        iteration.change_rho(float(np.clip(iteration.rho * factor, self._first / drift, self._first * drift)))
        self._pause *= 1.5
        self._next = step + self._pause


class _Disjointness:
    """Asks from time to time, where the copies do not come together, whether the sets meet at all."""

    def __init__(self, run: Run) -> None:
        self._run, self._next, self._before = run, SETTINGS.first_search, np.inf
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


# ----------------------------------------------------------------------------------------------------------------------
# The paper's recipe for everything that no exact solver covers: ADMM with one projection for each constraint.


def admm(
    noisy: Any,
    constraints: Any,
    *,
    loss: str = "elastic",
    alpha: float = 0.9,
    weights: Any = None,
    rho: float | Literal["auto"] = "auto",
    strategy: Any = None,
    relaxation: float = 1.6,
    adaptive: bool = True,
    tolerance: float = 1e-6,
    max_steps: int = 20_000,
    history: bool = False,
    preset: Literal["paper"] | None = None,
    start: Any = None,
) -> AdmmFit:
    """The numbers of least loss among those that satisfy every constraint, and a bound on what is missing to the least.

    `constraints` are sets from `consilience.solvers.projections`, functions that project, or anything with `name`,
    `project` and `violation`. With a `strategy` A (dense or sparse) the loss is that of A x − noisy, and the sets
    constrain x. A weight of 0 says that a value was not measured.

    The default splits in two blocks where the sets allow it, with over-relaxation; `adaptive` balances the penalty ρ
    and extrapolates. It stops when the duality gap is within `tolerance` of the loss and the copies of x agree to that
    part of the noise; the result is then moved onto the sets, and bounds of single cells hold exactly.
    `preset="paper"` runs Algorithms 1–4 as printed: ρ = 2 unless given, fixed, rule (22) with absolute norms, the last
    x as it is. The page `docs/concepts/admm.md` names the misprints that were corrected.

    Sets without a common point raise `Infeasible`. Where cells that were neither measured nor bounded leave no
    certificate, `gap` is loose, up to the whole loss, and `stats["rule"]` says that the residuals stopped the steps.

    >>> from consilience.solvers.projections.cells import NonNegative
    >>> from consilience.solvers.projections.sums import TreeConsistency
    >>> fit = admm([9.0, 4.0, 2.0], [TreeConsistency(2), NonNegative()], loss="l2")
    >>> fit.counts.round(4)
    array([8., 5., 3.])
    """
    sets = as_convex_sets(constraints)
    options = Options(rho, relaxation, adaptive, tolerance, max_steps, history, preset)
    measured = _measured(noisy, strategy, loss, alpha, weights)
    origin = _origin(measured, start)
    _require_projections(sets, origin)
    if preset == "paper":
        return _as_printed(measured, sets, options, origin, halved=loss == "l2")
    return _in_two_blocks(measured, sets, options, origin if start is not None else None)


@dataclass(frozen=True, eq=False)
class _Measured:
    """What was measured: noisy answers, their weights, their loss, and the strategy that they answer."""

    noisy: Array
    weights: Array
    loss: Loss
    strategy: Any

    def setting(self, sets: Sequence[ConvexSet], *, balanced: bool) -> Setting:
        if self.strategy is None:
            return plain_setting(self.noisy, self.weights, self.loss, sets)
        return strategy_setting(self.strategy, self.noisy, self.weights, self.loss, sets, balanced=balanced)


def _measured(noisy: Any, strategy: Any, loss: str, alpha: float, weights: Any) -> _Measured:
    shares = checked_weights(weights, np.shape(noisy))
    values = checked_noisy(noisy, weights=shares)
    if strategy is not None:
        sparse = sp.issparse(strategy)
        strategy = sp.csr_array(strategy, dtype=np.float64) if sparse else np.asarray(strategy, dtype=np.float64)
        if strategy.ndim != 2 or values.ndim != 1 or strategy.shape[0] != values.size:
            raise DeclarationError(
                f"the strategy has shape {strategy.shape} and there are noisy answers of shape {values.shape}; "
                "give one answer for each row"
            )
        if not np.all(np.isfinite(strategy.data if sparse else strategy)):
            raise DeclarationError("the strategy holds an entry that is not a finite number; correct the matrix")
    return _Measured(values, shares, Loss.named(loss, alpha=alpha), strategy)


def _origin(measured: _Measured, start: Any) -> Array:
    """Where the iteration begins: the noisy cells, zeros below a strategy, or what the caller says."""
    if measured.strategy is None:
        origin = measured.noisy.copy()
    else:
        origin = np.zeros(measured.strategy.shape[1])
    if start is None:
        return origin
    begin = np.array(start, dtype=np.float64)
    if begin.shape != origin.shape or not np.all(np.isfinite(begin)):
        raise DeclarationError(
            f"the start has shape {begin.shape} and there are cells of shape {origin.shape}; "
            "give one finite number for each cell"
        )
    return begin


def _require_projections(sets: Sequence[ConvexSet], origin: Array) -> None:
    """Refuse what cannot be a projection: its certificate would be worth nothing."""
    for each in sets:
        once = each.project(origin)
        if np.shape(once) != origin.shape:
            raise DeclarationError(
                f"the set {each.name!r} projects cells of shape {origin.shape} to shape {np.shape(once)}; "
                "return the nearest point in the shape it came in"
            )
        moved = float(np.linalg.norm(each.project(once) - once))
        if not moved <= 1e-6 * (float(np.linalg.norm(once)) + float(np.linalg.norm(origin))):
            raise DeclarationError(
                f"the set {each.name!r} does not project: applied to its own result it moves by {moved:.3g} once more; "
                "return the nearest point of the set"
            )


def _in_two_blocks(measured: _Measured, sets: Sequence[ConvexSet], options: Options, start: Array | None) -> AdmmFit:
    setting = measured.setting(sets, balanced=True)
    problem = setting.problem
    best = problem.minimiser()
    if all(each.violation(best) == 0 for each in problem.sets):
        return finished(Run(setting, sets, options), best)
    _require_memory(best.size, len(problem.sets))
    rho = options.rho
    if rho == "auto":
        noise = problem.noise_at(problem.sets[0].project(best), options.tolerance)
        rho = problem.slope_at(noise) / noise
    iteration = TwoBlocks(
        problem,
        rho=float(rho),
        relaxation=options.relaxation,
        start=best if start is None else setting.point(start),
        extrapolate=options.adaptive,
    )
    return iterate(Run(setting, sets, options), iteration)


def _require_memory(cells: int, copies: int) -> None:
    """Refuse what would not fit; an iteration holds about eight arrays for each copy of the cells and twelve more."""
    need = 8 * cells * (8 * copies + 12) + EXTRAPOLATION.most_bytes
    if need > SETTINGS.largest_work:
        raise TooLarge(
            f"{cells:,} cells in {copies} copies would take {need / 2**30:.1f} GB and may take "
            f"{SETTINGS.largest_work / 2**30:.0f} GB; fit fewer cells at a time"
        )


def _as_printed(
    measured: _Measured, sets: Sequence[ConvexSet], options: Options, start: Array, *, halved: bool
) -> AdmmFit:
    setting = measured.setting(sets, balanced=False)
    rho = SETTINGS.paper_rho if options.rho == "auto" else float(options.rho)
    return iterate(Run(setting, sets, options), AsPrinted(setting, sets, rho=rho, start=start, halved=halved))
