"""The table of greatest entropy: against a convex solver, its laws, and margins that no table has."""

import itertools
import math

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.errors import DeclarationError, MeasurementError, TooLarge
from consilience.marginals.dual_path import Dual, EquationSettings
from consilience.marginals.margin_layouts import MarginLayout
from consilience.marginals.margins import Margin
from consilience.marginals.reconstruction import greatest_entropy_table
from consilience.solvers.fit import Status

SHAPES = ((2, 2, 2), (2, 2, 2, 2), (2, 3, 4), (3, 3, 3), (2, 2, 2, 2, 2), (2, 2, 3, 4), (5, 2, 3), (2,) * 6)


def margin(table: np.ndarray, axes: tuple[int, ...]) -> Margin:
    return axes, table.sum(axis=tuple(axis for axis in range(table.ndim) if axis not in axes))


def random_table(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """A joint table: even, skewed, or with many zeros."""
    style = rng.integers(4)
    if style == 0:
        return rng.uniform(0.5, 1.5, shape) * 1000
    if style == 1:
        return rng.lognormal(0.0, 2.0, shape) * 10
    if style == 2:
        return rng.poisson(rng.gamma(0.3, 5.0, shape)).astype(float) + (rng.random(shape) < 0.05)
    return (
        rng.multinomial(int(rng.integers(3, 40)), np.full(math.prod(shape), 1 / math.prod(shape))).reshape(shape) * 1.0
    )


def random_scopes(count: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    width = int(rng.integers(1, count))
    every = [axes for size in (width, min(width + 1, count - 1)) for axes in itertools.combinations(range(count), size)]
    chosen = rng.choice(len(every), int(rng.integers(2, len(every) + 1)), replace=False)
    return [every[index] for index in chosen]


def sums_matrix(shape: tuple[int, ...], scopes: list[tuple[int, ...]]) -> np.ndarray:
    """The matrix whose rows sum the cells of each margin."""
    cells = np.arange(math.prod(shape)).reshape(shape)
    rows = []
    for axes in scopes:
        for values in itertools.product(*(range(shape[axis]) for axis in axes)):
            index = tuple(values[axes.index(axis)] if axis in axes else slice(None) for axis in range(len(shape)))
            row = np.zeros(cells.size)
            row[np.ravel(cells[index])] = 1.0
            rows.append(row)
    return np.array(rows)


def by_convex_solver(shape: tuple[int, ...], scopes: list[tuple[int, ...]], table: np.ndarray) -> np.ndarray:
    """The greatest entropy with the margins of a table: which cells can be positive, by linear programmes; then a
    trust-region method on the dual over an orthonormal basis."""
    shares = table.ravel() / table.sum()
    matrix = np.vstack([sums_matrix(shape, scopes), np.ones(shares.size)])
    open_cells = shares > 0
    for cell in np.flatnonzero(~open_cells):
        cost = np.zeros(shares.size)
        cost[cell] = -1.0
        best = scipy.optimize.linprog(cost, A_eq=matrix, b_eq=matrix @ shares, bounds=(0, None), method="highs")
        open_cells[cell] = -best.fun > 1e-7
    _, values, right = np.linalg.svd(matrix[:, open_cells], full_matrices=False)
    basis = right[values > 1e-9 * values[0]]
    wanted = basis @ shares[open_cells]

    def cells_of(price: np.ndarray) -> np.ndarray:
        return np.exp(basis.T @ price - 1.0)

    answer = scipy.optimize.minimize(
        lambda price: cells_of(price).sum() - wanted @ price,
        basis @ np.full(basis.shape[1], 1.0 + math.log(1.0 / basis.shape[1])),
        jac=lambda price: basis @ cells_of(price) - wanted,
        hess=lambda price: (basis * cells_of(price)) @ basis.T,
        method="trust-exact",
        options={"gtol": 1e-11, "maxiter": 2000},
    )
    price = answer.x
    for _ in range(20):  # the trust region may stall on rounding of the objective; plain Newton steps end it
        cells = cells_of(price)
        price = price - np.linalg.lstsq((basis * cells) @ basis.T, basis @ cells - wanted, rcond=1e-15)[0]
    found = np.zeros(shares.size)
    found[open_cells] = cells_of(price)
    assert np.abs(matrix @ (found - shares)).max() < 1e-8
    return (found * table.sum()).reshape(shape)


def agrees_with_convex_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = SHAPES[seed % len(SHAPES)]
    scopes = random_scopes(len(shape), rng)
    table = random_table(shape, rng)
    found = greatest_entropy_table(shape, [margin(table, axes) for axes in scopes], total=table.sum())
    expected = by_convex_solver(shape, scopes, table)
    assert np.abs(found.table - expected).max() <= 1e-6 * table.sum()
    assert found.status is Status.CONVERGED
    assert not found.relaxed
    assert found.violation <= 1e-8 * table.sum()


@pytest.mark.parametrize("seed", range(24))
def test_equals_a_convex_solver(seed: int) -> None:
    agrees_with_convex_solver(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_equals_a_convex_solver_on_many_view_sets(seed: int) -> None:
    agrees_with_convex_solver(seed)


def anticorrelated(share: float) -> list[Margin]:
    """Three pairs that each agree in single attributes, but that no table has where the share is below 1/6."""
    pair = np.array([[share, 0.5 - share], [0.5 - share, share]]) * 600
    return [((0, 1), pair), ((0, 2), pair), ((1, 2), pair)]


def test_a_frustrated_triple_gives_the_relaxed_table_and_its_violation() -> None:
    found = greatest_entropy_table((2, 2, 2), anticorrelated(0.1), total=600.0)
    expected = np.full((2, 2, 2), 100.0)
    expected[0, 0, 0] = expected[1, 1, 1] = 0.0
    assert np.allclose(found.table, expected, atol=1e-4)
    assert found.violation == pytest.approx(40.0, abs=1e-4)
    assert found.relaxed
    assert found.status is Status.CONVERGED
    again = greatest_entropy_table((2, 2, 2), anticorrelated(0.1), total=600.0)
    assert np.array_equal(found.table, again.table)


@pytest.mark.parametrize("share", [1 / 6, 0.17, 0.25])
def test_a_triple_on_the_edge_of_frustration_is_met(share: float) -> None:
    found = greatest_entropy_table((2, 2, 2), anticorrelated(share), total=600.0)
    assert not found.relaxed
    assert found.violation <= 1e-5


def least_distance(shape: tuple[int, ...], margins: list[Margin], total: float) -> float:
    """The least distance between the coefficients of margins and those of a non-negative table, by active sets."""
    layout = MarginLayout.of(shape, [axes for axes, _ in margins])
    targets = layout.coefficients(np.concatenate([table.ravel() for _, table in margins]) / total)
    targets[0] = 1.0
    cells = np.eye(layout.cells)
    matrix = np.array([layout.coefficients(layout.margins(cell)) for cell in cells]).T
    matrix[0] *= 1e4
    wanted = targets.copy()
    wanted[0] *= 1e4
    return scipy.optimize.nnls(matrix, wanted)[1]


@pytest.mark.parametrize("seed", range(8))
def test_margins_of_no_table_are_violated_as_little_as_can_be_with_the_greatest_entropy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = ((2, 2, 2, 2), (2, 3, 4), (3, 2, 2, 2), (2,) * 5)[seed % 4]
    table = rng.lognormal(0.0, 1.5, shape)
    table *= 1000 / table.sum()
    scopes = list(itertools.combinations(range(len(shape)), 2))
    margins = [(axes, values + rng.normal(0, 40, values.shape)) for axes, values in (margin(table, a) for a in scopes)]
    margins = [(axes, values * (1000 / values.sum())) for axes, values in margins]
    found = greatest_entropy_table(shape, margins, total=1000.0)
    layout = MarginLayout.of(shape, scopes)
    targets = layout.coefficients(np.concatenate([values.ravel() for _, values in margins]) / 1000)
    distance = float(np.linalg.norm(layout.coefficients(layout.margins(found.table.ravel() / 1000)) - targets))
    assert found.relaxed
    assert distance == pytest.approx(least_distance(shape, margins, 1000.0), abs=1e-6)
    of_its_own = greatest_entropy_table(shape, [margin(found.table, axes) for axes in scopes], total=1000.0)
    assert np.abs(of_its_own.table - found.table).max() <= 1e-3
    assert found.violation == pytest.approx(
        max(np.abs(margin(found.table, axes)[1] - values).max() for axes, values in margins)
    )


def test_zeros_of_margins_are_zeros_of_the_table() -> None:
    rng = np.random.default_rng(3)
    table = rng.gamma(1.0, 10.0, (2, 3, 2, 2))
    table[0, 1] = 0.0
    table[:, :, 1, 0] = 0.0
    margins = [margin(table, axes) for axes in ((0, 1), (1, 2), (2, 3), (0, 3))]
    found = greatest_entropy_table(table.shape, margins, total=table.sum())
    assert np.all(found.table[0, 1] == 0.0)
    assert np.all(found.table[:, :, 1, 0] == 0.0)
    assert found.violation <= 1e-8 * table.sum()


def test_contradicting_zeros_are_relaxed() -> None:
    margins = [((0, 1), np.array([[0.0, 0.0], [5.0, 5.0]])), ((1, 2), np.full((2, 2), 2.5))]
    margins.append(((0, 2), np.array([[3.0, 0.0], [2.0, 5.0]])))
    found = greatest_entropy_table((2, 2, 2), margins, total=10.0)
    assert found.relaxed
    assert found.table.min() >= 0
    assert found.table.sum() == pytest.approx(10.0)
    assert 0 < found.violation < 3.0


def test_slightly_negative_margins_are_relaxed_by_about_as_much() -> None:
    rng = np.random.default_rng(5)
    table = rng.gamma(0.5, 100.0, (2,) * 5)
    table[table < 20] = 0.0
    scopes = list(itertools.combinations(range(5), 3))
    margins = [(axes, values - 0.5 * (values == 0)) for axes, values in (margin(table, each) for each in scopes)]
    margins[0][1][0, 0, 0] -= 0.5
    found = greatest_entropy_table(table.shape, margins, total=table.sum())
    assert found.table.min() >= 0
    assert found.relaxed
    assert 0.1 < found.violation < 2.0


@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 1)])
def test_a_single_margin_is_the_table_spread_evenly(axes: tuple[int, ...]) -> None:
    table = np.random.default_rng(0).gamma(1.0, 10.0, (2, 3, 4))
    found = greatest_entropy_table(table.shape, [margin(table, axes)], total=table.sum())
    kept = [size if axis in axes else 1 for axis, size in enumerate(table.shape)]
    expected = np.broadcast_to(margin(table, axes)[1].reshape(kept), table.shape) / (24 / math.prod(kept))
    assert np.allclose(found.table, expected)
    assert found.steps == 0


