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
from consilience.numerics.matrices.certificates import Certifier, lift_by_iteration
from consilience.numerics.matrices.hierarchies import find_hierarchy
from consilience.numerics.matrices.interior_point import Solution, solve_by_interior_point
from consilience.numerics.matrices.kronecker_admm import solve_by_admm
from consilience.numerics.matrices.kronecker_strategy import KroneckerStrategy
from consilience.numerics.matrices.least_squares import solve_least_squares, solve_nonnegative_least_squares
from consilience.numerics.matrices.linear_programme import solve_by_linear_programme
from consilience.numerics.matrices.row_costs import Array, RowCosts
from consilience.numerics.matrices.strategies import DenseStrategy, SparseStrategy, Strategy

MEMORY_LIMIT = 8_000_000_000
"""Bytes; a problem that would need more is refused before anything is allocated."""

WRITTEN_OUT = 4_000_000
"""A Kronecker product of at most so many entries is written out as a matrix."""

FACTORED = 4096
"""A Kronecker product with at most so many cells is solved exactly, by factoring a matrix of that size."""

DENSE, SPARSE = 0.2, 0.05
"""A sparse matrix with a larger share of entries is treated as dense, and a dense one with a smaller share as
sparse."""

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

    The strategy is a matrix, dense or sparse, with one noisy answer for each row, or a Kronecker product, with an
    array of noisy answers that has one axis for each factor; the cells then have one axis for each factor too. A
    weight of 0 says that an answer was not measured. `clipped` marks answers that were negative and published as 0;
    such an answer costs nothing below 0. Cells that no answer speaks of are 0.

    `stats["solver"]` says what was used: the tree solver for hierarchies of sums, an interior point for dense
    matrices (and sparse ones with a square in the loss) and for Kronecker products of up to 4096 cells, HiGHS for L1
    with sparse matrices, and alternating directions for larger Kronecker products.
    `tolerance` is the relative gap at which a solver may stop, by default 1e-9 where matrices are factored and 1e-4
    where they are not; `max_steps` limits the latter.

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
        Loss.named(loss, alpha=alpha),
        values.reshape(-1),
        weight.reshape(-1),
        None if mask is None else mask.reshape(-1),
    )
    options = _Options(nonnegative, tolerance, max_steps, memory_limit)
    if isinstance(strategy, Kronecker):
        rows, columns = (int(np.prod(shape)) for shape in (strategy.shape_out, strategy.shape_in))
        if rows * columns > WRITTEN_OUT:
            return _fit_product(strategy, costs, options)
        matrix = reduce(np.kron, (each.dense() for each in strategy.maps), np.ones((1, 1)))
        fit = _fit_written_out(matrix, costs, options)
        return Fit(fit.counts.reshape(strategy.shape_in), fit.objective, fit.gap, fit.status, fit.stats)
    matrix = _checked_matrix(strategy, values)
    hierarchy = find_hierarchy(matrix)
    if hierarchy is not None:
        return hierarchy.fit(values, weight, loss=loss, alpha=alpha, nonnegative=nonnegative, clipped=mask)
    return _fit_written_out(matrix, costs, options)


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
    matrix: Any
    try:
        matrix = sp.csr_array(strategy, dtype=np.float64) if sparse else np.asarray(strategy, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"the strategy is not a matrix of numbers: {error}") from error
    if matrix.ndim != 2 or noisy.ndim != 1 or matrix.shape[0] != noisy.size or matrix.shape[1] == 0:
        raise DeclarationError(
            f"the strategy has shape {matrix.shape} and the noisy answers {noisy.shape}; "
            "give a matrix with one row for each answer and at least one column"
        )
    if not np.all(np.isfinite(matrix.data if sparse else matrix)):
        raise DeclarationError("the strategy holds an entry that is not a finite number; correct the matrix")
    entries = matrix.nnz if sparse else np.count_nonzero(matrix)
    if sparse and entries > DENSE * matrix.shape[0] * matrix.shape[1]:
        return matrix.toarray()
    if not sparse and entries < SPARSE * matrix.size:
        return sp.csr_array(matrix)
    return matrix


