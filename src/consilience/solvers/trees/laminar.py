"""Laminar families: sets of cells of which any two are nested or disjoint. Such a family is a forest.

Put all sets in order, larger ones first. The sets that hold one cell are then a chain, and in a laminar family the one
before a set A in the chain is the smallest set around A, the same for every cell of A. Conversely, if all cells of A
agree on the set before A, for every A, then whatever comes before A and holds one of its cells holds all of them: the
family is laminar. So one look at every (cell, set) pair finds the forest. Where two cells of A disagree, the later of
the two sets before A holds one of them and not the other, and is no smaller than A: these two sets cross.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, LinearMap, PrefixMap, SparseMap, SumMap
from consilience.solvers.trees.layout import SETTINGS

# ----------------------------------------------------------------------------------------------------------------------
# Sets of cells of a table, written as layers: the sets of a layer are disjoint, so a cell has one number in each.
#
# A measured answer that adds up cells is a product of sets of codes, one for each axis. Along one axis the rows of a
# 0/1 matrix are dealt into layers of disjoint rows, and a layer says for each code which row holds it. A cell is then
# held by the set with the number base + Σ_axes (row of its code × stride) of every layer, unless an axis says that none
# does. Nothing is written out cell by cell.


ABSENT = -1

NO_SETS = "it has entries other than 0 and 1"


@dataclass(frozen=True, eq=False)
class AxisPattern:
    """The rows of a 0/1 matrix over the codes of one axis, in layers."""

    rows_of: NDArray[np.int32]
    """For each code and each layer, the row that holds the code, or ABSENT."""
    sizes: NDArray[np.int64]
    """How many codes each row holds."""


def axis_pattern(each: LinearMap) -> AxisPattern | str:
    """The sets that a map adds up, or the reason why there are none or too many."""
    columns = each.columns
    if isinstance(each, IdentityMap):
        return AxisPattern(np.arange(columns, dtype=np.int32)[:, None], np.ones(columns, dtype=np.int64))
    if isinstance(each, SumMap):
        return AxisPattern(np.zeros((columns, 1), dtype=np.int32), np.array([columns], dtype=np.int64))
    if isinstance(each, PrefixMap):
        if columns * columns > SETTINGS.largest_pattern:
            return f"its {columns:,} prefixes lie one in another, more deeply than can be kept in memory"
        row, code = np.arange(columns, dtype=np.int32), np.arange(columns, dtype=np.int32)[:, None]
        return AxisPattern(np.where(row >= code, row, np.int32(ABSENT)), np.arange(1, columns + 1, dtype=np.int64))
    if isinstance(each, AllRangesMap) and columns > 2:
        return "its ranges overlap each other"
    if isinstance(each, SparseMap):
        return _sparse_pattern(each.matrix)
    if not each.nonnegative or each.lattice_bits or each.rows * columns > SETTINGS.largest_pattern:
        return NO_SETS
    return _sparse_pattern(sp.csr_array(each.dense()))


def _sparse_pattern(matrix: Any) -> AxisPattern | str:
    if not np.all((matrix.data == 0.0) | (matrix.data == 1.0)):
        return NO_SETS
    if not (matrix.has_canonical_format and np.all(matrix.data)):
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    rows, columns = matrix.shape
    layer = np.empty(rows, dtype=np.int32)
    layers = int(_deal(matrix.indptr, matrix.indices, np.zeros(columns, dtype=np.int32), layer))
    if layers * columns > SETTINGS.largest_pattern:
        return f"a value is in {layers:,} of its sets, more than can be kept in memory"
    rows_of = np.full((columns, max(layers, 1)), ABSENT, dtype=np.int32)
    _place(matrix.indptr, matrix.indices, layer, rows_of)
    return AxisPattern(rows_of, np.diff(matrix.indptr).astype(np.int64))


@njit(nogil=True, cache=True)
def _deal(begins, codes, reached, layer):  # pragma: no cover - compiled
    """Give each row the first layer that is free for all of its codes; returns how many layers there are."""
    layers = 0
    for row in range(len(layer)):
        layer[row] = 0
        for place in range(begins[row], begins[row + 1]):
            layer[row] = max(layer[row], reached[codes[place]])
        for place in range(begins[row], begins[row + 1]):
            reached[codes[place]] = layer[row] + 1
            layers = max(layers, layer[row] + 1)
    return layers


@njit(nogil=True, cache=True)
def _place(begins, codes, layer, rows_of):  # pragma: no cover - compiled
    for row in range(len(layer)):
        for place in range(begins[row], begins[row + 1]):
            rows_of[codes[place], layer[row]] = row


@dataclass(frozen=True, eq=False)
class SetFamily:
    """Sets of cells of a table with this shape, in layers of disjoint sets."""

    shape: tuple[int, ...]
    parts: NDArray[np.int32]
    """For each code of the first axis, then of the second, …: the part of the set's number in each layer, or ABSENT."""
    bases: NDArray[np.int64]
    """The least number of a set of each layer."""
    sizes: NDArray[np.int64]
    """How many cells each set holds."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where the codes of each axis begin in `parts`."""
        return np.cumsum([0, *self.shape[:-1]]).astype(np.int64)

    @staticmethod
    def of(shape: Sequence[int], queries: Sequence[Mapping[int, AxisPattern]]) -> "SetFamily":
        """The sets of some queries, numbered query after query; in each, the last pattern varies fastest.

        A query maps axes to patterns and takes all codes of the axes that it leaves out.
        """
        sizes = tuple(shape) or (1,)
        bases, columns, numbers, first = [], [], [], 0
        for query in queries:
            held = np.array([int(np.prod([sizes[axis] for axis in range(len(sizes)) if axis not in query]))])
            for pattern in query.values():
                held = np.multiply.outer(held, pattern.sizes).ravel()
            for layers in product(*(range(pattern.rows_of.shape[1]) for pattern in query.values())):
                bases.append(first)
                columns.append(_layer(sizes, query, layers))
            numbers.append(held)
            first += held.size
        parts = np.ascontiguousarray(np.stack(columns, axis=1))
        return SetFamily(sizes, parts, np.array(bases, dtype=np.int64), np.concatenate(numbers).astype(np.int64))


