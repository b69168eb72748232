"""This version beside an earlier one: `python -m benchmarks.versions PATH/TO/EARLIER/src [CASE ...] [--pairs 5]`.

Both run the same cases, by public names alone, in turns: earlier, this, this, earlier, …, each time in a process of its
own, which runs every case once to compile and load and three times more. The time is the least of these, that of the
processor: what else the machine does only adds to it. The table has the median over pairs of this version's time over
the earlier one's, with the least and the greatest (the true median lies between them with 94 % confidence for five
pairs, by the sign test), and the same ratio of errors. A case is *slower* where even the least ratio exceeds 1.05, or
the median does by as much with all but one of the pairs above it.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import consilience as cs

SLOWER, WORSE = 1.05, 1.01
TIMED_RUNS = 3
THIS = Path(cs.__file__).parents[1]


def _truth(sizes: tuple[int, ...], records: int, seed: int) -> np.ndarray:
    """A table of correlated attributes, sparse where it is large."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(0.3, size=sizes)
    for left, right in itertools.pairwise(range(len(sizes))):
        shape = [size if axis in (left, right) else 1 for axis, size in enumerate(sizes)]
        weights = weights * (rng.gamma(0.5, size=shape) + 1e-3)
    return rng.multinomial(records, (weights / weights.sum()).ravel()).reshape(sizes).astype(float)


def _measured(sizes: tuple[int, ...], queries: list[cs.Query], law: Any, *, records: int = 50_000) -> Any:
    domain = cs.Domain.from_sizes({f"a{place}": size for place, size in enumerate(sizes)})
    truth, rng = _truth(sizes, records, 1), np.random.default_rng(2)
    measurements = []
    for query in queries:
        exact = np.ravel(query.bind(domain).answer_full(truth))
        measurements.append(cs.Measurement(query, exact + law.simulate(exact.size, rng), law))
    return cs.MeasurementSet(domain, tuple(measurements), private=False), truth


def _marginals(attributes: int, ways: int) -> list[cs.Query]:
    names = [f"a{place}" for place in range(attributes)]
    return [cs.Query.marginal(*chosen) for chosen in itertools.combinations(names, ways)]


def _fit(
    estimator: Callable[[], Any], sizes: tuple[int, ...], queries: list[cs.Query], law: Any
) -> Callable[[], float]:
    measured, truth = _measured(sizes, queries, law)

    def run() -> float:
        fitted = estimator().fit(measured)
        exact = [np.ravel(each.query.bind(measured.domain).answer_full(truth)) for each in measured]
        found = [np.ravel(fitted.answer(each.query)) for each in measured]
        return float(sum(np.abs(one - other).sum() for one, other in zip(exact, found, strict=True)))

    return run


def _intervals() -> Callable[[], float]:
    measured, _ = _measured((8, 6, 5, 4, 4), _marginals(5, 2), cs.DiscreteLaplace(20.0))
    fitted = cs.estimators.Graphical().fit(measured)
    return lambda: float(np.median(np.ptp(_ends(cs.interval(fitted, "by a0, a1", refits=40)), axis=0)))


def _ends(found: Any) -> np.ndarray:
    return np.array([found.low, found.high])


def _records() -> Callable[[], float]:
    measured, truth = _measured((8, 6, 5, 4, 4), _marginals(5, 2), cs.DiscreteLaplace(20.0))
    fitted = cs.estimators.Graphical().fit(measured)

    def run() -> float:
        table = cs.synthesize(fitted, 50_000)
        codes = [np.array(table.column(f"a{place}").to_pylist(), dtype=np.int64) for place in (0, 1)]
        found = np.zeros((8, 6))
        np.add.at(found, tuple(codes), 1.0)
        return float(np.abs(found - truth.sum(axis=(2, 3, 4))).sum())

    return run


def _plan(plan: Callable[[], Any]) -> Callable[[], float]:
    import pyarrow as pa

    sizes = (8, 6, 5, 4, 4, 3)
    truth = _truth(sizes, 30_000, 1)
    places = np.repeat(np.arange(truth.size), truth.ravel().astype(int))
    codes = np.unravel_index(places, sizes)
    table = pa.table({f"a{place}": column.astype(str) for place, column in enumerate(codes)})
    domain = cs.Domain.from_sizes({f"a{place}": size for place, size in enumerate(sizes)})

    def run() -> float:
        source = cs.open_table(table, domain)
        fitted = cs.estimate(cs.measure(source, plan(), epsilon=1.0, simulate=3))
        pairs = itertools.combinations(range(6), 2)
        return float(sum(_off(fitted, truth, pair) for pair in pairs))

    return run


def _off(fitted: Any, truth: np.ndarray, pair: tuple[int, ...]) -> float:
    rest = tuple(axis for axis in range(truth.ndim) if axis not in pair)
    return float(np.abs(fitted.marginal(*(f"a{axis}" for axis in pair)) - truth.sum(axis=rest)).sum())


