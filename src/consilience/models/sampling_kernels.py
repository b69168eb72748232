"""Whole rows for one attribute at a time: the kernels under synthetic records.

Rows fall into groups by what is known of them, their cell k of the known attributes. A group of n_k rows is to be
shared out among the values v of the next attribute. The numbers to round are n_k p(v | k), and in a root clique, where
the n_k are shares rounded down or up already, rows · p(k, v). Each count is its number rounded down, and R_k of them
one more. Which ones is drawn by systematic sampling: with the remainders f_v, their cumulated sums F_v and an offset u,
value v gets ⌊F_v + u⌋ − ⌊F_{v−1} + u⌋, where u is uniform among the offsets that give R_k in all. So each count is
right on average and off by less than 1.

What rounding in earlier groups gained or lost is carried over. For each marginal m in view (of a scope, or of the
attribute alone) a table E_m holds how many more rows a cell should have than were placed there and are still to be
expected. Remainders are tilted towards what is missing before the draw,

    f_v ← f_v · (1 + c (e_v − ē)) ,     e = Σ_m E_m ,    ē = Σ_v f_v e_v / Σ_v f_v ,

so that errors cancel within each marginal in view instead of adding up. The tilt is linear and E_m is 0 on average, so
the counts stay right on average as long as no factor is cut off; and what is impossible stays so.
"""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import announce

GAIN = 0.5
"""c. On the Adult model errors in view fall little above this, while averages begin to lean."""

LEAST_TILT = 0.01
"""No tilt takes away more than all but this part of a remainder."""

TINY = 1e-300
"""Stands in for an empty sum below a division."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows sorted by cell: those of cell k are order[starts[k]:starts[k + 1]]."""

    starts: NDArray[np.int64]
    order: NDArray[np.int64]

    def of(self, first: int, end: int) -> "Groups":
        """The groups of the cells first … end − 1."""
        return Groups(self.starts[first : end + 1], self.order)


def group_rows(keys: NDArray[np.int64], cells: int) -> Groups:
    """The rows by cell, in their own order within each."""
    announce(_group_rows)
    groups = Groups(np.zeros(cells + 1, dtype=np.int64), np.empty(len(keys), dtype=np.int64))
    _group_rows(keys, groups.starts, groups.order)
    return groups


@numba.njit(nogil=True, cache=True)
def _group_rows(keys, starts, order):  # pragma: no cover - compiled
    for row in range(keys.size):
        starts[keys[row] + 1] += 1
    for cell in range(starts.size - 1):
        starts[cell + 1] += starts[cell]
    # Placing rows moves each start to its end, which is the next one's start: shifting back restores them.
    for row in range(keys.size):
        cell = keys[row]
        order[starts[cell]] = row
        starts[cell] += 1
    for cell in range(starts.size - 1, 0, -1):
        starts[cell] = starts[cell - 1]
    starts[0] = 0


def sum_in_views(
    table: NDArray[np.float64],
    groups: Groups,
    places: NDArray[np.int64],
    model: NDArray[np.float64],
    expected: NDArray[np.float64],
) -> None:
    """Add to each marginal in view the model's p(k, v), and the expected counts n_k p(v | k).

    `table` holds p(k, v). The cells of marginal m for known cell k begin at `places[m, k]`.
    """
    announce(_sum_in_views)
    _sum_in_views(table, groups.starts, places, model, expected)


@numba.njit(nogil=True, cache=True)
def _sum_in_views(table, starts, places, model, expected):  # pragma: no cover - compiled
    cells, values = table.shape
    for k in range(cells):
        share = table[k]
        mass = 0.0
        for v in range(values):
            mass += share[v]
        if mass <= 0.0:
            continue
        factor = (starts[k + 1] - starts[k]) / mass
        for m in range(places.shape[0]):
            of_model = model[places[m, k] : places[m, k] + values]
            of_rows = expected[places[m, k] : places[m, k] + values]
            for v in range(values):
                of_model[v] += share[v]
                of_rows[v] += factor * share[v]


def place_rows(
    table: NDArray[np.float64],
    groups: Groups,
    places: NDArray[np.int64],
    missing: NDArray[np.float64],
    uniforms: NDArray[np.float64],
    codes: NDArray[np.int64],
    *,
    in_root: bool,
) -> None:
    """Give each row of each group a value; `uniforms` has two numbers for each row."""
    announce(_place_rows)
    aim = float(len(groups.order)) if in_root else 0.0
    _place_rows(table, groups.starts, groups.order, places, aim, missing, uniforms[0], uniforms[1], codes)


