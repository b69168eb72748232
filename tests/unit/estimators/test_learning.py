"""Wide marginals by a polynomial from narrow ones: what they are made of, and what is refused."""

import itertools
import math

import numpy as np
import pytest
import scipy.optimize

from consilience.domain import Domain, Query
from consilience.domain.factors import Prefix
from consilience.domain.public_facts import PublicFacts
from consilience.errors import DeclarationError, FileFormatError, TooLarge
from consilience.estimators.base import SavedModel
from consilience.estimators.published.learning import Learning, LearningEstimate, best_polynomial, least_polynomial
from consilience.kernels.rng import generator
from consilience.measurements import Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement

MIXED = Domain.from_sizes({"a": 2, "b": 3, "c": 2, "d": 4}, name="mixed")
TRUTH = np.random.default_rng(0).poisson(6.0, MIXED.shape).astype(float)


def exact(*names: str) -> np.ndarray:
    return Query.marginal(*names).bind(MIXED).answer_full(TRUTH)


def marginals(sizes, *, scale: float = 1e-6, noisy: bool = False, domain: Domain = MIXED) -> MeasurementSet:
    rng = np.random.default_rng(1)
    found = []
    for size in sizes:
        for names in itertools.combinations(MIXED.names, size):
            table = exact(*names).ravel()
            found.append(
                Measurement(
                    Query.marginal(*names),
                    table + (rng.laplace(0, scale, table.size) if noisy else 0.0),
                    noise=Laplace(scale),
                )
            )
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


@pytest.mark.parametrize(("ways", "gamma"), [(2, 1 / 2), (3, 1 / 4), (4, 1 / 4), (4, 1 / 8)])
def test_cells_are_the_polynomial_summed_over_all_records(ways: int, gamma: float) -> None:
    method = Learning(ways, gamma)
    fitted = method.fit(marginals(range(method.polynomial.degree + 1)))
    values = method.polynomial.values
    names = ("d", "a", "c", "b")[:ways]
    found, table = fitted.marginal(*names), exact(*names)
    for cell in np.ndindex(found.shape):
        told = sum(values[np.not_equal(cell, other).sum()] * table[other] for other in np.ndindex(table.shape))
        assert found[cell] == pytest.approx(told, abs=1e-5)
    assert np.abs(found - table).max() <= gamma * TRUTH.sum() + 1e-5
    assert np.abs(found - table).max() > 1


def test_marginals_that_were_measured_are_given_as_measured() -> None:
    fitted = Learning(3, 1 / 4).fit(marginals((0, 1, 2), scale=5.0, noisy=True))
    measured = {each.query.attributes: each.values for each in fitted.measurements}
    assert fitted.marginal("b", "d").ravel() == pytest.approx(measured["b", "d"])
    assert fitted.marginal("d", "b").T.ravel() == pytest.approx(measured["b", "d"])
    assert fitted.total == pytest.approx(measured[()][0])


def test_fewer_attributes_than_ways_have_the_same_polynomial() -> None:
    method = Learning(4, 1 / 4)
    assert method.polynomial.degree == 2
    fitted = method.fit(marginals((0, 1, 2)))
    found, table = fitted.marginal("a", "b", "c"), exact("a", "b", "c")
    values = method.polynomial.values
    for cell in np.ndindex(found.shape):
        told = sum(values[np.not_equal(cell, other).sum()] * table[other] for other in np.ndindex(table.shape))
        assert found[cell] == pytest.approx(told, abs=1e-5)


def test_all_literals_together_give_the_marginals_themselves() -> None:
    method = Learning(2, 1 / 8)
    fitted = method.fit(marginals((2,)))
    for names in (("a", "d"), ("c", "b"), ("b",), ()):
        assert np.allclose(fitted.marginal(*names), exact(*names), atol=1e-4)


def test_literals_missed_give_the_same_answers_without_noise() -> None:
    flags = Domain.from_sizes(dict.fromkeys("abcd", 2), name="flags")
    table = np.random.default_rng(2).poisson(9.0, flags.shape).astype(float)
    found = [
        Measurement(
            Query.marginal(*names), Query.marginal(*names).bind(flags).answer_full(table).ravel(), noise=Laplace(1e-6)
        )
        for size in range(4)
        for names in itertools.combinations("abcd", size)
    ]
    measured = MeasurementSet(flags, tuple(found), PrivacyStatement(), {}, private=False)
    for gamma in (1 / 4, 1 / 8):
        matched, missed = (Learning(4, gamma, literals).fit(measured) for literals in ("matched", "missed"))
        assert np.allclose(matched.marginal("b", "d", "a", "c"), missed.marginal("b", "d", "a", "c"), atol=1e-3)


