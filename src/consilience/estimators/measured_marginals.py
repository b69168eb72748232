"""What `Residual` reads out of a measurement set: noisy and exact tables over scopes, and the cells that stay empty.

A *scope* holds the places, among the domain's counted attributes, of those that a query tells apart. Factors that only
sum are left out of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.errors import DeclarationError
from consilience.estimators.evidence import (
    GAUSSIAN_LAWS,
    Evidence,
    QueryOnScope,
    gather,
    marginal_scope,
    noise_scale,
    refuse_nothing_to_fit,
)
from consilience.kernels.linear_maps import IdentityMap, LinearMap
from consilience.marginals.decomposition import Decomposition
from consilience.marginals.least_squares import (
    FittedResiduals,
    KnownTable,
    NoisyTable,
    determines_its_axis,
    fit_residuals,
    inverse_map,
    known_residuals,
)
from consilience.marginals.table_stacks import EmptyCells, Scope, maximal, stored_order
from consilience.measurements import Measurement, MeasurementSet
from consilience.solvers.fit import Infeasible

Array = NDArray[np.float64]

LARGEST_JOINT = 2**14
MOST_JOINT_ATTRIBUTES = 6
"""Up to so many cells and attributes the joint table of all measured attributes is fitted, too."""

GAUSSIAN_TAIL = math.sqrt(2.0 / math.pi)
"""−E[y | y < 0] in standard deviations, for Gaussian noise around 0."""


@dataclass(frozen=True, eq=False)
class ScopedAnswers:
    """The evidence of one query as maps along the axes of a scope."""

    scope: Scope
    maps: tuple[LinearMap, ...]
    evidence: Evidence
    measurement: Measurement | None
    """None for facts that the domain declares."""

    def noisy(self) -> NoisyTable:
        """The answers with their precisions; for clipped and withheld ones, what stands in their place."""
        values, precisions = np.array(self.evidence.values), self.evidence.weights**2 / 2.0
        if self.measurement is None:
            return NoisyTable(self.scope, self.maps, values, precisions)
        scale = noise_scale(self.measurement)
        if self.evidence.clipped is not None:
            gaussian = self.measurement.noise.law in GAUSSIAN_LAWS
            values[self.evidence.clipped] = -scale * (math.sqrt(2.0) * GAUSSIAN_TAIL if gaussian else 1.0)
        if self.measurement.censored is not None:
            threshold = float(self.measurement.threshold or 0.0)
            precisions[self.measurement.censored] = 1.0 / (2.0 * scale**2 + threshold**2)
        return NoisyTable(self.scope, self.maps, values, precisions)

    def known(self) -> KnownTable:
        """The exact marginal; refused where the exact answers contradict each other."""
        answers = self.evidence.values.reshape([each.rows for each in self.maps])
        table = answers
        for axis, each in enumerate(self.maps):
            table = table if isinstance(each, IdentityMap) else inverse_map(each).apply(table, axis)
        again = table
        for axis, each in enumerate(self.maps):
            again = each.apply(again, axis)
        wrong = float(np.abs(again - answers).max(initial=0.0))
        if wrong > 1e-7 * max(1.0, float(np.abs(answers).max(initial=0.0))):
            raise Infeasible(
                f"the exact answers to {self.evidence.name} contradict each other by {wrong:g}; correct them",
                violation=wrong,
                constraints=[self.evidence.name],
            )
        return KnownTable(self.scope, np.asarray(table, dtype=np.float64), self.evidence.name)


@dataclass(frozen=True, eq=False)
class MeasuredScopes:
    """The scopes of a measurement set, which tell what a fit takes; marginals are not even bound to their domain."""

    domain: Domain
    scopes: list[Scope]
    """The largest scopes that were measured, are known, or are wanted."""
    others: tuple[tuple[Query, QueryOnScope], ...]
    """What was measured besides marginals."""

    @staticmethod
    def of(measured: MeasurementSet, marginals: Sequence[Sequence[str]] = ()) -> "MeasuredScopes":
        refuse_nothing_to_fit(measured)
        domain = measured.domain
        places = _places(domain)
        found, others = _wanted(marginals, domain, places), []
        for each in measured:
            scope = marginal_scope(each.query, places)
            if scope is None:
                others.append((each.query, QueryOnScope.of(each.query.bind(domain), places)))
                scope = others[-1][1].scope
            found.append(scope)
        found += [tuple(places[name] for name in margin.attributes) for margin in domain.public.margins]
        return MeasuredScopes(domain, _largest(domain, found), tuple(others))

    @cached_property
    def cells(self) -> int:
        return cells_of_scopes(self.domain, self.scopes)


def reason_against_residuals(query: Query, found: QueryOnScope) -> str | None:
    """Why the residuals cannot be found from the answers to a query; None where they can."""
    for each in found.maps:
        determined = determines_its_axis(each)
        if determined:
            continue
        name = query.describe()
        if determined is None:
            return f"the query {name!r} has a factor of {each.rows:,} × {each.columns:,}, too large to be inverted"
        return (
            f"the query {name!r} does not determine a marginal: Residual takes marginals, and queries such as "
            "prefixes, ranges and trees from which all their counts follow"
        )
    return None


@dataclass(frozen=True, eq=False)
class MeasuredMarginals:
    """A measurement set as tables over scopes."""

    domain: Domain
    answers: tuple[ScopedAnswers, ...]
    wanted: tuple[Scope, ...]

    @staticmethod
    def of(measured: MeasurementSet, marginals: Sequence[Sequence[str]] = ()) -> "MeasuredMarginals":
        domain = measured.domain
        evidence = gather(measured)
        found = zip(evidence, [*measured, *(None for _ in evidence[len(measured) :])], strict=True)
        places = _places(domain)
        answers = tuple(_scoped(each, measurement, domain, places) for each, measurement in found)
        return MeasuredMarginals(domain, answers, tuple(_wanted(marginals, domain, places)))

    @cached_property
    def scopes(self) -> list[Scope]:
        """The largest scopes that were measured, are known, or are wanted."""
        return _largest(self.domain, [*(each.scope for each in self.answers), *self.wanted])

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
        noisy = [each.noisy() for each in self.answers if not each.evidence.exact and each.evidence.values.size]
        shape = self.domain.shape
        scopes = dict.fromkeys(stored_order(shape, each.scope) for each in noisy)
        measured = Decomposition(shape, scopes, also=self.scopes)
        return fit_residuals(measured, noisy, known_residuals(measured, self.facts))

    @cached_property
    def facts(self) -> list[KnownTable]:
        return [each.known() for each in self.answers if each.evidence.exact]

    def empty_cells(self) -> EmptyCells:
        """The cells that rules forbid, and those of which it is known that they hold nothing."""
        found = EmptyCells()
        places = _places(self.domain)
        for rule in self.domain.impossible:
            names = self.domain.ordered(rule.attributes)
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


def _places(domain: Domain) -> dict[str, int]:
    return {name: place for place, name in enumerate(domain.counted_names)}


def _wanted(marginals: Sequence[Sequence[str]], domain: Domain, places: dict[str, int]) -> list[Scope]:
    return [tuple(_place(name, places, domain) for name in domain.ordered(each)) for each in marginals]


def _scoped(
    evidence: Evidence, measurement: Measurement | None, domain: Domain, places: dict[str, int]
) -> ScopedAnswers:
    query = QueryOnScope.of(evidence.bind(domain), places)
    return ScopedAnswers(query.axes, query.maps, evidence, measurement)


def _place(name: str, places: dict[str, int], domain: Domain) -> int:
    if name not in places:
        raise DeclarationError(
            f"the attribute {name!r} of domain {domain.name!r} is continuous and has no cells; leave it out"
        )
    return places[name]
