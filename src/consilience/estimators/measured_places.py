"""Measurements of a geography as marginals of the nodes of a tree, with the facts about each place.

A place is a node: the whole, a value of the attribute (a leaf), or a group of values at a level of the hierarchy. Every
other attribute that a query tells apart is one of the table that each place has.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Hierarchy
from consilience.domain.domains import Domain
from consilience.domain.factors import Factor, Identity, Level, Total, Value
from consilience.domain.place_facts import PlaceFacts
from consilience.errors import readable_count
from consilience.estimators.evidence import LARGEST_TABLE, Array, Evidence, MeasuredCells, gather, refuse_nothing_to_fit
from consilience.measurements import MeasurementSet
from consilience.solvers.fit import Infeasible
from consilience.solvers.geography.cell_basis import CellBasis, told_apart, turned
from consilience.solvers.geography.least_squares import NodeEvidence, sums_of_leaves
from consilience.solvers.geography.nonnegative import Bounds, OutOfReach, within_reach
from consilience.solvers.trees.layout import Layout, forest

Nodes = NDArray[np.intp]

LARGEST_MATRIX = 1 << 20
"""Groups times values of one attribute."""
LARGEST_BLOCK = 256
"""The most combinations of sets of values that are fitted together: rows of a matrix for each class."""

WHOLE = ""
"""What the node above all others is called, where the attribute has no single root."""


@dataclass(frozen=True, eq=False)
class Places:
    """All places of an attribute: the whole, those with a name, and the values, which are the leaves."""

    layout: Layout
    names: tuple[str, ...]
    """The name of each node."""

    @staticmethod
    @lru_cache(maxsize=8)
    def of(attribute: Attribute) -> "Places":
        """The places of a hierarchy; of another attribute its values below the whole."""
        nodes = attribute.nodes if isinstance(attribute, Hierarchy) else attribute.labels
        above = dict(attribute.parents) if isinstance(attribute, Hierarchy) else {}
        roots = [node for node in nodes if node not in above]
        named = nodes if len(roots) == 1 and len(nodes) > 1 else (WHOLE, *nodes)
        number = {node: place for place, node in enumerate(named)}
        parent = [number.get(above.get(node, WHOLE), -1) if node != WHOLE else -1 for node in named]
        layout = forest(np.array(parent, dtype=np.int64), len(named))
        order = range(len(named)) if layout.order is None else layout.order.tolist()
        return Places(layout, tuple(named[place] for place in order))

    @cached_property
    def node_of(self) -> dict[str, int]:
        return {name: node for node, name in enumerate(self.names)}

    def nodes(self, attribute: Attribute, factor: Factor | None) -> Nodes | None:
        """The places that the rows of a factor are; None where some row is no place."""
        if factor is None or isinstance(factor, Total):
            return np.zeros(1, dtype=np.intp)
        if isinstance(factor, Value):
            names = [attribute.value_of(factor.label)]
        elif isinstance(factor, Identity):
            names = list(attribute.labels)
        elif isinstance(factor, Level):
            names = list(factor.row_labels(attribute))
        else:
            return None
        return np.array([self.node_of[name] for name in names], dtype=np.intp)

    def said(self, node: int) -> str:
        return self.names[node] or "the whole"


def geography_of(domain: Domain, attribute: str | None = None) -> Attribute | str:
    """The attribute whose values are places, or why none is."""
    if attribute is not None:
        return domain[attribute]
    levelled = [each for each in domain.counted if isinstance(each, Hierarchy) and each.level_names]
    marked = [each for each in levelled if each.geography]
    if len(marked or levelled) == 1:
        return (marked or levelled)[0]
    if not levelled:
        return "no attribute is a hierarchy with named levels; name the attribute whose values are places"
    return f"{', '.join(each.name for each in levelled)} each have named levels; mark one with geography = true"


# ----------------------------------------------------------------------------------------------------------------------
# What was measured, of which places.


@dataclass(frozen=True, order=True)
class Told:
    """What a marginal tells apart: attributes, by their place among those of the tables, and groups of their values."""

    axes: tuple[int, ...]
    groups: tuple[tuple[int, tuple[tuple[float, ...], ...]], ...] = ()
    """The attributes of which it has groups and not all values: a row of weights of the values for each."""

    @property
    def scope(self) -> dict[int, Array | None]:
        """As the solvers take it."""
        of = dict(self.groups)
        return {axis: np.array(of[axis]) if axis in of else None for axis in self.axes}

    @property
    def divides(self) -> bool:
        """Whether every value is in one group."""
        return all(
            np.all((np.array(rows) != 0).sum(axis=0) == 1) and np.all(np.array(rows) <= 1) for _, rows in self.groups
        )

    def label(self, sizes: Sequence[int]) -> NDArray[np.int64]:
        """The answer that each cell is counted in; where groups overlap, the set of answers."""
        of, found = dict(self.groups), np.zeros(tuple(sizes), dtype=np.int64)
        for axis in self.axes:
            sets = np.arange(sizes[axis])
            if axis in of:
                rows = np.array(of[axis])
                sets = np.argmax(rows != 0, axis=0) if self.divides else told_apart([rows])
            along = sets.reshape([-1 if other == axis else 1 for other in range(found.ndim)])
            found = found * (int(sets.max()) + 1) + along
        return found.reshape(-1)

    def counts(self, tables: Array, sizes: Sequence[int]) -> Array:
        """The answers of tables, a row each."""
        maps = [
            np.ones((1, size)) if axis not in self.axes else np.eye(size) if each is None else each
            for axis, size in enumerate(sizes)
            for each in (self.scope.get(axis),)
        ]
        away = tuple(1 + axis for axis in range(len(sizes)) if axis not in self.axes)
        if not self.groups:
            return tables.reshape(-1, *sizes).sum(axis=away).reshape(len(tables), -1)
        return turned(tables, maps)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Marginals of some places: a row of values for each."""

    nodes: Nodes
    told: Told
    values: Array
    variance: float
    """0 where they are known exactly."""
    name: str


