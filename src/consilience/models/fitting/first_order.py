"""Algorithm 1 of McKenna, Sheldon & Miklau (2019): mirror descent over models, with entropy as its geometry.

    θ ← θ − η·∇L(μ(θ)),    which is μ ← argmin over models of η·∇L(μ)·m + KL(m, μ)  (Beck & Teboulle 2003).

The step η is fixed, falls like 1/√t, or is found by Armijo's rule: it is halved until the loss falls by half of what
its gradient promises, and grows again after every success. Next to a kink no step may keep such a promise, so that
Armijo's rule can end far above the least loss; steps that fall like 1/√t converge there too, at the rate 1/√t.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from consilience.errors import DeclarationError
from consilience.models.fitting.objective import RowLoss, SmoothSearch
from consilience.models.oracle import Marginals
from consilience.solvers.fit import Status
from consilience.solvers.tables.table_problem import inner


@dataclass(frozen=True)
class StepSettings:
    """How steps are found; by trial, and no figures were kept."""

    sufficient: float = 0.5
    """The share of what its gradient promises by which the loss must fall (Armijo's rule)."""
    growth: float = 1.4
    """What a step is times after a success,"""
    shrinkage: float = 0.5
    """and after a failure."""
    easing: float = 0.8
    """What the curvature K of accelerated descent is times after every step."""
    divergence_rounding: float = 1e-13
    """What rounding may do to a relative entropy, in parts of the terms whose difference it is."""
    smallest: float = 1e-30
    """Steps and ranges of gradients below this are 0, and curvatures above its inverse infinite."""


DESCENT = StepSettings()


@dataclass(frozen=True)
class MirrorDescent:
    """Algorithm 1. `step` is "line-search", "decreasing", or the η of every step.

    A decreasing step is √(2·ln n/t)/G in step t, for n cells in all and half the range G of the first gradient over
    cells: the step of the smallest bound on the error (Beck & Teboulle 2003, Theorem 4.2), for no model is farther than
    ln n from the uniform one.
    """

    step: Literal["line-search", "decreasing"] | float = "line-search"

    name = "mirror descent"

    def run(self, search: SmoothSearch) -> Status:
        """Steps until the monitor says why to stop."""
        return self._by_line_search(search) if self.step == "line-search" else self._by_rule(search)

    def _by_rule(self, search: SmoothSearch) -> Status:
        potentials, steps, size = search.start.copy(), 0, self.step
        while True:
            marginals = search.oracle.marginals(potentials).values
            objective, gradient = search.loss.value_and_gradient(marginals)
            status = search.note(potentials, marginals, objective)
            if status is not None:
                return status
            if isinstance(size, str):
                reach = (search.oracle.largest(gradient) + search.oracle.largest(-gradient)) / 2.0
                log_cells = sum(math.log(each) for each in search.oracle.layout.sizes)
                size = math.sqrt(2.0 * log_cells) / max(reach, DESCENT.smallest)
            steps += 1
            potentials = potentials - (size / math.sqrt(steps) if self.step == "decreasing" else size) * gradient

    def _by_line_search(self, search: SmoothSearch) -> Status:
        potentials = search.start.copy()
        marginals = search.oracle.marginals(potentials).values
        objective, gradient = search.loss.value_and_gradient(marginals)
        size = 1.0 / max(float(np.ptp(gradient)), DESCENT.smallest)
        status = search.note(potentials, marginals, objective)
        while status is None:
            moved = potentials - size * gradient
            there = search.oracle.marginals(moved).values
            value, slope = search.loss.value_and_gradient(there)
            promised = inner(gradient, marginals) - inner(gradient, there)
            if objective - value >= DESCENT.sufficient * promised > 0.0:
                potentials, marginals, objective, gradient = moved, there, value, slope
                size *= DESCENT.growth
            else:
                size *= DESCENT.shrinkage
            status = Status.STALLED if size < DESCENT.smallest else search.note(potentials, marginals, objective)
        return status


# ----------------------------------------------------------------------------------------------------------------------
# Accelerated mirror descent over models, with steps found by comparing curvature with relative entropy.
#
#     y = (A·x + a·z)/(A + a),   u ← u − a·∇L(y),   z ← μ(u),   x ← (A·x + a·z)/(A + a),   A ← A + a
#
# with a = (1 + √(1 + 4KA))/2K (Tseng 2008; Auslender & Teboulle 2006). K is eased and doubled so that the loss bends no
# more between y and the new x than KL(z_new, z_old)/(A + a) allows, and the averages start anew where the loss rises.
# This needs no constants, for any smooth convex loss. What is judged, and returned, are the potentials u with their own
# marginals z.


Array = NDArray[np.float64]


@dataclass(frozen=True)
class AcceleratedDescent:
    """Accelerated mirror descent; it has no options."""

    name = "accelerated descent"

    def run(self, search: SmoothSearch) -> Status:
        """Steps until the monitor says why to stop."""
        return _Run(search).to_the_end()


class _Run:
    def __init__(self, search: SmoothSearch) -> None:
        self.search = search
        self.potentials = search.start.copy()
        self.newest = search.oracle.marginals(self.potentials)
        self.averaged, self.mass = self.newest.values, 0.0
        self.value, gradient = search.loss.value_and_gradient(self.averaged)
        self.steepness = max(float(np.ptp(gradient)), DESCENT.smallest)

    def to_the_end(self) -> Status:
        status = self.search.note(self.potentials, self.newest.values, self.value)
        while status is None:
            status = self._step()
            self.steepness *= DESCENT.easing
        return status

    def _step(self) -> Status | None:
        search, loss = self.search, self.search.loss
        while True:
            weight = (1.0 + (1.0 + 4.0 * self.steepness * self.mass) ** 0.5) / (2.0 * self.steepness)
            share = weight / (self.mass + weight)
            between = self.averaged + share * (self.newest.values - self.averaged)
            value, gradient = loss.value_and_gradient(between)
            potentials = self.potentials - weight * gradient
            found = search.oracle.marginals(potentials)
            averaged = self.averaged + share * (found.values - self.averaged)
            new_value = loss.value(averaged)
            bend = new_value - value - inner(gradient, averaged - between)
            allowed = self._allowed(potentials, found) / (self.mass + weight)
            if bend <= allowed or self.steepness > 1.0 / DESCENT.smallest:
                break
            self.steepness *= 2.0
            if search.monitor.limit() is not None:
                return search.monitor.limit()
        if new_value > self.value and self.mass > 0.0:
            averaged, new_value, self.mass = found.values, loss.value(found.values), 0.0
        else:
            self.mass += weight
        self.potentials, self.newest, self.averaged, self.value = potentials, found, averaged, new_value
        return search.note(potentials, found.values, loss.value(found.values))

    def _allowed(self, potentials: Array, found: Marginals) -> float:
        """KL(z_new, z_old), and what rounding may do to it."""
        change = inner(potentials - self.potentials, found.values)
        fall = self.search.oracle.total * (found.log_partition - self.newest.log_partition)
        size = abs(change) + self.search.oracle.total * (abs(found.log_partition) + abs(self.newest.log_partition))
        return change - fall + DESCENT.divergence_rounding * size


# ----------------------------------------------------------------------------------------------------------------------
# Algorithm 2 of McKenna, Sheldon & Miklau (2019): accelerated regularised dual averaging (Xiao 2010, Algorithm 3).
#
#     ω = (1 − c)μ + cν,   ḡ = (1 − c)ḡ + c·∇L(ω),   θ = −t(t + 1)/4K · ḡ,   ν = μ(θ),   μ = (1 − c)μ + cν
#
# with c = 2/(t + 1). K is the Lipschitz constant of ∇L between the norm Σ|·| of cells and the largest entry, in counts:
# for rows B with curvatures q, no more than N·max over cells x of Σ q·B(x)². The averaged marginals μ converge fastest,
# but no potentials are known for them: what is judged, and returned, are the potentials θ with their own marginals ν.


@dataclass(frozen=True)
class DualAveraging:
    """Algorithm 2, for costs that are squares; it has no options."""

    name = "dual averaging"

    def run(self, search: SmoothSearch) -> Status:
        """Steps until the monitor says why to stop."""
        constant = self._constant(search)
        averaged = newest = search.oracle.marginals(search.start).values
        mean_gradient = np.zeros_like(averaged)
        status, steps = search.note(search.start, newest, search.loss.value(newest)), 0
        while status is None:
            steps += 1
            share = 2.0 / (steps + 1)
            between = averaged + share * (newest - averaged)
            gradient = search.loss.value_and_gradient(between)[1]
            mean_gradient += share * (gradient - mean_gradient)
            potentials = search.start - (steps * (steps + 1) / (4.0 * constant)) * mean_gradient
            newest = search.oracle.marginals(potentials).values
            averaged = averaged + share * (newest - averaged)
            status = search.note(potentials, newest, search.loss.value(newest))
        return status

    @staticmethod
    def _constant(search: SmoothSearch) -> float:
        """K."""
        loss = search.loss
        if not isinstance(loss, RowLoss) or loss.costs.slope.any():
            raise DeclarationError(
                "dual averaging needs the Lipschitz constant of the loss, which is known for sums of squares alone: "
                "choose another optimiser"
            )
        steepness = loss.rows.adjoint_squared(loss.costs.curvature)
        return search.oracle.total * max(search.oracle.largest(steepness), np.finfo(np.float64).tiny)


# ----------------------------------------------------------------------------------------------------------------------
# The direct method of McKenna, Sheldon & Miklau (2019), appendix A.3: L-BFGS on θ ↦ L(μ(θ)).
#
# The derivative of the marginals by the potentials is their covariance under the model, which is symmetric. So the
# gradient of L(μ(θ)) is the derivative of the marginals in the direction ∇L. The function is not convex in θ, and each
# gradient costs a call of the oracle and a derivative; it is here to compare with.


class _Stop(Exception):
    """Ends the minimiser from within."""

    def __init__(self, status: Status) -> None:
        self.status = status


@dataclass(frozen=True)
class Direct:
    """L-BFGS on the potentials, keeping so many corrections."""

    corrections: int = 10

    name = "direct"

    def run(self, search: SmoothSearch) -> Status:
        """Steps until the monitor says why to stop, or L-BFGS finds nothing lower."""
        first = max(search.loss.value(search.oracle.marginals(search.start).values), 1.0)

        def lower(potentials: Array) -> tuple[float, Array]:
            marginals = search.oracle.marginals(potentials).values
            objective, gradient = search.loss.value_and_gradient(marginals)
            status = search.note(potentials.copy(), marginals, objective)
            if status is not None:
                raise _Stop(status)
            return objective / first, search.oracle.derivative(potentials, gradient) / first

        options = {"maxcor": self.corrections, "maxiter": 10**6, "maxfun": 10**6, "ftol": 0.0, "gtol": 0.0}
        try:
            minimize(lower, search.start, jac=True, method="L-BFGS-B", options=options)
        except _Stop as stop:
            return stop.status
        monitor = search.monitor
        proven = monitor.prove(monitor.objective - search.loss.gap(search.oracle, monitor.marginals))
        return proven or Status.STALLED
