"""`Geography`: marginals of every place, at every level of a geography, and what share of the budget each gets.

At each level every table of the workload is measured for all of its places. A record is in one place of each level and
in one cell of each table, so that all levels and tables together cost the sum of their shares: the largest sum along a
path from the root to a leaf, times the rows that a protected unit may have. Which share is best follows from the tree
and from the tables alone: the variance of least squares over all places is known before anything is measured, and the
shares are those with the least sum, over levels and tables, of

    weight × mean variance of a cell over the places of the level / (the error that is wanted there)².

Where no error is wanted, the variance is compared with that which the level's table would have if the whole budget were
spent on it: what each level pays for the others.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Hierarchy
from consilience.domain.domains import Domain
from consilience.domain.factors import Identity, Level, Total
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.geographic import Geographic
from consilience.estimators.measured_places import Places, geography_of
from consilience.measurements import MeasurementSet
from consilience.plans.base import DescribedPlan
from consilience.privacy.budgets import AdditiveUnit, Budget
from consilience.privacy.gate import Gate
from consilience.solvers.geography.least_squares import CellBasis, expected_variances

Array = NDArray[np.float64]
Numbers = tuple[tuple[str, float], ...]

SMALLEST_SHARE = 1e-4
"""A level's table of which least squares need less than this share of the budget is not measured."""


@dataclass(frozen=True)
class Geography(DescribedPlan):
    """The marginals of a workload for all places of all levels, with the shares that make the errors least.

    `workload` holds marginals by the other attributes; its weights say how much each matters. `levels` gives each level
    its share of the budget, divided evenly among the tables; a level that is not named is not measured. Without it the
    best shares are found. `errors` are the standard deviations of a cell that are wanted at levels, in records.
    `attribute` names the geography, where the domain does not mark it.

    >>> Geography(Workload.of(["by sex", "total"]), levels={"State": 1, "County": 3}).to_json()["levels"]
    {'State': 1.0, 'County': 3.0}
    """

    name = "geography"
    workload: Workload
    levels: Mapping[str, float] | Numbers | None = None
    errors: Mapping[str, float] | Numbers | None = None
    attribute: str | None = None

    def __post_init__(self) -> None:
        for field in ("levels", "errors"):
            given = getattr(self, field)
            if given is not None:
                object.__setattr__(self, field, _numbers(given, field))
        if self.levels is not None and self.errors is not None:
            raise DeclarationError("shares of the levels and errors that are wanted were both given; give one of them")
        if not len(self.workload):
            raise DeclarationError("the workload holds no marginal; name at least one, such as 'by sex', or 'total'")
        for query in self.workload.queries:
            if not all(isinstance(factor, Identity | Total) for _, factor in query.factors):
                raise DeclarationError(
                    f"the query {query.describe()!r} is no marginal; every place has marginals, such as 'by age, sex'"
                )

    def to_json(self) -> dict[str, Any]:
        found = {key: value for key, value in super().to_json().items() if value is not None}
        named = {key: dict(getattr(self, key)) for key in ("levels", "errors") if key in found}
        return found | named

    def run(self, gate: Gate) -> None:
        parts = self.parts(gate.domain, gate.budget.additive_unit)
        queries = [each.query for each in parts]
        gate.measure(queries, gate.budget, shares=[each.share for each in parts])

    def parts(self, domain: Domain, unit: AdditiveUnit) -> "tuple[Part, ...]":
        """What is measured, each with its share of the budget."""
        places = self._geography(domain)
        names, scopes = self._tables(domain, places)
        chosen = dict(self.levels or ())
        for given in (chosen, dict(self.errors or ())):
            for level in given:
                places.groups(level)  # refuses unknown levels
        levels = [level for level in places.levels if not chosen or level in chosen]
        pairs = list(itertools.product(levels, scopes))
        if chosen:
            shares = [chosen[level] / len(scopes) for level, _ in pairs]
        else:
            problem = _Shares.of(places, domain.sizes(names), tuple(levels), tuple(scopes.items()), unit)
            shares = problem.best(tuple(self.errors or ()))
        found = []
        for (level, scope), share in zip(pairs, shares, strict=True):
            told = [(names[axis], Identity()) for axis in scope]
            if share >= SMALLEST_SHARE * sum(shares):
                found.append(Part(level, scope, Query(((places.name, Level(level)), *told)), share / sum(shares)))
        return tuple(found)

    def variances(self, domain: Domain, budget: Budget) -> "dict[tuple[str, tuple[str, ...]], float]":
        """The mean variance, over the places of a level, of a cell of each table of the workload, before counts are
        kept from being negative; one record per unit, added or removed."""
        places, unit = self._geography(domain), budget.additive_unit
        names, scopes = self._tables(domain, places)
        problem = _Shares.of(places, domain.sizes(names), places.levels, tuple(scopes.items()), unit)
        found = problem.mean_variances({(each.level, each.scope): each.share for each in self.parts(domain, unit)})
        amount = float(budget.amount)
        scale = 2.0 * amount if unit == "rho" else amount**2
        told = [tuple(names[axis] for axis in scope) for scope in scopes]
        return {
            pair: float(each) / scale
            for pair, each in zip(itertools.product(places.levels, told), found.ravel(), strict=True)
        }

    def estimator(self) -> Geographic:
        """Tables of all places that add up."""
        return Geographic(self.attribute)

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """The shares of the levels, and the error to expect of each level and table."""
        domain = example.domain
        places = self._geography(domain)
        totals: dict[str, float] = {}
        for each in self.parts(domain, budget.additive_unit):
            totals[each.level] = totals.get(each.level, 0.0) + each.share
        shares = ", ".join(f"{level} {100 * share:.3g} %" for level, share in totals.items())
        lines = [f"shares of the budget: {shares}; a record costs their sum, for it is in one place of each level"]
        wanted = dict(self.errors or ())
        for (level, told), variance in self.variances(domain, budget).items():
            number = len(places.groups(level))
            goal = f", wanted {wanted[level]:g}" if level in wanted else ""
            table = f"by {', '.join(told)}" if told else "the total"
            lines.append(f"{level} ({number:,} places), {table}: standard deviation {math.sqrt(variance):.4g}{goal}")
        return tuple(lines)

    def _geography(self, domain: Domain) -> Attribute:
        found = geography_of(domain, self.attribute)
        if isinstance(found, str):
            raise DeclarationError(f"the plan measures places, and {found}")
        if not isinstance(found, Hierarchy) or not found.levels:
            raise DeclarationError(f"the plan measures places, and {found.name!r} is no hierarchy with named levels")
        return found

    def _tables(self, domain: Domain, places: Attribute) -> tuple[list[str], dict[tuple[int, ...], float]]:
        """The attributes of the tables, and each table by the places of its attributes among them, with its weight."""
        told = [
            [name for name, factor in query.factors if isinstance(factor, Identity)]
            for query in self.workload.over(domain).queries
        ]
        if any(places.name in each for each in told):
            raise DeclarationError(f"the tables of places are by other attributes; take {places.name!r} out of them")
        names = [name for name in domain.counted_names if any(name in each for each in told)]
        for name in itertools.chain(*told):
            domain[name].labels  # noqa: B018 - refuses unknown and continuous attributes
        scopes: dict[tuple[int, ...], float] = {}
        for each, weight in zip(told, self.workload.weights, strict=True):
            scope = tuple(sorted(names.index(name) for name in each))
            scopes[scope] = scopes.get(scope, 0.0) + weight
        return names, scopes


