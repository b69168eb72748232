"""Closed forms for one known marginal, against the general solver and against the definition."""

import numpy as np
import pytest

from consilience.solvers.fit import Loss
from consilience.solvers.marginal_tables.marginal_basis import CellLayout
from consilience.solvers.marginal_tables.problem import CellCosts, build_problem, read_marginals
from consilience.solvers.marginal_tables.table_fit import find_optimum, fit_table


def fit_by_iteration(noisy, marginals, loss, weights, nonnegative):
    """The same table without the closed form; the cells and the objective."""
    layout = CellLayout(noisy.shape)
    known = read_marginals(marginals, layout, floor=nonnegative)
    costs = CellCosts(layout.flat(noisy), *Loss.named(loss).coefficients(layout.flat(weights)))
    problem = build_problem(known, costs)
    found = find_optimum(problem, tolerance=1e-9)
    return layout.table(costs.noisy + found.moves * problem.unit)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("loss", ["l1", "l2", "elastic"])
def test_closed_forms_equal_iteration(loss, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(size) for size in rng.integers(1, 6, int(rng.integers(1, 4))))
    table = rng.poisson(rng.gamma(0.5, 10, shape)).astype(float) + 0.5
    noisy = table + rng.laplace(0, 5, shape)
    weights = [np.ones(shape), rng.choice([0.5, 1.0, 3.0], shape), 10 ** rng.uniform(-1, 1, shape)][seed % 3]
    axes = tuple(range(int(rng.integers(0, len(shape) + 1))))
    marginals = {axes: table.sum(axis=tuple(range(len(axes), len(shape))))}
    nonnegative = seed % 4 != 0
    fit = fit_table(noisy, marginals, loss=loss, weights=weights, nonnegative=nonnegative)
    assert fit.stats["solver"] == "closed form"
    assert fit.gap <= 1e-11 * max(fit.objective, 1.0)
    twin = fit_by_iteration(noisy, marginals, loss, weights, nonnegative)
    np.testing.assert_allclose(fit.counts, twin, atol=1e-6 * max(1.0, np.abs(noisy).max()))


def test_l1_takes_a_surplus_from_the_cells_that_are_cheapest_to_move():
    fit = fit_table([5.0, 4.0, 3.0], {(): 9.0}, loss="l1", weights=[1.0, 2.0, 3.0])
    np.testing.assert_allclose(fit.counts, [2.0, 4.0, 3.0])
    fit = fit_table([5.0, 4.0, 3.0], {(): 5.0}, loss="l1", weights=[1.0, 2.0, 3.0])
    np.testing.assert_allclose(fit.counts, [0.0, 2.0, 3.0])


def test_l1_adds_a_deficit_to_the_cheapest_cells():
    fit = fit_table([5.0, 4.0, -3.0], {(): 12.0}, loss="l1", weights=[1.0, 1.0, 2.0])
    np.testing.assert_allclose(fit.counts, [6.5, 5.5, 0.0])


@pytest.mark.parametrize("loss", ["l1", "l2", "elastic"])
def test_unmeasured_cells_share_what_is_left(loss):
    fit = fit_table([5.0, 0.0, 4.0, 0.0], {(): 12.0}, loss=loss, weights=[1.0, 0.0, 1.0, 0.0])
    np.testing.assert_allclose(fit.counts, [5.0, 1.5, 4.0, 1.5])
    assert fit.objective == 0.0
    fit = fit_table([5.0, 0.0, 4.0, 0.0], {(): 7.0}, loss=loss, weights=[1.0, 0.0, 1.0, 0.0])
    np.testing.assert_allclose(fit.counts, [4.0, 0.0, 3.0, 0.0])
    fit = fit_table([5.0, 0.0, 4.0, 0.0], {(): 7.0}, loss=loss, weights=[1.0, 0.0, 1.0, 0.0], nonnegative=False)
    np.testing.assert_allclose(fit.counts, [5.0, -1.0, 4.0, -1.0])


def test_a_million_cells_are_projected_on_the_simplex():
    rng = np.random.default_rng(0)
    noisy = rng.laplace(0, 1, 1_000_000)
    fit = fit_table(noisy, {(): 1000.0}, loss="l2")
    moved = noisy[fit.counts > 0] - fit.counts[fit.counts > 0]
    assert np.ptp(moved) <= 1e-9
    assert np.all(noisy[fit.counts == 0] <= moved[0])
    assert fit.counts.sum() == pytest.approx(1000.0, rel=1e-9)


def test_a_group_that_has_its_total_but_for_rounding_stays_as_it_is():
    """Where responses are flat, a slope left over from rounding once sent the dual far beyond the flat part."""
    noisy = np.array(
        [
            [4.002201840463038, 1.0705342067662658, -0.12179227486949469, 0.10195796121803775],
            [1.0456611800621, 7.085377116098386, 2.904088662270074, 1.0928181958777445],
        ]
    )
    totals = {(): 17.0, (0,): np.array([5.0, 12.0])}
    fit = fit_table(noisy, totals, loss="elastic")
    again = fit_table(fit.counts, totals, loss="elastic")
    np.testing.assert_allclose(again.counts, fit.counts, atol=1e-9)
    np.testing.assert_allclose(again.counts.sum(axis=1), [5.0, 12.0])
