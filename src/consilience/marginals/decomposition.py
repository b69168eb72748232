"""The residual (ANOVA) decomposition of marginals.

The *residual* of a scope τ is the part of its marginal that no smaller marginal determines: with m_τ the marginal and
n_i the sizes of the attributes,

    z_τ = (⊗_{i∈τ} (I − J/n_i)) m_τ,        the table whose sums along every axis are 0;  z_∅ is the total.

Residuals are orthogonal to each other, and every marginal is made of those of its parts:

    m_C = M_C z = Σ_{τ⊆C} z_τ ⊗ (1/n_i for i ∈ C∖τ).

So marginals that are made of one set of residuals are consistent, and any consistent set of marginals is made so
(Darroch and Speed 1983, Ann. Statist. 11; Xiao et al. 2023, arXiv:2305.08175). The adjoint of M, on residuals, sums a
table down to τ, divides by the sizes summed over, and takes the mean away along every axis that is left. Because
‖M_C z‖² = Σ_τ ‖z_τ‖² / Π_{i∈C∖τ} n_i, weighted squares of marginals are weighted squares of residuals: with r_C ≥ 0,

    Σ_C r_C ‖M_C z‖² = Σ_τ q_τ ‖z_τ‖²,      q_τ = Σ_{C⊇τ} r_C / Π_{i∈C∖τ} n_i,

and the nearest consistent marginals to given tables v_C are (Mᵀ r v)_τ / q_τ, without any equation to solve.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.marginals.table_stacks import Scope, ShapeGroup, TableStack, stored_order, subsets

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Link:
    """Where the residuals over some axes of a group of tables lie among all residuals."""

    axes: tuple[int, ...]
    group: ShapeGroup
    rows: NDArray[np.intp]
    incidence: Any
    """The sparse 0/1 matrix from tables to residuals; None where they correspond one to one, in order."""

    def gather(self, residuals: Array) -> Array:
        found = self.group.tables(residuals)
        return found if self.incidence is None else found[self.rows]

    def add(self, residuals: Array, tables: Array) -> None:
        into = self.group.tables(residuals)
        if self.incidence is None:
            into += tables
        else:
            into += (self.incidence @ tables.reshape(len(tables), -1)).reshape(into.shape)


class Decomposition:
    """The marginals of some scopes as functions of the residuals of all their parts.

    `tables` are the marginals, `residuals` the residuals, of these scopes and of those in `also`.
    """

    def __init__(self, sizes: Sequence[int], scopes: Iterable[Scope], *, also: Iterable[Scope] = ()) -> None:
        kept = list(dict.fromkeys(stored_order(sizes, scope) for scope in scopes))
        more = [stored_order(sizes, scope) for scope in also]
        parts = {()} | {part for scope in (*kept, *more) for part in subsets(scope)}
        self.tables = TableStack(sizes, kept)
        self.residuals = TableStack(sizes, sorted(parts, key=lambda part: (len(part), part)))
        self._links = [self._linked(group) for group in self.tables.groups]

    def _linked(self, group: ShapeGroup) -> dict[tuple[int, ...], _Link]:
        links: dict[tuple[int, ...], _Link] = {}
        for axes in subsets(tuple(range(len(group.shape)))):
            places = [self.residuals.places[tuple(scope[axis] for axis in axes)] for scope in group.scopes]
            into = self.residuals.groups[places[0][0]]
            rows = np.array([row for _, row in places], dtype=np.intp)
            count = len(rows)
            same = count == len(into.scopes) and np.array_equal(rows, np.arange(count))
            shape = (len(into.scopes), count)
            incidence = None if same else sp.csr_array((np.ones(count), (rows, np.arange(count))), shape=shape)
            links[axes] = _Link(axes, into, rows, incidence)
        return links

    def marginals(self, residuals: Array, *, out: Array | None = None) -> Array:
        """M z: the tables that these residuals make. Parts join one axis at a time, the small ones first."""
        found: Array = np.empty(self.tables.size) if out is None else out
        for group, links in zip(self.tables.groups, self._links, strict=True):
            joined: dict[tuple[int, ...], list[Array]] = {axes: [] for axes in links}
            every = tuple(range(len(group.shape)))
            for axes, link in links.items():
                if axes == every:
                    table = group.tables(found)
                    table[...] = link.gather(residuals)
                else:
                    table = np.array(link.gather(residuals))
                for part in joined.pop(axes):
                    table += part
                if axes != every:
                    axis, larger = _next_larger(axes)
                    table /= group.shape[axis]
                    joined[larger].append(np.expand_dims(table, 1 + larger.index(axis)))
        return found

    def adjoint(self, tables: Array, *, out: Array | None = None) -> Array:
        """Mᵀ v: what each residual has to do with the tables; sums along its axes are 0."""
        found: Array = np.empty(self.residuals.size) if out is None else out
        found.fill(0.0)
        for group, links in zip(self.tables.groups, self._links, strict=True):
            every = tuple(range(len(group.shape)))
            summed = {every: group.tables(tables)}
            for axes in reversed(list(links)):
                if axes != every:
                    axis, larger = _next_larger(axes)
                    summed[axes] = summed[larger].sum(axis=1 + larger.index(axis)) / group.shape[axis]
                links[axes].add(found, summed[axes])
        for group in self.residuals.groups:
            centre(group.tables(found), first=1)
        return found

    def precisions(self, weights: dict[Scope, float]) -> dict[Scope, float]:
        """q_τ for all residuals, from a weight r_C for each table."""
        found = dict.fromkeys(self.residuals.scopes, 0.0)
        for group, links in zip(self.tables.groups, self._links, strict=True):
            for axes in links:
                away = group.cells / math.prod(group.shape[axis] for axis in axes)
                for scope in group.scopes:
                    found[tuple(scope[axis] for axis in axes)] += weights[scope] / away
        return found


def _next_larger(axes: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """The first axis that is not among these, and the axes with it."""
    axis = next(each for each in itertools.count() if each not in axes)
    return axis, tuple(sorted((*axes, axis)))


def centre(tables: Array, *, first: int) -> Array:
    """The tables without their means along every axis from the first one named, in place."""
    for axis in range(first, tables.ndim):
        tables -= tables.mean(axis=axis, keepdims=True)
    return tables


def residual_of(table: Array) -> Array:
    """The part of a table that its sums do not determine."""
    return centre(np.array(table, dtype=np.float64), first=0)


# ----------------------------------------------------------------------------------------------------------------------
# The residuals of many tables at once: numbered so that views share them, and transformed there and back.
#
# Along an axis of n values a table x becomes its sum s and the n − 1 numbers x_j − s/n, j ≥ 1. Done along every axis,
# the cell with digits j holds, for the attributes with j_i ≥ 1, one entry of the residual of those attributes (the
# entries with some j_i = 0 follow, because residuals sum to 0 along every axis). That entry is named by the pairs
# (attribute, j_i ≥ 1) alone: two views that share the attributes have the same entry, wherever their cells lie.
#
# Names become numbers through a trie: the name without its last pair is a node, and (node, last pair) has a number of
# its own. A hash table of these steps is exact for any number of attributes, and costs about one look-up for each cell.


@njit(nogil=True, cache=True)
def number_entries(starts, axes, sizes, strides, codes, width, numbers, shared):  # pragma: no cover - compiled
    """Write the number of every cell's entry; return how many numbers the first `shared` tables use.

    Table t has the axes from axes[t] to axes[t+1], in one order of attributes for all tables. `codes` is the code of
    value 1 of an axis' attribute; the codes are below `width`.
    """
    room = 16
    while room < 2 * numbers.size:
        room *= 2
    keys = np.full(room, -1, dtype=np.int64)
    found = np.empty(room, dtype=np.int64)
    most = 1
    for table in range(len(starts)):
        most = max(most, axes[table + 1] - axes[table])
    digits = np.zeros(most, dtype=np.int64)
    nodes = np.zeros(most + 1, dtype=np.int64)
    count = 1
    used = 0
    for table in range(len(starts)):
        begin = axes[table]
        depth = axes[table + 1] - begin
        digits[:depth] = 0
        nodes[: depth + 1] = 0
        cell = starts[table]
        while True:
            numbers[cell] = nodes[depth]
            level = depth - 1
            while level >= 0 and digits[level] == sizes[begin + level] - 1:
                cell -= digits[level] * strides[begin + level]
                digits[level] = 0
                level -= 1
            if level < 0:
                break
            digits[level] += 1
            cell += strides[begin + level]
            key = nodes[level] * width + codes[begin + level] + digits[level] - 1
            place = ((key * -7046029254386353131) >> 20) & (room - 1)
            while keys[place] != key and keys[place] >= 0:
                place = (place + 1) & (room - 1)
            if keys[place] < 0:
                keys[place] = key
                found[place] = count
                count += 1
            for below in range(level + 1, depth + 1):
                nodes[below] = found[place]
        if table == shared - 1:
            used = count
    return used


@njit(nogil=True, cache=True)
def to_residuals(cells, sizes, axis, stop):  # pragma: no cover - compiled
    """Transform one table in place, whose axes, first to last, have sizes[axis:stop]."""
    inner = cells.size
    for each in range(axis, stop):
        size = sizes[each]
        outer = inner
        inner //= size
        for block in range(0, cells.size, outer):
            for first in range(block, block + inner):
                if size == 2:
                    zero, one = cells[first], cells[first + inner]
                    cells[first] = zero + one
                    cells[first + inner] = 0.5 * (one - zero)
                else:
                    total = 0.0
                    for value in range(size):
                        total += cells[first + value * inner]
                    for value in range(1, size):
                        cells[first + value * inner] -= total / size
                    cells[first] = total


@njit(nogil=True, cache=True)
def from_residuals(cells, sizes, axis, stop):  # pragma: no cover - compiled
    """Undo `to_residuals` in place."""
    inner = cells.size
    for each in range(axis, stop):
        size = sizes[each]
        outer = inner
        inner //= size
        for block in range(0, cells.size, outer):
            for first in range(block, block + inner):
                mean = cells[first] / size
                if size == 2:
                    contrast = cells[first + inner]
                    cells[first] = mean - contrast
                    cells[first + inner] = mean + contrast
                else:
                    rest = 0.0
                    for value in range(1, size):
                        rest += cells[first + value * inner]
                        cells[first + value * inner] += mean
                    cells[first] = mean - rest


@njit(nogil=True, cache=True)
def all_to_residuals(cells, starts, axes, sizes):  # pragma: no cover - compiled
    for table in range(len(starts) - 1):
        to_residuals(cells[starts[table] : starts[table + 1]], sizes, axes[table], axes[table + 1])


@njit(nogil=True, cache=True)
def all_from_residuals(cells, starts, axes, sizes):  # pragma: no cover - compiled
    for table in range(len(starts) - 1):
        from_residuals(cells[starts[table] : starts[table + 1]], sizes, axes[table], axes[table + 1])


@njit(nogil=True, cache=True)
def add_by_number(cells, starts, weights, numbers, sums):  # pragma: no cover - compiled
    """Add each table's cells, times the table's weight, to the entry of their number."""
    for table in range(len(starts) - 1):
        weight = weights[table]
        for cell in range(starts[table], starts[table + 1]):
            sums[numbers[cell]] += weight * cells[cell]


@njit(nogil=True, cache=True)
def widest_difference(entries, starts, axes, attributes, sizes, strides):  # pragma: no cover - compiled
    """The largest difference, over pairs of tables, of a cell of their common marginal, from the tables' residuals.

    The common marginal is made of the entries with digit 0 on the axes that are not common. Axes are by ascending
    attribute; `strides` are theirs.
    """
    widest = 0.0
    largest, most = 1, 1
    for table in range(len(starts) - 1):
        largest = max(largest, starts[table + 1] - starts[table])
        most = max(most, axes[table + 1] - axes[table])
    room = np.empty(largest)
    common = np.empty(most, dtype=np.int64)
    steps = np.empty((2, most), dtype=np.int64)
    digits = np.empty(most, dtype=np.int64)
    for one in range(len(starts) - 1):
        for two in range(one + 1, len(starts) - 1):
            i, j, count, cells = axes[one], axes[two], 0, 1
            while i < axes[one + 1] and j < axes[two + 1]:
                if attributes[i] < attributes[j]:
                    i += 1
                elif attributes[i] > attributes[j]:
                    j += 1
                else:
                    common[count] = sizes[i]
                    steps[0, count] = strides[i]
                    steps[1, count] = strides[j]
                    cells *= sizes[i]
                    count += 1
                    i += 1
                    j += 1
            digits[:count] = 0
            left, right = starts[one], starts[two]
            for cell in range(cells):
                room[cell] = entries[left] - entries[right]
                level = count - 1
                while level >= 0 and digits[level] == common[level] - 1:
                    left -= digits[level] * steps[0, level]
                    right -= digits[level] * steps[1, level]
                    digits[level] = 0
                    level -= 1
                if level >= 0:
                    digits[level] += 1
                    left += steps[0, level]
                    right += steps[1, level]
            from_residuals(room[:cells], common, 0, count)
            for cell in range(cells):
                widest = max(widest, abs(room[cell]))
    return widest
