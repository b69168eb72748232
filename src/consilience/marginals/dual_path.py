"""Tables with given coefficients, or the nearest to them that non-negative tables can have, by Newton's method.

With b the coefficients that the margins ask for, λ one parameter for each, and E = Σ_s λ_s contrast_s, both kinds of
tables that are sought here minimise a smooth convex dual,

    greatest entropy:  log Σ_x exp E_x − b·λ,         the table being  exp E_x / Σ exp E,
    least squares:     ½ Σ_x max(0, E_x)² / n − b·λ,  the table being  max(0, E_x) / n.

Where the margins belong to no non-negative table these have no minimum. With the term (μ/2)‖λ‖² added they always have
one, and only one; its table p minimises

    (1 / 2μ) ‖coefficients of p − b‖²  −  entropy of p   (or + n/2 ‖p‖²),

and coefficients of p − b = −μλ. So as μ → 0 the violation becomes the least there is, and among the tables with this
violation the limit is the one of greatest entropy, or of least squares; where margins are compatible the violation is
0. Every table on the way is the best for its own margins, so a μ that is merely small costs nothing but a slightly
larger violation.

*Method.* μ falls by a factor of 10 at a time, and at each value Newton's method, with steps halved where they lead too
far, starts where the last one ended. The path ends when the violation is below the tolerance, or stops falling although
μ does, which compatible margins never show: with them it falls like μ.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.entropy_kernels import respond_with_shares, respond_with_squares
from consilience.marginals.margin_kernels import announce_once
from consilience.marginals.margin_layouts import MarginLayout
from consilience.marginals.moment_equations import MomentEquations

Array = NDArray[np.float64]
Kind = Literal["entropy", "squares"]

FALL = 0.1
SMALLEST = 1e-13
"""What μ is multiplied by at each level, and where it ends."""

PLATEAU = 0.9
RELAXED_FROM = 1.5e-7
RELAXED_FROM_BY_GRADIENTS = 1.5e-4
"""A violation above this part of that of the level before, with μ below these, is one that margins cannot avoid. Where
conjugate gradients solve the equations, much smaller values of μ would be out of their reach."""

CLOSE = 0.02
"""The share of the violation, or of the tolerance, that the gradient may keep at the end of a level."""

SHORTEST = 1e-8
"""The shortest Newton step, in parts of the full one; what would ask for shorter ones is rounding."""

STEPS_A_LEVEL = 120
STEPS_BY_GRADIENTS = 40
"""The most Newton steps at one value of μ, and where conjugate gradients make them."""


@dataclass(frozen=True, eq=False)
class DualPoint:
    """A table in parts of its total."""

    table: Array
    steps: int
    settled: bool
    """Whether the tolerance was reached, or the least violation."""


@dataclass(frozen=True, eq=False)
class _Response:
    value: float
    gradient: Array
    table: Array
    coefficients: Array


class Dual:
    """The dual of one table with given coefficients; cells outside the support are 0."""

    def __init__(self, layout: MarginLayout, support: NDArray[np.bool_], targets: Array, kind: Kind) -> None:
        self.layout = layout
        self.support = support
        self.targets = targets
        self.kind = kind
        self.equations = MomentEquations(layout, support)
        self._gathered = np.empty(layout.numbers.size)
        written_out = self.equations.written_out
        self._relaxed_from = RELAXED_FROM if written_out else RELAXED_FROM_BY_GRADIENTS
        self._steps_a_level = STEPS_A_LEVEL if written_out else STEPS_BY_GRADIENTS

    def follow(self, start: Array, *, first: float, tolerance: float, most_steps: int) -> DualPoint:
        """The table at the end of the path that begins with μ = `first`."""
        smoothing, steps, parameters = first, 0, start
        before, table = np.inf, np.empty(0)
        while True:
            parameters, now, made = self._descend(parameters, smoothing, tolerance, most_steps - steps)
            steps += made
            size = float(np.linalg.norm(now.coefficients - self.targets))
            if size > before and float(np.abs(now.gradient).max()) > CLOSE * size:
                return DualPoint(table, steps, False)
            if float(np.abs(now.coefficients - self.targets).max()) <= tolerance:
                return DualPoint(now.table, steps, True)
            if smoothing <= self._relaxed_from and size > PLATEAU * before:
                _, now, made = self._descend(parameters, smoothing, tolerance, most_steps - steps, share=0.0)
                return DualPoint(now.table, steps + made, True)
            if steps >= most_steps or smoothing <= SMALLEST:
                return DualPoint(now.table, steps, False)
            before, table = size, now.table
            smoothing *= FALL

    def damping(self, smoothing: float) -> Array:
        """μ for every parameter; in least squares none for the total's, which so stays exact."""
        found = np.full(self.layout.rows, smoothing)
        if self.kind == "squares":
            found[0] = 0.0
        return found

    def _descend(
        self, parameters: Array, smoothing: float, tolerance: float, most_steps: int, *, share: float = CLOSE
    ) -> tuple[Array, _Response, int]:
        """Newton steps at one μ until the gradient is a small share of what μ itself contributes to it.

        With no share allowed they go on, near the end as they are, until rounding keeps the gradient from halving.
        """
        damping = self.damping(smoothing)
        now = self._respond(parameters, damping)
        before = np.inf
        for steps in range(min(self._steps_a_level, most_steps)):
            enough = max(share * float(np.abs(damping * parameters).max()), CLOSE * tolerance)
            steepest = float(np.abs(now.gradient).max())
            if steepest <= enough or (share == 0.0 and steepest > 0.5 * before):
                return parameters, now, steps
            before = steepest
            direction = self._direction(now, damping)
            slope = float(now.gradient @ direction)
            rounding = 1e-15 * (abs(now.value) + float(np.abs(parameters) @ np.abs(self.targets)))
            length = 1.0
            ahead = self._respond(parameters + direction, damping)
            while ahead.value > now.value + 1e-4 * length * slope + rounding and length > SHORTEST:
                length *= 0.5
                ahead = self._respond(parameters + length * direction, damping)
            if length <= SHORTEST:
                return parameters, now, steps
            parameters, now = parameters + length * direction, ahead
        return parameters, now, min(self._steps_a_level, most_steps)

    def _respond(self, parameters: Array, damping: Array) -> _Response:
        layout = self.layout
        table, coefficients = np.empty(layout.cells), np.empty(layout.rows)
        kernel = respond_with_shares if self.kind == "entropy" else respond_with_squares
        announce_once(kernel)
        value = kernel(
            parameters, self.support, layout.outer, layout.inner, layout.even, layout.starts, layout.bounds,
            layout.sizes, layout.homes, self._gathered, table, coefficients,
        )  # fmt: skip
        held = damping * parameters
        value += 0.5 * float(held @ parameters) - float(self.targets @ parameters)
        return _Response(value, coefficients - self.targets + held, table, coefficients)

    def _direction(self, now: _Response, damping: Array) -> Array:
        if self.kind == "entropy":
            return self.equations.solver(now.table, damping, now.coefficients)(-now.gradient)
        weights = np.where(now.table > 0.0, 1.0 / self.layout.cells, 0.0)
        return self.equations.solver(weights, damping)(-now.gradient)
