"""`fit_matrix`: the most likely cells behind noisy answers to the rows of a matrix (Lee, Wang and Kifer 2015, §5.3)."""

from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.linear_maps import IdentityMap, Kronecker
from consilience.solvers.fit import SHARED, Fit, Loss, Status, checked_clipped, checked_noisy, checked_weights
from consilience.solvers.matrices.interior_point import (
    Solution,
    solve_by_interior_point,
    solve_by_linear_programme,
    solve_least_squares,
    solve_nonnegative_least_squares,
)
from consilience.solvers.matrices.kronecker import SETTINGS as PRODUCTS
from consilience.solvers.matrices.kronecker import KroneckerStrategy, solve_by_admm
from consilience.solvers.matrices.problem import (
    Array,
    Certifier,
    ContradictoryEquations,
    Equations,
    Hierarchy,
    RowCosts,
    find_hierarchy,
)
from consilience.solvers.matrices.strategies import SETTINGS as FACTORING
from consilience.solvers.matrices.strategies import (
    DenseStrategy,
    SparseStrategy,
    entries_of_product,
    lift_by_iteration,
    sparse_product,
)
from consilience.solvers.trees.layout import ContradictoryCounts


@dataclass(frozen=True)
class MatrixSettings:
    """Which solver takes a matrix, and how far it goes; by trial, no figures kept."""

    written_out: int = 4_000_000
    """A Kronecker product of at most so many entries is written out as a matrix."""
    factored: int = 4096
    """A Kronecker product with at most so many cells is solved exactly, by factoring a matrix of that size."""
    dense: float = 0.2
    """A sparse matrix with a larger share of entries is treated as dense."""
    sparse: float = 0.05
    """A dense matrix with a smaller share of entries is treated as sparse."""
    trial: float = 600.0
    """How many steps the simplex is given for a sparse matrix without negative entries, in units of its entries for
    each row and column; tuned on sparse counts over 256 to 16,384 cells (`benchmarks/speed/matrices.py`)."""
    light: float = 5.0
    """How many multiplications of a factorisation, for each cell and each row and column, an interior point may take
    before the simplex is faster; tuned on the same."""
    exact_tolerance: float = 1e-8
    """The default relative gap of solvers that factor matrices."""
    iterative_tolerance: float = 1e-4
    """And of those that only multiply."""
    room: float = 100.0
    """How far above its floor a cell may end, in units of the largest residual of the fit before."""
    most_floors: int = 4
    """How often a fit is made again from a floor."""


SETTINGS = MatrixSettings()


def fit_matrix(
    strategy: Any,
    noisy: ArrayLike,
    *,
    loss: str = "elastic",
    alpha: float = 0.9,
    weights: ArrayLike | None = None,
    clipped: ArrayLike | None = None,
    nonnegative: bool = True,
    equations: tuple[Any, ArrayLike] | None = None,
    tolerance: float | None = None,
    max_steps: int = 10_000,
    memory_limit: int = SHARED.memory_limit,
) -> Fit:
    """The cells x of least loss between the answers `strategy` · x and the noisy ones.

    The strategy is a matrix, dense or sparse, with one noisy answer for each row, or a Kronecker product, with an
    array of noisy answers that has one axis for each factor; the cells then have one axis for each factor too. A
    weight of 0 says that an answer was not measured. `clipped` marks answers that were negative and published as 0;
    such an answer costs nothing below 0. Cells that no answer speaks of are 0. With "l2" and `nonnegative=False` the
    cells are the shortest of least loss.

    `equations` is a matrix with a column for each cell, and the values that its answers have exactly. They are met to
    rounding; where no cells can meet them `Infeasible` is raised, with the least violation and the rows involved.

    `stats["solver"]` says what was used: the tree solver for hierarchies of sums, an interior point for dense
    matrices, sparse ones and Kronecker products of up to 4096 cells, and alternating directions for larger Kronecker
    products. L1 with a sparse matrix goes to HiGHS where its simplex is faster: where the factors that an interior
    point needs have many entries, and where all entries are sums and few steps lead to the optimum.
    `tolerance` is the relative gap at which a solver may stop, by default 1e-8 where matrices are factored and 1e-4
    where they are not; `max_steps` limits the latter.

    >>> fit = fit_matrix([[1, 1], [1, 0], [0, 1]], [4.0, 3.5, -1.0], loss="l2")
    >>> fit.counts.round(6)
    array([3.75, 0.  ])
    """
    _check_options(tolerance, max_steps)
    product = strategy if isinstance(strategy, Kronecker) else None
    if product is not None:
        noisy = _reshaped(noisy, product)
    weight = checked_weights(weights, np.shape(noisy))
    values = checked_noisy(noisy, weights=weight)
    mask = checked_clipped(clipped, values)
    answers = _Answers(values.reshape(-1), weight.reshape(-1), None if mask is None else mask.reshape(-1))
    options = _Options(Loss.named(loss, alpha=alpha), nonnegative, tolerance, max_steps, memory_limit)
    if product is None:
        return _fit_matrix(_checked_matrix(strategy, values), answers, options, equations)
    if equations is None and not is_written_out(product, shortest=options.shortest):
        return _fit_product(product, options.costs(answers), options)
    fit = _fit_matrix(_written_out(product, options), answers, options, equations)
    return Fit(fit.counts.reshape(product.shape_in), fit.objective, fit.gap, fit.status, fit.stats)


