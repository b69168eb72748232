"""Least squares over tables that may hold negative counts, with exact facts: the shortest of all solutions.

    min over x of ½‖Bx − c‖²    with Ex = e and x = 0 outside allowed cells.

Let x₀ be the shortest table with Ex₀ = e, and P the projection onto the tables z with Ez = 0. Then x = x₀ + z, where z
is the shortest least-squares solution of BPz = c − Bx₀, by LSMR (Fong and Saunders 2011, SIAM J. Sci. Comput. 33). EEᵀ
is the matrix of the facts' row products at a table of ones, and small.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray

from consilience.errors import TooLarge
from consilience.solvers.fit import Fit, Status
from consilience.solvers.infeasible import Infeasible
from consilience.solvers.tables.exact_facts import MET, Facts
from consilience.solvers.tables.least_squares_problem import Array, Operator, Problem, half_square

PRECISION = 1e-13
SINGULAR = 1e-11
"""An eigenvalue of EEᵀ this small, relative to the largest, counts as 0."""


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
    reduced: Any = _Reduced((observed.size, table.size), problem, projection)
    steps = 0
    for _ in range(2):  # the second round removes what the first one's rounding left
        missing = observed - problem.apply(table)
        change, taken = _solve(reduced, missing, max_steps)
        steps += taken
        table = projection.onto_facts(table + change.reshape(table.shape))
    residual = problem.apply(table) - observed
    rest, _ = _solve(reduced, residual, max_steps)
    gap = 2.0 * half_square(problem.apply(projection(rest.reshape(table.shape))))
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


def _solve(reduced: Any, target: Array, max_steps: int) -> tuple[Array, int]:
    linear = scipy.sparse.linalg.aslinearoperator(reduced)
    found, _, steps, *_ = scipy.sparse.linalg.lsmr(linear, target, atol=PRECISION, btol=PRECISION, maxiter=max_steps)
    return np.asarray(found, dtype=np.float64), int(steps)


@dataclass(frozen=True, eq=False)
class _Projection:
    """The projection onto the tables on which all facts are 0."""

    problem: Problem
    facts: Facts | None
    inverse: Array
    """A pseudo-inverse of EEᵀ."""

    @staticmethod
    def of(facts: Facts | None, problem: Problem) -> "_Projection":
        if facts is None:
            return _Projection(problem, None, np.zeros((0, 0)))
        if facts.products is None:
            raise TooLarge(
                f"{facts.values.size:,} exact answers are too many to keep in a table that may hold negative counts; "
                "use nonnegative=True, or fewer facts"
            )
        values, vectors = np.linalg.eigh(facts.products.of(problem.allowed_table()))
        kept = values > SINGULAR * max(float(values[-1]), np.finfo(np.float64).tiny)
        projection = _Projection(problem, facts, (vectors[:, kept] / values[kept]) @ vectors[:, kept].T)
        projection.refuse_contradictions()
        return projection

    def shortest(self) -> Array:
        """x₀."""
        nothing = np.zeros(self.problem.operator.shape_in)
        return self.onto_facts(self.onto_facts(nothing))

    def onto_facts(self, table: Array) -> Array:
        """The nearest table that meets the facts."""
        if self.facts is None:
            return table
        return table - self._spread(self.facts.operator.apply(table) - self.facts.values)

    def __call__(self, table: Array) -> Array:
        if self.facts is None:
            return table
        return table - self._spread(self.facts.operator.apply(table))

    def _spread(self, answers: Array) -> Array:
        if self.facts is None:
            return np.zeros(self.problem.operator.shape_in)
        spread = self.facts.operator.adjoint(self.inverse @ answers)
        if self.problem.allowed is not None:
            spread[~self.problem.allowed] = 0.0
        return spread

    def refuse_contradictions(self) -> None:
        """Raise `Infeasible` where no table at all meets the facts."""
        if self.facts is None:
            return
        misses = self.facts.misses(self.shortest())
        violation = max(misses)
        if violation <= 10.0 * MET * self.facts.size:
            return
        names = [name for name, miss in zip(self.facts.names, misses, strict=True) if miss > 0.01 * violation]
        raise Infeasible(
            f"no table agrees with {'; '.join(names[:6])}; the nearest misses one of them by "
            f"{violation * self.facts.unit:.6g}. Correct them, or bring them as measurements with noise",
            violation=violation * self.facts.unit,
            constraints=names,
        )


@dataclass(frozen=True, eq=False)
class _Reduced:
    """BP with the names of its products that SciPy expects."""

    shape: tuple[int, int]
    problem: Problem
    projection: _Projection

    @property
    def dtype(self) -> np.dtype[np.float64]:
        return np.dtype(np.float64)

    def matvec(self, cells: Array) -> Array:
        table = np.ravel(cells).reshape(self.problem.operator.shape_in)
        if self.problem.allowed is not None:
            table = np.where(self.problem.allowed, table, 0.0)
        return self.problem.apply(self.projection(table))

    def rmatvec(self, answers: Array) -> Array:
        return self.projection(self.problem.adjoint(np.ravel(answers))).ravel()
