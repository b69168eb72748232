"""The paper's recipe for everything that no exact solver covers: ADMM with one projection for each constraint.

Lee, Wang and Kifer (2015), §4.3–4.6: the most likely numbers that satisfy all constraints are

    min Σ loss(A x − ỹ)   subject to   x ∈ C₁ ∩ C₂ ∩ …,

where the loss has a closed-form proximal operator and every C_i is known by its Euclidean projection. The iteration
alternates between the two, and a set that somebody thinks of tomorrow is one more projection.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from consilience.errors import DeclarationError, TooLarge
from consilience.solvers.admm.extrapolation import MEMORY_BYTES
from consilience.solvers.admm.problem import Setting, plain_setting, strategy_setting
from consilience.solvers.admm.run import AdmmFit, HistoryEntry, Options, Run, finished, iterate
from consilience.solvers.admm.steps import AsPrinted, TwoBlocks
from consilience.solvers.losses import Loss, checked_noisy, checked_weights
from consilience.solvers.projections.convex_set import Array, ConvexSet, as_convex_sets

__all__ = ["AdmmFit", "HistoryEntry", "admm"]

PAPER_RHO = 2.0
LARGEST_WORK = 2**33
"""The most bytes that an iteration may take."""


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

    >>> from consilience.solvers.projections import NonNegative, TreeConsistency
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
    need = 8 * cells * (8 * copies + 12) + MEMORY_BYTES
    if need > LARGEST_WORK:
        raise TooLarge(
            f"{cells:,} cells in {copies} copies would take {need / 2**30:.1f} GB and may take "
            f"{LARGEST_WORK / 2**30:.0f} GB; fit fewer cells at a time"
        )


def _as_printed(
    measured: _Measured, sets: Sequence[ConvexSet], options: Options, start: Array, *, halved: bool
) -> AdmmFit:
    setting = measured.setting(sets, balanced=False)
    rho = PAPER_RHO if options.rho == "auto" else float(options.rho)
    return iterate(Run(setting, sets, options), AsPrinted(setting, sets, rho=rho, start=start, halved=halved))
