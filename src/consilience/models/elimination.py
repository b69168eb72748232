"""Any marginal of a graphical model, by variable elimination in the part of its junction tree that matters.

`CalibratedModel` computes once, for each separator S between two cliques, the messages that pass both ways, those from
the roots when a query first needs them:

    m_{i→j}(x_S) = Σ_{x_{C_i ∖ S}} Π_{tables at i} f(x) Π_{k ≠ j} m_{k→i}(x) .

Then the tables of any connected part of the tree times the messages into it are the marginal on its attributes (Koller
and Friedman 2009, chapter 10), so a query multiplies and sums only what lies between its attributes. Attributes of
other trees of the forest are independent of them, and attributes in no scope are uniform.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.models.elimination_plans import (
    EliminationPlan,
    Image,
    SharedWork,
    carry_out,
    carry_out_within,
    plan_elimination,
)
from consilience.models.junction_trees import JunctionTree, junction_tree
from consilience.models.model import Array, GraphicalModel, log_probabilities
from consilience.models.tables import Axes, ScaledTable, contract

# ----------------------------------------------------------------------------------------------------------------------
# The junction tree in the shape that makes queries short: shallow, and with few children for each clique.
#
# A query touches the cliques on the paths between its attributes and the messages from all their neighbours. So a
# clique is hung as high as its separator allows, and children that share one separator are gathered below copies of it,
# a few for each, which makes paths among n of them about log n long.


FAN_OUT = 6
"""Children with one separator that hang below the same clique."""

ROOT = -1


@dataclass(frozen=True)
class CliqueForest:
    """Cliques, their parents (which come first; −1 for roots), and the attributes that each shares with its parent."""

    cliques: tuple[frozenset[int], ...]
    parents: tuple[int, ...]
    separators: tuple[frozenset[int], ...]
    children: tuple[tuple[int, ...], ...]
    roots: tuple[int, ...]
    """The root above each clique."""
    tops: dict[int, int]
    """For each attribute the highest clique that has it."""
    holders: dict[int, tuple[int, ...]]
    """For each attribute all cliques that have it."""

    def region(self, attributes: Collection[int]) -> list[int]:
        """The cliques of a smallest part of one tree that has all these attributes, which are of that tree.

        The paths from the attributes' highest cliques to where they meet; then leaves go as long as their attributes
        are found in the clique that is left. Parents come first.
        """
        wanted = frozenset(attributes)
        frontier = {self.tops[attribute] for attribute in wanted}
        found = set(frontier)
        while len(frontier) > 1:
            lowest = max(frontier)
            frontier.remove(lowest)
            frontier.add(self.parents[lowest])
            found.add(self.parents[lowest])
        return sorted(self._without_leaves(found, wanted))

    def _without_leaves(self, found: set[int], wanted: frozenset[int]) -> set[int]:
        around = {clique: {child for child in self.children[clique] if child in found} for clique in found}
        for clique in found:
            if self.parents[clique] in found:
                around[clique].add(self.parents[clique])
        leaves = [clique for clique, others in around.items() if len(others) == 1]
        while leaves:
            leaf = leaves.pop()
            if len(around[leaf]) != 1:
                continue
            [other] = around[leaf]
            if wanted & self.cliques[leaf] <= self.cliques[other]:
                del around[leaf]
                around[other].discard(leaf)
                leaves.append(other)
        return set(around)


def clique_forest(cliques: Sequence[Collection[int]], parents: Sequence[int]) -> CliqueForest:
    """The forest of these cliques, rearranged; parents come before their children in what is given.

    >>> clique_forest([(0, 1), (0, 2), (0, 3), (3, 4)], [-1, 0, 1, 2]).parents
    (-1, 0, 0, 2)
    """
    sets = [frozenset(clique) for clique in cliques]
    hung = _hung_high(sets, parents)
    below: list[list[int]] = [[] for _ in sets]
    for clique, parent in enumerate(hung):
        if parent != ROOT:
            below[parent].append(clique)
    made, above = _fanned_out(sets, hung, below)
    return _indexed(made, above)


def _hung_high(cliques: Sequence[frozenset[int]], parents: Sequence[int]) -> list[int]:
    """For each clique the highest one that has its separator; none where the separator is empty."""
    hung: list[int] = []
    for clique, parent in zip(cliques, parents, strict=True):
        separator = clique & cliques[parent] if parent != ROOT else frozenset[int]()
        while parent != ROOT and hung[parent] != ROOT and separator <= cliques[hung[parent]]:
            parent = hung[parent]
        hung.append(parent if separator else ROOT)
    return hung


def _fanned_out(
    cliques: Sequence[frozenset[int]], hung: Sequence[int], below: Sequence[Sequence[int]]
) -> tuple[list[frozenset[int]], list[int]]:
    """Cliques and parents, with copies of a separator between a clique and many children that share it."""
    made: list[frozenset[int]] = []
    above: list[int] = []
    # Each entry: a clique, where it hangs, and the old cliques to hang below it.
    waiting = [(cliques[root], ROOT, list(below[root])) for root in reversed(range(len(cliques))) if hung[root] == ROOT]
    while waiting:
        clique, parent, children = waiting.pop()
        here = len(made)
        made.append(clique)
        above.append(parent)
        groups: dict[frozenset[int], list[int]] = {}
        for child in children:
            groups.setdefault(clique & cliques[child], []).append(child)
        for separator, group in groups.items():
            if len(group) <= FAN_OUT:
                waiting.extend((cliques[child], here, list(below[child])) for child in reversed(group))
            else:
                parts = (group[part::FAN_OUT] for part in range(FAN_OUT))
                waiting.extend((separator, here, part) for part in parts)
    return made, above


def _indexed(cliques: list[frozenset[int]], parents: list[int]) -> CliqueForest:
    separators = tuple(
        clique & cliques[parent] if parent != ROOT else frozenset[int]()
        for clique, parent in zip(cliques, parents, strict=True)
    )
    children: list[list[int]] = [[] for _ in cliques]
    roots: list[int] = []
    tops: dict[int, int] = {}
    holders: dict[int, list[int]] = {}
    for place, (clique, parent) in enumerate(zip(cliques, parents, strict=True)):
        roots.append(place if parent == ROOT else roots[parent])
        if parent != ROOT:
            children[parent].append(place)
        for attribute in clique:
            tops.setdefault(attribute, place)
            holders.setdefault(attribute, []).append(place)
    return CliqueForest(
        tuple(cliques), tuple(parents), separators, tuple(map(tuple, children)), tuple(roots), tops,
        {attribute: tuple(places) for attribute, places in holders.items()},
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------------
# Any marginal of a graphical model, by variable elimination in the part of its junction tree that matters.


QUERY_MEMORY = 4_000_000_000
"""Bytes that one query may take unless its caller says otherwise."""


class CalibratedModel:
    """A model with the messages of its junction tree, ready for many queries."""

    def __init__(
        self, model: GraphicalModel, tree: JunctionTree | None = None, *, memory_limit: int = QUERY_MEMORY
    ) -> None:
        self.model = model
        self.memory_limit = memory_limit
        tree = junction_tree(model.sizes, model.all_scopes) if tree is None else tree
        self.sizes = {axis: size for axis, size in enumerate(model.sizes) if size > 1}
        self._modelled = {axis for scope in model.all_scopes for axis in scope if axis in self.sizes}
        cliques = [frozenset(clique) & self._modelled for clique in tree.cliques]
        self.forest = clique_forest(cliques, tree.parents)
        self._tables: list[list[ScaledTable]] = [[] for _ in self.forest.cliques]
        self._constant = 0.0
        for scope, logs in model.logs():
            self._place(scope, logs)
        self._up: dict[int, ScaledTable] = {}
        self._down: dict[int, ScaledTable] = {}
        self._log_partitions: dict[int, float] = {}
        self._pass_upwards()

    @property
    def log_partition(self) -> float:
        """log Σ_x Π_s exp θ_s(x_s) over the possible cells x of the modelled attributes."""
        return self._constant + math.fsum(self._log_partitions.values())

    def marginal(self, attributes: Sequence[int]) -> Array:
        """The expected counts by these attributes, one axis for each, in this order; they sum to the model's total."""
        named = self.check_attributes(attributes)
        kept = tuple(axis for axis in named if axis in self._modelled)
        counts = self.project(kept).linear()
        shape = [self.model.sizes[axis] if axis in self._modelled else 1 for axis in named]
        whole = np.broadcast_to(counts.reshape(shape), [self.model.sizes[axis] for axis in named])
        return whole * (self.model.total / float(whole.sum()))

    def log_probabilities(self, records: NDArray[np.integer]) -> Array:
        """log p(x) of each record, a row with a code for every attribute; −∞ where it is impossible."""
        return log_probabilities(self.model, self.log_partition, records)

    def log_likelihood(self, records: NDArray[np.integer]) -> float:
        """Σ log p(x) over the records."""
        return float(self.log_probabilities(records).sum())

    def check_attributes(self, attributes: Sequence[int]) -> tuple[int, ...]:
        """The attributes, refused when one is unknown or named twice."""
        named = tuple(int(axis) for axis in attributes)
        if len(set(named)) < len(named) or any(not 0 <= axis < len(self.model.sizes) for axis in named):
            raise DeclarationError(
                f"the attributes {named} are not distinct numbers from 0 to {len(self.model.sizes) - 1}; name each once"
            )
        return named

    def modelled(self, axis: int) -> bool:
        """Whether tables have this axis: its attribute is in a scope and has more than one value."""
        return axis in self._modelled

    def plan(
        self, kept: Axes, evidence: Iterable[ScaledTable] = (), images: Mapping[int, Image] | None = None
    ) -> tuple[EliminationPlan, list[ScaledTable]]:
        """How to find Σ p(x) times the evidence, with the kept axes and the images left; and the tables it takes."""
        images = {} if images is None else images
        more = list(evidence)
        named = {*kept, *images, *(axis for table in more for axis in table.axes)}
        tables = more + [table for some in self._by_tree(named) for table in self._tables_around(some)]
        return plan_elimination([table.axes for table in tables], self.sizes, kept, images), tables

    def project(
        self,
        kept: Axes,
        *,
        evidence: Sequence[ScaledTable] = (),
        images: Mapping[int, Image] | None = None,
        order: Axes | None = None,
        shared: SharedWork | None = None,
    ) -> ScaledTable:
        """Σ p(x) Π evidence(x) with the kept axes and the images left, in this order, by default as they are named.

        The kept axes, the images and those of the evidence are of modelled attributes.
        """
        images = {} if images is None else images
        order = (*kept, *(image.axis for image in images.values())) if order is None else order
        plan, tables = self.plan(kept, evidence, images)
        what = f"a query over {len(kept) + len(images)} attributes"
        limit = self.memory_limit
        found = carry_out_within(limit, what, plan, tables, self.sizes, order, images, shared) if tables else _one()
        if found.zero:
            return found
        named = {*kept, *images, *(axis for table in evidence for axis in table.axes)}
        trees = {self.forest.roots[self.forest.tops[axis]] for axis in named}
        scale = found.log_scale - math.fsum(self._log_partitions[root] for root in trees)
        return ScaledTable(found.axes, found.values, scale, found.span, found.in_logs, found.signs)

    def log_partition_of(self, clique: int) -> float:
        """The logarithm of what the tables around one clique sum to."""
        return self._log_partitions[self.forest.roots[clique]]

    def clique_tables(self, clique: int) -> list[ScaledTable]:
        """Tables whose product is proportional to the marginal on one clique of the forest."""
        return self._inside({clique})

    def _place(self, scope: Sequence[int], logs: Array) -> None:
        """Give a table to the smallest clique that has its axes, and multiply it into one that covers it there."""
        axes = tuple(axis for axis in scope if axis in self.sizes)
        table = ScaledTable.of_logs(axes, np.ascontiguousarray(logs).reshape([self.sizes[axis] for axis in axes]))
        if table.zero:
            raise DeclarationError(f"no cell of scope {tuple(scope)} is possible; allow at least one")
        self._constant += table.log_scale
        table = ScaledTable(axes, table.values, 0.0, table.span, table.in_logs)
        if not axes:
            return
        wanted = frozenset(axes)
        rarest = min((self.forest.holders.get(axis, ()) for axis in axes), key=len)
        homes = [clique for clique in rarest if wanted <= self.forest.cliques[clique]]
        if not homes:
            raise DeclarationError(f"no clique of the junction tree has all of scope {tuple(scope)}; build it for them")
        home = min(homes, key=lambda clique: (self.cells(self.forest.cliques[clique]), clique))
        own = self._tables[home]
        for place, other in enumerate(own):
            if wanted <= set(other.axes) or set(other.axes) <= wanted:
                wider = other.axes if wanted <= set(other.axes) else axes
                own[place] = contract([other, table], wider)
                return
        own.append(table)

    def cells(self, axes: Collection[int]) -> int:
        """The cells of a table over these axes."""
        return math.prod(self.sizes.get(axis, 1) for axis in axes)

    def _pass_upwards(self) -> None:
        for clique in reversed(range(len(self.forest.cliques))):
            tables = [*self._tables[clique], *(self._up[child] for child in self.forest.children[clique])]
            message = self._message(tables, self.forest.separators[clique])
            if message.zero:
                raise DeclarationError("no record is possible under the model; allow at least one cell everywhere")
            if self.forest.parents[clique] == ROOT:
                self._log_partitions[clique] = message.log_scale
            else:
                self._up[clique] = message

    def _from_above(self, clique: int) -> ScaledTable:
        """The message to a clique from its parent, made when it is first needed, after those above it."""
        missing = []
        while clique not in self._down and self.forest.parents[clique] != ROOT:
            missing.append(clique)
            clique = self.forest.parents[clique]
        for child in reversed(missing):
            parent = self.forest.parents[child]
            around = [*self._tables[parent], *([self._down[parent]] if parent in self._down else [])]
            others = [self._up[other] for other in self.forest.children[parent] if other != child]
            self._down[child] = self._message([*around, *others], self.forest.separators[child])
        return self._down[missing[0] if missing else clique]

    def _message(self, tables: list[ScaledTable], separator: frozenset[int]) -> ScaledTable:
        axes = tuple(sorted(separator))
        missing = separator.difference(*(table.axes for table in tables))
        tables = [*tables, *(_ones(axis, self.sizes[axis]) for axis in missing)]
        plan = plan_elimination([table.axes for table in tables], self.sizes, axes, {})
        plan.check(self.memory_limit, "passing messages in the junction tree")
        return carry_out(plan, tables, axes, {}) if tables else _one()

    def _by_tree(self, axes: Collection[int]) -> list[set[int]]:
        """The axes, apart for each tree of the forest."""
        groups: dict[int, set[int]] = {}
        for axis in axes:
            groups.setdefault(self.forest.roots[self.forest.tops[axis]], set()).add(axis)
        return list(groups.values())

    def _tables_around(self, axes: set[int]) -> list[ScaledTable]:
        """Tables of one tree whose product, summed over all other axes, is proportional to the marginal on these."""
        rarest = min((self.forest.holders[axis] for axis in axes), key=len)
        separators = [clique for clique in rarest if axes <= self.forest.separators[clique]]
        if separators:
            best = min(separators, key=lambda clique: (self.cells(self.forest.separators[clique]), clique))
            return [self._up[best], self._from_above(best)]
        cliques = [clique for clique in rarest if axes <= self.forest.cliques[clique]]
        if cliques:
            best = min(cliques, key=lambda clique: (self.cells(self.forest.cliques[clique]), clique))
            return self._inside({best})
        return self._inside(set(self.forest.region(axes)))

    def _inside(self, cliques: set[int]) -> list[ScaledTable]:
        """The tables of connected cliques and the messages into them."""
        tables: list[ScaledTable] = []
        for clique in sorted(cliques):
            tables += self._tables[clique]
            tables += [self._up[child] for child in self.forest.children[clique] if child not in cliques]
            if self.forest.parents[clique] not in (ROOT, *cliques):
                tables.append(self._from_above(clique))
        return tables


def _ones(axis: int, size: int) -> ScaledTable:
    return ScaledTable((axis,), np.ones(size), 0.0, 0.0)


def _one() -> ScaledTable:
    return ScaledTable((), np.ones(()), 0.0, 0.0)
