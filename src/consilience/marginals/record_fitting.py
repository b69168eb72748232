"""Records changed, one value at a time, until their tables are those of an account.

Records that were drawn along a tree of pairs have the pairs of the tree; all others follow only as far as dependence
passes along it. With t the tables that the account holds, scaled to the number of rows, and T(x) the same tables
counted from the records x, what is left is

    L(x) = Σ over tables and cells of d²,    d = T(x) − t.

A record that takes the value v in place of u in one attribute leaves one cell of each table with that attribute and
enters another. With d_u and d_v the differences there before,

    L after − L before = 2 Σ over those tables of (d_v − d_u + 1).

A sweep visits all records in random order and gives each attribute of each the value for which this is least, where it
is below 0. So L falls with every change, and no record changes without need: what the tree says about larger tables
stays. Combinations that the domain calls impossible are never entered, and left where one change does.

Cost: a sweep reads Σ over attributes of (values × tables with the attribute) numbers for each record. Work is limited
to `Settings.most_work` such numbers; more rows than that are visited in part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from consilience.kernels.compilation import announce
from consilience.kernels.rng import Generator
from consilience.marginals.table_stacks import TableStack

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Rule = Sequence[tuple[int, Sequence[int]]]
"""An impossible combination: codes of some attributes that no record has together."""

TINY = 1e-300


@dataclass(frozen=True)
class Settings:
    """What ends the sweeps."""

    least_gain: float = 0.01
    """The part of L by which a sweep has to lower it for another one."""
    most_sweeps: int = 60
    most_work: float = 2e10
    """Numbers read in all: about half a minute."""


DEFAULT = Settings()


class _Layout(NamedTuple):
    """The differences d, kept once for each attribute of each table, with that attribute along the last axis.

    So what a sweep reads of a table, all values of one attribute, lies side by side. A *copy* is a table so kept.
    """

    sizes: Integers
    copies: Integers
    """copies[a] … copies[a + 1] have attribute a along the last axis."""
    owners: Integers
    starts: Integers
    others: Integers
    """others[k] … others[k + 1] are the other attributes of copy k, with their strides and with their own copies."""
    other_attributes: Integers
    other_strides: Integers
    other_copies: Integers


class _Rules(NamedTuple):
    """Impossible combinations: for each rule its attributes, and which codes of them it names."""

    parts: Integers
    attributes: Integers
    named: NDArray[np.bool_]


def fit_records(
    codes: Integers,
    stack: TableStack,
    tables: Array,
    rng: Generator,
    *,
    impossible: Sequence[Rule] = (),
    settings: Settings = DEFAULT,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Change records, in place, toward the tables of a stack.

    >>> stack = TableStack((2, 2), [(0, 1)])
    >>> codes = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> fit_records(codes, stack, np.array([20.0, 0.0, 0.0, 20.0]), np.random.default_rng(0))
    >>> codes.tolist()
    [[0, 0], [1, 1], [0, 0], [1, 1]]
    """
    if not len(codes) or not stack.size:
        return
    announce(_sweep)
    (layout, differences), rules = _laid_out(stack, _excess(codes, stack, tables)), _ruled(impossible, max(stack.sizes))
    each = float(np.sum(np.diff(layout.copies) * layout.sizes))
    work, loss = 0.0, float(differences @ differences)
    for sweep in range(settings.most_sweeps):
        rows = int(min(len(codes), (settings.most_work - work) / max(each, 1.0)))
        if not rows:
            return
        _sweep(codes, rng.permutation(len(codes))[:rows], differences, layout, rules)
        work, before, loss = work + rows * each, loss, float(differences @ differences)
        if progress is not None:
            progress(sweep + 1, settings.most_sweeps)
        if before - loss <= settings.least_gain * before:
            return


def _excess(codes: Integers, stack: TableStack, tables: Array) -> Array:
    """d: the tables counted from the records, less those of the stack with as many rows each."""
    found = np.zeros(stack.size)
    for scope in stack.scopes:
        shape = tuple(stack.sizes[attribute] for attribute in scope)
        wanted = stack.table(tables, scope)
        cells = np.ravel_multi_index(tuple(codes[:, attribute] for attribute in scope), shape) if scope else 0
        counted = np.bincount(np.broadcast_to(cells, len(codes)), minlength=wanted.size).reshape(shape)
        stack.table(found, scope)[...] = counted - wanted * (len(codes) / max(float(wanted.sum()), TINY))
    return found


