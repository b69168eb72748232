"""Counts on trees: every parent is the sum of its children."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.compilation import announce
from consilience.solvers.projections.convex_set import Array, lies_in_subspace, require_cells


class _Layout(NamedTuple):
    """A rooted forest, and what its projection needs to know of it."""

    parent: NDArray[np.int64]
    order: NDArray[np.int64]
    """Every parent before its children."""
    variance: Array
    """That of a node's best estimate from its own subtree."""
    spread: Array
    """The sum of the children's variances; 0 for leaves."""


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
    _declared: _Layout | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if np.ndim(self.tree) == 0:
            if int(self.tree) != self.tree or self.tree < 1:
                raise DeclarationError(f"the branching of {self.name!r} is {self.tree}; give a whole number from 1")
            object.__setattr__(self, "tree", int(self.tree))
            return
        parent = np.ascontiguousarray(self.tree)
        if parent.ndim != 1 or (parent.size and not np.issubdtype(parent.dtype, np.integer)):
            raise DeclarationError(
                f"the parents of {self.name!r} are {parent.dtype} values of shape {parent.shape}; "
                "give one whole number for each node, −1 for roots"
            )
        object.__setattr__(self, "_declared", _layout(parent.astype(np.int64), self.name))

    def project(self, point: Array) -> Array:
        layout = self._layout(point)
        flat = np.ascontiguousarray(point, dtype=np.float64).ravel()
        announce(_project)
        return _project(flat, *layout).reshape(point.shape)

    def violation(self, point: Array) -> float:
        layout, flat = self._layout(point), point.ravel()
        inner = layout.spread > 0
        children = layout.parent >= 0
        sums = np.bincount(layout.parent[children], weights=flat[children], minlength=flat.size)
        return float(np.abs(flat - sums)[inner].max(initial=0.0))

    def support(self, direction: Array) -> float:
        return 0.0 if lies_in_subspace(self.project(direction), direction) else float("inf")

    def polar(self, direction: Array) -> Array:
        return direction - self.project(direction)

    def _layout(self, point: Array) -> _Layout:
        if self._declared is None:
            return _complete_tree(self.tree, point.size, self.name)
        require_cells(self.name, self._declared.parent.size, point)
        return self._declared


@lru_cache(maxsize=16)
def _complete_tree(branching: int, size: int, name: str) -> _Layout:
    nodes, level = 0, 1
    while nodes < size:
        nodes += level
        level *= branching
    if nodes != size:
        raise DeclarationError(
            f"{name!r} is a complete tree of branching {branching} with {nodes - level // branching} or {nodes} nodes; "
            f"it was given {size} numbers: pad the last level, or name each node's parent"
        )
    parent = (np.arange(size, dtype=np.int64) - 1) // branching
    return _layout(parent, name)


def _layout(parent: NDArray[np.int64], name: str) -> _Layout:
    if parent.size and (parent.min() < -1 or parent.max() >= parent.size):
        raise DeclarationError(
            f"a parent in {name!r} is node {parent.max()} of {parent.size} (or below −1); "
            "name nodes by their position, and roots by −1"
        )
    order = _parents_first(parent)
    if np.any(order < 0):
        raise DeclarationError(f"following the parents in {name!r} leads in a circle; every node must reach a root")
    variance, spread = _variances(parent, order)
    return _Layout(parent, order, variance, spread)


@numba.njit(nogil=True, cache=True)
def _parents_first(parent):  # pragma: no cover - compiled
    """The nodes with every parent before its children; −1 in the places that a circle leaves empty."""
    size = parent.shape[0]
    children = np.zeros(size + 1, dtype=np.int64)
    for node in range(size):
        children[parent[node] + 1] += 1
    begin = np.cumsum(children)
    listed = np.empty(size, dtype=np.int64)
    free = begin - children
    for node in range(size):
        listed[free[parent[node] + 1]] = node
        free[parent[node] + 1] += 1
    order = np.full(size, -1, dtype=np.int64)
    found = 0
    for at in range(children[0]):
        order[found] = listed[at]
        found += 1
    at = 0
    while at < found:
        slot = order[at] + 1
        for child in range(begin[slot] - children[slot], begin[slot]):
            order[found] = listed[child]
            found += 1
        at += 1
    return order


@numba.njit(nogil=True, cache=True)
def _variances(parent, order):  # pragma: no cover - compiled
    """Var v = V/(1 + V) where V is the sum of the children's; a leaf has 1."""
    size = parent.shape[0]
    variance = np.ones(size)
    spread = np.zeros(size)
    for at in range(size - 1, -1, -1):
        node = order[at]
        if spread[node] > 0:
            variance[node] = spread[node] / (1.0 + spread[node])
        if parent[node] >= 0:
            spread[parent[node]] += variance[node]
    return variance, spread


# Upwards, a node's own number y (variance 1) meets the sum S of its children's best estimates (variance V):
#     z = (V·y + S) / (1 + V)                     and z = y at leaves.
# Downwards, what a parent's final value differs from S by is shared among the children by their variances:
#     x_root = z_root,   x_child = z_child + (var_child / V)·(x_parent − S).
# For complete k-ary trees these are the weights of Hay et al., equations (3) and (4).
@numba.njit(nogil=True, cache=True)
def _project(values, parent, order, variance, spread):  # pragma: no cover - compiled
    size = values.shape[0]
    best = np.empty(size)
    below = np.zeros(size)
    for at in range(size - 1, -1, -1):
        node = order[at]
        if spread[node] > 0:
            best[node] = (spread[node] * values[node] + below[node]) / (1.0 + spread[node])
        else:
            best[node] = values[node]
        if parent[node] >= 0:
            below[parent[node]] += best[node]
    for at in range(size):
        node = order[at]
        above = parent[node]
        if above >= 0:
            best[node] += variance[node] / spread[above] * (best[above] - below[above])
    return best
