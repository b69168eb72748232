"""OR-tools' minimum-cost flow: least Σ |x − y| on a tree, where counts are flows from the root to the leaves.

The flow into a node is its count. Up to y a unit earns 1, beyond it costs 1, so each node has two arcs from its parent.
All leaves lead to one sink, which returns everything to the root. Flows are whole: values are multiplied by `units`.
"""

from collections.abc import Callable
from importlib import import_module

import numpy as np

NAME, MODULE = "OR-tools min-cost-flow", "ortools"


def least_absolute_tree(noisy: np.ndarray, branching: int, *, units: int = 1000) -> Callable[[], np.ndarray]:
    """Counts of a complete tree, breadth-first."""
    min_cost_flow = import_module("ortools.graph.python.min_cost_flow")

    nodes = len(noisy)
    inner = (nodes - 1) // branching
    whole = np.rint(noisy * units).astype(np.int64)
    numbers = np.arange(nodes)
    tails = np.where(numbers == 0, inner, (numbers - 1) // branching)
    heads = np.minimum(numbers, inner)
    positive = whole > 0
    limit = int(np.abs(whole).sum()) + 1
    flow = min_cost_flow.SimpleMinCostFlow()
    arcs = flow.add_arcs_with_capacity_and_unit_cost(
        np.concatenate([tails[positive], tails]).astype(np.int32),
        np.concatenate([heads[positive], heads]).astype(np.int32),
        np.concatenate([whole[positive], np.full(nodes, limit)]),
        np.concatenate([np.full(int(positive.sum()), -1), np.ones(nodes, dtype=np.int64)]),
    )

    def solve() -> np.ndarray:
        status = flow.solve()
        if status != flow.OPTIMAL:
            raise RuntimeError(f"OR-tools ended with status {status}")
        flows = flow.flows(arcs).astype(np.float64) / units
        counts = flows[int(positive.sum()) :].copy()
        counts[positive] += flows[: int(positive.sum())]
        return counts

    return solve
