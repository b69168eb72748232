"""Models by the proximal point method: `solvers.proximal_point` with the potentials θ = θ̄ − ρBᵀν.

Every iterate is a model, and from a uniform start the one of greatest entropy among those with the same fitted rows.
The gradient of the dual costs one call of the oracle, and so does every step of a line search: a step is cut where it
overshoots, and not searched for.

*A stage's end.* Duals ν lack at most Σ φ(r) + φ*(ν) − ν·r, for squares Σ (r − softness·ν)²/(2·softness).

*A stage's beginning.* At ν = 0 the model is the centre, while the duals of the last stage may be nearly those of this
one. If they are, the model is linearised at the centre and the barrier at the last duals; then a search along the ray
to these new duals takes back what the exponential overshoots.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.models.fitting.newton_equations import FactoredEquations, OracleEquations, ReducedEquations
from consilience.models.fitting.objective import MeasuredRows, Monitor, slack_of
from consilience.models.fitting.shared_margins import SharedMargins
from consilience.models.oracle import CountedOracle, Marginals
from consilience.solvers.fit import Status
from consilience.solvers.proximal_point import ProximalPoint, Settings, Step
from consilience.solvers.tables.row_costs import RowCosts
from consilience.solvers.tables.table_problem import inner

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ModelSettings:
    """What tunes the search for a model alone; where nothing else is said by trial, and no figures were kept."""

    first_barrier: float = 1.0
    """The first κ."""
    barrier_room: float = 2.0
    """What κ leaves for each component, in units of κ."""
    conjugate_gradient_limit: int = 60
    """Conjugate gradients for one direction."""
    direction_accuracy: float = 0.3
    """Of Newton's directions, relative to the gradient."""
    short_step: float = 0.01
    """To where a stage begins that cannot begin better, in parts of the step it would take: inside all intervals."""
    nearly_right: float = 0.1
    """Duals that lack less than this share of what duals of 0 lack are nearly right."""
    warm: float = 100.0
    """How much larger the first ρ is where a given model is to be changed."""
    bound_rounding: float = 16.0 * float(np.finfo(np.float64).eps)
    """Rounding, in parts of the terms whose difference is a bound: sixteen times the last place."""
    balanced_from: float = 60.0
    """Potentials of one table that differ by more are balanced."""


MODEL_SEARCH = ModelSettings()


