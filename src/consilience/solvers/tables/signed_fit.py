"""Least squares over tables that may hold negative counts, with exact facts: the shortest of all solutions.

    min over x of ½‖Bx − c‖²    with Ex = e and x = 0 outside allowed cells.

Let x₀ be the shortest table with Ex₀ = e, and P the projection onto the tables z with Ez = 0. Then x = x₀ + z, where z
is the shortest least-squares solution of BPz = c − Bx₀. EEᵀ is the matrix of the facts' row products at a table of
ones, and small.
"""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from consilience.errors import TooLarge
from consilience.solvers.conjugate_gradients import shortest_least_squares
from consilience.solvers.fit import SHARED, Fit, Status
from consilience.solvers.tables.entropic_proximal_point import Search
from consilience.solvers.tables.measured_fit import Facts
from consilience.solvers.tables.table_problem import Operator, Problem, half_square

# ----------------------------------------------------------------------------------------------------------------------
# The exact non-negative least-squares fit of a small table whose cells the measurements all determine.
#
# With G = BᵀB positive definite and g = Bᵀc the fit minimises ½xᵀGx − gᵀx over x ≥ 0, if wished with Σx = T. It is the
# one table for which, with a multiplier λ (0 where the total is free),
#
#     x ≥ 0,   y = Gx − g − λ·1 ≥ 0,   xᵢyᵢ = 0 for every cell,
#
# so it is enough to know which cells are free (yᵢ = 0) and which are empty (xᵢ = 0): the rest is one linear system.
# *Block principal pivoting* (Júdice and Pires 1994; Kim and Park 2011) guesses, solves, and moves every cell that
# breaks a sign to the other side; when that does not lower their number for a while, only the last of them is moved,
# which cannot go round in circles (Murty 1974). A handful of systems is the rule, each of n³/3 operations.
#
# *The gap.* Let δ be by how much rounding left the conditions unmet: yᵢ on free cells, min(yᵢ, 0) on empty ones. For
# any table z ≥ 0 (with the same total) yᵀ(z − x) ≥ δᵀ(z − x), so f(z) ≥ f(x) + δᵀ(z − x) + ½(z − x)ᵀG(z − x), which is
# at least f(x) − ½δᵀG⁻¹δ.


Array = NDArray[np.float64]


@dataclass(frozen=True)
class SquaresSettings:
    """What tunes exact and signed least squares; by trial, no figures kept."""

    block_tries: int = 3
    """So many block moves may fail to lower the number of wrong signs before cells are moved one by one."""
    most_systems: int = 500
    """Systems that are solved before it is left to iterations."""
    wrong_sign: float = 1e-10
    """What counts as a wrong sign, in units of the largest number of its kind, if that is little beside the noise."""
    negligible: float = 1e-3
    """What a count may be below 0 at most, in units of its own noise; rounding alone counts as none."""
    largest_table: int = 512
    """Up to so many cells the systems take less time than iterations."""
    precision: float = 1e-13
    """Of LSMR, relative to the target and the operator."""
    singular: float = 1e-11
    """An eigenvalue of EEᵀ this small, relative to the largest, counts as 0."""


SETTINGS = SquaresSettings()


def fit_exactly(
    matrix: Array, observed: Array, *, total: float | None = None, allowed: NDArray[np.bool_] | None = None
) -> Fit | None:
    """The table x ≥ 0 that minimises ½‖Bx − c‖², flat; None where the rows leave cells open, or rounding wins.

    `total` fixes Σx; cells outside `allowed` are zero.
    """
    began = time.monotonic()
    kept = np.ones(matrix.shape[1], dtype=np.bool_) if allowed is None else allowed.ravel()
    rows = matrix[:, kept]
    gram, linear = rows.T @ rows, rows.T @ observed
    if not kept.any() or not determines_every_cell(gram):
        return None
    found = exact_nonnegative_fit(gram, linear, total=total)
    if found is None:
        return None
    cells, systems = found
    counts: Array = np.zeros(kept.size)
    counts[kept] = cells
    residual = rows @ cells - observed
    objective = 0.5 * float(residual @ residual)
    stats: dict[str, float | int | str] = {"systems": systems, "steps": systems, "seconds": time.monotonic() - began}
    return Fit(counts, objective, _gap(gram, linear, cells, total), Status.CONVERGED, stats)


