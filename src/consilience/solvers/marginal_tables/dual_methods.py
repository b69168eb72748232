"""Newton's method on duals where costs are strictly convex, and closed forms where one marginal is known.

For duals λ every cell has one best move δ(λ), a piecewise linear function of s = Φᵀλ at it, and the concave

    g(λ) = rᵀλ + Σ_i min over ξ of [ cost_i(ξ) − s_i ξ ]     has the gradient  r − Φ δ(λ).

Where it vanishes, the moved cells have the right marginals and are optimal. The gradient is piecewise linear too, so
Newton's method with the matrix Φ diag(dδ/ds) Φᵀ, damped while far away and shortened until g rises, ends on the right
piece and is then exact but for rounding (Qi and Sun 1993; Zhao, Sun and Toh 2010).
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.solvers.marginal_tables.marginal_basis import IndicatorBasis, Vector
from consilience.solvers.marginal_tables.problem import (
    Basis,
    CellCosts,
    KnownMarginal,
    KnownMarginals,
    TableProblem,
    best_responses,
    response,
    sum_of_least_costs,
)

# ----------------------------------------------------------------------------------------------------------------------
# Symmetric positive definite systems that may be nearly singular, solved with refinement.


class NewtonSettings(NamedTuple):
    """What tunes Newton's method on duals and its linear systems; by trial, no figures kept, unless a reason is
    named."""

    least_ridge: float = 1e-14
    """What is added to the diagonal, in units of its largest entry; a failed factorisation asks for ten times more."""
    refinements: int = 2
    """How often a solution is corrected by its residual, which takes the ridge away again."""
    plain_loop: int = 600
    """Up to this many rows a plain loop beats LAPACK, whose threads take longer to wake than to work."""
    accuracy_of_duals: float = 1e-15
    """The accuracy with which Φᵀλ is known, relative to the largest dual: about five units in the last place."""
    damping: float = 1e-4
    """How much of the softness that cells have away from their kinks a step assumes everywhere, per misfit of one
    noise."""
    flat_enough: float = 0.3
    """A step ends where g falls at most this steeply beyond it, in units of its first slope."""
    same_slope_of_group: float = 1e-12
    """Slopes in a group that differ by this share count as equal."""


SETTINGS = NewtonSettings()


class NormalEquations:
    """A Cholesky factorisation of a matrix plus a diagonal."""

    def __init__(
        self, matrix: NDArray[np.float64], diagonal: NDArray[np.float64] | float = 0.0, *, least: float = 0.0
    ) -> None:
        self._matrix = matrix
        step = len(matrix) + 1
        matrix.reshape(-1)[::step] += diagonal
        largest = float(matrix.reshape(-1)[::step].max(initial=np.finfo(np.float64).tiny))
        damping = SETTINGS.least_ridge * max(largest, least)
        while True:
            factor = matrix.copy()
            factor.reshape(-1)[::step] += damping
            if _factorise(factor):
                self.factor = factor
                return
            damping *= 10.0

    def solve(self, right: NDArray[np.float64], *, refinements: int = SETTINGS.refinements) -> NDArray[np.float64]:
        """The solution, refined by its residual, which takes the damping away again where the matrix is regular."""
        solution = self._substitute(right)
        for _ in range(refinements):
            solution += self._substitute(right - self._matrix @ solution)
        return solution

    def _substitute(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        solution = right.copy()
        _substitute(self.factor, solution)
        return solution


class EliminatedEquations:
    """The same for a basis of indicators, with the rows of its first marginal eliminated."""

    def __init__(self, basis: IndicatorBasis, diagonal: Vector) -> None:
        self._basis, self._diagonal = basis, diagonal.copy()
        starts, rows, _ = basis.border
        block, border, rest = basis.reduced(diagonal)
        largest = float(diagonal.max())
        block[block <= SETTINGS.least_ridge * largest] = np.inf  # duals that no cell feels stay as they are
        self._parts = starts, rows, border, block, NormalEquations(rest, least=largest).factor

    def solve(self, right: Vector, *, refinements: int = SETTINGS.refinements) -> Vector:
        solution = _eliminated_solution(*self._parts, right)
        for _ in range(refinements):
            solution += _eliminated_solution(*self._parts, self._basis.remainder(self._diagonal, solution, right))
        return solution


Factored = NormalEquations | EliminatedEquations


def normal_equations(basis: Basis, diagonal: Vector, slack: Vector | float = 0.0) -> Factored:
    """Φ D Φᵀ plus a diagonal, factorised; a basis of indicators takes none."""
    if isinstance(basis, IndicatorBasis):
        return EliminatedEquations(basis, diagonal)
    return NormalEquations(basis.gram(diagonal), slack)


def _factorise(matrix: NDArray[np.float64]) -> bool:
    """Replace the lower triangle by its Cholesky factor; False when the matrix is not positive definite."""
    if len(matrix) <= SETTINGS.plain_loop:
        return bool(_factorise_in_place(matrix))
    try:
        factor, _ = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    matrix[:] = factor
    return True


# L[i, j] = (M[i, j] − Σ_{k<j} L[i, k] L[j, k]) / L[j, j], and the root of the same for i = j: row by row, but four rows
# at a time against two that are done, so that what is read from memory serves several products.
@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def _factorise_in_place(matrix):  # pragma: no cover - compiled
    size = matrix.shape[0]
    for begin in range(0, size, 4):
        end, done = min(begin + 4, size), 0
        if end - begin == 4:
            for j in range(0, begin, 2):
                _divide_four_rows(matrix, begin, j)
            done = begin
        for i in range(begin, end):
            row = matrix[i]
            for j in range(done, i):
                row[j] = (row[j] - _product(row, matrix[j], j)) / matrix[j, j]
            pivot = row[i] - _product(row, row, i)
            if not pivot > 0.0:
                return False
            row[i] = np.sqrt(pivot)
    return True


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def _product(one, other, length):  # pragma: no cover - compiled
    total = 0.0
    for k in range(length):
        total += one[k] * other[k]
    return total


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def _divide_four_rows(matrix, begin, j):  # pragma: no cover - compiled
    """Columns j and j + 1 of the factor in four rows."""
    a, b, c, d = matrix[begin], matrix[begin + 1], matrix[begin + 2], matrix[begin + 3]
    one, two = matrix[j], matrix[j + 1]
    a1 = b1 = c1 = d1 = a2 = b2 = c2 = d2 = 0.0
    for k in range(j):
        x, y = one[k], two[k]
        a1 += a[k] * x
        b1 += b[k] * x
        c1 += c[k] * x
        d1 += d[k] * x
        a2 += a[k] * y
        b2 += b[k] * y
        c2 += c[k] * y
        d2 += d[k] * y
    for row, first, second in ((a, a1, a2), (b, b1, b2), (c, c1, c2), (d, d1, d2)):
        row[j] = (row[j] - first) / one[j]
        row[j + 1] = (row[j + 1] - second - row[j] * two[j]) / two[j + 1]


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def _substitute(factor, x):  # pragma: no cover - compiled
    size = x.shape[0]
    for i in range(size):
        row = factor[i]
        total = 0.0
        for k in range(i):
            total += row[k] * x[k]
        x[i] = (x[i] - total) / row[i]
    for i in range(size - 1, -1, -1):
        row = factor[i]
        x[i] /= row[i]
        for k in range(i):
            x[k] -= row[k] * x[i]


@njit(nogil=True, cache=True, error_model="numpy")
def _eliminated_solution(starts, rows, border, block, factor, right):  # pragma: no cover - compiled
    first = block.shape[0]
    solution = right.copy()
    rest = solution[first:]
    for b in range(first):
        solution[b] /= block[b]
        for x in range(starts[b], starts[b + 1]):
            rest[rows[x]] -= border[x] * solution[b]
    _substitute(factor, rest)
    for b in range(first):
        total = 0.0
        for x in range(starts[b], starts[b + 1]):
            total += border[x] * rest[rows[x]]
        solution[b] -= total / block[b]
    return solution


# ----------------------------------------------------------------------------------------------------------------------
# Newton's method on duals: exact cells where the costs are strictly convex.


@dataclass(frozen=True, eq=False)
class Convexity:
    """Strictly convex costs: the problem's slopes, and curvatures around centres."""

    curvature: Vector
    centre: Vector


