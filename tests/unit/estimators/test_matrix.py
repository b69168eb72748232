"""`Matrix`: any linear queries, against dense twins; the reconstructions of published mechanisms; exact facts."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.domains import ImpossibleCells
from consilience.errors import TooLarge
from consilience.estimators.base import SavedModel
from consilience.estimators.choose import estimate, restore
from consilience.estimators.evidence import LAPLACE_ALPHA
from consilience.estimators.matrix import Matrix
from consilience.estimators.tree import Tree
from consilience.measurements import Exact, Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.publication.intervals.refits import estimator_of
from consilience.solvers.fit import Infeasible, Status
from consilience.solvers.matrices import matrix_fit

DOMAIN = Domain.from_sizes({"a": 3, "b": 2, "c": 4}, name="tiny")
HISTOGRAM = Domain("line", (Attribute.numeric("x", list(range(17))),))
SIGNS = factors.Matrix.of(np.random.default_rng(9).choice([-1.0, 1.0], (6, 4)))
LEAST_SQUARES = Matrix(loss="l2", nonnegative=False)

CASES = {
    "crossing margins": [({"a": factors.Identity(), "b": factors.Identity()}, 2.0), ({"c": factors.Identity()}, 1.0)],
    "one query, other order": [({"c": factors.Prefix(), "a": factors.Identity()}, 2.0)],
    "one query, a total in it": [({"c": factors.Haar(), "b": factors.Total(), "a": factors.Identity()}, 2.0)],
    "signs": [({"c": SIGNS, "a": factors.Identity()}, 2.0), ({"b": factors.Identity()}, 3.0)],
    "ranges and wavelets": [({"c": factors.AllRanges()}, 2.0), ({"c": factors.Haar(), "b": factors.Identity()}, 1.0)],
}


def measured(name: str, *, seed: int = 0, factor: float = 1.0, domain: Domain = DOMAIN) -> MeasurementSet:
    rng = np.random.default_rng(seed)
    truth = rng.poisson(3, domain.shape).astype(float)
    found = []
    for given_factors, scale in CASES[name]:
        query = Query.of(given_factors)
        exact = query.bind(domain).answer_full(truth).ravel()
        found.append(Measurement(query, factor * (exact + rng.laplace(0, scale, exact.size)), Laplace(factor * scale)))
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


def dense(measured: MeasurementSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All queries as one matrix over the full table, the noisy answers, and 1/b."""
    units = np.eye(measured.domain.cells).reshape(-1, *measured.domain.shape)
    bounds = [each.query.bind(measured.domain) for each in measured]
    matrix = np.concatenate([np.stack([bound.answer_full(unit).ravel() for unit in units], axis=1) for bound in bounds])
    weights = [np.full(each.values.size, 1 / each.noise.scale_parameter) for each in measured]
    return matrix, np.concatenate([each.values for each in measured]), np.concatenate(weights)


def least_l1(matrix, noisy, weights, equations=None) -> float:
    rows, columns = matrix.shape
    price = np.concatenate([np.zeros(columns), weights, weights])
    system, right = np.hstack([matrix, -np.eye(rows), np.eye(rows)]), noisy
    if equations is not None:
        system = np.vstack([system, np.hstack([equations[0], np.zeros((len(equations[0]), 2 * rows))])])
        right = np.concatenate([noisy, equations[1]])
    return scipy.optimize.linprog(price, A_eq=system, b_eq=right).fun


