"""`fit_matrix`: the most likely cells behind noisy answers to the rows of a matrix (Lee, Wang and Kifer 2015, §5.3)."""

from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.numerics.fit import Fit, Status
from consilience.numerics.linear_maps import Kronecker
from consilience.numerics.losses import Loss, checked_clipped, checked_noisy, checked_weights
from consilience.numerics.matrices.certificates import Certifier, spanned_part
from consilience.numerics.matrices.interior_point import Solution, solve_by_interior_point
from consilience.numerics.matrices.kronecker_admm import KroneckerStrategy, solve_by_admm
from consilience.numerics.matrices.least_squares import solve_least_squares, solve_nonnegative_least_squares
from consilience.numerics.matrices.linear_programme import solve_by_linear_programme
from consilience.numerics.matrices.row_costs import Array, RowCosts
from consilience.numerics.matrices.strategies import DenseStrategy, SparseStrategy

MEMORY_LIMIT = 8_000_000_000
"""Bytes; a problem that would need more is refused before anything is allocated."""

WRITTEN_OUT = 4_000_000
"""A Kronecker product of at most so many entries is written out as a matrix."""

DENSE = 0.2
"""A sparse matrix with more than this share of entries is treated as a dense one."""

EXACT_TOLERANCE, ITERATIVE_TOLERANCE = 1e-9, 1e-4
"""The default relative gaps of solvers that factor matrices and of those that only multiply."""


def fit_matrix(
    strategy: Any,
    noisy: ArrayLike,
    *,
    loss: str = "elastic",
    alpha: float = 0.9,
    weights: ArrayLike | None = None,
    clipped: ArrayLike | None = None,
    nonnegative: bool = True,
    tolerance: float | None = None,
    max_steps: int = 10_000,
    memory_limit: int = MEMORY_LIMIT,
) -> Fit:
    """The cells x of least loss between the answers `strategy` · x and the noisy ones.

    The strategy is a matrix, dense or sparse, with one noisy answer for each row, or a Kronecker product, with an array of
    noisy answers that has one axis for each factor; the cells then have one axis for each factor too. A weight of 0 says that an
    answer was not measured. `clipped` marks answers that were negative and published as 0; such an answer costs
    nothing below 0. Cells that no answer speaks of are 0.

    `stats["solver"]` says what was used: an interior point for dense matrices (and sparse ones with a square in the
    loss), HiGHS for L1 with sparse ones, and alternating directions for Kronecker products too large to write out. `tolerance` is
    the relative gap at which a solver may stop, by default 1e-9 where matrices are factored and 1e-4 where
    they are not; `max_steps` limits the latter.

    >>> fit = fit_matrix([[1, 1], [1, 0], [0, 1]], [4.0, 3.5, -1.0], loss="l2")
    >>> fit.counts.round(6)
    array([3.75, 0.  ])
    """
    _check_options(tolerance, max_steps)
    if isinstance(strategy, Kronecker):
        noisy = _reshaped(noisy, strategy)
    weight = checked_weights(weights, np.shape(noisy))
    values = checked_noisy(noisy, weights=weight)
    mask = checked_clipped(clipped, values)
    costs = RowCosts.of(
        Loss.named(loss, alpha=alpha), values.reshape(-1), weight.reshape(-1), None if mask is None else mask.reshape(-1)
    )
    options = _Options(nonnegative, tolerance, max_steps, memory_limit)
    if isinstance(strategy, Kronecker):
        rows, columns = (int(np.prod(shape)) for shape in (strategy.shape_out, strategy.shape_in))
        if rows * columns > WRITTEN_OUT:
            return _fit_product(strategy, costs, options)
        matrix = reduce(np.kron, (each.dense() for each in strategy.maps), np.ones((1, 1)))
        fit = _fit_written_out(matrix, costs, options)
        return Fit(fit.counts.reshape(strategy.shape_in), fit.objective, fit.gap, fit.status, fit.stats)
    return _fit_written_out(_checked_matrix(strategy, values), costs, options)


