"""Opening a confidential table, and counting it."""

import glob
import os
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Continuous
from consilience.domain.domains import Domain
from consilience.domain.source_format import SourceFormat
from consilience.errors import DeclarationError, SourceError, TooLarge
from consilience.source.base import RecordSum, Source, SourceIdentity, Unit, declared_unit
from consilience.source.readers import Reader, Required, attempt

if TYPE_CHECKING:
    from consilience.source.records import Batch, BoundedRows, CodedRecords, Column, RecordCoder
    from consilience.source.unit_rows import Part


# ----------------------------------------------------------------------------------------------------------------------
# Which reader reads what the user gave: a file or a database, told by its name, or a data frame.
#
# Readers are imported when they are needed: a CSV file needs no database.


DELIMITED = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET = (".parquet", ".pq")
DATABASES = (".duckdb", ".ddb", ".db", ".sqlite", ".sqlite3")


def reader_of(
    data: object, required: Required, how: SourceFormat, *, table: str | None = None, query: str | None = None
) -> Reader:
    """The reader of a file, of the files that match a pattern, of a database, or of a data frame."""
    if isinstance(data, str | os.PathLike):
        return _reader_of_path(os.fsdecode(data), required, how, table=table, query=query)
    if table is not None or query is not None:
        raise DeclarationError("table= and query= are for databases; a data frame is opened without them")
    from consilience.source.frames import reader_of_frame

    return reader_of_frame(data, required, how)


def _reader_of_path(
    given: str, required: Required, how: SourceFormat, *, table: str | None, query: str | None
) -> Reader:
    suffix = _suffix(given)
    if suffix in DATABASES:
        return _database(given, required, how, table=table, query=query)
    if table is not None or query is not None:
        raise DeclarationError(f"table= and query= are for databases, but {given!r} is none; open it without them")
    paths = matching_files(given)
    for path in paths:
        if path.is_dir():
            raise SourceError(f"{given!r} names a directory; name its files, as in 'directory/*.parquet'")
    if suffix in PARQUET:
        from consilience.source.frames import ParquetReader

        return ParquetReader(f"the source {given!r}", paths, required, how)
    from consilience.source.delimited import DelimitedReader

    return DelimitedReader(f"the source {given!r}", paths, required, how)


def _suffix(given: str) -> str:
    known = (*DELIMITED, *PARQUET, *DATABASES)
    found = next((suffix for suffix in known if given.lower().endswith(suffix)), None)
    if found is None:
        raise DeclarationError(
            f"the kind of source {given!r} is not known by its name; files end in {', '.join(known)}"
        )
    return found


def matching_files(given: str) -> list[Path]:
    """The file of that name, or the files that match the pattern, in the order of their names."""
    if os.path.exists(given):
        return [Path(given)]
    found = sorted(glob.glob(given, recursive=True))
    if not found:
        what = f"no file matches {given!r}" if glob.has_magic(given) else f"there is no file {given!r}"
        raise SourceError(f"{what}; check the path")
    return [Path(path) for path in found]


def _database(given: str, required: Required, how: SourceFormat, *, table: str | None, query: str | None) -> Reader:
    if (table is None) == (query is None):
        asked = "neither was" if table is None else "both were"
        raise DeclarationError(
            f"{given!r} is a database: name a table with table= or give SQL with query=; {asked} given"
        )
    paths = matching_files(given)
    if len(paths) > 1:
        raise DeclarationError(f"{given!r} matches several databases; open one at a time")
    shown = f"the database {given!r}"
    refusal = f"{shown} cannot be opened; check that it is a file you may read"
    beginning = attempt(lambda: _first_bytes(paths[0], 16), refusal)
    if beginning.startswith(b"SQLite format 3"):
        from consilience.source.databases import SQLiteReader

        return SQLiteReader(shown, paths[0], required, how, table=table, query=query)
    if beginning[8:12] == b"DUCK":
        from consilience.source.databases import DuckDBReader

        return DuckDBReader(shown, paths[0], required, how, table=table, query=query)
    raise SourceError(f"{shown} is neither a DuckDB nor an SQLite database; export it as Parquet or CSV and open that")


