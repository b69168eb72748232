"""The tables of a model: their places in one vector, and tables that neither overflow nor underflow.

The attributes of a model are numbered 0 … d − 1 and have sizes n₀ … n_{d−1}. A *scope* is a tuple of attributes, and a
model has one table for each of its scopes. Every table is stored with its axes by ascending size, ties by number.
Then any table is a projection of one order of axes, and along the last axis of any loop over cells each table either
moves by one place or stays where it is: nothing is ever transposed.
"""

import math
import string
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import LinearMap
from consilience.marginals.table_stacks import Scope, stored_order, summed


def checked_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes as plain integers, each at least one."""
    for attribute, size in enumerate(sizes):
        if int(size) != size or size < 1:
            raise DeclarationError(
                f"attribute {attribute} has size {size}; an attribute has at least one value: give sizes of 1 or more"
            )
    return tuple(int(size) for size in sizes)


def checked_scopes(sizes: Sequence[int], scopes: Sequence[Sequence[int]]) -> tuple[Scope, ...]:
    """The scopes as tuples of plain integers, each naming known attributes at most once."""
    checked = []
    for place, scope in enumerate(scopes):
        for attribute in scope:
            if int(attribute) != attribute or not 0 <= attribute < len(sizes):
                raise DeclarationError(
                    f"scope {place} is {tuple(scope)} and names attribute {attribute}; the attributes are 0 to "
                    f"{len(sizes) - 1}: give the sizes of all attributes, or drop the scope"
                )
        if len(set(scope)) < len(scope):
            raise DeclarationError(f"scope {place} is {tuple(scope)}, which repeats an attribute: name each one once")
        checked.append(tuple(int(attribute) for attribute in scope))
    return tuple(checked)


def cells_of(sizes: Sequence[int], attributes: Sequence[int]) -> int:
    """How many cells a table over these attributes has: an exact integer, however large.

    >>> cells_of([2, 3, 5], (0, 2))
    10
    """
    return math.prod(sizes[attribute] for attribute in attributes)


class TableLayout:
    """The tables of all scopes one after another in one flat vector, each with its axes in stored order.

    >>> layout = TableLayout([3, 2], [(0, 1), (1,)])
    >>> layout.axes, layout.size
    (((1, 0), (1,)), 8)
    >>> layout.pack([[[1, 2], [3, 4], [5, 6]], [7, 8]])
    array([1., 3., 5., 2., 4., 6., 7., 8.])
    """

    def __init__(self, sizes: Sequence[int], scopes: Sequence[Sequence[int]]) -> None:
        self.sizes = checked_sizes(sizes)
        self.scopes = checked_scopes(self.sizes, scopes)
        self._refuse_repeated_scopes()
        self.axes: tuple[Scope, ...] = tuple(stored_order(self.sizes, scope) for scope in self.scopes)
        """The attributes of each scope in the order in which its table is stored."""
        ends = np.cumsum([0, *(cells_of(self.sizes, scope) for scope in self.scopes)])
        self.offsets: NDArray[np.int64] = ends.astype(np.int64)
        """Where each table begins, and after the last one where it ends."""
        self.size = int(ends[-1])
        """The length of the flat vector."""

    def _refuse_repeated_scopes(self) -> None:
        seen: dict[frozenset[int], int] = {}
        for place, scope in enumerate(self.scopes):
            first = seen.setdefault(frozenset(scope), place)
            if first != place:
                raise DeclarationError(
                    f"scopes {first} and {place} are {self.scopes[first]} and {scope}, the same attributes: a model "
                    "has one table for each set of attributes, so add the two tables and give the scope once"
                )

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where each table lies in the flat vector."""
        ends = self.offsets.tolist()
        return tuple(slice(begin, end) for begin, end in pairwise(ends))

    @cached_property
    def _stored_shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self.sizes[attribute] for attribute in axes) for axes in self.axes)

    @cached_property
    def _into_storage(self) -> tuple[tuple[int, ...], ...]:
        """For each scope, the axes of its own order by their place in storage."""
        return tuple(
            tuple(scope.index(attribute) for attribute in axes)
            for scope, axes in zip(self.scopes, self.axes, strict=True)
        )

    def shape(self, k: int) -> tuple[int, ...]:
        """The shape of table k with its axes in the order of its scope."""
        return tuple(self.sizes[attribute] for attribute in self.scopes[k])

    def pack(self, tables: Sequence[ArrayLike]) -> NDArray[np.float64]:
        """The flat vector of these tables, whose axes (or flat cells) are in the order of their scopes."""
        if len(tables) != len(self.scopes):
            raise DeclarationError(f"{len(tables)} tables for {len(self.scopes)} scopes: give one table for each scope")
        flat = np.empty(self.size)
        for k, table in enumerate(tables):
            values = np.asarray(table, dtype=np.float64)
            if values.shape != self.shape(k) and values.shape != (math.prod(self.shape(k)),):
                raise DeclarationError(
                    f"table {k} has shape {values.shape}; its scope {self.scopes[k]} has shape {self.shape(k)}: "
                    "give the table with its axes in the order of the scope"
                )
            self.view(flat, k)[...] = values.reshape(self.shape(k)).transpose(self._into_storage[k])
        return flat

    def unpack(self, flat: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """The tables as arrays of their own, with axes in the order of their scopes."""
        return [np.ascontiguousarray(self.unpack_one(flat, k)) for k in range(len(self.scopes))]

    def unpack_one(self, flat: NDArray[np.float64], k: int) -> NDArray[np.float64]:
        """Table k of the flat vector with axes in the order of its scope, without a copy."""
        return self.view(flat, k).transpose(np.argsort(self._into_storage[k])).reshape(self.shape(k))

    def view(self, flat: NDArray[np.float64], k: int) -> NDArray[np.float64]:
        """Table k of the flat vector in stored order, without a copy."""
        return flat[self.slices[k]].reshape(self._stored_shapes[k])


# ----------------------------------------------------------------------------------------------------------------------
# Tables over named axes that neither overflow nor underflow, and their products and sums.
#
# A table stands for exp(log_scale) · values, where the largest magnitude among the values is 1. Its *span* is the
# logarithm of the largest over the smallest magnitude that is not 0. Products of tables whose spans sum to less than
# `LINEAR_SPAN` are formed in plain floating point, in which no factor can vanish; wider ones in logarithms, with signs
# beside them where there are negative values:
#
#     log |Σ_x σ(x) e^{L(x)}| = m + log |Σ_x σ(x) e^{L(x) − m}| ,   m = max_x L(x).
#
# A zero stays an exact zero in both.


Array = NDArray[np.float64]
Axes = tuple[int, ...]

LINEAR_SPAN = 600.0
"""Products stay in plain floating point while no cell can fall below e^−600; the least normal double is e^−708."""

SMALL_MATRICES = 64
"""Batches of matrix products with fewer cells each are summed by one loop instead."""


@dataclass(frozen=True, eq=False)
class ScaledTable:
    """exp(log_scale) · values over the axes, or exp(log_scale + values) · signs where the span is wide."""

    axes: Axes
    values: Array
    log_scale: float
    span: float
    in_logs: bool = False
    signs: Array | None = None

    @staticmethod
    def of_logs(axes: Axes, logs: Array, signs: Array | None = None, log_scale: float = 0.0) -> "ScaledTable":
        """The table of exp(log_scale + logs) · signs; −∞ stands for an exact zero."""
        finite = logs > -np.inf
        if not finite.any():
            return ScaledTable(axes, np.zeros(logs.shape), 0.0, 0.0)
        peak = float(logs.max())
        span = peak - float(logs.min(initial=peak, where=finite))
        shifted = logs - peak
        if span >= LINEAR_SPAN:
            return ScaledTable(axes, shifted, log_scale + peak, span, True, signs)
        values = np.exp(shifted)
        return ScaledTable(axes, values if signs is None else values * signs, log_scale + peak, span)

    @staticmethod
    def of_values(axes: Axes, values: Array, log_scale: float = 0.0) -> "ScaledTable":
        """The table of exp(log_scale) · values."""
        high, low = float(values.max()), float(values.min())
        peak = max(high, -low)
        if peak == 0.0:
            return ScaledTable(axes, np.zeros(values.shape), 0.0, 0.0)
        scaled = values / peak
        if low <= 0.0:
            magnitudes = np.abs(scaled)
            low = float(magnitudes.min(initial=1.0, where=magnitudes > 0.0)) * peak
        span = math.log(peak) - math.log(low)
        return ScaledTable(axes, scaled, log_scale + math.log(peak), span)

    @property
    def zero(self) -> bool:
        """Whether every cell is 0."""
        return not self.in_logs and self.span == 0.0 and not self.values.any()

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def logs(self) -> tuple[Array, Array | None]:
        """log |values|, and the signs where some value is negative; the scale is left out."""
        if self.in_logs:
            return self.values, self.signs
        with np.errstate(divide="ignore"):
            magnitudes = np.asarray(np.log(np.abs(self.values)))
        return magnitudes, np.sign(self.values) if (self.values < 0.0).any() else None

    def linear(self, log_scale: float = 0.0) -> Array:
        """The numbers over exp(log_scale), in plain floating point: what is too small becomes 0."""
        if not self.in_logs:
            return np.asarray(self.values * math.exp(self.log_scale - log_scale))
        values = np.exp(self.values + (self.log_scale - log_scale))
        return values if self.signs is None else values * self.signs

    def at(self, places: Mapping[int, slice]) -> "ScaledTable":
        """The part of the table where some axes run over slices only; its values may all be below 1."""
        chosen = tuple(places.get(axis, slice(None)) for axis in self.axes)
        signs = None if self.signs is None else self.signs[chosen]
        return ScaledTable(self.axes, self.values[chosen], self.log_scale, self.span, self.in_logs, signs)


def contract(tables: Sequence[ScaledTable], kept: Axes) -> ScaledTable:
    """The product of the tables, summed over every axis that is not kept; its axes are in the order given.

    Every kept axis belongs to some table.
    """
    if sum(table.span for table in tables) < LINEAR_SPAN and not any(table.in_logs for table in tables):
        return _contract_linear(tables, kept)
    return _contract_logs(tables, kept)


def apply_map(table: ScaledTable, axis: int, linear_map: LinearMap, image: int) -> ScaledTable:
    """The table with a linear map carried out along one axis, which is named `image` afterwards."""
    place = table.axes.index(axis)
    axes = (*table.axes[:place], image, *table.axes[place + 1 :])
    if not table.in_logs:
        values = np.asarray(linear_map.apply(table.values, place), dtype=np.float64)
        return ScaledTable.of_values(axes, values, table.log_scale)
    rest = tuple(each for each in table.axes if each != axis)
    rows = [contract([table, ScaledTable.of_values((axis,), row)], rest) for row in linear_map.dense()]
    scale = max((row.log_scale for row in rows if not row.zero), default=0.0)
    logs, signs = zip(*(row.logs() for row in rows), strict=True)
    shifted = [log + (row.log_scale - scale) for log, row in zip(logs, rows, strict=True)]
    signed = None
    if any(sign is not None for sign in signs):
        signed = np.stack([np.ones_like(shifted[0]) if sign is None else sign for sign in signs], axis=place)
    return ScaledTable.of_logs(axes, np.stack(shifted, axis=place), signed, scale)


def _contract_linear(tables: Sequence[ScaledTable], kept: Axes) -> ScaledTable:
    """Pairs are multiplied from the smallest tables up, and an axis is summed as soon as no other table has it."""
    left = sorted(((table.axes, table.values) for table in tables), key=lambda each: each[1].size)
    while len(left) > 1:
        (axes_a, a), (axes_b, b), *others = left
        axes = _next_order({*axes_a, *axes_b}, [axes for axes, _ in others], kept) if others else kept
        product = _pair_product(a, axes_a, b, axes_b, axes)
        # The running product goes first again: it shares axes with what follows more often than two fresh tables do.
        left = [(axes, product), *others]
    [(axes, values)] = left
    if axes != kept:
        values = summed(values, axes, kept)
    return ScaledTable.of_values(kept, np.asarray(values), math.fsum(table.log_scale for table in tables))


def _next_order(present: Collection[int], others: Sequence[Axes], kept: Axes) -> Axes:
    """The axes of a running product that are still needed, ordered so that the next matrix product copies nothing."""
    needed, later = set(kept).union(*others), set(kept).union(*others[1:])

    def place(axis: int) -> int:
        if axis not in others[0]:
            return 1
        return 0 if axis in later else 2

    return tuple(sorted((axis for axis in present if axis in needed), key=lambda axis: (place(axis), axis)))


def _pair_product(a: Array, axes_a: Axes, b: Array, axes_b: Axes, kept: Axes) -> Array:
    """Σ a · b over the axes that are not kept, by matrix products where those are large enough to gain."""
    a, axes_a = _summed(a, axes_a, {*axes_b, *kept})
    b, axes_b = _summed(b, axes_b, {*axes_a, *kept})
    shared = [axis for axis in axes_a if axis in axes_b]
    contracted = [axis for axis in shared if axis not in kept]
    if not contracted:
        return np.multiply(_aligned(a, axes_a, kept), _aligned(b, axes_b, kept), order="C")
    batch = [axis for axis in shared if axis in kept]
    only_a = [axis for axis in axes_a if axis not in axes_b]
    only_b = [axis for axis in axes_b if axis not in axes_a]
    sizes = {**dict(zip(axes_a, a.shape, strict=True)), **dict(zip(axes_b, b.shape, strict=True))}
    count = {name: math.prod(sizes[axis] for axis in axes) for name, axes in
             {"batch": batch, "a": only_a, "b": only_b, "sum": contracted}.items()}  # fmt: skip
    if count["batch"] > 1 and count["a"] * count["b"] * count["sum"] < SMALL_MATRICES:
        letters = dict(zip(sizes, string.ascii_letters, strict=False))
        of_a, of_b, of_kept = ("".join(letters[axis] for axis in axes) for axes in (axes_a, axes_b, kept))
        return np.einsum(f"{of_a},{of_b}->{of_kept}", a, b)
    left = a.transpose([axes_a.index(axis) for axis in (*batch, *only_a, *contracted)])
    right = b.transpose([axes_b.index(axis) for axis in (*batch, *contracted, *only_b)])
    product = np.matmul(
        left.reshape(count["batch"], count["a"], count["sum"]), right.reshape(count["batch"], count["sum"], count["b"])
    )
    made = (*batch, *only_a, *only_b)
    return product.reshape([sizes[axis] for axis in made]).transpose([made.index(axis) for axis in kept])


def _summed(values: Array, axes: Axes, needed: Collection[int]) -> tuple[Array, Axes]:
    """The values summed over the axes that nobody else needs."""
    away = tuple(place for place, axis in enumerate(axes) if axis not in needed)
    return (values.sum(axis=away), tuple(axis for axis in axes if axis in needed)) if away else (values, axes)


def _aligned(values: Array, axes: Axes, target: Axes) -> Array:
    """The values with one axis for each of the target's, of length 1 where they have none."""
    present = [axis for axis in target if axis in axes]
    moved = values.transpose([axes.index(axis) for axis in present])
    return moved[tuple(slice(None) if axis in axes else np.newaxis for axis in target)]


def _contract_logs(tables: Sequence[ScaledTable], kept: Axes) -> ScaledTable:
    """The whole product is formed in logarithms, and summed below its largest term in each kept cell."""
    union = (*kept, *(axis for axis in dict.fromkeys(a for t in tables for a in t.axes) if axis not in kept))
    sizes = {axis: size for table in tables for axis, size in zip(table.axes, table.values.shape, strict=True)}
    logs, signs = np.zeros([sizes[axis] for axis in union]), None
    for table in tables:
        more, turned = table.logs()
        logs += _aligned(more, table.axes, union)
        if turned is not None:
            signs = _aligned(turned, table.axes, union) * (1.0 if signs is None else signs)
    scale = math.fsum(table.log_scale for table in tables)
    away = tuple(range(len(kept), len(union)))
    if not away:
        return ScaledTable.of_logs(kept, logs, None if signs is None else np.broadcast_to(signs, logs.shape), scale)
    peak = logs.max(axis=away, keepdims=True)
    peak[peak == -np.inf] = 0.0
    logs -= peak
    np.exp(logs, out=logs)
    sums = (logs if signs is None else logs * signs).sum(axis=away)
    with np.errstate(divide="ignore"):
        found = np.log(np.abs(sums)) + peak.reshape(sums.shape)
    return ScaledTable.of_logs(kept, found, np.sign(sums) if signs is not None else None, scale)
