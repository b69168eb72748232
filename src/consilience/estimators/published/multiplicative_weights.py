"""Multiplicative weights: the update, the tables that follow it round by round, and products of such tables."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery
from consilience.errors import (
    DeclarationError,
    FileFormatError,
    MeasurementError,
    listed,
    readable_bytes,
    readable_count,
)
from consilience.estimators.base import (
    Estimate,
    FullTableEstimate,
    Progress,
    SavedModel,
    Suitability,
    check_choice,
    check_whole,
    independent_rows,
)
from consilience.estimators.evidence import first_fact, noise_variance, places_of, refuse_record_sums
from consilience.kernels.kernel_cache import njit
from consilience.kernels.rng import Generator
from consilience.marginals.least_squares import combined_total, total_of_answers
from consilience.measurements import Exact, Measurement, MeasurementSet
from consilience.solvers.fit import Status

Array = NDArray[np.float64]


# ----------------------------------------------------------------------------------------------------------------------
# Multiplicative weights: a table that follows measured answers one at a time (Hardt, Rothblum 2010).
#
# The table x starts proportional to a prior and keeps its total N. A measured answer m to a linear query q with |q| ≤ 1
# moves it by
#
#     x ← x · exp(q · (m − q·x) / 2N),    then x is scaled back to the total N.
#
# The first form of the method takes each answer once. Visiting all answers so far again and again, a *sweep* each time,
# uses them better (Hardt, Ligett, McSherry 2012, §4). Queries with larger entries are divided by their largest, and so
# are their answers.
#
# Every update multiplies all cells with the same values of all queries by the same number. Such cells form a class, and
# only the classes' totals need to be followed: T ranges of a histogram make at most 2T + 1 classes however many values
# it has. Each new query splits the classes, and a class passes its total on to its parts in proportion to the prior.


LARGEST_STEP = 16.0
"""No update changes the odds of two cells by more than exp(2·16); it matters only for answers beyond 32 N."""


class WeightedTable:
    """A table of a fixed total that measured answers reweigh; equal answers in equal order give equal tables."""

    def __init__(self, prior: ArrayLike, total: float) -> None:
        start = np.asarray(prior, dtype=np.float64)
        if not np.isfinite(start).all() or start.min(initial=0.0) < 0 or start.sum() <= 0:
            raise DeclarationError("the prior needs a finite number from 0 up for each cell, and one above 0")
        if not 0 <= total < np.inf:
            raise DeclarationError(f"the total of a table is {total}; it must be finite and not below 0")
        self.total = float(total)
        self._prior = start
        self._classes = np.zeros(start.shape, dtype=np.int64)
        self._masses = np.array([start.sum()])
        self._totals = np.array([self.total])
        self._queries = np.zeros((0, 1))
        self._answers = np.zeros(0)

    @property
    def measured(self) -> int:
        """How many answers the table follows."""
        return len(self._answers)

    @property
    def classes(self) -> int:
        """Into how many classes of like cells the queries divide the table."""
        return len(self._totals)

    def add(self, query: ArrayLike, answer: float) -> None:
        """Let the table follow one more answer; the query's coefficients broadcast over the table."""
        coefficients = np.asarray(query, dtype=np.float64)
        largest = float(np.abs(coefficients).max(initial=0.0))
        if not (np.isfinite(largest) and np.isfinite(answer)):
            raise DeclarationError("a measured query or its answer is not finite; give finite numbers")
        scale = largest if largest > 1.0 else 1.0
        levels, level_of = np.unique(coefficients / scale, return_inverse=True)
        keys = self._classes * levels.size + level_of.reshape(coefficients.shape)
        seen = np.zeros(self.classes * levels.size, dtype=np.bool_)
        seen[keys] = True
        parents, own_levels = np.divmod(np.flatnonzero(seen), levels.size)
        self._classes = (np.cumsum(seen) - 1)[keys]
        masses = np.bincount(self._classes.ravel(), self._prior.ravel(), len(parents))
        shares = np.divide(masses, self._masses[parents], out=np.zeros(len(parents)), where=masses > 0)
        self._totals = self._totals[parents] * shares
        self._masses = masses
        self._queries = np.concatenate([self._queries[:, parents], levels[own_levels][None, :]])
        self._answers = np.append(self._answers, answer / scale)

    def sweep(self, times: int) -> None:
        """Visit every answer in the order of adding, so many times over, or until nothing moves."""
        if self.total > 0 and self.measured:
            _sweep(self._queries, self._answers, self._totals, self.total, times)

    def counts(self) -> Array:
        """The table as it stands."""
        per_mass = np.divide(self._totals, self._masses, out=np.zeros(self.classes), where=self._masses > 0)
        return self._prior * per_mass[self._classes]

    def squared_residuals(self, weights: ArrayLike) -> tuple[float, float]:
        """The objective ½ Σ wₜ (qₜ·x − mₜ)² and a bound on how far above its least value it is.

        The least is taken over all tables of this total, zero where the prior is. By convexity no such table lies lower
        than g·x − N minⱼ gⱼ below, with g the gradient (Frank, Wolfe 1956). Weights are for queries as they were added.
        """
        residuals = self._queries @ self._totals - self._answers
        weighted = np.asarray(weights, dtype=np.float64) * residuals
        gradient = weighted @ self._queries
        lowest = float(gradient[self._masses > 0].min(initial=np.inf))
        gap = float(gradient @ self._totals) - self.total * lowest
        return 0.5 * float(weighted @ residuals), max(gap, 0.0)


