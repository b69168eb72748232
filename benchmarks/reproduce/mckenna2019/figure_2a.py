"""McKenna, Sheldon and Miklau (2019), Figure 2a: the error of HDMM's variants on Adult as a function of ε.

What is measured is chosen by HDMM and does not depend on ε. The variants are local least squares, each triple by
itself, and graphical estimation; an even table, which looks at nothing but the number of records, is there to tell what
an error means. Errors are those of §5.1, on the workload and on the queries that were measured.
"""

import itertools
import statistics

from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.mckenna2019.figure_1 import OPTIMUM, TRIPLES
from benchmarks.reproduce.mckenna2019.with_and_without import DEFAULT, WITH, WITHOUT, run_apart
from benchmarks.reproduce.per_run import by, ratio
from benchmarks.reproduce.pictures import Picture
from benchmarks.reproduce.verdicts import BETTER, SLIGHTLY, Claim, Threshold

ABOUT = About(
    "McKenna, Sheldon and Miklau (2019), Figure 2a: HDMM on Adult by ε",
    (
        f"Data: Adult, as in the paper. {TRIPLES}",
        OPTIMUM,
        "ε: 0.1 to 10; the paper names 0.3 and 10, and its axis is not in the copy at hand.",
    ),
    runs="Five runs for each ε, the median shown; the paper does not say how many it had here.",
)
PICTURE = Picture(
    "HDMM on Adult by ε (McKenna et al. 2019, Figure 2a)",
    "epsilon",
    "ε",
    "quantity",
    y="error",
    y_title="error",
    width=360,
    height=260,
    note="Medians of five runs. Marks of one ε are moved sideways so that none hides another.",
)
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
QUICK_EPSILONS = (0.3, 10.0)
SQUARES, MODEL, OURS, EVEN = "HDMM+LLS", "HDMM+PGM", "HDMM+PGM, the library's default", "even table"
METHODS = {SQUARES: WITHOUT, MODEL: WITH, OURS: DEFAULT}
WORKLOAD, MEASURED = "workload", "what was measured"
KEYS = {WORKLOAD: "error", MEASURED: "measured error"}


def run(extent: Extent) -> Rows:
    """Five runs for each ε; two for the smallest and the largest of two if quick."""
    rows: Rows = []
    even = even_error()
    for epsilon in QUICK_EPSILONS if extent.quick else EPSILONS:
        found = [run_apart("HDMM", [*METHODS.values()], "adult-fine", seed, epsilon) for seed in extent.seeds(5)]
        for method, way in METHODS.items():
            for quantity, key in KEYS.items():
                rows.append(row_of(quantity, method, epsilon, [each[way][key] for each in found]))
        rows.append(row_of(WORKLOAD, EVEN, epsilon, [even] * len(found)))
        print(f"  ε = {epsilon:g}: done", flush=True)
    return rows


def row_of(quantity: str, method: str, epsilon: float, values: list[float]) -> dict:
    place = {"quantity": quantity, "method": method, "epsilon": epsilon}
    return place | {"error": statistics.median(values), "values": values}


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


def claims(rows: Rows) -> list[Claim]:
    """What §5.1 says of the figure."""
    found = by(rows, "quantity", "method", "epsilon")
    epsilons = sorted({row["epsilon"] for row in rows})
    gains = {e: ratio(found[WORKLOAD, SQUARES, e], found[WORKLOAD, MODEL, e]) for e in epsilons}
    high = epsilons[-1]
    return [
        Claim(
            "the magnitude of the improvement offered by our PGM estimation algorithm increases as ε decreases",
            "gain at one ε in units of the gain at the next larger",
            BETTER,
            {f"ε = {a:g} and {b:g}": ratio(gains[a], gains[b]) for a, b in itertools.pairwise(epsilons)},
        ),
        Claim(
            "at ε = 0.3 and below, the mechanism has virtually no utility without PGMs",
            "error of local least squares in units of that of an even table",
            Threshold(low=0.8),
            {f"ε = {e:g}": ratio(found[WORKLOAD, SQUARES, e], found[WORKLOAD, EVEN, e]) for e in epsilons if e <= 0.3},
            more="Virtually no utility: an error of at least four fifths of that of a table that was never measured.",
        ),
        Claim(
            "at the highest ε of 10.0, HDMM+LLS actually offers slightly lower error than HDMM+PGM on the workload",
            "error of HDMM+PGM in units of that of HDMM+LLS",
            SLIGHTLY,
            {f"ε = {high:g}": ratio(found[WORKLOAD, MODEL, high], found[WORKLOAD, SQUARES, high])},
        ),
        Claim(
            "the error of HDMM+PGM on the measurements is still better by more than a factor of three",
            f"error on the measurements of HDMM+LLS in units of that of HDMM+PGM, ε = {high:g}",
            Threshold(low=3.0),
            {f"ε = {high:g}": ratio(found[MEASURED, SQUARES, high], found[MEASURED, MODEL, high])},
            paper="more than 3 times",
        ),
    ]