@dataclass(frozen=True, eq=False)
class _Answers:
    """Noisy answers, flat."""

    noisy: Array
    weights: Array
    clipped: NDArray[np.bool_] | None


@dataclass(frozen=True)
class _Options:
    loss: Loss
    nonnegative: bool
    tolerance: float | None
    max_steps: int
    memory_limit: int

    def costs(self, answers: _Answers) -> RowCosts:
        return RowCosts.of(self.loss, answers.noisy, answers.weights, answers.clipped)

    @property
    def shortest(self) -> bool:
        """Whether the cells are the shortest of least squares, unless clipped answers make the loss another."""
        return self.loss.linear == 0.0 and not self.nonnegative


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
    if sparse and entries > SETTINGS.dense * matrix.shape[0] * matrix.shape[1]:
        return matrix.toarray()
    if not sparse and entries < SETTINGS.sparse * matrix.size:
        return sp.csr_array(matrix)
    return matrix


def is_written_out(product: Kronecker, *, shortest: bool) -> bool:
    """Whether a product is small enough for a matrix, or has a factor too large for anything else.

    The shortest cells of least squares need nothing but multiplications.
    """
    rows, columns = _shape(product)
    if rows * columns <= SETTINGS.written_out:
        return True
    if columns <= SETTINGS.factored:
        too_large = any(each.rows * each.columns**2 > PRODUCTS.largest_pairs for each in product.maps)
    else:
        most = PRODUCTS.most_columns
        too_large = any(each.columns > most for each in product.maps if not isinstance(each, IdentityMap))
    return too_large and not shortest


def _shape(product: Kronecker) -> tuple[int, int]:
    rows, columns = (int(np.prod(shape, dtype=np.int64)) for shape in (product.shape_out, product.shape_in))
    return rows, columns


def _written_out(product: Kronecker, options: _Options) -> Any:
    """A product as a matrix, sparse where most entries are 0."""
    rows, columns = _shape(product)
    filled = entries_of_product(product.maps)
    if rows * columns <= SETTINGS.written_out and filled > SETTINGS.sparse * rows * columns:
        return reduce(np.kron, (each.dense() for each in product.maps), np.ones((1, 1)))
    if filled * FACTORING.bytes_per_entry > options.memory_limit:
        _refuse_product(rows, columns, filled * FACTORING.bytes_per_entry, options.memory_limit)
    matrix = sparse_product(product.maps)
    return matrix.toarray() if filled > SETTINGS.dense * rows * columns else matrix


def _refuse_product(rows: int, columns: int, need: int, limit: int) -> NoReturn:
    raise TooLarge(
        f"a Kronecker strategy of {rows:,} × {columns:,} needs {need / 1e9:.1f} GB, the limit is {limit / 1e9:.1f} GB; "
        "measure fewer attributes, or raise memory_limit"
    )


def _fit_matrix(matrix: Any, answers: _Answers, options: _Options, equations: tuple[Any, ArrayLike] | None) -> Fit:
    """The fit of a matrix: by the forest solver if it is a hierarchy, together with the equations."""
    facts = None if equations is None else Equations.checked(equations, matrix.shape[1])
    measured = answers.weights > 0.0
    if facts is None:
        hierarchy = find_hierarchy(matrix, measured)
    else:
        stacked = sp.vstack([sp.csr_array(matrix), facts.matrix], format="csr")
        hierarchy = find_hierarchy(stacked, np.append(measured, np.ones(facts.values.size, dtype=np.bool_)))
    if hierarchy is not None:
        return _fit_hierarchy(hierarchy, answers, options, facts)
    costs = options.costs(answers)
    fit = _fit_written_out(matrix, costs, options, facts)
    return _from_a_floor(matrix, costs, options, facts, fit) if options.nonnegative else fit


