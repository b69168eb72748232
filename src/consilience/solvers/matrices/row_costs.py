"""What the residuals t = Ax − y of measured answers cost, on the way up and on the way down.

Row i costs a·t + q·t² for t ≥ 0 and ā·|t| + q̄·t² for t < 0. The two sides are alike, but for clipped answers, which
say only that the answer was at most 0: they cost nothing on the way down. The conjugate of such a cost,

    φ*(l) = sup over t of l·t − φ(t) = (l − a)₊² / 4q + (−l − ā)₊² / 4q̄,

is infinite beyond the slope of a side without curvature. Rows that must be met exactly have an infinite slope: any
multiplier is within it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.solvers.losses import Loss

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

    def conjugate(self, push: Array) -> float:
        """Σ (push − a)₊² / 4q; the push of a side without curvature is within its slope, up to rounding."""
        excess = np.maximum(push - self.slope, 0.0)
        curved = self.curvature > 0.0
        return float(np.sum(excess[curved] ** 2 / (4.0 * self.curvature[curved])))

    def overpush(self, push: Array) -> float:
        """The largest push of a side without curvature over its slope; ∞ where that slope is 0."""
        straight = (self.curvature == 0.0) & (push > 0.0)
        if not straight.any():
            return 0.0
        push, slope = push[straight], self.slope[straight]
        return float(np.max(push / slope)) if slope.min() > 0.0 else np.inf

    def limit(self) -> Array:
        """How far a push may go."""
        return np.where(self.curvature > 0.0, np.inf, self.slope)

    def followed_by(self, other: "Side") -> "Side":
        return Side(np.concatenate([self.slope, other.slope]), np.concatenate([self.curvature, other.curvature]))

    def scaled(self, unit: float, price: float) -> "Side":
        return Side(self.slope * (unit / price), self.curvature * (unit * unit / price))


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

    def overpush(self, multipliers: Array) -> float:
        """By what the multipliers must be divided so that the conjugate is finite; ∞ if nothing but 0 would do."""
        return max(self.up.overpush(multipliers), self.down.overpush(-multipliers))

    def conjugate(self, multipliers: Array) -> float:
        return self.up.conjugate(multipliers) + self.down.conjugate(-multipliers)

    def scaled(self, unit: float, price: float) -> "RowCosts":
        """The same costs, divided by `price`, of answers divided by `unit`."""
        return RowCosts(self.noisy / unit, self.up.scaled(unit, price), self.down.scaled(unit, price))

    def kept(self, rows: Any) -> "RowCosts":
        """The costs of these rows alone."""
        up, down = self.up, self.down
        return RowCosts(
            self.noisy[rows], Side(up.slope[rows], up.curvature[rows]), Side(down.slope[rows], down.curvature[rows])
        )
