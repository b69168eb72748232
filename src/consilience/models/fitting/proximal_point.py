"""A proximal point method, with relative entropy as its distance, for any costs of rows.

Stage by stage, around a centre μ̄ with potentials θ̄, with growing ρ and shrinking κ, it solves

    min over models μ of Σ φ(Bμ − c) + KL(μ, μ̄)/ρ       through its dual, over prices ν split into components,
    min over ν of Σ ½·softness·ν² + cᵀν + (N/ρ)·log Z(θ) − κ Σ (log(high − ν) + log(ν − low)),    θ = θ̄ − ρBᵀν,

and moves the centre to the model with potentials θ (Censor & Zenios 1992, J. Optim. Theory Appl. 73). So every iterate
is a model, and from a uniform start the one of greatest entropy among those with the same fitted rows. The gradient of
the dual costs one call of the oracle: it is softness·ν − r, with r = Bμ − c, and what κ adds. The components, the
barrier κ and the pressures at the ends of intervals are those of `solvers.tables`; squares need none.

*A stage's end.* A stage is solved well enough when what it still lacks is at most σ·KL(μ, μ̄)/ρ for some σ < 1 (Solodov
& Svaiter 2000, Math. Oper. Res. 25). For squares, prices ν lack at most Σ (r − softness·ν)²/(2·softness); otherwise
Newton's decrement says about how much.

*A stage's beginning.* At ν = 0 the model is the centre, while the prices of the last stage may be nearly those of this
one. If they are, the model is linearised at the centre and the barrier at the last prices; then a search along the ray
to these new prices takes back what the exponential overshoots.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.models.fitting.newton_equations import FactoredEquations, PriceEquations, ReducedEquations, inner
from consilience.models.fitting.objective import Monitor, slack_of
from consilience.models.fitting.rows import MeasuredRows
from consilience.models.fitting.shared_margins import SharedMargins
from consilience.models.oracle import CountedOracle, Marginals
from consilience.solvers.fit import Status
from consilience.solvers.tables.row_costs import NEARLY, Components, RowCosts

Array = NDArray[np.float64]

STAGE_ACCURACY = 0.5  # σ above
GROWTH = 5.0  # of ρ and 1/κ from stage to stage, as a rule
FIRST_BARRIER = 1.0
BARRIER_ROOM = 2.0  # what κ leaves for each component, in units of κ
NEWTON_LIMIT = 25
CONJUGATE_GRADIENT_LIMIT = 60
ACCURACY = 0.3  # of Newton's directions
FLAT = 0.3  # the share of a direction's first slope that may be left at the end of a step
LINE_SEARCH_LIMIT = 30
SHORT_WAY = 0.01  # to where a stage begins that cannot begin better: inside all intervals
FAMILIAR = 0.1  # prices that lack less than this share of what prices of 0 lack are nearly right
IDLE_STAGES = 12
SHARE_OF_GAP = 0.1  # what a stage may leave, in units of the gap that is asked for
FIXED = 1e12  # how much stiffer than all others the rows are that were not measured
WARM = 100.0  # how much larger the first ρ is where a given model is to be changed
ROUNDING = 16.0 * float(np.finfo(np.float64).eps)  # of the terms whose difference is a bound
WIDE = 60.0  # potentials of one table that differ by more are balanced


@dataclass
class Point:
    """Prices, and the model they lead to from the centre."""

    parts: Array
    """The components of the prices."""
    potentials: Array
    found: Marginals
    fitted: Array
    residual: Array


class Keeper(Protocol):
    """Takes note of the models of a search in place of its monitor."""

    def meet(self, potentials: Array, marginals: Array, objective: float) -> Status | None:
        """Called for every model."""
        ...

    def end_stage(self, potentials: Array, objective: float) -> Status | None:
        """Called for the last model of each stage."""
        ...


@dataclass
class ProximalSearch:
    """What is asked for and where the search is."""

    oracle: CountedOracle
    rows: MeasuredRows
    costs: RowCosts
    monitor: Monitor
    start: Array
    keep: "Keeper | None" = None
    """Who decides which models count; None where all do."""
    rho: float = 0.0
    """ρ; where it is 0 a first one is found."""
    barrier: float = FIRST_BARRIER
    """κ."""
    warm: bool = False
    """Whether the start is a model to be changed rather than found."""
    equations: PriceEquations | None = None
    """How Newton's equations are solved; None for conjugate gradients, or by factorisation where that is needed."""
    stages: int = 0
    newton_steps: int = 0

    def __post_init__(self) -> None:
        self.parts: Components = self.costs.components()
        self.confined = self.parts.confined
        self.any_exact = bool(self.costs.exact.any())
        layout = self.oracle.layout
        self.tables = SharedMargins.of(layout.sizes, layout.axes, layout.offsets[:-1].tolist())
        start = self.start.copy()
        self._balance(start)
        self.unmeasured = ~np.isin(np.arange(self.parts.rows), self.parts.row)
        self.plain = not (self.confined or self.any_exact or self.unmeasured.any())
        self.newton = self.equations or _equations(self)
        self.home = self.point = self._point(np.zeros(self.parts.row.size), start, self.oracle.marginals(start))
        """The centre, and where the search is."""
        self.last = self.parts.centred(self.point.residual, self.barrier) if self.confined else self.point.parts
        up, down = self.parts.rooms(self.last)
        self.pressures = (self.barrier / up, self.barrier / down)
        self.home_cost = self.cost()
        self.slack = np.inf
        self.rho = self.rho or _first_rho(self) * (WARM if self.warm else 1.0)

    def of_rows(self, parts: Array) -> Array:
        """The price of each row."""
        return parts if self.plain else self.parts.of_rows(parts)

    def of_parts(self, rows: Array) -> Array:
        """What belongs to the row of each component."""
        return rows if self.plain else rows[self.parts.row]

    def at(self, parts: Array) -> Point:
        """The model to which prices lead: one call of the oracle."""
        potentials = self.rows.adjoint(self.of_rows(parts))
        potentials *= -self.rho
        potentials += self.home.potentials
        self._balance(potentials)
        return self._point(parts, potentials, self.oracle.marginals(potentials))

    def _point(self, parts: Array, potentials: Array, found: Marginals) -> Point:
        fitted = self.rows.apply(found.values)
        return Point(parts, potentials, found, fitted, fitted - self.costs.observed)

    def pull(self, point: Point) -> Array:
        """The gradient of the dual at a point."""
        pull = self.parts.pull(point.parts, self.barrier) if self.confined else self.parts.softness * point.parts
        pull -= self.of_parts(point.residual)
        return pull

    def cost(self) -> float:
        """The objective at the point."""
        residual = self.point.residual
        if not self.plain:
            return self.costs.value(residual)
        return 0.5 * float(np.einsum("i,i,i->", residual, residual, self.costs.curvature))

    def _balance(self, potentials: Array) -> None:
        begins = self.oracle.layout.offsets[:-1]
        spread = np.maximum.reduceat(potentials, begins) - np.minimum.reduceat(potentials, begins)
        if float(spread.max()) > WIDE:
            self.tables.balance(potentials)

    def divergence(self) -> float:
        """KL(μ, μ̄) of the point from the centre."""
        change = self.oracle.total * (self.point.found.log_partition - self.home.found.log_partition)
        return max(-self.rho * inner(self.of_rows(self.point.parts), self.point.fitted) - change, 0.0)

    def room(self) -> float:
        """What the stage may still lack."""
        most = max(STAGE_ACCURACY * self.divergence() / self.rho, SHARE_OF_GAP * self.monitor.enough)
        return most + BARRIER_ROOM * self.barrier * self.parts.row.size if self.confined else most

    def move_centre(self) -> None:
        """The point becomes the centre, with prices of 0."""
        self.last = self.point.parts
        self.home = self.point = replace(self.point, parts=np.zeros_like(self.last))
        self.home_cost = self.cost()


