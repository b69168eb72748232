"""The span of a matrix' rows, and which other rows lie in it: what linear measurements of one axis determine.

A space is known in one of four ways, whichever is cheapest:

*All of Rⁿ.*  Every row lies in it.
*Disjoint rows.*  Each column is in at most one row, as in a condition or in a list of bins. A row f lies in the span if
              on every row's columns it is a multiple of that row, and 0 elsewhere: sparse sums tell.
*A basis.*    Orthonormal, from a singular value decomposition; f lies in the span if its projection is as long as f.
*Opaque.*     Too large to be decomposed. Then nothing is said to lie in it, which errs on the safe side.

With it, factor by factor, which answers of a query vary and which are determined.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery, Query
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, JointMap, LinearMap, PrefixMap, SparseMap, SumMap

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]

LARGEST_DENSE = 4_000_000
"""Matrices with more numbers than these are not written out."""

LARGEST_DECOMPOSED = 600
"""Matrices whose shorter side is longer are not decomposed; at this length it takes a tenth of a second."""

SAME = 1e-11
"""Squared lengths that differ by less than this share are the same: a thousand times what their rounding adds up to."""


@dataclass(frozen=True, eq=False)
class RowSpace:
    """The span of some rows of `columns` numbers; `basis` holds orthonormal columns, or disjoint sparse ones."""

    columns: int
    full: bool = False
    basis: Any = None
    """None for all of Rⁿ and for an opaque space."""

    @staticmethod
    def everything(columns: int) -> "RowSpace":
        return RowSpace(columns, full=True)

    @staticmethod
    def constants(columns: int) -> "RowSpace":
        """The rows whose entries are all the same."""
        return RowSpace.of_groups(np.zeros(columns, dtype=np.intp))

    @staticmethod
    def of_groups(groups: NDArray[np.intp]) -> "RowSpace":
        """The rows whose entries are the same within every group of columns."""
        size = len(groups)
        sizes = np.bincount(groups)
        weights = 1.0 / np.sqrt(sizes[groups])
        return RowSpace(size, len(sizes) == size, sp.csr_array((weights, (np.arange(size), groups))))

    @staticmethod
    def of(each: LinearMap) -> "RowSpace":
        """The span of a map's rows."""
        size = each.columns
        if isinstance(each, IdentityMap | PrefixMap | AllRangesMap):
            return RowSpace.everything(size)
        if isinstance(each, SumMap):
            return RowSpace.constants(size)
        if isinstance(each, SparseMap):
            found = _of_sparse(sp.csr_array(each.matrix))
            if found is not None:
                return found
        if each.rows * size > LARGEST_DENSE or min(each.rows, size) > LARGEST_DECOMPOSED:
            return RowSpace(size)
        return RowSpace.of_matrix(each.dense())

    @staticmethod
    def of_matrix(rows: Array) -> "RowSpace":
        """The span of the rows of a small matrix."""
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        scaled = rows / np.where(lengths > 0, lengths, 1.0)
        _, sizes, turned = np.linalg.svd(scaled, full_matrices=False)
        kept = turned[sizes > 1e-9 * sizes.max(initial=0.0)]
        return RowSpace(rows.shape[1], len(kept) == rows.shape[1], kept.T)

    @cached_property
    def contains_constants(self) -> bool:
        return bool(self.contains(SumMap(self.columns))[0])

    def contains(self, asked: LinearMap, *, centred: bool = False) -> Marks:
        """For each row of a map whether it lies in the space; `centred`, whether it does less its mean."""
        if self.full:
            return np.ones(asked.rows, dtype=np.bool_)
        if self.basis is None:
            return np.zeros(asked.rows, dtype=np.bool_)
        if isinstance(asked, IdentityMap | PrefixMap | AllRangesMap) and asked.rows * self.columns > LARGEST_DENSE:
            return self._contains_large(asked)
        rows = _written_out(asked)
        return np.zeros(asked.rows, dtype=np.bool_) if rows is None else self.contains_rows(rows, centred=centred)

    def contains_rows(self, rows: Any, *, centred: bool = False) -> Marks:
        """For each row of a dense or sparse matrix whether it lies in the space, which is not an opaque one."""
        if self.full:
            return np.ones(rows.shape[0], dtype=np.bool_)
        # With P the projection and m the mean of a row f: ‖f − m1‖² − ‖P(f − m1)‖², where products may stay sparse.
        projected = rows @ self.basis
        lengths = _row_lengths(rows)
        beyond = lengths - _row_lengths(projected)
        if centred:
            means = np.asarray(rows.sum(axis=1)).ravel() / self.columns
            constants = np.asarray(self.basis.sum(axis=0)).ravel()
            shared = np.asarray(projected @ constants).ravel()
            beyond += means * (2.0 * shared - means * (self.columns + constants @ constants))
        return np.abs(beyond) <= SAME * lengths

    def _contains_large(self, asked: IdentityMap | PrefixMap | AllRangesMap) -> Marks:
        """The same for all values, prefixes or ranges of many columns, where each basis vector is 0 or one number.

        A prefix lies in the span if no basis vector begins before its end and ends after it and every column up to it
        is in some vector; a range is the difference of two prefixes. Where this is not enough to tell, it does not.
        """
        if not sp.issparse(self.basis):
            return np.zeros(asked.rows, dtype=np.bool_)
        found: Any = sp.coo_array(self.basis)
        order = np.argsort(found.row)
        column, vector, weight = found.row[order], found.col[order], found.data[order]
        if isinstance(asked, IdentityMap):
            alone = np.zeros(self.columns, dtype=np.bool_)
            alone[column] = np.bincount(vector)[vector] == 1
            return alone
        _, first = np.unique(vector, return_index=True)
        last = len(vector) - 1 - np.unique(vector[::-1], return_index=True)[1]
        level = bool(np.allclose(weight, weight[first][np.unique(vector, return_inverse=True)[1]]))
        cut = np.zeros(self.columns + 1, dtype=np.int64)
        np.add.at(cut, column[first], 1)
        np.add.at(cut, column[last], -1)
        covered = np.zeros(self.columns, dtype=np.bool_)
        covered[column] = level
        told = (np.cumsum(cut)[:-1] == 0) & np.logical_and.accumulate(covered)
        if isinstance(asked, PrefixMap):
            return told
        begins, ends = asked.ends
        return np.concatenate([[True], told])[begins] & told[ends]

    def vectors(self) -> Array | None:
        """An orthonormal basis as dense rows; None where the space is too large for one."""
        if self.full:
            return np.eye(self.columns) if self.columns <= LARGEST_DECOMPOSED else None
        if self.basis is None or self.basis.shape[1] * self.columns > LARGEST_DENSE:
            return None
        return _dense(self.basis).T


