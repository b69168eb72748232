"""Tables with known marginals, against an interior-point solver in the same run; then a table of a million cells.

A table of correlated attributes with Laplace noise in every cell, and all its two-way marginals known. The peer gets
one equation for each independent marginal value, which is a tenth of what the marginals hold. What it found is replaced
by the nearest table that has the marginals and no negative count before it is judged.

The published tables of Lee et al. (2015) get the same noise; they are so small that calls of functions take most of our
time. The targets are ratios with the L1 loss, for 16 binary attributes and for categorical and published tables, and
the memory for 20 binary attributes.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.peers import clarabel_solver
from benchmarks.problems.contingency_tables import CONTINGENCY_TABLES, ContingencyTable
from benchmarks.speed.timing import PEER_LIMIT, Own, Peer, in_own_process, own_time, peer_row
from consilience.solvers.fit import Loss
from consilience.solvers.marginal_tables.table_fit import fit_table

SEED, ROWS, NOISE_SCALE = 16, 100_000, 2.0
CATEGORICAL = ((8, 6, 5, 4, 3, 3, 2, 2), (8, 6, 5, 4, 3, 3), (10, 8, 6, 4), (30, 20, 5))
JUDGED, RATIO, RATIO_CATEGORICAL, MEGABYTES = 16, 30, 5, 3000

WORKER = """
import json, sys, time
from benchmarks.speed.tables import fitted, noisy_table
from benchmarks.speed.timing import best_time, peak_megabytes
loss, attributes = json.loads(sys.argv[1])
fitted(noisy_table((2,) * 6), loss)
problem = noisy_table((2,) * attributes)
problem.marginals, problem.weights
seconds, fit = best_time(lambda: fitted(problem, loss), patience=0.0, least=3, clock=time.process_time)
print(json.dumps([seconds, peak_megabytes(), fit.objective, fit.gap]))
"""


@dataclass(frozen=True, eq=False)
class Problem:
    """A noisy table and its exact two-way marginals."""

    exact: np.ndarray
    noisy: np.ndarray

    @cached_property
    def marginals(self) -> dict[tuple[int, ...], np.ndarray]:
        axes = range(self.exact.ndim)
        pairs = itertools.combinations(axes, 2)
        return {pair: self.exact.sum(axis=tuple(axis for axis in axes if axis not in pair)) for pair in pairs}

    @cached_property
    def weights(self) -> np.ndarray:
        return np.full(self.noisy.shape, 1.0 / NOISE_SCALE)


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows for binary, categorical and published tables, then rows for the largest table."""
    binary, largest = (10, 14) if quick else (JUDGED, 20)
    categorical, *others = CATEGORICAL[2:] if quick else CATEGORICAL
    target = {"target": None if quick else RATIO}
    fivefold = {"target": RATIO_CATEGORICAL}
    rows = [
        *against_clarabel(_shown((2,) * binary), noisy_table((2,) * binary), "l1", **target),
        *against_clarabel(_shown((2,) * binary), noisy_table((2,) * binary), "elastic"),
        *against_clarabel(_shown(categorical), noisy_table(categorical), "l1", **fivefold),
        *against_clarabel(_shown(categorical), noisy_table(categorical), "elastic"),
    ]
    for shape in others:
        rows.extend(against_clarabel(_shown(shape), noisy_table(shape), "l1", **fivefold))
    for table in CONTINGENCY_TABLES:
        name = f"{table.name.capitalize()}, 2^{len(table.variables)} cells"
        rows.extend(against_clarabel(name, published_table(table), "l1", **fivefold))
    return [*rows, *(of_a_million_cells(loss, largest) for loss in ("l1", "elastic", "l2"))]


