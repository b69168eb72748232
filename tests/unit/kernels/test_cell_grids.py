"""Cells of a grid: each point in one of them, decided in whole numbers; clusters of noisy counts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.errors import DeclarationError, TooLarge
from consilience.iterates.clustering import clusters_of_cells, suggested_divisions
from consilience.kernels.regions import LARGEST_GRID, CellGrid, Region, lattice_points

BITS = 20


def on_lattice(points: np.ndarray, region: Region) -> np.ndarray:
    return lattice_points(points, [(-1.0, 1.0)] * region.dimensions, region, bits=BITS)


def slow_counts(units: np.ndarray, grid: CellGrid) -> list[int]:
    """Exact fractions, one point and one cell at a time; cells that do not meet the region are left out."""
    side, edge = range(grid.divisions), 2**BITS
    counts = []
    for cell in itertools.product(side, repeat=grid.region.dimensions):
        lows = [2 * edge * part - edge * grid.divisions for part in cell]  # in units of 1/divisions
        highs = [low + 2 * edge for low in lows]
        nearest = sum(max(low, -high, 0) for low, high in zip(lows, highs, strict=True))
        if grid.region.kind != "box" and nearest > edge * grid.divisions:
            continue
        inside = 0
        for point in units.tolist():
            places = [u * grid.divisions for u in point]
            inside += all(
                low <= u < high or (u == edge * grid.divisions == high)
                for u, low, high in zip(places, lows, highs, strict=True)
            )
        counts.append(inside)
    return counts


@pytest.mark.parametrize("kind", ["box", "ball", "radial-ball"])
@pytest.mark.parametrize(("divisions", "dimensions"), [(1, 1), (7, 1), (2, 2), (5, 2), (3, 3)])
def test_counts_are_those_of_the_cells_one_by_one(kind: str, divisions: int, dimensions: int) -> None:
    region = Region(kind, dimensions)  # type: ignore[arg-type]
    drawn = np.random.default_rng(0).uniform(-1.2, 1.2, (60, dimensions))
    corners = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=dimensions)))
    units = on_lattice(np.concatenate([drawn, corners]), region)
    grid = CellGrid(divisions, region)
    assert grid.counts(units, bits=BITS).tolist() == slow_counts(units, grid)
    assert grid.counts(units, bits=BITS).sum() == len(units)


@pytest.mark.parametrize("kind", ["box", "ball", "radial-ball"])
@pytest.mark.parametrize(("divisions", "dimensions"), [(7, 1), (5, 2), (3, 3)])
def test_cells_of_points_in_floating_point_are_those_that_count_them(kind, divisions: int, dimensions: int) -> None:
    region = Region(kind, dimensions)
    points = region.project(np.random.default_rng(1).uniform(-1.2, 1.2, (3000, dimensions)))
    grid = CellGrid(divisions, region)
    found = np.bincount(grid.holding(points), minlength=grid.size)
    np.testing.assert_array_equal(found, grid.counts(on_lattice(points, region), bits=BITS))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=2), st.integers(1, 9), st.booleans())
def test_one_point_is_in_one_cell_at_most_whatever_its_numbers(point: list[int], divisions: int, ball: bool) -> None:
    grid = CellGrid(divisions, Region("ball" if ball else "box", 2))
    counts = grid.counts(np.array([point], dtype=np.int32), bits=BITS)
    assert counts.sum() <= 1
    assert counts.min() >= 0


def test_centres_lie_in_their_cells_and_in_the_region() -> None:
    for kind in ("box", "ball"):
        grid = CellGrid(6, Region(kind, 2))
        assert grid.region.contains(grid.centres).all()
        assert len(grid.centres) == grid.size
    box = CellGrid(6, Region("box", 2))
    assert np.array_equal(box.counts(on_lattice(box.centres, box.region), bits=BITS), np.ones(36))


def test_the_rule_of_su_et_al_sets_the_divisions() -> None:
    # M = (10,000 · 0.4 / 10)^(4/4) = 400 cells in the plane: 20 on each side.
    assert suggested_divisions(10_000, 0.4, 2) == 20
    assert suggested_divisions(0, 1.0, 2) == suggested_divisions(-50, 1.0, 3) == 2
    assert suggested_divisions(1e12, 1.0, 2) ** 2 <= LARGEST_GRID
    assert suggested_divisions(1e12, 1.0, 10) ** 10 <= LARGEST_GRID


def test_grids_that_cannot_be_are_refused() -> None:
    with pytest.raises(DeclarationError, match="0 parts"):
        CellGrid(0, Region("box", 2))
    with pytest.raises(TooLarge, match="use fewer parts"):
        CellGrid(3, Region("box", 40))


@pytest.mark.parametrize("negatives", ["project", "zero"])
def test_clusters_of_exact_counts_are_those_of_the_points(negatives) -> None:
    rng = np.random.default_rng(1)
    true = np.array([[-0.6, 0.1], [0.5, 0.3], [0.1, -0.7]])
    points = (true[:, None] + rng.normal(0.0, 0.02, (3, 400, 2))).reshape(-1, 2)
    grid = CellGrid(40, Region("ball", 2))
    counts = grid.counts(on_lattice(points, grid.region), bits=BITS).astype(np.float64)
    found = clusters_of_cells(grid, counts, 1200.0, 3, seed=0, negatives=negatives)
    order = [int(np.argmin(np.abs(found - each).sum(axis=1))) for each in true]
    assert np.abs(found[order] - true).max() < 0.05


def test_counts_of_nothing_but_noise_have_a_result() -> None:
    grid = CellGrid(3, Region("box", 2))
    for negatives in ("project", "zero"):
        found = clusters_of_cells(grid, np.full(9, -5.0), -45.0, 4, seed=0, negatives=negatives)
        assert found.shape == (4, 2)
        assert np.isfinite(found).all()
    one = clusters_of_cells(grid, np.eye(9)[3] * 10.0, 10.0, 4, seed=0)
    assert np.isfinite(one).all()
