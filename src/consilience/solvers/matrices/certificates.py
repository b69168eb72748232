"""What the residuals t = Ax − y of measured answers cost, on the way up and on the way down.

Row i costs a·t + q·t² for t ≥ 0 and ā·|t| + q̄·t² for t < 0. The two sides are alike, but for clipped answers, which
say only that the answer was at most 0: they cost nothing on the way down. The conjugate of such a cost,

    φ*(l) = sup over t of l·t − φ(t) = (l − a)₊² / 4q + (−l − ā)₊² / 4q̄,

is infinite beyond the slope of a side without curvature. Rows that must be met exactly have an infinite slope: any
multiplier is within it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray

from consilience.solvers.losses import Loss
from consilience.solvers.matrices.strategies import Strategy

Array = NDArray[np.float64]

UNNOTICED = 1e-12
"""A residual of this share of an answer is lost in the rounding of the data."""


@dataclass(frozen=True, eq=False)
class Side:
    """Slope and curvature of one side of all rows."""

    slope: Array
    curvature: Array

    def cost(self, size: Array) -> float:
        """The costs of all rows but those that must be met."""
        slope = np.where(np.isfinite(self.slope), self.slope, 0.0)
        return float(np.sum(size * (slope + self.curvature * size)))

    def conjugate(self, multipliers: Array) -> float:
        """Σ (l − a)₊² / 4q; the multiplier l of a side without curvature is within its slope, up to rounding."""
        excess = np.maximum(multipliers - self.slope, 0.0)
        curved = self.curvature > 0.0
        return float(np.sum(excess[curved] ** 2 / (4.0 * self.curvature[curved])))

    def excess(self, multipliers: Array) -> float:
        """The largest multiplier of a side without curvature over its slope; ∞ where that slope is 0."""
        straight = (self.curvature == 0.0) & (multipliers > 0.0)
        if not straight.any():
            return 0.0
        multipliers, slope = multipliers[straight], self.slope[straight]
        return float(np.max(multipliers / slope)) if slope.min() > 0.0 else np.inf

    def limit(self) -> Array:
        """How large a multiplier may be."""
        return np.where(self.curvature > 0.0, np.inf, self.slope)

    def followed_by(self, other: "Side") -> "Side":
        return Side(np.concatenate([self.slope, other.slope]), np.concatenate([self.curvature, other.curvature]))

    def scaled(self, unit: float, loss_unit: float) -> "Side":
        return Side(self.slope * (unit / loss_unit), self.curvature * (unit * unit / loss_unit))


@dataclass(frozen=True, eq=False)
class RowCosts:
    """The costs of all measured rows; `noisy` is y."""

    noisy: Array
    up: Side
    down: Side

    @staticmethod
    def of(loss: Loss, noisy: Array, weights: Array, clipped: NDArray[np.bool_] | None) -> "RowCosts":
        slope, curvature = loss.coefficients(weights)
        felt = np.ones_like(slope) if clipped is None else np.where(clipped, 0.0, 1.0)
        return RowCosts(noisy, Side(slope, curvature), Side(slope * felt, curvature * felt))

    def with_equations(self, values: Array) -> "RowCosts":
        """The costs with rows after them that must be met."""
        hard = Side(np.full(values.size, np.inf), np.zeros(values.size))
        return RowCosts(np.concatenate([self.noisy, values]), self.up.followed_by(hard), self.down.followed_by(hard))

    @property
    def squares_alone(self) -> bool:
        """Whether every row costs q·t² on both sides."""
        both = np.concatenate([self.up.slope, self.down.slope])
        return not both.any() and bool(np.array_equal(self.up.curvature, self.down.curvature))

    @property
    def straight(self) -> bool:
        """Whether no row has a curvature, so that the problem is a linear programme."""
        return not (self.up.curvature.any() or self.down.curvature.any())

    def cost(self, residual: Array) -> float:
        return self.up.cost(np.maximum(residual, 0.0)) + self.down.cost(np.maximum(-residual, 0.0))

    @property
    def unnoticed(self) -> float:
        """What residuals cost that are lost in the rounding of the answers: where the fit is exact, this is the
        goal."""
        return self.cost(UNNOTICED * self.noisy)

    def legal(self, multipliers: Array) -> Array:
        """The multipliers moved to where the conjugate is finite."""
        return np.clip(multipliers, -self.down.limit(), self.up.limit())

    def excess(self, multipliers: Array) -> float:
        """By what the multipliers must be divided so that the conjugate is finite; ∞ if nothing but 0 would do."""
        return max(self.up.excess(multipliers), self.down.excess(-multipliers))

    def conjugate(self, multipliers: Array) -> float:
        return self.up.conjugate(multipliers) + self.down.conjugate(-multipliers)

    def scaled(self, unit: float, loss_unit: float) -> "RowCosts":
        """The same costs, divided by `loss_unit`, of answers divided by `unit`."""
        return RowCosts(self.noisy / unit, self.up.scaled(unit, loss_unit), self.down.scaled(unit, loss_unit))

    def kept(self, rows: Any) -> "RowCosts":
        """The costs of these rows alone."""
        up, down = self.up, self.down
        return RowCosts(
            self.noisy[rows], Side(up.slope[rows], up.curvature[rows]), Side(down.slope[rows], down.curvature[rows])
        )


# ----------------------------------------------------------------------------------------------------------------------
# Lower bounds on min cost(Ax − y) from multipliers of its rows.
#
# For every l with Aᵀl ≥ 0 (Aᵀl = 0 where x may be negative) and every x that is allowed, cost(Ax − y) ≥ −lᵀy −
# cost*(l).
# Multipliers from a solver satisfy this nearly. They are repaired by a *cover*, a vector v with Aᵀv > 0 that lifts all
# columns, with or without the shortest change first that lifts exactly those that need it, whichever gives more; and
# then divided by what makes the conjugate finite again, which keeps Aᵀl ≥ 0. Where no cover is known, as there is none
# if Ax = 0 for some x ≥ 0 that is not 0, a violation within rounding is charged at twice the size of the cells at hand.


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
        divisor = max(self.costs.excess(multipliers), 1.0)
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
