"""What answers stand on: what was measured, what a model fills in, and what nobody looked at.

From the measurements and the public facts alone, never from a fit, every answer has one of four bases:

*measured*      The answer is a linear combination of measured numbers and public facts.
*modelled*      It is not, but every value that it tells apart was told apart by a measurement, and the attributes that
                it is about were measured together, or are linked by a chain of attributes that were: a by b and b by c
                link a with c. The estimator fills in the rest.
*public*        It would not be measured, but public data, which an account was moved away from (a prior, or records
                that were reweighted), hold it. No measurement speaks of it, by itself or with others.
*not measured*  Some values that it tells apart no measurement told apart, or some of its attributes were never looked
                at together, neither at once nor through others. What an estimator says then is its assumption:
                values equally frequent, attributes independent.

An answer *tells values apart* that it counts differently: "age=25..34" tells 25..34 from all other ages and nothing
else, and a sum over all values tells none apart. A query that lists several answers has a basis for each. Two one-way
tables look at two attributes and not at their relation. Impossible cells are no evidence: a rule is not a measurement.
Where a plan cut an attribute into bins by looking at every value (DAWA, PHP), or chose records by scores of the data
(DualQuery), what it looked at counts as told apart.

*How it is found.*  A query is a product ⊗ F_i, a row q of it a product ⊗ f_i. It lies in the span of one measurement
⊗ G_i if every f_i lies in the span of G_i; an attribute that one of them does not name counts as a row of ones. With
f_i = c_i 1 + r_i and Σ r_i = 0, q is the sum over sets S of attributes of Π_{i∉S} c_i · ⊗_{i∈S} r_i, and it is
determined if each of these parts lies in the span of some measurement. The part of all attributes that q tells apart
lies in no span unless one measurement tells all of them apart: where none does, q is not determined. What is then still
open is settled by linear algebra on all measurements at once where they are few and small, and else not determined,
which errs on the safe side.

A joint factor, such as "a==b", counts as that of one more attribute, whose values are the combinations of a's and b's.
What follows then also follows where that attribute is known to be a function of the others. Besides, it is determined
where the counts are that it adds up, of the marginal of its attributes.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import spell_attribute
from consilience.domain.factors import AllRanges, Factor, Haar, Identity, Nominal, Prefix, Tree
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.kernels.linear_maps import LinearMap
from consilience.measurements.measurement import Measurement
from consilience.measurements.measurement_set import MeasurementSet
from consilience.measurements.row_spaces import (
    MOST_COLUMNS,
    KnownQuery,
    Marks,
    QueryAxes,
    RowSpace,
    adds_up_only,
    alike,
    is_constant,
    rows_within,
    within_stack,
)

BasisName = Literal["measured", "modelled", "public", "not measured"]

BASES: tuple[BasisName, ...] = ("measured", "modelled", "public", "not measured")
"""From the best to the worst; a basis is stored as its place here."""

MEASURED, MODELLED, PUBLIC, NOT_MEASURED = range(4)

Scopes = Sequence[tuple[str, ...]]
"""Sets of attributes whose joint tables public data hold."""

DETERMINE_ALL = (Identity, Prefix, AllRanges, Haar, Nominal)
"""Factors from whose answers every value follows."""

PARTITION_PLANS = {"dawa", "dawa-published", "php", "php-published"}
"""Plans that cut an attribute into bins by looking at every value of it."""

MOST_CELLS = 2**22
"""The marginal of a joint factor's attributes is looked at cell by cell up to this size."""

MOST_PARTS = 6
"""Queries that tell more attributes apart than these have too many parts to be looked up one by one."""


