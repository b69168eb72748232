"""Non-negative tables from the top down, against slow solvers, and whole ones that keep every margin."""

import numpy as np
import pytest
import scipy.optimize

from consilience.solvers.geography import nonnegative, rounding
from consilience.solvers.geography.cell_basis import CellBasis
from consilience.solvers.geography.least_squares import NodeEvidence, fit_signed
from consilience.solvers.geography.nonnegative import Bounds, OutOfReach, divide, within_reach
from consilience.solvers.trees.layout import forest


def random_margins(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shape = rng.integers(1, 6, 2)
    table = rng.poisson(rng.choice([0.1, 1, 30]), shape).astype(float)
    if rng.random() < 0.3:
        table *= rng.random(shape)
    return table, table + rng.normal(0, rng.choice([0.1, 3, 50]), shape), rng.uniform(0.1, 10, len(table))


def slow_division(signed: np.ndarray, spread: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The same programme by a general solver."""
    shape = signed.shape
    sums = np.concatenate([np.kron(np.eye(shape[0]), np.ones((1, shape[1]))), np.tile(np.eye(shape[1]), shape[0])])
    weights = np.repeat(1.0 / spread, shape[1])
    scale = max(1.0, float(np.abs(signed).max()))
    found = scipy.optimize.minimize(
        lambda x: float(weights @ (x - signed.ravel() / scale) ** 2),
        np.outer(rows, columns).ravel() / max(rows.sum(), 1e-9) / scale,
        jac=lambda x: 2.0 * weights * (x - signed.ravel() / scale),
        bounds=[(0, None)] * signed.size,
        constraints={
            "type": "eq",
            "fun": lambda x: sums[:-1] @ x - np.concatenate([rows, columns])[:-1] / scale,
            "jac": lambda _: sums[:-1],
        },
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return found.x.reshape(shape) * scale


def test_a_table_with_given_margins_is_that_of_a_general_convex_solver() -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        truth, signed, spread = random_margins(rng)
        rows, columns = truth.sum(1), truth.sum(0)
        slow = slow_division(signed, spread, rows, columns)
        table = signed.copy()
        nonnegative._to_margins(table, spread, rows, columns, 1e-11, 200)
        cost, slow_cost = (float((((x - signed) ** 2).sum(1) / spread).sum()) for x in (table, slow))
        assert table.min() >= 0
        assert cost <= slow_cost + 1e-7 * max(1.0, slow_cost)
        if np.abs(slow.sum(1) - rows).max() + np.abs(slow.sum(0) - columns).max() < 1e-9 and slow.min() > -1e-9:
            assert np.allclose(table, slow, atol=2e-4 * max(1.0, float(np.abs(signed).max())))


def test_margins_are_kept_and_the_conditions_of_the_optimum_hold() -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        truth, signed, spread = random_margins(rng)
        rows, columns = truth.sum(1), truth.sum(0)
        table = signed.copy()
        unmet = nonnegative._to_margins(table, spread, rows, columns, 1e-10, 200)
        assert unmet <= 1e-9
        assert np.allclose(table.sum(0), columns, rtol=1e-9, atol=1e-9)
        assert np.allclose(table.sum(1), rows, rtol=0, atol=1e-9 * max(1.0, rows.max()))
        assert_optimal(table, signed, spread, rows, columns)


def assert_optimal(
    table: np.ndarray, signed: np.ndarray, spread: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> None:
    """There are μ and θ with (s − x)/S = μ + θ where x > 0, and at most that where x = 0: a linear programme."""
    pulls = (signed - table) / spread[:, None]
    open_cells = (rows[:, None] > 0) & (columns[None, :] > 0)
    if not open_cells.any():
        return
    places = np.argwhere(open_cells)
    matrix = np.zeros((len(places), sum(table.shape) + 1))
    matrix[np.arange(len(places)), places[:, 0]] = 1.0
    matrix[np.arange(len(places)), table.shape[0] + places[:, 1]] = 1.0
    scale = max(1.0, float(np.abs(pulls).max()))
    right = pulls[open_cells] / scale
    lower = matrix.copy()
    lower[:, -1] = 1.0  # μ + θ + slack ≥ pull
    tight = table[open_cells] > 1e-7 * max(1.0, columns.max())
    upper = matrix[tight].copy()
    upper[:, -1] = -1.0
    found = scipy.optimize.linprog(
        np.eye(matrix.shape[1])[-1],
        A_ub=np.concatenate([-lower, upper]),
        b_ub=np.concatenate([-right, right[tight]]),
        bounds=[(None, None)] * (matrix.shape[1] - 1) + [(0, None)],
    )
    assert found.x[-1] <= 1e-6


def test_sums_between_bounds_are_the_nearest() -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        count = int(rng.integers(1, 9))
        least = np.where(rng.random(count) < 0.5, rng.uniform(0, 3, count), 0.0)
        most = np.where(rng.random(count) < 0.5, least + rng.uniform(0, 4, count), np.inf)
        total = float(least.sum() + rng.random() * (min(most.sum(), 50.0) - least.sum()))
        signed, spread = rng.normal(2, 5, count), rng.uniform(0.2, 5, count)
        table = signed[:, None].copy()
        nonnegative._to_sum(table, spread, np.array([total]), least[:, None], most[:, None])
        found = table[:, 0]
        assert found.sum() == pytest.approx(total, abs=1e-9)
        assert np.all(found >= least - 1e-12)
        assert np.all(found <= most + 1e-12)
        pulls = (signed - found) / spread
        between = (found > least + 1e-7) & (found < most - 1e-7)
        if between.any():
            theta = pulls[between].mean()
            assert np.allclose(pulls[between], theta, atol=1e-6)
            assert np.all(pulls[found <= least + 1e-7] <= theta + 1e-6)
            assert np.all(pulls[found >= most - 1e-7] >= theta - 1e-6)


def test_ten_thousand_random_tables_keep_their_margins_when_rounded() -> None:
    rng = np.random.default_rng(4)
    for _ in range(10_000):
        rows, columns = rng.integers(1, 9, 2)
        table = np.zeros((rows + 1, columns + 1))
        table[:rows, :columns] = rng.random((rows, columns)) * rng.choice([0.2, 1, 20]) * (rng.random((rows, 1)) < 0.7)
        table[:rows, columns] = np.ceil(table.sum(1)[:rows]) - table.sum(1)[:rows]
        table[rows, :columns] = np.ceil(table.sum(0)[:columns]) - table.sum(0)[:columns]
        table[rows, columns] = np.ceil(table[rows].sum()) - table[rows].sum()
        sums = np.round(table.sum(1)), np.round(table.sum(0))
        whole = table.copy()
        rounding.round_table(whole, *sums)
        assert np.array_equal(whole.sum(1), sums[0])
        assert np.array_equal(whole.sum(0), sums[1])
        assert whole.min() >= 0
        assert np.array_equal(whole, np.round(whole))
        assert np.abs(whole - table).max() <= 1.0


def random_geography(rng: np.random.Generator, *, facts: bool):
    """A fit of a random ragged geography, groups of its cells, and bounds that its true counts are within."""
    nodes = int(rng.integers(2, 14))
    parent = [-1, *(int(rng.integers(0, v)) for v in range(1, nodes))]
    layout = forest(parent, nodes)
    parents = np.array(parent)
    sizes = (2, int(rng.integers(1, 4)))
    cells = sizes[0] * sizes[1]
    tables = np.zeros((nodes, cells))
    leaves = layout.is_leaf
    tables[leaves] = rng.poisson(rng.choice([0.2, 2, 20]), (int(leaves.sum()), cells))
    order = np.arange(nodes) if layout.order is None else layout.order
    above = np.argsort(order)[parents[order]]
    for v in range(nodes - 1, 0, -1):
        if parents[order][v] >= 0:
            tables[above[v]] += tables[v]
    evidence = NodeEvidence(nodes, CellBasis(sizes))
    evidence.add(np.arange(nodes), (0, 1), tables + rng.normal(0, 4, tables.shape), 16.0)
    evidence.add(np.arange(nodes), (), tables.sum(1, keepdims=True) + rng.normal(0, 1, (nodes, 1)), 1.0)
    label = np.repeat([0, 1], sizes[1]) if rng.random() < 0.5 else np.zeros(cells, dtype=np.int64)
    sums = np.stack([tables[:, label == group].sum(1) for group in range(label.max() + 1)], axis=1)
    known = rng.random(sums.shape) < (0.4 if facts else 0.0)
    least = np.where(known, np.maximum(sums - rng.integers(0, 3, sums.shape), 0), 0.0)
    most = np.where(known, sums + rng.integers(0, 3, sums.shape), np.inf)
    return layout, evidence, label, Bounds(least, most)


@pytest.mark.parametrize("whole", [False, True])
def test_children_sum_to_parents_and_facts_hold(whole: bool) -> None:
    rng = np.random.default_rng(6)
    for case in range(120):
        layout, evidence, label, own = random_geography(rng, facts=case % 2 == 0)
        bounds = within_reach(layout, own)
        assert isinstance(bounds, Bounds)
        found = divide(fit_signed(layout, evidence), [label], bounds=bounds, whole=whole)
        tables = found.tables
        assert found.unmet <= 1e-9
        assert tables.min() >= 0
        size = max(1.0, tables.max())
        for v in range(layout.nodes):
            children = tables[layout.first[v] : layout.first[v + 1]]
            if len(children):
                assert np.allclose(children.sum(0), tables[v], rtol=0, atol=0 if whole else 1e-8 * size)
        for group in range(label.max() + 1):
            sums = tables[:, label == group].sum(1)
            assert np.all(sums >= own.least[:, group] - 1e-8 * size)
            assert np.all(sums <= own.most[:, group] + 1e-8 * size)
        if whole:
            assert np.array_equal(tables, np.round(tables))


def test_without_negative_signed_counts_nothing_changes() -> None:
    layout = forest([-1, 0, 0], 3)
    evidence = NodeEvidence(3, CellBasis((2,)))
    evidence.add(np.arange(3), (0,), np.array([[90.0, 60.0], [40.0, 10.0], [20.0, 30.0]]), 1.0)
    fit = fit_signed(layout, evidence)
    assert divide(fit, [np.zeros(2, dtype=np.int64)]).tables == pytest.approx(fit.tables)


def test_the_place_where_facts_contradict_each_other_is_named() -> None:
    layout = forest([-1, 0, 0, 1, 1], 5)
    least, most = np.zeros((5, 1)), np.full((5, 1), np.inf)
    least[3], most[1] = 12.0, 10.0
    found = within_reach(layout, Bounds(least, most))
    assert isinstance(found, OutOfReach)
    assert (found.node, found.group, found.excess) == (1, 0, 2.0)


@pytest.mark.parametrize("width", [10, 4_000, 100_000])
def test_newtons_step_is_found_where_the_rows_are_almost_met(width: int) -> None:
    """Equal shifts of all rows change nothing: the matrix is singular but for what is added to its diagonal."""
    found, spread, step = np.ones((3, width)), np.array([1.0, 1.0, 2.0]), np.zeros(3)
    assert nonnegative._newton(found, spread, found.sum(axis=1), 0.0, step)
    assert np.abs(step).max() <= 1e-6
