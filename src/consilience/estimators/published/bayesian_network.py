"""`BayesianNetwork`: conditional tables straight from noisy marginals, multiplied (PrivBayes; Zhang et al. 2017, §3).

Marginals are taken in the order they were measured. Each gives the conditional table of the attributes it is the first
to bring, given those that came before: negative counts become 0, and every row is divided by its sum. The model is the
product of these tables. Marginals that bring no new attribute are not used, and what two tables say of the same
attributes is not reconciled: that is the heuristic which `Graphical` replaces.

The paper then draws as many records as there are and answers from them, which adds the noise of sampling. Here
marginals are computed from the product where its junction tree allows, and from drawn records otherwise, or on request.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.errors import DeclarationError, FileFormatError, TooLarge, readable_bytes, readable_count
from consilience.estimators.base import Estimate, Progress, SavedModel, Suitability, check_rows
from consilience.estimators.evidence import Evidence, gather
from consilience.estimators.measured_model import known_tree
from consilience.estimators.published.networks import Conditional, Network, conditional_of_counts
from consilience.estimators.query_on_scope import QueryOnScope
from consilience.kernels.rng import Generator, generator
from consilience.marginals.table_stacks import Scope
from consilience.marginals.total_estimate import TotalEstimate, combined_total
from consilience.measurements import MeasurementSet
from consilience.models.elimination import CalibratedModel
from consilience.models.junction_trees import JunctionTree
from consilience.solvers.fit import Status

Array = NDArray[np.float64]
Marginals = Literal["auto", "exact", "sampled"]

LARGEST_TREE = 20_000_000
"""Cells of a junction tree that is passed through once: a second or so, and its messages a part of them."""

BYTES_PER_CELL = 70
"""What a cell of a measured table takes when it is fitted and asked for (`python -m benchmarks memory`)."""

LARGEST_ANSWER = 2**26
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
        if self.marginals not in ("auto", "exact", "sampled"):
            raise DeclarationError(f"the marginals are {self.marginals!r}; choose auto, exact or sampled")
        generator(self.seed)

    def suitability(self, measured: MeasurementSet) -> Suitability:
        domain = measured.domain
        tables = _Tables.of(measured)
        if tables.refusal:
            return Suitability(False, tables.refusal)
        scopes = tables.scopes
        tree = _tree(domain, scopes)
        apart = [rule for rule in _ruled(domain) if not any(set(rule) <= set(scope) for scope in scopes)]
        cells = sum(table.size for _, table in tables.found)
        text = f"a network of {len(scopes)} tables, whose junction tree has {readable_count(tree.cells)} cells"
        if self._way(tree) == "exact" and tree.cells > self.largest_tree:
            return Suitability(False, f"{text}; exact marginals take up to {self.largest_tree:,}: draw records")
        if self._way(tree) == "sampled" and apart:
            return Suitability(False, f"{text}; drawn records do not keep impossible cells of several tables empty")
        return Suitability(True, f"{text}; the tables take {readable_bytes(8 * cells)}", BYTES_PER_CELL * cells)

    def _way(self, tree: JunctionTree) -> str:
        """How marginals are answered."""
        if self.marginals == "auto":
            return "exact" if tree.cells <= self.largest_tree else "sampled"
        return self.marginals

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "BayesianNetworkEstimate":
        suitable = self.suitability(measured)
        if not suitable.possible:
            raise TooLarge(f"bayesian-network cannot fit these measurements: {suitable.reason}")
        began = time.perf_counter()
        tables = _Tables.of(measured)
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
            "unused_tables": len(tables.found) - len(conditionals),
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
        shape = self.domain.sizes(attributes)
        cells = int(np.prod(shape, dtype=np.float64))
        if cells > LARGEST_ANSWER:
            raise TooLarge(
                f"the marginal has {readable_count(cells)} cells, and {LARGEST_ANSWER:,} are allowed; name fewer "
                "attributes"
            )
        columns = tuple(self.drawn[:, place] for place in places)
        index = np.ravel_multi_index(columns, shape) if columns else np.zeros(len(self.drawn), dtype=np.int64)
        counts = np.bincount(index, minlength=cells).reshape(shape)
        return np.asarray(counts * (self.records / len(self.drawn)), dtype=np.float64)

    def sample(self, rows: int, rng: Generator) -> NDArray[np.int64]:
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
        expected = ["total", *(f"conditional {k}" for k in range(len(families)))]
        if sorted(saved.arrays) != sorted(expected):
            raise FileFormatError(
                f"a network of {len(families)} families holds {expected}, found {sorted(saved.arrays)}; write the "
                "bundle anew"
            )
        places = {name: place for place, name in enumerate(measured.domain.counted_names)}
        conditionals = []
        for k, (parents, children) in enumerate(families):
            shares = saved.arrays[f"conditional {k}"]
            if shares.shape != measured.domain.sizes((*parents, *children)):
                raise FileFormatError(
                    f"the table of {', '.join(children)} has shape {shares.shape}, the domain "
                    f"{measured.domain.sizes((*parents, *children))}; write the bundle anew"
                )
            if (shares < 0).any():
                raise FileFormatError(f"the table of {', '.join(children)} has negative shares; write the bundle anew")
            own = (tuple(places[name] for name in parents), tuple(places[name] for name in children))
            conditionals.append(Conditional(*own, shares))
        total = float(saved.arrays["total"].ravel()[0])
        return cls(measured, saved.method, saved.status, saved.stats, tuple(conditionals), total)


@dataclass(frozen=True, eq=False)
class _Tables:
    """What was measured, as tables over places in the domain, in order."""

    domain: Domain
    found: tuple[tuple[Scope, Array], ...]
    noisy: tuple[Evidence, ...] = ()
    known: float | None = None
    """The total where it is known exactly."""
    refusal: str = ""

    @staticmethod
    def of(measured: MeasurementSet) -> "_Tables":
        domain = measured.domain
        places = {name: place for place, name in enumerate(domain.counted_names)}
        found: list[tuple[Scope, Array]] = []
        noisy: list[Evidence] = []
        known = domain.public.total
        for each in gather(measured):
            query = QueryOnScope.of(each.bind(domain), places)
            if each.exact and query.axes:
                return _Tables.refused(domain, f"{each.name} is known exactly, and a network keeps no table; use Table")
            if not query.is_marginal or not each.whole:
                return _Tables.refused(
                    domain, f"{each.query.describe()!r} is no whole marginal as it was drawn; use Graphical"
                )
            if each.exact:
                known = float(each.values[0])
                continue
            table = each.values.reshape([domain.shape[place] for place in query.axes])
            noisy.append(each)
            if query.axes:
                found.append((query.axes, table))
        if known is None and not noisy:
            return _Tables.refused(domain, "no measurement tells the total; measure a marginal")
        return _Tables(domain, tuple(found), tuple(noisy), known)

    @staticmethod
    def refused(domain: Domain, why: str) -> "_Tables":
        return _Tables(domain, (), refusal=why)

    @cached_property
    def total(self) -> TotalEstimate:
        """The total that is known, or else that all tables tell together."""
        if self.known is not None:
            return TotalEstimate(float(self.known), 0.0)
        told = ((each.values.sum(), np.sum(2.0 / each.weights**2)) for each in self.noisy)
        return combined_total([TotalEstimate(float(total), float(variance)) for total, variance in told], least=0.0)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes of the tables that bring an attribute."""
        return tuple(scope for scope, _, _ in self._used())

    def _used(self) -> list[tuple[Scope, Scope, Array]]:
        """Parents with children, and children, of each table that brings an attribute, with its axes in that order."""
        seen: set[int] = set()
        used = []
        for axes, table in self.found:
            children = tuple(place for place in axes if place not in seen)
            if not children:
                continue
            parents = tuple(place for place in axes if place in seen)
            turned = table.transpose([axes.index(place) for place in (*parents, *children)])
            used.append(((*parents, *children), children, turned))
            seen.update(children)
        return used

    def conditionals(self) -> list[Conditional]:
        """One conditional table for each marginal that brings attributes."""
        made = []
        for scope, children, table in self._used():
            parents = scope[: len(scope) - len(children)]
            allowed = self.domain.allowed_cells([self.domain.counted_names[place] for place in scope])
            made.append(conditional_of_counts(table, parents, children, allowed))
        return made


def _ruled(domain: Domain) -> list[Scope]:
    """The places of the attributes that each rule on impossible cells names."""
    places = {name: place for place, name in enumerate(domain.counted_names)}
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
