"""Data frames as programs make them: columns in pieces, values that refuse to be compared, batches from engines."""

from decimal import Decimal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from consilience.domain import Attribute, Domain, Query
from consilience.errors import DeclarationError, SourceError
from consilience.measuring import measure
from consilience.plans import Marginals
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import frames, open_table

DOMAIN = Domain("d", (Attribute.categorical("a", ["x", "y"], missing="none", unlisted="other"),))


@pytest.mark.parametrize("kind", ["str", "string", "string[pyarrow]", "category", object])
def test_a_pandas_column_put_together_from_pieces_is_read(kind):
    pieces = [pd.DataFrame({"a": pd.Series(values, dtype=kind)}) for values in (["x", "y"], ["x", None], ["z"])]
    assert open_table(pd.concat(pieces), DOMAIN).exact_counts([("a",)])[0].tolist() == [2, 1, 1, 1]


def test_signalling_numbers_among_objects_are_missing_values():
    values = ["x", Decimal("sNaN"), Decimal("NaN"), None, pd.NaT, pd.NA, float("nan"), Decimal("Infinity"), [1]]
    frame = pd.DataFrame({"a": pd.Series(values, dtype=object)})
    assert open_table(frame, DOMAIN).exact_counts([("a",)])[0].tolist() == [1, 0, 6, 2]


# ----------------------------------------------------------------------------------------------------------------------
# What produces batches when it is read: the same counts as the frame itself, in bounded memory, and never run unpaid.


ROWS = {"a": ["x", "y", None, "z", "x"] * 40, "who": [str(i % 30) for i in range(200)]}


class Exporter:
    """An object that says nothing of itself but how to export it."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def as_dataset(table, directory):
    for part in range(3):
        pq.write_table(table.slice(part * 70, 70), directory / f"{part}.parquet")
    return dataset.dataset(directory, format="parquet")


def as_relation(table, directory):
    return duckdb.from_arrow(table).filter("who <> 'nobody'")


STREAMS = {
    "a polars plan": lambda table, _: pl.from_arrow(table).lazy().filter(pl.col("who") != "nobody"),
    "a dataset": as_dataset,
    "a DuckDB relation": as_relation,
    "a record batch reader": lambda table, _: table.to_reader(max_chunksize=30),
    "an exporter": lambda table, _: Exporter(table),
}
ONCE = {"a record batch reader", "an exporter"}


@pytest.mark.parametrize("form", STREAMS)
def test_streams_give_the_counts_of_the_frame(form, tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "ROWS_PER_BATCH", 64)
    table = pa.table(ROWS)
    for options in ({}, {"unit": "who", "max_rows_per_unit": 2}):
        (expected,) = open_table(table, DOMAIN, **options).exact_counts([("a",)])
        source = open_table(STREAMS[form](table, tmp_path), DOMAIN, **options)
        assert (source.runs_code, source.reads_once) == (True, form in ONCE)
        assert source.exact_counts([("a",)])[0].tolist() == expected.tolist()
        if form in ONCE:
            with pytest.raises(SourceError, match="once only"):
                source.exact_counts([("a",)])
        else:
            assert source.exact_counts([("a",)])[0].tolist() == expected.tolist()


@pytest.mark.parametrize("form", STREAMS)
def test_batches_are_small_however_they_are_produced(form, tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "ROWS_PER_BATCH", 16)
    reader = frames.reader_of_frame(STREAMS[form](pa.table(ROWS), tmp_path), {"a": DOMAIN["a"]}, DOMAIN.source_format)
    sizes = [batch.num_rows for batch in reader.batches(["a"])]
    assert sum(sizes) == 200
    assert max(sizes) <= 16


@pytest.mark.parametrize("form", STREAMS)
def test_streams_without_a_declared_column_are_refused(form, tmp_path):
    table = pa.table({"b": ROWS["a"], "who": ROWS["who"]})
    with pytest.raises(SourceError, match="has no column 'a'"):
        open_table(STREAMS[form](table, tmp_path), DOMAIN)


def test_a_plan_is_not_run_when_it_is_opened():
    def fail(frame):
        raise ValueError("it was run")

    open_table(pl.LazyFrame(ROWS).map_batches(fail), DOMAIN)
    relation = duckdb.sql("WITH t AS (SELECT error('it was run') AS a) SELECT a, 'w' AS who FROM t")
    open_table(relation, DOMAIN)


class OneAfterTheOther:
    """A plan that measures the second attribute after the first."""

    def run(self, gate):
        for name in gate.domain.names:
            gate.measure(Query.marginal(name), budget(epsilon=0.5))

    def to_json(self):
        return {"plan": "one after the other"}


def test_a_stream_is_refused_for_a_plan_that_reads_twice_before_anything_is_paid(tmp_path):
    two = Domain("d", (*DOMAIN.attributes, Attribute.categorical("b", ["x", "y"])))
    table = pa.table({"a": ROWS["a"], "b": ROWS["a"]})
    ledger = Ledger.create(tmp_path / "ledger", dataset="d", total=budget(epsilon=9))
    with pytest.raises(DeclarationError, match="gone when it has been read"):
        measure(
            open_table(table.to_reader(), two),
            OneAfterTheOther(),
            ledger=ledger,
            epsilon=1,
        )
    assert str(ledger.spent) == "0"
    measured = measure(open_table(table.to_reader(), two), Marginals([("a",), ("a", "b")]), ledger=ledger, epsilon=1)
    assert len(measured) == 2


def test_frames_whose_engine_would_collect_them_are_refused():
    class Frame:
        pass

    Frame.__module__ = "dask.dataframe"
    with pytest.raises(DeclarationError, match=r"not a dask\.dataframe"):
        open_table(Frame(), DOMAIN)
