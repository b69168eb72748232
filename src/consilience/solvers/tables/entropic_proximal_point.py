"""A proximal point method, with relative entropy as its distance, for any costs of rows.

Stage by stage, around a centre y and with growing ρ and shrinking κ, it solves

    min over x of Σ φ(Bx − c) + KL(x, y)/ρ       through its dual, over duals ν, split into components,
    min over ν of Σ ½·softness·ν² + cᵀν + Σ y·exp(−ρBᵀν)/ρ − κ Σ (log(high − ν) + log(ν − low)),

with x = y·exp(−ρBᵀν), and moves the centre to x (Censor & Zenios 1992, J. Optim. Theory Appl. 73). With a fixed total
T, x is rescaled to it and the sum becomes T·log Σ. Exact rows are components without ends or softness: there the dual's
gradient is the residual itself, and it vanishes. Every iterate has the form x = start·exp(−Bᵀθ).

*The barrier.* κ keeps the duals of absolute values inside their intervals and costs at most κ for each in the end.
Newton's method meets it half way, as primal-dual interior points do (Wright 1997): the pressures at the two ends,
κ/(high − ν) and κ/(ν − low), are variables of their own, so that κ can fall fivefold from stage to stage.

*The first step of a stage.* At ν = 0 the table is the centre, while the duals of the last stage are nearly those of
this one. So the exponential is linearised at the centre and the barrier at the last duals; then a search along the ray
to these new duals takes back what the exponential overshoots.

*Squares alone* need no barrier, and their stages no exact directions: the dual exceeds its minimum by at most
½Σ slope²/softness, a stage is solved well enough where this is at most σ·KL(x, y)/ρ for some σ < 1 (Solodov & Svaiter
2000, Math. Oper. Res. 25), and `newton_equations` says how accurate a system has to be for that.

*Components of one row* have the same column of Bᵀ. With stiffnesses h_k and slopes g_k they are eliminated: d_k =
(−g_k − s)/h_k, where s = ρBXBᵀΣd. The rows' equations then have stiffness 1/Σ(1/h_k).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from consilience.solvers.fit import Status
from consilience.solvers.tables.newton_equations import NewtonEquations
from consilience.solvers.tables.row_costs import NEARLY, Components, RowCosts
from consilience.solvers.tables.table_problem import UNTOUCHED, Array, Problem, inner

Progress = Callable[[int, float, float], None]

GROWTH = 5.0  # of ρ, and of 1/κ
NEWTON_LIMIT = 30
LINE_SEARCH_LIMIT = 50
IDLE_STAGES = 12
STAGE_ACCURACY = 0.3
RAY_START, SHORTEST_RAY = 0.01, 1e-20  # one-sided duals must not become 0
SHARE_OF_GAP = 0.05  # what a stage may leave, in units of the gap that is asked for
NEARLY_MET, FAR_FROM_MET = 1e-6, 1e-2  # exact rows that are missed by less than this, relatively, are worth restoring
MET = 1e-9  # exact rows that are missed by less are met
UNNOTICED = 1e-12  # of the cost of a table of zeros: what hardly matters
EXPLAINED = 2.0  # times the expected cost is what noise explains
ROUNDING = float(np.finfo(np.float64).eps)


@dataclass
class Best:
    """The best table so far that meets the exact rows, and what is proven about it."""

    counts: Array | None = None
    objective: float = np.inf
    bound: float = 0.0
    certified: bool = False
    restricted_gap: float = np.inf
    """The last gap over the tables whose total does not exceed the fitted one; it needs no cover."""
    own_gap: float = np.inf
    """What the duals at this very table prove: a sum of terms that are not negative, so nothing cancels."""

    @property
    def gap(self) -> float:
        return max(min(self.objective - self.bound, self.own_gap), 0.0)

    @property
    def progress(self) -> float:
        """The gap, or where there is none the gap among tables of no larger total."""
        return self.gap if self.certified else self.restricted_gap


@dataclass
class Search:
    """What is asked for, where the search is, and how it goes."""

    problem: Problem
    costs: RowCosts
    equations: NewtonEquations
    restore: Callable[[Array], Array]
    """Makes a table that nearly meets the exact rows meet them."""
    tolerance: float
    scale: float
    """The cost to expect from noise alone."""
    max_steps: int
    deadline: float
    progress: Progress | None
    counts: Array
    rho: float = 1.0
    barrier: float = 1.0
    stages: int = 0
    newton_steps: int = 0
    started_from: Array | None = None
    """The logarithms of `counts`, for cells that are too small for themselves; else they are taken."""

    def __post_init__(self) -> None:
        self.parts: Components = self.costs.components()
        with np.errstate(divide="ignore"):
            self.logarithms = np.log(self.counts) if self.started_from is None else self.started_from
        self.fitted = self.problem.apply(self.counts)
        self.duals = self._first_duals()
        up, down = self.parts.rooms(self.duals)
        self.pressures = (self.barrier / up, self.barrier / down)
        self.image = self.problem.adjoint(self.parts.of_rows(self.duals))
        # Squares alone: every component has a softness and no end, so that linear systems need not be exact.
        self.soft = bool(self.parts.row.size) and not self.parts.confined and bool(self.parts.softness.all())
        self.equations.expired = self.expired
        self.idle_rows = ~np.isin(np.arange(self.parts.rows), self.parts.row)
        self.softness_of_rows = np.where(self.idle_rows, 1.0, self.parts.of_rows(self.parts.softness))
        self.log_divisor = 0.0
        self.slack = np.inf
        self.best = Best()
        self.centre_cost = self.costs.value(self.residual)
        # Costs far below those of a table of zeros hardly matter, but where they are above what noise explains.
        self.size = max(self.costs.value(-self.problem.observed), self.centre_cost)

    def _first_duals(self) -> Array:
        """Those that the residuals ask for, as far as the costs allow."""
        if self.parts.confined:
            return self.parts.centred(self.residual, self.barrier)
        softness = self.parts.softness
        asked = self.residual[self.parts.row]
        return np.divide(asked, softness, out=np.zeros(asked.shape), where=softness > 0)

    def expired(self) -> bool:
        """Whether steps or time have run out."""
        return self.problem.adjoints >= self.max_steps or time.monotonic() >= self.deadline

    @property
    def residual(self) -> Array:
        return self.fitted - self.problem.observed

    @property
    def enough(self) -> float:
        """The gap at which to stop."""
        return self.enough_for(self.best.objective if np.isfinite(self.best.objective) else 0.0)

    def enough_for(self, objective: float) -> float:
        """The gap at which a table of this cost is good enough."""
        explained = self.scale == 0.0 or objective <= EXPLAINED * self.scale
        return self.tolerance * max(objective, self.scale, UNNOTICED * self.size if explained else 0.0)

    def move_centre(self) -> None:
        """The table becomes the centre; its logarithms are kept, so that no cell is lost to underflow."""
        self.logarithms -= self.rho * self.image
        self.logarithms -= self.log_divisor
        self.centre_cost = self.costs.value(self.residual)

    def return_to_centre(self) -> None:
        """The table becomes the centre that it came from."""
        self.counts, self.log_divisor = self.tilt(np.zeros_like(self.counts))
        self.fitted = self.problem.apply(self.counts)

    def tilt(self, image: Array, out: Array | None = None) -> tuple[Array, float]:
        """The table y·exp(−ρ·image), divided so that the total holds if it is fixed, and the divisor's logarithm.

        It is written to `out`, which may be the image itself.
        """
        table = np.multiply(image, -self.rho, out=out)
        table += self.logarithms
        if self.problem.total is None:
            with np.errstate(over="ignore"):
                return np.exp(table, out=table), 0.0
        peak = float(table.max())
        table -= peak
        np.exp(table, out=table)
        divisor = float(table.sum()) / self.problem.total
        table /= divisor
        return table, peak + float(np.log(divisor))


def run(search: Search) -> Status:
    """Stages until the gap is small enough, or why there is none any more; the result is `search.best`."""
    status = judge(search)
    least, idle = np.inf, 0
    while status is None:
        search.stages += 1
        _begin(search)
        steps, status = _approach(search)
        idle = 0 if search.best.progress < 0.9 * least else idle + 1
        least = min(least, search.best.progress)
        if status is None and idle >= IDLE_STAGES:
            status = Status.STALLED
        if status is not None:
            break
        if search.soft and steps == NEWTON_LIMIT and search.costs.value(search.residual) > search.centre_cost:
            search.return_to_centre()
            search.rho /= GROWTH**2
            continue
        search.move_centre()
        _tighten(search, steps)
    return status


def _tighten(search: Search, steps: int) -> None:
    """A larger ρ and a smaller κ for the next stage, the fewer Newton steps this one took.

    ρ need not grow where the cells leave little of the gap.
    """
    if search.parts.confined:
        growth = GROWTH if steps <= 3 else GROWTH**0.5 if steps <= 6 else 1.0 if steps <= 11 else 1.0 / GROWTH
        least = 2.0 * SHARE_OF_GAP * search.enough / search.parts.row.size
        search.barrier = max(search.barrier / (GROWTH if steps <= 7 else 2.0), least)
    else:
        # Iteration pays for a large ρ in the steps of each system, a factorisation does not.
        effort = steps + (1 if search.equations.products is None else 0)
        growth = GROWTH**2 if effort <= 2 else GROWTH if effort <= 5 else GROWTH**0.5 if effort <= 8 else 1.0
    if search.slack > 2.0 * SHARE_OF_GAP * search.enough or growth < 1.0:
        search.rho *= growth


def _begin(search: Search) -> None:
    """The first step of a stage: the exponential linearised at the centre, the barrier at the last duals."""
    parts, duals = search.parts, search.duals
    direction = _first_direction_of_squares(search) if search.soft else _first_direction(search)
    length = min(1.0, NEARLY * parts.reach(duals, direction))
    search.pressures = search.parts.pressed(search.duals, direction, search.pressures, search.barrier)
    search.duals = duals + length * direction
    search.image = search.problem.adjoint(parts.of_rows(search.duals))
    nothing = np.zeros_like(search.duals)
    start, end = (_slope(search, nothing, search.duals, None, search.image, at) for at in (RAY_START, 1.0))
    if end <= STAGE_ACCURACY * abs(start) < np.inf:
        return
    share = RAY_START
    while not -np.inf < start < 0 and share > SHORTEST_RAY:
        share *= RAY_START
        start = _slope(search, nothing, search.duals, None, search.image, share)
    share = _bisect(search, nothing, search.duals, None, search.image, (share, 1.0), start)
    search.duals = share * search.duals
    search.image *= share


def _first_direction(search: Search) -> Array:
    parts, duals = search.parts, search.duals
    fall = search.image * search.counts
    if search.problem.total is not None:
        fall -= search.counts * (float(fall.sum()) / search.problem.total)
    residual = search.residual - search.rho * search.problem.apply(fall)
    slope = parts.pull(duals, search.barrier) - residual[parts.row]
    return _direction(search, _stiffness(search), slope, 0.0)


def _first_direction_of_squares(search: Search) -> Array:
    """Without a barrier the equations for the new duals do not depend on the last ones, which are a good guess."""
    parts = search.parts
    stiffness, target = search.softness_of_rows, np.where(search.idle_rows, 0.0, search.residual)
    guess = parts.of_rows(search.duals)
    least = SHARE_OF_GAP * search.enough
    found = search.equations.solve_from(search.counts, search.fitted, search.rho, stiffness, target, guess, least)
    return found[parts.row] - search.duals


def _approach(search: Search) -> tuple[int, Status | None]:
    """Newton steps to the minimum of the stage; how many, and a status if it is time to stop."""
    parts = search.parts
    for steps in range(1, NEWTON_LIMIT + 1):
        search.counts, search.log_divisor = search.tilt(search.image)
        search.fitted = search.problem.apply(search.counts)
        search.newton_steps += 1
        status = judge(search)
        if status is not None:
            return steps, status
        room = min(STAGE_ACCURACY * _divergence(search) / search.rho, 0.1 * search.best.gap)
        room = max(room, SHARE_OF_GAP * search.enough)
        slope = parts.pull(search.duals, search.barrier) - search.residual[parts.row]
        # The dual exceeds its minimum by half the decrement at most, and that by half the slope in units of softness.
        if search.soft and 0.5 * inner(slope, slope / parts.softness) <= room:
            return steps, None
        direction = _direction(search, _stiffness(search), slope, room)
        decrement = -inner(slope, direction)
        # A rough direction tells less than the decrement, and squares that are iterated end above, or not at all.
        if not decrement > room and not (search.soft and search.equations.products is None):
            return steps, None
        _walk(search, direction, -decrement)
    return NEWTON_LIMIT, None


def _stiffness(search: Search) -> Array:
    """Softness and, for components with ends, the pressure there over the room that is left."""
    up, down = search.parts.rooms(search.duals)
    return search.parts.softness + search.pressures[0] / up + search.pressures[1] / down


def _direction(search: Search, stiffness: Array, slope: Array, room: float) -> Array:
    """Newton's direction for all components; for squares alone, only as accurate as what may be left of the dual."""
    parts = search.parts
    stiff = stiffness > 0
    yielding = np.divide(1.0, stiffness, out=np.zeros(stiffness.shape), where=stiff)
    give = parts.of_rows(yielding)
    hard = np.divide(1.0, give, out=np.zeros(give.shape), where=give > 0)
    # Exact rows have one component and no stiffness; all others have some.
    target = -np.where(give > 0, hard * parts.of_rows(slope * yielding), parts.of_rows(slope))
    hard[search.idle_rows] = 1.0
    system = (search.counts, search.fitted, search.rho, hard, target)
    rows = search.equations.solve_roughly(*system, 0.4 * room) if search.soft else search.equations.solve(*system)
    drag = (target - hard * rows)[parts.row]
    return np.where(stiff, -(slope + drag) * yielding, rows[parts.row])