def _cases() -> dict[str, Callable[[], Callable[[], float]]]:
    laplace, line = cs.Laplace(10.0), [cs.Query((("a0", cs.factors.Tree(2)),))]
    estimators, wide = cs.estimators, (8, 6, 5, 4, 4, 3, 2)
    prefix = [cs.Query((("a0", cs.factors.Prefix()),))]
    grid = [cs.Query((("a0", cs.factors.Tree(2)), ("a1", cs.factors.Tree(2))))]
    chain = [cs.Query.marginal(f"a{place}", f"a{place + 1}") for place in range(6)]
    return {
        "tree, 2^14 leaves": lambda: _fit(estimators.Tree, (2**14,), line, laplace),
        "tree, absolute values": lambda: _fit(lambda: estimators.Tree(loss="l1"), (2**14,), line, laplace),
        "table, squares, pairs of 23k cells": lambda: _fit(
            lambda: estimators.Table(loss="l2"), wide, _marginals(7, 2), laplace
        ),
        "table, squares, triples of 240 cells": lambda: _fit(
            lambda: estimators.Table(loss="l2"), (5, 4, 4, 3), _marginals(4, 3), laplace
        ),
        "table, squares, prefixes of 2k cells": lambda: _fit(
            lambda: estimators.Table(loss="l2"), (2048,), prefix, laplace
        ),
        "table, squares, trees of 64 x 64": lambda: _fit(lambda: estimators.Table(loss="l2"), (64, 64), grid, laplace),
        "table, absolute values": lambda: _fit(
            lambda: estimators.Table(loss="l1"), (8, 6, 5, 4), _marginals(4, 2), laplace
        ),
        "graphical, chain": lambda: _fit(estimators.Graphical, (30, 20, 15, 20, 10, 8, 5), chain, laplace),
        "graphical, pairs": lambda: _fit(estimators.Graphical, (8, 6, 5, 4, 4), _marginals(5, 2), laplace),
        "residual, pairs": lambda: _fit(estimators.Residual, (8,) * 7, _marginals(7, 2), laplace),
        "matrix, prefixes of 512": lambda: _fit(estimators.Matrix, (512,), prefix, laplace),
        "views, pairs of 9 flags": lambda: _fit(estimators.Views, (2,) * 9, _marginals(9, 2), laplace),
        "intervals": _intervals,
        "records": _records,
        "aim": lambda: _plan(lambda: cs.plans.Aim(rounds=8)),
        "mst": lambda: _plan(cs.plans.Mst),
        "all pairs": lambda: _plan(lambda: cs.plans.Direct(ways=2)),
    }


def run_cases(names: list[str]) -> dict[str, tuple[float, float]]:
    """For each case the least seconds of the processor that a run takes, and its error."""
    found = {}
    for name, make in _cases().items():
        if not names or name in names:
            try:
                case = make()
                case()
            except AttributeError:
                continue  # an earlier version had no such name
            found[name] = min(_timed(case) for _ in range(TIMED_RUNS))
    return found


def _timed(case: Callable[[], float]) -> tuple[float, float]:
    began = time.process_time()
    error = case()
    return time.process_time() - began, error


def _apart(sources: Path, names: list[str]) -> dict[str, tuple[float, float]]:
    paths = os.pathsep.join([str(sources), str(Path(__file__).parents[1])])
    command = [sys.executable, "-m", "benchmarks.versions", "--alone", *names]
    environment = os.environ | {"PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compared(earlier: Path, names: list[str], pairs: int) -> list[dict[str, Any]]:
    """One row for each case."""
    times: dict[str, list[float]] = {}
    errors: dict[str, float] = {}
    for pair in range(pairs):
        order = (earlier, THIS) if pair % 2 == 0 else (THIS, earlier)
        found = {sources: _apart(sources, names) for sources in order}
        for name in found[THIS].keys() & found[earlier].keys():
            (seconds, error), (before, error_before) = found[THIS][name], found[earlier][name]
            times.setdefault(name, []).append(seconds / before)
            errors[name] = error / error_before if error_before else 1.0
        print(f"  pair {pair + 1} of {pairs}", flush=True)
    rows = []
    for name, ratios in times.items():
        ratios.sort()
        slower = ratios[0] > SLOWER or (median(ratios) > SLOWER and len(ratios) > 2 and ratios[1] > SLOWER)
        verdict = "slower" if slower else "less accurate" if errors[name] > WORSE else "as good"
        rows.append(
            {
                "case": name,
                "time": median(ratios),
                "least": ratios[0],
                "greatest": ratios[-1],
                "error": errors[name],
                "verdict": verdict,
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("earlier", nargs="?", type=Path, help="the folder src of the earlier version")
    parser.add_argument("cases", nargs="*", help="which cases to run; all if none is named")
    parser.add_argument("--pairs", type=int, default=5, help="how many pairs of runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to a file")
    parser.add_argument("--alone", nargs="*", metavar="CASE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone is not None:
        print(json.dumps(run_cases(arguments.alone)))
        return 0
    if arguments.earlier is None or not (arguments.earlier / "consilience").is_dir():
        parser.error("name the folder src of an earlier version, such as ../earlier/src")
    from benchmarks.__main__ import print_rows

    rows = compared(arguments.earlier.resolve(), arguments.cases, arguments.pairs)
    print_rows(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
