"""A primal–dual interior point for tables with known marginals, in the few dimensions of the dual.

Mehrotra's predictor–corrector method (1992) on the split costs of `cell_kernels`. Each iteration solves two systems
with the p × p matrix ΦDΦᵀ, which `MarginalBasis.gram` reads off one transform; all else is one pass over the cells.
The steps are exact where the parts are far from their ends and degrade at the very end, where ΦDΦᵀ becomes singular:
the best iterate is kept, and the iteration ends when nothing has become better for a while.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import announce
from consilience.solvers.fit import InteriorPointSettings
from consilience.solvers.marginal_tables.dual_methods import NormalEquations
from consilience.solvers.marginal_tables.marginal_basis import Vector
from consilience.solvers.marginal_tables.problem import TableProblem

# ----------------------------------------------------------------------------------------------------------------------
# Kernels of the interior point: one pass over the cells for each thing that an iteration needs to know.
#
# A cell with noisy value y, slope a and curvature q costs a|x − y| + q(x − y)². It is split into parts that are linear
# or quadratic where they can be, each with its own multipliers:
#
#     over    x = p              cost c·p + q·p²,   p ≥ 0      where y ≤ 0 or a = 0: then c = a − 2qy
#     both    x = p + v          cost a·p + q·p² + a·m + q·m²,   p ≥ 0, 0 ≤ v ≤ y, m = y − v
#     free    x = p + y − m      the same without v ≥ 0, where x may be negative
#     fixed   x = 0
#
# Splitting a convex cost into the way up and the way down changes no optimum, since a part of the way up is never taken
# together with a part of the way down. With s = Φᵀλ the optimum satisfies
#
#     c + 2q·p − s − z_p = 0         p·z_p = 0
#    −a − 2q·m − s − z_v + z_m = 0   v·z_v = 0   m·z_m = 0.
#
# Newton's method on these, with right-hand sides κ in place of the products, moves
#
#     p by dp = D_p (ds − r_p + κ_p / p),                      D_p = 1 / (2q + z_p / p),
#     v by dv = D_v (ds − r_v + κ_v / v − κ_m / m),  dm = −dv,  D_v = 1 / (2q + z_v / v + z_m / m),
#
# r being the left-hand sides above; so dx = (D_p + D_v) ds + e, and ds = Φᵀdλ solves Φ(D_p + D_v)Φᵀ dλ = b − Φx − Φe.
# Everything but dλ is local to a cell and is computed again in each pass rather than stored.


FIXED, OVER, BOTH, FREE = 0, 1, 2, 3


class Costs(NamedTuple):
    """What each cell costs, by its kind."""

    kind: NDArray[np.int8]
    c: NDArray[np.float64]
    a: NDArray[np.float64]
    q: NDArray[np.float64]


class Parts(NamedTuple):
    """Where the parts of each cell stand, and their multipliers."""

    p: NDArray[np.float64]
    zp: NDArray[np.float64]
    m: NDArray[np.float64]
    zm: NDArray[np.float64]
    v: NDArray[np.float64]
    zv: NDArray[np.float64]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def predictor_terms(costs, parts, s, scaling, shift):  # pragma: no cover - compiled
    """D and e of the step that aims at products of 0; returns the sum of the products and their number."""
    products, count = 0.0, 0
    for i in range(s.shape[0]):
        scaling[i] = 0.0
        shift[i] = 0.0
        if costs.kind[i] == FIXED:
            continue
        products += parts.p[i] * parts.zp[i]
        count += 1
        scaling[i] = 1.0 / (2.0 * costs.q[i] + parts.zp[i] / parts.p[i])
        shift[i], _ = _way_up(costs, parts, i, s[i], 0.0, -parts.p[i] * parts.zp[i])
        if costs.kind[i] == OVER:
            continue
        products += parts.m[i] * parts.zm[i] + parts.v[i] * parts.zv[i]
        count += 2 if costs.kind[i] == BOTH else 1
        stiffness = 2.0 * costs.q[i] + parts.zm[i] / parts.m[i]
        if costs.kind[i] == BOTH:
            stiffness += parts.zv[i] / parts.v[i]
        scaling[i] += 1.0 / stiffness
        dv, _, _ = _way_down(costs, parts, i, s[i], 0.0, -parts.m[i] * parts.zm[i], -parts.v[i] * parts.zv[i])
        shift[i] += dv
    return products, count


@numba.njit(nogil=True, cache=True, error_model="numpy")
def predicted_products(costs, parts, s, ds):  # pragma: no cover - compiled
    """The longest steps of the predictor, at most 1, and the products' sum as terms in α, β and αβ.

    With primal step α and dual step β the sum of (p + α dp)(z + β dz) is that of p·z + α z·dp + β p·dz + αβ dp·dz.
    """
    primal, dual = 1.0, 1.0
    in_primal, in_dual, in_both = 0.0, 0.0, 0.0
    for i in range(s.shape[0]):
        if costs.kind[i] == FIXED:
            continue
        p, z = parts.p[i], parts.zp[i]
        dp, dz = _way_up(costs, parts, i, s[i], ds[i], -p * z)
        if p + primal * dp < 0.0:
            primal = -p / dp
        if z + dual * dz < 0.0:
            dual = -z / dz
        in_primal += dp * z
        in_dual += p * dz
        in_both += dp * dz
        if costs.kind[i] == OVER:
            continue
        m, t, v, z = parts.m[i], parts.zm[i], parts.v[i], parts.zv[i]
        dv, dt, dz = _way_down(costs, parts, i, s[i], ds[i], -m * t, -v * z)
        if m - primal * dv < 0.0:
            primal = m / dv
        if t + dual * dt < 0.0:
            dual = -t / dt
        if costs.kind[i] == BOTH:
            if v + primal * dv < 0.0:
                primal = -v / dv
            if z + dual * dz < 0.0:
                dual = -z / dz
        in_primal += dv * (z - t)
        in_dual += m * dt + v * dz
        in_both += dv * (dz - dt)
    return primal, dual, in_primal, in_dual, in_both


@numba.njit(nogil=True, cache=True, error_model="numpy")
def corrector_shift(costs, parts, s, ds, centre, shift):  # pragma: no cover - compiled
    """e of the step that aims at the corrector's products."""
    for i in range(s.shape[0]):
        if costs.kind[i] == FIXED:
            continue
        kappa_p, kappa_m, kappa_v = _targets(costs, parts, i, s[i], ds[i], centre)
        shift[i], _ = _way_up(costs, parts, i, s[i], 0.0, kappa_p)
        if costs.kind[i] != OVER:
            dv, _, _ = _way_down(costs, parts, i, s[i], 0.0, kappa_m, kappa_v)
            shift[i] += dv


