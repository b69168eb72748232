"""Answers to factored queries without the marginal they are about (McKenna, Sheldon, Miklau 2019, Algorithm 3).

A factored query has one linear map Q_i for each of some attributes; its answers, indexed by one row of each map, are

    a(z) = total · Σ_x p(x) Π_i Q_i(z_i, x_i) .

Each Q_i is one more table, over the axes z_i and x_i, in a product whose x are summed out and whose z remain. A map of
one row (evidence, a subset, a mean) is a table over x_i alone; the identity leaves x_i in place; a sum leaves x_i out;
every other map is carried out along its axis when the plan says, which may be before, among or after the other sums.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import scipy.sparse as sp

from consilience.errors import DeclarationError, TooLarge, readable_bytes, readable_count, refused
from consilience.kernels.linear_maps import IdentityMap, LinearMap, SparseMap, SumMap
from consilience.models.elimination import CalibratedModel
from consilience.models.elimination_plans import (
    ELIMINATION,
    EliminationPlan,
    Image,
    SharedWork,
    carry_out_within,
    plan_elimination,
)
from consilience.models.model import Array
from consilience.models.tables import Axes, ScaledTable, contract

MOST_AXES = 32
"""The axes that an array has at most in every version of NumPy."""


@dataclass(frozen=True)
class FactoredQuery:
    """One linear map for each of some attributes."""

    attributes: tuple[int, ...]
    maps: tuple[LinearMap, ...]

    @staticmethod
    def of(maps: Mapping[int, LinearMap]) -> "FactoredQuery":
        """The query with these maps, in this order."""
        return FactoredQuery(tuple(maps), tuple(maps.values()))

    @property
    def shape(self) -> tuple[int, ...]:
        """The rows of each map; where there are more than 32 maps, those of one row are left out."""
        rows = tuple(each.rows for each in self.maps)
        return rows if len(rows) <= MOST_AXES else tuple(count for count in rows if count != 1)


def answer(model: CalibratedModel, query: FactoredQuery) -> Array:
    """The expected answers to a query, one axis for each of its maps."""
    return _answered(model, query, _Prepared.of(model, query), None, None)


def answer_many(model: CalibratedModel, queries: Sequence[FactoredQuery]) -> list[Array | TooLarge]:
    """The answers to each query, or why there are none. What is cheaper to build once is shared between queries."""
    shared = SharedWork(model.memory_limit // 4)
    prepared = [refused(partial(_Prepared.of, model, query)) for query in queries]
    found: list[Array | TooLarge] = [each if isinstance(each, TooLarge) else np.empty(0) for each in prepared]
    possible = {place: each for place, each in enumerate(prepared) if not isinstance(each, TooLarge)}
    bases = _common_marginals(model, list(possible.values()), shared)
    for (place, each), base in zip(possible.items(), bases, strict=True):
        found[place] = refused(partial(_answered, model, queries[place], each, shared, base))
    return found


def conditional(
    model: CalibratedModel,
    query: FactoredQuery,
    given: FactoredQuery,
    *,
    impossible: Literal["refuse", "nan"] = "refuse",
) -> Array:
    """The expected answers to a query for one record, given another: E[Π Q_i(z_i, x_i) G(g, x)] / E[G(g, x)].

    With indicators as the given maps these are conditional probabilities. The axes are those of the query, and then one
    for each given map of more than one row. Where the condition has probability 0 there is no answer: such a condition
    is refused, or answered by NaN.
    """
    if not all(each.nonnegative for each in given.maps):
        raise DeclarationError("a condition has negative weights; condition on indicators or other weights from 0 up")
    conditions = _Prepared.of(model, given)
    both = _Prepared.of(model, _joined(query, given))
    below = conditions.project(model, None)
    above = both.project(model, None)
    logs_below, _ = below.logs()
    if impossible == "refuse" and (logs_below == -np.inf).any():
        raise DeclarationError(
            f"the condition on attributes {given.attributes} has probability 0 under the model and nothing follows "
            'from it; choose a possible condition, or ask for impossible="nan"'
        )
    logs, signs = above.logs()
    kept = tuple(slice(None) if axis in below.axes else np.newaxis for axis in above.axes)
    divisor = logs_below.transpose([below.axes.index(axis) for axis in above.axes if axis in below.axes])[kept]
    # NaN is −∞ − (−∞) put by hand: the difference itself would warn.
    divisor = np.where(divisor == -np.inf, np.nan, divisor)
    ratios = np.exp(logs - divisor + (above.log_scale - below.log_scale))
    ratios = ratios if signs is None else ratios * signs
    return ratios.reshape([*query.shape, *(each.rows for each in given.maps if each.rows != 1)])


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A query as variable elimination takes it."""

    kept: Axes
    evidence: tuple[ScaledTable, ...]
    images: Mapping[int, Image]
    outside: tuple[ScaledTable, ...]
    """The answers on attributes that are uniform and independent of the rest."""
    order: Axes
    """The axes of the answers that have more than one row."""
    cells: int

    @staticmethod
    def of(model: CalibratedModel, query: FactoredQuery) -> "_Prepared":
        named = model.check_attributes(query.attributes)
        kept: list[int] = []
        evidence: list[ScaledTable] = []
        images: dict[int, Image] = {}
        outside: list[ScaledTable] = []
        order: list[int] = []
        for attribute, each in zip(named, query.maps, strict=True):
            _check_map(attribute, each, model.model.sizes[attribute])
            image = len(model.model.sizes) + attribute
            if isinstance(each, SumMap):
                continue
            if not model.modelled(attribute):
                outside.append(_on_even(each, image))
            elif isinstance(each, IdentityMap):
                kept.append(attribute)
            elif each.rows == 1:
                evidence.append(ScaledTable.of_values((attribute,), each.dense()[0]))
            else:
                images[attribute] = Image(image, each)
            if each.rows > 1:
                order.append(attribute if attribute in kept else image)
        cells = math.prod(each.rows for each in query.maps)
        need = cells * ELIMINATION.bytes_per_cell
        if need > model.memory_limit:
            raise TooLarge(
                f"the query has {readable_count(cells)} answers, about {readable_bytes(need)}; the "
                f"limit is {readable_bytes(model.memory_limit)}. Ask for fewer rows at once, or raise memory_limit"
            )
        return _Prepared(tuple(kept), tuple(evidence), images, tuple(outside), tuple(order), cells)

    @property
    def axes(self) -> frozenset[int]:
        """The attributes whose joint distribution the answers depend on."""
        return frozenset({*self.kept, *self.images, *(axis for table in self.evidence for axis in table.axes)})

    def project(
        self, model: CalibratedModel, shared: SharedWork | None, base: ScaledTable | None = None
    ) -> ScaledTable:
        """The answers over the total, from the model's tables or from a marginal that has every axis needed."""
        inside = tuple(axis for axis in self.order if all(axis not in table.axes for table in self.outside))
        if base is None:
            found = model.project(self.kept, evidence=self.evidence, images=self.images, order=inside, shared=shared)
        else:
            plan, tables = self.plan_on(base, model.sizes), [base, *self.evidence]
            what, limit = f"a query over {len(self.axes)} attributes", model.memory_limit
            found = carry_out_within(limit, what, plan, tables, model.sizes, inside, self.images, shared)
        return contract([found, *self.outside], self.order) if self.outside else found

    def plan_on(self, base: ScaledTable, sizes: Mapping[int, int]) -> EliminationPlan:
        scopes = [base.axes, *(table.axes for table in self.evidence)]
        return plan_elimination(scopes, sizes, self.kept, self.images)


