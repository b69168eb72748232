"""Consistent views moved to where no cell is negative, by mixing in consistent views without negative cells.

If T and U are consistent and have the same total, so is (1 − λ) T + λ U for every λ, and marginals that both have
stay. U is a product, U_V = N ⊗_{i∈V} q_i with one distribution q_i for each attribute; the views of one product are
consistent. q_i lies between T's own share of each value (λ then leaves all one-way marginals alone) and the uniform
one (whose smallest cell is largest, so that λ is least). Exact facts without common attributes are factors of U in
their attributes' place; what other facts say is put into U as into any views, and cells below 0 that this makes
bound λ from above. Cell by cell, with t and u the two counts,

    t < 0 needs λ ≥ t/(t − u), and u ≥ 0;          u < 0 needs λ ≤ t/(t − u), and t ≥ 0.

Of the mixtures found, the one that changes the least in all is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.consistency import ViewConsistency
from consilience.marginals.least_squares import KnownTable
from consilience.marginals.table_stacks import TableStack, summed

Array = NDArray[np.float64]

EVENNESS = (0.0, 0.5, 0.9, 1.0)
"""How far each q_i is from T's own shares, 0, towards the uniform ones, 1."""

ROUNDING = 1e-12
"""A mixture that meets 0 exactly misses it by rounding: at most this part of the total."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Consistent views, the share of the product in them, and what that changed: all cells' differences summed."""

    flat: Array
    share: float
    change: float


def without_negative_cells(
    consistency: ViewConsistency, flat: Array, *, empty: NDArray[np.bool_] | None = None
) -> Mixture | None:
    """The mixture of consistent views with a product that has no negative cell and changes least, if there is one.

    Cells in `empty`, which facts force to be 0, are not looked at. None means that facts with common attributes leave
    every product tried with negative cells of its own.
    """
    total = common_total(consistency.stack, flat)
    if total == 0:
        return Mixture(np.zeros_like(flat), 1.0, float(np.abs(flat).sum()))
    product = _Product(consistency.stack, flat, consistency.known)
    candidates = [
        _least_mixture(flat, consistency.consistent(product.views(total, each)), ROUNDING * total, empty)
        for each in EVENNESS
    ]
    return min((each for each in candidates if each is not None), key=lambda each: each.change, default=None)


def common_total(stack: TableStack, flat: Array) -> float:
    """The total of consistent views; 0 also where it is below 0, or nothing but rounding."""
    total = float(flat[: stack.groups[0].cells].sum()) if stack.groups else 0.0
    return total if total > ROUNDING * float(np.abs(flat).max(initial=0.0)) else 0.0


def _least_mixture(flat: Array, product: Array, slack: float, empty: NDArray[np.bool_] | None) -> Mixture | None:
    """The mixture with the least sufficient share of the product, if any share suffices."""
    raised, lowered = flat < -slack, product < -slack
    if empty is not None:
        raised, lowered = raised & ~empty, lowered & ~empty
    if np.any(raised & (product < 0)) or np.any(lowered & (flat < 0)):
        return None
    least = float((flat[raised] / (flat[raised] - product[raised])).max(initial=0.0))
    most = float((flat[lowered] / (flat[lowered] - product[lowered])).min(initial=1.0))
    if least > most:
        return None
    mixed = (1.0 - least) * flat + least * product
    change = float(np.abs(mixed - flat).sum())
    np.maximum(mixed, 0.0, out=mixed, where=mixed > -2.0 * slack)
    return Mixture(mixed, least, change)


class _Product:
    """Distributions of sets of attributes that no two share: facts where there are, single attributes elsewhere."""

    def __init__(self, stack: TableStack, flat: Array, known: Sequence[KnownTable]) -> None:
        self.stack = stack
        self.facts: list[KnownTable] = []
        for fact in sorted(known, key=lambda each: -len(each.scope)):
            if not any(set(fact.scope) & set(other.scope) for other in self.facts):
                self.facts.append(fact)
        self.in_facts = {attribute for fact in self.facts for attribute in fact.scope}
        self.fixed = {attribute for fact in known for attribute in fact.scope}
        self.shares = _own_shares(stack, flat)

    def views(self, total: float, evenness: float) -> Array:
        """The views of the product, shares that no fact fixes moved towards equal ones."""
        moved = {
            attribute: own if attribute in self.fixed else (1.0 - evenness) * own + evenness / len(own)
            for attribute, own in self.shares.items()
        }
        moved |= {attribute: np.ones(self.stack.sizes[attribute]) for attribute in self.in_facts}
        flat = np.full(self.stack.size, total)
        for group in self.stack.groups:
            tables = group.tables(flat)
            for axis, size in enumerate(group.shape):
                along = np.array([moved[scope[axis]] for scope in group.scopes])
                tables *= along.reshape(-1, *(size if each == axis else 1 for each in range(len(group.shape))))
        for fact in self.facts:
            self._multiply(flat, fact, total)
        return flat

    def _multiply(self, flat: Array, fact: KnownTable, total: float) -> None:
        for scope in self.stack.scopes:
            shared = tuple(attribute for attribute in scope if attribute in fact.scope)
            if shared:
                factor = np.maximum(summed(fact.table, fact.scope, shared), 0.0) / total
                shape = [self.stack.sizes[each] if each in shared else 1 for each in scope]
                self.stack.table(flat, scope)[...] *= factor.reshape(shape)


def _own_shares(stack: TableStack, flat: Array) -> dict[int, Array]:
    """Each attribute's distribution over its values in consistent views; negative shares count as none."""
    found: dict[int, Array] = {}
    for scope in stack.scopes:
        for attribute in scope:
            if attribute not in found:
                counts = np.maximum(summed(stack.table(flat, scope), scope, (attribute,)), 0.0)
                whole = counts.sum()
                found[attribute] = counts / whole if whole > 0 else np.full(len(counts), 1.0 / len(counts))
    return found