@numba.njit(nogil=True, cache=True, error_model="numpy")
def longest_steps(costs, parts, s, ds, change, centre):  # pragma: no cover - compiled
    """The longest steps of the corrector, whose own Φᵀdλ is `change`, that keep all parts and multipliers ≥ 0."""
    primal, dual = np.inf, np.inf
    for i in range(s.shape[0]):
        if costs.kind[i] == FIXED:
            continue
        kappa_p, kappa_m, kappa_v = _targets(costs, parts, i, s[i], ds[i], centre)
        dp, dz = _way_up(costs, parts, i, s[i], change[i], kappa_p)
        if dp < 0.0:
            primal = min(primal, -parts.p[i] / dp)
        if dz < 0.0:
            dual = min(dual, -parts.zp[i] / dz)
        if costs.kind[i] == OVER:
            continue
        dv, dt, dz = _way_down(costs, parts, i, s[i], change[i], kappa_m, kappa_v)
        if dv > 0.0:
            primal = min(primal, parts.m[i] / dv)
        if dt < 0.0:
            dual = min(dual, -parts.zm[i] / dt)
        if costs.kind[i] == BOTH:
            if dv < 0.0:
                primal = min(primal, -parts.v[i] / dv)
            if dz < 0.0:
                dual = min(dual, -parts.zv[i] / dz)
    return primal, dual


@numba.njit(nogil=True, cache=True, error_model="numpy")
def take_step(costs, parts, s, ds, change, centre, primal, dual):  # pragma: no cover - compiled
    """Move every part by `primal` and every multiplier by `dual` of the corrector's step; s itself stays."""
    for i in range(s.shape[0]):
        if costs.kind[i] == FIXED:
            continue
        kappa_p, kappa_m, kappa_v = _targets(costs, parts, i, s[i], ds[i], centre)
        dp, dzp = _way_up(costs, parts, i, s[i], change[i], kappa_p)
        if costs.kind[i] != OVER:
            dv, dzm, dzv = _way_down(costs, parts, i, s[i], change[i], kappa_m, kappa_v)
            parts.m[i] -= primal * dv
            parts.v[i] += primal * dv
            parts.zm[i] += dual * dzm
            parts.zv[i] += dual * dzv
        parts.p[i] += primal * dp
        parts.zp[i] += dual * dzp


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _way_up(costs, parts, i, s, ds, kappa):  # pragma: no cover - compiled
    """The steps of p and of its multiplier."""
    q, p, z = costs.q[i], parts.p[i], parts.zp[i]
    residual = costs.c[i] + 2.0 * q * p - s - z
    dp = (ds - residual + kappa / p) / (2.0 * q + z / p)
    return dp, (kappa - z * dp) / p


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _way_down(costs, parts, i, s, ds, kappa_m, kappa_v):  # pragma: no cover - compiled
    """The step of v, which is that of −m, and those of the multipliers of m and v."""
    q, m, t, v, z = costs.q[i], parts.m[i], parts.zm[i], parts.v[i], parts.zv[i]
    stiffness = 2.0 * q + t / m
    force = ds + costs.a[i] + 2.0 * q * m + s + z - t - kappa_m / m
    if costs.kind[i] == BOTH:
        dv = (force + kappa_v / v) / (stiffness + z / v)
        return dv, (kappa_m + t * dv) / m, (kappa_v - z * dv) / v
    dv = force / stiffness
    return dv, (kappa_m + t * dv) / m, 0.0


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _targets(costs, parts, i, s, ds, centre):  # pragma: no cover - compiled
    """The corrector's right-hand sides (Mehrotra 1992): centre − product − change that the predictor overlooked."""
    p, z = parts.p[i], parts.zp[i]
    dp, dz = _way_up(costs, parts, i, s, ds, -p * z)
    kappa_p = centre - p * z - dp * dz
    if costs.kind[i] == OVER:
        return kappa_p, 0.0, 0.0
    m, t, v, z = parts.m[i], parts.zm[i], parts.v[i], parts.zv[i]
    dv, dt, dz = _way_down(costs, parts, i, s, ds, -m * t, -v * z)
    return kappa_p, centre - m * t + dv * dt, centre - v * z - dv * dz


