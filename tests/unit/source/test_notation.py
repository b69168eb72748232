"""Every source is read by the notation that its domain declares, and no value of it raises."""

import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain
from consilience.errors import SourceError
from consilience.source import open_table
from consilience.source.records import with_points
from consilience.source.values import numbers_of

PEOPLE = Domain(
    "people",
    (
        Attribute.categorical("ciudad", ["León", "Ávila", "Jaén"], missing="none", unlisted="other"),
        Attribute.numeric("renta", [0.0, 1000.0, 2000.0], missing="none", unlisted="drop"),
    ),
).read_as(decimal=",", thousands=".", missing_tokens=["NA", ""])

ROWS = [("León", "999,5"), ("Ávila", "1.234,5"), ("NA", "12"), ("Jaén", "NA"), ("Soria", "12.5"), ("", "1.000,0")]
EXPECTED = {
    ("León", "[0, 1000)"): 1,
    ("Ávila", "[1000, 2000]"): 1,
    ("none", "[0, 1000)"): 1,
    ("Jaén", "none"): 1,
    ("other", "none"): 1,
    ("none", "[1000, 2000]"): 1,
}


def cells(data: object, domain: Domain = PEOPLE, **options: Any) -> dict[tuple[str, ...], int]:
    names = domain.counted_names
    counted = open_table(data, domain, **options).exact_counts([names])[0]
    return {
        tuple(domain[name].labels[code] for name, code in zip(names, place, strict=True)): int(counted[place])
        for place in zip(*np.nonzero(counted), strict=True)
    }


def text(delimiter: str = ";") -> str:
    return "\n".join(delimiter.join(row) for row in [("ciudad", "renta"), *ROWS])


def test_every_kind_of_source_is_read_alike(tmp_path: Path) -> None:
    columns = {"ciudad": [row[0] for row in ROWS], "renta": [row[1] for row in ROWS]}
    (tmp_path / "t.csv").write_text(text(), encoding="utf-8")
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE t (ciudad, renta)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", ROWS)
    connection.close()
    with duckdb.connect(str(tmp_path / "t.duckdb")) as database:
        database.execute("CREATE TABLE t (ciudad VARCHAR, renta VARCHAR)")
        database.executemany("INSERT INTO t VALUES (?, ?)", ROWS)
    assert cells(tmp_path / "t.csv") == EXPECTED
    assert cells(tmp_path / "t.parquet") == EXPECTED
    assert cells(tmp_path / "t.sqlite", table="t") == EXPECTED
    assert cells(tmp_path / "t.duckdb", table="t") == EXPECTED
    for frame in (pa.table(columns), pl.DataFrame(columns), pd.DataFrame(columns), pd.DataFrame(columns, dtype=object)):
        assert cells(frame) == EXPECTED
    assert cells(pd.DataFrame(columns, dtype="category")) == EXPECTED


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "cp850"])
@pytest.mark.parametrize("size", [7, 2**23])
def test_other_encodings_are_read_as_if_saved_in_utf_8(tmp_path: Path, monkeypatch, encoding: str, size: int) -> None:
    monkeypatch.setattr("consilience.source.delimited.BYTES_PER_BATCH", size)
    (tmp_path / "t.csv").write_bytes(text().encode(encoding))
    assert cells(tmp_path / "t.csv", PEOPLE.read_as(encoding=encoding)) == EXPECTED


