"""`Geographic`: a table for every place of a geography, from marginals measured at any of its levels.

The geography is a hierarchy attribute: its values are the smallest places, and those above them are sums. Measured
are marginals by other attributes, or by groups of their values, of all places of a level, of some of them, or of the
whole. The estimate has a table for every place; tables of places that make up another one sum to its table, no count is
negative, and what is known exactly is kept.

Two steps (`solvers.geography` has the mathematics). Generalised least squares without a sign: exact, linear in places
times cells, with closed-form standard errors. Then tables are divided from the top down: each place's table among those
below it, first the totals and what else was measured of nested marginals, then the cells.

*Intervals* need no refit of all places. The errors of the signed fit have a known law, and what the division makes of
them at some place depends on the places above it and those beside them. These are drawn and divided anew.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain.factors import Identity, Total
from consilience.domain.queries import BoundQuery, Query
from consilience.errors import DeclarationError, TooLarge, readable_bytes, readable_count
from consilience.estimators.base import FullTableEstimate, Progress, Suitability
from consilience.estimators.evidence import Array
from consilience.estimators.measured_places import MeasuredPlaces
from consilience.kernels.rng import generator
from consilience.measurements import MeasurementSet
from consilience.solvers.fit import Status
from consilience.solvers.geography.least_squares import SignedFit, draw_errors, fit_signed
from consilience.solvers.geography.nonnegative import Bounds, divide
from consilience.solvers.geography.subtrees import UNTOLD
from consilience.solvers.trees.layout import Layout

Nodes = NDArray[np.intp]
BYTES_PER_COUNT = 50
"""What a cell of a place takes at the peak: some five numbers, and the table itself."""
WHOLE = 1e-6
"""A count this close to a whole number is one."""
DRAWN_AT_ONCE = 20_000_000
"""Errors of so many cells are drawn at a time."""


@dataclass(frozen=True)
class Geographic:
    """Tables of all places that add up, from marginals at any level of a hierarchy attribute; up to 33 million cells.

    `attribute` names the geography; None stands for the one that the domain marks as such, or for the only hierarchy
    with named levels. An attribute that is no hierarchy has two levels: the whole, and its values. `integers=True`
    gives whole counts, and `nonnegative=False` ends with least squares, unbiased and with counts of either sign. Facts
    are to be about one table of each place, such as its total, and answers clipped or held back are not taken.
    """

    attribute: str | None = None
    nonnegative: bool = True
    integers: bool = False

    name: ClassVar[str] = "geographic"

    def __post_init__(self) -> None:
        if self.integers and not self.nonnegative:
            raise DeclarationError("whole counts are not negative: leave out integers=True or nonnegative=False")

    def suitability(self, measured: MeasurementSet) -> Suitability:
        problem = MeasuredPlaces.of(measured, self.attribute)
        if isinstance(problem, str):
            return Suitability(False, problem)
        need = BYTES_PER_COUNT * problem.places.layout.nodes * problem.basis.cells
        places, cells = problem.places.layout.nodes, problem.basis.cells
        text = f"{places:,} places with {readable_count(cells)} cells each take about {readable_bytes(need)} of memory"
        return Suitability(True, f"{text}, and least squares over all of them are exact and fast", need)

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "GeographicEstimate":
        began = time.perf_counter()
        problem = MeasuredPlaces.of(measured, self.attribute)
        if isinstance(problem, str):
            raise TooLarge(f"Geographic cannot fit these measurements: {problem}")
        bounds = problem.bounds()
        self._refuse_bounds(problem)
        if self.integers and bounds is not None:
            bounds = Bounds(np.ceil(bounds.least - WHOLE), np.floor(bounds.most + WHOLE))
        signed = fit_signed(problem.places.layout, problem.node_evidence())
        tables, unmet = signed.tables, 0.0
        if self.nonnegative:
            tables, unmet = divide(signed, problem.stages, bounds=bounds, whole=self.integers)
        if progress is not None:
            progress("fitting", 1, 1)
        stats: dict[str, float | int | str] = {
            "objective": problem.objective(tables),
            "gap": unmet,
            "places": problem.places.layout.nodes,
            "measured_answers": sum(each.values.size for each in problem.evidence if not each.exact),
            "seconds": time.perf_counter() - began,
        }
        method = {"method": self.name, "nonnegative": self.nonnegative, "integers": self.integers}
        method |= {} if self.attribute is None else {"attribute": self.attribute}
        status = Status.CONVERGED if unmet <= 1e-8 else Status.STALLED
        return GeographicEstimate(measured, method, status, stats, problem.full_table(tables))

    def _refuse_bounds(self, problem: MeasuredPlaces) -> None:
        """Refuse bounds on counts of either sign, and fractions as the counts of whole records."""
        numbers = [each for limits in problem.limits for each in (limits.least, limits.most)]
        numbers += [each.values for each in problem.rows if each.variance == 0.0]
        if not self.nonnegative and any(np.any(each.least < each.most) for each in problem.limits):
            raise DeclarationError(
                "bounds on places are kept where counts are not negative; leave out nonnegative=False"
            )
        for each in numbers if self.integers else ():
            finite = each[np.isfinite(each)]
            if np.any(np.abs(finite - np.round(finite)) > WHOLE):
                raise DeclarationError("facts about places hold fractions; correct them, or leave out integers=True")


# ----------------------------------------------------------------------------------------------------------------------
# The estimate: the full table, the errors of least squares, and what other noise would have made of it.


@dataclass(frozen=True, eq=False)
class GeographicEstimate(FullTableEstimate):
    """The table of every place; standard errors of least squares, and intervals without fitting all places again."""

    judged_by_tables: ClassVar[bool] = True

    @cached_property
    def _problem(self) -> MeasuredPlaces:
        problem = MeasuredPlaces.of(self.measurements, self.method.get("attribute"))
        if isinstance(problem, str):
            raise DeclarationError(f"the account cannot be read: {problem}")
        return problem

    @cached_property
    def _signed(self) -> SignedFit:
        return fit_signed(self._problem.places.layout, self._problem.node_evidence())

    def standard_errors(self, query: Query | str) -> Array:
        """The standard errors of least squares before negative counts are avoided, for marginals of places.

        >>> import consilience as cs
        >>> place = cs.Attribute.hierarchy("place", {"Bern": "CH", "Lyon": "FR"}, levels=["Country", "City"])
        >>> measured = cs.MeasurementSet.from_marginals(
        ...     cs.Domain("two", (place,)), {"place": [30.0, 50.0]}, noise=cs.Gaussian(3.0)
        ... )
        >>> Geographic().fit(measured).standard_errors("by Country").round(3)
        array([3., 3.])
        """
        bound = self.bound(query)
        of = _Asked.of(self._problem, bound)
        if of is None or not of.is_marginal or any(len(nodes) != 1 for nodes in of.nodes):
            raise DeclarationError(
                f"{bound.query.describe()!r} is no marginal of places; standard errors are of those alone"
            )
        nodes = [nodes[0] for nodes in of.nodes]
        scope = of.scope
        found = np.sqrt(self._signed.marginal_variances(scope, nodes))
        sizes = [self._problem.basis.sizes[axis] if each is None else len(each) for axis, each in scope.items()]
        return of.placed(found.reshape(len(nodes), *sizes)).reshape(bound.shape)

    def difference_error(self, one: str, other: str, *attributes: str) -> float:
        """The standard error of least squares of the difference of two places, in a cell by these attributes.

        The largest of the cells, where groups of their values were measured.
        """
        problem, signed = self._problem, self._signed
        names = [name for name in problem.cells.names if name != problem.attribute.name]
        marginal = problem.basis.marginal(sorted(names.index(name) for name in attributes))
        pair = [problem.places.node_of[problem.attribute.value_of(place)] for place in (one, other)]
        each = signed.variances(np.array(pair, dtype=np.int64))
        if np.any(marginal.variances([part[each.of] for part in each.untold]) > UNTOLD):
            return math.inf
        both = signed.covariance(*pair)
        blocks = [(part[each.of].sum(axis=0) - cov - cov.T)[None] for part, cov in zip(each.told, both, strict=True)]
        return math.sqrt(max(0.0, float(marginal.variances(blocks).max())))

    def redrawn(self, queries: Sequence[Query], number: int, seed: int) -> list[tuple[Array, Array]] | None:
        """The answers, and those of refits to other noise, of the places asked about and those above and beside them.

        Noise is taken to be Gaussian, whatever its law. None where a query is no sum over places.
        """
        problem = self._problem
        asked = [_Asked.of(problem, query.bind(self.domain)) for query in queries]
        needed = {node for each in asked if each is not None for nodes in each.nodes for node in nodes}
        if any(each is None for each in asked):
            return None
        part = _above_and_beside(self._signed, needed)
        if not part.fit.subtrees.all_told[part.fit.classes].all():
            return None
        tables = problem.node_tables(self.counts)[part.nodes]
        bounds = problem.bounds()
        within = None if bounds is None else Bounds(bounds.least[part.nodes], bounds.most[part.nodes])
        rng = generator(seed)
        answers: list[list[Array]] = [[] for _ in queries]
        at_once = max(1, DRAWN_AT_ONCE // max(1, tables.size))
        for first in range(0, number, at_once):
            count = min(at_once, number - first)
            errors = draw_errors(part.fit, range(len(part.nodes)), count, rng)
            for draw in range(count):
                moved = tables + np.array([errors[node][draw] for node in range(len(part.nodes))])
                if self.method.get("nonnegative"):
                    again = replace(part.fit, tables=moved)
                    moved = divide(again, problem.stages, bounds=within, whole=bool(self.method.get("integers"))).tables
                for found, each in zip(answers, asked, strict=True):
                    found.append(each.answer(moved, part.place))  # type: ignore[union-attr]
        truths = [each.answer(tables, part.place) for each in asked if each is not None]
        return [(truth, np.array(found)) for truth, found in zip(truths, answers, strict=True)]


@dataclass(frozen=True, eq=False)
class _Part:
    """Some nodes with all that is above them and beside those."""

    nodes: Nodes
    place: dict[int, int]
    """Where each node stands among these."""
    fit: SignedFit


def _above_and_beside(fit: SignedFit, needed: set[int]) -> _Part:
    """The part of a fit on which the division at some nodes depends."""
    opened = {node for each in needed for node in fit.path(each)[1:]}
    chosen = set(range(fit.layout.roots))
    for node in opened:
        chosen.update(range(int(fit.layout.first[node]), int(fit.layout.first[node + 1])))
    nodes = np.array(sorted(chosen), dtype=np.intp)
    children = [int(fit.layout.first[v + 1] - fit.layout.first[v]) if v in opened else 0 for v in nodes.tolist()]
    first = fit.layout.roots + np.concatenate([[0], np.cumsum(children)]).astype(np.int64)
    layout = Layout(first, fit.layout.roots, fit.layout.height, fit.layout.total_depth)
    part = replace(fit, layout=layout, tables=fit.tables[nodes], classes=fit.classes[nodes])
    return _Part(nodes, {int(node): place for place, node in enumerate(nodes)}, part)


@dataclass(frozen=True, eq=False)
class _Asked:
    """A query as sums over nodes and maps of the other attributes."""

    problem: MeasuredPlaces
    bound: BoundQuery
    nodes: list[list[int]]
    """For each row of the geography the nodes that it adds up."""

    @staticmethod
    def of(problem: MeasuredPlaces, bound: BoundQuery) -> "_Asked | None":
        """None where rows weigh places, or tie them to other attributes."""
        if any(len(names) > 1 for names in bound.groups):
            return None
        name = problem.attribute.name
        factor = dict(bound.query.factors).get(name)
        nodes = problem.places.nodes(problem.attribute, factor)
        if nodes is not None:
            return _Asked(problem, bound, [[int(node)] for node in nodes])
        matrix = bound.maps[bound.groups.index((name,))].dense()
        if not np.all((matrix == 0.0) | (matrix == 1.0)):
            return None
        return _Asked(problem, bound, [problem.leaves[row > 0.0].tolist() for row in matrix])

    @property
    def _told(self) -> list[str]:
        return [name for name in self.problem.cells.names if name != self.problem.attribute.name]

    @property
    def is_marginal(self) -> bool:
        """Whether it is about attributes that the tables of places have."""
        return set(self._asked) <= set(self._told)

    @property
    def _asked(self) -> list[str]:
        factors = self.bound.query.factors
        return [
            each for each, factor in factors if each != self.problem.attribute.name and not isinstance(factor, Total)
        ]

    @property
    def scope(self) -> dict[int, Array | None]:
        factors, found = dict(self.bound.query.factors), {}
        for axis in sorted(self._told.index(name) for name in self._asked):
            name = self._told[axis]
            rows = self.bound.maps[self.bound.groups.index((name,))]
            found[axis] = None if isinstance(factors[name], Identity) else rows.dense()
        return found

    def placed(self, tables: Array) -> Array:
        """An axis for rows of places and one for each asked attribute of the tables, in the order of the query."""
        held = [self.problem.attribute.name, *(self._told[axis] for axis in self.scope)]
        order = [name for name, _ in self.bound.query.factors if name in held]
        if self.problem.attribute.name not in order:
            tables, held = tables[0], held[1:]
        return tables.transpose([held.index(name) for name in order])

    def _sums(self, tables: Array, place: dict[int, int]) -> Array:
        """The table of each row of the geography: that of its place, or the sum of those of its places."""
        if all(len(nodes) == 1 for nodes in self.nodes):
            return tables[[place[nodes[0]] for nodes in self.nodes]]
        return np.array([tables[[place[node] for node in nodes]].sum(axis=0) for nodes in self.nodes])

    def answer(self, tables: Array, place: dict[int, int]) -> Array:
        """The answers, flat, from tables of nodes."""
        problem, name = self.problem, self.problem.attribute.name
        rows = self._sums(tables, place)
        rows = rows.reshape(len(self.nodes), *problem.basis.sizes)
        asked = [each for each in self.bound.attributes if each != name]
        rows = rows.sum(axis=tuple(1 + axis for axis, each in enumerate(self._told) if each not in asked))
        held = [name, *(each for each in self._told if each in asked)]
        for each in asked:
            if each not in held:  # not measured: spread evenly
                size = problem.cells.domain[each].size
                rows = np.repeat(rows[..., None] / size, size, axis=-1)
                held.append(each)
        if name not in self.bound.attributes:
            rows, held = rows[0], held[1:]
        rows = rows.transpose([held.index(each) for each in self.bound.attributes])
        for axis, (each, names) in enumerate(zip(self.bound.maps, self.bound.groups, strict=True)):
            if names != (name,):
                rows = each.apply(rows, axis)
        return np.ravel(rows)
