"""Tables with known marginals as the solvers see them: moves of cells, in units of the noise, with independent rows.

A table x is its moves δ = x − y away from the noisy values:

    min Σ_i a_i|δ_i| + q_i δ_i²   with   Φδ = r := b − Φy,   low ≤ δ ≤ high,

where low = −y keeps counts non-negative and high = u − y keeps them below the marginals around them. Moves are of the
size of the noise, however large the counts, and so are all numbers that are added up: counts of 10¹² with a noise of
1 lose nothing. The loss does not change when counts are measured in other units, because weights change with them;
counts are divided by the noise that the marginals reveal, and costs by their mean, so answers scale with the data.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg.lapack
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.kernels.kernel_cache import njit
from consilience.solvers.fit import SHARED
from consilience.solvers.marginal_tables.marginal_basis import (
    CellLayout,
    IndicatorBasis,
    MarginalBasis,
    Vector,
    frequencies_of,
    hartley,
)

AGREEMENT = 1e-12
"""Marginals agree when their coordinates do, to this share of the total: the rounding of sums (about 4,500 units in the
last place), not of data."""


@dataclass(frozen=True, eq=False)
class KnownMarginal:
    """One marginal: the axes as the user gave them, and its values in the order of the solvers."""

    axes: tuple[int, ...]
    places: tuple[int, ...]
    values: Vector

    @property
    def name(self) -> str:
        """How messages call it.

        >>> KnownMarginal((0, 2), (0, 2), np.zeros((2, 2))).name
        'axes (0, 2)'
        """
        if not self.axes:
            return "the total"
        return f"axis {self.axes[0]}" if len(self.axes) == 1 else f"axes {self.axes}"


@dataclass(frozen=True, eq=False)
class KnownMarginals:
    """What is known of a table for certain: its marginals, which cells can occur, and whether counts are negative."""

    layout: CellLayout
    each: tuple[KnownMarginal, ...]
    free: NDArray[np.bool_]
    """The cells that are no structural zeros."""
    floor: bool
    """Whether no count is negative."""

    @cached_property
    def largest(self) -> float:
        """The largest absolute value in any marginal."""
        return max((float(np.abs(known.values).max(initial=0.0)) for known in self.each), default=0.0)

    @property
    def basis(self) -> MarginalBasis:
        """The rows Φ that the marginals fix."""
        return MarginalBasis(self.layout, self.coordinates.frequencies)

    @cached_property
    def coordinates(self) -> "Coordinates":
        """What the marginals say about the coordinates c_u, and how far they contradict each other.

        A marginal with K cells holds its misfit ‖m(x) − m‖² as Σ_u (c_u(x) − c_u)² / K, so 1/K weighs its word.
        """
        frequencies = [frequencies_of(self.layout, known.places) for known in self.each]
        found = np.concatenate(hartley([known.values for known in self.each]))
        sizes = np.array([known.values.size for known in self.each])
        weights = np.repeat(1.0 / sizes, sizes)
        kept, place = np.unique(np.concatenate(frequencies), return_inverse=True)
        weight = np.asarray(np.bincount(place, weights), dtype=np.float64)
        target = np.bincount(place, weights * found) / weight
        apart = np.abs(found - target[place])
        allowed = AGREEMENT * max(float(np.abs(known.values).sum()) for known in self.each)
        ends = np.cumsum(sizes)
        contradicted = tuple((np.maximum.reduceat(apart, ends - sizes) > allowed).tolist())
        parts = tuple(place[end - size : end] for end, size in zip(ends, sizes, strict=True))
        return Coordinates(kept, target, weight, contradicted, parts)

    def misfits(self, coordinates: Vector) -> list[Vector]:
        """By how much each marginal of a table with all these coordinates differs from the known one.

        The transform `hartley` is its own inverse up to the number of cells.
        """
        parts = zip(self.each, self.coordinates.parts, strict=True)
        marginals = hartley([coordinates[part].reshape(known.values.shape) for known, part in parts])
        pairs = zip(marginals, self.each, strict=True)
        return [found / known.values.size - known.values.reshape(-1) for found, known in pairs]

    def violation(self, cells: Vector) -> float:
        """The largest error of a marginal value."""
        if not self.each:
            return 0.0
        return max(float(np.abs(misfit).max(initial=0.0)) for misfit in self.misfits(self.basis.apply(cells)))

    def ceilings(self) -> Vector:
        """The most that each cell can hold: the least marginal around it, 0 for structural zeros, ∞ without a floor."""
        ceiling = np.full(self.layout.sizes, np.inf)
        for known in self.each if self.floor else ():
            np.minimum(ceiling, self.layout.spread(known.values, known.places), out=ceiling)
        return np.where(self.free, ceiling.reshape(-1), 0.0)

    def widest(self) -> KnownMarginal | None:
        """The marginal that contains all the others, if there is one."""
        widest = max(self.each, key=lambda known: len(known.places), default=None)
        if widest is None or any(not set(known.places) <= set(widest.places) for known in self.each):
            return None
        return widest


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The independent numbers behind a set of marginals."""

    frequencies: NDArray[np.int64]
    target: Vector
    """The value of each coordinate; where marginals contradict each other, their weighted mean."""
    weight: Vector
    contradicted: tuple[bool, ...]
    """For each marginal, whether another one contradicts it."""
    parts: tuple[NDArray[np.intp], ...]
    """For each marginal, which coordinates it fixes, in the order of its cells."""


