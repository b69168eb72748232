"""Synthetic Adult at ε = 1, δ = 10⁻⁹: are its margins the model's, and does a classifier trained on it keep its skill?

80 % of the records are released with simulated noise, by the plan that `release` chooses for each of three workloads,
and the release's own number of synthetic records is made with `synthesize`. A classifier of the last attribute, income,
is trained on these and on the true records, and both are judged on the other 20 %. *Kept* is the share of the true
classifier's gain: in accuracy over guessing the more frequent label, in the area under the ROC curve over 1/2. A row
has medians of three seeds. *Pairs* is the mean over pairs of attributes of half the L1 distance between shares, from
the true table: of the account itself, and of its records. *All pairs, as tables* measures every pair and has no model,
so that records are made from tables that overlap. *Off by* is the largest difference between a one-way margin of the
records and the model's, over all seeds, in records: below one, it is rounding.
"""

import itertools
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.accuracy.label_classifier import Skill, train
from benchmarks.accuracy.mechanism_runs import DELTA, EPSILON, fit
from benchmarks.problems.declared_records import DeclaredRecords, column_names, declared
from benchmarks.problems.records import NamedRecords, named_records
from consilience.domain import Domain, Query, Workload
from consilience.estimators import Estimate, Residual
from consilience.measuring import measure
from consilience.plans import ResidualPlanner, chosen_plan
from consilience.privacy.budgets import budget
from consilience.publication import synthesize

Row = dict[str, Any]

TRAINED_ON = 0.8
LEAST_KEPT = 0.75
"""What has to be kept of the gain, in accuracy and in the area under the curve, by what `release` does by itself."""
DEFAULT, TABLES = "all pairs (the default)", "all pairs, as tables"
MOST_ADDED = 1.5
"""Times the account's error on pairs is what its records may have."""


@dataclass(frozen=True, eq=False)
class Split:
    """Records that are released, others that nobody has seen, and what the truth makes of them."""

    released: DeclaredRecords
    held_out: NDArray[np.int64]
    true_skill: Skill
    majority: float

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.released.domain.shape

    def skill(self, codes: NDArray[np.int64]) -> Skill:
        """How well a classifier trained on these records does on those that nobody has seen."""
        found = train(codes[:, :-1], codes[:, -1], self.sizes[:-1])
        return found.skill(self.held_out[:, :-1], self.held_out[:, -1])


def run(quick: bool) -> list[Row]:
    """The rows of three workloads, three seeds each; one seed of the default if quick."""
    problem = split(named_records("adult"), column_names("adult"))
    rows: list[Row] = [
        {
            "records": problem.released.name,
            "workload": "(the true records)",
            "accuracy": problem.true_skill.accuracy,
            "AUC": problem.true_skill.area,
            "majority": problem.majority,
        }
    ]
    for name, workload in workloads(problem.released.domain).items():
        if quick and name not in (DEFAULT, TABLES):
            continue
        rows.append(judged(problem, name, workload, seeds=1 if quick else 3))
        print(f"  {name}: kept {rows[-1]['kept, accuracy']:.3f} and {rows[-1]['kept, AUC']:.3f}", flush=True)
    return rows


def split(records: NamedRecords, names: tuple[str, ...]) -> Split:
    """The records in two parts, by a fixed shuffle."""
    order = np.random.default_rng(0).permutation(len(records.codes))
    cut = round(TRAINED_ON * len(order))
    training, held_out = records.codes[order[:cut]], records.codes[order[cut:]]
    released = declared(NamedRecords(records.name, records.sizes, training), names)
    labels = held_out[:, -1]
    skill = train(training[:, :-1], training[:, -1], records.sizes[:-1]).skill(held_out[:, :-1], labels)
    return Split(released, held_out, skill, float(max(labels.mean(), 1 - labels.mean())))


def workloads(domain: Domain) -> dict[str, Workload]:
    """What a user may say to care about; the last attribute is the label."""
    *others, label = domain.names
    return {
        DEFAULT: Workload.marginals(domain, ways=2),
        TABLES: Workload.marginals(domain, ways=2),
        "pairs with the label": Workload.of([Query.marginal(name, label) for name in others]),
        "triples with the label": Workload.of(
            [Query.marginal(*pair, label) for pair in itertools.combinations(others, 2)]
        ),
    }