def _equations(search: ProximalSearch) -> PriceEquations:
    """Conjugate gradients, which are preconditioned for marginals; of other queries those that suit them."""
    oracle, rows = search.oracle, search.rows
    if all(query.is_marginal for query in rows.queries):
        return PriceEquations(oracle, rows)
    reduced = ReducedEquations.of(oracle, rows) if search.plain else None
    return reduced or FactoredEquations.of(oracle, rows) or PriceEquations(oracle, rows)


def run(search: ProximalSearch, *, roughly: bool = False) -> Status:
    """Stages until the gap is small enough, or why there is none any more; the result is in the monitor.

    Roughly: until a stage hardly changes the objective, whatever is proven by then.
    """
    status = _judge(search)
    least, idle = np.inf, 0
    while status is None:
        search.stages += 1
        steps, status = _stage(search)
        if status is None:
            status = _prove(search)
        if status is None and roughly and search.divergence() / search.rho <= search.monitor.enough:
            status = Status.UNCERTIFIED
        idle = 0 if search.monitor.gap < 0.9 * least else idle + 1
        least = min(least, search.monitor.gap)
        if status is None and idle >= IDLE_STAGES:
            status = Status.STALLED
        if status is None and not _lost(search, steps):
            search.move_centre()
            _tighten(search, steps)
    return status


