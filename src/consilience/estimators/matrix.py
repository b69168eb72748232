"""`Matrix`: the most likely cells behind noisy answers to any linear queries, as one strategy matrix.

With A the measured queries, y their noisy answers and b the scales of the noise the estimate is

    min Σ_i loss((Ax − y)_i / b_i)   over x ≥ 0   with Ex = e for the exact facts

(Lee, Wang and Kifer 2015, §5.3). One query stays a Kronecker product; several are written out and stacked. Cells are
those of the attributes that some query tells apart; counts are spread evenly over the others, impossible cells are left
out, and a cell that no answer speaks of is 0.

*The total.* That optimum pushes the total of sparse tables up, since every empty cell keeps the positive half of its
noise. Each measured query whose rows add up to all cells tells the total without bias, and where no loss was asked for
by name the cells have the total that these queries tell together, by inverse variance. It is one more equation. A large
Kronecker product, whose solvers take none, is fitted without and moved to the nearest table of that total; its gap, and
so its status, holds what the move cost.

With `loss="l2"` and `nonnegative=False` this is least squares, and of all solutions the shortest: the inverse of a
wavelet or Fourier transform, even shares within a bucket, and the estimate of the matrix mechanism (Li et al. 2010).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.domain.queries import BoundQuery
from consilience.errors import readable_bytes, readable_count
from consilience.estimators.base import FullTableEstimate, Progress, Suitability
from consilience.estimators.evidence import (
    LARGEST_TABLE,
    Array,
    Evidence,
    MeasuredCells,
    NoiseLoss,
    check_loss,
    gather,
    loss_by_noise,
)
from consilience.kernels.linear_maps import IdentityMap, Kronecker, LinearMap, SparseMap, SumMap
from consilience.kernels.simplex import project_to_simplex
from consilience.marginals.least_squares import combined_total, total_of_answers
from consilience.measurements import MeasurementSet
from consilience.solvers.fit import SHARED, Fit, Infeasible, Loss, Status
from consilience.solvers.matrices.matrix_fit import SETTINGS as MATRICES
from consilience.solvers.matrices.matrix_fit import fit_matrix, is_written_out
from consilience.solvers.matrices.problem import SETTINGS as EQUATIONS
from consilience.solvers.matrices.problem import ContradictoryEquations, RowCosts
from consilience.solvers.matrices.strategies import SETTINGS as FACTORING
from consilience.solvers.matrices.strategies import entries_of_product, sparse_product

BYTES_PER_LINE = 140
"""What a row or a column of a sparse strategy takes besides its entries (`python -m benchmarks memory`)."""

BYTES_PER_CELL = 400
"""What a cell takes in the fit of one marginal with its total held, which is that of a tree: measured on a million."""

BYTES_PER_FILLED = 36
"""What an entry takes that only the factors of a sparse strategy have (`python -m benchmarks memory`)."""


@dataclass(frozen=True)
class Matrix:
    """The fit of any linear queries by a matrix solver; for as many cells and answers as fit in memory.

    `loss`, `alpha` and `nonnegative` are those of `Tree`. `tolerance` is the relative optimality gap at which a solver
    may stop, by default 1e-8 where matrices are factored and 1e-4 where they are only multiplied; `max_steps` limits
    the latter. `stats["solver"]` says which was used. `hold_total` holds the total where counts are not negative and
    there are no exact facts; by default with the loss "by-noise", since a loss asked for by name is its optimum, as
    published.

    Values clipped at zero count as "at most 0", and answers below a threshold, which were not released, are left out.
    """

    loss: NoiseLoss = "by-noise"
    alpha: float = 0.9
    nonnegative: bool = True
    tolerance: float | None = None
    max_steps: int = 10_000
    hold_total: bool | None = None

    name: ClassVar[str] = "matrix"

    def __post_init__(self) -> None:
        check_loss(self.loss, get_args(NoiseLoss), was_auto="by-noise")

    def suitability(self, measured: MeasurementSet) -> Suitability:
        if measured.domain.cells > LARGEST_TABLE:
            cells = measured.domain.cells
            reason = f"the full table has {readable_count(cells)} cells; Matrix keeps up to {LARGEST_TABLE:,}"
            return Suitability(False, reason, 16 * min(cells, 2**58))
        problem = _Problem.of(measured)
        need = problem.predicted_bytes(shortest=self._is_shortest(measured), held=self._holds_total)
        size = f"a strategy of {problem.rows:,} answers × {problem.cells.cells:,} cells"
        most = EQUATIONS.most_equations
        if len(problem.fact_answers) > most:
            facts = f"{len(problem.fact_answers):,} exact counts are known, and Matrix keeps up to {most:,}"
            return Suitability(False, facts, need)
        if need > SHARED.memory_limit:
            limit = readable_bytes(SHARED.memory_limit)
            reason = f"{size} may need {readable_bytes(need)} of memory; Matrix takes up to {limit}"
            return Suitability(False, reason, need)
        return Suitability(True, f"{size} fits in memory ({readable_bytes(need)})", need)

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> FullTableEstimate:
        self.suitability(measured).require("Matrix")
        problem = _Problem.of(measured)
        loss, alpha = loss_by_noise(self.loss, self.alpha, measured)
        total = problem.told_total() if self._holds_total else None
        fit = self._fit(problem, loss, alpha, total)
        if progress is not None:
            progress("fitting", 1, 1)
        stats = {"objective": fit.objective, "gap": fit.gap, "measured_answers": problem.rows, **fit.stats}
        counts = problem.cells.spread(problem.per_cell(fit.counts.ravel()))
        return FullTableEstimate(measured, self._describe(loss, alpha), fit.status, stats, counts)

    def _is_shortest(self, measured: MeasurementSet) -> bool:
        return not self.nonnegative and loss_by_noise(self.loss, self.alpha, measured)[0] == "l2"

    @property
    def _holds_total(self) -> bool:
        return self.nonnegative and (self.loss == "by-noise" if self.hold_total is None else self.hold_total)

    def _fit(self, problem: "_Problem", loss: str, alpha: float, total: float | None) -> Fit:
        """The fit, with this total if one is given."""
        if total is None:
            return self._solve(problem, loss, alpha, problem.equations())
        if problem.takes_equations:
            columns = problem.possible_cells
            return self._solve(problem, loss, alpha, (sp.csr_array(np.ones((1, columns))), np.array([total])))
        fit = self._solve(problem, loss, alpha, None)
        counts = project_to_simplex(fit.counts, total)
        objective = problem.cost(counts, Loss.named(loss, alpha=alpha))
        gap = fit.gap + max(objective - fit.objective, 0.0)
        near = gap <= (self.tolerance or MATRICES.iterative_tolerance) * objective
        return replace(fit, counts=counts, objective=objective, gap=gap, status=fit.status if near else Status.STALLED)

    def _solve(self, problem: "_Problem", loss: str, alpha: float, equations: tuple[Any, Array] | None) -> Fit:
        product = problem.is_product and equations is None
        strategy = problem.product if product else problem.matrix()
        shape = problem.product.shape_out if product else (-1,)
        clipped = problem.clipped
        try:
            return fit_matrix(
                strategy,
                problem.values.reshape(shape),
                loss=loss,
                alpha=alpha,
                weights=problem.weights.reshape(shape),
                clipped=clipped.reshape(shape) if clipped.any() else None,
                nonnegative=self.nonnegative,
                equations=equations,
                tolerance=self.tolerance,
                max_steps=self.max_steps,
            )
        except ContradictoryEquations as error:
            raise problem.contradiction(error) from error

    def _describe(self, loss: str, alpha: float) -> dict[str, Any]:
        settings = {"method": self.name, "loss": loss, "nonnegative": self.nonnegative, "tolerance": self.tolerance}
        settings |= {"hold_total": self._holds_total}
        return settings | ({"alpha": alpha} if loss == "elastic" else {})


@dataclass(frozen=True, eq=False)
class _Rows:
    """One query over the measured cells: a map for each axis, and its answers in the order of the axes."""

    evidence: Evidence
    maps: tuple[LinearMap, ...]
    order: NDArray[np.intp]
    """The place of each answer among those of the query."""

    @property
    def entries(self) -> int:
        return entries_of_product(self.maps)

    def in_order(self, values: NDArray[np.generic]) -> NDArray[Any]:
        return values[self.order]


@dataclass(frozen=True, eq=False)
class _Problem:
    """The measured queries as rows over the cells, and the exact facts as equations."""

    cells: MeasuredCells
    noisy: tuple[_Rows, ...]
    facts: tuple[_Rows, ...]

    @staticmethod
    def of(measured: MeasurementSet) -> "_Problem":
        evidence = gather(measured)
        cells = MeasuredCells.of(measured.domain, evidence)
        rows = [_rows(each, cells) for each in evidence]
        noisy = tuple(each for each in rows if not each.evidence.exact)
        return _Problem(cells, noisy, tuple(each for each in rows if each.evidence.exact))

    @property
    def rows(self) -> int:
        return sum(int(np.count_nonzero(each.evidence.weights)) for each in self.noisy)

    @property
    def values(self) -> Array:
        return np.concatenate([each.in_order(each.evidence.values) for each in self.noisy])

    @property
    def weights(self) -> Array:
        return np.concatenate([each.in_order(each.evidence.weights) for each in self.noisy])

    @property
    def clipped(self) -> NDArray[np.bool_]:
        none = [np.zeros(each.order.size, np.bool_) for each in self.noisy]
        masks = [each.evidence.clipped for each in self.noisy]
        pairs = zip(self.noisy, masks, none, strict=True)
        return np.concatenate([no if mask is None else each.in_order(mask) for each, mask, no in pairs])

    @property
    def fact_answers(self) -> list[tuple[Evidence, int]]:
        """The evidence and the place there of each equation."""
        return [(each.evidence, int(place)) for each in self.facts for place in each.order]

    @property
    def is_product(self) -> bool:
        """Whether one query over all the cells is all there is."""
        return len(self.noisy) == 1 and not self.facts and self.cells.allowed is None and bool(self.cells.names)

    @property
    def product(self) -> Kronecker:
        return Kronecker(self.noisy[0].maps)

    @property
    def takes_equations(self) -> bool:
        """Whether the queries are written out, or a marginal: the solvers of other Kronecker products take none."""
        return not self.is_product or self.is_marginal or is_written_out(self.product, shortest=False)

    @property
    def is_marginal(self) -> bool:
        """Whether one marginal over all the cells is all there is."""
        return self.is_product and all(isinstance(each, IdentityMap | SumMap) for each in self.product.maps)

    @property
    def possible_cells(self) -> int:
        allowed = self.cells.allowed
        return self.cells.cells if allowed is None else int(np.count_nonzero(allowed))

    def told_total(self) -> float | None:
        """The total that the noisy answers tell without bias, by inverse variance; None beside exact facts, which it
        might contradict. Queries with answers that were clipped or withheld are biased and stay out."""
        found = [each.evidence for each in self.noisy if each.evidence.clipped is None and each.evidence.weights.all()]
        told = [total_of_answers(each.bound.operator, each.values, 2.0 / each.weights**2) for each in found]
        if self.facts or not any(told):
            return None
        return combined_total(told, least=0.0).total

    def cost(self, counts: Array, loss: Loss) -> float:
        """What these cells cost."""
        product = self.product.apply(counts) if self.is_product else self.matrix() @ counts
        clipped = self.clipped
        costs = RowCosts.of(loss, self.values, self.weights, clipped if clipped.any() else None)
        return costs.cost(np.ravel(product) - self.values)

    def matrix(self) -> Any:
        """The queries stacked, without the impossible cells."""
        return self._stacked(self.noisy)

    def equations(self) -> tuple[Any, Array] | None:
        if not self.facts:
            return None
        return self._stacked(self.facts), np.concatenate([each.in_order(each.evidence.values) for each in self.facts])

    def _stacked(self, rows: Sequence[_Rows]) -> Any:
        stacked: Any = sp.vstack([sparse_product(each.maps) for each in rows], format="csr")
        return stacked if self.cells.allowed is None else stacked[:, np.flatnonzero(self.cells.allowed)]

    def predicted_bytes(self, *, shortest: bool, held: bool) -> int:
        """What the full table and the solver that this structure leads to need, at most."""
        rows = sum(math.prod(each.rows for each in query.maps) for query in self.noisy)
        columns, table = self.cells.cells, 24 * self.cells.domain.cells
        if held and self.is_marginal:
            return BYTES_PER_CELL * columns + table
        if self.is_product and not is_written_out(self.product, shortest=shortest):
            kept = [each.columns for each in self.product.maps if not isinstance(each, IdentityMap)]
            factors = 32 * columns**2 if columns <= MATRICES.factored else 8 * sum(size**2 for size in kept)
            return 80 * (rows + columns) + (0 if shortest else factors) + table
        entries = sum(each.entries for each in (*self.noisy, *self.facts))
        smaller = min(rows, columns) ** 2
        if entries > MATRICES.dense * rows * columns:
            return FACTORING.bytes_per_entry * entries + 24 * rows * columns + 32 * smaller + table
        # A factorisation may fill a square of the smaller side. Over one attribute, sums of neighbours have small
        # separators, and the factors stay about as sparse as the matrix.
        filled = 0 if shortest or len(self.cells.names) <= 1 else BYTES_PER_FILLED * smaller
        return FACTORING.bytes_per_entry * entries + BYTES_PER_LINE * (rows + columns) + filled + table

    def per_cell(self, counts: Array) -> Array:
        """For each measured cell, the count of every possible cell of the full table behind it."""
        room = self.cells.room
        if room is None:
            return counts / self.cells.behind
        shares = np.zeros(room.size)
        shares[room > 0] = counts / room[room > 0]
        return shares

    def contradiction(self, error: ContradictoryEquations) -> Infeasible:
        """The error in the words of the domain."""
        answers = self.fact_answers
        named = [answers[row] for row in error.rows]
        words = [each.answer_name(place) for each, place in named]
        said = [f"{name} is {each.values[place]:.10g}" for name, (each, place) in zip(words, named, strict=True)]
        return Infeasible(
            f"the exact counts contradict each other or the impossible cells, or are negative: {'; '.join(said[:6])}"
            f"{' …' if len(said) > 6 else ''}; the closest counts miss one of them by {error.violation:.6g}. Correct "
            "them, or give them as measurements with noise",
            violation=error.violation,
            constraints=words,
        )


def _rows(each: Evidence, cells: MeasuredCells) -> _Rows:
    """The query over the measured cells, axes in their order and summed over where the query does not name them."""
    found = each.bound
    if found.operator.is_joint:
        whole = SparseMap(_over_cells(found, cells))
        return _Rows(each, (whole,), np.arange(found.size))
    placed = {axis: place for place, axis in cells.axes(each.query)}
    sizes = cells.shape
    maps = tuple(found.maps[placed[axis]] if axis in placed else SumMap(size) for axis, size in enumerate(sizes))
    places = np.arange(found.size).reshape(found.shape)
    named = [placed[axis] for axis in sorted(placed)]
    dropped = [place for place in range(len(found.shape)) if place not in named]
    return _Rows(each, maps, places.transpose([*named, *dropped]).ravel())


def _over_cells(bound: BoundQuery, cells: MeasuredCells) -> Any:
    """The query as one sparse matrix over the measured cells, its rows in the query's order."""
    named = [pair for pair in zip(bound.groups, bound.maps, strict=True) if set(pair[0]) <= set(cells.names)]
    summed = [name for name in cells.names if name not in bound.attributes]
    order = [name for names, _ in named for name in names] + summed
    product: Any = sparse_product([*(each for _, each in named), *map(SumMap, cells.domain.sizes(summed))])
    places = np.arange(cells.cells).reshape(cells.domain.sizes(order))
    return product[:, places.transpose([order.index(name) for name in cells.names]).ravel()]
