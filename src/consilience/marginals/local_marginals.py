"""What consistent marginals say of any other marginal, and records that follow them.

A marginal that is part of a table is summed from it. Any other is the table of greatest entropy with all the marginals
that are known of its parts. That is a guess about interactions nobody measured; it is never negative, and where the
known marginals fit together it has them exactly. Adding up the known residuals instead, and clipping, was several
times worse for 3-way marginals of Adult from noisy 2-way ones, and worse for those of Titanic.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.kernels.rng import Generator
from consilience.marginals.decomposition import Decomposition, residual_of
from consilience.marginals.level_fits import LocalProblem, weighted, without_negatives
from consilience.marginals.margins import FittedTables, Margin, MarginOnAxes, greatest_entropy
from consilience.marginals.nonnegative_marginals import NonnegativeFit, fit_nonnegative
from consilience.marginals.reconstruction import greatest_entropy_table
from consilience.marginals.table_stacks import Scope, TableStack, maximal, stored_order, subsets, summed
from consilience.solvers.fit import Status, shares_of_rows

Array = NDArray[np.float64]
Rule = Sequence[tuple[int, Sequence[int]]]
"""An impossible combination: codes of some attributes that no record has together."""


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
    fit = fit_nonnegative(
        weighted(problem, joint, wished, precisions),
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


# ----------------------------------------------------------------------------------------------------------------------
# Records changed, one value at a time, until their tables are those of an account.
#
# Records that were drawn along a tree of pairs have the pairs of the tree; all others follow only as far as dependence
# passes along it. With t the tables that the account holds, scaled to the number of rows, and T(x) the same tables
# counted from the records x, what is left is
#
#     L(x) = Σ over tables and cells of d²,    d = T(x) − t.
#
# A record that takes the value v in place of u in one attribute leaves one cell of each table with that attribute and
# enters another. With d_u and d_v the differences there before,
#
#     L after − L before = 2 Σ over those tables of (d_v − d_u + 1).
#
# A sweep visits all records in random order and gives each attribute of each the value for which this is least, where
# it is below 0. So L falls with every change, and no record changes without need: what the tree says about larger
# tables stays. Combinations that the domain calls impossible are never entered, and left where one change does.
#
# Cost: a sweep reads Σ over attributes of (values × tables with the attribute) numbers for each record. Work is limited
# to `Settings.most_work` such numbers; more rows than that are visited in part.


Integers = NDArray[np.int64]

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
