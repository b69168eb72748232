"""How far from optimal a point can be at most: lower bounds from the normals that an iteration finds on its way.

For any vectors v_i and any x in all sets, F(x) = F(x) + Σ⟨v_i, x⟩ − Σ⟨v_i, x⟩ ≥ −F*(−Σ v_i) − Σ σ_i(v_i), where σ_i is
the support function of set i. A projection gives such vectors away, together with their support: v = p − Π(p) is
normal to the set at Π(p), so σ(v) = ⟨v, Π(p)⟩. Normals may be scaled down, and that is enough to keep F* finite, which
it is around 0 wherever a cell was measured or is bounded. So the bound holds for every set whose projection is right,
also for those that users write, and becomes tight as the iteration converges.

A cell that was neither measured nor bounded on the side of its slope allows no slope at all to that side, and scaling
does not help. Then one set's normal is steered until the slope is allowed, if the set is affine or a cone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from consilience.solvers.admm.problem import Problem
from consilience.solvers.projections.convex_set import AffineOrCone, Array, ConvexSet, SupportedSet
from consilience.solvers.projections.graph import Graph

STEERING_ROUNDS = 100
ROUNDING = 1e-12
"""Slopes below this part of the steepest normal are taken for zero where only zero is allowed."""
NEARLY = 1e-3
LARGEST_CORRECTION = 10_000_000
"""Where slopes must vanish exactly, a dense system of up to this many entries is solved once they nearly do."""


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
    rounding = ROUNDING * max(float(np.abs(each.direction).max(initial=0.0)) for each in normals)
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
        if excess <= NEARLY * float(np.abs(each.direction).max()) and near.sum() * len(slope) <= LARGEST_CORRECTION:
            yield each.of.set_to(each.direction, others[:cells], near), 0.0
    elif isinstance(each.of, AffineOrCone):
        direction = each.direction
        for _ in range(STEERING_ROUNDS):
            direction = each.of.polar(np.clip(direction, others - inner_high, others - inner_low))
            if np.all((others - high <= direction) & (direction <= others - low)):
                break
        yield direction, each.of.support(direction)
    elif isinstance(each.of, SupportedSet):
        direction = np.clip(each.direction, others - high, others - low)
        yield direction, each.of.support(direction)