@dataclass(frozen=True, eq=False)
class Basis:
    """What each answer of a query stands on, in the order of the answers."""

    codes: NDArray[np.int8]
    """The place of each answer's basis in `BASES`."""
    unmeasured: tuple[str, ...] = ()
    """The attributes asked for that no measurement tells anything of."""
    too_fine: tuple[str, ...] = ()
    """The attributes that were measured, but not so that all values were told apart that are here."""
    asked: tuple[tuple[str, ...], ...] = ()
    """The attributes asked for together, in groups that measurements link; one without measurements is by itself."""

    @staticmethod
    def of_nothing() -> "Basis":
        """The basis of no answers."""
        return Basis(np.zeros(0, dtype=np.int8))

    @property
    def worst(self) -> BasisName:
        """The basis of the answer that has the least."""
        return BASES[int(self.codes.max(initial=MEASURED))]

    @property
    def names(self) -> tuple[BasisName, ...]:
        return tuple(BASES[code] for code in self.codes.tolist())

    @property
    def not_measured(self) -> Marks:
        """Which answers nothing was measured for."""
        return self.codes == NOT_MEASURED

    @property
    def modelled(self) -> Marks:
        return self.codes == MODELLED

    @property
    def public(self) -> Marks:
        """Which answers public data alone stand for."""
        return self.codes == PUBLIC

    @property
    def measured(self) -> Marks:
        return self.codes == MEASURED

    def worse(self, other: "Basis", places: NDArray[np.intp] | slice = slice(None)) -> "Basis":
        """What answers stand on that are made of two: the worse of this one and the other one at its place."""
        return Basis(
            np.maximum(self.codes, other.codes[places]),
            tuple(dict.fromkeys((*self.unmeasured, *other.unmeasured))),
            tuple(dict.fromkeys((*self.too_fine, *other.too_fine))),
            max(self.asked, other.asked, key=len),
        )

    def why(self) -> str:
        """Why answers are not measured, in one sentence; empty where all are measured or modelled.

        >>> Basis(np.array([3], dtype=np.int8), ("MSP",), (), (("age", "x"), ("sex",), ("MSP",))).why()
        "'MSP' was never measured, and no measurement links 'age', 'x' with 'sex'"
        """
        if self.worst != "not measured":
            return ""
        verb = "was" if len(self.unmeasured) == 1 else "were"
        parts = [f"{_said(self.unmeasured)} {verb} never measured"] if self.unmeasured else []
        if self.too_fine:
            parts.append(f"no measurement tells the values of {_said(self.too_fine)} apart that are asked for")
        groups = [_said(group) for group in self.asked if not set(group) <= set(self.unmeasured)]
        if len(groups) > 1:
            parts.append(f"no measurement links {' with '.join(groups)}")
        return ", and ".join(parts) or "nothing was measured"

    def next_time(self) -> tuple[str, ...]:
        """The queries to measure next time, in the query language, so that there is no such answer."""
        linked = [group[0] for group in self.asked] if len(self.asked) > 1 else []
        queries = [linked] * bool(linked) + [[n] for n in (*self.unmeasured, *self.too_fine) if n not in linked]
        return tuple(f"by {', '.join(map(spell_attribute, names))}" for names in queries)

    def explain(self) -> str:
        """Why answers are not measured and what to measure next time; empty where all are measured or modelled."""
        advice = "".join(f'; next time, measure "{text}"' for text in self.next_time()[:1])
        advice += "".join(f' and "{text}"' for text in self.next_time()[1:])
        return f"not measured: {self.why()}{advice}" if self.why() else ""


def basis(
    measured: MeasurementSet, query: Query | str, per: Query | str | None = None, *, public: Scopes = ()
) -> Basis:
    """What each answer of a query stands on; of ratios (`per`), the worse of the two that are divided.

    `public` are the tables that public data stand for where nothing was measured.

    >>> from consilience.domain import Domain
    >>> from consilience.measurements import Laplace
    >>> domain = Domain.from_sizes({"a": 2, "b": 2, "c": 2, "d": 2})
    >>> tables = {("a", "b"): [[1, 2], [3, 4]], ("b", "c"): [[1, 2], [3, 4]]}
    >>> measured = MeasurementSet.from_marginals(domain, tables, noise=Laplace(1.0))
    >>> [basis(measured, text).worst for text in ("by a", "by a, c", "by d", "by a, d")]
    ['measured', 'modelled', 'not measured', 'not measured']
    """
    above = _with_public(measured, _as_query(query).over(measured.domain), public)
    return above if per is None else above.worse(_with_public(measured, _as_query(per).over(measured.domain), public))