def _laid_out(stack: TableStack, excess: Array) -> tuple[_Layout, Array]:
    scopes = stack.scopes
    owned = [[scope for scope in scopes if attribute in scope] for attribute in range(len(stack.sizes))]
    number = {pair: k for k, pair in enumerate((a, scope) for a, each in enumerate(owned) for scope in each)}
    others = [[other for other in scope if other != owner] for owner, scope in number]
    kept = [np.moveaxis(stack.table(excess, scope), scope.index(owner), -1).ravel() for owner, scope in number]
    strides = [
        int(np.prod([stack.sizes[each] for each in (*rest[place + 1 :], owner)]))
        for (owner, _), rest in zip(number, others, strict=True)
        for place in range(len(rest))
    ]
    siblings = [number[other, scope] for (_, scope), rest in zip(number, others, strict=True) for other in rest]
    layout = _Layout(
        sizes=np.array(stack.sizes, dtype=np.int64),
        copies=_running([len(each) for each in owned]),
        owners=np.array([owner for owner, _ in number], dtype=np.int64),
        starts=_running([each.size for each in kept])[:-1],
        others=_running([len(each) for each in others]),
        other_attributes=np.array([other for rest in others for other in rest], dtype=np.int64),
        other_strides=np.array(strides, dtype=np.int64),
        other_copies=np.array(siblings, dtype=np.int64),
    )
    return layout, np.concatenate([*kept, np.zeros(0)])


def _ruled(impossible: Sequence[Rule], largest: int) -> _Rules:
    parts = [part for rule in impossible for part in rule]
    named = np.zeros((len(parts), largest), dtype=np.bool_)
    for row, (_, values) in enumerate(parts):
        named[row, list(values)] = True
    attributes = np.array([attribute for attribute, _ in parts], dtype=np.int64)
    return _Rules(_running([len(rule) for rule in impossible]), attributes, named)


def _running(counts: list[int]) -> Integers:
    return np.concatenate([[0], np.cumsum(np.array(counts, dtype=np.int64))]).astype(np.int64)


@njit(nogil=True, cache=True)
def _sweep(
    codes: Integers, order: Integers, differences: Array, layout: _Layout, rules: _Rules
) -> None:  # pragma: no cover - compiled
    sums = np.empty(layout.sizes.max())
    for record in order:
        row = codes[record]
        for attribute in range(layout.sizes.size):
            first, last = layout.copies[attribute], layout.copies[attribute + 1]
            size, value = layout.sizes[attribute], row[attribute]
            if size < 2:
                continue
            sums[:size] = 0.0
            for copy in range(first, last):
                corner = _corner(row, copy, layout)
                along = differences[corner : corner + size]
                for other in range(size):
                    sums[other] += along[other]
            chosen = _least(row, attribute, sums[:size], sums[value] - (last - first), rules)
            if chosen != value:
                _count(row, attribute, -1.0, differences, layout)
                row[attribute] = chosen
                _count(row, attribute, 1.0, differences, layout)


@njit(nogil=True, cache=True)
def _corner(row: Integers, copy: int, layout: _Layout) -> int:  # pragma: no cover - compiled
    """Where the values of a copy's own attribute begin, given those of its other attributes."""
    corner = layout.starts[copy]
    for k in range(layout.others[copy], layout.others[copy + 1]):
        corner += row[layout.other_attributes[k]] * layout.other_strides[k]
    return corner


@njit(nogil=True, cache=True)
def _count(
    row: Integers, attribute: int, amount: float, differences: Array, layout: _Layout
) -> None:  # pragma: no cover - compiled
    """Add so many of a record to all copies of the tables with an attribute."""
    for copy in range(layout.copies[attribute], layout.copies[attribute + 1]):
        differences[_corner(row, copy, layout) + row[attribute]] += amount
        for k in range(layout.others[copy], layout.others[copy + 1]):
            other = layout.other_copies[k]
            differences[_corner(row, other, layout) + row[layout.owners[other]]] += amount


@njit(nogil=True, cache=True)
def _least(
    row: Integers, attribute: int, sums: Array, limit: float, rules: _Rules
) -> int:  # pragma: no cover - compiled
    """The possible value with the least sum below the limit; the record's own where there is none."""
    value = row[attribute]
    if _is_broken(row, attribute, rules):
        limit = np.inf
    sums[value] = np.inf
    while True:
        best = int(np.argmin(sums))
        if not sums[best] < limit:
            return value
        row[attribute] = best
        broken = _is_broken(row, attribute, rules)
        row[attribute] = value
        if not broken:
            return best
        sums[best] = np.inf


@njit(nogil=True, cache=True)
def _is_broken(row: Integers, attribute: int, rules: _Rules) -> bool:  # pragma: no cover - compiled
    """Whether a rule that names the attribute calls the record impossible."""
    for rule in range(rules.parts.size - 1):
        concerned, broken = False, True
        for part in range(rules.parts[rule], rules.parts[rule + 1]):
            concerned = concerned or rules.attributes[part] == attribute
            broken = broken and rules.named[part, row[rules.attributes[part]]]
        if concerned and broken:
            return True
    return False