def test_margins_without_common_attributes_make_a_product() -> None:
    rng = np.random.default_rng(1)
    one, two = rng.gamma(1.0, 1.0, (2, 3)), rng.gamma(1.0, 1.0, (3,))
    one, two = one * (50 / one.sum()), two * (50 / two.sum())
    found = greatest_entropy_table((2, 3, 2, 3), [((0, 3), one), ((1,), two)], total=50.0)
    assert np.allclose(found.table, np.einsum("ad,b->abd", one, two)[:, :, None, :] / 100)
    assert found.steps == 0


def test_no_margin_and_no_total_and_no_axis() -> None:
    assert np.allclose(greatest_entropy_table((2, 3), [], total=12.0).table, 2.0)
    assert greatest_entropy_table((), [], total=12.0).table.shape == ()
    assert float(greatest_entropy_table((), [], total=12.0).table) == 12.0
    nothing = greatest_entropy_table((2, 2), [((0,), np.array([1.0, -1.0]))], total=0.0)
    assert not nothing.table.any()
    assert nothing.violation == 1.0
    assert nothing.relaxed


def test_margins_of_another_total_are_scaled_and_reported() -> None:
    found = greatest_entropy_table((2, 2), [((0,), np.array([1.0, 3.0])), ((1,), np.array([2.0, 2.0]))], total=8.0)
    assert np.allclose(found.table, [[1, 1], [3, 3]])
    assert found.violation == pytest.approx(3.0)
    assert found.relaxed


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(1e-3, 1e9))
def test_order_of_axes_values_and_scale_make_no_difference(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    shape = SHAPES[seed % 6]
    table = random_table(shape, rng) + (0.1 if seed % 2 else 0.0)
    scopes = random_scopes(len(shape), rng)
    found = greatest_entropy_table(shape, [margin(table, axes) for axes in scopes], total=table.sum())
    order = rng.permutation(len(shape))
    moved = np.flip(table, axis=0).transpose(order) * scale
    places = {int(axis): place for place, axis in enumerate(order)}
    other = [margin(moved, tuple(sorted(places[axis] for axis in axes))) for axes in reversed(scopes)]
    again = greatest_entropy_table(moved.shape, other, total=moved.sum())
    expected = np.flip(found.table, axis=0).transpose(order) * scale
    assert np.abs(again.table - expected).max() <= 1e-6 * moved.sum()


@pytest.mark.parametrize("noise", [0.0, 2e-3])
def test_conjugate_gradients_lead_where_factorisation_does(noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    table = rng.gamma(0.3, 1.0, (3, 4, 5))
    table /= table.sum()
    scopes = [(0, 1), (0, 2), (1, 2)]
    layout = MarginLayout.of(table.shape, scopes)
    wanted = layout.margins(table.ravel())
    targets = layout.coefficients(wanted + rng.normal(0, noise, wanted.size))
    targets[0] = 1.0
    support = np.ones(table.size, dtype=bool)
    start = np.zeros(layout.rows)
    exact = Dual(layout, support, targets, "entropy").follow(start, first=0.1, tolerance=1e-9, most_steps=400)
    monkeypatch.setattr("consilience.marginals.dual_path.EQUATIONS", EquationSettings(most_rows=1))
    by_gradients = Dual(layout, support, targets, "entropy").follow(start, first=0.1, tolerance=1e-9, most_steps=400)
    assert by_gradients.settled
    assert np.abs(exact.table - by_gradients.table).max() <= (1e-4 if noise else 1e-7)


def test_large_tables_are_fitted() -> None:
    rng = np.random.default_rng(4)
    table = rng.gamma(0.5, 1.0, (2,) * 14)
    scopes = [tuple(sorted(rng.choice(14, 4, replace=False).tolist())) for _ in range(40)]
    found = greatest_entropy_table(table.shape, [margin(table, axes) for axes in scopes], total=table.sum())
    assert found.violation <= 1e-8 * table.sum()
    assert found.status is Status.CONVERGED


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(TooLarge, match="fewer attributes"):
        greatest_entropy_table((2,) * 27, [], total=1.0)
    with pytest.raises(DeclarationError, match="ascending"):
        greatest_entropy_table((2, 2), [((1, 0), np.ones((2, 2)))], total=4.0)
    with pytest.raises(DeclarationError, match="shape"):
        greatest_entropy_table((2, 3), [((1,), np.ones(2))], total=2.0)
    with pytest.raises(DeclarationError, match="finite"):
        greatest_entropy_table((2, 3), [], total=float("nan"))
    with pytest.raises(MeasurementError, match="NaN"):
        greatest_entropy_table((2, 3), [((0,), np.array([1.0, np.nan]))], total=2.0)
