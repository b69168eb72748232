"""Coefficients of tables of flags, marginals from them, and the table that comes nearest to noisy ones."""

import itertools

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

from consilience.errors import DeclarationError
from consilience.estimators.published.fourier import nearest_table, table_of, walsh_coefficients
from consilience.solvers.fit import Infeasible


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