def test_repeated_marginals_are_averaged_by_inverse_variance_and_facts_are_kept() -> None:
    domain = Domain("one", Domain.from_sizes({"a": 2, "b": 2}).attributes, public=PublicFacts(total=50.0))
    found = (
        Measurement(Query(()), [44.0], noise=Gaussian(1.0)),
        Measurement(Query.marginal("a"), [10.0, 40.0], noise=Gaussian(1.0)),
        Measurement(Query.marginal("a"), [16.0, 34.0], noise=Gaussian(2.0**0.5)),
        Measurement(Query.marginal("b"), [20.0, 30.0], noise=Gaussian(1.0)),
    )
    fitted = Learning(2, 1 / 2).fit(MeasurementSet(domain, found, PrivacyStatement(), {}, private=False))
    assert fitted.marginal("a") == pytest.approx([12.0, 38.0])
    assert fitted.total == 50.0
    assert fitted.marginal("a", "b")[0, 1] == pytest.approx(-50 / 3 + 2 / 3 * (12 + 30))


def test_the_estimate_explains_itself() -> None:
    fitted = Learning(4, 1 / 4).fit(marginals((0, 1, 2)))
    assert fitted.stats["degree"] == 2
    assert fitted.stats["approximation_error"] == pytest.approx(0.2)
    assert fitted.method["method"] == "learning"


def test_a_saved_account_is_restored_and_others_are_refused() -> None:
    fitted = Learning(3, 1 / 4).fit(marginals((0, 1, 2)))
    saved = SavedModel(fitted.method, fitted.status, fitted.stats, fitted.arrays())
    again = LearningEstimate.restore(saved, fitted.measurements)
    assert np.array_equal(again.marginal("b", "c", "a"), fitted.marginal("b", "c", "a"))
    for method, arrays in (
        ({}, fitted.arrays()),
        (fitted.method, {"counts": np.zeros(3)}),
        (fitted.method, {"counts": np.zeros(3), "scopes": np.array([[7.0]])}),
        (fitted.method, {"counts": np.zeros(5), "scopes": np.array([[0.0]])}),
    ):
        with pytest.raises(FileFormatError):
            LearningEstimate.restore(SavedModel(method, fitted.status, {}, arrays), fitted.measurements)


def test_synthetic_rows_follow_single_attributes_and_their_seed() -> None:
    fitted = Learning(3, 1 / 4).fit(marginals((0, 1, 2)))
    rows = fitted.sample(600, generator(3))
    assert np.array_equal(rows, fitted.sample(600, generator(3)))
    shares = fitted.marginal("d") / fitted.total * 600
    assert np.abs(np.bincount(rows[:, 3], minlength=4) - shares).max() < 10


def test_what_cannot_be_answered_is_refused_with_the_next_step() -> None:
    assert not Learning(4, 1 / 4).suitability(marginals((0, 1))).possible
    with pytest.raises(TooLarge, match="0 of the 6 marginals by 2 attributes"):
        Learning(4, 1 / 4).fit(marginals((0, 1)))
    with pytest.raises(TooLarge, match="matched"):
        Learning(2, 1 / 2, "missed").fit(marginals((0, 1)))
    prefix = Measurement(Query.of({"d": Prefix()}), [1.0, 2.0, 3.0, 4.0], noise=Laplace(1.0))
    clipped = Measurement(Query.marginal("a"), [0.0, 4.0], noise=Laplace(1.0), clipped=True)
    for one in (prefix, clipped):
        measured = MeasurementSet(MIXED, (one,), PrivacyStatement(), {}, private=False)
        assert not Learning(2, 1 / 2).suitability(measured).possible
    fitted = Learning(2, 1 / 2).fit(marginals((0, 1)))
    with pytest.raises(DeclarationError, match="more ways"):
        fitted.marginal("a", "b", "c")
    with pytest.raises(DeclarationError):
        fitted.marginal("a", "a")


# ----------------------------------------------------------------------------------------------------------------------
# Polynomials in the number of literals missed: their error is the least there is, and their expansions are exact.


def by_exchange(literals: int, degree: int, *, exact_at_zero: bool) -> float:
    """The least error by brute force over references: of all D + 2 points (or D + 1 besides 0), the worst one's error.

    On a reference of D + 2 points the best error is |Σ w_i f(x_i)| / Σ |w_i|, with w the weights of the divided
    difference, and the best error on all points is the largest over references (de la Vallée Poussin). With g(0) = 1
    the point 0 is always part of the reference and bears no error of its own.
    """
    worst = 0.0
    points = range(1, literals + 1) if exact_at_zero else range(literals + 1)
    for chosen in itertools.combinations(points, degree + (1 if exact_at_zero else 2)):
        reference = (0, *chosen) if exact_at_zero else chosen
        weights = {x: 1 / math.prod(x - other for other in reference if other != x) for x in reference}
        bearing = sum(abs(weight) for x, weight in weights.items() if x or not exact_at_zero)
        worst = max(worst, abs(weights.get(0, 0.0)) / bearing)
    return worst


