"""The matrix of products between measured rows, B diag(x) Bᵀ, without B.

Let query q act on the attributes Q by a Kronecker product of maps F, and query p on P by H. The block of the matrix
between them needs only the marginal D of x on Q ∪ P:

    (q, p)[i, j] = Σ over cells v of Q ∪ P of  D[v] · Π_{Q} F[i_a, v_a] · Π_{P} H[j_a, v_a].

Attribute by attribute this is a linear map of D: F where only q has the attribute, H where only p has it, and where
both have it the map with rows (i, j) and entries F[i, v]·H[j, v]. So each block is one more Kronecker product, applied
to a small table, and all the small tables are summed from x together.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.kernels.linear_maps import IdentityMap, Kronecker, LinearMap, SparseMap
from consilience.solvers.marginal_sums import MarginalSums

Array = NDArray[np.float64]

MOST_ROWS = 5_000
"""A larger matrix takes too long to factor."""

MOST_WORK = 40
"""The blocks' tables together may have this many times as many cells as the table."""

SMALL_WORK = 20_000_000


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one query: the axes of the table it acts on, its maps along them, and what each row is times."""

    axes: tuple[int, ...]
    maps: tuple[LinearMap, ...]
    weights: Array


@dataclass(frozen=True, eq=False)
class _Block:
    """How the products of two queries' rows follow from a marginal of the table."""

    marginal: int
    product: Kronecker
    shape: tuple[int, ...]
    order: tuple[int, ...]


class RowProducts:
    """The matrix B diag(x) Bᵀ for tables x of one shape."""

    def __init__(self, shape: Sequence[int], queries: Sequence[Rows]) -> None:
        self._weights = np.concatenate([query.weights for query in queries])
        self._ends = np.cumsum([query.weights.size for query in queries])
        self._pairs = list(itertools.combinations_with_replacement(range(len(queries)), 2))
        unions = _unions(queries)
        self._sums = MarginalSums(shape, unions)
        self._blocks = [_block(queries[one], queries[other], unions) for one, other in self._pairs]

    def of(self, table: Array) -> Array:
        """The matrix for this table."""
        marginals = self._sums.of(table)
        starts = np.concatenate([[0], self._ends])
        matrix = np.empty((self._weights.size, self._weights.size))
        for (one, other), block in zip(self._pairs, self._blocks, strict=True):
            rows, columns = slice(*starts[one : one + 2]), slice(*starts[other : other + 2])
            applied = block.product.apply(marginals[block.marginal]).reshape(block.shape)
            matrix[rows, columns] = applied.transpose(block.order).reshape(matrix[rows, columns].shape)
            if one != other:
                matrix[columns, rows] = matrix[rows, columns].T
        matrix *= self._weights[:, None]
        matrix *= self._weights
        return matrix


def are_affordable(shape: Sequence[int], queries: Sequence[Rows]) -> bool:
    """Whether the matrix is small enough to factor, and its blocks come from tables that are small enough to sum."""
    if sum(query.weights.size for query in queries) > MOST_ROWS:
        return False
    pairs = itertools.combinations_with_replacement(queries, 2)
    work = sum(math.prod(shape[axis] for axis in {*one.axes, *other.axes}) for one, other in pairs)
    return work <= max(SMALL_WORK, MOST_WORK * math.prod(shape))


def predicted_bytes(rows: int) -> int:
    """The memory of the matrix, its scaled copy and its factor."""
    return 3 * 8 * rows * rows


def _unions(queries: Sequence[Rows]) -> list[tuple[int, ...]]:
    pairs = itertools.combinations_with_replacement(queries, 2)
    return sorted({tuple(sorted({*one.axes, *other.axes})) for one, other in pairs})


def _block(one: Rows, other: Rows, unions: list[tuple[int, ...]]) -> _Block:
    axes = tuple(sorted({*one.axes, *other.axes}))
    maps: list[LinearMap] = []
    shape: list[int] = []
    places: dict[tuple[int, int], int] = {}
    for axis in axes:
        found = [
            (which, query.maps[query.axes.index(axis)])
            for which, query in enumerate((one, other))
            if axis in query.axes
        ]
        maps.append(found[0][1] if len(found) == 1 else _shared(found[0][1], found[1][1]))
        for which, each in found:
            places[which, axis] = len(shape)
            shape.append(each.rows)
    order = [places[0, axis] for axis in one.axes] + [places[1, axis] for axis in other.axes]
    return _Block(unions.index(axes), Kronecker(tuple(maps)), tuple(shape), tuple(order))


def _shared(one: LinearMap, other: LinearMap) -> LinearMap:
    """The map with rows (i, j) and entries F[i, v]·H[j, v]."""
    if isinstance(one, IdentityMap) and isinstance(other, IdentityMap):
        size = one.columns
        places = np.arange(size)
        return SparseMap(sp.csr_array((np.ones(size), (places * (size + 1), places)), (size * size, size)))
    return SparseMap(sp.csr_array(scipy.linalg.khatri_rao(one.dense(), other.dense())))
