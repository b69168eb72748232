"""What consistent marginals say of any other marginal, and records that follow them.

A marginal that is part of a table is summed from it. Any other is the table of greatest entropy with all the marginals
that are known of its parts. That is a guess about interactions nobody measured; it is never negative, and where the
known marginals fit together it has them exactly. Adding up the known residuals instead, and clipping, was several
times worse for 3-way marginals of Adult from noisy 2-way ones, and worse for those of Titanic.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.rng import Generator
from consilience.marginals.decomposition import Decomposition, residual_of
from consilience.marginals.level_fits import LocalProblem, empty_cells, firm_weights, without_negatives
from consilience.marginals.margins import Margin
from consilience.marginals.nonnegative_marginals import NonnegativeFit, NonnegativeProblem, fit_nonnegative
from consilience.marginals.proportional_fitting import FittedTables, MarginOnAxes, greatest_entropy
from consilience.marginals.reconstruction import greatest_entropy_table
from consilience.marginals.record_fitting import Rule, fit_records
from consilience.marginals.table_stacks import Scope, TableStack, maximal, stored_order, subsets, summed
from consilience.solvers.fit import Status, shares_of_rows

Array = NDArray[np.float64]


class LocalMarginals:
    """Non-negative tables of one total that agree where they overlap, in one flat vector."""

    def __init__(self, stack: TableStack, flat: Array, total: float) -> None:
        self.stack = stack
        self.flat = flat
        self.total = total

    @cached_property
    def _holders(self) -> dict[int, list[Scope]]:
        """For each attribute the tables that have it, the smallest first."""
        found: dict[int, list[Scope]] = {}
        for group in sorted(self.stack.groups, key=lambda each: each.cells):
            for scope in group.scopes:
                for attribute in scope:
                    found.setdefault(attribute, []).append(scope)
        return found

    @property
    def attributes(self) -> set[int]:
        """The attributes that some table has."""
        return set(self._holders)

    def known(self, scope: Scope) -> Array | None:
        """The marginal of a scope that is part of a table, axes in the scope's order; None of any other."""
        if not scope:
            return np.array(self.total)
        wanted = set(scope)
        holder = next((each for each in self._holders.get(scope[0], ()) if wanted <= set(each)), None)
        if holder is None:
            return None
        return summed(self.stack.table(self.flat, holder), holder, scope)

    def known_parts(self, scope: Scope) -> list[Scope]:
        """The largest parts of a scope whose marginals are known, with attributes in the scope's order."""
        wanted = set(scope)
        shared = {tuple(each for each in scope if each in held) for held in self._meeting(wanted)}
        return maximal(shared) if shared else []

    def _meeting(self, wanted: set[int]) -> Iterator[set[int]]:
        for attribute in wanted:
            for holder in self._holders.get(attribute, ()):
                yield wanted & set(holder)

    def marginal(self, scope: Scope) -> FittedTables:
        """The marginal of any scope; attributes that no table has are even."""
        known = self.known(scope)
        if known is not None:
            return FittedTables(known, 0.0, 0)
        margins: list[Margin] = []
        for part in self.known_parts(scope):
            table = self.known(part)
            if table is not None:
                ascending = tuple(sorted(scope.index(attribute) for attribute in part))
                margins.append((ascending, table.transpose([part.index(scope[axis]) for axis in ascending])))
        found = greatest_entropy_table(self._shape(scope), margins, total=self.total)
        return FittedTables(found.table, found.violation, found.steps)

    def added_up(self, scope: Scope) -> Array:
        """The marginal that the residuals of all known parts of a scope add up to: the shortest one, of either sign."""
        known = self.known(scope)
        if known is not None:
            return known
        found = np.zeros(self._shape(scope))
        parts = {part for largest in self.known_parts(scope) for part in subsets(largest)} | {()}
        for part in parts:
            table = self.known(part)
            if table is not None:
                kept = [size if attribute in part else 1 for attribute, size in zip(scope, found.shape, strict=True)]
                found += residual_of(table).reshape(kept) * (math.prod(kept) / max(found.size, 1))
        return found

    # Records are drawn along a tree of pairs, that of largest mutual information, the best of all trees (Chow and Liu
    # 1968). Then values are changed until all tables are followed as closely as whole records can.
    def sample(
        self, rows: int, rng: Generator, *, attributes: int, impossible: Sequence[Rule] = ()
    ) -> NDArray[np.int64]:
        """Codes of records, a column for each attribute: of one table, or such that all tables are followed."""
        columns = np.empty((rows, attributes), dtype=np.int64)
        if len(self.stack.scopes) == 1 and self.attributes:
            return self._from_one_table(columns, rng)
        for attribute, parent in self._tree(attributes):
            if parent is None:
                columns[:, attribute] = _spread(self.marginal((attribute,)).tables, rows, rng)
                continue
            pair = self.marginal((parent, attribute)).tables
            for value in np.unique(columns[:, parent]):
                chosen = np.flatnonzero(columns[:, parent] == value)
                columns[chosen, attribute] = _spread(pair[value], chosen.size, rng)
        fit_records(columns, self.stack, self.flat, rng, impossible=impossible)
        return columns

    def _from_one_table(self, columns: NDArray[np.int64], rng: Generator) -> NDArray[np.int64]:
        """The columns filled from the only table there is; attributes that it lacks are even."""
        (scope,) = self.stack.scopes
        cells = _spread(self.flat, len(columns), rng)
        for attribute, codes in zip(scope, np.unravel_index(cells, self._shape(scope)), strict=True):
            columns[:, attribute] = codes
        for attribute in set(range(columns.shape[1])) - set(scope):
            columns[:, attribute] = _spread(np.ones(self.stack.sizes[attribute]), len(columns), rng)
        return columns

    def _shape(self, scope: Scope) -> tuple[int, ...]:
        return tuple(self.stack.sizes[attribute] for attribute in scope)

    def _tree(self, attributes: int) -> list[tuple[int, int | None]]:
        """Each attribute after its parent in a spanning forest of largest mutual information (Kruskal, Prim)."""
        links: dict[int, dict[int, float]] = {attribute: {} for attribute in range(attributes)}
        pairs = {pair for scope in self.stack.scopes for pair in subsets(tuple(sorted(scope))) if len(pair) == 2}
        for one, two in pairs:
            table = self.known((one, two))
            if table is not None:
                links[one][two] = links[two][one] = mutual_information(table)
        order: list[tuple[int, int | None]] = []
        waiting = set(range(attributes))
        best: dict[int, tuple[float, int]] = {}
        while waiting:
            reached = [each for each in best if each in waiting]
            if reached:
                attribute = max(reached, key=lambda each: (best[each][0], -each))
                order.append((attribute, best[attribute][1]))
            else:
                attribute = min(waiting)
                order.append((attribute, None))
            waiting.discard(attribute)
            for other, strength in links[attribute].items():
                if other in waiting and strength > best.get(other, (-math.inf, 0))[0]:
                    best[other] = (strength, attribute)
        return order