@njit(nogil=True, cache=True)
def _sweep(queries, answers, totals, total, times):  # pragma: no cover - compiled
    for _ in range(times):
        largest = 0.0
        for t in range(answers.size):
            query = queries[t]
            answer = 0.0
            for k in range(totals.size):
                answer += query[k] * totals[k]
            step = (answers[t] - answer) / (2.0 * total)
            step = min(max(step, -LARGEST_STEP), LARGEST_STEP)
            largest = max(largest, abs(step))
            whole = np.exp(step)
            reached = 0.0
            for k in range(totals.size):
                if query[k] == 1.0:
                    totals[k] *= whole
                elif query[k] != 0.0:
                    totals[k] *= np.exp(query[k] * step)
                reached += totals[k]
            back = total / reached
            for k in range(totals.size):
                totals[k] *= back
        if largest < 1e-14:
            break


# ----------------------------------------------------------------------------------------------------------------------
# `MultiplicativeWeights`: the table that follows measured answers round by round, as MWEM does (Hardt et al. 2012).
#
# The table starts uniform over the cells that can occur and keeps one total: the public one, else the measured total,
# else the best estimate of it from the other answers. Each measurement is a round: its answers join those before, and
# all are visited `sweeps` times over. Measurements are taken in their order, or by their `round` where they have one.
# The result is a function of the measurements alone, and equals what the MWEM plan holds at its end.
#
# The method ends after its sweeps, not at an optimum. What it leaves is told as the gap of ½ Σ ((q·x − m)/σ)² over all
# tables of that total, a proven bound.


Iterate = Literal["last", "average"]

BYTES_OF_WORK = 32
"""What an answer about a cell takes at the peak (`python -m benchmarks memory`)."""

LARGEST_WORK = 2**27
"""The most coefficients, answers times cells, that are held at once."""


LEAST_VARIANCE = 1e-6
"""Answers more precise than this count as if they had this variance; a table need not follow them any closer."""