def test_in_the_wrong_encoding_accented_labels_follow_the_rule(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(text().encode("latin-1"))
    found = cells(tmp_path / "t.csv")
    assert sum(count for (city, _), count in found.items() if city == "other") == 4
    assert cells(tmp_path / "t.csv", PEOPLE.read_as(encoding="cp1251")) != EXPECTED


@settings(deadline=None, max_examples=40)
@given(st.binary(max_size=40), st.sampled_from(["latin-1", "cp1252", "utf-16", "utf-7", "shift_jis", "gb18030"]))
def test_no_bytes_of_a_record_raise(tmp_path_factory, record: bytes, encoding: str) -> None:
    path = tmp_path_factory.mktemp("bytes") / "t.csv"
    path.write_bytes("ciudad;renta\n".encode(encoding) + record)
    assert all(count > 0 for count in cells(path, PEOPLE.read_as(encoding=encoding)).values())


def test_a_declared_delimiter_is_the_only_one(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text("^"), encoding="utf-8")
    assert cells(tmp_path / "t.csv", PEOPLE.read_as(delimiter="^")) == EXPECTED
    with pytest.raises(SourceError, match="has no column 'ciudad', 'renta'"):
        open_table(tmp_path / "t.csv", PEOPLE.read_as(delimiter=","))


def test_a_header_that_is_no_text_says_how_to_declare_its_encoding(tmp_path: Path) -> None:
    domain = Domain("d", (Attribute.categorical("año", ["1", "2"]),))
    (tmp_path / "t.csv").write_bytes("año,x\n1,2\n".encode("latin-1"))
    with pytest.raises(SourceError, match=r"no text in utf-8.*encoding = \"latin-1\""):
        open_table(tmp_path / "t.csv", domain)
    (tmp_path / "t.csv").write_bytes("año,x\n1,2\n".encode("utf-16"))
    with pytest.raises(SourceError, match=r"does not begin with a header in utf-8.*--encoding"):
        open_table(tmp_path / "t.csv", domain)
    assert cells(tmp_path / "t.csv", domain.read_as(encoding="utf-16")) == {("1",): 1}


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_the_header_is_the_same_record_in_every_encoding(tmp_path: Path, monkeypatch, encoding: str) -> None:
    # A quote opens the second name, and closes it on a later line, within the longest record in letters alone.
    monkeypatch.setattr("consilience.source.delimited.LONGEST_RECORD", 64)
    domain = Domain("d", (Attribute.categorical("c", ["1", "2"]),)).read_as(encoding=encoding)
    (tmp_path / "t.csv").write_bytes(('a,"b,c\n' + "1,2,1\n" * 7 + 'x",y\n' + "1,2,1\n" * 20).encode(encoding))
    with pytest.raises(SourceError, match="has no column 'c'"):
        open_table(tmp_path / "t.csv", domain)


def test_a_stored_number_is_that_number_whatever_marks_are_declared(tmp_path: Path) -> None:
    domain = Domain("d", (Attribute.numeric("x", [0.0, 10.0, 20.0, 20000.0], missing="none", unlisted="drop"),))
    marked = domain.read_as(decimal=",", thousands=".", missing_tokens=["-9"])
    expected = {("[0, 10)",): 1, ("[10, 20)",): 3, ("none",): 1}
    values = ["9,5", 12.125, 12, "13,0", -9]
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
    connection.close()
    assert cells(tmp_path / "t.sqlite", marked, table="t") == expected
    assert cells(pd.DataFrame({"x": values}, dtype=object), marked) == expected
    assert cells(pa.table({"x": [12.125, 12.5, None]}), marked) == {("[10, 20)",): 2, ("none",): 1}
    assert cells(pa.table({"x": [12, -9]}), marked) == {("[10, 20)",): 1, ("none",): 1}


def test_a_unit_may_be_missing_too(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("who,x\n1,a\nNA,a\n2,a\n", encoding="utf-8")
    domain = Domain("d", (Attribute.categorical("x", ["a"]),))
    assert cells(tmp_path / "t.csv", domain, unit="who", max_rows_per_unit=1) == {("a",): 3}
    tokens = domain.read_as(missing_tokens=["NA"])
    assert cells(tmp_path / "t.csv", tokens, unit="who", max_rows_per_unit=1) == {("a",): 2}


@settings(deadline=None, max_examples=40)
@given(st.integers(-(10**12), 10**12).map(lambda n: n / 1000), st.sampled_from(",·"), st.sampled_from(".' \u202f"))
def test_numbers_are_read_back_from_any_marks(number: float, decimal: str, thousands: str) -> None:
    written = f"{number:,.3f}".replace(",", "T").replace(".", decimal).replace("T", thousands)
    texts = pa.array([written.encode(), f"{number:.3f}".replace(".", decimal).encode()])
    assert list(numbers_of(with_points(texts, decimal, thousands))) == [number, number]
