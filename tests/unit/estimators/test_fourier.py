"""Marginals from measured coefficients: exact without noise, averaged by variance, corrected where asked."""

import itertools

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from consilience.domain import Attribute, Domain, Query
from consilience.domain.factors import Matrix, Prefix, Total
from consilience.domain.public_facts import PublicFacts, PublicMargin
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError, TooLarge
from consilience.estimators.base import FullTableEstimate, SavedModel
from consilience.estimators.published.fourier import (
    Fourier,
    FourierEstimate,
    nearest_table,
    spread_negatives,
    table_of,
    walsh_coefficients,
)
from consilience.kernels.rng import generator
from consilience.measurements import Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.plans.published.marginals import Fourier as FourierPlan
from consilience.solvers.fit import Infeasible

NAMES = "abcd"
FLAGS = Domain.from_sizes(dict.fromkeys(NAMES, 2), name="flags")
TRUTH = np.random.default_rng(0).poisson(20.0, FLAGS.shape).astype(float)
TRUTH[1, 1] = 0.0


def measured(ways: int, scale: float, *, domain: Domain = FLAGS, seed: int = 0) -> MeasurementSet:
    rng = np.random.default_rng(seed)
    found = []
    for query in FourierPlan(ways).queries(FLAGS):
        exact = query.bind(FLAGS).answer_full(TRUTH)
        noisy = exact.ravel() + rng.laplace(0, scale, exact.size)
        found.append(Measurement(query, noisy, noise=Laplace(scale)))
    return as_set(found, domain)


def as_set(found, domain: Domain = FLAGS) -> MeasurementSet:
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


def exact(*names: str) -> np.ndarray:
    return Query.marginal(*names).bind(FLAGS).answer_full(TRUTH)


def test_without_noise_marginals_of_measured_sets_are_exact() -> None:
    fitted = Fourier().fit(measured(2, 1e-9))
    for names in ((), ("a",), ("d", "b"), ("a", "c")):
        assert np.allclose(fitted.marginal(*names), exact(*names), atol=1e-6)
    assert fitted.total == pytest.approx(TRUTH.sum())
    assert not np.allclose(fitted.marginal("a", "b", "c"), exact("a", "b", "c"), atol=1)


def test_marginals_agree_with_each_other_whatever_the_noise() -> None:
    fitted = Fourier().fit(measured(3, 100.0))
    full = fitted.marginal(*NAMES)
    assert full.min() < 0
    for size in range(4):
        for names in itertools.permutations(NAMES, size):
            axes = [NAMES.index(name) for name in names]
            assert np.allclose(fitted.marginal(*names), np.einsum(full, range(4), axes), atol=1e-9)


def test_a_missing_coefficient_counts_as_0() -> None:
    """The three-way interaction of the fitted table, its largest coefficient that was not measured, vanishes."""
    table = Fourier().fit(measured(2, 1e-9)).marginal("a", "b", "c")
    signs = np.einsum("i,j,k->ijk", *[np.array([1, -1])] * 3)
    assert (signs * table).sum() == pytest.approx(0, abs=1e-6)


def test_negative_counts_are_spread_where_asked() -> None:
    plain = Fourier().fit(measured(2, 60.0, seed=1))
    spread = Fourier(nonnegative=True).fit(measured(2, 60.0, seed=1))
    table = plain.marginal("a", "b")
    assert table.min() < 0
    assert np.allclose(spread.marginal("a", "b"), spread_negatives(table))
    assert spread.marginal("a", "b").sum() == pytest.approx(plain.total)


@pytest.mark.parametrize("scale", [1e-6, 30.0])
def test_the_linear_programme_gives_one_table_without_negative_counts(scale: float) -> None:
    fitted = Fourier(linear_programme=True).fit(measured(3, scale))
    assert isinstance(fitted, FullTableEstimate)
    assert fitted.counts.min() >= 0
    assert float(fitted.stats["gap"]) < 1e-6
    plain = Fourier().fit(measured(3, scale))
    worst = max(
        abs(float(query.bind(FLAGS).answer_full(fitted.counts)[(0,) * len(query.factors)]) - float(value))
        for query, value in zip(
            FourierPlan(3).queries(FLAGS), [each.values[0] for each in measured(3, scale)], strict=True
        )
    )
    assert worst == pytest.approx(float(fitted.stats["objective"]) * np.sqrt(2) * scale, rel=1e-4, abs=1e-5)
    if scale < 1:
        for names in (("a", "b", "d"), ("c",)):
            assert np.allclose(fitted.marginal(*names), exact(*names), atol=1e-3)
            assert np.allclose(plain.marginal(*names), exact(*names), atol=1e-3)