def read_marginals(
    marginals: Mapping[tuple[int, ...], ArrayLike],
    layout: CellLayout,
    *,
    free: NDArray[np.bool_] | None = None,
    floor: bool = True,
) -> KnownMarginals:
    """The marginals with their axes in the solvers' order, each of the right shape and finite."""
    if not isinstance(marginals, Mapping):
        raise DeclarationError(
            f"the marginals are a {type(marginals).__name__}; give a mapping from tuples of axes to arrays"
        )
    each = tuple(_read(key, values, layout) for key, values in marginals.items())
    return KnownMarginals(layout, each, np.ones(layout.cells, dtype=np.bool_) if free is None else free, floor)


def _read(key: Sequence[int], values: ArrayLike, layout: CellLayout) -> KnownMarginal:
    axes = _axes(key, len(layout.shape))
    shape = tuple(layout.shape[axis] for axis in axes)
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise DeclarationError(
            f"the marginal on axes {axes} has shape {array.shape}, the table there {shape}; give one value per cell"
        )
    if not np.isfinite(array).all():
        raise DeclarationError(f"the marginal on axes {axes} holds a value that is not a finite number; correct it")
    places = layout.places(axes)
    inner = [axis for axis in axes if layout.shape[axis] > 1]
    squeezed = array.reshape([layout.shape[axis] for axis in inner])
    order = [inner.index(layout.axes[place]) for place in places]
    ordered = squeezed if order == sorted(order) else np.transpose(squeezed, order)
    return KnownMarginal(axes, places, np.ascontiguousarray(ordered))


def _axes(key: Sequence[int], dimensions: int) -> tuple[int, ...]:
    try:
        axes = tuple(operator.index(axis) for axis in key)
    except TypeError:
        raise DeclarationError(f"{key!r} does not name axes; use a tuple of whole numbers, () for the total") from None
    outside = [axis for axis in axes if not 0 <= axis < dimensions]
    if outside:
        raise DeclarationError(f"the table has axes 0 to {dimensions - 1}, a marginal names axis {outside[0]}")
    if len(set(axes)) != len(axes):
        raise DeclarationError(f"the marginal on axes {axes} names an axis twice; name it once")
    return axes


# ----------------------------------------------------------------------------------------------------------------------
# Cells without weight in tables that may be negative: they take up any misfit for nothing.
#
# Such cells Z leave only those combinations of marginals to be met in which they do not occur: the rows NᵀΦ with NᵀΦ_Z
# = 0. The other cells are fitted to these, and Z then fills what is missing with the least sum of squares.


class ProjectedBasis:
    """The rows NᵀΦ, known by their products like the rows of a `MarginalBasis`."""

    def __init__(self, basis: MarginalBasis, combinations: NDArray[np.float64]) -> None:
        self._basis = basis
        self.combinations = combinations

    @property
    def layout(self) -> CellLayout:
        return self._basis.layout

    @property
    def rows(self) -> int:
        return int(self.combinations.shape[1])

    def restricted(self, kept: NDArray[np.intp]) -> "ProjectedBasis":
        return ProjectedBasis(self._basis, self.combinations[:, kept])

    def apply(self, cells: Vector) -> Vector:
        return self.combinations.T @ self._basis.apply(cells)

    def adjoint(self, coordinates: Vector) -> Vector:
        return self._basis.adjoint(self.combinations @ coordinates)

    def gram(self, diagonal: Vector) -> NDArray[np.float64]:
        return self.combinations.T @ self._basis.gram(diagonal) @ self.combinations


