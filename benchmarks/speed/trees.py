"""Consistent, non-negative trees, against general solvers in the same run; then how time and memory grow.

A sparse histogram with Laplace noise on every node of a binary tree. Each solver is given the same values; ours has run
once before, so that compiling is not timed, and is the best of several runs. What a solver found is made exactly
consistent (its leaves, clipped at 0 and summed) before it is judged: `excess` is how far its objective then is above
ours, in parts of ours, and `gap` what our own certificate admits.

The targets are ratios for 2^16 leaves. Growth is measured in processor time, in processes of their own for their peak
memory; `exponent` is the growth of the time per growth of the tree since the first size.
"""

import argparse
import importlib.util
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.peers import clarabel_solver, ortools_flow, osqp_solver, scipy_linprog
from consilience.numerics.fit import Fit
from consilience.numerics.losses import Loss
from consilience.numerics.trees import fit_tree

SEED, BRANCHING = 16, 2

WORKER = """
import json, sys, time
from benchmarks.speed.trees import best_time, noisy_tree, peak_megabytes, weights_of
from consilience.numerics.trees import fit_tree
options, height = json.loads(sys.argv[1])
fit_tree(noisy_tree(4), 2, weights=weights_of(4), **options)
noisy, weights = noisy_tree(height), weights_of(height)
seconds, fit = best_time(lambda: fit_tree(noisy, 2, weights=weights, **options), patience=3.0, clock=time.process_time)
print(json.dumps([seconds, peak_megabytes(), fit.gap / fit.objective]))
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
    """Rows for the peers at one size, then rows for our own growth."""
    return [*against_peers(12 if quick else 16), *growth((10, 12, 14) if quick else (14, 16, 18, 20))]


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


def best_time(
    call: Callable[[], Any], *, patience: float = 1.0, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, Any]:
    """The shortest run of those that fit into so many seconds, at least one, and the last result."""
    best, result, spent = math.inf, None, 0.0
    while spent == 0.0 or spent + best < patience:
        begin = clock()
        result = call()
        seconds = clock() - begin
        best, spent = min(best, seconds), spent + seconds
    return best, result


def peak_megabytes() -> float:
    """The largest memory this process has held. (`getrusage` would also count what its parent held when it forked.)"""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
        return float(line.split()[1]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def against_peers(height: int) -> list[dict[str, Any]]:
    """Each loss by us and by the peers that have it, with the ratio of the times."""
    noisy, weights = noisy_tree(height), weights_of(height)
    equations, scale = sums(len(noisy)), float(weights[0])
    absolute, elastic = weights, Loss.named("elastic").coefficients(weights)
    peers: dict[str, list[tuple[Any, str, Callable[[], np.ndarray], int]]] = {
        "L1, proportional ties": [
            (scipy_linprog, "scipy", lambda: scipy_linprog.least_absolute(equations, noisy, absolute), 1000),
            (ortools_flow, "ortools", lambda: ortools_flow.least_absolute_tree(noisy, BRANCHING), 100),
        ],
        # The peers work on r/b, the residual in units of the noise, where they converge best.
        "elastic net": [
            (
                clarabel_solver,
                "clarabel",
                lambda: _scaled(clarabel_solver.least_elastic, equations, noisy, scale, elastic),
                100,
            )
        ],
        "L2": [(osqp_solver, "osqp", lambda: _scaled(osqp_solver.least_squares, equations, noisy, scale, None), 12)],
    }
    rows = []
    for name, options in OURS.items():
        fit_tree(noisy_tree(4), BRANCHING, **options)
        seconds, fit = best_time(lambda options=options: fit_tree(noisy, BRANCHING, weights=weights, **options))
        problem = f"{name}, 2^{height} leaves"
        rows.append({"problem": problem, "solver": "consilience", "seconds": seconds, "gap": fit.gap / fit.objective})
        for peer, module, call, target in peers.get(name, []):
            rows.append(
                _peer_row(problem, peer.NAME, module, call, target, seconds, fit, options["loss"], noisy, weights)
            )
    return rows


def _scaled(
    solve: Callable[..., np.ndarray], equations: Any, noisy: np.ndarray, scale: float, terms: Any
) -> np.ndarray:
    """The counts of a problem whose values are in units of the noise."""
    ones = np.ones(len(noisy))
    factors = (ones,) if terms is None else (terms[0] / scale, terms[1] / scale**2)
    return solve(equations, noisy * scale, *factors) / scale


def _peer_row(
    problem: str, name: str, module: str, call: Callable[[], np.ndarray], target: int,
    ours: float, fit: Fit, loss: str, noisy: np.ndarray, weights: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    row: dict[str, Any] = {"problem": problem, "solver": name}
    if importlib.util.find_spec(module) is None:
        return row | {"seconds": "not installed"}
    seconds, counts = best_time(call, patience=0.0)
    value = Loss.named(loss).value(made_consistent(counts), noisy, weights)
    ratio = seconds / ours
    row |= {"seconds": seconds, "excess": value / fit.objective - 1.0, "ratio": ratio}
    if len(noisy) == 2**17 - 1:
        row |= {"target": target, "met": "yes" if ratio >= target else "no"}
    return row


def growth(heights: tuple[int, ...]) -> list[dict[str, Any]]:
    """Time, peak memory and gap of each loss at each size, each in a process of its own."""
    rows = []
    for name, options in OURS.items():
        first: float | None = None
        for height in heights:
            arguments = json.dumps([options, height])
            command = [sys.executable, "-c", WORKER, arguments]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            seconds, megabytes, gap = json.loads(printed)
            first = seconds if first is None else first
            row = {"problem": f"{name}, 2^{height} leaves", "solver": "consilience", "seconds": seconds, "gap": gap}
            row["peak MB"] = megabytes
            if height > heights[0]:
                row["exponent"] = math.log(seconds / first) / math.log(2 ** (height - heights[0]))
            rows.append(row)
    return rows


def main() -> int:
    from benchmarks.__main__ import print_rows

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = run(arguments.quick)
    print_rows(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