def test_marginals_of_flags_tell_the_same_as_their_coefficients() -> None:
    tables = [
        Measurement(Query.marginal(*names), exact(*names).ravel(), noise=Laplace(1e-9)) for names in ("ab", "dcb")
    ]
    fitted = Fourier().fit(as_set(tables))
    for names in (("b",), ("b", "a"), ("c", "d"), ("d", "b", "c")):
        assert np.allclose(fitted.marginal(*names), exact(*names), atol=1e-6)


def test_what_is_measured_twice_is_averaged_by_inverse_variance() -> None:
    """The total: 10 with variance 1, and 16 from a marginal of two cells with variance 1 each, which makes 2."""
    found = as_set(
        [
            Measurement(Query(()), [10.0], noise=Gaussian(1.0)),
            Measurement(Query.marginal("a"), [9.0, 7.0], noise=Gaussian(1.0)),
        ]
    )
    fitted = Fourier().fit(found)
    assert fitted.total == pytest.approx((10 / 1 + 16 / 2) / (1 + 1 / 2))
    assert fitted.marginal("a") == pytest.approx([7.0, 5.0])


def test_scaled_signs_and_sums_are_read_as_they_are() -> None:
    query = Query.of({"a": Matrix.of([[3.0, -3.0]]), "b": Matrix.of([[2.0, 2.0]]), "c": Total()})
    value = float(query.bind(FLAGS).answer_full(TRUTH).ravel()[0])
    found = as_set([Measurement(query, [value], noise=Laplace(1e-9)), *measured(1, 50.0).measurements])
    fitted = Fourier().fit(found)
    table = fitted.marginal("a")
    assert table[0] - table[1] == pytest.approx(exact("a")[0] - exact("a")[1], abs=1e-6)


def test_noise_on_scaled_signs_counts_in_units_of_the_coefficient() -> None:
    """A difference of 2 with variance 1, and three times a difference of 8 with variance 9, which is the same."""
    found = as_set(
        [
            Measurement(Query(()), [20.0], noise=Gaussian(1.0)),
            Measurement(Query.of({"a": Matrix.of([[1.0, -1.0]])}), [2.0], noise=Gaussian(1.0)),
            Measurement(Query.of({"a": Matrix.of([[3.0, -3.0]])}), [24.0], noise=Gaussian(3.0)),
        ]
    )
    assert Fourier().fit(found).marginal("a") == pytest.approx([12.5, 7.5])


def test_public_facts_are_kept() -> None:
    margin = PublicMargin(("b",), tuple(exact("b")))
    domain = Domain("flags", FLAGS.attributes, public=PublicFacts(total=float(TRUTH.sum()), margins=(margin,)))
    for method in (Fourier(), Fourier(linear_programme=True)):
        fitted = method.fit(measured(2, 20.0, domain=domain))
        assert fitted.total == pytest.approx(TRUTH.sum())
        assert fitted.marginal("b") == pytest.approx(exact("b"))


def test_attributes_without_coefficients_are_even() -> None:
    domain = Domain("more", (*FLAGS.attributes, Attribute.categorical("e", ["x", "y", "z"])))
    one = as_set(measured(2, 1e-9).measurements, domain)
    for method in (Fourier(), Fourier(linear_programme=True)):
        found = method.fit(one).marginal("e", "b")
        assert np.allclose(found, np.tile(exact("b") / 3, (3, 1)), atol=1e-4)


def test_a_saved_account_is_restored_and_others_are_refused() -> None:
    for method in (Fourier(nonnegative=True), Fourier(linear_programme=True)):
        fitted = method.fit(measured(2, 5.0))
        saved = SavedModel(fitted.method, fitted.status, fitted.stats, fitted.arrays())
        again = FourierEstimate.restore(saved, fitted.measurements)
        assert np.array_equal(again.marginal("b", "c"), fitted.marginal("b", "c"))
        assert type(again) is type(fitted)
    for broken in ({"counts": np.zeros(3)}, {"scopes": np.array([[9.0]]), "coefficients": np.zeros(1)}, {}):
        with pytest.raises(ConsilienceError):
            FourierEstimate.restore(SavedModel({}, fitted.status, {}, broken), measured(2, 5.0))
    with pytest.raises(FileFormatError):
        FourierEstimate.restore(SavedModel({}, fitted.status, {}, {"scopes": np.zeros((1, 1))}), measured(2, 5.0))