def without_cells(basis: MarginalBasis, cells: NDArray[np.bool_]) -> ProjectedBasis:
    """The combinations of the rows in which these cells do not occur."""
    values, vectors = np.linalg.eigh(basis.gram(cells.astype(np.float64)))
    return ProjectedBasis(basis, vectors[:, values <= SHARED.dependent * max(float(values[-1]), 1e-300)])


def fill_cells(basis: MarginalBasis, target: Vector, cells: Vector, chosen: NDArray[np.bool_]) -> Vector:
    """The cells with the chosen ones changed, by the least sum of squares, so that the coordinates are the target's."""
    matrix = basis.gram(chosen.astype(np.float64))
    filled = np.where(chosen, 0.0, cells)
    for _ in range(2):
        missing = target - basis.apply(filled)
        change = np.asarray(np.linalg.lstsq(matrix, missing, rcond=SHARED.dependent)[0], dtype=np.float64)
        filled += chosen * basis.adjoint(change)
    return filled


# ----------------------------------------------------------------------------------------------------------------------
# The best move of each cell for given duals λ of the marginals, and the lower bound on the optimum that follows.
#
# Cells are known by their moves δ = x − y away from the noisy values, and δ is confined to low ≤ δ ≤ high. With duals
# λ on the coordinates and s = Φᵀλ, their image at each cell, all moves with Φδ = r satisfy
#
#     Σ a_i|δ_i| + q_i δ_i²  ≥  rᵀλ + Σ_i min over low_i ≤ ξ ≤ high_i of [ a_i|ξ| + q_i ξ² − s_i ξ ],
#
# whatever λ is. A cell of a non-negative table is at most every marginal that contains it, so `high` costs nothing to
# have, and every λ gives a finite bound. The minimiser is the part of s that exceeds the slope a, over 2q, brought into
# bounds.


@njit(nogil=True, cache=True, error_model="numpy")
def sum_of_costs(a, q, moves):  # pragma: no cover - compiled
    """Σ a|δ| + qδ²."""
    total = 0.0
    for i in range(moves.shape[0]):
        size = abs(moves[i])
        total += size * (a[i] + q[i] * size)
    return total


@njit(nogil=True, cache=True, error_model="numpy")
def best_responses(a, q, centre, low, high, s, moves, softness):  # pragma: no cover - compiled
    """Fills the minimisers of a|ξ| + q(ξ − centre)² − sξ and their derivatives in s."""
    for i in range(s.shape[0]):
        moves[i], softness[i] = response(a[i], q[i], centre[i], low[i], high[i], s[i])


@njit(nogil=True, cache=True, error_model="numpy")
def sum_of_least_costs(a, q, low, high, s):  # pragma: no cover - compiled
    """The sum of the minima for centre 0; −∞ where s exceeds the slope of a cell without bound."""
    total = 0.0
    for i in range(s.shape[0]):
        move, _ = response(a[i], q[i], 0.0, low[i], high[i], s[i])
        if not np.isfinite(move):
            return -np.inf
        size = abs(move)
        total += size * (a[i] + q[i] * size) - s[i] * move
    return total


@njit(nogil=True, cache=True, error_model="numpy")
def largest_excess(a, q, low, high, s):  # pragma: no cover - compiled
    """The largest |s|/a of a cell without curvature that can follow the image s, at least 1.

    Duals divided by it have an image within the slope of every such cell.
    """
    largest = 1.0
    for i in range(s.shape[0]):
        if q[i] == 0.0 and a[i] > 0.0 and low[i] < high[i] and (s[i] > 0.0 or low[i] == -np.inf):
            largest = max(largest, abs(s[i]) / a[i])
    return largest


