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

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.models.clique_forests import ROOT, clique_forest
from consilience.models.clique_trees import JunctionTree
from consilience.models.elimination_plans import (
    EliminationPlan,
    Image,
    SharedWork,
    carry_out,
    carry_out_within,
    plan_elimination,
)
from consilience.models.junction_trees import junction_tree
from consilience.models.model import Array, GraphicalModel, log_probabilities
from consilience.models.scaled_tables import Axes, ScaledTable, contract

MEMORY_LIMIT = 4_000_000_000
"""Bytes that one query may take unless its caller says otherwise."""


class CalibratedModel:
    """A model with the messages of its junction tree, ready for many queries."""

    def __init__(
        self, model: GraphicalModel, tree: JunctionTree | None = None, *, memory_limit: int = MEMORY_LIMIT
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

    def marginal(self, attributes: Sequence[int], *, shared: SharedWork | None = None) -> Array:
        """The expected counts by these attributes, one axis for each, in this order; they sum to the model's total."""
        named = self.check_attributes(attributes)
        kept = tuple(axis for axis in named if axis in self._modelled)
        counts = self.project(kept, shared=shared).linear()
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