def is_constant(asked: LinearMap) -> Marks:
    """For each row of a map whether all its entries are the same."""
    if isinstance(asked, SumMap):
        return np.ones(asked.rows, dtype=np.bool_)
    sums, squares = _row_sums(asked), _row_sums(asked.squared())
    return np.abs(asked.columns * squares - sums**2) <= SAME * asked.columns * squares


def has_no_mean(asked: LinearMap) -> Marks:
    """For each row of a map whether its entries sum to zero."""
    return np.abs(_row_sums(asked)) <= 1e-9 * np.sqrt(asked.columns * _row_sums(asked.squared()))


def alike(maps: list[LinearMap], columns: int) -> NDArray[np.intp]:
    """The group of each column; two are in one group if they are the same in every one of the maps."""
    groups = np.zeros(columns, dtype=np.intp)
    for each in maps:
        own = _columns_alike(each)
        _, groups = np.unique(groups * columns + own, return_inverse=True)
        if groups.max() == columns - 1:
            break
    return groups


def _columns_alike(each: LinearMap) -> NDArray[np.intp]:
    if isinstance(each, IdentityMap | PrefixMap | AllRangesMap):
        return np.arange(each.columns)
    if isinstance(each, SumMap):
        return np.zeros(each.columns, dtype=np.intp)
    # Columns that differ give different sums of rows with fixed irregular weights, but for chances of 2^-50.
    weights = np.sqrt(2.0) * np.arange(1, each.rows + 1)
    told = np.stack([np.asarray(each.adjoint(np.sin(weights * k), 0), dtype=np.float64) for k in (1.0, np.e)])
    scale = np.abs(told).max(axis=1, keepdims=True, initial=0.0)
    rounded = np.round(told / np.where(scale > 0, scale, 1.0), 10) + 0.0
    return np.unique(rounded, axis=1, return_inverse=True)[1].ravel()