@njit(nogil=True, cache=True, error_model="numpy")
def response(a, q, centre, low, high, s):  # pragma: no cover - compiled
    """The minimiser and its derivative in s.

    Left of 0 the derivative of the cost is −a + 2q(ξ − centre) − s, right of it a + 2q(ξ − centre) − s; the minimiser
    is where one of them vanishes on its own side, and 0 where neither does.
    """
    linear = s + 2.0 * q * centre
    move, softness = 0.0, 0.0
    if linear > a or linear < -a or (a == 0.0 and q > 0.0):
        excess = linear - a if linear > 0.0 else linear + a
        if q > 0.0:
            softness = 0.5 / q
            move = excess * softness
        else:
            move = np.inf if excess > 0.0 else -np.inf
    if move <= low:
        return low, 0.0
    if move >= high:
        return high, 0.0
    return move, softness


# ----------------------------------------------------------------------------------------------------------------------
# The problem as the solvers see it: moves of cells, in units of the noise, with independent rows.


Basis = MarginalBasis | IndicatorBasis | ProjectedBasis


@dataclass(frozen=True, eq=False)
class CellCosts:
    """Noisy values, slopes a and curvatures q of all cells, in the solvers' order."""

    noisy: Vector
    slope: Vector
    curvature: Vector

    def of_moves(self, moves: Vector) -> float:
        """The loss of a table that differs from the noisy one by these moves."""
        return float(sum_of_costs(self.slope, self.curvature, moves))

    def gap_unit(self, objective: float) -> float:
        """What a relative gap is relative to: the objective, or what rounding costs where it is nothing."""
        return max(objective, self._unnoticed, np.finfo(np.float64).tiny)

    @cached_property
    def _unnoticed(self) -> float:
        return self.of_moves(SHARED.unnoticed * self.noisy)

    def of_rounding(self, cells: Vector) -> float:
        """By how much the loss of a table changes when each cell is rounded to the nearest floating-point number."""
        step = np.finfo(np.float64).eps * np.maximum(np.abs(cells), np.abs(self.noisy))
        return float(np.sum((self.slope + 2.0 * self.curvature * np.abs(cells - self.noisy)) * step))

    def limited_to(self, cells: NDArray[np.bool_]) -> "CellCosts":
        """The costs with those of all other cells, and their noisy values, replaced by 0."""
        noisy, slope, curvature = (np.where(cells, part, 0.0) for part in (self.noisy, self.slope, self.curvature))
        return CellCosts(noisy, slope, curvature)

    def scaled(self, unit: float, loss_unit: float) -> "CellCosts":
        """The same losses, divided by `loss_unit`, of counts divided by `unit`."""
        return CellCosts(self.noisy / unit, self.slope * (unit / loss_unit), self.curvature * (unit * unit / loss_unit))


@dataclass(frozen=True, eq=False)
class TableProblem:
    """A problem in its own units; times `unit` gives counts, times `loss_unit` gives losses."""

    basis: Basis
    target: Vector
    """r, the coordinates that the moves must have."""
    costs: CellCosts
    low: Vector
    high: Vector
    unit: float = 1.0
    loss_unit: float = 1.0
    rounding: float = 0.0
    """How large a coordinate can become by rounding alone."""

    @cached_property
    def fixed(self) -> NDArray[np.bool_]:
        """The cells that cannot move."""
        return self.low == self.high

    @cached_property
    def largest_target(self) -> float:
        """The largest coordinate, at least the noise of one cell."""
        return max(float(np.abs(self.target).max(initial=0.0)), 1.0)

    def misfit(self, moves: Vector) -> float:
        """The largest error of a coordinate, relative to the largest coordinate."""
        return float(np.abs(self.target - self.basis.apply(moves)).max(initial=0.0)) / self.largest_target

    def lower_bound(self, duals: Vector, image: Vector) -> float:
        """A number that no table with these marginals falls below, from duals λ and their image Φᵀλ.

        Where rounding takes the image beyond a slope, as in all cells that may grow at an L1 optimum, `high` costs more
        than a reduction of all duals; the better of the two bounds counts.
        """
        bound = self._bound(duals, image)
        too_much = float(largest_excess(self.costs.slope, self.costs.curvature, self.low, self.high, image))
        if too_much > 1.0:
            bound = max(bound, self._bound(duals / too_much, image / too_much))
        return bound

    def _bound(self, duals: Vector, image: Vector) -> float:
        least = sum_of_least_costs(self.costs.slope, self.costs.curvature, self.low, self.high, image)
        return float(self.target @ duals + least)

    @cached_property
    def worst(self) -> float:
        """More than any table within bounds costs; ∞ where there are none."""
        farthest = np.maximum(np.abs(self.low), np.abs(self.high))
        return 2.0 * self.costs.of_moves(farthest) if np.isfinite(farthest).all() else np.inf

    @property
    def solved_by_noisy_values(self) -> bool:
        """Whether the noisy table has the marginals already, and is within bounds."""
        return bool(np.abs(self.target).max(initial=0.0) <= self.rounding and np.all(self.low <= 0.0))


