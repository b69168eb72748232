"""Laminar families are recognised, and their forests are those of the sets themselves."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, Kronecker, PrefixMap, SparseMap, SumMap
from consilience.solvers.trees import laminar as set_families
from consilience.solvers.trees.laminar import (
    Crossing,
    SetFamily,
    axis_pattern,
    crossing_sets,
    forest_of_family,
    forest_of_lists,
)

PAIRS = SparseMap(sp.csr_array(np.kron(np.eye(2), np.ones((1, 2)))))
TREE = SparseMap(sp.csr_array(np.vstack([np.ones((1, 4)), np.kron(np.eye(2), np.ones((1, 2))), np.eye(4)])))
SHIFTED = SparseMap(sp.csr_array(np.array([[0.0, 1.0, 1.0, 0.0]])))
ODD = SparseMap(sp.csr_array(np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])))


def written_out(shape, queries) -> np.ndarray:
    """Every set as a row of truth values over the cells."""
    rows = []
    for query in queries:
        axes = sorted(query)
        maps = tuple(query.get(axis, SumMap(size)) for axis, size in enumerate(shape))
        cells = np.eye(int(np.prod(shape))).reshape(-1, *shape)
        answers = np.stack([Kronecker(maps).apply(cell) for cell in cells], axis=-1)
        order = [*query, *(axis for axis in range(len(shape)) if axis not in axes)]
        rows.append(answers.transpose([*order, len(shape)]).reshape(-1, cells.shape[0]))
    return np.concatenate(rows) > 0


def cross(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((one & other).any() and (one & ~other).any() and (other & ~one).any())


CASES = [
    ((4, 3), [{0: TREE}, {0: IdentityMap(4), 1: IdentityMap(3)}]),
    ((4, 3), [{}, {0: PAIRS}, {1: IdentityMap(3), 0: IdentityMap(4)}, {0: PAIRS}]),
    ((4, 3), [{0: IdentityMap(4)}, {1: IdentityMap(3)}]),
    ((4,), [{0: PAIRS}, {0: SHIFTED}]),
    ((4,), [{0: PrefixMap(4)}, {0: IdentityMap(4)}]),
    ((4,), [{0: PrefixMap(4)}, {0: PAIRS}]),
    ((4,), [{0: ODD}]),
    ((4, 4), [{0: TREE, 1: TREE}]),
    ((4, 4), [{0: PAIRS, 1: PAIRS}, {0: IdentityMap(4), 1: IdentityMap(4)}, {1: SHIFTED, 0: SHIFTED}]),
    ((2, 3, 4), [{2: IdentityMap(4)}, {2: IdentityMap(4), 0: IdentityMap(2)}, {}, {}]),
    ((), [{}, {}]),
    ((2,), [{0: AllRangesMap(2)}]),
]


def family_of(shape, queries) -> SetFamily:
    return SetFamily.of(shape, [{axis: axis_pattern(each) for axis, each in query.items()} for query in queries])


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_crossing_sets_are_found_exactly_where_there_are_some(number, seed):
    shape, queries = CASES[number]
    sets = written_out(shape or (1,), queries)
    allowed, measured = np.ones(sets.shape[1], bool), np.ones(len(sets), bool)
    if seed is not None:
        rng = np.random.default_rng(seed)
        allowed, measured = rng.random(allowed.size) < 0.7, rng.random(measured.size) < 0.7
    given = None if seed is None else allowed
    family = family_of(shape, queries)
    assert family.sizes.tolist() == sets.sum(axis=1).tolist()
    kept = sets & allowed
    pairs = [pair for pair in itertools.combinations(np.flatnonzero(measured), 2) if cross(*kept[list(pair)])]
    found = crossing_sets(family, measured=measured, allowed=given)
    assert (found is None) == (not pairs)
    if found is not None:
        assert cross(kept[found.one], kept[found.other])
        assert measured[[found.one, found.other]].all()
        assert isinstance(forest_of_family(family, measured=measured, allowed=given), Crossing)
        return
    check_forest(forest_of_family(family, measured=measured, allowed=given), kept, measured)


def check_forest(forest, sets, measured):
    """Every node's cells are those of its set, and inner nodes are the unions of their children."""
    nodes = [set() for _ in range(forest.nodes)]
    for cell, node in enumerate(forest.node_of_cell):
        assert (node < 0) == (not sets[measured][:, cell].any())
        while node >= 0:
            nodes[node].add(cell)
            node = forest.parent[node]
    for node, number in enumerate(forest.sets):
        assert nodes[node] == set(np.flatnonzero(sets[number]))
    assert sorted(forest.sets) == [i for i in range(len(sets)) if measured[i] and sets[i].any()]
    inner = np.unique(forest.parent[forest.parent >= 0])
    assert not np.isin(forest.node_of_cell, inner).any()


@pytest.mark.parametrize("seed", range(60))
def test_lists_of_sets_are_nested_like_the_sets(seed):
    rng = np.random.default_rng(seed)
    sets = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0]], dtype=bool)
    if seed % 2:
        sets = rng.random((4, 6)) < 0.3
    sets, measured = sets[:, rng.permutation(6)][rng.permutation(4)], rng.random(4) < 0.8
    lists = sp.csc_array(sets.astype(float))
    found = forest_of_lists(lists.indptr, lists.indices, measured=measured)
    pairs = [pair for pair in itertools.combinations(np.flatnonzero(measured), 2) if cross(*sets[list(pair)])]
    assert isinstance(found, Crossing) == bool(pairs)
    if isinstance(found, Crossing):
        assert cross(sets[found.one], sets[found.other])
    else:
        check_forest(found, sets, measured)


def test_maps_that_are_no_sets_say_why(monkeypatch):
    assert "other than 0 and 1" in axis_pattern(SparseMap(sp.csr_array([[1.0, -1.0]])))
    assert "overlap" in axis_pattern(AllRangesMap(3))
    assert "prefixes" in axis_pattern(PrefixMap(100_000))
    monkeypatch.setattr(set_families, "SETTINGS", replace(set_families.SETTINGS, largest_pattern=10))
    assert "3 of its sets" in axis_pattern(TREE)
