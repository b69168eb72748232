"""How solvers are timed, and what a row says of a peer.

Times are processor time of one thread, so that other work of the machine matters little. Our own is the best of several
runs, after one that compiles; peers, which take long, run once. A peer is timed from the moment that its problem is
written down in the form that it takes: to write it down is free, to analyse, scale and factor it is its own affair.

What a peer found is made feasible before it is judged: `excess` is how far its objective then is above ours, in parts
of ours. `ratio` is its time in units of ours. A peer that reaches its time limit has no excess, and its ratio is a
lower bound.
"""

import importlib.util
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Solve = Callable[[], "np.ndarray | None"]
"""Runs a solver on a problem that is already written down; None if it reached its time limit."""

PEER_LIMIT = 300.0
"""Seconds that a peer may take."""


@dataclass(frozen=True)
class Peer:
    """A solver that is not ours, and by what factor ours has to be faster."""

    name: str
    module: str
    write_down: Callable[[], Solve]
    target: float | None = None


@dataclass(frozen=True)
class Own:
    """What our solver did with a problem."""

    problem: str
    seconds: float
    objective: float
    gap: float

    def row(self, **more: Any) -> dict[str, Any]:
        relative = self.gap / self.objective if self.objective > 0 else 0.0
        row = {"problem": self.problem, "solver": "consilience", "seconds": self.seconds, "gap": relative}
        return row | more


def best_time(
    call: Callable[[], Any],
    *,
    patience: float = 1.0,
    least: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, Any]:
    """The shortest run of those that fit into so many seconds, or of the least number, and the last result."""
    best, result, spent, runs = math.inf, None, 0.0, 0
    while runs < least or spent + best < patience:
        begin = clock()
        result = call()
        seconds = clock() - begin
        best, spent, runs = min(best, seconds), spent + seconds, runs + 1
    return best, result


def own_time(problem: str, call: Callable[[], Any], *, patience: float = 2.0) -> Own:
    """Our solver on a problem: the best of at least three runs."""
    seconds, fit = best_time(call, patience=patience, least=3, clock=time.process_time)
    return Own(problem, seconds, fit.objective, fit.gap)


def peer_row(own: Own, peer: Peer, objective: Callable[[np.ndarray], float], *, judge: bool = True) -> dict[str, Any]:
    """What a peer did with the same problem; `objective` makes its answer feasible and says what it costs."""
    row: dict[str, Any] = {"problem": own.problem, "solver": peer.name}
    if importlib.util.find_spec(peer.module) is None:
        return row | {"seconds": "not installed"}
    solve = peer.write_down()
    begin = time.process_time()
    answer = solve()
    seconds = time.process_time() - begin
    row |= {"seconds": seconds, "ratio": seconds / own.seconds}
    if answer is None:
        row["note"] = "time limit: the ratio is a lower bound"
    else:
        row["excess"] = objective(answer) / own.objective - 1.0
    if peer.target is not None and judge:
        met = row["ratio"] >= peer.target
        row |= {"target": f">= {peer.target:g}x", "met": "yes" if met else "unknown" if answer is None else "no"}
    return row


def in_own_process(program: str, *arguments: Any) -> Any:
    """What a program of its own printed, which got the arguments as one JSON text and prints JSON."""
    command = [sys.executable, "-c", program, json.dumps(arguments)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def peak_megabytes() -> float:
    """The largest memory this process has held. (`getrusage` would also count what its parent held when it forked.)"""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
        return float(line.split()[1]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
