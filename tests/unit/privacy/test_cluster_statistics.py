"""The statistics of k-means: no record, whatever it holds, moves them by more than their sensitivity."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain
from consilience.errors import DeclarationError
from consilience.kernels.regions import REGION_KINDS
from consilience.privacy.cluster_statistics import CHUNK, ClusterStatistic, cluster_statistics, declared_bounds

DOMAIN = Domain("plane", (Attribute.continuous("x", (-3.0, 5.0)), Attribute.continuous("y", (0.0, 1e6))))
BOUNDS = ((-3.0, 5.0), (0.0, 1e6))

coordinates = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([-3.0, 5.0, 1.0, 0.0, 1e6, 5e5, math.nan, math.inf, -math.inf, 1e308, -1e308]),
)
records = st.tuples(coordinates, coordinates)
centroid_lists = st.lists(st.tuples(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5)), min_size=1, max_size=4)


def norms_of_change(before, after, bits):
    """The exact change in the statistic's own units: its L1 norm and the square of its L2 norm."""
    changes = [Fraction(int(a) - int(b), 2**bits) for a, b in zip(after, before, strict=True)]
    return sum(map(abs, changes)), sum(change * change for change in changes)


@given(
    st.lists(records, max_size=4), records, records, centroid_lists, st.sampled_from(REGION_KINDS), st.integers(1, 28)
)
@example([], (math.inf, math.inf), (-math.inf, -math.inf), [(0.0, 0.0)], "box", 20)
@example([], (math.inf, 5e5), (-math.inf, 5e5), [(0.0, 0.0)], "ball", 20)
@example([], (5.0, 1e6), (math.nan, 0.0), [(0.0, 0.0)], "radial-ball", 1)
@settings(deadline=None, max_examples=60)
def test_no_record_moves_a_statistic_by_more_than_its_sensitivity(others, one, two, centroids, region, bits):
    def points(rows):
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    for statistic in cluster_statistics(DOMAIN, ("x", "y"), region, centroids, lattice_bits=bits):
        base = statistic.exact(points(others))
        with_one = statistic.exact(points([one, *others]))
        with_two = statistic.exact(points([*others, two]))
        for before, after, relation in ((base, with_one, "add-remove"), (with_one, with_two, "replace-one")):
            assert after.dtype == np.int64
            assert after.shape == (statistic.size,)
            absolute, squared = norms_of_change(before, after, statistic.bits)
            assert absolute <= Fraction(statistic.sensitivity(1, relation))
            # A square root is rounded by half a last place at most; scales are raised by far more than that.
            assert squared <= Fraction(statistic.sensitivity(2, relation)) ** 2 * (1 + Fraction(1, 10**15))


@pytest.mark.parametrize("region", REGION_KINDS)
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_the_sensitivity_of_sums_is_attained(region, relation):
    corner = (5.0, 1e6) if region == "box" else (5.0, 5e5)
    opposite = (-3.0, 0.0) if region == "box" else (-3.0, 5e5)
    _, sums = cluster_statistics(DOMAIN, ("x", "y"), region, [(0.0, 0.0)])
    other = np.empty((0, 2)) if relation == "add-remove" else np.array([opposite])
    absolute, squared = norms_of_change(sums.exact(other), sums.exact(np.array([corner])), sums.bits)
    assert absolute == sums.sensitivity(1, relation)
    assert float(squared) == pytest.approx(sums.sensitivity(2, relation) ** 2, rel=1e-12)


@pytest.mark.parametrize(
    ("clusters", "relation", "expected"),
    [(3, "add-remove", (1, 1)), (3, "replace-one", (2, math.sqrt(2))), (1, "replace-one", (1, 1))],
)
def test_the_sensitivity_of_counts_is_attained(clusters, relation, expected):
    counts, _ = cluster_statistics(DOMAIN, ("x", "y"), "box", [(-0.5, 0.0), (0.5, 0.0), (0.0, 0.5)][:clusters])
    dropped = (math.nan, 0.0)
    moved_to = (5.0, 5e5) if clusters > 1 and relation == "replace-one" else dropped
    absolute, squared = norms_of_change(
        counts.exact(np.array([(-3.0, 5e5)])), counts.exact(np.array([moved_to])), counts.bits
    )
    assert (absolute, math.sqrt(squared)) == expected
    assert tuple(counts.sensitivity(norm, relation) for norm in (1, 2)) == expected


