"""The low-rank factors answer their workload exactly, with a small error."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.strategy_errors import strategy_error
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import PrefixMap
from consilience.kernels.rng import generator
from consilience.kernels.simplex import project_to_simplex
from consilience.strategies import low_rank
from consilience.strategies.attribute_strategies import column_norm, gram_matrix, gram_root
from consilience.strategies.low_rank import (
    low_rank_factors,
    project_columns,
    published_low_rank_factors,
    published_low_rank_strategy,
    value_and_gradient,
)


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


# ----------------------------------------------------------------------------------------------------------------------
# The factors as their authors find them.


def nearest_column(column: np.ndarray) -> np.ndarray:
    """The nearest vector of L1 norm at most 1, by sorting."""
    if np.abs(column).sum() <= 1.0:
        return column
    sizes = np.sort(np.abs(column))[::-1]
    sums = (np.cumsum(sizes) - 1.0) / np.arange(1, sizes.size + 1)
    return np.sign(column) * np.maximum(np.abs(column) - sums[np.flatnonzero(sizes > sums)[-1]], 0.0)


def searched_one_cell_at_a_time(workload: np.ndarray, rows: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """The authors' search for a W with orthogonal rows: gradients by loops over cells, B by a general solver."""
    queries, cells = workload.shape
    sizes = np.sqrt(np.diag(workload @ workload.T))
    left, right = np.eye(queries), workload / sizes[:, None]
    kept = min(rows, sizes.size)
    B, L = np.full((queries, rows), 1e-8), np.full((rows, cells), 1e-8)
    B[:, :kept], L[:kept] = (left * sizes)[:, :kept], right[:kept]
    B, L = B * np.sqrt(rows), L / np.sqrt(rows)
    multipliers, penalty, rng = np.zeros_like(workload), 1.0, generator(0)

    def lagrangian(L: np.ndarray) -> float:
        missed = workload - B @ L
        return float((multipliers * missed).sum() + 0.5 * penalty * (missed**2).sum() + 0.5e-6 * (L**2).sum())

    for number in range(1, rounds + 1):
        for _ in range(5):
            surely = penalty * float(np.abs(B.T @ B).sum(axis=0).max())
            bound, weight, before, moved = max(1.0, surely / 100), 1.0, 0.0, np.zeros_like(L)
            for _ in range(5):
                ahead = L + (before - 1.0) / weight * moved
                missed = workload - B @ ahead
                slope = np.stack(
                    [-B.T @ (multipliers + penalty * missed)[:, j] + 1e-6 * ahead[:, j] for j in range(cells)], 1
                )
                earlier, L = L, ahead
                for trial in range(5):
                    L = np.stack([nearest_column((ahead - slope / bound)[:, j]) for j in range(cells)], axis=1)
                    length = 0.5 * float(((L - ahead) ** 2).sum())
                    excess = lagrangian(L) - lagrangian(ahead) - float((slope * (L - ahead)).sum())
                    if length <= 1e-12 * L.size or excess <= bound * length:
                        break
                    bound = surely if trial == 4 else max(2 * bound, excess / length)
                before, weight, moved = weight, (1 + np.sqrt(4 * weight**2 + 1)) / 2, L - earlier
                if length <= 1e-12 * L.size:
                    break
            L = L + (np.abs(L) < 1e-5) * 1e-5 * rng.standard_normal(L.shape)
            B = np.linalg.solve(penalty * L @ L.T + np.eye(rows), L @ (penalty * workload + multipliers).T).T
        missed = workload - B @ L
        penalty = min(5 * penalty, 1e5) if number % 8 == 0 else penalty
        if np.linalg.norm(missed) < 0.01:
            break
        multipliers = multipliers + penalty * missed
    norm = column_norm(L, norm=1)
    return B * norm, L / norm


@pytest.mark.parametrize("seed", range(4))
def test_the_published_search_takes_the_steps_of_its_slow_twin(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds, for later rounding decides whether a step is taken, and may lead two searches to other optima."""
    rng = np.random.default_rng(seed)
    workload = rng.integers(0, 2, (5, 8)) * 2.0 - 1.0 if seed % 2 else np.tril(np.ones((6, 6)))
    gram = workload.T @ workload
    for rounds in (1, 2):
        monkeypatch.setattr(low_rank, "PUBLISHED", replace(low_rank.PUBLISHED, rounds=rounds))
        found = published_low_rank_factors(gram)
        B, L = searched_one_cell_at_a_time(gram_root(gram), len(found.strategy), rounds)
        assert len(found.strategy) == int(np.ceil(1.2 * np.linalg.matrix_rank(workload)))
        assert found.answers @ found.strategy == pytest.approx(B @ L, abs=1e-6)
        assert float((found.answers**2).sum()) == pytest.approx(float((B**2).sum()), rel=1e-6)


def known_workload(kind: str, cells: int = 32) -> np.ndarray:
    signs = np.random.default_rng(3).choice([-1.0, 1.0], (cells, cells))
    places = np.arange(cells)
    return {
        "prefixes": np.tril(np.ones((cells, cells))),
        "ranges": np.array([(places >= low) & (places <= high) for low in places for high in places[low:]], float),
        "few signs": signs[:8],
        "low rank": signs @ signs[:, :2] @ signs[:2],
        "cells": np.eye(cells),
    }[kind]


@pytest.mark.parametrize("kind", ["prefixes", "ranges", "few signs", "low rank", "cells"])
def test_the_published_search_meets_the_workload_and_least_squares_from_it_errs_no_more_than_it(kind: str) -> None:
    workload = known_workload(kind)
    gram = workload.T @ workload
    found, root = published_low_rank_factors(gram), gram_root(gram)
    assert column_norm(found.strategy, norm=1) == pytest.approx(1.0)
    left = float(np.linalg.norm(root - found.answers @ found.strategy))
    assert left == pytest.approx(found.residual * np.linalg.norm(root), rel=1e-3)
    assert left < 0.01 * (1 + 1e-6)
    strategy = published_low_rank_strategy(gram)
    through = workload @ np.linalg.pinv(strategy, rcond=1e-10)
    assert np.allclose(through @ strategy, workload, atol=1e-6 * np.abs(workload).max())
    assert float((through**2).sum()) <= 1.01 * float((found.answers**2).sum())


def test_ours_is_better_on_prefixes_and_ranges_where_the_published_one_may_lose_to_the_cells() -> None:
    for kind, cells_win in (("prefixes", False), ("ranges", True)):
        workload = known_workload(kind, 64)
        gram = workload.T @ workload
        published = strategy_error(gram, published_low_rank_strategy(gram), norm=1)
        assert published > 1.5 * strategy_error(gram, low_rank_factors(gram).strategy, norm=1)
        assert not cells_win or published > strategy_error(gram, np.eye(64), norm=1)