@numba.njit(nogil=True, cache=True)
def _place_rows(table, starts, order, places, aim, missing, turns, draws, codes):  # pragma: no cover - compiled
    cells, values = table.shape
    expected = np.empty(values)
    remainders = np.empty(values)
    pulls = np.empty(values)
    counts = np.empty(values, dtype=np.int64)
    for k in range(cells):
        begin, end = starts[k], starts[k + 1]
        size = end - begin
        if size == 0:
            continue
        rest, total = _round_down(table[k], size, aim, expected, remainders, counts)
        if rest > 0:
            _tilt(remainders, places[:, k], missing, pulls)
            _scale(remainders, total)
            _share_rest(remainders, total, rest, turns[begin], counts)
        for m in range(places.shape[0]):
            own = missing[places[m, k] : places[m, k] + values]
            for v in range(values):
                own[v] += expected[v] - counts[v]
        _hand_out(counts, order[begin:end], draws[begin:end], codes)


@numba.njit(nogil=True, cache=True)
def _round_down(share, size, aim, expected, remainders, counts):  # pragma: no cover - compiled
    """Counts rounded down and their remainders; how many rows of the group are left, and the sum of the remainders."""
    values = share.size
    mass = 0.0
    for v in range(values):
        mass += share[v]
    for v in range(values):
        expected[v] = share[v] * (size / mass) if mass > 0.0 else size / values
    if aim > 0.0:
        placed, total = 0, 0.0
        for v in range(values):
            counts[v] = np.int64(np.floor(aim * share[v]))
            remainders[v] = aim * share[v] - counts[v]
            placed += counts[v]
            total += remainders[v]
        if placed <= size and total - 1.0 < size - placed < total + 1.0:
            return size - placed, total
    placed = 0
    for v in range(values):
        counts[v] = np.int64(np.floor(expected[v]))
        remainders[v] = expected[v] - counts[v]
        placed += counts[v]
    return size - placed, np.float64(size - placed)


@numba.njit(nogil=True, cache=True)
def _tilt(remainders, places, missing, pulls):  # pragma: no cover - compiled
    total, mean = 0.0, 0.0
    for v in range(remainders.size):
        if remainders[v] > 0.0:
            pull = 0.0
            for m in range(places.size):
                pull += missing[places[m] + v]
            pulls[v] = GAIN * pull
            total += remainders[v]
            mean += remainders[v] * pulls[v]
    mean /= max(total, TINY)
    for v in range(remainders.size):
        if remainders[v] > 0.0:
            remainders[v] *= max(1.0 + pulls[v] - mean, LEAST_TILT)


@numba.njit(nogil=True, cache=True)
def _scale(chances, total):  # pragma: no cover - compiled
    """Chances in proportion that sum to the total, except that none exceeds 1."""
    below = 0.0
    for v in range(chances.size):
        below += chances[v]
    factor = total / max(below, TINY)
    for v in range(chances.size):
        chances[v] *= factor
    while True:
        certain, below, exceeded = 0, 0.0, False
        for v in range(chances.size):
            if chances[v] >= 1.0:
                exceeded = exceeded or chances[v] > 1.0
                chances[v] = 1.0
                certain += 1
            else:
                below += chances[v]
        if not exceeded:
            break
        factor = max(total - certain, 0.0) / max(below, TINY)
        for v in range(chances.size):
            if chances[v] < 1.0:
                chances[v] *= factor


@numba.njit(nogil=True, cache=True)
def _share_rest(chances, total, rest, uniform, counts):  # pragma: no cover - compiled
    """One more for `rest` values by systematic sampling, from an offset that gives just so many."""
    above = np.floor(total)
    part = total - above
    offset = uniform * (1.0 - part) if rest <= above else 1.0 - part + uniform * part
    cumulated, before, last = offset, 0, 0
    for v in range(chances.size):
        if chances[v] > 0.0:
            last = v
            cumulated += chances[v]
            now = min(np.int64(np.floor(cumulated)), rest)
            counts[v] += now - before
            before = now
    counts[last] += rest - before


@numba.njit(nogil=True, cache=True)
def _hand_out(counts, members, uniforms, codes):  # pragma: no cover - compiled
    """The counted values, in random order, to the rows of a group."""
    first = 0
    for v in range(counts.size):
        for _ in range(min(counts[v], members.size - first)):
            # Each row is drawn from those that have no value yet.
            drawn = first + np.int64(uniforms[first] * (members.size - first))
            row = members[drawn]
            members[drawn] = members[first]
            members[first] = row
            codes[row] = v
            first += 1