@dataclass(frozen=True, eq=False)
class NewtonPoint:
    """Best responses to duals λ, their softness dδ/ds, Φᵀλ, and by how much they miss the marginals."""

    duals: Vector
    moves: Vector
    softness: Vector
    image: Vector
    misfit: float = np.inf
    steps: int = 0


def solve_by_newton(
    problem: TableProblem,
    convexity: Convexity,
    *,
    start: Vector | None = None,
    tolerance: float = 1e-13,
    acceptable: float = 1e-6,
    max_steps: int = 80,
) -> NewtonPoint:
    """The moves where the gradient vanishes, or the best ones found; below `acceptable` standstill ends the search."""
    now = _respond(problem, convexity, np.zeros(problem.basis.rows) if start is None else start)
    best, idle = now, 0
    for steps in range(max_steps + 1):
        gradient = problem.target - problem.basis.apply(now.moves)
        misfit = float(np.abs(gradient).max(initial=0.0)) / problem.largest_target
        idle = 0 if misfit < 0.5 * best.misfit else idle + 1
        if misfit < best.misfit:
            best = replace(now, misfit=misfit, steps=steps)
        if misfit <= tolerance or steps == max_steps or (best.misfit <= acceptable and idle >= 3):
            break
        following = _step(problem, convexity, now, gradient)
        if following is None:
            break
        now = following
    return best


