"""The marginals that a table must have: read, checked against each other, and turned into coordinates."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.solvers.marginal_tables.marginal_basis import (
    CellLayout,
    MarginalBasis,
    Vector,
    frequencies_of,
    hartley,
)

AGREEMENT = 1e-12
"""Marginals agree when their coordinates do, to this share of the total: the rounding of sums, not of data."""


@dataclass(frozen=True, eq=False)
class KnownMarginal:
    """One marginal: the axes as the user gave them, and its values in the order of the solvers."""

    axes: tuple[int, ...]
    places: tuple[int, ...]
    values: Vector

    @property
    def name(self) -> str:
        """How messages call it.

        >>> KnownMarginal((0, 2), (0, 2), np.zeros((2, 2))).name
        'axes (0, 2)'
        """
        if not self.axes:
            return "the total"
        return f"axis {self.axes[0]}" if len(self.axes) == 1 else f"axes {self.axes}"


@dataclass(frozen=True, eq=False)
class KnownMarginals:
    """All known marginals of one table."""

    layout: CellLayout
    each: tuple[KnownMarginal, ...]

    @cached_property
    def largest(self) -> float:
        """The largest absolute value in any marginal."""
        return max((float(np.abs(known.values).max(initial=0.0)) for known in self.each), default=0.0)

    @cached_property
    def coordinates(self) -> "Coordinates":
        """What the marginals say about the coordinates c_u, and how far they contradict each other.

        A marginal with K cells holds its misfit ‖m(x) − m‖² as Σ_u (c_u(x) − c_u)² / K, so 1/K weighs its word.
        """
        frequencies = [frequencies_of(self.layout, known.places) for known in self.each]
        found = np.concatenate([hartley(known.values).reshape(-1) for known in self.each])
        weights = np.concatenate([np.full(known.values.size, 1.0 / known.values.size) for known in self.each])
        kept, place = np.unique(np.concatenate(frequencies), return_inverse=True)
        weight = np.asarray(np.bincount(place, weights), dtype=np.float64)
        target = np.bincount(place, weights * found) / weight
        apart = np.abs(found - target[place])
        allowed = AGREEMENT * max(float(np.abs(known.values).sum()) for known in self.each)
        ends = np.cumsum([known.values.size for known in self.each])[:-1]
        contradicted = [bool(part.max(initial=0.0) > allowed) for part in np.split(apart, ends)]
        parts = np.split(place, ends)
        return Coordinates(kept, target, weight, tuple(contradicted), tuple(parts))

    def misfits(self, coordinates: Vector) -> list[Vector]:
        """By how much each marginal of a table with all these coordinates differs from the known one.

        The transform `hartley` is its own inverse up to the number of cells.
        """
        result = []
        for known, part in zip(self.each, self.coordinates.parts, strict=True):
            marginal = hartley(coordinates[part].reshape(known.values.shape)) / known.values.size
            result.append(marginal - known.values)
        return result

    def ceilings(self) -> Vector:
        """For each cell of a non-negative table the least marginal that contains it."""
        ceiling = np.full(self.layout.sizes, np.inf)
        for known in self.each:
            np.minimum(ceiling, self.layout.spread(known.values, known.places), out=ceiling)
        return ceiling.reshape(-1)

    def widest(self) -> KnownMarginal | None:
        """The marginal that contains all the others, if there is one."""
        widest = max(self.each, key=lambda known: len(known.places), default=None)
        if widest is None or any(not set(known.places) <= set(widest.places) for known in self.each):
            return None
        return widest


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The independent numbers behind a set of marginals."""

    frequencies: NDArray[np.int64]
    target: Vector
    """The value of each coordinate; where marginals contradict each other, their weighted mean."""
    weight: Vector
    contradicted: tuple[bool, ...]
    """For each marginal, whether another one contradicts it."""
    parts: tuple[NDArray[np.intp], ...]
    """For each marginal, which coordinates it fixes, in the order of its cells."""


