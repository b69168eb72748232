"""Measured rows of a model: from its marginals to weighted answers of queries, and back.

A query measures the table of one scope: attributes it does not name are summed away, a Kronecker product acts on the
axes of the others, and every answer is times a weight, 1 over the scale of its noise as a rule. All answers of all
queries, one after another, are the rows B of a model; B takes the flat marginals of a `TableLayout` to them. Where a
query is the table itself, its rows are a gather and a product, and all such queries are done in one pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import IdentityMap, Kronecker
from consilience.marginals.table_stacks import Scope
from consilience.models.layout import TableLayout

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MeasuredQuery:
    """A query about one scope's table, with a weight for each of its answers.

    The answers are in row-major order of the query's own axes.
    """

    scope: int
    """Which of the layout's scopes is measured."""
    attributes: Scope
    """What the axes of the query are; attributes of the scope that are not among them are summed away."""
    weights: Array
    kronecker: Kronecker | None = None
    """What acts on these axes; None keeps every cell."""

    @property
    def is_marginal(self) -> bool:
        """Whether the answers are the cells of the marginal on `attributes`."""
        return self.kronecker is None or all(isinstance(each, IdentityMap) for each in self.kronecker.maps)


class MeasuredRows:
    """All rows of a model: `apply` gives the weighted answers at some marginals, `adjoint` is the transposed map.

    >>> layout = TableLayout([2, 2], [(0, 1)])
    >>> rows = MeasuredRows(layout, [MeasuredQuery(0, (1,), np.array([1.0, 10.0]))])
    >>> rows.apply(layout.pack([[[1, 2], [3, 4]]]))
    array([ 4., 60.])
    """

    def __init__(self, layout: TableLayout, queries: Sequence[MeasuredQuery]) -> None:
        self.layout = layout
        self.queries = tuple(queries)
        answers = [_checked_answers(layout, place, query) for place, query in enumerate(self.queries)]
        ends = np.cumsum([0, *answers])
        self.size = int(ends[-1])
        self.slices = tuple(slice(a, b) for a, b in pairwise(ends.tolist()))
        self.weights = np.concatenate([np.empty(0), *(query.weights for query in self.queries)])
        """The weights of all rows."""
        whole = [query.is_marginal and len(query.attributes) == len(self._axes(query)) for query in self.queries]
        self._others = [place for place in range(len(self.queries)) if not whole[place]]
        self._gathered = [place for place in range(len(self.queries)) if whole[place]]

    def _axes(self, query: MeasuredQuery) -> Scope:
        return self.layout.axes[query.scope]

    @cached_property
    def _cells(self) -> NDArray[np.intp]:
        """For each row that is a cell of a scope's own table, which cell; queries of this kind one after another."""
        found = [np.empty(0, dtype=np.intp)]
        for place in self._gathered:
            query = self.queries[place]
            part = self.layout.slices[query.scope]
            cells = np.arange(part.start, part.stop).reshape([self.layout.sizes[a] for a in self._axes(query)])
            found.append(cells.transpose([self._axes(query).index(a) for a in query.attributes]).ravel())
        return np.concatenate(found)

    @cached_property
    def _rows(self) -> slice | NDArray[np.intp]:
        """The rows that are cells of tables, in the order of `_cells`."""
        if not self._others:
            return slice(0, self.size)
        parts = [np.arange(self.slices[place].start, self.slices[place].stop) for place in self._gathered]
        return np.concatenate([np.empty(0, dtype=np.intp), *parts])

    @cached_property
    def _in_storage_order(self) -> bool:
        """Whether the rows are the flat marginals themselves, cell by cell."""
        measured = [(query.scope, query.attributes) for query in self.queries]
        return not self._others and measured == list(enumerate(self.layout.axes))

    @cached_property
    def _cells_differ(self) -> bool:
        return np.unique(self._cells).size == self._cells.size

    def apply(self, marginals: Array, *, out: Array | None = None) -> Array:
        """B times flat marginals."""
        if self._in_storage_order:
            return np.multiply(marginals, self.weights, out=out)
        answers = np.empty(self.size) if out is None else out
        answers[self._rows] = marginals[self._cells]
        for place in self._others:
            answers[self.slices[place]] = self._answers(self.queries[place], marginals)
        answers *= self.weights
        return answers

    def adjoint(self, rows: Array, *, out: Array | None = None) -> Array:
        """Bᵀ times rows: a flat vector in the layout of the marginals."""
        if self._in_storage_order:
            return np.multiply(rows, self.weights, out=out)
        weighted = rows * self.weights
        flat = np.empty(self.layout.size) if out is None else out
        if self._cells_differ:
            flat.fill(0.0)
            flat[self._cells] = weighted[self._rows]
        else:
            flat[:] = np.bincount(self._cells, weighted[self._rows], self.layout.size)
        for place in self._others:
            self._spread(self.queries[place], weighted[self.slices[place]], flat)
        return flat

    def apply_squared(self, marginals: Array) -> Array:
        """Σ_j B_ij² m_j for each row i."""
        return self._squared.apply(marginals)

    @cached_property
    def _squared(self) -> "MeasuredRows":
        """The rows with every entry squared."""
        return MeasuredRows(self.layout, [_squared(query) for query in self.queries])

    def adjoint_squared(self, rows: Array) -> Array:
        """Σ_i B_ij² r_i for each cell j of the marginals."""
        return self._squared.adjoint(rows)

    def in_storage_order(self) -> tuple["MeasuredRows", NDArray[np.intp]]:
        """The same rows, ordered as far as may be like the cells of the flat marginals, and where they were."""
        order = sorted(range(len(self.queries)), key=lambda place: self.queries[place].scope)
        queries, rows = [], [np.empty(0, dtype=np.intp)]
        for place in order:
            query, part = self.queries[place], self.slices[place]
            where = np.arange(part.start, part.stop)
            if query.is_marginal:
                stored = tuple(attribute for attribute in self._axes(query) if attribute in query.attributes)
                table = where.reshape([self.layout.sizes[attribute] for attribute in query.attributes])
                where = table.transpose([query.attributes.index(attribute) for attribute in stored]).ravel()
                query = MeasuredQuery(query.scope, stored, self.weights[where])
            queries.append(query)
            rows.append(where)
        return MeasuredRows(self.layout, queries), np.concatenate(rows)

    def subset(self, places: Sequence[int]) -> tuple["MeasuredRows", NDArray[np.intp]]:
        """The rows of some queries alone, and where these rows are among all."""
        rows = [np.arange(self.slices[place].start, self.slices[place].stop) for place in places]
        return (
            MeasuredRows(self.layout, [self.queries[place] for place in places]),
            np.concatenate([np.empty(0, dtype=np.intp), *rows]),
        )

    def _answers(self, query: MeasuredQuery, marginals: Array) -> Array:
        axes = self._axes(query)
        kept = [attribute for attribute in axes if attribute in query.attributes]
        table = self.layout.view(marginals, query.scope)
        table = table.sum(axis=tuple(place for place, attribute in enumerate(axes) if attribute not in kept))
        table = table.transpose([kept.index(attribute) for attribute in query.attributes])
        if query.kronecker is not None:
            table = query.kronecker.apply(table)
        return np.asarray(table).ravel()

    def _spread(self, query: MeasuredQuery, weighted: Array, flat: Array) -> None:
        axes, sizes = self._axes(query), self.layout.sizes
        if query.kronecker is None:
            table = weighted.reshape([sizes[attribute] for attribute in query.attributes])
        else:
            table = query.kronecker.adjoint(weighted.reshape(query.kronecker.shape_out))
        kept = [attribute for attribute in axes if attribute in query.attributes]
        table = table.transpose([query.attributes.index(attribute) for attribute in kept])
        view = self.layout.view(flat, query.scope)
        view += table.reshape([sizes[attribute] if attribute in kept else 1 for attribute in axes])


