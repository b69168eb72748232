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
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Hierarchy
from consilience.domain.domains import Domain
from consilience.domain.factors import Factor, Identity, Level, Total
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.geographic import Geographic
from consilience.estimators.measured_places import LARGEST_MATRIX, Places, geography_of
from consilience.measurements import MeasurementSet
from consilience.plans.base import DescribedPlan
from consilience.privacy.budgets import AdditiveUnit, Budget
from consilience.privacy.gate import Gate
from consilience.solvers.geography.cell_basis import CellBasis, MarginalInBasis, told_apart
from consilience.solvers.geography.least_squares import node_variances, parents
from consilience.solvers.geography.subtrees import UNTOLD, Classes, Precisions, Subtrees

Array = NDArray[np.float64]
Numbers = tuple[tuple[str, float], ...]
Table = tuple[tuple[str, Factor], ...]
"""Attributes, and what a table has of each: all values, or groups of them."""

SMALLEST_SHARE = 1e-4
"""A level's table of which least squares need less than this share of the budget is not measured."""


@dataclass(frozen=True)
class Geography(DescribedPlan):
    """The marginals of a workload for all places of all levels, with the shares that make the errors least.

    `workload` holds marginals by the other attributes, over all of their values or over groups of them, nested or
    crossing (voting age beside single years); its weights say how much each matters. `levels` gives each level
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
            if not query.is_product or any(isinstance(factor, Level) and factor.within for _, factor in query.factors):
                raise DeclarationError(
                    f"the query {query.describe()!r} is no marginal over values or groups of them; every place has "
                    "such marginals, as 'by age, sex'"
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
        tables = self._tables(domain, places)
        chosen = dict(self.levels or ())
        for given in (chosen, dict(self.errors or ())):
            for level in given:
                places.groups(level)  # refuses unknown levels
        levels = [level for level in places.levels if not chosen or level in chosen]
        pairs = list(itertools.product(levels, tables))
        if chosen:
            shares = [chosen[level] / len(tables) for level, _ in pairs]
        else:
            problem = _Shares.of(domain, places, tuple(levels), tuple(tables.items()), unit)
            shares = problem.best(tuple(self.errors or ()))
        found = []
        for (level, table), share in zip(pairs, shares, strict=True):
            if share >= SMALLEST_SHARE * sum(shares):
                query = Query(((places.name, Level(level)), *table))
                found.append(Part(level, table, query, share / sum(shares)))
        return tuple(found)

    def variances(self, domain: Domain, budget: Budget) -> "dict[tuple[str, tuple[str, ...]], float]":
        """The mean variance, over the places of a level, of a cell of each table of the workload, before counts are
        kept from being negative; one record per unit, added or removed."""
        places, unit = self._geography(domain), budget.additive_unit
        tables = self._tables(domain, places)
        problem = _Shares.of(domain, places, places.levels, tuple(tables.items()), unit)
        found = problem.mean_variances({(each.level, each.table): each.share for each in self.parts(domain, unit)})
        amount = float(budget.amount)
        scale = 2.0 * amount if unit == "rho" else amount**2
        told = [tuple(factor.describe(name) for name, factor in table) for table in tables]
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

    def _tables(self, domain: Domain, places: Attribute) -> dict[Table, float]:
        """The tables of every place with their weights; attributes in the order of the domain."""
        tables: dict[Table, float] = {}
        for query, weight in zip(self.workload.over(domain).queries, self.workload.weights, strict=True):
            told = {name: factor for name, factor in query.factors if not isinstance(factor, Total)}
            if places.name in told:
                raise DeclarationError(
                    f"the tables of places are by other attributes; take {places.name!r} out of them"
                )
            for name, factor in told.items():
                if factor.bind(domain[name]).rows * domain[name].size > LARGEST_MATRIX:
                    raise DeclarationError(f"{factor.describe(name)} has too many answers to be a table of every place")
            table = tuple(sorted(told.items(), key=lambda pair: domain.counted_names.index(pair[0])))
            tables[table] = tables.get(table, 0.0) + weight
        return tables


@dataclass(frozen=True)
class Part:
    """One table of one level, and its share of the budget."""

    level: str
    table: Table
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
    """The variances of least squares as a function of the shares, at a budget of ρ = ½ or ε = 1.

    Places that are measured alike together with all below and above them have the same; one stands for all of them.
    """

    places: Places
    levels: tuple[str, ...]
    tables: tuple[tuple[Table, float], ...]
    marginals: tuple[MarginalInBasis, ...]
    norms: tuple[float, ...]
    """How much one record counts in each table."""
    unit: AdditiveUnit
    classes: Classes
    measured: NDArray[np.bool_]
    """For each kind of place, the levels whose tables it has."""
    alike: NDArray[np.int64]
    """A place for each that differs."""
    numbers: NDArray[np.int64]
    """For each level, how many of its places are like each of these."""

    @staticmethod
    @lru_cache(maxsize=8)
    def of(
        domain: Domain,
        attribute: Attribute,
        levels: tuple[str, ...],
        tables: tuple[tuple[Table, float], ...],
        unit: AdditiveUnit,
    ) -> "_Shares":
        places = Places.of(attribute)
        named = {name for table, _ in tables for name, _ in table}
        names = [name for name in domain.counted_names if name in named]
        scopes, sets = _scopes(domain, names, [table for table, _ in tables])
        basis = CellBasis(domain.sizes(names), sets)
        at = np.zeros((places.layout.nodes, len(levels)), dtype=bool)
        for place, level in enumerate(levels):
            at[places.nodes(attribute, Level(level)), place] = True
        measured, kinds = np.unique(at, axis=0, return_inverse=True)
        classes = Classes.of_nodes(places.layout, np.asarray(kinds, dtype=np.int64).reshape(-1))
        none = Precisions.none(basis.block_sizes)
        blank = Subtrees.of(classes, _of_kinds(none, [np.zeros((len(measured), b, b)) for b in basis.block_sizes]))
        every = np.arange(places.layout.nodes)
        rows = node_variances(places.layout, parents(places.layout), classes.of, blank, every).of
        _, alike, label = np.unique(rows, return_index=True, return_inverse=True)
        numbers = np.array(
            [np.bincount(label[at[:, place]], minlength=len(alike)) for place in range(len(levels))], dtype=np.int64
        )
        norms = tuple(
            math.prod(
                float(factor.bind(domain[name]).column_norms(1 if unit == "epsilon" else 2).max())
                for name, factor in table
            )
            for table, _ in tables
        )
        marginals = tuple(basis.marginal(scope) for scope in scopes)
        return _Shares(places, levels, tables, marginals, norms, unit, classes, measured, alike, numbers)

    def precision(self, share: float, norm: float = 1.0) -> float:
        """1/variance of an answer with this share of the budget."""
        return (share if self.unit == "rho" else share**2 / 2.0) / norm**2

    def mean_variances(self, shares: Mapping[tuple[str, Table], float]) -> Array:
        """For each level and table the mean over places of the variance of a cell."""
        basis = self.marginals[0].basis
        noisy = [np.zeros((len(self.measured), b, b)) for b in basis.block_sizes]
        kept = [table for table, _ in self.tables]
        for (level, table), share in shares.items():
            of = kept.index(table)
            marginal, precision = self.marginals[of], self.precision(share, self.norms[of])
            kinds = self.measured[:, self.levels.index(level)]
            for place, bits in enumerate(basis.residuals):
                if marginal.tells(bits):
                    design = marginal.design(bits)
                    noisy[place][kinds] += precision * (design.T @ design)
        subtrees = Subtrees.of(self.classes, _of_kinds(Precisions.none(basis.block_sizes), noisy))
        layout = self.places.layout
        found = node_variances(layout, parents(layout), self.classes.of, subtrees, self.alike)
        means = np.empty((len(self.levels), len(self.tables)))
        for place, marginal in enumerate(self.marginals):
            untold, told = (
                sum(np.einsum("ubc,bc->u", v, w) for v, w in zip(blocks, marginal.mean_weights, strict=True))
                for blocks in (found.untold, found.told)
            )
            each = np.where(np.asarray(untold) > UNTOLD, np.inf, told)[found.of]
            for level, numbers in enumerate(self.numbers):
                means[level, place] = numbers[numbers > 0] @ each[numbers > 0] / numbers.sum()
        return means

    @lru_cache(maxsize=8)  # noqa: B019 - the few that exist are kept anyhow
    def best(self, errors: Numbers) -> tuple[float, ...]:
        """The shares with the least weighted sum of variances in units of what is wanted."""
        pairs = list(itertools.product(self.levels, [table for table, _ in self.tables]))
        wanted = dict(errors)
        alone = 1.0 / self.precision(1.0)
        units = np.array([wanted.get(level, math.sqrt(alone)) ** 2 for level, _ in pairs])
        weights = np.array([weight for _ in self.levels for _, weight in self.tables])

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


def _of_kinds(none: Precisions, noisy: Sequence[Array]) -> Precisions:
    """Kinds of places with these precisions, nothing known exactly."""
    number = len(noisy[0])
    zeros = tuple(map(np.zeros_like, noisy))
    return replace(
        none,
        noisy=tuple(noisy),
        known=zeros,
        given=np.zeros(number, dtype=bool),
        untold=zeros,
        told=zeros,
        leaves=np.ones(number),
    )


def _scopes(
    domain: Domain, names: Sequence[str], tables: Sequence[Table]
) -> tuple[list[dict[int, Array | None]], dict[int, NDArray[np.int64]]]:
    """The tables as the solvers take them, and the sets of values that no groups tell apart."""
    scopes: list[dict[int, Array | None]] = []
    groups: dict[int, list[Array]] = {}
    for table in tables:
        scope: dict[int, Array | None] = {}
        for name, factor in table:
            axis = names.index(name)
            scope[axis] = None
            if not isinstance(factor, Identity):
                scope[axis] = rows = factor.bind(domain[name]).dense()
                groups.setdefault(axis, []).append(rows)
        scopes.append(scope)
    sizes = domain.sizes(names)
    return scopes, {axis: told_apart([np.ones((1, sizes[axis])), *each]) for axis, each in groups.items()}
