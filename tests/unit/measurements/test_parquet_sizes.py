"""Small files that hold gigabytes are refused before anything is decompressed."""

import subprocess
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.domain import Domain, Query
from consilience.errors import FileFormatError
from consilience.measurements import DiscreteLaplace, Measurement, MeasurementSet, from_long_table, parquet_sizes
from consilience.measurements.parquet_sizes import check_contents, column_chunks, page_sizes, read_bounded
from consilience.publication.record_files import synthetic_file

MEASURED = MeasurementSet(
    Domain.from_sizes({"a": 1000, "b": 1000}),
    (Measurement(Query.marginal("a", "b"), np.zeros(1_000_000), DiscreteLaplace(1.0)),),
)


def repeated(table: Any, path: Path, times: int) -> Path:
    """A file with the rows of a table many times over: a small file, for they shrink to nothing."""
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(times):
            writer.write_table(table)
    return path


def measurement_bomb(folder: Path) -> Path:
    MEASURED.save(folder / "one.parquet")
    return repeated(pq.read_table(folder / "one.parquet"), folder / "bomb.parquet", 50)


def model_bomb(folder: Path) -> Path:
    columns = {"name": ["counts"], "shape": [[10**6]], "values": pa.array([np.zeros(10**6)])}
    metadata = {
        "consilience.format": "model",
        "consilience.version": "1",
        "consilience.method": '{"method": "table"}',
        "consilience.status": "converged",
        "consilience.stats": "{}",
    }
    return repeated(pa.table(columns).replace_schema_metadata(metadata), folder / "bomb.parquet", 50)


def text_bomb(folder: Path) -> Path:
    """Ten thousand measurements whose extra is one text of half a megabyte: 5 GB of texts."""
    MEASURED.save(folder / "one.parquet")
    one = pq.read_table(folder / "one.parquet")
    columns = {
        name: one.column(name).take(pa.array(np.zeros(10_000, dtype=np.int64)))
        for name in one.column_names
        if name != "values"
    }
    columns["values"] = pa.array([[0.0]] * 10_000)
    indices = pa.array(np.zeros(10_000, dtype=np.int32))
    columns["extra"] = pa.DictionaryArray.from_arrays(indices, pa.array(['{"a":"' + "x" * 500_000 + '"}']))
    return repeated(pa.table(columns).replace_schema_metadata(one.schema.metadata), folder / "bomb.parquet", 1)


@pytest.mark.parametrize("bomb", [measurement_bomb, model_bomb, text_bomb])
def test_a_small_file_that_holds_gigabytes_is_refused_in_little_memory_and_time(bomb, tmp_path: Path) -> None:
    path = bomb(tmp_path)
    assert path.stat().st_size < 2_000_000
    script = (
        "import pathlib, re, resource, sys; from consilience.cli.main import app\n"
        "try: app(['check', sys.argv[1]])\n"
        "except Exception as error: print(type(error).__name__, error)\n"
        "status = pathlib.Path('/proc/self/status')\n"  # what getrusage tells there includes the process before exec
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "if status.exists(): peak = int(re.search(r'VmHWM:\\s*(\\d+)', status.read_text())[1])\n"
        "print(peak // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=30)
    refusal, megabytes = done.stdout.strip().splitlines()[-2:]
    assert refusal.startswith("FileFormatError")
    assert "would take more than" in refusal
    assert int(megabytes) < 500


def test_what_the_pages_hold_counts_and_not_what_the_footer_claims() -> None:
    stream = BytesIO()
    pq.write_table(pa.table({"x": np.zeros(20_000)}), stream)
    content = stream.getvalue()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    number, one = bytes([0xC0, 0xB8, 0x02]), bytes([0x82, 0x80, 0x00])  # 20,000 and 1, each in three bytes
    assert number in content[footer:]
    lying = content[:footer] + content[footer:].replace(number, one)
    [chunk] = column_chunks(lying, where="x")
    assert sum(page_sizes(lying, chunk, where="x")) >= 160_000


def test_the_columns_of_nested_and_of_fixed_tables_are_those_that_pyarrow_finds() -> None:
    stream = BytesIO()
    table = pa.table(
        {
            "n": pa.array([{"a": 1, "b": ["x", None]}, None], pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())})),
            "f": pa.array([b"four", b"five"], pa.binary(4)),
            "d": pa.array([1, 2], pa.decimal128(30, 2)),
            "t": pa.array([True, False]),
        }
    )
    pq.write_table(table, stream, row_group_size=1)
    metadata = pq.ParquetFile(BytesIO(stream.getvalue())).metadata
    found = list(column_chunks(stream.getvalue(), where="x"))
    expected = [metadata.row_group(group).column(place) for group in range(2) for place in range(metadata.num_columns)]
    assert [chunk.size for chunk in found] == [each.total_compressed_size for each in expected]
    assert [chunk.is_text for chunk in found] == [each.physical_type == "BYTE_ARRAY" for each in expected]
    assert [chunk.width for chunk in found] == 2 * [4, 4, 4, 13, 1]
    assert read_bounded(stream.getvalue(), where="x").num_rows == 2


