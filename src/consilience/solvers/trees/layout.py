"""Trees and forests as arrays in breadth-first order.

In breadth-first order the children of a node lie side by side and parents come before children. One array then says
everything: the children of node v are first[v] … first[v + 1] − 1. A pass from the leaves to the roots is a loop from
the last node to the first, and a pass from the roots to the leaves a loop from the first to the last.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.kernel_cache import njit
from consilience.solvers.fit import SHARED, Array, Infeasible


@dataclass(frozen=True)
class ForestSettings:
    """How large forests, and the families of sets that become forests, may be."""

    largest_forest: int = 1 << 25
    """The most nodes that are fitted at once: a binary tree over 2²⁴ leaves."""
    bytes_per_node: int = 300
    """What the solvers hold at their peak, measured on trees with a million leaves."""
    largest_pattern: int = 1 << 27
    """The most numbers, of four bytes, that the layers of one axis of a family may hold: half a gigabyte."""


SETTINGS = ForestSettings()


@dataclass(frozen=True, eq=False)
class Layout:
    """A forest in breadth-first order: its roots are the nodes 0 … roots − 1."""

    first: NDArray[np.int64]
    """Where the children of each node begin, and one entry more for where the last node's end."""
    roots: int
    height: int
    """The number of edges from a root down to the deepest leaf."""
    total_depth: int
    """The sum over all nodes of the number of their ancestors."""
    order: NDArray[np.int64] | None = None
    """The caller's index of each node; None where the caller's order is breadth-first."""

    @property
    def nodes(self) -> int:
        return len(self.first) - 1

    @property
    def is_leaf(self) -> NDArray[np.bool_]:
        return self.first[1:] == self.first[:-1]

    def arranged(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of the caller's nodes, in breadth-first order."""
        return values if self.order is None else values[self.order]

    def returned(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values in breadth-first order, in the caller's."""
        if self.order is None:
            return values
        placed = np.empty_like(values)
        placed[self.order] = values
        return placed


def complete_tree(nodes: int, branching: int) -> Layout:
    """The complete tree with this many nodes, each inner one with `branching` children.

    >>> complete_tree(7, 2).first
    array([1, 3, 5, 7, 7, 7, 7, 7])
    """
    _check_branching(branching)
    _check_size(nodes)
    height, level, reached, total_depth = 0, 1, 1, 0
    while reached < nodes:
        level *= branching
        reached += level
        height += 1
        total_depth += height * level
    if reached != nodes:
        raise DeclarationError(
            f"there are {nodes} noisy values; a complete tree with {branching} children for each inner node has "
            f"{reached - level} or {reached}. For other trees use fit_forest, with the parents from histogram_parents"
        )
    first = np.full(nodes + 1, nodes, dtype=np.int64)
    first[: (nodes - 1) // branching] = np.arange(1, nodes, branching)
    return Layout(first, 1, height, total_depth)


def histogram_parents(leaves: int, branching: int) -> NDArray[np.int64]:
    """The parents in a tree over any number of leaves: every `branching` neighbours, or what is left, share a parent.

    The nodes are in breadth-first order: the root first, the leaves last and in their order. Nothing is padded; where
    the leaves are a power of the branching, the tree is the complete one.

    >>> histogram_parents(5, 2)
    array([-1,  0,  0,  1,  1,  2,  3,  3,  4,  4,  5])
    """
    _check_branching(branching)
    if leaves < 1:
        raise DeclarationError(f"a histogram with {leaves} cells has no tree; give at least one cell")
    widths = [leaves]
    while widths[-1] > 1:
        widths.append(-(-widths[-1] // branching))
    widths.reverse()
    starts = np.cumsum([0, *widths])
    levels = [
        start + np.arange(width, dtype=np.int64) // branching for start, width in zip(starts, widths[1:], strict=False)
    ]
    return np.concatenate([np.array([-1]), *levels])


def complete_branching(parent: NDArray[np.int64]) -> int | None:
    """How many children each inner node has if this is a complete tree in breadth-first order, else None.

    >>> complete_branching(histogram_parents(4, 2)), complete_branching(histogram_parents(5, 2))
    (2, None)
    """
    branching = int(np.count_nonzero(parent == 0))
    if branching < 2:
        return None
    reached = level = 1
    while reached < len(parent):
        level *= branching
        reached += level
    in_order = reached == len(parent) and np.array_equal(parent, (np.arange(-1, len(parent) - 1)) // branching)
    return branching if in_order else None


def forest(parent: ArrayLike, nodes: int) -> Layout:
    """The forest in which `parent` names the parent of each node, or −1 for a root."""
    _check_size(nodes)
    named = np.asarray(parent)
    if named.shape != (nodes,) or named.dtype.kind not in "iu":
        raise DeclarationError(
            f"`parent` has shape {named.shape} and type {named.dtype} for {nodes} noisy values; give an integer each"
        )
    outside = np.nonzero((named < -1) | (named >= nodes))[0]
    if outside.size:
        raise DeclarationError(
            f"the parent of node {outside[0]} is {named[outside[0]]}; a parent is −1 or a node from 0 to {nodes - 1}"
        )
    order, first, roots, reached, height, total_depth = _breadth_first(named.astype(np.int64))
    if reached < nodes:
        missed = int(np.setdiff1d(np.arange(nodes), order[:reached])[0])
        raise DeclarationError(f"node {missed} has no root above it: its parents form a circle; break it with a −1")
    in_order = bool(np.all(order == np.arange(nodes)))
    return Layout(first, roots, height, total_depth, None if in_order else order)


@njit(nogil=True, cache=True, error_model="numpy")
def _breadth_first(parent):  # pragma: no cover - compiled
    nodes = len(parent)
    ends = np.zeros(nodes + 2, dtype=np.int64)
    for v in range(nodes):
        ends[parent[v] + 2] += 1
    for u in range(1, nodes + 2):
        ends[u] += ends[u - 1]
    by_parent = np.empty(nodes, dtype=np.int64)
    for v in range(nodes):
        by_parent[ends[parent[v] + 1]] = v
        ends[parent[v] + 1] += 1
    # Now the children of u, in the caller's order, are by_parent[ends[u]] … by_parent[ends[u + 1] − 1].
    order = np.empty(nodes, dtype=np.int64)
    first = np.full(nodes + 1, nodes, dtype=np.int64)
    roots = ends[0]
    order[:roots] = by_parent[:roots]
    reached, level_end, depth, total_depth = roots, roots, 0, 0
    for v in range(nodes):
        if v == reached:
            break
        if v == level_end:
            level_end = reached
            depth += 1
        total_depth += depth
        first[v] = reached
        u = order[v]
        for place in range(ends[u], ends[u + 1]):
            order[reached] = by_parent[place]
            reached += 1
    return order, first, roots, reached, depth, total_depth


def _check_branching(branching: int) -> None:
    if not isinstance(branching, int | np.integer) or branching < 2:
        raise DeclarationError(f"the branching is {branching!r}; an inner node has at least 2 children")


def _check_size(nodes: int) -> None:
    if nodes < 1:
        raise DeclarationError("there are no noisy values; give at least one")
    if nodes > SETTINGS.largest_forest:
        raise TooLarge(
            f"a forest of {nodes:,} nodes would need about {nodes * SETTINGS.bytes_per_node / 1e9:.0f} GB of memory; "
            f"at most {SETTINGS.largest_forest:,} nodes are fitted at once. Fit its trees apart"
        )


# ----------------------------------------------------------------------------------------------------------------------
# Exact counts that no consistent counts can have together.
#
# From the leaves upwards every subtree can reach a range of counts: [0, ∞) for a free leaf ((−∞, ∞) where counts may be
# negative), the sum of the children's ranges for an inner node, and one point for an exact node. Exact counts
# contradict each other where that point lies outside what the children can reach; without such a node they can all be
# met.


SHOWN = 6


class ContradictoryCounts(Infeasible):
    """Exact counts of a forest that no counts can have: `nodes` are theirs, the uppermost first."""

    def __init__(self, message: str, *, violation: float, nodes: tuple[int, ...]) -> None:
        super().__init__(message, violation=violation, constraints=[f"node {node}" for node in nodes])
        self.nodes = nodes


def find_contradiction(layout: Layout, noisy: Array, exact: NDArray[np.bool_], *, nonnegative: bool) -> list[int]:
    """A node whose exact count those below it cannot reach, and the exact nodes below it that say so; else nothing."""
    largest = float(np.abs(noisy[exact]).max(initial=0.0))
    floor = 0.0 if nonnegative else -np.inf
    low, high = np.empty(layout.nodes), np.empty(layout.nodes)
    node = int(_first_out_of_reach(layout.first, noisy, exact, floor, SHARED.contradiction * largest, low, high))
    return [] if node < 0 else [node, *_nearest_exact(layout, exact, node)]


@njit(nogil=True, cache=True, error_model="numpy")
def _first_out_of_reach(first, noisy, exact, floor, rounding, low, high):  # pragma: no cover - compiled
    for v in range(len(low) - 1, -1, -1):
        least, most = floor, np.inf
        if first[v] < first[v + 1]:
            least, most = 0.0, 0.0
            for c in range(first[v], first[v + 1]):
                least += low[c]
                most += high[c]
        if exact[v]:
            if noisy[v] < least - rounding or noisy[v] > most + rounding:
                return v
            least = most = noisy[v]
        low[v], high[v] = least, most
    return -1


def _nearest_exact(layout: Layout, exact: NDArray[np.bool_], node: int) -> list[int]:
    """The exact nodes below a node with no other exact node between."""
    found, open_nodes = [], [node]
    while open_nodes:
        v = open_nodes.pop()
        for child in range(int(layout.first[v]), int(layout.first[v + 1])):
            if exact[child]:
                found.append(child)
            else:
                open_nodes.append(child)
    return sorted(found)


def contradiction_error(node: tuple[int, float], below: list[tuple[int, float]], violation: float) -> Infeasible:
    """The error for a node that must have a count and nodes below it that must have others."""
    (top, count), parts = node, sum(value for _, value in below)
    names = ", ".join(str(child) for child, _ in below[:SHOWN]) + (" …" if len(below) > SHOWN else "")
    against = f"the exact counts below it (nodes {names}) sum to {parts:.10g}" if below else "counts are not negative"
    return ContradictoryCounts(
        f"node {top} must have the count {count:.10g}, and {against}; the closest counts miss one of them by "
        f"{violation:.6g}. Correct the exact counts, or give them as measured with noise",
        violation=violation,
        nodes=(top, *(child for child, _ in below)),
    )
