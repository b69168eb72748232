"""Clusters, separators and counting numbers: every attribute is counted once, and trees are recognised."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.models.belief_propagation import concave_numbers, entropy
from consilience.models.region_graphs import region_graph

SCOPES = st.lists(st.sets(st.integers(0, 5), min_size=1, max_size=4).map(sorted).map(tuple), min_size=1, max_size=7)


def test_adjacent_triples_are_a_tree_with_pairs_between():
    graph = region_graph([3] * 6, [(j, j + 1, j + 2) for j in range(4)])
    assert graph.is_forest
    assert graph.separators == ((1, 2), (2, 3), (3, 4))
    assert graph.counting == (-1, -1, -1)
    assert graph.attached == ((0, 1), (1, 2), (2, 3))


def test_nested_separators_are_tied_to_one_cluster_of_those_that_agree_anyway():
    graph = region_graph([2] * 5, [(0, 1, 2), (0, 1, 3), (0, 4)])
    assert graph.is_forest
    assert dict(zip(graph.separators, graph.counting, strict=True)) == {(0, 1): -1, (0,): -1}
    assert [len(clusters) for clusters in graph.attached] == [2, 2]


def test_a_cycle_is_not_a_forest():
    assert not region_graph([2] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)]).is_forest
    assert not region_graph([2] * 4, [(0, 1, 2), (1, 2, 3), (0, 2, 3)]).is_forest


def test_scopes_inside_others_are_not_clusters():
    graph = region_graph([2, 3, 4], [(2, 1), (1,), (), (1, 2, 0)])
    assert graph.clusters == ((0, 1, 2),)
    assert graph.separators == ()
    assert [graph.home(scope) for scope in ((1,), (), (2, 0))] == [0, 0, 0]


@given(SCOPES)
def test_kikuchi_numbers_count_every_attribute_and_every_separator_once(scopes):
    graph = region_graph([2] * 6, scopes)
    regions = [*((each, 1) for each in graph.clusters), *zip(graph.separators, graph.counting, strict=True)]
    for part in [*((attribute,) for scope in scopes for attribute in scope), *graph.separators]:
        assert sum(number for region, number in regions if set(part) <= set(region)) == 1


@given(SCOPES)
def test_clusters_that_share_attributes_are_tied_through_them(scopes):
    graph = region_graph([2] * 6, scopes)
    for one, other in itertools.combinations(range(len(graph.clusters)), 2):
        shared = set(graph.clusters[one]) & set(graph.clusters[other])
        reached = {one}
        for _ in graph.clusters:
            for separator, clusters in zip(graph.separators, graph.attached, strict=True):
                if shared <= set(separator) and reached & set(clusters):
                    reached |= set(clusters)
        assert not shared or other in reached


def entropy_sum(joint, graph, clusters, separators):
    """The weighted sum of entropies of a joint table's marginals."""
    axes = range(joint.ndim)
    numbers = [*zip(graph.clusters, clusters, strict=True), *zip(graph.separators, separators, strict=True)]
    return sum(number * entropy(joint.sum(axis=tuple(set(axes) - set(region)))) for region, number in numbers)


@pytest.mark.parametrize(
    "scopes",
    [
        list(itertools.combinations(range(4), 2)),
        list(itertools.combinations(range(4), 3)),
        [(0, 1), (1, 2), (2, 3), (0, 3)],
        [(0, 1, 2), (1, 2, 3), (0, 3)],
    ],
)
def test_concave_numbers_make_the_entropy_concave(scopes):
    graph = region_graph([2, 3, 2, 2], scopes)
    clusters, separators = concave_numbers(graph)
    assert clusters.min() > 0
    rng = np.random.default_rng(0)
    for spread in (0.05, 0.5, 5.0):
        one, other = (rng.dirichlet(np.full(24, spread)).reshape(2, 3, 2, 2) for _ in range(2))
        middle = entropy_sum((one + other) / 2, graph, clusters, separators)
        ends = [entropy_sum(each, graph, clusters, separators) for each in (one, other)]
        assert middle >= sum(ends) / 2


def test_kikuchi_numbers_of_many_loops_are_not_concave():
    graph = region_graph([2] * 4, list(itertools.combinations(range(4), 2)))
    equal = np.zeros((2, 2, 2, 2))
    equal[0, 0, 0, 0] = equal[1, 1, 1, 1] = 0.5
    assert entropy_sum(equal, graph, np.ones(6), np.array(graph.counting)) < 0
    assert entropy_sum(equal, graph, *concave_numbers(graph)) > 0


@settings(max_examples=40)
@given(SCOPES)
def test_concave_numbers_count_attributes_about_once(scopes):
    graph = region_graph([2] * 6, scopes)
    clusters, separators = concave_numbers(graph)
    assert np.all(separators + [clusters[list(attached)].sum() for attached in graph.attached] > 0)
    for attribute in {attribute for scope in scopes for attribute in scope}:
        counted = sum(number for region, number in zip(graph.clusters, clusters, strict=True) if attribute in region)
        counted += sum(n for region, n in zip(graph.separators, separators, strict=True) if attribute in region)
        assert counted == pytest.approx(1.0, abs=0.25)
