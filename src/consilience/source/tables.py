"""Opening a confidential table: a file, a database, a frame, or what lies in an engine."""

import glob
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from consilience.domain.attributes import Attribute
from consilience.domain.domains import Domain
from consilience.domain.source_format import SourceFormat
from consilience.errors import DeclarationError, SourceError
from consilience.source.base import ON_SPARK, Source, SourceIdentity, SparkTable, Unit, declared_unit
from consilience.source.local import LocalSource
from consilience.source.readers import Reader, Required, attempt

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
# Opening a confidential table.


def open_table(
    data: object,
    domain: Domain,
    *,
    table: str | None = None,
    query: str | None = None,
    unit: str | None = None,
    max_rows_per_unit: int | None = None,
    name: str | None = None,
    allow_cluster_disk: bool = False,
) -> Source:
    """A source of exact counts: confidential, checked against its declaration, not yet read.

    `data` is a path, or a pattern such as "part-*.parquet", to CSV or TSV (also .gz), to Parquet, or to a DuckDB or
    SQLite database (with `table` or `query`); or a pandas, polars or pyarrow table; or what produces batches when it is
    read: a lazy polars frame, a pyarrow dataset, a DuckDB relation, an ibis table, any object with `__arrow_c_stream__`
    (which is read once only). With `table`, it may also be an ADBC or DB-API connection, or a URL such as
    "postgresql://server/database": the engine counts that table itself. A Spark frame, or "spark:catalog.schema.table",
    is counted by the executors. Every declared attribute, and the weight if there is one, needs a column of exactly its
    name.

    One row is what is protected, with `query` one row of its result. With `unit`, one value of that column is: at most
    `max_rows_per_unit` rows of each value are counted, chosen by a hash of the value and those rows alone, and rows
    without a value are not counted. On Spark that takes a shuffle, which writes codes of records and units to the disks
    of the cluster: encrypted (spark.io.encryption.enabled), or with `allow_cluster_disk`.

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
    if is_on_spark(data):
        from consilience.source.engines.spark import SparkSource

        if table is not None or query is not None:
            raise DeclarationError("table= and query= are for databases; a Spark frame is opened without them")
        if isinstance(data, str):
            data = SparkTable(data.removeprefix(ON_SPARK))
        return SparkSource(data, domain, unit=protected, name=name, allow_cluster_disk=allow_cluster_disk)
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
    """Whether this is the URL of a database or the name of a table on Spark, and not the path of a file."""
    return isinstance(data, str) and ("://" in data or data.startswith(ON_SPARK))


def is_on_spark(data: object) -> bool:
    """Whether this is a Spark frame, or names a table of Spark's catalogue."""
    named = isinstance(data, SparkTable) or (isinstance(data, str) and data.startswith(ON_SPARK))
    return named or hasattr(data, "mapInArrow")


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
