"""Graphical models against mbi, in one run: time to the same loss, time of an oracle call, memory, and accuracy.

Three problems: a chain of 100 attributes, a star of 30, and 15 triples of the finer Adult. A row compares one quantity.

*To within 1 %*: seconds from the measurements to a loss at most 1 % above the best that either found, compilation
included, import not. Ours runs with kernels that an earlier run left on disk, as from the second use on; the first use
ever, which compiles them, is a row of its own. mbi's is the best of its estimators, in process after process: none goes
on after the time that another already needed. It shows its loss every 50 steps; between these its curve is taken as
smooth, while of ours only the models count that it really met.

*Oracle*: seconds of a call at the same random potentials, when everything is compiled. The marginals of both must be
equal to 1e-9 of the total, or the benchmark fails.

*Accuracy*: 15 random triples with Laplace noise of scale 15 (ε = 1); the mean over the triples of L1/2N, the median of
three draws of the noise, each package as it comes.
"""

import importlib.util
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import mbi_models
from benchmarks.problems.noisy_marginals import NoisyMarginals, adult_fine, chain, random_triples, star
from benchmarks.speed.graphical_runs import apart

WITHIN = 1.01
"""The loss to reach, in parts of the best."""
PEER_LIMIT = 600.0
"""Seconds that an estimator of the peer may take."""
START_ALLOWANCE = 20.0
"""Seconds for a process to start, to import and to end, which do not count."""
EQUAL = 1e-9
"""By how much marginals may differ, in parts of the total."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A problem, and by what factors we have to be faster."""

    name: str
    make: Callable[[], NoisyMarginals]
    fit_target: float | None = None
    oracle_target: float | None = None


CASES = (
    Case("chain of 100", lambda: chain(100), 10.0, 4.0),
    Case("star of 30", lambda: star(30), 10.0, 6.0),
    Case("adult-fine, 15 triples", adult_fine, 10.0, 10.0),
)
QUICK_CASES = (Case("chain of 20", lambda: chain(20)), Case("star of 8", lambda: star(8)))

ACCURACY = {"titanic": 0.386, "adult": 0.0448, "stroke": 0.120}
"""Tables, and the error that is to be reached on each."""


def run(quick: bool) -> list[Row]:
    """All rows; if quick, smaller problems without targets, and the accuracy of one draw on Titanic."""
    rows: list[Row] = []
    for case in QUICK_CASES if quick else CASES:
        rows += compared(case)
    for name in ("titanic",) if quick else ACCURACY:
        rows += accuracy(name, draws=1 if quick else 3)
    return rows


def compared(case: Case) -> Iterator[Row]:
    """The rows of one problem."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "problem.npz")
        problem = case.make()
        problem.save(path)
        name = f"{case.name} (stand-in)" if problem.name.endswith("(stand-in)") else case.name
        for row in (*_oracles(case, path, problem), *_fits(case, path)):
            print(f"  {name}: {row['quantity']} done", flush=True)
            yield {"problem": name} | row


def _oracles(case: Case, path: Path, problem: NoisyMarginals) -> list[Row]:
    """What was measured, the seconds of an oracle call, and that both oracles say the same."""
    files = [path.with_name("ours.npz"), path.with_name("mbi.npz")]
    ours = apart("our_oracle", str(path), str(files[0]))
    cells: Row = {"quantity": "measured cells", "consilience": problem.cells, "mbi": problem.cells}
    tree: Row = {"quantity": "junction-tree cells", "consilience": ours["cells"]}
    call: Row = {"quantity": "oracle call, s", "consilience": ours["seconds"]}
    if not is_installed():
        return [cells, tree, call | {"mbi": "not installed"}]
    peer = apart("mbi_oracle", str(path), str(files[1]))
    difference = largest_difference(*files) / problem.total
    if not difference <= EQUAL:
        raise AssertionError(f"{case.name}: the marginals differ from mbi's by {difference:.2g} of the total")
    judged = judge(ours["seconds"], peer["seconds"], case.oracle_target)
    difference_row = {"quantity": "marginals' largest difference, of the total", "ratio": difference, "met": "yes"}
    return [cells, tree | {"mbi": peer["cells"]}, call | judged, difference_row | {"target": f"<= {EQUAL:g}"}]


def _fits(case: Case, path: Path) -> list[Row]:
    """Seconds to the same loss, those of the first use ever, and the peak memory."""
    with tempfile.TemporaryDirectory() as empty:
        first = apart("our_fit", str(path), numba_cache=Path(empty))
    apart("our_fit", str(path))
    ours = apart("our_fit", str(path))
    found = min(loss for _, loss in ours["curve"])
    peers = mbi_fits(path, WITHIN * found) if is_installed() else {}
    best = min([found, *(loss for peer in peers.values() for _, loss in peer["curve"])])
    warm, cold = (seconds_until(each["curve"], WITHIN * best, between=False) for each in (ours, first))
    rows: list[Row] = [
        {"quantity": "to within 1 %, s", "consilience": warm, "mbi": "not installed"},
        {"quantity": "to within 1 %, first use ever, s", "consilience": cold},
        {"quantity": "proven gap in the end", "consilience": ours["gap"]},
        {"quantity": "peak MB of the fit", "consilience": ours["megabytes"]},
    ]
    if not is_installed():
        return rows
    reached = {name: seconds_until(peer["curve"], WITHIN * best) for name, peer in peers.items()}
    fastest = min(reached, key=lambda name: (reached[name], name), default=None)
    if fastest is None or math.isinf(reached[fastest]):
        seconds, note = PEER_LIMIT, "none of mbi's estimators got there: a lower bound"
    else:
        seconds, note = reached[fastest], f"mbi: {fastest}"
    rows[0] |= judge(warm, seconds, case.fit_target) | {"note": note}
    rows[1] |= judge(cold, seconds, None)
    if fastest is not None:
        rows[3] |= judge(ours["megabytes"], peers[fastest]["megabytes"], 1.0)
    return rows


def mbi_fits(path: Path, enough: float) -> dict[str, Any]:
    """The curves of the peer's estimators; each may take as long as the fastest so far took, even to compile."""
    limit, found = PEER_LIMIT, {}
    for estimator in mbi_models.ESTIMATORS:
        told = apart("mbi_fit", str(path), estimator, enough, limit, timeout=limit + START_ALLOWANCE)
        if told is not None:
            found[estimator] = told
            limit = min(limit, seconds_until(told["curve"], enough))
    return found