def _respond(problem: TableProblem, convexity: Convexity, duals: Vector) -> NewtonPoint:
    image = problem.basis.adjoint(duals)
    moves, softness = np.empty_like(image), np.empty_like(image)
    best_responses(*_costs(problem, convexity), image, moves, softness)
    return NewtonPoint(duals, moves, softness, image)


def _costs(problem: TableProblem, convexity: Convexity) -> tuple[Vector, Vector, Vector, Vector, Vector]:
    """Slopes, curvatures, centres and limits; what the marginals around a cell allow it need not be asked again."""
    high = np.where(problem.fixed | (problem.high <= 0.0), problem.high, np.inf)
    return problem.costs.slope, convexity.curvature, convexity.centre, problem.low, high


def _step(problem: TableProblem, convexity: Convexity, now: NewtonPoint, gradient: Vector) -> NewtonPoint | None:
    """The responses after one Newton step, or None when no step raises g."""
    distance = float(np.abs(gradient).max()) / np.sqrt(problem.basis.layout.cells)
    damping = SETTINGS.damping * min(1.0, distance)
    assumed = now.softness.copy()
    assumed[~problem.fixed] += damping * 0.5 / convexity.curvature[~problem.fixed]
    equations = normal_equations(problem.basis, assumed)
    direction = equations.solve(gradient, refinements=0)
    image = problem.basis.adjoint(direction)
    rounding = SETTINGS.accuracy_of_duals * float(np.abs(direction) @ np.abs(problem.target))
    gain = float(problem.target @ direction)
    length = step_length(*_costs(problem, convexity), now.image, image, gain, rounding)
    return _respond(problem, convexity, now.duals + length * direction) if length > 0.0 else None