def build_problem(
    known: KnownMarginals, costs: CellCosts, *, left_out: NDArray[np.bool_] | None = None
) -> TableProblem:
    """The problem in its own units, without the cells whose ceiling is 0, and with independent rows.

    Cells that are `left_out` are held at 0 too, and only what does not depend on them is asked for.
    """
    basis: Basis = known.basis
    target, ceiling = known.coordinates.target, known.ceilings()
    if left_out is None and _few_share_cells(known):
        basis, target = IndicatorBasis.of(known.layout, [(each.places, each.values) for each in known.each])
    free = ceiling > 0.0
    if left_out is not None:
        free &= ~left_out
        basis = without_cells(known.basis, left_out)
        target = basis.combinations.T @ target
    if not free.all() and basis.rows:
        kept = independent_rows(basis.gram(free.astype(np.float64)))
        basis, target = basis.restricted(kept), target[kept]
    costs = costs.limited_to(free)
    rounding = 4.0 * np.finfo(np.float64).eps * float(np.sum(np.abs(costs.noisy)))
    target = target - basis.apply(costs.noisy)
    cells = max(int(np.count_nonzero(free)), 1)
    squares = basis.apply(free.astype(np.float64)) if isinstance(basis, IndicatorBasis) else cells
    unit = _noise_size(target / np.sqrt(squares), costs, cells)
    loss_unit = float(np.sum(costs.slope * unit + costs.curvature * (unit * unit))) / cells
    loss_unit = loss_unit if loss_unit > 0.0 else 1.0
    costs = costs.scaled(unit, loss_unit)
    low = np.where(free, -costs.noisy if known.floor else -np.inf, 0.0)
    high = np.where(free, ceiling / unit - costs.noisy, 0.0)
    return TableProblem(basis, target / unit, costs, low, high, unit, loss_unit, rounding / unit)


def _few_share_cells(known: KnownMarginals) -> bool:
    """Whether rows that are sums of cells take less work than those that a transform gives."""
    rows, marginals = known.coordinates.frequencies.size, len(known.each)
    rest = rows - max(each.values.size for each in known.each)
    return rows**3 / 3.0 > rest**3 / 3.0 + 8.0 * known.layout.cells * marginals**2


def independent_rows(gram: NDArray[np.float64]) -> NDArray[np.intp]:
    """Rows, by Cholesky factorisation with pivoting, that span all rows of a matrix with this Gram matrix."""
    largest = float(np.diag(gram).max(initial=0.0))
    if largest <= 0.0:
        return np.zeros(0, dtype=np.intp)
    (factorise,) = scipy.linalg.lapack.get_lapack_funcs(("pstrf",), (gram,))
    _, pivots, rank, _ = factorise(gram, tol=SHARED.dependent * largest, lower=1)
    return np.sort(pivots[:rank] - 1).astype(np.intp)


def _noise_size(target: Vector, costs: CellCosts, cells: int) -> float:
    """The root mean square of r over rows of length 1: if the marginals are true, the noise of a cell.

    Negative noisy values reveal noise too, and exact data leave that of rounding.
    """
    largest = float(np.abs(costs.noisy).max(initial=0.0))
    largest_target = float(np.abs(target).max(initial=0.0))
    missing = largest_target * float(np.sqrt(np.mean((target / largest_target) ** 2))) if largest_target > 0.0 else 0.0
    negative = float(np.sum(np.maximum(-costs.noisy, 0.0) / cells))
    size = max(missing, negative, SHARED.unnoticed * largest)
    return size if size > 0.0 else 1.0
