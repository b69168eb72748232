"""A graphical model as plain data, and the log-probability of records under it.

With attributes 0 … d − 1 of given sizes, scopes s (tuples of attributes), tables of log-potentials θ_s and 0/1 tables
a_r of what is possible,

    p(x) = (1/Z) Π_s exp θ_s(x_s) Π_r a_r(x_r) Π_u 1/n_u ,

where u runs over the attributes that are in no scope: they are uniform and independent of all others. A log-potential
of −∞ also says that a cell is impossible. Counts are p times `total`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.marginals.table_stacks import Scope
from consilience.models.tables import TableLayout, cells_of, checked_scopes, checked_sizes

Array = NDArray[np.float64]

RECORDS_AT_ONCE = 1 << 16
"""Records whose cell numbers are held at a time: half a megabyte, which stays in the cache."""


@dataclass(frozen=True, eq=False)
class GraphicalModel:
    """Sizes, scopes and log-potentials, each table with its axes in the order its scope names."""

    sizes: tuple[int, ...]
    scopes: tuple[Scope, ...]
    potentials: tuple[Array, ...]
    total: float = 1.0
    allowed: tuple[tuple[Scope, NDArray[np.bool_]], ...] = field(default=())

    @staticmethod
    def of(
        sizes: Sequence[int],
        scopes: Sequence[Sequence[int]],
        potentials: Sequence[ArrayLike],
        *,
        total: float = 1.0,
        allowed: Sequence[tuple[Sequence[int], ArrayLike]] = (),
    ) -> "GraphicalModel":
        """The model of these tables, which are refused when they do not fit their scopes.

        >>> GraphicalModel.of([2, 3], [(0, 1)], [[[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]]]).scopes
        ((0, 1),)
        """
        sizes = checked_sizes(sizes)
        if len(scopes) != len(potentials):
            raise DeclarationError(f"there are {len(scopes)} scopes and {len(potentials)} tables; give one for each")
        if not (math.isfinite(total) and total >= 0):
            raise DeclarationError(f"the total is {total!r}; give a finite number from 0 up")
        named = checked_scopes(sizes, scopes)
        tables = tuple(_potential(table, scope, sizes) for table, scope in zip(potentials, named, strict=True))
        places = checked_scopes(sizes, [scope for scope, _ in allowed])
        possible = [
            (place, np.asarray(table, dtype=np.bool_)) for place, (_, table) in zip(places, allowed, strict=True)
        ]
        for scope, table in possible:
            _check_shape(table.shape, scope, sizes)
        return GraphicalModel(sizes, named, tables, float(total), tuple(possible))

    @property
    def all_scopes(self) -> tuple[Scope, ...]:
        """The scopes of the potentials and then those of what is possible: a junction tree must cover them all."""
        return (*self.scopes, *(scope for scope, _ in self.allowed))

    def logs(self) -> Iterator[tuple[Scope, Array]]:
        """Every table in logarithms, those of what is possible as 0 and −∞."""
        yield from zip(self.scopes, self.potentials, strict=True)
        for scope, table in self.allowed:
            yield scope, np.where(table, 0.0, -np.inf)

    @property
    def unmodelled(self) -> tuple[int, ...]:
        """The attributes in no scope."""
        modelled = {attribute for scope in self.all_scopes for attribute in scope}
        return tuple(attribute for attribute in range(len(self.sizes)) if attribute not in modelled)


def _check_shape(shape: tuple[int, ...], scope: Scope, sizes: tuple[int, ...]) -> None:
    expected = tuple(sizes[attribute] for attribute in scope)
    if shape != expected:
        raise DeclarationError(f"the table of scope {scope} has shape {shape}; its attributes have sizes {expected}")


def _potential(table: ArrayLike, scope: Scope, sizes: tuple[int, ...]) -> Array:
    values = np.asarray(table, dtype=np.float64)
    _check_shape(values.shape, scope, sizes)
    if np.isnan(values).any() or (values == np.inf).any():
        raise DeclarationError(
            f"the potentials of scope {scope} hold NaN or +∞; give finite log-potentials, or −∞ for impossible cells"
        )
    return values


def log_probabilities(model: GraphicalModel, log_partition: float, records: NDArray[np.integer]) -> Array:
    """log p(x) for each record, a row of codes with one column for each attribute; −∞ for impossible ones.

    log p(x) = Σ_s θ_s(x_s) − log Z − Σ_u log n_u, with log Z = log Σ_x Π_s exp θ_s(x_s) over the modelled attributes.
    """
    codes = _checked(records, model.sizes)
    found = np.full(len(codes), -log_partition - sum(math.log(model.sizes[each]) for each in model.unmodelled))
    tables = [(scope, np.ascontiguousarray(table).ravel()) for scope, table in model.logs()]
    for first in range(0, len(codes), RECORDS_AT_ONCE):
        some = np.ascontiguousarray(codes[first : first + RECORDS_AT_ONCE].T, dtype=np.intp)
        for scope, table in tables:
            cells = np.zeros(some.shape[1], dtype=np.intp)
            for attribute in scope:
                cells *= model.sizes[attribute]
                cells += some[attribute]
            found[first : first + RECORDS_AT_ONCE] += table[cells]
    return found


def _checked(records: NDArray[np.integer], sizes: tuple[int, ...]) -> NDArray[np.integer]:
    codes = np.asarray(records)
    if codes.ndim != 2 or codes.shape[1] != len(sizes) or not np.issubdtype(codes.dtype, np.integer):
        raise DeclarationError(
            f"the records are an array of {codes.dtype} with shape {codes.shape}; give whole codes in {len(sizes)} "
            "columns, one for each attribute"
        )
    if len(codes):
        low, high = codes.min(axis=0), codes.max(axis=0)
        for attribute, size in enumerate(sizes):
            if low[attribute] < 0 or high[attribute] >= size:
                raise DeclarationError(
                    f"the codes of attribute {attribute} run from {low[attribute]} to {high[attribute]}; it has "
                    f"{size} values: give codes from 0 to {size - 1}"
                )
    return codes


# ----------------------------------------------------------------------------------------------------------------------
# The model in which all attributes are independent, with given one-way counts: a centre to start fits from.


def independent_potentials(layout: TableLayout, shares: Mapping[int, Array]) -> Array:
    """Flat potentials of Π_a share_a(x_a); attributes without shares are uniform. Shares are positive.

    >>> layout = TableLayout([2, 2], [(0,), (0, 1)])
    >>> np.exp(independent_potentials(layout, {0: np.array([0.25, 0.75]), 1: np.array([0.5, 0.5])})).round(2)
    array([0.25, 0.75, 0.5 , 0.5 , 0.5 , 0.5 ])
    """
    flat = np.zeros(layout.size)
    placed: set[int] = set()
    for k, axes in enumerate(layout.axes):
        table = layout.view(flat, k)
        for place, attribute in enumerate(axes):
            if attribute not in placed and attribute in shares:
                placed.add(attribute)
                shape = [1] * len(axes)
                shape[place] = -1
                table += np.log(shares[attribute]).reshape(shape)
    return flat


def independent_marginals(layout: TableLayout, shares: Mapping[int, Array], total: float) -> Array:
    """Flat marginals of the same model.

    >>> layout = TableLayout([2, 2], [(0,), (0, 1)])
    >>> independent_marginals(layout, {0: np.array([0.25, 0.75])}, 8.0)
    array([2., 6., 1., 1., 3., 3.])
    """
    flat = np.full(layout.size, total)
    for k, axes in enumerate(layout.axes):
        table = layout.view(flat, k)
        for place, attribute in enumerate(axes):
            size = layout.sizes[attribute]
            shape = [1] * len(axes)
            shape[place] = size
            table *= shares[attribute].reshape(shape) if attribute in shares else 1.0 / size
    return flat


# ----------------------------------------------------------------------------------------------------------------------
# Potentials of one model as potentials of another that has room for them, so that a fit need not begin anew.


def carry_potentials(old: TableLayout, potentials: Array, new: TableLayout) -> Array:
    """The same model in a new layout: each table goes to the scope of its attributes, or the smallest with all.

    >>> old, new = TableLayout([2, 2], [(0,)]), TableLayout([2, 2], [(0, 1)])
    >>> new.unpack(carry_potentials(old, np.array([1.0, 2.0]), new))
    [array([[1., 1.],
           [2., 2.]])]
    """
    carried = np.zeros(new.size)
    for place, axes in enumerate(old.axes):
        table = old.view(potentials, place)
        home = _home(old, place, new)
        order = new.axes[home]
        # Both layouts keep axes in one order, so that a table fits into a larger one without being turned.
        shape = [new.sizes[attribute] if attribute in axes else 1 for attribute in order]
        view = new.view(carried, home)
        view += table.reshape(shape)
    return carried


def _home(old: TableLayout, place: int, new: TableLayout) -> int:
    scope = set(old.axes[place])
    if any(attribute >= len(new.sizes) or new.sizes[attribute] != old.sizes[attribute] for attribute in scope):
        raise DeclarationError(
            f"the attributes {old.scopes[place]} have other sizes in the new model: carry potentials between models of "
            "the same attributes"
        )
    homes = [k for k, axes in enumerate(new.axes) if scope <= set(axes)]
    if not homes:
        raise DeclarationError(
            f"no scope of the new model contains the attributes {old.scopes[place]} of an old one: add such a scope"
        )
    return min(homes, key=lambda k: cells_of(new.sizes, new.axes[k]))