@dataclass(frozen=True)
class Part:
    """One table of one level, and its share of the budget."""

    level: str
    scope: tuple[int, ...]
    query: Query
    share: float


def _numbers(given: Mapping[str, float] | Sequence[tuple[str, float]], what: str) -> Numbers:
    pairs = tuple(given.items()) if isinstance(given, Mapping) else tuple(given)
    for level, number in pairs:
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
            raise DeclarationError(f"{what} of the level {level!r} is {number!r}; give a finite number above 0")
    if not pairs:
        raise DeclarationError(f"{what} names no level; leave it out, or name one")
    return tuple((str(level), float(number)) for level, number in pairs)


@dataclass(frozen=True, eq=False)
class _Shares:
    """The variances of least squares as a function of the shares, at a budget of ρ = ½ or ε = 1."""

    places: Places
    basis: CellBasis
    levels: tuple[str, ...]
    scopes: tuple[tuple[tuple[int, ...], float], ...]
    unit: AdditiveUnit
    nodes: tuple[NDArray[np.intp], ...]
    """The places of each level."""

    @staticmethod
    @lru_cache(maxsize=8)
    def of(
        attribute: Attribute,
        sizes: tuple[int, ...],
        levels: tuple[str, ...],
        scopes: tuple[tuple[tuple[int, ...], float], ...],
        unit: AdditiveUnit,
    ) -> "_Shares":
        places = Places.of(attribute)
        nodes = [places.nodes(attribute, Level(level)) for level in levels]
        found = tuple(each for each in nodes if each is not None)
        return _Shares(places, CellBasis(sizes), levels, scopes, unit, found)

    def precision(self, share: float) -> float:
        """1/variance of an answer with this share of the budget."""
        return share if self.unit == "rho" else share**2 / 2.0

    def mean_variances(self, shares: Mapping[tuple[str, tuple[int, ...]], float]) -> Array:
        """For each level and table the mean over places of the variance of a cell."""
        precisions = np.zeros((self.places.layout.nodes, self.basis.residuals))
        for (level, scope), share in shares.items():
            told = np.flatnonzero(self.basis.within(scope))
            nodes = self.nodes[self.levels.index(level)]
            precisions[np.ix_(nodes, told)] += self.basis.away(scope) * self.precision(share)
        variances = expected_variances(self.places.layout, precisions)
        found = [
            [self.basis.marginal_variances(variances[nodes], scope).mean() for scope, _ in self.scopes]
            for nodes in self.nodes
        ]
        return np.array(found)

    @lru_cache(maxsize=8)  # noqa: B019 - the few that exist are kept anyhow
    def best(self, errors: Numbers) -> tuple[float, ...]:
        """The shares with the least weighted sum of variances in units of what is wanted."""
        pairs = list(itertools.product(self.levels, [scope for scope, _ in self.scopes]))
        wanted = dict(errors)
        alone = 1.0 / self.precision(1.0)
        units = np.array([wanted.get(level, math.sqrt(alone)) ** 2 for level, _ in pairs])
        weights = np.array([weight for _ in self.levels for _, weight in self.scopes])

        def cost(logarithms: Array) -> float:
            shares = np.exp(logarithms - logarithms.max())
            shares /= shares.sum()
            found = self.mean_variances(dict(zip(pairs, shares.tolist(), strict=True))).ravel()
            return float(np.log((weights * found / units).sum()))

        limits = [(math.log(SMALLEST_SHARE) - 2.0, 0.0)] * len(pairs)
        found = scipy.optimize.minimize(cost, np.zeros(len(pairs)) - 1.0, method="L-BFGS-B", bounds=limits)
        shares = np.exp(found.x - found.x.max())
        # Rounded, so that the last digits of a search are no part of what is measured.
        return tuple(float(f"{share:.4g}") for share in shares / shares.sum())
