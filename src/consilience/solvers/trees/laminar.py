"""Laminar families: sets of cells of which any two are nested or disjoint. Such a family is a forest.

Put all sets in order, larger ones first. The sets that hold one cell are then a chain, and in a laminar family the one
before a set A in the chain is the smallest set around A, the same for every cell of A. Conversely, if all cells of A
agree on the set before A, for every A, then whatever comes before A and holds one of its cells holds all of them: the
family is laminar. So one look at every (cell, set) pair finds the forest. Where two cells of A disagree, the later of
the two sets before A holds one of them and not the other, and is no smaller than A: these two sets cross.
"""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import announce
from consilience.solvers.trees.set_families import ABSENT, SetFamily

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
    announce(_follow_lists)
    order, rank = _by_size(np.bincount(sets, minlength=len(measured)), measured)
    parent, owner = np.full(len(order), UNSEEN, dtype=np.int64), np.full(len(begins) - 1, ROOT, dtype=np.int64)
    one, other = _follow_lists(begins, sets, rank, parent, owner)
    return _forest(order, parent, owner) if one < 0 else Crossing(int(order[one]), int(order[other]))


def _nest(
    family: SetFamily, measured: NDArray[np.bool_], allowed: NDArray[np.bool_] | None, owner: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | Crossing:
    """The sets in order and the parent of each; the owners of the cells are filled in where there is room for them."""
    announce(_follow_layers)
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


@numba.njit(nogil=True, cache=True)
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


@numba.njit(nogil=True, cache=True)
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


@numba.njit(nogil=True, cache=True)
def _advance(shape, starts, parts, codes, sums, changed):  # pragma: no cover - compiled
    """Add up the parts of all axes from the first changed one on; `sums[a]` holds the axes before a."""
    for axis in range(changed, len(shape)):
        row = parts[starts[axis] + codes[axis]]
        for layer in range(len(row)):
            before = sums[axis, layer]
            sums[axis + 1, layer] = before + row[layer] if before >= 0 and row[layer] >= 0 else ABSENT


@numba.njit(nogil=True, cache=True)
def _step(shape, codes):  # pragma: no cover - compiled
    """Go to the next cell, the last axis fastest; returns the first axis whose code changed, −1 after the last cell."""
    for axis in range(len(shape) - 1, -1, -1):
        codes[axis] += 1
        if codes[axis] < shape[axis]:
            return axis
        codes[axis] = 0
    return -1


@numba.njit(nogil=True, cache=True)
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


@numba.njit(nogil=True, cache=True)
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
