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
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, lsmr

from benchmarks.problems.noisy_marginals import NoisyMarginals, chain
from benchmarks.reproduce.figures import Claim, Picture, brief, publish
from benchmarks.speed.timing import best_time
from consilience.models.junction_trees import junction_tree
from consilience.models.oracle import MarginalOracle
from consilience.solvers.marginal_sums import MarginalSums

NAME = "mckenna2019-figure-2b"
PICTURE = Picture(
    "Seconds per iteration of three ways to estimate (McKenna et al. 2019, Figure 2b)",
    "attributes",
    "attributes of ten values",
    "panel",
    y="seconds",
    y_title="seconds per iteration",
)
PANEL = "adjacent triples measured"
MODEL, WEIGHTS, SQUARES = "Consilience, graphical model", "multiplicative weights", "LSMR"
ATTRIBUTES = (3, 4, 5, 6, 7, 8, 9, 10, 20, 50, 100, 200, 500, 1000)
TABLE_ARRAYS = {WEIGHTS: 3, SQUARES: 7}
"""How many arrays of the full table's size a method holds at once."""
MEMORY_SHARE = 0.6
"""The share of this machine's memory that a method may take."""

Array = NDArray[np.float64]


def run(quick: bool) -> bool:
    """3 to 1000 attributes, as in the paper; to 100, and full tables of 10^6 cells at most, if quick."""
    limit = 8 * 8e6 if quick else MEMORY_SHARE * memory_of_this_machine()
    rows = [row for count in ATTRIBUTES if not quick or count <= 100 for row in compare(count, limit)]
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def memory_of_this_machine() -> float:
    """In bytes; where the system does not tell, 16 GB as in the paper."""
    if sys.platform == "win32":
        return 16e9
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def compare(attributes: int, limit: float) -> list[dict[str, Any]]:
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
        seconds = method(problem) if fits else float("nan")
        note = "" if fits else f"not tried: it would take {in_words(digits)}"
        row = {"panel": PANEL, "attributes": attributes, "method": name, "seconds": seconds}
        rows.append(row | {"log10_bytes": digits, "note": note})
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
    return best_time(iterate, patience=1.0, least=3)[0]


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
    return best_time(iterate, patience=1.0, least=2)[0]


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

    solve()
    seconds, solved = best_time(solve, patience=1.0, least=2)
    return seconds / (solved[2] + 0.5)


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """What §5.2 says of the figure."""
    found = {(row["method"], int(row["attributes"])): float(row["seconds"]) for row in rows}
    run_for = {
        method: [count for (name, count), seconds in found.items() if name == method and np.isfinite(seconds)]
        for method in (MODEL, WEIGHTS, SQUARES)
    }
    most = {method: max(counts) for method, counts in run_for.items()}
    refused = [row for row in rows if row["method"] != MODEL and not np.isfinite(float(row["seconds"]))]
    next_size = in_words(min((float(row["log10_bytes"]) for row in refused), default=0.0))
    shared = min(most[WEIGHTS], most[SQUARES])
    growth = found[MODEL, most[MODEL]] / found[MODEL, 10]
    return [
        Claim(
            "multiplicative weights and LSMR fail to scale beyond 10 attributes",
            max(most[WEIGHTS], most[SQUARES]) <= 10,
            f"they ran for up to {most[WEIGHTS]} and {most[SQUARES]}; the next table would take {next_size}",
        ),
        Claim(
            "the graphical model easily scales to 1000 attributes",
            most[MODEL] == 1000 and found[MODEL, 1000] < 1.0,
            f"{found[MODEL, most[MODEL]]:.3g} s per iteration for {most[MODEL]}",
        ),
        Claim(
            "its time depends on the complexity of the measurements, not on the domain",
            growth < 3 * most[MODEL] / 10,
            f"from 10 to {most[MODEL]} attributes it grows {brief(growth)} times; for {shared} attributes it is "
            f"{brief(found[WEIGHTS, shared] / found[MODEL, shared])} times as fast as multiplicative weights and "
            f"{brief(found[SQUARES, shared] / found[MODEL, shared])} times as fast as LSMR",
        ),
    ]
