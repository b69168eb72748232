"""Tables whose marginals are known."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse.linalg

from consilience.errors import DeclarationError
from consilience.numerics.infeasible import Infeasible
from consilience.numerics.projections.convex_set import Array, lies_in_subspace, require_cells

Axes = tuple[int, ...]

CONTRADICTION = 1e-9
"""Marginals that differ by more than this part of their largest value contradict each other."""


# A table is a sum of orthogonal components, one for each set S of axes (analysis of variance): the component S varies
# with the axes in S, and sums to zero along each of them. The marginal on B holds the components S ⊆ B. The nearest
# table with given marginals m_B therefore adds to x, for each given B in turn, those components of the missing
# δ_B = m_B − marginal_B(x) that no earlier marginal has settled, spread evenly over the axes outside B:
#
#     Π(x) = x + Σ_B  expand( Π_{earlier C} (I − E_C) δ_B ) / (cells outside B),
#
# where E_C averages over the axes outside C and so keeps just the components inside C. The averages commute. No matrix
# is ever built: the cost is a few passes over the table.
@dataclass(frozen=True, eq=False)
class MarginalsEqual:
    """{x : the marginals of x over the given axes equal the given values}; the empty tuple of axes means the total.

    >>> known = MarginalsEqual((2, 2), {(0,): [3.0, 1.0], (): 4.0})
    >>> known.project(np.zeros((2, 2)))
    array([[1.5, 1.5],
           [0.5, 0.5]])
    """

    shape: Sequence[int]
    marginals: Mapping[Any, Any]
    name: str = "MarginalsEqual"
    _given: dict[Axes, Array] = field(init=False, repr=False)
    _averaged: dict[Axes, tuple[Axes, ...]] = field(init=False, repr=False)
    """For each marginal, the axes over which an E_C of the formula averages, C as large as possible."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        given: dict[Axes, Array] = {}
        for axes, values in self.marginals.items():
            axes, values = _checked(axes, values, self.shape, self.name)
            if axes in given and not np.array_equal(values, given[axes]):
                raise DeclarationError(
                    f"{self.name!r} gives the marginal over axes {axes} twice, with different values; give it once"
                )
            given[axes] = values
        object.__setattr__(self, "_given", given)
        object.__setattr__(self, "_averaged", _averaged_axes(list(given)))
        scale = max((float(np.abs(values).max(initial=0.0)) for values in given.values()), default=0.0)
        if self.violation(self.project(np.zeros(self.shape))) > CONTRADICTION * scale:
            self._refuse()

    def project(self, point: Array) -> Array:
        require_cells(self.name, int(np.prod(self.shape)), point)
        if not point.size:
            return point.copy()
        table = point.reshape(self.shape)
        return (table + self._correction(self._missing(table))).reshape(point.shape)

    def violation(self, point: Array) -> float:
        require_cells(self.name, int(np.prod(self.shape)), point)
        missing = self._missing(point.reshape(self.shape)).values()
        return max((float(np.abs(each).max(initial=0.0)) for each in missing), default=0.0)

    def support(self, direction: Array) -> float:
        if lies_in_subspace(direction - self.polar(direction), direction):
            return float(np.vdot(direction, self.project(np.zeros(direction.shape))))
        return float("inf")

    def polar(self, direction: Array) -> Array:
        if not direction.size:
            return direction.copy()
        sums = marginal_sums(direction.reshape(self.shape), self._given)
        return (self._correction(sums) + np.zeros(self.shape)).reshape(direction.shape)

    def _missing(self, table: Array) -> dict[Axes, Array]:
        sums = marginal_sums(table, self._given)
        return {axes: values - sums[axes] for axes, values in self._given.items()}

    def _correction(self, missing: dict[Axes, Array]) -> Array:
        """The shortest table with these marginals, in a shape that spreads to the table's."""
        cells = float(np.prod(self.shape))
        parts: dict[Axes, Array] = {}
        for axes, part in missing.items():
            for outside in self._averaged[axes]:
                part = part - part.mean(axis=outside, keepdims=True)
            parts[axes] = part * (part.size / cells)
        return spread_sum(parts, len(self.shape))

    def _refuse(self) -> None:
        """Name the marginals that contradict each other: those that least squares cannot satisfy."""
        order = list(self._given)
        sizes = [self._given[axes].size for axes in order]
        shapes = [self._given[axes].shape for axes in order]

        def sums(flat: Array) -> Array:
            found = marginal_sums(flat.reshape(self.shape), order)
            return np.concatenate([found[axes].ravel() for axes in order])

        def spread(flat: Array) -> Array:
            pieces = np.split(flat, np.cumsum(sizes)[:-1])
            parts = {axes: piece.reshape(shape) for axes, piece, shape in zip(order, pieces, shapes, strict=True)}
            return np.broadcast_to(spread_sum(parts, len(self.shape)), self.shape).ravel()

        linear_operator: Any = scipy.sparse.linalg.LinearOperator
        shape = sum(sizes), int(np.prod(self.shape))
        operator = linear_operator(shape, matvec=sums, rmatvec=spread, dtype=np.float64)
        wanted = np.concatenate([self._given[axes].ravel() for axes in order])
        compromise = np.zeros(0)
        if operator.shape[1]:
            compromise = scipy.sparse.linalg.lsqr(operator, wanted, atol=1e-14, btol=1e-14)[0]
        missing = self._missing(compromise.reshape(self.shape))
        broken = {axes: float(np.abs(each).max(initial=0.0)) for axes, each in missing.items()}
        worst = max(broken.values())
        involved = [axes for axes in order if broken[axes] > 1e-6 * worst]
        listed = ", ".join(str(axes) for axes in involved)
        raise Infeasible(
            f"the marginals of {self.name!r} over axes {listed} contradict each other: no table has them all, and the "
            f"least-squares compromise misses one of them by {worst:.6g}; correct one, or give fewer",
            violation=worst,
            constraints=tuple(f"{self.name} {axes}" for axes in involved),
        )


