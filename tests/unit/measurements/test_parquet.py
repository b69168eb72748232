"""Measurement files v1: written as specified, read with suspicion."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain, Query
from consilience.errors import ConsilienceError, FileFormatError
from consilience.measurements import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    Laplace,
    Measurement,
    MeasurementSet,
    PrivacyStatement,
)

DOMAIN = Domain(
    "town", (Attribute.categorical("age", ["young", "middle", "old"]), Attribute.categorical("sex", ["F", "M"]))
)
COLUMNS = ["id", "kind", "round", "attributes", "query", "values", "noise_law", "noise_scale", "clipped", "extra"]


def example() -> MeasurementSet:
    marks = np.array([False, True])
    return MeasurementSet(
        DOMAIN,
        (
            Measurement(Query.marginal("age", "sex"), np.arange(6.0), DiscreteGaussian(2.0, step=0.5), id="a", round=3),
            Measurement(Query.marginal("sex"), [12.0, 0.0], DiscreteLaplace(1.5), censored=marks, threshold=10.0),
            Measurement(Query(()), [7.0], Exact(), id="total", extra={"source": "register", "years": [2020, 2021]}),
        ),
        PrivacyStatement(spent={"epsilon": "0.5"}),
        {"tool": "test", "ledger": "L"},
    )


def as_rows(found: MeasurementSet) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What a file of the set holds, as another tool would see it."""
    from consilience.measurements.parquet import MeasurementFile, to_bytes

    content = to_bytes(MeasurementFile(found.domain, found.measurements, found.privacy, dict(found.provenance), True))
    table = pq.read_table(BytesIO(content))
    metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    return table.to_pylist(), metadata


def write_plainly(path: Path, rows: list[dict[str, Any]], metadata: dict[str, str | bytes]) -> None:
    """A file written by pyarrow alone, with the types that pyarrow infers."""
    table = pa.Table.from_pylist(rows) if rows else pa.table({name: [] for name in COLUMNS})
    pq.write_table(table.replace_schema_metadata(metadata), path)


@pytest.fixture
def change(tmp_path: Path) -> Callable[..., Path]:
    """Writes the example with one field of its first row, or one metadata entry, changed."""
    rows, metadata = as_rows(example())

    def changed(*, without: str = "", metadata_of: dict[str, Any] | None = None, **fields: Any) -> Path:
        path = tmp_path / "changed.parquet"
        first = {key: value for key, value in (rows[0] | fields).items() if key != without}
        rest = [{key: value for key, value in row.items() if key != without} for row in rows[1:]]
        entries = {key: value for key, value in (metadata | (metadata_of or {})).items() if value is not None}
        write_plainly(path, [first, *rest], entries)
        return path

    return changed


def test_the_columns_and_types_are_those_of_the_specification(tmp_path: Path) -> None:
    example().save(tmp_path / "set.parquet")
    schema = pq.read_schema(tmp_path / "set.parquet")
    assert {name: str(schema.field(name).type) for name in COLUMNS} == {
        "id": "string",
        "kind": "string",
        "round": "int64",
        "attributes": "list<element: string not null>",
        "query": "string",
        "values": "list<element: double not null>",
        "noise_law": "string",
        "noise_scale": "double",
        "clipped": "bool",
        "extra": "string",
    }
    assert [name for name in COLUMNS if schema.field(name).nullable] == ["round"]


def test_rows_and_metadata_are_those_of_the_specification() -> None:
    rows, metadata = as_rows(example())
    assert metadata["consilience.format"] == "measurements"
    assert metadata["consilience.version"] == "1"
    assert metadata["consilience.private"] == "true"
    assert json.loads(metadata["consilience.domain"]) == DOMAIN.to_declaration()
    assert json.loads(metadata["consilience.provenance"]) == {"tool": "test", "ledger": "L"}
    assert json.loads(metadata["consilience.privacy"])["spent"] == {"epsilon": "0.5"}
    first, second, third = rows
    assert (first["id"], first["round"], first["attributes"]) == ("a", 3, ["age", "sex"])
    assert (first["noise_law"], first["noise_scale"], json.loads(first["extra"])) == (
        "discrete-gaussian",
        2.0,
        {"step": 0.5},
    )
    assert json.loads(second["extra"]) == {"step": 1.0, "threshold": 10.0, "censored": [1]}
    assert np.isnan(second["values"][1])
    assert (third["noise_scale"], third["attributes"], json.loads(third["query"])) == (0.0, [], {"factors": []})
    assert json.loads(third["extra"]) == {"source": "register", "years": [2020, 2021]}


