"""A primal–dual interior point for tables with known marginals, in the few dimensions of the dual.

Mehrotra's predictor–corrector method (1992) on costs that are split into parts. Each iteration solves two systems with
the p × p matrix ΦDΦᵀ, which `MarginalBasis.gram` reads off one transform and of which `IndicatorBasis` leaves a smaller
one; all else is one pass over the cells.
The steps are exact where the parts are far from their ends and degrade at the very end, where ΦDΦᵀ becomes singular:
the best iterate is kept, and the iteration ends when nothing has become better for a while.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.solvers.fit import InteriorPointSettings
from consilience.solvers.marginal_tables.dual_methods import normal_equations
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
#     p by dp = D_p (s + ds − c − 2q·p + κ_p / p),                  D_p = 1 / (2q + z_p / p),
#     v by dv = D_v (s + ds + a + 2q·m + κ_v / v − κ_m / m) = −dm,  D_v = 1 / (2q + z_v / v + z_m / m),
#     z by κ / p − z (1 + dp / p), and likewise the others,
#
# so dx = (D_p + D_v) ds + e, and ds = Φᵀdλ solves Φ(D_p + D_v)Φᵀ dλ = b − Φx − Φe. All but dλ is local to a cell.
# The predictor aims at κ = 0; the corrector at κ = centre − (what the predictor overlooked: dp·dz_p and the like).
#
# A part that a cell does not have stands at 1 with multiplier 1 and has D = 0, so that all cells take the same way
# through each loop: that is several times as fast as asking for the kind of each.


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


class Terms(NamedTuple):
    """D_p and D_v of each cell, and what the predictor overlooks in each product."""

    up: NDArray[np.float64]
    down: NDArray[np.float64]
    p: NDArray[np.float64]
    m: NDArray[np.float64]
    v: NDArray[np.float64]


class Directions(NamedTuple):
    """The changes of the parts p and v = −m, and of the multipliers."""

    p: NDArray[np.float64]
    zp: NDArray[np.float64]
    v: NDArray[np.float64]
    zm: NDArray[np.float64]
    zv: NDArray[np.float64]


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def predictor_terms(costs, parts, s, terms, scaling, shift):  # pragma: no cover - compiled
    """D and e of the step that aims at products of 0; returns the sum of the products."""
    products = 0.0
    for i in range(s.shape[0]):
        over, falls, ends = _has(costs.kind[i])
        p, m, v, q2 = parts.p[i], parts.m[i], parts.v[i], 2.0 * costs.q[i]
        terms.up[i] = over / (q2 + parts.zp[i] / p)
        terms.down[i] = falls / (q2 + parts.zm[i] / m + ends * parts.zv[i] / v)
        scaling[i] = terms.up[i] + terms.down[i]
        shift[i] = terms.up[i] * (s[i] - costs.c[i] - q2 * p) + terms.down[i] * (s[i] + costs.a[i] + q2 * m)
        products += over * p * parts.zp[i] + falls * m * parts.zm[i] + ends * v * parts.zv[i]
    return products


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nnan", "nsz"})
def predicted_products(costs, parts, s, ds, terms):  # pragma: no cover - compiled
    """The longest steps of the predictor, at most 1, and the products' sum as terms in α, β and αβ.

    With primal step α and dual step β the sum of (p + α dp)(z + β dz) is that of p·z + α z·dp + β p·dz + αβ dp·dz.
    """
    primal, dual = 1.0, 1.0
    in_primal, in_dual, in_both = 0.0, 0.0, 0.0
    for i in range(s.shape[0]):
        over, falls, ends = _has(costs.kind[i])
        p, m, v, q2, target = parts.p[i], parts.m[i], parts.v[i], 2.0 * costs.q[i], s[i] + ds[i]
        dp = terms.up[i] * (target - costs.c[i] - q2 * p)
        dv = terms.down[i] * (target + costs.a[i] + q2 * m)
        zp, zm, zv = over * parts.zp[i], falls * parts.zm[i], ends * parts.zv[i]
        rp, rm, rv = over * (1.0 + dp / p), falls * (1.0 - dv / m), ends * (1.0 + dv / v)
        dzp, dzm, dzv = -zp * rp, -zm * rm, -zv * rv
        primal = max(primal, over - rp, falls - rm, ends - rv)
        dual = max(dual, rp, rm, rv)
        in_primal += dp * zp + dv * (zv - zm)
        in_dual += p * dzp + m * dzm + v * dzv
        terms.p[i], terms.m[i], terms.v[i] = dp * dzp, -dv * dzm, dv * dzv
        in_both += terms.p[i] + terms.m[i] + terms.v[i]
    return 1.0 / primal, 1.0 / dual, in_primal, in_dual, in_both


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def corrector_shift(costs, parts, s, terms, centre, shift):  # pragma: no cover - compiled
    """e of the step that aims at the corrector's products."""
    for i in range(s.shape[0]):
        _, falls, ends = _has(costs.kind[i])
        p, m, v, q2 = parts.p[i], parts.m[i], parts.v[i], 2.0 * costs.q[i]
        up = s[i] - costs.c[i] - q2 * p + (centre - terms.p[i]) / p
        down = s[i] + costs.a[i] + q2 * m - falls * (centre - terms.m[i]) / m + ends * (centre - terms.v[i]) / v
        shift[i] = terms.up[i] * up + terms.down[i] * down


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nnan", "nsz"})
def corrector_directions(costs, parts, s, ds, terms, centre, found):  # pragma: no cover - compiled
    """The changes that the corrector asks for; returns the longest steps that keep all parts and multipliers ≥ 0."""
    primal, dual = 0.0, 0.0
    for i in range(s.shape[0]):
        over, falls, ends = _has(costs.kind[i])
        p, m, v, q2, target = parts.p[i], parts.m[i], parts.v[i], 2.0 * costs.q[i], s[i] + ds[i]
        zp, zm, zv = parts.zp[i], parts.zm[i], parts.zv[i]
        up = over * (centre - terms.p[i]) / p
        fall, end = falls * (centre - terms.m[i]) / m, ends * (centre - terms.v[i]) / v
        dp = terms.up[i] * (target - costs.c[i] - q2 * p + up)
        dv = terms.down[i] * (target + costs.a[i] + q2 * m - fall + end)
        rp, rm, rv = dp / p, -dv / m, ends * dv / v
        dzp, dzm, dzv = up - over * zp * (1.0 + rp), fall - falls * zm * (1.0 + rm), end - ends * zv * (1.0 + rv)
        primal = max(primal, -rp, -rm, -rv)
        dual = max(dual, -dzp / zp, -dzm / zm, -dzv / zv)
        found.p[i], found.zp[i], found.v[i], found.zm[i], found.zv[i] = dp, dzp, dv, dzm, dzv
    return 1.0 / primal, 1.0 / dual


