"""A source that cannot be read is refused in fixed words: no value, no name of its own, no engine's exception."""

import gzip
import os
import sqlite3
import traceback

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.curation import check_domain
from consilience.domain import Attribute, Domain
from consilience.errors import ConsilienceError, DeclarationError, SourceError
from consilience.source import delimited, open_table
from consilience.source.readers import attempt, attempt_each

CANARY = "canary7391"
DOMAIN = Domain("d", (Attribute.categorical("a", ["0", "1"]), Attribute.numeric("b", [0, 10])))
FRAME = pd.DataFrame({"a": [CANARY] * 3, "b": [CANARY] * 3, CANARY: [1, 2, 3]})


def chain(error):
    """An exception with all that lead to it."""
    seen = []
    pending = [error]
    while pending:
        one = pending.pop()
        if one is not None and one not in seen:
            seen.append(one)
            pending += [one.__cause__, one.__context__]
    return seen


def refusal(action, kind=SourceError):
    """The text with which an action is refused, after looking for the canary wherever an exception can hold it."""
    with pytest.raises(kind) as caught:
        action()
    for error in chain(caught.value):
        assert isinstance(error, ConsilienceError)
        held = [str(error), repr(error), *map(str, error.args), *getattr(error, "__notes__", [])]
        assert CANARY not in " ".join(held)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


def count(data, **options):
    return open_table(data, DOMAIN, **options).exact_counts([("a",)])


@pytest.fixture(autouse=True)
def nothing_is_printed_or_logged(capfd, caplog):
    with caplog.at_level("DEBUG"):
        yield
    printed = capfd.readouterr()
    assert CANARY not in printed.out + printed.err + caplog.text


def test_an_absent_file_and_a_pattern_without_match(tmp_path):
    assert "there is no file" in refusal(lambda: count(tmp_path / "absent.csv"))
    assert "no file matches" in refusal(lambda: count(str(tmp_path / "*.parquet")))
    assert "there is no file" in refusal(lambda: count(tmp_path / "absent.duckdb", table="t"))


