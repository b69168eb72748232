"""Tables of which one marginal is known: the cells fall into groups with a known total each, in closed form.

The total of a group has one dual t, the same for all its cells. The best response of a cell is a nondecreasing,
piecewise linear function of t (see `best_responses`), so the dual at which the responses sum to the total N is found by
sorting the places where they bend: O(n log n). With equal weights this is the projection on a simplex.

For L1 the responses jump. A group whose positive parts sum to more than N takes the difference from the cells that are
cheapest to move, and one that has too little adds it to the cheapest cells; among cells of equal cost, all optima cost
the same, and the one with the least Σ w²(x − y)² is again a projection. Cells without weight are cheapest of all; they
share what is left equally.
"""

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import announce
from consilience.solvers.marginal_tables.known_marginals import KnownMarginal
from consilience.solvers.marginal_tables.marginal_basis import CellLayout, Vector
from consilience.solvers.marginal_tables.problem import CellCosts, sum_of_least_costs

SAME_PRICE = 1e-12
"""Slopes that differ by this share count as equal."""


@dataclass(frozen=True, eq=False)
class GroupedFit:
    """Cells, the dual of each group's total, and the same for each cell."""

    cells: Vector
    duals: Vector
    image: Vector

    def bound(self, layout: CellLayout, known: KnownMarginal, costs: CellCosts, ceiling: Vector, floor: bool) -> float:
        """A number that no table with these totals falls below."""
        free = ceiling > 0.0
        held = costs.of_moves(np.where(free, 0.0, costs.noisy))
        costs = costs.limited_to(free)
        missing = known.values - layout.marginal(costs.noisy, known.places)
        low = np.where(free, -costs.noisy if floor else -np.inf, 0.0)
        high = np.where(free, ceiling - costs.noisy, 0.0)
        least = sum_of_least_costs(costs.slope, costs.curvature, low, high, self.image)
        return held + float(missing.reshape(-1) @ self.duals + least)


def fit_groups(
    layout: CellLayout,
    known: KnownMarginal,
    costs: CellCosts,
    *,
    free: NDArray[np.bool_],
    floor: bool,
) -> GroupedFit:
    """The optimal table that has this marginal."""
    announce(_fit_groups)
    totals = known.values
    others = tuple(place for place in range(len(layout.sizes)) if place not in known.places)
    order = (*known.places, *others)

    def grouped(values: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(values.reshape(layout.sizes).transpose(order)).reshape(totals.size, -1)

    def ungrouped(values: Vector) -> Vector:
        shape = [layout.sizes[place] for place in order]
        return np.ascontiguousarray(values.reshape(shape).transpose(np.argsort(order))).reshape(-1)

    noisy = grouped(costs.noisy)
    cells, duals = np.zeros_like(noisy), np.zeros(totals.size)
    parts = (noisy, grouped(costs.slope), grouped(costs.curvature), grouped(free))
    _fit_groups(*parts, totals.reshape(-1), floor, cells, duals)
    image = np.repeat(duals, noisy.shape[1]).reshape(noisy.shape)
    return GroupedFit(ungrouped(cells), duals, ungrouped(image))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _fit_groups(y, a, q, free, totals, floor, x, duals):  # pragma: no cover - compiled
    for g in range(totals.shape[0]):
        kept = np.flatnonzero(free[g])
        if kept.shape[0] == 0:
            continue
        found, dual = _fit_group(y[g][kept], a[g][kept], q[g][kept], totals[g], floor)
        duals[g] = dual
        for j in range(kept.shape[0]):
            x[g, kept[j]] = found[j]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _fit_group(y, a, q, total, floor):  # pragma: no cover - compiled
    """The cells of one group and its dual."""
    unmeasured = (a == 0.0) & (q == 0.0)
    measured = np.flatnonzero(~unmeasured)
    x = np.zeros(y.shape[0])
    rest = total
    for j in measured:
        x[j] = max(y[j], 0.0) if floor else y[j]
        rest -= x[j]
    if measured.shape[0] < y.shape[0] and (rest >= 0.0 or not floor):
        share = rest / (y.shape[0] - measured.shape[0])
        x[unmeasured] = share
        return x, 0.0
    if q[measured[0]] > 0.0:
        part, dual = _fit_convex(y[measured], a[measured], q[measured], total, floor)
        x[measured] = part
        return x, dual
    return _fit_linear(y, a, x, measured, rest, floor)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _fit_linear(y, a, x, measured, rest, floor):  # pragma: no cover - compiled
    """Move the cells x by `rest` in all, the cheapest first; x is where a cell costs least."""
    by_slope = measured[np.argsort(a[measured])]
    begin = 0
    while begin < by_slope.shape[0]:
        slope = a[by_slope[begin]]
        end = begin
        room = 0.0
        while end < by_slope.shape[0] and a[by_slope[end]] <= slope * (1.0 + SAME_PRICE):
            room += x[by_slope[end]]
            end += 1
        members = by_slope[begin:end]
        if rest >= 0.0 or not floor or room + rest >= 0.0 or end == by_slope.shape[0]:
            wanted = max(room + rest, 0.0) if floor else room + rest
            centres = x[members] if rest < 0.0 else y[members]
            part, _ = _fit_convex(centres, np.zeros(end - begin), np.ones(end - begin), wanted, floor)
            x[members] = part
            return x, slope if rest >= 0.0 else -slope
        rest += room
        x[members] = 0.0
        begin = end
    return x, 0.0


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _fit_convex(y, a, q, total, floor):  # pragma: no cover - compiled
    """The responses y moved by the excess of t over ±a, over 2q, at the dual t where they sum to `total`."""
    count = y.shape[0]
    bends = np.empty(3 * count)
    changes = np.empty(3 * count)
    used = 0
    slope_before = 0.0
    for j in range(count):
        soft = 0.5 / q[j]
        if floor and y[j] <= 0.0:
            bends[used], changes[used] = a[j] - y[j] / soft, soft
            used += 1
            continue
        if floor:
            bends[used], changes[used] = -a[j] - y[j] / soft, soft
            used += 1
        else:
            slope_before += soft
        bends[used], changes[used] = -a[j], -soft
        bends[used + 1], changes[used + 1] = a[j], soft
        used += 2
    order = np.argsort(bends[:used])
    first = bends[order[0]]
    reached = 0.0
    for j in range(count):
        reached += _response_to(first, y[j], a[j], q[j], floor)
    slope, at, until = slope_before, first, np.inf
    for k in order:
        ahead = reached + slope * (bends[k] - at)
        if ahead >= total:
            until = bends[k]
            break
        reached, at = ahead, bends[k]
        slope += changes[k]
    # Where responses are flat, rounding leaves a slope next to zero, by which the dual would go beyond the next bend.
    dual = at if slope <= 0.0 else min(at + (total - reached) / slope, until)
    if floor:
        dual = max(dual, first)
    x = np.empty(count)
    for j in range(count):
        x[j] = _response_to(dual, y[j], a[j], q[j], floor)
    return x, dual


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _response_to(t, y, a, q, floor):  # pragma: no cover - compiled
    move = t - a if t > a else (t + a if t < -a else 0.0)
    x = y + move * 0.5 / q
    return max(x, 0.0) if floor else x