def judged(problem: Split, name: str, workload: Workload, *, seeds: int) -> Row:
    """The medians of some runs of one workload."""
    runs = [one_run(problem, workload, seed, as_tables=name == TABLES) for seed in range(seeds)]
    medians = {key: statistics.median(each[key] for each in runs) for key in runs[0] if key not in ("plan", "off by")}
    gain = problem.true_skill.accuracy - problem.majority
    row: Row = {"records": problem.released.name, "workload": name, "plan": runs[0]["plan"], "runs": seeds, **medians}
    row["kept, accuracy"] = (medians["accuracy"] - problem.majority) / gain
    row["kept, AUC"] = (medians["AUC"] - 0.5) / (problem.true_skill.area - 0.5)
    row["off by"] = max(each["off by"] for each in runs)
    if name == TABLES:
        row["target"] = f"pairs of records <= {MOST_ADDED:g} x those of the account"
        row["met"] = row["pairs, records"] <= MOST_ADDED * row["pairs, account"]
    if name == DEFAULT:
        kept = min(row["kept, accuracy"], row["kept, AUC"])
        row["target"] = f"kept >= {LEAST_KEPT:g}, off by < 1"
        row["met"] = kept >= LEAST_KEPT and row["off by"] < 1
    return row


def one_run(problem: Split, workload: Workload, seed: int, *, as_tables: bool) -> Row:
    """One release, its synthetic records, and what a classifier learns from them."""
    domain = problem.released.domain
    plan, _ = chosen_plan(domain, workload, budget(epsilon=EPSILON, delta=DELTA))
    if as_tables:
        plan = ResidualPlanner(workload)
    began = time.perf_counter()
    measured = measure(problem.released.source(), plan, epsilon=EPSILON, delta=DELTA, simulate=seed)
    estimate = Residual().fit(measured) if as_tables else fit(plan, measured, None)
    fitted = time.perf_counter()
    table = synthesize(estimate, seed=seed)
    made = time.perf_counter()
    codes = codes_of(table)
    skill = problem.skill(codes)
    return {
        "plan": plan.to_json()["plan"],
        "measured": len(measured),
        "rows": table.num_rows,
        "accuracy": skill.accuracy,
        "AUC": skill.area,
        **pair_errors(problem.released, codes, estimate),
        "off by": largest_difference(codes, estimate),
        "release s": fitted - began,
        "synthesize s": made - fitted,
    }


def codes_of(table: pa.Table) -> NDArray[np.int64]:
    """The codes of records whose labels are their codes."""
    columns = [column.cast(pa.string()).cast(pa.int64()).to_numpy() for column in table.columns]
    return np.stack(columns, axis=1)


def pair_errors(released: DeclaredRecords, codes: NDArray[np.int64], estimate: Estimate) -> Row:
    """How far the pairs of the account and those of its records are from the truth, on average."""
    truth, domain = codes_of(released.table), released.domain
    account, records = [], []
    for pair in itertools.combinations(range(len(domain.shape)), 2):
        true = _shares(truth, pair, domain.shape)
        told = estimate.marginal(*(domain.names[place] for place in pair)).ravel()
        account.append(np.abs(told / told.sum() - true).sum() / 2)
        records.append(np.abs(_shares(codes, pair, domain.shape) - true).sum() / 2)
    return {"pairs, account": float(np.mean(account)), "pairs, records": float(np.mean(records))}


def _shares(codes: NDArray[np.int64], pair: tuple[int, int], sizes: tuple[int, ...]) -> NDArray[np.float64]:
    first, second = pair
    cells = codes[:, first] * sizes[second] + codes[:, second]
    return np.bincount(cells, minlength=sizes[first] * sizes[second]) / len(codes)


def largest_difference(codes: NDArray[np.int64], estimate: Estimate) -> float:
    """The largest difference of a one-way margin of the records from the model's, scaled to as many records."""
    found = 0.0
    for place, (name, size) in enumerate(zip(estimate.domain.names, estimate.domain.shape, strict=True)):
        model = estimate.marginal(name)
        counted = np.bincount(codes[:, place], minlength=size)
        found = max(found, float(np.abs(counted - model / model.sum() * len(codes)).max()))
    return found
