"""Cells that cannot occur: which tables say so, and what follows for the messages of a junction tree."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.marginals.table_stacks import stored_order
from consilience.models.layout import TableLayout, checked_scopes
from consilience.models.program import Constant, Program
from consilience.solvers.fit import Infeasible

Allowed = Sequence[tuple[Sequence[int], ArrayLike]]
"""Scopes and, for each, a table of truth values with axes in the scope's order: false where a cell cannot occur."""


def fold_into_scopes(layout: TableLayout, allowed: Allowed) -> tuple[NDArray[np.int64], list[Constant]]:
    """The cells of the layout that are impossible, and the tables of zeros and ones that no scope can take in.

    A table over attributes of one scope only takes cells away from that scope's table, which costs nothing.
    """
    impossible = np.zeros(layout.size, dtype=np.bool_)
    constants = []
    scopes = checked_scopes(layout.sizes, [scope for scope, _ in allowed])
    for place, (scope, (_, table)) in enumerate(zip(scopes, allowed, strict=True)):
        possible = np.asarray(table)
        shape = tuple(layout.sizes[attribute] for attribute in scope)
        if possible.shape != shape or possible.dtype != np.bool_:
            raise DeclarationError(
                f"table {place} of allowed cells has shape {possible.shape} and type {possible.dtype}; its scope "
                f"{scope} asks for truth values of shape {shape}: give true where a cell can occur"
            )
        axes = stored_order(layout.sizes, scope)
        stored = possible.transpose([scope.index(attribute) for attribute in axes])
        holder = _smallest_holder(layout, scope)
        if holder is None:
            constants.append(Constant(axes, np.ascontiguousarray(stored, dtype=np.float64)))
            continue
        spread = [layout.sizes[attribute] if attribute in scope else 1 for attribute in layout.axes[holder]]
        own = impossible[layout.slices[holder]].reshape([layout.sizes[attribute] for attribute in layout.axes[holder]])
        own |= ~stored.reshape(spread)
    return np.flatnonzero(impossible), constants


def _smallest_holder(layout: TableLayout, scope: Sequence[int]) -> int | None:
    """The scope of the layout with the fewest cells among those that have all these attributes."""
    holding = [k for k, other in enumerate(layout.scopes) if set(scope).issubset(other)]
    return min(holding, key=lambda k: layout.offsets[k + 1] - layout.offsets[k], default=None)


def possible_messages(
    program: Program, going_in: NDArray[np.float64], coming_out: NDArray[np.float64], run_step: Callable[[int], None]
) -> NDArray[np.bool_]:
    """Which entries of the messages up a junction tree are possible; an error where no cell is.

    The tables that go in are ones where a cell is possible and zeros elsewhere; `run_step` adds up their products.
    """
    up = program.tables
    possible = np.ones(program.messages, dtype=np.bool_)
    for s in range(len(program.message)):
        if s >= program.collects and not program.is_root[s]:
            continue
        run_step(s)
        own = slice(program.message[s], program.message[s] + program.message_cells[s])
        possible[own] = coming_out[up:][own] > 0.0
        going_in[up:][own] = possible[own]
        if not possible[own].any():
            raise nothing_possible()
    return possible


def nothing_possible() -> Infeasible:
    """The error for a model without a single possible cell."""
    return Infeasible(
        "no cell of the model is possible: its impossible cells and potentials of −∞ leave nothing over; allow some",
        violation=1.0,
        constraints=("impossible cells",),
    )
