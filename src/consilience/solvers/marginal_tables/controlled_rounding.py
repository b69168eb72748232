"""Whole counts near a fitted table that keep every known marginal (controlled rounding; Cox 1987).

First each cell may go to the whole number below or above it, and the choice that costs least is a 0–1 programme in
the fractional cells: with one known marginal it is solved by sorting, with the two margins of a two-way table it is a
transport problem, whose linear programme has whole solutions. With more marginals such a rounding need not exist.
Then cells may move further, at the cost of their first step; if no whole table has the marginals at all, that is
said.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.errors import TooLarge
from consilience.solvers.fit import Infeasible
from consilience.solvers.marginal_tables.problem import CellCosts, KnownMarginal, KnownMarginals

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class RoundingSettings:
    """What rounding may take; by trial, no figures kept."""

    whole: float = 1e-6
    """A cell this close to a whole number, in counts, is taken to be it."""
    largest_programme: int = 20_000_000
    """The most entries of the integer programme's matrix."""
    seconds: float = 120.0
    """How long the integer programme may take."""
    relative_gap: float = 1e-4
    """The relative gap at which the integer programme may stop."""


SETTINGS = RoundingSettings()
INFEASIBLE = 2
"""The status by which SciPy says that nothing fits."""


def check_whole(known: KnownMarginals) -> None:
    """Raise `Infeasible` where a marginal is not whole."""
    for each in known.each:
        away = np.abs(each.values - np.round(each.values))
        if away.max(initial=0.0) > 0.0:
            value = float(each.values.reshape(-1)[int(np.argmax(away))])
            raise Infeasible(
                f"the marginal on {each.name} holds {value:g}, which is no sum of whole counts; round the marginals "
                "first, or leave out integers=True",
                violation=float(away.max()),
                constraints=[each.name],
            )


def round_cells(cells: Vector, known: KnownMarginals, costs: CellCosts) -> Vector:
    """Whole cells with the same marginals, each next to its fitted value where such a table exists."""
    below = whole_below(cells)
    fractional = np.flatnonzero(known.free & (cells - below > 0.0))
    widest = known.widest()
    if not known.each:
        return _nearest(cells, below, costs)
    if widest is not None:
        return _round_groups(cells, below, costs, known, widest)
    marginals = _maximal(known)
    missing = _missing(known, marginals, below)
    if fractional.size:
        rounded = _solve(known, marginals, missing, fractional, _rise(below, costs)[fractional], None)
        if rounded is not None:
            below[fractional] += rounded
            return below
    elif not missing.any():
        return below
    return _round_further(below, known, marginals, missing, costs)


def whole_below(values: Vector) -> Vector:
    """The whole numbers below; those that are all but whole become whole."""
    nearest = np.round(values)
    return np.where(np.abs(values - nearest) <= SETTINGS.whole, nearest, np.floor(values))


def cheapest_whole(
    cost: Vector,
    matrix: Any,
    least: Vector,
    most: Vector,
    upper: Any = 1.0,
    *,
    seconds: float = SETTINGS.seconds,
    relative_gap: float = SETTINGS.relative_gap,
) -> Vector | None:
    """The whole x from 0 to `upper` with least ≤ matrix x ≤ most and the least cost; None where there are none."""
    found = scipy.optimize.milp(
        cost,
        constraints=scipy.optimize.LinearConstraint(matrix, least, most),  # pyright: ignore[reportArgumentType]
        bounds=scipy.optimize.Bounds(0.0, upper),
        integrality=np.ones(cost.size),
        options={"time_limit": seconds, "mip_rel_gap": relative_gap},
    )
    if found.x is None and found.status != INFEASIBLE:
        raise TooLarge(
            f"no rounding of {cost.size:,} cells was found in {seconds:g} s; leave out whole numbers, or ask for fewer "
            "tables or marginals"
        )
    return None if found.x is None else np.round(found.x)


def _rise(cells: Vector, costs: CellCosts, by: float = 1.0) -> Vector:
    """What one more in each cell costs."""
    before, after = np.abs(cells - costs.noisy), np.abs(cells + by - costs.noisy)
    return costs.slope * (after - before) + costs.curvature * (after**2 - before**2)


def _nearest(cells: Vector, below: Vector, costs: CellCosts) -> Vector:
    return below + ((cells > below) & (_rise(below, costs) < 0.0))


