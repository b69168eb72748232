"""Primal–dual interior points for min cost(Ax − y) over x ≥ 0 (Mehrotra 1992), with a slope and for squares alone.

With the residual split into its way up and its way down, Ax − y = p − m, and a multiplier l for this equation, the
optimum is where

    Aᵀl = z_x             x·z_x = 0      (or Aᵀl = 0 where x may be negative)
    a + 2q·p − l = z_p    p·z_p = 0
    ā + 2q̄·m + l = z_m    m·z_m = 0.

p and m are the two lines of one array t.

Newton's method, with right-hand sides κ in place of the products, leads to one system for the changes of x and l,

    Θ dx + Aᵀdl = f,   A dx − W⁻¹dl = h,

    Θ = z_x / x,   W = 1 / (D_p + D_m),   D_p = 1 / (2q + z_p/p),   D_m = 1 / (2q̄ + z_m/m),

which `strategies` factors once for the predictor and the corrector of an iteration. Rows that must be met come last;
they have no p and m, and 0 in W⁻¹.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp

from consilience.kernels.kernel_cache import njit
from consilience.solvers.conjugate_gradients import shortest_least_squares
from consilience.solvers.fit import InteriorPointSettings
from consilience.solvers.matrices.problem import SIGNS, Array, Certifier, Equations, RowCosts
from consilience.solvers.matrices.strategies import DenseStrategy, Factored, SparseStrategy, Strategy


@dataclass(frozen=True)
class MatrixInteriorPointSettings(InteriorPointSettings):
    """Also of least squares and of the linear programme."""

    dependent_columns: float = 1e-13
    """Columns of which so small a share is left, once the others are taken out, follow from them: about 450 units in
    the last place."""
    feasibility: float = 1e-10
    """The violation, in its own units, that the linear programme may leave: the least that HiGHS takes."""
    proofs_from: float = 10.0
    """A bound is proved from where the products, which the gap is near, are this many times what is allowed."""
    proven: float = 1e-12
    """The relative gap at which a proof is not worth improving."""


SETTINGS = MatrixInteriorPointSettings(patience=8)


@dataclass(frozen=True, eq=False)
class Solution:
    """Cells, multipliers that prove a bound, and the number of steps."""

    cells: Array
    objective: float
    bound: float
    steps: int


@dataclass
class _Point:
    """An iterate, or a direction: the parts and their multipliers."""

    x: Array
    t: Array
    l: Array
    zx: Array
    zt: Array

    def moved(self, by: "_Point", primal: float, dual: float) -> "_Point":
        return _Point(
            self.x + primal * by.x,
            self.t + primal * by.t,
            self.l + dual * by.l,
            self.zx + dual * by.zx,
            self.zt + dual * by.zt,
        )


@dataclass(frozen=True, eq=False)
class _Problem:
    strategy: Strategy
    """All rows, those that must be met last."""
    costs: RowCosts
    """Of the other rows."""
    equations: Equations | None
    nonnegative: bool

    @cached_property
    def rows(self) -> int:
        """The number of rows that may be missed."""
        return self.costs.noisy.size

    @cached_property
    def pairs(self) -> int:
        """The number of products that go to 0."""
        return 2 * self.rows + (self.strategy.shape[1] if self.nonnegative else 0)

    @cached_property
    def noisy(self) -> Array:
        """The answers of all rows."""
        return self.padded(self.costs.noisy, None if self.equations is None else self.equations.values)

    def padded(self, values: Array, hard: Array | float | None = 0.0) -> Array:
        """Values of the rows that may be missed, followed by others for those that must be met."""
        number = self.strategy.shape[0] - self.rows
        return np.concatenate([values, np.broadcast_to(hard, (number,))]) if number and hard is not None else values

    def evaluated(self, cells: Array) -> tuple[Array, float]:
        """The cells, moved to where the equations hold, and their objective; infinite where that is too far."""
        if self.equations is not None:
            restored = self.equations.restored(cells, nonnegative=self.nonnegative)
            if restored is None:
                return cells, np.inf
            cells = restored
        return cells, self.costs.cost(self.strategy.apply(cells)[: self.rows] - self.costs.noisy)


def solve_by_interior_point(
    strategy: Strategy,
    costs: RowCosts,
    certifier: Certifier,
    *,
    nonnegative: bool,
    tolerance: float,
    equations: Equations | None = None,
    max_steps: int = 150,
) -> Solution:
    """Cells whose gap is at most `tolerance` of the objective, or the best ones found.

    With equations, their rows are the last ones of the strategy, and of the certifier's costs.
    """
    problem = _Problem(strategy, costs, equations, nonnegative)
    point = _start(problem)
    best, smallest, bound, least, idle, steps = point.x, np.inf, 0.0, np.inf, 0, 0
    proving = False
    while True:
        cells, objective = problem.evaluated(point.x)
        if objective < smallest:
            smallest, best = objective, cells
        met = np.isfinite(smallest)  # else no cells so far could be moved to where the equations hold
        allowed = tolerance * smallest + costs.unnoticed if met else 0.0
        left = _products(problem, point)
        if not proving and left <= SETTINGS.proofs_from * allowed:
            proving, least = True, np.inf
        if proving:
            bound = max(bound, certifier.bound(point.l, best, enough=smallest - 0.5 * allowed))
            left = smallest - bound
        least, idle = (left, 0) if left < 0.9 * least or not met else (least, idle + 1)
        near = proving and left <= allowed
        following = None
        if not near and idle < SETTINGS.patience and steps < max_steps:
            share = left / smallest if met and smallest > 0.0 else 1.0
            following = _step(problem, point, SETTINGS.reach_of_step(share, tolerance))
        if following is None:
            break
        point = following
        steps += 1
    if not proving:
        bound = max(bound, certifier.bound(point.l, best))
    return Solution(best, smallest, bound, steps)


def _start(problem: _Problem) -> _Point:
    """The least-squares cells made positive, their residuals split with room to spare, and multipliers at rest."""
    rows, columns = problem.strategy.shape
    costs, strategy = problem.costs, problem.strategy
    factored = strategy.factored(problem.padded(np.ones(problem.rows), np.inf), np.full(columns, 1e-8))
    cells, _ = factored.solve(np.zeros(columns), problem.noisy)
    if problem.nonnegative:
        cells = np.maximum(cells, 0.0) + 0.1 * float(np.mean(np.abs(cells))) + 1e-8
    residual = strategy.apply(cells)[: problem.rows] - costs.noisy
    room = float(np.mean(np.abs(residual))) + 1e-8
    t = np.maximum(SIGNS * residual, 0.0) + room
    zt = costs.slope + 2.0 * costs.curvature * t
    zt = np.maximum(zt, 0.1 * float(np.mean(zt)))
    zx = float(np.mean(t * zt)) / cells if problem.nonnegative else np.zeros(columns)
    return _Point(cells, t, np.zeros(rows), zx, zt)


def _step(problem: _Problem, point: _Point, to_the_end: float) -> _Point | None:
    """One predictor–corrector step; None when rounding has made it meaningless."""
    costs = problem.costs
    soft = 1.0 / (2.0 * costs.curvature + point.zt / point.t)
    theta = point.zx / point.x if problem.nonnegative else np.zeros_like(point.x)
    factored = problem.strategy.factored(problem.padded(1.0 / soft.sum(axis=0), np.inf), theta)
    reached, image = problem.strategy.apply(point.x), problem.strategy.adjoint(point.l)
    products = _products(problem, point)
    centre = products / problem.pairs
    nothing = np.zeros_like(point.x), np.zeros_like(point.t)
    predicted, primal, dual = _direction(problem, point, factored, reached, image, soft, nothing, 0.0)
    primal, dual = min(primal, 1.0), min(dual, 1.0)
    ahead = _products(problem, point.moved(predicted, primal, dual)) / problem.pairs
    share = min(max((ahead / centre) ** 3, SETTINGS.centring * (1.0 - min(primal, dual)) ** 3, 1e-6), 1.0)
    overlooked = predicted.x * predicted.zx, predicted.t * predicted.zt
    step, primal, dual = _direction(problem, point, factored, reached, image, soft, overlooked, share * centre)
    if not (np.isfinite(step.x).all() and np.isfinite(step.l).all()):
        return None
    primal, dual = min(1.0, to_the_end * primal), min(1.0, to_the_end * dual)
    if not costs.straight:
        primal = dual = min(primal, dual)
    return point.moved(step, primal, dual)


def _direction(
    problem: _Problem,
    point: _Point,
    factored: Factored,
    reached: Array,
    image: Array,
    soft: Array,
    overlooked: tuple[Array, Array],
    centre: float,
) -> tuple[_Point, float, float]:
    """The Newton step towards products of `centre`, less what the predictor overlooked, and how far it can go."""
    costs, nonnegative = problem.costs, problem.nonnegative
    here = point.x, point.zx, point.t, point.zt
    how = costs.slope, costs.curvature, soft, overlooked[0], overlooked[1], centre, nonnegative
    wanted, missing = right_hand_sides(*here, point.l, problem.noisy, reached, image, *how)
    dx, dl = factored.solve(wanted, missing)
    by = np.empty_like(dx), np.empty_like(point.t), np.empty_like(point.t)
    primal, dual = remaining_parts(*here, point.l, dx, dl, *how, *by)
    return _Point(dx, by[1], dl, by[0], by[2]), primal, dual


# With κ = centre − product − what was overlooked, parts t of sign ± move by dt = soft (κ_t/t − r_t ± dl), where r_t =
# slope + 2q t ∓ l − z_t, and dx and dl solve Θ dx + Aᵀdl = z − Aᵀl + κ_x/x and A dx − W⁻¹dl = y − Ax + t − soft (…).
@njit(nogil=True, cache=True, error_model="numpy")
def right_hand_sides(
    x, zx, t, zt, l, noisy, reached, image, slope, curvature, soft, over_x, over_t, centre, nonnegative
):  # pragma: no cover - compiled
    """f and h of the system."""
    wanted, missing = zx - image, noisy - reached
    if nonnegative:
        for j in range(x.size):
            wanted[j] += (centre - x[j] * zx[j] - over_x[j]) / x[j]
    for i in range(t.shape[1]):
        for side in range(2):
            sign = 1.0 - 2.0 * side
            moved = _moved(side, i, t, zt, l, slope, curvature, soft, over_t, centre)
            missing[i] += sign * (t[side, i] + moved)
    return wanted, missing


@njit(nogil=True, cache=True, error_model="numpy")
def remaining_parts(
    x, zx, t, zt, l, dx, dl, slope, curvature, soft, over_x, over_t, centre, nonnegative, dzx, dt, dzt
):  # pragma: no cover - compiled
    """Fills what follows from dx and dl; returns how far parts and multipliers can go before one of them reaches 0."""
    primal, dual = np.inf, np.inf
    for j in range(x.size):
        dzx[j] = 0.0
        if nonnegative:
            dzx[j] = (centre - x[j] * zx[j] - over_x[j] - zx[j] * dx[j]) / x[j]
            if dx[j] < 0.0:
                primal = min(primal, -x[j] / dx[j])
            if dzx[j] < 0.0:
                dual = min(dual, -zx[j] / dzx[j])
    for side in range(2):
        for i in range(t.shape[1]):
            moved = _moved(side, i, t, zt, l, slope, curvature, soft, over_t, centre)
            change = moved + soft[side, i] * (1.0 - 2.0 * side) * dl[i]
            kappa = centre - t[side, i] * zt[side, i] - over_t[side, i]
            dt[side, i], dzt[side, i] = change, (kappa - zt[side, i] * change) / t[side, i]
            if change < 0.0:
                primal = min(primal, -t[side, i] / change)
            if dzt[side, i] < 0.0:
                dual = min(dual, -zt[side, i] / dzt[side, i])
    return primal, dual


@njit(inline="always")
def _moved(side, i, t, zt, l, slope, curvature, soft, over_t, centre):  # pragma: no cover - compiled
    kappa = centre - t[side, i] * zt[side, i] - over_t[side, i]
    residual = slope[side, i] + 2.0 * curvature[side, i] * t[side, i] - (1.0 - 2.0 * side) * l[i] - zt[side, i]
    return soft[side, i] * (kappa / t[side, i] - residual)


def _products(problem: _Problem, point: _Point) -> float:
    total = float(np.vdot(point.t, point.zt))
    return total + float(point.x @ point.zx) if problem.nonnegative else total


def reach(values: Array, changes: Array) -> float:
    """How far positive values can follow their changes before one of them reaches 0."""
    return _reach(values.reshape(-1), changes.reshape(-1))


@njit(nogil=True, cache=True, error_model="numpy")
def _reach(values, changes):  # pragma: no cover - compiled
    least = np.inf
    for i in range(values.size):
        if changes[i] < 0.0:
            least = min(least, -values[i] / changes[i])
    return least


# ----------------------------------------------------------------------------------------------------------------------
# Least squares with x ≥ 0, by an interior point; without it, directly.
#
#     min Σ q(Ax − y)² over x ≥ 0    is where    Aᵀl = z ≥ 0,   x·z = 0,   l = 2q(Ax − y).
#
# Newton's method on the products leads to (Θ + AᵀWA) dx = f, with Θ = z/x and W = 2q: the system of `strategies` with h
# = 0.


def solve_nonnegative_least_squares(
    strategy: Strategy, costs: RowCosts, certifier: Certifier, *, tolerance: float, max_steps: int = 100
) -> Solution:
    """Non-negative cells whose gap is at most `tolerance` of the objective, or the best ones found."""
    weights = 2.0 * costs.curvature[0]
    x, z = _first_point(strategy, costs, weights)
    best, smallest, bound, least, idle, steps = x, np.inf, 0.0, np.inf, 0, 0
    while True:
        residual = strategy.apply(x) - costs.noisy
        objective = costs.cost(residual)
        if objective < smallest:
            best, smallest = x, objective
        bound = max(bound, certifier.bound(weights * residual, best))
        least, idle = (smallest - bound, 0) if smallest - bound < 0.9 * least else (least, idle + 1)
        near = smallest - bound <= tolerance * smallest + costs.unnoticed
        if near or idle >= SETTINGS.patience or steps == max_steps:
            break
        wrong = strategy.adjoint(weights * residual) - z
        factored = strategy.factored(weights, z / x)
        nothing = np.zeros_like(residual)
        dx, _ = factored.solve(-wrong - z, nothing)
        dz = -z - z * dx / x
        primal, dual = min(reach(x, dx), 1.0), min(reach(z, dz), 1.0)
        centre = float(x @ z) / x.size
        ahead = float((x + primal * dx) @ (z + dual * dz)) / x.size
        share = min(max((ahead / centre) ** 3, SETTINGS.centring * (1.0 - min(primal, dual)) ** 3, 1e-6), 1.0)
        kappa = share * centre - x * z - dx * dz
        dx, _ = factored.solve(-wrong + kappa / x, nothing)
        del factored  # Not two of them at once: they are most of the memory.
        dz = (kappa - z * dx) / x
        length = min(1.0, SETTINGS.to_the_end * reach(x, dx), SETTINGS.to_the_end * reach(z, dz))
        x, z = x + length * dx, z + length * dz
        steps += 1
    return Solution(best, smallest, bound, steps)


def _first_point(strategy: Strategy, costs: RowCosts, weights: Array) -> tuple[Array, Array]:
    """The least-squares cells made positive, and multipliers of the size that their slopes have."""
    columns = strategy.shape[1]
    slopes = strategy.adjoint(weights * costs.noisy)
    factored = strategy.factored(weights, np.full(columns, 1e-8 * float(np.sum(weights)) / columns))
    cells, _ = factored.solve(slopes, np.zeros_like(weights))
    cells = np.maximum(cells, 0.0) + 0.1 * float(np.mean(np.abs(cells))) + 1e-8
    wrong = strategy.adjoint(weights * (strategy.apply(cells) - costs.noisy))
    size = float(np.mean(np.abs(wrong))) + 1e-8 * float(np.mean(np.abs(slopes))) + 1e-300
    return cells, np.maximum(wrong, 0.0) + 0.1 * size


# With equations, x = s + Pu, where s is the shortest solution of Ex = e and P the projection on what E does not see.
# The shortest u lies in the range of P, because AP sees nothing else, at right angles to s: so x is the shortest too.
def solve_least_squares(
    strategy: Strategy, costs: RowCosts, certifier: Certifier, *, equations: Equations | None = None
) -> Solution:
    """The shortest least-squares cells; with equations, among those that satisfy them.

    The rows of the equations are not among those of the strategy; they are the last ones of the certifier's.
    """
    size = np.sqrt(costs.curvature[0])
    start = np.zeros(strategy.shape[1]) if equations is None else equations.shortest()
    right = size * (costs.noisy - strategy.apply(start))
    if isinstance(strategy, DenseStrategy):
        weighted = size[:, None] * strategy.matrix
        if equations is not None:
            weighted = np.stack([equations.without(row) for row in weighted])
        solved: Any = scipy.linalg.lstsq(
            weighted, right, cond=SETTINGS.dependent_columns, lapack_driver="gelsy", check_finite=False
        )
        found, steps = solved[0], 0
    else:
        free = equations.without if equations is not None else lambda cells: cells
        found, steps = shortest_least_squares(
            lambda cells: size * strategy.apply(free(cells)),
            lambda answers: free(strategy.adjoint(size * answers)),
            right,
            strategy.shape[1],
            precision=1e-14,
            most_steps=20 * strategy.shape[1],
        )
    cells = start + found
    multipliers = 2.0 * costs.curvature[0] * (strategy.apply(cells) - costs.noisy)
    if equations is not None:
        restored = equations.restored(cells, nonnegative=False)
        cells = cells if restored is None else restored
        multipliers = np.concatenate([multipliers, equations.multipliers(-strategy.adjoint(multipliers))])
    objective = costs.cost(strategy.apply(cells) - costs.noisy)
    return Solution(cells, objective, certifier.bound(multipliers, cells), steps)


# ----------------------------------------------------------------------------------------------------------------------
# L1 with a sparse strategy as a linear programme, solved by HiGHS in its dual form:
#
#     min yᵀl   with   Aᵀl ≥ 0 (= 0 where x may be negative),   −ā ≤ l ≤ a.
#
# It has a row for each cell, and bounds where the primal form has a row and two more unknowns for each answer; what is
# found proves its own optimality, and the multipliers of its rows are the cells. The dual simplex begins where every
# cell is 0 and every multiplier at an end: a cell that stays 0 costs no step, and a presolve costs more than it saves.
# Rows that must be met come last, and their multipliers have no ends.


def solve_by_linear_programme(
    strategy: SparseStrategy,
    costs: RowCosts,
    certifier: Certifier,
    *,
    nonnegative: bool,
    equations: Equations | None = None,
    most_steps: int | None = None,
) -> Solution | None:
    """The optimum and its proof; None where HiGHS gives up, or takes more steps than are allowed.

    With equations, their rows are the last ones of the strategy, and of the certifier's costs.
    """
    rows = costs.noisy.size
    up, down = certifier.costs.slope
    side = "ub" if nonnegative else "eq"
    found: Any = scipy.optimize.linprog(
        certifier.costs.noisy,
        bounds=np.stack([-down, up], axis=1),
        method="highs-ds",
        options={
            "presolve": False,
            "maxiter": most_steps,
            "primal_feasibility_tolerance": SETTINGS.feasibility,
            "dual_feasibility_tolerance": SETTINGS.feasibility,
        },
        **{f"A_{side}": sp.csc_array(-strategy.matrix.T), f"b_{side}": np.zeros(strategy.shape[1])},
    )
    if found.x is None or found.status == 1:
        return None
    cells = -np.asarray((found.ineqlin if nonnegative else found.eqlin).marginals, dtype=np.float64)
    if nonnegative:
        cells = np.maximum(cells, 0.0)
    if equations is not None:
        restored = equations.restored(cells, nonnegative=nonnegative)
        if restored is None:
            return None
        cells = restored
    objective = costs.cost(strategy.apply(cells)[:rows] - costs.noisy)
    enough = (1.0 - SETTINGS.proven) * objective
    bound = certifier.bound(np.asarray(found.x, dtype=np.float64), cells, enough=enough)
    return Solution(cells, objective, bound, int(found.nit))
