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
from consilience.solvers.geography.least_squares import CellBasis, NodeEvidence, sums_of_leaves
from consilience.solvers.geography.nonnegative import Bounds, OutOfReach, within_reach
from consilience.solvers.trees.layout import Layout, forest

Nodes = NDArray[np.intp]

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


@dataclass(frozen=True, eq=False)
class _Rows:
    """Marginals of some places: a row of values for each."""

    nodes: Nodes
    scope: tuple[int, ...]
    """The attributes told apart, by their place among those of the tables."""
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
    facts: tuple[int, ...]
    """The attributes of the table of each place that facts are about."""

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
        places, basis = Places.of(attribute), CellBasis(domain.sizes(others))
        if places.layout.nodes * basis.cells > LARGEST_TABLE:
            return f"all places together have more than {LARGEST_TABLE:,} cells"
        rows = []
        for each in evidence:
            found = _rows(each, attribute, places, others)
            if isinstance(found, str):
                return found
            rows.append(found)
        limits = tuple(_limits(each, domain, places, others) for each in domain.public.places)
        rows += [_Rows(nodes, each.scope, low, 0.0, each.name) for each in limits for nodes, low in (each.exact,)]
        scopes = {each.scope for each in (*rows, *limits) if isinstance(each, _Limits) or each.variance == 0.0}
        facts = max(scopes, key=len, default=())
        problem = MeasuredPlaces(cells, attribute, places, basis, evidence, tuple(rows), limits, facts)
        if not all(each.scope == facts for each in limits):
            return problem.refusal(scopes)
        return problem if scopes <= {facts} or problem.are_implied() else problem.refusal(scopes)

    def refusal(self, scopes: set[tuple[int, ...]]) -> str:
        names = [name for name in self.cells.names if name != self.attribute.name]
        tables = [", ".join(names[axis] for axis in scope) or "the total" for scope in sorted(scopes)]
        return f"facts are about several tables of places, {'; '.join(tables)}: Geographic keeps facts about one"

    def node_evidence(self) -> NodeEvidence:
        """All that was measured, and the facts."""
        found = NodeEvidence(self.places.layout.nodes, self.basis)
        for each in sorted(self.rows, key=lambda each: each.variance == 0.0):
            found.add(each.nodes, each.scope, each.values, each.variance)
        return found

    @property
    def stages(self) -> list[NDArray[np.int64]]:
        """The groups of cells whose sums are found first: those of the facts, then of nested measured marginals."""
        chain = [self.facts]
        for scope in sorted({each.scope for each in self.rows}, key=lambda scope: (len(scope), scope)):
            if set(chain[-1]) < set(scope) and len(scope) < len(self.basis.sizes):
                chain.append(scope)
        return [self._labels(scope) for scope in chain]

    def _labels(self, scope: tuple[int, ...]) -> NDArray[np.int64]:
        label = np.zeros(self.basis.sizes, dtype=np.int64)
        for axis in scope:
            size = self.basis.sizes[axis]
            along = np.arange(size).reshape([-1 if other == axis else 1 for other in range(label.ndim)])
            label = label * size + along
        return label.reshape(-1)

    def bounds(self) -> Bounds | None:
        """Between what the sums of each place are, by the facts about it and those below it; None without facts."""
        known = [each for each in self.rows if each.variance == 0.0 and each.scope == self.facts]
        if not known and not self.limits:
            return None
        groups = math.prod(self.basis.sizes[axis] for axis in self.facts)
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
            if each.variance > 0.0 or each.scope == self.facts or bounds is None:
                continue
            if not set(each.scope) <= set(self.facts):
                return False
            sizes = [self.basis.sizes[axis] for axis in self.facts]
            away = tuple(1 + axis for axis, place in enumerate(self.facts) if place not in each.scope)
            for ends in bounds:
                sums = ends[each.nodes].reshape(-1, *sizes).sum(axis=away).reshape(each.values.shape)
                if not np.allclose(sums, each.values, rtol=1e-9, atol=1e-9):
                    return False
        return True

    def objective(self, tables: Array) -> float:
        """Half the sum of squared residuals in units of the variances."""
        found = 0.0
        for each in self.rows:
            if each.variance > 0.0:
                residual = self.marginals(tables[each.nodes], each.scope) - each.values
                found += float((residual**2).sum()) / (2.0 * each.variance)
        return found

    def marginals(self, tables: Array, scope: tuple[int, ...]) -> Array:
        """The marginals of tables, a row each."""
        away = tuple(1 + axis for axis in range(len(self.basis.sizes)) if axis not in scope)
        return tables.reshape(-1, *self.basis.sizes).sum(axis=away).reshape(len(tables), -1)

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
    scope: tuple[int, ...]
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
    return _Limits(np.array(nodes, dtype=np.intp), scope, least, most, f"the public {facts.describe()}")


def _rows(each: Evidence, attribute: Attribute, places: Places, others: Sequence[str]) -> _Rows | str:
    """What one query says of places, or the reason why it is no marginal of places."""
    if not each.whole:
        return f"answers to {each.name!r} were clipped or held back"
    kept: list[tuple[int, int]] = []
    nodes, place = np.zeros(1, dtype=np.intp), None
    if not each.query.is_product:
        return f"the query {each.name!r} ties attributes together"
    for axis, (name, factor) in enumerate(each.query.factors):
        if name == attribute.name:
            found = places.nodes(attribute, factor)
            if found is None:
                return f"the query {each.name!r} is not about places of {attribute.name!r}"
            nodes, place = found, axis
        elif isinstance(factor, Identity):
            kept.append((others.index(name), axis))
        elif not isinstance(factor, Total):
            return f"the query {each.name!r} is no marginal by the attributes besides {attribute.name!r}"
    kept.sort()
    values = each.values.reshape(each.bound.shape)
    order = ([] if place is None else [place]) + [axis for _, axis in kept]
    order += [axis for axis in range(values.ndim) if axis not in order]
    variance = 0.0 if each.exact else float(2.0 / each.weights.flat[0] ** 2)
    return _Rows(
        nodes, tuple(other for other, _ in kept), values.transpose(order).reshape(len(nodes), -1), variance, each.name
    )
