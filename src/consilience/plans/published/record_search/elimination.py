"""The best classes, exactly: attributes are maximised away one after the other (Dechter 1999, bucket elimination).

    max over x of Σ_k f_k(x) :   for each attribute a in turn, replace all tables that name a by
                                 g(rest) = max over x_a of Σ f_k(x_a, rest),

and read the best values back in the opposite order. The next attribute is one whose table Σ f_k is smallest.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.plans.published.record_search.conjunctions import Classes, ScoreTable

Scope = tuple[int, ...]


def elimination_order(classes: Classes, scopes: Sequence[Scope], largest: int) -> list[Scope] | None:
    """For each step the attributes of its table, the one to be eliminated first; None where a table is too large."""
    left = [frozenset(scope) for scope in scopes]
    remaining = {place for scope in left for place in scope}
    order: list[Scope] = []
    while remaining:
        joined = {place: frozenset().union(*(s for s in left if place in s), {place}) for place in remaining}
        # The smallest table, and of equal ones that of the first attribute, so that the order is always the same.
        place = min(sorted(remaining), key=lambda each: classes.cells(tuple(joined[each])))
        if classes.cells(tuple(joined[place])) > largest:
            return None
        rest = joined[place] - {place}
        order.append((place, *sorted(rest)))
        left = [scope for scope in left if place not in scope] + ([rest] if rest else [])
        remaining.remove(place)
    return order


def best_classes(
    classes: Classes, tables: Sequence[ScoreTable], order: Sequence[Scope]
) -> tuple[dict[int, int], float]:
    """The class of each attribute in a best record, and the weight of that record."""
    pending = list(tables)
    constant = 0.0
    steps: list[tuple[Scope, NDArray[np.float64]]] = []
    for scope in order:
        here = [table for table in pending if scope[0] in table.scope]
        pending = [table for table in pending if scope[0] not in table.scope]
        joint = np.zeros([classes.count[place] for place in scope])
        for table in here:
            joint = joint + _spread(table, scope)
        steps.append((scope, joint))
        rest = ScoreTable(scope[1:], joint.max(axis=0))
        if rest.scope:
            pending.append(rest)
        else:
            constant += float(rest.values)
    chosen: dict[int, int] = {}
    for scope, joint in reversed(steps):
        known = tuple(chosen[place] for place in scope[1:])
        chosen[scope[0]] = int(np.argmax(joint[(slice(None), *known)]))
    return chosen, constant


def _spread(table: ScoreTable, scope: Scope) -> NDArray[np.float64]:
    """The table with its axes in the order of a larger scope, ready to be added."""
    within = [place for place in scope if place in table.scope]
    turned = table.values.transpose([table.scope.index(place) for place in within])
    sizes = dict(zip(within, turned.shape, strict=True))
    return turned.reshape([sizes.get(place, 1) for place in scope])
