"""Which reader reads what the user gave: a file or a database, told by its name, or a data frame.

Readers are imported when they are needed: a CSV file needs no database.
"""

import glob
import os
from pathlib import Path

from consilience.domain.source_format import SourceFormat
from consilience.errors import DeclarationError, SourceError
from consilience.source.readers import Reader, Required
from consilience.source.refusals import attempt

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
    from consilience.source.frames import FrameReader

    return FrameReader(data, required, how)


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
