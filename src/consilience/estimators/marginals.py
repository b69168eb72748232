"""What `Residual` and `Views` read out of a measurement set, noisy and exact tables over scopes, and the cells that
stay empty; and estimates as consistent marginals over scopes.

A *scope* holds the places, among the domain's counted attributes, of those that a query tells apart. Factors that only
sum are left out of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.errors import DeclarationError, FileFormatError, TooLarge
from consilience.estimators.base import LARGEST_ANSWER, Estimate, SavedModel, check_rows
from consilience.estimators.evidence import (
    GAUSSIAN_LAWS,
    Evidence,
    QueryOnScope,
    gather,
    marginal_scope,
    noise_scale,
    places_of,
    query_on_scope,
    refuse_nothing_to_fit,
)
from consilience.kernels.linear_maps import IdentityMap, Kronecker
from consilience.kernels.rng import Generator
from consilience.marginals.decomposition import Decomposition
from consilience.marginals.least_squares import (
    FittedResiduals,
    KnownTable,
    NoisyTable,
    determines_differences,
    determines_its_axis,
    fit_residuals,
    inverse_map,
    known_residuals,
)
from consilience.marginals.local_marginals import LocalMarginals, decode_scopes, encode_scopes
from consilience.marginals.margins import Reconstructed, ViewReader
from consilience.marginals.reconstruction import Method, reconstruct
from consilience.marginals.table_stacks import EmptyCells, Scope, TableStack, maximal, stored_order, subsets
from consilience.measurements import Exact, Measurement, MeasurementSet
from consilience.solvers.fit import Infeasible, Status

Array = NDArray[np.float64]

LARGEST_JOINT = 2**14
MOST_JOINT_ATTRIBUTES = 6
"""Up to so many cells and attributes the joint table of all measured attributes is fitted, too."""

GAUSSIAN_TAIL = math.sqrt(2.0 / math.pi)
"""−E[y | y < 0] in standard deviations, for Gaussian noise around 0."""


def noisy_table(each: Evidence) -> NoisyTable:
    """The answers to one query with their precisions; for clipped and withheld ones, what stands in their place."""
    values, precisions, measurement = np.array(each.values), each.weights**2 / 2.0, each.measurement
    if measurement is not None:
        scale = noise_scale(measurement)
        if each.clipped is not None:
            gaussian = measurement.noise.law in GAUSSIAN_LAWS
            values[each.clipped] = -scale * (math.sqrt(2.0) * GAUSSIAN_TAIL if gaussian else 1.0)
        if measurement.censored is not None:
            threshold = float(measurement.threshold or 0.0)
            precisions[measurement.censored] = 1.0 / (2.0 * scale**2 + threshold**2)
    return NoisyTable(each.scoped.axes, each.scoped.maps, values, precisions)


def known_table(each: Evidence) -> KnownTable:
    """The exact marginal; refused where the exact answers contradict each other."""
    table = answers = each.as_marginal()
    for axis, factor in enumerate(each.scoped.maps):
        table = table if isinstance(factor, IdentityMap) else inverse_map(factor).apply(table, axis)
    again = Kronecker(each.scoped.maps).apply(table)
    wrong = float(np.abs(again - answers).max(initial=0.0))
    if wrong > 1e-7 * max(1.0, float(np.abs(answers).max(initial=0.0))):
        raise Infeasible(
            f"the exact answers to {each.name} contradict each other by {wrong:g}; correct them",
            violation=wrong,
            constraints=[each.name],
        )
    return KnownTable(each.scoped.axes, np.asarray(table, dtype=np.float64), each.name)


@dataclass(frozen=True, eq=False)
class MeasuredScopes:
    """The scopes of a measurement set, which tell what a fit takes; marginals are not even bound to their domain."""

    domain: Domain
    scopes: list[Scope]
    """The largest scopes that were measured, are known, or are wanted."""
    marginals: tuple[Scope, ...]
    """Of which marginals were measured themselves."""
    others: tuple[tuple[Measurement, QueryOnScope], ...]
    """What was measured besides marginals."""

    @staticmethod
    def of(measured: MeasurementSet, marginals: Sequence[Sequence[str]] = ()) -> "MeasuredScopes":
        refuse_nothing_to_fit(measured)
        domain = measured.domain
        places = places_of(domain)
        plain, others = [], []
        for each in measured:
            scope = marginal_scope(each.query, places)
            if scope is None:
                others.append((each, query_on_scope(each.query, domain)))
            else:
                plain.append(scope)
        facts = [tuple(places[name] for name in margin.attributes) for margin in domain.public.margins]
        every = [*_wanted(marginals, domain), *plain, *(found.scope for _, found in others), *facts]
        return MeasuredScopes(domain, _largest(domain, every), (*plain, *facts), tuple(others))

    def reason_against_residuals(self) -> str | None:
        """Why the residuals cannot be found from what was measured; None where they can."""
        differences: list[tuple[str, Scope]] = []
        told: set[frozenset[int]] = set()
        for measurement, found in self.others:
            name = f"the query {measurement.query.describe()!r}"
            if found.is_joint:
                return (
                    f"{name} is about several attributes together: Residual takes products of one factor for each "
                    "attribute"
                )
            alone = []
            for attribute, each in zip(found.axes, found.maps, strict=True):
                determined = determines_its_axis(each)
                if determined is False and not isinstance(measurement.noise, Exact) and determines_differences(each):
                    alone.append(attribute)
                elif determined is None:
                    return f"{name} has a factor of {each.rows:,} × {each.columns:,}, too large to be inverted"
                elif not determined:
                    return (
                        f"{name} does not determine a marginal: Residual takes marginals, and queries such as "
                        "prefixes, ranges and trees from which all their counts follow"
                    )
            if alone:
                differences.append((name, found.scope))
            told |= {frozenset(part) for part in subsets(found.scope) if set(alone) <= set(part)}
        if not differences:
            return None
        told |= {frozenset(part) for scope in self.marginals for part in subsets(scope)}
        return next(
            (
                f"{name} tells differences alone, and nothing tells what they are added to; measure smaller "
                "marginals, too"
                for name, scope in differences
                if not all(frozenset(part) in told for part in subsets(scope))
            ),
            None,
        )

    @cached_property
    def cells(self) -> int:
        return cells_of_scopes(self.domain, self.scopes)


@dataclass(frozen=True, eq=False)
class MeasuredMarginals:
    """A measurement set as tables over scopes."""

    domain: Domain
    answers: tuple[Evidence, ...]
    wanted: tuple[Scope, ...]

    @staticmethod
    def of(measured: MeasurementSet, marginals: Sequence[Sequence[str]] = ()) -> "MeasuredMarginals":
        domain = measured.domain
        return MeasuredMarginals(domain, gather(measured), tuple(_wanted(marginals, domain)))

    @cached_property
    def scopes(self) -> list[Scope]:
        """The largest scopes that were measured, are known, or are wanted."""
        return _largest(self.domain, [*(each.scoped.axes for each in self.answers), *self.wanted])

    @property
    def cells(self) -> int:
        return cells_of_scopes(self.domain, self.scopes)

    @property
    def attributes(self) -> tuple[int, ...]:
        """The attributes of which anything is known, in the domain's order."""
        return tuple(sorted({place for scope in self.scopes for place in scope}))

    @property
    def has_small_joint(self) -> bool:
        """Whether the joint table of these attributes is not among the tables and small enough to be one."""
        sizes = self.domain.shape
        shape = [sizes[place] for place in self.attributes]
        small = len(shape) <= MOST_JOINT_ATTRIBUTES and math.prod(shape) <= LARGEST_JOINT
        return small and len(self.scopes) > 1

    @cached_property
    def decomposition(self) -> Decomposition:
        """The residuals of everything, and tables for the largest scopes."""
        return Decomposition(self.domain.shape, self.scopes)

    def least_squares(self) -> FittedResiduals:
        """The residuals that fit the answers best."""
        noisy = [noisy_table(each) for each in self.answers if not each.exact and each.values.size]
        shape = self.domain.shape
        scopes = dict.fromkeys(stored_order(shape, each.scope) for each in noisy)
        measured = Decomposition(shape, scopes, also=self.scopes)
        return fit_residuals(measured, noisy, known_residuals(measured, self.facts))

    @cached_property
    def facts(self) -> list[KnownTable]:
        return [known_table(each) for each in self.answers if each.exact]

    def empty_cells(self) -> EmptyCells:
        """The cells that rules forbid, and those of which it is known that they hold nothing."""
        found = EmptyCells()
        places = places_of(self.domain)
        for names in dict.fromkeys(self.domain.ordered(rule.attributes) for rule in self.domain.impossible):
            allowed = self.domain.project(names).allowed_cells()
            if allowed is not None:
                found.add(tuple(places[name] for name in names), ~allowed)
        for fact in self.facts:
            if fact.scope:
                found.add(fact.scope, fact.table <= 0)
        return found


