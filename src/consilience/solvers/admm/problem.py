"""The problem that the ADMM iterations solve, in one form for all losses, bounds, sets and strategies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.solvers.fit import Infeasible, Loss, drawn_to_zero
from consilience.solvers.projections.affine import Graph, OnCells
from consilience.solvers.projections.cells import AffineOrCone, Array, ConvexSet, SeparableSet, SupportedSet


@dataclass(frozen=True, eq=False)
class Problem:
    """min F(x) over low ≤ x ≤ high for x in every set, where F is the loss of x − noisy, a sum over cells.

    With a·|r| + q·r² for the loss of a cell, everything that an iteration or a certificate needs of F is a formula for
    one cell. Cells that were not measured have weight 0.
    """

    noisy: Array
    weights: Array
    loss: Loss
    low: Array
    high: Array
    sets: tuple[ConvexSet, ...]

    def value(self, point: Array) -> float:
        """F, the bounds left aside."""
        return self.loss.value(point, self.noisy, self.weights)

    # In one dimension the minimiser under bounds is the free one, clipped. The free one is Θ of Lee et al., (14).
    def proximal(self, point: Array, rho: float) -> Array:
        """argmin F(x) + ρ/2·‖x − point‖² within the bounds."""
        return np.clip(self.loss.prox(point, self.noisy, self.weights, step=1.0 / rho), self.low, self.high)

    def minimiser(self) -> Array:
        """A point where F is least, the sets left aside."""
        return np.clip(self.noisy, self.low, self.high)

    def least(self) -> float:
        """The least value of F: what no constraint can undercut."""
        return self.value(self.minimiser())

    # F*(g) = sup_x g·x − F(x). With curvature the free maximiser is y + sign(g)·(|g| − a)₊/(2q). Without curvature it
    # is y for |g| ≤ a, and otherwise the bound in the direction of g.
    def conjugate(self, slope: Array) -> float:
        """F*(slope), for a slope within `slopes`."""
        linear, quadratic = self._coefficients
        beyond = drawn_to_zero(slope, linear)
        away = np.where(beyond == 0, 0.0, np.copysign(np.inf, beyond))
        np.divide(beyond, 2.0 * quadratic, out=away, where=quadratic > 0)
        best = np.clip(self.noisy + away, self.low, self.high)
        return float(np.vdot(slope, best)) - self.value(best)

    @cached_property
    def slopes(self) -> tuple[Array, Array]:
        """Between which slopes F* is finite: there F outgrows the slope, or a bound stops the cell."""
        linear, quadratic = self._coefficients
        falling = np.where((quadratic > 0) | np.isfinite(self.low), -np.inf, -linear)
        rising = np.where((quadratic > 0) | np.isfinite(self.high), np.inf, linear)
        return falling, rising

    @cached_property
    def _coefficients(self) -> tuple[Array, Array]:
        return self.loss.coefficients(self.weights)

    @cached_property
    def measured(self) -> NDArray[np.bool_]:
        return self.weights > 0

    def noise_at(self, point: Array, floor: float) -> float:
        """The root mean square of the residuals, and at least this part of the noisy values'."""
        if not np.any(self.measured):
            return 1.0
        values = _root_mean_square(self.noisy[self.measured])
        residual = _root_mean_square((point - self.noisy)[self.measured])
        return max(residual, floor * values) or 1.0

    def slope_at(self, noise: float) -> float:
        """The loss's typical slope at a residual of that size."""
        if not np.any(self.measured):
            return 1.0
        linear, quadratic = self._coefficients
        return _root_mean_square((linear + 2.0 * quadratic * noise)[self.measured])


def _root_mean_square(values: Array) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    return largest * float(np.sqrt(np.mean((values / largest) ** 2))) if largest > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Setting:
    """A problem as it is iterated on, and the way back to cells.

    With a strategy A the iteration lives on pairs (s·x, r): the loss and the noisy answers belong to r, the bounds and
    the sets to x, and r = A x is one more set, a graph. Balanced, rows are weighted beforehand, so that all answers
    have noise of one size, and s makes the columns of A about as long as 1: then the iteration is free of units.
    """

    problem: Problem
    graph: Graph | None
    scale: float
    shape: tuple[int, ...]

    def cells(self, point: Array) -> Array:
        return point if self.graph is None else self.graph.split(point)[0] / self.scale

    def point(self, cells: Array) -> Array:
        return cells if self.graph is None else self.graph.join(self.scale * cells)


