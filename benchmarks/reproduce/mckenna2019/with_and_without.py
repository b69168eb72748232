"""Runs of a mechanism with and without graphical estimation, as McKenna et al. (2019), §5.1, compare them.

All see the same measurements where the mechanism does not use its estimate to choose what to measure; MWEM does, and
runs twice. Graphical estimation is the paper's, which goes on to the optimum; what the library does by default, which
stops where the estimated error is least, is shown beside it. A run has a process of its own with a limit on its time:
what does not finish, or is refused because it would need too much memory, is said and counts as failed. Neighbours
differ in the values of one record, and the number of records is public, as the paper has it; ε = 1, for DualQuery with
δ = 0.001.
"""

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.problems.triples import TripleProblem, triple_problem

WITHOUT, UNSAMPLED, WITH = "without", "without, and without sampling", "with graphical estimation"
DEFAULT = "with it, the library's default"
"""Sampling is that of records, from which PrivBayes as published answers."""
PATIENCE = 1800.0
PATIENCE_OF = {"MWEM": 300.0}
"""Seconds of the processor that a run may take; the paper says that runs timed out, and not after how long."""
TIMED_OUT = 75
"""What a process that took longer returns."""
TABLE_LIMIT = 250_000_000
"""Numbers in the tables of factored MWEM: 2 GB, where the paper's runs ended."""

PROGRAM = """
import json, sys
from benchmarks.reproduce.mckenna2019 import with_and_without
asked, patience = json.loads(sys.argv[1])
with_and_without.end_after(patience)
print(json.dumps(with_and_without.run_here(*asked)))
"""


@dataclass(frozen=True)
class Way:
    """A plan for a problem, and the estimator that turns what it measured into answers."""

    plan: Callable[[TripleProblem], Any]
    estimator: Callable[[Any], Any]
    """From the plan to the estimator."""


def graphical(_plan: Any) -> Any:
    """The estimator of the paper."""
    from consilience.estimators import Graphical

    return Graphical(stop="converged")


def graphical_default(_plan: Any) -> Any:
    from consilience.estimators import Graphical

    return Graphical()


def privbayes(_problem: TripleProblem) -> Any:
    from consilience.plans.published.privbayes import PrivBayes

    return PrivBayes()


def dual_query(problem: TripleProblem) -> Any:
    from consilience.plans.published.dual_query import DualQuery

    return DualQuery(problem.workload)


def own(plan: Any) -> Any:
    """The estimator that the mechanism was published with."""
    return plan.estimator()


def hdmm(problem: TripleProblem) -> Any:
    """HDMM with equal shares of the budget for all triples, as the paper's authors publish it.

    The least total squared error of k groups with errors e at a share of 1 asks for shares ∝ (w e)^⅓; it favours large
    tables, while the paper's error counts all alike. Weights w = 1/e make the shares equal.
    """
    from consilience.domain import Workload
    from consilience.plans.matrix_mechanism import Hdmm

    domain = problem.records.domain
    alone = [Hdmm(Workload.of([query])).strategy(domain).error for query in problem.workload.queries]
    return Hdmm(Workload.of(problem.workload.queries, weights=[1.0 / error for error in alone]))


MWEM_ROUNDS = 10
"""T of MWEM where single answers are selected; the paper does not print its T, Hardt et al. (2012) use 10."""


def mwem(problem: TripleProblem, **options: Any) -> Any:
    from consilience.plans.published.mwem import MwemModels

    return MwemModels(problem.workload, **options)


def factored_mwem(problem: TripleProblem) -> Any:
    """MWEM as published: single answers, a factored table that is refused where it grows beyond the limit."""
    return mwem(
        problem,
        rounds=MWEM_ROUNDS,
        candidates="answers",
        estimation="factored",
        beyond="refuse",
        largest_model=TABLE_LIMIT,
    )


def graphical_mwem(problem: TripleProblem) -> Any:
    """The same rounds of single answers, with a graphical model between them."""
    return mwem(problem, rounds=MWEM_ROUNDS, candidates="answers", estimation="graphical")


def marginal_mwem(problem: TripleProblem) -> Any:
    """What the library does by default: whole marginals are selected, and more rounds."""
    return mwem(problem, estimation="graphical")


def _published(module: str, name: str, *options: str) -> Any:
    """A published estimator."""
    return getattr(importlib.import_module(f"consilience.estimators.published.{module}"), name)(*options)