# ----------------------------------------------------------------------------------------------------------------------
# A primal–dual interior point for tables with known marginals, in the few dimensions of the dual.


@dataclass(frozen=True)
class TableInteriorPointSettings(InteriorPointSettings):
    """Progress is that of iterates or of products; an iteration that has lost a good iterate again ends at once."""

    empty: float = 1e-12
    """A noisy value this small, in units of the noise, counts as 0 in the split of its cost."""
    largest_scaling: float = 1e150
    """Parts this many times larger than their multipliers have nowhere to go; their squares would not be numbers."""


SETTINGS = TableInteriorPointSettings(patience=15)


@dataclass(frozen=True, eq=False)
class InteriorPoint:
    """Where the iteration ended: moves that nearly fit, and duals whose lower bound is `bound`."""

    moves: Vector
    duals: Vector
    objective: float
    bound: float
    misfit: float
    steps: int
    contradiction: bool
    """True when the bound exceeds what any table can cost, so that no table has these marginals."""


@dataclass
class _State:
    """The iterate; arrays change in place."""

    parts: Parts
    duals: Vector
    image: Vector


def solve_by_interior_point(
    problem: TableProblem, *, tolerance: float, slack: Vector | None = None, max_steps: int = 150
) -> InteriorPoint:
    """Moves and duals whose gap is at most `tolerance` of the objective, or the best ones found.

    With `slack`, the marginals may be missed at a cost: Φδ + slack·λ = r, which is the least-squares problem
    min ½ Σ (r − Φδ)² / slack + costs.
    """
    announce(take_step)
    costs = _split(problem)
    state = _start(problem, costs)
    slack = np.zeros(problem.basis.rows) if slack is None else slack
    best = _Candidate.of(problem, _moves(problem, costs, state.parts), state.duals, slack)
    bound, duals, steps, idle, least = -np.inf, state.duals, 0, 0, np.full(2, np.inf)
    products = np.inf
    while True:
        here = _Candidate.of(problem, _moves(problem, costs, state.parts), state.duals, slack)
        lower = problem.lower_bound(state.duals, state.image) - here.missed
        if lower > bound:
            bound, duals = lower, state.duals.copy()
        best = here if here.merit(bound) < best.merit(bound) else best
        merit = best.merit(bound)
        progress = np.array([merit, products])
        idle = 0 if np.any(progress < 0.9 * least) else idle + 1
        least = np.minimum(least, progress)
        contradiction = bound > problem.worst and not slack.any()
        lost = merit < 1e-6 and here.merit(bound) > 100.0 * merit
        if merit <= tolerance or idle >= SETTINGS.patience or lost or contradiction or steps == max_steps:
            break
        products = _step(problem, costs, state, here.residual, slack)
        if not np.isfinite(products):
            break
        steps += 1
    return InteriorPoint(best.moves, duals, best.objective, bound, best.misfit, steps, contradiction)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Moves, what they cost, and by how much they miss the marginals."""

    moves: Vector
    objective: float
    missed: float
    residual: Vector
    misfit: float
    """The largest error of a coordinate relative to the largest coordinate."""
    worth: float
    """What the error is worth at the present duals: the first-order change of the objective when it is removed."""
    unit: float
    """What a gap is relative to."""

    @staticmethod
    def of(problem: TableProblem, moves: Vector, duals: Vector, slack: Vector) -> "_Candidate":
        residual = problem.target - problem.basis.apply(moves) - slack * duals
        misfit = float(np.abs(residual).max(initial=0.0)) / problem.largest_target
        missed = 0.5 * float(slack @ duals**2)
        objective = problem.costs.of_moves(moves) + missed
        missed_by_nothing = 0.5 * float(np.sum(problem.target[slack > 0.0] ** 2 / slack[slack > 0.0]))
        unit = max(problem.costs.gap_unit(objective), 1e-9 * missed_by_nothing)
        return _Candidate(moves, objective, missed, residual, misfit, abs(float(duals @ residual)), unit)

    def merit(self, bound: float) -> float:
        """How far these moves are from optimal: relative gap, relative misfit or its worth, whichever is largest."""
        return max(max(abs(self.objective - bound), self.worth) / self.unit, self.misfit)


def _step(problem: TableProblem, costs: Costs, state: _State, residual: Vector, slack: Vector) -> float:
    """One predictor–corrector step; returns the sum of the products before it, not finite when no step was found."""
    basis, parts, image = problem.basis, state.parts, state.image
    scaling, shift = np.empty_like(image), np.empty_like(image)
    products, count = predictor_terms(costs, parts, image, scaling, shift)
    if not scaling.max(initial=0.0) < SETTINGS.largest_scaling:
        return np.inf
    centre = products / max(count, 1)
    equations = NormalEquations(basis.gram(scaling), slack)
    predicted = basis.adjoint(equations.solve(residual - basis.apply(shift)))
    primal, dual, in_primal, in_dual, in_both = predicted_products(costs, parts, image, predicted)
    ahead = (products + primal * in_primal + dual * in_dual + primal * dual * in_both) / max(count, 1)
    centre *= _centring(ahead / centre if centre > 0.0 else 0.0, min(primal, dual))
    corrector_shift(costs, parts, image, predicted, centre, shift)
    change = equations.solve(residual - basis.apply(shift))
    if not np.all(np.isfinite(change)):
        return np.inf
    change_of_image = basis.adjoint(change)
    primal, dual = longest_steps(costs, parts, image, predicted, change_of_image, centre)
    primal, dual = min(1.0, SETTINGS.to_the_end * primal), min(1.0, SETTINGS.to_the_end * dual)
    if problem.costs.curvature.any() or slack.any():
        primal = dual = min(primal, dual)
    take_step(costs, parts, image, predicted, change_of_image, centre, primal, dual)
    state.duals += dual * change
    state.image = basis.adjoint(state.duals)
    return products


def _centring(ratio: float, step: float) -> float:
    """How much of the products' mean to aim at: Mehrotra's cube of the predicted ratio, more where steps are short."""
    return min(max(ratio**3, SETTINGS.centring * (1.0 - step) ** 3, 1e-6), 1.0)


def _split(problem: TableProblem) -> Costs:
    """The kinds of all cells and the costs of their parts."""
    noisy, slope, curvature = problem.costs.noisy, problem.costs.slope, problem.costs.curvature
    floor = np.isfinite(problem.low)
    kind = np.where(floor, BOTH, FREE).astype(np.int8)
    kind[floor & ((noisy <= SETTINGS.empty) | ((slope == 0.0) & (curvature == 0.0)))] = OVER
    kind[problem.fixed] = FIXED
    up = np.where(kind == OVER, slope - 2.0 * curvature * noisy, slope)
    return Costs(kind, up, slope, curvature)


def _start(problem: TableProblem, costs: Costs) -> _State:
    """Parts about as large as the noise, and multipliers that make all products about equal at duals 0.

    The noise of a cell is about the inverse of its slope; without slopes or curvatures all cells count alike.
    """
    noisy, q = problem.costs.noisy, costs.q
    weight = costs.a + np.sqrt(q)
    ordinary = float(np.mean(weight)) or 1.0
    weight = np.clip(np.where(weight > 0.0, weight, ordinary) / ordinary, 1e-3, 1e3)
    size = 1.0 / weight
    linear = costs.kind == OVER
    p = size.copy()
    m = np.where(costs.kind == BOTH, np.minimum(size, 0.5 * noisy), size)
    v = np.where(linear, 1.0, noisy - m)
    zp = np.maximum(costs.c + 2.0 * q * p, 0.1 * weight)
    zv = np.zeros_like(v)
    both = costs.kind == BOTH
    zv[both] = 1.0 / v[both]
    zm = np.maximum(costs.a + 2.0 * q * m, 0.1 * weight) + zv
    return _State(Parts(p, zp, m, zm, v, zv), np.zeros(problem.basis.rows), np.zeros(noisy.size))


def _moves(problem: TableProblem, costs: Costs, parts: Parts) -> Vector:
    moves = np.where(costs.kind == OVER, parts.p - problem.costs.noisy, parts.p - parts.m)
    moves[costs.kind == FIXED] = 0.0
    return moves