def _lost(search: ProximalSearch, steps: int) -> bool:
    """Whether a stage got nowhere, because rounding spoils Newton's equations; then it begins anew with a smaller ρ."""
    if steps < NEWTON_LIMIT or search.cost() <= search.home_cost:
        return False
    search.point = search.home
    search.rho /= GROWTH**2
    return True


def _tighten(search: ProximalSearch, steps: int) -> None:
    """A larger ρ and a smaller κ for the next stage, the fewer Newton steps this one took."""
    growth = GROWTH**2 if steps <= 1 else GROWTH if steps <= 3 else GROWTH**0.5 if steps <= 6 else 1.0
    if search.confined:
        growth = GROWTH if steps <= 3 else GROWTH**0.5 if steps <= 6 else 1.0 if steps <= 11 else 1.0 / GROWTH
        least = 2.0 * SHARE_OF_GAP * search.monitor.enough / search.parts.row.size
        search.barrier = max(search.barrier / (GROWTH if steps <= 7 else 2.0), least)
    if search.slack > 2.0 * SHARE_OF_GAP * search.monitor.enough or growth < 1.0:
        search.rho *= growth


def _first_rho(search: ProximalSearch) -> float:
    """The ρ at which the cell of a typical record would change by a factor of about e."""
    costs, residual = search.costs, search.point.residual
    size = costs.felt(residual)
    price = np.sign(residual) * np.where(size > 0, costs.slope + costs.curvature * size, 0.0)
    pull = search.rows.adjoint(np.where(costs.exact, residual, price))
    cells, spread = search.point.found.values / search.oracle.total, 0.0
    for part in search.oracle.layout.slices:
        mean = inner(cells[part], pull[part])
        spread += inner(cells[part], (pull[part] - mean) ** 2)
    return 1.0 / max(spread**0.5, np.finfo(np.float64).tiny ** 0.5)


def _stage(search: ProximalSearch) -> tuple[int, Status | None]:
    """Newton steps to the minimum of the stage; how many, and a status if it is time to stop."""
    if search.confined or _lacking(search, search.last) < FAMILIAR * _lacking(search, search.point.parts):
        _begin(search)
    else:
        _step(search)
    for steps in range(1, NEWTON_LIMIT + 1):
        search.newton_steps += 1
        status = _judge(search)
        if status is not None:
            return steps, status
        if _lacking(search, search.point.parts) <= search.room():
            return steps, None
        if not _step(search):
            break
    return NEWTON_LIMIT, None


def _lacking(search: ProximalSearch, parts: Array) -> float:
    """φ(r) + φ*(ν) − ν·r over all rows: by how much the stage's cost and its dual differ; for exact rows |ν·r|."""
    residual, softness, exact = search.point.residual, search.parts.softness, search.costs.exact
    if search.plain:
        away = softness * parts
        away -= residual
        return 0.5 * float(np.einsum("i,i,i->", away, away, search.costs.curvature))
    prices = search.of_rows(parts)
    missed = inner(np.abs(prices[exact]), np.abs(residual[exact]))
    prices[exact] = 0.0
    return missed + search.costs.value(residual) + 0.5 * inner(parts * softness, parts) - inner(prices, residual)


def _begin(search: ProximalSearch) -> None:
    """The first step of a stage: the model linearised at the centre, the barrier at the last prices."""
    parts, last, point = search.parts, search.last, search.point
    search.newton.move_to(point.potentials, point.found.values, point.fitted)
    pull = parts.pull(last, search.barrier) if search.confined else parts.softness * last
    fall = search.newton.covariance(search.of_rows(last), np.empty(search.rows.size))
    fall *= search.rho
    fall -= point.residual
    pull += search.of_parts(fall)
    direction = _direction(search, last, pull)
    length = 1.0
    if search.confined:
        length = min(1.0, NEARLY * parts.reach(last, direction))
        search.pressures = parts.pressed(last, direction, search.pressures, search.barrier)
    goal = last + length * direction
    # At prices of 0 the barrier of one-sided rows is infinitely steep: the first slope is that of the dual without it.
    moved = _walk(search, np.zeros_like(goal), goal, -inner(search.of_parts(point.residual), goal))
    if not moved and search.confined and np.isfinite(goal).all():
        search.point = search.at(SHORT_WAY * goal)