def test_files_of_other_parquet_writers_are_read(tmp_path: Path) -> None:
    rows, metadata = as_rows(example())
    write_plainly(tmp_path / "arrow.parquet", rows, metadata)
    assert MeasurementSet.load(tmp_path / "arrow.parquet") == example()
    wide = pa.schema(
        [
            ("id", pa.large_string()),
            ("kind", pa.dictionary(pa.int32(), pa.string())),
            ("round", pa.int16()),
            ("attributes", pa.large_list(pa.large_string())),
            ("query", pa.large_string()),
            ("values", pa.large_list(pa.float64())),
            ("noise_law", pa.dictionary(pa.int8(), pa.string())),
            ("noise_scale", pa.float64()),
            ("clipped", pa.bool_()),
            ("extra", pa.large_string()),
            ("comment", pa.string()),
        ]
    )
    table = pa.Table.from_pylist([row | {"comment": "mine"} for row in rows], schema=wide)
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "wide.parquet", compression="zstd")
    assert MeasurementSet.load(tmp_path / "wide.parquet") == example()


def test_files_of_polars_are_read(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    rows, metadata = as_rows(example())
    frame = polars.DataFrame(rows)
    frame.write_parquet(tmp_path / "polars.parquet", metadata=metadata)
    assert MeasurementSet.load(tmp_path / "polars.parquet") == example()


def test_a_file_of_whole_numbers_only_is_read(change: Callable[..., Path]) -> None:
    found = MeasurementSet.load(change(noise_scale=2, round=None, values=[float(i) for i in range(6)]))
    assert found.measurements[0].noise == DiscreteGaussian(2.0, step=0.5)


def test_a_set_without_measurements_survives(tmp_path: Path) -> None:
    MeasurementSet(DOMAIN, ()).save(tmp_path / "empty.parquet")
    assert len(MeasurementSet.load(tmp_path / "empty.parquet")) == 0


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "set.parquet"
    example().save(path)
    before = path.read_bytes()

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(FileFormatError, match="No space left"):
        MeasurementSet(DOMAIN, ()).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="there is no measurement file"):
        MeasurementSet.load(tmp_path / "absent.parquet")
    with pytest.raises(FileFormatError, match="IsADirectoryError"):
        MeasurementSet.load(tmp_path)
    with pytest.raises(FileFormatError, match="cannot be read"):
        MeasurementSet.load("bad\0name.parquet")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not a Parquet file"),
        (b"age,sex,count\n1,2,3\n", "not a Parquet file"),
        (b"PAR1", "truncated"),
        (b"PAR1" + b"\0" * 100, "truncated"),
        (b"PAR1" + b"\0" * 100 + b"PAR1", "damaged"),
        (b"PAR1\xff\xff\xff\x7fPAR1", "damaged"),
    ],
)
def test_what_is_no_parquet_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "odd.parquet"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=f"odd.parquet is {problem}"):
        MeasurementSet.load(path)


def test_foreign_parquet_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"age": [1, 2], "count": [3.0, 4.0]}), tmp_path / "foreign.parquet")
    with pytest.raises(FileFormatError, match=r"not one of measurements.*from_long_table"):
        MeasurementSet.load(tmp_path / "foreign.parquet")


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"consilience.format": None}, "lacks the metadata 'consilience.format'"),
        ({"consilience.format": "model"}, "holds 'model', but 'measurements' were expected"),
        ({"consilience.version": "2"}, "is of version 2, and this consilience reads up to version 1; upgrade"),
        ({"consilience.version": "0"}, "versions start at 1"),
        ({"consilience.version": "1.5"}, "must be a whole number"),
        ({"consilience.version": "9" * 5000}, "must be a whole number"),
        ({"consilience.version": None}, "must be a whole number"),
        ({"consilience.domain": None}, "lacks the metadata 'consilience.domain'"),
        ({"consilience.domain": "{"}, "consilience.domain: this is not the JSON it should be"),
        ({"consilience.domain": "[]"}, "expected a table"),
        ({"consilience.domain": b"\xff\xfe"}, "no measurement file may hold .UnicodeDecodeError"),
        ({"consilience.domain": "[" * 200_000}, "nested too deeply"),
        ({"consilience.domain": '{"name": "x", "name": "y"}'}, "the key 'name' appears twice"),
        ({"consilience.privacy": "{}"}, "'neighbours' is missing"),
        ({"consilience.privacy": "null"}, "expected a table"),
        ({"consilience.provenance": "[]"}, "provenance must be a JSON object"),
        ({"consilience.provenance": '{"x": NaN}'}, "NaN is not a JSON number"),
        ({"consilience.provenance": '{"x": 1e999}'}, "1e999 is too large"),
        ({"consilience.provenance": '{"x": ' + "1" * 5000 + "}"}, "is too large"),
        ({"consilience.provenance": '{"x": "\\ud800"}'}, "this is not the JSON it should be"),
        ({"consilience.private": None}, "lacks the metadata 'consilience.private'"),
        ({"consilience.private": '"yes"'}, "must be true or false"),
    ],
)
def test_odd_metadata_is_refused(change: Callable[..., Path], entries: dict[str, Any], problem: str) -> None:
    with pytest.raises(FileFormatError, match=problem) as refusal:
        MeasurementSet.load(change(metadata_of=entries))
    assert str(refusal.value).startswith("changed.parquet")
    assert len(str(refusal.value)) < 500


