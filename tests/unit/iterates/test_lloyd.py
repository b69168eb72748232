"""Clustering without noise, and where clustering starts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.problems.clusterings import nearest, wcss
from consilience.errors import DeclarationError
from consilience.iterates.clustering import initial_centroids, lloyd
from consilience.kernels.regions import REGION_KINDS, Region
from consilience.kernels.rng import generator


def best_partition(points, clusters):
    """The least within-cluster sum of squares, over all labellings."""
    least = np.inf
    for labels in itertools.product(range(clusters), repeat=len(points)):
        squares = 0.0
        for k in range(clusters):
            members = points[[label == k for label in labels]]
            if len(members):
                squares += ((members - members.mean(axis=0)) ** 2).sum()
        least = min(least, squares)
    return least


@given(st.integers(0, 30))
@settings(max_examples=15, deadline=None)
def test_small_problems_are_solved_to_the_optimum(seed):
    points = generator(seed).uniform(-1, 1, (6, 2))
    found = lloyd(points, 3, generator(1), restarts=30)
    assert wcss(points, found) == pytest.approx(best_partition(points, 3), rel=1e-9)


@given(st.integers(0, 1000))
@settings(deadline=None)
def test_the_result_is_a_fixed_point_of_lloyds_step(seed):
    points = generator(seed).uniform(-1, 1, (60, 2))
    found = lloyd(points, 5, generator(seed))
    labels = nearest(points, found)
    for k in np.unique(labels):
        np.testing.assert_allclose(found[k], points[labels == k].mean(axis=0), atol=1e-12)


def test_weights_are_repetitions():
    points = generator(5).uniform(-1, 1, (40, 2))
    weights = generator(6).integers(0, 5, 40)
    start = points[:4]
    weighted = lloyd(points, 4, generator(0), weights=weights, start=start)
    repeated = lloyd(np.repeat(points, weights, axis=0), 4, generator(0), start=start)
    np.testing.assert_allclose(weighted, repeated, atol=1e-12)


def test_a_start_alone_leaves_the_generator_untouched():
    rng = generator(3)
    points = generator(5).uniform(-1, 1, (40, 2))
    lloyd(points, 4, rng, start=points[:4])
    assert rng.random() == generator(3).random()


def test_separated_clusters_are_all_found():
    centres = np.array([[x, y] for x in range(4) for y in range(4)], dtype=float)
    points = np.repeat(centres, 25, axis=0) + generator(0).normal(0, 0.03, (400, 2))
    found = lloyd(points, 16, generator(1), restarts=5)
    assert sorted(nearest(centres, found).tolist()) == list(range(16))


@pytest.mark.parametrize("points", [np.empty((0, 2)), np.zeros((1, 2)), np.full((3, 2), 0.25)])
def test_more_clusters_than_points_simply_run(points):
    found = lloyd(points, 5, generator(0))
    assert found.shape == (5, 2)
    assert np.isfinite(found).all()
    start = np.linspace(-1, 1, 10).reshape(5, 2)
    assert np.isfinite(lloyd(points, 5, generator(0), start=start)).all()
    if not len(points):
        np.testing.assert_array_equal(lloyd(points, 5, generator(0), start=start), start)


def test_wrong_arguments_are_refused():
    with pytest.raises(DeclarationError, match="restarts"):
        lloyd(np.zeros((3, 1)), 2, generator(0), restarts=0)
    with pytest.raises(DeclarationError, match="start has the shape"):
        lloyd(np.zeros((3, 1)), 2, generator(0), start=np.zeros((3, 1)))
    with pytest.raises(DeclarationError, match="weights"):
        lloyd(np.zeros((3, 1)), 2, generator(0), weights=[1.0, 2.0, np.nan])
    with pytest.raises(DeclarationError, match="clusters"):
        lloyd(np.zeros((3, 1)), 0, generator(0))


@given(st.integers(1, 20), st.integers(1, 8), st.sampled_from(REGION_KINDS), st.integers(0, 50))
@settings(deadline=None)
def test_initial_centroids_are_in_the_region_apart_and_repeatable(clusters, dimensions, kind, seed):
    found = initial_centroids(clusters, dimensions, kind, seed)
    assert found.shape == (clusters, dimensions)
    assert Region(kind, dimensions).contains(found).all()
    np.testing.assert_array_equal(found, initial_centroids(clusters, dimensions, kind, seed))
    gaps = [np.linalg.norm(a - b) for a, b in itertools.combinations(found, 2)]
    assert min(gaps, default=1.0) > 1e-3


def test_initial_centroids_are_farther_apart_than_random_ones():
    packed = initial_centroids(15, 2, "box", 0)
    drawn = [generator(seed).uniform(-1, 1, (15, 2)) for seed in range(20)]

    def least_gap(points):
        return min(np.linalg.norm(a - b) for a, b in itertools.combinations(points, 2))

    assert least_gap(packed) > 3 * np.median([least_gap(each) for each in drawn])


@pytest.mark.parametrize("wrong", [(0, 2, "box", 0), (2, 2, "disc", 0), (2, 2, "box", -1), (2, 2, Region("box", 3), 0)])
def test_initial_centroids_refuse_what_makes_no_sense(wrong):
    with pytest.raises(DeclarationError):
        initial_centroids(*wrong)
