"""Parquet files, read one after another in batches of the columns that are needed."""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from consilience.domain.source_format import SourceFormat
from consilience.source.notation import meant_batches, writings_of
from consilience.source.readers import ROWS_PER_BATCH, Required, check_columns, check_types
from consilience.source.records import Batch
from consilience.source.refusals import attempt, attempt_each

parquet: Any = pyarrow.parquet

BYTES_AT_ONCE = 2**20
"""Bytes of each column that are read from disk at once."""


class ParquetReader:
    """Reads Parquet files in the order given; texts arrive as dictionaries, as Parquet stores them."""

    runs_code = False

    def __init__(self, shown: str, paths: Sequence[Path], required: Required, how: SourceFormat) -> None:
        self._paths = tuple(paths)
        self._writings = writings_of(required, how)
        self._refusal = (
            f"{shown} cannot be read as Parquet; check that every file is whole, is Parquet, and may be read"
        )
        self._texts: dict[Path, list[str]] = {}
        for path in paths:
            schema = attempt(lambda path=path: _schema(path), self._refusal)
            check_columns(shown, schema.names, required)
            self.columns = tuple(schema.names)
            check_types(shown, {name: schema.field(name).type for name in required}, required)
            self._texts[path] = [name for name in required if pa.types.is_string(schema.field(name).type)]

    def batches(self, names: Sequence[str]) -> Generator[Batch]:
        return attempt_each(meant_batches(self._batches(names), self._writings), self._refusal)

    def _batches(self, names: Sequence[str]) -> Generator[Batch]:
        for path in self._paths:
            # Buffering ahead would hold the whole file, and reading without a buffer whole columns of a row group.
            with parquet.ParquetFile(
                path, read_dictionary=self._texts[path], pre_buffer=False, buffer_size=BYTES_AT_ONCE
            ) as file:
                yield from file.iter_batches(batch_size=ROWS_PER_BATCH, columns=list(names), use_threads=False)


def _schema(path: Path) -> Any:
    with parquet.ParquetFile(path) as file:
        return file.schema_arrow