def domain_text(**changes: object) -> str:
    return json.dumps(DOMAIN.to_declaration() | changes)


@pytest.mark.parametrize(
    "text",
    [
        domain_text(attributes={}),
        domain_text(attributes={"age": {"kind": "numeric", "edges": [1, 1]}}),
        domain_text(attributes={"age": {"kind": "numeric", "from": 0, "to": 1e300, "step": 1e-300}}),
        domain_text(attributes={"age": {"kind": "numeric", "edges": [0, 10**290]}}),
        domain_text(attributes={"age": {"kind": "hierarchy", "parents": {"a": "b", "b": "a"}}}),
        domain_text(impossible=[{"nobody": ["x"]}]),
        domain_text(public={"total": -1}),
        domain_text(name=["town"]),
        domain_text(attributes={"age": {"kind": "categorical", "values": [[["x"]]]}}),
    ],
)
def test_odd_domains_are_refused(change: Callable[..., Path], text: str) -> None:
    with pytest.raises(FileFormatError):
        MeasurementSet.load(change(metadata_of={"consilience.domain": text}))


def factor(**fields: object) -> dict[str, str]:
    return {"query": json.dumps({"factors": [{"attribute": "age", **fields}]}), "attributes": ["age"]}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"kind": "quadratic"}, r"row 1 \('a'\).*kind 'quadratic', which this version does not know"),
        ({"noise_law": "cauchy"}, r"row 1 \('a'\).*noise law 'cauchy' is not known"),
        ({"noise_law": "laplace"}, "laplace noise has no step"),
        ({"noise_scale": 0.0}, "it must be a number above 0"),
        ({"noise_scale": float("nan")}, "it must be a number above 0"),
        ({"noise_scale": float("inf")}, "it must be a number above 0"),
        ({"noise_scale": None}, "'noise_scale' has empty places"),
        ({"values": [1.0, 2.0]}, r"has 2 values.* 6 \(shape 3 × 2\) answers"),
        ({"values": []}, "has 0 values"),
        ({"values": [0.0] * 5 + [float("nan")]}, "1 of 6 values that are NaN or infinite"),
        ({"values": [0.0] * 5 + [float("inf")]}, "1 of 6 values that are NaN or infinite"),
        ({"values": [0.0] * 5 + [None]}, "'values' has an empty place"),
        ({"values": None}, "'values' has empty places"),
        ({"clipped": None}, "'clipped' has empty places"),
        ({"clipped": True, "values": [-1.0] * 6}, "called clipped"),
        ({"id": None}, "'id' has empty places"),
        ({"id": "total"}, "two measurements have the id 'total'"),
        ({"round": -1}, "round is a whole number"),
        ({"round": 2**60}, "round is a whole number"),
        ({"attributes": ["sex", "age"]}, "'attributes' is .*they must be equal"),
        ({"attributes": [None]}, "'attributes' is"),
        ({"query": "{"}, "query: this is not the JSON it should be"),
        ({"query": "{}"}, "'factors' is missing"),
        ({"query": '{"factors": 3}'}, "must be a list of tables"),
        ({"query": "[" * 100_000}, "nested too deeply"),
        (factor(kind="cube"), "factor kind 'cube' is not known"),
        (factor(kind="identity", surplus=1), "'surplus' is not known here"),
        (factor(kind="value", label="teen"), "has no value 'teen'"),
        (factor(kind="moments", order=10**12), "at least 1000000000000 answers"),
        (factor(kind="moments", order=-1), "order"),
        (factor(kind="matrix", rows=10**15, entries=[]), "at least"),
        (factor(kind="matrix", rows=6, entries=[[0, 10**20, 1.0]]), "does not fit"),
        (factor(kind="tree", branching=1), "branching of at least 2"),
        (factor(kind="tree", branching=2, level=10**200), "has levels"),
        ({"query": json.dumps({"factors": [{"attribute": "agee", "kind": "identity"}]}), "attributes": ["agee"]},
         "did you mean 'age'"),
        ({"extra": "[]"}, "expected a table"),
        ({"extra": ""}, "extra: this is not the JSON it should be"),
        ({"extra": '{"step": "one"}'}, "'step' must be a finite number"),
        ({"extra": '{"step": 0}'}, "the step 0"),
        ({"extra": '{"threshold": "low"}'}, "'threshold' must be a finite number"),
        ({"extra": '{"censored": [0]}'}, "no threshold"),
        ({"extra": '{"censored": [6], "threshold": 0}'}, "increasing positions from 0 to 5, found 6"),
        ({"extra": '{"censored": [1, 1], "threshold": 0}'}, "increasing positions"),
        ({"extra": '{"censored": [-1], "threshold": 0}'}, "increasing positions"),
        ({"extra": '{"censored": [0.5], "threshold": 0}'}, "increasing positions"),
        ({"extra": '{"censored": "all", "threshold": 0}'}, "must be a list"),
        ({"extra": '{"threshold": 3}'}, "released the value 0, below its threshold 3"),
    ],
)  # fmt: skip
def test_odd_rows_are_refused(change: Callable[..., Path], fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(FileFormatError, match=problem) as refusal:
        MeasurementSet.load(change(**fields))
    assert str(refusal.value).startswith("changed.parquet")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("noise_scale", "two"),
        ("values", "1, 2"),
        ("round", "first"),
        ("attributes", 3),
        ("query", 1.5),
        ("clipped", "x"),
    ],
)
def test_a_column_of_another_type_is_named(tmp_path: Path, name: str, content: object) -> None:
    rows, metadata = as_rows(example())
    write_plainly(tmp_path / "typed.parquet", [row | {name: content} for row in rows], metadata)
    with pytest.raises(FileFormatError, match=f"typed.parquet: .*{name}"):
        MeasurementSet.load(tmp_path / "typed.parquet")