def _walk(search: Search, direction: Array, first_slope: float) -> None:
    """A step along the direction to where the dual is nearly smallest."""
    image = search.problem.adjoint(search.parts.of_rows(direction))
    search.pressures = search.parts.pressed(search.duals, direction, search.pressures, search.barrier)
    end = search.parts.reach(search.duals, direction)
    low, step = 0.0, min(1.0, NEARLY * end)
    while True:
        slope = _slope(search, search.duals, direction, search.image, image, step)
        if abs(slope) <= STAGE_ACCURACY * abs(first_slope) or step > 1e12:
            break
        if not slope < 0:
            step = _bisect(search, search.duals, direction, search.image, image, (low, step), first_slope)
            break
        farther = min(2.0 * step, 0.5 * (step + end))
        if farther <= step * 1.001:
            break
        low, step = step, farther
    search.duals = search.duals + step * direction
    image *= step
    search.image += image


def _bisect(
    search: Search,
    duals: Array,
    direction: Array,
    base: Array | None,
    image: Array,
    bracket: tuple[float, float],
    first_slope: float,
) -> float:
    """The step in the bracket where the dual's slope along the direction nearly vanishes."""
    low, high = bracket
    for _ in range(LINE_SEARCH_LIMIT):
        step = 0.5 * (low + high)
        slope = _slope(search, duals, direction, base, image, step)
        if abs(slope) <= STAGE_ACCURACY * abs(first_slope):
            return step
        low, high = (step, high) if slope < 0 else (low, step)
    return low


