"""Sums over records given noisy rounds: the textbook's formula, honest where the base is poor, exact where measured."""

from dataclasses import replace

import numpy as np
import pytest

from consilience.iterates.chain import Simulated
from consilience.iterates.chain_kernels import KMEANS
from consilience.iterates.kriging import (
    GROUP_SPREAD,
    MOST_STATISTICS,
    CountedCells,
    Kriging,
    NoisySums,
    leaning_shares,
    statistics_of,
    unevenness,
)
from consilience.iterates.problems import NoisyRounds, cluster_problem
from consilience.kernels.regions import CellGrid, Region
from consilience.kernels.rng import generator

REGION = Region("box", 2)
FOUR = CellGrid(2, REGION)


def records(rng, number=3000):
    """Two overlapping heaps and a thin spread between them."""
    heaps = np.array([[-0.5, -0.3], [0.4, 0.4]])[rng.integers(2, size=number)] + rng.normal(0, 0.2, (number, 2))
    return np.clip(np.where(rng.random((number, 1)) < 0.3, rng.uniform(-1, 1, (number, 2)), heaps), -1, 1)


def rounds_of(points, thetas, rng, *, scale=10.0, laplace=True) -> NoisyRounds:
    sums = np.array([statistics_of(KMEANS, theta, points).sum(axis=1) for theta in thetas])
    sums += rng.laplace(0, scale, sums.shape) if laplace else rng.normal(0, scale, sums.shape)
    clusters = thetas.shape[1]
    scales = np.full(len(thetas), scale)
    return NoisyRounds(
        thetas, sums[:, :clusters], sums[:, clusters:].reshape(thetas.shape), scales, scales, laplace, REGION
    )


def stuck(total=3000.0) -> Simulated:
    """Few points in a wrong proportion: what chains that got stuck leave behind."""
    points = np.array([[-0.6, -0.4], [-0.3, -0.1], [0.3, 0.2], [0.5, 0.6], [0.9, -0.9], [-0.9, 0.9]])
    return Simulated(points, total * np.array([0.3, 0.1, 0.1, 0.3, 0.1, 0.1]))


def kriging(rounds: NoisyRounds, *, seed=0, lumps=32.0) -> Kriging:
    found = Kriging.of(cluster_problem(rounds).target, stuck(), REGION, generator(seed), lumps=lumps)
    assert found is not None
    return found


@pytest.mark.parametrize("laplace", [True, False])
def test_expectations_and_spreads_are_those_of_the_textbook(laplace):
    rng = generator(1)
    thetas = rng.uniform(-1, 1, (3, 2, 2))
    found = kriging(rounds_of(records(rng), thetas, rng, laplace=laplace))
    sums = statistics_of(KMEANS, rng.uniform(-1, 1, (2, 2)), found.base.points)
    spread = found.lump * found.weights
    noise = np.diag(found.scales**2 * (2 if laplace else 1))
    inverse = np.linalg.inv((found.statistics * spread) @ found.statistics.T + noise)
    gain = (found.statistics * spread).T @ inverse
    gaps = found.gaps
    expected, drawn = found.draws(sums, 1000, rng)
    before = sums @ found.base.masses
    sums = np.column_stack([sums, before])
    np.testing.assert_allclose(expected, before + sums @ gain @ gaps, rtol=1e-8, atol=1e-6)
    left = (sums * spread) @ sums.T - sums @ gain @ (found.statistics * spread) @ sums.T
    np.testing.assert_allclose(np.cov(drawn.T), left, atol=0.2 * left.diagonal().max())
    assert found.misfit == pytest.approx(gaps @ inverse @ gaps / len(gaps))


def four_cells(rng, numbers, fitted, noisy, *, variance: float, grid=FOUR) -> CountedCells:
    """So many points anywhere in each of the cells."""
    cells = np.repeat(np.arange(grid.size), numbers)
    points = grid.centres[cells] + rng.uniform(-1, 1, (len(cells), grid.region.dimensions)) / grid.divisions
    return CountedCells.of(points, cells, np.array(fitted), np.array(noisy), variance=variance, grid=grid)


def leaning(counted: CountedCells, sums_at) -> np.ndarray:
    """What changes if a part of a side leans up and not down, halved: a column for each, one point at a time.

    Of two parts of a side both are outer ones, whose records may sit at the ends.
    """
    columns = []
    points, masses = counted.base.points[: len(counted.cells)], counted.masses
    for axis in range(points.shape[1]):
        totals = np.bincount(counted.parts[:, axis], masses, counted.divisions).astype(np.float64)
        for part, share in enumerate(leaning_shares(totals)):
            column = 0.0
            for point, mass, where in zip(points, masses, counted.parts[:, axis], strict=True):
                for end, sign in ((part + 1, 0.5), (part, -0.5)):
                    moved = point.copy()
                    moved[axis] += share * (2 * end / counted.divisions - 1 - point[axis])
                    column = column + sign * mass * (where == part) * sums_at(moved[None])[:, 0]
            columns.append(column)
    return np.array(columns).T


