"""Tables whose marginals are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.kernel_cache import njit
from consilience.solvers.conjugate_gradients import shortest_least_squares
from consilience.solvers.fit import SHARED, Infeasible
from consilience.solvers.marginal_sums import MarginalSums
from consilience.solvers.projections.cells import Array, lies_in_subspace, require_cells
from consilience.solvers.trees.layout import Layout, forest

Axes = tuple[int, ...]


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
    _averaged: list[list[Axes]] = field(init=False, repr=False)
    """For each marginal, the places of the axes over which an E_C of the formula averages, C as large as possible."""
    _sums: MarginalSums | None = field(init=False, repr=False)
    """None where there is nothing to sum: no cells, or no marginals."""

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
        object.__setattr__(self, "_averaged", _averaged_places(list(given)))
        sums = MarginalSums(self.shape, list(given)) if given and np.prod(self.shape) else None
        object.__setattr__(self, "_sums", sums)
        scale = max((float(np.abs(values).max(initial=0.0)) for values in given.values()), default=0.0)
        if self.violation(self.project(np.zeros(self.shape))) > SHARED.contradiction * scale:
            self._refuse()

    def project(self, point: Array) -> Array:
        require_cells(self.name, int(np.prod(self.shape)), point)
        table = point.reshape(self.shape)
        return (table + self._correction(self._missing(table))).reshape(point.shape)

    def violation(self, point: Array) -> float:
        require_cells(self.name, int(np.prod(self.shape)), point)
        missing = self._missing(point.reshape(self.shape))
        return max((float(np.abs(each).max(initial=0.0)) for each in missing), default=0.0)

    def support(self, direction: Array) -> float:
        if lies_in_subspace(direction - self.polar(direction), direction):
            return float(np.vdot(direction, self.project(np.zeros(direction.shape))))
        return float("inf")

    def polar(self, direction: Array) -> Array:
        require_cells(self.name, int(np.prod(self.shape)), direction)
        return self._correction(self._marginals(direction.reshape(self.shape))).reshape(direction.shape)

    def _missing(self, table: Array) -> list[Array]:
        return [values - sums for values, sums in zip(self._given.values(), self._marginals(table), strict=True)]

    def _marginals(self, table: Array) -> list[Array]:
        return [np.zeros_like(each) for each in self._given.values()] if self._sums is None else self._sums.of(table)

    def _correction(self, missing: list[Array]) -> Array:
        """The shortest table with these marginals."""
        if self._sums is None:
            return np.zeros(self.shape)
        cells = float(np.prod(self.shape))
        parts = []
        for part, averaged in zip(missing, self._averaged, strict=True):
            for places in averaged:
                part = part - part.mean(axis=places, keepdims=True)
            parts.append(part * (part.size / cells))
        return self._sums.spread(parts)

    def _refuse(self) -> None:
        """Name the marginals that contradict each other: those that least squares cannot satisfy."""
        compromise = np.zeros(0) if self._sums is None else self._least_squares(self._sums)
        missing = self._missing(compromise.reshape(self.shape))
        broken = {axes: float(np.abs(each).max(initial=0.0)) for axes, each in zip(self._given, missing, strict=True)}
        worst = max(broken.values())
        involved = [axes for axes in broken if broken[axes] > 1e-6 * worst]
        listed = ", ".join(str(axes) for axes in involved)
        raise Infeasible(
            f"the marginals of {self.name!r} over axes {listed} contradict each other: no table has them all, and the "
            f"least-squares compromise misses one of them by {worst:.6g}; correct one, or give fewer",
            violation=worst,
            constraints=tuple(f"{self.name} {axes}" for axes in involved),
        )

    def _least_squares(self, marginals: MarginalSums) -> Array:
        """The cells, in a row, whose marginals are nearest to the given ones."""
        sizes = [values.size for values in self._given.values()]
        shapes = [values.shape for values in self._given.values()]

        def sums(flat: Array) -> Array:
            return np.concatenate([each.ravel() for each in marginals.of(flat.reshape(self.shape))])

        def spread(flat: Array) -> Array:
            pieces = zip(np.split(flat, np.cumsum(sizes)[:-1]), shapes, strict=True)
            return marginals.spread([piece.reshape(shape) for piece, shape in pieces]).ravel()

        wanted = np.concatenate([values.ravel() for values in self._given.values()])
        cells = int(np.prod(self.shape))
        return shortest_least_squares(sums, spread, wanted, cells, precision=1e-14, most_steps=2 * cells)[0]


def _averaged_places(given: list[Axes]) -> list[list[Axes]]:
    """For each marginal B the places in B of the axes outside C, for those earlier C with the largest overlaps."""
    averaged = []
    for at, axes in enumerate(given):
        overlaps = {frozenset(axes) & frozenset(earlier) for earlier in given[:at]}
        largest = [each for each in overlaps if not any(each < other for other in overlaps)]
        averaged.append([tuple(place for place, axis in enumerate(axes) if axis not in each) for each in largest])
    return averaged


def _checked(axes: Any, values: Any, shape: Sequence[int], name: str) -> tuple[Axes, Array]:
    """The axes in ascending order, and the values likewise."""
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
    return tuple(sorted(axes)), values.transpose(np.argsort(axes) if axes else ())


# ----------------------------------------------------------------------------------------------------------------------
# Counts on trees: every parent is the sum of its children.


class _Tree(NamedTuple):
    """A rooted forest, and what its projection needs to know of it, in breadth-first order."""

    layout: Layout
    inner: NDArray[np.intp]
    """The nodes that have children."""
    variance: Array
    """That of a node's best estimate from its own subtree."""
    spread: Array
    """The sum of the children's variances; 0 for leaves."""

    @staticmethod
    def of(parent: NDArray[Any]) -> "_Tree":
        layout = forest(parent, parent.size) if parent.size else Layout(np.zeros(1, dtype=np.int64), 0, 0, 0)
        return _Tree(layout, np.flatnonzero(~layout.is_leaf), *_variances(layout.first))


