"""`BayesianNetwork`: conditional tables straight from noisy marginals, multiplied (PrivBayes; Zhang et al. 2017, §3).

Marginals are taken in the order they were measured. Each gives the conditional table of the attributes it is the first
to bring, given those that came before: negative counts become 0, and every row is divided by its sum. The model is the
product of these tables. Marginals that bring no new attribute are not used, and what two tables say of the same
attributes is not reconciled: that is the heuristic which `Graphical` replaces.

The paper then draws as many records as there are and answers from them, which adds the noise of sampling. Here
marginals are computed from the product where its junction tree allows, and from drawn records otherwise, or on request.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.errors import FileFormatError, TooLarge, readable_bytes, readable_count
from consilience.estimators.base import (
    LARGEST_ANSWER,
    Estimate,
    Progress,
    SavedModel,
    Suitability,
    check_choice,
    check_rows,
)
from consilience.estimators.evidence import noise_variance, places_of, query_on_scope, refuse_nothing_to_fit
from consilience.kernels.rng import Generator, generator
from consilience.marginals.least_squares import TotalEstimate, combined_total
from consilience.marginals.table_stacks import Scope
from consilience.measurements import Exact, Measurement, MeasurementSet
from consilience.models.elimination import CalibratedModel
from consilience.models.junction_trees import JunctionTree, known_tree
from consilience.models.model import GraphicalModel
from consilience.solvers.fit import Status

# ----------------------------------------------------------------------------------------------------------------------
# A Bayesian network as conditional tables: made of noisy counts, sampled, and asked for its marginals.
#
# With attributes in an order, and for each group of attributes X that the order brings a table Pr[X | Π] on attributes
# Π that came before,
#
#     Pr[x] = Π_X Pr[x_X | x_Π].
#
# The tables are factors of a graphical model, from which any marginal follows exactly as long as its junction tree is
# small. Records are drawn one attribute group after the other (Zhang et al. 2017, section 3).


Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Conditional:
    """Pr[children | parents], an axis for each parent and then one for each child; the children's axes sum to 1."""

    parents: tuple[int, ...]
    children: tuple[int, ...]
    shares: Array

    @property
    def scope(self) -> tuple[int, ...]:
        return (*self.parents, *self.children)

    @property
    def rows(self) -> Array:
        """A row for each combination of the parents' values."""
        children = int(np.prod(self.shares.shape[len(self.parents) :], dtype=np.int64))
        return self.shares.reshape(-1, children)


def conditional_of_counts(
    counts: Array, parents: Sequence[int], children: Sequence[int], allowed: NDArray[np.bool_] | None = None
) -> Conditional:
    """The conditional table of noisy counts over parents, then children: what is negative is 0, each row sums to 1.

    Where nothing is left of a row, it is the mean of all rows; where nothing is left at all, it is even. Cells that are
    not allowed stay empty, unless a whole row is, which then no record has and which is even.

    >>> conditional_of_counts(np.array([[3.0, 1.0], [-2.0, -1.0]]), [0], [1]).shares.tolist()
    [[0.75, 0.25], [0.75, 0.25]]
    """
    shape = counts.shape
    kept = np.maximum(counts, 0.0)
    possible = np.ones(shape, dtype=np.bool_) if allowed is None else allowed
    rows = np.where(possible, kept, 0.0).reshape(int(np.prod(shape[: len(parents)], dtype=np.int64)), -1)
    possible = possible.reshape(rows.shape)
    largest = float(rows.max(initial=0.0))
    rows = rows / largest if largest > 0 else rows
    for instead in (np.broadcast_to(rows.sum(axis=0), rows.shape), np.ones(rows.shape)):
        empty = rows.sum(axis=1, keepdims=True) <= 0
        rows = np.where(empty, np.where(possible, instead, 0.0), rows)
    rows = np.where(rows.sum(axis=1, keepdims=True) <= 0, 1.0, rows)
    shares = rows / rows.sum(axis=1, keepdims=True)
    return Conditional(tuple(parents), tuple(children), shares.reshape(shape))


