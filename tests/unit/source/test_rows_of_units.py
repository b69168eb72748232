"""Which rows of a unit are counted depends on that unit's rows alone, whatever engine reads them in whatever order."""

import csv
import sqlite3
from functools import cache

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain
from consilience.errors import TooLarge
from consilience.source import local, open_table

DOMAIN = Domain(
    "visits",
    (
        Attribute.categorical("ward", [str(number) for number in range(40)]),
        Attribute.numeric("hour", list(range(0, 25, 2))),
        Attribute.continuous("cost", (-1.0, 100.0)),
        Attribute.categorical("paid", ["yes", "no"], unlisted="drop"),
    ),
)
NAMES = ("person", *DOMAIN.names)


def visits(people, *, seed=5):
    """Three visits of each person; what a person's are does not depend on the other people."""
    return [row for person in people for row in visits_of(person, seed)]


@cache
def visits_of(person, seed):
    rng = np.random.default_rng((seed, person))
    rows = []
    for _ in range(3):
        cost = round(float(rng.uniform(-5, 120)), 2)
        paid = str(rng.choice(["yes", "no", "?"], p=[0.5, 0.4, 0.1]))
        rows.append((person, int(rng.integers(0, 40)), int(rng.integers(0, 24)), cost, paid))
    return rows


def as_arrow(rows):
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(NAMES)})


def as_csv(rows, directory):
    with (directory / "visits.csv").open("w", newline="") as file:
        csv.writer(file).writerows([NAMES, *rows])
    return {"data": directory / "visits.csv"}


def as_parquet(rows, directory):
    pq.write_table(as_arrow(rows), directory / "visits.parquet", row_group_size=700)
    return {"data": directory / "visits.parquet"}


def as_database(rows, directory):
    """A DuckDB database with the visits, a table of people and one of their visits, and views."""
    path = directory / "visits.duckdb"
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.register("given", as_arrow(rows))
        connection.execute("CREATE TABLE visits AS SELECT * FROM given")
        connection.execute("CREATE TABLE people AS SELECT DISTINCT person FROM given")
        connection.execute("CREATE VIEW joined AS SELECT v.* FROM people p JOIN visits v ON p.person = v.person")
    return path


def as_table(rows, directory):
    return {"data": as_database(rows, directory), "table": "visits"}


def as_join(rows, directory):
    return {
        "data": as_database(rows, directory),
        "query": "SELECT v.* FROM people AS p JOIN visits AS v ON p.person = v.person",
    }


def as_distinct(rows, directory):
    return {"data": as_database(rows, directory), "query": "SELECT DISTINCT * FROM visits"}


def as_view(rows, directory):
    return {"data": as_database(rows, directory), "table": "joined"}


def as_sqlite(rows, directory):
    path = directory / "visits.sqlite"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE visits ({', '.join(NAMES)})")
    connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return {"data": path, "query": "SELECT * FROM visits ORDER BY abs(person * 7919 - 5000)"}


def as_pandas(rows, directory):
    return {"data": as_arrow(rows).to_pandas().sample(frac=1.0, random_state=len(rows))}


def as_polars(rows, directory):
    return {"data": pl.from_arrow(as_arrow(rows))}


def as_lazy_polars(rows, directory):
    frame = pl.from_arrow(as_arrow(rows))
    return {"data": frame.lazy().unique()}


FORMS = [
    as_csv, as_parquet, as_table, as_join, as_distinct, as_view, as_sqlite, as_pandas, as_polars, as_lazy_polars,
]  # fmt: skip


def opened(form, rows, directory, *, limit=1):
    return open_table(**form(rows, directory), domain=DOMAIN, unit="person", max_rows_per_unit=limit)


def counted(source, threads=None):
    """Counts of all three discrete attributes, and the sum of the points on their lattice."""
    (counts,) = source.exact_counts([("ward", "hour", "paid")], threads=threads)
    return counts, np.sort(source.exact_points(["cost"])[:, 0])


@pytest.mark.parametrize("form", FORMS)
def test_one_person_more_changes_no_row_of_anyone_else(form, tmp_path):
    people = list(range(1500))
    for newcomer, threads in ((9999, 1), (0, 4)):
        others = [person for person in people if person != newcomer]
        without, points = counted(opened(form, visits(others), tmp_path), threads)
        joined, more_points = counted(opened(form, visits([newcomer, *others]), tmp_path), threads)
        assert np.abs(joined - without).sum() == 1
        assert (joined - without).sum() == 1
        assert len(more_points) - len(points) == 1
        assert len(np.setdiff1d(more_points, points)) <= 1