def _of_sparse(matrix: Any) -> RowSpace | None:
    """The span of sparse rows that hold every column by itself, or that are disjoint; else None."""
    matrix = matrix[np.diff(matrix.indptr) > 0]
    rows, columns = matrix.shape
    single = np.diff(matrix.indptr) == 1
    if len(np.unique(matrix.indices[matrix.indptr[:-1][single]])) == columns:
        return RowSpace.everything(columns)
    if rows == 0 or np.bincount(matrix.indices, minlength=columns).max() > 1:
        return None
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    return RowSpace(columns, basis=sp.csr_array((sp.diags_array(1.0 / lengths) @ matrix).T))


def _written_out(asked: LinearMap) -> Any:
    """The rows as a sparse or a dense matrix, or None where they are too many."""
    if isinstance(asked, IdentityMap):
        return sp.eye_array(asked.columns, format="csr")
    if isinstance(asked, SparseMap):
        return sp.csr_array(asked.matrix)
    return asked.dense() if asked.rows * asked.columns <= LARGEST_DENSE else None


def _row_lengths(matrix: Any) -> Array:
    """The squared length of each row."""
    squares = matrix.multiply(matrix) if sp.issparse(matrix) else matrix**2
    return np.asarray(squares.sum(axis=1), dtype=np.float64).ravel()


def _dense(matrix: Any) -> Array:
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64)


def _row_sums(asked: LinearMap) -> Array:
    return np.asarray(asked.apply(np.ones(asked.columns), 0), dtype=np.float64)


# ----------------------------------------------------------------------------------------------------------------------
# Queries factor by factor: which of their rows vary, and which lie in the span of others.


MOST_COLUMNS = 400
"""Measurements are put together by linear algebra in up to so many dimensions, which takes a few hundredths of a
second."""


@dataclass(frozen=True, eq=False)
class KnownQuery:
    """One measured query: what it determines of each attribute that it tells apart."""

    query: Query
    spaces: dict[str, RowSpace]
    """By attribute, or by those of a joint factor."""
    linked: tuple[str, ...]
    """The attributes that it tells apart, by themselves or together."""
    determines: bool = True
    """False of what was looked at without a number for each answer."""
    released: Marks | None = None
    """Which answers were released, where some were withheld."""


class QueryAxes:
    """The factors of a query by their names, what their rows tell apart, and products over them."""

    def __init__(self, bound: BoundQuery) -> None:
        self.shape = bound.shape
        self.maps = dict(zip(bound.axis_names, bound.maps, strict=True))
        self.attributes = dict(zip(bound.axis_names, bound.groups, strict=True))
        self.varies = {name: ~is_constant(each) for name, each in self.maps.items()}
        self.has_mean = {name: ~has_no_mean(each) for name, each in self.maps.items()}
        self.parts = [
            (key, name, each) for key, names in self.attributes.items() for name, each in _parts(names, self.maps[key])
        ]
        """For each attribute, its factor's name and its map; of a joint factor, what each row has of that attribute."""
        self._place = {name: place for place, name in enumerate(self.maps)}

    def all_of(self, key: str, marks: Marks) -> Marks:
        """For each row of a factor whether all the marks are true that an attribute's part has for it."""
        return np.asarray(marks.reshape(self.maps[key].rows, -1).all(axis=1))

    def product(self, marks: dict[str, Marks]) -> Marks:
        """For each answer whether the marks of all its rows are true; attributes without marks have no say."""
        found = np.ones(self.shape, dtype=np.bool_)
        for name, own in marks.items():
            shape = [1] * len(self.shape)
            shape[self._place[name]] = -1
            found &= own.reshape(shape)
        return found


