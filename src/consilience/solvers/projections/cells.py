"""What a constraint is to a solver: a convex set that is known by its Euclidean projection.

Everything else a set may offer is optional, and makes the certificate of optimality better or the iteration shorter:

- `support(d)` = sup {⟨d, x⟩ : x in the set}, which is infinite in directions in which the set is unbounded;
- `polar(d)`, for affine sets and cones: the nearest direction to d in which the support is finite;
- `bounds(shape)`, for sets that bound each cell by itself: they need no projection of their own.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.kernel_cache import njit
from consilience.kernels.simplex import project_to_simplex
from consilience.solvers.fit import Infeasible

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ProjectionSettings:
    """What projections take for rounding, and what they may take; by trial, no figures kept."""

    out_of_subspace: float = 1e-9
    """The part of a direction's length that may point out of a subspace and still count as rounding."""
    most_sweeps: int = 100_000
    """Sweeps over chains that overlap."""
    still: float = 1e-13
    """Overlapping chains are swept until nothing moves by more than this part of the largest value."""
    largest_factor: int = 2**31
    """The most bytes that the factors of a matrix may take."""
    dense_cells: int = 250_000
    """Sparse matrices with at most this many cells are treated as dense, which is faster for them and more exact."""
    dependent_row: float = 1e-11
    """A row whose part outside the other rows' span is shorter than this part of its length depends on them."""
    shift: float = 1e-8
    """What is added to the diagonal of A Aᵀ, whose rows have length 1, so that sparse factors exist; rounds undo it."""
    shift_rounds: int = 30
    """The most of these rounds."""


SETTINGS = ProjectionSettings()


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
    return bool(np.linalg.norm(component_outside) <= SETTINGS.out_of_subspace * np.linalg.norm(direction))


# ----------------------------------------------------------------------------------------------------------------------
# Sets that bound each cell by itself: the projection clips.


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


# ----------------------------------------------------------------------------------------------------------------------
# Non-negative numbers with a given sum.


@dataclass(frozen=True)
class Simplex:
    """{x : x ≥ 0, Σx = total}, for instance a table whose total is public.

    >>> Simplex(3.0).project(np.array([2.0, 4.0, -1.0]))
    array([0.5, 2.5, 0. ])
    """

    total: float
    name: str = "Simplex"

    def __post_init__(self) -> None:
        if not np.isfinite(self.total) or self.total < 0:
            raise DeclarationError(
                f"the total of {self.name!r} is {self.total:g}, and numbers from 0 upwards cannot sum to it; "
                "give a finite total of at least 0"
            )

    def project(self, point: Array) -> Array:
        if point.size == 0:
            self._refuse_no_cells()
        return project_to_simplex(point, self.total)

    def violation(self, point: Array) -> float:
        return float(max(abs(point.sum() - self.total), -point.min(initial=0.0)))

    def support(self, direction: Array) -> float:
        if direction.size == 0:
            self._refuse_no_cells()
            return 0.0
        return float(self.total * direction.max())

    def _refuse_no_cells(self) -> None:
        if self.total > 0:
            raise Infeasible(
                f"{self.name!r} asks for a total of {self.total:g} over no cells; give cells, or a total of 0",
                violation=self.total,
                constraints=(self.name,),
            )


# ----------------------------------------------------------------------------------------------------------------------
# Counts in a known order: no cell exceeds the next one of its chain.