def marginal_sums(table: Array, wanted: Iterable[Axes], axis: int = 0) -> dict[Axes, Array]:
    """The marginals over the wanted axes, summed-out axes kept with size 1; partial sums are shared.

    >>> {axes: sums.tolist() for axes, sums in marginal_sums(np.arange(6.0).reshape(2, 3), [(0,), ()]).items()}
    {(0,): [[3.0], [12.0]], (): [[15.0]]}
    """
    wanted = list(wanted)
    if axis == table.ndim or not wanted:
        return dict.fromkeys(wanted, table)
    kept = [axes for axes in wanted if axis in axes]
    gone = [axes for axes in wanted if axis not in axes]
    found = marginal_sums(table, kept, axis + 1)
    if gone:
        found |= marginal_sums(table.sum(axis=axis, keepdims=True), gone, axis + 1)
    return found


def spread_sum(parts: Mapping[Axes, Array], dimensions: int, axis: int = 0) -> Array:
    """Σ of arrays over some axes each, spread over the others; what few arrays need is added while it is small."""
    if axis == dimensions or len(parts) < 2:
        return sum(parts.values(), np.zeros((1,) * dimensions))
    kept = {axes: part for axes, part in parts.items() if axis in axes}
    gone = {axes: part for axes, part in parts.items() if axis not in axes}
    if not kept or not gone:
        return spread_sum(parts, dimensions, axis + 1)
    return spread_sum(kept, dimensions, axis + 1) + spread_sum(gone, dimensions, axis + 1)


def _averaged_axes(given: list[Axes]) -> dict[Axes, tuple[Axes, ...]]:
    """For each marginal B the axes B ∖ C, for the earlier marginals C whose overlap with B no other's contains."""
    averaged = {}
    for at, axes in enumerate(given):
        overlaps = {frozenset(axes) & frozenset(earlier) for earlier in given[:at]}
        largest = [each for each in overlaps if not any(each < other for other in overlaps)]
        averaged[axes] = tuple(tuple(axis for axis in axes if axis not in overlap) for overlap in largest)
    return averaged


def _checked(axes: Any, values: Any, shape: Sequence[int], name: str) -> tuple[Axes, Array]:
    """The axes in ascending order, and the values with size 1 along the others."""
    axes = (int(axes),) if np.ndim(axes) == 0 else tuple(int(axis) for axis in axes)
    if len(set(axes)) != len(axes) or any(axis < 0 or axis >= len(shape) for axis in axes):
        raise DeclarationError(
            f"{name!r} names the axes {axes} of a table with {len(shape)} axes; "
            f"name each axis once, from 0 to {len(shape) - 1}"
        )
    values = np.asarray(values, dtype=np.float64)
    expected = tuple(shape[axis] for axis in axes)
    if values.shape != expected:
        raise DeclarationError(
            f"{name!r} gives values of shape {values.shape} for the marginal over axes {axes}, which has shape "
            f"{expected}; give one value for each cell of the marginal"
        )
    if not np.all(np.isfinite(values)):
        raise DeclarationError(f"{name!r} gives a marginal over axes {axes} that is not finite; correct the values")
    ordered = tuple(sorted(axes))
    kept_sizes = tuple(size if axis in axes else 1 for axis, size in enumerate(shape))
    return ordered, values.transpose(np.argsort(axes) if axes else ()).reshape(kept_sizes)
