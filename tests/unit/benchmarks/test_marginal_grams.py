"""The Gram matrix of all marginals of an order is that of the marginals written out."""

import itertools

import numpy as np
import pytest

from benchmarks.reproduce.qardaji2014.expected_errors import marginal_workload_gram
from consilience.errors import DeclarationError, TooLarge


@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 3, 4), (3, 1, 2)])
@pytest.mark.parametrize("ways", [0, 1, 2, 3])
def test_it_is_the_gram_matrix_of_the_rows(sizes: tuple[int, ...], ways: int) -> None:
    rows = []
    for kept in itertools.combinations(range(len(sizes)), ways):
        matrix = np.ones((1, 1))
        for axis, size in enumerate(sizes):
            matrix = np.kron(matrix, np.eye(size) if axis in kept else np.ones((1, size)))
        rows.append(matrix)
    written_out = np.concatenate(rows)
    assert np.array_equal(marginal_workload_gram(sizes, ways), written_out.T @ written_out)


def test_too_many_ways_and_cells_are_refused() -> None:
    with pytest.raises(DeclarationError):
        marginal_workload_gram((2, 2), 3)
    with pytest.raises(TooLarge):
        marginal_workload_gram((2,) * 13, 2)
