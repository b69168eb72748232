"""Private logistic regression: the last round alone, or all rounds together?

`plans.Logistic` with its defaults measures 80 % of the records with simulated noise. *Last round* is its own result,
*all rounds* is `regress` of the same measurements. A row has means over runs of what each makes of the other 20 %: the
logistic loss beyond that of the fit without noise, and the share of labels guessed right.

*Tuned* are the same two with the number of rounds and the step, of 9 pairs, at which the *last round* turned out best
for these records and this ε. Nobody can choose so without looking at the data: it is there to show that all rounds do
not only make up for bad settings. How often intervals hold is another benchmark: iterate-coverage.
"""

import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.problems.labelled_points import LabelledPoints, labelled_points
from consilience.domain import Attribute, Domain
from consilience.estimators.iterates import Iterates, Observed
from consilience.estimators.logistic import last_iterate, regress
from consilience.iterates.problems import fit_logistic, logistic_loss, signed_records
from consilience.measurements import MeasurementSet
from consilience.measuring import measure
from consilience.plans.rounds import Logistic
from consilience.source import Source, open_table

Row = dict[str, Any]
Array = NDArray[np.float64]

EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0)
RUNS = 10
PAIRS = tuple(Logistic("label", rounds=rounds, step=step) for rounds in (10, 20, 40) for step in (2.0, 4.0, 8.0))
TUNING_RUNS = 5
USUAL = Iterates()


class Tuned(NamedTuple):
    """Settings of the private algorithm, the mean loss of its last round, and what its runs released."""

    plan: Logistic
    loss: float
    measured: tuple[MeasurementSet, ...]


def run(quick: bool) -> list[Row]:
    """The rows of all problems, ten runs each; two runs of the generated problem if quick."""
    rows: list[Row] = []
    for name in ("generated",) if quick else ("adult", "lifesci", "generated"):
        problem = labelled_points(name)
        for epsilon in (0.1, 1.0) if quick else EPSILONS:
            rows.append(judged(problem, epsilon, runs=2 if quick else RUNS, tuning_runs=1 if quick else TUNING_RUNS))
            shown = {
                key: rows[-1][key] for key in ("last round", "all rounds", "last round, tuned", "all rounds, tuned")
            }
            print(f"  {problem.name}, ε = {epsilon:g}: {shown}", flush=True)
    return rows


def judged(problem: LabelledPoints, epsilon: float, *, runs: int, tuning_runs: int, settings: Iterates = USUAL) -> Row:
    """Means over runs: losses beyond that of the fit without noise, shares guessed right, and seconds."""
    training = problem.training_rows()
    floor = fit_logistic(signed_records(training[:, :-1], training[:, -1]), ridge=1e-9).coefficients
    held_out, source = problem.held_out(), source_of(problem)
    found = [_one_run(source, epsilon, seed, settings, held_out) for seed in range(runs)]
    mean = {key: float(np.mean([each[key] for each in found])) for key in found[0]}
    least = logistic_loss(floor, held_out)
    tuned = _tuned(source, epsilon, held_out, tuning_runs)
    tuned_all = [logistic_loss(regress(each, settings).coefficients, held_out) for each in tuned.measured]
    return {
        "records": problem.name,
        "epsilon": epsilon,
        "runs": runs,
        "loss without noise": least,
        "last round": mean["last loss"] - least,
        "all rounds": mean["loss"] - least,
        "runs improved": sum(each["loss"] < each["last loss"] for each in found),
        "last round, tuned": tuned.loss - least,
        "all rounds, tuned": float(np.mean(tuned_all)) - least,
        "tuned rounds": tuned.plan.rounds,
        "tuned step": tuned.plan.step,
        "right without noise": _right(floor, held_out),
        "right, last round": mean["last right"],
        "right, all rounds": mean["right"],
        "fit s": mean["seconds"],
    }


def source_of(problem: LabelledPoints) -> Source:
    """The training records as a table that declares its bounds."""
    rows = problem.training_rows()
    names = [f"x{place}" for place in range(rows.shape[1] - 1)] + ["label"]
    domain = Domain("regression", tuple(Attribute.continuous(name, (-1.0, 1.0)) for name in names))
    return open_table(pa.table(dict(zip(names, rows.T, strict=True))), domain)


def last_round(measured: MeasurementSet) -> Array:
    """The result of the private algorithm alone."""
    return last_iterate(Observed.of(measured, algorithm="logistic"))


def _one_run(source: Source, epsilon: float, seed: int, settings: Iterates, held_out: Array) -> dict[str, float]:
    measured = measure(source, Logistic("label"), epsilon=epsilon, simulate=seed)
    began = time.perf_counter()
    found = regress(measured, replace(settings, seed=seed))
    seconds = time.perf_counter() - began
    return {
        "last loss": logistic_loss(found.last_iterate, held_out),
        "loss": logistic_loss(found.coefficients, held_out),
        "last right": _right(found.last_iterate, held_out),
        "right": _right(found.coefficients, held_out),
        "seconds": seconds,
    }


def _tuned(source: Source, epsilon: float, held_out: Array, runs: int) -> Tuned:
    """The pair of settings with the least mean loss of the last round."""
    found = []
    for plan in PAIRS:
        measured = tuple(measure(source, plan, epsilon=epsilon, simulate=seed) for seed in range(runs))
        loss = float(np.mean([logistic_loss(last_round(each), held_out) for each in measured]))
        found.append(Tuned(plan, loss, measured))
    return min(found, key=lambda each: each.loss)


def _right(coefficients: Array, signed: Array) -> float:
    """The share of labels on their side of the boundary."""
    return float(np.mean(signed @ coefficients > 0))