@pytest.mark.parametrize("name", COLUMNS)
def test_a_missing_column_is_named(change: Callable[..., Path], name: str) -> None:
    with pytest.raises(FileFormatError, match=f"lacks the column '{name}'"):
        MeasurementSet.load(change(without=name))


def test_damaged_values_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "set.parquet"
    values = np.random.default_rng(5).random(2000)
    domain = Domain.from_sizes({"a": 2000})
    MeasurementSet.from_marginals(domain, {"a": values}, noise=Laplace(1.0)).save(path)
    content = bytearray(path.read_bytes())
    place = content.find(values[1000].tobytes())
    if place < 0:
        place = len(content) // 2
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="is damaged"):
        MeasurementSet.load(path)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda text: text.strip())


@given(names, names, names)
def test_odd_names_survive(attribute: str, label: str, name: str) -> None:
    import tempfile

    domain = Domain(name, (Attribute.categorical(attribute, [label, label + "\0", "'\"\\\n"]),))
    found = MeasurementSet.from_marginals(domain, {attribute: [1, 2, 3]}, noise=Laplace(1.0))
    with tempfile.TemporaryDirectory() as folder:
        found.save(Path(folder) / "set.parquet")
        assert MeasurementSet.load(Path(folder) / "set.parquet") == found


@pytest.fixture(scope="module")
def good_bytes() -> bytes:
    from consilience.measurements.parquet import MeasurementFile, to_bytes

    found = example()
    return to_bytes(MeasurementFile(found.domain, found.measurements, found.privacy, dict(found.provenance), True))


def loads_or_refuses(content: bytes) -> None:
    from consilience.measurements.parquet import from_bytes, refusing_what_is_odd

    try:
        with refusing_what_is_odd("fuzzed"):
            parts = from_bytes(content, where="fuzzed")
            MeasurementSet(parts.domain, parts.measurements, parts.privacy, parts.provenance, parts.private)
    except ConsilienceError:
        pass


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_flipped_bytes_load_or_are_refused(good_bytes: bytes, data: st.DataObject) -> None:
    content = bytearray(good_bytes)
    for place, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), min_size=1, max_size=6)
    ):
        content[place] = byte
    loads_or_refuses(bytes(content))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_truncated_and_spliced_bytes_are_refused(good_bytes: bytes, data: st.DataObject) -> None:
    from consilience.measurements.parquet import from_bytes

    first = data.draw(st.integers(0, len(good_bytes) - 1))
    with pytest.raises(FileFormatError):
        from_bytes(good_bytes[:first], where="cut")
    last = data.draw(st.integers(first, len(good_bytes)))
    loads_or_refuses(good_bytes[:first] + good_bytes[last:])