@njit(nogil=True, cache=True, error_model="numpy")
def step_length(a, q, centre, low, high, s, ds, gain, rounding):  # pragma: no cover - compiled
    """How far g rises along a direction with image ds and rᵀdλ = `gain`, at most 1; 0 where it does not.

    The slope of g there is rᵀdλ − Σ ds δ(s + t ds); it falls, and where it vanishes is found by false position.
    """
    first = _slope_along(a, q, centre, low, high, s, ds, gain, 0.0)
    last = _slope_along(a, q, centre, low, high, s, ds, gain, 1.0)
    if abs(first) <= rounding or last >= -SETTINGS.flat_enough * first:
        return 1.0 if first > -rounding else 0.0
    begin, end, above, below = 0.0, 1.0, first, last
    for _ in range(60):
        t = begin + (end - begin) * above / (above - below)
        slope = _slope_along(a, q, centre, low, high, s, ds, gain, t)
        if abs(slope) <= SETTINGS.flat_enough * first:
            return t
        if slope > 0.0:
            begin, above, below = t, slope, 0.5 * below
        else:
            end, below, above = t, slope, 0.5 * above
    return begin


@njit(nogil=True, cache=True, error_model="numpy")
def _slope_along(a, q, centre, low, high, s, ds, gain, t):  # pragma: no cover - compiled
    total = gain
    for i in range(s.shape[0]):
        move, _ = response(a[i], q[i], centre[i], low[i], high[i], s[i] + t * ds[i])
        total -= ds[i] * move
    return total


# ----------------------------------------------------------------------------------------------------------------------
# Tables of which one marginal is known: the cells fall into groups with a known total each, in closed form.
#
# The total of a group has one dual t, the same for all its cells. The best response of a cell is a nondecreasing,
# piecewise linear function of t (see `problem`), so the dual at which the responses sum to the total N is found
# by sorting the places where they bend: O(n log n). With equal weights this is the projection on a simplex.
#
# For L1 the responses jump. A group whose positive parts sum to more than N takes the difference from the cells that
# are cheapest to move, and one that has too little adds it to the cheapest cells; among cells of equal cost, all optima
# cost the same, and the one with the least Σ w²(x − y)² is again a projection. Cells without weight are cheapest of
# all; they share what is left equally.