def _round_groups(
    cells: Vector, below: Vector, costs: CellCosts, known: KnownMarginals, widest: KnownMarginal
) -> Vector:
    """In each group the cells whose rise costs least go up, as many as the total needs."""
    layout = known.layout
    group = layout.spread(np.arange(widest.values.size).reshape(widest.values.shape), widest.places)
    group = np.broadcast_to(group, layout.sizes).reshape(-1)
    rise = np.where(cells > below, _rise(below, costs), np.inf)
    order = np.lexsort((rise, group))
    starts = np.searchsorted(group[order], np.arange(widest.values.size))
    rank = np.empty(cells.size, dtype=np.int64)
    rank[order] = np.arange(cells.size) - starts[group[order]]
    sums = np.bincount(group, below, minlength=widest.values.size)
    return below + (rank < (widest.values.reshape(-1) - sums)[group])


def _maximal(known: KnownMarginals) -> list[KnownMarginal]:
    """The marginals that no other contains."""
    kept: dict[tuple[int, ...], KnownMarginal] = {}
    for each in sorted(known.each, key=lambda one: -len(one.places)):
        if not any(set(each.places) <= set(places) for places in kept):
            kept[each.places] = each
    return list(kept.values())


def _missing(known: KnownMarginals, marginals: list[KnownMarginal], below: Vector) -> Vector:
    """What the rounded-down cells lack in each marginal."""
    lacking = [each.values - known.layout.marginal(below, each.places) for each in marginals]
    return np.round(np.concatenate([part.reshape(-1) for part in lacking]))


def _incidence(known: KnownMarginals, marginals: list[KnownMarginal], chosen: NDArray[np.intp]) -> sp.csc_array:
    """Which marginal cells each chosen cell counts in."""
    sizes = known.layout.sizes
    codes = np.unravel_index(chosen, sizes)
    rows, offset = [], 0
    for each in marginals:
        row = np.zeros(chosen.size, dtype=np.int64)
        for place in each.places:
            row = row * sizes[place] + codes[place]
        rows.append(row + offset)
        offset += each.values.size
    columns = np.tile(np.arange(chosen.size), len(marginals))
    ones = np.ones(columns.size)
    return sp.csc_array((ones, (np.concatenate(rows), columns)), shape=(offset, chosen.size))


def _solve(
    known: KnownMarginals,
    marginals: list[KnownMarginal],
    missing: Vector,
    chosen: NDArray[np.intp],
    rise: Vector,
    fall: tuple[Vector, Vector] | None,
) -> Vector | None:
    """Whole changes of the chosen cells that supply what is missing, the cheapest; None where there are none.

    Without `fall` changes are 0 or 1; with it cells rise without limit, and fall at a cost up to a limit.
    """
    entries = chosen.size * len(marginals) * (1 if fall is None else 2)
    if entries > SETTINGS.largest_programme:
        raise TooLarge(
            f"rounding {chosen.size:,} cells within {len(marginals)} marginals needs an integer programme with "
            f"{entries:,} entries, the limit is {SETTINGS.largest_programme:,}; leave out integers=True or fix fewer "
            "marginals"
        )
    matrix = _incidence(known, marginals, chosen)
    cost, upper = rise, np.ones(chosen.size)
    if fall is not None:
        matrix = sp.csc_array(sp.hstack([matrix, -matrix]))
        cost, upper = np.concatenate([rise, fall[0]]), np.concatenate([np.full(chosen.size, np.inf), fall[1]])
    change = cheapest_whole(cost, matrix, missing, missing, upper)
    if change is None:
        return None
    return change if fall is None else change[: chosen.size] - change[chosen.size :]


def _round_further(
    below: Vector, known: KnownMarginals, marginals: list[KnownMarginal], missing: Vector, costs: CellCosts
) -> Vector:
    """The whole table found when cells may move further than to the next whole number."""
    chosen = np.flatnonzero(known.free)
    limit = below[chosen] if known.floor else np.full(chosen.size, np.inf)
    rise, fall = _rise(below, costs)[chosen], _rise(below, costs, -1.0)[chosen]
    # Where rising and falling both gain, a programme without limits would do both for ever.
    smallest = 1e-6 * max(float(np.abs(rise).max(initial=0.0)), 1e-300)
    gain = np.minimum(np.minimum(rise, fall) - smallest, 0.0)
    changed = _solve(known, marginals, missing, chosen, rise - gain, (fall - gain, limit))
    if changed is None:
        raise Infeasible(
            f"no whole table has these {len(known.each)} marginals, though a table with fractions has; leave out "
            "integers=True, or correct the marginals",
            violation=1.0,
            constraints=[each.name for each in known.each],
        )
    below[chosen] += changed
    return below
