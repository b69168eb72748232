"""The non-negative table that fits weighted linear measurements best, with a proof of how good it is.

Minimise ½‖Bx − c‖² over tables x ≥ 0, if wished with Σx = T and with x = 0 outside allowed cells; B is implicit,
with rows divided by their standard deviations, and a table may have 10⁷ cells. `least_squares_problem` proves
the gap, `entropic_proximal_point` is the method; here are the entrance, the checks and the start.

**Which minimiser.** The fitted values Bx of all minimisers agree; the tables need not. Every iterate has the form
x = start·exp(−Bᵀθ), so among all tables with the same Bx (and the same total, if it is fixed) it is the one
nearest to the start in relative entropy. The default start, uniform with the least-squares total, thus leads to
the table of greatest entropy, which holds no association that was not measured: one-way marginals alone give
their product. Cells that no row touches keep their start (rescaled, if the total is fixed). Cells at their
bound approach zero without reaching it exactly.

**Why this method.** Accelerated projected gradients bring the objective down as fast, but a small gap asks for a
gradient that is right to about 10⁻⁸ in its worst cell, and there they crawl, the more so on prefix sums and
trees, whose rows are nearly collinear. The method here takes some hundred applications of B to a gap of 10⁻⁴
on well-conditioned marginals and some thousand on trees.

**Memory.** At most eight arrays of the table's size, counting the one that `Operator.adjoint` returns but not the
operator's own temporaries; see `predicted_bytes`.
"""

import time

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError, MeasurementError
from consilience.kernels.simplex import project_to_simplex
from consilience.solvers.fit import Fit, Status
from consilience.solvers.tables.entropic_proximal_point import Monitor, Progress, minimise
from consilience.solvers.tables.least_squares_problem import (
    Array,
    Operator,
    Point,
    Problem,
    SquaringOperator,
    half_square,
    inner,
    offer_cover,
    seek_cover,
)

__all__ = ["Operator", "Progress", "SquaringOperator", "fit_nonnegative_least_squares", "predicted_bytes"]

CELL_ARRAYS = 8


def predicted_bytes(cells: int) -> int:
    """The memory that a fit of so many cells needs at most, besides the operator's own.

    >>> predicted_bytes(10**7)
    640000000
    """
    return CELL_ARRAYS * np.dtype(np.float64).itemsize * cells


