"""A table that this process reads and counts, batch by batch and in bounded memory."""

import os
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.errors import TooLarge
from consilience.source.base import RecordSum, Source, SourceIdentity, Unit
from consilience.source.readers import Reader, attempt

if TYPE_CHECKING:
    from consilience.source.records import Batch, BoundedRows, CodedRecords, Column, RecordCoder
    from consilience.source.unit_rows import Part

LARGEST_POINTS = 2 * 2**30
"""Points of more bytes (8 for each coordinate) are never together in memory: they are summed batch by batch."""

LARGEST_UNIT_ROWS = 2 * 2**30
"""The most bytes that the distinct rows of units may take; half as much again is used while they grow."""

MOST_VALUES = 2**22
"""Of values that nobody declared so many are held at a time, which take about 200 bytes each."""

UNITS_TOO_LARGE = (
    "the rows of this table's units do not fit in memory; declare coarser attributes, so that more rows are equal"
)

Held = TypeVar("Held")

CANNOT_COUNT = "the source could not be counted; check that it is whole and unchanged since it was opened"


class LocalSource(Source):
    """A table that is read batch by batch in this process, and counted here."""

    __slots__ = ("_reader",)

    gives_points = True

    def __init__(self, reader: "Reader", domain: Domain, *, unit: Unit | None, identity: SourceIdentity) -> None:
        super().__init__(domain, unit=unit, identity=identity, place="in this process")
        self._reader = reader

    @property
    def runs_code(self) -> bool:
        return self._reader.runs_code

    @property
    def reads_once(self) -> bool:
        return self._reader.reads_once

    def exact_counts(
        self, marginals: Sequence[tuple[str, ...]], *, amount: str | None = None, threads: int | None = None
    ) -> list[NDArray[np.int64]]:
        self.check_size(marginals)
        return attempt(lambda: self._count(marginals, amount, threads or _cores()), CANNOT_COUNT)

    def exact_sums(self, names: Sequence[str], sums: Sequence[RecordSum]) -> list[NDArray[np.int64]]:
        self.check_points(names)
        return attempt(lambda: self._sum(tuple(names), sums), CANNOT_COUNT)

    def exact_points(self, names: Sequence[str]) -> NDArray[np.float64] | None:
        self.check_points(names)
        return attempt(lambda: self._collect_points(tuple(names)), CANNOT_COUNT)

    def exact_value_counts(self, name: str) -> "Generator[dict[str, int]]":
        self._domain[name]
        parts = _in_parts(lambda part: attempt(lambda: self._count_values(name, part), CANNOT_COUNT))
        return ({text.decode(): count for text, count in counts.items()} for counts in parts)

    def _count_values(self, name: str, part: "Part") -> dict[bytes, int] | None:
        """The counts of the values in a part; None where they do not fit."""
        found: Counter[bytes] = Counter()
        with closing(self._value_counts(name)) as all_counts:
            for counts in all_counts:
                found.update({text: count for text, count in counts.items() if part.holds(text)})
                if len(found) > MOST_VALUES:
                    return None
        return found

    def _value_counts(self, name: str) -> "Generator[dict[bytes, int]]":
        """How many units have each value, batch by batch, or for a part of the units at a time."""
        from consilience.source.records import value_counts

        unit = self._unit
        if unit is not None:
            yield from _in_parts(lambda part: self._values_of_units(name, unit, part))
        else:
            with closing(_read_ahead(self._reader.batches([name]))) as batches:
                yield from (value_counts(batch.column(name)) for batch in batches)

    def _values_of_units(self, name: str, unit: Unit, part: "Part") -> dict[bytes, int] | None:
        """How many units in a part count for each value; None where their values do not fit."""
        from consilience.source.records import UnitValues, values_of_units

        values = UnitValues(unit.max_rows, part)
        with closing(_read_ahead(self._reader.batches(list(dict.fromkeys([name, unit.column]))))) as batches:
            for batch in batches:
                values.add(values_of_units(batch.column(unit.column), batch.column(name)))
                if values.size > MOST_VALUES:
                    return None
        return values.counts()

    def _count(self, marginals: Sequence[tuple[str, ...]], amount: str | None, threads: int) -> list[NDArray[np.int64]]:
        from consilience.source.coding import MarginalLayout, add_counts
        from consilience.source.records import RecordCoder

        columns = list(dict.fromkeys(name for names in marginals for name in names))
        coder = RecordCoder(self._domain, columns, amounts=() if amount is None else (amount,))
        layout = MarginalLayout.of(
            [[columns.index(name) for name in names] for names in marginals],
            self._domain.sizes(columns),
            [coder.places[name] for name in columns],
        )
        counts = np.zeros(layout.offsets[-1], dtype=np.int64)
        with ThreadPoolExecutor(threads) as workers:
            shares = layout.shares(threads)
            for coded in self._coded(coder, workers, threads):
                times = coder.times(coded, amount)
                tasks = [
                    workers.submit(add_counts, layout, coded.codes, times, counts, chosen=share) for share in shares
                ]
                for task in tasks:
                    task.result()
        return layout.split(counts)

    def _collect_points(self, names: tuple[str, ...]) -> NDArray[np.float64] | None:
        parts, size = [np.empty((0, len(names)))], 0
        with closing(self._points(names)) as found:
            for points in found:
                size += points.nbytes
                if size > LARGEST_POINTS:
                    return None
                parts.append(points)
        return np.concatenate(parts)

    def _sum(self, names: tuple[str, ...], sums: Sequence[RecordSum]) -> list[NDArray[np.int64]]:
        totals = [each(np.empty((0, len(names)))) for each in sums]
        with closing(self._points(names)) as found:
            for points in found:
                totals = [total + each(points) for total, each in zip(totals, sums, strict=True)]
        return totals

    def _points(self, names: tuple[str, ...]) -> "Generator[NDArray[np.float64]]":
        """The points of the records in batches."""
        from consilience.source.records import RecordCoder

        coder = RecordCoder(self._domain, [], names)
        with ThreadPoolExecutor(_cores()) as workers, closing(self._coded(coder, workers, _cores())) as batches:
            for coded in batches:
                yield coder.points(coded)

    def _coded(self, coder: "RecordCoder", workers: ThreadPoolExecutor, threads: int) -> "Generator[CodedRecords]":
        """The records of the source in batches, coded, with the decision about each of them."""
        if self._unit is not None:
            for columns in self._rows_of_units(self._unit, workers, threads):
                yield coder.records(columns)
            return
        names = coder.names or self._domain.names[:1]
        with closing(_read_ahead(self._reader.batches(names))) as batches:
            for batch in batches:
                yield coder.code(batch, workers)

    def _rows_of_units(
        self, unit: Unit, workers: ThreadPoolExecutor, threads: int
    ) -> "Generator[dict[Column, NDArray[Any]]]":
        """The rows that units may have, as columns of all attributes, in batches.

        Where the rows of all units do not fit in the memory meant for them, the source is read again for each half,
        quarter and so on of the units. Each unit is in one part, so no more of its rows are counted than it may have.
        """
        from consilience.source.readers import ROWS_PER_BATCH

        for rows in _in_parts(lambda part: self._bounded_rows(unit, part, workers)):
            yield from rows.chosen(workers, shares=threads, size=ROWS_PER_BATCH)

    def _bounded_rows(self, unit: Unit, part: "Part", workers: ThreadPoolExecutor) -> "BoundedRows | None":
        """The rows of the units in a part; None where they do not fit."""
        from consilience.source.records import BoundedRows, RecordCoder

        coder = RecordCoder.of_rows(self._domain)
        rows = BoundedRows(coder, unit.max_rows, part)
        names = tuple(dict.fromkeys((*self._domain.names, *coder.names, unit.column)))
        with closing(_read_ahead(self._reader.batches(names))) as batches:
            for batch in batches:
                rows.add(batch.column(unit.column), coder.code(batch, workers))
                if rows.nbytes > LARGEST_UNIT_ROWS:
                    return None
        return rows


def _in_parts(held: "Callable[[Part], Held | None]") -> "Generator[Held]":
    """What is held of all units or values; of each half, quarter and so on, where None says that it does not fit."""
    from consilience.source.unit_rows import MOST_SPLITS, Part

    parts = [Part()]
    while parts:
        part = parts.pop()
        found = held(part)
        if found is not None:
            yield found
        elif part.bits < MOST_SPLITS:
            parts.extend(part.halves())
        else:
            raise TooLarge(UNITS_TOO_LARGE)


def _read_ahead(batches: "Generator[Batch]") -> "Generator[Batch]":
    """The batches, each read while the one before it is being counted."""
    finished = object()
    with closing(batches), ThreadPoolExecutor(1) as reading:
        ahead = reading.submit(next, batches, finished)
        while (batch := ahead.result()) is not finished:
            ahead = reading.submit(next, batches, finished)
            yield batch  # type: ignore[misc]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
