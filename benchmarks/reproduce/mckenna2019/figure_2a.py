"""McKenna, Sheldon and Miklau (2019), Figure 2a: the error of HDMM's variants on Adult as a function of ε.

What is measured is chosen by HDMM and does not depend on ε. The variants are local least squares, each triple by
itself, and graphical estimation; an even table, which looks at nothing but the number of records, is there to tell what
an error means. Errors are those of §5.1, on the workload and on the queries that were measured; the median of five
runs.
"""

import itertools
import math
import statistics
from typing import Any

from benchmarks.reproduce.figures import Claim, Picture, brief, publish
from benchmarks.reproduce.mckenna2019.with_and_without import DEFAULT, WITH, WITHOUT, run_apart

NAME = "mckenna2019-figure-2a"
PICTURE = Picture(
    "HDMM on Adult by ε (McKenna et al. 2019, Figure 2a)",
    "epsilon",
    "ε",
    "quantity",
    y="error",
    y_title="error",
)
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
QUICK_EPSILONS = (0.3, 10.0)
SQUARES, MODEL, OURS, EVEN = "HDMM+LLS", "HDMM+PGM", "HDMM+PGM, the library's default", "even table"
METHODS = {SQUARES: WITHOUT, MODEL: WITH, OURS: DEFAULT}
WORKLOAD, MEASURED = "workload", "what was measured"

Row = dict[str, Any]


def run(quick: bool) -> bool:
    """Five runs for each ε; one for the smallest and the largest of two if quick."""
    epsilons, runs = (QUICK_EPSILONS, 1) if quick else (EPSILONS, 5)
    rows: list[Row] = []
    for epsilon in epsilons:
        found = [run_apart("HDMM", list(METHODS.values()), "adult-fine", seed, epsilon) for seed in range(runs)]
        for method in METHODS:
            rows += medians(method, epsilon, [each[METHODS[method]] for each in found])
            print(f"  ε = {epsilon:g}, {method}: {brief(rows[-2]['error'])}", flush=True)
        rows.append(row_of(WORKLOAD, EVEN, epsilon, even_error(), 1))
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def row_of(quantity: str, method: str, epsilon: float, error: float, runs: int) -> Row:
    return {"quantity": quantity, "method": method, "epsilon": epsilon, "error": error, "runs": runs}


def medians(method: str, epsilon: float, found: list[Row]) -> list[Row]:
    """The median errors of a variant on the workload and on what was measured."""
    failed = [each["note"] for each in found if "error" not in each]
    if failed:
        print(f"  ε = {epsilon:g}, {method} failed: {failed[0]}", flush=True)
        return [row_of(quantity, method, epsilon, math.nan, 0) for quantity in (WORKLOAD, MEASURED)]
    errors = {WORKLOAD: "error", MEASURED: "measured error"}
    return [
        row_of(quantity, method, epsilon, statistics.median(each[key] for each in found), len(found))
        for quantity, key in errors.items()
    ]


def even_error() -> float:
    """The workload error of a table that has the same count in every cell."""
    from benchmarks.problems.triples import triple_problem
    from consilience.estimators import Uniform
    from consilience.evaluation import evaluate
    from consilience.measurements import Laplace, MeasurementSet

    problem = triple_problem("adult-fine")
    total = float(problem.records.rows)
    known = MeasurementSet.from_marginals(problem.records.domain, {(): total}, noise=Laplace(1.0), private=False)
    return evaluate(Uniform().fit(known), problem.records.source(), problem.workload).workload_error


def claims(rows: list[Row]) -> list[Claim]:
    """What §5.1 says of the figure."""
    found = {(row["quantity"], row["method"], float(row["epsilon"])): float(row["error"]) for row in rows}
    epsilons = sorted({epsilon for _, _, epsilon in found})
    gains = [found[WORKLOAD, SQUARES, epsilon] / found[WORKLOAD, MODEL, epsilon] for epsilon in epsilons]
    low, high = [epsilon for epsilon in epsilons if epsilon <= 0.3], epsilons[-1]
    even = found[WORKLOAD, EVEN, low[0]]
    least = min(found[WORKLOAD, SQUARES, epsilon] for epsilon in low)
    squares, model = found[WORKLOAD, SQUARES, high], found[WORKLOAD, MODEL, high]
    fit = found[MEASURED, SQUARES, high] / found[MEASURED, MODEL, high]
    return [
        Claim(
            "the gain by graphical estimation increases as ε decreases",
            all(first > second for first, second in itertools.pairwise(gains)),
            ", ".join(f"{brief(gain)} times at {epsilon:g}" for epsilon, gain in zip(epsilons, gains, strict=True)),
        ),
        Claim(
            "at ε = 0.3 and below there is virtually no utility without graphical models",
            least >= 0.5 * even,
            f"the error is {brief(least)} or more, that of an even table {brief(even)}; with a model it is at most "
            f"{brief(max(found[WORKLOAD, MODEL, epsilon] for epsilon in low))}",
        ),
        Claim(
            f"at ε = {high:g} local least squares has a slightly lower error on the workload",
            squares < model,
            f"{brief(squares)} against {brief(model)}",
        ),
        Claim(
            f"at ε = {high:g} the model's error on the measurements is better by more than a factor of three",
            fit > 3.0,
            f"{brief(fit)} times",
        ),
    ]