@pytest.mark.parametrize("name", CASES)
def test_l1_equals_a_linear_programme_and_l2_an_active_set(name):
    one = measured(name)
    matrix, noisy, weights = dense(one)
    for loss in ("l1", "l2"):
        fitted = Matrix(loss=loss).fit(one)
        residual = weights * (matrix @ fitted.counts.ravel() - noisy)
        assert fitted.status is Status.CONVERGED
        assert fitted.counts.min() >= 0
        if loss == "l1":
            assert np.abs(residual).sum() == pytest.approx(least_l1(matrix, noisy, weights), rel=1e-7, abs=1e-8)
        else:
            best = scipy.optimize.nnls(weights[:, None] * matrix, weights * noisy)[1] ** 2
            assert np.sum(residual**2) == pytest.approx(best, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_least_squares_are_those_of_the_pseudo_inverse(name):
    one = measured(name)
    matrix, noisy, weights = dense(one)
    expected = np.linalg.pinv(weights[:, None] * matrix) @ (weights * noisy)
    np.testing.assert_allclose(LEAST_SQUARES.fit(one).counts.ravel(), expected, atol=1e-7)


@pytest.mark.parametrize("loss", ["by-noise", "l1", "l2", "elastic"])
@pytest.mark.parametrize("name", CASES)
def test_answers_scale_with_the_data_and_the_noise(name, loss):
    one, other = Matrix(loss=loss).fit(measured(name)), Matrix(loss=loss).fit(measured(name, factor=1000.0))
    assert other.stats["objective"] == pytest.approx(one.stats["objective"], rel=1e-6)
    if loss != "l1":
        for each in one.measurements:
            np.testing.assert_allclose(other.answer(each.query), 1000 * one.answer(each.query), rtol=1e-3, atol=20)


@pytest.mark.parametrize("name", CASES)
def test_attributes_may_be_permuted_and_the_estimate_saved(name):
    one = measured(name)
    fitted = LEAST_SQUARES.fit(one)
    saved = SavedModel(fitted.method, fitted.status, fitted.stats, fitted.arrays())
    assert np.array_equal(restore(saved, one).marginal("a", "c"), fitted.marginal("a", "c"))
    permuted = MeasurementSet(Domain("tiny", DOMAIN.attributes[::-1]), one.measurements, one.privacy)
    np.testing.assert_allclose(LEAST_SQUARES.fit(permuted).counts.T, fitted.counts, atol=1e-8)


def histogram(factor: factors.Factor) -> tuple[MeasurementSet, np.ndarray, np.ndarray]:
    """A measured histogram, the matrix of its query, and the noisy answers."""
    rng = np.random.default_rng(3)
    query = Query.of({"x": factor})
    bound = query.bind(HISTOGRAM)
    values = bound.answer(rng.poisson(4, 16).astype(float)) + rng.laplace(0, 1, bound.size)
    return MeasurementSet(HISTOGRAM, (Measurement(query, values, Gaussian(1.0)),)), bound.maps[0].dense(), values


def test_a_wavelet_is_inverted():
    one, matrix, values = histogram(factors.Haar())
    np.testing.assert_allclose(LEAST_SQUARES.fit(one).counts, np.linalg.solve(matrix, values), atol=1e-9)


def test_buckets_share_evenly():
    labels = HISTOGRAM["x"].labels
    one, _, values = histogram(factors.Buckets.of({"one": labels[:3], "two": labels[3:4], "rest": labels[4:]}))
    expected = np.repeat(values / [3, 1, 12], [3, 1, 12])
    np.testing.assert_allclose(LEAST_SQUARES.fit(one).counts, expected, atol=1e-9)


def test_a_strategy_of_the_matrix_mechanism_is_inverted():
    strategy = np.random.default_rng(4).normal(size=(20, 16))
    one, matrix, values = histogram(factors.Matrix.of(strategy))
    np.testing.assert_allclose(LEAST_SQUARES.fit(one).counts, np.linalg.pinv(matrix) @ values, atol=1e-9)
    low_rank = np.random.default_rng(5).normal(size=(4, 16))
    one, matrix, values = histogram(factors.Matrix.of(low_rank))
    np.testing.assert_allclose(LEAST_SQUARES.fit(one).counts, np.linalg.pinv(matrix) @ values, atol=1e-9)


def test_a_tree_is_fitted_like_the_tree():
    one, *_ = histogram(factors.Tree(2))
    for loss in ("l2", "elastic"):
        np.testing.assert_allclose(Matrix(loss=loss).fit(one).counts, Tree(loss=loss).fit(one).counts, atol=1e-6)


def long_wavelet(size: int) -> MeasurementSet:
    domain = Domain("long", (Attribute.numeric("x", list(range(size + 1))),))
    query = Query.of({"x": factors.Haar()})
    rng = np.random.default_rng(6)
    values = query.bind(domain).answer(rng.poisson(3, size).astype(float)) + rng.laplace(0, 1, size)
    return MeasurementSet(domain, (Measurement(query, values, Laplace(1.0)),))


def test_a_long_wavelet_is_inverted_without_a_matrix():
    one = long_wavelet(1 << 14)
    fitted = LEAST_SQUARES.fit(one)
    assert fitted.status is Status.CONVERGED
    assert "Kronecker" in str(fitted.stats["solver"])
    np.testing.assert_allclose(fitted.answer(one.measurements[0].query), one.measurements[0].values, atol=1e-6)


def test_one_large_sparse_factor_is_fitted_as_a_sparse_matrix():
    fitted = Matrix().fit(long_wavelet(1 << 11))
    assert fitted.status is Status.CONVERGED
    assert fitted.stats["solver"] == "interior point, sparse"


@pytest.mark.parametrize("loss", ["l1", "l2", "elastic"])
@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_exact_facts_are_kept(name, nonnegative, loss):
    one = measured(name)
    truth = np.random.default_rng(0).poisson(3, DOMAIN.shape).astype(float)
    public = one.with_public(total=truth.sum(), margins={"a": truth.sum((1, 2)), ("b", "a"): truth.sum(2).T})
    fitted = Matrix(loss=loss, nonnegative=nonnegative).fit(public)
    assert fitted.status is Status.CONVERGED
    assert fitted.marginal("a", "b") == pytest.approx(truth.sum(2), rel=1e-9, abs=1e-9)
    assert fitted.counts.min() >= 0 or not nonnegative
    if loss == "l1" and nonnegative:
        matrix, noisy, weights = dense(one)
        units = np.eye(DOMAIN.cells).reshape(-1, *DOMAIN.shape)
        equations = np.stack([unit.sum(2).ravel() for unit in units], axis=1), truth.sum(2).ravel()
        best = least_l1(matrix, noisy, weights, equations)
        assert np.abs(weights * (matrix @ fitted.counts.ravel() - noisy)).sum() == pytest.approx(best, rel=1e-6)


def test_a_public_total_is_kept_where_the_search_begins_far_from_it():
    domain = Domain.from_sizes({"a": 4, "b": 5, "c": 6})
    truth = np.zeros(domain.shape)
    truth[0, 0, :2] = 30.0
    rng = np.random.default_rng(0)
    sums = {("a", "b"): truth.sum(2), ("a", "c"): truth.sum(1), ("b", "c"): truth.sum(0)}
    noisy = {names: exact + rng.laplace(0, 2, exact.shape) for names, exact in sums.items()}
    fitted = Matrix().fit(MeasurementSet.from_marginals(domain, noisy, noise=Laplace(2.0)).with_public(total=60))
    assert fitted.status is Status.CONVERGED
    assert fitted.total == pytest.approx(60, rel=1e-9)


def test_facts_that_contradict_each_other_are_named():
    margins = {("a", "b"): np.full((3, 2), 1.0), ("b", "c"): np.array([[0.0, 0.0, 0.0, 6.0], [0.0, 0.0, 0.0, 0.0]])}
    facts = [Measurement(Query.marginal(*names), counts, Exact()) for names, counts in margins.items()]
    with pytest.raises(Infeasible, match=r"a=0, b=1 is 1") as caught:
        Matrix().fit(MeasurementSet(DOMAIN, (*measured("signs"), *facts)))
    assert "b=0, c=3" in caught.value.constraints
    assert caught.value.violation > 0.1


def test_impossible_cells_stay_empty():
    rules = (ImpossibleCells((("a", (0,)), ("c", (1, 2)))), ImpossibleCells((("b", (1,)), ("c", (3,)))))
    fitted = Matrix().fit(measured("signs", domain=replace(DOMAIN, impossible=rules)))
    assert fitted.status is Status.CONVERGED
    assert not fitted.counts[0, :, 1:3].any()
    assert not fitted.counts[:, 1, 3].any()
    assert fitted.counts.sum() > 1


def test_clipped_answers_are_bounds_and_censored_ones_left_out():
    one = measured("signs")
    clipped = tuple(replace(each, values=np.maximum(each.values, 0.0), clipped=True) for each in one)
    as_zeros = tuple(replace(each, clipped=False) for each in clipped)
    fits = [Matrix(loss="l2").fit(MeasurementSet(DOMAIN, each)) for each in (clipped, as_zeros)]
    assert fits[0].stats["objective"] < fits[1].stats["objective"]
    first, second = one.measurements
    hidden = first.values < 0
    censored = replace(first, values=np.where(hidden, np.nan, first.values), censored=hidden, threshold=0.0)
    fitted = Matrix().fit(MeasurementSet(DOMAIN, (censored, second)))
    assert fitted.stats["measured_answers"] == int((~hidden).sum()) + 2


def test_what_would_not_fit_in_memory_is_refused_before_it_is_allocated():
    domain = Domain.from_sizes({f"x{i}": 10 for i in range(7)})
    pairs = {(f"x{i}", f"x{j}"): np.zeros((10, 10)) for i in range(7) for j in range(i)}
    one = MeasurementSet.from_marginals(domain, pairs, noise=Laplace(1.0))
    suitable = Matrix().suitability(one)
    assert not suitable.possible
    assert "GB" in suitable.reason
    with pytest.raises(TooLarge, match="Matrix cannot fit"):
        Matrix().fit(one)
    huge = MeasurementSet.from_marginals(
        Domain.from_sizes({f"x{i}": 10 for i in range(300)}), {"x0": np.zeros(10)}, noise=Laplace(1.0)
    )
    assert not Matrix().suitability(huge).possible
    wide = Domain.from_sizes({"a": 60, "b": 50})
    facts = MeasurementSet.from_marginals(wide, {"a": np.zeros(60)}, noise=Laplace(1.0))
    facts = facts.with_public(margins={("a", "b"): np.zeros((60, 50))})
    assert "exact counts" in Matrix().suitability(facts).reason


def test_it_can_be_asked_for_by_name():
    fitted = estimate(measured("signs"), method="matrix")
    assert fitted.method["method"] == "matrix"
    assert fitted.stats["solver"]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(CASES)), st.integers(0, 2**32), st.sampled_from(["l1", "l2", "elastic"]), st.booleans())
