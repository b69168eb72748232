"""Queries factor by factor: which of their rows vary, and which lie in the span of others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery, Query
from consilience.kernels.linear_maps import JointMap, LinearMap, SparseMap
from consilience.kernels.row_spaces import RowSpace, has_no_mean, is_constant

Marks = NDArray[np.bool_]

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