def _squared(query: MeasuredQuery) -> MeasuredQuery:
    kronecker = query.kronecker
    if kronecker is not None:
        kronecker = Kronecker(tuple(each.squared() for each in kronecker.maps))
    return MeasuredQuery(query.scope, query.attributes, query.weights**2, kronecker)


def _checked_answers(layout: TableLayout, place: int, query: MeasuredQuery) -> int:
    """How many answers a query has; refuses one that does not fit its scope."""
    if not 0 <= query.scope < len(layout.scopes):
        raise DeclarationError(f"query {place} is about scope {query.scope}; there are {len(layout.scopes)} scopes")
    scope = layout.scopes[query.scope]
    if len(set(query.attributes)) < len(query.attributes) or not set(query.attributes) <= set(scope):
        raise DeclarationError(
            f"query {place} is about attributes {query.attributes} of the scope {scope}: name some of the scope's "
            "attributes, each once"
        )
    shape = tuple(layout.sizes[attribute] for attribute in query.attributes)
    if query.kronecker is not None and query.kronecker.shape_in != shape:
        raise DeclarationError(
            f"query {place} takes a table of shape {query.kronecker.shape_in}; its attributes {query.attributes} have "
            f"shape {shape}: give one map for each attribute"
        )
    answers = int(np.prod(shape if query.kronecker is None else query.kronecker.shape_out))
    if query.weights.shape != (answers,):
        raise DeclarationError(f"query {place} has {answers} answers and {query.weights.size} weights: give as many")
    if not (np.isfinite(query.weights).all() and query.weights.min(initial=1.0) > 0):
        raise DeclarationError(f"query {place} has a weight that is not a positive number; weights are 1 over a scale")
    return answers
