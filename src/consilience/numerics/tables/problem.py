"""The problem as the solvers see it: cells in a row, counts and costs in units of their own size, independent rows.

    min Σ_i a_i|x_i − y_i| + q_i(x_i − y_i)²   with   Φx = b,   0 ≤ x ≤ u   (or x free where u = ∞ and no floor)

The loss does not change when counts are measured in other units, because w = 1/noise scale changes with them. So the
counts are divided by the noise that the marginals reveal, and the costs by their mean; answers then scale with the data.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.linalg.lapack
from numpy.typing import NDArray

from consilience.numerics.compilation import announce
from consilience.numerics.tables.best_responses import largest_overpay, sum_of_costs, sum_of_least_costs
from consilience.numerics.tables.known_marginals import KnownMarginals
from consilience.numerics.tables.marginal_basis import MarginalBasis, Vector
from consilience.numerics.tables.unmeasured_cells import ProjectedBasis, without_cells

Basis = MarginalBasis | ProjectedBasis

DEPENDENT = 1e-10
"""A row whose part orthogonal to the others is this small, squared and relative, depends on them."""

BOUND_ROUNDING = 1e-9
"""The objective is known to this share of what the noisy values themselves would cost."""


@dataclass(frozen=True, eq=False)
class CellCosts:
    """Noisy values, slopes a and curvatures q of all cells, in the solvers' order."""

    noisy: Vector
    slope: Vector
    curvature: Vector

    def total(self, cells: Vector) -> float:
        """The loss of a table."""
        announce(sum_of_costs)
        return float(sum_of_costs(self.noisy, self.slope, self.curvature, cells))

    def scaled(self, unit: float, price: float) -> "CellCosts":
        """The same losses, divided by `price`, of counts divided by `unit`."""
        return CellCosts(self.noisy / unit, self.slope * (unit / price), self.curvature * (unit * unit / price))


@dataclass(frozen=True, eq=False)
class TableProblem:
    """A problem in its own units; times `unit` gives counts, times `price` gives losses."""

    basis: Basis
    target: Vector
    costs: CellCosts
    ceiling: Vector
    floor: bool
    unit: float = 1.0
    price: float = 1.0

    @cached_property
    def fixed(self) -> NDArray[np.bool_]:
        """The cells that can only be 0."""
        return self.ceiling == 0.0

    @cached_property
    def largest_target(self) -> float:
        """The largest coordinate, at least the noise of one cell."""
        return max(float(np.abs(self.target).max(initial=0.0)), 1.0)

    def misfit(self, cells: Vector) -> float:
        """The largest error of a coordinate, relative to the largest coordinate."""
        return float(np.abs(self.target - self.basis.apply(cells)).max(initial=0.0)) / self.largest_target

    def lower_bound(self, prices: Vector, pay: Vector) -> float:
        """A number that no table with these marginals falls below, from prices λ and their pay Φᵀλ per cell.

        Where pay exceeds a slope by rounding, as it does in all cells that may grow at an L1 optimum, ceilings cost
        more than a reduction of all prices; the better of the two bounds counts.
        """
        bound = self._bound(prices, pay)
        too_much = float(largest_overpay(self.costs.slope, self.costs.curvature, self.ceiling, self.floor, pay))
        if too_much > 1.0:
            bound = max(bound, self._bound(prices / too_much, pay / too_much))
        return bound

    def _bound(self, prices: Vector, pay: Vector) -> float:
        announce(sum_of_least_costs)
        costs = self.costs
        best = sum_of_least_costs(costs.noisy, costs.slope, costs.curvature, self.ceiling, self.floor, pay)
        return float(self.target @ prices + best)

    @cached_property
    def worst(self) -> float:
        """More than any table between 0 and the ceilings costs; ∞ where there are none."""
        if not np.isfinite(self.ceiling).all():
            return np.inf
        return max(self.costs.total(self.ceiling), self.costs.total(np.zeros_like(self.ceiling))) * 2.0

    def gap_unit(self, objective: float) -> float:
        return gap_unit(self.costs, objective)

    def with_costs(self, costs: CellCosts) -> "TableProblem":
        return replace(self, costs=costs)


def gap_unit(costs: CellCosts, objective: float) -> float:
    """What a relative gap is relative to: the objective, or its rounding where the noise leaves nothing to do."""
    return max(objective, BOUND_ROUNDING * costs.total(np.zeros_like(costs.noisy)), np.finfo(np.float64).tiny)


def build_problem(
    known: KnownMarginals,
    costs: CellCosts,
    *,
    ceiling: Vector,
    floor: bool,
    left_out: NDArray[np.bool_] | None = None,
) -> TableProblem:
    """The problem in its own units, with independent rows: rows that depend on others where cells are fixed go.

    Cells that are `left_out` are held at 0, and only what does not depend on them is asked for.
    """
    coordinates = known.coordinates
    basis: Basis = MarginalBasis(known.layout, coordinates.frequencies)
    target = coordinates.target
    if left_out is not None:
        ceiling = np.where(left_out, 0.0, ceiling)
        basis = without_cells(basis, left_out)
        target = basis.combinations.T @ target
    free = ceiling > 0.0
    if not free.all() and basis.rows:
        kept = independent_rows(basis.gram(free.astype(np.float64)))
        basis, target = basis.restricted(kept), target[kept]
    unit = _noise_size(basis, target, costs, free)
    price = float(np.mean((costs.slope * unit + costs.curvature * (unit * unit))[free])) if free.any() else 1.0
    price = price if price > 0.0 else 1.0
    return TableProblem(basis, target / unit, costs.scaled(unit, price), ceiling / unit, floor, unit, price)


def independent_rows(gram: NDArray[np.float64]) -> NDArray[np.intp]:
    """Rows, by Cholesky factorisation with pivoting, that span all rows of a matrix with this Gram matrix."""
    largest = float(np.diag(gram).max(initial=0.0))
    if largest <= 0.0:
        return np.zeros(0, dtype=np.intp)
    _, pivots, rank, _ = scipy.linalg.lapack.dpstrf(gram, tol=DEPENDENT * largest, lower=1)
    return np.sort(pivots[:rank] - 1).astype(np.intp)


def _noise_size(basis: Basis, target: Vector, costs: CellCosts, free: NDArray[np.bool_]) -> float:
    """The root mean square of Φy − b over rows, per √cell: if the marginals are true, the noise of a cell."""
    measured = free & ((costs.slope > 0.0) | (costs.curvature > 0.0))
    noisy = np.where(measured, costs.noisy, 0.0)
    cells = max(int(np.count_nonzero(free)), 1)
    largest = max(float(np.abs(noisy).max(initial=0.0)), float(np.abs(target).max(initial=0.0)) / cells)
    if largest <= 0.0:
        return 1.0
    difference = basis.apply(noisy / largest) - target / largest
    size = float(np.sqrt(np.mean(difference**2) / cells)) if difference.size else 0.0
    negative = float(np.mean(np.maximum(-noisy[free] / largest, 0.0)))
    return largest * max(size, negative, 1e-9)
