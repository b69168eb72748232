"""Noise for residuals: the published errors, dense algebra, and whole-number queries that say the same."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from benchmarks.reproduce.qardaji2014.expected_errors import marginal_workload_gram
from consilience.errors import DeclarationError
from consilience.strategies.attribute_strategies import semidefinite_strategy
from consilience.strategies.residual_noise import difference_matrix, laplace_shares, residual_noise, residual_queries

SIZES = {
    "CPS": [50, 100, 7, 4, 2],
    "Adult": [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2],
    "Loans": [101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15],
}
# Xiao et al. 2023, for all 1-way, 2-way, 3-way marginals and all of up to 3 attributes: the root mean squared error of
# a cell where the sum is least, and the variance where the largest is least, both at ρ = ½.
PUBLISHED = {
    "CPS": ([1.744, 2.035, 2.048, 2.276], [4.346, 7.897, 7.706, 13.216]),
    "Adult": ([3.047, 6.359, 10.515, 10.665], [12.047, 67.802, 236.843, 253.605]),
    "Loans": ([2.875, 5.634, 8.702, 8.876], [10.640, 52.217, 156.638, 180.817]),
}
WAYS = ([1], [2], [3], [0, 1, 2, 3])


def marginals(sizes, ways) -> dict[tuple[int, ...], float]:
    return {scope: 1.0 for k in ways for scope in itertools.combinations(range(len(sizes)), k)}


def product(sizes, chosen, given_matrix) -> np.ndarray:
    """⊗ of the given matrix for chosen attributes and of a row of ones for the others."""
    found = np.ones((1, 1))
    for place, size in enumerate(sizes):
        found = np.kron(found, given_matrix(place, size) if place in chosen else np.ones((1, size)))
    return found


def information(sizes, precisions) -> np.ndarray:
    """Σ_τ q_τ R_τᵀ R_τ: what the residual mechanism tells of the cells."""
    cells = math.prod(sizes)
    found = np.zeros((cells, cells))
    for part, precision in precisions.items():
        rows = product(sizes, part, lambda _, size: np.eye(size) - 1.0 / size)
        found += precision * rows.T @ rows
    return found


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("case", range(4))
def test_errors_are_those_of_the_papers_tables(name: str, case: int) -> None:
    sizes, weights = SIZES[name], marginals(SIZES[name], WAYS[case])
    cells = sum(math.prod(sizes[place] for place in scope) for scope in weights)
    assert math.sqrt(residual_noise(sizes, weights).objective / cells) == pytest.approx(
        PUBLISHED[name][0][case], abs=5.1e-4
    )
    largest = residual_noise(sizes, weights, objective="max")
    assert largest.objective == pytest.approx(PUBLISHED[name][1][case], abs=1.1e-3)
    assert largest.lower_bound <= largest.objective <= largest.lower_bound * (1 + 1e-5)


@pytest.mark.parametrize(("sizes", "ways"), [((2, 2, 2), 2), ((2, 3, 4), 2), ((3, 2, 2), 1), ((4, 3), 1)])
def test_no_strategy_has_less_error_in_sum(sizes, ways) -> None:
    """The semidefinite programme over all strategies proves the bound."""
    found = residual_noise(sizes, marginals(sizes, [ways]))
    best = semidefinite_strategy(marginal_workload_gram(sizes, ways), tolerance=1e-7)
    assert best.lower_bound * (1 - 1e-6) <= found.objective <= best.objective * (1 + 1e-6)


def test_the_largest_variance_is_that_of_a_general_solver() -> None:
    sizes, weights = (2, 3, 4), {(0, 1): 1.0, (1, 2): 0.3, (0,): 2.0, (2,): 1.0}
    found = residual_noise(sizes, weights, objective="max")
    parts = list(found.precisions)
    costs = np.array([math.prod(1 - 1 / sizes[place] for place in part) for part in parts])
    shares = np.zeros((len(weights), len(parts)))
    for row, scope in enumerate(weights):
        for column, part in enumerate(parts):
            if set(part) <= set(scope):
                away = math.prod(sizes[place] ** 2 for place in scope if place not in part)
                shares[row, column] = costs[column] / away * weights[scope]
    # Over log σ² and a bound t on all variances: minimise t at cost 1.
    start = np.concatenate([np.log(np.full(len(parts), costs.sum())), [50.0]])
    solved = minimize(
        lambda x: x[-1],
        start,
        method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": lambda x: x[-1] - shares @ np.exp(x[:-1])},
            {"type": "ineq", "fun": lambda x: 1 - (costs * np.exp(-x[:-1])).sum()},
        ],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert found.objective == pytest.approx(solved.fun, rel=1e-4)


@pytest.mark.parametrize("objective", ["sum", "max"])
def test_variances_and_costs_are_those_of_dense_algebra(objective) -> None:
    sizes, weights = (2, 3, 4), {(0, 1): 1.0, (1, 2): 0.5, (2,): 3.0}
    found = residual_noise(sizes, weights, objective=objective)
    told = information(sizes, found.precisions)
    assert np.allclose(np.diag(told), 1.0)  # every record costs 1
    covariance = np.linalg.pinv(told, rcond=1e-10)
    for scope in [*weights, (0,), (1,), ()]:
        rows = product(sizes, scope, lambda _, size: np.eye(size))
        variances = np.diag(rows @ covariance @ rows.T)
        assert np.allclose(variances, found.variance(scope))
    assert found.variance((0, 2)) == math.inf
    in_sum = sum(
        weight * math.prod(sizes[i] for i in scope) * found.variance(scope) for scope, weight in weights.items()
    )
    largest = max(weight * found.variance(scope) for scope, weight in weights.items())
    assert found.objective == pytest.approx(in_sum if objective == "sum" else largest)


sizes_of = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(sizes_of, st.data(), st.sampled_from(["sum", "max"]))
def test_whole_number_queries_tell_the_same_at_the_same_cost(sizes, data, objective) -> None:
    scopes = [scope for k in range(len(sizes) + 1) for scope in itertools.combinations(range(len(sizes)), k)]
    chosen = data.draw(st.lists(st.sampled_from(scopes), min_size=1, max_size=4, unique=True))
    weights = {scope: data.draw(st.sampled_from([0.1, 1.0, 7.0])) for scope in chosen}
    precisions = residual_noise(sizes, weights, objective=objective).precisions
    found = residual_queries(sizes, precisions)
    cells = math.prod(sizes)
    told = np.zeros((cells, cells))
    for scope, variance in found.variances.items():
        rows = product(sizes, scope, found.matrix)
        assert np.array_equal(rows, np.round(rows))
        told += rows.T @ rows / variance
    assert np.allclose(told, information(sizes, precisions), atol=1e-7)
    assert np.allclose(np.diag(told), 1.0, atol=1e-7)


@pytest.mark.parametrize("level", [0, 1, 3])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_matrix_of_differences_has_the_gram_matrix_it_claims(size: int, level: int) -> None:
    matrix = difference_matrix(size, level)
    even = np.full((size, size), 1 / size)
    assert np.allclose(matrix.T @ matrix, (level * size + 1) ** 2 * (np.eye(size) - even) + even)


def test_plain_marginals_are_measured_where_they_serve() -> None:
    one = residual_queries((4, 5), residual_noise((4, 5), {(0, 1): 1.0}).precisions)
    assert one.levels == (0, 0)
    assert list(one.variances) == [(0, 1)]
    assert one.variances[(0, 1)] == pytest.approx(1.0)


def test_large_attributes_stay_plain_and_many_flags_are_possible() -> None:
    sizes = [100] + [2] * 30
    found = residual_queries(sizes, residual_noise(sizes, marginals(sizes, [2])).precisions)
    assert found.levels[0] == 0
    assert sum(level >= 1 for level in found.levels[1:]) > 20


def test_what_is_no_problem_is_refused() -> None:
    with pytest.raises(DeclarationError):
        residual_noise((2, 2), {})
    with pytest.raises(DeclarationError):
        residual_noise((2, 2), {(0,): 1.0}, objective="least")  # type: ignore[arg-type]


def laplace_objective(sizes, weights, shares, *, differences: bool) -> float:
    """By dense algebra: the sum of the variances of least squares, when tables have these shares of ε = 1."""
    factor = lambda _, size: np.array([[1.0, -1.0]]) if differences and size == 2 else np.eye(size)  # noqa: E731
    told = np.zeros((math.prod(sizes),) * 2)
    for scope, share in shares.items():
        rows = product(sizes, scope, factor)
        told += share**2 / 2.0 * rows.T @ rows
    covariance = np.linalg.pinv(told, rcond=1e-10)
    found = 0.0
    for scope, weight in weights.items():
        rows = product(sizes, scope, lambda _, size: np.eye(size))
        found += weight * float(np.trace(rows @ covariance @ rows.T))
    return found


@pytest.mark.parametrize(
    ("sizes", "ways"),
    [
        ((5, 2, 3), [1]),
        ((4, 3), [2]),
        pytest.param((2, 2, 2, 2), [1], marks=pytest.mark.slow),
        pytest.param((2, 3, 4), [2], marks=pytest.mark.slow),
        pytest.param((2, 2, 9), [1, 2], marks=pytest.mark.slow),
    ],
)
def test_shares_of_epsilon_are_as_good_as_those_of_a_general_solver(sizes, ways) -> None:
    weights = marginals(sizes, ways)
    found = laplace_shares(sizes, weights)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    told = laplace_objective(sizes, weights, found.shares, differences=found.differences)
    assert found.noise.objective == pytest.approx(told, rel=1e-6)
    even = laplace_objective(sizes, weights, {scope: 1 / len(weights) for scope in weights}, differences=False)
    assert told <= even * (1 + 1e-9)
    parts = list(found.noise.precisions)

    def objective(logarithms: np.ndarray, differences: bool) -> float:
        shares = np.exp(np.maximum(logarithms - logarithms.max(), -7.0))  # above what pinv takes for 0
        return laplace_objective(
            sizes, weights, dict(zip(parts, shares / shares.sum(), strict=True)), differences=differences
        )

    rng = np.random.default_rng(0)
    for differences in (False, True):
        for _ in range(3):
            solved = minimize(objective, rng.normal(0, 1, len(parts)), args=(differences,), options={"maxiter": 60})
            assert told <= solved.fun * 1.03
