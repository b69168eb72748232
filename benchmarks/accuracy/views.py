"""The same noisy views, fitted by `Views`, `Residual` and `Graphical`: which comes closest to the truth, and how fast?

Views are chosen as `plans.Views` chooses them, with the true number of records in place of a rough one, and measured
with simulated Laplace noise. Asked are random sets of k attributes. A row has the median error over these sets, of one
draw of the noise after another: the L2 distance in parts of the records, and half the L1 distance, the share of records
in a wrong cell. *Direct* measures all marginals of k attributes, each with its part of the budget; its negative counts
are removed and the difference is spread, as Qardaji, Yang and Li (2014) do it. Only the asked ones are drawn.
`Residual` gets five seconds for each level of marginals, after which it stops where it is.
"""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.problems.flags import FlagRecords, aol_sized, kosarak, kosarak_sized, msnbc
from benchmarks.problems.records import NamedRecords, named_records
from consilience.domain import Domain, Query
from consilience.errors import TooLarge
from consilience.estimators import Estimator, Graphical, Residual, Views
from consilience.estimators.published.fourier import spread_negatives
from consilience.measurements import Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.plans.views import ViewDesign, choose_design
from consilience.privacy.budgets import budget

Row = dict[str, Any]
Scope = tuple[int, ...]

WAYS: dict[str, Estimator] = {
    "views": Views(),
    "views, by ripple": Views(nonnegativity="ripple", rounds=1, joint_cells=0),
    "residual": Residual(time_limit=5),
    "graphical": Graphical(),
}


@dataclass(frozen=True)
class Task:
    """A table, an ε, and how many attributes the marginals have that are asked for."""

    name: str
    epsilon: float
    asked: tuple[int, ...]
    sets: int = 60
    """How many random sets of each size."""
    ways: tuple[str, ...] = tuple(WAYS)


TASKS = (
    Task("msnbc", 1.0, (2, 4, 6)),
    Task("msnbc", 0.1, (2, 4, 6)),
    Task("kosarak, resampled", 1.0, (2, 4, 6, 8)),
    Task("kosarak, resampled", 0.1, (2, 4, 6, 8)),
    Task("kosarak, part", 1.0, (2, 4, 6, 8)),
    Task("aol, generated", 1.0, (2, 4, 6, 8)),
    Task("adult", 1.0, (2, 3), sets=455, ways=("views", "views, by ripple")),
    Task("adult", 0.1, (2, 3), ways=("views", "views, by ripple")),
    Task("titanic", 1.0, (2, 3)),
)
QUICK = (TASKS[0], TASKS[-1])


def run(quick: bool) -> list[Row]:
    """The rows: 60 sets of each size, all triples of Adult, and two draws; or 10 sets and one draw if quick."""
    rows: list[Row] = []
    for task in QUICK if quick else TASKS:
        rows += judged(task, sets=10 if quick else task.sets, draws=1 if quick else 2)
    return rows


def records_of(name: str) -> NamedRecords | FlagRecords:
    flags = {"msnbc": msnbc, "kosarak, resampled": kosarak_sized, "kosarak, part": kosarak, "aol, generated": aol_sized}
    return flags[name]() if name in flags else named_records(name)


