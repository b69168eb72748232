"""McKenna, Sheldon and Miklau (2019), Figure 2b: seconds per iteration against the number of attributes.

Attributes of ten values, adjacent triples measured (§5.2). Three ways to estimate from them: the graphical model, one
iteration of which is a call of the marginal oracle and a gradient step; multiplicative weights and LSMR, which keep the
full table of 10^d cells. An iteration of multiplicative weights uses all measurements at once (E.2). The full tables
are summed by our own fastest code. What would not fit into the memory of this machine is not tried: a row says how much
it would take.
"""

import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, lsmr

from benchmarks.problems.noisy_marginals import NoisyMarginals, chain
from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.per_run import by, ratio, slope
from benchmarks.reproduce.pictures import Picture
from benchmarks.reproduce.verdicts import Claim, Threshold
from benchmarks.speed.timing import best_time
from consilience.models.junction_trees import junction_tree
from consilience.models.oracle import MarginalOracle
from consilience.solvers.marginal_sums import MarginalSums

ABOUT = About(
    "McKenna, Sheldon and Miklau (2019), Figure 2b: seconds per iteration by the number of attributes",
    (
        "Method: one iteration of our own code for all three; LSMR is scipy's on our sums of the full table.",
        "Machine: full tables that would take more than 60 % of the memory of the machine are not tried, and the CSV "
        "says how much they would take. The paper had 16 GB.",
    ),
    runs="Three timings each, the best of several tries, in processor time.",
    timed=True,
)
PICTURE = Picture(
    "Seconds per iteration of three ways to estimate (McKenna et al. 2019, Figure 2b)",
    "attributes",
    "attributes of ten values",
    "panel",
    y="seconds",
    y_title="seconds per iteration",
    width=620,
    height=260,
)
PANEL = "adjacent triples measured"
MODEL, WEIGHTS, SQUARES = "Consilience, graphical model", "multiplicative weights", "LSMR"
ATTRIBUTES = (3, 4, 5, 6, 7, 8, 9, 10, 20, 50, 100, 200, 500, 1000)
TABLE_ARRAYS = {WEIGHTS: 3, SQUARES: 7}
"""How many arrays of the full table's size a method holds at once."""
MEMORY_SHARE = 0.6
"""The share of this machine's memory that a method may take."""

Array = NDArray[np.float64]


TIMINGS = 3


def run(extent: Extent) -> Rows:
    """3 to 1000 attributes, as in the paper; to 100, and full tables of 10^6 cells at most, if quick."""
    limit = 8 * 8e6 if extent.quick else MEMORY_SHARE * memory_of_this_machine()
    return [row for count in ATTRIBUTES if not extent.quick or count <= 100 for row in compare(count, limit)]


def memory_of_this_machine() -> float:
    """In bytes; where the system does not tell, 16 GB as in the paper."""
    if sys.platform == "win32":
        return 16e9
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def compare(attributes: int, limit: float) -> Rows:
    """A row for each method: its seconds per iteration, or none and the memory that it would take."""
    problem = chain(attributes, rows=10_000)
    methods: dict[str, Callable[[NoisyMarginals], float]] = {
        MODEL: model_seconds,
        WEIGHTS: weights_seconds,
        SQUARES: squares_seconds,
    }
    rows = []
    for name, method in methods.items():
        digits = attributes + math.log10(8 * TABLE_ARRAYS[name]) if name in TABLE_ARRAYS else 0.0
        fits = digits <= math.log10(limit)
        timings = [method(problem) for _ in range(TIMINGS)] if fits else []
        seconds = min(timings, default=float("nan"))
        note = "" if fits else f"not tried: it would take {in_words(digits)}"
        row = {"panel": PANEL, "attributes": attributes, "method": name, "seconds": seconds}
        rows.append(row | {"log10_bytes": digits, "note": note, "values": timings})
        print(f"  {attributes} attributes, {name}: {note or f'{seconds:.3g} s'}", flush=True)
    return rows


def in_words(digits: float) -> str:
    """An amount of memory, from the decimal logarithm of its bytes."""
    return f"{10 ** (digits - 9):.3g} GB" if digits < 15 else f"10^{digits - 9:.0f} GB"


