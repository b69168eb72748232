"""Tables for the places of a geography of millions, estimated region by region from files and written to files.

What `Geographic` does in memory, with the same results: all that the rest of a geography needs to know of a region is
what its subtree says of it, a mean and a covariance for each residual of one table. So regions are read one after the
other, each leaves that much behind, and the places above them are fitted and divided. Then every region is read once
more: it is fitted to what was found of it, divided within the table that it was given, and written. In memory are the
places above the regions and one region; the cost of a place is the same however many there are.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from consilience.domain.domains import Domain
from consilience.domain.factors import Identity, Total
from consilience.domain.queries import Query
from consilience.errors import DeclarationError, FileFormatError, MeasurementError
from consilience.estimators.base import Progress, check_level
from consilience.estimators.evidence import Array
from consilience.estimators.measured_places import MeasuredPlaces, Told, sets_of, stages_of
from consilience.measurements import MeasurementSet
from consilience.measurements.regional import RegionalMeasurements, in_domain_order, variance_of
from consilience.measurements.regions import PlaceRows, RegionFolder, RegionWriter
from consilience.solvers.fit import Infeasible
from consilience.solvers.geography.cell_basis import CellBasis
from consilience.solvers.geography.least_squares import NodeEvidence, NodeVariances, SignedFit, Upward, parents
from consilience.solvers.geography.nonnegative import Bounds, OutOfReach, divide, within_reach
from consilience.solvers.geography.subtrees import UNTOLD
from consilience.solvers.trees.layout import Layout, forest

KIND = "consilience-regional-model"
COUNTS, VARIANCE = "counts", "variance"
WHOLE = 1e-6
"""A count this close to a whole number is one."""


def estimate_regions(
    measured: RegionalMeasurements,
    folder: str | os.PathLike[str],
    *,
    nonnegative: bool = True,
    integers: bool = False,
    progress: Progress | None = None,
) -> "RegionalEstimate":
    """Tables of all places that add up, written to a folder: what `Geographic` finds, one region in memory at a time.

    Counts are not negative, or of either sign and unbiased with `nonnegative=False`; `integers=True` gives whole ones.
    """
    if integers and not nonnegative:
        raise DeclarationError("whole counts are not negative: leave out integers=True or nonnegative=False")
    began = time.perf_counter()
    problem = _Problem.of(measured)
    regions, done = measured.folder.regions, 0
    said, reach, largest, facts = {}, {}, 0.0, set()
    about = {
        "domain": measured.domain.to_declaration(),
        "geography": measured.geography,
        "method": {"method": "geographic", "nonnegative": nonnegative, "integers": integers},
        "privacy": measured.privacy.to_json(),
        "private": measured.private,
        "tables": [{"column": column, "query": query.to_json()} for column, query in measured.tables.items()],
    }
    with RegionWriter(folder, kind=KIND, about=about) as writer:
        for region in regions:
            part = problem.part(measured.region(region))
            facts |= part.facts
            reach[region] = part.reach(whole=integers)
            up = Upward(part.layout, part.evidence)
            said[region], largest = up.said_of_roots()[0], max(largest, up.largest)
            done = _tell(progress, done, 2 * len(regions))
        top = problem.part(measured.above())
        facts |= top.facts
        if len(facts) > 1:
            raise DeclarationError(
                f"facts are about several tables, {', '.join(sorted(facts))}; give exact ones of one"
            )
        stages = problem.stages(next(iter(facts), None))
        at = top.place_of(regions)
        for region, node in at.items():
            top.join(node, said[region], reach[region])
        top.evidence.largest = max(largest, top.evidence.largest)
        upper = Upward(top.layout, top.evidence).downward()
        held, unmet = upper.tables, 0.0
        if nonnegative:
            held, unmet = divide(upper, stages, bounds=top.reach(whole=integers), whole=integers)
        for region, node in at.items():
            part = problem.part(measured.region(region))
            bounds = part.reach(whole=integers)
            part.evidence.largest = upper.largest
            fit = Upward(part.layout, part.evidence).downward(
                upper.basis.coefficients(upper.tables[[node]]), upper.variances(np.array([node], dtype=np.int64))
            )
            tables = fit.tables
            if nonnegative:
                tables, off = divide(fit, stages, bounds=bounds, whole=integers, roots=held[[node]])
                unmet = max(unmet, off)
            _write(writer, region, part, fit, tables)
            done = _tell(progress, done, 2 * len(regions))
        writer.about["stats"] = {"gap": unmet, "seconds": time.perf_counter() - began}
        every = upper.variances(np.arange(top.layout.nodes))
        blocks = _joined(every)[every.of]
        rows = np.arange(top.layout.nodes)
        writer.finish(PlaceRows(top.names, parents(top.layout), {COUNTS: (rows, held), VARIANCE: (rows, blocks)}))
    return RegionalEstimate.open(folder)


def _tell(progress: Progress | None, done: int, of: int) -> int:
    if progress is not None:
        progress("regions", done + 1, of)
    return done + 1


def _write(writer: RegionWriter, region: str, part: "_Part", fit: SignedFit, tables: Array) -> None:
    rows = np.arange(part.layout.nodes)
    found = fit.variances(rows)
    number = found.of[:, None].astype(np.float64)
    writer.add_region(
        region, PlaceRows(part.names, parents(part.layout), {COUNTS: (rows, tables), VARIANCE: (rows, number)})
    )
    writer.add_beside(f"variances-{len(writer.regions) - 1:05d}.parquet", {VARIANCE: _joined(found)})


def _joined(found: NodeVariances) -> Array:
    """The matrices of all residuals side by side: what is untold, then what is told."""
    blocks = (*found.untold, *found.told)
    return np.concatenate([each.reshape(len(each), -1) for each in blocks], axis=1)


# ----------------------------------------------------------------------------------------------------------------------
# What was measured, as the solvers take it.


@dataclass(frozen=True, eq=False)
class _Problem:
    """The tables that were measured of places."""

    measured: RegionalMeasurements
    told: Mapping[str, Told]
    basis: CellBasis

    @staticmethod
    def of(measured: RegionalMeasurements) -> "_Problem":
        domain = measured.domain
        told = {column: told_of(domain, query) for column, query in measured.tables.items()}
        return _Problem(measured, told, CellBasis(domain.shape, sets_of(list(told.values()))))

    def stages(self, facts: str | None) -> list[NDArray[np.int64]]:
        return stages_of(Told(()) if facts is None else self.told[facts], list(self.told.values()), self.basis.sizes)

    def part(self, rows: PlaceRows) -> "_Part":
        layout = forest(rows.parent, len(rows.names))
        names, evidence = rows.names, NodeEvidence(layout.nodes, self.basis)
        place = np.arange(layout.nodes)
        if layout.order is not None:
            names, place = names.take(layout.order), np.argsort(layout.order)
        part = _Part(self, Layout(layout.first, layout.roots, layout.height, layout.total_depth), names, evidence)
        tables = dict(rows.tables)
        exact: list[tuple[str, NDArray[np.intp], Array]] = []
        for column, told in self.told.items():
            if column not in tables:
                continue
            chosen, values = tables.pop(column)
            noted, variances = tables.pop(variance_of(column), (chosen[:0], np.zeros((0, 1))))
            if not len(chosen):
                continue
            cells = self.basis.marginal(told.scope).cells
            if not np.array_equal(chosen, noted) or values.shape[1] != cells:
                raise FileFormatError(f"each of the tables {column!r} needs {cells} numbers and their variance")
            noise = variances[:, 0]
            if np.any(noise < 0.0):
                raise MeasurementError(f"a variance of {column!r} is negative; 0 says that a table is known exactly")
            if (known := noise == 0.0).any():
                exact.append((column, place[chosen[known]], values[known]))
                chosen, values, noise = chosen[~known], values[~known], noise[~known]
            evidence.add(place[chosen], told.scope, values, noise)
        for column, nodes, values in exact:
            part.known(column, nodes, values)
        return part


class _Part:
    """Some places with what was measured of them, parents first."""

    def __init__(self, problem: _Problem, layout: Layout, names: Any, evidence: NodeEvidence) -> None:
        self.problem, self.layout, self.names, self.evidence = problem, layout, names, evidence
        self.facts: set[str] = set()
        self._bounds: Bounds | None = None

    def known(self, column: str, nodes: NDArray[np.intp], values: Array) -> None:
        """Facts, which are bounds on the tables as well."""
        told = self.problem.told[column]
        if not told.divides:
            raise DeclarationError(
                f"the exact table {column!r} is about groups of values that overlap or leave some out"
            )
        self.evidence.add(nodes, told.scope, values, 0.0)
        self.facts.add(column)
        if len(self.facts) == 1:
            least = np.zeros((self.layout.nodes, values.shape[1]))
            self._bounds = Bounds(least, np.full_like(least, np.inf))
            for ends in self._bounds:
                ends[nodes] = values

    def reach(self, *, whole: bool) -> Bounds | None:
        """The bounds of every place, by the facts about it and those below it."""
        if self._bounds is None:
            return None
        found = within_reach(self.layout, self._bounds)
        if isinstance(found, OutOfReach):
            place = self.names[found.node].as_py()
            raise Infeasible(
                f"the facts contradict each other at {place}: what is known of it and of the places in it differs by "
                f"{found.excess:.6g} at least. Correct them, or give them as measurements with noise",
                violation=found.excess,
                constraints=[str(place)],
            )
        for ends in found if whole else ():
            finite = ends[np.isfinite(ends)]
            if np.any(np.abs(finite - np.rint(finite)) > WHOLE):
                raise DeclarationError("facts about places hold fractions; correct them, or leave out integers=True")
        return Bounds(np.ceil(found.least - WHOLE), np.floor(found.most + WHOLE)) if whole else found

    def place_of(self, regions: Sequence[str]) -> dict[str, int]:
        """The node of each region, which has no children here."""
        at = {name: node for node, name in enumerate(self.names.to_pylist())}
        for region in regions:
            node = at[region]
            if self.layout.first[node] < self.layout.first[node + 1] or self.evidence.kinds[node] != 0:
                raise FileFormatError(
                    f"region {region!r} has children or measurements among the places above the regions"
                )
        return {region: at[region] for region in regions}

    def join(self, node: int, said: tuple[Array, list[Array], list[Array], float], reach: Bounds | None) -> None:
        """What a region's subtree says of it, and the bounds of its table."""
        self.evidence.give(node, *said)
        if reach is None:
            return
        if self._bounds is None:
            least = np.zeros((self.layout.nodes, reach.least.shape[1]))
            self._bounds = Bounds(least, np.full_like(least, np.inf))
        self._bounds.least[node], self._bounds.most[node] = reach.least[0], reach.most[0]


