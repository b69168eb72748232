"""Counting in a SQL engine: the domain's rules as one query, of which nothing but the counts comes back.

    codes      each column becomes a code by CASE, as the coder of its attribute would have it
    records    those that a rule drops, or that lie in impossible cells, are filtered out
    counted    with a unit, the rows with the smallest hashes of each unit's own rows (`source.unit_rows`)
    counts     GROUP BY GROUPING SETS, one set for each marginal, as many at once as the engine allows

A code is never NULL, so the columns that are not NULL tell which marginal a row of the result belongs to. Cells that
are in no row hold no record. Identifiers are quoted and texts are literals, written by `sqlglot` for each dialect:
only declared names and labels are in a query, and nothing is taken from the data.

Engines compare texts, round numbers and order NULLs in ways of their own. A column is counted here only where its type
leaves no doubt that every value gets the code that `source.coding` gives it; any other column is refused, with the
reason and what to do.
"""

import math
import re
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import DROP, Attribute, Continuous, Numeric
from consilience.domain.dates import Date, first_day
from consilience.domain.declarations import guarded
from consilience.domain.domains import Domain
from consilience.errors import DeclarationError, SourceError
from consilience.source.base import RecordSum, Source, SourceIdentity, Unit
from consilience.source.coding import TRUTH_LABELS
from consilience.source.readers import attempt, check_columns
from consilience.source.values import float_text

try:
    from sqlglot import exp
except ImportError as error:
    raise DeclarationError(
        "counting in a SQL engine needs the library sqlglot; install it with: pip install 'consilience[sql]'"
    ) from error

Kind = Literal["text", "whole", "single", "double", "decimal", "truth", "day", "moment"]
Written = Any
"""An expression of sqlglot."""

ROWS_PER_FETCH = 2**16
MOST_DIGITS = 15
"""A decimal number of so many digits has one nearest double, which every engine finds."""


# ----------------------------------------------------------------------------------------------------------------------
# Engines: how each says the few things that sqlglot leaves to who writes the query.


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
    schema: str = "current_schema()"
    """The schema of a table whose name has none."""
    columns: str = "information_schema.columns"
    sets: int = 128
    """The most grouping sets of one query."""
    keys: int = 1000
    """The most columns that one query groups by."""
    escapes_vary: bool = False
    """Whether a setting of the server decides what a backslash in a literal means."""


def _call(name: str, *arguments: Written) -> Written:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _text(text: str) -> Written:
    return exp.Literal.string(text)


