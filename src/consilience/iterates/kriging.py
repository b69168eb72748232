"""Sums over records that were never released, given all that were: kriging (Matheron 1963; Cressie 1993, §3.4.5).

Chains of few points draw datasets that fit the rounds, but are too coarse for small noise: they get stuck, and their
draws differ by less than the truth does. So intervals rest on many points instead, whose masses alone are unknown:

    base      points x_i with masses m_i: what the chains drew, points on the way from one of them to another, where the
              chains are silent, and a few anywhere
    before    the number of records at x_i is m_i + z_i, z_i independent with variance τ m_i, as if records came in N/τ
              lumps; and all m_i may be off by one factor, 1 ± 1, since the total is noisy as well: A has a last column
              A m for it, which the formulas do not show
    rounds    y = A (m + z) + noise of known law, A_ji = φ_j(x_i), with the covariance S = τ A diag(m) Aᵀ + V

A sum f = F(m + z) over records is then drawn by Matheron's rule, a fresh z and a fresh noise e for each draw,

    f = F (m + z) + τ F diag(m) Aᵀ S⁻¹ (y + e − A (m + z)),

exact for Gaussian z and e, and with the exact law of the noise where it is Laplace's. What the rounds measured well is
as exact as they are; what lies between their cells is as uncertain as the lumps. Nothing is asked of the chains but
where records may be. τ is raised where the base does not explain the rounds: until rᵀS⁻¹r, r = y − A m, exceeds its
expectation by no more than two standard deviations.

Where a grid counted cells, it takes the place of the chains: with y_c ± √v the count of a cell and m_c the fitted one,
the records of the cell are m_c + t (y_c − m_c)/(t + v) in number, with the variance t v/(t + v), t the greater of m_c²
and the mean of all y² − v; and points of the cell share them as if they came in L lumps, or half of them in one where a
cell is unlike its neighbours: with u the mean of ((c − c') / (c + c'))² over their counts c', the variance is
u/2 + (1 − u/2) / L times that of a single lump. A column of A then is a point without the mean of its cell, and one
more column for each cell is that mean.

Cells are not wrong independently: a value that many records have (no capital gain, 40 hours) is at the same place of
all cells that hold it. So each part of each side has a column more: what changes if a share s of the records of its
cells sits together, a standard deviation of its points above their mean and not below, half of the difference between
the two. s is how far the counts of the parts on both sides differ from its own, as the mean of ((c − c') / (c + c'))²
over the two; beyond the bounds there is nothing. Neighbours of equal counts make it 0. In the two outer parts of a side
of the box the places are the ends: whoever lies beyond the bounds is moved to them.

Nor are they wrong independently along the border of two clusters: a grid whose centres are on one side of it may have
too many records there in all cells that the border divides. So the points may be put into groups (the records of a
cluster, those a round saw in one cluster and that are in another now), and each group has a column more: its records
are more frequent than supposed, or rarer, by one factor 1 ± σ in all cells, and the other records of these cells make
up for it. No cell's count changes.

With V^{−½} A diag(m) Aᵀ V^{−½} = Q diag(λ) Qᵀ, found once, all of this is a few products.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.iterates.chain import Simulated
from consilience.iterates.chain_kernels import Target, fill_statistics, statistics_size
from consilience.kernels.record_functions import no_statistic
from consilience.kernels.regions import CellGrid, Region
from consilience.kernels.rng import Generator

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

POINTS = 4000
BETWEEN_SHARE, ANYWHERE_SHARE = 0.3, 0.02
"""Of (0, 0.1, 0.3) and (0, 0.02, 0.05): without points between, intervals of clusters hold too rarely where noise is
small, and without points anywhere where the chains left out a whole group of records."""
MOST_STATISTICS = 1500
"""Rounds with more numbers together than these are used from the last one backward, as far as there is room."""
LARGEST_RAISE = 1e4
DRAWN_AT_ONCE = 10_000_000
GROUP_SPREAD = 0.75
"""σ: of 0, 1/2, 3/4 and 1 the one whose 90 % intervals of sizes came nearest to 90 % on S1 and Adult, while
those that held without it became a quarter wider at most (regions, ε as for `cell_clusters.LUMPS_OF_CELL`;
seeds 0 to 9)."""
TOTAL_SPREAD = 1.0
"""The standard deviation, before the rounds are heard, of the factor by which the total of the base is off."""


@dataclass(frozen=True, eq=False)
class Kriging:
    """The base and what the rounds say of it, ready to draw sums over records from."""

    base: Simulated
    shifts: Array
    """By how much the amount of each column is off, before the rounds are heard."""
    statistics: Array
    """A, a column for each point of the base, and one for all points together or those of `CountedCells.columns`."""
    weights: Array
    """The variance of each column's amount, in units of τ."""
    gaps: Array
    """y − A m."""
    scales: Array
    laplace: bool
    lump: float
    """τ: how many records come together."""
    misfit: float
    """rᵀS⁻¹r over its expectation; far above 1 where nothing explains the rounds."""
    values: Array
    vectors: Array
    """λ and Q."""
    cells: "CountedCells | None" = None
    """What the counts of cells say, where there are any."""

    @staticmethod
    def of(target: Target, drawn: Simulated, region: Region, rng: Generator, *, lumps: float) -> "Kriging | None":
        """What the rounds say if records came in so many lumps or fewer; None where a round has too many numbers."""
        base = _base(drawn, region, target.bounded, rng)
        told = NoisySums.of_rounds(target, base.points)
        if told is None:
            return None
        least = float(base.masses.sum()) / lumps
        return Kriging._told(
            told, base, np.append(base.masses, TOTAL_SPREAD**2 / least), np.zeros(len(base.masses) + 1), least
        )

    @staticmethod
    def of_cells(told: "NoisySums", cells: "CountedCells", *, lumps: float) -> "Kriging":
        """What noisy sums say beside counts of cells, if the records of a cell came in so many lumps or fewer."""
        together = cells.unevenness / 2 + (1 - cells.unevenness / 2) / lumps
        within = cells.masses**2 * (np.bincount(cells.cells) * together)[cells.cells]
        leaning = np.ones(cells.parts.shape[1] * cells.divisions)
        frequent = np.full(sum(int(each.max()) + 1 for each in cells.groups), GROUP_SPREAD**2)
        weights = np.concatenate([within, cells.variances, leaning, frequent])
        shifts = np.concatenate([np.zeros(len(within)), cells.shifts, np.zeros(len(leaning) + len(frequent))])
        return Kriging._told(told, cells.base, weights, shifts, 1.0, cells)

    @staticmethod
    def _told(
        told: "NoisySums",
        base: Simulated,
        weights: Array,
        shifts: Array,
        least: float,
        cells: "CountedCells | None" = None,
    ) -> "Kriging":
        statistics = _columns(told.statistics, base, cells)
        gaps = told.released - told.statistics @ base.masses - statistics @ shifts
        whitened = statistics / told.deviations[:, None]
        values, vectors = np.linalg.eigh((whitened * weights) @ whitened.T)
        values = np.maximum(values, 0.0)
        seen = (vectors.T @ (gaps / told.deviations)) ** 2
        most = 1 + 2 * np.sqrt((5.0 if told.laplace else 2.0) / max(len(gaps), 1))
        lump = _lump(seen, values, least, most=most) if len(gaps) else least
        misfit = float(np.mean(seen / (lump * values + 1))) if len(gaps) else 1.0
        return Kriging(
            base, shifts, statistics, weights, gaps, told.scales, told.laplace, lump, misfit, values, vectors, cells
        )

    def draws(self, sums: Array, number: int, rng: Generator) -> tuple[Array, Array]:
        """The expectation of some sums over records, and draws of them, a row each.

        `sums` is F: a row for each sum, with what a record at each point of the base adds to it.
        """
        columns = _columns(sums, self.base, self.cells)
        before = sums @ self.base.masses + columns @ self.shifts
        both = np.concatenate([columns, self.statistics]) * np.sqrt(self.lump * self.weights)
        if len(both) < number:  # as many draws of fewer amounts, with the same covariance
            both = np.asarray(np.linalg.qr(both.T, mode="r")).T
        found = [
            self._draws(columns, both, each, rng) for each in _in_parts(number, DRAWN_AT_ONCE // both.shape[1] + 1)
        ]
        expected = before + self.lump * ((columns * self.weights) @ self.statistics.T) @ self._solved(self.gaps)
        return expected, (expected[:, None] + np.concatenate(found, axis=1)).T

    def _draws(self, columns: Array, both: Array, number: int, rng: Generator) -> Array:
        """Draws of how far the sums are from their expectation, a column each; `both` turns normal draws into z."""
        shape = (len(self.gaps), number)
        noise = rng.laplace(size=shape) if self.laplace else rng.standard_normal(shape)
        asked, released = np.split(both @ rng.standard_normal((both.shape[1], number)), [len(columns)])
        told = self._solved(self.scales[:, None] * noise - released)
        return asked + self.lump * ((columns * self.weights) @ self.statistics.T) @ told

    def masses(self) -> Array:
        """The expected number of records at each point of the base, none negative."""
        moved = self.lump * (self.statistics.T @ self._solved(self.gaps))
        return self.base.masses * np.maximum(1 + moved[:-1] + self.weights[-1] * moved[-1], 0.0)

    def _solved(self, right: Array) -> Array:
        """S⁻¹ applied to the columns of `right`."""
        deviations = self.scales * (np.sqrt(2.0) if self.laplace else 1.0)
        turned = self.vectors.T @ (right.T / deviations).T
        return ((self.vectors @ (turned.T / (self.lump * self.values + 1)).T).T / deviations).T


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Noisy sums over records: what a record at each point of a base adds to each of them, and what was released."""

    statistics: Array
    released: Array
    scales: Array
    """Of Laplace noise, or standard deviations of Gaussian noise."""
    laplace: bool

    @property
    def deviations(self) -> Array:
        """The standard deviation of each sum's noise."""
        return self.scales * (np.sqrt(2.0) if self.laplace else 1.0)

    @staticmethod
    def of_rounds(target: Target, points: Array) -> "NoisySums | None":
        """What the last rounds released, as far as there is room; None where a single one has too many numbers."""
        size = target.released.shape[1]
        used = min(len(target.thetas), MOST_STATISTICS // size)
        if used == 0:
            return None
        rounds = slice(len(target.thetas) - used, None)
        statistics = np.concatenate(
            [_filled(target.kind, target.own, theta, points, size) for theta in target.thetas[rounds]]
        )
        linear, quadratic = target.linear[rounds].ravel(), target.quadratic[rounds].ravel()
        laplace = bool((linear > 0).all())
        scales = 1 / linear if laplace else np.sqrt(0.5 / quadratic)
        return NoisySums(statistics, target.released[rounds].ravel(), scales, laplace)

    def and_total(self, total: float, scale: float) -> "NoisySums":
        """These sums, and the number of records."""
        everything = np.ones((1, self.statistics.shape[1]))
        return NoisySums(
            np.concatenate([self.statistics, everything]),
            np.append(self.released, total),
            np.append(self.scales, scale),
            self.laplace,
        )


@dataclass(frozen=True, eq=False)
class CountedCells:
    """Points of the cells of a grid, and what noisy counts say of the cells."""

    base: Simulated
    """Points, a cell's with equal parts of its fitted count; and those with masses again without, for each attribute
    where they are if their part of its side leans to the upper end, and to the lower one."""
    cells: Integers
    """The cell of each point that is no copy, from 0 on; no cell is without points."""
    parts: Integers
    """For each of these points, a row, which part of each side it is on."""
    divisions: int
    shifts: Array
    variances: Array
    unevenness: Array
    """Of each cell beside its neighbours, from 0 to 1: `unevenness`."""
    groups: tuple[Integers, ...] = ()
    """Each says of these points which group they are in, from 0 on: what may be more frequent in all cells together."""

    @staticmethod
    def of(
        points: Array, cells: Integers, fitted: Array, noisy: Array, *, variance: float, grid: CellGrid
    ) -> "CountedCells":
        """Counts with noise of this variance, and non-negative ones that were fitted to them."""
        before = np.maximum(fitted**2, np.mean(noisy**2) - variance)
        gain = before / (before + variance)
        masses, parts = (fitted / np.bincount(cells))[cells], grid.parts[cells]
        copies = [points]
        held = masses > 0
        for axis in range(parts.shape[1]):
            part = parts[held, axis]
            totals = np.bincount(grid.parts[:, axis], fitted, grid.divisions).astype(np.float64)
            share = leaning_shares(totals)[part]
            for place in _heaps(points[held, axis], part, masses[held], grid):
                moved = points[held]
                moved[:, axis] += share * (place[part] - moved[:, axis])
                copies.append(grid.region.project(moved))
        every = np.concatenate(copies)
        base = Simulated(every, np.append(masses, np.zeros(len(every) - len(masses))))
        return CountedCells(
            base, cells, parts, grid.divisions, gain * (noisy - fitted), gain * variance, unevenness(fitted, grid)
        )

    @property
    def masses(self) -> Array:
        """Of the points that are no copies."""
        return self.base.masses[: len(self.cells)]

    def columns(self, sums: Array) -> Array:
        """What the amount of each column adds to the sums: of each point, cell, part of each side, and group."""
        points, copies = np.split(sums, [len(self.cells)], axis=1)
        numbers = np.bincount(self.cells)
        means = _summed(points, self.cells) / numbers
        held = self.masses > 0
        copies = copies.reshape(len(sums), self.parts.shape[1], 2, int(held.sum()))
        changes = (copies[:, :, 0] - copies[:, :, 1]) / 2 * self.masses[held]
        every = np.arange(self.divisions)
        leaning = [
            changes[:, axis] @ (part[:, None] == every).astype(np.float64)
            for axis, part in enumerate(self.parts[held].T)
        ]
        apart = points - means[:, self.cells]
        frequent = [_summed(apart * self.masses, each) for each in self.groups]
        return np.concatenate([apart, means, *leaning, *frequent], axis=1)


def _summed(rows: Array, labels: Integers) -> Array:
    """Each row's sums over the points of each label."""
    found = np.zeros((len(rows), int(labels.max()) + 1))
    for row, into in zip(rows, found, strict=True):
        into += np.bincount(labels, row)
    return found


def unevenness(counts: Array, grid: CellGrid) -> Array:
    """How far the count c of each cell is from those c' of its neighbours: the mean of ((c − c') / (c + c'))².

    The neighbours are the cells of the grid that share a side; beyond the bounds, and beyond a ball, there is none.

    >>> unevenness(np.array([9.0, 0.0, 4.0, 4.0]), CellGrid(4, Region("box", 1))).round(2)
    array([1. , 1. , 0.5, 0. ])
    """
    shape = (grid.divisions,) * grid.region.dimensions
    whole = np.full(shape, np.nan)
    places = tuple(grid.parts.T)
    whole[places] = counts
    total, number = np.zeros(shape), np.zeros(shape)
    for axis in range(len(shape)):
        along = np.moveaxis(whole, axis, 0)
        lower, upper = along[:-1], along[1:]
        sums = lower + upper
        known = np.isfinite(sums)
        steps = np.where(known & (sums > 0), (upper - lower) / np.where(sums > 0, sums, 1.0), 0.0) ** 2
        for amounts, found in ((total, steps), (number, known)):
            into = np.moveaxis(amounts, axis, 0)
            into[:-1] += found
            into[1:] += found
    return total[places] / np.maximum(number[places], 1.0)


def leaning_shares(counts: Array) -> Array:
    """The share of the records of each part of a side that may sit at one place, given how many each part has.

    >>> leaning_shares(np.array([9.0, 0.0, 4.0, 4.0])).round(2)
    array([1. , 1. , 0.5, 0.5])
    """
    steps = np.diff(counts, prepend=0.0, append=0.0)
    sums = np.append(counts, 0.0) + np.append(0.0, counts)
    uneven = np.divide(steps, sums, out=np.zeros_like(steps), where=sums > 0) ** 2
    return (uneven[1:] + uneven[:-1]) / 2


def _heaps(places: Array, part: Integers, masses: Array, grid: CellGrid) -> tuple[Array, Array]:
    """An upper and a lower place in each part of a side: a standard deviation off the mean, or the ends."""
    totals = np.maximum(np.bincount(part, masses, grid.divisions), np.finfo(np.float64).tiny)
    means = np.bincount(part, masses * places, grid.divisions) / totals
    spread = np.sqrt(np.bincount(part, masses * (places - means[part]) ** 2, grid.divisions) / totals)
    upper, lower = means + spread, means - spread
    if grid.region.kind == "box":
        outer, edges = [0, -1], np.linspace(-1.0, 1.0, grid.divisions + 1)
        upper[outer], lower[outer] = edges[1:][outer], edges[:-1][outer]
    return upper, lower


def statistics_of(kind: int, theta: Array, points: Array) -> Array:
    """What each point adds to the statistics under θ, a column each."""
    return _filled(kind, no_statistic(), theta, points, statistics_size(kind, theta.shape))


def _filled(kind: int, own: Any, theta: Array, points: Array, size: int) -> Array:
    found = np.zeros((size, len(points)))
    fill_statistics(kind, own, np.ascontiguousarray(theta), np.ascontiguousarray(points), found)
    return found


def _columns(sums: Array, base: Simulated, cells: CountedCells | None) -> Array:
    """What the amount of each column adds to the sums."""
    return np.column_stack([sums, sums @ base.masses]) if cells is None else cells.columns(sums)


def _in_parts(number: int, most: int) -> list[int]:
    """The number as a sum of numbers up to this one."""
    return [min(most, number - start) for start in range(0, number, most)]


def _base(drawn: Simulated, region: Region, bounded: int, rng: Generator) -> Simulated:
    """Points of the chains, points between two of them, and points anywhere; labels stay those of the first."""
    total = float(drawn.masses.sum())
    shares = drawn.masses / total
    chosen, start, end = (drawn.points[rng.choice(len(shares), POINTS, p=shares)] for _ in range(3))
    between = start.copy()
    between[:, :bounded] += rng.random((POINTS, 1)) * (end - start)[:, :bounded]
    anywhere = chosen[: POINTS // 4].copy()
    anywhere[:, :bounded] = region.project(rng.uniform(-1.0, 1.0, (POINTS // 4, bounded)))
    parts = (chosen, between, anywhere)
    amounts = (1 - BETWEEN_SHARE - ANYWHERE_SHARE, BETWEEN_SHARE, ANYWHERE_SHARE)
    masses = [np.full(len(part), total * amount / len(part)) for part, amount in zip(parts, amounts, strict=True)]
    return Simulated(np.concatenate(parts), np.concatenate(masses))


def _lump(seen: Array, values: Array, least: float, *, most: float) -> float:
    """The smallest τ from `least` up under which the base explains the rounds, to 1 %."""

    def explains(factor: float) -> bool:
        return bool(np.mean(seen / (least * factor * values + 1)) <= most)

    if explains(1.0):
        return least
    low, high = 0.0, np.log(LARGEST_RAISE)
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if explains(float(np.exp(middle))) else (middle, high)
    return least * float(np.exp(high))
