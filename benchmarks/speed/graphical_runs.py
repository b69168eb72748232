"""What the benchmark of graphical models runs in processes of its own, so that memory and compilation stay apart.

Every function takes the file of a problem and returns what it found as plain data. Nothing heavy is imported before it
is called: the seconds of importing are told apart, and the peak memory is that of the one package that is used.
"""

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.noisy_marginals import NoisyMarginals
from benchmarks.speed.timing import best_time, peak_megabytes

Array = NDArray[np.float64]

PROGRAM = """
import json, sys
from benchmarks.speed import graphical_runs
name, *arguments = json.loads(sys.argv[1])
print(json.dumps(getattr(graphical_runs, name)(*arguments)))
"""


def apart(name: str, *arguments: Any, numba_cache: Path | None = None, timeout: float | None = None) -> Any:
    """What a function of this module returns in a process of its own, if wished with an empty cache of kernels.

    None if the process is not done after `timeout` seconds; it is ended then.
    """
    environment = dict(os.environ)
    if numba_cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(numba_cache)
    command = [sys.executable, "-c", PROGRAM, json.dumps([name, *arguments])]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "check": True, "env": environment}
    try:
        done = subprocess.run(command, timeout=timeout, **options)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1])


def potentials_of(problem: NoisyMarginals) -> list[Array]:
    """Potentials at which oracles are timed and compared."""
    rng = np.random.default_rng(4)
    return [rng.normal(0.0, 1.0, table.shape) for table in problem.noisy]


def our_oracle(path: str, out: str) -> dict[str, Any]:
    """Seconds per call of our oracle; its marginals go to a file."""
    problem = NoisyMarginals.load(path)
    models = importlib.import_module("consilience.models")
    begin = time.perf_counter()
    tree = models.junction_tree(problem.sizes, problem.scopes)
    oracle = models.MarginalOracle(tree, problem.scopes, total=problem.total)
    potentials = oracle.layout.pack(potentials_of(problem))
    found = oracle.layout.unpack(oracle.marginals(potentials).values)
    first = time.perf_counter() - begin
    np.savez(out, *found)
    seconds, _ = best_time(lambda: oracle.marginals(potentials), patience=3.0, least=5)
    return {"first": first, "seconds": seconds, "megabytes": peak_megabytes(), "cells": tree.cells}


def mbi_oracle(path: str, out: str) -> dict[str, Any]:
    """The same of mbi's default oracle, compiled."""
    from benchmarks.peers import mbi_models

    problem = NoisyMarginals.load(path)
    mbi_models.load()
    begin = time.perf_counter()
    call = mbi_models.compiled_oracle(problem, potentials_of(problem))
    found = mbi_models.tables_of(problem, call())
    first = time.perf_counter() - begin
    np.savez(out, *found)
    seconds, _ = best_time(call, patience=3.0, least=5)
    cells = mbi_models.junction_tree_cells(problem)
    return {"first": first, "seconds": seconds, "megabytes": peak_megabytes(), "cells": cells}


def mbi_fit(path: str, estimator: str, enough: float, time_limit: float) -> dict[str, Any]:
    """How the loss of one of mbi's estimators falls."""
    from benchmarks.peers import mbi_models

    problem = NoisyMarginals.load(path)
    begin = time.perf_counter()
    mbi_models.load()
    importing = time.perf_counter() - begin
    curve = mbi_models.loss_curve(problem, estimator, enough=enough, time_limit=time_limit)
    return {"importing": importing, "curve": curve, "megabytes": peak_megabytes()}


def mbi_accuracy(path: str) -> dict[str, Any]:
    """Seconds and error of mbi's default estimate."""
    from benchmarks.peers import mbi_models

    problem = NoisyMarginals.load(path)
    seconds, tables = mbi_models.estimated(problem)
    return {"seconds": seconds, "error": problem.error(tables), "megabytes": peak_megabytes()}


def our_fit(path: str) -> dict[str, Any]:
    """How the loss of our default optimiser falls, to a proven gap of 0.1 %."""
    problem = NoisyMarginals.load(path)
    begin = time.perf_counter()
    models = importlib.import_module("consilience.models")
    fitting = importlib.import_module("consilience.models.fitting.fit_model")
    importing = time.perf_counter() - begin
    curve: list[tuple[float, float]] = []

    def note(_calls: int, objective: float, _gap: float) -> None:
        if not curve or objective < curve[-1][1]:
            curve.append((time.perf_counter() - begin, objective))

    begin = time.perf_counter()
    tree = models.junction_tree(problem.sizes, problem.scopes)
    oracle = models.MarginalOracle(tree, problem.scopes, total=problem.total)
    rows, costs = measured_rows(problem, oracle.layout)
    fit = fitting.fit_model(oracle, rows, costs, tolerance=1e-3, progress=note)
    note(0, fit.objective, fit.gap)
    told = {"importing": importing, "seconds": time.perf_counter() - begin, "status": str(fit.status)}
    return told | {"curve": curve, "gap": fit.gap / fit.objective, "megabytes": peak_megabytes()}


def measured_rows(problem: NoisyMarginals, layout: Any) -> tuple[Any, Any]:
    """The measurements as rows in units of their noise, and what missing them costs."""
    given = importlib.import_module("consilience.models.fitting.objective")
    priced = importlib.import_module("consilience.solvers.tables.row_costs")
    queries = [
        given.MeasuredQuery(k, scope, np.full(noisy.size, 1.0 / problem.scale))
        for k, (scope, noisy) in enumerate(zip(problem.scopes, problem.noisy, strict=True))
    ]
    observed = np.concatenate([noisy.ravel() for noisy in problem.noisy]) / problem.scale
    nothing, everything, never = np.zeros(observed.size), np.ones(observed.size), np.zeros(observed.size, dtype=bool)
    slope, curvature = (nothing, everything) if problem.law == "gaussian" else (everything, nothing)
    return given.MeasuredRows(layout, queries), priced.RowCosts(observed, slope, curvature, never, never)


def our_accuracy(path: str) -> dict[str, Any]:
    """Seconds and error of `Graphical` as it comes."""
    problem = NoisyMarginals.load(path)
    reconstruction = importlib.import_module("benchmarks.accuracy.reconstruction")
    estimators = importlib.import_module("consilience.estimators")
    begin = time.perf_counter()
    measured = reconstruction.as_measurements(problem).with_public(total=problem.total)
    estimate, names = estimators.Graphical().fit(measured), reconstruction.names_of(problem)
    found = [estimate.marginal(*(names[attribute] for attribute in scope)) for scope in problem.scopes]
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "error": problem.error(found), "megabytes": peak_megabytes()}