def _same_by(turned: Callable[[Written], Written]) -> Callable[[Written, str], Written]:
    return lambda column, text: exp.EQ(this=turned(column.copy()), expression=turned(_text(text)))


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
    return exp.EQ(this=column.copy(), expression=exp.cast(_text("NaN"), "double"))


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
        lambda text: _call("sha256", text), lambda column: _call("isnan", column.copy()), sets=1000,
    ),
    Engine(
        "PostgreSQL", "postgres", ("psycopg", "psycopg2", "pg8000", "adbc_driver_postgresql"),
        (*COMMON, ("text", "text"), ("character varying", "text"), ("timestamp without time zone", "moment")),
        _same_by(_collated("C", quoted=True)), _collated("C", quoted=True),
        lambda text: _call("sha256", _call("convert_to", text, _text("UTF8"))), _equal_nan,
    ),
    Engine(
        "Snowflake", "snowflake", ("snowflake", "adbc_driver_snowflake"),
        (*COMMON, ("float", "double"), ("number", "decimal"), ("text", "text"), ("timestamp_ntz", "moment")),
        _same_by(lambda text: _call("COLLATE", text, _text(""))), lambda text: _call("COLLATE", text, _text("")),
        lambda text: _call("SHA2", text, exp.Literal.number(256)), _equal_nan,
    ),
    Engine(
        "BigQuery", "bigquery", ("google", "adbc_driver_bigquery"),
        (("int64", "whole"), ("float64", "double"), ("numeric", "decimal"), ("string", "text"), ("bool", "truth"),
         ("date", "day"), ("datetime", "moment")),
        _same_by(lambda text: _call("COLLATE", text, _text(""))), lambda text: _call("COLLATE", text, _text("")),
        lambda text: _call("SHA256", text), lambda column: _call("IS_NAN", column.copy()),
        columns="INFORMATION_SCHEMA.COLUMNS",
    ),
    Engine(
        "Databricks SQL", "databricks", ("databricks",),
        (*COMMON, ("float", "single"), ("string", "text"), ("long", "whole"), ("short", "whole"), ("byte", "whole"),
         ("timestamp_ntz", "moment")),
        _same_by(_collated("UTF8_BINARY")), _collated("UTF8_BINARY"),
        lambda text: _call("sha2", text, exp.Literal.number(256)), lambda column: _call("isnan", column.copy()),
        escapes_vary=True,
    ),
    Engine(
        "Trino", "trino", ("trino",),
        COMMON, lambda column, text: exp.EQ(this=column.copy(), expression=_text(text)), lambda text: text.copy(),
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


# ----------------------------------------------------------------------------------------------------------------------
# Columns, as the engine's catalogue describes them, and what their values are coded as.


class Column(NamedTuple):
    """One column of the table."""

    name: str
    kind: Kind | None
    """None for a type whose values are not coded in the engine."""
    type: str
    digits: int | None = None
    places: int | None = None

    @property
    def sql(self) -> Written:
        return exp.column(exp.to_identifier(self.name, quoted=True))


REASONS = {
    "numbers in text": "is a text, and engines read numbers in texts differently; make it a number in a view",
    "dates in text": "is a text, and engines read dates in texts differently; make it a date in a view",
    "dates": "holds dates or times, but is declared as numbers; declare it as dates",
    "numbers": "holds no dates, but is declared as dates; declare it as what it is",
    "digits": f"has more than {MOST_DIGITS} digits, or none declared, and engines round such numbers differently; "
    "make it a double precision number in a view",
    "tiny label": "is declared with a label below a millionth, which engines write differently; declare it as numeric",
    "backslash": "is declared with a backslash in a label, which a setting of the server may read in two ways; change "
    "the label in a view",
    "unit": "names the units, and is neither a text nor a whole number; make it one in a view",
}


class ColumnRules:
    """The codes of one attribute's column as an expression, and which of them are kept."""

    def __init__(self, engine: Engine, column: Column, attribute: Attribute, domain: Domain) -> None:
        self._engine = engine
        self._column = column
        self._attribute = attribute
        self.size = 1 if isinstance(attribute, Continuous) else attribute.size
        missing = attribute.missing_code
        self.missing = self.size if missing == DROP or isinstance(attribute, Continuous) else missing
        unlisted = DROP if isinstance(attribute, Continuous) else attribute.unlisted_code
        self.unlisted = self.size if unlisted == DROP else unlisted
        self.drops = self.size in (self.missing, self.unlisted)
        tokens = [self._is(token) for token in domain.source_format.notation_of(attribute.name).missing_tokens]
        absent: list[Written] = [exp.Is(this=column.sql, expression=exp.null())]
        if column.kind in ("single", "double") and engine.is_nan is not None:
            absent.append(engine.is_nan(column.sql))
        absent += [each for each in tokens if each is not None]
        self.code = _case([(exp.or_(*absent), _number(self.missing))], self._code_of_value())

    def _refused(self, why: str) -> SourceError:
        return SourceError(
            f"the column {self._column.name!r} of the table in {self._engine.name} {REASONS[why]}, or measure an "
            "export of the table"
        )

    def _code_of_value(self) -> Written:
        attribute, kind = self._attribute, self._column.kind
        if isinstance(attribute, Date):
            return self._code_of_day(attribute)
        if isinstance(attribute, Numeric | Continuous):
            if kind == "text":
                raise self._refused("numbers in text")
            if kind in ("day", "moment"):
                raise self._refused("dates")
            return self._code_of_number(attribute)
        labels = dict(attribute.codes_by_label)
        if kind == "truth":
            pair = next((pair for pair in TRUTH_LABELS if labels.keys() & set(pair)), TRUTH_LABELS[0])
            no, yes = (_number(labels.get(text, self.unlisted)) for text in pair)
            return _case([(self._column.sql, yes)], no)
        labels |= {guarded(label): code for label, code in labels.items() if guarded(label) not in labels}
        matches = [(self._is(label), _number(code)) for label, code in labels.items()]
        return _case([(match, code) for match, code in matches if match is not None], _number(self.unlisted))

    def _code_of_number(self, attribute: Numeric | Continuous) -> Written:
        """The bin, by halving: a comparison with a double for each step."""
        number = self._as_double()
        if isinstance(attribute, Continuous):
            edges, codes = list(attribute.bounds), [0 if attribute.unlisted == "clip" else 1, 0]
            codes.append(codes[0])
            closed = True
        else:
            edges, bins = list(attribute.edges), len(attribute.edges) - 1
            below, above = (0, bins - 1) if attribute.clips else (self.unlisted, self.unlisted)
            codes, closed = [below, *range(bins), above], not attribute.integer
        tests: list[Written] = [exp.LT(this=number.copy(), expression=self._double(edge)) for edge in edges]
        if closed:
            tests[-1] = exp.LTE(this=number.copy(), expression=self._double(edges[-1]))
        return _halving(tests, codes)

    def _code_of_day(self, attribute: Date) -> Written:
        if self._column.kind == "text":
            raise self._refused("dates in text")
        if self._column.kind not in ("day", "moment"):
            raise self._refused("numbers")
        periods = len(attribute.ordinary_labels)
        below, above = (0, periods - 1) if attribute.clips else (self.unlisted, self.unlisted)
        firsts = [first_day(attribute.by, attribute.first + place) for place in range(periods + 1)]
        days = [date(1970, 1, 1) + timedelta(days=day) for day in firsts]
        tests: list[Written] = [
            exp.LT(this=self._column.sql, expression=self._moment(each.isoformat())) for each in days
        ]
        return _halving(tests, [below, *range(periods), above])

    def _moment(self, text: str) -> Written:
        return exp.cast(_text(text), "date" if self._column.kind == "day" else "timestamp")

    def _double(self, number: float) -> Written:
        if self._engine.dialect == "oracle":
            return exp.Cast(this=_number(number), to=exp.DataType.build("BINARY_DOUBLE", dialect="oracle"))
        return exp.cast(_text("Infinity" if number == math.inf else repr(float(number))), "double")

    def _as_double(self) -> Written:
        if self._column.kind == "truth":
            return exp.cast(_case([(self._column.sql, _number(1))], _number(0)), "double")
        if self._column.kind == "decimal" and not 0 < (self._column.digits or 0) <= MOST_DIGITS:
            raise self._refused("digits")
        kind = "BINARY_DOUBLE" if self._engine.dialect == "oracle" else "double"
        return exp.Cast(this=self._column.sql, to=exp.DataType.build(kind, dialect=self._engine.dialect, udt=True))

    def _is(self, text: str) -> Written | None:
        """That the value has this text, as `source.values` writes it; None where no value of its type has."""
        column, kind = self._column.sql, self._column.kind
        if kind == "text":
            if "\\" in text and self._engine.escapes_vary:
                raise self._refused("backslash")
            return self._engine.same_text(column, text) if _is_unicode(text) else None
        value: Written | None = None
        if kind == "whole" and re.fullmatch(r"-?[1-9][0-9]{0,19}|0", text) and -(2**63) <= int(text) < 2**64:
            value = _number(int(text))
        if kind == "decimal" and re.fullmatch(r"-?[1-9][0-9]{0,37}|0|-?(0|[1-9][0-9]*)\.[0-9]*[1-9]", text):
            if 0 < abs(float(text)) < 1e-6:
                raise self._refused("tiny label")
            value = exp.Neg(this=exp.Literal.number(text[1:])) if text[0] == "-" else exp.Literal.number(text)
        if kind in ("single", "double"):
            value = self._float_literal(text, np.float32 if kind == "single" else np.float64)
        if kind in ("day", "moment") and _is_moment(text, day=kind == "day"):
            value = self._moment(text.replace("T", " "))
        return None if value is None else exp.EQ(this=column, expression=value)

    def _float_literal(self, text: str, kind: type[np.floating[Any]]) -> Written | None:
        try:
            number = kind(text)
        except ValueError:
            return None
        if np.isnan(number) or float_text(number) != text:
            return None
        sign = "-" if number < 0 else ""
        written = f"{sign}Infinity" if np.isinf(number) else text
        return exp.cast(_text(written), "float" if kind is np.float32 else "double")


def _is_unicode(text: str) -> bool:
    """Whether the text can be in a query: lone surrogates and NUL cannot, and no text of an engine has them."""
    return "\x00" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)


