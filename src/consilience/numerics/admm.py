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

from consilience.errors import DeclarationError
from consilience.numerics.admm_certificate import lower_bound
from consilience.numerics.admm_problem import Setting, plain_setting, strategy_setting
from consilience.numerics.admm_steps import AsPrinted, Iteration, TwoBlocks
from consilience.numerics.fit import Fit, Status
from consilience.numerics.projections import Box, ConvexSet, SeparableSet, as_convex_sets
from consilience.numerics.projections.convex_set import Array
from consilience.numerics.projections.intersection import DisjointnessSearch, toward_all

PAPER_RHO = 2.0
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
    """The numbers of least loss among those that satisfy every constraint, with a bound on how far from it they may be.

    `constraints` are sets from `consilience.numerics.projections`, functions that project, or anything with `name`, `project` and
    `violation`. With a `strategy` A (dense or sparse) the loss is that of A x − noisy, and the sets constrain x. A weight
    of 0 says that a value was not measured.

    The default splits in two blocks where the sets allow it, with over-relaxation; `adaptive` balances the penalty ρ
    and extrapolates. It stops when the duality gap is within `tolerance` of the loss and the sets are violated by at most
    that part of the noise. `preset="paper"` runs Algorithms 1–4 as printed (ρ = 2, stopping rule (22) with absolute norms,
    no extrapolation, the last x as it is); see `docs/concepts/admm.md` for the misprints that were corrected.

    Sets without a common point raise `Infeasible`. `gap` is infinite or loose where no certificate is to be had: then
    `stats["rule"]` says that the residuals stopped the iteration.

    >>> from consilience.numerics.projections import NonNegative, TreeConsistency
    >>> fit = admm([9.0, 4.0, 2.0], [TreeConsistency(2), NonNegative()], loss="l2")
    >>> fit.counts.round(4)
    array([8., 5., 3.])
    """
    sets = as_convex_sets(constraints)
    options = _Options(rho, relaxation, adaptive, tolerance, max_steps, history, preset)
    measured = _measured(noisy, strategy, loss, alpha, weights)
    origin = _origin(measured, start)
    _require_projections(sets, origin)
    if preset == "paper":
        return _as_printed(measured, sets, options, origin, halved=loss == "l2")
    return _in_two_blocks(measured, sets, options, origin if start is not None else None)


@dataclass(frozen=True)
class _Options:
    rho: float | str
    relaxation: float
    adaptive: bool
    tolerance: float
    max_steps: int
    history: bool
    preset: str | None

    def __post_init__(self) -> None:
        if self.rho != "auto" and not (_is_number(self.rho) and 0 < float(self.rho) < np.inf):
            raise DeclarationError(f'the penalty rho is {self.rho!r}; give a positive number, or "auto"')
        if not (_is_number(self.relaxation) and 0 < self.relaxation < 2):
            raise DeclarationError(f"the relaxation is {self.relaxation!r}; give a number between 0 and 2, such as 1.6")
        if not (_is_number(self.tolerance) and 0 < self.tolerance < np.inf):
            raise DeclarationError(f"the tolerance is {self.tolerance!r}; give a positive number, such as 1e-6")
        if self.max_steps < 1:
            raise DeclarationError(f"max_steps is {self.max_steps!r}; allow at least one step")
        if self.preset not in (None, "paper"):
            raise DeclarationError(f'there is no preset {self.preset!r}; use "paper", or None for the defaults')


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


@dataclass(frozen=True, eq=False)
class _Measured:
    """What was measured: noisy answers, the loss a|r| + q·r² of each, the strategy that they answer."""

    noisy: Array
    weights: Array
    linear: Array
    quadratic: Array
    strategy: Any


def _measured(noisy: Any, strategy: Any, loss: str, alpha: float, weights: Any) -> _Measured:
    noisy = np.asarray(noisy, float)
    weights = np.ones_like(noisy) if weights is None else np.broadcast_to(np.asarray(weights, float), noisy.shape)
    linear = weights * {"l1": 1.0, "l2": 0.0, "elastic": alpha}[loss]
    quadratic = weights**2 * {"l1": 0.0, "l2": 1.0, "elastic": 1 - alpha}[loss]
    if strategy is None:
        return _Measured(noisy, weights, linear, quadratic, None)
    strategy = sp.csr_array(strategy, dtype=np.float64) if sp.issparse(strategy) else np.asarray(strategy, dtype=np.float64)
    if strategy.ndim != 2 or noisy.ndim != 1 or strategy.shape[0] != noisy.size:
        raise DeclarationError(
            f"the strategy has shape {strategy.shape} and there are noisy answers of shape {noisy.shape}; "
            "give one answer for each row"
        )
    if not np.all(np.isfinite(strategy.data if sp.issparse(strategy) else strategy)):
        raise DeclarationError("the strategy holds an entry that is not a finite number; correct the matrix")
    return _Measured(noisy, weights, linear, quadratic, strategy)


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
            f"the start has shape {begin.shape} and there are cells of shape {origin.shape}; give one finite number for each cell"
        )
    return begin


