"""Consistent, non-negative trees, against general solvers in the same run; then how time and memory grow.

A sparse histogram with Laplace noise on every node of a binary tree. What a solver found is made exactly consistent
(its leaves, clipped at 0 and summed) before it is judged. Peers get the problem in the form that is usual for them;
where we know a form that suits them better, they get that too, in a row of its own.

The targets are ratios for 2^16 leaves. Deep trees have a million nodes: a path, where every count is the same, and a
caterpillar, a path with a leaf at every node of it; the target is the time of the path. Growth is measured in processes
of their own, for their peak memory, as the best of at least nine runs; `exponent` is the growth of the time per growth
of the tree since the first size.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.peers import clarabel_solver, ortools_flow, osqp_solver, scipy_linprog
from benchmarks.speed.timing import PEER_LIMIT, Own, Peer, Solve, best_time, in_own_process, own_time, peer_row
from consilience.solvers.fit import Loss
from consilience.solvers.trees.fit import fit_forest, fit_tree

__all__ = ["best_time", "made_consistent", "noisy_tree", "run", "sums", "weights_of"]

SEED, BRANCHING = 16, 2
JUDGED, LARGEST, EXPONENT, MEGABYTES = 16, 20, 1.15, 1000
DEEP_NODES, DEEP_SECONDS = 1_000_000, 10

WORKER = """
import json, sys, time
from benchmarks.speed.timing import best_time, peak_megabytes
from benchmarks.speed.trees import noisy_tree, weights_of
from consilience.solvers.trees.fit import fit_tree
options, height = json.loads(sys.argv[1])
fit_tree(noisy_tree(4), 2, weights=weights_of(4), **options)
noisy, weights = noisy_tree(height), weights_of(height)
call = lambda: fit_tree(noisy, 2, weights=weights, **options)
seconds, fit = best_time(call, patience=1.0, least=9, clock=time.process_time)
print(json.dumps([seconds, peak_megabytes(), fit.objective, fit.gap]))
"""

OURS: dict[str, dict[str, Any]] = {
    "L1, proportional ties": {"loss": "l1", "ties": "proportional"},
    "L1, vertex ties": {"loss": "l1", "ties": "vertex"},
    "L1, min-l2 ties": {"loss": "l1", "ties": "min-l2"},
    "elastic net": {"loss": "elastic"},
    "L2": {"loss": "l2"},
    "L2, negative counts allowed": {"loss": "l2", "nonnegative": False},
}


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows for the peers at one size, then rows for deep trees and for our own growth."""
    return [
        *against_peers(12 if quick else 16),
        *deep_trees(DEEP_NODES // 100 if quick else DEEP_NODES),
        *growth((10, 12, 14) if quick else (14, 16, 18, 20)),
    ]


def noisy_tree(height: int) -> np.ndarray:
    """A histogram of 2^height cells, nine in ten of them empty, summed up a binary tree, with noise for ε = 1."""
    rng = np.random.default_rng(SEED)
    cells = 2**height
    levels = [np.where(rng.random(cells) < 0.1, np.minimum(rng.zipf(1.6, cells), 1500), 0).astype(np.float64)]
    while len(levels[-1]) > 1:
        levels.append(levels[-1].reshape(-1, BRANCHING).sum(axis=1))
    counts = np.concatenate(levels[::-1])
    return counts + rng.laplace(0, height + 1, len(counts))


def weights_of(height: int) -> np.ndarray:
    return np.full(2 ** (height + 1) - 1, 1.0 / (height + 1))


def sums(nodes: int) -> Any:
    """The matrix whose rows say that a count is the sum of its children's."""
    inner = nodes // 2
    parents, children = np.arange(inner), np.arange(1, nodes)
    entries = np.concatenate([np.ones(inner), -np.ones(nodes - 1)])
    rows, columns = np.concatenate([parents, (children - 1) // BRANCHING]), np.concatenate([parents, children])
    return sp.csr_matrix((entries, (rows, columns)), shape=(inner, nodes))


def made_consistent(counts: np.ndarray) -> np.ndarray:
    """The leaves, clipped at 0, and their sums."""
    levels = [np.maximum(counts[len(counts) // 2 :], 0.0)]
    while len(levels[-1]) > 1:
        levels.append(levels[-1].reshape(-1, BRANCHING).sum(axis=1))
    return np.concatenate(levels[::-1])


def against_peers(height: int) -> list[dict[str, Any]]:
    """Each loss by us and by the peers that have it, with the ratio of the times."""
    noisy, weights = noisy_tree(height), weights_of(height)
    peers = _peers(noisy, weights)
    rows = []
    for name, options in OURS.items():
        fit_tree(noisy_tree(4), BRANCHING, weights=weights_of(4), **options)
        problem = f"tree, {name}, 2^{height} leaves"
        own = own_time(problem, lambda options=options: fit_tree(noisy, BRANCHING, weights=weights, **options))
        loss = Loss.named(options["loss"])
        rows.append(own.row())
        for peer in peers.get(name, []):

            def objective(counts: np.ndarray, loss: Loss = loss) -> float:
                return loss.value(made_consistent(counts), noisy, weights)

            rows.append(peer_row(own, peer, objective, judge=height == JUDGED))
    return rows


def _peers(noisy: np.ndarray, weights: np.ndarray) -> dict[str, list[Peer]]:
    """Who else can do what. Peers get residuals in units of the noise, with which they converge best."""
    equations, scale = sums(len(noisy)), float(weights[0])
    units, ones, zeros = noisy * scale, np.ones(len(noisy)), np.zeros(len(noisy) // 2)
    linear, square = Loss.named("elastic").coefficients(ones)
    leaves = np.arange(len(noisy)) >= len(noisy) // 2
    limit = {"time_limit": PEER_LIMIT}

    def rescaled(write_down: Callable[..., Solve], *arguments: Any, **options: Any) -> Callable[[], Solve]:
        def written() -> Solve:
            solve = write_down(*arguments, **options)
            return lambda: None if (found := solve()) is None else found / scale

        return written

    linprog, clarabel = scipy_linprog.NAME, clarabel_solver.NAME
    squares = (equations, zeros, units, linear, square)
    return {
        "L1, proportional ties": [
            Peer(linprog, "scipy", rescaled(scipy_linprog.least_absolute, equations, units, ones, **limit), 1000),
            Peer(
                f"{linprog}, as a flow",
                "scipy",
                rescaled(scipy_linprog.least_absolute_as_flow, equations, units, ones, **limit),
            ),
            Peer(ortools_flow.NAME, "ortools", lambda: ortools_flow.least_absolute_tree(noisy, BRANCHING), 100),
        ],
        "elastic net": [
            Peer(clarabel, "clarabel", rescaled(clarabel_solver.least_elastic, *squares, **limit), 100),
            Peer(
                f"{clarabel}, fewer unknowns",
                "clarabel",
                rescaled(clarabel_solver.least_elastic_by_parts, *squares, bounded=leaves, **limit),
            ),
        ],
        "L2": [
            Peer(osqp_solver.NAME, "osqp", rescaled(osqp_solver.least_squares, equations, units, ones, **limit), 12)
        ],
    }


def deep_trees(nodes: int) -> list[dict[str, Any]]:
    """L1 with min-l2 ties on trees as deep as trees can be."""
    rng, places = np.random.default_rng(SEED), np.arange(nodes)
    noisy = rng.integers(0, 50, nodes) + rng.laplace(0, 5, nodes)
    weights = rng.uniform(0.1, 0.3, nodes)
    rows = []
    for name, parent in (("path", places - 1), ("caterpillar", np.where(places > 0, (places - 1) // 2 * 2, -1))):
        fit_forest(noisy[:8], parent[:8], loss="l1", weights=weights[:8])

        def fitted(parent: np.ndarray = parent) -> Any:
            return fit_forest(noisy, parent, loss="l1", weights=weights, ties="min-l2")

        row = own_time(f"tree, L1, min-l2 ties, {name} of {nodes:,} nodes", fitted).row()
        if name == "path" and nodes == DEEP_NODES:
            row |= {"target": f"<= {DEEP_SECONDS} s", "met": "yes" if row["seconds"] <= DEEP_SECONDS else "no"}
        rows.append(row)
    return rows


def growth(heights: tuple[int, ...]) -> list[dict[str, Any]]:
    """Time, peak memory and gap of each loss at each size, each in a process of its own."""
    rows = []
    for name, options in OURS.items():
        first: float | None = None
        for height in heights:
            seconds, megabytes, objective, gap = in_own_process(WORKER, options, height)
            first = seconds if first is None else first
            own = Own(f"tree, {name}, 2^{height} leaves, growth", seconds, objective, gap)
            row = own.row(**{"peak MB": megabytes})
            if height > heights[0]:
                row["exponent"] = math.log(seconds / first) / math.log(2 ** (height - heights[0]))
            if height == LARGEST:
                met = row["exponent"] <= EXPONENT and megabytes < MEGABYTES
                row |= {"target": f"<= n^{EXPONENT}, < {MEGABYTES} MB", "met": "yes" if met else "no"}
            rows.append(row)
    return rows
