"""The low-rank factors answer their workload exactly, with a small error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.strategy_errors import strategy_error
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import PrefixMap
from consilience.kernels.simplex import project_to_simplex
from consilience.strategies.low_rank import low_rank_factors, project_columns, value_and_gradient
from consilience.strategies.workload_grams import column_norm, gram_matrix, gram_root


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), cells=st.integers(2, 8), queries=st.integers(1, 8))
def test_factors_multiply_to_the_workload_at_sensitivity_one(seed: int, cells: int, queries: int) -> None:
    workload = np.random.default_rng(seed).normal(size=(queries, cells))
    gram = workload.T @ workload
    found = low_rank_factors(gram)
    root = gram_root(gram)
    assert np.allclose(found.answers @ found.strategy, root, atol=1e-6 * np.abs(root).max())
    assert column_norm(found.strategy, norm=1) == pytest.approx(1.0)
    through = workload @ np.linalg.pinv(found.strategy, rcond=1e-10)
    assert np.allclose(through @ found.strategy, workload, atol=1e-6 * np.abs(workload).max())
    assert float((through**2).sum()) == pytest.approx(float((found.answers**2).sum()), rel=1e-6)
    assert strategy_error(gram, found.strategy, norm=1) == pytest.approx(2 * (found.answers**2).sum(), rel=1e-5)


def test_few_distinct_queries_need_few_rows() -> None:
    # Two sign queries: cells fall into two kinds by their relative sign, and one row for each kind is best: ‖B‖² = 4.
    signs = np.random.default_rng(1).integers(0, 2, (2, 40)) * 2.0 - 1.0
    found = low_rank_factors(signs.T @ signs)
    assert float((found.answers**2).sum()) == pytest.approx(4.0, rel=1e-3)
    assert strategy_error(signs.T @ signs, np.eye(40), norm=1) > 5 * 2 * (found.answers**2).sum()


def test_it_is_never_worse_than_the_cells_or_the_queries() -> None:
    rng = np.random.default_rng(2)
    for workload in (np.tril(np.ones((16, 16))), rng.integers(0, 2, (12, 16)).astype(float)):
        gram = workload.T @ workload
        found = 2 * float((low_rank_factors(gram).answers ** 2).sum())
        assert found <= strategy_error(gram, np.eye(16), norm=1) * (1 + 1e-6)
        assert found <= strategy_error(gram, workload, norm=1) * (1 + 1e-6)


def test_prefixes_of_64_values_come_out_well_below_the_cells() -> None:
    gram = gram_matrix(PrefixMap(64))
    assert 2 * (low_rank_factors(gram).answers ** 2).sum() < 0.55 * strategy_error(gram, np.eye(64), norm=1)


def test_a_rank_that_is_asked_for_is_kept_or_refused() -> None:
    workload = np.random.default_rng(3).integers(0, 2, (4, 12)) * 2.0 - 1.0
    gram = workload.T @ workload
    assert low_rank_factors(gram, rank=6).strategy.shape[0] <= 6
    with pytest.raises(DeclarationError, match="rank 4"):
        low_rank_factors(gram, rank=3)


def test_the_gradient_is_the_derivative_of_the_penalised_objective() -> None:
    rng = np.random.default_rng(4)
    root, strategy, direction = rng.normal(size=(3, 7)), rng.normal(size=(5, 7)), rng.normal(size=(5, 7))
    _, gradient = value_and_gradient(root, strategy, 0.1)
    ahead, behind = (value_and_gradient(root, strategy + h * direction, 0.1)[0] for h in (1e-6, -1e-6))
    assert float((gradient * direction).sum()) == pytest.approx((ahead - behind) / 2e-6, rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.01, 0.3, 1.0, 100.0]))
def test_columns_are_projected_to_the_ball_one_by_one(seed: int, scale: float) -> None:
    matrix = np.random.default_rng(seed).normal(size=(5, 3)) * scale
    found = project_columns(matrix)
    for column, result in zip(matrix.T, found.T, strict=True):
        if np.abs(column).sum() <= 1:
            assert np.array_equal(result, column)
        else:
            assert np.allclose(result, np.sign(column) * project_to_simplex(np.abs(column), 1.0), atol=1e-12)