def told_of(domain: Domain, query: Query) -> Told:
    """What a query over the attributes of the tables tells apart."""
    axes, groups, bound = [], [], query.bind(domain)
    for (name, factor), each in zip(query.factors, bound.maps, strict=True):
        if isinstance(factor, Total):
            continue
        axes.append(domain.counted_names.index(name))
        if not isinstance(factor, Identity):
            groups.append((axes[-1], tuple(map(tuple, each.dense().tolist()))))
    return Told(tuple(axes), tuple(groups))


# ----------------------------------------------------------------------------------------------------------------------
# The estimate: a folder of tables, of which one region is opened to answer about places in it.


@dataclass(frozen=True, eq=False)
class RegionalEstimate:
    """Tables of all places, in a folder; one file is read to answer about a place."""

    folder: RegionFolder
    domain: Domain
    """The attributes of the tables of places."""
    basis: CellBasis

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> "RegionalEstimate":
        found = RegionFolder.open(folder, kind=KIND)
        domain = Domain.from_declaration(found.manifest["domain"])
        told = [told_of(domain, Query.from_json(each["query"])) for each in found.manifest["tables"]]
        return RegionalEstimate(found, domain, CellBasis(domain.shape, sets_of(told)))

    @property
    def method(self) -> Mapping[str, Any]:
        return self.folder.manifest["method"]

    def table(self, place: str) -> Array:
        """The counts of a place, an axis for each attribute."""
        rows, at = self._of(place)
        return rows.tables[COUNTS][1][at].reshape(self.domain.shape)

    def answer(self, place: str, query: Query | str) -> Array:
        """The answers to a query over the attributes of the tables, in one place."""
        bound = self._bound(query)
        return np.asarray(bound.answer_full(self.table(place)), dtype=np.float64)

    def within(self, place: str) -> dict[str, Array]:
        """The tables of the places that a place is made of."""
        rows, at = self._of(place, children=True)
        below = np.flatnonzero(rows.parent == at)
        return {rows.names[int(row)].as_py(): rows.tables[COUNTS][1][row].reshape(self.domain.shape) for row in below}

    def standard_errors(self, place: str, query: Query | str) -> Array:
        """The standard errors of least squares before negative counts are avoided; infinite where nothing tells."""
        bound = self._bound(query)
        rows, at = self._of(place)
        region, found = self.folder.region_of(place), rows.tables[VARIANCE][1][at]
        if region is not None:
            found = dict(self.folder.beside(region)).popitem()[1][VARIANCE][int(found[0])]
        told = told_of(self.domain, bound.query)
        marginal = self.basis.marginal(told.scope)
        untold, known = (marginal.variances(blocks) for blocks in self._blocks(found))
        return np.where(untold > UNTOLD, np.inf, np.sqrt(np.maximum(known, 0.0))).reshape(bound.shape)

    def interval(self, place: str, query: Query | str, level: float = 0.95) -> tuple[Array, Array]:
        """Ends that hold the answer with this probability: those of least squares, cut off at 0 for counts.

        Least squares' errors are wider than those of counts that are not negative, where counts are small.
        """
        check_level(level)
        answers = self.answer(place, query)
        width = self.standard_errors(place, query) * float(norm.ppf(0.5 + level / 2.0))
        low = answers - width
        counts = self.method["nonnegative"] and all(each.nonnegative for each in self._bound(query).maps)
        return (np.maximum(low, 0.0) if counts else low), answers + width

    def _bound(self, query: Query | str) -> Any:
        text = Query.parse(query) if isinstance(query, str) else query
        ordered, _ = in_domain_order(self.domain, text.over(self.domain).factors)
        return ordered.bind(self.domain)

    def _blocks(self, flat: Array) -> tuple[list[Array], list[Array]]:
        sizes = [b * b for b in self.basis.block_sizes]
        parts = np.split(flat, np.cumsum(sizes * 2)[:-1])
        shaped = [part.reshape(1, math.isqrt(part.size), -1) for part in parts]
        return shaped[: len(sizes)], shaped[len(sizes) :]

    def _of(self, place: str, *, children: bool = False) -> tuple[PlaceRows, int]:
        """The file that a place is in, with its row."""
        import pyarrow.compute as pc

        region = self.folder.region_of(place)
        rows = self._above if region is None else self.folder.region(region)
        return rows, int(pc.index(rows.names, place).as_py())

    @cached_property
    def _above(self) -> PlaceRows:
        return self.folder.above()


