"""Counting any kind of source agrees with a slow twin: Python loops that apply the declared rules to each record."""

import csv
import dataclasses
import gzip
import hashlib
import itertools
import math
import sqlite3
import sys
from collections import Counter
from pathlib import Path

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
from consilience.domain.attributes import DROP, Categorical, Hierarchy, Numeric
from consilience.domain.domains import ImpossibleCells
from consilience.domain.source_format import Summand
from consilience.errors import DeclarationError, SourceError, TooLarge
from consilience.source import Source, open_table

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
SCHEMA = {
    "sex": pa.string(),
    "children": pa.int64(),
    "age": pa.int32(),
    "income": pa.float64(),
    "home": pa.string(),
    "person": pa.int64(),
}
MARGINALS = [
    ("sex", "age"),
    (),
    ("income",),
    ("age", "sex", "children", "home", "income"),
    ("home", "age"),
]


def code_slowly(attribute, value):
    """The rule of one attribute for one Python value, as the declaration words it."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return attribute.missing_code
    if isinstance(attribute, Numeric):
        try:
            number = float(value)
        except ValueError:
            return attribute.missing_code
        for code, (low, high) in enumerate(itertools.pairwise(attribute.edges)):
            if low <= number < high:
                return code
        if number == attribute.edges[-1] and not attribute.integer:
            return len(attribute.edges) - 2
        if attribute.clips:
            return 0 if number < attribute.edges[0] else len(attribute.edges) - 2
        return attribute.unlisted_code
    assert isinstance(attribute, Categorical | Hierarchy)
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return attribute.codes_by_label.get(text, attribute.unlisted_code)


def count_slowly(domain, rows, marginals, *, unit=None, limit=0):
    counts = [np.zeros(domain.sizes(names), dtype=np.int64) for names in marginals]
    kept = []
    for row in rows:
        codes = {attribute.name: code_slowly(attribute, row[attribute.name]) for attribute in domain.counted}
        impossible = any(all(codes[name] in own for name, own in rule.codes) for rule in domain.impossible)
        if DROP not in codes.values() and not impossible:
            kept.append((row, codes))
    if unit is not None:
        kept = choose_slowly([(str(row[unit]), row, codes) for row, codes in kept if row[unit] is not None], limit)
    for _, codes in kept:
        for table, names in zip(counts, marginals, strict=True):
            table[tuple(codes[name] for name in names)] += 1
    return counts


def choose_slowly(rows, limit):
    """The rows with the smallest hashes of each unit, as the privacy model words it."""
    ordinals, hashed = Counter(), {}
    for unit, row, codes in rows:
        texts = ",".join(str(code) for code in codes.values())
        message = f"consilience row 1\n{texts}\n{ordinals[unit, texts]}\n{unit}"
        ordinals[unit, texts] += 1
        hashed.setdefault(unit, []).append((hashlib.sha256(message.encode()).digest(), len(hashed), row, codes))
    return [each[2:] for own in hashed.values() for each in sorted(own, key=lambda each: each[0])[:limit]]


def as_csv(rows, directory):
    path = directory / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(SCHEMA))
        writer.writeheader()
        writer.writerows(rows)
    return {"data": path}


def as_gzip(rows, directory):
    path = directory / "table.CSV.gz"
    path.write_bytes(gzip.compress(as_csv(rows, directory)["data"].read_bytes()))
    return {"data": str(path)}


def as_arrow(rows, directory=None):
    columns = {name: [row[name] for row in rows] for name in SCHEMA}
    return {"data": pa.table({name: pa.array(columns[name], kind) for name, kind in SCHEMA.items()})}


def as_batch(rows, directory):
    return {"data": as_arrow(rows)["data"].combine_chunks().to_batches()[0] if rows else as_arrow(rows)["data"]}


def as_parquet(rows, directory):
    path = directory / "table.parquet"
    pq.write_table(as_arrow(rows)["data"], path, row_group_size=50)
    return {"data": path}


def as_pandas(rows, directory):
    return {"data": as_arrow(rows)["data"].to_pandas()}


def as_pandas_objects(rows, directory):
    return {"data": pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in SCHEMA})}


def as_pandas_categories(rows, directory):
    return {"data": as_pandas_objects(rows, directory)["data"].astype("category")}


def as_polars(rows, directory):
    return {"data": pl.from_arrow(as_arrow(rows)["data"])}


def as_polars_lazy(rows, directory):
    return {"data": as_polars(rows, directory)["data"].lazy()}


def as_sqlite(rows, directory):
    path = directory / "table.sqlite3"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE people ({', '.join(SCHEMA)})")
    values = [tuple(row[name] for name in SCHEMA) for row in rows]
    connection.executemany(f"INSERT INTO people VALUES ({', '.join('?' * len(SCHEMA))})", values)
    connection.commit()
    connection.close()
    return {"data": path, "table": "people"}


def as_duckdb(rows, directory):
    path = directory / "table.duckdb"
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.register("given", as_arrow(rows)["data"])
        connection.execute("CREATE TABLE people AS SELECT * FROM given")
    return {"data": path, "query": "SELECT * FROM people"}


FORMS = [
    as_csv, as_gzip, as_arrow, as_batch, as_parquet, as_pandas, as_pandas_objects, as_pandas_categories,
    as_polars, as_polars_lazy, as_sqlite, as_duckdb,
]  # fmt: skip

rows_of_people = st.lists(
    st.fixed_dictionaries(
        {
            "sex": st.sampled_from(["F", "M", "X", "unknown", None]),
            "children": st.one_of(st.none(), st.integers(-1, 3), st.just(2**53 - 1)),
            "age": st.one_of(st.none(), st.integers(-2, 70)),
            "income": st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, 0.5, 10.0, math.inf, -math.inf])),
            "home": st.sampled_from([*REGIONS, "Scotland", "Skye", "skye", None]),
            "person": st.one_of(st.none(), st.integers(1, 4)),
        }
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


def equal(found, expected):
    return all(np.array_equal(own, other) for own, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("form", FORMS)
@given(rows=rows_of_people, limit=st.sampled_from([None, 1, 2]))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_form_of_a_table_has_the_counts_of_the_slow_twin(form, rows, limit, directory):
    options = {} if limit is None else {"unit": "person", "max_rows_per_unit": limit}
    found = open_table(**form(rows, directory), domain=DOMAIN, **options).exact_counts(MARGINALS)
    assert all(counts.dtype == np.int64 for counts in found)
    expected = count_slowly(DOMAIN, rows, MARGINALS, unit=limit and "person", limit=limit)
    assert equal(found, expected)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(7)
    size = 3000
    return [
        {
            "sex": rng.choice(["F", "M", "X", ""]) or None,
            "children": int(rng.integers(0, 5)),
            "age": int(rng.integers(-3, 80)),
            "income": float(rng.normal(4, 5)),
            "home": str(rng.choice(["Leith", "Morningside", "Skye", "City"])),
            "person": int(rng.integers(0, size // 3)),
        }
        for _ in range(size)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_one_thread_and_two_count_alike_in_many_batches(form, people, tmp_path, monkeypatch):
    given = form(people, tmp_path)
    source = open_table(**given, domain=DOMAIN, unit="person", max_rows_per_unit=2)
    for name, module in list(sys.modules.items()):
        if name.startswith("consilience.source."):
            for constant, value in {"ROWS_PER_BATCH": 100, "ROWS_PER_FETCH": 77, "BYTES_PER_BATCH": 5000}.items():
                if hasattr(module, constant):
                    monkeypatch.setattr(module, constant, value)
            if hasattr(module, "LONGEST_RECORD"):
                monkeypatch.setattr(module, "LONGEST_RECORD", 1000)
    expected = count_slowly(DOMAIN, people, MARGINALS, unit="person", limit=2)
    assert equal(source.exact_counts(MARGINALS, threads=1), expected)
    assert equal(source.exact_counts(MARGINALS, threads=2), expected)


def test_the_same_marginal_can_be_asked_twice_and_in_another_order(people):
    source = open_table(as_arrow(people)["data"], DOMAIN)
    first, second, turned = source.exact_counts([("sex", "age"), ("sex", "age"), ("age", "sex")])
    assert np.array_equal(first, second)
    assert np.array_equal(first, turned.T)
    assert source.exact_counts([]) == []


def test_files_that_match_a_pattern_are_one_table(people, tmp_path):
    for part, number in enumerate(["10", "09", "11"]):
        table = as_arrow(people[part::3])["data"].select(list(SCHEMA)[:: 1 if part else -1])
        pq.write_table(table, tmp_path / f"part-{number}.parquet")
    source = open_table(f"{tmp_path}/part-*.parquet", DOMAIN, unit="person", max_rows_per_unit=1)
    assert equal(source.exact_counts(MARGINALS), count_slowly(DOMAIN, people, MARGINALS, unit="person", limit=1))


def test_files_of_one_pattern_may_differ_in_delimiter_and_column_order(tmp_path):
    domain = Domain.from_sizes({"a": 2, "b": 2})
    (tmp_path / "1.csv").write_text("a,b\n0,1\n")
    (tmp_path / "2.csv").write_text("x;b;a\n9;0;1\n9;0;1\n")
    (counts,) = open_table(tmp_path / "*.csv", domain).exact_counts([("a", "b")])
    assert counts.tolist() == [[0, 1], [2, 0]]


def test_a_table_without_records_has_zeros_in_every_cell(tmp_path):
    for form in FORMS:
        found = open_table(**form([], tmp_path), domain=DOMAIN).exact_counts(MARGINALS)
        assert equal(found, [np.zeros(DOMAIN.sizes(names)) for names in MARGINALS])


def test_a_dropped_record_is_dropped_from_marginals_that_do_not_name_the_attribute():
    domain = Domain("d", (Attribute.categorical("a", ["0"]), Attribute.categorical("b", ["0"])))
    frame = pd.DataFrame({"a": ["0", "0"], "b": ["0", "?"]})
    assert open_table(frame, domain).exact_counts([("a",), ()])[0].tolist() == [1]


def test_attributes_that_drop_nothing_and_are_not_asked_for_are_not_read(tmp_path):
    domain = Domain("d", (Attribute.categorical("a", ["0"], unlisted="other"),))
    frame = pd.DataFrame({"a": ["0", "?", None]})
    assert open_table(frame, domain).exact_counts([()])[0] == 3


def test_a_missing_or_outlying_point_drops_its_record_from_counts_and_points():
    domain = Domain(
        "points",
        (
            Attribute.continuous("x", (0.0, 1.0)),
            Attribute.continuous("y", (-1.0, 1.0), unlisted="drop"),
            Attribute.categorical("kind", ["a", "b"], unlisted="other"),
        ),
    )
    frame = pd.DataFrame({"x": [0.5, 7.0, None, 0.1], "y": [0.0, -1.0, 0.0, 2.0], "kind": ["a", "b", "a", "a"]})
    source = open_table(frame, domain)
    assert source.exact_points(["y", "x"]).tolist() == [[0.0, 0.5], [-1.0, 1.0]]
    assert source.exact_counts([("kind",)])[0].tolist() == [1, 1, 0]
    assert open_table(frame.iloc[:0], domain).exact_points(["x"]).shape == (0, 1)
    with pytest.raises(DeclarationError, match="'kind' is categorical"):
        source.exact_points(["kind"])


def test_a_unit_may_be_text_or_an_attribute_and_chooses_among_rows_that_the_domain_keeps():
    domain = Domain("d", (Attribute.categorical("a", ["0", "1"]),))
    frame = pd.DataFrame({"a": ["?", "0", "1", "1", "0"], "who": ["x", "x", "y", None, "y"]})
    by_person = open_table(frame, domain, unit="who", max_rows_per_unit=1)
    assert by_person.exact_counts([("a",)])[0].sum() == 2
    assert open_table(frame[:2], domain, unit="who", max_rows_per_unit=1).exact_counts([("a",)])[0].tolist() == [1, 0]
    by_value = open_table(frame, domain, unit="a", max_rows_per_unit=1)
    assert by_value.exact_counts([("a",)])[0].tolist() == [1, 1]
    assert (by_person.unit, by_person.max_rows_per_unit) == ("who", 1)


@pytest.mark.parametrize("form", [as_csv, as_duckdb, as_sqlite])
def test_counting_writes_no_file(form, people, tmp_path):
    given = form(people, tmp_path)
    before = sorted(Path(tmp_path).iterdir())
    open_table(**given, domain=DOMAIN).exact_counts(MARGINALS)
    assert sorted(Path(tmp_path).iterdir()) == before


def test_a_source_shows_its_declaration_and_nothing_else(people, tmp_path):
    path = as_csv(people, tmp_path)["data"]
    source = open_table(path, DOMAIN, unit="person", max_rows_per_unit=3)
    assert (
        repr(source) == str(source) == "Source('people', unit='person', max_rows_per_unit=3, counted in this process)"
    )
    assert source.name == "people"
    assert source.domain is DOMAIN
    assert not hasattr(source, "__dict__")
    assert isinstance(source, Source)


def test_without_a_unit_one_row_is_protected():
    source = open_table(as_arrow([])["data"], DOMAIN)
    assert (source.unit, source.max_rows_per_unit) == (None, 1)
    assert repr(source) == "Source('people', counted in this process)"


def test_the_ledger_lies_beside_the_data(people, tmp_path):
    path = as_csv(people, tmp_path)["data"]
    assert open_table(path, DOMAIN).default_ledger_path == tmp_path / "table.csv.ledger"
    assert open_table(str(tmp_path / "*.csv"), DOMAIN).default_ledger_path == tmp_path / "table.csv.ledger"
    assert open_table(as_arrow(people)["data"], DOMAIN).default_ledger_path is None


def test_counts_too_large_for_memory_are_refused_from_the_declaration_alone():
    domain = Domain.from_sizes(dict.fromkeys("abcd", 1000))
    source = open_table(pa.table({name: pa.array([], pa.int8()) for name in "abcd"}), domain)
    with pytest.raises(TooLarge, match=r"8,000.0 GB.*\(a, b, c, d\).*limit is 2.1 GB.*coarser"):
        source.exact_counts([("a",), ("a", "b", "c", "d")])


@pytest.mark.parametrize(
    ("marginals", "message"),
    [
        ([("sex", "agee")], "did you mean 'age'"),
        ([("sex", "sex")], "'sex' is named twice"),
        (["sex"], "a tuple of attribute names"),
    ],
)
def test_marginals_that_the_domain_does_not_know_are_refused(marginals, message):
    with pytest.raises(DeclarationError, match=message):
        open_table(as_arrow([])["data"], DOMAIN).exact_counts(marginals)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": "person"}, "needs max_rows_per_unit"),
        ({"unit": "person", "max_rows_per_unit": 0}, "from 1 up; 0 was given"),
        ({"unit": "person", "max_rows_per_unit": True}, "True was given"),
        ({"max_rows_per_unit": 2}, "without unit="),
        ({"table": "people"}, "for databases"),
        ({"query": "SELECT 1"}, "for databases"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options, message, people, tmp_path):
    with pytest.raises(DeclarationError, match=message):
        open_table(as_arrow(people)["data"], DOMAIN, **options)
    with pytest.raises(DeclarationError, match=message):
        open_table(as_csv(people, tmp_path)["data"], DOMAIN, **options)


def test_a_database_needs_a_table_or_a_query(people, tmp_path):
    path = as_sqlite(people, tmp_path)["data"]
    with pytest.raises(DeclarationError, match="neither was given"):
        open_table(path, DOMAIN)
    with pytest.raises(DeclarationError, match="both were given"):
        open_table(path, DOMAIN, table="people", query="SELECT * FROM people")


@pytest.mark.parametrize("data", [5, None, [1, 2], {"a": [1]}])
def test_data_of_another_kind_is_refused_by_its_type(data):
    with pytest.raises(DeclarationError, match="a path, a pandas, polars or pyarrow frame"):
        open_table(data, DOMAIN)


def test_a_file_of_unknown_kind_is_refused_by_its_name():
    with pytest.raises(DeclarationError, match=r"'people.xlsx' is not known.*\.parquet"):
        open_table("people.xlsx", DOMAIN)


def test_a_query_that_is_no_single_select_is_refused(people, tmp_path):
    path = as_duckdb(people, tmp_path)["data"]
    for query in ("SELECT 1; SELECT 2", "CREATE TABLE t (a INT)"):
        with pytest.raises(DeclarationError, match="one SELECT statement"):
            open_table(path, DOMAIN, query=query)


def test_a_query_decides_what_a_row_is_and_its_order_does_not_matter(people, tmp_path):
    query = "SELECT * FROM people WHERE age > 20 ORDER BY age DESC, income"
    expected = [row for row in people if row["age"] > 20]
    expected = count_slowly(DOMAIN, expected, MARGINALS, unit="person", limit=1)
    for form in (as_duckdb, as_sqlite):
        path = form(people, tmp_path)["data"]
        source = open_table(path, DOMAIN, query=query, unit="person", max_rows_per_unit=1)
        assert equal(source.exact_counts(MARGINALS), expected)


# ----------------------------------------------------------------------------------------------------------------------
# Sums of weights and amounts, by Python loops over each record.


SUMMED = Domain(
    "workers",
    (
        Attribute.categorical("sex", ["F", "M"]),
        Attribute.numeric("pay", [-10.0, 0.0, 100.0], missing="unknown", amount=[-20, 150]),
        Attribute.numeric("hours", [0, 10, 40], unlisted="other", missing="other", amount=True),
    ),
)
WEIGHTS = {"drop": None, "lowest": 0.5, "7": 7.0}


def workers(seed, people=120):
    rng = np.random.default_rng(seed)
    pick = lambda options: options[int(rng.integers(len(options)))]  # noqa: E731
    return [
        {
            "person": person,
            "sex": pick(["F", "M", "M", None, "x"]),
            "pay": pick([-99.5, -3.25, 0.0, 12.34, 99.99, 1e9, math.inf, None]),
            "hours": pick([-4, 0, 9, 10, 39, 40, 400, None]),
            "w": pick([0.0, 0.4, 1.0, 2.718, 4.0, 17.5, math.inf, None]),
        }
        for person in range(people)
        for _ in range(3)
    ]


def number_slowly(summand, value):
    """Whole steps, or None for a record that is dropped."""
    if value is None and summand.missing is None:
        return None
    value = summand.missing if value is None else value
    low, high = summand.bounds
    return round(min(max(value, low), high) / summand.step)  # half to even


def sum_slowly(domain, rows, names, amount, *, limit=None):
    found = np.zeros(domain.sizes(names), dtype=object)
    by_person = {}
    for row in rows:
        codes = {each.name: code_slowly(each, row[each.name]) for each in domain.attributes}
        steps = {} if domain.weight is None else {"w": number_slowly(domain.weight, row["w"])}
        for name in domain.amounts:
            in_bins = 0 <= codes[name] < len(domain[name].bins)
            steps[name] = number_slowly(domain.amount(name)[0], row[name]) if in_bins else 0
        if DROP not in codes.values() and None not in steps.values():
            by_person.setdefault(row["person"], []).append((codes, steps))
    for person, own in by_person.items():
        ordinals, hashed = Counter(), []
        for codes, steps in own:
            text = ",".join(map(str, [*codes.values(), *steps.values()]))
            message = f"consilience row 1\n{text}\n{ordinals[text]}\n{person}"
            ordinals[text] += 1
            hashed.append((hashlib.sha256(message.encode()).digest(), codes, steps))
        for _, codes, steps in sorted(hashed, key=lambda each: each[0])[:limit]:
            units = steps.get("w", 1)
            if amount is not None:
                units = steps[amount]
            if amount is not None and domain.weight is not None:
                product = steps["w"] * domain.weight.step * steps[amount] * domain.amount(amount)[0].step
                units = number_slowly(domain.summand(amount), product)
            found[tuple(codes[name] for name in names)] += units
    return found.astype(np.int64)


@pytest.mark.parametrize("limit", [None, 1, 2])
@pytest.mark.parametrize("missing", [*WEIGHTS, "no weight"])
def test_weights_and_amounts_are_added_up_as_whole_steps(tmp_path, missing, limit):
    weight = None if missing == "no weight" else Summand("w", (0.5, 4.0), missing=WEIGHTS[missing], step=2.0**-6)
    domain = dataclasses.replace(SUMMED, weight=weight)
    rows = workers(3)
    table = pa.table({name: pa.array([row[name] for row in rows]) for name in rows[0]})
    pq.write_table(table, tmp_path / "workers.parquet")
    with (tmp_path / "workers.csv").open("w", newline="") as file:
        csv.writer(file).writerows([rows[0], *(row.values() for row in rows)])
    unit = {} if limit is None else {"unit": "person", "max_rows_per_unit": limit}
    for amount, names in itertools.product((None, "pay", "hours"), (("sex", "pay"), ("hours",), ())):
        expected = sum_slowly(domain, rows, names, amount, limit=limit)
        for data in (table, tmp_path / "workers.parquet", tmp_path / "workers.csv", table.to_pandas()):
            for threads in (1, 3):
                source = open_table(data, domain, **unit)
                assert np.array_equal(source.exact_counts([names], amount=amount, threads=threads)[0], expected)


def test_a_weight_needs_its_column_and_numbers_in_the_declared_notation(tmp_path):
    domain = dataclasses.replace(SUMMED.project(["sex"]), weight=Summand("w", (0, 10)))
    with pytest.raises(SourceError, match="has no column 'w'"):
        open_table(pa.table({"sex": ["F"]}), domain)
    (tmp_path / "comma.csv").write_text("sex;w\nF;1,5\nM;NA\nM;x\nF;2,25\n")
    read_as = domain.read_as(decimal=",", missing_tokens=["NA"])
    assert (open_table(tmp_path / "comma.csv", read_as).exact_counts([("sex",)])[0] * domain.weight.step).tolist() == [
        3.75,
        0,
    ]