@dataclass(frozen=True, eq=False)
class Network:
    """Conditional tables in an order in which parents come before children; attributes in none are even."""

    sizes: tuple[int, ...]
    conditionals: tuple[Conditional, ...]

    def model(self, total: float, allowed: Sequence[tuple[Sequence[int], NDArray[np.bool_]]] = ()) -> GraphicalModel:
        """The same distribution as a graphical model, given that what is not allowed does not occur."""
        with np.errstate(divide="ignore"):  # log 0 = −∞ says that a cell is impossible
            logs = [np.log(each.shares) for each in self.conditionals]
        scopes = [each.scope for each in self.conditionals]
        return GraphicalModel.of(self.sizes, scopes, logs, total=total, allowed=allowed)

    def sample(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        """Codes of independent records, a row each and a column for each attribute."""
        codes = np.empty((rows, len(self.sizes)), dtype=np.int64)
        drawn = {place for each in self.conditionals for place in each.children}
        for each in self.conditionals:
            _draw(codes, each, rng)
        for place in sorted(set(range(len(self.sizes))) - drawn):
            codes[:, place] = rng.integers(0, self.sizes[place], rows)
        return codes


def _draw(codes: NDArray[np.int64], conditional: Conditional, rng: Generator) -> None:
    """Give every record the children's values, by its parents' row of the table.

    Row ρ's cumulated shares, plus ρ, lie between those of the rows around it: one search in the whole table finds the
    cell of every record.
    """
    cumulated = np.cumsum(conditional.rows, axis=1)
    cumulated /= cumulated[:, -1:]
    width = cumulated.shape[1]
    last = width - 1 - np.argmax(conditional.rows[:, ::-1] > 0, axis=1)
    shape = conditional.shares.shape
    held = tuple(codes[:, place] for place in conditional.parents)
    row = np.ravel_multi_index(held, shape[: len(held)]) if held else np.zeros(len(codes), dtype=np.int64)
    ends = (cumulated + np.arange(len(cumulated))[:, None]).ravel()
    found = np.searchsorted(ends, row + rng.random(len(codes)), side="right") - row * width
    cells = np.minimum(found, last[row])
    for place, values in zip(conditional.children, np.unravel_index(cells, shape[len(held) :]), strict=True):
        codes[:, place] = values


# ----------------------------------------------------------------------------------------------------------------------
# `BayesianNetwork`: conditional tables straight from noisy marginals, multiplied (PrivBayes; Zhang et al. 2017, §3).


Marginals = Literal["auto", "exact", "sampled"]

LARGEST_TREE = 20_000_000
"""Cells of a junction tree that is passed through once: a second or so, and its messages a part of them."""

BYTES_PER_CELL = 70
"""What a cell of a measured table takes when it is fitted and asked for (`python -m benchmarks memory`)."""

MOST_RECORDS = 2**31


@dataclass(frozen=True)
class BayesianNetwork:
    """The product of conditional tables, in the order in which marginals were measured.

    `marginals` says how they are answered: "exact", from the product; "sampled", from as many records as there are,
    drawn by `seed`, as published; "auto" is exact where the junction tree has at most `largest_tree` cells.
    """

    marginals: Marginals = "auto"
    seed: int = 0
    largest_tree: int = LARGEST_TREE

    name: ClassVar[str] = "bayesian-network"

    def __post_init__(self) -> None:
        check_choice(self.marginals, "the way to marginals", get_args(Marginals))
        generator(self.seed)

    def suitability(self, measured: MeasurementSet) -> Suitability:
        domain = measured.domain
        tables = _Tables.of(measured)
        if isinstance(tables, str):
            return Suitability(False, tables)
        cells = sum(each.values.size for axes, each in tables.found if axes)
        text = f"a network of {len(tables.scopes)} tables, which take {readable_bytes(8 * cells)}"
        covered = [set(scope) for scope in tables.scopes]
        apart = [rule for rule in _ruled(domain) if not any(set(rule) <= scope for scope in covered)]
        if self.marginals == "exact" or apart:
            # Else the junction tree decides only how marginals are answered, and is left to the fit.
            tree = _tree(domain, tables.scopes)
            size = f"the junction tree has {readable_count(tree.cells)} cells"
            if self._way(tree) == "exact" and tree.cells > self.largest_tree:
                return Suitability(False, f"{size}; exact marginals take up to {self.largest_tree:,}: draw records")
            if self._way(tree) == "sampled" and apart:
                return Suitability(False, f"{size}; drawn records do not keep impossible cells of several tables empty")
        return Suitability(True, text, BYTES_PER_CELL * cells)

    def _way(self, tree: JunctionTree) -> str:
        """How marginals are answered."""
        if self.marginals == "auto":
            return "exact" if tree.cells <= self.largest_tree else "sampled"
        return self.marginals

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "BayesianNetworkEstimate":
        suitable, tables = self.suitability(measured), _Tables.of(measured)
        if not suitable.possible or isinstance(tables, str):
            raise TooLarge(f"bayesian-network cannot fit these measurements: {suitable.reason}")
        began = time.perf_counter()
        tree = _tree(measured.domain, tables.scopes)
        conditionals = tables.conditionals()
        names = measured.domain.counted_names
        described = {
            "method": self.name,
            "marginals": self._way(tree),
            "seed": self.seed,
            "families": [
                [[names[place] for place in each.parents], [names[place] for place in each.children]]
                for each in conditionals
            ],
        }
        stats: dict[str, float | int | str] = {
            "objective": 0.0,
            "gap": 0.0,
            "tables": len(conditionals),
            "unused_tables": sum(bool(axes) for axes, _ in tables.found) - len(conditionals),
            "junction_tree_cells": tree.cells,
            "total_variance": tables.total.variance,
            "seconds": time.perf_counter() - began,
        }
        return BayesianNetworkEstimate(
            measured, described, Status.CONVERGED, stats, tuple(conditionals), tables.total.total
        )


@dataclass(frozen=True, eq=False)
class BayesianNetworkEstimate(Estimate):
    """A Bayesian network over the counted attributes, and the number of records."""

    conditionals: tuple[Conditional, ...]
    records: float
    """The estimated number of records."""

    @property
    def total(self) -> float:
        return self.records

    @cached_property
    def network(self) -> Network:
        return Network(self.domain.shape, self.conditionals)

    @cached_property
    def model(self) -> CalibratedModel:
        """The product of the tables, ready for exact marginals."""
        model = self.network.model(self.records, _allowed(self.domain))
        return CalibratedModel(model, known_tree(model.sizes, model.all_scopes))

    @cached_property
    def drawn(self) -> NDArray[np.int64]:
        """The records from which marginals are answered where they are sampled: as many as the estimated number."""
        rows = max(1, round(self.records))
        if rows * len(self.domain.shape) > MOST_RECORDS:
            raise TooLarge(f"{rows:,} records would be drawn to answer from, too many; ask for exact marginals")
        return self.network.sample(rows, generator(int(self.method.get("seed", 0))))

    def marginal(self, *attributes: str) -> Array:
        self.check_names(attributes)
        places = [self.domain.counted_names.index(name) for name in attributes]
        if self.method.get("marginals") != "sampled":
            return self.model.marginal(places)
        self.check_names(attributes, LARGEST_ANSWER)
        shape = self.domain.sizes(attributes)
        columns = tuple(self.drawn[:, place] for place in places)
        index = np.ravel_multi_index(columns, shape) if columns else np.zeros(len(self.drawn), dtype=np.int64)
        counts = np.bincount(index, minlength=math.prod(shape)).reshape(shape)
        return np.asarray(counts * (self.records / len(self.drawn)), dtype=np.float64)

    def draw(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        """Codes of synthetic records, one row each and a column for each counted attribute, drawn independently.

        Where rules join attributes of several tables, records that break one are drawn again.
        """
        count = check_rows(rows)
        rules = _allowed(self.domain)
        if not rules:
            return self.network.sample(count, rng)
        kept: list[NDArray[np.int64]] = []
        missing = count
        for _ in range(1000):
            if not missing:
                return np.concatenate([np.empty((0, len(self.domain.shape)), dtype=np.int64), *kept])
            drawn = self.network.sample(missing, rng)
            possible = np.logical_and.reduce([table[tuple(drawn[:, list(scope)].T)] for scope, table in rules])
            kept.append(drawn[possible])
            missing -= int(possible.sum())
        raise TooLarge("hardly any record that the network draws is possible; use Graphical, which keeps to the rules")

    def arrays(self) -> Mapping[str, Array]:
        tables = {f"conditional {k}": each.shares for k, each in enumerate(self.conditionals)}
        return {"total": np.array([self.records]), **tables}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "BayesianNetworkEstimate":
        families: Sequence[Any] = saved.method.get("families", ())
        scopes = [(*parents, *children) for parents, children in families]
        tables = saved.tables("a network", "conditional", scopes, measured.domain)
        places = places_of(measured.domain)
        conditionals = []
        for (parents, children), shares in zip(families, tables, strict=True):
            if (shares < 0).any():
                raise FileFormatError(f"the table of {', '.join(children)} has negative shares; write the bundle anew")
            own = (tuple(places[name] for name in parents), tuple(places[name] for name in children))
            conditionals.append(Conditional(*own, shares))
        return cls(measured, saved.method, saved.status, saved.stats, tuple(conditionals), saved.total)


@dataclass(frozen=True, eq=False)
class _Tables:
    """The measured marginals in order, each with the places of its axes in the domain."""

    domain: Domain
    found: tuple[tuple[Scope, Measurement], ...]
    known: float | None
    """The total where it is known exactly."""

    @staticmethod
    def of(measured: MeasurementSet) -> "_Tables | str":
        """The tables, or why there is no network of them; noisy values are not looked at."""
        refuse_nothing_to_fit(measured)
        domain, known = measured.domain, measured.domain.public.total
        if domain.public.margins:
            names = ", ".join(domain.public.margins[0].attributes)
            return f"the public {names} is known exactly, and a network keeps no table; use Table"
        found: list[tuple[Scope, Measurement]] = []
        for each in measured:
            query, exact = query_on_scope(each.query, domain), isinstance(each.noise, Exact)
            if exact and query.axes:
                return f"{each.query.describe()} is known exactly, and a network keeps no table; use Table"
            withheld = each.censored is not None and each.censored.any()
            if not query.is_marginal or each.clipped or withheld:
                return f"{each.query.describe()!r} is no whole marginal as it was drawn; use Graphical"
            if exact:
                known = float(each.values[0])
            else:
                found.append((query.axes, each))
        return _Tables(domain, tuple(found), known)

    @cached_property
    def total(self) -> TotalEstimate:
        """The total that is known, or else that all tables tell together."""
        if self.known is not None:
            return TotalEstimate(float(self.known), 0.0)
        told = ((float(each.values.sum()), each.values.size * noise_variance(each)) for _, each in self.found)
        return combined_total([TotalEstimate(total, variance) for total, variance in told], least=0.0)

    @cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """For each table that brings an attribute, those that came before and then those that it brings."""
        return tuple((*parents, *children) for parents, children, _, _ in self._used)

    @cached_property
    def _used(self) -> list[tuple[Scope, Scope, Scope, Measurement]]:
        """Parents, children and axes of each table that brings an attribute."""
        seen: set[int] = set()
        used = []
        for axes, each in self.found:
            children = tuple(place for place in axes if place not in seen)
            if children:
                used.append((tuple(place for place in axes if place in seen), children, axes, each))
                seen.update(children)
        return used

    def conditionals(self) -> list[Conditional]:
        """One conditional table for each marginal that brings attributes."""
        made, shape = [], self.domain.shape
        for parents, children, axes, each in self._used:
            scope = (*parents, *children)
            table = each.values.reshape([shape[place] for place in axes]).transpose(list(map(axes.index, scope)))
            allowed = self.domain.allowed_cells([self.domain.counted_names[place] for place in scope])
            made.append(conditional_of_counts(table, parents, children, allowed))
        return made


def _ruled(domain: Domain) -> list[Scope]:
    """The places of the attributes that each rule on impossible cells names."""
    places = places_of(domain)
    return [tuple(places[name] for name in domain.ordered(rule.attributes)) for rule in domain.impossible]


def _allowed(domain: Domain) -> list[tuple[Scope, NDArray[np.bool_]]]:
    """For each rule, which cells of its attributes can occur."""
    found = []
    for scope in dict.fromkeys(_ruled(domain)):
        table = domain.allowed_cells([domain.counted_names[place] for place in scope])
        if table is not None:
            found.append((scope, table))
    return found


def _tree(domain: Domain, scopes: tuple[Scope, ...]) -> JunctionTree:
    return known_tree(domain.shape, (*scopes, *dict.fromkeys(_ruled(domain))))
