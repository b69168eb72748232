"""Clusters without chains: of a grid, of a grid and a round, and of blocks; and what their intervals hold."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from consilience.domain import Attribute, Domain
from consilience.domain.public_facts import PublicFacts
from consilience.errors import ConsilienceError, MeasurementError
from consilience.estimators.cell_clusters import likely_records, moved_points_within, possible_sizes
from consilience.estimators.clusters import ClusterEstimate, cluster
from consilience.estimators.iterates import Iterates
from consilience.kernels.regions import CellGrid, Region
from consilience.kernels.rng import generator
from consilience.measurements import MeasurementSet
from consilience.measuring import measure
from consilience.plans import AutoClusters, ClusterGrid, HybridClusters, SampleAndAggregate
from consilience.source import open_table

ATTRIBUTES = (Attribute.continuous("x", (0.0, 100.0)), Attribute.continuous("y", (-1.0, 1.0)))
DOMAIN = Domain("plane", ATTRIBUTES)
CENTRES = np.array([[20.0, -0.5], [50.0, 0.6], [85.0, -0.1]])
PLANS = (ClusterGrid(3), HybridClusters(3))


def plane(seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(0, (5.0, 0.1), (3, 2000, 2))
    return np.clip((CENTRES[:, None] + drawn).reshape(-1, 2), (0, -1), (100, 1))


def measured_by(plan, *, epsilon=1.0, seed=0, domain=DOMAIN, points=None) -> MeasurementSet:
    found = plane() if points is None else points
    return measure(
        open_table(pa.table({"x": found[:, 0], "y": found[:, 1]}), domain), plan, epsilon=epsilon, simulate=seed
    )


def nearest_records(points: np.ndarray, centroids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many points are nearest to each centroid, and their means."""
    gaps = (points[:, None] - centroids[None]) / (100.0, 2.0)
    labels = (gaps**2).sum(axis=2).argmin(axis=1)
    return np.bincount(labels, minlength=len(centroids)), np.array(
        [points[labels == k].mean(axis=0) for k in range(len(centroids))]
    )


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_what_the_plan_leads_to_is_kept_and_survives_a_file(plan, tmp_path) -> None:
    measured = measured_by(plan)
    found = cluster(measured, Iterates(seed=plan.seed))
    np.testing.assert_allclose(found.last_iterate, plan.centroids(measured))
    assert found.total == pytest.approx(6000, rel=0.05)
    found.save(tmp_path / "clusters.json")
    again = ClusterEstimate.load(tmp_path / "clusters.json")
    np.testing.assert_array_equal(again.interval(0.5).centroids[0], found.interval(0.5).centroids[0])
    assert again.no_intervals == ""


def test_a_grid_and_a_round_are_read_together() -> None:
    """With much noise the grid keeps the centroids where the round alone would throw them about."""
    ratios = []
    for seed in range(6):
        points = plane(seed)
        found = cluster(measured_by(HybridClusters(3, seed=seed), epsilon=0.05, seed=seed, points=points))
        costs = [squares(points, each) for each in (found.centroids, found.last_iterate)]
        ratios.append(costs[0] / costs[1])
    assert np.median(ratios) < 1
    calm = cluster(measured_by(HybridClusters(3), epsilon=100.0))
    np.testing.assert_allclose(calm.centroids, calm.last_iterate, atol=0.2)


def squares(points: np.ndarray, centroids: np.ndarray) -> float:
    """The within-cluster sum of squares, with the bounds mapped to lengths of 2."""
    gaps = (points[:, None] - centroids[None]) / (50.0, 1.0)
    return float((gaps**2).sum(axis=2).min(axis=1).sum())


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_more_noise_makes_wider_intervals_around_the_reported_values(plan) -> None:
    widths = []
    for epsilon in (10.0, 0.1):
        found = cluster(measured_by(plan, epsilon=epsilon))
        interval = found.interval(0.9)
        assert (interval.sizes[0] <= found.sizes).all()
        assert (interval.sizes[1] >= found.sizes).all()
        widths.append(float(np.median(interval.sizes[1] - interval.sizes[0])))
    assert widths[1] > 2 * widths[0]


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_intervals_of_90_percent_hold_80_percent_or_more(plan, epsilon: float) -> None:
    held = []
    for seed in range(12):
        points = plane(seed)
        found = cluster(measured_by(plan, epsilon=epsilon, seed=seed, points=points), Iterates(seed=seed))
        sizes, means = nearest_records(points, found.centroids)
        interval = found.interval(0.9)
        held += ((interval.sizes[0] <= sizes) & (sizes <= interval.sizes[1])).tolist()
        known = interval.determined
        held += ((interval.centroids[0] <= means) & (means <= interval.centroids[1]))[known].ravel().tolist()
    assert np.mean(held) >= 0.8