@dataclass(frozen=True)
class MultiplicativeWeights:
    """Multiplicative weights over the full table.

    `iterate` is "last", the table after all rounds, or "average", the mean of the tables that the rounds began with,
    of which the paper's theorem speaks (it leaves out what the last answer taught). `tolerance` is the gap, in units
    of the objective or of the expected noise, from which on the status says that more sweeps would still change the
    fit.
    """

    sweeps: int = 100
    iterate: Iterate = "last"
    tolerance: float = 1.0

    name: ClassVar[str] = "multiplicative-weights"

    def __post_init__(self) -> None:
        check_whole(self.sweeps, "the number of sweeps")
        check_choice(self.iterate, "the iterate", get_args(Iterate))

    def suitability(self, measured: MeasurementSet) -> Suitability:
        against = _reason_against(measured)
        if against is not None:
            return Suitability(False, against)
        answers = sum(each.values.size for each in measured)
        work = (answers + 4) * measured.domain.cells
        need = BYTES_OF_WORK * work
        if work > LARGEST_WORK:
            return Suitability(
                False,
                f"{answers:,} answers about {readable_count(measured.domain.cells)} cells may need "
                f"{readable_bytes(need)} of memory, and "
                f"{readable_bytes(BYTES_OF_WORK * LARGEST_WORK)} are allowed; multiplicative weights suit few answers",
                need,
            )
        return Suitability(
            True, f"{answers:,} answers about {readable_count(measured.domain.cells)} cells fit in memory", need
        )

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> FullTableEstimate:
        self.suitability(measured).require("multiplicative weights")
        began = time.perf_counter()
        rounds = _in_rounds(measured)
        table = WeightedTable(starting_weights(measured.domain), table_total(measured))
        earlier: NDArray[np.float64] | None = None
        variances: list[float] = []
        for done, each in enumerate(rounds):
            if self.iterate == "average":
                earlier = table.counts() if earlier is None else earlier + table.counts()
            variances += follow(table, each, each.query.bind(measured.domain))
            table.sweep(self.sweeps)
            if progress is not None:
                progress("fitting", done + 1, len(rounds))
        counts = table.counts() if earlier is None else earlier / len(rounds)
        status, stats = self._account(table, variances)
        stats["seconds"] = time.perf_counter() - began
        return FullTableEstimate(measured, self._describe(), status, stats, counts)

    def _account(self, table: WeightedTable, variances: Sequence[float]) -> tuple[Status, dict[str, float | int | str]]:
        """Whether the last table fits the answers as well as a table can, and the numbers that say so."""
        objective, gap = table.squared_residuals([1.0 / max(variance, LEAST_VARIANCE) for variance in variances])
        energy = table.measured / 2
        stats: dict[str, float | int | str] = {
            "objective": objective,
            "gap": gap,
            "expected_noise_energy": energy,
            "measured_answers": table.measured,
            "classes": table.classes,
            "total": table.total,
        }
        within = gap <= self.tolerance * max(objective, energy, 1e-9)
        return Status.CONVERGED if within else Status.STEP_LIMIT, stats

    def _describe(self) -> dict[str, Any]:
        return {"method": self.name, "sweeps": self.sweeps, "iterate": self.iterate}


def _reason_against(measured: MeasurementSet) -> str | None:
    """Why no table can follow these measurements; None where one can."""
    refuse_record_sums(measured)
    fact = first_fact(measured)
    if fact is not None:
        return f"exact counts by {fact} are known, and multiplicative weights keep an exact total only; use Table"
    try:
        table_total(measured)
    except MeasurementError as error:
        return str(error)
    return None


def starting_weights(domain: Domain) -> NDArray[np.float64]:
    """The uniform table over the cells that can occur."""
    allowed = domain.allowed_cells()
    return np.ones(domain.shape) if allowed is None else allowed.astype(np.float64)


def follow(table: WeightedTable, measurement: Measurement, bound: BoundQuery) -> list[float]:
    """Let the table follow the released answers of one measurement; the variance of each in the table's units."""
    names = bound.domain.counted_names
    order = sorted(range(len(bound.attributes)), key=lambda axis: names.index(bound.attributes[axis]))
    spread = [bound.domain[name].size if name in bound.attributes else 1 for name in names]
    variances = []
    for place in np.flatnonzero(np.isfinite(measurement.values)):
        unit = np.zeros(bound.shape)
        unit.flat[place] = 1.0
        row = np.asarray(bound.adjoint(unit), dtype=np.float64).transpose(order).reshape(spread)
        table.add(row, float(measurement.values[place]))
        exact = isinstance(measurement.noise, Exact)
        scale = max(1.0, float(np.abs(row).max()))
        variances.append((1.0 if exact else measurement.noise.variance) / scale**2)
    return variances


