"""Small files that hold gigabytes are refused before anything is decompressed."""

import subprocess
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.domain import Domain, Query
from consilience.errors import FileFormatError
from consilience.measurements import DiscreteLaplace, Measurement, MeasurementSet, from_long_table, parquet_sizes
from consilience.measurements.parquet_sizes import _page_sizes, check_contents, read_bounded
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
    chunk = pq.ParquetFile(BytesIO(stream.getvalue())).metadata.row_group(0).column(0)
    names = ("data_page_offset", "has_dictionary_page", "dictionary_page_offset", "total_compressed_size")
    lying = SimpleNamespace(**{name: getattr(chunk, name) for name in names}, num_values=1, physical_type="DOUBLE")
    assert sum(_page_sizes(stream.getvalue(), lying, 8, "x")) >= 160_000


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
    metadata = pq.ParquetFile(BytesIO(content)).metadata
    sizes = [sum(_page_sizes(content, metadata.row_group(0).column(i), 8, "x")) for i in range(3)]
    assert sizes[0] >= 240_000
    assert sizes[1] >= 160_000
    assert sizes[2] >= 240_000
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
    metadata = pq.ParquetFile(BytesIO(content)).metadata
    for place in range(4, 60):
        for byte in (0, 0x1C, 0x7F, 0xFF):
            damaged = content[:place] + bytes([byte]) + content[place + 1 :]
            with suppress(FileFormatError):
                check_contents(damaged, metadata, where="x")


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
