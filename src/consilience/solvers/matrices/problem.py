"""What residuals t = Ax − y of measured answers cost, what multipliers prove, and which answers must be met.

Row i costs a·t + q·t² for t ≥ 0 and ā·|t| + q̄·t² for t < 0. The two sides are alike, but for clipped answers, which
say only that the answer was at most 0: they cost nothing on the way down. The conjugate of such a cost,

    φ*(l) = sup over t of l·t − φ(t) = (l − a)₊² / 4q + (−l − ā)₊² / 4q̄,

is infinite beyond the slope of a side without curvature. Rows that must be met exactly have an infinite slope: any
multiplier is within it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.linalg.lapack
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.solvers.fit import SHARED, Fit, Infeasible, Loss
from consilience.solvers.matrices.strategies import Strategy
from consilience.solvers.trees.fit import fit_forest
from consilience.solvers.trees.laminar import Crossing, SetForest, forest_of_lists

Array = NDArray[np.float64]


@dataclass(frozen=True)
class EquationSettings:
    """What counts as met, and how many equations may be; by trial, no figures kept."""

    rounded_slope: float = 1e-9
    """The largest violation of Aᵀl ≥ 0, relative to the length of l, that counts as rounding where there is no
    cover."""
    most_equations: int = 2000
    """Systems of this size are factored in every step."""
    met_to: float = 1e-10
    """Equations that are missed by this share of the largest value are met."""


SETTINGS = EquationSettings()

SIGNS = np.array([[1.0], [-1.0]])
"""Of the way up and the way down of a residual."""


@dataclass(frozen=True, eq=False)
class RowCosts:
    """The costs of all measured rows; `noisy` is y. Slopes and curvatures have a line for the way up and one down."""

    noisy: Array
    slope: Array
    curvature: Array

    @staticmethod
    def of(loss: Loss, noisy: Array, weights: Array, clipped: NDArray[np.bool_] | None) -> "RowCosts":
        slope, curvature = loss.coefficients(weights)
        felt = np.ones((2, noisy.size))
        if clipped is not None:
            felt[1, clipped] = 0.0
        return RowCosts(noisy, slope * felt, curvature * felt)

    def with_equations(self, values: Array) -> "RowCosts":
        """The costs with rows after them that must be met."""
        straight = np.zeros((2, values.size))
        slope, curvature = np.hstack([self.slope, straight + np.inf]), np.hstack([self.curvature, straight])
        return RowCosts(np.append(self.noisy, values), slope, curvature)

    @property
    def measured(self) -> NDArray[np.bool_]:
        """The rows that cost something."""
        return (self.slope[0] > 0.0) | (self.curvature[0] > 0.0)

    @property
    def squares_alone(self) -> bool:
        """Whether every row costs q·t² on both sides."""
        return not self.slope.any() and bool(np.array_equal(*self.curvature))

    @cached_property
    def straight(self) -> bool:
        """Whether no row has a curvature, so that the problem is a linear programme."""
        return not self.curvature.any()

    def cost(self, residual: Array) -> float:
        """The costs of all rows but those that must be met."""
        size = np.maximum(SIGNS * residual, 0.0)
        return float(np.vdot(size, self._finite_slope + self.curvature * size))

    @cached_property
    def _finite_slope(self) -> Array:
        return np.where(np.isfinite(self.slope), self.slope, 0.0)

    @cached_property
    def unnoticed(self) -> float:
        """What residuals cost that are lost in the rounding of the answers: where the fit is exact, this is the
        goal."""
        return self.cost(SHARED.unnoticed * self.noisy)

    def legal(self, multipliers: Array) -> Array:
        """The multipliers moved to where the conjugate is finite."""
        up, down = np.where(self.curvature > 0.0, np.inf, self.slope)
        return np.clip(multipliers, -down, up)

    def excess(self, multipliers: Array) -> float:
        """By what the multipliers must be divided so that the conjugate is finite; ∞ if nothing but 0 would do."""
        signed = SIGNS * multipliers
        straight = (self.curvature == 0.0) & (signed > 0.0)
        with np.errstate(divide="ignore"):
            return float(np.max(signed[straight] / self.slope[straight], initial=0.0))

    def conjugate(self, multipliers: Array) -> float:
        """Σ φ*(l); the multiplier of a side without curvature is within its slope, up to rounding."""
        curved = self.curvature > 0.0
        beyond = np.maximum((SIGNS * multipliers)[curved] - self.slope[curved], 0.0)
        return float(np.sum(beyond**2 / (4.0 * self.curvature[curved])))

    def scaled(self, unit: float, loss_unit: float) -> "RowCosts":
        """The same costs, divided by `loss_unit`, of answers divided by `unit`."""
        return RowCosts(self.noisy / unit, self.slope * (unit / loss_unit), self.curvature * (unit * unit / loss_unit))

    def kept(self, rows: NDArray[np.intp]) -> "RowCosts":
        """The costs of these rows alone."""
        return RowCosts(self.noisy[rows], self.slope[:, rows], self.curvature[:, rows])


# ----------------------------------------------------------------------------------------------------------------------
# Lower bounds on min cost(Ax − y) from multipliers of its rows.
#
# For every l with Aᵀl ≥ 0 (Aᵀl = 0 where x may be negative) and every x that is allowed, cost(Ax − y) ≥ −lᵀy −
# cost*(l).
# Multipliers from a solver satisfy this nearly. They are repaired by a *cover*, a vector v with Aᵀv > 0 that lifts all
# columns, with or without the shortest change first that lifts exactly those that need it, whichever gives more; and
# then divided by what makes the conjugate finite again, which keeps Aᵀl ≥ 0. Where no cover is known, as there is none
# if Ax = 0 for some x ≥ 0 that is not 0, a violation within rounding is charged at twice the size of the cells at hand.


@dataclass(frozen=True, eq=False)
class Certifier:
    """Bounds for one problem whose columns have length 1."""

    strategy: Strategy
    costs: RowCosts
    nonnegative: bool
    lift: Callable[[Array], Array]
    """The shortest Δ for which AᵀΔ comes nearest to given slopes."""

    def bound(self, multipliers: Array, cells: Array, *, enough: float = np.inf) -> float:
        """A number that no cells fall below; 0 always is one.

        Where a cover alone proves as much as is `enough`, nothing is lifted, which takes a system of equations.
        """
        legal = self.costs.legal(multipliers)
        if not np.all(np.isfinite(legal)):
            return 0.0
        slopes = self.strategy.adjoint(legal)
        wrong = np.minimum(slopes, 0.0) if self.nonnegative else slopes
        if not wrong.any():
            return max(0.0, self._value(legal, 0.0))
        if self.nonnegative and np.isfinite(enough):
            proven = self._covered(legal, self._covering(np.ones(legal.size)) or self._cover)
            if proven >= enough:
                return proven
        lifted = legal - self.lift(wrong)
        if self.nonnegative:
            proven = max(self._covered(legal, self._cover), self._covered(lifted, self._cover))
            if proven > 0.0:
                return proven
        return max(0.0, self._charged(legal, cells), self._charged(lifted, cells))

    def _value(self, multipliers: Array, charge: float) -> float:
        divisor = max(self.costs.excess(multipliers), 1.0)
        if not np.isfinite(divisor):
            return 0.0
        legal = multipliers / divisor
        return -float(legal @ self.costs.noisy) - self.costs.conjugate(legal) - charge

    @cached_property
    def _cover(self) -> tuple[Array, Array] | None:
        """A vector v on the measured rows with Aᵀv > 0 in all columns, and Aᵀv."""
        rows, columns = self.strategy.shape
        return self._covering(self.lift(np.ones(columns))) or self._covering(np.ones(rows))

    def _covering(self, vector: Array) -> tuple[Array, Array] | None:
        """A vector v on the measured rows, and Aᵀv; None where that is not positive in all columns."""
        vector = vector * self.costs.measured
        reached = self.strategy.adjoint(vector)
        return (vector, reached) if reached.min() > 1e-6 * reached.max() else None

    def _covered(self, multipliers: Array, cover: tuple[Array, Array] | None) -> float:
        if cover is None:
            return 0.0
        vector, reached = cover
        short = float(np.max(-self.strategy.adjoint(multipliers) / reached, initial=0.0))
        return self._value(multipliers + short * vector, 0.0)

    def _charged(self, multipliers: Array, cells: Array) -> float:
        legal = self.costs.legal(multipliers)
        slopes = self.strategy.adjoint(legal)
        worst = float(np.abs(np.minimum(slopes, 0.0) if self.nonnegative else slopes).max(initial=0.0))
        if worst > SETTINGS.rounded_slope * float(np.linalg.norm(legal)):
            return 0.0
        return self._value(legal, 2.0 * worst * float(np.abs(cells).sum()))


# ----------------------------------------------------------------------------------------------------------------------
# Answers that are known exactly: the equations Ex = e that the fitted cells must satisfy.
#
# Rows that follow from others are left out, and cells that an equation Σ (positive)·x = 0 forces to 0 over x ≥ 0.
# Whether any cells satisfy the rest is settled before the fit, by the cells that come closest in least squares.
#
# An interior point ends with Ex = e up to rounding times the size of its steps. The last of it is removed by the change
#
#     x ← x + D Eᵀ(E D Eᵀ)⁻¹(e − Ex),     D = diag(x²) over x ≥ 0, else I,
#
# the shortest one relative to each cell, which does not make small cells negative.


class ContradictoryEquations(Infeasible):
    """Equations that no cells satisfy together; `rows` says which."""

    def __init__(self, rows: Sequence[int], violation: float) -> None:
        shown = ", ".join(map(str, rows[:6])) + (" …" if len(rows) > 6 else "")
        super().__init__(
            f"the exact answers (equations {shown}) contradict each other or the sign of the cells; the closest cells "
            f"miss one of them by {violation:.6g}. Correct them, or give them as measured with noise",
            violation=violation,
            constraints=[f"equation {row}" for row in rows],
        )
        self.rows = tuple(rows)


@dataclass(frozen=True, eq=False)
class Equations:
    """E and e, with independent rows; E is dense or a CSR array."""

    matrix: Any
    values: Array

    @staticmethod
    def checked(equations: tuple[Any, ArrayLike], columns: int) -> "Equations":
        """The equations as given, once their shapes and numbers are sound."""
        matrix: Any = sp.csr_array(equations[0], dtype=np.float64)
        values = np.asarray(equations[1], dtype=np.float64)
        if matrix.shape != (values.size, columns) or values.ndim != 1:
            raise DeclarationError(
                f"the equations have shape {matrix.shape} with {values.shape} values for {columns} cells; give a "
                "matrix with a column for each cell and one value for each row"
            )
        if not (np.all(np.isfinite(matrix.data)) and np.all(np.isfinite(values))):
            raise DeclarationError("the equations hold a number that is not finite; correct them")
        if values.size > SETTINGS.most_equations:
            raise TooLarge(f"{values.size:,} exact answers were given; up to {SETTINGS.most_equations:,} are kept")
        return Equations(matrix, values)

    @property
    def largest(self) -> float:
        return float(np.abs(self.values).max(initial=0.0))

    def forced_to_zero(self) -> NDArray[np.bool_]:
        """The cells that are 0 in every x ≥ 0 that satisfies the equations, as far as single rows say so."""
        rising, falling = (np.asarray(abs(part).sum(axis=1)).ravel() for part in (self._part(1.0), self._part(-1.0)))
        rows = (self.values == 0.0) & ((rising == 0.0) | (falling == 0.0))
        return np.asarray(abs(self.matrix[np.flatnonzero(rows)]).sum(axis=0)).ravel() > 0.0

    def _part(self, sign: float) -> Any:
        matrix = self.matrix.copy()
        matrix.data = np.maximum(sign * matrix.data, 0.0)
        return matrix

    def refuse_if_infeasible(self, nearest: Callable[[Any, Array], Fit]) -> None:
        """Raise `ContradictoryEquations` if the nearest cells do not satisfy the equations."""
        if not self.values.any():
            return
        missed = np.abs(self.matrix @ nearest(self.matrix, self.values).counts - self.values)
        violation = float(missed.max(initial=0.0))
        if violation > SHARED.tolerated * max(self.largest, np.finfo(float).tiny):
            raise ContradictoryEquations(np.flatnonzero(missed > 0.01 * violation).tolist(), violation)

    def above(self, floor: Array) -> "Equations":
        """The equations for what cells exceed a floor by."""
        return Equations(self.matrix, self.values - self.matrix @ floor)

    def reduced(self, columns: NDArray[np.intp], scale: Array, unit: float) -> "Equations":
        """Independent rows for the cells x/(scale·unit) of these columns."""
        matrix = sp.csr_array(self.matrix[:, columns] @ sp.diags_array(scale))
        lengths = np.sqrt(np.asarray((matrix**2).sum(axis=1)).ravel())
        rows = np.flatnonzero(lengths > 0.0)
        matrix = sp.csr_array(sp.diags_array(1.0 / lengths[rows]) @ matrix[rows])
        values = self.values[rows] / lengths[rows] / unit
        (pivoted_cholesky,) = scipy.linalg.lapack.get_lapack_funcs(("pstrf",), (values,))
        _, pivots, rank, _ = pivoted_cholesky((matrix @ matrix.T).toarray(), tol=SHARED.dependent, lower=1)
        independent = np.sort(pivots[:rank] - 1)
        return Equations(sp.csr_array(matrix[independent]), values[independent])

    @cached_property
    def _gram(self) -> tuple[Array, bool]:
        return scipy.linalg.cho_factor((self.matrix @ self.matrix.T).toarray(), lower=True)

    def without(self, cells: Array) -> Array:
        """The part of some cells that the equations do not see: x − Eᵀ(EEᵀ)⁻¹Ex."""
        return cells - self.matrix.T @ scipy.linalg.cho_solve(self._gram, self.matrix @ cells)

    def shortest(self) -> Array:
        """The shortest cells that satisfy the equations."""
        return np.asarray(self.matrix.T @ scipy.linalg.cho_solve(self._gram, self.values))

    def multipliers(self, slopes: Array) -> Array:
        """The ν for which Eᵀν comes nearest to the slopes."""
        return scipy.linalg.cho_solve(self._gram, self.matrix @ slopes)

    def met(self, cells: Array) -> bool:
        missed = float(np.abs(self.matrix @ cells - self.values).max(initial=0.0))
        return missed <= SETTINGS.met_to * max(self.largest, 1e-300)

    def restored(self, cells: Array, *, nonnegative: bool) -> Array | None:
        """Cells that satisfy the equations to rounding, close to cells that nearly do; None where these are too far."""
        for _ in range(3):
            missing = self.values - self.matrix @ cells
            weight = cells**2 if nonnegative else np.ones_like(cells)
            system = (self.matrix @ sp.diags_array(weight) @ self.matrix.T).toarray()
            change: Any = scipy.linalg.lstsq(system, missing, lapack_driver="gelsy", check_finite=False)
            cells = cells + weight * (self.matrix.T @ change[0])
            if not np.all(np.isfinite(cells)) or (nonnegative and cells.min(initial=0.0) < 0.0):
                return None
        return cells if self.met(cells) else None


# ----------------------------------------------------------------------------------------------------------------------
# Strategies that are hierarchies: sums over sets of cells of which any two are nested or disjoint.
#
# Such a strategy is a forest (see `solvers.trees.laminar`), and the tree solver fits it exactly in near-linear time.


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The forest behind a strategy, and how many cells share the count of each node."""

    forest: SetForest
    cells: NDArray[np.int64]

    def fit(
        self,
        noisy: NDArray[np.float64],
        weights: NDArray[np.float64],
        *,
        clipped: NDArray[np.bool_] | None,
        exact: NDArray[np.bool_] | None,
        **options: Any,
    ) -> Fit:
        """The fitted cells; `options` are those of `fit_forest`."""
        forest = self.forest
        found = fit_forest(
            forest.of_sets(noisy),
            forest.parent,
            weights=forest.of_sets(weights),
            clipped=None if clipped is None else forest.of_sets(clipped),
            exact=None if exact is None else forest.of_sets(exact),
            **options,
        )
        shares = np.append(found.counts / np.maximum(self.cells, 1), 0.0)
        cells = shares[forest.node_of_cell]
        return Fit(cells, found.objective, found.gap, found.status, {**found.stats, "solver": "forest"})


def find_hierarchy(matrix: Any, measured: NDArray[np.bool_]) -> Hierarchy | None:
    """The hierarchy that the measured rows of a matrix of zeros and ones are; None where they are none.

    Rows that were not measured do not matter, and cells that are in no other row get the count 0.
    """
    entries = matrix.data if sp.issparse(matrix) else matrix
    if not np.all((entries == 0.0) | (entries == 1.0)):
        return None
    columns: Any = sp.csc_array(matrix)
    columns.eliminate_zeros()
    sizes = np.bincount(columns.indices, minlength=matrix.shape[0])
    if not measured.any() or not sizes[measured].all():
        return None
    forest = forest_of_lists(columns.indptr, columns.indices, measured=measured)
    if isinstance(forest, Crossing):
        return None
    covered = forest.node_of_cell[forest.node_of_cell >= 0]
    return Hierarchy(forest, np.bincount(covered, minlength=forest.nodes))