def rows_within(known: KnownQuery, axes: QueryAxes, name: str) -> Marks:
    space = known.spaces.get(name)
    return ~axes.varies[name] if space is None else space.contains(axes.maps[name])


def within_stack(domain: Domain, names: Sequence[str], usable: Sequence[KnownQuery], axes: QueryAxes) -> Marks | None:
    """Which answers lie in the span of all these queries over some attributes; None where that is too large.

    Each attribute is first written in an orthonormal basis of the rows, known or asked for, that occur for it.
    """
    coordinates: dict[str, NDArray[np.float64]] = {}
    for name in names:
        spaces = [known.spaces[name] for known in usable if name in known.spaces]
        own = RowSpace.of(axes.maps[name]) if name in axes.maps else RowSpace.constants(domain[name].size)
        vectors = [each.vectors() for each in (*spaces, own, RowSpace.constants(own.columns))]
        if any(each is None for each in vectors):
            return None
        joined = RowSpace.of_matrix(np.concatenate([each for each in vectors if each is not None])).vectors()
        if joined is None:
            return None
        coordinates[name] = joined.T
    columns = math.prod(each.shape[1] for each in coordinates.values())
    if columns > MOST_COLUMNS or not usable:
        return None
    stacked = []
    for known in usable:
        parts = [_vectors(known, n, len(coordinates[n])) for n in names]
        stacked.append(
            reduce(np.kron, [part @ coordinates[n] for n, part in zip(names, parts, strict=True)], np.eye(1))
        )
    space = RowSpace.of_matrix(np.concatenate(stacked))
    order = [*axes.maps, *(name for name in names if name not in axes.maps)]
    parts = [axes.maps[n].dense() if n in axes.maps else np.ones((1, len(coordinates[n]))) for n in order]
    answers = reduce(np.kron, [part @ coordinates[n] for n, part in zip(order, parts, strict=True)], np.eye(1))
    shape = [coordinates[n].shape[1] for n in order]
    turned = answers.reshape(len(answers), *shape).transpose(0, *(1 + order.index(n) for n in names))
    return space.contains_rows(turned.reshape(len(answers), -1)).reshape(axes.shape)


def _vectors(known: KnownQuery, name: str, size: int) -> NDArray[np.float64]:
    vectors = known.spaces[name].vectors() if name in known.spaces else None
    return np.ones((1, size)) if vectors is None else vectors


def adds_up_only(query: BoundQuery, marked: Marks) -> Marks:
    """Which answers add up marked counts alone, given marks for the query with its joint factors' values told apart."""
    others = ~marked.reshape([each.columns if isinstance(each, JointMap) else each.rows for each in query.maps])
    for axis, each in enumerate(query.maps):
        if isinstance(each, JointMap):
            others = each.squared().apply(others.astype(np.float64), axis) > 0
    return ~others.ravel()


def _parts(names: Sequence[str], each: LinearMap) -> list[tuple[str, LinearMap]]:
    """What a map has of each attribute: itself; of a joint one, a row for each row and combination of the others."""
    if not isinstance(each, JointMap):
        return [(names[0], each)]
    found: list[tuple[str, LinearMap]] = []
    entries = each.matrix.tocoo()
    codes = np.unravel_index(entries.col, each.sizes)
    for place, (name, size) in enumerate(zip(names, each.sizes, strict=True)):
        others = [*each.sizes[:place], *each.sizes[place + 1 :]]
        rest = np.ravel_multi_index((*codes[:place], *codes[place + 1 :]), others)
        rows = entries.row * math.prod(others) + rest
        shape = (each.rows * math.prod(others), size)
        found.append((name, SparseMap(sp.csr_array((entries.data, (rows, codes[place])), shape))))
    return found
