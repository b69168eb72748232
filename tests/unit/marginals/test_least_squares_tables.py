"""The shortest non-negative table with given margins, against an active-set method."""

import itertools
import math

import numpy as np
import pytest
import scipy.optimize

from consilience.errors import DeclarationError, TooLarge
from consilience.marginals.dual_path import EquationSettings
from consilience.marginals.margin_layouts import MarginLayout
from consilience.marginals.margins import Margin
from consilience.marginals.reconstruction import least_squares_table
from consilience.solvers.fit import Status

SHAPES = ((2, 2, 2), (2, 3, 4), (2, 2, 2, 2), (3, 3, 3), (2,) * 5)


def margin(table: np.ndarray, axes: tuple[int, ...]) -> Margin:
    return axes, table.sum(axis=tuple(axis for axis in range(table.ndim) if axis not in axes))


def sums_matrix(shape: tuple[int, ...], scopes: list[tuple[int, ...]]) -> np.ndarray:
    cells = np.eye(math.prod(shape)).reshape(-1, *shape)
    return np.array([np.concatenate([margin(cell, axes)[1].ravel() for axes in scopes]) for cell in cells]).T


def by_active_sets(shape: tuple[int, ...], scopes: list[tuple[int, ...]], wanted: np.ndarray) -> np.ndarray:
    """min ‖T‖² + heavy · ‖sums − wanted‖² over T ≥ 0, which for compatible margins is as good as an equation."""
    matrix = sums_matrix(shape, scopes)
    heavy = 3e4
    stacked = np.vstack([heavy * matrix, np.eye(matrix.shape[1])])
    right = np.concatenate([heavy * wanted, np.zeros(matrix.shape[1])])
    return scipy.optimize.nnls(stacked, right, maxiter=10_000)[0].reshape(shape)