def test_the_objective_is_that_of_the_account_and_the_gap_is_small(name, seed, loss, nonnegative):
    one = measured(name, seed=seed)
    fitted = Matrix(loss=loss, nonnegative=nonnegative).fit(one)
    matrix, noisy, weights = dense(one)
    residual = np.abs(weights * (matrix @ fitted.counts.ravel() - noisy))
    value = {"l1": residual, "l2": residual**2, "elastic": 0.9 * residual + 0.1 * residual**2}[loss].sum()
    assert fitted.stats["objective"] == pytest.approx(value, rel=1e-6, abs=1e-9)
    assert 0 <= fitted.stats["gap"] <= 1e-6 * value + 1e-9
    assert fitted.counts.min() >= 0 or not nonnegative


def sparse_table(shape: tuple[int, ...], seed: int, asks: str = "cells") -> MeasurementSet:
    """A table of two full cells and otherwise empty ones, by its cells, its pairs of attributes or as wavelets."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_sizes({f"x{place}": size for place, size in enumerate(shape)})
    truth = np.zeros(shape)
    truth.flat[:2] = 30.0
    queries = [
        Query.marginal(*names) for names in itertools.combinations(domain.names, 2 if asks == "pairs" else len(shape))
    ]
    if asks == "wavelets":
        queries = [Query.of({name: factors.Haar() for name in domain.names})]
    found = []
    for query in queries:
        exact = query.bind(domain).answer_full(truth).ravel()
        found.append(Measurement(query, exact + rng.laplace(0, 2, exact.size), Laplace(2.0)))
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


@pytest.mark.parametrize(
    ("shape", "asks", "draws"),
    [
        ((8, 8), "cells", 60),
        pytest.param((4, 5, 6), "pairs", 25, marks=pytest.mark.slow),
        ((70, 70), "cells", 12),
        pytest.param((64, 128), "wavelets", 6, marks=pytest.mark.slow),
    ],
)
def test_totals_of_sparse_tables_have_no_bias(shape, asks, draws):
    errors, free = [], []
    for seed in range(draws):
        one = sparse_table(shape, seed, asks)
        errors.append(Matrix().fit(one).total - 60.0)
        free.append(Matrix(hold_total=False).fit(one).total - 60.0)
    standard_error = np.std(errors, ddof=1) / np.sqrt(draws)
    assert abs(np.mean(errors)) < 3.5 * standard_error
    assert np.mean(free) > 3.5 * standard_error


@pytest.mark.parametrize("asks", ["cells", "pairs"])
def test_the_total_that_all_queries_tell_is_held_by_the_optimum(asks):
    one = sparse_table((3, 4, 3), 1, asks)
    best = Matrix().fit(one)
    sums = [(each.values.sum(), each.values.size) for each in one]
    told = sum(total / cells for total, cells in sums) / sum(1 / cells for _, cells in sums)
    assert best.total == pytest.approx(told, rel=1e-9)
    assert best.status is Status.CONVERGED
    public = Matrix(loss="elastic", alpha=LAPLACE_ALPHA).fit(one.with_public(total=best.total))
    assert best.stats["objective"] == pytest.approx(public.stats["objective"], rel=1e-6)


def test_the_gap_of_a_large_product_holds_what_its_total_cost(monkeypatch):
    one = sparse_table((4, 8), 1, "wavelets")
    best = Matrix(tolerance=1e-9).fit(one)
    monkeypatch.setattr(matrix_fit, "SETTINGS", replace(matrix_fit.SETTINGS, written_out=10))
    moved = Matrix().fit(one)
    assert moved.stats["solver"] == "interior point, Kronecker"
    assert moved.total == pytest.approx(best.total, rel=1e-9)
    assert moved.counts.min() >= 0
    matrix, noisy, weights = dense(one)
    residual = np.abs(weights * (matrix @ moved.counts.ravel() - noisy))
    value = (LAPLACE_ALPHA * residual + (1 - LAPLACE_ALPHA) * residual**2).sum()
    assert moved.stats["objective"] == pytest.approx(value, rel=1e-9)
    assert moved.stats["objective"] - moved.stats["gap"] <= best.stats["objective"] + 1e-6 <= value + 2e-6
    assert moved.status is Status.STALLED


def test_totals_are_left_to_the_fit_beside_facts_clipped_answers_and_losses_by_name():
    one = sparse_table((4, 5), 2)
    told = one.measurements[0].values.sum()
    assert Matrix().fit(one).total == pytest.approx(told)
    assert Matrix(loss="elastic", hold_total=True).fit(one).total == pytest.approx(told)
    clipped = replace(one.measurements[0], values=np.maximum(one.measurements[0].values, 0.0), clipped=True)
    for free in (Matrix(loss="elastic").fit(one), Matrix().fit(MeasurementSet(one.domain, (clipped,)))):
        assert free.total > told + 1
    assert Matrix().fit(one.with_public(total=50)).total == pytest.approx(50)
    assert estimator_of(Matrix().fit(one)).hold_total is True