@njit(nogil=True, cache=True, error_model="numpy")
def take_step(kind, parts, by, primal, dual):  # pragma: no cover - compiled
    """Move every part by `primal` and every multiplier by `dual` of the changes."""
    for i in range(by.p.shape[0]):
        parts.p[i] += primal * by.p[i]
        parts.m[i] -= primal * by.v[i]
        parts.v[i] += primal * by.v[i] if kind[i] == BOTH else 0.0
        parts.zp[i] += dual * by.zp[i]
        parts.zm[i] += dual * by.zm[i]
        parts.zv[i] += dual * by.zv[i]


@njit(inline="always")
def _has(kind):  # pragma: no cover - compiled
    """1 or 0: whether a cell of this kind has the parts p, m and v."""
    return 1.0 if kind != FIXED else 0.0, 1.0 if kind >= BOTH else 0.0, 1.0 if kind == BOTH else 0.0


# ----------------------------------------------------------------------------------------------------------------------
# A primal–dual interior point for tables with known marginals, in the few dimensions of the dual.


@dataclass(frozen=True)
class TableInteriorPointSettings(InteriorPointSettings):
    """Progress is that of iterates or of products; an iteration that has lost a good iterate again ends at once."""

    empty: float = 1e-12
    """A noisy value this small, in units of the noise, counts as 0 in the split of its cost."""
    parted: float = 10.0
    """By what factor a part and its multiplier must differ to show whether the part is 0 in every optimum."""
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
    costs: Costs
    parts: Parts
    parted: bool
    """Whether each part differs clearly from its multiplier."""

    def face(self, low: Vector) -> tuple[Vector, Vector]:
        """How low and how high moves can be in an optimum of linear costs.

        A part that exceeds its multiplier is above 0 in some optimum, one that falls short of it in none.
        """
        kind, parts = self.costs.kind, self.parts
        rises, falls, stays = parts.p > parts.zp, parts.m > parts.zm, parts.v > parts.zv
        down = (kind >= BOTH) & falls & ~rises
        least = np.where(down | (kind <= OVER), low, 0.0)
        bottom = (kind <= OVER) | ((kind == BOTH) & ~stays)
        most = np.where(rises & (kind != FIXED), np.inf, np.where(bottom, low, 0.0))
        return least, most


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
    costs = _split(problem)
    state = _start(problem, costs)
    room = _Room.of(costs)
    slack = np.zeros(problem.basis.rows) if slack is None else slack
    best = None
    bound, duals, steps, idle, least = -np.inf, state.duals, 0, 0, (np.inf, np.inf)
    while True:
        products = predictor_terms(costs, state.parts, state.image, room.terms, room.scaling, room.shift)
        here = _Candidate.of(problem, _moves(problem, costs, state.parts), state.duals, slack)
        lower = problem.lower_bound(state.duals, state.image) - here.missed
        if lower > bound:
            bound, duals = lower, state.duals.copy()
        best = here if best is None or here.merit(bound) < best.merit(bound) else best
        merit = best.merit(bound)
        idle = 0 if merit < 0.9 * least[0] or products < 0.9 * least[1] else idle + 1
        least = min(least[0], merit), min(least[1], products)
        contradiction = bound > problem.worst and not slack.any()
        lost = merit < 1e-6 and here.merit(bound) > 100.0 * max(merit, tolerance)
        left = 0.0 if slack.any() else products / here.unit
        solved = max(merit, left) <= tolerance and (slack.any() or _are_parted(costs, state.parts))
        if solved or idle >= SETTINGS.patience or lost or contradiction or steps == max_steps:
            break
        to_the_end = SETTINGS.reach_of_step(max(left, merit), tolerance)
        if not _step(problem, costs, state, room, products, here.residual, slack, to_the_end):
            break
        steps += 1
    return InteriorPoint(
        best.moves, duals, best.objective, bound, best.misfit, steps, contradiction, costs, state.parts,
        parted=_are_parted(costs, state.parts),
    )  # fmt: skip


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
        unit = problem.costs.gap_unit(objective)
        if slack.any():
            missed_by_nothing = 0.5 * float(np.sum(problem.target[slack > 0.0] ** 2 / slack[slack > 0.0]))
            unit = max(unit, 1e-9 * missed_by_nothing)
        return _Candidate(moves, objective, missed, residual, misfit, abs(float(duals @ residual)), unit)

    def merit(self, bound: float) -> float:
        """How far these moves are from optimal: relative gap, relative misfit or its worth, whichever is largest."""
        return max(max(abs(self.objective - bound), self.worth) / self.unit, self.misfit)


