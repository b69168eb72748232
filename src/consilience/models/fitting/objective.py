"""What a model is judged by: the costs of its measured rows, or any convex loss of its marginals.

First-order optimisers need a loss, its gradient in the flat marginals, and a bound on how far it is above its least
value. For costs of rows the bound comes from duals (`certificate`); a loss that is known by value and gradient alone
has the bound g·μ + N·max(−g) of its gradient.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.models.fitting.rows import MeasuredRows
from consilience.models.oracle import CountedOracle
from consilience.solvers.fit import Status
from consilience.solvers.tables.row_costs import RowCosts

# ----------------------------------------------------------------------------------------------------------------------
# The best model an optimiser has met, what is proven about it, and when to stop.


Array = NDArray[np.float64]
Progress = Callable[[int, float, float], None]

SETTLED = 0.5
"""The share of the gap that is asked for at which an earlier model is as good as the last one."""


@dataclass
class Monitor:
    """Keeps the best potentials and the best lower bound, and says when to stop and why."""

    oracle: CountedOracle
    tolerance: float
    scale: float
    """The cost that noise alone leads one to expect; gaps are compared with it where it exceeds the objective."""
    max_steps: int
    deadline: float
    noise_level: float = -np.inf
    """The objective at which to stop at once; −∞ for never."""
    progress: Progress | None = None
    potentials: Array = field(default_factory=lambda: np.empty(0))
    marginals: Array = field(default_factory=lambda: np.empty(0))
    objective: float = np.inf
    bound: float = -np.inf
    steps: int = 0
    _remembered: list[tuple[Array, float]] = field(default_factory=list)
    above: Array | None = None
    """The last potentials whose objective was above the noise level."""

    @property
    def gap(self) -> float:
        return max(self.objective - self.bound, 0.0)

    @property
    def enough(self) -> float:
        """The gap at which to stop."""
        objective = abs(self.objective) if np.isfinite(self.objective) else 0.0
        return self.tolerance * max(objective, self.scale)

    def meet(self, potentials: Array, marginals: Array, objective: float) -> Status | None:
        """Take note of a model; a status if it is time to stop."""
        self.steps += 1
        if objective > self.noise_level > -np.inf:
            self.above = potentials
        if objective < self.objective:
            self.potentials, self.marginals, self.objective = potentials, marginals, objective
        if self.progress is not None:
            self.progress(self.oracle.calls, self.objective, self.gap)
        return self.verdict()

    def prove(self, bound: float) -> Status | None:
        """Take note of a proven lower bound; a status if it is time to stop."""
        self.bound = max(self.bound, bound)
        if self.progress is not None:
            self.progress(self.oracle.calls, self.objective, self.gap)
        return self.verdict()

    def for_another_objective(self, *, tolerance: float, scale: float, noise_level: float = -np.inf) -> "Monitor":
        """A monitor with the same limits that knows no model yet."""
        limits = (self.max_steps, self.deadline)
        return Monitor(self.oracle, tolerance, scale, *limits, noise_level=noise_level, bound=0.0)

    def remember(self, potentials: Array, objective: float) -> None:
        """Keep a model that may turn out to have been good enough."""
        self._remembered.append((potentials, objective))

    def settle(self) -> None:
        """Go back to the first model remembered that is now known to be good enough.

        Proofs take steps in which the model hardly gets better, while its potentials still grow: the earlier one is as
        good, kinder to exponentials, and easier to begin another fit with.
        """
        for potentials, objective in self._remembered:
            if objective - self.bound <= SETTLED * self.enough:
                self.potentials, self.objective = potentials, objective
                self.marginals = self.oracle.marginals(potentials).values
                return

    def verdict(self) -> Status | None:
        """Why to stop now; None to go on."""
        if self.gap <= self.enough or self.objective <= self.noise_level:
            return Status.CONVERGED
        return self.limit()

    def limit(self) -> Status | None:
        """The limit that has been reached, if any."""
        if self.oracle.calls >= self.max_steps:
            return Status.STEP_LIMIT
        return Status.TIME_LIMIT if time.monotonic() >= self.deadline else None


# ----------------------------------------------------------------------------------------------------------------------
# How far a model can be from the best one at most: bounds from duals of rows, and from gradients.
#
# For duals ν at which the conjugates φ* are finite, every model μ with the total N has the cost
#
#     Σ φ(Bμ − c) ≥ νᵀ(Bμ − c) − Σ φ*(ν) ≥ −N·max over cells x of (−Bᵀν)(x) − cᵀν − Σ φ*(ν),
#
# because the marginals of a model mix those of single cells. The largest potential of a cell is exact (max-sum), so the
# bound is proven. For any convex loss with gradient g at μ, likewise, L(μ) − L(best) ≤ g·μ + N·max(−g) (Frank & Wolfe
# 1956, Nav. Res. Logist. Q. 3). Both need the same number of the linear function ν·B or g: its slack. `RowCosts.gap`
# does the rest for duals.


def slack_of(oracle: CountedOracle, gradient: Array, marginals: Array) -> float:
    """g·μ + N·max(−g): how much lower than at these marginals a linear function can be, at most."""
    work = float(np.einsum("i,i->", gradient, marginals))
    return max(work + oracle.total * oracle.largest(-gradient), 0.0)


# ----------------------------------------------------------------------------------------------------------------------
# What a model is judged by: the costs of its measured rows, or any convex loss of its marginals.


class ConvexLoss(Protocol):
    """Any convex function of answers with its gradient; answers are rows, or flat marginals where there are none."""

    def value_and_gradient(self, answers: Array) -> tuple[float, Array]: ...


class ModelLoss(Protocol):
    """A convex loss of flat marginals."""

    def value(self, marginals: Array) -> float: ...

    def value_and_gradient(self, marginals: Array) -> tuple[float, Array]: ...

    def gap(self, oracle: CountedOracle, marginals: Array) -> float:
        """By how much, at most, the loss at these marginals exceeds that of the best model."""
        ...


@dataclass(frozen=True, eq=False)
class RowLoss:
    """The costs of measured rows; where a cost has a kink its gradient is one of its slopes there."""

    rows: MeasuredRows
    costs: RowCosts

    def __post_init__(self) -> None:
        if self.costs.exact.any():
            raise DeclarationError(
                f"{np.count_nonzero(self.costs.exact)} rows are exact, which gradients cannot keep: use the proximal "
                "optimiser, or give these rows noise"
            )

    def value(self, marginals: Array) -> float:
        return self.costs.value(self.rows.apply(marginals) - self.costs.observed)

    def value_and_gradient(self, marginals: Array) -> tuple[float, Array]:
        residual = self.rows.apply(marginals) - self.costs.observed
        return self.costs.value(residual), self.rows.adjoint(self._duals(residual))

    def gap(self, oracle: CountedOracle, marginals: Array) -> float:
        residual = self.rows.apply(marginals) - self.costs.observed
        duals = self._duals(residual)
        return self.costs.gap(residual, duals, slack_of(oracle, self.rows.adjoint(duals), marginals))

    def _duals(self, residual: Array) -> Array:
        """φ'(r)."""
        felt = self.costs.felt(residual)
        return np.where(felt > 0, np.sign(residual) * (self.costs.slope + self.costs.curvature * felt), 0.0)


