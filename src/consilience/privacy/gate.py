"""The Gate: the one way from a plan to the data.

A plan is handed a gate and asks it to `measure` queries, to `measure_sums` of amounts, to `sum_records` (statistics
that add up over points), to `select` among candidates, to `partition` the values of an attribute, and to `find_values`
that nobody declared. Every such step is priced, checked against what the run may spend, drawn, and recorded in the
ledger before its outcome is shown. A step that the ledger already holds is answered from there. A plan never sees an
exact count.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery, Query
from consilience.domain.sensitivity import Neighbours
from consilience.errors import ConsilienceError, DeclarationError, LedgerError, MeasurementError, SourceError
from consilience.kernels.linear_maps import Kronecker
from consilience.measurements.measurement import Measurement, checksum
from consilience.privacy.budgets import Budget
from consilience.privacy.discovery import ValueSelection
from consilience.privacy.noise import NoiseSource
from consilience.privacy.partitions import PartitionRule
from consilience.privacy.pricing import (
    CANNOT_SUM,
    Price,
    RecordStatistic,
    StatisticsPrice,
    checked_sums,
    price_queries,
    price_statistics,
)
from consilience.privacy.reservations import Reservation, RunAccount
from consilience.privacy.scores import RecordScore, Score, Selector, epsilon_for_rho, select
from consilience.source import Source
from consilience.source.base import RecordSum
from consilience.source.readers import attempt

Progress = Callable[[str, int, int], None]
"""Told (what is going on, how much of it is done, out of how much); only publicly known sizes."""

Candidate = TypeVar("Candidate")
T = TypeVar("T")
Taken = Sequence[int] | NDArray[np.intp]
"""Places of candidates that are not to be chosen."""

MOST_PLACES_LISTED = 10_000

LARGEST_KEPT_COUNTS = 2**29
"""Exact counts of up to this many bytes (8 for each cell) are kept from step to step; more are counted again."""

DRAWN_AT_ONCE = 2**22
"""Noise is drawn for so many values, about a second of drawing, before progress is told."""


class Gate(Protocol):
    """What a plan gets."""

    @property
    def domain(self) -> Domain:
        """The public description of the table."""
        ...

    @property
    def budget(self) -> Budget:
        """What the whole run may spend."""
        ...

    @property
    def rows_per_unit(self) -> int:
        """How many rows one protected unit has at most: a declaration, by which noise is scaled."""
        ...

    def measure(
        self,
        queries: Query | Sequence[Query],
        budget: Budget,
        *,
        shares: Sequence[float] | None = None,
        sensitivity_at_least: float = 0.0,
    ) -> tuple[Measurement, ...]:
        """Noisy answers to queries measured together at this price; a larger sensitivity asks for more noise."""
        ...

    def measure_sums(
        self, amount: str, queries: Sequence[Query], budget: Budget, *, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        """Noisy sums of an attribute's amounts in place of counts, for queries measured together at this price."""
        ...

    def sum_records(
        self,
        statistics: Sequence[RecordStatistic],
        budget: Budget,
        *,
        shares: Sequence[float] | None = None,
        round: int | None = None,  # noqa: A002 (the field of a measurement)
    ) -> tuple[Measurement, ...]:
        """Noisy sums over records of bounded statistics, measured together at this price in one round of a run."""
        ...

    def select(
        self, score: Score[Candidate], budget: Budget, *, selector: Selector = "permute-and-flip", besides: Taken = ()
    ) -> Candidate:
        """The candidate that a private selection with this score chose at this price, besides those at these places."""
        ...

    def partition(self, rule: PartitionRule, budget: Budget) -> tuple[int, ...]:
        """The first code of each bucket of neighbouring values, as the rule chose them privately at this price."""
        ...

    def find_values(self, attribute: str, budget: Budget) -> tuple[str, ...]:
        """The values of an attribute that enough units have, declared or not; the price has a failure delta."""
        ...

    def keep(self, selections: Measurement) -> None:
        """Add what private selections chose to the result of the run; it was paid for when they were made."""
        ...