def read_marginals(marginals: Mapping[tuple[int, ...], ArrayLike], layout: CellLayout) -> KnownMarginals:
    """The marginals with their axes in the solvers' order, each of the right shape and finite."""
    if not isinstance(marginals, Mapping):
        raise DeclarationError(
            f"the marginals are a {type(marginals).__name__}; give a mapping from tuples of axes to arrays"
        )
    return KnownMarginals(layout, tuple(_read(key, values, layout) for key, values in marginals.items()))


def _read(key: Sequence[int], values: ArrayLike, layout: CellLayout) -> KnownMarginal:
    axes = _axes(key, len(layout.shape))
    shape = tuple(layout.shape[axis] for axis in axes)
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise DeclarationError(
            f"the marginal on axes {axes} has shape {array.shape}, the table there {shape}; give one value per cell"
        )
    if not np.all(np.isfinite(array)):
        raise DeclarationError(f"the marginal on axes {axes} holds a value that is not a finite number; correct it")
    places = layout.places(axes)
    inner = [axis for axis in axes if layout.shape[axis] > 1]
    squeezed = array.reshape([layout.shape[axis] for axis in inner])
    order = [inner.index(layout.axes[place]) for place in places]
    return KnownMarginal(axes, places, np.ascontiguousarray(np.transpose(squeezed, order)))


def _axes(key: Sequence[int], dimensions: int) -> tuple[int, ...]:
    try:
        axes = tuple(operator.index(axis) for axis in key)
    except TypeError:
        raise DeclarationError(f"{key!r} does not name axes; use a tuple of whole numbers, () for the total") from None
    outside = [axis for axis in axes if not 0 <= axis < dimensions]
    if outside:
        raise DeclarationError(f"the table has axes 0 to {dimensions - 1}, a marginal names axis {outside[0]}")
    if len(set(axes)) != len(axes):
        raise DeclarationError(f"the marginal on axes {axes} names an axis twice; name it once")
    return axes


# ----------------------------------------------------------------------------------------------------------------------
# Cells without weight in tables that may be negative: they take up any misfit for nothing.
#
# Such cells Z leave only those combinations of marginals to be met in which they do not occur: the rows NᵀΦ with NᵀΦ_Z
# = 0. The other cells are fitted to these, and Z then fills what is missing with the least sum of squares.


DEPENDENT = 1e-10
"""An eigenvalue this small, relative to the largest, counts as 0."""


class ProjectedBasis:
    """The rows NᵀΦ, known by their products like the rows of a `MarginalBasis`."""

    def __init__(self, basis: MarginalBasis, combinations: NDArray[np.float64]) -> None:
        self._basis = basis
        self.combinations = combinations

    @property
    def layout(self) -> CellLayout:
        return self._basis.layout

    @property
    def rows(self) -> int:
        return int(self.combinations.shape[1])

    def restricted(self, kept: NDArray[np.intp]) -> "ProjectedBasis":
        return ProjectedBasis(self._basis, self.combinations[:, kept])

    def apply(self, cells: Vector) -> Vector:
        return self.combinations.T @ self._basis.apply(cells)

    def adjoint(self, coordinates: Vector) -> Vector:
        return self._basis.adjoint(self.combinations @ coordinates)

    def gram(self, diagonal: Vector) -> NDArray[np.float64]:
        return self.combinations.T @ self._basis.gram(diagonal) @ self.combinations


def without_cells(basis: MarginalBasis, cells: NDArray[np.bool_]) -> ProjectedBasis:
    """The combinations of the rows in which these cells do not occur."""
    values, vectors = np.linalg.eigh(basis.gram(cells.astype(np.float64)))
    return ProjectedBasis(basis, vectors[:, values <= DEPENDENT * max(float(values[-1]), 1e-300)])


def fill_cells(basis: MarginalBasis, target: Vector, cells: Vector, chosen: NDArray[np.bool_]) -> Vector:
    """The cells with the chosen ones changed, by the least sum of squares, so that the coordinates are the target's."""
    matrix = basis.gram(chosen.astype(np.float64))
    filled = np.where(chosen, 0.0, cells)
    for _ in range(2):
        missing = target - basis.apply(filled)
        change = np.asarray(np.linalg.lstsq(matrix, missing, rcond=DEPENDENT)[0], dtype=np.float64)
        filled += chosen * basis.adjoint(change)
    return filled
