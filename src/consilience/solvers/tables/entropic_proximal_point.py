"""Tables by the proximal point method: `proximal_point` with x = y·exp(−ρBᵀν), cell by cell.

With a fixed total T, x is rescaled to it. Every iterate has the form x = start·exp(−Bᵀθ).

*The first step of a stage.* At ν = 0 the table is the centre, while the duals of the last stage are nearly those of
this one. So the exponential is linearised at the centre and the barrier at the last duals; then a search along the ray
to these new duals takes back what the exponential overshoots.

*The line search* needs the image Bᵀd of a direction once; every step along it is then an exponential of the cells, and
it goes to where the dual's slope nearly vanishes.

*Squares alone* need no barrier, and their stages no exact directions: the dual exceeds its minimum by at most
½Σ gradient²/softness, a stage is solved well enough where this is at most σ·KL(x, y)/ρ, and `table_problem` says how
accurate a system has to be for that.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from consilience.solvers.fit import Status
from consilience.solvers.proximal_point import ProximalPoint, Settings, Step
from consilience.solvers.tables.row_costs import RowCosts
from consilience.solvers.tables.table_problem import ROUNDING, Array, NewtonEquations, Problem, inner
from consilience.solvers.tables.table_problem import SETTINGS as EQUATIONS

Progress = Callable[[int, float, float], None]


@dataclass(frozen=True)
class TableSearchSettings:
    """What tables need besides `Search.settings`; by trial, no figures kept."""

    ray_start: float = 0.01
    """Where the ray from 0 to the duals begins, as a share of it, since one-sided duals must not become 0; where that
    is too far, this share of it again."""
    shortest_ray: float = 1e-20
    """Where that ends."""
    hardly_matters: float = 1e-12
    """Of the cost of a table of zeros."""
    explained: float = 2.0
    """So many times the expected cost is what noise explains."""


SETTINGS = TableSearchSettings()


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
class Search(ProximalPoint):
    """What is asked for, where the search is, and how it goes; the result is `best`."""

    settings: ClassVar[Settings] = Settings(
        stage_accuracy=0.3, share_of_gap=0.05, newton_limit=30, line_search_limit=50
    )

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
        self.split_duals()
        with np.errstate(divide="ignore"):
            self.logarithms = np.log(self.counts) if self.started_from is None else self.started_from
        self.fitted = self.problem.apply(self.counts)
        self.duals = self._first_duals()
        up, down = self.parts.slacks(self.duals)
        self.multipliers = (self.barrier / up, self.barrier / down)
        self.image = self.problem.adjoint(self.of_rows(self.duals))
        # Squares alone: every component has a softness and no end, so that linear systems need not be exact.
        self.soft = bool(self.parts.row.size) and not self.confined and bool(self.parts.softness.all())
        self.equations.expired = self.expired
        self.log_divisor = 0.0
        self.best = Best()
        self.centre_cost = self.costs.value(self.residual)
        # Costs far below those of a table of zeros hardly matter, but where they are above what noise explains.
        self.size = max(self.costs.value(-self.problem.observed), self.centre_cost)

    def _first_duals(self) -> Array:
        """Those that the residuals ask for, as far as the costs allow."""
        if self.confined:
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
        explained = self.scale == 0.0 or objective <= SETTINGS.explained * self.scale
        return self.tolerance * max(objective, self.scale, SETTINGS.hardly_matters * self.size if explained else 0.0)

    @property
    def progress_gap(self) -> float:
        return self.best.progress

    @property
    def is_factored(self) -> bool:
        """Whether Newton's equations are solved by factorisation."""
        return self.equations.products is not None

    @property
    def steps_of_squares(self) -> tuple[int, int, int]:
        # Iteration pays for a large ρ in the steps of each system, a factorisation does not.
        return (2, 5, 8) if self.is_factored else (1, 4, 7)

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

    def has_lost_ground(self) -> bool:
        return self.soft and self.costs.value(self.residual) > self.centre_cost

    def judge(self) -> Status | None:
        """Compares the table with what its duals prove; a status if it is time to stop."""
        best, residual = self.best, self.residual
        own_gap = _prove(self, residual)
        objective = self.costs.value(residual)
        good = self.soft and own_gap <= self.enough_for(objective)
        if (good or objective < best.objective) and _worth_restoring(self, residual, objective):
            table = self.counts
            if self.costs.exact.any():
                table, own_gap = self.restore(table), np.inf
                residual = self.problem.apply(table) - self.problem.observed
                objective = self.costs.value(residual)
            if (good or objective < best.objective) and _misfit(self, residual) <= self.settings.met:
                best.counts, best.objective, best.own_gap = table, objective, own_gap
        if self.progress is not None:
            self.progress(self.problem.adjoints, best.objective, best.gap)
        if best.gap <= self.enough:
            return Status.CONVERGED
        if not best.certified and best.restricted_gap <= self.enough and best.counts is not None:
            return Status.UNCERTIFIED
        if self.problem.adjoints >= self.max_steps:
            return Status.STEP_LIMIT
        return Status.TIME_LIMIT if time.monotonic() >= self.deadline else None

    def end_stage(self) -> Status | None:
        """Nothing: every table is judged, with what its duals prove."""
        return None

    def begin_stage(self) -> None:
        direction = self._first_direction_of_squares() if self.soft else self._first_direction()
        length = self.step_inside(self.duals, direction)
        self.duals = self.duals + length * direction
        self.image = self.problem.adjoint(self.of_rows(self.duals))
        _shorten(self)
        self._evaluate()

    def _first_direction(self) -> Array:
        """To the duals at which the stage is least, with the table linearised at the centre."""
        fall = self.image * self.counts
        if self.problem.total is not None:
            fall -= self.counts * (float(fall.sum()) / self.problem.total)
        residual = self.residual - self.rho * self.problem.apply(fall)
        return self.direction(self.duals, self.gradient(self.duals, residual))

    def _first_direction_of_squares(self) -> Array:
        """Without a barrier the equations for the new duals do not depend on the last ones, which are a good guess."""
        softness, target, guess = self.parts.softness, self.residual, self.duals
        if not self.plain:
            softness, guess = self.of_rows(softness), self.of_rows(guess)
            softness[self.unmeasured] = self.settings.unmeasured * (1.0 + float(softness.max()))
            target = np.where(self.unmeasured, 0.0, target)
        least = self.settings.share_of_gap * self.enough
        found = self.equations.solve(self.counts, self.fitted, self.rho, softness, target, rough=least, guess=guess)
        return self.of_parts(found) - self.duals

    def newton_step(self) -> Step:
        settings = self.settings
        room = min(settings.stage_accuracy * _divergence(self) / self.rho, 0.1 * self.best.gap)
        room = max(room, settings.share_of_gap * self.enough)
        gradient = self.gradient(self.duals, self.residual)
        # The dual exceeds its minimum by half the decrement at most, that is by half of gradient²/softness at most.
        if self.soft and 0.5 * inner(gradient, gradient / self.parts.softness) <= room:
            return Step.NOT_NEEDED
        direction = self.direction(self.duals, gradient, room)
        decrement = -inner(gradient, direction)
        # A rough direction tells less than the decrement, and squares that are iterated end above, or not at all.
        if not decrement > room and not (self.soft and not self.is_factored):
            return Step.NOT_NEEDED
        _line_search(self, direction, -decrement)
        self._evaluate()
        return Step.TAKEN

    def solve(self, stiffness: Array, target: Array, room: float) -> Array:
        rough = 0.4 * room if self.soft else None
        return self.equations.solve(self.counts, self.fitted, self.rho, stiffness, target, rough=rough)

    def _evaluate(self) -> None:
        """The table that the duals lead to from the centre."""
        self.counts, self.log_divisor = self.tilt(self.image)
        self.fitted = self.problem.apply(self.counts)


