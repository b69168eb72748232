"""Algorithm 1 of McKenna, Sheldon & Miklau (2019): mirror descent over models, with entropy as its geometry.

    θ ← θ − η·∇L(μ(θ)),    which is μ ← argmin over models of η·∇L(μ)·m + KL(m, μ)  (Beck & Teboulle 2003).

The step η is fixed, falls like 1/√t, or is found by Armijo's rule: it is halved until the loss falls by half of what
its gradient promises, and grows again after every success. For one table over all cells and η = 1/2N it is the
multiplicative weights update x ← x·exp(−∇L/2N), all answers at once (appendix E.2, whose sign is misprinted).
"""

from dataclasses import dataclass

import numpy as np

from consilience.errors import DeclarationError
from consilience.models.fitting.optimisers import SmoothSearch
from consilience.solvers.fit import Status

SUFFICIENT = 0.5
GROWTH, SHRINKAGE = 1.4, 0.5
SMALLEST = 1e-30


@dataclass(frozen=True)
class FixedStep:
    """The same η in every step."""

    size: float

    def __post_init__(self) -> None:
        _check_size(self.size)


@dataclass(frozen=True)
class DecreasingStep:
    """η = size/√t in step t, which converges for losses with kinks too."""

    size: float

    def __post_init__(self) -> None:
        _check_size(self.size)


@dataclass(frozen=True)
class LineSearch:
    """Armijo's rule."""


@dataclass(frozen=True)
class MirrorDescent:
    """Algorithm 1 with one of its three ways to choose the step."""

    step: FixedStep | DecreasingStep | LineSearch = LineSearch()

    name = "mirror descent"

    def run(self, search: SmoothSearch) -> Status:
        """Steps until the monitor says why to stop."""
        if isinstance(self.step, LineSearch):
            return _with_line_search(search)
        potentials, steps = search.start.copy(), 0
        while True:
            marginals = search.oracle.marginals(potentials).values
            objective, gradient = search.loss.value_and_gradient(marginals)
            status = search.note(potentials, marginals, objective)
            if status is not None:
                return status
            steps += 1
            size = self.step.size if isinstance(self.step, FixedStep) else self.step.size / steps**0.5
            potentials = potentials - size * gradient


def _with_line_search(search: SmoothSearch) -> Status:
    potentials = search.start.copy()
    marginals = search.oracle.marginals(potentials).values
    objective, gradient = search.loss.value_and_gradient(marginals)
    size = 1.0 / max(float(np.ptp(gradient)), SMALLEST)
    status = search.note(potentials, marginals, objective)
    while status is None:
        moved = potentials - size * gradient
        there = search.oracle.marginals(moved).values
        value, slope = search.loss.value_and_gradient(there)
        promised = float(np.einsum("i,i->", gradient, marginals)) - float(np.einsum("i,i->", gradient, there))
        if objective - value >= SUFFICIENT * promised > 0.0:
            potentials, marginals, objective, gradient = moved, there, value, slope
            size *= GROWTH
        else:
            size *= SHRINKAGE
        status = Status.STALLED if size < SMALLEST else search.note(potentials, marginals, objective)
    return status


def _check_size(size: float) -> None:
    if not (np.isfinite(size) and size > 0):
        raise DeclarationError(f"the step of mirror descent is {size}; it must be a positive number")
