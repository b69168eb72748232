"""What the rows of a measured table cost, and the duals that answer to these costs.

Row i of the operator B, already divided by the scale of its noise, has the observed value c_i and the cost

    φ(r) = a·|r| + ½·q·r²    of its residual r = (Bx − c)_i,

with a > 0, q = 0 for Laplace noise, a = 0, q > 0 for Gaussian noise, and both for the elastic net. A *one-sided* row
costs this only where r > 0: of its value no more is known than that it was at most c. An *exact* row costs nothing at
r = 0 and everything elsewhere. A row with a = q = 0 was not measured.

The conjugate φ*(ν) = sup over r of ν·r − φ(r) is 0 for |ν| ≤ a, grows like (|ν| − a)²/2q beyond, and is infinite there
if q = 0; one-sided rows need ν ≥ 0, exact rows have φ* = 0. Because φ is a sum, ν may be split into a *linear* part in
[−a, a] that is free and a *square* part that costs ½ν²/q: the components below. All that solvers need to know of a
component is its interval and its softness 1/q.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.kernels.linear_maps import IdentityMap, Kronecker, LinearMap, SparseMap
from consilience.solvers.marginal_sums import MarginalSums

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RowSettings:
    """How far steps go, and which matrices between rows are made; by trial, no figures kept, unless they are named."""

    inside_interval: float = 0.95
    """How much of the way to the end of an interval a step may take."""
    weak: float = 1e-4
    """The share of their curvature by which one-sided rows are first taken into account."""
    most_rows: int = 5_000
    """A larger matrix takes too long to factor."""
    work_per_cell: int = 40
    """The blocks' tables together may have this many times as many cells as the table."""
    small_work: int = 20_000_000
    """So many cells they may have whatever the table."""
    largest_shared_map: int = 20_000_000
    """Entries of the map between two queries' rows along one attribute, while it is made."""
    rows_for_squares: int = 1_500
    """For squares, whose equations conjugate gradients solve well, a factorisation is worth its rows³ up to so many
    rows."""
    ratio_for_squares: int = 20_000
    """Or up to this multiple of cells · queries: there both took as long (3-way marginals of 23k cells, 3,080 rows: a
    ratio of 36,000, and twice the time)."""


SETTINGS = RowSettings()