@dataclass(frozen=True, eq=False)
class _Room:
    """What steps are computed in, and the number of products."""

    terms: Terms
    by: Directions
    scaling: Vector
    shift: Vector
    count: int

    @staticmethod
    def of(costs: Costs) -> "_Room":
        rows = np.zeros((12, costs.kind.size))
        count = sum(int(np.count_nonzero(costs.kind >= kind)) for kind in (OVER, BOTH))
        count += int(np.count_nonzero(costs.kind == BOTH))
        return _Room(Terms(*rows[:5]), Directions(*rows[5:10]), rows[10], rows[11], max(count, 1))


def _step(
    problem: TableProblem,
    costs: Costs,
    state: _State,
    room: _Room,
    products: float,
    residual: Vector,
    slack: Vector,
    to_the_end: float,
) -> bool:
    """One predictor–corrector step; whether one was found."""
    basis, parts, image = problem.basis, state.parts, state.image
    terms, scaling, shift = room.terms, room.scaling, room.shift
    if not scaling.max(initial=0.0) < SETTINGS.largest_scaling:
        return False
    centre = products / room.count
    equations = normal_equations(basis, scaling, slack)
    predicted = basis.adjoint(equations.solve(residual - basis.apply(shift), refinements=1))
    primal, dual, in_primal, in_dual, in_both = predicted_products(costs, parts, image, predicted, terms)
    ahead = (products + primal * in_primal + dual * in_dual + primal * dual * in_both) / room.count
    centre *= _centring(ahead / centre if centre > 0.0 else 0.0, min(primal, dual))
    corrector_shift(costs, parts, image, terms, centre, shift)
    change = equations.solve(residual - basis.apply(shift), refinements=1)
    if not np.isfinite(change).all():
        return False
    primal, dual = corrector_directions(costs, parts, image, basis.adjoint(change), terms, centre, room.by)
    primal, dual = min(1.0, to_the_end * primal), min(1.0, to_the_end * dual)
    if problem.costs.curvature.any() or slack.any():
        primal = dual = min(primal, dual)
    take_step(costs.kind, parts, room.by, primal, dual)
    state.duals += dual * change
    state.image = basis.adjoint(state.duals)
    return True


def _are_parted(costs: Costs, parts: Parts) -> bool:
    """Whether costs have curvature, or each part differs clearly from its multiplier."""
    if costs.q.any():
        return True
    kind, factor = costs.kind, SETTINGS.parted
    parted = True
    for has, part, multiplier in (
        (kind != FIXED, parts.p, parts.zp),
        (kind >= BOTH, parts.m, parts.zm),
        (kind == BOTH, parts.v, parts.zv),
    ):
        parted &= not np.any(has & (part < factor * multiplier) & (multiplier < factor * part))
    return bool(parted)


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
    p = size.copy()
    both, falls = costs.kind == BOTH, costs.kind >= BOTH
    m = np.where(both, np.minimum(size, 0.5 * noisy), np.where(falls, size, 1.0))
    v = np.where(both, noisy - m, 1.0)
    zp = np.maximum(costs.c + 2.0 * q * p, 0.1 * weight)
    zv = 1.0 / v
    zm = np.where(falls, np.maximum(costs.a + 2.0 * q * m, 0.1 * weight) + both * zv, 1.0)
    return _State(Parts(p, zp, m, zm, v, zv), np.zeros(problem.basis.rows), np.zeros(noisy.size))


def _moves(problem: TableProblem, costs: Costs, parts: Parts) -> Vector:
    moves = np.where(costs.kind == OVER, parts.p - problem.costs.noisy, parts.p - parts.m)
    moves[costs.kind == FIXED] = 0.0
    return moves