def partition(measured: MeasurementSet, folder: str | os.PathLike[str], level: str) -> RegionalMeasurements:
    """Measurements in memory as a folder, with a file for each place of a level."""
    problem = MeasuredPlaces.of(measured, None)
    if isinstance(problem, str):
        raise DeclarationError(f"the measurements cannot be divided by places: {problem}")
    if problem.limits:
        raise DeclarationError(
            "bounds on places are not kept in folders of regions; give exact tables, or fit in memory"
        )
    others = [measured.domain[name] for name in problem.cells.names if name != problem.attribute.name]
    domain, tables = Domain(measured.domain.name, tuple(others)), _columns(problem)
    layout, above = problem.places.layout, parents(problem.places.layout)
    region = np.full(layout.nodes, -1, dtype=np.int64)
    for name in problem.attribute.groups(level):
        region[problem.places.node_of[name]] = problem.places.node_of[name]
    for node in range(layout.nodes):
        if region[node] < 0 <= above[node]:
            region[node] = region[above[node]]
    writer = RegionalMeasurements.writer(
        folder,
        domain,
        problem.attribute.name,
        {column: query for column, (query, _) in tables.items()},
        privacy=measured.privacy,
        private=measured.private,
    )
    with writer:
        for root in np.unique(region[region >= 0]).tolist():
            writer.add_region(
                problem.places.said(root), _chosen(problem, above, tables, np.flatnonzero(region == root))
            )
        regions = region == np.arange(layout.nodes)
        top = np.flatnonzero((region < 0) | regions)
        writer.finish(_chosen(problem, above, tables, top, without=np.flatnonzero(regions)))
    return RegionalMeasurements.open(folder)


