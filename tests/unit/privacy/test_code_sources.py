"""Queries, views and lazy plans may fail on some rows and not on others: they are paid for before they are read."""

import sqlite3
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from consilience.domain import Domain
from consilience.errors import ConsilienceError, LedgerError, SourceError, TooLarge
from consilience.measuring import measure
from consilience.plans import Flat, Marginals
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

DOMAIN = Domain.from_sizes({"a": 2, "b": 2}, name="town")
ROWS = "(VALUES (0, 0), (1, 1), (1, 0)) AS rows (a, b)"
FAILING = {
    "DuckDB": "CASE WHEN a = 1 AND b = 1 THEN error('somebody is here') ELSE a END",
    "SQLite": "CASE WHEN a = 1 AND b = 1 THEN abs(-9223372036854775808) ELSE a END",
}
"""A column that fails on one person's row: the failure would be an exact answer about that person."""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "town.ledger", dataset="town", total=budget(epsilon=1))


def database(folder: Path, engine: str) -> str:
    failing = FAILING[engine]
    statements = [
        "CREATE TABLE people (a INTEGER, b INTEGER)",
        "INSERT INTO people VALUES (0, 0), (1, 1), (1, 0)",
        f"CREATE VIEW seen AS SELECT {failing} AS a, b FROM people",
        "CREATE VIEW sound AS SELECT a, b FROM people",
        "CREATE TABLE computed (x INTEGER, b INTEGER, a INTEGER GENERATED ALWAYS AS (x + 0))",
    ]
    path = folder / ("town.duckdb" if engine == "DuckDB" else "town.db")
    connection = duckdb.connect(str(path)) if engine == "DuckDB" else sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return str(path)


def queries(engine: str) -> dict[str, str]:
    failing = FAILING[engine]
    return {
        "a query": f"SELECT {failing} AS a, b FROM people",
        "an aggregate": f"SELECT max({failing}) AS a, 0 AS b FROM people",
        "a sorted query": f"SELECT a, b FROM people ORDER BY {failing}",
        "a subquery": f"SELECT (SELECT max({failing}) FROM people) AS a, b FROM people",
        "a common table": f"WITH t AS MATERIALIZED (SELECT {failing} AS a, b FROM people) SELECT a, b FROM t",
        "a limit": f"SELECT a, b FROM people LIMIT (SELECT max({failing}) FROM people)",
    }


KINDS = ["a view", *queries("SQLite")]


def failing_source(folder: Path, engine: str, kind: str):
    path = database(folder, engine)
    if kind == "a view":
        return open_table(path, DOMAIN, table="seen")
    return open_table(path, DOMAIN, query=queries(engine)[kind])


@pytest.mark.parametrize("engine", FAILING)
@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_query_or_view_raises_nothing_when_it_is_opened_and_is_charged_when_it_is_read(
    engine: str, kind: str, ledger: Ledger, tmp_path: Path
):
    source = failing_source(tmp_path, engine, kind)
    assert ledger.spent == 0
    with pytest.raises(SourceError, match="The charge stays") as refused:
        measure(source, Flat(), ledger=ledger, epsilon=0.25)
    assert "somebody" not in str(refused.value)
    assert ledger.spent == Decimal("0.25")
    assert [entry.state for entry in ledger.entries()] == ["failed"]


@pytest.mark.parametrize("engine", FAILING)
def test_a_request_whose_source_failed_is_not_read_again_for_free(engine: str, ledger: Ledger, tmp_path: Path):
    source = failing_source(tmp_path, engine, "a query")
    with pytest.raises(SourceError):
        measure(source, Flat(), ledger=ledger, epsilon=0.25)
    with pytest.raises(LedgerError, match="failed while it was read"):
        measure(source, Flat(), ledger=ledger, epsilon=0.25)
    assert ledger.spent == Decimal("0.25")
    with pytest.raises(SourceError):
        measure(source, Flat(), ledger=ledger, epsilon=0.25, id="again")
    assert ledger.spent == Decimal("0.5")


