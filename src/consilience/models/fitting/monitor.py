"""The best model an optimiser has met, what is proven about it, and when to stop."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consilience.models.counted_oracle import CountedOracle
from consilience.solvers.fit import Status

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