Columns = dict[str, tuple[Query, list[tuple[NDArray[np.intp], Array, float]]]]


def _columns(problem: MeasuredPlaces) -> Columns:
    """For each column its query, and what was measured: places that have several tables alike take several columns."""
    found: Columns = {}
    held: dict[str, tuple[Told, set[int]]] = {}
    for evidence, rows in zip(problem.evidence, problem.rows, strict=False):
        factors = [pair for pair in evidence.query.factors if pair[0] != problem.attribute.name]
        told = tuple(pair for pair in factors if not isinstance(pair[1], Total))
        query = in_domain_order(problem.cells.domain, told)[0]
        fitting = (c for c, (of, nodes) in held.items() if of == rows.told and nodes.isdisjoint(rows.nodes.tolist()))
        column = next(fitting, None) or f"table {len(held)}"
        held.setdefault(column, (rows.told, set()))[1].update(rows.nodes.tolist())
        found.setdefault(column, (query, []))[1].append((rows.nodes, rows.values, rows.variance))
    return found


def _chosen(
    problem: MeasuredPlaces,
    above: NDArray[np.int64],
    tables: Columns,
    nodes: NDArray[np.intp],
    without: NDArray[np.intp] | None = None,
) -> PlaceRows:
    """The rows of some places; of those `without`, none of what was measured."""
    import pyarrow as pa

    row = np.full(len(above), -1, dtype=np.int64)
    row[nodes] = np.arange(len(nodes))
    measured = np.isin(np.arange(len(above)), nodes)
    if without is not None:
        measured[without] = False
    parent = np.where(above[nodes] >= 0, row[above[nodes]], -1)
    found: dict[str, tuple[NDArray[np.intp], Array]] = {}
    for column, (_, parts) in tables.items():
        chosen = [(row[of[measured[of]]], values[measured[of]], noise) for of, values, noise in parts]
        at = np.concatenate([places for places, _, _ in chosen])
        order = np.argsort(at)
        variances = np.concatenate([np.full((len(places), 1), noise) for places, _, noise in chosen])
        found[column] = (at[order], np.concatenate([values for _, values, _ in chosen])[order])
        found[variance_of(column)] = (at[order], variances[order])
    return PlaceRows(pa.array([problem.places.said(node) for node in nodes.tolist()], pa.string()), parent, found)
