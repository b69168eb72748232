"""Accelerated mirror descent over models, with steps found by comparing curvature with relative entropy.

    y = (A·x + a·z)/(A + a),   u ← u − a·∇L(y),   z ← μ(u),   x ← (A·x + a·z)/(A + a),   A ← A + a

with a = (1 + √(1 + 4KA))/2K (Tseng 2008; Auslender & Teboulle 2006). K is eased and doubled so that the loss bends no
more between y and the new x than KL(z_new, z_old)/(A + a) allows, and the averages start anew where the loss rises.
This needs no constants, for any smooth convex loss. What is judged, and returned, are the potentials u with their own
marginals z.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.models.fitting.optimisers import SmoothSearch
from consilience.models.oracle import Marginals
from consilience.solvers.fit import Status

Array = NDArray[np.float64]

EASING = 0.8
ROUNDING = 1e-13
SMALLEST = 1e-30


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
        self.steepness = max(float(np.ptp(gradient)), SMALLEST)

    def to_the_end(self) -> Status:
        status = self.search.note(self.potentials, self.newest.values, self.value)
        while status is None:
            status = self._step()
            self.steepness *= EASING
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
            bend = new_value - value - _inner(gradient, averaged - between)
            if bend <= self._allowed(potentials, found) / (self.mass + weight) or self.steepness > 1.0 / SMALLEST:
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
        change = _inner(potentials - self.potentials, found.values)
        fall = self.search.oracle.total * (found.log_partition - self.newest.log_partition)
        size = abs(change) + self.search.oracle.total * (abs(found.log_partition) + abs(self.newest.log_partition))
        return change - fall + ROUNDING * size


def _inner(a: Array, b: Array) -> float:
    return float(np.einsum("i,i->", a, b))
