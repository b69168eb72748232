"""Measured queries as one linear operator on the full table, row by row divided by their noise."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, LinearMap, PrefixMap, SumMap
from consilience.solvers.marginal_sums import MarginalSums
from consilience.solvers.tables.row_costs import RowProducts, Rows, are_affordable

Array = NDArray[np.float64]

LARGEST_DENSE_FACTOR = 4_000_000


class MeasuredOperator:
    """Queries one after the other, each row times its weight; a row of weight 0 was not measured."""

    def __init__(self, domain: Domain, queries: Sequence[BoundQuery], weights: Sequence[Array]) -> None:
        self.shape_in = domain.shape
        self.queries = tuple(queries)
        self.weights = tuple(weights)
        self._squared = [query.squared() for query in queries]
        names = domain.counted_names
        self._axes = [tuple(map(names.index, query.attributes)) for query in queries]
        self._sums = MarginalSums(domain.shape, self._axes)
        self.ends = np.cumsum([query.size for query in queries])

    @property
    def rows(self) -> int:
        """The number of answers that take part in the fit."""
        return sum(int(np.count_nonzero(weights)) for weights in self.weights)

    def apply(self, x: Array) -> Array:
        parts = zip(self.queries, self.weights, self._sums.of(x), strict=True)
        return np.concatenate([query.answer(marginal).ravel() * weights for query, weights, marginal in parts])

    def apply_squared(self, x: Array) -> Array:
        """The operator with every entry squared, for the solvers' preconditioners."""
        parts = zip(self._squared, self.weights, self._sums.of(x), strict=True)
        return np.concatenate([query.answer(marginal).ravel() * weights**2 for query, weights, marginal in parts])

    def adjoint(self, residuals: Array) -> Array:
        parts = zip(self.queries, self.weights, np.split(residuals, self.ends[:-1]), strict=True)
        return self._sums.spread(
            [query.adjoint((part * weights).reshape(query.shape)) for query, weights, part in parts]
        )

    def matrix(self) -> Array:
        """The operator written out, for small tables: a row for each answer and a column for each cell."""
        parts = zip(self.queries, self.weights, strict=True)
        return np.concatenate([query.written_out() * weights[:, None] for query, weights in parts])

    def products(self) -> RowProducts | None:
        """The products of rows with each other, where they are few enough to be factored."""
        rows = self._product_rows()
        return RowProducts(self.shape_in, rows) if are_affordable(self.shape_in, rows) else None

    def _product_rows(self) -> list[Rows]:
        parts = zip(self.queries, self._axes, self.weights, strict=True)
        return [Rows(axes, query.maps, weights) for query, axes, weights in parts]

    def cover(self) -> Array | None:
        """A vector v with Aᵀv > 0 on every cell that a query with such a vector touches; None when no query has one."""
        parts = []
        for query, weights in zip(self.queries, self.weights, strict=True):
            vectors = [_factor_cover(each) for each in query.maps] if weights.all() else [None]
            product = np.ones(1)
            for vector in vectors:
                product = np.zeros(1) if vector is None else np.outer(product, vector).ravel()
            usable = all(vector is not None for vector in vectors)
            parts.append(product / weights if usable else np.zeros(query.size))
        return np.concatenate(parts) if any(part.any() for part in parts) else None


def _factor_cover(each: LinearMap) -> Array | None:
    """A vector v with Fᵀv ≥ 0 everywhere and > 0 on every column of F that is not zero, or None."""
    if isinstance(each, IdentityMap | SumMap):
        return np.ones(each.rows)
    if isinstance(each, PrefixMap):
        return np.eye(each.rows)[-1]
    if isinstance(each, AllRangesMap):
        return np.eye(1, each.rows, each.columns - 1)[0]
    touched = each.column_norms(1) > 0
    matrix = each.dense() if each.rows * each.columns <= LARGEST_DENSE_FACTOR else None
    if matrix is None:
        return None
    rows_without_negatives: Array = np.all(matrix >= 0, axis=1, keepdims=True)[:, 0].astype(np.float64)
    if (rows_without_negatives @ matrix)[touched].min(initial=1.0) > 0:
        return rows_without_negatives
    solved = np.asarray(np.linalg.lstsq(matrix.T, touched.astype(np.float64), rcond=None)[0], dtype=np.float64)
    reached = solved @ matrix
    return solved if reached[touched].min(initial=1.0) > 1e-9 and reached.min(initial=0.0) > -1e-12 else None