@dataclass
class Point:
    """Duals, and the model they lead to from the centre."""

    duals: Array
    """The components of the duals."""
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
class ProximalSearch(ProximalPoint):
    """What is asked for and where the search is; the result is in the monitor."""

    settings: ClassVar[Settings] = Settings(stage_accuracy=0.5, share_of_gap=0.1, newton_limit=25, line_search_limit=30)

    oracle: CountedOracle
    rows: MeasuredRows
    costs: RowCosts
    monitor: Monitor
    start: Array
    keep: "Keeper | None" = None
    """Who decides which models count; None where all do."""
    rho: float = 0.0
    """ρ; where it is 0 a first one is found."""
    barrier: float = MODEL_SEARCH.first_barrier
    """κ."""
    warm: bool = False
    """Whether the start is a model to be changed rather than found."""
    equations: OracleEquations | None = None
    """How Newton's equations are solved; None for conjugate gradients, or by factorisation where that is needed."""
    roughly: bool = False
    """Whether to stop where a stage hardly changes the objective, whatever is proven by then."""
    stages: int = 0
    newton_steps: int = 0

    def __post_init__(self) -> None:
        self.split_duals()
        layout = self.oracle.layout
        self.tables = SharedMargins.of(layout.sizes, layout.axes, layout.offsets[:-1].tolist())
        start = self.start.copy()
        self._balance(start)
        self.newton = self.equations or _equations(self)
        self.centre = self.point = self._point(np.zeros(self.parts.row.size), start, self.oracle.marginals(start))
        """The centre, and where the search is."""
        self.last = self.parts.centred(self.point.residual, self.barrier) if self.confined else self.point.duals
        up, down = self.parts.slacks(self.last)
        self.multipliers = (self.barrier / up, self.barrier / down)
        self.centre_cost = self.cost()
        self.rho = self.rho or _first_rho(self) * (MODEL_SEARCH.warm if self.warm else 1.0)

    def at(self, duals: Array) -> Point:
        """The model to which duals lead: one call of the oracle."""
        potentials = self.rows.adjoint(self.of_rows(duals))
        potentials *= -self.rho
        potentials += self.centre.potentials
        self._balance(potentials)
        return self._point(duals, potentials, self.oracle.marginals(potentials))

    def _point(self, duals: Array, potentials: Array, found: Marginals) -> Point:
        fitted = self.rows.apply(found.values)
        return Point(duals, potentials, found, fitted, fitted - self.costs.observed)

    def cost(self) -> float:
        """The objective at the point."""
        residual = self.point.residual
        if not self.plain:
            return self.costs.value(residual)
        return 0.5 * float(np.einsum("i,i,i->", residual, residual, self.costs.curvature))

    def _balance(self, potentials: Array) -> None:
        begins = self.oracle.layout.offsets[:-1]
        spread = np.maximum.reduceat(potentials, begins) - np.minimum.reduceat(potentials, begins)
        if float(spread.max()) > MODEL_SEARCH.balanced_from:
            self.tables.balance(potentials)

    def divergence(self) -> float:
        """KL(μ, μ̄) of the point from the centre."""
        change = self.oracle.total * (self.point.found.log_partition - self.centre.found.log_partition)
        return max(-self.rho * inner(self.of_rows(self.point.duals), self.point.fitted) - change, 0.0)

    def room(self) -> float:
        """What the stage may still lack."""
        settings = self.settings
        most = max(settings.stage_accuracy * self.divergence() / self.rho, settings.share_of_gap * self.enough)
        return most + MODEL_SEARCH.barrier_room * self.barrier * self.parts.row.size if self.confined else most

    def move_centre(self) -> None:
        """The point becomes the centre, with duals of 0."""
        self.last = self.point.duals
        self.centre = self.point = replace(self.point, duals=np.zeros_like(self.last))
        self.centre_cost = self.cost()

    @property
    def enough(self) -> float:
        return self.monitor.enough

    @property
    def progress_gap(self) -> float:
        return self.monitor.gap

    @property
    def steps_of_squares(self) -> tuple[int, int, int]:
        return 1, 3, 6

    def has_lost_ground(self) -> bool:
        return self.cost() > self.centre_cost

    def return_to_centre(self) -> None:
        self.point = self.centre

    def judge(self) -> Status | None:
        point = self.point
        return (self.keep or self.monitor).meet(point.potentials, point.found.values, self.cost())

    def end_stage(self) -> Status | None:
        point, duals, objective = self.point, self.of_rows(self.point.duals), self.cost()
        self.slack = slack_of(self.oracle, self.rows.adjoint(duals), point.found.values)
        size = inner(np.abs(duals), np.abs(point.fitted) + np.abs(self.costs.observed))
        rounding = MODEL_SEARCH.bound_rounding * (size + objective)
        gap = self.costs.gap(point.residual, duals, self.slack) + rounding
        status = self.monitor.prove(objective - gap)
        if self.keep is None:
            self.monitor.remember(point.potentials, objective)
        elif status is None:
            status = self.keep.end_stage(point.potentials, objective)
        if status is None and self.roughly and self.divergence() / self.rho <= self.enough:
            status = Status.UNCERTIFIED
        return status

    def begin_stage(self) -> None:
        nearly = MODEL_SEARCH.nearly_right
        if self.confined or _lacking(self, self.last) < nearly * _lacking(self, self.point.duals):
            self._begin_linearised()
        else:
            self._step()

    def _begin_linearised(self) -> None:
        """The model linearised at the centre, the barrier at the last duals."""
        last, point = self.last, self.point
        self.newton.move_to(point.potentials, point.found.values, point.fitted)
        fall = self.newton.covariance(self.of_rows(last), np.empty(self.rows.size))
        fall *= -self.rho
        fall += point.residual
        direction = self.direction(last, self.gradient(last, fall))
        goal = last + self.step_inside(last, direction) * direction
        # At duals of 0 the barrier of one-sided rows is infinitely steep: the first slope is the dual's without it.
        moved = _line_search(self, np.zeros_like(goal), goal, -inner(self.of_parts(point.residual), goal))
        if not moved and self.confined and np.isfinite(goal).all():
            self.point = self.at(MODEL_SEARCH.short_step * goal)

    def newton_step(self) -> Step:
        if _lacking(self, self.point.duals) <= self.room():
            return Step.NOT_NEEDED
        return Step.TAKEN if self._step() else Step.FAILED

    def _step(self) -> bool:
        """One step of Newton's method; whether it got anywhere."""
        point = self.point
        self.newton.move_to(point.potentials, point.found.values, point.fitted)
        gradient = self.gradient(point.duals, point.residual)
        direction = self.direction(point.duals, gradient)
        length = self.step_inside(point.duals, direction)
        return _line_search(self, point.duals, length * direction, length * inner(gradient, direction))

    def solve(self, stiffness: Array, target: Array, room: float) -> Array:
        """As accurate as a step can use, whatever the stage may lack."""
        enough, most_steps = MODEL_SEARCH.direction_accuracy, MODEL_SEARCH.conjugate_gradient_limit
        limits = {"enough": enough, "most_steps": most_steps, "monitor": self.monitor}
        return self.newton.solve(stiffness, self.rho, target, **limits)


