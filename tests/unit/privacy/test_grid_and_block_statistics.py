"""Counts of grid cells and sums of block centroids: no record moves them by more than they declare."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain
from consilience.errors import ConsilienceError, DeclarationError
from consilience.iterates.clustering import initial_centroids
from consilience.privacy.cluster_statistics import BlockCentroids, GridCounts

BOUNDS = ((0.0, 10.0), (-5.0, 5.0))
DOMAIN = Domain("plane", (Attribute.continuous("x", BOUNDS[0]), Attribute.continuous("y", BOUNDS[1])))

numbers = st.one_of(
    st.floats(-20.0, 20.0),
    st.sampled_from([0.0, 10.0, -5.0, 5.0, 1e308, -1e308, float("inf"), -float("inf"), float("nan")]),
)
record = st.tuples(numbers, numbers)
tables = st.lists(record, max_size=12)
regions = st.sampled_from(["box", "ball", "radial-ball"])
relations = st.sampled_from(["add-remove", "replace-one"])


def grid(region: Any, divisions: int = 3) -> GridCounts:
    return GridCounts(("x", "y"), BOUNDS, region, divisions)


def blocks(region: Any, count: int = 3) -> BlockCentroids:
    start = initial_centroids(2, 2, region, seed=1)
    rows = tuple(tuple(map(float, row)) for row in start)
    return BlockCentroids(("x", "y"), BOUNDS, region, rows, count)


def exact(statistic, rows) -> np.ndarray:
    return statistic.exact(np.array(rows, dtype=np.float64).reshape(-1, 2))


def moved(statistic, rows, place: int, new, neighbours: str, norm: int) -> float:
    """How far the statistic moves, in its own units, when a record comes, or when one is replaced."""
    place = min(place, len(rows))
    rest = rows[place + 1 :] if neighbours == "replace-one" else rows[place:]
    before = exact(statistic, rows)
    after = exact(statistic, [*rows[:place], new, *rest])
    return float(np.linalg.norm((after - before) / 2.0**statistic.bits, norm))


@settings(max_examples=60, deadline=None)
@given(tables, record, st.integers(0, 12), regions, relations, st.sampled_from([1, 2]), st.integers(1, 4))
def test_no_record_moves_the_cells_by_more_than_declared(rows, new, place, region, neighbours, norm, divisions) -> None:
    statistic = grid(region, divisions)
    # Replacing at the end of the table adds a record, which the bound of replacing covers as well.
    assert moved(statistic, rows, place, new, neighbours, norm) <= statistic.sensitivity(norm, neighbours)


@settings(max_examples=40, deadline=None)
@given(tables, record, st.integers(0, 12), regions, relations, st.sampled_from([1, 2]), st.integers(1, 3))
def test_no_record_moves_the_blocks_by_more_than_declared(rows, new, place, region, neighbours, norm, count) -> None:
    statistic = blocks(region, count)
    assert moved(statistic, rows, place, new, neighbours, norm) <= statistic.sensitivity(norm, neighbours)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("region", ["box", "ball"])
def test_the_bound_of_blocks_is_attained_up_to_the_lattice(region: Any, norm: Any) -> None:
    # One block, one cluster: without records it is at the start, at one end of the region; with one, at the other.
    corner = (1.0, 1.0) if region == "box" else (1.0, 0.0)
    away = (0.0, -5.0) if region == "box" else (0.0, 0.0)
    statistic = BlockCentroids(("x", "y"), BOUNDS, region, (corner,), 1)
    assert moved(statistic, [], 0, away, "add-remove", norm) == pytest.approx(
        statistic.sensitivity(norm, "add-remove"), rel=1e-5
    )


def test_sums_of_blocks_are_those_of_each_block_alone() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform((0, -5), (10, 5), (300, 2))
    statistic = blocks("box", 4)
    from consilience.kernels.regions import Region, lattice_points
    from consilience.privacy.cluster_statistics import block_of_records

    labels = block_of_records(lattice_points(rows, BOUNDS, Region("box", 2)), blocks=4, seed=0)
    alone = [blocks("box", 1).exact(rows[labels == block]) for block in range(4)]
    assert np.array_equal(statistic.exact(rows), np.sum(alone, axis=0))
    shuffled = rows[rng.permutation(len(rows))]
    assert np.array_equal(statistic.exact(rows), statistic.exact(shuffled))


def test_counts_of_one_cell_are_the_records_that_are_not_dropped() -> None:
    rows = [(1.0, 1.0), (float("nan"), 0.0), (1e300, -1e300)]
    assert exact(grid("ball", 1), rows).tolist() == [2]
    assert exact(grid("ball", 1), []).tolist() == [0]


def test_declarations_that_do_not_fit_are_refused() -> None:
    grid("ball").check(DOMAIN)
    blocks("ball").check(DOMAIN)
    with pytest.raises(DeclarationError, match="take them from there"):
        GridCounts(("x", "y"), ((0.0, 1.0), (0.0, 1.0)), "box", 3).check(DOMAIN)
    with pytest.raises(DeclarationError, match="0 blocks"):
        blocks("box", 0).check(DOMAIN)
    with pytest.raises(DeclarationError, match="must lie in the region"):
        BlockCentroids(("x", "y"), BOUNDS, "ball", ((1.0, 1.0),), 3).check(DOMAIN)
    with pytest.raises(DeclarationError, match="do not fit 2 attributes"):
        BlockCentroids(("x", "y"), BOUNDS, "ball", ((1.0,),), 3).check(DOMAIN)
    with pytest.raises(ConsilienceError):
        GridCounts(("x", "z"), BOUNDS, "box", 3).check(DOMAIN)


@pytest.mark.parametrize("statistic", [grid("box"), blocks("ball")])
def test_descriptions_are_plain_data(statistic) -> None:
    import json

    about = json.loads(json.dumps(statistic.describe()))
    assert about["attributes"] == ["x", "y"]
    assert about["bounds"] == [[0.0, 10.0], [-5.0, 5.0]]