def fit_groups(known: KnownMarginals, widest: KnownMarginal, costs: CellCosts) -> tuple[Vector, float]:
    """The optimal table that has this marginal, and a number that no such table falls below."""
    layout, totals, ceiling = known.layout, widest.values, known.ceilings()
    free = ceiling > 0.0
    others = tuple(place for place in range(len(layout.sizes)) if place not in widest.places)
    order = (*widest.places, *others)

    def grouped(values: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(values.reshape(layout.sizes).transpose(order)).reshape(totals.size, -1)

    def ungrouped(values: Vector) -> Vector:
        shape = [layout.sizes[place] for place in order]
        return np.ascontiguousarray(values.reshape(shape).transpose(np.argsort(order))).reshape(-1)

    noisy = grouped(costs.noisy)
    cells, duals = np.zeros_like(noisy), np.zeros(totals.size)
    parts = (noisy, grouped(costs.slope), grouped(costs.curvature), grouped(free))
    _fit_groups(*parts, totals.reshape(-1), known.floor, cells, duals)
    image = ungrouped(np.repeat(duals, noisy.shape[1]).reshape(noisy.shape))
    held = costs.of_moves(np.where(free, 0.0, costs.noisy))
    costs = costs.limited_to(free)
    missing = totals - layout.marginal(costs.noisy, widest.places)
    low = np.where(free, -costs.noisy if known.floor else -np.inf, 0.0)
    high = np.where(free, ceiling - costs.noisy, 0.0)
    least = sum_of_least_costs(costs.slope, costs.curvature, low, high, image)
    return ungrouped(cells), held + float(missing.reshape(-1) @ duals + least)


@njit(nogil=True, cache=True, error_model="numpy")
def _fit_groups(y, a, q, free, totals, floor, x, duals):  # pragma: no cover - compiled
    for g in range(totals.shape[0]):
        kept = np.flatnonzero(free[g])
        if kept.shape[0] == 0:
            continue
        found, dual = _fit_group(y[g][kept], a[g][kept], q[g][kept], totals[g], floor)
        duals[g] = dual
        for j in range(kept.shape[0]):
            x[g, kept[j]] = found[j]


@njit(nogil=True, cache=True, error_model="numpy")
def _fit_group(y, a, q, total, floor):  # pragma: no cover - compiled
    """The cells of one group and its dual."""
    unmeasured = (a == 0.0) & (q == 0.0)
    measured = np.flatnonzero(~unmeasured)
    x = np.zeros(y.shape[0])
    rest = total
    for j in measured:
        x[j] = max(y[j], 0.0) if floor else y[j]
        rest -= x[j]
    if measured.shape[0] < y.shape[0] and (rest >= 0.0 or not floor):
        share = rest / (y.shape[0] - measured.shape[0])
        x[unmeasured] = share
        return x, 0.0
    if q[measured[0]] > 0.0:
        part, dual = _fit_convex(y[measured], a[measured], q[measured], total, floor)
        x[measured] = part
        return x, dual
    return _fit_linear(y, a, x, measured, rest, floor)


@njit(nogil=True, cache=True, error_model="numpy")
def _fit_linear(y, a, x, measured, rest, floor):  # pragma: no cover - compiled
    """Move the cells x by `rest` in all, the cheapest first; x is where a cell costs least."""
    by_slope = measured[np.argsort(a[measured])]
    begin = 0
    while begin < by_slope.shape[0]:
        slope = a[by_slope[begin]]
        end = begin
        room = 0.0
        while end < by_slope.shape[0] and a[by_slope[end]] <= slope * (1.0 + SETTINGS.same_slope_of_group):
            room += x[by_slope[end]]
            end += 1
        members = by_slope[begin:end]
        if rest >= 0.0 or not floor or room + rest >= 0.0 or end == by_slope.shape[0]:
            wanted = max(room + rest, 0.0) if floor else room + rest
            centres = x[members] if rest < 0.0 else y[members]
            part, _ = _fit_convex(centres, np.zeros(end - begin), np.ones(end - begin), wanted, floor)
            x[members] = part
            return x, slope if rest >= 0.0 else -slope
        rest += room
        x[members] = 0.0
        begin = end
    return x, 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def _fit_convex(y, a, q, total, floor):  # pragma: no cover - compiled
    """The responses y moved by the excess of t over ±a, over 2q, at the dual t where they sum to `total`."""
    count = y.shape[0]
    bends = np.empty(3 * count)
    changes = np.empty(3 * count)
    used = 0
    slope_before = 0.0
    for j in range(count):
        soft = 0.5 / q[j]
        if floor and y[j] <= 0.0:
            bends[used], changes[used] = a[j] - y[j] / soft, soft
            used += 1
            continue
        if floor:
            bends[used], changes[used] = -a[j] - y[j] / soft, soft
            used += 1
        else:
            slope_before += soft
        bends[used], changes[used] = -a[j], -soft
        bends[used + 1], changes[used + 1] = a[j], soft
        used += 2
    order = np.argsort(bends[:used])
    first = bends[order[0]]
    reached = 0.0
    for j in range(count):
        reached += _response_to(first, y[j], a[j], q[j], floor)
    slope, at, until = slope_before, first, np.inf
    for k in order:
        ahead = reached + slope * (bends[k] - at)
        if ahead >= total:
            until = bends[k]
            break
        reached, at = ahead, bends[k]
        slope += changes[k]
    # Where responses are flat, rounding leaves a slope next to zero, by which the dual would go beyond the next bend.
    dual = at if slope <= 0.0 else min(at + (total - reached) / slope, until)
    if floor:
        dual = max(dual, first)
    x = np.empty(count)
    for j in range(count):
        x[j] = _response_to(dual, y[j], a[j], q[j], floor)
    return x, dual


@njit(nogil=True, cache=True, error_model="numpy")
def _response_to(t, y, a, q, floor):  # pragma: no cover - compiled
    move = t - a if t > a else (t + a if t < -a else 0.0)
    x = y + move * 0.5 / q
    return max(x, 0.0) if floor else x
