"""Answers do not depend on the unit of the counts: fit(c·y, w/c) = c·fit(y, w), for every solver and loss."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.solvers.marginal_tables.table_fit import fit_table
from consilience.solvers.matrices.matrix_fit import fit_matrix
from consilience.solvers.trees.fit import fit_forest, fit_tree

LOSSES = ("l1", "l2", "elastic")
every_loss = pytest.mark.parametrize("loss", LOSSES)
often = settings(max_examples=15, deadline=None)

units = st.one_of(
    st.integers(-20, 20).map(lambda power: 2.0**power),
    st.floats(-6, 6).map(lambda power: 10.0**power),
)
values = st.one_of(st.integers(-5, 20).map(float), st.floats(-30, 100).map(lambda value: round(value, 3)))
weights = st.sampled_from([0.25, 0.5, 1.0, 1.0, 3.0])


def assert_scaled(first, second, unit, *, alike=1e-7):
    """The counts of the second fit are those of the first in other units, and its loss, which has none, is the same."""
    size = max(1.0, float(np.abs(first.counts).max()))
    np.testing.assert_allclose(second.counts / unit, first.counts, atol=alike * size, rtol=0)
    assert second.objective == pytest.approx(first.objective, rel=1e-8, abs=1e-9)


@every_loss
@pytest.mark.parametrize("ties", ["min-l2", "proportional"])
@pytest.mark.parametrize("nonnegative", [True, False])
@often
@given(data=st.data(), unit=units)
def test_trees(loss, ties, nonnegative, data, unit):
    branching, nodes = data.draw(st.sampled_from([(2, 1), (2, 7), (2, 15), (3, 13), (4, 5)]))
    noisy = np.array(data.draw(st.lists(values, min_size=nodes, max_size=nodes)))
    options = {"loss": loss, "ties": ties, "nonnegative": nonnegative}
    first = fit_tree(noisy, branching, weights=0.5, **options)
    assert_scaled(first, fit_tree(unit * noisy, branching, weights=0.5 / unit, **options), unit)


@every_loss
@often
@given(data=st.data(), unit=units)
def test_forests(loss, data, unit):
    nodes = data.draw(st.integers(1, 14))
    parent = np.array([data.draw(st.integers(-1, node - 1)) for node in range(nodes)])
    noisy = np.array(data.draw(st.lists(values, min_size=nodes, max_size=nodes)))
    weight = np.array(data.draw(st.lists(weights, min_size=nodes, max_size=nodes)))
    first = fit_forest(noisy, parent, loss=loss, weights=weight)
    assert_scaled(first, fit_forest(unit * noisy, parent, loss=loss, weights=weight / unit), unit)


@every_loss
@pytest.mark.parametrize("nonnegative", [True, False])
@often
@given(data=st.data(), unit=units)
def test_tables(loss, nonnegative, data, unit):
    shape = data.draw(st.sampled_from([(3,), (2, 2), (3, 2), (2, 3, 2), (2, 2, 2, 2)]))
    cells = int(np.prod(shape))
    exact = np.array(data.draw(st.lists(st.integers(0, 9), min_size=cells, max_size=cells)), float).reshape(shape)
    noisy = exact + np.array(data.draw(st.lists(values, min_size=cells, max_size=cells))).reshape(shape)
    weight = np.array(data.draw(st.lists(weights, min_size=cells, max_size=cells))).reshape(shape)
    axes = range(len(shape))
    marginals = {(axis,): exact.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes}
    options = {"loss": loss, "nonnegative": nonnegative}
    first = fit_table(noisy, marginals, weights=weight, **options)
    scaled = {axes: unit * known for axes, known in marginals.items()}
    second = fit_table(unit * noisy, scaled, weights=weight / unit, **options)
    assert_scaled(first, second, unit, alike=1e-6)


@every_loss
@pytest.mark.parametrize("nonnegative", [True, False])
@often
@given(seed=st.integers(0, 10_000), unit=units)
def test_matrices(loss, nonnegative, seed, unit):
    """More rows than columns, so that the optimum is one point for the losses that have one."""
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, 8))
    matrix = rng.choice([-1.0, 0.0, 1.0], (2 * columns + 3, columns))
    noisy = matrix @ rng.poisson(3, columns) + rng.laplace(0, 2, len(matrix))
    weight = rng.choice([0.5, 1.0, 2.0], len(matrix))
    options = {"loss": loss, "nonnegative": nonnegative}
    first = fit_matrix(matrix, noisy, weights=weight, **options)
    second = fit_matrix(matrix, unit * noisy, weights=weight / unit, **options)
    if np.linalg.matrix_rank(matrix) == columns and loss != "l1":
        assert_scaled(first, second, unit, alike=1e-4)
    assert second.objective == pytest.approx(first.objective, rel=1e-8, abs=1e-9)