def judged(task: Task, *, sets: int, draws: int) -> list[Row]:
    """The errors of every way, and of Direct."""
    records = records_of(task.name)
    sizes = (2,) * records.flags if isinstance(records, FlagRecords) else records.sizes
    total = float(records.total if isinstance(records, FlagRecords) else len(records.codes))
    design = choose_design(sizes, budget(epsilon=task.epsilon), total)
    asked = {k: random_sets(len(sizes), k, sets) for k in task.asked}
    exact = {scope: records.counts(scope).ravel() for scopes in asked.values() for scope in scopes}
    known: Row = {"records": records.name, "epsilon": task.epsilon, "views": len(design.views), "ways": design.ways}
    known |= {"cells": sum(design.cells), "draws": draws}
    rows = [known | row for row in _direct(asked, exact, len(sizes), task.epsilon, total)]
    noisy = [noisy_views(design, records, task.epsilon, seed) for seed in range(draws)]
    for way in task.ways:
        try:
            found = [_fitted(WAYS[way], each, asked, exact, total) for each in noisy]
        except TooLarge:
            rows.append(known | {"way": way, "note": "too large"})
            continue
        for k in task.asked:
            parts = {name: float(np.median([each[k][name] for each in found])) for name in found[0][k]}
            rows.append(known | {"way": way, "k": k, **parts})
        print(f"  {records.name}, ε = {task.epsilon:g}, {way}: done", flush=True)
    return rows


def random_sets(attributes: int, k: int, sets: int) -> list[Scope]:
    """Different sets of attributes, always the same; all where there are no more."""
    if math.comb(attributes, k) <= sets:
        return list(itertools.combinations(range(attributes), k))
    rng = np.random.default_rng([attributes, k])
    found: dict[Scope, None] = {}
    while len(found) < sets:
        found[tuple(np.sort(rng.choice(attributes, k, replace=False)).tolist())] = None
    return list(found)


def noisy_views(design: ViewDesign, records: NamedRecords | FlagRecords, epsilon: float, seed: int) -> MeasurementSet:
    """The views with simulated noise, as the library takes them."""
    rng = np.random.default_rng(seed)
    scale = len(design.views) / epsilon
    names = [f"x{place}" for place in range(len(design.sizes))]
    found = []
    for view in design.views:
        counts = records.counts(view).ravel()
        query = Query.marginal(*(names[place] for place in view))
        found.append(
            Measurement(query=query, values=counts + rng.laplace(0.0, scale, counts.size), noise=Laplace(scale))
        )
    domain = Domain.from_sizes(dict(zip(names, design.sizes, strict=True)))
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


def _fitted(
    estimator: Estimator,
    measured: MeasurementSet,
    asked: dict[int, list[Scope]],
    exact: dict[Scope, np.ndarray],
    total: float,
) -> dict[int, Row]:
    """For each k the median errors, and the seconds of the fit and of one answer."""
    began = time.perf_counter()
    estimate = estimator.fit(measured)
    fitted = time.perf_counter() - began
    found: dict[int, Row] = {}
    for k, scopes in asked.items():
        began = time.perf_counter()
        tables = estimate.answers([Query.marginal(*(f"x{place}" for place in scope)) for scope in scopes])
        seconds = (time.perf_counter() - began) / len(scopes)
        pairs = [(table.ravel(), exact[scope]) for table, scope in zip(tables, scopes, strict=True)]
        found[k] = errors(pairs, total) | {"fit s": fitted, "answer ms": 1000 * seconds}
    return found


def errors(pairs: Sequence[tuple[np.ndarray, np.ndarray]], total: float) -> Row:
    """The medians of both distances."""
    euclidean = [float(np.linalg.norm(table - truth)) / total for table, truth in pairs]
    wrong = [float(np.abs(table - truth).sum()) / (2 * total) for table, truth in pairs]
    return {"L2 / N": float(np.median(euclidean)), "L1 / 2N": float(np.median(wrong))}


def _direct(
    asked: dict[int, list[Scope]], exact: dict[Scope, np.ndarray], attributes: int, epsilon: float, total: float
) -> list[Row]:
    """The medians for noise on all marginals of k attributes."""
    rows: list[Row] = []
    for k, scopes in asked.items():
        rng = np.random.default_rng([attributes, k, 1])
        scale = math.comb(attributes, k) / epsilon
        pairs = [
            (spread_negatives(exact[scope] + rng.laplace(0.0, scale, exact[scope].size)), exact[scope])
            for scope in scopes
        ]
        rows.append({"way": "direct", "k": k, **errors(pairs, total)})
    return rows