def accuracy(name: str, *, draws: int) -> Iterator[Row]:
    """Error and seconds on 15 random triples of a table, as each package comes."""
    found: dict[str, list[tuple[float, float]]] = {}
    runs = ["our_accuracy", *(["mbi_accuracy"] if is_installed() else [])]
    problem: NoisyMarginals | None = None
    for seed in range(draws):
        problem = random_triples(name, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "problem.npz")
            problem.save(path)
            for each in runs:
                result = apart(each, str(path))
                found.setdefault(each, []).append((result["error"], result["seconds"]))
        print(f"  {name}, draw {seed + 1} of {draws}: done", flush=True)
    label = f"{name}{' (stand-in)' if problem and problem.name.endswith('(stand-in)') else ''}, 15 random triples"
    medians = {each: np.median(pairs, axis=0).tolist() for each, pairs in found.items()}
    ours, peer = medians["our_accuracy"], medians.get("mbi_accuracy")
    error: Row = {"problem": label, "quantity": "error, L1/2N", "consilience": ours[0]}
    seconds: Row = {"problem": label, "quantity": "estimate, s", "consilience": ours[1]}
    if peer is not None:
        error |= {"mbi": peer[0], "ratio": peer[0] / ours[0]}
        seconds |= judge(ours[1], peer[1], 10.0)
    yield error | {"target": f"<= {ACCURACY[name]}", "met": "yes" if ours[0] <= ACCURACY[name] else "no"}
    yield seconds


def judge(ours: float, peer: float, target: float | None) -> Row:
    """The peer's number, the ratio to ours, and whether it is as large as wanted."""
    row: Row = {"mbi": peer, "ratio": peer / ours}
    if target is not None:
        row |= {"target": f">= {target:g}x", "met": "yes" if row["ratio"] >= target else "no"}
    return row


def seconds_until(curve: list[tuple[float, float]], level: float, *, between: bool = True) -> float:
    """When a falling curve comes down to a level; infinity if it never does.

    `between` two points the logarithm of the loss is interpolated; else the first point at or below the level counts.

    >>> seconds_until([(1.0, 100.0), (2.0, 10.0), (3.0, 1.0)], 10.0 ** 0.5)
    2.5
    """
    before: tuple[float, float] | None = None
    for seconds, loss in curve:
        if loss <= level:
            if before is None or loss <= 0 or not between:
                return seconds
            share = math.log(before[1] / level) / math.log(before[1] / loss)
            return before[0] + share * (seconds - before[0])
        before = (seconds, loss)
    return math.inf


def largest_difference(one: Path, other: Path) -> float:
    """The largest difference between the tables in two files."""
    with np.load(one) as first, np.load(other) as second:
        return max(float(np.abs(first[key] - second[key]).max()) for key in first.files)


def is_installed() -> bool:
    return importlib.util.find_spec(mbi_models.MODULE) is not None