def common_bounds(sets: Sequence[ConvexSet], shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The bounds of all sets that bound cells one by one; `Infeasible` where they leave a cell no value."""
    low, high = np.full(shape, -np.inf), np.full(shape, np.inf)
    separable = [each for each in sets if isinstance(each, SeparableSet)]
    for each in separable:
        lower, upper = each.bounds(shape)
        low, high = np.maximum(low, lower), np.minimum(high, upper)
    apart = float((low - high).max(initial=-np.inf))
    if apart > 0:
        at = np.unravel_index(int(np.argmax(low - high)), shape)
        one = max(separable, key=lambda each: each.bounds(shape)[0][at]).name
        other = min(separable, key=lambda each: each.bounds(shape)[1][at]).name
        raise Infeasible(
            f"{one} wants cell {tuple(int(i) for i in at)} to be at least {low[at]:g}, {other} at most {high[at]:g}; "
            "drop or correct one of them",
            violation=apart / 2,
            constraints=(one, other),
        )
    return low, high


def plain_setting(noisy: Array, weights: Array, loss: Loss, sets: Sequence[ConvexSet]) -> Setting:
    """The problem over the cells themselves."""
    low, high = common_bounds(sets, noisy.shape)
    others = tuple(each for each in sets if not isinstance(each, SeparableSet))
    return Setting(Problem(noisy, weights, loss, low, high, others), None, 1.0, noisy.shape)


def strategy_setting(
    strategy: Any, noisy: Array, weights: Array, loss: Loss, sets: Sequence[ConvexSet], *, balanced: bool
) -> Setting:
    """The problem over cells and answers together, in its own units if balanced, else as it was given."""
    cells = strategy.shape[1]
    low, high = common_bounds(sets, (cells,))
    scale = 1.0
    if balanced:
        kept = np.flatnonzero(weights > 0)
        strategy, noisy = _weighted_rows(strategy[kept], weights[kept]), weights[kept] * noisy[kept]
        weights = np.ones(kept.size)
        energy = float((strategy.multiply(strategy) if sp.issparse(strategy) else strategy * strategy).sum())
        scale = float(np.sqrt(energy / cells)) if energy > 0 else 1.0
    graph = Graph(strategy / scale)
    nothing, free = np.zeros(cells), np.full(noisy.size, np.inf)
    problem = Problem(
        noisy=np.concatenate([nothing, noisy]),
        weights=np.concatenate([nothing, weights]),
        loss=loss,
        low=np.concatenate([scale * low, -free]),
        high=np.concatenate([scale * high, free]),
        sets=(graph, *(OnCells(each, cells, scale) for each in sets if not isinstance(each, SeparableSet))),
    )
    return Setting(problem, graph, scale, (cells,))


def _weighted_rows(matrix: Any, weights: Array) -> Any:
    """The matrix with each row multiplied by its weight."""
    if sp.issparse(matrix):
        return sp.csr_array(sp.dia_array((weights[None, :], [0]), shape=(weights.size,) * 2) @ matrix)
    return weights[:, None] * matrix


# ----------------------------------------------------------------------------------------------------------------------
# How far from optimal a point can be at most: lower bounds from the normals that an iteration finds on its way.
#
# For any vectors v_i and any x in all sets, F(x) = F(x) + Σ⟨v_i, x⟩ − Σ⟨v_i, x⟩ ≥ −F*(−Σ v_i) − Σ σ_i(v_i), where σ_i
# is the support function of set i. A projection gives such vectors away, together with their support: v = p − Π(p) is
# normal to the set at Π(p), so σ(v) = ⟨v, Π(p)⟩. Normals may be scaled down, and that is enough to keep F* finite,
# which it is around 0 wherever a cell was measured or is bounded. So the bound holds for every set whose projection is
# right, also for those that users write, and becomes tight as the iteration converges.
#
# A cell that was neither measured nor bounded on the side of its slope allows no slope at all to that side, and scaling
# does not help. Then one set's normal is steered until the slope is allowed, if the set is affine or a cone.


@dataclass(frozen=True)
class BoundSettings:
    """What tunes lower bounds; by trial, no figures kept."""

    steering_rounds: int = 100
    """Alternating projections by which a normal is steered."""
    no_slope: float = 1e-12
    """Slopes below this part of the steepest normal are taken for zero where only zero is allowed."""
    nearly_none: float = 1e-3
    """Slopes in excess by this part of a normal's largest entry nearly vanish."""
    largest_correction: int = 10_000_000
    """Where slopes must vanish exactly, a dense system of up to this many entries is solved once they nearly do."""


SETTINGS = BoundSettings()


@dataclass(frozen=True, eq=False)
class Normal:
    """A direction, and how far a set reaches in it."""

    of: ConvexSet
    direction: Array
    support: float


def lower_bound(problem: Problem, normals: Sequence[Normal], point: Array) -> float:
    """A value that F exceeds or equals wherever all constraints hold; `point` tells how large the counts are."""
    trivial = problem.least()
    if not normals:
        return trivial
    slope = -np.sum([each.direction for each in normals], axis=0)
    reach = sum(each.support for each in normals)
    slope, reach = _steered(problem, normals, slope, reach)
    if slope is None:
        return trivial
    falling, rising = problem.slopes
    allowed = np.where(slope > 0, rising, falling)
    steep = (np.abs(slope) > np.abs(allowed)) & (allowed != 0)
    share = float(np.min(allowed[steep] / slope[steep], initial=1.0))
    allowed_slope = np.clip(share * slope, falling, rising)
    rounded_away = 2.0 * float(np.vdot(np.abs(share * slope - allowed_slope), np.abs(point)))
    return max(trivial, -problem.conjugate(allowed_slope) - share * reach - rounded_away)


def _steered(problem: Problem, normals: Sequence[Normal], slope: Array, reach: float) -> tuple[Array | None, float]:
    """Slope and reach after one normal was changed so that every cell that allows no slope has none."""
    falling, rising = problem.slopes
    low, high = np.where(falling == 0, 0.0, -np.inf), np.where(rising == 0, 0.0, np.inf)
    rounding = SETTINGS.no_slope * max(float(np.abs(each.direction).max(initial=0.0)) for each in normals)
    if np.all((low - rounding <= slope) & (slope <= high + rounding)):
        return slope, reach
    for each in normals:
        for direction, support in _candidates(each, slope, low, high):
            steered = slope + each.direction - direction
            if np.all((low - rounding <= steered) & (steered <= high + rounding)):
                return steered, reach - each.support + support
    return None, reach


def _candidates(each: Normal, slope: Array, low: Array, high: Array) -> Iterator[tuple[Array, float]]:
    """Directions to take the normal's place, with their support, so that the slope comes between low and high.

    One-sided bounds are aimed at from a distance as large as the excess, so that they are met exactly.
    """
    excess = float(np.abs(slope - np.clip(slope, low, high)).max())
    others = slope + each.direction
    inner_low = np.where(np.isinf(high), low + excess, low)
    inner_high = np.where(np.isinf(low), high - excess, high)
    if isinstance(each.of, Graph):
        cells = each.of.matrix.shape[1]
        yield each.of.steered(each.direction, (others - inner_high)[:cells], (others - inner_low)[:cells]), 0.0
        near = (np.minimum(np.abs(slope - low), np.abs(slope - high)) <= 10 * excess)[:cells]
        vanishes = excess <= SETTINGS.nearly_none * float(np.abs(each.direction).max())
        if vanishes and near.sum() * len(slope) <= SETTINGS.largest_correction:
            yield each.of.set_to(each.direction, others[:cells], near), 0.0
    elif isinstance(each.of, AffineOrCone):
        direction = each.direction
        for _ in range(SETTINGS.steering_rounds):
            direction = each.of.polar(np.clip(direction, others - inner_high, others - inner_low))
            if np.all((others - high <= direction) & (direction <= others - low)):
                break
        yield direction, each.of.support(direction)
    elif isinstance(each.of, SupportedSet):
        direction = np.clip(each.direction, others - high, others - low)
        yield direction, each.of.support(direction)