def _from_a_floor(matrix: Any, costs: RowCosts, options: _Options, facts: Equations | None, fit: Fit) -> Fit:
    """The fit again, of what the cells exceed a floor by, where the noise is too small beside the answers to be seen.

    With cells x = b + d, the rows miss the answers by A d − (y − A b), whose numbers are as small as the last fit was
    wrong, so that rounding no longer hides them. Where a cell has a floor b > 0 and does not end on it, d ≥ 0 asks for
    nothing that x ≥ 0 does not, and the optimum is the same.
    """
    for _ in range(SETTINGS.most_floors):
        if fit.status is Status.CONVERGED:
            break
        missed = np.abs(np.asarray(matrix @ fit.counts) - costs.noisy)[costs.measured]
        floor = np.maximum(fit.counts - SETTINGS.room * float(missed.max(initial=0.0)), 0.0)
        if not floor.any():
            break
        rest = replace(costs, noisy=costs.noisy - np.asarray(matrix @ floor))
        try:
            above = _fit_written_out(matrix, rest, options, None if facts is None else facts.above(floor))
        except ContradictoryEquations:
            break
        free = not (above.counts[floor > 0.0] <= 0.0).any()
        if not free or above.objective >= fit.objective:
            break
        stats = {**above.stats, "steps": int(fit.stats["steps"]) + int(above.stats["steps"])}
        fit = Fit(floor + above.counts, above.objective, above.gap, above.status, stats)
    return fit


def _fit_hierarchy(hierarchy: Hierarchy, answers: _Answers, options: _Options, facts: Equations | None) -> Fit:
    known = np.empty(0) if facts is None else facts.values
    exact = np.arange(answers.noisy.size + known.size) >= answers.noisy.size
    clipped = None if answers.clipped is None else np.append(answers.clipped, np.zeros(known.size, dtype=np.bool_))
    try:
        return hierarchy.fit(
            np.append(answers.noisy, known),
            np.append(answers.weights, np.zeros(known.size)),
            clipped=clipped,
            exact=exact if known.size else None,
            loss="elastic",
            alpha=options.loss.linear,
            nonnegative=options.nonnegative,
        )
    except ContradictoryCounts as error:
        rows = [int(hierarchy.forest.sets[node]) - answers.noisy.size for node in error.nodes]
        raise ContradictoryEquations(rows, error.violation) from error


def _fit_written_out(matrix: Any, costs: RowCosts, options: _Options, facts: Equations | None) -> Fit:
    """Rows that were not measured and columns that none of the others touches are left out."""
    _check_memory(matrix, options.memory_limit)
    columns = matrix.shape[1]
    measured = np.flatnonzero(costs.measured)
    if measured.size < costs.noisy.size:
        matrix, costs = matrix[measured], costs.kept(measured)
    if sp.issparse(matrix):
        lengths = np.bincount(matrix.indices, matrix.data**2, minlength=columns)
    else:
        lengths = (matrix**2).sum(axis=0)
    if facts is not None:
        lengths = lengths + np.asarray((facts.matrix**2).sum(axis=0)).reshape(-1)
        if options.nonnegative:
            lengths[facts.forced_to_zero()] = 0.0
    touched = np.flatnonzero(lengths > 0.0)
    if facts is not None:
        nearest = partial(fit_matrix, loss="l2", nonnegative=options.nonnegative, memory_limit=options.memory_limit)
        facts.refuse_if_infeasible(nearest)
    if not touched.size:
        objective = costs.cost(-costs.noisy)
        return Fit(np.zeros(columns), objective, 0.0, Status.CONVERGED, {"solver": "closed form", "steps": 0})
    shortest = costs.squares_alone and not options.nonnegative
    scale = np.ones(touched.size) if shortest else 1.0 / np.sqrt(lengths[touched])
    unit, loss_unit = _units(costs)
    equations = None if facts is None else facts.reduced(touched, scale, unit)
    scaled = _scaled_columns(matrix, touched, scale)
    solution, solver = _solve(scaled, costs.scaled(unit, loss_unit), options, equations)
    cells = np.zeros(columns)
    cells[touched] = solution.cells * scale * unit
    objective = costs.cost(np.asarray(matrix @ cells) - costs.noisy)
    met = equations is None or equations.met(solution.cells)
    bound = solution.bound * loss_unit if met else -np.inf
    tolerance = options.tolerance or SETTINGS.exact_tolerance
    return _report(cells, objective, bound, solver, solution.steps, tolerance, costs, Status.STALLED)


def _scaled_columns(matrix: Any, kept: NDArray[np.intp], scale: Array) -> Any:
    chosen = matrix[:, kept] if kept.size < matrix.shape[1] else matrix
    if sp.issparse(matrix):
        return sp.csr_array((chosen.data * scale[chosen.indices], chosen.indices, chosen.indptr), shape=chosen.shape)
    return np.ascontiguousarray(chosen * scale)


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
    loss_unit = float(np.mean(costs.slope[0] * unit + costs.curvature[0] * (unit * unit))) or 1.0
    return unit, loss_unit