@pytest.mark.parametrize("exact_at_zero", [True, False])
@pytest.mark.parametrize("literals", [1, 2, 3, 4, 6, 8])
def test_the_error_is_the_least_of_its_degree(literals: int, exact_at_zero: bool) -> None:
    for degree in range(literals):
        found = best_polynomial(literals, degree, exact_at_zero=exact_at_zero)
        assert found.error == pytest.approx(by_exchange(literals, degree, exact_at_zero=exact_at_zero), abs=1e-8)
        fitted = np.polynomial.Polynomial.fit(range(literals + 1), found.values, degree)
        assert np.allclose(fitted(np.arange(literals + 1)), found.values, atol=1e-7)
        assert np.abs(found.values - np.eye(1, literals + 1)[0]).max() == pytest.approx(found.error, abs=1e-9)
        if exact_at_zero:
            assert found.values[0] == pytest.approx(1.0)


def test_no_search_over_coefficients_finds_a_smaller_error() -> None:
    for literals, degree in ((4, 2), (6, 3)):
        z = np.arange(1, literals + 1)
        powers = z[:, None] ** np.arange(1, degree + 1)
        start = np.linalg.lstsq(powers, -np.ones(literals), rcond=None)[0]
        searched = scipy.optimize.minimize(
            lambda a, powers=powers: np.abs(1 + powers @ a).max(),
            start,
            method="Nelder-Mead",
            options={"maxiter": 4000},
        )
        assert searched.fun >= best_polynomial(literals, degree).error - 1e-9


def test_the_least_degree_is_least() -> None:
    for literals in (2, 3, 4, 8):
        for gamma in (1 / 2, 1 / 4, 1 / 8, 0.01):
            found = least_polynomial(literals, gamma)
            assert found.error <= gamma + 1e-9
            assert found.degree == 0 or best_polynomial(literals, found.degree - 1).error > gamma
    assert [least_polynomial(4, gamma).degree for gamma in (1 / 2, 1 / 4, 1 / 8, 0.01)] == [2, 2, 3, 4]
    assert least_polynomial(3, 1 / 2).degree == 1  # its error is 1/2 exactly
    assert least_polynomial(5, 1 / 2, exact_at_zero=False).degree == 0


@pytest.mark.parametrize("literals", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("gamma", [1 / 2, 1 / 8, 1e-6])
def test_both_expansions_are_the_polynomial_on_every_record(literals: int, gamma: float) -> None:
    """Every record over the literals: 1 where it matches one. Sets of literals are gone through one by one."""
    found = least_polynomial(literals, gamma)
    matched, missed = found.matched_weights(), found.missed_weights()
    for record in itertools.product((0, 1), repeat=literals):
        value = found.values[literals - sum(record)]
        by_matched = by_missed = 0.0
        for size in range(found.degree + 1):
            for chosen in itertools.combinations(record, size):
                by_matched += matched[size] * all(chosen)
                by_missed += missed[size] * (not any(chosen))
        assert by_matched == pytest.approx(value, abs=1e-6)
        assert by_missed == pytest.approx(value, abs=1e-6)
        assert value == pytest.approx(float(all(record)), abs=gamma + 1e-6)


def test_fewer_literals_have_the_same_polynomial() -> None:
    found = least_polynomial(6, 1 / 4)
    for literals in range(7):
        weights = found.matched_weights(literals)
        for hit in range(literals + 1):
            total = sum(weight * math.comb(hit, size) for size, weight in enumerate(weights))
            assert total == pytest.approx(found.values[literals - hit], abs=1e-6)


def test_all_literals_together_are_the_cell_itself() -> None:
    exact = best_polynomial(4, 4)
    assert exact.error == 0
    assert exact.matched_weights().tolist() == [0, 0, 0, 0, 1]
    assert exact.missed_weights().tolist() == [1, -1, 1, -1, 1]


def test_what_is_no_polynomial_is_refused() -> None:
    for call in (
        lambda: least_polynomial(3, 0.0),
        lambda: least_polynomial(3, 1.0),
        lambda: least_polynomial(0, 0.5),
        lambda: least_polynomial(40, 0.5),
        lambda: best_polynomial(3, 4),
        lambda: best_polynomial(3, 1).matched_weights(4),
    ):
        with pytest.raises(DeclarationError):
            call()