def _first_bytes(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


# ----------------------------------------------------------------------------------------------------------------------
# Opening a confidential table, and counting it.


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
        from consilience.source.records import UnitValues

        values = UnitValues(unit.max_rows, part)
        with closing(_read_ahead(self._reader.batches(list(dict.fromkeys([name, unit.column]))))) as batches:
            for batch in batches:
                values.add(batch.column(unit.column), batch.column(name))
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

        continuous = [each.name for each in self._domain.attributes if isinstance(each, Continuous)]
        in_cells = [each.name for each in self._domain.attributes if not isinstance(each, Continuous)]
        coder = RecordCoder(self._domain, in_cells, continuous, self._domain.amounts)
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


def open_table(
    data: object,
    domain: Domain,
    *,
    table: str | None = None,
    query: str | None = None,
    unit: str | None = None,
    max_rows_per_unit: int | None = None,
    name: str | None = None,
) -> Source:
    """A source of exact counts: confidential, checked against its declaration, not yet read.

    `data` is a path, or a pattern such as "part-*.parquet", to CSV or TSV (also .gz), to Parquet, or to a DuckDB or
    SQLite database (with `table` or `query`); or a pandas, polars or pyarrow table; or what produces batches when it is
    read: a lazy polars frame, a pyarrow dataset, a DuckDB relation, an ibis table, any object with `__arrow_c_stream__`
    (which is read once only). With `table`, it may also be an ADBC or DB-API connection, or a URL such as
    "postgresql://server/database": the engine counts that table itself. Every declared attribute, and
    the weight if there is one, needs a column of exactly its name.

    One row is what is protected, with `query` one row of its result. With `unit`, one value of that column is: at most
    `max_rows_per_unit` rows of each value are counted, chosen by a hash of the value and those rows alone, and rows
    without a value are not counted.

    A ledger tells files apart by where they really are, tables and queries by their texts. Frames are told apart by
    their `name` alone; for every source it is what published files call it, in place of the domain's name.

    >>> import consilience as cs
    >>> import pyarrow as pa
    >>> domain = cs.Domain("survey", (cs.Attribute.categorical("sex", ["F", "M"]),))
    >>> open_table(pa.table({"sex": ["F", "M", "F"]}), domain).domain.name
    'survey'
    """
    domain.refuse_draft()
    protected = declared_unit(unit, max_rows_per_unit)
    if is_address(data) or hasattr(data, "cursor"):
        return _table_in_engine(data, domain, table=table, query=query, unit=protected, name=name)
    required: Required = {attribute.name: attribute for attribute in domain.attributes}
    if domain.weight is not None and domain.weight.column not in domain:
        required = {**required, domain.weight.column: Attribute.continuous(domain.weight.column, domain.weight.bounds)}
    if protected is not None:
        required = {protected.column: None, **required}

    reader = reader_of(data, required, domain.source_format, table=table, query=query)
    identity = SourceIdentity(name=name)
    if isinstance(data, str | os.PathLike):
        given = os.fsdecode(data)
        identity = SourceIdentity.of_files(matching_files(given), given, table=table, query=query, name=name)
    return LocalSource(reader, domain, unit=protected, identity=identity)


def is_address(data: object) -> bool:
    """Whether this is the URL of a database, and not the path of a file."""
    return isinstance(data, str) and "://" in data


def _table_in_engine(
    data: Any, domain: Domain, *, table: str | None, query: str | None, unit: Unit | None, name: str | None
) -> Source:
    """A table that a connection, or a URL, leads to."""
    from consilience.source.engines.dialects import connect
    from consilience.source.engines.sql import SqlSource

    if table is None or query is not None:
        raise DeclarationError("a database counts one table or view: name it with table=, as in table='schema.people'")
    if not is_address(data):
        return SqlSource(data, domain, table=table, unit=unit, name=name, address=None)
    parts = urlsplit(data)
    address = f"{parts.scheme}://{parts.hostname or ''}{'' if parts.port is None else f':{parts.port}'}{parts.path}"
    return SqlSource(connect(data), domain, table=table, unit=unit, name=name, address=address)


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