@dataclass(frozen=True, eq=False)
class RowCosts:
    """Observed values and the costs of missing them, one for each row."""

    observed: Array
    slope: Array
    """a, the cost of a unit of |r|."""
    curvature: Array
    """q, the cost of ½r²."""
    exact: Mask
    one_sided: Mask

    @staticmethod
    def squares(observed: Array) -> "RowCosts":
        """½r² for every row: least squares, for rows that are divided by their standard deviations."""
        nobody: Mask = np.zeros(observed.shape, dtype=np.bool_)
        return RowCosts(observed, np.zeros(observed.shape), np.ones(observed.shape), nobody, nobody)

    def felt(self, residual: Array) -> Array:
        """The sizes of the residuals that cost something."""
        felt = np.where(self.one_sided, np.maximum(residual, 0.0), np.abs(residual))
        felt[self.exact] = 0.0
        return felt

    def value(self, residual: Array) -> float:
        """The sum of all costs; exact rows are not in it."""
        felt = self.felt(residual)
        return float(np.sum(felt * (self.slope + 0.5 * self.curvature * felt)))

    @cached_property
    def expected(self) -> float:
        """The cost that noise alone leads one to expect: E|r| = 1 for a Laplace row, E r² = 1/q for a Gaussian one.

        A row with both parts is scaled like a Laplace row, of which E r² = 2.
        """
        both = (self.slope > 0) & (self.curvature > 0)
        square = np.where(both, self.curvature, np.where(self.curvature > 0, 0.5, 0.0))
        return float(np.sum(np.where(self.exact | self.one_sided, 0.0, self.slope + square)))

    # φ(r) + φ*(sν) − s·ν·r ≥ 0 for every multiple s, by the definition of φ*. Added up, and with s·slack for what the
    # cells can still gain, this is the distance between the objective and a bound that no table can beat.
    def gap(self, residual: Array, duals: Array, slack: float) -> float:
        """The smallest gap that a multiple of these duals proves; the objective itself where none proves more."""
        objective = self.value(residual)
        felt_duals = np.where(self.exact | (self.slope > 0) | (self.curvature > 0), duals, 0.0)
        most = self._largest_multiple(felt_duals)
        gain = float(np.sum(felt_duals * residual)) - slack
        cost = self._conjugate(most * felt_duals)
        best = objective
        limit = np.inf if self.squares_alone and not self.exact.any() else 1.0
        for multiple in (most, most * min(limit, most * gain / (2.0 * cost)) if cost > 0 and gain > 0 else 0.0):
            best = min(best, objective + self._conjugate(multiple * felt_duals) - multiple * gain)
        return max(best, 0.0)

    def _largest_multiple(self, duals: Array) -> float:
        """The largest s ≤ 1 for which φ*(s·duals) is finite."""
        bounded = (self.curvature == 0) & ~self.exact
        size = np.abs(duals[bounded])
        limits = np.divide(self.slope[bounded], size, out=np.ones(size.shape), where=size > self.slope[bounded])
        below = float(duals.min(where=self.one_sided, initial=0.0))
        return 0.0 if below < 0.0 else float(limits.min(initial=1.0))

    def _conjugate(self, duals: Array) -> float:
        """Σ φ*, for duals at which it is finite."""
        beyond = np.maximum(np.abs(duals) - self.slope, 0.0)
        curved = (self.curvature > 0) & ~self.exact
        return 0.5 * float(np.sum(np.divide(beyond**2, self.curvature, out=np.zeros(beyond.shape), where=curved)))

    def stand_in(self) -> "RowCosts":
        """Squares in place of all costs, for a first approximation; one-sided rows hardly count in it."""
        mean = np.where(self.slope > 0, 0.5 * self.slope**2, 0.0) + self.curvature
        curvature = np.where(self.one_sided, SETTINGS.weak * mean, mean)
        nobody = np.zeros_like(self.exact)
        return replace(self, slope=np.zeros_like(self.slope), curvature=curvature, one_sided=nobody)

    @property
    def squares_alone(self) -> bool:
        """Whether no dual is confined to an interval."""
        return not (np.any(self.slope[~self.exact] > 0) or self.one_sided.any())

    def components(self) -> "Components":
        """The parts of the duals, linear, square and exact."""
        linear = np.flatnonzero((self.slope > 0) & ~self.exact)
        square = np.flatnonzero((self.curvature > 0) & ~self.exact)
        exact = np.flatnonzero(self.exact)
        free = np.full(self.observed.size, np.inf)
        high = np.concatenate([self.slope[linear], free[square], free[exact]])
        row = np.concatenate([linear, square, exact])
        softness = np.concatenate([np.zeros(linear.size), 1.0 / self.curvature[square], np.zeros(exact.size)])
        return Components(self.observed.size, row, np.where(self.one_sided[row], 0.0, -high), high, softness)


