"""How close to the truth the accounts of real records come, ε = 1: when to stop a graphical fit, and `Residual`.

*Triples*: 15 random triples of columns with Laplace noise of scale 15. *Pairs*: all pairs of columns with Gaussian
noise. The error is the mean over the measured marginals of half the L1 distance, in parts of the number of records;
every row has the median over draws of the noise, of which there is one above a million cells. The targets are what
public implementations reach on the same data; where there is none, `Residual` must beat the measurements themselves.
The memory is the most that the process had up to then.
"""

import itertools
import resource
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.problems.noisy_marginals import NoisyMarginals, measured, random_triples
from benchmarks.problems.records import hundred_attributes, named_records
from consilience.domain import Domain, Query
from consilience.estimators import Estimator, Graphical, Residual
from consilience.measurements import Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement

Row = dict[str, Any]

WAYS: dict[str, Estimator] = {
    "graphical": Graphical(),
    "graphical, noise level": Graphical(stop="noise"),
    "graphical, converged": Graphical(stop="converged"),
    "residual": Residual(),
    "residual without prior": Residual(prior=False),
}
LARGE = 1_000_000
"""Cells from which one draw of the noise must do."""


@dataclass(frozen=True)
class Task:
    """Marginals of some records, the ways to fit them, and the errors that some must not exceed."""

    records: str
    kind: str
    scale: float
    ways: tuple[str, ...]
    targets: Mapping[str, float] = field(default_factory=dict)

    def problem(self, seed: int) -> NoisyMarginals:
        if self.kind == "triples":
            return random_triples(self.records, scale=self.scale, seed=seed)
        records = hundred_attributes() if self.records == "100 attributes" else named_records(self.records)
        pairs = list(itertools.combinations(range(len(records.sizes)), 2))
        return measured(records, pairs, law="gaussian", scale=self.scale, seed=seed)


RESIDUAL = ("residual", "residual without prior")
TASKS = (
    Task("titanic", "triples", 15.0, tuple(WAYS), {"graphical": 0.386}),
    Task("adult", "triples", 15.0, tuple(WAYS), {"graphical": 0.0448}),
    Task("stroke", "triples", 15.0, tuple(WAYS), {"graphical": 0.120}),
    Task("loans", "triples", 15.0, ("residual",)),
    Task("titanic", "pairs", 34.67, RESIDUAL, {"residual": 0.256}),
    Task("adult", "pairs", 59.21, RESIDUAL, {"residual": 0.0374}),
    Task("adult-fine", "pairs", 59.21, RESIDUAL),
    Task("stroke", "pairs", 59.21, ("residual",)),
    Task("loans", "pairs", 59.21, ("residual",)),
    Task("msnbc", "pairs", 59.21, RESIDUAL),
    Task("kosarak", "pairs", 59.21, RESIDUAL),
    Task("100 attributes", "pairs", 59.21, RESIDUAL),
)
QUICK = (TASKS[0], TASKS[4])


def run(quick: bool) -> list[Row]:
    """The rows of all tasks, three draws each; one draw of two small tasks if quick."""
    rows: list[Row] = []
    for task in QUICK if quick else TASKS:
        for row in judged(task, draws=1 if quick else 3):
            rows.append(row)
            print(f"  {row['records']}, {row['measured']}, {row['way']}: {row['error']:.4f}", flush=True)
    return rows


def judged(task: Task, *, draws: int) -> Iterator[Row]:
    """The errors of every way, after that of the measurements themselves, clipped at zero and rescaled."""
    problems = [task.problem(0)]
    problems += [task.problem(seed) for seed in range(1, draws) if problems[0].cells < LARGE]
    raw = float(np.median([problem.error(clipped(problem)) for problem in problems]))
    known: Row = {"records": problems[0].name, "measured": f"{len(problems[0].scopes)} {task.kind}"}
    known |= {"cells": problems[0].cells, "draws": len(problems)}
    yield known | {"way": "clipped and rescaled", "error": raw}
    for way in task.ways:
        errors, seconds = zip(*(fitted(problem, WAYS[way]) for problem in problems), strict=True)
        row = known | {"way": way, "error": float(np.median(errors)), "seconds": float(np.median(seconds))}
        row["peak MB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)
        target = task.targets.get(way, raw if way == "residual" else None)
        yield row if target is None else row | {"target": f"<= {target:.3g}", "met": row["error"] <= target}


def fitted(problem: NoisyMarginals, way: Estimator) -> tuple[float, float]:
    """The error of an estimator on the measured marginals, and its seconds."""
    began = time.perf_counter()
    estimate = way.fit(as_measurements(problem))
    found = [estimate.marginal(*(names_of(problem)[a] for a in scope)) for scope in problem.scopes]
    return problem.error(found), time.perf_counter() - began


def names_of(problem: NoisyMarginals) -> list[str]:
    return [f"x{place}" for place in range(len(problem.sizes))]


def as_measurements(problem: NoisyMarginals) -> MeasurementSet:
    """The noisy marginals as the library takes them, of simulated noise."""
    names = names_of(problem)
    domain = Domain.from_sizes({name: int(size) for name, size in zip(names, problem.sizes, strict=True)})
    law = Laplace(problem.scale) if problem.law == "laplace" else Gaussian(problem.scale)
    found = [
        Measurement(query=Query.marginal(*(names[a] for a in scope)), values=values.ravel(), noise=law)
        for scope, values in zip(problem.scopes, problem.noisy, strict=True)
    ]
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


def clipped(problem: NoisyMarginals) -> list[np.ndarray]:
    """Each noisy marginal without its negative values, scaled to the number of records."""
    tables = [np.maximum(values, 0.0) for values in problem.noisy]
    return [table * (problem.total / table.sum()) for table in tables]