@dataclass(frozen=True, eq=False)
class MeasuredPlaces:
    """Measurements as rows of marginals of nodes."""

    cells: MeasuredCells
    attribute: Attribute
    places: Places
    basis: CellBasis
    evidence: tuple[Evidence, ...]
    rows: tuple[_Rows, ...]
    limits: tuple["_Limits", ...]
    facts: Told
    """The table of each place that facts are about."""

    @staticmethod
    def of(measured: MeasurementSet, name: str | None) -> "MeasuredPlaces | str":
        """The problem, or the reason why these measurements are none."""
        refuse_nothing_to_fit(measured, keeps_places=True)
        domain = measured.domain
        attribute = geography_of(domain, name)
        if isinstance(attribute, str):
            return attribute
        if domain.impossible:
            return "impossible cells are declared, which it does not keep empty"
        if domain.cells > LARGEST_TABLE:
            return f"the full table has {readable_count(domain.cells)} cells; Geographic keeps up to {LARGEST_TABLE:,}"
        evidence = gather(measured, keeps_places=True)
        told = MeasuredCells.of(domain, evidence).names
        known = [name for each in domain.public.places for name in each.by]
        named = {*told, *known, attribute.name}
        cells = MeasuredCells(domain, tuple(each for each in domain.counted_names if each in named))
        others = [each for each in cells.names if each != attribute.name]
        places, sizes = Places.of(attribute), domain.sizes(others)
        if places.layout.nodes * math.prod(sizes) > LARGEST_TABLE:
            return f"all places together have more than {LARGEST_TABLE:,} cells"
        rows = []
        for each in evidence:
            found = _rows(each, attribute, places, others)
            if isinstance(found, str):
                return found
            rows.append(found)
        limits = tuple(_limits(each, domain, places, others) for each in domain.public.places)
        rows += [_Rows(nodes, each.told, low, 0.0, each.name) for each in limits for nodes, low in (each.exact,)]
        basis = CellBasis(sizes, sets_of([each.told for each in rows]))
        if max(basis.block_sizes) > LARGEST_BLOCK:
            return f"groups of values of several attributes have more than {LARGEST_BLOCK} combinations"
        tables = {each.told for each in (*rows, *limits) if isinstance(each, _Limits) or each.variance == 0.0}
        if not all(each.divides for each in tables):
            return "facts are about groups of values that overlap, or leave values out"
        facts = max(tables, key=lambda told: int(told.label(sizes).max(initial=0)), default=Told(()))
        problem = MeasuredPlaces(cells, attribute, places, basis, evidence, tuple(rows), limits, facts)
        if not all(each.told == facts for each in limits):
            return problem.refusal(tables)
        return problem if tables <= {facts} or problem.are_implied() else problem.refusal(tables)

    def refusal(self, tables: set[Told]) -> str:
        names = [name for name in self.cells.names if name != self.attribute.name]
        said = [", ".join(names[axis] for axis in each.axes) or "the total" for each in tables]
        return f"facts are about several tables of places, {'; '.join(sorted(said))}: Geographic keeps facts about one"

    def node_evidence(self) -> NodeEvidence:
        """All that was measured, and the facts."""
        found = NodeEvidence(self.places.layout.nodes, self.basis)
        for each in sorted(self.rows, key=lambda each: each.variance == 0.0):
            found.add(each.nodes, each.told.scope, each.values, each.variance)
        return found

    @property
    def stages(self) -> list[NDArray[np.int64]]:
        """The groups of cells whose sums are found first: those of the facts, then of nested measured marginals."""
        return stages_of(self.facts, [each.told for each in self.rows], self.basis.sizes)

    def bounds(self) -> Bounds | None:
        """Between what the sums of each place are, by the facts about it and those below it; None without facts."""
        known = [each for each in self.rows if each.variance == 0.0 and each.told == self.facts]
        if not known and not self.limits:
            return None
        groups = int(self.facts.label(self.basis.sizes).max()) + 1
        least = np.zeros((self.places.layout.nodes, groups))
        most = np.full_like(least, np.inf)
        for each in known:
            least[each.nodes] = np.maximum(least[each.nodes], each.values)
            most[each.nodes] = np.minimum(most[each.nodes], each.values)
        for each in self.limits:
            least[each.nodes] = np.maximum(least[each.nodes], each.least)
            most[each.nodes] = np.minimum(most[each.nodes], each.most)
        found = within_reach(self.places.layout, Bounds(least, most))
        if isinstance(found, OutOfReach):
            place = self.places.said(found.node)
            names = list(dict.fromkeys(each.name for each in (*known, *self.limits)))
            raise Infeasible(
                f"the facts contradict each other at {self.attribute.name}={place}: what is known of it and of the "
                f"places in it differs by {found.excess:.6g} at least ({'; '.join(names)}). Correct them, or give them "
                "as measurements with noise",
                violation=found.excess,
                constraints=[f"{self.attribute.name}={place}", *names],
            )
        return found

    def are_implied(self) -> bool:
        """Whether facts about coarser tables follow from those about the finest."""
        bounds = self.bounds()
        for each in self.rows:
            if each.variance > 0.0 or each.told == self.facts or bounds is None:
                continue
            fine, coarse = (told.label(self.basis.sizes) for told in (self.facts, each.told))
            if not _refines(fine, coarse):
                return False
            of = np.zeros(int(fine.max()) + 1, dtype=np.int64)
            of[fine] = coarse
            for ends in bounds:
                sums = np.zeros_like(each.values)
                np.add.at(sums.T, of, ends[each.nodes].T)
                if not np.allclose(sums, each.values, rtol=1e-9, atol=1e-9):
                    return False
        return True

    def objective(self, tables: Array) -> float:
        """Half the sum of squared residuals in units of the variances."""
        found = 0.0
        for each in self.rows:
            if each.variance > 0.0:
                residual = each.told.counts(tables[each.nodes], self.basis.sizes) - each.values
                found += float((residual**2).sum()) / (2.0 * each.variance)
        return found

    @property
    def leaves(self) -> Nodes:
        """The node of each code."""
        return np.array([self.places.node_of[label] for label in self.attribute.labels], dtype=np.intp)

    @property
    def _axis(self) -> int:
        return self.cells.names.index(self.attribute.name)

    def full_table(self, tables: Array) -> Array:
        """The table of the domain; attributes that were not measured are spread evenly."""
        own = tables[self.leaves].reshape(-1, *self.basis.sizes) / self.cells.behind
        return self.cells.spread(np.moveaxis(own, 0, self._axis))

    def node_tables(self, counts: Array) -> Array:
        """The table of every node, from that of the domain."""
        names = self.cells.domain.counted_names
        away = tuple(axis for axis, name in enumerate(names) if name not in self.cells.names)
        own = np.moveaxis(counts.sum(axis=away), self._axis, 0).reshape(self.attribute.size, -1)
        tables = np.zeros((self.places.layout.nodes, self.basis.cells))
        tables[self.leaves] = own
        return sums_of_leaves(self.places.layout, tables)