WAYS: Mapping[str, Mapping[str, Way]] = {
    "PrivBayes": {
        WITHOUT: Way(privbayes, lambda _: _published("bayesian_network", "BayesianNetwork", "sampled")),
        UNSAMPLED: Way(privbayes, lambda _: _published("bayesian_network", "BayesianNetwork", "auto")),
        WITH: Way(privbayes, graphical),
        DEFAULT: Way(privbayes, graphical_default),
    },
    "DualQuery": {
        WITHOUT: Way(dual_query, own),
        WITH: Way(dual_query, lambda _: _published("dual_query_model", "DualQueryModel")),
    },
    "MWEM": {
        WITHOUT: Way(factored_mwem, own),
        WITH: Way(graphical_mwem, graphical),
        DEFAULT: Way(marginal_mwem, own),
    },
    "HDMM": {
        WITHOUT: Way(hdmm, lambda _: _published("local_squares", "LocalSquares")),
        WITH: Way(hdmm, graphical),
        DEFAULT: Way(hdmm, graphical_default),
    },
}
"""For each mechanism the ways that are compared, by the name of the method."""

DELTAS = {"DualQuery": 1e-3}


def groups(mechanism: str) -> list[tuple[str, ...]]:
    """The methods of a mechanism, those together that fit the same measurements."""
    plans = dict.fromkeys(way.plan for way in WAYS[mechanism].values())
    return [tuple(name for name, way in WAYS[mechanism].items() if way.plan is plan) for plan in plans]


def run_apart(
    mechanism: str,
    methods: Sequence[str],
    records: str,
    seed: int,
    epsilon: float = 1.0,
    *,
    patience: float | None = None,
) -> dict[str, dict[str, Any]]:
    """What `run_here` found in a process of its own, or why it found nothing, for each method."""
    patience = PATIENCE_OF.get(mechanism, PATIENCE) if patience is None else patience
    asked = json.dumps([[mechanism, list(methods), records, seed, epsilon], patience])
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    options: dict[str, Any] = {"capture_output": True, "text": True, "env": environment}
    done = subprocess.run([sys.executable, "-c", PROGRAM, asked], check=False, **options)
    if done.returncode == TIMED_OUT:
        return {method: {"note": f"not done after {patience:g} s", "failed": "time"} for method in methods}
    if done.returncode:
        note = (done.stderr.strip().splitlines() or ["failed"])[-1][:200]
        failed = "memory" if "TooLarge" in note or "MemoryError" in note else "error"
        return {method: {"note": note, "failed": failed} for method in methods}
    return json.loads(done.stdout.splitlines()[-1])


def end_after(seconds: float) -> None:
    """End this process once it has used so many seconds of the processor, however busy the machine is."""

    def watch() -> None:
        while time.process_time() < seconds:
            time.sleep(0.2)
        os._exit(TIMED_OUT)

    threading.Thread(target=watch, daemon=True).start()


def run_here(mechanism: str, methods: Sequence[str], records: str, seed: int, epsilon: float) -> dict[str, Any]:
    """For each method the workload error of one run and, of HDMM, that on what was measured; seconds and memory."""
    from benchmarks.speed.timing import peak_megabytes
    from consilience.domain import Workload
    from consilience.evaluation import evaluate
    from consilience.measuring import measure

    problem = triple_problem(records)
    source, ways = problem.records.source(), WAYS[mechanism]
    began = time.perf_counter()
    plan = ways[methods[0]].plan(problem)
    amounts = {"epsilon": epsilon, "delta": DELTAS.get(mechanism)}
    measured = measure(source, plan, **amounts, neighbours="replace-one", simulate=seed)
    measuring = time.perf_counter() - began
    found: dict[str, Any] = {}
    for method in methods:
        began = time.perf_counter()
        estimate = ways[method].estimator(plan).fit(measured)
        seconds = measuring + time.perf_counter() - began
        error = evaluate(estimate, source, problem.workload).workload_error
        found[method] = {"records": problem.records.name, "seconds": seconds, "error": error}
        found[method]["megabytes"] = peak_megabytes()
        if mechanism == "HDMM":
            asked = Workload.of([each.query for each in measured])
            found[method]["measured error"] = evaluate(estimate, source, asked).workload_error
    return found
