"""The paper's recipe for everything that no exact solver covers: ADMM with one projection for each constraint.

Lee, Wang and Kifer (2015), §4.3–4.6: the most likely numbers that satisfy all constraints are

    min Σ loss(A x − ỹ)   subject to   x ∈ C₁ ∩ C₂ ∩ …,

where the loss has a closed-form proximal operator and every C_i is known by its Euclidean projection. The iteration
alternates between the two, and a set that someone writes tomorrow is a projection more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from consilience.errors import DeclarationError, MeasurementError
from consilience.numerics.admm_certificate import lower_bound
from consilience.numerics.admm_problem import Problem, Setting, plain_setting, strategy_setting
from consilience.numerics.admm_steps import AsPrinted, Iteration, TwoBlocks
from consilience.numerics.fit import Fit, Status
from consilience.numerics.projections import Box, ConvexSet, SeparableSet, as_convex_sets
from consilience.numerics.projections.convex_set import Array
from consilience.numerics.projections.intersection import DisjointnessSearch, toward_all

PAPER_RHO = 2.0
CHECK_EVERY = 10
FIRST_SEARCH = 128
"""The step at which disjoint sets are first looked for; then at every fourfold."""


class HistoryEntry(NamedTuple):
    """What one step of the iteration left."""

    step: int
    objective: float
    primal: float
    dual: float
    rho: float


@dataclass(frozen=True, eq=False)
class AdmmFit(Fit):
    """A fit, and the way to it where that was asked for."""

    history: tuple[HistoryEntry, ...] = ()


def coefficients(loss, alpha, w):
    if loss == "l1": return w, 0*w
    if loss == "l2": return 0*w, w*w
    return alpha*w, (1-alpha)*w*w


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
    noisy = np.asarray(noisy, float)
    w = np.ones_like(noisy) if weights is None else np.broadcast_to(np.asarray(weights, float), noisy.shape)
    linear, quadratic = coefficients(loss, alpha, w)
    sets = as_convex_sets(constraints)
    if preset == "paper":
        if strategy is None:
            setting = plain_setting(noisy, linear, quadratic, sets)
            x0 = noisy.copy()
        else:
            setting = strategy_setting(strategy, noisy, linear, quadratic, sets, row_weights=np.ones_like(noisy), scale=1.0)
            x0 = np.zeros(strategy.shape[1])
        it = AsPrinted(setting, sets, rho=2.0 if rho == "auto" else rho, start=x0, halved=loss == "l2")
    else:
        if strategy is None:
            setting = plain_setting(noisy, linear, quadratic, sets)
        else:
            setting = strategy_setting(strategy, noisy, linear, quadratic, sets, row_weights=w)
        p = setting.problem
        x0 = p.sets[0].project(p.minimiser())
        if rho == "auto":
            rho = first_rho(p, x0)
        it = TwoBlocks(p, rho=rho, relaxation=relaxation, start=x0)
    return run(setting, it, sets, preset, adaptive, tolerance, max_steps, history)

def first_rho(p, x0):
    m = p.measured
    return float(np.mean(p.linear[m])/p.noise_at(x0) + 2*np.mean(p.quadratic[m]))

TRACE=[]
def run(setting, it, sets, preset, adaptive, tolerance, max_steps, history):
    p = setting.problem
    bound = -np.inf
    TRACE.clear()
    last_balance = 0
    status = Status.STEP_LIMIT
    rho0 = it.rho
    interval=CHECK_EVERY
    for step in range(1, max_steps+1):
        it.advance()
        if step % CHECK_EVERY == 0:
            b = lower_bound(p, it.normals())
            bound = max(bound, b)
            obj = p.loss(it.point)
            noise = p.noise_at(it.point)
            TRACE.append((step, obj, b, it.primal, it.dual, it.rho))
            if it.primal <= tolerance*np.sqrt(p.noisy.size)*noise and abs(obj-bound) <= tolerance*obj:
                status = Status.CONVERGED
                break
            if adaptive and preset is None and step - last_balance >= interval:
                last_balance = step
                slope = np.sqrt(np.mean((it.rho*it.duals[0])**2))
                pr = it.primal/noise
                du = it.dual/slope
                f = np.sqrt(pr/du)
                if f > 2 or f < .5:
                    f = min(max(f,0.2),5)
                    it.change_rho(it.rho*f)
                    interval *= 1.5
    counts = setting.cells(it.point)
    box = Box(setting.problem.low, setting.problem.high) if setting.graph is None else Box(p.low[:setting.shape[0]]/setting.scale, p.high[:setting.shape[0]]/setting.scale)
    allsets=[s for s in sets if not isinstance(s, SeparableSet)]+[box]
    counts = toward_all(allsets, counts)
    obj = p.loss(setting.point(counts))
    return AdmmFit(counts, obj, obj-bound, status, {"steps": step, "rho": it.rho, "primal": it.primal, "dual": it.dual, "violation": max([s.violation(counts) for s in sets], default=0.)})