def _require_projections(sets: Sequence[ConvexSet], origin: Array) -> None:
    """Refuse what cannot be a projection: its certificate would be worth nothing."""
    for each in sets:
        once = each.project(origin)
        if np.shape(once) != origin.shape:
            raise DeclarationError(
                f"the set {each.name!r} projects cells of shape {origin.shape} to shape {np.shape(once)}; keep the shape"
            )
        moved = float(np.linalg.norm(each.project(once) - once))
        if not moved <= 1e-6 * (float(np.linalg.norm(once)) + float(np.linalg.norm(origin))):
            raise DeclarationError(
                f"the set {each.name!r} does not project: applied to its own result it moves by {moved:.3g} once more; "
                "return the nearest point of the set"
            )


def _in_two_blocks(measured: _Measured, sets: Sequence[ConvexSet], options: _Options, start: Array | None) -> AdmmFit:
    parts = measured.noisy, measured.linear, measured.quadratic, sets
    if measured.strategy is None:
        setting = plain_setting(*parts)
    else:
        setting = strategy_setting(measured.strategy, *parts, row_weights=measured.weights)
    problem = setting.problem
    best = problem.minimiser()
    if not problem.sets or max(each.violation(best) for each in problem.sets) == 0:
        return _finished(_Run(setting, sets, options), best)
    begin = best if start is None else setting.point(start)
    rho = options.rho
    if isinstance(rho, str):
        noise = problem.noise_at(problem.sets[0].project(best), options.tolerance)
        rho = problem.slope_at(noise) / noise
    iteration = TwoBlocks(
        problem, rho=float(rho), relaxation=options.relaxation, start=begin, extrapolate=options.adaptive
    )
    return _iterate(_Run(setting, sets, options), iteration)


def _as_printed(
    measured: _Measured, sets: Sequence[ConvexSet], options: _Options, start: Array, *, halved: bool
) -> AdmmFit:
    parts = measured.noisy, measured.linear, measured.quadratic, sets
    if measured.strategy is None:
        setting = plain_setting(*parts)
    else:
        every = np.ones_like(measured.noisy)
        setting = strategy_setting(measured.strategy, *parts, row_weights=every, scale=1.0)
    rho = PAPER_RHO if isinstance(options.rho, str) else float(options.rho)
    iteration = AsPrinted(setting, sets or (Box(-np.inf, np.inf),), rho=rho, start=start, halved=halved)
    return _iterate(_Run(setting, sets, options), iteration)


@dataclass(eq=False)
class _Run:
    """What is known while an iteration runs."""

    setting: Setting
    sets: Sequence[ConvexSet]
    options: _Options
    bound: float = -np.inf
    history: list[HistoryEntry] = field(default_factory=list)
    rule: str = "gap"

    @property
    def cell_sets(self) -> list[ConvexSet]:
        """The sets over cells, those that bound single cells as one box."""
        low, high = (self.setting.cells(each) for each in (self.setting.problem.low, self.setting.problem.high))
        names = [each.name for each in self.sets if isinstance(each, SeparableSet)]
        others = [each for each in self.sets if not isinstance(each, SeparableSet)]
        return [*others, Box(low, high, name=" and ".join(names))] if names else others


def _iterate(run: _Run, iteration: Iteration) -> AdmmFit:
    """Advance until a rule stops the iteration, the steps run out, or the sets prove to be disjoint."""
    search: DisjointnessSearch | None = None
    next_search, primal_before, status, step = FIRST_SEARCH, np.inf, Status.STEP_LIMIT, 0
    balance = _Balance(iteration.rho)
    for step in range(1, run.options.max_steps + 1):
        iteration.advance()
        if run.options.history:
            objective = run.setting.problem.loss(iteration.point)
            run.history.append(HistoryEntry(step, objective, iteration.primal, iteration.dual, iteration.rho))
        if run.options.preset == "paper":
            stop = _rule_22(run, iteration)
        else:
            stop = _scale_free_rule(run, iteration) if step % CHECK_EVERY == 0 else None
        if stop is not None:
            status = stop
            break
        if 2 * step == next_search:
            primal_before = iteration.primal
        if step == next_search:
            if iteration.primal > 0.5 * primal_before:
                search = search or _new_search(run, iteration)
                disjoint = search.run(step // 2)
                if disjoint is not None:
                    raise disjoint
            next_search *= 4
        if run.options.adaptive and run.options.preset is None and step % CHECK_EVERY == 0:
            balance.apply(run, iteration, step)
    return _finished(run, iteration.point, iteration, status, step)