def failing_frame() -> pl.LazyFrame:
    def fail(_: pl.DataFrame) -> pl.DataFrame:
        raise ValueError("somebody is here")

    return pl.LazyFrame({"a": [0, 1], "b": [0, 1]}).map_batches(fail)


class Odd:
    """A value that answers by failing."""

    def __str__(self) -> str:
        raise MemoryError("somebody is here")


@pytest.mark.parametrize(
    "frame",
    [failing_frame, lambda: pd.DataFrame({"a": [0, Odd()], "b": [0, 1]})],
    ids=["polars lazy", "pandas objects"],
)
def test_a_lazy_plan_or_an_object_that_fails_is_charged(frame, ledger: Ledger):
    source = open_table(frame(), DOMAIN)
    assert source.runs_code
    with suppress(ConsilienceError):  # an odd value may also count as one that is not listed
        measure(source, Flat(), ledger=ledger, epsilon=0.25)
    assert ledger.spent == Decimal("0.25")


def test_running_out_of_memory_keeps_the_charge(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = open_table(database(tmp_path, "DuckDB"), DOMAIN, query="SELECT * FROM people")

    def exhausted(*_: object):
        raise MemoryError
        yield

    monkeypatch.setattr(type(source._reader), "_batches", exhausted)
    with pytest.raises(SourceError, match="The charge stays"):
        measure(source, Flat(), ledger=ledger, epsilon=0.25)
    assert ledger.spent == Decimal("0.25")


def test_what_declarations_refuse_costs_nothing_even_for_a_query(ledger: Ledger, tmp_path: Path, monkeypatch):
    source = open_table(database(tmp_path, "DuckDB"), DOMAIN, query="SELECT * FROM people")
    monkeypatch.setattr("consilience.source.base.LARGEST_COUNTS", 8)
    with pytest.raises(TooLarge):
        measure(source, Marginals([("a", "b")]), ledger=ledger, epsilon=0.25)
    assert ledger.spent == 0


@pytest.mark.parametrize("engine", FAILING)
def test_tables_are_stored_and_views_and_computed_columns_are_code(engine: str, tmp_path: Path):
    path = database(tmp_path, engine)
    names = ["people", "PEOPLE", *(["main.people"] if engine == "DuckDB" else [])]
    assert [open_table(path, DOMAIN, table=name).runs_code for name in names] == [False] * len(names)
    assert open_table(path, DOMAIN, table="sound").runs_code
    assert open_table(path, DOMAIN, table="computed").runs_code
    assert open_table(path, DOMAIN, query="SELECT a, b FROM people").runs_code


def test_a_virtual_table_is_code(tmp_path: Path):
    connection = sqlite3.connect(tmp_path / "town.db")
    connection.execute("CREATE VIRTUAL TABLE people USING fts4(a, b)")
    connection.close()
    assert open_table(str(tmp_path / "town.db"), DOMAIN, table="people").runs_code


def test_frames_of_typed_columns_and_files_are_stored(tmp_path: Path):
    (tmp_path / "town.csv").write_text("a,b\n0,1\n")
    columns = {"a": ["0"], "b": ["1"]}
    for data in (str(tmp_path / "town.csv"), pa.table(columns), pl.DataFrame(columns)):
        assert not open_table(data, DOMAIN).runs_code
    assert open_table(pl.LazyFrame(columns), DOMAIN).runs_code


def test_a_file_that_cannot_be_read_costs_nothing(ledger: Ledger, tmp_path: Path):
    (tmp_path / "town.csv").write_text("a,b\n0,1\n")
    source = open_table(str(tmp_path / "town.csv"), DOMAIN)
    (tmp_path / "town.csv").unlink()
    with pytest.raises(SourceError):
        measure(source, Flat(), ledger=ledger, epsilon=0.25)
    assert ledger.spent == 0


@pytest.mark.parametrize("engine", FAILING)
def test_a_query_with_a_repeated_column_is_refused_when_it_is_opened(engine: str, tmp_path: Path):
    with pytest.raises(SourceError, match=r"more than one column 'a'|cannot be read"):
        open_table(database(tmp_path, engine), DOMAIN, query="SELECT a, a, b FROM people")
