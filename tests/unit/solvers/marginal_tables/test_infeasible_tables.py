"""Marginals that no table has: refused, with the least violation, against non-negative least squares."""

import itertools

import numpy as np
import pytest
import scipy.optimize

from consilience.solvers.fit import Infeasible
from consilience.solvers.marginal_tables.marginal_basis import CellLayout
from consilience.solvers.marginal_tables.problem import read_marginals
from consilience.solvers.marginal_tables.table_fit import fit_table, nearest_marginals

FRUSTRATED = {(0, 1): [[5, 0], [0, 5]], (1, 2): [[5, 0], [0, 5]], (0, 2): [[0, 5], [5, 0]]}
"""Pairwise consistent, and yet: the first equals the second, the second the third, the first differs from the third."""


def least_violation(shape: tuple[int, ...], marginals: dict) -> float:
    """The largest error of the table whose marginals come closest in least squares."""
    cells = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    columns, values = [], []
    for axes, given in marginals.items():
        away = tuple(axis + 1 for axis in range(len(shape)) if axis not in axes)
        sums = cells.sum(axis=away).transpose([0, *(1 + sorted(axes).index(axis) for axis in axes)])
        columns.append(sums.reshape(len(cells), -1).T)
        values.append(np.asarray(given, dtype=float).ravel())
    matrix, right = np.vstack(columns), np.concatenate(values)
    found, _ = scipy.optimize.nnls(matrix, right)
    return float(np.abs(matrix @ found - right).max())


@pytest.mark.parametrize("loss", ["l1", "l2", "elastic"])
@pytest.mark.parametrize(
    ("shape", "marginals", "involved"),
    [
        ((2, 2, 2), FRUSTRATED, {"axes (0, 1)", "axes (1, 2)", "axes (0, 2)"}),
        ((2, 2), {(0,): [4, 5], (1,): [3, 7]}, {"axis 0", "axis 1"}),
        ((3, 2), {(0,): [4, 5, 1], (): 11}, {"axis 0", "the total"}),
        ((2, 2), {(0,): [4, -5]}, {"axis 0"}),
        ((2, 2), {(): -3.0}, {"the total"}),
        ((2, 3), {(0, 1): [[1, -1, 0], [0, 2, 2]]}, {"axes (0, 1)"}),
    ],
)
def test_impossible_marginals_raise_with_the_least_violation(loss, shape, marginals, involved):
    with pytest.raises(Infeasible, match="the closest table misses one of them by") as caught:
        fit_table(np.ones(shape), marginals, loss=loss)
    assert caught.value.violation == pytest.approx(least_violation(shape, marginals), rel=1e-4)
    assert set(caught.value.constraints) == involved


def test_the_table_that_frustrates_is_fitted_when_counts_may_be_negative():
    fit = fit_table(np.ones((2, 2, 2)), FRUSTRATED, nonnegative=False)
    for axes, values in FRUSTRATED.items():
        away = tuple({0, 1, 2} - set(axes))
        np.testing.assert_allclose(fit.counts.sum(axis=away), values, atol=1e-9)
    assert fit.counts.min() < 0


def test_structural_zeros_that_leave_no_room_are_named():
    zeros = np.array([[True, True], [False, False]])
    for nonnegative in (True, False):
        with pytest.raises(Infeasible, match="structural zeros") as caught:
            fit_table(np.ones((2, 2)), {(0,): [1, 3], (1,): [2, 2]}, zeros=zeros, nonnegative=nonnegative)
        assert caught.value.constraints == ("axis 0",)


def test_structural_zeros_that_contradict_the_marginals_together_are_found():
    zeros = np.array([[False, True], [True, False]])
    for nonnegative in (True, False):
        with pytest.raises(Infeasible) as caught:
            fit_table(np.ones((2, 2)), {(0,): [1, 3], (1,): [2, 2]}, zeros=zeros, nonnegative=nonnegative)
        assert caught.value.violation == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("seed", range(25))
def test_noisy_marginals_are_not_taken_for_exact_ones(seed):
    """Marginals with noise of their own contradict each other; the least violation is that of least squares."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(size) for size in rng.integers(2, 4, 3))
    table = rng.poisson(3, shape).astype(float)
    marginals = {}
    for axes in itertools.combinations(range(3), 2):
        exact = table.sum(axis=tuple({0, 1, 2} - set(axes)))
        marginals[axes] = exact + rng.normal(size=exact.shape)
    known = read_marginals(marginals, CellLayout(shape))
    assert max(nearest_marginals(known)) == pytest.approx(least_violation(shape, marginals), rel=1e-4)
    with pytest.raises(Infeasible):
        fit_table(table, marginals)


def test_marginals_on_the_edge_of_feasibility_are_fitted():
    """A table with a single count determines almost everything, and leaves no interior."""
    table = np.zeros((3, 3, 3))
    table[1, 2, 0] = 7.0
    marginals = {axes: table.sum(axis=tuple({0, 1, 2} - set(axes))) for axes in itertools.combinations(range(3), 2)}
    for loss in ("l1", "l2", "elastic"):
        fit = fit_table(np.random.default_rng(0).normal(size=table.shape), marginals, loss=loss)
        np.testing.assert_allclose(fit.counts, table, atol=1e-8)