@dataclass(frozen=True, eq=False)
class CustomLoss:
    """A convex loss that someone else wrote, of rows or of flat marginals; what is not finite is refused."""

    loss: ConvexLoss
    rows: MeasuredRows | None

    def value(self, marginals: Array) -> float:
        return self.value_and_gradient(marginals)[0]

    def value_and_gradient(self, marginals: Array) -> tuple[float, Array]:
        answers = marginals if self.rows is None else self.rows.apply(marginals)
        value, gradient = self.loss.value_and_gradient(answers)
        gradient = np.asarray(gradient, dtype=np.float64)
        if gradient.shape != answers.shape:
            raise DeclarationError(
                f"the gradient of the loss has shape {gradient.shape} for answers of shape {answers.shape}: give one "
                "derivative for each answer"
            )
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            raise DeclarationError(
                f"the loss is {value} and {np.count_nonzero(~np.isfinite(gradient))} of its {gradient.size} "
                "derivatives are not finite: a loss must be finite at the marginals of every model, with zeros too"
            )
        return float(value), gradient if self.rows is None else self.rows.adjoint(gradient)

    def gap(self, oracle: CountedOracle, marginals: Array) -> float:
        return slack_of(oracle, self.value_and_gradient(marginals)[1], marginals)


# ----------------------------------------------------------------------------------------------------------------------
# What all first-order optimisers over models share: where they start, what they minimise, who watches.


STEPS_BETWEEN_BOUNDS = 20


@dataclass(frozen=True, eq=False)
class SmoothSearch:
    """A loss to be made small over models, from some potentials on."""

    oracle: CountedOracle
    loss: ModelLoss
    monitor: Monitor
    start: Array

    def note(self, potentials: Array, marginals: Array, objective: float) -> Status | None:
        """Take note of a model, and now and then of what its gradient proves; a status if it is time to stop."""
        status = self.monitor.meet(potentials, marginals, objective)
        if status is None and self.monitor.steps % STEPS_BETWEEN_BOUNDS == 0:
            status = self.monitor.prove(objective - self.loss.gap(self.oracle, marginals))
        return status