def _shorten(search: Search) -> None:
    """Goes back along the ray from 0 to the duals, where they overshoot."""
    slope = partial(_slope, search, np.zeros_like(search.duals), search.duals, None, search.image)
    share = SETTINGS.ray_start
    start, end = slope(share), slope(1.0)
    if end <= search.settings.accepted_slope * abs(start) < np.inf:
        return
    while not -np.inf < start < 0 and share > SETTINGS.shortest_ray:
        share *= SETTINGS.ray_start
        start = slope(share)
    share = _bisect(search, slope, share, 1.0, start)
    search.duals = share * search.duals
    search.image *= share


def _line_search(search: Search, direction: Array, first_slope: float) -> None:
    """A step along the direction to where the dual is nearly smallest."""
    image = search.problem.adjoint(search.of_rows(direction))
    slope = partial(_slope, search, search.duals, direction, search.image, image)
    end = search.parts.longest_step(search.duals, direction) if search.confined else np.inf
    low, step = 0.0, search.step_inside(search.duals, direction)
    while True:
        here = slope(step)
        if abs(here) <= search.settings.accepted_slope * abs(first_slope) or step > 1e12:
            break
        if not here < 0:
            step = _bisect(search, slope, low, step, first_slope)
            break
        farther = min(2.0 * step, 0.5 * (step + end))
        if farther <= step * 1.001:
            break
        low, step = step, farther
    search.duals = search.duals + step * direction
    image *= step
    search.image += image


def _bisect(search: Search, slope: Callable[[float], float], low: float, high: float, first_slope: float) -> float:
    """The step between low and high where the dual's slope nearly vanishes."""
    for _ in range(search.settings.line_search_limit):
        step = 0.5 * (low + high)
        here = slope(step)
        if abs(here) <= search.settings.accepted_slope * abs(first_slope):
            return step
        low, high = (step, high) if here < 0 else (low, step)
    return low


def _slope(search: Search, duals: Array, direction: Array, base: Array | None, image: Array, step: float) -> float:
    """The slope of the dual, step by step along the direction; `base` is the image of `duals`, None for 0."""
    moved = image * step
    if base is not None:
        moved += base
    table, _ = search.tilt(moved, out=moved)
    gradient = search.gradient(duals + step * direction, -search.problem.observed)
    with np.errstate(over="ignore", invalid="ignore"):
        return inner(direction, gradient) - inner(image, table)


def _divergence(search: Search) -> float:
    """A lower bound of KL(x, y), sharp where x ≈ y: Σ x·t²/(2 + |t|) with t = log(x/y)."""
    change = search.rho * search.image
    change += search.log_divisor
    np.abs(change, out=change)
    change *= change / (change + 2.0)
    return inner(change, search.counts)


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
    settings = search.settings
    return _misfit(search, residual) <= (settings.far_from_met if near else settings.nearly_met)


# With a = Bᵀν every table z with the right total, or for a ≥ 0 every table, has νᵀBz = aᵀz ≥ T·min a, or ≥ 0. The rest
# is in `RowCosts.gap`. Where a has negative cells a multiple of a cover v is added, as in `table_problem`.
def _prove(search: Search, residual: Array) -> float:
    """Raises the bound by what the duals prove; the gap that they prove for this table, infinite where none is."""
    problem, best, image = search.problem, search.best, search.image
    duals = search.of_rows(search.duals)
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
    if v is None or w is None:
        return np.inf
    if image.min(where=w == 0, initial=0.0) < -EQUATIONS.untouched * max(-lowest, float(image.max())):
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
