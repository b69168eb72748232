"""A query as what it says of one scope, the set of attributes whose values it tells apart."""

import math
from dataclasses import dataclass
from typing import Self

from consilience.domain.domains import Domain
from consilience.domain.factors import Identity, Total
from consilience.domain.queries import BoundQuery, Query
from consilience.kernels.linear_maps import IdentityMap, LinearMap, SumMap
from consilience.marginals.table_stacks import Scope


def marginal_scope(query: Query, places: dict[str, int]) -> Scope | None:
    """The scope of a marginal, read off its factors alone; None of other queries."""
    kept = []
    for name, factor in query.factors:
        if isinstance(factor, Identity):
            kept.append(places[name])
        elif not isinstance(factor, Total):
            return None
    return tuple(sorted(kept))


def scope_of(query: Query, domain: Domain, places: dict[str, int]) -> Scope:
    """The scope of a query; only what is no marginal is bound to the domain to find it."""
    scope = marginal_scope(query, places)
    return QueryOnScope.of(query.bind(domain), places).scope if scope is None else scope


@dataclass(frozen=True, eq=False)
class QueryOnScope:
    """A query as a linear map on the table of one scope: only the factors that tell values apart."""

    scope: Scope
    axes: Scope
    """The attributes in the query's own order."""
    maps: tuple[LinearMap, ...]

    @classmethod
    def of(cls, query: BoundQuery, places: dict[str, int]) -> Self:
        pairs = zip(query.attributes, query.maps, strict=True)
        kept = [(places[name], each) for name, each in pairs if not isinstance(each, SumMap)]
        axes = tuple(place for place, _ in kept)
        return cls(tuple(sorted(axes)), axes, tuple(each for _, each in kept))

    @property
    def rows(self) -> int:
        """How many answers there are."""
        return math.prod(each.rows for each in self.maps)

    @property
    def is_marginal(self) -> bool:
        return all(isinstance(each, IdentityMap) for each in self.maps)
