"""Parquet files are read piece by piece."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.domain.source_format import SourceFormat
from consilience.source import frames as parquet


@pytest.mark.parametrize("rows_per_group", [2**18, 2**21])
def test_reading_holds_a_small_part_of_the_file(tmp_path: Path, monkeypatch, rows_per_group) -> None:
    numbers = np.random.default_rng(0).integers(0, 2**60, 2**21)
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": numbers, "b": numbers[::-1]}), path, row_group_size=rows_per_group)
    monkeypatch.setattr(parquet, "ROWS_PER_BATCH", 2**14)
    reader = parquet.ParquetReader("the source", [path], {"a": None, "b": None}, SourceFormat())
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for batch in reader.batches(["a", "b"]):
        most, rows = max(most, pa.total_allocated_bytes() - before), rows + batch.num_rows
    assert rows == 2**21
    assert most < path.stat().st_size / 3