def noisy_table(shape: tuple[int, ...]) -> Problem:
    """Rows whose values all depend on one hidden number, counted, with noise."""
    rng = np.random.default_rng(SEED)
    hidden = rng.random(ROWS)
    cells = np.zeros(ROWS, dtype=np.int64)
    for size in shape:
        drawn = np.minimum(rng.random(ROWS), rng.random(ROWS) + rng.uniform(0.3, 1.0) * hidden)
        cells = cells * size + np.minimum((drawn * size).astype(np.int64), size - 1)
    exact = np.bincount(cells, minlength=math.prod(shape)).reshape(shape).astype(np.float64)
    return Problem(exact, exact + rng.laplace(0, NOISE_SCALE, shape))


def published_table(table: ContingencyTable) -> Problem:
    """A published table with noise."""
    exact = table.counts.astype(np.float64)
    return Problem(exact, exact + np.random.default_rng(SEED).laplace(0, NOISE_SCALE, exact.shape))


def fitted(problem: Problem, loss: str) -> Any:
    return fit_table(problem.noisy, problem.marginals, loss=loss, weights=problem.weights)


def independent_equations(shape: tuple[int, ...]) -> Any:
    """One row for each pair, single and empty choice of values other than the first: what all pairs of axes know."""
    values = np.indices(shape).reshape(len(shape), -1)
    rows = [np.ones(math.prod(shape), dtype=np.bool_)]
    single = [[values[axis] == value for value in range(1, size)] for axis, size in enumerate(shape)]
    rows.extend(itertools.chain.from_iterable(single))
    for one, two in itertools.combinations(single, 2):
        rows.extend(first & second for first, second in itertools.product(one, two))
    return sp.csr_matrix(np.array(rows), dtype=np.float64)


def _shown(shape: tuple[int, ...]) -> str:
    return f"{len(shape)} binary attributes" if set(shape) == {2} else f"{' x '.join(map(str, shape))} values"


def against_clarabel(sizes: str, problem: Problem, loss: str, *, target: float | None = None) -> list[dict[str, Any]]:
    """Us and the peer on a table, with the ratio that is asked for, if any."""
    name = {"l1": "L1", "elastic": "elastic net"}[loss]
    for warm in (noisy_table((2, 3, 2)), problem):  # compiles, and counts the marginals
        fitted(warm, loss)
    own = own_time(f"table, {name}, {sizes}, all pairs known", lambda: fitted(problem, loss))
    peer = Peer(clarabel_solver.NAME, "clarabel", _written_down(problem, loss), target)

    def objective(counts: np.ndarray) -> float:
        nearest = fit_table(counts.reshape(problem.noisy.shape), problem.marginals, loss="l2").counts
        return Loss.named(loss).value(nearest, problem.noisy, problem.weights)

    return [own.row(), peer_row(own, peer, objective)]


def _written_down(problem: Problem, loss: str) -> Callable[[], Any]:
    """The peer's problem, in units of the noise."""

    def write_down() -> Any:
        equations, weights = independent_equations(problem.noisy.shape), problem.weights.ravel()
        linear, square = Loss.named(loss).coefficients(np.ones(weights.size))
        known, noisy = equations @ (problem.exact.ravel() * weights), problem.noisy.ravel() * weights
        solve = clarabel_solver.least_elastic(equations, known, noisy, linear, square, time_limit=PEER_LIMIT)
        return lambda: None if (found := solve()) is None else found / weights

    return write_down


def of_a_million_cells(loss: str, attributes: int) -> dict[str, Any]:
    """Time and peak memory of the largest table, in a process of its own."""
    seconds, megabytes, objective, gap = in_own_process(WORKER, loss, attributes)
    name = {"l1": "L1", "elastic": "elastic net", "l2": "L2"}[loss]
    own = Own(f"table, {name}, {attributes} binary attributes, all pairs known", seconds, objective, gap)
    row = own.row(**{"peak MB": megabytes})
    if attributes == 20:
        row |= {"target": f"< {MEGABYTES} MB", "met": "yes" if megabytes < MEGABYTES else "no"}
    return row
