"""Sets that bound each cell by itself: the projection clips."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.errors import DeclarationError
from consilience.solvers.projections.convex_set import Array


def support_of_box(direction: Array, low: Array, high: Array) -> float:
    """sup ⟨d, x⟩ over low ≤ x ≤ high: Σ max(d·low, d·high), where 0·∞ = 0."""
    reached = np.where(direction > 0, high, np.where(direction < 0, low, 0.0))
    moving = direction != 0
    if np.any(np.isinf(reached[moving])):
        return float("inf")
    return float(np.dot(direction[moving], reached[moving]))


@dataclass(frozen=True)
class NonNegative:
    """{x : x ≥ 0}.

    >>> NonNegative().project(np.array([-2.0, 3.0]))
    array([0., 3.])
    """

    name: str = "NonNegative"

    def bounds(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        return np.zeros(shape), np.full(shape, np.inf)

    def project(self, point: Array) -> Array:
        return np.maximum(point, 0.0)

    def violation(self, point: Array) -> float:
        return float(0.0 - point.min(initial=0.0))

    def support(self, direction: Array) -> float:
        return 0.0 if direction.max(initial=0.0) <= 0 else float("inf")

    def polar(self, direction: Array) -> Array:
        return np.minimum(direction, 0.0)


@dataclass(frozen=True, eq=False)
class Box:
    """{x : low ≤ x ≤ high}, each bound one number or one for each cell, infinite where there is none.

    >>> Box(0, [1, 2]).project(np.array([-1.0, 5.0]))
    array([0., 2.])
    """

    low: Any
    high: Any
    name: str = "Box"

    def __post_init__(self) -> None:
        low, high = np.asarray(self.low, dtype=np.float64), np.asarray(self.high, dtype=np.float64)
        if np.any(np.isnan(low)) or np.any(np.isnan(high)):
            raise DeclarationError(f"a bound of {self.name!r} is not a number; leave a cell free with ±infinity")
        if np.any(low > high) or np.any(low == np.inf) or np.any(high == -np.inf):
            raise DeclarationError(
                f"the box {self.name!r} is empty: a lower bound ({low.max():g} at most) lies above its upper bound "
                f"({high.min():g} at least); exchange or correct them"
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def bounds(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        return _spread(self.low, shape, self.name), _spread(self.high, shape, self.name)

    def project(self, point: Array) -> Array:
        low, high = self.bounds(point.shape)
        return np.clip(point, low, high)

    def violation(self, point: Array) -> float:
        low, high = self.bounds(point.shape)
        return float(np.maximum(low - point, point - high).max(initial=0.0))

    def support(self, direction: Array) -> float:
        low, high = self.bounds(direction.shape)
        return support_of_box(direction, low, high)


@dataclass(frozen=True, eq=False)
class Zeros:
    """{x : x = 0 where the mask is true}: structural zeros.

    >>> Zeros([True, False]).project(np.array([4.0, 5.0]))
    array([0., 5.])
    """

    mask: Any
    name: str = "Zeros"

    def __post_init__(self) -> None:
        mask = np.asarray(self.mask)
        if mask.dtype != np.bool_ and mask.size:
            raise DeclarationError(
                f"the mask of {self.name!r} holds {mask.dtype} values; give a Boolean array, true where a cell is zero"
            )
        object.__setattr__(self, "mask", mask.astype(np.bool_))

    def bounds(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        mask = _spread(self.mask, shape, self.name)
        return np.where(mask, 0.0, -np.inf), np.where(mask, 0.0, np.inf)

    def project(self, point: Array) -> Array:
        return np.where(_spread(self.mask, point.shape, self.name), 0.0, point)

    def violation(self, point: Array) -> float:
        return float(np.abs(point - self.project(point)).max(initial=0.0))

    def support(self, direction: Array) -> float:
        return 0.0 if not np.any(self.project(direction)) else float("inf")

    def polar(self, direction: Array) -> Array:
        return direction - self.project(direction)


def _spread(values: Any, shape: tuple[int, ...], name: str) -> Any:
    """One number for every cell, or one for each, also when the cells come as one flat list."""
    if values.ndim and values.size == int(np.prod(shape)):
        return values.reshape(shape)
    if values.ndim == 0:
        return np.broadcast_to(values, shape)
    raise DeclarationError(
        f"the set {name!r} is over cells of shape {values.shape} and was given an array of shape {shape}; "
        "declare both over the same cells"
    )
