"""Junction trees: their laws, their size, and who is to blame for it."""

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.errors import DeclarationError
from consilience.models import elimination_orders
from consilience.models.elimination_orders import InteractionGraph, eliminate_simplicial, least_clique
from consilience.models.junction_trees import (
    JunctionTree,
    WorstClique,
    junction_tree,
    junction_tree_within,
    worst_cliques,
)


@st.composite
def scoped_attributes(draw) -> tuple[list[int], list[tuple[int, ...]]]:
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=9))
    scope = st.lists(st.integers(0, len(sizes) - 1), max_size=4, unique=True).map(tuple)
    return sizes, draw(st.lists(scope, max_size=10))


def assert_is_junction_tree(tree: JunctionTree, scopes) -> None:
    assert all(parent < place for place, parent in enumerate(tree.parents))
    for scope in scopes:
        assert any(set(scope) <= set(clique) for clique in tree.cliques)
    covered = {attribute for scope in scopes for attribute in scope}
    assert covered == {attribute for clique in tree.cliques for attribute in clique}
    for attribute in covered:
        holding = {place for place, clique in enumerate(tree.cliques) if attribute in clique}
        tops = [place for place in holding if tree.parents[place] not in holding]
        assert len(tops) == 1, "the cliques that hold an attribute are connected"
    for one, other in itertools.permutations(tree.cliques, 2):
        assert not set(one) <= set(other), "no clique lies in another"


@settings(max_examples=60, deadline=None)
@given(scoped_attributes())
def test_every_tree_covers_its_scopes_with_connected_attributes(model) -> None:
    sizes, scopes = model
    tree = junction_tree(sizes, scopes, restarts=2)
    assert_is_junction_tree(tree, scopes)
    assert tree.cells == sum(math.prod(sizes[a] for a in clique) for clique in tree.cliques)


def test_roots_are_the_largest_cliques_of_their_components() -> None:
    tree = junction_tree([2, 9, 9, 2, 3, 3], [(0, 1), (1, 2), (2, 3), (4, 5)])
    roots = [clique for clique, parent in zip(tree.cliques, tree.parents, strict=True) if parent < 0]
    assert roots == [(1, 2), (4, 5)]


def test_a_chordal_graph_keeps_its_own_cliques() -> None:
    scopes = [(0, 1, 2), (1, 2, 3), (3, 4), (5,)]
    tree = junction_tree([9, 2, 2, 9, 9, 4], scopes)
    assert sorted(tree.cliques) == scopes
    graph = InteractionGraph.of([2] * 6, scopes)
    eliminate_simplicial(graph)
    assert not graph.neighbours, "no search is needed"


def test_the_search_finds_the_best_tree_of_a_cycle() -> None:
    # Any triangulation of a cycle has four triangles; the best one has the attribute of size 2 in all of them.
    sizes = [10, 10, 2, 10, 10, 10]
    tree = junction_tree(sizes, [(i, (i + 1) % 6) for i in range(6)])
    assert tree.cells == 4 * 200


def test_restarts_never_make_a_tree_larger_and_the_seed_decides() -> None:
    side = 6
    scopes = [(side * i + j, side * i + j + 1) for i in range(side) for j in range(side - 1)]
    scopes += [(side * i + j, side * i + j + side) for i in range(side - 1) for j in range(side)]
    sizes = [2 + (7 * i) % 5 for i in range(side * side)]
    once, often = junction_tree(sizes, scopes, restarts=0), junction_tree(sizes, scopes, restarts=10, seed=3)
    assert often.cells <= once.cells
    assert often == junction_tree(sizes, scopes, restarts=10, seed=3)


def test_long_chains_take_time_in_proportion_to_their_length() -> None:
    seconds = []
    for length in (500, 8000):
        scopes = [(i, i + 1, i + 2) for i in range(length - 2)]
        begin = time.process_time()
        tree = junction_tree([10] * length, scopes)
        seconds.append(time.process_time() - begin)
        assert (len(tree.cliques), tree.largest, tree.cells) == (length - 2, 1000, 1000 * (length - 2))
    assert seconds[1] < 4 * 16 * max(seconds[0], 0.005), "sixteen times the length; the square would be 256 times"


def test_cells_beyond_every_float_are_counted_exactly() -> None:
    tree = junction_tree([10] * 400, [tuple(range(400))])
    assert tree.cells == tree.largest == 10**400


def test_extra_scopes_become_parts_of_cliques() -> None:
    measured = [(0, 1), (1, 2), (2, 3)]
    assert junction_tree([2] * 4, measured).home((0, 3)) is None
    assert junction_tree([2] * 4, [*measured, (0, 3)]).home((0, 3)) is not None


def test_a_model_without_attributes_has_one_empty_clique() -> None:
    tree = junction_tree([3, 4], [()])
    assert (tree.cliques, tree.parents, tree.cells) == (((),), (-1,), 1)


def test_the_worst_clique_is_blamed_on_the_scopes_within_it() -> None:
    scopes = [(0, 1), (4, 5), (1, 2), (2, 3), (0, 3), (0, 2, 4)]
    worst, second = worst_cliques(junction_tree([9, 9, 9, 9, 2, 2], scopes), scopes, 2)
    assert worst.cells == second.cells == 729
    assert {worst.clique, second.clique} == {(0, 1, 2), (0, 2, 3)}
    assert set(worst.scopes) == ({0, 2, 5} if worst.clique == (0, 1, 2) else {3, 4, 5})
    assert all(scopes[k] != (4, 5) for k in worst.scopes)


def test_unknown_attributes_are_refused() -> None:
    with pytest.raises(DeclarationError, match="names attribute 7"):
        junction_tree([2, 2], [(0, 7)])


def test_the_bound_on_cliques_is_below_every_tree_and_exact_on_rings_and_complete_graphs() -> None:
    ring = [(i, (i + 1) % 6) for i in range(6)]
    complete = list(itertools.combinations(range(5), 2))
    for sizes, scopes, largest in (
        ([3] * 6, ring, 27),
        ([2, 3, 4, 5, 6], complete, 720),
        ([9, 2, 9], [(0, 1), (1, 2)], 18),
    ):
        assert round(math.exp(least_clique(InteractionGraph.of(sizes, scopes)))) == largest
    rng = np.random.default_rng(0)
    for _ in range(20):
        sizes = rng.integers(2, 6, 12).tolist()
        scopes = [tuple(rng.choice(12, 2, replace=False).tolist()) for _ in range(20)]
        bound = math.exp(least_clique(InteractionGraph.of(sizes, scopes)))
        assert bound <= junction_tree(sizes, scopes).largest * (1 + 1e-9)


def test_a_graph_without_a_small_tree_is_told_by_a_bound_and_not_by_a_search(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    scopes = [tuple(rng.choice(400, 2, replace=False).tolist()) for _ in range(2000)]
    looked = []
    greedily = elimination_orders.eliminate_greedily
    monkeypatch.setattr(
        elimination_orders, "eliminate_greedily", lambda *given: looked.append(given[1]) or greedily(*given)
    )
    worst = junction_tree_within([4] * 400, scopes, 10**8)
    assert isinstance(worst, WorstClique)
    assert 10**8 < worst.cells < 10**20
    assert looked == ["weight"]


def test_a_tree_within_a_limit_has_no_larger_clique() -> None:
    ring = [(i, (i + 1) % 6) for i in range(6)]
    assert isinstance(junction_tree_within([10] * 6, ring, 999), WorstClique)
    tree = junction_tree_within([10] * 6, ring, 1000)
    assert isinstance(tree, JunctionTree)
    assert tree.largest == 1000
    assert_is_junction_tree(tree, ring)