def _with_public(measured: MeasurementSet, query: Query, public: Scopes) -> Basis:
    found = Evidence.of(measured).basis(query)
    if not public or not found.not_measured.any():
        return found
    known = ~Evidence.of(measured, public).basis(query).not_measured
    return replace(found, codes=np.where(found.not_measured & known, np.int8(PUBLIC), found.codes))


@dataclass(frozen=True)
class ColumnsBasis:
    """What records stand on that are made from measurements: each column, and how columns go together."""

    columns: Mapping[str, BasisName]
    """The basis of each counted attribute's one-way table: that of its worst value."""
    linked: tuple[tuple[str, ...], ...]
    """The columns in groups that measurements link; between groups, and with other columns, nothing was looked at."""

    @property
    def not_measured(self) -> tuple[str, ...]:
        return tuple(name for name, basis in self.columns.items() if basis == "not measured")

    def to_json(self) -> dict[str, Any]:
        return {"columns": dict(self.columns), "linked": [list(group) for group in self.linked]}


def columns_basis(measured: MeasurementSet, *, public: Scopes = ()) -> ColumnsBasis:
    """What columns of records stand on, and which of them measurements, or public data, link.

    >>> from consilience.domain import Domain
    >>> from consilience.measurements import Laplace
    >>> domain = Domain.from_sizes({"a": 2, "b": 2, "c": 2, "d": 2})
    >>> tables = {("a", "b"): [[1, 2], [3, 4]], ("c",): [1, 2]}
    >>> columns_basis(MeasurementSet.from_marginals(domain, tables, noise=Laplace(1.0))).to_json()["linked"]
    [['a', 'b'], ['c']]
    """
    names, groups = measured.domain.counted_names, Evidence.of(measured, public).groups
    return ColumnsBasis({name: basis(measured, Query.marginal(name), public=public).worst for name in names}, groups)