def _slope(search: Search, duals: Array, direction: Array, base: Array | None, image: Array, step: float) -> float:
    """The slope of the dual, step by step along the direction; `base` is the image of `duals`, None for 0."""
    moved = image * step
    if base is not None:
        moved += base
    table, _ = search.tilt(moved, out=moved)
    pull = search.parts.pull(duals + step * direction, search.barrier) + search.problem.observed[search.parts.row]
    with np.errstate(over="ignore", invalid="ignore"):
        return inner(direction, pull) - inner(image, table)


def _divergence(search: Search) -> float:
    """A lower bound of KL(x, y), sharp where x ≈ y: Σ x·t²/(2 + |t|) with t = log(x/y)."""
    change = search.rho * search.image
    change += search.log_divisor
    np.abs(change, out=change)
    change *= change / (change + 2.0)
    return inner(change, search.counts)


def judge(search: Search) -> Status | None:
    """Compares the table with what its duals prove; a status if it is time to stop."""
    best, residual = search.best, search.residual
    own_gap = _prove(search, residual)
    objective = search.costs.value(residual)
    good = search.soft and own_gap <= search.enough_for(objective)
    if (good or objective < best.objective) and _worth_restoring(search, residual, objective):
        table = search.counts
        if search.costs.exact.any():
            table, own_gap = search.restore(table), np.inf
            residual = search.problem.apply(table) - search.problem.observed
            objective = search.costs.value(residual)
        if (good or objective < best.objective) and _misfit(search, residual) <= MET:
            best.counts, best.objective, best.own_gap = table, objective, own_gap
    if search.progress is not None:
        search.progress(search.problem.adjoints, best.objective, best.gap)
    if best.gap <= search.enough:
        return Status.CONVERGED
    if not best.certified and best.restricted_gap <= search.enough and best.counts is not None:
        return Status.UNCERTIFIED
    if search.problem.adjoints >= search.max_steps:
        return Status.STEP_LIMIT
    return Status.TIME_LIMIT if time.monotonic() >= search.deadline else None