def test_counts_of_cells_and_rounds_are_one_likelihood():
    """As the textbook has it, with a covariance for every pair of points."""
    rng = generator(7)
    fitted, noisy, variance = np.array([50.0, 0.0, 30.0, 100.0]), np.array([60.0, -8.0, 33.0, 95.0]), 40.0
    counted = four_cells(rng, [1, 2, 4, 5], fitted, noisy, variance=variance)
    rounds = rounds_of(records(rng, 180), rng.uniform(-1, 1, (2, 2, 2)), rng, scale=6.0, laplace=False)
    told = NoisySums.of_rounds(cluster_problem(rounds).target, counted.base.points)
    assert told is not None
    told = told.and_total(190.0, 9.0)
    found = Kriging.of_cells(told, counted, lumps=2.0)
    before = np.maximum(fitted**2, np.mean(noisy**2) - variance)
    of_cells = fitted + before / (before + variance) * (noisy - fitted)
    cells, numbers = counted.cells, np.bincount(counted.cells)
    masses = of_cells[cells] / numbers[cells]
    spread = np.zeros((12, 12))
    uneven = unevenness(fitted, FOUR)
    for c, number in enumerate(numbers):
        inside = cells == c
        share = fitted[c] / number
        together = uneven[c] / 2 + (1 - uneven[c] / 2) / 2.0
        lumps = share * fitted[c] * together * (np.eye(number) - np.ones((number, number)) / number)
        spread[np.ix_(inside, inside)] = lumps + before[c] * variance / (before[c] + variance) / number**2
    around = rng.uniform(-1, 1, (2, 2))

    def released_at(points):
        return np.concatenate([*(statistics_of(KMEANS, theta, points) for theta in rounds.thetas), np.ones((1, 1))])

    a, f = told.statistics[:, :12], statistics_of(KMEANS, around, counted.base.points)[:, :12]
    a_leaning = leaning(counted, released_at)
    f_leaning = leaning(counted, lambda points: statistics_of(KMEANS, around, points))
    inverse = np.linalg.inv(found.lump * (a @ spread @ a.T + a_leaning @ a_leaning.T) + np.diag(told.scales**2))
    cross = found.lump * (f @ spread @ a.T + f_leaning @ a_leaning.T)
    gaps = told.released - a @ masses
    expected, drawn = found.draws(statistics_of(KMEANS, around, counted.base.points), 4000, rng)
    np.testing.assert_allclose(expected, f @ masses + cross @ inverse @ gaps, rtol=1e-8)
    left = found.lump * (f @ spread @ f.T + f_leaning @ f_leaning.T) - cross @ inverse @ cross.T
    np.testing.assert_allclose(np.cov(drawn.T), left, atol=0.1 * left.diagonal().max())
    assert found.misfit == pytest.approx(gaps @ inverse @ gaps / len(gaps))


def test_a_group_is_more_frequent_in_all_cells_together():
    """One factor for its records; the others of a cell make up for it, so that no cell's count changes."""
    rng = generator(12)
    fitted = np.array([500.0, 300.0, 0.0, 80.0])
    counted = four_cells(rng, [6, 5, 3, 4], fitted, fitted, variance=1e-9)
    group = rng.integers(2, size=18)
    counted = replace(counted, groups=(group,), unevenness=np.zeros(4))
    number = len(counted.base.points)
    none = NoisySums(np.zeros((0, number)), np.zeros(0), np.zeros(0), laplace=False)
    found = Kriging.of_cells(none, counted, lumps=1e12)
    asked = np.zeros((5, number))
    asked[0, :18] = group
    asked[1:, :18] = counted.cells == np.arange(4)[:, None]
    _, drawn = found.draws(asked, 4000, rng)
    change = 0.0
    for cell in range(4):
        share = group[counted.cells == cell].mean()
        change += fitted[cell] * share * (1 - share)
    assert drawn[:, 0].std() == pytest.approx(GROUP_SPREAD * np.sqrt(2) * change, rel=0.1)
    np.testing.assert_allclose(drawn[:, 1:], np.tile(fitted, (4000, 1)), atol=0.1)


