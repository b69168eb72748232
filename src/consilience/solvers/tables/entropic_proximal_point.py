"""A proximal point method, with relative entropy as its distance, for non-negative least squares.

Stage by stage, around a centre y and with growing ρ, it solves

    min over x of ½‖Bx − c‖² + KL(x, y)/ρ       through its dual
    min over ν of ψ(ν) = ½‖ν‖² + cᵀν + Σ y·exp(−ρBᵀν)/ρ,    x = y·exp(−ρBᵀν)

and moves the centre to x (Censor & Zenios 1992, J. Optim. Theory Appl. 73). With a fixed total T, x is rescaled
to it and the sum in ψ becomes T·log Σ. The dual lives on the rows, is smooth and unconstrained; its gradient is
ν − r with r = Bx − c, and it exceeds its minimum by at most ½‖r − ν‖². A stage is solved well enough when this is
at most σ·KL(x, y)/ρ for some σ < 1 (Solodov & Svaiter 2000, Math. Oper. Res. 25), because ν is then an
approximate subgradient as good as an exact one.

Newton's equations (I + ρB(diag x − xxᵀ/T)Bᵀ)d = r − ν, without xxᵀ/T if the total is free, are solved by
conjugate gradients preconditioned by their diagonal. Along d the slope of ψ is monotone and costs no
application of B, so the line search is cheap and precise; without that precision exp overshoots.

Every iterate has the form x = start·exp(−Bᵀθ).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from consilience.solvers.fit import Status
from consilience.solvers.tables.least_squares_problem import (
    Array,
    Point,
    Problem,
    SquaringOperator,
    half_square,
    inner,
    measure_gaps,
)

Progress = Callable[[int, float, float], None]

STAGE_ACCURACY = 0.3  # σ above; anything below 1 converges, and the time hardly depends on it
GROWTH = 5.0  # of ρ from stage to stage, as a rule
NEWTON_LIMIT = 40
CONJUGATE_GRADIENT_LIMIT = 1000
LINE_SEARCH_LIMIT = 60
IDLE_STAGES = 10
PROBES = 32
UNNOTICED = 1e-12  # of ½‖c‖²: an objective that hardly matters, but where it is above what noise explains
EXPLAINED = 2.0  # times the expected noise
SMALLEST = float(np.finfo(np.float64).tiny)
ROUNDING = float(np.finfo(np.float64).eps)


@dataclass
class Monitor:
    """Judges points: keeps the best lower bound of the optimum and says when to stop and why."""

    tolerance: float
    scale: float
    max_steps: int
    deadline: float
    progress: Progress | None = None
    bound: float = 0.0
    size: float = 0.0
    """½‖c‖², or the first objective where that is larger."""
    stages: int = 0
    newton_steps: int = 0

    def judge(self, problem: Problem, point: Point) -> Status | None:
        """Completes the point with its gaps; a status if the solver should stop here."""
        measure_gaps(problem, point)
        rounding = 8 * ROUNDING * (point.objective + 2.0 * (point.objective * half_square(problem.observed)) ** 0.5)
        self.bound = max(self.bound, point.objective - point.gap - rounding)
        point.gap = max(0.0, min(point.gap, point.objective - self.bound))
        if self.progress is not None:
            self.progress(problem.adjoints, point.objective, point.gap)
        explained = self.scale == 0.0 or point.objective <= EXPLAINED * self.scale
        enough = self.tolerance * max(point.objective, self.scale, UNNOTICED * self.size if explained else 0.0)
        if point.gap <= enough:
            return Status.CONVERGED
        if not point.certified and point.restricted_gap <= enough:
            return Status.UNCERTIFIED
        return self.limit(problem)

    def limit(self, problem: Problem) -> Status | None:
        """The limit that has been reached, if any."""
        if problem.adjoints >= self.max_steps:
            return Status.STEP_LIMIT
        return Status.TIME_LIMIT if time.monotonic() >= self.deadline else None


@dataclass
class _Center:
    """The centre y of a stage, kept as logarithms so that no cell is lost to underflow."""

    logarithms: Array
    residual: Array
    objective: float

    def tilt(self, problem: Problem, exponent: Array, out: Array) -> float:
        """Writes y·exp(−exponent), divided so that the total holds if it is fixed; the divisor's logarithm.

        `exponent` and `out` may be the same array.
        """
        np.subtract(self.logarithms, exponent, out=out)
        if problem.total is None:
            with np.errstate(over="ignore"):
                np.exp(out, out=out)
            return 0.0
        peak = float(out.max())
        out -= peak
        np.exp(out, out=out)
        divisor = float(out.sum()) / problem.total
        out /= divisor
        return peak + float(np.log(divisor))


def minimise(problem: Problem, table: Array, monitor: Monitor) -> tuple[Point, Status]:
    """The best table that can be reached from a positive one, and why the search ended there."""
    residual = problem.apply(table) - problem.observed
    point = Point(table, residual, residual, problem.adjoint(residual))
    monitor.size = max(half_square(problem.observed), half_square(residual))
    status = monitor.judge(problem, point)
    if status is not None:
        return point, status
    diagonal = _Diagonal(problem, point)
    rho = _first_rho(problem, point)
    logarithms = np.log(table, out=np.full(table.shape, -np.inf), where=table > 0)
    center = _Center(logarithms, residual, point.objective)
    best, idle = np.inf, 0
    while status is None and idle < IDLE_STAGES:
        monitor.stages += 1
        newton_steps, log_divisor, status = _stage(problem, center, point, rho, diagonal, monitor)
        if status is not None:
            break
        idle = 0 if point.restricted_gap < 0.9 * best else idle + 1
        best = min(best, point.restricted_gap)
        if newton_steps == NEWTON_LIMIT and point.objective > center.objective:
            rho /= GROWTH**2
            continue
        point.image *= rho
        center.logarithms -= point.image
        center.logarithms -= log_divisor
        center.residual, center.objective = point.residual, point.objective
        rho *= _growth(newton_steps)
    status = status or Status.STALLED
    if status not in (Status.CONVERGED, Status.UNCERTIFIED) and center.objective < point.objective:
        _return_to(problem, center, point, monitor)
    return point, status


def _growth(newton_steps: int) -> float:
    """How much ρ grows after a stage: the more, the fewer Newton steps it took."""
    if newton_steps <= 1:
        return GROWTH**2
    return GROWTH if newton_steps <= 4 else GROWTH**0.5 if newton_steps <= 7 else 1.0


def _return_to(problem: Problem, center: _Center, point: Point, monitor: Monitor) -> None:
    """Moves a point that was interrupted on its way back to the better table it came from."""
    point.image.fill(0.0)
    center.tilt(problem, point.image, point.counts)
    point.residual, point.objective = center.residual, center.objective
    point.gap = max(0.0, point.objective - monitor.bound)


def _first_rho(problem: Problem, point: Point) -> float:
    """The ρ at which the cell of a typical record would change by a factor of about e."""
    mass = float(point.counts.sum())
    mean = 0.0 if problem.total is None else inner(point.image, point.counts) / mass
    spread = (inner((point.image - mean) ** 2, point.counts) / mass) ** 0.5
    return 1.0 / max(spread, SMALLEST)


def _stage(
    problem: Problem, center: _Center, point: Point, rho: float, diagonal: "_Diagonal", monitor: Monitor
) -> tuple[int, float, Status | None]:
    """Moves the point to the minimum of ½‖Bx − c‖² + KL(x, y)/ρ.

    Returns the Newton steps it took, the logarithm of the last divisor, and a status if it is time to stop.
    """
    point.image.fill(0.0)
    log_divisor = center.tilt(problem, point.image, point.counts)
    point.dual, point.residual = np.zeros_like(center.residual), center.residual
    status, room = None, 0.0
    for newton_steps in range(1, NEWTON_LIMIT + 1):
        direction = _newton_direction(problem, point, rho, diagonal, room, monitor)
        log_divisor = _line_search(problem, center, point, rho, direction)
        point.residual = problem.apply(point.counts) - problem.observed
        monitor.newton_steps += 1
        status = monitor.judge(problem, point)
        room = STAGE_ACCURACY * _divergence(point, rho, log_divisor) / rho
        if status is not None or half_square(point.residual - point.dual) <= room:
            return newton_steps, log_divisor, status
    return NEWTON_LIMIT, log_divisor, status


def _newton_direction(
    problem: Problem, point: Point, rho: float, diagonal: "_Diagonal", room: float, monitor: Monitor
) -> Array:
    """d with (I + ρB(diag x − xxᵀ/T)Bᵀ)d ≈ r − ν, as accurate as this stage can use.

    At a stage's centre (ν = 0) the right-hand side is r, and so is the guess: ν barely changes from one stage
    to the next, and the components of r that no table can remove are then right from the start.
    """
    x, target = point.counts, point.residual - point.dual
    scale = diagonal.at(problem, point, rho)
    at_center = not point.dual.any()
    solution = target.copy() if at_center else np.zeros_like(target)
    remainder = -rho * problem.curvature(x, target) if at_center else target.copy()
    enough, least = max(1e-2 * inner(target, target), 0.4 * room), ROUNDING**2 * inner(target, target)
    search = remainder / scale
    slope = inner(remainder, search)
    for _ in range(CONJUGATE_GRADIENT_LIMIT):
        if slope <= 0 or monitor.limit(problem) is not None:
            break
        curved = search + rho * problem.curvature(x, search)
        length = slope / inner(search, curved)
        solution += length * search
        remainder -= length * curved
        if at_center:  # dᵀHd − dᵀd is twice the divergence, over ρ, that the step is about to make
            enough = 0.1 * (inner(solution, target - remainder) - inner(solution, solution))
        if inner(remainder, remainder) <= max(enough, least):
            break
        scaled = remainder / scale
        previous, slope = slope, inner(remainder, scaled)
        search = scaled + (slope / previous) * search
    return solution if inner(solution, target) > 0 else target / scale


def _line_search(problem: Problem, center: _Center, point: Point, rho: float, direction: Array) -> float:
    """Moves the point along the direction to where ψ is nearly smallest; the divisor's logarithm there.

    ψ is convex: its slope grows along the line, and the search brackets the place where it vanishes.
    """
    image = problem.adjoint(direction)
    constant = inner(direction, point.dual + problem.observed)
    length = inner(direction, direction)
    first_slope = inner(direction, point.dual - point.residual)

    def move(step: float) -> tuple[float, float]:
        np.multiply(image, step, out=point.counts)
        point.counts += point.image
        point.counts *= rho
        log_divisor = center.tilt(problem, point.counts, point.counts)
        with np.errstate(over="ignore", invalid="ignore"):
            return constant + step * length - inner(image, point.counts), log_divisor

    low, high, step, log_divisor = 0.0, np.inf, 1.0, 0.0
    for _ in range(LINE_SEARCH_LIMIT):
        slope, log_divisor = move(step)
        if abs(slope) <= 0.3 * abs(first_slope):
            break
        low, high = (step, high) if slope < 0 else (low, step)
        step = 2.0 * step if high == np.inf else 0.5 * (low + high)
    else:
        step = low
        _, log_divisor = move(step)
    image *= step
    point.image += image
    point.dual = point.dual + step * direction
    return log_divisor


def _divergence(point: Point, rho: float, log_divisor: float) -> float:
    """A lower bound of KL(x, y), sharp where x ≈ y: Σ x·t²/(2 + |t|) with t = log(x/y).

    It holds cell by cell, t − 1 + exp(−t) ≥ t²/(2 + |t|), and unlike KL itself it does not cancel.
    """
    change = point.image * rho
    change += log_divisor
    np.abs(change, out=change)
    weight = change + 2.0
    np.square(change, out=change)
    change /= weight
    return inner(change, point.counts)


class _Diagonal:
    """The diagonal of Newton's matrix: exact for a `SquaringOperator`, otherwise a guess that scales.

    The guess estimates Σⱼ Bᵢⱼ²xⱼ once, at the start, as the mean square of B(√x·signs) (Hutchinson 1990, Commun.
    Stat. 19), and lets it grow with the row's fitted value, which is right for rows of equal entries.
    """

    def __init__(self, problem: Problem, point: Point) -> None:
        self.mass = float(point.counts.sum())
        self.squares = np.zeros(problem.observed.shape)
        self.fitted = np.abs(point.residual + problem.observed)
        if isinstance(problem.operator, SquaringOperator):
            return
        root = np.sqrt(point.counts)
        for probe in range(PROBES):
            self.squares += problem.apply(root * _signs(root.shape, probe)) ** 2 / PROBES
        self.fitted[self.fitted <= 1e-3 * np.sqrt(self.squares * self.mass)] = 0.0

    def at(self, problem: Problem, point: Point, rho: float) -> Array:
        """The diagonal of I + ρB(diag x − xxᵀ/T)Bᵀ at a point."""
        fitted = point.residual + problem.observed
        if isinstance(problem.operator, SquaringOperator):
            problem.applies += 1
            squares = problem.operator.apply_squared(point.counts)
            if problem.total is not None:
                squares = np.maximum(squares - fitted**2 / problem.total, 0.0)
            return 1.0 + rho * squares
        growth = np.full(fitted.shape, float(point.counts.sum()) / self.mass)
        np.divide(np.abs(fitted), self.fitted, out=growth, where=self.fitted > 0)
        return 1.0 + rho * growth * self.squares


def _signs(shape: tuple[int, ...], probe: int) -> Array:
    """±1 per cell, balanced and unrelated between probes: the top bit of a multiplicative hash of the index."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64)
    index += np.uint64((probe + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        index ^= index >> np.uint64(shift)
        index *= np.uint64(factor)
    return np.where(index >> np.uint64(63), 1.0, -1.0).reshape(shape)