def _gap(gram: Array, linear: Array, cells: Array, total: float | None) -> float:
    slack, free = gram @ cells - linear, cells > 0.0
    if total is not None and free.any():
        slack -= float(slack[free].mean())
    unmet = np.where(free, slack, np.minimum(slack, 0.0))
    return 0.5 * float(unmet @ np.linalg.solve(gram, unmet))


def determines_every_cell(gram: Array) -> bool:
    """Whether G is safely positive definite: no two tables have the same answers.

    >>> determines_every_cell(np.array([[2.0, 1.0], [1.0, 2.0]])), determines_every_cell(np.ones((2, 2)))
    (True, False)
    """
    try:
        pivots = np.diagonal(np.linalg.cholesky(gram))
    except np.linalg.LinAlgError:
        return False
    return bool(pivots.min(initial=np.inf) > np.sqrt(SHARED.dependent) * pivots.max(initial=0.0))


def exact_nonnegative_fit(gram: Array, linear: Array, *, total: float | None = None) -> tuple[Array, int] | None:
    """The cells x ≥ 0 that minimise ½xᵀGx − gᵀx, and how many linear systems it took; None where rounding wins.

    >>> cells, _ = exact_nonnegative_fit(np.eye(3), np.array([2.0, -1.0, 1.0])) or (None, 0)
    >>> cells.tolist()
    [2.0, 0.0, 1.0]
    """
    if total is not None and total <= 0.0:
        return np.zeros(linear.size), 0
    free = np.ones(linear.size, dtype=np.bool_)
    noise = SETTINGS.negligible / np.sqrt(np.diagonal(gram))
    fewest, tries = linear.size + 1, SETTINGS.block_tries
    for systems in range(1, SETTINGS.most_systems + 1):
        solved = _solved(gram, linear, free, total)
        if solved is None:
            return None
        cells, slack = solved
        largest_slack = max(np.abs(linear).max(), np.abs(slack).max())
        too_low = _wrong_from(np.abs(cells).max(), noise), _wrong_from(largest_slack, noise * np.diagonal(gram))
        wrong = np.where(free, cells < -too_low[0], slack < -too_low[1])
        count = int(np.count_nonzero(wrong))
        if count == 0:
            return np.maximum(cells, 0.0), systems
        if count < fewest:
            fewest, tries = count, SETTINGS.block_tries
        elif tries > 0:
            tries -= 1
        else:
            last = int(np.flatnonzero(wrong)[-1])
            wrong[:] = False
            wrong[last] = True
        free ^= wrong
        if not free.any() and total is not None:
            free[int(np.argmax(linear))] = True
    return None


def _wrong_from(largest: float, noise: Array) -> Array:
    """How far below 0 a number must be to be wrong: neither by rounding, nor by nothing beside the noise."""
    return np.clip(noise, 8.0 * np.finfo(np.float64).eps * largest, SETTINGS.wrong_sign * largest)


def _solved(gram: Array, linear: Array, free: NDArray[np.bool_], total: float | None) -> tuple[Array, Array] | None:
    """x with the chosen cells free and y, or None where the system cannot be solved."""
    cells: Array = np.zeros(linear.size)
    multiplier = 0.0
    if free.any():
        try:
            factor = cho_factor(gram[np.ix_(free, free)], lower=True, check_finite=False)
        except LinAlgError:
            return None
        right = np.column_stack([linear[free], np.ones(int(free.sum()))])
        solution = cho_solve(factor, right, check_finite=False)
        if total is not None:
            multiplier = (total - float(solution[:, 0].sum())) / float(solution[:, 1].sum())
        cells[free] = solution[:, 0] + multiplier * solution[:, 1]
    slack = gram @ cells - linear - multiplier
    slack[free] = 0.0
    return cells, slack


