"""Whole tables that keep every marginal, against all whole tables nearby."""

import itertools

import numpy as np
import pytest

from consilience.solvers.fit import Infeasible
from consilience.solvers.marginal_tables.table_fit import fit_table


def marginals_of(table: np.ndarray, order: int) -> dict[tuple[int, ...], np.ndarray]:
    every = range(table.ndim)
    return {axes: table.sum(axis=tuple(set(every) - set(axes))) for axes in itertools.combinations(every, order)}


def assert_rounded(counts: np.ndarray, table: np.ndarray, order: int) -> None:
    np.testing.assert_array_equal(counts, np.round(counts))
    assert counts.min() >= 0
    for axes, values in marginals_of(table, order).items():
        np.testing.assert_array_equal(marginals_of(counts, order)[axes], values)


@pytest.mark.parametrize("loss", ["l1", "l2", "elastic"])
@pytest.mark.parametrize(
    ("shape", "order"), [((5,), 0), ((4, 6), 0), ((4, 6), 1), ((3, 3, 3), 1), ((3, 4, 3), 2), ((2,) * 5, 2)]
)
def test_every_marginal_is_kept(loss, shape, order):
    rng = np.random.default_rng(len(shape) + order)
    table = rng.poisson(3, shape).astype(float)
    noisy = table + rng.laplace(0, 2, shape)
    fit = fit_table(noisy, marginals_of(table, order), loss=loss, integers=True)
    assert_rounded(fit.counts, table, order)
    fractional = fit_table(noisy, marginals_of(table, order), loss=loss)
    assert fit.objective >= fractional.objective - fractional.gap - 1e-9
    assert fit.gap >= fit.objective - fractional.objective - 1e-9
    assert fit.stats["rounding_cost"] == pytest.approx(fit.objective - fractional.objective, abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_rounding_within_two_margins_is_the_cheapest_choice_of_neighbours(seed):
    rng = np.random.default_rng(seed)
    table = rng.poisson(2, (2, 3)).astype(float)
    noisy = table + rng.laplace(0, 1, table.shape)
    real = fit_table(noisy, marginals_of(table, 1), loss="l2").counts
    fit = fit_table(noisy, marginals_of(table, 1), loss="l2", integers=True)
    below = np.floor(real + 1e-6)
    costs = []
    for up in itertools.product((0, 1), repeat=6):
        other = below + np.reshape(up, (2, 3)) * (real > below + 1e-6)
        if all(np.array_equal(marginals_of(other, 1)[axes], values) for axes, values in marginals_of(table, 1).items()):
            costs.append(float(np.sum((other - noisy) ** 2)))
    assert fit.objective == pytest.approx(min(costs))


def test_totals_are_kept_by_raising_the_cells_that_gain_most():
    fit = fit_table([1.4, 2.3, 0.4], {(): 4}, loss="l2", integers=True)
    assert fit.counts.sum() == 4
    best = min(
        float(np.sum((np.array(other) - [1.4, 2.3, 0.4]) ** 2))
        for other in itertools.product(range(5), repeat=3)
        if sum(other) == 4
    )
    assert fit.objective == pytest.approx(best)


def test_without_marginals_cells_go_to_the_cheaper_neighbour():
    fit = fit_table([1.4, 2.7, -0.3], {}, loss="l1", integers=True)
    np.testing.assert_array_equal(fit.counts, [1.0, 3.0, 0.0])


def test_marginals_that_are_not_whole_are_refused():
    with pytest.raises(Infeasible, match=r"holds 2\.5") as caught:
        fit_table(np.ones((2, 2)), {(0,): [2.5, 1.5]}, integers=True)
    assert caught.value.violation == 0.5


def test_a_table_with_fractions_alone_is_refused():
    """Marginals of pairs, found by search, that a table of halves has and no whole table."""
    zeros = np.ones((2, 2, 2), dtype=bool)
    even = [cell for cell in itertools.product((0, 1), repeat=3) if sum(cell) % 2 == 0]
    for cell in even:
        zeros[cell] = False
    table = np.where(zeros, 0.0, 0.5)
    marginals = {axes: values * 1.0 for axes, values in marginals_of(table, 1).items()}
    assert all(np.array_equal(values, [1.0, 1.0]) for values in marginals.values())
    with pytest.raises(Infeasible, match="no whole table"):
        fit_table(np.full((2, 2, 2), 0.5), marginals, zeros=zeros, integers=True)


def test_cells_move_further_where_no_neighbours_fit():
    """Here the fit is halfway everywhere, and whole tables with these marginals exist elsewhere."""
    zeros = np.ones((2, 2, 2), dtype=bool)
    for cell in itertools.product((0, 1), repeat=3):
        if sum(cell) % 2 == 0 or cell == (1, 1, 1):
            zeros[cell] = False
    zeros[0, 0, 1] = False
    marginals = {(0,): [1.0, 1.0], (1,): [1.0, 1.0], (2,): [1.0, 1.0]}
    noisy = np.where(zeros, 0.0, 0.5)
    noisy[1, 1, 1] = noisy[0, 0, 1] = -0.5
    fit = fit_table(noisy, marginals, loss="l2", zeros=zeros, integers=True)
    np.testing.assert_array_equal(fit.counts, np.round(fit.counts))
    for axis in range(3):
        np.testing.assert_array_equal(fit.counts.sum(axis=tuple({0, 1, 2} - {axis})), [1.0, 1.0])