def mutual_information(table: Array) -> float:
    """How much the two attributes of a table say about each other, in nats."""
    total = float(table.sum())
    if total <= 0:
        return 0.0
    shares = table / total
    product = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    some = shares > 0
    return float(np.sum(shares[some] * np.log(shares[some] / product[some])))


def _spread(weights: Array, rows: int, rng: Generator) -> NDArray[np.int64]:
    """Values in proportion to the weights, each within one of its share, in random order."""
    counts = shares_of_rows(np.asarray(weights, dtype=np.float64).ravel(), rows, rng)
    values = np.repeat(np.arange(counts.size), counts)
    rng.shuffle(values)
    return values


def encode_scopes(scopes: Sequence[Scope]) -> Array:
    """Scopes as a table of numbers, a row each, filled up with −1; `decode_scopes` reads them back."""
    width = max((len(scope) for scope in scopes), default=0) or 1
    return np.array([[*scope, *[-1] * (width - len(scope))] for scope in scopes], dtype=np.float64).reshape(-1, width)


def decode_scopes(rows: Array) -> list[Scope]:
    """The scopes of `encode_scopes`."""
    return [tuple(int(each) for each in row if each >= 0) for row in rows]


# ----------------------------------------------------------------------------------------------------------------------
# One table over all attributes of a small problem, so that every marginal is a sum of it.
#
# Locally non-negative marginals need not belong to any table at all. Where the joint table is small it is fitted as
# well: its measured residuals as wished before, the others as in the table of greatest entropy with the local
# marginals.


def fit_joint_table(
    problem: LocalProblem,
    local: NonnegativeFit,
    attributes: Sequence[int],
    *,
    tolerance: float,
    max_steps: int,
    time_limit: float | None,
) -> tuple[NonnegativeFit, Decomposition]:
    """The non-negative table over the attributes nearest to the local marginals, in a decomposition of its own."""
    sizes = problem.decomposition.residuals.sizes
    scope = stored_order(sizes, attributes)
    joint = Decomposition(sizes, [scope])
    stack = joint.residuals
    guess = joint_table_of_greatest_entropy(problem.decomposition, local.marginals, scope)
    wished = joint.adjoint(guess.ravel()) / stack.spread(joint.precisions({scope: 1.0}))
    precisions = dict.fromkeys(stack.scopes, 0.0)
    for part in problem.decomposition.residuals.scopes:
        stack.table(wished, part)[...] = problem.decomposition.residuals.table(local.residuals, part)
        precisions[part] = problem.precisions[part]
    weights = stack.spread(firm_weights(precisions))
    fit = fit_nonnegative(
        NonnegativeProblem(joint, wished, weights, empty_cells(joint, problem.empty)),
        tolerance=tolerance,
        max_steps=max_steps,
        time_limit=time_limit,
    )
    fit = without_negatives(fit, joint, problem.empty)
    if fit.status is Status.CONVERGED and local.status is not Status.CONVERGED:
        fit = replace(fit, gap=local.gap, status=local.status)
    return fit, joint


def joint_table_of_greatest_entropy(decomposition: Decomposition, marginals: Array, scope: Scope) -> Array:
    """The table of greatest entropy over a scope with the tables of a decomposition as marginals."""
    stack = decomposition.tables
    margins: list[MarginOnAxes] = []
    for part in stack.scopes:
        # Both orders are the stored one, so the axes ascend.
        axes = tuple(scope.index(attribute) for attribute in part)
        margins.append((axes, np.asarray(stack.table(marginals, part))[None]))
    shape = tuple(stack.sizes[attribute] for attribute in scope)
    return greatest_entropy(np.ones((1, *shape)), margins).tables[0]
