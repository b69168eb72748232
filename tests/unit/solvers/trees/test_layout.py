"""Breadth-first layouts say who is whose child, whatever order the caller's nodes come in."""

import numpy as np
import pytest

from consilience.errors import DeclarationError, TooLarge
from consilience.solvers.trees.layout import SETTINGS, complete_tree, forest, histogram_parents


def parents_in(layout):
    """The parent of each of the caller's nodes, read off a layout."""
    order = np.arange(layout.nodes) if layout.order is None else layout.order
    parent = np.full(layout.nodes, -1)
    for v in range(layout.nodes):
        parent[order[layout.first[v] : layout.first[v + 1]]] = order[v]
    return parent


def depths(parent):
    def depth(v):
        return 0 if parent[v] < 0 else 1 + depth(parent[v])

    return [depth(v) for v in range(len(parent))]


@pytest.mark.parametrize("seed", range(30))
def test_a_layout_of_a_forest_keeps_every_parent(seed):
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 60))
    grown = np.array([-1 if rng.random() < 0.1 else int(rng.integers(-1, v)) for v in range(nodes)])
    shuffle = rng.permutation(nodes)
    parent = np.empty(nodes, dtype=np.int64)
    parent[shuffle] = np.where(grown < 0, -1, shuffle[grown])

    layout = forest(parent, nodes)

    assert np.array_equal(parents_in(layout), parent)
    assert layout.roots == np.sum(parent < 0)
    assert layout.height == max(depths(parent))
    assert layout.total_depth == sum(depths(parent))
    values = rng.random(nodes)
    assert np.array_equal(layout.returned(layout.arranged(values)), values)


@pytest.mark.parametrize(("branching", "height"), [(2, 0), (2, 1), (2, 5), (3, 3), (7, 2)])
def test_a_complete_tree_is_the_histogram_tree_of_a_power(branching, height):
    parent = histogram_parents(branching**height, branching)
    complete = complete_tree(len(parent), branching)
    as_forest = forest(parent, len(parent))
    assert np.array_equal(complete.first, as_forest.first)
    assert as_forest.order is None
    assert (complete.height, complete.total_depth) == (as_forest.height, as_forest.total_depth)


@pytest.mark.parametrize("leaves", [1, 2, 3, 5, 17, 100])
@pytest.mark.parametrize("branching", [2, 3, 10])
def test_a_histogram_tree_ends_in_its_leaves_in_order(leaves, branching):
    parent = histogram_parents(leaves, branching)
    children = np.bincount(parent[1:], minlength=len(parent))
    assert np.array_equal(np.nonzero(children == 0)[0], np.arange(len(parent) - leaves, len(parent)))
    assert children.max(initial=0) <= branching
    assert np.all(np.diff(parent) >= 0)


def test_a_number_of_values_that_fits_no_complete_tree_is_refused():
    with pytest.raises(DeclarationError, match=r"there are 8 noisy values.*2 children.*7 or 15.*histogram_parents"):
        complete_tree(8, 2)


@pytest.mark.parametrize("branching", [1, 0, -3, 2.0])
def test_a_branching_below_two_is_refused(branching):
    with pytest.raises(DeclarationError, match="at least 2 children"):
        complete_tree(7, branching)
    with pytest.raises(DeclarationError, match="at least 2 children"):
        histogram_parents(4, branching)


def test_parents_in_a_circle_are_refused():
    with pytest.raises(DeclarationError, match="node 2 has no root above it"):
        forest([-1, 0, 4, 2, 3, 4], 6)
    with pytest.raises(DeclarationError, match="circle"):
        forest([0], 1)


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ([-1, 0], "give an integer each"),
        ([-1.0, 0.0, 0.0], "give an integer each"),
        ([-1, 0, 3], "the parent of node 2 is 3; a parent is −1 or a node from 0 to 2"),
        ([-2, 0, 0], "the parent of node 0 is -2"),
    ],
)
def test_parents_that_are_no_nodes_are_refused(parent, message):
    with pytest.raises(DeclarationError, match=message):
        forest(parent, 3)


def test_nothing_to_fit_and_too_much_to_fit_are_refused():
    with pytest.raises(DeclarationError, match="no noisy values"):
        forest(np.empty(0, dtype=np.int64), 0)
    with pytest.raises(DeclarationError, match="0 cells"):
        histogram_parents(0, 2)
    with pytest.raises(TooLarge, match="GB of memory"):
        complete_tree(4 * SETTINGS.largest_forest - 1, 2)