def _fit_written_out(matrix: Any, costs: RowCosts, options: _Options) -> Fit:
    """Rows that were not measured and columns that none of the others touches are left out."""
    _check_memory(matrix, options.memory_limit)
    columns = matrix.shape[1]
    measured = np.flatnonzero((costs.up.slope > 0.0) | (costs.up.curvature > 0.0))
    if measured.size < costs.noisy.size:
        matrix, costs = matrix[measured], costs.kept(measured)
    lengths = np.sqrt(np.asarray((matrix**2).sum(axis=0)).reshape(-1))
    touched = np.flatnonzero(lengths > 0.0)
    if not touched.size:
        objective = costs.cost(-costs.noisy)
        return Fit(np.zeros(columns), objective, 0.0, Status.CONVERGED, {"solver": "closed form", "steps": 0})
    scale = 1.0 / lengths[touched]
    scaled = matrix[:, touched] if touched.size < columns else matrix
    if sp.issparse(matrix):
        scaled = sp.csr_array(scaled @ sp.diags_array(scale))
    else:
        scaled = np.ascontiguousarray(scaled * scale)
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
            f"a strategy of {rows:,} × {columns:,} needs {need / 1e9:.1f} GB, the limit is {limit / 1e9:.1f} GB; "
            "give it as a sparse matrix or a Kronecker product, or raise memory_limit"
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
    lift = strategy.lift if isinstance(strategy, DenseStrategy) else partial(lift_by_iteration, strategy)
    certifier = Certifier(strategy, costs, nonnegative, lift)
    if costs.straight and isinstance(strategy, SparseStrategy):
        found = solve_by_linear_programme(strategy, costs, certifier, nonnegative=nonnegative)
        if found is not None:
            return found, "linear programme (HiGHS)"
    solution, name = _factoring(strategy, costs, certifier, nonnegative, tolerance)
    return solution, f"{name}, {'sparse' if sparse else 'dense'}"


def _fit_product(product: Kronecker, costs: RowCosts, options: _Options) -> Fit:
    """A Kronecker product: exactly where a matrix of the size of its cells can be factored, else by iteration."""
    strategy = KroneckerStrategy(product)
    rows, columns = strategy.shape
    exact = columns <= FACTORED
    need = 8 * (10 * rows + 10 * columns + (4 * columns**2 if exact else 0))
    if need > options.memory_limit:
        raise TooLarge(
            f"a Kronecker strategy of {rows:,} × {columns:,} needs {need / 1e9:.1f} GB, the limit is "
            f"{options.memory_limit / 1e9:.1f} GB; measure fewer attributes, or raise memory_limit"
        )
    unit, price = _units(costs)
    scaled = costs.scaled(unit, price)
    certifier = Certifier(strategy, scaled, options.nonnegative, strategy.lift)
    if exact:
        tolerance, otherwise = options.tolerance or EXACT_TOLERANCE, Status.STALLED
        solution, solver = _factoring(strategy, scaled, certifier, options.nonnegative, tolerance)
    else:
        tolerance, otherwise = options.tolerance or ITERATIVE_TOLERANCE, Status.STEP_LIMIT
        solution, solver = _iterating(strategy, scaled, certifier, options, tolerance)
    cells = np.where(strategy.touched, solution.cells * (unit / strategy.scale), 0.0).reshape(product.shape_in)
    objective = costs.cost(product.apply(cells).reshape(-1) - costs.noisy)
    return _report(
        cells, objective, solution.bound * price, f"{solver}, Kronecker", solution.steps, tolerance, costs, otherwise
    )


def _iterating(
    strategy: KroneckerStrategy, costs: RowCosts, certifier: Certifier, options: _Options, tolerance: float
) -> tuple[Solution, str]:
    if costs.squares_alone and not options.nonnegative:
        return solve_least_squares(strategy, costs, certifier), "least squares"
    solution = solve_by_admm(
        strategy, costs, certifier, nonnegative=options.nonnegative, tolerance=tolerance, max_steps=options.max_steps
    )
    return solution, "alternating directions"


def _factoring(
    strategy: Strategy, costs: RowCosts, certifier: Certifier, nonnegative: bool, tolerance: float
) -> tuple[Solution, str]:
    """The solution by the method that the loss asks for, where matrices can be factored."""
    if costs.squares_alone and not nonnegative:
        return solve_least_squares(strategy, costs, certifier), "least squares"
    if costs.squares_alone:
        found = solve_nonnegative_least_squares(strategy, costs, certifier, tolerance=tolerance)
    else:
        found = solve_by_interior_point(strategy, costs, certifier, nonnegative=nonnegative, tolerance=tolerance)
    return found, "interior point"


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
    gap = max(objective - bound, 0.0)
    status = Status.CONVERGED if gap <= tolerance * objective + costs.unnoticed else otherwise
    return Fit(cells, objective, gap, status, {"solver": solver, "steps": steps})