def _misfit(search: Search, residual: Array) -> float:
    """By how much exact rows are missed at most, relative to the largest."""
    exact = search.costs.exact
    if not exact.any():
        return 0.0
    size = float(np.abs(search.problem.observed[exact]).max())
    return float(np.abs(residual[exact]).max()) / max(size, np.finfo(np.float64).tiny)


def _worth_restoring(search: Search, residual: Array, objective: float) -> bool:
    """Whether the table nearly meets the exact rows; where it would be good enough, from farther away."""
    near = objective - search.best.bound <= 2.0 * search.enough
    return _misfit(search, residual) <= (FAR_FROM_MET if near else NEARLY_MET)


# With a = Bᵀν every table z with the right total, or for a ≥ 0 every table, has νᵀBz = aᵀz ≥ T·min a, or ≥ 0. The rest
# is in `RowCosts.gap`. Where a has negative cells a multiple of a cover v is added, as in `table_problem`.
def _prove(search: Search, residual: Array) -> float:
    """Raises the bound by what the duals prove; the gap that they prove for this table, infinite where none is."""
    problem, best, image = search.problem, search.best, search.image
    duals = search.parts.of_rows(search.duals)
    work = inner(image, search.counts)
    where = True if problem.allowed is None else problem.allowed
    lowest = float(image.min(where=where, initial=np.inf if problem.total is not None else 0.0))
    search.slack = max(0.0, work - lowest * float(search.counts.sum()))
    restricted = search.costs.gap(residual, duals, search.slack)
    if problem.total is not None:
        return _certify(search, residual, restricted)
    best.restricted_gap = restricted
    v, w = problem.cover, problem.cover_image
    # Untouched cells have a = w = 0 up to rounding; any other cell without cover leaves the bound unproven.
    if v is None or w is None or image.min(where=w == 0, initial=0.0) < -UNTOUCHED * max(-lowest, float(image.max())):
        return np.inf
    tau = max(0.0, -float(np.divide(image, w, out=np.zeros(w.shape), where=w > 0).min()))
    gap = search.costs.gap(residual, duals + tau * v, max(0.0, work + tau * inner(w, search.counts)))
    return _certify(search, residual, gap)


def _certify(search: Search, residual: Array, gap: float) -> float:
    """The gap, after the bound that it proves was noted, less what rounding does to squares."""
    objective = search.costs.value(residual)
    rounding = 8 * ROUNDING * (objective + 2.0 * (objective * search.size) ** 0.5) if search.soft else 0.0
    search.best.certified = True
    search.best.bound = max(search.best.bound, objective - gap - rounding)
    return gap