def _layer(shape: Sequence[int], query: Mapping[int, AxisPattern], layers: Sequence[int]) -> NDArray[np.int32]:
    """One column of `SetFamily.parts`."""
    parts = [np.zeros(size, dtype=np.int32) for size in shape]
    stride = 1
    for (axis, pattern), layer in reversed(list(zip(query.items(), layers, strict=True))):
        rows = pattern.rows_of[:, layer]
        parts[axis] = np.where(rows == ABSENT, np.int32(ABSENT), rows * np.int32(stride))
        stride *= pattern.sizes.size
    return np.concatenate(parts)


# ----------------------------------------------------------------------------------------------------------------------
# Laminar families: sets of cells of which any two are nested or disjoint. Such a family is a forest.


ROOT = -1
UNSEEN = -2


@dataclass(frozen=True)
class Crossing:
    """Two sets that overlap, neither inside the other."""

    one: int
    other: int


@dataclass(frozen=True, eq=False)
class SetForest:
    """A laminar family as a forest: a node for each set, larger ones first, then one for the rest of each set that has
    both sets inside it and cells in none of these."""

    parent: NDArray[np.int64]
    sets: NDArray[np.int64]
    """The set of each node; only the first nodes are sets."""
    node_of_cell: NDArray[np.int64]
    """The smallest node that holds each cell, always a leaf; −1 for a cell in no set."""

    @property
    def nodes(self) -> int:
        return len(self.parent)

    def of_sets(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """What is known of each set, for each node; 0 for nodes that are no sets."""
        known = np.zeros(self.nodes, dtype=values.dtype)
        known[: len(self.sets)] = values[self.sets]
        return known


def crossing_sets(
    family: SetFamily, *, measured: NDArray[np.bool_], allowed: NDArray[np.bool_] | None = None
) -> Crossing | None:
    """Two of the measured sets that cross, among the allowed cells; None where the family is laminar."""
    found = _nest(family, measured, allowed, np.empty(0, dtype=np.int64))
    return found if isinstance(found, Crossing) else None


def forest_of_family(
    family: SetFamily, *, measured: NDArray[np.bool_], allowed: NDArray[np.bool_] | None = None
) -> SetForest | Crossing:
    """The forest of the measured sets that hold an allowed cell, or two sets that cross."""
    owner = np.full(int(np.prod(family.shape)), ROOT, dtype=np.int64)
    nested = _nest(family, measured, allowed, owner)
    return nested if isinstance(nested, Crossing) else _forest(*nested, owner)


def forest_of_lists(
    begins: NDArray[np.integer], sets: NDArray[np.integer], *, measured: NDArray[np.bool_]
) -> SetForest | Crossing:
    """The forest of the measured sets, given by lists: cell j is in sets[begins[j]] … sets[begins[j + 1] − 1]."""
    order, rank = _by_size(np.bincount(sets, minlength=len(measured)), measured)
    parent, owner = np.full(len(order), UNSEEN, dtype=np.int64), np.full(len(begins) - 1, ROOT, dtype=np.int64)
    one, other = _follow_lists(begins, sets, rank, parent, owner)
    return _forest(order, parent, owner) if one < 0 else Crossing(int(order[one]), int(order[other]))


def _nest(
    family: SetFamily, measured: NDArray[np.bool_], allowed: NDArray[np.bool_] | None, owner: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | Crossing:
    """The sets in order and the parent of each; the owners of the cells are filled in where there is room for them."""
    shape = np.array(family.shape, dtype=np.int64)
    possible = np.empty(0, dtype=np.bool_) if allowed is None else np.ascontiguousarray(allowed).ravel()
    sizes = family.sizes
    if allowed is not None:
        sizes = np.zeros_like(sizes)
        _count_layers(shape, family.starts, family.parts, family.bases, possible, sizes)
    order, rank = _by_size(sizes, measured)
    parent = np.full(len(order), UNSEEN, dtype=np.int64)
    one, other = _follow_layers(shape, family.starts, family.parts, family.bases, possible, rank, parent, owner)
    return (order, parent) if one < 0 else Crossing(int(order[one]), int(order[other]))


def _by_size(sizes: NDArray[np.integer], kept: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The kept sets that are not empty, larger ones first, and the place of each set in that order or ABSENT."""
    chosen = np.flatnonzero(kept & (sizes > 0))
    order = chosen[np.argsort(-sizes[chosen], kind="stable")].astype(np.int64)
    rank = np.full(len(sizes), ABSENT, dtype=np.int64)
    rank[order] = np.arange(len(order))
    return order, rank


def _forest(order: NDArray[np.int64], parent: NDArray[np.int64], owner: NDArray[np.int64]) -> SetForest:
    """The forest with a node for the rest of each set that is neither a leaf nor the union of others."""
    inner = np.zeros(len(order), dtype=np.bool_)
    inner[parent[parent >= 0]] = True
    owners = np.zeros(len(order), dtype=np.bool_)
    owners[owner[owner >= 0]] = True
    mixed = np.flatnonzero(inner & owners)
    node_of_set = np.arange(len(order) + 1, dtype=np.int64)
    node_of_set[-1] = ROOT
    node_of_set[mixed] = len(order) + np.arange(len(mixed))
    return SetForest(np.concatenate([parent, mixed]), order, node_of_set[owner])


@njit(nogil=True, cache=True)
def _link(chain, parent):  # pragma: no cover - compiled
    """Follow a chain of ranks; two that cross, or (−1, −1)."""
    for i in range(1, len(chain)):
        if chain[i] < chain[i - 1]:
            chain.sort()
            break
    above = ROOT
    for v in chain:
        if parent[v] == UNSEEN:
            parent[v] = above
        elif parent[v] != above:
            return v, max(parent[v], above)
        above = v
    return -1, -1


@njit(nogil=True, cache=True)
def _follow_lists(begins, sets, rank, parent, owner):  # pragma: no cover - compiled
    chain = np.empty(len(rank), dtype=np.int64)
    for cell in range(len(owner)):
        length = 0
        for place in range(begins[cell], begins[cell + 1]):
            if rank[sets[place]] >= 0:
                chain[length] = rank[sets[place]]
                length += 1
        one, other = _link(chain[:length], parent)
        if one >= 0:
            return one, other
        if length > 0:
            owner[cell] = chain[length - 1]
    return -1, -1


@njit(nogil=True, cache=True)
def _advance(shape, starts, parts, codes, sums, changed):  # pragma: no cover - compiled
    """Add up the parts of all axes from the first changed one on; `sums[a]` holds the axes before a."""
    for axis in range(changed, len(shape)):
        row = parts[starts[axis] + codes[axis]]
        for layer in range(len(row)):
            before = sums[axis, layer]
            sums[axis + 1, layer] = before + row[layer] if before >= 0 and row[layer] >= 0 else ABSENT


@njit(nogil=True, cache=True)
def _step(shape, codes):  # pragma: no cover - compiled
    """Go to the next cell, the last axis fastest; returns the first axis whose code changed, −1 after the last cell."""
    for axis in range(len(shape) - 1, -1, -1):
        codes[axis] += 1
        if codes[axis] < shape[axis]:
            return axis
        codes[axis] = 0
    return -1


@njit(nogil=True, cache=True)
def _count_layers(shape, starts, parts, bases, possible, sizes):  # pragma: no cover - compiled
    codes = np.zeros(len(shape), dtype=np.int64)
    sums = np.zeros((len(shape) + 1, len(bases)), dtype=np.int64)
    changed, cell = 0, 0
    while changed >= 0:
        _advance(shape, starts, parts, codes, sums, changed)
        if possible[cell]:
            for layer in range(len(bases)):
                if sums[len(shape), layer] >= 0:
                    sizes[bases[layer] + sums[len(shape), layer]] += 1
        changed = _step(shape, codes)
        cell += 1


@njit(nogil=True, cache=True)
def _follow_layers(shape, starts, parts, bases, possible, rank, parent, owner):  # pragma: no cover - compiled
    codes = np.zeros(len(shape), dtype=np.int64)
    sums = np.zeros((len(shape) + 1, len(bases)), dtype=np.int64)
    chain = np.empty(len(bases), dtype=np.int64)
    changed, cell = 0, 0
    while changed >= 0:
        _advance(shape, starts, parts, codes, sums, changed)
        if len(possible) == 0 or possible[cell]:
            length = 0
            for layer in range(len(bases)):
                number = sums[len(shape), layer]
                if number >= 0 and rank[bases[layer] + number] >= 0:
                    chain[length] = rank[bases[layer] + number]
                    length += 1
            one, other = _link(chain[:length], parent)
            if one >= 0:
                return one, other
            if length > 0 and len(owner) > 0:
                owner[cell] = chain[length - 1]
        changed = _step(shape, codes)
        cell += 1
    return -1, -1
