"""Exact counts that no consistent counts can have together.

From the leaves upwards every subtree can reach a range of counts: [0, ∞) for a free leaf ((−∞, ∞) where counts may be
negative), the sum of the children's ranges for an inner node, and one point for an exact node. Exact counts contradict
each other where that point lies outside what the children can reach; without such a node they can all be met.
"""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import announce
from consilience.solvers.infeasible import Infeasible
from consilience.solvers.losses import Array
from consilience.solvers.trees.layout import Layout

ROUNDED = 1e-9
"""Exact counts that miss each other by this part of the largest are taken for rounded."""

SHOWN = 6


class ContradictoryCounts(Infeasible):
    """Exact counts of a forest that no counts can have: `nodes` are theirs, the uppermost first."""

    def __init__(self, message: str, *, violation: float, nodes: tuple[int, ...]) -> None:
        super().__init__(message, violation=violation, constraints=[f"node {node}" for node in nodes])
        self.nodes = nodes


@dataclass(frozen=True)
class Contradiction:
    """A node whose exact count those below it cannot reach, and the exact nodes below it that say so."""

    node: int
    below: tuple[int, ...]


def find_contradiction(
    layout: Layout, noisy: Array, exact: NDArray[np.bool_], *, nonnegative: bool
) -> Contradiction | None:
    """A contradiction between exact counts, in breadth-first order; None where all can be met."""
    announce(_first_out_of_reach)
    largest = float(np.abs(noisy[exact]).max(initial=0.0))
    floor = 0.0 if nonnegative else -np.inf
    low, high = np.empty(layout.nodes), np.empty(layout.nodes)
    node = int(_first_out_of_reach(layout.first, noisy, exact, floor, ROUNDED * largest, low, high))
    if node < 0:
        return None
    return Contradiction(node, tuple(_nearest_exact(layout, exact, node)))


@numba.njit(nogil=True, cache=True, error_model="numpy")
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