def fit_nonnegative_least_squares(
    operator: Operator,
    observed: Array,
    *,
    start: Array | None = None,
    total: float | None = None,
    allowed: NDArray[np.bool_] | None = None,
    cover: Array | None = None,
    tolerance: float = 1e-6,
    noise_energy: float | None = None,
    max_steps: int = 50_000,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Fit:
    """The table x ≥ 0 that minimises ½‖Bx − observed‖², to within a certified gap.

    Stops when gap ≤ tolerance · max(objective, noise_energy): `noise_energy` is the objective to expect from
    noise alone (half the number of rows), for fits that have next to no residual; where it is not given, 10⁻¹² of
    the objective at zero or at the start stands in for it. `total` fixes Σx; cells outside `allowed` are zero.

    `cover` is a vector v with Bᵀv > 0 on all touched cells, from which the gap is proven if the total is free.
    Without it, or where it leaves cells uncovered, one is sought; if there is none (nothing measured bounds the
    total) the fit ends `UNCERTIFIED`. A cell where `start` is zero is lifted a little, because the method never
    leaves zero. A step is one application of Bᵀ and about one of B; `time_limit` is in seconds;
    `progress(steps, objective, gap)` is called after every Newton step.
    """
    started = time.monotonic()
    problem = Problem(operator, _numbers(observed, "observed values"), total, _mask(operator, allowed))
    _check_options(tolerance, noise_energy, max_steps, time_limit)
    deadline = np.inf if time_limit is None else started + time_limit
    monitor = Monitor(tolerance, noise_energy or 0.0, max_steps, deadline, progress)
    table = _starting_table(problem, start)
    if table is None:
        point, status = _zero_table(problem), Status.CONVERGED
    else:
        if total is None:
            _provide_cover(problem, cover)
        point, status = minimise(problem, table, monitor)
    stats: dict[str, float | int | str] = {
        "projected_gradient": _projected_gradient(problem, point),
        "restricted_gap": point.restricted_gap,
        "stages": monitor.stages,
        "newton_steps": monitor.newton_steps,
        "steps": problem.adjoints,
        "operator_applications": problem.adjoints + problem.applies,
        "seconds": time.monotonic() - started,
    }
    return Fit(point.counts, point.objective, point.gap, status, stats)


def _starting_table(problem: Problem, start: Array | None) -> Array | None:
    """A table that is positive on the allowed cells, or None if the best table is zero everywhere."""
    table = problem.allowed_table()
    cells = float(table.sum())
    if problem.total is not None:
        _check_total(problem.total, cells)
    if problem.total == 0 or cells == 0:
        return None
    if start is not None:
        table *= _lifted(_numbers(start, "cells of the start", problem.operator.shape_in), table)
        if problem.total is None:
            return table
    mass = problem.total if problem.total is not None else _least_squares_total(problem, table)
    if mass is None:
        return None
    table *= mass / float(table.sum())
    return table


def _lifted(start: Array, allowed_table: Array) -> Array:
    """The start with its zeros lifted to a millionth of its mean allowed cell."""
    mean = inner(start, allowed_table) / float(allowed_table.sum())
    if start.min() < 0 or mean <= 0:
        raise DeclarationError(
            f"the start has a smallest cell of {start.min():.3g} and a mean of {mean:.3g} on the allowed cells, but "
            "it must be non-negative and not all zero; leave it out to start from a uniform table"
        )
    return np.maximum(start, 1e-6 * mean)


def _least_squares_total(problem: Problem, table: Array) -> float | None:
    """The positive total of the best multiple of a table, or None if zero is the best fit of all.

    Zero is best exactly if −Bᵀc, the gradient there, has no negative cell. If no positive multiple of the table
    helps, the total is that of the best multiple of the gradient's descent cells, which always does.
    """
    descent = np.maximum(problem.adjoint(problem.observed), 0.0)
    if not descent.any():
        return None
    for direction in (table, descent):
        fitted = problem.apply(direction)
        gain = inner(fitted, problem.observed)
        if gain > 0:
            return gain / inner(fitted, fitted) * float(direction.sum())
    return None


def _provide_cover(problem: Problem, cover: Array | None) -> None:
    """Uses the caller's cover, and seeks a better one if it leaves cells uncovered."""
    if cover is not None:
        v = _numbers(cover, "values of the cover", problem.observed.shape)
        if not offer_cover(problem, v, problem.adjoint(v)):
            raise DeclarationError(
                "the adjoint of the cover is negative on an allowed cell, but it must be positive on every cell that "
                "a row touches; leave the cover out to have one sought"
            )
    if problem.cover_image is None or not np.all(problem.cover_image[problem.allowed_table() > 0]):
        seek_cover(problem)


def _zero_table(problem: Problem) -> Point:
    """The table of zeros, where it is the only one or the best one: its gap is 0."""
    zeros = np.zeros(problem.operator.shape_in)
    residual = -problem.observed
    return Point(zeros, residual, residual, zeros, half_square(residual), 0.0, 0.0, True)


def _projected_gradient(problem: Problem, point: Point) -> float:
    """The largest change that a unit gradient step, projected back onto the feasible tables, makes to a cell."""
    if point.counts.size == 0:
        return 0.0
    moved = point.counts - problem.adjoint(point.residual)
    if problem.total is None:
        np.maximum(moved, 0.0, out=moved)
    else:
        moved = project_to_simplex(moved, problem.total, allowed=problem.allowed)
    moved -= point.counts
    return float(np.abs(moved, out=moved).max())


def _numbers(values: Array, name: str, shape: tuple[int, ...] | None = None) -> Array:
    """The values as finite floats of the expected shape (by default one-dimensional)."""
    numbers = np.asarray(values, dtype=np.float64)
    expected = (numbers.size,) if shape is None else shape
    if numbers.shape != expected:
        raise MeasurementError(f"the {name} have shape {numbers.shape}, but {expected} is needed; reshape them")
    if not np.all(np.isfinite(numbers)):
        bad = int(np.count_nonzero(~np.isfinite(numbers)))
        raise MeasurementError(f"{bad} of the {numbers.size} {name} are NaN or infinite; only numbers can be fitted")
    return numbers


def _mask(operator: Operator, allowed: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """The mask, or None if it allows everything."""
    if allowed is None:
        return None
    if allowed.dtype != np.bool_ or allowed.shape != operator.shape_in:
        raise DeclarationError(
            f"the allowed cells are {allowed.dtype} of shape {allowed.shape}, but the table has shape "
            f"{operator.shape_in}; give one boolean per cell"
        )
    return None if allowed.all() else allowed


def _check_total(total: float, cells: float) -> None:
    if not 0 <= total < np.inf:
        raise DeclarationError(f"the total is {total}, but a table's total is finite and at least 0; correct it")
    if total > 0 and cells == 0:
        raise DeclarationError(
            f"the total is {total}, but no cell is allowed to hold it: the problem is infeasible; allow a cell or "
            "declare a total of 0"
        )


def _check_options(tolerance: float, noise_energy: float | None, max_steps: int, time_limit: float | None) -> None:
    options = {"tolerance": tolerance, "noise_energy": noise_energy, "max_steps": max_steps, "time_limit": time_limit}
    for name, value in options.items():
        if value is not None and not 0 <= value < np.inf:
            raise DeclarationError(f"{name} is {value}, but it must be finite and at least 0; correct it")