def model_seconds(problem: NoisyMarginals) -> float:
    """Marginals of the model, the loss's gradient there, and a step of mirror descent."""
    oracle = MarginalOracle(junction_tree(problem.sizes, problem.scopes), problem.scopes, total=problem.total)
    noisy = oracle.layout.pack(problem.noisy)
    potentials, rate = np.zeros(oracle.layout.size), 1e-3 / problem.total

    def iterate() -> None:
        residuals = oracle.marginals(potentials).values - noisy
        np.subtract(potentials, rate * residuals, out=potentials)

    iterate()
    return best_time(iterate, patience=0.5, least=3, clock=time.process_time)[0]


def weights_seconds(problem: NoisyMarginals) -> float:
    """p ← p · exp(−∇L(p) / 2m), scaled to the total m, on the full table; L is half the squared residuals."""
    sums = MarginalSums(problem.sizes, problem.scopes)
    cells = float(np.prod([float(size) for size in problem.sizes]))
    table = np.full(problem.sizes, problem.total / cells)

    def iterate() -> None:
        nonlocal table
        found = sums.of(table)
        step = sums.spread(
            [(noisy - each) / (2 * problem.total) for noisy, each in zip(problem.noisy, found, strict=True)]
        )
        np.exp(step, out=step)
        table *= step.reshape(table.shape)
        table *= problem.total / table.sum()

    iterate()
    return best_time(iterate, patience=0.5, least=2, clock=time.process_time)[0]


def squares_seconds(problem: NoisyMarginals) -> float:
    """LSMR on the full table, without non-negativity: the time of five steps, and of half a one to begin with."""
    sums = MarginalSums(problem.sizes, problem.scopes)
    cells = int(np.prod(problem.sizes))
    shapes = [table.shape for table in problem.noisy]
    ends = np.cumsum([table.size for table in problem.noisy])[:-1]

    def down(table: Array) -> Array:
        return np.concatenate([each.ravel() for each in sums.of(table.reshape(problem.sizes))])

    def up(answers: Array) -> Array:
        parts = np.split(answers.ravel(), ends)
        return sums.spread([part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]).ravel()

    make: Any = LinearOperator
    operator = make((problem.cells, cells), matvec=down, rmatvec=up, dtype=np.float64)
    noisy = np.concatenate([table.ravel() for table in problem.noisy])

    options = {"atol": 0.0, "btol": 0.0, "conlim": 0.0, "maxiter": 5}

    def solve() -> Any:
        return lsmr(operator, noisy, **options)

    seconds, solved = best_time(solve, patience=0.5, least=2, clock=time.process_time)
    return seconds / (solved[2] + 0.5)


def claims(rows: Rows) -> list[Claim]:
    """What §5.2 says of the figure."""
    found = {place: values for place, values in by(rows, "method", "attributes").items() if values}
    most = {method: max(count for name, count in found if name == method) for method in (MODEL, WEIGHTS, SQUARES)}
    refused = [row for row in rows if row["method"] != MODEL and not np.isfinite(float(row["seconds"]))]
    next_size = in_words(min((float(row["log10_bytes"]) for row in refused), default=0.0))
    shared, largest = min(most[WEIGHTS], most[SQUARES]), most[MODEL]
    many = [count for name, count in found if name == MODEL and count >= 20]
    return [
        Claim(
            "both MW and LSMR fail to scale beyond datasets with 10 attributes",
            "most attributes for which they ran",
            Threshold(high=10.0),
            {"MW": [float(most[WEIGHTS])], "LSMR": [float(most[SQUARES])]},
            more=f"The next table would take {next_size}.",
            ratio=False,
            exact=True,
        ),
        Claim(
            "PGM easily scales to datasets with 1000 attributes",
            f"seconds per iteration for {largest:g} attributes",
            Threshold(high=1.0),
            {f"{largest:g} attributes": found[MODEL, largest]},
            more="Easily: at most a second per iteration, for the largest number that ran.",
            unit=" s",
        ),
        Claim(
            "the scalability of PGM primarily depends on the complexity of the measurements taken",
            "exponent p of attributes^p, from 20 attributes on; the measured triples grow with p = 1",
            Threshold(0.8, 1.2),
            {"graphical model": slope(many, [found[MODEL, count] for count in many])},
            ratio=False,
        ),
        Claim(
            "the graphical model is an order of magnitude faster than both on the largest table that they can hold",
            f"their seconds in units of its, {shared:g} attributes",
            Threshold(low=10.0),
            {name: ratio(found[name, shared], found[MODEL, shared]) for name in (WEIGHTS, SQUARES)},
            ours=True,
        ),
    ]