def test_statistics_that_do_not_fit_their_column_are_no_end_of_the_process(tmp_path: Path) -> None:
    """pyarrow ends the process where a column with the sizes of texts is said to hold true and false."""
    MEASURED.save(tmp_path / "set.parquet")
    content = (tmp_path / "set.parquet").read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    text, boolean = bytes([0x15, 0x0C]), bytes([0x15, 0x00])  # the first field of a column: its type
    places = [place for place in range(footer, len(content)) if content.startswith(text, place)]
    for place in places:
        (tmp_path / f"{place}.bad").write_bytes(content[:place] + boolean + content[place + 2 :])
    script = (
        "import pathlib, consilience.measurements as m, consilience.errors as e\n"
        "for path in pathlib.Path().glob('*.bad'):\n"
        "    try: m.MeasurementSet.load(path)\n"
        "    except e.FileFormatError: print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["refused"] * len(places)
    assert len(places) > 3


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
def test_the_sizes_of_all_kinds_of_pages_are_found(version, dictionary, compression) -> None:
    stream = BytesIO()
    table = pa.table(
        {"x": np.arange(30_000.0) % 7, "l": [[1.5, 2.5], [], None] * 10_000, "t": ["ab", None, "c"] * 10_000}
    )
    pq.write_table(
        table,
        stream,
        use_dictionary=dictionary,
        compression=compression,
        data_page_version=version,
        data_page_size=5000,
    )
    content = stream.getvalue()
    sizes = [sum(page_sizes(content, chunk, where="x")) for chunk in column_chunks(content, where="x")]
    assert sizes[0] >= 240_000
    assert sizes[1] >= 160_000
    assert sizes[2] >= 120_000
    assert read_bounded(content, where="x").column("t").cast(pa.string()).to_pylist() == table.column("t").to_pylist()


def test_texts_in_an_encoding_of_unknown_size_are_refused() -> None:
    stream = BytesIO()
    pq.write_table(
        pa.table({"t": ["same beginning"] * 100}),
        stream,
        use_dictionary=False,
        column_encoding={"t": "DELTA_BYTE_ARRAY"},
    )
    with pytest.raises(FileFormatError, match="DELTA_BYTE_ARRAY"):
        read_bounded(stream.getvalue(), where="x")


def test_a_large_file_may_hold_many_times_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_sizes, "LARGEST_CONTENTS", 1000)
    stream = BytesIO()
    pq.write_table(pa.table({"x": np.zeros(100_000)}), stream, use_dictionary=False, compression="snappy")
    assert read_bounded(stream.getvalue(), where="x").num_rows == 100_000
    stream = BytesIO()
    pq.write_table(pa.table({"x": np.zeros(100_000)}), stream, compression="zstd")
    with pytest.raises(FileFormatError, match="would take more than"):
        read_bounded(stream.getvalue(), where="x")


def test_damaged_page_headers_are_refused() -> None:
    stream = BytesIO()
    pq.write_table(pa.table({"x": np.arange(100.0)}), stream)
    content = stream.getvalue()
    for place in (*range(4, 60), *range(len(content) - 300, len(content))):
        for byte in (0, 0x1C, 0x7F, 0xFF):
            damaged = content[:place] + bytes([byte]) + content[place + 1 :]
            with suppress(FileFormatError):
                check_contents(damaged, where="x")


def test_synthetic_records_and_long_tables_that_hold_too_much_are_refused(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array(np.zeros(2**22)), "n": pa.array(np.zeros(2**22))})
    table = table.replace_schema_metadata({"consilience.format": "synthetic records"})
    path = repeated(table, tmp_path / "bomb.parquet", 8)
    with pytest.raises(FileFormatError, match="would take more than"):
        synthetic_file(path)
    with pytest.raises(FileFormatError, match="would take more than"):
        from_long_table(
            path,
            MEASURED.domain,
            keys=["a"],
            value="n",
            noise=DiscreteLaplace(1.0),
            neighbours="add-remove",
            clipped=False,
            released="all",
        )