def test_synthetic_rows_follow_single_attributes_and_their_seed() -> None:
    fitted = Fourier().fit(measured(2, 1e-9))
    rows = fitted.sample(1000, generator(3))
    assert np.array_equal(rows, fitted.sample(1000, generator(3)))
    for place, name in enumerate(NAMES):
        shares = fitted.marginal(name) / fitted.total * 1000
        assert np.abs(np.bincount(rows[:, place], minlength=2) - shares).max() < 5


def test_what_tells_no_coefficients_does_not_suit() -> None:
    other = Domain.from_sizes({"a": 3, "b": 2}, name="other")
    table = Measurement(Query.marginal("a"), [1.0, 2.0, 3.0], noise=Laplace(1.0))
    prefix = Measurement(Query.of({"b": Prefix()}), [1.0, 2.0], noise=Laplace(1.0))
    clipped = Measurement(Query.marginal("b"), [0.0, 2.0], noise=Laplace(1.0), clipped=True)
    sign = Measurement(Query.of({"b": Matrix.of([[1.0, -1.0]])}), [1.0], noise=Laplace(1.0))
    for one in (table, prefix, clipped, sign):
        suitable = Fourier().suitability(as_set([one], other))
        assert not suitable.possible
        with pytest.raises(TooLarge, match="cannot fit"):
            Fourier().fit(as_set([one], other))
    many = Domain.from_sizes({f"a{i}": 2 for i in range(13)})
    singles = as_set([Measurement(Query.marginal(name), [1.0, 2.0], noise=Laplace(1.0)) for name in many.names], many)
    assert Fourier().suitability(singles).possible
    assert not Fourier(linear_programme=True).suitability(singles).possible


def test_marginals_that_make_no_sense_are_refused() -> None:
    fitted = Fourier().fit(measured(1, 1.0))
    with pytest.raises(DeclarationError):
        fitted.marginal("a", "a")
    with pytest.raises(DeclarationError):
        fitted.marginal("nobody")


# ----------------------------------------------------------------------------------------------------------------------
# Coefficients of tables of flags, marginals from them, and the table that comes nearest to noisy ones.


def by_definition(table: np.ndarray, members: tuple[int, ...]) -> float:
    """Σ_x (−1)^(ones of x in the set) n(x), cell by cell."""
    return sum((-1) ** sum(cell[flag] for flag in members) * table[cell] for cell in np.ndindex(table.shape))


def sets_up_to(flags: int, ways: int) -> list[tuple[int, ...]]:
    return [members for size in range(ways + 1) for members in itertools.combinations(range(flags), size)]


@pytest.mark.parametrize("flags", [0, 1, 2, 4])
def test_coefficients_are_signed_sums(flags: int) -> None:
    table = np.random.default_rng(flags).normal(size=(2,) * flags)
    found = walsh_coefficients(table)
    for members in sets_up_to(flags, flags):
        index = tuple(int(flag in members) for flag in range(flags))
        assert found[index] == pytest.approx(by_definition(table, members))


@given(st.permutations(range(5)), st.integers(0, 5), st.integers(0, 1000))
def test_marginals_follow_from_the_coefficients_of_their_subsets_in_any_order(order, size, seed) -> None:
    table = np.random.default_rng(seed).normal(size=(2,) * 5)
    scope = tuple(order[:size])
    coefficients = {
        members: by_definition(table, members) for members in sets_up_to(5, 5) if set(members) <= set(scope)
    }
    exact = np.einsum(table, range(5), scope)
    assert np.allclose(table_of(scope, coefficients), exact)


def test_coefficients_that_are_missing_count_as_none() -> None:
    assert np.allclose(table_of((3, 1), {(): 8.0, (3,): 4.0}), [[3, 3], [1, 1]])