@pytest.mark.parametrize("kind", ["box", "ball"])
def test_how_uneven_a_cell_is_comes_from_its_neighbours(kind):
    """Cell by cell, one side at a time."""
    grid = CellGrid(4, Region(kind, 3))
    counts = generator(4).integers(0, 5, grid.size).astype(np.float64)
    places = {tuple(part): count for part, count in zip(grid.parts.tolist(), counts, strict=True)}
    expected = []
    for part, count in places.items():
        found = []
        for axis in range(3):
            for step in (-1, 1):
                other = places.get(tuple(each + step * (axis == i) for i, each in enumerate(part)))
                if other is not None:
                    found.append(((count - other) / (count + other)) ** 2 if count + other > 0 else 0.0)
        expected.append(np.mean(found))
    np.testing.assert_allclose(unevenness(counts, grid), expected)


def test_few_draws_and_many_have_one_law():
    """Many are drawn with fewer random numbers."""
    rng = generator(9)
    found = kriging(rounds_of(records(rng), rng.uniform(-1, 1, (1, 2, 2)), rng))
    sums = statistics_of(KMEANS, rng.uniform(-1, 1, (2, 2)), found.base.points)
    many = found.draws(sums, 3000, rng)[1]
    few = np.concatenate([found.draws(sums, 11, rng)[1] for _ in range(270)])
    np.testing.assert_allclose(np.cov(few.T), np.cov(many.T), atol=0.1 * np.cov(many.T).diagonal().max())


def test_cells_alone_are_as_uncertain_as_their_counts_and_the_places_within():
    rng = generator(8)
    counts = [500.0, 300.0, 0.0, 10.0]
    counted = four_cells(rng, [10] * 4, counts, counts, variance=25.0)
    number = len(counted.base.points)
    none = NoisySums(np.zeros((0, number)), np.zeros(0), np.zeros(0), laplace=True)
    expected, drawn = Kriging.of_cells(none, counted, lumps=2.0).draws(np.ones((1, number)), 4000, rng)
    assert expected[0] == pytest.approx(810.0)
    assert drawn.std() == pytest.approx(10.0, rel=0.1)


@pytest.mark.parametrize(("part", "spread"), [(2, 1 / np.sqrt(3)), (0, 1.0)])
def test_a_value_that_many_records_share_is_off_by_as_much_in_all_cells_together(part: int, spread: float):
    """A heap anywhere in a part of a side, in many cells; in the outermost part it may be at the bound itself."""
    rng = generator(3)
    grid = CellGrid(5, REGION)
    counts = np.where(grid.parts[:, 0] == part, 100.0, 0.0)
    counted = four_cells(rng, [400] * 25, counts, counts, variance=1e-6, grid=grid)
    counted = replace(counted, unevenness=np.zeros(25))
    number = len(counted.base.points)
    none = NoisySums(np.zeros((0, number)), np.zeros(0), np.zeros(0), laplace=False)
    found = Kriging.of_cells(none, counted, lumps=1e9)
    _, drawn = found.draws(counted.base.points[:, :1].T / 500.0, 4000, rng)
    assert drawn.std() == pytest.approx(spread / 5, rel=0.1)


def test_what_the_rounds_measured_is_as_exact_as_they_are():
    rng = generator(2)
    thetas = np.repeat(rng.uniform(-1, 1, (1, 2, 2)), 4, axis=0)
    found = kriging(rounds_of(records(rng), thetas, rng, scale=5.0, laplace=False))
    _, drawn = found.draws(statistics_of(KMEANS, thetas[0], found.base.points), 1000, rng)
    assert drawn.std(axis=0) == pytest.approx(np.full(6, 5.0 / 2), rel=0.2)


def test_a_base_whose_total_is_wrong_by_far_is_not_believed():
    rng = generator(6)
    rounds = rounds_of(records(rng, 30), rng.uniform(-1, 1, (2, 2, 2)), rng, scale=5000.0)
    _, drawn = kriging(rounds).draws(np.ones((1, 9000)), 500, rng)
    low, high = np.quantile(drawn, [0.05, 0.95])
    assert low < 30 < high


def test_lumps_grow_until_the_rounds_are_explained():
    rng = generator(4)
    rounds = rounds_of(records(rng), rng.uniform(-1, 1, (4, 2, 2)), rng, scale=0.5)
    many, few = kriging(rounds, lumps=1e4), kriging(rounds, lumps=1e-3)
    assert many.lump > 2 * stuck().masses.sum() / 1e4
    assert few.lump == pytest.approx(3e6)
    assert few.misfit < many.misfit < 3


def test_rounds_of_too_many_numbers_are_left_to_the_chains():
    rng = generator(5)
    thetas = rng.uniform(-1, 1, (1, MOST_STATISTICS, 2))
    rounds = rounds_of(records(rng, 100), thetas, rng)
    assert Kriging.of(cluster_problem(rounds).target, stuck(), REGION, rng, lumps=32.0) is None