def _solve(matrix: Any, costs: RowCosts, options: _Options, equations: Equations | None) -> tuple[Solution, str]:
    """The solution by the method that the structure asks for, and its name."""
    sparse, nonnegative = sp.issparse(matrix), options.nonnegative
    light = SETTINGS.light * matrix.shape[1] * sum(matrix.shape) if costs.straight else None
    soft, hard = (SparseStrategy(matrix, light) if sparse else DenseStrategy(matrix)), costs
    strategy = soft
    if equations is not None:
        hard = costs.with_equations(equations.values)
        strategy = (
            SparseStrategy(sp.vstack([matrix, equations.matrix], format="csr"), light)
            if sparse
            else DenseStrategy(np.vstack([matrix, equations.matrix.toarray()]))
        )
    by_steps = sparse and costs.squares_alone and not nonnegative
    certifier = Certifier(
        strategy, hard, nonnegative, partial(lift_by_iteration, strategy) if by_steps else strategy.lift
    )
    kind = "sparse" if sparse else "dense"
    if costs.squares_alone and not nonnegative:
        return solve_least_squares(soft, costs, certifier, equations=equations), f"least squares, {kind}"
    tolerance = options.tolerance or SETTINGS.exact_tolerance
    simplex, by_simplex = "linear programme (HiGHS)", None
    if costs.straight and isinstance(strategy, SparseStrategy):
        by_simplex = partial(
            solve_by_linear_programme, strategy, costs, certifier, nonnegative=nonnegative, equations=equations
        )
        found = by_simplex(most_steps=_trial_steps(matrix)) if nonnegative and matrix.data.min() >= 0.0 else None
        if found is None and strategy.pattern is None:
            found = by_simplex()
        if found is not None:
            return found, simplex
    if costs.squares_alone and equations is None:
        return solve_nonnegative_least_squares(soft, costs, certifier, tolerance=tolerance), f"interior point, {kind}"
    solution = solve_by_interior_point(
        strategy, costs, certifier, nonnegative=nonnegative, tolerance=tolerance, equations=equations
    )
    near = solution.objective - solution.bound <= tolerance * solution.objective + costs.unnoticed
    if by_simplex is not None and not near and (found := by_simplex()) is not None:
        return found, simplex
    return solution, f"interior point, {kind}"


def _trial_steps(matrix: Any) -> int:
    """How many steps of the simplex take about as long as an interior point whose factors have few entries.

    Where no entry is negative and most counts are small, most cells stay 0 and the simplex ends before that. A
    difference of cells that is noise makes some of them positive, at a step or more for each.
    """
    return int(SETTINGS.trial * matrix.nnz / sum(matrix.shape))


def _fit_product(product: Kronecker, costs: RowCosts, options: _Options) -> Fit:
    """A Kronecker product: exactly where a matrix of the size of its cells can be factored, else by iteration."""
    strategy = KroneckerStrategy(product)
    rows, columns = strategy.shape
    shortest = costs.squares_alone and not options.nonnegative
    exact = columns <= SETTINGS.factored and not shortest
    need = 8 * (10 * rows + 10 * columns + (4 * columns**2 if exact else 0))
    if need > options.memory_limit:
        _refuse_product(rows, columns, need, options.memory_limit)
    unit, loss_unit = _units(costs)
    lift = partial(lift_by_iteration, strategy) if shortest else strategy.lift
    certifier = Certifier(strategy, costs.scaled(unit, loss_unit), options.nonnegative, lift)
    otherwise = Status.STALLED if exact or shortest else Status.STEP_LIMIT
    tolerance = options.tolerance or (SETTINGS.exact_tolerance if exact or shortest else SETTINGS.iterative_tolerance)
    solution, solver = _solve_product(strategy, certifier, options, tolerance, exact=exact)
    cells = np.where(strategy.touched, solution.cells * (unit / strategy.scale), 0.0).reshape(product.shape_in)
    objective = costs.cost(product.apply(cells).reshape(-1) - costs.noisy)
    return _report(cells, objective, solution.bound * loss_unit, solver, solution.steps, tolerance, costs, otherwise)


def _solve_product(
    strategy: KroneckerStrategy, certifier: Certifier, options: _Options, tolerance: float, *, exact: bool
) -> tuple[Solution, str]:
    costs, nonnegative = certifier.costs, options.nonnegative
    if costs.squares_alone and not nonnegative:
        return solve_least_squares(strategy, costs, certifier), "least squares, Kronecker"
    if not exact:
        solution = solve_by_admm(
            strategy, costs, certifier, nonnegative=nonnegative, tolerance=tolerance, max_steps=options.max_steps
        )
        return solution, "alternating directions, Kronecker"
    if costs.squares_alone:
        solution = solve_nonnegative_least_squares(strategy, costs, certifier, tolerance=tolerance)
    else:
        solution = solve_by_interior_point(strategy, costs, certifier, nonnegative=nonnegative, tolerance=tolerance)
    return solution, "interior point, Kronecker"


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