@dataclass(frozen=True)
class _Options:
    nonnegative: bool
    tolerance: float | None
    max_steps: int
    memory_limit: int


def _check_options(tolerance: float | None, max_steps: int) -> None:
    if tolerance is not None and not 0.0 < tolerance < 1.0:
        raise DeclarationError(f"the tolerance is {tolerance!r}; give a relative gap between 0 and 1, such as 1e-9")
    if max_steps < 1:
        raise DeclarationError(f"max_steps is {max_steps}; allow at least one step")


def _reshaped(noisy: ArrayLike, strategy: Kronecker) -> NDArray[Any]:
    answers = np.asarray(noisy)
    if answers.shape != strategy.shape_out:
        raise DeclarationError(
            f"the noisy answers have shape {answers.shape} and the factors of the strategy {strategy.shape_out} rows; "
            "give one axis for each factor"
        )
    return answers


def _checked_matrix(strategy: Any, noisy: Array) -> Any:
    """The strategy as a dense array or a CSR array of numbers, one row for each noisy answer."""
    sparse = sp.issparse(strategy)
    try:
        matrix = sp.csr_array(strategy, dtype=np.float64) if sparse else np.asarray(strategy, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"the strategy is not a matrix of numbers: {error}") from error
    if matrix.ndim != 2 or noisy.ndim != 1 or matrix.shape[0] != noisy.size or matrix.shape[1] == 0:
        raise DeclarationError(
            f"the strategy has shape {matrix.shape} and the noisy answers {noisy.shape}; give a matrix with one row for "
            "each answer and at least one column"
        )
    if not np.all(np.isfinite(matrix.data if sparse else matrix)):
        raise DeclarationError("the strategy holds an entry that is not a finite number; correct the matrix")
    if sparse and matrix.nnz > DENSE * matrix.shape[0] * matrix.shape[1]:
        return matrix.toarray()
    return matrix


def _fit_written_out(matrix: Any, costs: RowCosts, options: _Options) -> Fit:
    """Rows that were not measured and columns that none of the others touches are left out."""
    columns = matrix.shape[1]
    measured = np.flatnonzero((costs.up.slope > 0.0) | (costs.up.curvature > 0.0))
    if measured.size < costs.noisy.size:
        matrix, costs = matrix[measured], costs.kept(measured)
    lengths = np.sqrt(np.asarray((matrix**2).sum(axis=0)).reshape(-1))
    touched = np.flatnonzero(lengths > 0.0)
    if not touched.size:
        objective = costs.cost(-costs.noisy)
        return Fit(np.zeros(columns), objective, 0.0, Status.CONVERGED, {"solver": "closed form", "steps": 0})
    _check_memory(matrix, options.memory_limit)
    scale = 1.0 / lengths[touched]
    scaled = matrix[:, touched] if touched.size < columns else matrix
    scaled = sp.csr_array(scaled @ sp.diags_array(scale)) if sp.issparse(matrix) else np.ascontiguousarray(scaled * scale)
    unit, price = _units(costs)
    solution, solver = _solve(scaled, costs.scaled(unit, price), options)
    cells = np.zeros(columns)
    cells[touched] = solution.cells * scale * unit
    objective = costs.cost(np.asarray(matrix @ cells) - costs.noisy)
    tolerance = options.tolerance or EXACT_TOLERANCE
    return _report(cells, objective, solution.bound * price, solver, solution.steps, tolerance, costs, Status.STALLED)


def _check_memory(matrix: Any, limit: int) -> None:
    rows, columns = matrix.shape
    need = 8 * (3 * matrix.nnz if sp.issparse(matrix) else 3 * rows * columns + 4 * min(rows, columns) ** 2)
    if need > limit:
        raise TooLarge(
            f"a strategy of {rows:,} × {columns:,} needs {need / 1e9:.1f} GB, the limit is {limit / 1e9:.1f} GB; give it "
            "as a sparse matrix or a Kronecker product, or raise memory_limit"
        )