def test_a_directory(tmp_path):
    (tmp_path / "a.csv").mkdir()
    assert "directory/*.parquet" in refusal(lambda: count(tmp_path / "a.csv"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root and Windows may read everything")
@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.db"])
def test_a_file_without_permission(tmp_path, name):
    path = tmp_path / name
    path.write_text(CANARY)
    path.chmod(0)
    options = {"table": "t"} if name == "a.db" else {}
    assert "may read" in refusal(lambda: count(path, **options))


def test_a_file_that_the_system_does_not_let_us_open(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n")

    def refuse(path):
        raise PermissionError(13, "Permission denied", f"directory/{CANARY}")

    monkeypatch.setattr(delimited, "open_bytes", refuse)
    assert "may read" in refusal(lambda: count(path))
    assert "may read" in refusal(lambda: check_domain(path, DOMAIN))


def forms_of(frame, directory):
    """The same table in every form, with its options."""
    frame.to_csv(directory / "t.csv", index=False)
    frame.to_parquet(directory / "t.parquet")
    with sqlite3.connect(directory / "t.sqlite") as connection:
        frame.to_sql("t", connection, index=False)
    connection.close()
    with duckdb.connect(str(directory / "t.duckdb")) as connection:
        connection.register("given", frame)
        connection.execute("CREATE TABLE t AS SELECT * FROM given")
    return [
        (directory / "t.csv", {}),
        (directory / "t.parquet", {}),
        (directory / "t.sqlite", {"table": "t"}),
        (directory / "t.duckdb", {"table": "t"}),
        (frame, {}),
        (pl.from_pandas(frame), {}),
        (pl.from_pandas(frame).lazy(), {}),
        (pa.Table.from_pandas(frame), {}),
    ]


def test_an_absent_column_is_named_by_its_declaration_alone(tmp_path):
    for data, options in forms_of(FRAME.rename(columns={"b": "B"}), tmp_path):
        text = refusal(lambda data=data, options=options: count(data, **options))
        assert "has no column 'b'" in text
        assert "'B'" not in text


def test_an_absent_unit_column(tmp_path):
    for data, options in forms_of(FRAME, tmp_path):
        options = options | {"unit": "who", "max_rows_per_unit": 1}
        assert "has no column 'who'" in refusal(lambda data=data, options=options: count(data, **options))


def test_a_column_that_is_there_twice(tmp_path):
    twice = pd.DataFrame([["0", CANARY, 1]], columns=["a", "a", "b"])
    (tmp_path / "t.csv").write_text(f"a,b,a\n0,1,{CANARY}\n")
    array = pa.array([CANARY])
    table = pa.Table.from_arrays([array, array, array], names=["a", "b", "a"])
    pq.write_table(table, tmp_path / "t.parquet")
    for data in (twice, tmp_path / "t.csv", table, tmp_path / "t.parquet"):
        assert "more than one column 'a'" in refusal(lambda data=data: count(data))
    path = forms_of(FRAME, tmp_path / ".")[3][0]
    query = "SELECT a, b, a FROM t"
    assert "more than one column 'a'" in refusal(lambda: count(path, query=query))


def test_undeclared_columns_may_be_there_twice():
    arrays = [pa.array(["0"]), pa.array([1]), pa.array([1]), pa.array([1])]
    table = pa.Table.from_arrays(arrays, names=["a", "b", "x", "x"])
    for data in (table, pd.DataFrame([["0", 1, 1, 1]], columns=["a", "b", "x", "x"])):
        assert count(data)[0].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("binary.csv", b"\x00\x01" + CANARY.encode() + b"\x00"),
        ("foreign.parquet", CANARY.encode() * 20),
        ("empty.parquet", b""),
        ("foreign.csv.gz", CANARY.encode()),
        ("foreign.db", CANARY.encode()),
        ("foreign.sqlite", b"SQLite format 3\x00" + CANARY.encode() * 50),
        ("foreign.duckdb", b"12345678DUCK" + CANARY.encode() * 500),
        ("empty.duckdb", b""),
    ],
)
def test_a_file_that_is_not_what_its_name_says(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    options = {"table": "t"} if path.suffix in (".db", ".sqlite", ".duckdb") else {}
    refusal(lambda: count(path, **options))


def test_a_text_that_is_no_table_lacks_the_declared_columns(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"dear {CANARY},\nhow are you; well | I hope\n")
    assert "has no column 'a', 'b'" in refusal(lambda: count(path))


def test_a_truncated_archive(tmp_path):
    path = tmp_path / "t.csv.gz"
    rng = np.random.default_rng(0)
    rows = "".join(f"{CANARY}{rng.integers(10**12)},1\n" for _ in range(100_000))
    path.write_bytes(gzip.compress(f"a,b\n{rows}".encode())[:-1000])
    assert "is whole" in refusal(lambda: count(path))


def test_a_parquet_file_with_damaged_pages(tmp_path):
    path = tmp_path / "t.parquet"
    texts = [f"{CANARY}{i}" for i in range(5000)]
    pq.write_table(pa.table({"a": texts, "b": texts}), path, use_dictionary=False, compression="zstd")
    content = bytearray(path.read_bytes())
    content[200 : len(content) // 2] = b"\xaa" * (len(content) // 2 - 200)
    path.write_bytes(content)
    source = open_table(path, DOMAIN)
    assert "cannot be read as Parquet" in refusal(lambda: source.exact_counts([("a",)]))


def test_a_file_that_is_gone_when_it_is_counted(tmp_path):
    for data, options in forms_of(FRAME, tmp_path)[:4]:
        source = open_table(data, DOMAIN, **options)
        data.rename(data.with_suffix(".gone"))
        refusal(lambda source=source: source.exact_counts([("a",)]))


def test_tables_and_queries_that_fail(tmp_path):
    _, _, (sqlite_path, _), (duckdb_path, _) = forms_of(FRAME, tmp_path)[:4]
    for path in (sqlite_path, duckdb_path):
        refusal(lambda path=path: count(path, table=f"absent_{CANARY}"))
        refusal(lambda path=path: count(path, query="SELECT absent FROM t"))
        refusal(lambda path=path: count(path, query=f"no SQL {CANARY}"))
    failing = "SELECT a, CAST(b AS INTEGER) AS b FROM t"
    assert "runs without errors" in refusal(lambda: count(duckdb_path, query=failing))
    failing = "SELECT a, abs(-9223372036854775808) AS b FROM t"
    assert "runs without errors" in refusal(lambda: count(sqlite_path, query=failing))


def test_queries_can_neither_write_nor_reach_other_files(tmp_path):
    _, _, (sqlite_path, _), (duckdb_path, _) = forms_of(FRAME, tmp_path)[:4]
    other = tmp_path / "other.csv"
    other.write_text("a,b\n0,1\n")
    refusal(lambda: count(duckdb_path, query=f"SELECT * FROM read_csv('{other}')"))
    refusal(lambda: count(duckdb_path, query=f"SELECT * FROM '{tmp_path / 't.parquet'}'"))
    refusal(lambda: count(duckdb_path, query=f"COPY t TO '{tmp_path / 'copy.csv'}'"), DeclarationError)
    before = sorted(tmp_path.iterdir())
    for query in (
        f"ATTACH '{tmp_path / 'new.db'}' AS x",
        "DELETE FROM t",
        "CREATE TABLE x (a)",
        "PRAGMA user_version = 3",
    ):
        refusal(lambda query=query: count(sqlite_path, query=query))
    assert sorted(tmp_path.iterdir()) == before


def test_a_lazy_frame_whose_plan_fails():
    lazy = pl.LazyFrame({"a": [CANARY], "b": [CANARY]}).with_columns(pl.col("a").cast(pl.Int64))
    assert "the data frame cannot be read" in refusal(lambda: count(lazy))


def test_columns_of_a_type_that_the_declaration_excludes(tmp_path):
    nested = pa.table({"a": [[CANARY]], "b": [1]})
    dates = pa.table({"a": ["0"], "b": pa.array([0], pa.date32())})
    pq.write_table(nested, tmp_path / "nested.parquet")
    for data in (nested, tmp_path / "nested.parquet", pl.DataFrame(nested)):
        assert "holds nested values, but is declared as a categorical attribute" in refusal(
            lambda data=data: count(data)
        )
    for data in (dates, dates.to_pandas(date_as_object=False)):
        assert "holds dates, times or durations" in refusal(lambda data=data: count(data))
    unit = {"unit": "u", "max_rows_per_unit": 1}
    table = pa.table({"a": ["0"], "b": [1], "u": [[1]]})
    assert "declared as a unit" in refusal(lambda: count(table, **unit))


def test_strange_objects_in_a_pandas_column_are_records_not_errors():
    frame = pd.DataFrame({"a": pd.Series([[CANARY], {1: 2}, "0", None, 1, 1.0], dtype=object), "b": 5})
    assert count(frame)[0].tolist() == [1, 2]


def test_an_attempt_hides_the_engine_and_passes_on_our_own_errors():
    def fail():
        raise ValueError(CANARY)

    def refuse():
        raise DeclarationError("ours")

    assert refusal(lambda: attempt(fail, "refused")) == "refused"
    with pytest.raises(DeclarationError, match="ours"):
        attempt(refuse, "refused")
    assert attempt(lambda: 5, "refused") == 5


def test_attempts_at_each_item_end_at_the_first_failure_and_close_what_they_read():
    closed = []

    def items():
        try:
            yield 1
            raise ValueError(CANARY)
        finally:
            closed.append(True)

    found = []
    assert refusal(lambda: found.extend(attempt_each(items(), "refused"))) == "refused"
    assert list(attempt_each((i for i in range(3)), "refused")) == [0, 1, 2]
    assert closed == [True]
