"""`FactoredWeights`: multiplicative weights on a product of independent tables (Hardt, Ligett, McSherry 2012, §4).

Attributes that some measurement or some impossible cell has together form a component. Measurements of different
components say nothing of each other, so that the table of the whole domain is a product

    p(x) = Π_C p_C(x_C)    over the components C,

and each p_C follows the answers about it as in `MultiplicativeWeights`, round by round. What is in no component is
spread evenly. The product never needs the table of the whole domain, but the table of every component: where
measurements overlap, components grow together until their table is too large. This is then refused with its size, where
the published mechanism runs out of memory (McKenna, Sheldon, Miklau 2019, §5.1).
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.errors import FileFormatError, TooLarge, listed, readable_count
from consilience.estimators.base import Estimate, Progress, SavedModel, Suitability, check_rows
from consilience.estimators.evidence import refuse_record_sums
from consilience.estimators.published.multiplicative_weights import (
    BYTES_OF_WORK,
    check_sweeps,
    follow,
    starting_weights,
    table_total,
)
from consilience.kernels.rng import Generator
from consilience.measurements import Exact, Measurement, MeasurementSet
from consilience.solvers.fit import Status, shares_of_rows
from consilience.solvers.multiplicative_weights import WeightedTable

Array = NDArray[np.float64]
Names = tuple[str, ...]

LARGEST_COMPONENT_WORK = 2**25
"""The most coefficients, answers times cells, of one component: a sweep goes through all of them."""


@dataclass(frozen=True)
class FactoredWeights:
    """Multiplicative weights over a product of independent tables, one for each component of what was measured.

    `sweeps` is how often a round visits all answers of its component so far; `largest_work` is the most answers times
    cells that a component may have.
    """

    sweeps: int = 100
    largest_work: int = LARGEST_COMPONENT_WORK

    name: ClassVar[str] = "factored-weights"

    def __post_init__(self) -> None:
        check_sweeps(self.sweeps)

    def suitability(self, measured: MeasurementSet) -> Suitability:
        refuse_record_sums(measured)
        facts = [each.query.describe() for each in measured if isinstance(each.noise, Exact) and each.query.factors]
        facts += [", ".join(margin.attributes) for margin in measured.domain.public.margins]
        if facts:
            return Suitability(False, f"exact counts by {facts[0]} are known, and weights keep an exact total only")
        rounds = [each for each in measured if each.query.factors]
        worst, work = (), 0
        for names in components(measured.domain, [each.query.attributes for each in rounds]):
            cells = math.prod(measured.domain.sizes(names))
            answers = sum(each.values.size for each in rounds if each.query.attributes[0] in names)
            worst, work = max((worst, work), (names, (answers + 4) * cells), key=lambda found: found[1])
        text = f"the largest component, {listed(worst)}, has {readable_count(work)} answers times cells"
        if work > self.largest_work:
            return Suitability(False, f"{text}; {self.largest_work:,} are allowed", min(BYTES_OF_WORK * work, 2**60))
        return Suitability(True, text if worst else "nothing but the total was measured", BYTES_OF_WORK * work)

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "FactoredEstimate":
        suitable = self.suitability(measured)
        if not suitable.possible:
            raise TooLarge(f"factored weights cannot fit these measurements: {suitable.reason}; use graphical")
        began = time.perf_counter()
        rounds = _in_rounds(measured)
        found = components(measured.domain, [each.query.attributes for each in rounds])
        total = table_total(measured)
        tables: list[Array] = []
        for done, names in enumerate(found):
            tables.append(self._table(measured.domain.project(names), total, rounds))
            if progress is not None:
                progress("fitting", done + 1, len(found))
        stats: dict[str, float | int | str] = {"total": total, "components": len(found)}
        stats |= {"largest_component": max((table.size for table in tables), default=1)}
        stats |= {"seconds": time.perf_counter() - began}
        method = self._describe() | {"components": [list(names) for names in found]}
        # The method ends after its sweeps, by its own rule; an optimum is not what it seeks.
        return FactoredEstimate(measured, method, Status.CONVERGED, stats, found, tuple(tables), total)

    def _table(self, domain: Domain, total: float, rounds: list[Measurement]) -> Array:
        """The counts of one component after its rounds."""
        table = WeightedTable(starting_weights(domain), total)
        for each in rounds:
            if each.query.attributes[0] in domain:
                follow(table, each, each.query.bind(domain))
                table.sweep(self.sweeps)
        return table.counts()

    def _describe(self) -> dict[str, Any]:
        return {"method": self.name, "sweeps": self.sweeps}


def components(domain: Domain, scopes: Iterable[Names]) -> tuple[Names, ...]:
    """The attributes that scopes or impossible cells tie together, in the domain's order.

    >>> domain = Domain.from_sizes({"a": 2, "b": 2, "c": 2, "d": 2})
    >>> components(domain, [("a", "c"), ("b",), ("c", "a")])
    (('a', 'c'), ('b',))
    """
    found: list[set[str]] = []
    for scope in (*scopes, *(rule.attributes for rule in domain.impossible)):
        touched = [each for each in found if each & set(scope)]
        found = [each for each in found if not each & set(scope)] + [set(scope).union(*touched)]
    places = {name: place for place, name in enumerate(domain.counted_names)}
    ordered = (tuple(sorted(each, key=places.__getitem__)) for each in found if each)
    return tuple(sorted(ordered, key=lambda names: places[names[0]]))


@dataclass(frozen=True, eq=False)
class FactoredEstimate(Estimate):
    """An estimate that holds the counts of each component; components are independent of each other."""

    parts: tuple[Names, ...]
    tables: tuple[Array, ...]
    records: float

    @property
    def total(self) -> float:
        return self.records

    @cached_property
    def _part_of(self) -> dict[str, int]:
        return {name: place for place, names in enumerate(self.parts) for name in names}

    def marginal(self, *attributes: str) -> Array:
        self.check_names(attributes)
        counts, order = np.array(self.records), []
        for place, names in enumerate(self.parts):
            kept = [name for name in names if name in attributes]
            if kept:
                away = tuple(axis for axis, name in enumerate(names) if name not in kept)
                shares = self.tables[place].sum(axis=away) / max(self.records, np.finfo(float).tiny)
                counts, order = np.multiply.outer(counts, shares), [*order, *kept]
        for name in attributes:
            if name not in self._part_of:
                size = self.domain[name].size
                counts, order = np.multiply.outer(counts, np.full(size, 1.0 / size)), [*order, name]
        return np.asarray(counts).transpose([order.index(name) for name in attributes])

    def sample(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        names, count = self.domain.counted_names, check_rows(rows)
        columns = np.empty((count, len(names)), dtype=np.int64)
        single = tuple((name,) for name in names if name not in self._part_of)
        for part in (*self.parts, *single):
            counts = shares_of_rows(self.marginal(*part).ravel(), count, rng)
            cells = np.repeat(np.arange(counts.size), counts)
            rng.shuffle(cells)
            for name, codes in zip(part, np.unravel_index(cells, self.domain.sizes(part)), strict=True):
                columns[:, names.index(name)] = codes
        return columns

    def arrays(self) -> Mapping[str, Array]:
        return {"total": np.array([self.records])} | {f"counts {k}": table for k, table in enumerate(self.tables)}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "FactoredEstimate":
        parts = tuple(tuple(str(name) for name in names) for names in saved.method.get("components", ()))
        expected = ["total", *(f"counts {k}" for k in range(len(parts)))]
        if sorted(saved.arrays) != sorted(expected):
            raise FileFormatError(
                f"a product of {len(parts)} tables holds {expected}, found {sorted(saved.arrays)}; write the bundle "
                "anew"
            )
        tables = tuple(saved.arrays[f"counts {k}"] for k in range(len(parts)))
        for names, table in zip(parts, tables, strict=True):
            if table.shape != measured.domain.sizes(names):
                raise FileFormatError(
                    f"the counts by {', '.join(names)} have shape {table.shape}, the domain "
                    f"{measured.domain.sizes(names)}; write the bundle anew"
                )
        total = float(saved.arrays["total"].ravel()[0])
        for names, table in zip(parts, tables, strict=True):
            if abs(float(table.sum()) - total) > 1e-6 * max(abs(total), 1e-9):
                raise FileFormatError(
                    f"the counts by {', '.join(names)} add up to {table.sum():.10g}, and the model's total is "
                    f"{total:.10g}; write the bundle anew"
                )
        return cls(measured, saved.method, saved.status, saved.stats, parts, tables, total)


def _in_rounds(measured: MeasurementSet) -> list[Measurement]:
    """The measurements that reweigh a table, in the order of their rounds."""
    rounds = [each for each in measured if each.query.factors]
    return sorted(rounds, key=lambda each: -1 if each.round is None else each.round)
