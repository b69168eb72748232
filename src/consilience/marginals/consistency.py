"""Noisy views made consistent: every marginal that two views share comes out the same (Qardaji et al. 2014, §4.4).

*One step.* Views V ⊇ A with weights w_V are made consistent on A by giving all of them the weighted mean of their
marginals on A, each difference spread evenly over the cells that sum to it. In terms of residuals (see
`marginals.decomposition`): a marginal on A is made of the residuals of the S ⊆ A, and an even spread over the
other attributes leaves every residual of S ⊄ A alone. So a step replaces, in every view that has A, the residual of
each S ⊆ A by its weighted mean over those views, and does nothing else.

*All steps.* The paper takes the sets A in the closure of the views under intersection, each after its subsets. Let
cl(S) be the intersection of all views that have S: the smallest set of the closure that contains S. The first step to
touch the residual of S is that of cl(S), since the A ⊇ S of the closure contain cl(S). It averages over the views that
have cl(S), and these are all the views that have S. From then on the views agree on that residual, and the mean of
equal numbers changes nothing. So whatever the order, the outcome is, for every S by itself,

    z_S  =  Σ_{V⊇S} w_V z_S(V) / Σ_{V⊇S} w_V.

Lemma 1 of the paper is the case of two views: residuals on which they agree stay, and so do those that only one has.

*Weights.* The residual of S in a view with variance σ² per cell is its marginal's, of variance σ² Π_{i∈V∖S} n_i per
cell. What depends on V is σ_V² |cells of V|, so w_V = 1/(σ_V² |cells of V|): the paper's plain mean for views of one
size and noise, inverse variances otherwise. Because different residuals are orthogonal and these weights are their
precisions, the outcome is also the generalised least-squares fit, and the orthogonal projection of the views onto the
consistent ones in the norm Σ_V ‖·‖²/σ_V².

Exact facts determine residuals too, and take the place of the means.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError, MeasurementError
from consilience.marginals.decomposition import (
    Decomposition,
    add_by_number,
    all_from_residuals,
    all_to_residuals,
    number_entries,
    widest_difference,
)
from consilience.marginals.least_squares import KnownTable, known_residuals
from consilience.marginals.table_stacks import Scope, TableStack, stored_order, summed

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


class _Layout:
    """Where tables lie one after another: their axes as stored, and again by ascending attribute with strides."""

    def __init__(self, sizes: Sequence[int], scopes: Sequence[Scope]) -> None:
        self.axes: Integers = np.cumsum([0, *(len(scope) for scope in scopes)], dtype=np.int64)
        every = np.array(sizes, dtype=np.int64)
        stored = np.array([each for scope in scopes for each in scope], dtype=np.int64)
        self.stored_sizes: Integers = every[stored]
        strides = np.ones(len(stored), dtype=np.int64)
        cells = np.ones(len(scopes), dtype=np.int64)
        for table, (begin, end) in enumerate(zip(self.axes[:-1].tolist(), self.axes[1:].tolist(), strict=True)):
            for axis in range(end - 1, begin - 1, -1):
                strides[axis] = cells[table]
                cells[table] *= self.stored_sizes[axis]
        self.cells: Integers = cells
        self.starts: Integers = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(cells)])
        table_of = np.repeat(np.arange(len(scopes)), np.diff(self.axes))
        order = np.lexsort((stored, table_of))
        self.attributes: Integers = stored[order]
        self.sizes: Integers = self.stored_sizes[order]
        self.strides: Integers = strides[order]

    def numbers(self, sizes: Sequence[int], shared: int) -> tuple[Integers, int]:
        """A number for the residual entry of each cell, and how many numbers the first `shared` tables use."""
        first = np.concatenate([[0], np.cumsum(np.array(sizes, dtype=np.int64))])
        numbers = np.empty(int(self.starts[-1]), dtype=np.int64)
        codes = first[self.attributes]
        used = number_entries(
            self.starts[:-1], self.axes, self.sizes, self.strides, codes, int(first[-1]) + 1, numbers, shared
        )
        return numbers, int(used)


class ViewConsistency:
    """Makes views consistent, by weighted means of residuals; `precisions` are 1/variance of a cell of each view.

    The views are those of `stack.scopes`, in that order; a scope may be empty: a measured total. Marginals in `known`
    are exact and come out as they are given.

    >>> stack = TableStack((2, 2, 2), [(0, 1), (0, 2)])
    >>> flat = np.array([0.3, 0.3, 0.3, 0.1, 0.2, 0.3, 0.1, 0.4])
    >>> ViewConsistency(stack, [1.0, 1.0]).consistent(flat).round(3)
    array([0.275, 0.275, 0.325, 0.125, 0.225, 0.325, 0.075, 0.375])
    """

    def __init__(
        self, stack: TableStack, precisions: Sequence[float] | Array, known: Sequence[KnownTable] = ()
    ) -> None:
        scopes = stack.scopes
        _check(stack, scopes, precisions, known)
        known_residuals(Decomposition(stack.sizes, [fact.scope for fact in known]), known)
        self.stack = stack
        self.precisions: Array = np.array(precisions, dtype=np.float64)
        self.known = tuple(known)
        self._layout = _Layout(stack.sizes, scopes)
        every = _Layout(stack.sizes, [*scopes, *(fact.scope for fact in known)])
        numbers, used = every.numbers(stack.sizes, len(scopes))
        self._numbers = numbers[: stack.size]
        weights = self.precisions / self._layout.cells
        self._weights: Array = weights / weights.max(initial=0.0) if scopes else weights
        self._precision_sums: Array = np.zeros(used)
        add_by_number(np.ones(stack.size), self._layout.starts, self._weights, self._numbers, self._precision_sums)
        facts = _Layout(stack.sizes, [fact.scope for fact in known])
        self._fact_numbers, self._fact_entries = _entries_of_facts(facts, known, numbers[stack.size :], used)

    def consistent(self, flat: Array) -> Array:
        """The consistent views nearest to the given ones; a new vector."""
        self._check_flat(flat)
        layout = self._layout
        cells = np.array(flat, dtype=np.float64)
        all_to_residuals(cells, layout.starts, layout.axes, layout.stored_sizes)
        means = np.zeros(len(self._precision_sums))
        add_by_number(cells, layout.starts, self._weights, self._numbers, means)
        means /= self._precision_sums
        means[self._fact_numbers] = self._fact_entries
        np.take(means, self._numbers, out=cells)
        all_from_residuals(cells, layout.starts, layout.axes, layout.stored_sizes)
        return cells

    def disagreement(self, flat: Array) -> float:
        """The largest difference of a cell between two views' marginals on all attributes they share."""
        self._check_flat(flat)
        layout = self._layout
        cells = np.array(flat, dtype=np.float64)
        all_to_residuals(cells, layout.starts, layout.axes, layout.stored_sizes)
        found = widest_difference(cells, layout.starts, layout.axes, layout.attributes, layout.sizes, layout.strides)
        return float(found)

    def _check_flat(self, flat: Array) -> None:
        if flat.shape != (self.stack.size,):
            raise MeasurementError(
                f"the views hold {self.stack.size} cells, and an array of shape {flat.shape} was given; "
                "give one flat vector, the tables in the order of the stack"
            )