@dataclass(frozen=True, eq=False)
class TreeConsistency:
    """{x : x_parent = Σ x_children at every inner node}, by Hay et al.'s two passes (2010, §4), in linear time.

    `tree` is the branching k of a complete k-ary tree in breadth-first order, whose size follows from the numbers it is
    given, or an array that names each node's parent, −1 for roots.

    >>> TreeConsistency(2).project(np.array([9.0, 4.0, 2.0]))
    array([8., 5., 3.])
    >>> TreeConsistency([-1, 0, 0]).violation(np.array([9.0, 4.0, 2.0]))
    3.0
    """

    tree: Any
    name: str = "TreeConsistency"
    _declared: _Tree | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if np.ndim(self.tree) == 0:
            if int(self.tree) != self.tree or self.tree < 1:
                raise DeclarationError(f"the branching of {self.name!r} is {self.tree}; give a whole number from 1")
            object.__setattr__(self, "tree", int(self.tree))
        else:
            object.__setattr__(self, "_declared", _Tree.of(np.asarray(self.tree)))

    def project(self, point: Array) -> Array:
        layout, _, variance, spread = self._tree(point)
        flat = layout.arranged(np.ascontiguousarray(point, dtype=np.float64).ravel())
        return layout.returned(_project(flat, layout.first, variance, spread)).reshape(point.shape)

    def violation(self, point: Array) -> float:
        layout, inner, _, _ = self._tree(point)
        flat = layout.arranged(point.ravel())
        # Siblings lie side by side, and so do families.
        sums = np.add.reduceat(flat, layout.first[inner])
        return float(np.abs(flat[inner] - sums).max(initial=0.0))

    def support(self, direction: Array) -> float:
        return 0.0 if lies_in_subspace(self.project(direction), direction) else float("inf")

    def polar(self, direction: Array) -> Array:
        return direction - self.project(direction)

    def _tree(self, point: Array) -> _Tree:
        if self._declared is None:
            return _complete_tree(self.tree, point.size, self.name)
        require_cells(self.name, self._declared.layout.nodes, point)
        return self._declared


@lru_cache(maxsize=16)
def _complete_tree(branching: int, size: int, name: str) -> _Tree:
    nodes, level = 0, 1
    while nodes < size:
        nodes += level
        level *= branching
    if nodes != size:
        raise DeclarationError(
            f"{name!r} is a complete tree of branching {branching} with {nodes - level // branching} or {nodes} nodes; "
            f"it was given {size} numbers: pad the last level, or name each node's parent"
        )
    return _Tree.of((np.arange(size, dtype=np.int64) - 1) // branching)


@njit(nogil=True, cache=True)
def _variances(first):  # pragma: no cover - compiled
    """Var v = V/(1 + V) where V is the sum of the children's; a leaf has 1."""
    size = first.shape[0] - 1
    variance, spread = np.ones(size), np.zeros(size)
    for v in range(size - 1, -1, -1):
        for child in range(first[v], first[v + 1]):
            spread[v] += variance[child]
        if spread[v] > 0:
            variance[v] = spread[v] / (1.0 + spread[v])
    return variance, spread


# Upwards, a node's own number y (variance 1) meets the sum S of its children's best estimates (variance V):
#     z = (V·y + S) / (1 + V)                     and z = y at leaves.
# Downwards, what a parent's final value differs from S by is shared among the children by their variances:
#     x_root = z_root,   x_child = z_child + (var_child / V)·(x_parent − S).
# For complete k-ary trees these are the weights of Hay et al., equations (3) and (4).
@njit(nogil=True, cache=True)
def _project(values, first, variance, spread):  # pragma: no cover - compiled
    best, below = values.copy(), np.zeros(values.shape[0])
    for v in range(values.shape[0] - 1, -1, -1):
        if spread[v] > 0:
            for child in range(first[v], first[v + 1]):
                below[v] += best[child]
            best[v] = (spread[v] * values[v] + below[v]) / (1.0 + spread[v])
    for v in range(values.shape[0]):
        if spread[v] > 0:
            share = (best[v] - below[v]) / spread[v]
            for child in range(first[v], first[v + 1]):
                best[child] += variance[child] * share
    return best
