"""One run of a mechanism on named records, in a process of its own, so that its memory and seconds are its own.

What is wanted is all 3-way marginals at ε = 1, δ = 10⁻⁹. The noise is simulated, so that seeds tell runs apart. A
mechanism is told the workload and the budget; its error is the mean over the marginals of half the L1 distance from the
truth, in parts of the number of records. Where there are too many marginals to judge all, 500 are drawn of those with
no more cells than there are records, the same for all mechanisms.
"""

import importlib.util
import itertools
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.speed.timing import peak_megabytes

EPSILON, DELTA = 1.0, 1e-9
JUDGED = 500
"""How many marginals are judged where there are more than MOST_JUDGED."""
MOST_JUDGED = 1_000

MOST_MEMORY = 6 * 10**9
"""The bytes that a run may hold; one that needs more is refused them and fails."""

PROGRAM = """
import importlib, json, resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[3]),) * 2)
print(json.dumps(importlib.import_module(sys.argv[1]).run_once(*json.loads(sys.argv[2]))))
"""


@dataclass(frozen=True)
class Mechanism:
    """How a mechanism is made for a workload: the module of its plan, and a call of what is in it."""

    module: str
    make: Callable[[Any, Any, Any, Any], Any]
    """From the module, the domain, the workload and the budget to the plan."""
    estimator: str | None = None
    """How its measurements are fitted: "auto", the name of an estimator, or by the plan's own."""

    @property
    def exists(self) -> bool:
        return importlib.util.find_spec(self.module) is not None

    def plan(self, domain: Any, workload: Any, budget: Any) -> Any:
        return self.make(importlib.import_module(self.module), domain, workload, budget)


def _tables_themselves(module: Any, _: Any, workload: Any, __: Any) -> Any:
    return module.BestBuy(workload=workload, most_noise=1e9)


def _release_choice(module: Any, domain: Any, workload: Any, budget: Any) -> Any:
    return module.chosen_plan(domain, workload, budget, "add-remove")[0]


MECHANISMS: dict[str, Mechanism] = {
    "independent": Mechanism("consilience.plans.forest", lambda plans, _, workload, __: plans.Independent(workload)),
    "MST": Mechanism("consilience.plans.forest", lambda plans, _, workload, __: plans.Mst(workload)),
    "forest": Mechanism("consilience.plans.forest", lambda plans, _, workload, __: plans.Forest(workload)),
    "AIM": Mechanism("consilience.plans.aim", lambda plans, _, workload, __: plans.Aim(workload)),
    "AIM on residual": Mechanism(
        "consilience.plans.aim", lambda plans, _, workload, __: plans.Aim(workload, model="residual")
    ),
    "MWEM+graphical": Mechanism(
        "consilience.plans.published.mwem", lambda plans, _, workload, __: plans.MwemModels(workload)
    ),
    "PrivBayes": Mechanism("consilience.plans.published.privbayes", lambda plans, *_: plans.PrivBayes()),
    "PrivBayes+graphical": Mechanism(
        "consilience.plans.published.privbayes", lambda plans, *_: plans.PrivBayes(), "graphical"
    ),
    "ResidualPlanner": Mechanism(
        "consilience.plans.residual_planner", lambda plans, _, workload, __: plans.ResidualPlanner(workload), "residual"
    ),
    "HDMM": Mechanism(
        "consilience.plans.matrix_mechanism", lambda plans, _, workload, __: plans.Hdmm(workload), "residual"
    ),
    "the tables themselves": Mechanism("consilience.plans.best_buy", _tables_themselves),
    "release's choice": Mechanism("consilience.plans.best_buy", _release_choice),
}
"""Those that are not adaptive are fitted by a non-negative estimator, which theirs as published is not."""


def apart(records: str, mechanism: str, seed: int, *, timeout: float) -> dict[str, Any]:
    """What `run_once` found in a process of its own, or why it found nothing."""
    return in_a_process(__name__, [records, mechanism, seed], mechanism, timeout=timeout)


def in_a_process(module: str, arguments: list[Any], mechanism: str, *, timeout: float) -> dict[str, Any]:
    """What the `run_once` of a module found in a process of its own, or why it found nothing."""
    if not MECHANISMS[mechanism].exists:
        return {"note": f"missing: {MECHANISMS[mechanism].module}"}
    command = [sys.executable, "-c", PROGRAM, module, json.dumps(arguments), str(MOST_MEMORY)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    options: dict[str, Any] = {"capture_output": True, "text": True, "env": environment, "timeout": timeout}
    try:
        done = subprocess.run(command, check=False, **options)
    except subprocess.TimeoutExpired:
        return {"note": f"not done after {timeout:g} s"}
    if done.returncode:
        return {"note": (done.stderr.strip().splitlines() or ["failed"])[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def run_once(records: str, mechanism: str, seed: int) -> dict[str, Any]:
    """The error of one run, the seconds of measuring and fitting, and the most memory up to the end of the fit."""
    from benchmarks.problems.declared_records import declared_records
    from consilience.domain import Workload

    table = declared_records(records)
    workload = Workload.marginals(table.domain, ways=3)
    return measured_and_judged(table, mechanism, workload, judged(table.domain, table.rows), EPSILON, seed)


def measured_and_judged(
    table: Any, mechanism: str, workload: Any, asked: Any, epsilon: float, seed: int
) -> dict[str, Any]:
    """A run of a mechanism that is told the workload, judged on what is asked."""
    from consilience.evaluation import evaluate
    from consilience.measuring import measure
    from consilience.privacy.budgets import budget

    source, spent = table.source(), budget(epsilon=epsilon, delta=DELTA)
    plan = MECHANISMS[mechanism].plan(table.domain, workload, spent)
    began = time.perf_counter()
    measured = measure(source, plan, epsilon=epsilon, delta=DELTA, simulate=seed)
    counted = time.perf_counter()
    fitted = fit(plan, measured, MECHANISMS[mechanism].estimator)
    done = time.perf_counter()
    memory = peak_megabytes()
    found = evaluate(fitted, source, asked)
    return {
        "name": table.name,
        "plan": plan.to_json()["plan"],
        "estimator": str(fitted.method["method"]),
        "measurements": len(measured),
        "error": found.total_variation,
        "workload_error": found.workload_error,
        "seconds": done - began,
        "measuring": counted - began,
        "megabytes": memory,
    }


def fit(plan: Any, measured: Any, estimator: str | None) -> Any:
    """The estimate by the estimator of a name, or by the plan's own, or by the one that is chosen."""
    from consilience.estimators import estimate as fitted
    from consilience.plans import BestBuy

    own = getattr(plan, "estimator", None)
    if estimator is not None or own is None:
        return fitted(measured, method=estimator or "auto")
    return (own(measured) if isinstance(plan, BestBuy) else own()).fit(measured)


def judged(domain: Any, rows: int) -> Any:
    """All 3-way marginals as queries, or a part of them where they are many."""
    from consilience.domain import Query, Workload

    triples = list(itertools.combinations(domain.counted_names, 3))
    if len(triples) > MOST_JUDGED:
        small = [names for names in triples if math.prod(domain.sizes(names)) <= rows]
        triples = random.Random(0).sample(small, JUDGED)
    return Workload.of([Query.marginal(*names) for names in triples])