def _step(search: ProximalSearch) -> bool:
    """One step of Newton's method; whether it got anywhere."""
    parts, point = search.parts, search.point
    search.newton.move_to(point.potentials, point.found.values, point.fitted)
    pull = search.pull(point)
    direction = _direction(search, point.parts, pull)
    slope = inner(pull, direction)
    length = 1.0
    if search.confined:
        length = min(1.0, NEARLY * parts.reach(point.parts, direction))
        search.pressures = parts.pressed(point.parts, direction, search.pressures, search.barrier)
    return _walk(search, point.parts, length * direction, length * slope)


def _direction(search: ProximalSearch, at: Array, pull: Array) -> Array:
    """Newton's direction for all components at some prices, where the dual has this gradient.

    Components of one row have the same column of Bᵀ: they are eliminated, and rows of stiffness 1/Σ(1/h) remain.
    """
    parts = search.parts
    stiffness = _stiffness(search, at)
    if search.plain:
        return _solved(search, stiffness, -pull)
    stiff = stiffness > 0
    yielding = np.divide(1.0, stiffness, out=np.zeros(stiffness.shape), where=stiff)
    give = parts.of_rows(yielding)
    hard = np.divide(1.0, give, out=np.zeros(give.shape), where=give > 0)
    target = -np.where(give > 0, hard * parts.of_rows(pull * yielding), parts.of_rows(pull))
    hard[search.unmeasured] = FIXED * (1.0 + float(hard.max()))
    rows = _solved(search, hard, target)
    drag = (target - hard * rows)[parts.row]
    return np.where(stiff, -(pull + drag) * yielding, rows[parts.row])


def _solved(search: ProximalSearch, stiffness: Array, target: Array) -> Array:
    """Newton's equations between rows, as accurate as a step can use."""
    return search.newton.solve(
        stiffness,
        search.rho,
        target,
        enough=ACCURACY,
        most_steps=CONJUGATE_GRADIENT_LIMIT,
        monitor=search.monitor,
    )


def _stiffness(search: ProximalSearch, at: Array) -> Array:
    """Softness and, for components with ends, the pressure there over the room that is left."""
    if not search.confined:
        return search.parts.softness
    up, down = search.parts.rooms(at)
    return search.parts.softness + search.pressures[0] / up + search.pressures[1] / down


# The dual is convex: its slope along a direction grows. A step that ends where the slope has not become too large is
# good; one that overshoots is cut to where a straight line between the two slopes would vanish.
def _walk(search: ProximalSearch, origin: Array, direction: Array, first_slope: float) -> bool:
    """Moves the point along a direction, until the dual has fallen as far as it will, nearly; whether it moved."""
    share = 1.0
    if not (first_slope < 0.0 and np.isfinite(direction).all()):
        return False
    for _ in range(LINE_SEARCH_LIMIT):
        found = search.at(origin + share * direction)
        slope = inner(search.pull(found), direction)
        if slope <= -FLAT * first_slope:
            search.point = found
            return True
        if search.monitor.limit() is not None:
            break
        cut = -first_slope / (slope - first_slope)
        share *= min(max(cut, 0.1), 0.5) if np.isfinite(cut) else 0.1
    return False


def _judge(search: ProximalSearch) -> Status | None:
    """Takes note of the point's model."""
    point = search.point
    return (search.keep or search.monitor).meet(point.potentials, point.found.values, search.cost())


def _prove(search: ProximalSearch) -> Status | None:
    """Takes note of the bound that the prices of the point prove."""
    point, prices, objective = search.point, search.of_rows(search.point.parts), search.cost()
    search.slack = slack_of(search.oracle, search.rows.adjoint(prices), point.found.values)
    size = inner(np.abs(prices), np.abs(point.fitted) + np.abs(search.costs.observed))
    gap = search.costs.gap(point.residual, prices, search.slack) + ROUNDING * (size + objective)
    status = search.monitor.prove(objective - gap)
    if search.keep is None:
        search.monitor.remember(point.potentials, objective)
    elif status is None:
        status = search.keep.end_stage(point.potentials, objective)
    return status