def test_a_value_that_all_records_share_is_in_its_interval_wherever_in_a_cell_it_is() -> None:
    """As capital gains, which most people have none of: at the edge of the outermost cells."""
    plan = ClusterGrid(3, divisions=6)
    points = np.column_stack([plane()[:, 0], np.full(6000, -1.0)])
    for seed in range(5):
        low, high = cluster(measured_by(plan, seed=seed, points=points)).interval(0.9).centroids
        assert (low[:, 1] <= -1.0).all()
        assert (high[:, 1] - low[:, 1] <= 2 * 2.0 / 6).all()


@pytest.mark.parametrize("kind", ["box", "ball", "radial-ball"])
def test_points_of_cells_lie_in_them(kind) -> None:
    """Of all cells that records of the box are moved to."""
    grid = CellGrid(5, Region(kind, 3))
    moved = grid.region.project(np.random.default_rng(0).uniform(-1, 1, (100_000, 3)))
    cells = np.repeat(np.flatnonzero(np.bincount(grid.holding(moved), minlength=grid.size) > 50), 4)
    points, _ = moved_points_within(grid, cells, box_records(3), generator(0))
    assert grid.region.contains(points).all()
    np.testing.assert_array_equal(grid.holding(points), cells)


def test_points_of_a_ball_lie_as_records_of_the_box_that_were_moved_there() -> None:
    grid = CellGrid(5, Region("ball", 2))
    moved = grid.region.project(np.random.default_rng(0).uniform(-1, 1, (100_000, 2)))
    where = grid.holding(moved)
    cells = np.repeat(np.arange(grid.size), 2000)
    records = box_records(2)
    points, chosen = moved_points_within(grid, cells, records, generator(1))
    np.testing.assert_array_equal(points[chosen >= 0], grid.region.project(records)[chosen[chosen >= 0]])
    for cell in np.flatnonzero(np.bincount(where, minlength=grid.size) > 4000):
        there, found = moved[where == cell], points[cells == cell]
        np.testing.assert_allclose(found.mean(axis=0), there.mean(axis=0), atol=0.02)
        np.testing.assert_allclose(found.std(axis=0), there.std(axis=0), atol=0.02)


def box_records(dimensions: int) -> np.ndarray:
    return generator(5).uniform(-1.0, 1.0, (400_000, dimensions))


def at_lower_bounds(share: float, number: int = 40_000) -> np.ndarray:
    """Records of the box, so many of whose coordinates are at the lower bound, each by itself."""
    rng = np.random.default_rng(3)
    return np.where(rng.random((number, 4)) < share, -1.0, rng.uniform(-1, 1, (number, 4)))


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0.0, 0.05), (0.7, 0.4, 0.75)])
def test_counts_of_a_ball_tell_how_many_records_are_at_the_bounds(share: float, least: float, most: float) -> None:
    """Some of what was supposed before stays: 5 % at each bound."""
    grid = CellGrid(6, Region("ball", 4))
    counts = np.bincount(grid.holding(grid.region.project(at_lower_bounds(share))), minlength=grid.size)
    records, likely = likely_records(grid, counts.astype(np.float64), generator(2))
    assert likely.mean() == 0.5
    assert (np.abs(records[likely == 0]) < 1).all()
    assert least <= (records[likely == 1] == -1.0).mean() < most
    assert (records[likely == 1] == 1.0).mean() < 0.1


def test_of_no_records_nothing_is_likely() -> None:
    grid = CellGrid(3, Region("ball", 3))
    records, likely = likely_records(grid, np.zeros(grid.size), generator(0))
    assert np.abs(records[likely == 1].mean(axis=0)).max() < 0.05


