"""The matrix mechanism on marginals: errors by examining strategies over the joint cells."""

import math

import numpy as np
import pytest

from benchmarks.reproduce.qardaji2014.expected_errors import (
    direct_error,
    expected_marginal_error,
    flat_error,
    marginal_workload_gram,
)
from consilience.errors import DeclarationError, TooLarge
from consilience.strategies.attribute_strategies import eigen_design


def test_the_full_table_as_a_strategy_has_the_error_of_flat() -> None:
    for ways in (1, 2, 3):
        found = expected_marginal_error([2] * 5, ways, strategy="identity", epsilon=0.5)
        assert found == pytest.approx(flat_error(5, epsilon=0.5))
    assert expected_marginal_error([3, 4], 1, strategy="identity") == pytest.approx(12 * 2)


@pytest.mark.parametrize("ways", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_nine_flags_are_better_than_direct_and_worse_than_flat_as_the_paper_found(ways: int) -> None:
    found = expected_marginal_error([2] * 9, ways, strategy="eigen")
    assert 1.5 * flat_error(9) < found < 0.3 * direct_error(9, ways)
    assert expected_marginal_error([2] * 9, ways, strategy="p-identity") <= flat_error(9) * (1 + 1e-9)


def test_simulated_answers_have_that_error() -> None:
    gram = marginal_workload_gram([2] * 4, 2)
    strategy = eigen_design(gram, norm=1)
    scale = np.abs(strategy).sum(axis=0).max()
    noise = np.random.default_rng(0).laplace(0.0, scale, (6000, len(strategy)))
    cells = noise @ np.linalg.pinv(strategy, rcond=1e-9).T
    simulated = np.einsum("ri,ij,rj->r", cells, gram, cells, optimize=True).mean() / math.comb(4, 2)
    assert expected_marginal_error([2] * 4, 2) == pytest.approx(simulated, rel=0.04)


def test_what_is_no_strategy_is_refused() -> None:
    with pytest.raises(DeclarationError):
        expected_marginal_error([2, 2], 1, strategy="auto")
    with pytest.raises(DeclarationError):
        expected_marginal_error([2, 2], 1, epsilon=0.0)
    with pytest.raises(DeclarationError):
        expected_marginal_error([2, 2], 3)
    with pytest.raises(TooLarge):
        expected_marginal_error([2] * 20, 2)
