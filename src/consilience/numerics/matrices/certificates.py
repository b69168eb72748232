"""Lower bounds on min cost(Ax − y) from multipliers of its rows.

For every l with Aᵀl ≥ 0 (Aᵀl = 0 where x may be negative) and every x that is allowed, cost(Ax − y) ≥ −lᵀy − cost*(l).
Multipliers from a solver satisfy this up to rounding. They are moved by a *cover*, a vector v with Aᵀv > 0, just far
enough, and then divided by what makes the conjugate finite again; both keep Aᵀl ≥ 0. Where no cover is known, as there is
none if Ax = 0 for some x ≥ 0 that is not 0, a violation within rounding is charged at twice the size of the cells at hand.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse.linalg

from consilience.numerics.matrices.row_costs import Array, RowCosts
from consilience.numerics.matrices.strategies import Strategy

ROUNDING = 1e-9
"""The largest violation of Aᵀl ≥ 0, relative to the length of l, that counts as rounding where there is no cover."""


@dataclass(frozen=True, eq=False)
class Certifier:
    """Bounds for one problem."""

    strategy: Strategy
    costs: RowCosts
    nonnegative: bool
    find_cover: Callable[[], Array | None]
    """A vector v with Aᵀv > 0 in all columns, or None; asked for when it is first needed."""
    spanned_part: Callable[[Array], Array]
    """The part of multipliers in the span of the columns, which are of length 1."""

    @cached_property
    def _cover(self) -> tuple[Array, Array] | None:
        cover = self.find_cover()
        if cover is None:
            return None
        reached = self.strategy.adjoint(cover)
        return (cover, reached) if reached.min(initial=np.inf) > 0.0 else None

    def bound(self, multipliers: Array, cells: Array) -> float:
        """A number that no cells fall below; 0 always is one."""
        legal = self.costs.legal(multipliers)
        if not np.all(np.isfinite(legal)):
            return 0.0
        charge = 0.0
        if self.nonnegative:
            legal, charge = self._made_feasible(legal, cells)
        else:
            legal, charge = self._made_orthogonal(legal, cells)
        divisor = max(self.costs.overpush(legal), 1.0)
        if not np.isfinite(divisor):
            return 0.0
        legal = legal / divisor
        return max(0.0, -float(legal @ self.costs.noisy) - self.costs.conjugate(legal) - charge)

    def _made_feasible(self, multipliers: Array, cells: Array) -> tuple[Array, float]:
        slopes = self.strategy.adjoint(multipliers)
        if slopes.min(initial=0.0) >= 0.0:
            return multipliers, 0.0
        if self._cover is not None:
            cover, reached = self._cover
            return multipliers + float(np.max(-slopes / reached)) * cover, 0.0
        return self._charged(multipliers, np.minimum(slopes, 0.0), cells)

    def _made_orthogonal(self, multipliers: Array, cells: Array) -> tuple[Array, float]:
        multipliers = multipliers - self.spanned_part(multipliers)
        return self._charged(multipliers, self.strategy.adjoint(multipliers), cells)

    def _charged(self, multipliers: Array, violation: Array, cells: Array) -> tuple[Array, float]:
        worst = float(np.abs(violation).max(initial=0.0))
        if worst > ROUNDING * float(np.linalg.norm(multipliers)):
            return np.zeros_like(multipliers), 0.0
        return multipliers, 2.0 * worst * float(np.abs(cells).sum())


def spanned_part(strategy: Strategy, multipliers: Array) -> Array:
    """The part of the multipliers in the span of the columns: the shortest Δ with AᵀΔ = Aᵀl."""
    rows, columns = strategy.shape
    transposed = scipy.sparse.linalg.LinearOperator(
        (columns, rows), matvec=strategy.adjoint, rmatvec=strategy.apply, dtype=np.float64
    )
    slopes = strategy.adjoint(multipliers)
    if not slopes.any():
        return np.zeros(rows)
    return scipy.sparse.linalg.lsmr(transposed, slopes, atol=1e-14, btol=1e-14, maxiter=4 * columns)[0]