@settings(max_examples=50)
@given(arrays(np.float64, 4, elements=st.floats(-1e4, 1e5)))
def test_sizes_are_not_negative_and_keep_their_sum(expected) -> None:
    drawn = expected + np.arange(-2.0, 3.0)[:, None]
    sizes, moved = possible_sizes(expected, drawn)
    assert (sizes >= 0).all()
    assert sizes.sum() == pytest.approx(max(expected.sum(), 0.0), abs=1e-6)
    np.testing.assert_allclose(moved - sizes, drawn - expected, atol=1e-6)


def test_intervals_of_blocks_are_about_their_average_and_a_file_says_so(tmp_path) -> None:
    plan = SampleAndAggregate(3)
    measured = measured_by(plan, epsilon=50.0)
    found = cluster(measured)
    np.testing.assert_allclose(found.centroids, plan.centroids(measured))
    found.save(tmp_path / "clusters.json")
    again = ClusterEstimate.load(tmp_path / "clusters.json")
    assert "average of the blocks' centroids" in again.intervals_of
    assert again.no_intervals == ""
    assert np.isnan(again.sizes).all()
    interval = again.interval(0.9)
    assert interval.determined.all()
    assert np.isnan(interval.sizes[1]).all()


@pytest.mark.slow
def test_intervals_of_blocks_hold_the_average_as_often_as_they_say() -> None:
    held = []
    points = plane()
    plan = SampleAndAggregate(3, blocks=100)
    truth = plan.centroids(measured_by(plan, epsilon=1e7, points=points))
    for seed in range(200):
        low, high = cluster(measured_by(plan, epsilon=10.0, seed=seed, points=points)).interval(0.9).centroids
        held += ((low <= truth) & (truth <= high)).ravel().tolist()
    assert 0.87 < np.mean(held) < 0.93


def test_a_grid_whose_plan_is_not_known_asks_how_many_clusters() -> None:
    measured = measured_by(ClusterGrid(3))
    alone = MeasurementSet(measured.domain, measured.measurements, private=False)
    with pytest.raises(MeasurementError, match="clusters="):
        cluster(alone)
    assert cluster(alone, clusters=2).centroids.shape == (2, 2)


def test_a_grid_whose_counts_do_not_fit_is_refused() -> None:
    measured = measured_by(ClusterGrid(3, divisions=4))
    [cells] = measured.measurements
    about = dict(cells.extra["statistic"], divisions=5)
    odd = type(cells)(cells.query, cells.values, cells.noise, kind=cells.kind, extra={"statistic": about})
    with pytest.raises(MeasurementError, match="16 counts for 25 cells"):
        cluster(MeasurementSet(DOMAIN, (odd,), private=False), clusters=3)


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_few_records_and_much_noise_have_a_defined_result(plan, rows: int) -> None:
    found = cluster(measured_by(plan, epsilon=0.01, points=plane()[:rows]))
    assert found.centroids.shape == (3, 2)
    assert np.isfinite(found.sizes).all()
    assert np.isfinite(found.interval(0.9).sizes).all()


def test_rounds_with_a_noisy_number_of_records_before_them_are_read_as_rounds() -> None:
    measured = measured_by(AutoClusters(3, region="ball"), epsilon=0.02)
    assert [each.statistic["algorithm"] for each in measured.measurements] == ["cell-grid", *["k-means"] * 10]
    found = cluster(measured, Iterates(steps=600, chains=2))
    assert found.method["name"] == "iterates"
    assert found.centroids.shape == (3, 2)


def test_a_public_total_is_believed() -> None:
    counted = Domain("plane", ATTRIBUTES, public=PublicFacts(total=6000))
    found = cluster(measured_by(ClusterGrid(3), domain=counted))
    assert found.total == pytest.approx(6000)


@pytest.mark.parametrize("change", [{"start": 3}, {"blocks": 0}, {"bounds": [[1, 0]]}, {"region": "disc"}])
def test_blocks_that_describe_nothing_are_refused(change) -> None:
    measured = measured_by(SampleAndAggregate(3, blocks=20))
    [blocks] = measured.measurements
    about = dict(blocks.extra["statistic"]) | change
    odd = type(blocks)(blocks.query, blocks.values, blocks.noise, kind=blocks.kind, extra={"statistic": about})
    with pytest.raises(ConsilienceError):
        cluster(MeasurementSet(DOMAIN, (odd,), private=False))