def cells_of_scopes(domain: Domain, scopes: Sequence[Scope]) -> int:
    """The cells of the tables over these scopes together."""
    shape = domain.shape
    return sum(math.prod(shape[place] for place in scope) for scope in scopes)


def _largest(domain: Domain, scopes: Sequence[Scope]) -> list[Scope]:
    """The scopes that lie in no other, in stored order."""
    shape = domain.shape
    return maximal(stored_order(shape, scope) for scope in scopes)


def _wanted(marginals: Sequence[Sequence[str]], domain: Domain) -> list[Scope]:
    places, found = places_of(domain), [domain.ordered(each) for each in marginals]
    for name in (name for each in found for name in each):
        if name not in places:
            raise DeclarationError(
                f"the attribute {name!r} of domain {domain.name!r} is continuous and has no cells; leave it out"
            )
    return [tuple(places[name] for name in each) for each in found]


# ----------------------------------------------------------------------------------------------------------------------
# An estimate as consistent marginals over some scopes, from which other marginals are put together.


def replace_negative(tables: LocalMarginals) -> LocalMarginals:
    """The tables with 0 for every negative count."""
    return LocalMarginals(tables.stack, np.maximum(tables.flat, 0.0), max(tables.total, 0.0))


@dataclass(frozen=True, eq=False)
class MarginalsEstimate(Estimate):
    """Consistent non-negative marginals over `scopes`, one after the other in `counts`.

    A marginal that is part of one of them is summed from it. Any other is the table of greatest entropy with the
    marginals that are known of its attributes: a guess at interactions that were not measured. Two such guesses need
    not agree with each other; what is part of the workload always agrees. Where counts may be negative, interactions
    that were not measured are 0 instead, and everything agrees.
    """

    scopes: tuple[Scope, ...]
    """Places of attributes among the domain's counted ones, in the order of the tables' axes."""
    counts: NDArray[np.float64]
    count: float
    """The estimated number of records."""

    @property
    def nonnegative(self) -> bool:
        """Whether counts below 0 were ruled out; not where views were left with the negatives of the noise."""
        return bool(self.method.get("nonnegative", True))

    @property
    def smooths(self) -> bool:
        """Whether residuals were drawn toward what smaller marginals imply."""
        return self.nonnegative and bool(self.method.get("prior", False))

    @cached_property
    def tables(self) -> LocalMarginals:
        """The tables of the workload."""
        return LocalMarginals(TableStack(self.domain.shape, self.scopes), self.counts, self.count)

    def marginal(self, *attributes: str) -> NDArray[np.float64]:
        scope = self.places(*attributes)
        known = tuple(place for place in scope if place in self.tables.attributes)
        return self.spread(self.put_together(known), known, scope)

    def put_together(self, known: Scope) -> NDArray[np.float64]:
        """The marginal of attributes that were measured, from the tables that hold some of them."""
        return self.tables.marginal(known).tables if self.nonnegative else self.tables.added_up(known)

    def places(self, *attributes: str) -> Scope:
        """The places of these attributes among the counted ones; refused where their marginal cannot be made."""
        self.check_names(attributes, LARGEST_ANSWER)
        return tuple(map(self.domain.counted_names.index, attributes))

    def spread(self, found: NDArray[np.float64], known: Scope, scope: Scope) -> NDArray[np.float64]:
        """The marginal of a scope, with attributes that were never measured spread evenly."""
        shape = tuple(self.domain.shape[place] for place in scope)
        kept = [size if place in known else 1 for place, size in zip(scope, shape, strict=True)]
        even = found.reshape(kept) * (math.prod(kept) / max(math.prod(shape), 1))
        return np.array(np.broadcast_to(even, shape))

    @property
    def total(self) -> float:
        return self.count

    def draw(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        """Codes of synthetic records, one row each and a column for each counted attribute.

        Where one table has all measured attributes, each of its cells gets its share of rows rounded down or up.
        Otherwise no joint table is known: records are drawn along the tree of pairs whose mutual information is
        largest, then changed one value at a time until all tables are followed as closely as records can. Negative
        counts get no rows.
        """
        tables = self.tables if self.nonnegative else replace_negative(self.tables)
        places = self.domain.counted_names.index
        impossible = [[(places(name), codes) for name, codes in rule.codes] for rule in self.domain.impossible]
        return tables.sample(check_rows(rows), rng, attributes=len(self.domain.shape), impossible=impossible)

    def arrays(self) -> Mapping[str, NDArray[np.float64]]:
        return {"counts": self.counts, "scopes": encode_scopes(self.scopes), "total": np.array([self.count])}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "MarginalsEstimate":
        saved.check_arrays("a model of marginals", ["counts", "scopes", "total"])
        scopes = restored_scopes(saved, measured.domain)
        return cls(measured, saved.method, saved.status, saved.stats, scopes, saved.arrays["counts"], saved.total)


def restored_scopes(saved: SavedModel, domain: Domain) -> tuple[Scope, ...]:
    """The scopes of a saved model of marginals; refused where its counts do not fit them or the domain."""
    scopes, counts, shape = tuple(decode_scopes(saved.arrays["scopes"])), saved.arrays["counts"], domain.shape
    known = all(place < len(shape) for scope in scopes for place in scope)
    if not known or TableStack(shape, scopes).size != len(counts):
        raise FileFormatError(
            f"a model of {len(scopes)} marginals with {counts.size} counts does not fit the domain {domain.name!r}; "
            "write the bundle anew"
        )
    return scopes


# ----------------------------------------------------------------------------------------------------------------------
# An estimate as the tables of some views, from which any marginal is reconstructed on request.


@dataclass(frozen=True, eq=False)
class ViewsEstimate(MarginalsEstimate):
    """Views that agree with each other, and how marginals that none of them holds are put together.

    A marginal that is part of a view is summed from it. Any other is reconstructed from all views that share attributes
    with it; `reconstruction` says how well they fit together. Two such marginals need not agree with each other beyond
    what the views say.
    """

    @property
    def way(self) -> Method:
        """How marginals are reconstructed."""
        found: Any = self.method.get("reconstruction", "entropy")
        return found

    @cached_property
    def reader(self) -> ViewReader:
        """The views, prepared to be asked for what they say of a marginal."""
        return ViewReader(self.tables.stack, self.counts)

    def put_together(self, known: Scope) -> Array:
        return self._reconstructed([known])[0].table

    def reconstruction(self, *attributes: str) -> Reconstructed:
        """The marginal of some attributes, with the largest count by which it misses what the views say of it."""
        scope = self.places(*attributes)
        known = tuple(place for place in scope if place in self.tables.attributes)
        return self._reconstructed([known])[0]

    def answers(self, queries: Sequence[Query | str]) -> list[Array]:
        """The answers to several queries; their marginals are reconstructed side by side, on all cores."""
        bound = [self.bound(query) for query in queries]
        scopes = [self.places(*each.attributes) for each in bound]
        known = [tuple(place for place in scope if place in self.tables.attributes) for scope in scopes]
        distinct = list(dict.fromkeys(known))
        try:
            tables = dict(zip(distinct, self._reconstructed(distinct), strict=True))
        except TooLarge:
            return super().answers(queries)
        parts = zip(bound, scopes, known, strict=True)
        return [np.asarray(each.answer(self.spread(tables[held].table, held, scope))) for each, scope, held in parts]

    def _reconstructed(self, targets: Sequence[Scope]) -> list[Reconstructed]:
        """Marginals that views hold, as they are, and the others put together from views that agree or not."""
        held = {target: self.tables.known(target) for target in targets} if self.method.get("consistent", True) else {}
        asked = [target for target in targets if held.get(target) is None]
        made = reconstruct(self.reader, asked, method=self.way, total=self.count)
        others = dict(zip(asked, made, strict=True))
        found: list[Reconstructed] = []
        for target in targets:
            table = held.get(target)
            found.append(others[target] if table is None else Reconstructed(table, 0.0, False, 0, Status.CONVERGED))
        return found
