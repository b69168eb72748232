"""Least squares scope by scope: dense twins, the best scope for each answer, and no promise of agreement."""

import numpy as np
import pytest

from consilience.domain import Domain, Query, factors
from consilience.errors import FileFormatError, TooLarge
from consilience.estimators.base import SavedModel
from consilience.estimators.published.local_squares import (
    LocalSquares,
    LocalSquaresEstimate,
    ScopeAnswers,
    marginal_variance,
    solve_scope,
)
from consilience.kernels.linear_maps import AllRangesMap, PrefixMap, SumMap
from consilience.kernels.rng import generator
from consilience.measurements import Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement

DOMAIN = Domain.from_sizes({"a": 4, "b": 3, "c": 2, "d": 2}, name="d")
TRUTH = np.random.default_rng(0).poisson(6, DOMAIN.shape).astype(float)


def noisy(query: Query, stddev: float, seed: int = 1) -> Measurement:
    exact = query.bind(DOMAIN).answer_full(TRUTH)
    values = exact.ravel() + np.random.default_rng(seed).normal(0, stddev, exact.size)
    return Measurement(query=query, values=values, noise=Gaussian(stddev))


def as_set(*found: Measurement, domain: Domain = DOMAIN) -> MeasurementSet:
    return MeasurementSet(domain, found, PrivacyStatement(), {}, private=False)


PREFIXES = noisy(Query.of({"b": factors.Identity(), "a": factors.Prefix()}), 2.0)
PAIR = noisy(Query.marginal("b", "c"), 1.0, seed=2)


def dense(maps) -> np.ndarray:
    found = np.ones((1, 1))
    for each in maps:
        found = np.kron(found, each.dense())
    return found


def test_each_scope_is_fitted_by_itself() -> None:
    fitted = LocalSquares().fit(as_set(PREFIXES, PAIR))
    differences = np.diff(PREFIXES.values.reshape(3, 4), axis=1, prepend=0.0)
    assert np.allclose(fitted.marginal("b", "a"), differences)
    assert np.allclose(fitted.marginal("a", "b"), differences.T)
    assert np.allclose(fitted.marginal("c", "b"), PAIR.values.reshape(3, 2).T)
    assert not np.allclose(fitted.marginal("b", "a").sum(axis=1), fitted.marginal("b", "c").sum(axis=1))


def test_answers_come_from_the_scope_that_tells_them_best() -> None:
    """The pair sums two cells of variance 1; a last prefix of variance 4 tells the same count."""
    fitted = LocalSquares().fit(as_set(PREFIXES, PAIR))
    assert np.allclose(fitted.marginal("b"), fitted.marginal("b", "c").sum(axis=1))
    worse = LocalSquares().fit(as_set(PREFIXES, noisy(Query.marginal("b", "c"), 5.0)))
    assert np.allclose(worse.marginal("b"), worse.marginal("b", "a").sum(axis=1))
    assert fitted.total == pytest.approx(fitted.marginal("b", "c").sum())


@pytest.mark.parametrize("kept", [(), (0,), (1,), (0, 1)])
def test_variances_are_those_of_dense_algebra(kept) -> None:
    maps = (PrefixMap(3), AllRangesMap(4))
    found = ScopeAnswers(maps, np.zeros(30), 2.5).cell_variance(kept)
    matrix = dense(maps)
    covariance = (2.5 * np.linalg.inv(matrix.T @ matrix)).reshape(3, 4, 3, 4)
    for axis in {0, 1} - set(kept):
        covariance = covariance.sum(axis=(axis, axis + 2), keepdims=True)
    cells = covariance.shape[0] * covariance.shape[1]
    expected = np.trace(covariance.reshape(cells, cells)) / cells
    assert found == pytest.approx(expected)


def test_what_a_query_does_not_tell_has_no_finite_variance() -> None:
    total = ScopeAnswers((SumMap(3),), np.zeros(1), 1.0)
    assert total.cell_variance([0]) == np.inf
    assert total.cell_variance([]) == pytest.approx(1.0)
    assert marginal_variance([total], [0]) == np.inf