def test_statistics_are_the_obvious_sums():
    rng = np.random.default_rng(0)
    points = rng.uniform((-4, -1e5), (6, 1.1e6), (500, 2))
    centroids = rng.uniform(-0.5, 0.5, (4, 2))
    counts, sums = cluster_statistics(DOMAIN, ("x", "y"), "box", centroids)
    expected = {k: [0, 0, 0] for k in range(4)}
    for x, y in points.tolist():
        place = (min(max((x - 1) / 4, -1), 1), min(max((y - 5e5) / 5e5, -1), 1))
        units = [math.trunc(each * 2**20) for each in place]
        distances = [sum((unit / 2**20 - c) ** 2 for unit, c in zip(units, row, strict=True)) for row in centroids]
        row = expected[distances.index(min(distances))]
        row[0] += 1
        row[1] += units[0]
        row[2] += units[1]
    assert counts.exact(points).tolist() == [expected[k][0] for k in range(4)]
    assert sums.exact(points).reshape(4, 2).tolist() == [expected[k][1:] for k in range(4)]


def test_the_order_of_records_and_the_chunks_they_fall_in_change_nothing():
    points = np.random.default_rng(0).uniform((-3, 0), (5, 1e6), (CHUNK + 1000, 2))
    for statistic in cluster_statistics(DOMAIN, ("x", "y"), "ball", [(0.1, 0.1), (0.1, -0.1), (-0.2, 0.0)]):
        whole = statistic.exact(points)
        np.testing.assert_array_equal(whole, statistic.exact(points[::-1]))
        np.testing.assert_array_equal(whole, statistic.exact(points[:7]) + statistic.exact(points[7:]))


def test_no_records_are_zeros():
    for statistic in cluster_statistics(DOMAIN, ("x", "y"), "box", [(0.0, 0.0)] * 3):
        assert not statistic.exact(np.empty((0, 2))).any()


def test_the_description_is_plain_data_that_gives_the_statistic_back():
    for statistic in cluster_statistics(DOMAIN, ("x", "y"), "ball", [(0.1, 1 / 3), (-0.25, 0.0)]):
        described = json.loads(json.dumps(statistic.describe()))
        assert described["algorithm"] == "k-means"
        again = ClusterStatistic(
            described["part"],
            tuple(described["attributes"]),
            tuple((low, high) for low, high in described["bounds"]),
            described["region"],
            tuple(map(tuple, described["centroids"])),
            described["bits"],
        )
        assert again == statistic


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"part": "means"}, "means"),
        ({"attributes": ("x", "z")}, "z"),
        ({"attributes": ("x", "x")}, "twice"),
        ({"attributes": ()}, "at least one"),
        ({"bounds": ((-3.0, 5.0), (0.0, 2e6))}, "declared as"),
        ({"region": "disc"}, "disc"),
        ({"centroids": ()}, "centroids"),
        ({"centroids": ((0.0,),)}, "centroids"),
        ({"centroids": ((0.0, 1.5),)}, "region"),
        ({"centroids": ((0.0, math.nan),)}, "region"),
        ({"lattice_bits": 0}, "bits"),
        ({"lattice_bits": 29}, "bits"),
    ],
)
def test_statistics_that_do_not_fit_the_domain_are_refused(change, said):
    fields = {
        "part": "sums",
        "attributes": ("x", "y"),
        "bounds": BOUNDS,
        "region": "box",
        "centroids": ((0.0, 0.0),),
        "lattice_bits": 20,
    }
    ClusterStatistic(**fields).check(DOMAIN)
    with pytest.raises(DeclarationError, match=said):
        ClusterStatistic(**(fields | change)).check(DOMAIN)


def test_attributes_with_cells_have_no_points():
    domain = Domain("town", (Attribute.numeric("age", [0, 18, 65]), Attribute.continuous("x", (0, 1))))
    with pytest.raises(DeclarationError, match=r"age.*continuous"):
        declared_bounds(domain, ("age",))
