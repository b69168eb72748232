"""Linear maps and their products as sparse matrices, with their size known beforehand."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, LinearMap, PrefixMap, SparseMap, SumMap

BYTES_PER_ENTRY = 40
"""What an entry takes while a product is written out and stacked: its value and place, twice."""


def entries(each: LinearMap) -> int:
    """How many entries of a map are not 0, at most."""
    columns = each.columns
    if isinstance(each, IdentityMap | SumMap):
        return columns
    if isinstance(each, PrefixMap):
        return columns * (columns + 1) // 2
    if isinstance(each, AllRangesMap):
        return columns * (columns + 1) * (columns + 2) // 6
    return int(each.matrix.nnz) if isinstance(each, SparseMap) else each.rows * columns


def entries_of_product(maps: Sequence[LinearMap]) -> int:
    """How many entries of a Kronecker product are not 0, at most."""
    return math.prod(entries(each) for each in maps)


def as_matrix(each: LinearMap) -> Any:
    """A map as a CSR array."""
    columns = each.columns
    if isinstance(each, IdentityMap):
        return sp.eye_array(columns, format="csr")
    if isinstance(each, SumMap):
        return sp.csr_array(np.ones((1, columns)))
    if isinstance(each, AllRangesMap):
        first, last = each.ends
        lengths = last - first + 1
        begins = np.concatenate([[0], np.cumsum(lengths)])
        codes = np.arange(begins[-1]) - np.repeat(begins[:-1] - first, lengths)
        return sp.csr_array((np.ones(begins[-1]), codes, begins), (each.rows, columns))
    return each.matrix if isinstance(each, SparseMap) else sp.csr_array(each.dense())


def sparse_product(maps: Sequence[LinearMap]) -> Any:
    """A Kronecker product as a CSR array, the last factor varying fastest in rows and columns.

    >>> sparse_product([SumMap(2), IdentityMap(2)]).toarray()
    array([[1., 0., 1., 0.],
           [0., 1., 0., 1.]])
    """
    product: Any = sp.csr_array(np.ones((1, 1)))
    for each in maps:
        product = as_matrix(each) if product.shape == (1, 1) else sp.kron(product, as_matrix(each), format="csr")
    return sp.csr_array(product)
