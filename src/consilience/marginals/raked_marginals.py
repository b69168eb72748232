"""Marginals with a few negative counts made non-negative and consistent, from the small ones up.

Negative counts are cut off, and each table is then fitted proportionally to the tables with one attribute less, which
are right by then (Deming and Stephan 1940). What is already right stays as it is. Tables of two attributes are
completed exactly; larger ones get as near as the passes go, and `violation` says how much is missing.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.decomposition import Decomposition
from consilience.marginals.proportional_fitting import Margin, greatest_entropy
from consilience.marginals.scopes import Scope
from consilience.marginals.table_stacks import ShapeGroup

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

TRACE = 1e-9
"""What every cell that can hold something gets first, in parts of the uniform table's: passes cannot revive a 0."""

MOST_PASSES = 50


def raked(decomposition: Decomposition, residuals: Array, empty: Callable[[Scope], Mask | None]) -> tuple[Array, float]:
    """The tables of a decomposition without negative counts, and the largest count by which they still disagree."""
    stack = decomposition.residuals
    every = Decomposition(stack.sizes, stack.scopes)
    tables = every.marginals(residuals)
    total = float(stack.table(residuals, ()))
    violation = 0.0
    for group in sorted(every.tables.groups, key=lambda each: len(each.shape)):
        if not group.shape:
            continue
        start = np.maximum(group.tables(tables), 0.0) + TRACE * total / group.cells
        held = _emptied(start, group, empty)
        margins = _smaller(every, tables, group)
        fitted = greatest_entropy(start, margins, tolerance=1e-11, most_passes=MOST_PASSES)
        whole = len(group.shape) == 2 and not held
        group.tables(tables)[...] = completed(fitted.tables, margins[1][1], margins[0][1]) if whole else fitted.tables
        violation = max(violation, 0.0 if whole else fitted.violation)
    found = np.empty(decomposition.tables.size)
    for scope in decomposition.tables.scopes:
        decomposition.tables.table(found, scope)[...] = every.tables.table(tables, scope)
    return found, violation


def _emptied(start: Array, group: ShapeGroup, empty: Callable[[Scope], Mask | None]) -> bool:
    """Set the cells that can hold nothing to 0; True where there are any."""
    found = False
    for row, scope in enumerate(group.scopes):
        mask = empty(scope)
        if mask is not None:
            start[row, np.broadcast_to(mask, group.shape)] = 0.0
            found = True
    return found


# The rounding of Altschuler, Weed and Rigollet (2017, Algorithm 2): scale down rows and columns that are too large;
# what then lacks in rows, a, and in columns, b, sums to the same, and a bᵀ / Σa fills both.
def completed(tables: Array, rows: Array, columns: Array) -> Array:
    """Non-negative tables changed as little as needed to have exactly these row and column sums."""
    found = np.array(tables)
    for axis, wanted in ((2, rows), (1, columns)):
        sums = found.sum(axis=axis)
        scale = np.divide(wanted, sums, out=np.ones_like(sums), where=sums > wanted)
        found *= np.expand_dims(scale, axis)
    lack = np.maximum(rows - found.sum(axis=2), 0.0), np.maximum(columns - found.sum(axis=1), 0.0)
    size = np.maximum(lack[0].sum(axis=1), np.finfo(np.float64).tiny)[:, None]
    found += lack[0][:, :, None] * (lack[1] / size)[:, None, :]
    return found


def _smaller(every: Decomposition, tables: Array, group: ShapeGroup) -> list[Margin]:
    """The tables with one attribute less, for all tables of a group."""
    margins: list[Margin] = []
    axes = range(len(group.shape))
    for away in axes:
        kept = tuple(axis for axis in axes if axis != away)
        parts = [every.tables.table(tables, tuple(scope[axis] for axis in kept)) for scope in group.scopes]
        margins.append((kept, np.stack(parts)))
    return margins
