"""Totals from noisy answers: against pseudo-inverses, and without bias."""

from functools import reduce

import numpy as np
import pytest
import scipy.sparse as sp

from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, Kronecker, PrefixMap, SparseMap, SumMap
from consilience.marginals.least_squares import TotalEstimate, combined_total, total_of_answers

QUERIES = [
    Kronecker((IdentityMap(3), PrefixMap(4))),
    Kronecker((AllRangesMap(4), SumMap(3))),
    Kronecker((SparseMap(sp.csr_array(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]))),)),
    Kronecker(()),
]


@pytest.mark.parametrize("query", QUERIES, ids=["identity × prefix", "ranges × sum", "matrix", "total"])
def test_the_estimate_is_that_of_the_pseudo_inverse(query: Kronecker) -> None:
    rng = np.random.default_rng(0)
    matrix = reduce(np.kron, (each.dense() for each in query.maps), np.ones((1, 1)))
    values, variances = rng.normal(size=len(matrix)), rng.uniform(1.0, 2.0, len(matrix))
    u = np.ones(matrix.shape[1]) @ np.linalg.pinv(matrix)
    found = total_of_answers(query, values, variances)
    assert found is not None
    assert found.total == pytest.approx(u @ values)
    assert found.variance == pytest.approx(u**2 @ variances)
    # Exact answers give the exact total.
    table = rng.poisson(5, matrix.shape[1]).astype(float)
    exact = total_of_answers(query, matrix @ table, 1.0)
    assert exact is not None
    assert exact.total == pytest.approx(table.sum())


def test_large_exact_answers_give_the_total_to_rounding() -> None:
    counts = np.random.default_rng(1).integers(0, 10**8, 60).astype(float)
    found = total_of_answers(Kronecker((PrefixMap(60),)), np.cumsum(counts), 1.0)
    assert found is not None
    assert found.total == pytest.approx(counts.sum(), rel=1e-14)


def test_rows_that_leave_cells_out_tell_no_total() -> None:
    query = Kronecker((SparseMap(sp.csr_array(np.array([[1.0, 1.0, 0.0]]))),))
    assert total_of_answers(query, [5.0], 1.0) is None


def test_estimates_are_combined_by_inverse_variance() -> None:
    found = combined_total([TotalEstimate(100.0, 1.0), None, TotalEstimate(110.0, 4.0)])
    assert found.total == pytest.approx(102.0)
    assert found.variance == pytest.approx(0.8)


def test_the_total_stays_above_zero() -> None:
    assert combined_total([TotalEstimate(-3.0, 1.0)]).total == 1.0
    assert combined_total([TotalEstimate(-3.0, 1.0)], least=0.5).total == 0.5


def test_without_any_estimate_the_total_is_refused() -> None:
    with pytest.raises(DeclarationError, match="Declare the total"):
        combined_total([None, None])


@pytest.mark.parametrize(("values", "variance"), [([1.0, np.nan], 1.0), ([1.0, 2.0], 0.0), ([1.0], 1.0)])
def test_answers_that_make_no_sense_are_refused(values: list[float], variance: float) -> None:
    with pytest.raises(DeclarationError):
        total_of_answers(Kronecker((IdentityMap(2),)), values, variance)