@pytest.mark.parametrize("plain", [True, False])
def test_several_queries_about_one_scope_are_joined_by_weighted_least_squares(plain: bool) -> None:
    first = noisy(Query.marginal("a", "b"), 1.0, seed=3)
    second = noisy(Query.marginal("b", "a"), 3.0, seed=4) if plain else PREFIXES
    fitted = LocalSquares().fit(as_set(first, second))
    rows, values = [], []
    for each in (first, second):
        maps = dict(zip(each.query.attributes, each.query.bind(DOMAIN).maps, strict=True))
        matrix = dense([maps["a"], maps["b"]])
        table = each.values.reshape(each.query.bind(DOMAIN).shape)
        ordered = table if each.query.attributes == ("a", "b") else table.T
        rows.append(matrix / each.noise.variance**0.5)
        values.append(ordered.ravel() / each.noise.variance**0.5)
    expected = np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=None)[0]
    assert np.allclose(fitted.marginal("a", "b").ravel(), expected, atol=1e-6)


def test_the_objective_is_the_squared_distance_in_variances() -> None:
    over = ScopeAnswers((AllRangesMap(2),), np.array([1.0, 5.0, 1.0]), 2.0)
    solved = solve_scope([over])
    missed = AllRangesMap(2).dense() @ solved.table - over.values
    assert solved.objective == pytest.approx((missed**2).sum() / 2.0)
    assert solved.converged


def test_marginals_that_no_scope_holds_add_up_what_is_known() -> None:
    fitted = LocalSquares().fit(as_set(noisy(Query.marginal("a"), 1e-9), noisy(Query.marginal("c"), 1e-9)))
    one, two = TRUTH.sum(axis=(1, 2, 3)), TRUTH.sum(axis=(0, 1, 3))
    expected = one[:, None] / 2 + two[None, :] / 4 - TRUTH.sum() / 8
    assert np.allclose(fitted.marginal("a", "c"), expected)
    assert np.allclose(fitted.marginal("d"), TRUTH.sum() / 2)


def test_records_follow_the_account_and_their_seed() -> None:
    fitted = LocalSquares().fit(as_set(PREFIXES, PAIR))
    rows = fitted.sample(200, generator(1))
    assert rows.shape == (200, 4)
    assert np.array_equal(rows, fitted.sample(200, generator(1)))
    assert rows.min() >= 0
    assert (rows.max(axis=0) < DOMAIN.shape).all()


def test_a_saved_account_is_restored() -> None:
    fitted = LocalSquares().fit(as_set(PREFIXES, PAIR))
    saved = SavedModel(fitted.method, fitted.status, fitted.stats, fitted.arrays())
    again = LocalSquaresEstimate.restore(saved, fitted.measurements)
    assert np.array_equal(again.marginal("b"), fitted.marginal("b"))
    with pytest.raises(FileFormatError):
        LocalSquaresEstimate.restore(SavedModel(fitted.method, fitted.status, {}, {}), fitted.measurements)


def test_it_explains_itself_and_refuses_what_it_cannot_fit() -> None:
    fitted = LocalSquares().fit(as_set(PAIR))
    assert fitted.method["method"] == "local-squares"
    assert fitted.stats["scopes"] == 1
    clipped = Measurement(query=Query.marginal("b"), values=[0.0, 1.0, 2.0], noise=Laplace(1.0), clipped=True)
    with pytest.raises(TooLarge, match="clipped"):
        LocalSquares().fit(as_set(clipped))
    with pytest.raises(TooLarge, match="the limit is 10 bytes"):
        LocalSquares(memory_limit=10).fit(as_set(PAIR))
    wide = Domain.from_sizes({"a": 5000}, name="wide")
    ranges = Measurement(query=Query.of({"a": factors.Prefix()}), values=np.zeros(5000), noise=Laplace(1.0))
    with pytest.raises(TooLarge, match="5,000"):
        LocalSquares().fit(as_set(ranges, domain=wide))


def test_a_public_total_does_not_hinder_it() -> None:
    fitted = LocalSquares().fit(as_set(PAIR).with_public(total=1000))
    assert fitted.total == pytest.approx(PAIR.values.sum())
