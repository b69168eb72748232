"""Nearest centroids and cluster sums against their obvious twins."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.problems.clusterings import nearest, wcss
from consilience.errors import DeclarationError
from consilience.iterates.clustering import next_centroids
from consilience.kernels.regions import REGION_KINDS, Region
from consilience.kernels.rng import generator
from consilience.privacy.cluster_statistics import cluster_sums


def problem(seed, records=50, clusters=4, dimensions=3):
    rng = generator(seed)
    return rng.uniform(-1, 1, (records, dimensions)), rng.uniform(-1, 1, (clusters, dimensions))


@given(st.integers(0, 1000))
@settings(deadline=None)
def test_labels_are_those_of_the_full_table_of_distances(seed):
    points, centroids = problem(seed)
    table = ((points[:, None, :] - centroids) ** 2).sum(axis=2)
    np.testing.assert_array_equal(nearest(points, centroids), table.argmin(axis=1))
    assert wcss(points, centroids) == pytest.approx(table.min(axis=1).sum())


def test_ties_go_to_the_lowest_index_wherever_the_record_stands():
    centroids = np.array([[0.5], [-0.5], [0.5]])
    for records in (1, 2, 3, 7, 64):
        assert nearest(np.zeros((records, 1)), centroids).tolist() == [0] * records


@given(st.integers(0, 1000), st.integers(1, 28))
@settings(deadline=None)
def test_sums_are_exact_integers(seed, bits):
    points, centroids = problem(seed)
    units = np.trunc(points * 2.0**bits).astype(np.int32)
    counts, sums = cluster_sums(units, centroids, bits=bits)
    labels = nearest(units * 2.0**-bits, centroids)
    for k in range(len(centroids)):
        assert counts[k] == (labels == k).sum()
        assert sums[k].tolist() == [sum(int(unit) for unit in column) for column in units[labels == k].T]


def test_the_sums_of_many_records_do_not_wrap():
    units = np.full((100_000, 1), 2**28, np.int32)
    counts, sums = cluster_sums(units, np.zeros((1, 1)), bits=28)
    assert (counts[0], sums[0, 0]) == (100_000, 100_000 * 2**28)


def test_no_records_give_zeros():
    counts, sums = cluster_sums(np.empty((0, 2), np.int32), np.zeros((3, 2)))
    assert counts.tolist() == [0, 0, 0]
    assert not sums.any()


def test_weights_count_points_several_times():
    points, centroids = problem(3)
    weights = generator(4).integers(0, 4, len(points)).astype(float)
    repeated = np.repeat(points, weights.astype(int), axis=0)
    assert wcss(points, centroids, weights=weights) == pytest.approx(wcss(repeated, centroids))


@given(
    st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3),
    st.lists(st.floats(-1e9, 1e9), min_size=6, max_size=6),
    st.sampled_from(REGION_KINDS),
)
@settings(deadline=None)
def test_next_centroids_stay_in_the_region_whatever_the_noise(counts, sums, kind):
    region = Region(kind, 2)
    previous = region.project(generator(0).uniform(-1, 1, (3, 2)))
    found = next_centroids(counts, np.reshape(sums, (3, 2)), previous, region)
    assert region.contains(found).all()
    for k in range(3):
        if counts[k] < 1:
            np.testing.assert_array_equal(found[k], previous[k])
        else:
            np.testing.assert_array_equal(found[k], region.project(np.reshape(sums, (3, 2))[k] / counts[k]))


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(DeclarationError, match="do not match"):
        nearest(np.zeros((4, 2)), np.zeros((3, 1)))
    with pytest.raises(DeclarationError, match="do not fit"):
        cluster_sums(np.zeros((4, 2), np.int32), np.zeros((3, 1)))
    with pytest.raises(DeclarationError, match="one count and one row"):
        next_centroids([1.0], np.zeros((2, 1)), np.zeros((2, 1)), Region("box", 1))
    with pytest.raises(DeclarationError, match="weights"):
        wcss(np.zeros((2, 1)), np.zeros((1, 1)), weights=np.array([1.0, -1.0]))
