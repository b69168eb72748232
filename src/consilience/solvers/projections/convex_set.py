"""What a constraint is to a solver: a convex set that is known by its Euclidean projection.

Everything else a set may offer is optional, and makes the certificate of optimality better or the iteration shorter:

- `support(d)` = sup {⟨d, x⟩ : x in the set}, which is infinite in directions in which the set is unbounded;
- `polar(d)`, for affine sets and cones: the nearest direction to d in which the support is finite;
- `bounds(shape)`, for sets that bound each cell by itself: they need no projection of their own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError

Array = NDArray[np.float64]

ROUNDING = 1e-9
"""The part of a direction's length that may point out of a subspace and still count as rounding."""


@runtime_checkable
class ConvexSet(Protocol):
    """A closed convex set of arrays."""

    @property
    def name(self) -> str:
        """What messages call the set."""
        ...

    def project(self, point: Array) -> Array:
        """The point of the set that is nearest in the Euclidean norm, in the shape it was given."""
        ...

    def violation(self, point: Array) -> float:
        """The largest amount by which one of the set's conditions is broken; 0 inside."""
        ...


@runtime_checkable
class SupportedSet(ConvexSet, Protocol):
    """A set that knows how far it reaches in any direction."""

    def support(self, direction: Array) -> float:
        """sup ⟨direction, x⟩ over the set; infinity where it is unbounded."""
        ...


@runtime_checkable
class AffineOrCone(SupportedSet, Protocol):
    """A set whose directions of finite support are a cone that can be projected onto."""

    def polar(self, direction: Array) -> Array:
        """The nearest direction with finite support."""
        ...


@runtime_checkable
class SeparableSet(ConvexSet, Protocol):
    """A set that bounds each cell by itself."""

    def bounds(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """The least and the largest value of each cell, ±infinity where there is none."""
        ...


@dataclass(frozen=True)
class Projection:
    """The convex set onto which a function of the user's projects.

    The function must return the *nearest* point of a closed convex set: the certificates of the solvers rely on it.

    >>> ball = Projection(lambda x: x / max(1.0, np.linalg.norm(x)), name="unit ball")
    >>> ball.project(np.array([3.0, 4.0])).round(3)
    array([0.6, 0.8])
    >>> round(ball.violation(np.array([3.0, 4.0])), 3)
    3.2
    """

    function: Callable[[Array], Any]
    name: str = "user's set"

    def project(self, point: Array) -> Array:
        nearest = np.asarray(self.function(point.copy()), dtype=np.float64)
        if nearest.shape != point.shape:
            raise DeclarationError(
                f"the projection {self.name!r} was given an array of shape {point.shape} and returned one of shape "
                f"{nearest.shape}; return the nearest point in the shape it came in"
            )
        if not np.all(np.isfinite(nearest)):
            raise DeclarationError(
                f"the projection {self.name!r} returned a value that is not a finite number; correct the function"
            )
        return nearest

    def violation(self, point: Array) -> float:
        return float(np.abs(point - self.project(point)).max(initial=0.0))


def as_convex_sets(constraints: Any) -> tuple[ConvexSet, ...]:
    """The constraints as sets: one set or several, functions taken as projections."""
    if isinstance(constraints, ConvexSet) or callable(constraints):
        constraints = [constraints]
    if not isinstance(constraints, Iterable):
        raise DeclarationError(f"constraints are sets or projecting functions, not a {type(constraints).__name__}")
    return tuple(_as_convex_set(each) for each in constraints)


def _as_convex_set(constraint: Any) -> ConvexSet:
    if isinstance(constraint, ConvexSet):
        return constraint
    if callable(constraint):
        return Projection(constraint, name=getattr(constraint, "__name__", "user's set"))
    raise DeclarationError(
        f"a constraint is a set with `name`, `project` and `violation`, or a projecting function; "
        f"a {type(constraint).__name__} is neither"
    )


def require_cells(name: str, expected: int, point: Array) -> None:
    """Refuse a point with another number of cells than the set was declared for."""
    if point.size != expected:
        raise DeclarationError(
            f"the set {name!r} is over {expected} cells and was given {point.size}; declare both over the same cells"
        )


def lies_in_subspace(component_outside: Array, direction: Array) -> bool:
    """True when what points out of the subspace is rounding."""
    return bool(np.linalg.norm(component_outside) <= ROUNDING * np.linalg.norm(direction))