def _answered(
    model: CalibratedModel,
    query: FactoredQuery,
    prepared: _Prepared,
    shared: SharedWork | None,
    base: ScaledTable | None,
) -> Array:
    if prepared.cells == 0:
        return np.zeros(query.shape)
    return prepared.project(model, shared, base).linear().reshape(query.shape) * model.model.total


def _on_even(linear_map: LinearMap, image: int) -> ScaledTable:
    """What a map makes of an attribute whose values are equally likely."""
    values = np.asarray(linear_map.apply(np.full(linear_map.columns, 1.0 / linear_map.columns), 0), dtype=np.float64)
    return (
        ScaledTable.of_values((image,), values)
        if linear_map.rows > 1
        else ScaledTable.of_values((), values.reshape(()))
    )


def _check_map(attribute: int, each: LinearMap, size: int) -> None:
    if each.columns != size:
        raise DeclarationError(
            f"the map of attribute {attribute} has {each.columns} columns and the attribute {size} values; give a map "
            f"of {size} columns"
        )


def _joined(query: FactoredQuery, given: FactoredQuery) -> FactoredQuery:
    """The product of both; on an attribute of both, the query's rows weighted by the one row of the condition."""
    maps = dict(zip(query.attributes, query.maps, strict=True))
    for attribute, each in zip(given.attributes, given.maps, strict=True):
        if attribute not in maps:
            maps[attribute] = each
            continue
        if each.rows != 1:
            raise DeclarationError(
                f"attribute {attribute} is both asked for and given by {each.rows} rows; give one row of it, or ask "
                "once for each of them"
            )
        maps[attribute] = SparseMap(sp.csr_array(maps[attribute].dense() * each.dense()))
    return FactoredQuery.of(maps)


def _common_marginals(
    model: CalibratedModel, prepared: Sequence[_Prepared], shared: SharedWork
) -> list[ScaledTable | None]:
    """For each query the marginal to answer it from, where one that several queries share is the cheaper way.

    Sets of attributes are taken from the largest down, so that a marginal built for one set also serves its subsets.
    """
    groups: dict[frozenset[int], list[int]] = {}
    for place, each in enumerate(prepared):
        groups.setdefault(each.axes, []).append(place)
    bases: list[ScaledTable | None] = [None] * len(prepared)
    built: list[ScaledTable] = []
    for axes in sorted(groups, key=lambda axes: (-len(axes), sorted(axes))):
        members = [prepared[place] for place in groups[axes]]
        wider = [table for table in built if axes <= set(table.axes)]
        if len(members) == 1 and not wider:
            continue
        apart = sum(model.plan(each.kept, each.evidence, each.images)[0].work for each in members)
        best = min(wider, key=lambda table: table.values.size, default=None)
        if best is not None and sum(each.plan_on(best, model.sizes).work for each in members) > apart:
            best = None
        most_cells = model.memory_limit // ELIMINATION.bytes_per_cell
        if best is None and len(members) > 1 and model.cells(axes) < min(apart, most_cells):
            kept = tuple(sorted(axes))
            plan, _ = model.plan(kept)
            uniform = ScaledTable(kept, np.broadcast_to(1.0, [model.sizes[axis] for axis in kept]), 0.0, 0.0)
            together = plan.work + sum(each.plan_on(uniform, model.sizes).work for each in members)
            if together < apart:
                best = model.project(kept, shared=shared)
                built.append(best)
        for place in groups[axes]:
            bases[place] = best
    return bases