def _equations(search: ProximalSearch) -> OracleEquations:
    """Conjugate gradients, which are preconditioned for marginals; of other queries those that suit them."""
    oracle, rows = search.oracle, search.rows
    if all(query.is_marginal for query in rows.queries):
        return OracleEquations(oracle, rows)
    reduced = ReducedEquations.of(oracle, rows) if search.plain else None
    return reduced or FactoredEquations.of(oracle, rows) or OracleEquations(oracle, rows)


def _first_rho(search: ProximalSearch) -> float:
    """The ρ at which the cell of a typical record would change by a factor of about e."""
    costs, residual = search.costs, search.point.residual
    size = costs.felt(residual)
    dual = np.sign(residual) * np.where(size > 0, costs.slope + costs.curvature * size, 0.0)
    gradient = search.rows.adjoint(np.where(costs.exact, residual, dual))
    cells, spread = search.point.found.values / search.oracle.total, 0.0
    for part in search.oracle.layout.slices:
        mean = inner(cells[part], gradient[part])
        spread += inner(cells[part], (gradient[part] - mean) ** 2)
    return 1.0 / max(spread**0.5, np.finfo(np.float64).tiny ** 0.5)


def _lacking(search: ProximalSearch, duals: Array) -> float:
    """φ(r) + φ*(ν) − ν·r over all rows: by how much the stage's cost and its dual differ; for exact rows |ν·r|."""
    residual, softness, exact = search.point.residual, search.parts.softness, search.costs.exact
    if search.plain:
        away = softness * duals
        away -= residual
        return 0.5 * float(np.einsum("i,i,i->", away, away, search.costs.curvature))
    rows = search.of_rows(duals)
    missed = inner(np.abs(rows[exact]), np.abs(residual[exact]))
    rows[exact] = 0.0
    return missed + search.costs.value(residual) + 0.5 * inner(duals * softness, duals) - inner(rows, residual)


# The dual is convex: its slope along a direction grows. A step that ends where the slope has not become too large is
# good; one that overshoots is cut to where a straight line between the two slopes would vanish.
def _line_search(search: ProximalSearch, origin: Array, direction: Array, first_slope: float) -> bool:
    """Moves the point along a direction, until the dual has fallen as far as it will, nearly; whether it moved."""
    share = 1.0
    if not (first_slope < 0.0 and np.isfinite(direction).all()):
        return False
    for _ in range(search.settings.line_search_limit):
        found = search.at(origin + share * direction)
        slope = inner(search.gradient(found.duals, found.residual), direction)
        if slope <= -search.settings.accepted_slope * first_slope:
            search.point = found
            return True
        if search.monitor.limit() is not None:
            break
        cut = -first_slope / (slope - first_slope)
        share *= min(max(cut, 0.1), 0.5) if np.isfinite(cut) else 0.1
    return False
