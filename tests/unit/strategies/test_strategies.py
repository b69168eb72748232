"""Strategies against closed forms, slow twins, lower bounds and simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.strategy_errors import strategy_error
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, PrefixMap, SparseMap, SumMap
from consilience.strategies.attribute_strategies import (
    column_norm,
    eigen_design,
    gram_matrix,
    gram_root,
    objective_and_gradient,
    p_identity,
    semidefinite_strategy,
)


def tree(size: int, branching: int) -> np.ndarray:
    """Every node of a complete tree over the cells: what Hay et al. measure."""
    rows, width = [np.ones((1, size))], 1
    while width < size:
        rows.append(np.kron(np.eye(size // width), np.ones(width)))
        width *= branching
    return np.concatenate(rows)


def random_gram(seed: int, queries: int, cells: int) -> np.ndarray:
    workload = np.random.default_rng(seed).integers(-1, 2, (queries, cells)).astype(float)
    workload[0] += 1 - workload[0] % 2
    return workload.T @ workload


@pytest.mark.parametrize("size", [1, 2, 7])
def test_closed_form_grams_are_those_of_the_built_matrices(size: int) -> None:
    import scipy.sparse as sp

    explicit = SparseMap(sp.csr_array(np.random.default_rng(0).normal(size=(3, size))))
    for workload in (IdentityMap(size), SumMap(size), PrefixMap(size), AllRangesMap(size), explicit):
        dense = workload.dense()
        assert np.allclose(gram_matrix(workload), dense.T @ dense)


def test_a_root_has_the_gram_matrix_and_full_rank() -> None:
    gram = random_gram(1, 3, 8)
    root = gram_root(gram)
    assert root.shape == (np.linalg.matrix_rank(gram), 8)
    assert np.allclose(root.T @ root, gram, atol=1e-9)


def test_errors_of_textbook_strategies() -> None:
    size = 8
    prefixes, ranges = gram_matrix(PrefixMap(size)), gram_matrix(AllRangesMap(size))
    # Through the cells, a query of k cells has k times a cell's variance: prefixes have n(n+1)/2 cells in all.
    assert strategy_error(prefixes, np.eye(size), norm=1) == pytest.approx(2 * size * (size + 1) / 2)
    assert strategy_error(ranges, np.eye(size), norm=1) == pytest.approx(2 * size * (size + 1) * (size + 2) / 6)
    # Measured themselves, n prefixes have sensitivity n (L1) and √n (L2).
    own = np.tril(np.ones((size, size)))
    assert strategy_error(prefixes, own, norm=1) == pytest.approx(2 * size**2 * size)
    assert strategy_error(prefixes, own, norm=2) == pytest.approx(size * size)


def test_a_strategy_that_cannot_answer_has_infinite_error() -> None:
    assert strategy_error(np.eye(3), np.ones((1, 3)), norm=1) == math.inf
    assert strategy_error(np.ones((3, 3)), np.ones((1, 3)), norm=1) == pytest.approx(2.0)


@pytest.mark.parametrize(("norm", "scale"), [(1, 1.0), (2, 1.0), (1, 1.2), (2, 1.2)])
def test_the_expected_error_is_what_simulation_finds_and_no_other(norm: int, scale: float) -> None:
    rng = np.random.default_rng(3)
    workload = np.tril(np.ones((6, 6)))
    strategy = tree(8, 2)[:, :6]
    sensitivity = column_norm(strategy, norm=norm)  # type: ignore[arg-type]
    shape = (20_000, len(strategy))
    noise = rng.laplace(0, scale * sensitivity, shape) if norm == 1 else rng.normal(0, scale * sensitivity, shape)
    found = float(((noise @ np.linalg.pinv(strategy).T @ workload.T) ** 2).sum(axis=1).mean())
    expected = strategy_error(workload.T @ workload, strategy, norm=norm)  # type: ignore[arg-type]
    assert (abs(found / expected - 1) < 0.05) is (scale == 1.0)


def descend_smoothed(gram: np.ndarray, steps: int = 4000) -> float:
    """The slow twin: gradient steps on a factor X of M = XᵀX with the largest diagonal smoothed, as the authors do."""
    factor = np.eye(len(gram))
    best = math.inf
    for step in range(steps):
        matrix = factor.T @ factor
        inverse = np.linalg.inv(matrix)
        diagonal = np.diag(matrix)
        sharpness = 20.0 * (1 + step / 100)
        weights = np.exp(sharpness * (diagonal - diagonal.max()))
        weights /= weights.sum()
        cost = float(np.trace(gram @ inverse))
        best = min(best, cost * float(diagonal.max()))
        smooth = float(diagonal @ weights)
        gradient = 2 * factor * weights / smooth - 2 * factor @ (inverse @ gram @ inverse) / cost
        factor = factor - 0.02 / (1 + step / 200) * gradient
    return best


@pytest.mark.parametrize("seed", range(3))
def test_the_semidefinite_optimum_is_certified_and_no_descent_beats_it(seed: int) -> None:
    gram = random_gram(seed, 6, 5) + 0.1 * np.eye(5)
    found = semidefinite_strategy(gram)
    assert found.lower_bound <= found.objective <= found.lower_bound * (1 + 2e-6)
    assert strategy_error(gram, found.strategy, norm=2) == pytest.approx(found.objective, rel=1e-6)
    assert column_norm(found.strategy, norm=1) == pytest.approx(1.0)
    slow = descend_smoothed(gram)
    assert found.lower_bound <= slow * (1 + 1e-9)
    assert found.objective == pytest.approx(slow, rel=0.01)


def test_the_singular_value_bound_is_met_by_workloads_that_all_cells_share_alike() -> None:
    # A circulant workload: the bound (Σ singular values)²/n of Li and Miklau 2013 is attained.
    row = np.array([3.0, 1.0, 0.0, 0.0, 1.0, 0.5])
    workload = np.array([np.roll(row, k) for k in range(6)])
    bound = np.linalg.svd(workload, compute_uv=False).sum() ** 2 / 6
    gram = workload.T @ workload
    assert semidefinite_strategy(gram).objective == pytest.approx(bound, rel=1e-6)
    assert strategy_error(gram, eigen_design(gram, norm=2), norm=2) == pytest.approx(bound, rel=1e-3)


@pytest.mark.parametrize("find", [p_identity, eigen_design, lambda gram: semidefinite_strategy(gram).strategy])
def test_nothing_beats_the_cells_for_the_identity_workload(find) -> None:
    assert strategy_error(np.eye(8), find(np.eye(8)), norm=1) == pytest.approx(16.0, rel=1e-4)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), cells=st.integers(2, 7), queries=st.integers(1, 9))
def test_every_strategy_answers_its_workload_at_sensitivity_one(seed: int, cells: int, queries: int) -> None:
    gram = random_gram(seed, queries, cells)
    found = semidefinite_strategy(gram)
    lower = found.lower_bound * (1 - 1e-6)
    for norm, strategy in ((1, p_identity(gram, rows=2)), (1, eigen_design(gram)), (2, eigen_design(gram, norm=2))):
        assert column_norm(strategy, norm=norm) == pytest.approx(1.0)
        assert lower <= strategy_error(gram, strategy, norm=2) < math.inf
    assert lower <= strategy_error(gram, found.strategy, norm=2) <= found.objective * 1.01


def test_the_gradient_of_p_identity_is_the_derivative_of_its_objective() -> None:
    rng = np.random.default_rng(0)
    gram, theta = random_gram(0, 7, 9), rng.random((3, 9))
    value, gradient = objective_and_gradient(gram, theta)
    strategy = np.concatenate([np.eye(9), theta]) / (1 + theta.sum(axis=0))
    assert value == pytest.approx(strategy_error(gram, strategy, norm=1) / 2)
    direction = rng.normal(size=theta.shape)
    ahead, behind = (objective_and_gradient(gram, theta + h * direction)[0] for h in (1e-6, -1e-6))
    assert float((gradient * direction).sum()) == pytest.approx((ahead - behind) / 2e-6, rel=1e-5)


@pytest.mark.parametrize("workload", [PrefixMap(64), AllRangesMap(64)])
def test_p_identity_beats_the_cells_and_every_tree(workload) -> None:
    gram = gram_matrix(workload)
    found = strategy_error(gram, p_identity(gram), norm=1)
    others = [strategy_error(gram, np.eye(64), norm=1)]
    others += [strategy_error(gram, tree(64, branching), norm=1) for branching in (2, 4, 8)]
    assert found < 0.75 * min(others)
    # No strategy, of any kind, has less than half the L2 optimum's variance bound at L1 sensitivity ≥ L2 sensitivity.
    assert found > 2 * semidefinite_strategy(gram).lower_bound


def test_the_optimum_for_gaussian_noise_beats_trees_and_cells() -> None:
    gram = gram_matrix(AllRangesMap(64))
    found = strategy_error(gram, semidefinite_strategy(gram).strategy, norm=2)
    for other in (np.eye(64), tree(64, 2), tree(64, 4), tree(64, 8), eigen_design(gram, norm=2)):
        assert found < strategy_error(gram, other, norm=2)


@pytest.mark.slow
def test_a_thousand_values_are_optimised_in_tens_of_seconds() -> None:
    import time

    gram = gram_matrix(AllRangesMap(1024))
    began = time.process_time()
    found = strategy_error(gram, p_identity(gram), norm=1)
    assert time.process_time() - began < 90
    assert found < 0.2 * strategy_error(gram, np.eye(1024), norm=1)
    assert found < 0.6 * min(strategy_error(gram, tree(1024, branching), norm=1) for branching in (2, 4, 32))


@pytest.mark.parametrize(
    "gram",
    [np.ones((2, 3)), np.zeros((2, 2)), np.array([[1.0, np.nan], [0.0, 1.0]]), np.array([[1.0, 1.0], [0.0, 1.0]])],
)
def test_what_is_no_gram_matrix_is_refused(gram: np.ndarray) -> None:
    for find in (p_identity, eigen_design, semidefinite_strategy):
        with pytest.raises(DeclarationError):
            find(gram)


def test_cells_that_no_query_touches_cost_nothing() -> None:
    gram = np.diag([1.0, 0.0, 1.0])
    assert not semidefinite_strategy(gram).strategy[:, 1].any()
    assert strategy_error(gram, eigen_design(gram), norm=1) == pytest.approx(4.0)