@dataclass(frozen=True, eq=False)
class Components:
    """The parts into which the duals of rows are split: for each its row, its interval and its softness 1/q."""

    rows: int
    row: NDArray[np.intp]
    low: Array
    high: Array
    softness: Array

    @property
    def confined(self) -> bool:
        """Whether any component has an end."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    def of_rows(self, parts: Array) -> Array:
        """The sum of the parts of each row."""
        return np.bincount(self.row, parts, self.rows).astype(np.float64, copy=False)

    def slacks(self, parts: Array) -> tuple[Array, Array]:
        """How far each part is below its upper and above its lower end."""
        least = np.finfo(np.float64).tiny
        return np.maximum(self.high - parts, least), np.maximum(parts - self.low, least)

    def longest_step(self, parts: Array, direction: Array) -> float:
        """The step along the direction at which a part meets the end of its interval."""
        up, down = self.slacks(parts)
        with np.errstate(divide="ignore", over="ignore"):
            steps = np.where(direction > 0, up, down) / np.abs(direction)
        return float(steps.min(initial=np.inf))

    def gradient(self, parts: Array, barrier: float) -> Array:
        """The gradient of ½·softness·ν² − barrier·(log(high − ν) + log(ν − low))."""
        up, down = self.slacks(parts)
        return self.softness * parts + barrier / up - barrier / down

    def moved_multipliers(
        self, parts: Array, direction: Array, multipliers: tuple[Array, Array], barrier: float
    ) -> tuple[Array, Array]:
        """The multipliers of the two ends, moved as far as Newton's method wants and their signs allow."""
        up, down = self.slacks(parts)
        above, below = multipliers
        changes = (
            barrier / up - above + above * direction / up,
            barrier / down - below - below * direction / down,
        )
        with np.errstate(over="ignore"):
            shares = [
                np.divide(-now, change, out=np.full(now.shape, np.inf), where=change < 0).min(initial=np.inf)
                for now, change in zip(multipliers, changes, strict=True)
            ]
        length = min(1.0, SETTINGS.inside_interval * float(min(shares)))
        return above + length * changes[0], below + length * changes[1]

    def centred(self, residual: Array, barrier: float) -> Array:
        """The parts at which the gradient equals the residual of the row, for intervals with two ends or none.

        With ends −a and a the gradient is 2κν/(a² − ν²); with ends 0 and a it is taken for the same around a/2.
        """
        r = residual[self.row]
        ends = np.isfinite(self.high)
        high, low = np.where(ends, self.high, 1.0), np.where(ends, self.low, -1.0)
        middle, half = 0.5 * (high + low), 0.5 * (high - low)
        inside = middle + half**2 * r / (barrier + np.sqrt(barrier**2 + half**2 * r**2))
        free = np.divide(r, self.softness, out=np.zeros(r.shape), where=self.softness > 0)
        return np.where(ends, inside, np.where(np.isfinite(self.low), np.maximum(free, self.low + barrier), free))


# ----------------------------------------------------------------------------------------------------------------------
# The matrix of products between measured rows, B diag(x) Bᵀ, without B.
#
# Let query q act on the attributes Q by a Kronecker product of maps F, and query p on P by H. The block of the matrix
# between them needs only the marginal D of x on Q ∪ P:
#
#     (q, p)[i, j] = Σ over cells v of Q ∪ P of  D[v] · Π_{Q} F[i_a, v_a] · Π_{P} H[j_a, v_a].
#
# Attribute by attribute this is a linear map of D: F where only q has the attribute, H where only p has it, and where
# both have it the map with rows (i, j) and entries F[i, v]·H[j, v]. So each block is one more Kronecker product,
# applied to a small table, and all the small tables are summed from x together.


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one query: the axes of the table it acts on, its maps along them, and what each row is times.

    Where a map acts on several axes together there are fewer maps than axes, and no products of rows.
    """

    axes: tuple[int, ...]
    maps: tuple[LinearMap, ...]
    weights: Array


@dataclass(frozen=True, eq=False)
class _Block:
    """How the products of two queries' rows follow from a marginal of the table."""

    marginal: int
    product: Kronecker
    shape: tuple[int, ...]
    order: tuple[int, ...]


