"""Tables counted by SQL: the same counts as this package's own, from DuckDB and from a PostgreSQL that the tests start.

The other engines are not here: what they would run is parsed by their own grammar, as sqlglot knows it.
"""

import datetime
import math
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

pytest.importorskip("sqlglot")
import sqlglot

from consilience.cli.main import app
from consilience.domain import Attribute, Date, Domain
from consilience.domain.domains import ImpossibleCells
from consilience.domain.source_format import Summand
from consilience.errors import DeclarationError, SourceError
from consilience.measurements import MeasurementSet
from consilience.measuring import measure
from consilience.plans import KMeans, Marginals
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table
from consilience.source.engines import dialects, sql

PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]
PROGRAMS = str(PLACES[0]) if PLACES else os.path.dirname(shutil.which("initdb") or "")


@pytest.fixture(scope="module")
def postgres():
    """The URL of a PostgreSQL that ends with the tests of this module."""
    psycopg = pytest.importorskip("psycopg")
    if not PROGRAMS:
        pytest.skip("no PostgreSQL is installed here")
    folder = tempfile.mkdtemp(prefix="postgres")
    user = {}
    if os.name == "posix" and os.geteuid() == 0:  # as whom PostgreSQL refuses to run
        shutil.chown(folder, "postgres")
        user = {"user": "postgres", "extra_groups": []}

    def run(program, *arguments):
        subprocess.run([f"{PROGRAMS}/{program}", "-D", f"{folder}/d", *arguments], check=True, cwd="/", **user,
                       stdout=subprocess.DEVNULL)  # fmt: skip

    run("initdb", "-N", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-U", "postgres")
    run("pg_ctl", "-o", f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off", "-w", "start")
    try:
        url = f"postgresql:///postgres?host={folder}&user=postgres"
        with psycopg.connect(url) as connection:
            connection.execute("CREATE COLLATION whatever (provider = icu, locale = 'und-u-ks-level1', "
                               "deterministic = false)")  # fmt: skip
        yield url
    finally:
        run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(folder)


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def in_duckdb(table, types, name, _):
    connection = duckdb.connect()
    columns = ", ".join(f"{quoted(each)} {kind}" for each, kind in types.items())
    connection.execute(f"CREATE TABLE {quoted(name)} ({columns})")
    connection.register("rows_to_insert", table)
    connection.execute(f"INSERT INTO {quoted(name)} SELECT * FROM rows_to_insert")
    return connection


def in_postgres(table, types, name, url):
    import psycopg

    connection = psycopg.connect(url)
    columns = ", ".join(f"{quoted(each)} {POSTGRES_TYPES.get(kind, kind)}" for each, kind in types.items())
    connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
    connection.execute(f"CREATE TABLE {quoted(name)} ({columns})")
    rows = [tuple(row.values()) for row in table.to_pylist()]
    with connection.cursor() as cursor:
        places = ", ".join(["%s"] * len(types))
        cursor.executemany(f"INSERT INTO {quoted(name).replace('%', '%%')} VALUES ({places})", rows)
    connection.commit()
    return connection


POSTGRES_TYPES = {"DOUBLE": "double precision", "VARCHAR": "text", "VARCHAR COLLATE NOCASE": "text COLLATE whatever"}


@pytest.fixture(params=["DuckDB", "PostgreSQL"])
def put(request):
    """Puts a table into the engine, and gives a connection to it."""
    if request.param == "DuckDB":
        return lambda table, types, name="t": in_duckdb(table, types, name, None)
    url = request.getfixturevalue("postgres")

    def to_postgres(table, types, name="t"):
        return in_postgres(table, types, name, url)

    return to_postgres


# ----------------------------------------------------------------------------------------------------------------------
# Every value gets the code that it has elsewhere.


TEXTS = [
    "F", "f", "F ", " F", "", "\u00e9", "e\u0301", "E", "ß", "ss", "SS", "a\tb", "'; DROP TABLE t; --", '"', "\\",
    "\\'", "null", "true", "1", "01", "1.0", "=1+1", "'=1+1", "𝔘", "I", "ı", "i", "İ", "n/a", "%s %% %",
    "x" * 300, None,
]  # fmt: skip
HUGE = [0, 1, -1, 7, 10, 2**63 - 1, -(2**63), 2**53 + 1, 2**53, None]
FLOATS = [
    0.1, 0.30000000000000004, 0.3, -0.0, 5e-324, 1e308, math.inf, -math.inf, math.nan, 1e16, 2.5, 1e-7, -3.0,
    99.0, None,
]  # fmt: skip
DAYS = [datetime.date(*each) for each in [(2020, 1, 31), (2020, 2, 1), (1, 1, 1), (9999, 12, 31), (2019, 12, 30)]]
MOMENTS = [datetime.datetime.combine(day, datetime.time()) for day in DAYS]
MOMENTS += [datetime.datetime(2020, 1, 31, 23, 59, 59, 999999), datetime.datetime(2020, 1, 31, 12, 30, 0, 500000)]
CASES = {
    "texts": ("VARCHAR", pa.string(), TEXTS, [each for each in TEXTS if each][::2]),
    "texts collated": ("VARCHAR COLLATE NOCASE", pa.string(), TEXTS, [each for each in TEXTS if each][1::2]),
    "whole numbers": ("BIGINT", pa.int64(), HUGE, ["0", "-1", "7", "007", "1.0", str(2**63 - 1), "9" * 20, "9" * 39]),
    "small numbers": ("SMALLINT", pa.int16(), [0, 1, -1, 32767, None], ["0", "32767", "32768"]),
    "doubles": ("DOUBLE", pa.float64(), FLOATS, ["0.1", "0.3", "0", "-0", "inf", "1e+16", "2.5", "1e-07", "nan", "-3"]),
    "singles": ("REAL", pa.float32(), [0.1, 16777216.0, 0.3, math.nan, math.inf, None], ["0.1", "16777216", "inf"]),
    "decimals": ("DECIMAL(8,2)", pa.decimal128(8, 2), [Decimal(each) for each in ("1.50", "0", "-2", "100", "99.99")],
                 ["1.5", "0", "-2", "100", "1.50", "1e2", "-0"]),
    "truths": ("BOOLEAN", pa.bool_(), [True, False, None], ["yes", "True", "False"]),
    "no truths": ("BOOLEAN", pa.bool_(), [True, False, None], ["yes", "no"]),
    "days": ("DATE", pa.date32(), [*DAYS, None], ["2020-01-31", "0001-01-01", "2020-1-31", "20200131", "January"]),
    "moments": ("TIMESTAMP", pa.timestamp("us"), [*MOMENTS, None],
                ["2020-01-31", "2020-01-31T12:30:00.5", "2020-01-31T12:30:00.500", "2020-01-31T23:59:59.999999"]),
}  # fmt: skip
EDGES = ([-1, 0, 7, 2**53 + 2], [0.0, 0.1, 0.3, 2.5], [-3.0, 99.0, math.inf][:2])


def attributes_for(case):
    kind, _, _, labels = CASES[case]
    yield Attribute.categorical("a", labels)
    yield Attribute.categorical("a", labels, missing="nothing", unlisted="another")
    yield Attribute.categorical("a", labels, missing=labels[0], unlisted=labels[-1])
    if kind in ("DATE", "TIMESTAMP"):
        for by, options in (("month", {"missing": "none", "unlisted": "clip"}), ("week", {"unlisted": "drop"})):
            yield Date.between("a", "2019-12-01", "2020-03-31", by=by, **options)
    elif "VARCHAR" not in kind:
        for edges in EDGES:
            yield Attribute.numeric("a", edges, missing="none")
            yield Attribute.numeric("a", edges, missing="none", unlisted="beyond")
            yield Attribute.numeric("a", [float(edge) for edge in edges], integer=False, unlisted="drop")


@pytest.mark.parametrize("case", CASES)
def test_every_value_has_the_code_that_it_has_elsewhere(case, put):
    kind, arrow, values, _ = CASES[case]
    table = pa.table({"a": pa.array(values, arrow), "row": pa.array([str(i) for i in range(len(values))])})
    connection = put(table, {"a": kind, "row": "VARCHAR"})
    row = Attribute.categorical("row", [str(i) for i in range(len(values))])
    for attribute in attributes_for(case):
        domain = Domain("t", (attribute, row))
        (expected,) = open_table(table, domain).exact_counts([("row", "a")])
        (found,) = open_table(connection, domain, table="t").exact_counts([("row", "a")])
        assert found.tolist() == expected.tolist(), attribute


def test_continuous_attributes_drop_the_records_that_they_drop_elsewhere(put):
    table = pa.table({"x": pa.array(FLOATS, pa.float64())})
    table = table.append_column("a", pa.array(["y"] * len(FLOATS)))
    connection = put(table, {"x": "DOUBLE", "a": "VARCHAR"})
    for unlisted in ("clip", "drop"):
        domain = Domain(
            "t", (Attribute.continuous("x", (0.1, 99.0), unlisted=unlisted), Attribute.categorical("a", ["y"]))
        )
        expected = open_table(table, domain).exact_counts([("a",), ()])
        found = open_table(connection, domain, table="t").exact_counts([("a",), ()])
        assert [each.tolist() for each in found] == [each.tolist() for each in expected]


def test_missing_tokens_are_missing_in_columns_of_any_type(put):
    table = pa.table({"a": ["x", "n/a", None, "y"], "n": [1, -9, None, 7], "f": [0.5, -9.0, math.nan, 2.0]})
    connection = put(table, {"a": "VARCHAR", "n": "INTEGER", "f": "DOUBLE"})
    domain = Domain(
        "t",
        (
            Attribute.categorical("a", ["x", "y"], missing="none"),
            Attribute.numeric("n", [-10, 0, 5, 10], missing="none"),
            Attribute.numeric("f", [-10.0, 0.0, 5.0], missing="none"),
        ),
    ).read_as(missing_tokens=["n/a", "-9"])
    marginals = [("a", "n", "f")]
    expected = open_table(table, domain).exact_counts(marginals)
    assert open_table(connection, domain, table="t").exact_counts(marginals)[0].tolist() == expected[0].tolist()


def test_units_that_are_missing_by_a_token_are_not_counted_as_elsewhere(put):
    rng = np.random.default_rng(4)
    values = {"a": [["x", "y"][i] for i in rng.integers(0, 2, 60)], "n": [[-9, 1, 2, None][i] for i in range(4)] * 15,
              "u": [["n/a", "ann", "'", "", None, "-9"][i] for i in rng.integers(0, 6, 60)]}  # fmt: skip
    table = pa.table({"a": values["a"], "n": pa.array(values["n"], pa.int64()), "u": values["u"]})
    connection = put(table, {"a": "VARCHAR", "n": "BIGINT", "u": "VARCHAR"})
    domain = Domain("t", (Attribute.categorical("a", ["x", "y"]),)).read_as(missing_tokens=["n/a", "-9", "'"])
    for unit in ("u", "n"):
        for rows in (2, 100):
            options = {"unit": unit, "max_rows_per_unit": rows}
            (expected,) = open_table(table, domain, **options).exact_counts([("a",)])
            (found,) = open_table(connection, domain, table="t", **options).exact_counts([("a",)])
            assert found.tolist() == expected.tolist(), options


def test_a_decimal_number_that_postgresql_calls_nan_is_missing(postgres):
    import psycopg

    connection = psycopg.connect(postgres, autocommit=True)
    connection.execute("DROP TABLE IF EXISTS decimals; CREATE TABLE decimals (a numeric(8,2))")
    connection.execute("INSERT INTO decimals VALUES ('NaN'), (1.5), (7), (NULL)")
    number = Attribute.numeric("a", [0.0, 2.0, 5.0], missing="none", unlisted="clip")
    label = Attribute.categorical("a", ["1.5", "7"], missing="none", unlisted="another")
    for attribute, counts in ((number, [1, 1, 2]), (label, [1, 1, 2, 0])):
        (found,) = open_table(connection, Domain("t", (attribute,)), table="decimals").exact_counts([("a",)])
        assert dict(zip(attribute.labels, found.tolist(), strict=True)) == dict(
            zip(attribute.labels, counts, strict=True)
        )


def test_a_table_is_described_by_its_own_database_and_by_no_namesake():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (a VARCHAR); INSERT INTO t VALUES ('1'), ('2')")
    connection.execute("ATTACH ':memory:' AS other; CREATE TABLE other.main.t (a INTEGER, b INTEGER)")
    connection.execute("INSERT INTO other.main.t VALUES (7, 1)")
    for table, label in (("t", "1"), ("main.t", "1"), ("memory.main.t", "1"), ("other.main.t", "7")):
        domain = Domain("t", (Attribute.categorical("a", [label]),))
        assert open_table(connection, domain, table=table).exact_counts([("a",)])[0].tolist() == [1]
    with pytest.raises(SourceError, match="has no table"):
        open_table(connection, Domain("t", (Attribute.categorical("b", ["1"]),)), table="memory.main.u")
    with pytest.raises(SourceError, match="has no column 'b'"):
        open_table(connection, Domain("t", (Attribute.categorical("b", ["1"]),)), table="t")


@pytest.mark.parametrize("engine", dialects.ENGINES, ids=lambda each: each.name)
def test_a_moment_depends_on_no_session_s_time_zone(engine, monkeypatch):
    monkeypatch.setattr(sql, "engine_of", lambda _: engine)
    march = Date.between("a", "2020-03-01", "2020-03-31", by="day")
    for name in (name for name, kind in engine.kinds if kind == "moment"):
        source = open_table(Described([("a", name, None, None)]), Domain("t", (march,)), table="t")
        (statement,) = source.statements([("a",)])
        assert {"snowflake": "TIMESTAMPNTZ", "databricks": "TIMESTAMP_NTZ"}.get(engine.dialect, "TIME") in statement
    if engine.dialect == "databricks":
        with pytest.raises(SourceError, match="has the type timestamp"):
            open_table(Described([("a", "TIMESTAMP", None, None)]), Domain("t", (march,)), table="t")


JANUARY = Date.between("a", "2020-01-01", "2020-01-31", by="day")
REFUSED = {
    "numbers in text": ("VARCHAR", pa.string(), Attribute.numeric("a", [0, 1]), "engines read numbers"),
    "dates in text": ("VARCHAR", pa.string(), JANUARY, "engines read dates"),
    "dates as numbers": ("DATE", pa.date32(), Attribute.numeric("a", [0, 1]), "declare it as dates"),
    "numbers as dates": ("INTEGER", pa.int32(), JANUARY, "holds no dates"),
    "many digits": ("DECIMAL(30,2)", pa.decimal128(30, 2), Attribute.numeric("a", [0, 1]), "more than 15 digits"),
    "another type": ("TIME", pa.time64("us"), Attribute.categorical("a", ["x"]), "has the type time"),
    "tiny": ("DECIMAL(30,20)", pa.decimal128(30, 20), Attribute.categorical("a", ["0.0000001"]), "below a millionth"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_column_that_engines_read_differently_is_refused_with_the_reason(case, put):
    kind, arrow, attribute, reason = REFUSED[case]
    connection = put(pa.table({"a": pa.array([], arrow)}), {"a": kind})
    with pytest.raises(SourceError, match=reason) as refused:
        open_table(connection, Domain("t", (attribute,)), table="t")
    assert "export" in str(refused.value)


# ----------------------------------------------------------------------------------------------------------------------
# Whole tables: rules, units, and as many marginals as are asked for.


REGIONS = {"Leith": "City", "Morningside": "City", "City": "Scotland", "Skye": "Scotland"}
DOMAIN = Domain(
    "people",
    (
        Attribute.categorical("sex", ["F", "M"], missing="unknown"),
        Attribute.categorical("children", ["0", "1", "2"], missing="0", unlisted="many"),
        Attribute.numeric("age", [0, 18, 65], unlisted="clip"),
        Attribute.numeric("income", [0.0, 0.5, 10.0], missing="none told", unlisted="beyond"),
        Attribute.hierarchy("home", REGIONS),
    ),
    (ImpossibleCells((("age", (0,)), ("children", (2, 3)))),),
)
TYPES = {
    "sex": "VARCHAR", "children": "BIGINT", "age": "INTEGER", "income": "DOUBLE", "home": "VARCHAR", "person": "BIGINT",
}  # fmt: skip
MARGINALS = [
    ("sex", "age"),
    (),
    ("income",),
    ("age", "sex", "children", "home", "income"),
    ("home", "age"),
    ("age", "home"),
]


def people(rows=700):
    rng = np.random.default_rng(3)
    values = {
        "sex": ["F", "M", "f", None], "children": [0, 1, 2, 9, None], "age": [-3, 5, 18, 64, 65, None],
        "income": [0.0, 0.5, 9.9, 10.0, 11.0, math.nan, None], "home": ["Leith", "Skye", "City", "Morningside", None],
        "person": [*range(90), None],
    }  # fmt: skip
    return pa.table({name: [each[i] for i in rng.integers(0, len(each), rows)] for name, each in values.items()})


@pytest.mark.parametrize("limits", [{}, {"sets": 2}, {"keys": 5}], ids=["together", "few sets", "few columns"])
def test_tables_have_the_counts_that_they_have_elsewhere(put, limits, monkeypatch):
    connection = put(people(), TYPES, "people")
    for options in ({}, {"unit": "person", "max_rows_per_unit": 3}, {"unit": "sex", "max_rows_per_unit": 20}):
        source = open_table(connection, DOMAIN, table="people", **options)
        for name, value in limits.items():
            monkeypatch.setattr(source, "_engine", replace(source._engine, **{name: value}))
        expected = open_table(people(), DOMAIN, **options).exact_counts(MARGINALS)
        assert [each.tolist() for each in source.exact_counts(MARGINALS)] == [each.tolist() for each in expected]
        assert len(source.statements(MARGINALS)) == (1 if not limits else 3 if "sets" in limits else 1)


def test_a_source_in_an_engine_says_so_and_tells_no_more(put):
    connection = put(people(9), TYPES, "people")
    source = open_table(connection, DOMAIN, table="people", name="our people")
    name = sql.engine_of(connection).name
    assert repr(source) == f"Source('people', counted in {name})"
    assert source.runs_code
    assert source.default_ledger_path is None
    measured = measure(source, Marginals(["sex"]), epsilon=1, simulate=1)
    assert measured.provenance["source"] == {"name": "our people", "counted": f"in {name}"}
    assert source.identity.seen_from(Path("."))["table"] == "people"


def test_points_are_refused_before_anything_is_paid(put, tmp_path):
    domain = Domain("t", (Attribute.continuous("x", (0, 1)), Attribute.continuous("y", (0, 1))))
    connection = put(pa.table({"x": [0.5], "y": [0.5]}), {"x": "DOUBLE", "y": "DOUBLE"})
    ledger = Ledger.create(tmp_path / "ledger", dataset="t", total=budget(epsilon=9))
    with pytest.raises(DeclarationError, match="not summed in SQL"):
        measure(open_table(connection, domain, table="t"), KMeans(2, rounds=2), ledger=ledger, epsilon=1)
    assert str(ledger.spent) == "0"


def test_a_table_that_is_gone_is_refused_without_a_word_of_the_engine(put):
    connection = put(people(9), TYPES, "people")
    source = open_table(connection, DOMAIN, table="people")
    connection.execute('DROP TABLE "people"')
    with pytest.raises(SourceError, match="could not be counted") as refused:
        source.exact_counts([("sex",)])
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


def test_what_is_no_table_or_no_engine_is_refused(put):
    connection = put(people(9), TYPES, "people")
    with pytest.raises(SourceError, match="has no table 'nobody'"):
        open_table(connection, DOMAIN, table="nobody")
    with pytest.raises(SourceError, match="has no column 'height'"):
        open_table(connection, Domain("t", (Attribute.categorical("height", ["x"]),)), table="people")
    for options in ({}, {"query": "SELECT 1"}, {"table": "people", "query": "SELECT 1"}):
        with pytest.raises(DeclarationError, match="name it with table="):
            open_table(connection, DOMAIN, **options)
    with pytest.raises(SourceError, match="names the units"):
        open_table(connection, DOMAIN, table="people", unit="income", max_rows_per_unit=1)

    class Stranger:
        def cursor(self):
            raise AssertionError

    with pytest.raises(DeclarationError, match="tables are counted in DuckDB, PostgreSQL"):
        open_table(Stranger(), DOMAIN, table="people")
    with pytest.raises(DeclarationError, match="begins with postgresql://"):
        open_table("mysql://somewhere/db", DOMAIN, table="people")


def test_the_command_line_counts_a_table_behind_a_url_and_shows_its_sql(postgres, tmp_path):
    in_postgres(people(), TYPES, "people", postgres).close()
    DOMAIN.save(tmp_path / "people.toml")
    command = ["measure", postgres, "--domain", str(tmp_path / "people.toml"), "--table", "people", "--plan", "1-way"]
    shown = CliRunner().invoke(app, [*command, "--epsilon", "1", "--show-sql"])
    assert shown.exit_code == 0, shown.output
    assert "GROUPING SETS" in shown.output
    assert len(sqlglot.parse(shown.output, read="postgres")[0].expressions) == len(DOMAIN.names) + 1
    ledger, out = tmp_path / "ledger", tmp_path / "out.parquet"
    done = CliRunner().invoke(app, [*command, "--epsilon", "1e6", "--ledger", str(ledger), "--out", str(out)])
    assert done.exit_code == 0, done.output
    measured = MeasurementSet.load(out)
    assert measured.provenance["source"]["counted"] == "in PostgreSQL"
    expected = open_table(people(), DOMAIN).exact_counts([each.query.attributes for each in measured])
    for each, exact in zip(measured, expected, strict=True):
        np.testing.assert_allclose(each.values, exact.ravel(), atol=0.5)
    assert str(tmp_path) not in str(measured.provenance)


def test_the_commands_on_the_page_work(postgres, tmp_path, monkeypatch):
    page = Path(__file__).parents[4] / "docs" / "how-to" / "run-where-the-data-is.md"
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if "postgresql://server/census" in line]
    in_postgres(people(), TYPES, "people", postgres).close()
    DOMAIN.save(tmp_path / "people.toml")
    monkeypatch.chdir(tmp_path)
    assert [line.split()[1] for line in lines] == ["measure", "release"]
    for line in lines:
        words = [postgres if word == "postgresql://server/census" else word for word in shlex.split(line)[1:]]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    assert (tmp_path / "release").is_dir()


# ----------------------------------------------------------------------------------------------------------------------
# Nothing that is declared gets out of its quotes, in any dialect.


HOSTILE = ['a"b', "a'b", "a`b", "a]b", "a;b", "a--b", "select", "GROUP", "a\\b", "a.b", "ä ö", "*", "x" * 300, "'); --"]


class Described:
    """A connection that only describes a table."""

    def __init__(self, columns):
        self._columns = columns
        self.asked = []

    def cursor(self):
        return self

    def execute(self, statement):
        self.asked.append(statement)

    def fetchall(self):
        return [("on",)] if "current_setting" in self.asked[-1] else self._columns

    def close(self):
        pass


def text_type(engine):
    return next(name for name, kind in engine.kinds if kind == "text")


@pytest.mark.parametrize("engine", dialects.ENGINES, ids=lambda each: each.name)
def test_hostile_names_and_labels_stay_names_and_labels_in_every_dialect(engine, monkeypatch):
    monkeypatch.setattr(sql, "engine_of", lambda _: engine)
    hostile = [each for each in HOSTILE if not (engine.escapes_vary and "\\" in each)]
    hostile = [each for each in hostile if not (engine.dialect == "bigquery" and "." in each)]  # has no such columns
    domain = Domain("t", tuple(Attribute.categorical(name, hostile) for name in hostile))
    connection = Described([(name, text_type(engine), None, None) for name in hostile])
    units = {} if engine.digest is None else {"unit": hostile[0], "max_rows_per_unit": 2}
    source = open_table(connection, domain, table='we"i`r]d;.table', **units)
    for asked in (connection.asked[-1], *source.statements([tuple(hostile[:2]), (hostile[-1],)])):
        (parsed,) = sqlglot.parse(asked, read=engine.dialect)
        assert isinstance(parsed, sqlglot.exp.Select)
    texts = {each.name for each in parsed.find_all(sqlglot.exp.Literal, sqlglot.exp.National)}
    assert set(hostile) <= texts
    assert set(hostile) <= {each.name for each in parsed.find_all(sqlglot.exp.Column)}
    tables = list(parsed.find_all(sqlglot.exp.Table))
    assert [(each.db, each.name) for each in tables] == [('we"i`r]d;', "table")]
    assert not list(parsed.find_all(sqlglot.exp.Command, sqlglot.exp.Drop, sqlglot.exp.Insert))


@pytest.mark.parametrize("engine", dialects.ENGINES, ids=lambda each: each.name)
def test_every_type_of_an_engine_is_written_in_its_dialect(engine, monkeypatch):
    monkeypatch.setattr(sql, "engine_of", lambda _: engine)
    attributes = {
        "text": Attribute.categorical("a", ["x", "é"], missing="none"), "whole": Attribute.numeric("a", [0, 5, 10]),
        "single": Attribute.numeric("a", [0.0, 0.5]), "double": Attribute.numeric("a", [0.0, 0.5], missing="none"),
        "decimal": Attribute.numeric("a", [0.0, 0.5]), "truth": Attribute.categorical("a", ["true", "false"]),
        "day": Date.between("a", "2020-01-01", "2020-03-31", by="month"),
        "moment": Date.between("a", "2020-01-01", "2020-03-31", by="week"),
    }  # fmt: skip
    for name, kind in engine.kinds:
        connection = Described([("a", name, 9, 2)])
        (statement,) = open_table(connection, Domain("t", (attributes[kind],)), table="t").statements([("a",)])
        assert len(sqlglot.parse(statement, read=engine.dialect)) == 1


def test_hostile_names_count_in_a_real_engine(put):
    longest = 63 if put.__name__ == "to_postgres" else 300  # PostgreSQL has no longer names
    names = [each for each in HOSTILE if len(each) <= longest]
    domain = Domain("t", tuple(Attribute.categorical(name, HOSTILE) for name in names))
    table = pa.table(dict.fromkeys(names, HOSTILE))
    connection = put(table, dict.fromkeys(names, "VARCHAR"), "t'; DROP")
    marginals = [(name,) for name in names]
    found = open_table(connection, domain, table="t'; DROP").exact_counts(marginals)
    assert [each.tolist() for each in found] == [[1] * len(HOSTILE)] * len(names)


def test_a_backslash_is_refused_where_a_setting_decides_what_it_means(monkeypatch, postgres):
    import psycopg

    connection = psycopg.connect(postgres, options="-c standard_conforming_strings=off")
    with pytest.raises(SourceError, match="standard_conforming_strings"):
        open_table(connection, DOMAIN, table="people")
    databricks = next(each for each in dialects.ENGINES if each.dialect == "databricks")
    monkeypatch.setattr(sql, "engine_of", lambda _: databricks)
    with pytest.raises(SourceError, match="backslash"):
        open_table(
            Described([("a", "string", None, None)]), Domain("t", (Attribute.categorical("a", ["\\"]),)), table="t"
        )


@pytest.mark.parametrize("name", ["SQL Server", "Oracle"])
def test_units_are_refused_where_no_hash_is_the_same(name, monkeypatch):
    engine = next(each for each in dialects.ENGINES if each.name == name)
    monkeypatch.setattr(sql, "engine_of", lambda _: engine)
    connection = Described([("a", text_type(engine), None, None), ("u", text_type(engine), None, None)])
    with pytest.raises(SourceError, match="chosen by a hash"):
        open_table(
            connection, Domain("t", (Attribute.categorical("a", ["x"]),)), table="t", unit="u", max_rows_per_unit=1
        )


def test_weights_amounts_and_open_lists_are_refused_before_anything_is_read():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (a VARCHAR, w DOUBLE)")
    counted = Domain("d", (Attribute.categorical("a", ["x"]),))
    weighted = replace(counted, weight=Summand("w", (0.0, 2.0)))
    with pytest.raises(DeclarationError, match="weights are not added up in SQL"):
        open_table(connection, weighted, table="t")
    source = open_table(connection, counted, table="t")
    with pytest.raises(DeclarationError, match="amounts of 'a' are not added up"):
        source.exact_counts([("a",)], amount="a")
    with pytest.raises(DeclarationError, match="are not looked for in SQL"):
        source.exact_value_counts("a")