@pytest.mark.parametrize("form", FORMS)
def test_every_engine_keeps_the_same_rows_with_any_number_of_threads(form, tmp_path):
    rows = list(dict.fromkeys(visits(range(300))))
    expected, points = counted(opened(as_csv, rows, tmp_path, limit=2), 1)
    for threads in (1, 4):
        found, own = counted(opened(form, rows, tmp_path, limit=2), threads)
        assert np.array_equal(found, expected)
        assert np.array_equal(own, points)


@pytest.mark.parametrize("form", FORMS)
def test_steps_that_count_different_columns_see_the_same_rows(form, tmp_path):
    source = opened(form, visits(range(300)), tmp_path)
    (whole,) = source.exact_counts([("ward", "hour", "paid")])
    for names, axes in ((("ward",), (1, 2)), (("hour",), (0, 2)), (("paid",), (0, 1)), ((), (0, 1, 2))):
        (alone,) = source.exact_counts([names])
        assert np.array_equal(alone, whole.sum(axis=axes))


values = st.tuples(
    st.sampled_from(["1", "2", None]),
    st.sampled_from(["0", "1", "7"]),
    st.sampled_from([0, 1, 23, None]),
    st.sampled_from([-0.0, 0.0, 0.1, 1e-30, 500.0, -1.0, float("nan"), None]),
    st.sampled_from(["yes", "no", "?"]),
)


@given(st.lists(values, max_size=15), st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_order_threads_and_joins_do_not_change_what_is_kept(rows, limit, random):
    source = open_table(as_pandas_frame(rows), DOMAIN, unit="person", max_rows_per_unit=limit)
    expected, points = counted(source, 1)
    turned = list(rows)
    random.shuffle(turned)
    frame = pl.from_pandas(as_pandas_frame(turned)).lazy()
    people = pl.LazyFrame({"person": ["2", "1", "3"]})
    for data in (as_pandas_frame(turned), frame.join(people, on="person"), frame.sort("hour")):
        found, own = counted(open_table(data, DOMAIN, unit="person", max_rows_per_unit=limit), random.randint(1, 4))
        assert np.array_equal(found, expected)
        assert np.array_equal(own, points)


def as_pandas_frame(rows):
    columns = {name: [row[place] for row in rows] for place, name in enumerate(NAMES)}
    kinds = {"person": "str", "ward": "str", "hour": "float64", "cost": "float64", "paid": "str"}
    return pd.DataFrame({name: pd.Series(column, dtype=kinds[name]) for name, column in columns.items()})


def test_units_are_told_apart_by_their_bytes_and_numbers_by_their_values():
    domain = Domain("d", (Attribute.categorical("a", ["0"]),))

    def units(column):
        frame = pa.table({"a": ["0"] * len(column), "who": column})
        return int(open_table(frame, domain, unit="who", max_rows_per_unit=1).exact_counts([()])[0])

    assert units(pa.array(["é", "e\u0301", "E", "e", "e ", "ſ", "s"])) == 7
    assert units(pa.array([0.0, -0.0, 1.0, float("nan"), None])) == 2
    assert units(pa.array([1, 1, 2, None], pa.int8())) == 2

    def kept(column):
        frame = pa.table({"a": [0, 1, 2, 3] * len(column), "who": column * 4})
        of_four = Domain("d", (Attribute.categorical("a", ["0", "1", "2", "3"]),))
        return open_table(frame, of_four, unit="who", max_rows_per_unit=1).exact_counts([("a",)])[0].tolist()

    for number in range(10):
        assert kept([number]) == kept([float(number)]) == kept([str(number)])


def test_units_that_do_not_fit_in_memory_are_taken_part_by_part(tmp_path, monkeypatch):
    source = opened(as_parquet, visits(range(2000)), tmp_path, limit=2)
    expected, points = counted(source)
    reads = []
    original = type(source._reader).batches
    monkeypatch.setattr(type(source._reader), "batches", lambda *given: reads.append(1) or original(*given))
    monkeypatch.setattr(local, "LARGEST_UNIT_ROWS", 400_000)
    found, own = counted(source)
    assert len(reads) > 4
    assert np.array_equal(found, expected)
    assert np.array_equal(own, points)
    monkeypatch.setattr(local, "LARGEST_UNIT_ROWS", 1000)
    monkeypatch.setattr("consilience.source.unit_rows.MOST_SPLITS", 2)
    with pytest.raises(TooLarge, match="coarser attributes"):
        source.exact_counts([()])
