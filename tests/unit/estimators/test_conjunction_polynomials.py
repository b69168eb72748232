"""Polynomials in the number of literals missed: their error is the least there is, and their expansions are exact."""

import itertools
import math

import numpy as np
import pytest
import scipy.optimize

from consilience.errors import DeclarationError
from consilience.estimators.published.learning import best_polynomial, least_polynomial


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
