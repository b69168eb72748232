"""DuckDB databases, opened for reading alone.

The connection reads nothing but the database: no other file, no extension, no network, and it writes nothing, not even
when a query needs more memory than there is.
"""

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from consilience.domain.source_format import SourceFormat
from consilience.errors import DeclarationError
from consilience.source.readers import ROWS_PER_BATCH, Required, attempt, attempt_each, check_columns, check_types
from consilience.source.records import Batch, meant_batches, writings_of
from consilience.source.values import array_of_values

CONFINEMENT = (
    "temp_directory = ''",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "python_enable_replacements = false",
    "enable_external_access = false",
    "lock_configuration = true",
)
"""Settings in the order in which they can be made: each of the last two closes the way for others."""


class DuckDBReader:
    """Reads a table, or the result of a query, which is then what the privacy statement is about."""

    def __init__(
        self,
        shown: str,
        path: Path,
        required: Required,
        how: SourceFormat,
        *,
        table: str | None,
        query: str | None,
    ) -> None:
        self._path = path
        self.reads_once = False
        self._writings = writings_of(required, how)
        self._refusal = (
            f"{shown} cannot be read; check that its version is known to the installed DuckDB, that no other program "
            "holds it open for writing, and that the table or query exists and runs without errors"
        )
        self._refuse_other_statements(query)
        self._query = query if query is not None else f"SELECT * FROM {_quoted_table(table or '')}"
        self._projects = query is None
        self.runs_code = query is not None or not attempt(lambda: self._is_stored(table or ""), self._refusal)
        columns, types = attempt(self._schema, self._refusal)
        self.columns = tuple(columns)
        check_columns(shown, columns, required)
        check_types(shown, dict(zip(columns, types, strict=True)), required)

    def _refuse_other_statements(self, query: str | None) -> None:
        if query is None:
            return
        kinds = attempt(lambda: _statement_kinds(query), "query= is no SQL that DuckDB can parse; correct it")
        if kinds != ["SELECT"]:
            raise DeclarationError("query= must be one SELECT statement; give that alone")

    def batches(self, names: Sequence[str]) -> Generator[Batch]:
        return attempt_each(meant_batches(self._batches(names), self._writings), self._refusal)

    def _batches(self, names: Sequence[str]) -> Generator[Batch]:
        with self._connect() as connection:
            relation = connection.sql(self._query)
            if self._projects:
                relation = relation.project(", ".join(quoted(name) for name in names))
            yield from batch_reader(relation)

    def _is_stored(self, table: str) -> bool:
        """Whether this is a table whose columns are all stored: no view, and nothing computed when it is read."""
        *schema, name = table.split(".")
        with self._connect() as connection:
            found = connection.execute(
                "SELECT sql FROM duckdb_tables() WHERE NOT internal AND database_name = current_database()"
                " AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)",
                [schema[-1] if schema else "main", name],
            ).fetchall()
        return len(found) == 1 and "GENERATED ALWAYS" not in found[0][0].upper()

    def _schema(self) -> tuple[list[str], list[Any]]:
        """Names and Arrow types of the columns, by planning the query: no row of it is computed before it is paid for.

        Even with a limit of no rows some versions of DuckDB compute a common table expression.
        """
        with self._connect() as connection:
            relation = connection.sql(self._query)
            nothing = ", ".join(f"CAST(NULL AS {kind}) AS c{i}" for i, kind in enumerate(relation.types))
            types = [field.type for field in batch_reader(connection.sql(f"SELECT {nothing}")).schema]
            return list(relation.columns), types

    def _connect(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(str(self._path), read_only=True)
        connection.execute(f"SET threads = {os.cpu_count() or 1}")
        for setting in CONFINEMENT:
            connection.execute(f"SET {setting}")
        return connection


def batch_reader(relation: Any) -> Any:
    """The relation's result as a stream of Arrow batches, under the name this version of DuckDB has for it."""
    stream = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    return stream(ROWS_PER_BATCH)


def _statement_kinds(query: str) -> list[str]:
    with duckdb.connect(":memory:") as connection:
        return [statement.type.name for statement in connection.extract_statements(query)]


def _quoted_table(table: str) -> str:
    """A table's name as SQL; points separate a schema from its table."""
    return ".".join(quoted(part) for part in table.split("."))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ----------------------------------------------------------------------------------------------------------------------
# SQLite databases, opened for reading alone, through Python's own library.
#
# SQLite stores a type with every value, not with a column, so each value is read by itself.


ROWS_PER_FETCH = 2**16
"""Python objects are larger than columns, so fewer rows are held at a time."""

READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
"""What a statement may do: anything else is denied before it runs."""


class SQLiteReader:
    """Reads a table, or the result of a query, which is then what the privacy statement is about."""

    def __init__(
        self,
        shown: str,
        path: Path,
        required: Required,
        how: SourceFormat,
        *,
        table: str | None,
        query: str | None,
    ) -> None:
        self._path = path
        self.reads_once = False
        self._writings = writings_of(required, how)
        self._refusal = (
            f"{shown} cannot be read; check that it is whole, that you may read it, and that the table or query "
            "exists, is one SELECT statement and runs without errors"
        )
        self._query = query if query is not None else f"SELECT * FROM {quoted(table or '')}"
        self._projects = query is None
        self.runs_code = query is not None or not attempt(lambda: self._is_stored(table or ""), self._refusal)
        self.columns = tuple(attempt(self._columns, self._refusal))
        check_columns(shown, self.columns, required)

    def batches(self, names: Sequence[str]) -> Generator[Batch]:
        return attempt_each(self._batches(names), self._refusal)

    def _batches(self, names: Sequence[str]) -> Generator[Batch]:
        query = self._query
        if self._projects:
            query = query.replace("*", ", ".join(quoted(name) for name in names), 1)
        with closing(self._connect()) as connection:
            cursor = connection.execute(query)
            found = [column[0] for column in cursor.description]
            wanted = [found.index(name) for name in names]
            while rows := cursor.fetchmany(ROWS_PER_FETCH):
                columns = list(zip(*rows, strict=True))
                arrays = [self._array(name, columns[place]) for name, place in zip(names, wanted, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=list(names))

    def _array(self, name: str, values: Sequence[object]) -> Any:
        writing = self._writings.get(name)
        return array_of_values(values) if writing is None else writing.meant_by_each(values)

    def _is_stored(self, table: str) -> bool:
        """Whether this is a table whose columns are all stored: no view, no virtual table, nothing computed."""
        with closing(self._opened()) as connection:
            found = connection.execute(
                "SELECT type, sql FROM sqlite_master WHERE lower(name) = lower(?) AND type IN ('table', 'view')",
                (table,),
            ).fetchall()
            computed = [row for row in connection.execute(f"PRAGMA table_xinfo({quoted(table)})") if row[-1]]
        virtual = any((text or "").upper().split()[:2] == ["CREATE", "VIRTUAL"] for _, text in found)
        return [kind for kind, _ in found] == ["table"] and not computed and not virtual

    def _columns(self) -> list[str]:
        """The names of the columns, found without running the query: it is made a view, whose columns are asked for."""
        with closing(self._opened()) as connection:
            connection.execute(f"CREATE TEMP VIEW consilience_columns AS {self._query}")
            names = [row[1] for row in connection.execute("PRAGMA table_info(consilience_columns)")]
        return _repeated_again(names)

    def _connect(self) -> sqlite3.Connection:
        connection = self._opened()
        connection.text_factory = bytes
        connection.set_authorizer(_authorize)
        return connection

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection


def _authorize(action: int, *_: Any) -> int:
    return sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY


def _repeated_again(names: list[str]) -> list[str]:
    """The names as the query has them: in a view, repeated ones are told apart by :1, :2, and so on.

    >>> _repeated_again(["age", "sex", "age:1"])
    ['age', 'sex', 'age']
    """
    known = {name.lower() for name in names}
    plain = [name.rpartition(":") for name in names]
    return [
        first if number.isdigit() and first.lower() in known else name
        for name, (first, _, number) in zip(names, plain, strict=True)
    ]
