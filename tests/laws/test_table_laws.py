"""Laws of `fit_table` and `fit_matrix`: units, the order of attributes and of their values, and what is certain."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.solvers.marginal_tables.table_fit import fit_table
from consilience.solvers.matrices.matrix_fit import fit_matrix

losses = st.sampled_from(["l1", "l2", "elastic"])


@st.composite
def tables(draw):
    """A noisy table, weights, and the marginals of a table that exists."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    table = rng.poisson(rng.gamma(0.5, 8, shape)).astype(float)
    noisy = table + rng.laplace(0, draw(st.sampled_from([0.1, 2.0, 30.0])), shape)
    weights = draw(st.sampled_from([np.ones(shape), rng.choice([0.5, 2.0], shape), 10 ** rng.uniform(-1, 1, shape)]))
    subsets = [axes for k in range(len(shape) + 1) for axes in itertools.combinations(range(len(shape)), k)]
    chosen = draw(st.lists(st.sampled_from(subsets), min_size=1, max_size=4, unique=True))
    return noisy, weights, {axes: marginal(table, axes) for axes in chosen}


def marginal(table: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return table.sum(axis=tuple(axis for axis in range(table.ndim) if axis not in axes))


def close(actual, expected, noisy) -> None:
    np.testing.assert_allclose(actual, expected, atol=1e-6 * max(1.0, float(np.abs(noisy).max())))


@settings(max_examples=40, deadline=None)
@given(tables(), losses)
def test_marginals_hold_counts_are_not_negative_and_the_gap_is_small(case, loss):
    noisy, weights, marginals = case
    fit = fit_table(noisy, marginals, loss=loss, weights=weights)
    assert fit.counts.min() >= 0
    for axes, values in marginals.items():
        np.testing.assert_allclose(marginal(fit.counts, axes), values, atol=1e-9 * max(1.0, float(np.max(values))))
    assert 0 <= fit.gap <= 1e-7 * max(fit.objective, 1e-6 * float(np.sum(weights * np.abs(noisy))))


@settings(max_examples=40, deadline=None)
@given(tables(), losses, st.sampled_from([1e-6, 0.5, 7.0, 1e9]))
def test_a_table_in_other_units_has_the_same_fit_in_those_units(case, loss, factor):
    noisy, weights, marginals = case
    fit = fit_table(noisy, marginals, loss=loss, weights=weights)
    scaled = {axes: factor * values for axes, values in marginals.items()}
    other = fit_table(factor * noisy, scaled, loss=loss, weights=weights / factor)
    close(other.counts / factor, fit.counts, noisy)
    assert other.objective == pytest.approx(fit.objective, rel=1e-7, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(tables(), losses, st.randoms(use_true_random=False))
def test_the_order_of_attributes_does_not_matter(case, loss, random):
    noisy, weights, marginals = case
    fit = fit_table(noisy, marginals, loss=loss, weights=weights)
    order = list(range(noisy.ndim))
    random.shuffle(order)
    moved = {tuple(order.index(axis) for axis in axes): values for axes, values in marginals.items()}
    other = fit_table(noisy.transpose(order), moved, loss=loss, weights=weights.transpose(order))
    close(other.counts, fit.counts.transpose(order), noisy)


@settings(max_examples=40, deadline=None)
@given(tables(), losses, st.randoms(use_true_random=False))
def test_the_order_of_values_does_not_matter(case, loss, random):
    noisy, weights, marginals = case
    fit = fit_table(noisy, marginals, loss=loss, weights=weights)
    axis = random.randrange(noisy.ndim)
    order = list(range(noisy.shape[axis]))
    random.shuffle(order)
    moved = {
        axes: np.take(values, order, axes.index(axis)) if axis in axes else values for axes, values in marginals.items()
    }
    other = fit_table(np.take(noisy, order, axis), moved, loss=loss, weights=np.take(weights, order, axis))
    close(other.counts, np.take(fit.counts, order, axis), noisy)


@settings(max_examples=30, deadline=None)
@given(tables(), losses)
def test_marginals_that_follow_from_others_change_nothing(case, loss):
    noisy, weights, marginals = case
    fit = fit_table(noisy, marginals, loss=loss, weights=weights)
    more = dict(marginals)
    for axes, values in marginals.items():
        more[axes[1:]] = np.asarray(values).sum(axis=0) if axes else values
    close(fit_table(noisy, more, loss=loss, weights=weights).counts, fit.counts, noisy)


@settings(max_examples=30, deadline=None)
@given(tables(), losses)
def test_a_fit_fits_itself(case, loss):
    noisy, weights, marginals = case
    fit = fit_table(noisy, marginals, loss=loss, weights=weights)
    again = fit_table(fit.counts, marginals, loss=loss, weights=weights)
    close(again.counts, fit.counts, noisy)


@settings(max_examples=30, deadline=None)
@given(tables(), losses)
def test_rounding_keeps_marginals_of_whole_tables(case, loss):
    noisy, weights, marginals = case
    fit = fit_table(noisy, marginals, loss=loss, weights=weights, integers=True)
    np.testing.assert_array_equal(fit.counts, np.round(fit.counts))
    for axes, values in marginals.items():
        np.testing.assert_array_equal(marginal(fit.counts, axes), values)


@settings(max_examples=40, deadline=None)
@given(losses, st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 3.0, 1e9]))
def test_answers_in_other_units_have_the_same_fit_in_those_units(loss, seed, factor):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(12, 6))
    noisy, weights = matrix @ rng.poisson(3, 6) + rng.laplace(0, 2, 12), 10 ** rng.uniform(-1, 1, 12)
    fit = fit_matrix(matrix, noisy, loss=loss, weights=weights)
    other = fit_matrix(matrix, factor * noisy, loss=loss, weights=weights / factor)
    assert other.objective == pytest.approx(fit.objective, rel=1e-7)
    close(other.counts / factor, fit.counts, 100 * noisy)


@settings(max_examples=40, deadline=None)
@given(losses, st.integers(0, 2**32 - 1))
def test_the_order_of_rows_and_columns_does_not_matter(loss, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.choice([-1.0, 0.0, 1.0], (12, 6))
    noisy = matrix @ rng.poisson(3, 6) + rng.laplace(0, 2, 12)
    rows, columns = rng.permutation(12), rng.permutation(6)
    fit = fit_matrix(matrix, noisy, loss=loss)
    other = fit_matrix(matrix[np.ix_(rows, columns)], noisy[rows], loss=loss)
    assert other.objective == pytest.approx(fit.objective, rel=1e-7, abs=1e-9)