class Evidence:
    """What a set of measurements and its public facts say about queries, worked out once."""

    def __init__(self, measured: MeasurementSet, public: Scopes = ()) -> None:
        self.domain = measured.domain
        self._spaces: dict[tuple[str, Factor], RowSpace | None] = {}
        self._factors: dict[str, dict[Factor, LinearMap]] = {}
        looked_through = _partitioned(measured)
        self.known = [known for each in measured for known in self._of_measurement(each)]
        self.known += [self._of_query(Query.marginal(*margin.attributes)) for margin in self.domain.public.margins]
        self.known += [self._of_query(Query(()))] * (self.domain.public.total is not None)
        self.known += [self._of_query(Query.marginal(*scope)) for scope in public]
        self._by_attribute: dict[str, set[int]] = {}
        for number, known in enumerate(self.known):
            for name in known.spaces:
                self._by_attribute.setdefault(name, set()).add(number)
        for name in looked_through & self._factors.keys():
            self._factors[name] = {Identity(): Identity().bind(self.domain[name])}
        self._told_apart: dict[str, RowSpace] = {}

    @staticmethod
    def of(measured: MeasurementSet, public: Scopes = ()) -> "Evidence":
        """The evidence of a set, kept with it: sets do not change."""
        kept: dict[Scopes, Evidence] = measured.__dict__.setdefault("_evidence", {})
        if tuple(public) not in kept:
            kept[tuple(public)] = Evidence(measured, public)
        return kept[tuple(public)]

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The attributes that measurements tell apart, those in one group that measurements link with each other."""
        group_of: dict[str, list[str]] = {}
        for known in self.known:
            linked = {id(group): group for name in known.linked if (group := group_of.get(name)) is not None}
            joined = list(dict.fromkeys(itertools.chain(*linked.values(), known.linked)))
            if len(linked) != 1 or len(joined) > max(map(len, linked.values())):
                group_of |= dict.fromkeys(joined, joined)
        ordered = {id(group_of[name]): group_of[name] for name in self.domain.counted_names if name in group_of}
        return tuple(self.domain.ordered(group) for group in ordered.values())

    @cached_property
    def _group_of(self) -> dict[str, int]:
        return {name: place for place, group in enumerate(self.groups) for name in group}

    def basis(self, query: Query) -> Basis:
        """What each answer of a query stands on."""
        query = query.in_order()
        axes = QueryAxes(query.bind(self.domain))
        told = [(key, axes.all_of(key, self._tells_apart(name, each))) for key, name, each in axes.parts]
        varies = [(key, name, ~axes.all_of(key, is_constant(each))) for key, name, each in axes.parts]
        looked_at = np.full(axes.shape, bool(self.known))
        for key, marks in told:
            looked_at &= axes.product({key: marks})
        for (one, name, here), (other, second, there) in itertools.combinations(varies, 2):
            if self._group_of.get(name, -1) != self._group_of.get(second, -2):
                looked_at &= ~(axes.product({one: here}) & axes.product({other: there}))
        codes = np.where(looked_at, MODELLED, NOT_MEASURED)
        codes[self._determined(query, axes, looked_at)] = MEASURED
        missing = [name for (_, marks), (_, name, _) in zip(told, varies, strict=True) if not marks.all()]
        unmeasured = tuple(name for name in missing if name not in self._group_of)
        too_fine = tuple(name for name in missing if name in self._group_of)
        asked: dict[object, list[str]] = {}
        for name in (name for _, name, marks in varies if marks.any()):
            asked.setdefault(self._group_of.get(name, name), []).append(name)
        return Basis(codes.astype(np.int8).ravel(), unmeasured, too_fine, tuple(map(tuple, asked.values())))

    def _of_measurement(self, each: Measurement) -> Iterable[KnownQuery]:
        if each.kind == "linear":
            yield self._of_query(each.query, released=None if each.censored is None else ~each.censored)
        elif each.selection is not None and "workload" in each.selection:
            workload = Workload.from_json(each.selection["workload"], where=each.name)
            yield from (self._of_query(query, determines=False) for query in workload.queries)

    def _of_query(self, query: Query, *, determines: bool = True, released: Marks | None = None) -> KnownQuery:
        query = query.in_order()
        spaces = {}
        for name, factor in query.factors:
            space = self._space(name, factor)
            if space is not None:
                spaces[name] = space
        linked = tuple(spaces)
        if not query.is_product:
            parts = QueryAxes(query.bind(self.domain)).parts
            linked = tuple(name for key, name, each in parts if key in spaces and not is_constant(each).all())
            for key, name, each in parts:
                self._factors.setdefault(name, {}).update({} if key == name else {dict(query.factors)[key]: each})
        return KnownQuery(query, spaces, linked, determines and released is None, released)

    def _space(self, name: str, factor: Factor) -> RowSpace | None:
        """What a factor determines of an attribute; None where it sums over all values."""
        if (name, factor) not in self._spaces:
            each = factor.bind_over([self.domain[one] for one in factor.attributes_of(name)])
            self._spaces[name, factor] = None
            if not is_constant(each).all():
                self._factors.setdefault(name, {})[factor] = each
                whole = isinstance(factor, DETERMINE_ALL) or (isinstance(factor, Tree) and factor.level is None)
                self._spaces[name, factor] = RowSpace.everything(each.columns) if whole else RowSpace.of(each)
            elif not each.column_norms(1).any():
                self._spaces[name, factor] = RowSpace.of(each)
        return self._spaces[name, factor]

    def alike(self, name: str, columns: int) -> NDArray[np.intp]:
        """The group of each value of an attribute; no measurement told apart two that are in one group."""
        return alike(list(self._factors.get(name, {}).values()), columns)

    def _tells_apart(self, name: str, asked: LinearMap) -> Marks:
        """For each row of an asked factor whether measurements told apart what it tells apart."""
        if name not in self._told_apart:
            self._told_apart[name] = RowSpace.of_groups(self.alike(name, asked.columns))
        return self._told_apart[name].contains(asked)

    def _determined(self, query: Query, axes: QueryAxes, possible: Marks) -> Marks:
        """Which answers are linear combinations of known numbers, of those for which this is possible at all."""
        found = self._sums_of_determined(query, axes)
        for known in self.known:
            if known.released is not None and known.query == query:
                found |= known.released.reshape(axes.shape)
        holding = [self.known[number] for number in self._holding(axes)]
        for known in holding:
            if known.determines and all(
                known.spaces[name].contains_constants for name in known.spaces.keys() - axes.maps.keys()
            ):
                found |= axes.product({name: rows_within(known, axes, name) for name in axes.maps})
                if found.all():
                    return found
        # Nothing that no measurement holds whole can follow from several, either.
        covered = reduce(
            np.logical_or,
            (axes.product({n: ~axes.varies[n] for n in axes.maps.keys() - each.spaces.keys()}) for each in holding),
            np.zeros(axes.shape, dtype=np.bool_),
        )
        left = possible & covered & ~found
        if left.any() and len(axes.maps) <= MOST_PARTS:
            found |= left & self._determined_in_parts(axes)
            left &= ~found
        if left.any():
            found |= left & self._determined_together(axes)
        return found

    def _sums_of_determined(self, query: Query, axes: QueryAxes) -> Marks:
        """Which answers add up known counts of the marginal of a joint factor's attributes; none of products."""
        wider = query.with_marginals()
        if query.is_product or wider.bind(self.domain).size > MOST_CELLS:
            return np.zeros(axes.shape, dtype=np.bool_)
        known = self.basis(wider).codes == MEASURED
        return adds_up_only(query.bind(self.domain), known).reshape(axes.shape)

    def _holding(self, axes: QueryAxes) -> Sequence[int]:
        """The known queries that tell apart every attribute that all answers tell apart."""
        return self._telling_apart([name for name in axes.maps if axes.varies[name].all()])

    def _telling_apart(self, names: Sequence[str]) -> Sequence[int]:
        """The numbers of the known queries that tell values of all these attributes apart."""
        if not names:
            return range(len(self.known))
        return sorted(set.intersection(*(self._by_attribute.get(name, set()) for name in names)))

    def _determined_in_parts(self, axes: QueryAxes) -> Marks:
        """Which answers have all their parts, one for each set of attributes, in the spans of measurements."""
        found = np.ones(axes.shape, dtype=np.bool_)
        for size in range(len(axes.maps) + 1):
            for chosen in itertools.combinations(axes.maps, size):
                needed = axes.product({n: axes.varies[n] if n in chosen else axes.has_mean[n] for n in axes.maps})
                given = np.zeros(axes.shape, dtype=np.bool_)
                for number in self._telling_apart(chosen):
                    known = self.known[number]
                    if given[needed].all():
                        break
                    if known.determines and all(
                        known.spaces[name].contains_constants for name in known.spaces if name not in chosen
                    ):
                        rows = {n: known.spaces[n].contains(axes.maps[n], centred=True) for n in chosen}
                        given |= axes.product(rows)
                found &= ~needed | given
        return found

    def _determined_together(self, axes: QueryAxes) -> Marks:
        """Which answers lie in the span of all measurements at once, if that is small enough to be written out.

        First over all attributes; where that is too large, over those that the query's are linked with; and then over
        the query's alone. Of other attributes the measurements that give sums over them are used.
        """
        asked = set(axes.maps)
        named = {name for key in asked for name in axes.attributes[key]}
        linked = {name for group in self.groups if not named.isdisjoint(group) for name in group} | asked
        for names in dict.fromkeys(tuple(sorted(each)) for each in (asked | self._group_of.keys(), linked, asked)):
            if 2 ** len(asked.union(names) & self._group_of.keys()) > MOST_COLUMNS:
                continue
            usable = [
                known
                for known in self.known
                if known.determines
                and all(known.spaces[n].contains_constants for n in known.spaces.keys() - set(names))
            ]
            found = within_stack(self.domain, names, usable, axes)
            if found is not None:
                return found
        return np.zeros(axes.shape, dtype=np.bool_)


def _partitioned(measured: MeasurementSet) -> set[str]:
    """The attributes that plans cut into bins by looking at every value."""
    merged = measured.provenance.get("merged")
    releases = [measured.provenance, *(merged if isinstance(merged, list) else [])]
    plans = [each.get("plan") for each in releases if isinstance(each, Mapping)]
    return {
        str(plan.get("attribute"))
        for plan in plans
        if isinstance(plan, Mapping) and plan.get("plan") in PARTITION_PLANS
    }


def _as_query(query: Query | str) -> Query:
    return Query.parse(query) if isinstance(query, str) else query


def _said(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
