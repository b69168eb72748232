"""How far from optimal a point can be at most: lower bounds from the normals that an iteration finds on its way.

For any vectors v_i and any x in all sets, F(x) = F(x) + Σ⟨v_i, x⟩ − Σ⟨v_i, x⟩ ≥ −F*(−Σ v_i) − Σ σ_i(v_i), where σ_i is
the support function of set i. A projection gives such vectors away, together with their support: v = p − Π(p) is
normal to the set at Π(p), so σ(v) = ⟨v, Π(p)⟩. Normals may be scaled, and that is enough to keep F* finite: F* is finite
around 0 wherever a cell was measured or is bounded. So the bound holds for every set whose projection is right, also
for those the user writes, and becomes tight as the iteration converges.

A cell that was neither measured nor bounded on the side of its slope allows no slope at all to that side, and scaling
does not help. Then one set's normal is steered until the slope is allowed, if the set is affine or a cone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consilience.numerics.admm_problem import Problem
from consilience.numerics.projections.convex_set import AffineOrCone, Array, ConvexSet, SupportedSet
from consilience.numerics.projections.graph import Graph

STEERING_ROUNDS = 100
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Normal:
    """A direction, and how far a set reaches in it."""

    of: ConvexSet
    direction: Array
    support: float


def lower_bound(problem: Problem, normals: Sequence[Normal]) -> float:
    """A value that F exceeds or equals wherever all constraints hold."""
    trivial = -problem.conjugate(np.zeros_like(problem.noisy))
    slope = -np.sum([each.direction for each in normals], axis=0)
    reach = sum(each.support for each in normals)
    slope, reach = _steered(problem, normals, slope, reach)
    if slope is None:
        return trivial
    falling, rising = problem.slopes
    allowed = np.where(slope > 0, rising, falling)
    steep = (np.abs(slope) > np.abs(allowed)) & (allowed != 0)
    share = float(np.min(allowed[steep] / slope[steep], initial=1.0))
    slope = np.clip(share * slope, falling, rising)
    return max(trivial, -problem.conjugate(slope) - share * reach)


def _steered(
    problem: Problem, normals: Sequence[Normal], slope: Array, reach: float
) -> tuple[Array | None, float]:
    """Slope and reach after one normal was changed so that every cell that allows no slope has none."""
    falling, rising = problem.slopes
    low, high = np.where(falling == 0, 0.0, -np.inf), np.where(rising == 0, 0.0, np.inf)
    rounding = ROUNDING * max(float(np.abs(each.direction).max(initial=0.0)) for each in normals)
    if np.all((low - rounding <= slope) & (slope <= high + rounding)):
        return slope, reach
    for each in normals:
        found = _steer_one(each, slope, low, high)
        if found is not None:
            change, support = found
            steered = slope - change
            if np.all((low - rounding <= steered) & (steered <= high + rounding)):
                return steered, reach - each.support + support
    return None, reach


def _steer_one(each: Normal, slope: Array, low: Array, high: Array) -> tuple[Array, float] | None:
    """A change of one normal that brings slope − change between low and high, and its support then."""
    excess = np.abs(slope - np.clip(slope, low, high)).max()
    inner_low = np.where(np.isfinite(low) & np.isinf(high), low + excess, low)
    inner_high = np.where(np.isfinite(high) & np.isinf(low), high - excess, high)
    others = slope + each.direction
    if isinstance(each.of, Graph):
        cells = each.of.matrix.shape[1]
        bounds = (others - inner_high)[:cells], (others - inner_low)[:cells]
        steered = each.of.steered(each.direction, *bounds)
        return steered - each.direction, 0.0
    if isinstance(each.of, AffineOrCone):
        steered = each.direction
        for _ in range(STEERING_ROUNDS):
            steered = each.of.polar(np.clip(steered, others - inner_high, others - inner_low))
            if np.all((others - high <= steered) & (steered <= others - low)):
                break
        return steered - each.direction, each.of.support(steered)
    if isinstance(each.of, SupportedSet):
        steered = np.clip(each.direction, others - high, others - low)
        return steered - each.direction, each.of.support(steered)
    return None
