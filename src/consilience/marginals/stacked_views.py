"""Noisy views as they were measured, in any order of axes and some perhaps twice, put into one stack."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.marginals.scopes import Scope, stored_order
from consilience.marginals.table_stacks import TableStack

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StackedViews:
    """The views of distinct scopes: where they lie, their counts, and 1/variance of a cell of each, in stack order."""

    stack: TableStack
    flat: Array
    precisions: Array

    def squares(self, flat: Array) -> float:
        """Σ (difference / standard deviation)² over all cells, between these counts and others."""
        cells = [group.cells for group in self.stack.groups for _ in group.scopes]
        return float(np.repeat(self.precisions, cells) @ (self.flat - flat) ** 2)


def stacked_views(
    sizes: Sequence[int], scopes: Sequence[Scope], tables: Sequence[Array], precisions: Sequence[float]
) -> StackedViews:
    """Views with axes in stored order; those of the same attributes are one, their mean weighted by precision.

    >>> views = stacked_views((2, 3), [(0,), (0,)], [np.array([4.0, 8.0]), np.array([7.0, 8.0])], [2.0, 1.0])
    >>> views.flat, views.precisions
    (array([5., 8.]), array([3.]))
    """
    sums: dict[Scope, tuple[Array, float]] = {}
    for scope, table, precision in zip(scopes, tables, precisions, strict=True):
        shape = tuple(sizes[attribute] for attribute in scope)
        if np.shape(table) != shape or len(set(scope)) < len(scope):
            raise DeclarationError(
                f"the view over {scope} has the shape {np.shape(table)}, and its attributes the sizes {shape}; "
                "give each attribute once, and a table with an axis for each"
            )
        order = stored_order(sizes, scope)
        own = np.asarray(table, dtype=np.float64).transpose([scope.index(attribute) for attribute in order])
        before, weight = sums.get(order, (np.zeros(own.shape), 0.0))
        sums[order] = (before + precision * own, weight + precision)
    stack = TableStack(sizes, sums)
    flat = np.empty(stack.size)
    for scope, (weighted, weight) in sums.items():
        stack.table(flat, scope)[...] = weighted / weight
    return StackedViews(stack, flat, np.array([sums[scope][1] for scope in stack.scopes], dtype=np.float64))