class RowProducts:
    """The matrix B diag(x) Bᵀ for tables x of one shape."""

    def __init__(self, shape: Sequence[int], queries: Sequence[Rows]) -> None:
        self._weights = np.concatenate([query.weights for query in queries])
        self._ends = np.cumsum([query.weights.size for query in queries])
        self._pairs = list(itertools.combinations_with_replacement(range(len(queries)), 2))
        unions = _unions(queries)
        self._sums = MarginalSums(shape, unions)
        self._blocks = [_block(queries[one], queries[other], unions) for one, other in self._pairs]

    def of(self, table: Array) -> Array:
        """The matrix for this table."""
        marginals = self._sums.of(table)
        starts = np.concatenate([[0], self._ends])
        matrix = np.empty((self._weights.size, self._weights.size))
        for (one, other), block in zip(self._pairs, self._blocks, strict=True):
            rows, columns = slice(*starts[one : one + 2]), slice(*starts[other : other + 2])
            applied = block.product.apply(marginals[block.marginal]).reshape(block.shape)
            matrix[rows, columns] = applied.transpose(block.order).reshape(matrix[rows, columns].shape)
            if one != other:
                matrix[columns, rows] = matrix[rows, columns].T
        matrix *= self._weights[:, None]
        matrix *= self._weights
        return matrix


def are_affordable(shape: Sequence[int], queries: Sequence[Rows]) -> bool:
    """Whether the matrix is small enough to factor, and its blocks come from tables that are small enough to sum."""
    joint = any(len(query.maps) < len(query.axes) for query in queries)
    if joint or sum(query.weights.size for query in queries) > SETTINGS.most_rows:
        return False
    pairs = itertools.combinations_with_replacement(queries, 2)
    work, largest = 0, 0
    for one, other in pairs:
        work += math.prod(shape[axis] for axis in {*one.axes, *other.axes})
        shared = [
            (here, other.maps[other.axes.index(axis)])
            for axis, here in zip(one.axes, one.maps, strict=True)
            if axis in other.axes
        ]
        entries = (here.rows * there.rows * here.columns for here, there in shared if not _both_identity(here, there))
        largest = max(largest, *entries, 0)
    most_work = max(SETTINGS.small_work, SETTINGS.work_per_cell * math.prod(shape))
    return largest <= SETTINGS.largest_shared_map and work <= most_work


def are_worth_factoring(shape: Sequence[int], queries: Sequence[Rows]) -> bool:
    """Whether, for squares, factoring the matrix is also faster than conjugate gradients."""
    rows = sum(query.weights.size for query in queries)
    few = rows <= SETTINGS.rows_for_squares or rows**3 <= SETTINGS.ratio_for_squares * math.prod(shape) * len(queries)
    return few and are_affordable(shape, queries)


def predicted_bytes(rows: int) -> int:
    """The memory of the matrix, its scaled copy and its factor."""
    return 3 * 8 * rows * rows


def _unions(queries: Sequence[Rows]) -> list[tuple[int, ...]]:
    pairs = itertools.combinations_with_replacement(queries, 2)
    return sorted({tuple(sorted({*one.axes, *other.axes})) for one, other in pairs})


def _block(one: Rows, other: Rows, unions: list[tuple[int, ...]]) -> _Block:
    axes = tuple(sorted({*one.axes, *other.axes}))
    maps: list[LinearMap] = []
    shape: list[int] = []
    places: dict[tuple[int, int], int] = {}
    for axis in axes:
        found = [
            (which, query.maps[query.axes.index(axis)])
            for which, query in enumerate((one, other))
            if axis in query.axes
        ]
        maps.append(found[0][1] if len(found) == 1 else _shared(found[0][1], found[1][1]))
        for which, each in found:
            places[which, axis] = len(shape)
            shape.append(each.rows)
    order = [places[0, axis] for axis in one.axes] + [places[1, axis] for axis in other.axes]
    return _Block(unions.index(axes), Kronecker(tuple(maps)), tuple(shape), tuple(order))


def _shared(one: LinearMap, other: LinearMap) -> LinearMap:
    """The map with rows (i, j) and entries F[i, v]·H[j, v]."""
    if _both_identity(one, other):
        size = one.columns
        places = np.arange(size)
        return SparseMap(sp.csr_array((np.ones(size), (places * (size + 1), places)), (size * size, size)))
    return SparseMap(sp.csr_array(scipy.linalg.khatri_rao(one.dense(), other.dense())))


def _both_identity(one: LinearMap, other: LinearMap) -> bool:
    return isinstance(one, IdentityMap) and isinstance(other, IdentityMap)
