"""The cells of marginals that can hold nothing, from rules and facts about other marginals.

A cell of a table is empty for certain when the attributes that the table shares with a rule or a known marginal decide
so: every cell of the rule's table with these values is empty.
"""

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.scopes import Scope

Mask = NDArray[np.bool_]


class EmptyCells:
    """Known empty cells, asked for by scope."""

    def __init__(self) -> None:
        self._known: list[tuple[Scope, Mask]] = []

    def add(self, scope: Scope, empty: Mask) -> None:
        """Remember the empty cells of a table, with axes in the scope's order."""
        if empty.any():
            self._known.append((scope, empty))

    def of(self, scope: Scope) -> Mask | None:
        """Which cells of a scope are empty, with axes in its order; None where none is known to be."""
        found: Mask | None = None
        for known, empty in self._known:
            shared = tuple(attribute for attribute in scope if attribute in known)
            if not shared:
                continue
            away = tuple(axis for axis, attribute in enumerate(known) if attribute not in shared)
            table = np.asarray(empty.all(axis=away))
            kept = [attribute for attribute in known if attribute in shared]
            table = table.transpose([kept.index(attribute) for attribute in shared])
            if not table.any():
                continue
            shape = [table.shape[shared.index(each)] if each in shared else 1 for each in scope]
            mask = table.reshape(shape)
            found = mask if found is None else found | mask
        return found
