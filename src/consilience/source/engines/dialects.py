"""Engines that speak SQL: how each says the few things that `sqlglot` leaves to who writes the query."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from consilience.errors import DeclarationError
from consilience.source.readers import attempt

try:
    from sqlglot import exp
except ImportError as error:
    raise DeclarationError(
        "counting in a SQL engine needs the library sqlglot; install it with: pip install 'consilience[sql]'"
    ) from error

Kind = Literal["text", "whole", "single", "double", "decimal", "truth", "day", "moment"]
Written = Any
"""An expression of sqlglot."""


@dataclass(frozen=True)
class Engine:
    """What is particular to one engine."""

    name: str
    dialect: str
    packages: tuple[str, ...]
    """The Python packages whose connections lead to it."""
    kinds: tuple[tuple[str, Kind], ...]
    """The types whose values are coded there, by the names that its catalogue has for them."""
    same_text: Callable[[Written, str], Written]
    """That a text is this one, byte by byte, whatever collation its column has."""
    whole_text: Callable[[Written], Written] | None = None
    """A text that is equal to another only byte by byte; None where units cannot be told apart safely."""
    digest: Callable[[Written], Written] | None = None
    """SHA-256 of a text in UTF-8, ordered as a number; None where the engine has none."""
    is_nan: Callable[[Written], Written] | None = None
    """That a floating-point number is NaN; None where no column can hold one."""
    with_nan: tuple[Kind, ...] = ("single", "double")
    """The kinds of numbers that can be NaN."""
    schema: str = "current_schema()"
    """The schema of a table whose name has none."""
    database: str | None = None
    """The database of a table whose name has none, where the catalogue lists those of others as well."""
    columns: str = "information_schema.columns"
    sets: int = 128
    """The most grouping sets of one query."""
    keys: int = 1000
    """The most columns that one query groups by."""
    escapes_vary: bool = False
    """Whether a setting of the server decides what a backslash in a literal means."""


def _call(name: str, *arguments: Written) -> Written:
    return exp.Anonymous(this=name, expressions=list(arguments))


def literal(text: str) -> Written:
    return exp.Literal.string(text)


def _same_by(turned: Callable[[Written], Written]) -> Callable[[Written, str], Written]:
    return lambda column, text: exp.EQ(this=turned(column.copy()), expression=turned(literal(text)))


def _collated(name: str, *, quoted: bool = False) -> Callable[[Written], Written]:
    collation = exp.to_identifier(name, quoted=quoted)
    return lambda column: exp.Collate(this=exp.Paren(this=column.copy()), expression=collation.copy())


def _padded(column: Written, text: str) -> Written:
    """SQL Server ignores blanks at the end of texts that it compares, so that lengths are compared, too."""
    wide = exp.DataType.build("NVARCHAR(MAX)", dialect="tsql")
    exact = _collated("Latin1_General_100_BIN2")(exp.Cast(this=column.copy(), to=wide))
    size = _call("DATALENGTH", exp.Cast(this=column.copy(), to=wide.copy()))
    units = exp.Literal.number(len(text.encode("utf-16-le")))
    return exp.And(
        this=exp.EQ(this=exact, expression=exp.National(this=text)), expression=exp.EQ(this=size, expression=units)
    )


def _equal_nan(column: Written) -> Written:
    return exp.EQ(this=column.copy(), expression=exp.cast(literal("NaN"), "double"))


COMMON: tuple[tuple[str, Kind], ...] = (
    ("smallint", "whole"), ("integer", "whole"), ("bigint", "whole"), ("tinyint", "whole"), ("int", "whole"),
    ("real", "single"), ("double", "double"), ("double precision", "double"), ("numeric", "decimal"),
    ("decimal", "decimal"), ("varchar", "text"), ("boolean", "truth"), ("date", "day"), ("timestamp", "moment"),
)  # fmt: skip

ENGINES = (
    Engine(
        "DuckDB", "duckdb", ("duckdb", "_duckdb"),
        (*COMMON, ("float", "single"), ("utinyint", "whole"), ("usmallint", "whole"), ("uinteger", "whole"),
         ("ubigint", "whole")),
        _same_by(lambda text: _call("encode", text)), lambda text: _call("encode", text),
        lambda text: _call("sha256", text), lambda column: _call("isnan", column.copy()),
        database="current_database()", sets=1000,
    ),
    Engine(
        "PostgreSQL", "postgres", ("psycopg", "psycopg2", "pg8000", "adbc_driver_postgresql"),
        (*COMMON, ("text", "text"), ("character varying", "text"), ("timestamp without time zone", "moment")),
        _same_by(_collated("C", quoted=True)), _collated("C", quoted=True),
        lambda text: _call("sha256", _call("convert_to", text, literal("UTF8"))), _equal_nan,
        with_nan=("single", "double", "decimal"),
    ),
    Engine(
        "Snowflake", "snowflake", ("snowflake", "adbc_driver_snowflake"),
        (*COMMON, ("float", "double"), ("number", "decimal"), ("text", "text"), ("timestamp_ntz", "moment")),
        _same_by(lambda text: _call("COLLATE", text, literal(""))), lambda text: _call("COLLATE", text, literal("")),
        lambda text: _call("SHA2", text, exp.Literal.number(256)), _equal_nan,
    ),
    Engine(
        "BigQuery", "bigquery", ("google", "adbc_driver_bigquery"),
        (("int64", "whole"), ("float64", "double"), ("numeric", "decimal"), ("string", "text"), ("bool", "truth"),
         ("date", "day"), ("datetime", "moment")),
        _same_by(lambda text: _call("COLLATE", text, literal(""))), lambda text: _call("COLLATE", text, literal("")),
        lambda text: _call("SHA256", text), lambda column: _call("IS_NAN", column.copy()),
        columns="INFORMATION_SCHEMA.COLUMNS",
    ),
    Engine(
        "Databricks SQL", "databricks", ("databricks",),
        # Its `timestamp` is a moment in the time zone of whoever asks, so that no day can be told for all.
        (*COMMON[:-1], ("float", "single"), ("string", "text"), ("long", "whole"), ("short", "whole"),
         ("byte", "whole"), ("timestamp_ntz", "moment")),
        _same_by(_collated("UTF8_BINARY")), _collated("UTF8_BINARY"),
        lambda text: _call("sha2", text, exp.Literal.number(256)), lambda column: _call("isnan", column.copy()),
        escapes_vary=True,
    ),
    Engine(
        "Trino", "trino", ("trino",),
        COMMON, lambda column, text: exp.EQ(this=column.copy(), expression=literal(text)), lambda text: text.copy(),
        lambda text: _call("SHA256", _call("TO_UTF8", text)), lambda column: _call("IS_NAN", column.copy()),
        schema="current_schema",
    ),
    Engine(
        "SQL Server", "tsql", ("pyodbc", "pymssql", "mssql_python"),
        (*COMMON, ("float", "double"), ("nvarchar", "text"), ("datetime2", "moment")),
        _padded, schema="SCHEMA_NAME()", keys=32,
    ),
    Engine(
        "Oracle", "oracle", ("oracledb", "cx_Oracle"),
        (("number", "decimal"), ("binary_float", "single"), ("binary_double", "double"), ("varchar2", "text"),
         ("nvarchar2", "text")),
        _same_by(_collated("BINARY")), is_nan=lambda column: exp.Is(this=column.copy(), expression=exp.var("NAN")),
        schema="SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')", columns="all_tab_columns",
    ),
)  # fmt: skip


def engine_of(connection: Any) -> Engine:
    """The engine that an ADBC or DB-API connection leads to."""
    package = type(connection).__module__.partition(".")[0]
    if package == "adbc_driver_manager":
        vendor = attempt(lambda: str(connection.adbc_get_info().get("vendor_name", "")), CANNOT_TELL).lower()
        found = next((each for each in ENGINES if each.name.lower().split()[0] in vendor), None)
    else:
        found = next((each for each in ENGINES if package in each.packages), None)
    if found is None:
        raise DeclarationError(
            f"the connection is of {package}, and tables are counted in {', '.join(each.name for each in ENGINES)}; "
            "export the table as Parquet and open that"
        )
    return found


CANNOT_TELL = "the connection does not tell which engine it leads to; hand over one of the engine's own driver"


def connect(url: str) -> Any:
    """A connection to what a URL names, by the driver that is installed for it."""
    scheme = url.partition("://")[0].lower()
    if scheme in ("postgresql", "postgres"):
        driver = _driver("adbc_driver_postgresql.dbapi") or _driver("psycopg")
        missing = "adbc-driver-postgresql"
    elif scheme == "snowflake":
        driver, missing = _driver("adbc_driver_snowflake.dbapi"), "adbc-driver-snowflake"
    else:
        raise DeclarationError(
            f"a table is opened by a URL that begins with postgresql:// or snowflake://, not {scheme}://; in Python, "
            "hand over a connection of the engine's own driver"
        )
    if driver is None:
        raise DeclarationError(f"{scheme}:// needs a driver; install one with: pip install {missing}")
    given = url if scheme != "snowflake" else url.partition("://")[2]
    return attempt(lambda: driver.connect(given), "the database cannot be reached; check the URL and who may connect")


def _driver(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        return None