@dataclass(frozen=True, eq=False)
class Isotonic:
    """{x : x does not fall along any chain}; with `decreasing`, does not rise.

    Without `chains` all cells form one chain in the order in which they lie. Chains are lists of positions; those that
    share no cell are projected exactly, by pooling adjacent violators (Ayer et al. 1955), in linear time. Chains that
    share cells make a partial order, for instance the rows and the columns of a table: Dykstra's sweeps (1983) go over
    the chains until they no longer move, which is slower.

    >>> Isotonic().project(np.array([1.0, 5.0, 3.0, 4.0, 9.0]))
    array([1., 4., 4., 4., 9.])
    >>> Isotonic([[0, 1], [0, 2]]).project(np.array([3.0, 1.0, 1.0])).round(6)
    array([1.666667, 1.666667, 1.666667])
    """

    chains: Sequence[Any] | None = None
    decreasing: bool = False
    name: str = "Isotonic"
    _members: NDArray[np.int64] | None = field(init=False, repr=False, default=None)
    _ends: NDArray[np.int64] | None = field(init=False, repr=False, default=None)
    _disjoint: bool = field(init=False, repr=False, default=True)

    def __post_init__(self) -> None:
        if self.chains is None:
            return
        chains = [np.asarray(chain, dtype=np.int64).ravel() for chain in self.chains]
        members = np.concatenate([np.empty(0, dtype=np.int64), *chains])
        if members.min(initial=0) < 0 or any(len(np.unique(chain)) != len(chain) for chain in chains):
            raise DeclarationError(
                f"a chain of {self.name!r} names a cell twice or by a negative number; "
                "a chain lists positions, counted from 0, each once"
            )
        object.__setattr__(self, "_members", members)
        object.__setattr__(self, "_ends", np.cumsum([len(chain) for chain in chains], dtype=np.int64))
        object.__setattr__(self, "_disjoint", len(np.unique(members)) == len(members))

    def project(self, point: Array) -> Array:
        members, ends = self._chains(point)
        sign = -1.0 if self.decreasing else 1.0
        values = sign * point.ravel()
        corrections = np.zeros(len(members))
        still = SETTINGS.still * float(np.abs(values).max(initial=0.0))
        for _ in range(1 if self._disjoint else SETTINGS.most_sweeps):
            if _sweep(values, members, ends, corrections) <= still:
                break
        return sign * values.reshape(point.shape)

    def violation(self, point: Array) -> float:
        members, ends = self._chains(point)
        rises = np.diff(point.ravel()[members])
        starts = ends[(ends > 0) & (ends < len(members))] - 1
        rises[starts] = 0.0
        return float((rises if self.decreasing else -rises).max(initial=0.0))

    def support(self, direction: Array) -> float:
        return 0.0 if lies_in_subspace(self.project(direction), direction) else float("inf")

    def polar(self, direction: Array) -> Array:
        return direction - self.project(direction)

    def _chains(self, point: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._members is None or self._ends is None:
            return np.arange(point.size, dtype=np.int64), np.array([point.size], dtype=np.int64)
        if self._members.max(initial=-1) >= point.size:
            raise DeclarationError(
                f"a chain of {self.name!r} names cell {self._members.max()} and there are {point.size} cells, "
                "counted from 0; correct the chain"
            )
        return self._members, self._ends


# One sweep of Dykstra's algorithm: each chain's cells, with the correction that the chain took last time given back,
# are replaced by their isotonic regression. The corrections' largest change says how far the sweeps are from resting:
# the values alone can rest for a while and move again.
@njit(nogil=True, cache=True)
def _sweep(values, members, ends, corrections):  # pragma: no cover - compiled
    largest_change = 0.0
    begin = 0
    for end in ends:
        offered = values[members[begin:end]] + corrections[begin:end]
        pooled = _pooled(offered)
        for at in range(end - begin):
            correction = offered[at] - pooled[at]
            largest_change = max(largest_change, abs(correction - corrections[begin + at]))
            corrections[begin + at] = correction
            values[members[begin + at]] = pooled[at]
        begin = end
    return largest_change


# Adjacent violators are pooled into blocks with their common mean; the means of the blocks that remain ascend.
@njit(nogil=True, cache=True)
def _pooled(values):  # pragma: no cover - compiled
    size = values.shape[0]
    mean = np.empty(size)
    length = np.empty(size, dtype=np.int64)
    blocks = 0
    for at in range(size):
        mean[blocks], length[blocks] = values[at], 1
        blocks += 1
        while blocks > 1 and mean[blocks - 2] >= mean[blocks - 1]:
            together = length[blocks - 2] + length[blocks - 1]
            share = length[blocks - 1] / together
            mean[blocks - 2] += share * (mean[blocks - 1] - mean[blocks - 2])
            length[blocks - 2] = together
            blocks -= 1
    pooled = np.empty(size)
    at = 0
    for block in range(blocks):
        pooled[at : at + length[block]] = mean[block]
        at += length[block]
    return pooled
