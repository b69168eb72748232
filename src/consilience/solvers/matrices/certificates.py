"""Lower bounds on min cost(Ax − y) from multipliers of its rows.

For every l with Aᵀl ≥ 0 (Aᵀl = 0 where x may be negative) and every x that is allowed, cost(Ax − y) ≥ −lᵀy −
cost*(l).
Multipliers from a solver satisfy this nearly. They are repaired by a *cover*, a vector v with Aᵀv > 0 that lifts all
columns, with or without the shortest change first that lifts exactly those that need it, whichever gives more; and
then divided by what makes the conjugate finite again, which keeps Aᵀl ≥ 0. Where no cover is known, as there is none
if Ax = 0 for some x ≥ 0 that is not 0, a violation within rounding is charged at twice the size of the cells at hand.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse.linalg

from consilience.solvers.matrices.row_costs import Array, RowCosts
from consilience.solvers.matrices.strategies import Strategy

ROUNDING = 1e-9
"""The largest violation of Aᵀl ≥ 0, relative to the length of l, that counts as rounding where there is no cover."""


@dataclass(frozen=True, eq=False)
class Certifier:
    """Bounds for one problem whose columns have length 1."""

    strategy: Strategy
    costs: RowCosts
    nonnegative: bool
    lift: Callable[[Array], Array]
    """The shortest Δ for which AᵀΔ comes nearest to given slopes."""

    def bound(self, multipliers: Array, cells: Array) -> float:
        """A number that no cells fall below; 0 always is one."""
        legal = self.costs.legal(multipliers)
        if not np.all(np.isfinite(legal)):
            return 0.0
        slopes = self.strategy.adjoint(legal)
        wrong = np.minimum(slopes, 0.0) if self.nonnegative else slopes
        if not wrong.any():
            return max(0.0, self._value(legal, 0.0))
        lifted = legal - self.lift(wrong)
        if self.nonnegative:
            proven = max(self._covered(legal), self._covered(lifted))
            if proven > 0.0:
                return proven
        return max(0.0, self._charged(legal, cells), self._charged(lifted, cells))

    def _value(self, multipliers: Array, charge: float) -> float:
        divisor = max(self.costs.overpush(multipliers), 1.0)
        if not np.isfinite(divisor):
            return 0.0
        legal = multipliers / divisor
        return -float(legal @ self.costs.noisy) - self.costs.conjugate(legal) - charge

    @cached_property
    def _cover(self) -> tuple[Array, Array] | None:
        """A vector v on the measured rows with Aᵀv > 0 in all columns, and Aᵀv."""
        measured = (self.costs.up.slope > 0.0) | (self.costs.up.curvature > 0.0)
        rows, columns = self.strategy.shape
        for vector in (self.lift(np.ones(columns)), np.ones(rows)):
            reached = self.strategy.adjoint(vector * measured)
            if reached.min() > 1e-6 * reached.max():
                return vector * measured, reached
        return None

    def _covered(self, multipliers: Array) -> float:
        if self._cover is None:
            return 0.0
        cover, reached = self._cover
        short = float(np.max(-self.strategy.adjoint(multipliers) / reached, initial=0.0))
        return self._value(multipliers + short * cover, 0.0)

    def _charged(self, multipliers: Array, cells: Array) -> float:
        legal = self.costs.legal(multipliers)
        slopes = self.strategy.adjoint(legal)
        worst = float(np.abs(np.minimum(slopes, 0.0) if self.nonnegative else slopes).max(initial=0.0))
        if worst > ROUNDING * float(np.linalg.norm(legal)):
            return 0.0
        return self._value(legal, 2.0 * worst * float(np.abs(cells).sum()))


def lift_by_iteration(strategy: Strategy, slopes: Array) -> Array:
    """The shortest Δ for which AᵀΔ comes nearest to the slopes, by LSMR."""
    rows, columns = strategy.shape
    transposed: Any = scipy.sparse.linalg.aslinearoperator(_Transposed((columns, rows), strategy))
    return scipy.sparse.linalg.lsmr(transposed, slopes, atol=1e-14, btol=1e-14, maxiter=2 * columns)[0]


@dataclass(frozen=True, eq=False)
class _Transposed:
    """Aᵀ with the names of its products that SciPy expects."""

    shape: tuple[int, int]
    strategy: Strategy

    def matvec(self, answers: Array) -> Array:
        return self.strategy.adjoint(np.ravel(answers))

    def rmatvec(self, cells: Array) -> Array:
        return self.strategy.apply(np.ravel(cells))