def dense_optimum(flags: int, sets, values: np.ndarray, scales: np.ndarray) -> float:
    """The least τ by the programme written out in full."""
    rows = np.array(
        [[(-1) ** sum(cell[f] for f in s) for cell in np.ndindex(*(2,) * flags)] for s in sets], dtype=float
    )
    upper = np.hstack([rows, -scales[:, None]])
    lower = np.hstack([-rows, -scales[:, None]])
    cost = np.zeros(2**flags + 1)
    cost[-1] = 1
    found = scipy.optimize.linprog(cost, np.vstack([upper, lower]), np.concatenate([values, -values]))
    return found.fun


@pytest.mark.parametrize(
    ("flags", "ways", "noise"), [(3, 2, 40.0), (4, 3, 60.0), (6, 3, 300.0), (1, 1, 80.0), (0, 0, 9.0)]
)
def test_the_nearest_table_is_as_near_as_the_written_out_programme_says(flags, ways, noise) -> None:
    rng = np.random.default_rng(flags)
    truth = rng.poisson(3.0, (2,) * flags) * rng.integers(0, 2, (2,) * flags)
    sets = sets_up_to(flags, ways)
    values = np.array([by_definition(truth, each) for each in sets]) + rng.laplace(0, noise, len(sets))
    scales = rng.uniform(0.5, 2.0, len(sets))
    found = nearest_table(flags, sets, values, scales)
    reached = [abs(by_definition(found.table, each) - y) / s for each, y, s in zip(sets, values, scales, strict=True)]
    assert found.table.min() >= 0
    assert max(reached) == pytest.approx(found.largest_error, abs=1e-5 * noise)
    assert found.largest_error == pytest.approx(dense_optimum(flags, sets, values, scales), abs=1e-6 * noise)
    assert 0 <= found.gap <= 1e-6 * noise


def test_exact_coefficients_are_kept_and_true_ones_are_met() -> None:
    truth = np.random.default_rng(0).poisson(5.0, (2,) * 5).astype(float)
    sets = sets_up_to(5, 2)
    values = np.array([by_definition(truth, each) for each in sets])
    scales = np.ones(len(sets))
    assert nearest_table(5, sets, values, scales).largest_error == pytest.approx(0, abs=1e-6)
    noisy = values + np.random.default_rng(1).laplace(0, 50.0, len(sets))
    noisy[0], scales[0] = values[0], 0.0
    found = nearest_table(5, sets, noisy, scales)
    assert found.table.sum() == pytest.approx(truth.sum(), rel=1e-7)


def test_what_no_table_can_be_is_refused() -> None:
    with pytest.raises(Infeasible, match="correct them"):
        nearest_table(1, [(), (0,)], np.array([1.0, 5.0]), np.zeros(2))
    with pytest.raises(DeclarationError):
        walsh_coefficients(np.zeros((2, 3)))


# ----------------------------------------------------------------------------------------------------------------------
# Negative counts are spread over all cells, as passes of clipping and subtracting would in the end.


def by_passes(table: np.ndarray, passes: int = 20_000) -> np.ndarray:
    """The correction as it is told: set negatives to 0, take the difference from all cells alike, again and again."""
    total = table.sum()
    found = np.array(table, dtype=float)
    for _ in range(passes):
        if found.min() >= 0:
            break
        found = np.maximum(found, 0.0)
        found -= (found.sum() - total) / found.size
    return found


@pytest.mark.parametrize("seed", range(5))
def test_it_is_where_the_passes_end(seed: int) -> None:
    table = np.random.default_rng(seed).laplace(5.0, 5.0, (2, 2, 2, 2))
    assert table.min() < 0 < table.sum()
    assert np.allclose(spread_negatives(table), by_passes(table), atol=1e-6)


@given(arrays(float, (3, 4), elements=st.floats(-1e6, 1e6)))
def test_no_count_is_negative_and_the_total_stays(table: np.ndarray) -> None:
    found = spread_negatives(table)
    assert found.shape == table.shape
    assert found.min() >= 0
    assert found.sum() == pytest.approx(max(table.sum(), 0.0), rel=1e-9, abs=1e-6)


def test_a_table_without_negative_counts_is_left_alone() -> None:
    table = np.array([[0.0, 2.0], [3.5, 1.0]])
    found = spread_negatives(table)
    assert np.array_equal(found, table)
    assert found is not table


def test_counts_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ConsilienceError):
        spread_negatives([1.0, -1.0, np.inf])
