"""Synthetic rows whose marginals follow the model's as closely as whole rows can.

Plain draws from the model would add noise of about √count to every count, for nothing. Here the junction tree is walked
from its roots, and each clique gives its new attributes, one after another, to rows that have the attributes it shares
with its parent: rows that agree on everything known in the clique get the next attribute's values in counts that are
their shares rounded down or up, with what rounding gained or lost carried over to later groups. Which row of a group
gets which value is random: it is independent of all attributes that the model makes independent.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.kernel_cache import njit
from consilience.kernels.rng import Generator
from consilience.models.elimination import CalibratedModel
from consilience.models.elimination_plans import carry_out, plan_elimination
from consilience.models.model import Array
from consilience.models.tables import Axes
from consilience.solvers.fit import shares_of_rows

# ----------------------------------------------------------------------------------------------------------------------
# Whole rows for one attribute at a time: the kernels under synthetic records.
#
# Rows fall into groups by what is known of them, their cell k of the known attributes. A group of n_k rows is to be
# shared out among the values v of the next attribute. The numbers to round are n_k p(v | k), and in a root clique,
# where the n_k are shares rounded down or up already, rows · p(k, v). Each count is its number rounded down, and R_k of
# them one more. Which ones is drawn by systematic sampling: with the remainders f_v, their cumulated sums F_v and an
# offset u, value v gets ⌊F_v + u⌋ − ⌊F_{v−1} + u⌋, where u is uniform among the offsets that give R_k in all. So each
# count is right on average and off by less than 1.
#
# What rounding in earlier groups gained or lost is carried over. For each marginal m in view (of a scope, or of the
# attribute alone) a table E_m holds how many more rows a cell should have than were placed there and are still to be
# expected. Remainders are tilted towards what is missing before the draw,
#
#     f_v ← f_v · (1 + c (e_v − ē)) ,     e = Σ_m E_m ,    ē = Σ_v f_v e_v / Σ_v f_v ,
#
# so that errors cancel within each marginal in view instead of adding up. The tilt is linear and E_m is 0 on average,
# so the counts stay right on average as long as no factor is cut off; and what is impossible stays so.


GAIN = 0.5
"""c. On the Adult model errors in view fall little above this, while averages begin to lean."""

LEAST_TILT = 0.01
"""No tilt takes away more than all but this part of a remainder."""

TINY = 1e-300
"""Stands in for an empty sum below a division."""


@njit(nogil=True, cache=True)
def _group_rows(keys, starts, order):  # pragma: no cover - compiled
    """Write the rows by cell, in their own order within each: those of cell k are order[starts[k]:starts[k + 1]]."""
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


@njit(nogil=True, cache=True)
def _sum_in_views(table, starts, places, model, expected):  # pragma: no cover - compiled
    """Add to each marginal in view the model's p(k, v), and the expected counts n_k p(v | k).

    `table` holds p(k, v). The cells of marginal m for known cell k begin at `places[m, k]`.
    """
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


@njit(nogil=True, cache=True)
def _place_rows(table, starts, order, places, aim, missing, turns, draws, codes):  # pragma: no cover - compiled
    """Give each row of each group a value. In a root clique `aim` is the number of all rows, elsewhere 0."""
    cells, values = table.shape
    expected = np.empty(values)
    remainders = np.empty(values)
    gradients = np.empty(values)
    counts = np.empty(values, dtype=np.int64)
    for k in range(cells):
        begin, end = starts[k], starts[k + 1]
        size = end - begin
        if size == 0:
            continue
        rest, total = _round_down(table[k], size, aim, expected, remainders, counts)
        if rest > 0:
            _tilt(remainders, places[:, k], missing, gradients)
            _scale(remainders, total)
            _share_rest(remainders, total, rest, turns[begin], counts)
        for m in range(places.shape[0]):
            own = missing[places[m, k] : places[m, k] + values]
            for v in range(values):
                own[v] += expected[v] - counts[v]
        _hand_out(counts, order[begin:end], draws[begin:end], codes)


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def _tilt(remainders, places, missing, gradients):  # pragma: no cover - compiled
    total, mean = 0.0, 0.0
    for v in range(remainders.size):
        if remainders[v] > 0.0:
            gradient = 0.0
            for m in range(places.size):
                gradient += missing[places[m] + v]
            gradients[v] = GAIN * gradient
            total += remainders[v]
            mean += remainders[v] * gradients[v]
    mean /= max(total, TINY)
    for v in range(remainders.size):
        if remainders[v] > 0.0:
            remainders[v] *= max(1.0 + gradients[v] - mean, LEAST_TILT)


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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


# ----------------------------------------------------------------------------------------------------------------------
# Synthetic rows whose marginals follow the model's as closely as whole rows can.


SAMPLED_CELLS_AT_ONCE = 1 << 26
"""Larger tables are built in parts, one for each value of some known attributes: half a gigabyte at a time."""

SAMPLING_COLUMNS = 5
"""Numbers for each row beside its codes: its cell, its place among the rows sorted by cell, and chance."""


def sample(
    model: CalibratedModel, rows: int, rng: Generator, *, cells_at_once: int = SAMPLED_CELLS_AT_ONCE
) -> NDArray[np.int64]:
    """Codes of synthetic records, one row each and one column for each attribute, in random order.

    In the root clique of each tree every cell has its exact share of rows rounded down or up.
    """
    sizes = model.model.sizes
    _check_memory(rows, len(sizes), model.memory_limit)
    codes = np.zeros((rows, len(sizes)), dtype=np.int64, order="F")
    if rows == 0:
        return codes
    for clique in range(len(model.forest.cliques)):
        known = tuple(sorted(model.forest.separators[clique]))
        fresh = model.forest.cliques[clique] - model.forest.separators[clique]
        for attribute in sorted(fresh, key=lambda axis: (sizes[axis], axis)):
            _Step(model, clique, known, attribute, cells_at_once).place(codes, rng)
            known = (*known, attribute)
    for attribute, size in enumerate(sizes):
        if size > 1 and not model.modelled(attribute):
            even = np.repeat(np.arange(size), shares_of_rows(np.ones(size), rows, rng))
            codes[:, attribute] = rng.permutation(even)
    return codes


def _check_memory(rows: int, attributes: int, memory_limit: int) -> None:
    """Refuse what cannot be: a negative number of rows, or more than fit into memory."""
    if rows < 0:
        raise DeclarationError(f"{rows} synthetic rows were asked for; ask for a whole number from 0 up")
    need = 8 * rows * (attributes + SAMPLING_COLUMNS)
    if need > memory_limit:
        raise TooLarge(
            f"{rows:,} rows of {attributes} attributes need {need / 1e9:,.1f} GB; the limit is "
            f"{memory_limit / 1e9:,.1f} GB. Ask for fewer rows at once, or raise memory_limit"
        )


class _Step:
    """One attribute of one clique, given the attributes of the clique that rows have already."""

    def __init__(self, model: CalibratedModel, clique: int, known: Axes, attribute: int, cells_at_once: int) -> None:
        self.model, self.clique, self.attribute = model, clique, attribute
        self.known = known
        self.in_root = not model.forest.separators[clique]
        self.values = model.sizes[attribute]
        self.cells = model.cells(known)
        self.views = _views(model.model.all_scopes, known, attribute)
        self.parts = self._leading(cells_at_once)
        self._kept: list[tuple[int, Array]] | None = None
        need = self.cells * 8 * (2 + len(self.views))
        if need > model.memory_limit:
            raise TooLarge(
                f"placing rows in a clique of {self.cells * self.values:,} cells needs {need / 1e9:,.1f} GB; the limit "
                f"is {model.memory_limit / 1e9:,.1f} GB. Fit a model of smaller cliques, or raise memory_limit"
            )

    def place(self, codes: NDArray[np.int64], rng: Generator) -> None:
        """Fill in the attribute's code for each row."""
        rows = len(codes)
        keys = np.zeros(rows, dtype=np.int64)
        for axis in self.known:
            keys *= self.model.sizes[axis]
            keys += codes[:, axis]
        starts, order = np.zeros(self.cells + 1, dtype=np.int64), np.empty(rows, dtype=np.int64)
        _group_rows(keys, starts, order)
        places = self._places()
        missing = self._missing(starts, places)
        turns, draws = rng.random((2, rows))
        aim, column = float(rows) if self.in_root else 0.0, codes[:, self.attribute]
        for first, table in self._tables():
            end = first + len(table)
            own = starts[first : end + 1]
            _place_rows(table, own, order, places[:, first:end], aim, missing, turns, draws, column)

    def _missing(self, starts: NDArray[np.int64], places: NDArray[np.int64]) -> Array:
        """By how much the rows' expected counts fall short in each marginal in view, given what is known there.

        For cell c of a view's known part the model wants n_c p(v | c) rows of value v, and Σ_k n_k p(v | k) are to be
        expected, over the known cells k within c. Both sum to n_c.
        """
        model, expected = np.zeros((2, sum(self.model.cells(view) for view in self.views)))
        for first, table in self._tables():
            end = first + len(table)
            _sum_in_views(table, starts[first : end + 1], places[:, first:end], model, expected)
        model, expected = model.reshape(-1, self.values), expected.reshape(-1, self.values)
        mass = model.sum(axis=1, keepdims=True)
        wanted = np.divide(model, mass, out=np.zeros_like(model), where=mass > 0) * expected.sum(axis=1, keepdims=True)
        return (wanted - expected).ravel()

    def _leading(self, cells_at_once: int) -> int:
        """How many of the known attributes are fixed for each part, so that a part has no more than these cells."""
        parts, cells = 0, self.cells * self.values
        while cells > cells_at_once and parts < len(self.known):
            cells //= self.model.sizes[self.known[parts]]
            parts += 1
        return parts

    def _tables(self) -> Iterator[tuple[int, Array]]:
        """p over the known cells (rows) and the values (columns), in parts; with each its first known cell."""
        if self._kept is not None:
            yield from self._kept
            return
        leading = self.known[: self.parts]
        inner = self.cells // self.model.cells(leading)
        if not leading:
            self._kept = [(0, self._table({}, inner))]
            yield from self._kept
            return
        for part, places in enumerate(itertools.product(*(range(self.model.sizes[axis]) for axis in leading))):
            chosen = {axis: slice(at, at + 1) for axis, at in zip(leading, places, strict=True)}
            yield part * inner, self._table(chosen, inner)

    def _table(self, chosen: dict[int, slice], inner: int) -> Array:
        """The marginal on known attributes and this one, where some are fixed."""
        tables = [table.at(chosen) for table in self.model.clique_tables(self.clique)]
        sizes = {**self.model.sizes, **dict.fromkeys(chosen, 1)}
        axes = (*self.known, self.attribute)
        plan = plan_elimination([table.axes for table in tables], sizes, axes, {})
        plan.check(self.model.memory_limit, f"placing rows in a clique of {len(axes)} attributes")
        found = carry_out(plan, tables, axes, {})
        scale = self.model.log_partition_of(self.clique)
        return np.ascontiguousarray(found.linear(scale)).reshape(inner, self.values)

    def _places(self) -> NDArray[np.int64]:
        """For each marginal in view and each known cell, where the marginal's cells for the values begin."""
        shape = [self.model.sizes[axis] for axis in self.known]
        found = np.zeros((len(self.views), *shape), dtype=np.int64)
        first = 0
        for row, view in zip(found, self.views, strict=True):
            row += first
            stride = self.values
            for axis in reversed(view[:-1]):
                at = self.known.index(axis)
                steps = np.arange(self.model.sizes[axis], dtype=np.int64) * stride
                row += steps.reshape([-1 if place == at else 1 for place in range(len(shape))])
                stride *= self.model.sizes[axis]
            first += stride
        return found.reshape(len(self.views), -1)


def _views(scopes: Sequence[Axes], known: Axes, attribute: int) -> list[Axes]:
    """The marginals in which rounding errors are to cancel, each naming the attribute last.

    Of each scope that has the attribute, what is known by now; and the attribute alone.

    >>> _views([(0, 1, 2), (0, 2), (2, 3)], (0, 1), 2)
    [(0, 1, 2), (2,)]
    """
    sets = {frozenset(scope) & frozenset(known) for scope in scopes if attribute in scope}
    widest = [each for each in sets if each and not any(each < other for other in sets)]
    ordered = sorted(tuple(axis for axis in known if axis in each) for each in widest)
    return [*((*each, attribute) for each in ordered), (attribute,)]
