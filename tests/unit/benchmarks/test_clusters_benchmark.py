"""The benchmarks of clusters: all ways on the same measurements, and intervals that hold what they are about."""

from benchmarks.accuracy.clusters import WAYS, compared
from benchmarks.accuracy.iterate_coverage import clusters_held, summary
from benchmarks.problems.points import mixture
from consilience.estimators.clusters import cluster
from consilience.estimators.iterates import Iterates
from consilience.kernels.regions import Region, normalised
from consilience.measuring import measure
from consilience.plans.rounds import KMeans


def test_every_way_has_a_row_about_the_same_last_round() -> None:
    rows = compared(mixture("clusters", (600, 2, 3)), "ball", 1.0, runs=1, quick=True)
    assert [row["way"] for row in rows] == list(WAYS)
    assert len({row["last round"] for row in rows}) == 1
    assert all(row["all rounds"] > 0 for row in rows)


def test_coverage_is_whole_for_endless_intervals_and_none_for_intervals_elsewhere() -> None:
    problem = mixture("clusters", (600, 2, 3))
    found = cluster(
        measure(problem.table(), KMeans(3, region="box"), epsilon=50.0, simulate=0), Iterates(steps=500, draws=5)
    )
    points = Region("box", 2).project(normalised(problem.points, found.bounds))
    found.drawn_centroids[::2], found.drawn_centroids[1::2] = -1e9, 1e9
    found.drawn_sizes[::2], found.drawn_sizes[1::2] = 1.0, 1e9
    whole = clusters_held(found, points)
    assert whole.held.all()
    assert whole.sizes_held.all()
    found.drawn_centroids[:], found.drawn_sizes[:], found.centroids[:], found.sizes[:] = 1e9, 1e9, 1e9, 1e9
    elsewhere = clusters_held(found, points)
    assert not elsewhere.held.any()
    assert not elsewhere.sizes_held.any()
    both = summary([whole, elsewhere], 2)
    assert 0 < both["covered"] < 1
    assert both["narrowest"] > 1e6