def _entries_of_facts(
    layout: _Layout, known: Sequence[KnownTable], numbers: Integers, used: int
) -> tuple[Integers, Array]:
    """The residual entries that facts determine, among those that views have."""
    cells = np.concatenate([np.zeros(0), *(np.asarray(fact.table, dtype=np.float64).ravel() for fact in known)])
    all_to_residuals(cells, layout.starts, layout.axes, layout.stored_sizes)
    shared = numbers < used
    return numbers[shared], cells[shared]


def _check(
    stack: TableStack, scopes: Sequence[Scope], precisions: Sequence[float] | Array, known: Sequence[KnownTable]
) -> None:
    if len(precisions) != len(scopes):
        raise DeclarationError(f"{len(scopes)} views have {len(precisions)} precisions; give one for each view")
    if len({frozenset(scope) for scope in scopes}) < len(scopes) or len(stack.places) < len(scopes):
        raise DeclarationError("two views have the same attributes; combine them first, with stacked_views")
    for scope, precision in zip(scopes, precisions, strict=True):
        if not (np.isfinite(precision) and precision > 0):
            raise DeclarationError(
                f"the view over attributes {scope} has the precision {precision}; a precision is 1/variance, finite "
                "and above 0: give an exact table as a known one, and leave out a view that says nothing"
            )
    for fact in known:
        shape = tuple(stack.sizes[attribute] for attribute in fact.scope)
        if np.shape(fact.table) != shape:
            raise DeclarationError(
                f"{fact.name} has the shape {np.shape(fact.table)}, and its attributes the sizes {shape}; "
                "give a table with an axis for each attribute"
            )


# ----------------------------------------------------------------------------------------------------------------------
# Noisy views as they were measured, in any order of axes and some perhaps twice, put into one stack.


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


# ----------------------------------------------------------------------------------------------------------------------
# Consistent views moved to where no cell is negative, by mixing in consistent views without negative cells.
#
# If T and U are consistent and have the same total, so is (1 − λ) T + λ U for every λ, and marginals that both have
# stay. U is a product, U_V = N ⊗_{i∈V} q_i with one distribution q_i for each attribute; the views of one product are
# consistent. q_i lies between T's own share of each value (λ then leaves all one-way marginals alone) and the uniform
# one (whose smallest cell is largest, so that λ is least). Exact facts without common attributes are factors of U in
# their attributes' place; what other facts say is put into U as into any views, and cells below 0 that this makes
# bound λ from above. Cell by cell, with t and u the two counts,
#
#     t < 0 needs λ ≥ t/(t − u), and u ≥ 0;          u < 0 needs λ ≤ t/(t − u), and t ≥ 0.
#
# Of the mixtures found, the one that changes the least in all is kept.


EVENNESS = (0.0, 0.5, 0.9, 1.0)
"""How far each q_i is from T's own shares, 0, towards the uniform ones, 1."""

ROUNDING_OF_VIEWS = 1e-12
"""What rounding may leave of 0, in parts of the total (a mixture's cells) or of the largest cell (a total of 0)."""


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
        _least_mixture(flat, consistency.consistent(product.views(total, each)), ROUNDING_OF_VIEWS * total, empty)
        for each in EVENNESS
    ]
    return min((each for each in candidates if each is not None), key=lambda each: each.change, default=None)


def common_total(stack: TableStack, flat: Array) -> float:
    """The total of consistent views; 0 also where it is below 0, or nothing but rounding."""
    total = float(flat[: stack.groups[0].cells].sum()) if stack.groups else 0.0
    return total if total > ROUNDING_OF_VIEWS * float(np.abs(flat).max(initial=0.0)) else 0.0


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