def table_total(measured: MeasurementSet) -> float:
    """The total that the table keeps: public, else as measured, else as the answers imply; at least 1 unless public."""
    public = measured.domain.public.total
    if public is not None:
        return float(public)
    totals = [each for each in measured if not each.query.factors]
    for each in totals:
        if isinstance(each.noise, Exact):
            return float(each.values[0])
    if totals:
        return measured_total(totals[0].values[0])
    return measured_total(_implied_total(measured))


def measured_total(value: float) -> float:
    """A noisy total as a table can have it."""
    return max(1.0, float(value))


def _implied_total(measured: MeasurementSet) -> float:
    """The mean, by inverse variance, of the totals that measurements imply (McKenna et al. 2019, appendix E.1)."""
    found = [
        total_of_answers(each.query.bind(measured.domain).operator, each.values, noise_variance(each))
        for each in measured
        if each.censored is None
    ]
    if not any(found):
        raise MeasurementError(
            "no measurement tells the total, which multiplicative weights need; measure it, or declare it public"
        )
    return combined_total(found, least=-math.inf).total


def _in_rounds(measured: MeasurementSet) -> list[Measurement]:
    """The measurements that reweigh the table, in the order of their rounds; the total alone moves nothing."""
    rounds = [each for each in measured if each.query.factors]
    return sorted(rounds, key=lambda each: -1 if each.round is None else each.round)


# ----------------------------------------------------------------------------------------------------------------------
# `FactoredWeights`: multiplicative weights on a product of independent tables (Hardt, Ligett, McSherry 2012, §4).
#
# Attributes that some measurement or some impossible cell has together form a component. Measurements of different
# components say nothing of each other, so that the table of the whole domain is a product
#
#     p(x) = Π_C p_C(x_C)    over the components C,
#
# and each p_C follows the answers about it as in `MultiplicativeWeights`, round by round. What is in no component is
# spread evenly. The product never needs the table of the whole domain, but the table of every component: where
# measurements overlap, components grow together until their table is too large. This is then refused with its size,
# where the published mechanism runs out of memory (McKenna, Sheldon, Miklau 2019, §5.1).


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
        check_whole(self.sweeps, "the number of sweeps")

    def suitability(self, measured: MeasurementSet) -> Suitability:
        against = _reason_against(measured)
        if against is not None:
            return Suitability(False, against)
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
        self.suitability(measured).require("factored weights", "; use graphical")
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
    places = places_of(domain)
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

    def draw(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        single = tuple((name,) for name in self.domain.counted_names if name not in self._part_of)
        tables = {part: self.marginal(*part) for part in (*self.parts, *single)}
        return independent_rows(self.domain, tables, rows, rng)

    def arrays(self) -> Mapping[str, Array]:
        return {"total": np.array([self.records])} | {f"counts {k}": table for k, table in enumerate(self.tables)}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "FactoredEstimate":
        parts = tuple(tuple(str(name) for name in names) for names in saved.method.get("components", ()))
        tables, total = saved.tables("a product of tables", "counts", parts, measured.domain), saved.total
        for names, table in zip(parts, tables, strict=True):
            if abs(float(table.sum()) - total) > 1e-6 * max(abs(total), 1e-9):
                raise FileFormatError(
                    f"the counts by {', '.join(names)} add up to {table.sum():.10g}, and the model's total is "
                    f"{total:.10g}; write the bundle anew"
                )
        return cls(measured, saved.method, saved.status, saved.stats, parts, tables, total)