def _units(costs: RowCosts) -> tuple[float, float]:
    """The mean answer and what a residual of that size costs, so that answers scale with the data."""
    unit = float(np.mean(np.abs(costs.noisy))) or 1.0
    price = float(np.mean(costs.up.slope * unit + costs.up.curvature * (unit * unit))) or 1.0
    return unit, price


def _solve(matrix: Any, costs: RowCosts, options: _Options) -> tuple[Solution, str]:
    """The solution by the method that the structure asks for, and its name."""
    tolerance, nonnegative = options.tolerance or EXACT_TOLERANCE, options.nonnegative
    sparse = sp.issparse(matrix)
    strategy = SparseStrategy(matrix) if sparse else DenseStrategy(matrix)
    certifier = Certifier(strategy, costs, nonnegative, partial(_cover, matrix), partial(spanned_part, strategy))
    if costs.squares_alone:
        if not nonnegative:
            return solve_least_squares(strategy, costs, certifier), "least squares"
        solution = solve_nonnegative_least_squares(strategy, costs, certifier, tolerance=tolerance)
        return solution, "interior point, sparse" if sparse else "interior point, dense"
    if costs.straight and isinstance(strategy, SparseStrategy):
        found = solve_by_linear_programme(strategy, costs, certifier, nonnegative=nonnegative)
        if found is not None:
            return found, "linear programme (HiGHS)"
    solution = solve_by_interior_point(strategy, costs, certifier, nonnegative=nonnegative, tolerance=tolerance)
    return solution, "interior point, sparse" if sparse else "interior point, dense"


def _cover(matrix: Any) -> Array | None:
    """A vector v with Aᵀv > 0 in all columns, none of which is 0, or None."""
    entries = matrix.data if sp.issparse(matrix) else matrix
    if entries.min(initial=0.0) >= 0.0:
        return np.ones(matrix.shape[0])
    columns = matrix.shape[1]
    if sp.issparse(matrix):
        return sp.linalg.lsmr(matrix.T, np.ones(columns), atol=1e-12, btol=1e-12)[0]
    weights, shift = np.ones(matrix.shape[0]), np.full(columns, 1e-10)
    return matrix @ DenseStrategy(matrix).factored(weights, shift).solve(np.ones(columns))


def _fit_product(product: Kronecker, costs: RowCosts, options: _Options) -> Fit:
    strategy = KroneckerStrategy(product)
    rows, columns = strategy.shape
    need = 8 * (10 * rows + 10 * columns)
    if need > options.memory_limit:
        raise TooLarge(
            f"a Kronecker strategy of {rows:,} × {columns:,} needs {need / 1e9:.1f} GB, the limit is "
            f"{options.memory_limit / 1e9:.1f} GB; measure fewer attributes, or raise memory_limit"
        )
    unit, price = _units(costs)
    scaled = costs.scaled(unit, price)
    measured = (costs.up.slope > 0.0) | (costs.up.curvature > 0.0)
    certifier = Certifier(
        strategy, scaled, options.nonnegative, lambda: strategy.cover() * measured, strategy.spanned_part
    )
    tolerance = options.tolerance or ITERATIVE_TOLERANCE
    solution = solve_by_admm(
        strategy, scaled, certifier, nonnegative=options.nonnegative, tolerance=tolerance, max_steps=options.max_steps
    )
    cells = (solution.cells * (unit / strategy.norm)).reshape(product.shape_in)
    objective = costs.cost(product.apply(cells).reshape(-1) - costs.noisy)
    solver = "alternating directions, Kronecker"
    bound = solution.bound * price
    return _report(cells, objective, bound, solver, solution.steps, tolerance, costs, Status.STEP_LIMIT)


def _report(
    cells: Array,
    objective: float,
    bound: float,
    solver: str,
    steps: int,
    tolerance: float,
    costs: RowCosts,
    otherwise: Status,
) -> Fit:
    unnoticed = costs.cost(1e-12 * costs.noisy)
    gap = max(objective - bound, 0.0)
    status = Status.CONVERGED if gap <= tolerance * max(objective, unnoticed) + unnoticed * 1e-3 else otherwise
    return Fit(cells, objective, gap, status, {"solver": solver, "steps": steps})