def _is_moment(text: str, *, day: bool) -> bool:
    """Whether this is the text of a date, or of a timestamp in microseconds.

    >>> [_is_moment(text, day=False) for text in ("2020-01-31", "2020-01-31T12:30:00.5", "2020-01-31T00:00:00")]
    [True, True, False]
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return False
    whole = moment.isoformat()
    plain = (whole.rstrip("0") if "." in whole else whole).removesuffix("T00:00:00")
    return moment.tzinfo is None and text == plain and (not day or len(text) == 10)


def _number(number: float) -> Written:
    written = exp.Literal.number(str(abs(number)))
    return exp.Neg(this=written) if number < 0 else written


def _case(branches: Sequence[tuple[Written, Written]], otherwise: Written) -> Written:
    if not branches:
        return otherwise
    found = exp.Case()
    for condition, value in branches:
        found = found.when(condition, value, copy=False)
    return found.else_(otherwise, copy=False)


def _halving(tests: Sequence[Written], codes: Sequence[int]) -> Written:
    """The code before the first test that holds, the last one where none does; tests hold from some place on."""
    if len(set(codes)) == 1:
        return _number(codes[0])
    middle = (len(tests) - 1) // 2
    before, after = _halving(tests[:middle], codes[: middle + 1]), _halving(tests[middle + 1 :], codes[middle + 1 :])
    return _case([(tests[middle], before)], after)


# ----------------------------------------------------------------------------------------------------------------------
# The source.


class SqlSource(Source):
    """A table that stays in its SQL engine: queries count it there, and the counts alone come here."""

    __slots__ = ("_connection", "_engine", "_rules", "_table", "_unit_column")

    gives_points = False

    def __init__(
        self, connection: Any, domain: Domain, *, table: str, unit: Unit | None, name: str | None, address: str | None
    ) -> None:
        self._engine = engine_of(connection)
        if domain.weight is not None:
            raise DeclarationError(
                f"domain {domain.name!r} weights its records by {domain.weight.column!r}, and weights are not added up "
                f"in SQL: {self._engine.name} counts records; measure an export of the table"
            )
        shown = f"the table in {self._engine.name}"
        identity = SourceIdentity(table=table, name=name, engine=self._engine.name, address=address)
        super().__init__(domain, unit=unit, identity=identity, place=f"in {self._engine.name}")
        self._connection = connection
        self._table = table.split(".")
        refusal = f"{shown} cannot be described; check that it exists, by exactly this name, and that you may read it"
        found = {column.name: column for column in attempt(self._columns, refusal)}
        required = {each.name: each for each in domain.attributes} | ({} if unit is None else {unit.column: None})
        check_columns(shown, list(found), required)
        for column in (found[each] for each in required):
            if column.kind is None:
                raise SourceError(
                    f"the column {column.name!r} of {shown} has the type {column.type}, whose values may "
                    f"not get their codes in {self._engine.name}; convert it in a view, or measure an export of it"
                )
        self._rules = {
            each.name: ColumnRules(self._engine, found[each.name], each, domain) for each in domain.attributes
        }
        self._unit_column = None if unit is None else self._checked_unit(found[unit.column])

    @property
    def runs_code(self) -> bool:
        return True

    def check_points(self, names: Sequence[str]) -> None:
        super().check_points(names)
        raise DeclarationError(
            f"points are not summed in SQL: {self._engine.name} counts marginals; measure the table on Spark, or an "
            "export of it"
        )

    def exact_sums(self, names: Sequence[str], sums: Sequence[RecordSum]) -> list[NDArray[np.int64]]:
        self.check_points(names)
        return []

    def exact_points(self, names: Sequence[str]) -> NDArray[np.float64] | None:
        self.check_points(names)

    def exact_counts(
        self, marginals: Sequence[tuple[str, ...]], *, amount: str | None = None
    ) -> list[NDArray[np.int64]]:
        self.check_size(marginals, amount=amount)
        refusal = (
            f"the table could not be counted in {self._engine.name}; check that it is there and unchanged since it was "
            "opened, and that the engine allows such a query"
        )
        return attempt(lambda: self._count(marginals), refusal)

    def check_size(self, marginals: Sequence[tuple[str, ...]], *, amount: str | None = None) -> None:
        if amount is not None:
            raise DeclarationError(
                f"amounts of {amount!r} are not added up in SQL: {self._engine.name} counts marginals; measure an "
                "export of the table"
            )
        super().check_size(marginals)

    def exact_value_counts(self, name: str) -> Generator[dict[str, int]]:
        raise DeclarationError(
            f"values that nobody declared are not looked for in SQL; declare the values of {name!r}, or measure an "
            "export of the table"
        )

    def statements(self, marginals: Sequence[tuple[str, ...]]) -> list[str]:
        """The queries that would count these marginals; they hold declarations alone."""
        return [self._written(self._query(sets), pretty=True) for sets in self._chunks(marginals)]

    def _count(self, marginals: Sequence[tuple[str, ...]]) -> list[NDArray[np.int64]]:
        found: dict[tuple[str, ...], NDArray[np.int64]] = {}
        for sets in self._chunks(marginals):
            columns = self._ordered({name for names in sets for name in names})
            tables = {names: np.zeros(self._domain.sizes(names), dtype=np.int64) for names in sets}
            for *codes, number in self._rows(self._query(sets)):
                of = tuple(name for name, code in zip(columns, codes, strict=True) if code is not None)
                tables[of][tuple(int(code) for code in codes if code is not None)] += int(number)
            found |= tables
        return [
            np.transpose(found[key], [key.index(name) for name in names]).copy()
            for names, key in ((names, self._ordered(names)) for names in marginals)
        ]

    def _ordered(self, names: Collection[str]) -> tuple[str, ...]:
        return tuple(name for name in self._domain.names if name in names)

    def _chunks(self, marginals: Sequence[tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
        """The distinct sets of attributes, as many together as one query of the engine may have."""
        chunks: list[list[tuple[str, ...]]] = [[]]
        for names in dict.fromkeys(self._ordered(names) for names in marginals):
            together = {name for each in (*chunks[-1], names) for name in each}
            if len(chunks[-1]) == self._engine.sets or (chunks[-1] and len(together) > self._engine.keys):
                chunks.append([])
            chunks[-1].append(names)
        return chunks if chunks[0] else []

    def _query(self, sets: Sequence[tuple[str, ...]]) -> Written:
        columns = self._ordered({name for names in sets for name in names})
        number = exp.alias_(exp.Count(this=exp.Star(), big_int=True), "n")
        query = exp.select(*[self._place(name) for name in columns], number).from_(self._counted(columns))
        if columns:
            tuples: list[Written] = [exp.Tuple(expressions=[self._place(name) for name in names]) for names in sets]
            query.set("group", exp.Group(grouping_sets=[exp.GroupingSets(expressions=tuples)]))
        return query

    def _counted(self, columns: Sequence[str]) -> Written:
        """The records that are counted, with the codes of these attributes: all that are kept, or those of units."""
        rules = self._domain.impossible
        in_rules = {name for rule in rules for name in rule.attributes}
        needed = [
            name
            for name, each in self._rules.items()
            if each.drops or name in in_rules or name in columns or self._unit is not None
        ]
        unit = self._unit_column
        codes = [exp.alias_(self._rules[name].code.copy(), self._place(name).name) for name in needed]
        table = exp.Table(
            **dict(
                zip(
                    ("this", "db", "catalog"),
                    [exp.to_identifier(part, quoted=True) for part in reversed(self._table)],
                    strict=False,
                )
            )
        )
        source = exp.select(*codes).from_(table) if codes else exp.select(exp.alias_(_number(1), "c")).from_(table)
        if unit is not None:
            source = source.select(exp.alias_(unit.copy(), "u")).where(unit.copy().is_(exp.null()).not_())
        kept = exp.select("*").from_(source.subquery("codes"))
        for name in needed:
            if self._rules[name].drops:
                kept = kept.where(exp.LT(this=self._place(name), expression=_number(self._rules[name].size)))
        for rule in rules:
            within = [self._place(name).isin(*[_number(code) for code in codes_]) for name, codes_ in rule.codes]
            kept = kept.where(exp.Not(this=exp.Paren(this=exp.and_(*within))))
        found = kept.subquery("records")
        return found if self._unit is None else self._of_units(found, self._unit.max_rows)

    def _of_units(self, records: Written, limit: int) -> Written:
        """The rows of each unit with the smallest hashes of format, codes, ordinal and unit."""
        digest, exact = self._engine.digest, self._engine.whole_text
        assert digest is not None
        assert exact is not None
        names = list(self._rules)
        unit = exact(exp.column("u"))
        ordinal = exp.Window(
            this=exp.RowNumber(),
            partition_by=[unit, *[self._place(name) for name in names]],
            order=exp.Order(expressions=[self._place(names[0])]),
        )
        numbered = exp.select("*", exp.alias_(exp.Sub(this=ordinal, expression=_number(1)), "o")).from_(records)
        message: Written = _text("consilience row 1\n")
        for place, name in enumerate(names):
            message = exp.DPipe(this=message, expression=exp.cast(self._place(name), "text"))
            message = exp.DPipe(this=message, expression=_text("," if place < len(names) - 1 else "\n"))
        message = exp.DPipe(this=message, expression=exp.cast(exp.column("o"), "text"))
        message = exp.DPipe(this=exp.DPipe(this=message, expression=_text("\n")), expression=exp.column("u"))
        place_among = exp.Window(
            this=exp.RowNumber(),
            partition_by=[exact(exp.column("u"))],
            order=exp.Order(expressions=[digest(message)]),
        )
        ranked = exp.select("*", exp.alias_(place_among, "p")).from_(numbered.subquery("numbered"))
        chosen = exp.select("*").from_(ranked.subquery("ranked"))
        return chosen.where(exp.LTE(this=exp.column("p"), expression=_number(limit))).subquery("counted")

    def _checked_unit(self, column: Column) -> Written:
        """The unit's text; refused where the engine could tell units apart otherwise than this package does."""
        if self._engine.digest is None or self._engine.whole_text is None:
            raise SourceError(
                f"the rows of units are chosen by a hash of their bytes in UTF-8, which {self._engine.name} has not; "
                "measure an export of the table"
            )
        points = next((each.name for each in self._domain.attributes if isinstance(each, Continuous)), None)
        if points is not None:
            raise SourceError(
                f"the rows of units are chosen by a hash of all attributes, of which {points!r} is continuous, and no "
                f"number of it is the same text in {self._engine.name}; leave it out of the domain"
            )
        if column.kind not in ("text", "whole"):
            raise SourceError(f"the column {column.name!r} {REASONS['unit']}, or measure an export of the table")
        return column.sql if column.kind == "text" else exp.cast(column.sql, "text")

    def _place(self, name: str) -> exp.Column:
        """The column of an attribute's codes within the query: a name of ours, by its place in the domain."""
        return exp.column(f"c{self._domain.names.index(name)}")

    def _columns(self) -> list[Column]:
        """The columns of the table, from the engine's catalogue."""
        engine = self._engine
        if engine.dialect == "postgres":
            ((setting,),) = self._run("SELECT current_setting('standard_conforming_strings')")
            if setting != "on":
                raise SourceError(
                    "this PostgreSQL reads backslashes in texts as escapes, which makes labels ambiguous; set "
                    "standard_conforming_strings = on"
                )
        *above, table = self._table
        names = "column_name, data_type, numeric_precision, numeric_scale"
        owner, places = "table_schema", "ordinal_position"
        view = engine.columns
        if engine.dialect == "oracle":
            names, owner, places = "column_name, data_type, data_precision, data_scale", "owner", "column_id"
        if engine.dialect == "bigquery":
            names = "column_name, data_type, NULL, NULL"
            view = ".".join([*(exp.to_identifier(part, quoted=True).sql("bigquery") for part in above), view])
        conditions = [exp.EQ(this=exp.column("table_name"), expression=_text(table))]
        if above and engine.dialect != "bigquery":
            conditions += [exp.EQ(this=exp.column(owner), expression=_text(above[-1]))]
        written = " AND ".join(each.sql(engine.dialect) for each in conditions)
        if not above and engine.dialect != "bigquery":
            written += f" AND {owner} = {engine.schema}"
        rows = self._run(f"SELECT {names} FROM {view} WHERE {written} ORDER BY {places}")
        if not rows:
            raise SourceError(
                f"{engine.name} has no table {'.'.join(self._table)!r}; names must agree exactly, upper and lower case "
                "included, and a schema stands before a point"
            )
        return [self._column(*row) for row in rows]

    def _column(self, name: str, kind: str, digits: Any, places: Any) -> Column:
        """A column as its catalogue describes it; `decimal(8,2)` says its digits itself."""
        plain = str(kind).lower()
        inside = re.fullmatch(r"(decimal|numeric|number)\((\d+), ?(\d+)\)", plain)
        if inside:
            plain, digits, places = inside[1], inside[2], inside[3]
        found = dict(self._engine.kinds).get(plain)
        digits, places = (None if each is None else int(each) for each in (digits, places))
        if found == "decimal" and digits is None:
            found = None
            plain += " without a number of digits"
        return Column(name, found, plain, digits, places)

    def _written(self, query: Written, *, pretty: bool = False) -> str:
        return query.sql(dialect=self._engine.dialect, pretty=pretty)

    def _run(self, statement: str) -> list[Any]:
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement)
            return cursor.fetchall()
        finally:
            cursor.close()

    def _rows(self, query: Written) -> Iterable[Any]:
        statement = self._written(query)
        if self._engine.dialect == "bigquery" and not hasattr(self._connection, "adbc_get_info"):
            statement = statement.replace("%", "%%")  # its driver takes %% for %, also without parameters
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement)
            while rows := cursor.fetchmany(ROWS_PER_FETCH):
                yield from rows
        finally:
            cursor.close()
