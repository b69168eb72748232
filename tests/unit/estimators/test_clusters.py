"""Clusters from all rounds: better than the last round, with honest intervals and defined results."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.problems.clusterings import nearest, wcss
from consilience.domain import Attribute, Domain, Query
from consilience.errors import DeclarationError, FileFormatError, MeasurementError
from consilience.estimators.clusters import PRIOR_POWER, ClusterEstimate, cluster, noisy_rounds
from consilience.estimators.iterates import Iterates, Observed
from consilience.iterates.clustering import lloyd
from consilience.kernels.regions import Region, in_original_units, normalised
from consilience.kernels.rng import generator
from consilience.measurements import DiscreteLaplace, Measurement, MeasurementSet
from consilience.measuring import measure
from consilience.plans.rounds import KMeans
from consilience.publication.iterate_folders import centroid_table
from consilience.source import open_table

BOUNDS = ((0.0, 100.0), (-50.0, 50.0))
PLANE = Domain("plane", (Attribute.continuous("east", BOUNDS[0]), Attribute.continuous("north", BOUNDS[1])))
QUICK = Iterates(steps=6000, chains=2, draws=40)


def towns(number=4, records=3000, seed=0, spread=4.0):
    """Points around towns that lie well apart."""
    rng = np.random.default_rng(seed)
    centres = np.array([[20.0, -30.0], [80.0, -20.0], [50.0, 35.0], [20.0, 20.0]])[:number]
    return np.clip(
        centres[rng.integers(number, size=records)] + rng.normal(0, spread, (records, 2)), [0, -50], [100, 50]
    )


def blobs(seed=0, records=5000, clusters=15):
    """Fifteen blobs of equal size, as in the benchmark set S1."""
    rng = np.random.default_rng(seed)
    centres = np.empty((0, 2))
    while len(centres) < clusters:
        drawn = rng.uniform([8, -42], [92, 42])
        if len(centres) == 0 or np.linalg.norm(centres - drawn, axis=1).min() > 15:
            centres = np.vstack([centres, drawn])
    points = centres[np.arange(records) % clusters] + rng.normal(0, 2.8, (records, 2))
    return np.clip(points, [0, -50], [100, 50])


def measured_rounds(points, clusters=4, *, epsilon=1.0, seed=0, region: Any = "box", **options):
    table = open_table(pa.table({"east": points[:, 0], "north": points[:, 1]}), PLANE)
    budget = options.pop("budget", {"epsilon": epsilon})
    return measure(table, KMeans(clusters, region=region, seed=seed, **options), **budget, simulate=seed)


def cost(points, centroids, region: Any = "box"):
    moved = Region(region, 2).project(normalised(points, BOUNDS))
    return wcss(moved, normalised(centroids, BOUNDS))


@pytest.fixture(scope="module")
def estimate():
    return cluster(measured_rounds(towns(), seed=2, epsilon=2.0), QUICK)


def test_centroids_and_sizes_are_near_those_of_the_towns(estimate):
    points = towns()
    truth = lloyd(points, 4, generator(0))
    gaps = np.linalg.norm(estimate.centroids[:, None] - truth, axis=2)
    assert sorted(gaps.argmin(axis=1).tolist()) == [0, 1, 2, 3]
    assert gaps.min(axis=1).max() < 4
    assert estimate.total == pytest.approx(3000, rel=0.05)
    assert estimate.sizes == pytest.approx(np.bincount(nearest(points, estimate.centroids), minlength=4), rel=0.15)
    assert not estimate.private
    assert estimate.attributes == ("east", "north")


@pytest.mark.slow
def test_all_rounds_are_better_than_the_last_one():
    found = []
    for seed in range(5):
        points = blobs(seed)
        guess = cluster(measured_rounds(points, 15, epsilon=0.2, seed=seed), QUICK)
        found.append((cost(points, guess.centroids), cost(points, guess.last_iterate)))
    better, last = np.mean(found, axis=0)
    assert better < 0.5 * last


def test_the_last_iterate_is_what_the_plan_alone_gives():
    measured = measured_rounds(towns(), region="ball", seed=1)
    guess = cluster(measured, QUICK)
    rounds = noisy_rounds(Observed.of(measured))
    found = normalised(guess.last_iterate, BOUNDS)
    assert np.allclose(found, rounds.last_iterate)
    assert np.allclose(rounds.iterates[:-1], rounds.thetas[1:], atol=1e-12)


@pytest.mark.parametrize("region", ["box", "ball", "radial-ball"])
@pytest.mark.parametrize("budget", [{"epsilon": 1.0}, {"rho": 0.05}])
def test_every_region_and_kind_of_noise_is_read(region, budget):
    guess = cluster(measured_rounds(towns(), region=region, budget=budget, seed=3), QUICK)
    assert np.isfinite(guess.centroids).all()
    assert cost(towns(), guess.centroids, region) < cost(towns(), guess.last_iterate, region)


@pytest.mark.parametrize(
    "settings",
    [
        Iterates.as_published(steps=5000),
        Iterates(steps=5000, chains=1, ratio="component", target="corrected", tune=False, burn_in=0),
        Iterates(steps=2000, chains=1, size=1, draws=1, restarts=0),
    ],
)
def test_the_published_method_and_other_settings_give_finite_results_by_their_seed(settings):
    measured = measured_rounds(towns(), region="ball", seed=3)
    first, again = cluster(measured, settings), cluster(measured, settings)
    assert np.isfinite(first.centroids).all()
    assert np.array_equal(first.centroids, again.centroids)
    assert np.array_equal(first.drawn_sizes, again.drawn_sizes)
    json.dumps(first.to_json(), allow_nan=False)


def test_the_published_chain_simulates_as_many_points_as_records_seem_to_be():
    guess = cluster(measured_rounds(towns(), seed=3, epsilon=20.0), Iterates.as_published(steps=3000))
    assert guess.diagnostics["size"] == pytest.approx(3000, abs=60)
    assert guess.diagnostics["acceptance_by_move"]["walk"] == 0
    assert guess.diagnostics["delta"] == [0.001]


def test_intervals_grow_with_their_level_and_surround_the_estimate(estimate):
    narrow, wide = estimate.interval(0.5), estimate.interval(0.95)
    for name in ("centroids", "sizes"):
        (low, high), (lower, higher) = getattr(narrow, name), getattr(wide, name)
        assert (lower <= low).all()
        assert (low <= high).all()
        assert (high <= higher).all()
    low, high = wide.centroids
    assert ((low <= estimate.centroids) & (estimate.centroids <= high)).all()
    for level in (0, 1, -0.1, "half", True):
        with pytest.raises(DeclarationError, match="level"):
            estimate.interval(level)


def test_less_noise_makes_narrower_intervals():
    widths = []
    for epsilon in (0.3, 3.0):
        low, high = cluster(measured_rounds(towns(), epsilon=epsilon, seed=5), QUICK).interval().centroids
        widths.append((high - low).mean())
    assert widths[1] < widths[0] / 2


def test_diagnostics_say_how_the_chains_went(estimate):
    found = estimate.diagnostics
    assert found["chains"] == 2
    assert found["steps"] == 6000
    assert found["burn_in"] == 2000
    assert 0.1 < found["acceptance"] < 0.9
    assert len(found["trace"]) == 2
    assert 400 < len(found["trace"][0]) < 600
    assert found["best_log_posterior"] >= max(map(max, found["trace"]))
    assert 1 < found["effective_sample_size"] < 8000
    assert found["rhat"] < 2
    assert found["centroid_effective_sample_size"] <= found["centroid_median_effective_sample_size"]
    assert found["seconds"] > 0


def test_a_saved_estimate_reads_back_the_same(estimate, tmp_path):
    estimate.save(tmp_path / "clusters.json")
    again = ClusterEstimate.load(tmp_path / "clusters.json")
    assert again.to_json() == estimate.to_json()
    assert np.array_equal(again.interval().centroids[0], estimate.interval().centroids[0])
    assert Iterates(**again.method["settings"]) == replace(QUICK, prior_power=PRIOR_POWER)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop("centroids"),
        lambda found: found.update(format="trees"),
        lambda found: found.update(version=2),
        lambda found: found.update(sizes=[1.0]),
        lambda found: found.update(centroids=[["a", "b"]]),
        lambda found: found.update(private="yes"),
        lambda found: found.update(last_iterate=[[1.0, None]] * 4),
        lambda found: found.update(method=7),
    ],
)
def test_files_that_are_no_estimates_are_refused(estimate, tmp_path, change):
    found = estimate.to_json()
    change(found)
    path = tmp_path / "clusters.json"
    path.write_text(json.dumps(found))
    with pytest.raises(FileFormatError, match="no clusters"):
        ClusterEstimate.load(path)


def test_missing_and_broken_files_are_refused(tmp_path):
    with pytest.raises(FileFormatError, match="cannot read"):
        ClusterEstimate.load(tmp_path / "nothing.json")
    (tmp_path / "broken.json").write_bytes(b'{"format": "clu')
    with pytest.raises(FileFormatError, match="no clusters"):
        ClusterEstimate.load(tmp_path / "broken.json")


def rounds_with(counts, sums, *, rounds=3, centroids=((0.1, 0.2), (-0.5, 0.0)), region="box", bounds=BOUNDS):
    """A set of rounds that all released the same."""
    statistic = {
        "algorithm": "k-means",
        "attributes": ["east", "north"],
        "bounds": [list(each) for each in bounds],
        "region": region,
        "bits": 20,
        "centroids": [list(row) for row in centroids],
    }
    parts = [
        Measurement(
            Query(()), values, DiscreteLaplace(5.0, step=step), kind="record-sums", round=t,
            extra={"statistic": statistic | {"part": name}},
        )
        for t in range(1, rounds + 1)
        for name, values, step in (("counts", counts, 1.0), ("sums", sums, 2.0**-20))
    ]  # fmt: skip
    return MeasurementSet(PLANE, tuple(parts))


def test_negative_counts_in_every_cluster_have_a_defined_result():
    measured = rounds_with([-3.0, -7.0], [1.0, -2.0, 3.0, -4.0])
    for settings in (QUICK, Iterates.as_published(steps=500)):
        guess = cluster(measured, settings)
        low, high = np.array(BOUNDS).T
        assert ((guess.centroids >= low) & (guess.centroids <= high)).all()
        assert (guess.sizes >= 0).all()
        assert guess.total < 20
    assert np.allclose(guess.last_iterate, [[55.0, 10.0], [25.0, 0.0]])


def test_no_records_and_more_clusters_than_records_run():
    for points in (towns()[:0], towns()[:2]):
        guess = cluster(measured_rounds(points, 4, epsilon=0.5), QUICK)
        assert np.isfinite(guess.centroids).all()


def test_one_round_of_one_cluster_is_enough():
    guess = cluster(measured_rounds(towns(), 1, rounds=1, epsilon=5.0), QUICK)
    assert guess.centroids == pytest.approx(towns().mean(axis=0)[None], abs=3)


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        (lambda: rounds_with([1.0], [1.0, 2.0, 3.0, 4.0]), "do not fit"),
        (lambda: rounds_with([1.0, 2.0], [1.0, 2.0]), "do not fit"),
        (lambda: rounds_with([1.0, 2.0], np.ones(4), centroids=((0.1,), (0.2,))), "do not fit"),
        (lambda: rounds_with([1.0, 2.0], np.ones(4), region="cube"), "no region"),
        (lambda: rounds_with([1.0, 2.0], np.ones(4), bounds=((1.0, 1.0), (0.0, 1.0))), "no region"),
    ],
)
def test_rounds_whose_parts_do_not_fit_are_refused(measured, message):
    with pytest.raises(MeasurementError, match=message):
        cluster(measured(), QUICK)


def test_a_cluster_within_the_noise_has_a_size_but_no_interval_of_its_centroid():
    guess = cluster(measured_rounds(towns()[:100], epsilon=0.1), QUICK)
    interval = guess.interval(0.9)
    assert not interval.determined.all()
    assert (np.isnan(interval.centroids[0]).all(axis=1) == ~interval.determined).all()
    assert (interval.sizes[0] >= 0).all()
    lines = list(csv.DictReader(io.StringIO(centroid_table(guess, 0.9))))
    assert [line["east_low"] == "" for line in lines] == (~interval.determined).tolist()
    assert all(line["east"] and line["size_high"] for line in lines)


def nearest_records(guess: ClusterEstimate, points, region: Any = "box"):
    """The mean and the number of the records nearest to each reported centroid: what intervals are about."""
    moved = Region(region, 2).project(normalised(points, BOUNDS))
    labels = nearest(moved, normalised(guess.centroids, BOUNDS))
    counts = np.bincount(labels, minlength=len(guess.sizes))
    sums = np.array([np.bincount(labels, column, len(counts)) for column in moved.T]).T
    return in_original_units(sums / np.maximum(counts, 1)[:, None], BOUNDS), counts


def shares_held(guess: ClusterEstimate, points, region: Any = "box"):
    means, counts = nearest_records(guess, points, region)
    interval = guess.interval(0.9)
    (low, high), (least, most) = interval.centroids, interval.sizes
    held = ((low <= means) & (means <= high))[interval.determined & (counts > 0)]
    return held.mean(), ((least <= counts) & (counts <= most)).mean()


def test_intervals_hold_where_chains_get_stuck():
    found = []
    for seed in range(4):
        points = towns(records=40_000, spread=16.0, seed=seed)
        found.append(shares_held(cluster(measured_rounds(points, epsilon=4.0, seed=seed), QUICK), points))
    assert (np.mean(found, axis=0) >= 0.75).all()


@pytest.mark.slow
@pytest.mark.parametrize("region", ["box", "ball"])
def test_intervals_of_90_percent_cover_80_percent_or_more_on_fifteen_blobs(region):
    found = []
    for seed in range(20):
        points = blobs(seed)
        guess = cluster(measured_rounds(points, 15, epsilon=0.5, seed=seed, region=region), Iterates(seed=seed))
        found.append(shares_held(guess, points, region))
    assert (np.mean(found, axis=0) >= 0.80).all()


@pytest.mark.slow
@pytest.mark.parametrize("settings", [Iterates(), Iterates.as_published()])
@pytest.mark.parametrize("epsilon", [0.05, 0.1])
def test_the_excess_over_the_noise_free_cost_is_halved(settings, epsilon):
    costs = []
    for seed in range(10):
        points = blobs(seed)
        guess = cluster(measured_rounds(points, 15, epsilon=epsilon, seed=seed, region="ball"), settings)
        moved = Region("ball", 2).project(normalised(points, BOUNDS))
        floor = wcss(moved, lloyd(moved, 15, generator(0), restarts=20))
        costs.append((cost(points, guess.centroids, "ball") - floor, cost(points, guess.last_iterate, "ball") - floor))
    mine, last = np.mean(costs, axis=0)
    assert mine <= last / 2