@dataclass(frozen=True, eq=False)
class _Limits:
    """Between what the marginals of some places are: a row for each."""

    nodes: Nodes
    told: Told
    least: Array
    most: Array
    name: str

    @property
    def exact(self) -> tuple[Nodes, Array]:
        """The places of which every cell is known, and their counts."""
        known = np.all(self.least == self.most, axis=1)
        return self.nodes[known], self.least[known]


def _limits(facts: PlaceFacts, domain: Domain, places: Places, others: Sequence[str]) -> _Limits:
    """Facts about single places; cells of a place that are not named are not known."""
    order = sorted(facts.by, key=others.index)
    sizes = domain.sizes(order)
    nodes = list(dict.fromkeys(places.node_of[cell[0]] for cell in facts.cells))
    row_of = {node: row for row, node in enumerate(nodes)}
    least = np.zeros((len(nodes), math.prod(sizes)))
    most = np.full_like(least, np.inf)
    for cell, low, high in zip(facts.cells, facts.least, facts.most, strict=True):
        told = dict(zip(facts.by, cell[1:], strict=True))
        column = int(np.ravel_multi_index([domain[name].code(told[name]) for name in order], sizes)) if order else 0
        row = row_of[places.node_of[cell[0]]]
        least[row, column], most[row, column] = low, high
    scope = tuple(others.index(name) for name in order)
    return _Limits(np.array(nodes, dtype=np.intp), Told(scope), least, most, f"the public {facts.describe()}")