class PricedRun:
    """What both gates are: a run with a budget, whose steps have their price before anything else happens."""

    def __init__(self, domain: Domain, budget: Budget, *, neighbours: Neighbours, rows_per_unit: int) -> None:
        self.domain = domain
        self.budget = budget
        self.rows_per_unit = rows_per_unit
        self._neighbours: Neighbours = neighbours
        self.account = RunAccount(budget)

    def priced(self, price: Callable[..., T], asked: Sequence[object], budget: Budget, **options: object) -> T:
        declared = {"neighbours": self._neighbours, "rows_per_unit": self.rows_per_unit}
        return price(asked, self.domain, budget, **declared, **options)

    def value_selection(self, attribute: str, budget: Budget) -> ValueSelection:
        self.domain.refuse_unreleased([attribute], "the plan")
        self.account.charge(budget)
        return ValueSelection.priced(budget, neighbours=self._neighbours, values_per_unit=self.rows_per_unit)


class DataGate(PricedRun):
    """The gate to a source: noise is drawn, recorded in the ledger, and only then shown.

    `reserve` opens the reservation that pays for the run; without it nothing is recorded, as in a simulation. A request
    that the ledger knows (`begun`) is opened first, to be replayed. A new one is opened after the first counting
    succeeded and before its noise is drawn, so that a file or a table that cannot be read costs nothing. Where reading
    runs code (a query, a view, a lazy plan) it is opened before the first row is read, since whether that code fails
    says something about the rows: such a failure keeps its charge, and the request cannot be made again.
    """

    def __init__(
        self,
        source: Source,
        budget: Budget,
        *,
        neighbours: Neighbours,
        noise: NoiseSource,
        release_id: str,
        reserve: Callable[[], Reservation] | None = None,
        begun: bool = False,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(source.domain, budget, neighbours=neighbours, rows_per_unit=source.max_rows_per_unit)
        self.measurements: list[Measurement] = []
        self._source = source
        self._noise = noise
        self._reserve = reserve
        self._reservation = reserve() if reserve is not None and begun else None
        self._release_id = release_id
        self._progress = progress or _silent
        self._step = 0
        self._points: dict[tuple[str, ...], NDArray[np.float64] | None] = {}
        self._counts: dict[tuple[str, ...], NDArray[np.int64]] = {}
        self._scored: tuple[object, NDArray[np.int64]] | None = None

    def measure(
        self,
        queries: Query | Sequence[Query],
        budget: Budget,
        *,
        shares: Sequence[float] | None = None,
        sensitivity_at_least: float = 0.0,
    ) -> tuple[Measurement, ...]:
        asked, least = as_list(queries), sensitivity_at_least
        price = self.priced(price_queries, asked, budget, shares=shares, sensitivity_at_least=least)
        described = [[each.bound.query.to_json(), each.noise.to_json()] for each in price.queries]
        return self._drawn(price, ["measure", budget.to_json(), described], lambda: self._exact_answers(price))

    def measure_sums(
        self, amount: str, queries: Sequence[Query], budget: Budget, *, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        price = self.priced(price_queries, queries, budget, shares=shares, amount=amount)
        described = [[each.bound.query.to_json(), each.noise.to_json()] for each in price.queries]
        request = ["measure-sums", budget.to_json(), amount, described]
        return self._drawn(price, request, lambda: self._exact_answers(price, amount))

    def sum_records(
        self,
        statistics: Sequence[RecordStatistic],
        budget: Budget,
        *,
        shares: Sequence[float] | None = None,
        round: int | None = None,  # noqa: A002
    ) -> tuple[Measurement, ...]:
        price = self.priced(price_statistics, statistics, budget, shares=shares, round=round)
        described = [[each.statistic.describe(), each.noise.to_json()] for each in price.statistics]
        request = ["sum-records", budget.to_json(), round, described]
        return self._drawn(price, request, lambda: self._exact_sums(price))

    def _drawn(
        self, price: Price | StatisticsPrice, request: object, exact: Callable[[], Iterable[NDArray[np.int64]]]
    ) -> tuple[Measurement, ...]:
        """The noisy measurements of this step: recorded earlier, or drawn now and in the ledger before they are shown.

        Everything that reads records is done before anything is paid.
        """
        self.account.charge(price.budget)
        noisy = self._recorded(request)
        if noisy is None:
            self._progress("counting", 0, 1)
            counted = exact()
            self._pay()
            noisy = self._noisy(price, counted)
            self._record(request, noisy)
        step = self._next_step()
        found = tuple(
            each.measurement(np.array(values, dtype=np.int64), f"{self._release_id}/{step}.{i}")
            for i, (each, values) in enumerate(zip(price.parts, noisy, strict=True))
        )
        self.measurements.extend(found)
        return found

    def _exact_answers(self, price: Price, amount: str | None = None) -> Iterable[NDArray[np.int64]]:
        """The answers to each query in lattice units: counted now, and added up one query after the other."""
        sets = list(dict.fromkeys(each.bound.attributes for each in price.queries))
        found = self._exact_counts(sets) if amount is None else self._counted(sets, amount)
        tables = dict(zip(sets, found, strict=True))
        return (_exact_answers(each.bound, tables[each.bound.attributes]) for each in price.queries)

    def _exact_sums(self, price: StatisticsPrice) -> Iterable[NDArray[np.int64]]:
        """The sums over records, in one pass for all statistics of the same attributes."""
        found: dict[int, NDArray[np.int64]] = {}
        for names in dict.fromkeys(each.statistic.attributes for each in price.statistics):
            chosen = [i for i, each in enumerate(price.statistics) if each.statistic.attributes == names]
            asked = [price.statistics[i].statistic for i in chosen]
            additive = all(each.additive for each in asked)
            found |= zip(chosen, self._summed(names, [each.exact for each in asked], additive=additive), strict=True)
        return [checked_sums(each.statistic, found[i]) for i, each in enumerate(price.statistics)]

    def _summed(self, names: tuple[str, ...], sums: Sequence[RecordSum], *, additive: bool) -> list[NDArray[np.int64]]:
        """These sums of all points; where the points do not fit in memory, or stay where they are, sums of parts."""
        self._source.check_points(names)  # what declarations alone refuse costs nothing
        points = None
        if self._source.gives_points:
            points = self._exact_points(names)
        if points is not None:
            return attempt(lambda: [each(points) for each in sums], CANNOT_SUM)
        if not additive:
            raise DeclarationError(
                "this plan looks at blocks of records as a whole, and the points of this source are not brought "
                f"together: they are counted {self._source.place}, or do not fit in memory; choose another plan"
            )
        return self._read(lambda: self._source.exact_sums(names, sums))

    def _exact_points(self, names: tuple[str, ...]) -> NDArray[np.float64] | None:
        """The records as points, read once for all rounds of a run; None where they do not fit in memory."""
        if names not in self._points:
            self._points = {names: self._read(lambda: self._source.exact_points(names))}
        return self._points[names]

    def _exact_counts(self, marginals: Sequence[tuple[str, ...]]) -> list[NDArray[np.int64]]:
        """The exact marginals, each counted once for all steps of a run as long as they fit in the memory meant for it.

        Rounds that select among the same candidates ask for the same counts. Kept counts cannot be written to.
        """
        missing = [names for names in dict.fromkeys(marginals) if names not in self._counts]
        counted = dict(zip(missing, self._counted(missing), strict=True)) if missing else {}
        found = [self._counts[names] if names in self._counts else counted[names] for names in marginals]
        kept = sum(table.nbytes for table in (*self._counts.values(), *counted.values()))
        if kept <= LARGEST_KEPT_COUNTS:
            for table in counted.values():
                table.flags.writeable = False
            self._counts |= counted
        return found

    def _counted(self, marginals: Sequence[tuple[str, ...]], amount: str | None = None) -> list[NDArray[np.int64]]:
        if self._source.runs_code:
            self._source.check_size(marginals, amount=amount)  # what declarations alone refuse costs nothing
        return self._read(lambda: self._source.exact_counts(marginals, amount=amount))

    def _read(self, action: Callable[[], T]) -> T:
        """What reading the source gives; paid for before, where reading runs code."""
        if not self._source.runs_code:
            return action()
        self._pay()
        try:
            return action()
        except ConsilienceError as error:
            if self._reservation is None:
                raise
            self._reservation.fail()
            refusal = (
                f"{error}. The charge stays, because a query, view or plan that fails tells something about the rows; "
                "correct it, and ask under another id if it is the same text"
            )
        raise SourceError(refusal)

    def select(
        self, score: Score[Candidate], budget: Budget, *, selector: Selector = "permute-and-flip", besides: Taken = ()
    ) -> Candidate:
        score.check(self.domain)
        self.domain.refuse_weight("a private choice")
        self.account.charge(budget)
        places = places_left(score, besides)
        request = ["select", budget.to_json(), selector, list(score.fingerprint())]
        request += [_described(besides)] if len(besides) else []
        recorded = self._recorded(request)
        if recorded is not None:
            chosen = int(recorded)
        else:
            chosen = int(places[self._choose(score, budget, selector, places)])
            self._record(request, chosen)
        self._next_step()
        return score.candidates[chosen]

    def partition(self, rule: PartitionRule, budget: Budget) -> tuple[int, ...]:
        rule.check(self.domain)
        self.domain.refuse_weight("a private partition")
        self.account.charge(budget)
        request = ["partition", budget.to_json(), list(rule.fingerprint())]
        starts = self._recorded(request)
        if starts is None:
            starts = self._divide(rule, budget)
            self._record(request, starts)
        self._next_step()
        return tuple(int(start) for start in starts)

    def find_values(self, attribute: str, budget: Budget) -> tuple[str, ...]:
        selection = self.value_selection(attribute, budget)
        request = ["find-values", budget.to_json(), attribute]
        found = self._recorded(request)
        if found is None:
            self._progress("counting", 0, 1)
            found = self._kept_values(attribute, selection)
            self._record(request, found)
        self._next_step()
        return tuple(found)

    def _kept_values(self, attribute: str, selection: ValueSelection) -> list[str]:
        """The values that are kept; counted a part of them at a time, and never refused for what the data hold."""
        parts = self._source.exact_value_counts(attribute)
        kept: list[str] = []
        while (counts := self._read(lambda: next(parts, None))) is not None:
            self._pay()
            kept += selection.kept(counts, self._noise)
        return sorted(kept)

    def keep(self, selections: Measurement) -> None:
        self.measurements.append(selections_named(selections, f"{self._release_id}/{self._step}.kept"))

    def _divide(self, rule: PartitionRule, budget: Budget) -> list[int]:
        self._progress("counting", 0, 1)
        counts = self._counted([(rule.attribute,)])[0]
        self._pay()
        # Any ε-private mechanism is ε²/2-zCDP (Bun, Steinke 2016, Prop. 1.4), the rule behind every selector but one.
        epsilon = math.nextafter(epsilon_of(budget, "permute-and-flip") / self._source.max_rows_per_unit, 0.0)
        starts = rule.draw(counts, epsilon=epsilon, neighbours=self._neighbours, noise=self._noise)
        return [int(start) for start in starts]

    def _choose(self, score: Score[object], budget: Budget, selector: Selector, places: NDArray[np.intp]) -> int:
        epsilon = epsilon_of(budget, selector)
        self._progress("counting", 0, 1)
        if self._scored is None or self._scored[0] is not score:  # mechanisms may draw many times by one score
            self._scored = (score, self._scores(score))
        scores = self._scored[1][places]
        self._pay()
        sensitivity = score.sensitivity(self._neighbours) * self._source.max_rows_per_unit
        return select(scores, sensitivity=sensitivity, epsilon=epsilon, selector=selector, noise=self._noise)

    def _scores(self, score: Score[object]) -> NDArray[np.int64]:
        if not isinstance(score, RecordScore):
            return score.values(self._exact_counts(list(score.marginals)))
        return self._summed(score.attributes, [lambda points: score.values([points])], additive=True)[0]

    def _noisy(self, price: Price | StatisticsPrice, exact: Iterable[NDArray[np.int64]]) -> list[list[int]]:
        """The exact values of each part with the noise it was priced at, in lattice units."""
        add = self._noise.laplace if price.budget.additive_unit == "epsilon" else self._noise.gaussian
        total = sum(each.size for each in price.parts)
        done = 0
        noisy: list[list[int]] = []
        for each, values in zip(price.parts, exact, strict=True):
            noisy.append([])
            for start in range(0, values.size, DRAWN_AT_ONCE):
                drawn = add(values[start : start + DRAWN_AT_ONCE], each.unit_scale)
                noisy[-1] += drawn.tolist()
                done += drawn.size
                self._progress("drawing noise", done, total)
        return noisy

    def complete(self) -> bool:
        """Close the reservation; True when everything was replayed and nothing was drawn."""
        self._pay()
        if self._reservation is None or self._reservation.replayed:
            return self._reservation is not None
        self._reservation.complete(checksum=checksum(self.measurements))
        return False

    def _pay(self) -> None:
        """Hold the reservation, before any noise is drawn."""
        if self._reservation is None and self._reserve is not None:
            self._reservation = self._reserve()

    def _recorded(self, request: object) -> Any:
        """The recorded outcome of this step, if the ledger has one for the same request."""
        if self._reservation is None:
            return None
        found = self._reservation.recorded(self._step)
        if found is None and self._reservation.replayed:
            raise LedgerError(
                f"release {self._release_id!r} was completed without a step {self._step}; the plan or its software "
                "changed since: use a new id, which is charged anew"
            )
        if found is None:
            return None
        fingerprint, payload = found
        if fingerprint != _digest(request):
            raise LedgerError(
                f"step {self._step} of release {self._release_id!r} was recorded for another request; the plan or its "
                "software changed since: use a new id, which is charged anew"
            )
        return json.loads(payload)

    def _record(self, request: object, outcome: object) -> None:
        if self._reservation is not None:
            self._reservation.record(self._step, fingerprint=_digest(request), payload=json.dumps(outcome))

    def _next_step(self) -> int:
        self._step += 1
        return self._step - 1


def selections_named(measurement: Measurement, identity: str) -> Measurement:
    """The measurement under this id; only selections are kept, all else a gate shows and keeps by itself."""
    if measurement.kind != "selections":
        raise MeasurementError(
            f"a gate keeps selections, and {measurement.name} is of the kind {measurement.kind!r}; noisy answers are "
            "kept when they are measured"
        )
    return replace(measurement, id=identity)


def places_left(score: Score[object], besides: Taken) -> NDArray[np.intp]:
    """The places of the candidates that are left to choose from."""
    left = np.ones(len(score.candidates), dtype=np.bool_)
    left[np.asarray(besides, dtype=np.intp)] = False
    places = np.flatnonzero(left)
    if not places.size:
        raise DeclarationError("no candidate is left to choose from; give more of them, or select fewer")
    return places


def _described(besides: Taken) -> list[int] | str:
    """The places that are not to be chosen, or where they are many what tells them from others."""
    if len(besides) <= MOST_PLACES_LISTED:
        return [int(place) for place in besides]
    return hashlib.sha256(np.asarray(besides, dtype="<i8").tobytes()).hexdigest()


def _silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def as_list(queries: Query | Sequence[Query]) -> list[Query]:
    return [queries] if isinstance(queries, Query) else list(queries)


def epsilon_of(budget: Budget, selector: Selector) -> float:
    """The ε of a private choice at this price: a float that is no larger than the decimal number that is charged.

    >>> from consilience.privacy.budgets import budget
    >>> 0.1 > Decimal("0.1") > Decimal(epsilon_of(budget(epsilon=0.1), "exponential"))
    True
    """
    amount = float(budget.amount)
    if Decimal(amount) > budget.amount:
        amount = math.nextafter(amount, 0.0)
    return amount if budget.additive_unit == "epsilon" else epsilon_for_rho(amount, selector)


def _digest(request: object) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def _exact_answers(bound: BoundQuery, table: NDArray[np.int64]) -> NDArray[np.int64]:
    """The answers as exact integers in lattice units, flattened; a copy, for kept counts are not to be written to."""
    operator = Kronecker(tuple(each.in_lattice_units() for each in bound.maps))
    return np.array(operator.apply(table), dtype=np.int64, order="C").ravel()