# ----------------------------------------------------------------------------------------------------------------------
# Least squares over tables that may hold negative counts, with exact facts: the shortest of all solutions.


def fit_signed_table(
    operator: Operator,
    observed: Array,
    *,
    facts: Facts | None = None,
    allowed: NDArray[np.bool_] | None = None,
    tolerance: float = 1e-4,
    noise_energy: float = 0.0,
    max_steps: int = 50_000,
) -> Fit:
    """The shortest table that minimises ½‖Bx − observed‖² and meets the facts.

    The gap is an estimate: twice what a second solution, of the first one's residual, would still remove.
    """
    started = time.monotonic()
    problem = Problem(operator, observed, None, allowed)
    projection = _Projection.of(facts, problem)
    table = projection.shortest()

    def apply(cells: Array) -> Array:
        free = cells.reshape(table.shape)
        return problem.apply(projection(free if allowed is None else np.where(allowed, free, 0.0)))

    def adjoint(answers: Array) -> Array:
        return projection(problem.adjoint(answers)).ravel()

    def solve(target: Array) -> tuple[Array, int]:
        found, taken = shortest_least_squares(
            apply, adjoint, target, table.size, precision=SETTINGS.precision, most_steps=max_steps
        )
        return found.reshape(table.shape), taken

    steps = 0
    for _ in range(2):  # the second round removes what the first one's rounding left
        change, taken = solve(observed - problem.apply(table))
        steps += taken
        table = projection(table + change, onto_facts=True)
    residual = problem.apply(table) - observed
    gap = 2.0 * half_square(problem.apply(projection(solve(residual)[0])))
    objective = half_square(residual)
    enough = tolerance * max(objective, noise_energy, 1e-12 * half_square(observed))
    stats: dict[str, float | int | str] = {
        "solver": "least squares",
        "steps": problem.adjoints,
        "iterations": steps,
        "violation": 0.0 if facts is None else max(facts.misses(table)) * facts.unit,
        "seconds": time.monotonic() - started,
    }
    return Fit(table, objective, min(gap, objective), Status.CONVERGED if gap <= enough else Status.STEP_LIMIT, stats)


@dataclass(frozen=True, eq=False)
class _Projection:
    """The projection onto the tables on which all facts are 0, or onto those that meet them."""

    problem: Problem
    facts: Facts | None
    inverse: Array
    """A pseudo-inverse of EEᵀ."""

    @staticmethod
    def of(facts: Facts | None, problem: Problem) -> "_Projection":
        """The projection; `Infeasible` where no table at all meets the facts."""
        if facts is None:
            return _Projection(problem, None, np.zeros((0, 0)))
        if facts.products is None:
            raise TooLarge(
                f"{facts.values.size:,} exact answers are too many to keep in a table that may hold negative counts; "
                "use nonnegative=True, or fewer facts"
            )
        values, vectors = np.linalg.eigh(facts.products.of(problem.allowed_table()))
        kept = values > SETTINGS.singular * max(float(values[-1]), np.finfo(np.float64).tiny)
        projection = _Projection(problem, facts, (vectors[:, kept] / values[kept]) @ vectors[:, kept].T)
        facts.refuse_beyond(10.0 * Search.settings.met, projection.shortest(), kind="table", remedy="Correct them")
        return projection

    def shortest(self) -> Array:
        """x₀."""
        nothing = np.zeros(self.problem.operator.shape_in)
        return self(self(nothing, onto_facts=True), onto_facts=True)

    def __call__(self, table: Array, *, onto_facts: bool = False) -> Array:
        if self.facts is None:
            return table
        answers = self.facts.operator.apply(table)
        spread = self.facts.operator.adjoint(self.inverse @ (answers - self.facts.values if onto_facts else answers))
        if self.problem.allowed is not None:
            spread[~self.problem.allowed] = 0.0
        return table - spread
