"""What runs on Spark's executors, with this package's own coder and kernels: records in, vectors of whole numbers out.

Spark sends these functions by their names, so that the package must be where they run. A task takes Arrow batches that
Spark hands to Python, or reads row groups of Parquet files itself; `LocalSource` counts in it as it does anywhere. What
is raised here is this package's own text, for Spark writes it into logs and pages.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute
from consilience.domain.domains import Domain
from consilience.errors import TooLarge
from consilience.source.base import RecordSum, SourceIdentity, Unit
from consilience.source.frames import ParquetReader
from consilience.source.local import LARGEST_UNIT_ROWS, UNITS_TOO_LARGE, LocalSource
from consilience.source.readers import ROWS_PER_BATCH, Required, attempt_each
from consilience.source.records import (
    Batch,
    BoundedRows,
    RecordCoder,
    UnitValues,
    meant_batches,
    value_counts,
    values_of_units,
    writings_of,
)
from consilience.source.unit_rows import Part

SHOWN = "the table on Spark"

CANNOT_COUNT = (
    f"{SHOWN} could not be counted; the executors' logs say which step failed, and no value. Check that the table is "
    "there and unchanged since it was opened, and, with units, that a task has the memory for its rows: more "
    "spark.sql.shuffle.partitions make its share smaller"
)

BLOCK = 2**17
"""Cells per block of a vector: 1 MB."""

ROWS_AT_ONCE = 2**16
"""Batches of fewer records are joined before they are coded: Spark hands out 10,000 at a time."""

PARTS = "block long, part binary"
ROWS = "unit binary, row binary"
PAIRS = "unit binary, value binary"
COUNTED = "value binary, n long"

Vector = NDArray[np.int64]


class HandedBatches:
    """The records that Spark hands to a task, as a reader: once, joined to batches that are worth coding."""

    columns = ()
    runs_code = True
    reads_once = True

    def __init__(self, batches: Iterator[Any], domain: Domain, required: Required) -> None:
        self._batches = batches
        self._writings = writings_of(required, domain.source_format)

    def batches(self, names: Sequence[str]) -> Generator[Batch]:
        return meant_batches(self._joined(), self._writings)

    def _joined(self) -> Generator[Batch]:
        held: list[Any] = []
        for batch in self._batches:
            held.append(batch)
            if sum(each.num_rows for each in held) >= ROWS_AT_ONCE:
                yield from _as_one(held)
                held = []
        if held:
            yield from _as_one(held)


def _as_one(batches: Sequence[Any]) -> Iterable[Any]:
    return pa.Table.from_batches(batches).combine_chunks().to_batches(max_chunksize=ROWS_PER_BATCH)


class SentRows(LocalSource):
    """The rows of some units, all of each, as other tasks have coded and sent them."""

    __slots__ = ("_batches",)

    def __init__(self, batches: Iterator[Any], domain: Domain, unit: Unit) -> None:
        super().__init__(HandedBatches(batches, domain, {}), domain, unit=unit, identity=SourceIdentity())
        self._batches = batches

    def _bounded_rows(self, unit: Unit, part: Part, workers: Any) -> BoundedRows:
        rows = BoundedRows(RecordCoder.of_rows(self._domain), unit.max_rows, part)
        for batch in self._batches:
            rows.add_packed(batch.column("unit"), batch.column("row"))
            if rows.nbytes > LARGEST_UNIT_ROWS:
                raise TooLarge(UNITS_TOO_LARGE)
        return rows


class Records(NamedTuple):
    """The records of a table as a task gets them: of one partition, or of some row groups of Parquet files."""

    domain: Domain
    required: dict[str, Attribute | None]
    files: tuple[tuple[tuple[str, int], ...], ...] = ()
    """For each task the files and row groups that it reads; none where Spark hands the records over."""

    def reader(self, batches: Iterator[Any]) -> "HandedBatches | ParquetReader":
        if not self.files:
            return HandedBatches(batches, self.domain, self.required)
        groups: dict[Path, list[int]] = {}
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for file, group in self.files[task]:
                    groups.setdefault(Path(file), []).append(group)
        return ParquetReader(SHOWN, tuple(groups), self.required, self.domain.source_format, groups)


VectorOf = Callable[[LocalSource], Vector]
Task = Callable[..., Generator[Any]]


def quiet(task: Task) -> Task:
    """The task, of which no failure says more than that it failed: Spark writes down what it raises."""

    @wraps(task)
    def run(*given: Any) -> Generator[Any]:
        return attempt_each(task(*given), CANNOT_COUNT)

    return run


def counts_of(marginals: Sequence[tuple[str, ...]], amount: str | None, source: LocalSource) -> Vector:
    """All marginals of what a task has, end to end."""
    return np.concatenate([table.ravel() for table in source.exact_counts(marginals, amount=amount, threads=1)])


def sums_of(names: tuple[str, ...], sums: Sequence[RecordSum], source: LocalSource) -> Vector:
    """All sums over what a task has, end to end."""
    return np.concatenate([each.ravel() for each in source.exact_sums(names, sums)])


@quiet
def add_up(records: Records, vector_of: VectorOf, batches: Iterator[Any]) -> Generator[Any]:
    """The vector of the records of a task."""
    reader = records.reader(batches)
    yield from _in_blocks(vector_of(LocalSource(reader, records.domain, unit=None, identity=SourceIdentity())))


@quiet
def add_up_units(domain: Domain, unit: Unit, vector_of: VectorOf, batches: Iterator[Any]) -> Generator[Any]:
    """The vector of the units of a task."""
    yield from _in_blocks(vector_of(SentRows(batches, domain, unit)))


@quiet
def add_up_blocks(batches: Iterator[Any]) -> Generator[Any]:
    """The sum of each block that a task was sent: all parts of it."""
    totals: dict[int, Vector] = {}
    for batch in batches:
        for block, part in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            more = np.frombuffer(part.as_buffer(), dtype=np.int64)
            totals[block] = more + totals[block] if block in totals else more
    for block, total in totals.items():
        yield _batch(["block", "part"], [pa.array([block]), pa.array([total.tobytes()], pa.binary())])


def _in_blocks(vector: Vector) -> Generator[Any]:
    for block, begin in enumerate(range(0, len(vector), BLOCK)):
        part = vector[begin : begin + BLOCK].astype(np.int64).tobytes()
        yield _batch(["block", "part"], [pa.array([block]), pa.array([part], pa.binary())])


@quiet
def send_rows(records: Records, unit: Unit, batches: Iterator[Any]) -> Generator[Any]:
    """The codes of the records that the domain keeps, with the texts of their units: nothing else is sent."""
    coder = RecordCoder.of_rows(records.domain)
    rows = BoundedRows(coder, unit.max_rows, Part())
    read = records.reader(batches).batches(list(dict.fromkeys((*coder.names, unit.column))))
    with ThreadPoolExecutor(1) as worker, closing(read) as found:
        for batch in found:
            yield _batch(["unit", "row"], rows.packed(batch.column(unit.column), coder.code(batch, worker)))


@quiet
def send_values(records: Records, name: str, unit: Unit | None, batches: Iterator[Any]) -> Generator[Any]:
    """How often each value stands in a batch; with a unit, the distinct values of each unit."""
    read = records.reader(batches).batches([name] if unit is None else list(dict.fromkeys([name, unit.column])))
    with closing(read) as found:
        for batch in found:
            if unit is None:
                yield _counted(value_counts(batch.column(name)))
            else:
                yield from values_of_units(batch.column(unit.column), batch.column(name)).to_batches()


@quiet
def count_values_of_units(limit: int, batches: Iterator[Any]) -> Generator[Any]:
    """How many of the units that a task was sent count for each value."""
    values = UnitValues(limit, Part())
    for batch in batches:
        values.add(pa.Table.from_batches([batch]))
    yield _counted(values.counts())


@quiet
def add_up_values(batches: Iterator[Any]) -> Generator[Any]:
    """The number of each value that a task was sent: all parts of it."""
    found: dict[bytes, int] = {}
    for batch in batches:
        for value, number in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            found[value] = found.get(value, 0) + number
    yield _counted(found)


def _counted(counts: dict[bytes, int]) -> Any:
    return _batch(["value", "n"], [pa.array(counts.keys(), pa.binary()), pa.array(counts.values(), pa.int64())])


def _batch(names: list[str], arrays: Sequence[Any]) -> Any:
    return pa.RecordBatch.from_arrays(list(arrays), names=names)


def tell_version(batches: Iterator[Any]) -> Generator[Any]:
    """The version of this package where the task runs."""
    for batch in batches:
        yield _batch(["version"], [pa.array([version("consilience")] * batch.num_rows)])