@pytest.mark.parametrize("seed", range(20))
def test_equals_an_active_set_method(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = SHAPES[seed % len(SHAPES)]
    table = rng.gamma(0.3, 1.0, shape) * (rng.random(shape) < 0.7) + 1e-3
    table /= table.sum()
    scopes = list(itertools.combinations(range(len(shape)), len(shape) - 1 if seed % 2 else 2))
    margins = [margin(table, axes) for axes in scopes]
    found = least_squares_table(shape, margins, total=1.0)
    expected = by_active_sets(shape, scopes, np.concatenate([values.ravel() for _, values in margins]))
    assert np.abs(found.table - expected).max() <= 1e-6
    assert found.table.min() >= 0
    assert not found.relaxed
    assert found.status is Status.CONVERGED


def test_is_shorter_than_any_other_table_with_the_margins() -> None:
    rng = np.random.default_rng(1)
    table = rng.gamma(0.5, 10.0, (2, 3, 2, 2))
    scopes = [(0, 1), (1, 2), (2, 3), (0, 3)]
    found = least_squares_table(table.shape, [margin(table, axes) for axes in scopes], total=table.sum()).table
    _, values, right = np.linalg.svd(sums_matrix(table.shape, scopes))
    inside = right[np.count_nonzero(values > 1e-9) :]
    for _ in range(50):
        direction = (rng.normal(size=len(inside)) @ inside).reshape(table.shape)
        reach = np.min(np.where(direction < 0, found / np.maximum(-direction, 1e-300), np.inf))
        moved = found + reach * rng.random() * direction
        assert np.sum(moved**2) >= np.sum(found**2) * (1 - 1e-9)


def test_incompatible_margins_are_relaxed_and_the_total_stays() -> None:
    pair = np.array([[60.0, 240.0], [240.0, 60.0]])
    found = least_squares_table((2, 2, 2), [((0, 1), pair), ((0, 2), pair), ((1, 2), pair)], total=600.0)
    expected = np.full((2, 2, 2), 100.0)
    expected[0, 0, 0] = expected[1, 1, 1] = 0.0
    assert np.allclose(found.table, expected, atol=1e-3)
    assert found.table.sum() == pytest.approx(600.0, rel=1e-7)
    assert found.relaxed
    assert found.violation == pytest.approx(40.0, abs=1e-3)


@pytest.mark.parametrize("noise", [0.0, 2e-3])
def test_conjugate_gradients_lead_where_factorisation_does(noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    table = rng.gamma(0.3, 1.0, (3, 4, 5))
    table /= table.sum()
    margins = [margin(table, axes) for axes in ((0, 1), (0, 2), (1, 2))]
    margins = [(axes, values + rng.normal(0, noise, values.shape)) for axes, values in margins]
    margins = [(axes, values / values.sum()) for axes, values in margins]
    exact = least_squares_table(table.shape, margins, total=1.0)
    monkeypatch.setattr("consilience.marginals.dual_path.EQUATIONS", EquationSettings(most_rows=1))
    by_gradients = least_squares_table(table.shape, margins, total=1.0)
    assert exact.relaxed == by_gradients.relaxed == (noise > 0)
    assert np.abs(exact.table - by_gradients.table).max() <= (1e-4 if noise else 1e-7)


def sparse_margins(seed: int) -> tuple[tuple[int, ...], list[Margin]]:
    """All triples of seven skewed attributes, with noise as large as most of their counts."""
    rng = np.random.default_rng(seed)
    shape = (2,) * 7
    chances = rng.beta(0.4, 4.0, 7)
    records = (rng.random((2000, 7)) < chances) ^ (rng.random((2000, 1)) < 0.02)
    table = np.zeros(shape)
    np.add.at(table, tuple(records.astype(int).T), 1.0)
    every = [margin(table, axes) for axes in itertools.combinations(range(7), 3)]
    noisy = [(axes, values + rng.laplace(0, 10, values.shape)) for axes, values in every]
    return shape, [(axes, values * (2000 / values.sum())) for axes, values in noisy]


def distances(shape: tuple[int, ...], margins: list[Margin], table: np.ndarray) -> tuple[float, float]:
    """How far the coefficients of a table are from those of margins, and the least such distance, by active sets."""
    layout = MarginLayout.of(shape, [axes for axes, _ in margins])
    targets = layout.coefficients(np.concatenate([values.ravel() for _, values in margins]) / 2000)
    matrix = np.array([layout.coefficients_of(cell) for cell in np.eye(layout.cells)]).T
    firm = np.ones(layout.rows)
    firm[0] = 1e4
    least = scipy.optimize.nnls(firm[:, None] * matrix, firm * targets, maxiter=10_000)[1]
    return float(np.linalg.norm(layout.coefficients_of(table.ravel() / 2000) - targets)), float(least)


@pytest.mark.parametrize("seed", range(6))
def test_noisy_margins_of_sparse_tables_end_at_the_least_violation(seed: int) -> None:
    shape, margins = sparse_margins(seed)
    found = least_squares_table(shape, margins, total=2000.0)
    assert found.status is Status.CONVERGED
    assert found.relaxed
    assert found.table.sum() == pytest.approx(2000.0, rel=1e-6)
    distance, least = distances(shape, margins, found.table)
    assert distance == pytest.approx(least, abs=1e-6)


def test_one_margin_no_margin_and_no_total() -> None:
    one = np.array([3.0, 5.0])
    assert np.allclose(least_squares_table((2, 4), [((0,), one)], total=8.0).table, one[:, None] / 4)
    assert np.allclose(least_squares_table((2, 4), [], total=8.0).table, 1.0)
    assert float(least_squares_table((), [], total=8.0).table) == 8.0
    assert not least_squares_table((2, 4), [((0,), one)], total=0.0).table.any()
    negative = least_squares_table((3,), [((0,), np.array([5.0, 4.0, -1.0]))], total=8.0)
    assert np.allclose(negative.table, [4.5, 3.5, 0.0])
    assert negative.relaxed


def test_attributes_in_no_margin_are_even() -> None:
    table = np.random.default_rng(0).gamma(0.3, 10.0, (2, 2, 2))
    scopes = [(0, 1), (1, 2), (0, 2)]
    small = least_squares_table((2, 2, 2), [margin(table, axes) for axes in scopes], total=table.sum()).table
    wider = [(tuple(axis + (axis > 0) for axis in axes), margin(table, axes)[1]) for axes in scopes]
    found = least_squares_table((2, 3, 2, 2), wider, total=table.sum()).table
    assert np.allclose(found, np.repeat(small[:, None], 3, axis=1) / 3, atol=1e-6 * table.sum())


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(TooLarge):
        least_squares_table((2,) * 27, [], total=1.0)
    with pytest.raises(DeclarationError):
        least_squares_table((2, 2), [], total=float("inf"))