def _rows(each: Evidence, attribute: Attribute, places: Places, others: Sequence[str]) -> _Rows | str:
    """What one query says of places, or the reason why it is no marginal of places."""
    if not each.whole:
        return f"answers to {each.name!r} were clipped or held back"
    if not each.query.is_product:
        return f"the query {each.name!r} ties attributes together"
    kept: list[tuple[int, int]] = []
    groups: list[tuple[int, tuple[tuple[float, ...], ...]]] = []
    nodes, place = np.zeros(1, dtype=np.intp), None
    for axis, (name, factor) in enumerate(each.query.factors):
        if name == attribute.name:
            found = places.nodes(attribute, factor)
            if found is None:
                return f"the query {each.name!r} is not about places of {attribute.name!r}"
            nodes, place = found, axis
        elif isinstance(factor, Identity):
            kept.append((others.index(name), axis))
        elif not isinstance(factor, Total):
            rows = each.bound.maps[axis]
            if rows.rows * rows.columns > LARGEST_MATRIX:
                return f"the query {each.name!r} has more than {LARGEST_MATRIX:,} weights of values of {name!r}"
            kept.append((others.index(name), axis))
            groups.append((others.index(name), tuple(map(tuple, rows.dense().tolist()))))
    kept.sort()
    values = each.values.reshape(each.bound.shape)
    order = ([] if place is None else [place]) + [axis for _, axis in kept]
    order += [axis for axis in range(values.ndim) if axis not in order]
    variance = 0.0 if each.exact else float(2.0 / each.weights.flat[0] ** 2)
    told = Told(tuple(other for other, _ in kept), tuple(sorted(groups)))
    return _Rows(nodes, told, values.transpose(order).reshape(len(nodes), -1), variance, each.name)


def sets_of(tables: Sequence[Told]) -> dict[int, NDArray[np.int64]]:
    """The sets of values of each attribute that no measured groups tell apart."""
    matrices: dict[int, list[Array]] = {}
    for axis, weights in dict.fromkeys(group for told in tables for group in told.groups):
        matrices.setdefault(axis, []).append(np.array(weights))
    return {axis: told_apart([np.ones((1, each[0].shape[1])), *each]) for axis, each in matrices.items()}


def stages_of(facts: Told, tables: Sequence[Told], sizes: Sequence[int]) -> list[NDArray[np.int64]]:
    """The groups of cells whose sums are found first: those of the facts, then of tables each finer than the last."""
    chain = [facts.label(sizes)]
    for told in sorted(set(tables), key=lambda told: (len(told.axes), not told.groups, told)):
        label = told.label(sizes)
        if label.max() > chain[-1].max() and label.max() + 1 < label.size and _refines(label, chain[-1]):
            chain.append(label)
    return chain


def _refines(fine: NDArray[np.int64], coarse: NDArray[np.int64]) -> bool:
    """Whether cells of one fine group are all in one coarse group."""
    return len(np.unique(fine * (coarse.max() + 1) + coarse)) == len(np.unique(fine))
