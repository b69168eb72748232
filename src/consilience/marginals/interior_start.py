"""Parameters near those of a table of least squares, by an interior-point method.

The dual of least squares has kinks, and on a nearly degenerate table Newton's method meets very many of them. At one
small μ the problem is, with t = n p,

    min ‖t‖² / 2n + ‖coefficients of t/n − b‖² / 2μ     such that  t ≥ 0,

and its conditions are t = Bλ + z, Bᵀt/n + μλ = b, t ≥ 0, z ≥ 0, tz = 0. Newton's method on these with tz = τ, with τ
falling as quickly as a trial step promises and the trial's second-order error corrected (Mehrotra 1992), needs about
fifteen factorisations of the moments with the weights t / (t + z) / n. What is left is to round off: `dual_path`.
"""

from dataclasses import dataclass

import numpy as np

from consilience.marginals.dual_path import Array, Dual
from consilience.marginals.moment_equations import Solver

MOST_STEPS = 50

NEARLY = 1e-11
"""The mean of t·z, and the largest misfit of the equations, at which the search ends."""

BACK = 0.995
"""How much of the way to the nearest bound is gone at most."""


@dataclass(frozen=True, eq=False)
class _Point:
    """λ, t and z."""

    parameters: Array
    counts: Array
    spare: Array

    def moved(self, change: "_Point", length: float) -> "_Point":
        return _Point(
            self.parameters + length * change.parameters,
            self.counts + length * change.counts,
            self.spare + length * change.spare,
        )


def interior_start(dual: Dual, start: Array, smoothing: float) -> tuple[Array, int]:
    """Parameters near the end of the path at this μ, and the steps that led there."""
    ones = np.ones(dual.layout.cells)
    now = _Point(start, ones, ones)
    damping = dual.damping(smoothing)
    for steps in range(MOST_STEPS):
        system = _System(dual, now, damping)
        if max(system.gap, float(np.abs(system.residual).max())) <= NEARLY:
            return now.parameters, steps
        solve = dual.equations.solver(system.weights / dual.layout.cells, damping)
        trial = system.step(solve, np.zeros(dual.layout.cells))
        promised = system.gap_of(now.moved(trial, system.reach(trial)))
        corrected = promised * (promised / system.gap) ** 2 - trial.counts * trial.spare
        change = system.step(solve, corrected)
        now = now.moved(change, min(1.0, BACK * system.reach(change)))
    return now.parameters, MOST_STEPS


class _System:
    """The conditions at a point: by how much they fail, and the changes that would mend them to first order."""

    def __init__(self, dual: Dual, now: _Point, damping: Array) -> None:
        self.layout, self.support, self.now = dual.layout, dual.support, now
        self.misses = now.counts - self.layout.energies(now.parameters) - now.spare
        self.residual = self._mean(now.counts) - dual.targets + damping * now.parameters
        self.weights = np.where(self.support, now.counts / (now.counts + now.spare), 0.0)
        self.gap = self.gap_of(now)

    def gap_of(self, point: _Point) -> float:
        return float(np.mean((point.counts * point.spare)[self.support]))

    def _mean(self, table: Array) -> Array:
        """Bᵀ table / n."""
        return self.layout.coefficients_of(np.where(self.support, table, 0.0)) / self.layout.cells

    def step(self, solve: Solver, products: Array) -> _Point:
        """The changes after which, to first order, all conditions hold with these products t·z."""
        counts, spare = self.now.counts, self.now.spare
        pull = products / counts - spare - self.misses
        parameters = solve(-self.residual - self._mean(self.weights * pull))
        more = self.weights * (self.layout.energies(parameters) + pull)
        return _Point(parameters, more, np.where(self.support, (products - spare * more) / counts - spare, 0.0))

    def reach(self, change: _Point) -> float:
        """The longest step, up to a full one, that leaves t and z not negative."""
        longest = 1.0
        for here, move in ((self.now.counts, change.counts), (self.now.spare, change.spare)):
            falling = move < 0.0
            longest = min(longest, float(np.min(here[falling] / -move[falling], initial=1.0)))
        return longest
