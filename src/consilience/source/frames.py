"""Data frames in memory: pyarrow tables as they are, polars and pandas through narwhals.

A pandas column of Python objects has no type of its own. Its values are read one by one, never by a type that is
guessed from all of them.
"""

from collections.abc import Generator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet

from consilience.domain.source_format import SourceFormat
from consilience.errors import DeclarationError
from consilience.source.readers import ROWS_PER_BATCH, Required, attempt, attempt_each, check_columns, check_types
from consilience.source.records import Batch, Writing, meant_batches, writings_of
from consilience.source.values import array_of_values

SHOWN = "the data frame"
REFUSAL = (
    f"{SHOWN} cannot be read; check that it can be converted to an Arrow table, or save it as Parquet and open that"
)


class FrameReader:
    """Reads a frame that stays where it is: nothing is copied before it is counted."""

    def __init__(self, data: object, required: Required, how: SourceFormat) -> None:
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        columns = _column_names(data)
        self.columns = tuple(columns)
        self._writings = writings_of(required, how)
        check_columns(SHOWN, columns, required)
        if len(set(columns)) < len(columns):
            data = _selected(data, list(required))
        self._frame = attempt(lambda: _wrapped(data), REFUSAL)
        # A lazy plan runs when it is read, and so do the methods of objects in a pandas column.
        self.runs_code = isinstance(self._frame, nw.LazyFrame) or _is_pandas_like(self._frame)
        check_types(SHOWN, attempt(lambda: self._types(tuple(required)), REFUSAL), required)

    def batches(self, names: Sequence[str]) -> Generator[Batch]:
        return attempt_each(self._batches(list(names)), REFUSAL)

    def _batches(self, names: list[str]) -> Generator[Batch]:
        frame = _collected(self._frame.select(names))
        if not _is_pandas_like(frame):
            batches = (batch for batch in frame.to_arrow().to_batches(max_chunksize=ROWS_PER_BATCH))
            yield from meant_batches(batches, self._writings)
            return
        for begin in range(0, len(frame), ROWS_PER_BATCH):
            part = frame[begin : begin + ROWS_PER_BATCH]
            arrays = [_pandas_array(part[name], self._writings.get(name)) for name in names]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    def _types(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The columns' types as their frame declares them; null where it declares none. No plan is run."""
        if isinstance(self._frame, nw.LazyFrame):
            return _lazy_types(self._frame.select(list(names)))
        frame = _collected(self._frame.select(list(names)).head(0))
        if not _is_pandas_like(frame):
            schema = frame.to_arrow().schema
            return {name: schema.field(name).type for name in names}
        return {name: _pandas_array(frame[name]).type for name in names}


def _column_names(data: Any) -> list[str]:
    """The names of a frame's columns, repeated ones included: narwhals refuses those with their names."""
    if isinstance(data, pa.Table):
        return data.schema.names
    if hasattr(data, "iloc"):
        return list(data.columns)
    return attempt(lambda: _wrapped(data).collect_schema().names(), REFUSAL)


def _selected(data: Any, names: list[str]) -> Any:
    """The frame without columns that share their names with others."""
    return data.select(names) if isinstance(data, pa.Table) else data[names]


def _wrapped(data: Any) -> Any:
    try:
        return nw.from_native(data)
    except TypeError:
        kind = f"{type(data).__module__}.{type(data).__qualname__}"
    raise DeclarationError(
        f"a table is a path, or a pandas, polars or pyarrow frame, not a {kind}; convert it to one of these"
    )


def _collected(frame: Any) -> Any:
    return frame.collect() if isinstance(frame, nw.LazyFrame) else frame


def _lazy_types(frame: Any) -> dict[str, Any]:
    """The types of a lazy frame's columns, from its plan alone; null where only running it would tell."""
    if not frame.implementation.is_polars():
        return dict.fromkeys(frame.collect_schema().names(), pa.null())
    schema = frame.to_native().clear().collect().to_arrow().schema
    return {field.name: field.type for field in schema}


def _is_pandas_like(frame: Any) -> bool:
    return frame.implementation.is_pandas_like()


def _pandas_array(series: Any, writing: Writing | None = None) -> Any:
    read = array_of_values if writing is None else writing.meant_by_each
    native = series.to_native()
    if hasattr(native, "cat"):
        categories = read(native.cat.categories.tolist())
        codes = native.cat.codes.to_numpy()
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), categories)
    if native.dtype == object:
        values = series.to_list()
        return read(values, missing=_missing(series, values))
    array = series.to_arrow()
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return array if writing is None else writing.meant(array)


def _missing(series: Any, values: list[Any]) -> list[bool]:
    try:
        return series.is_null().to_list()
    except ArithmeticError:  # a signalling NaN refuses to be compared: its like are found one by one
        signalling = [isinstance(value, Decimal) and value.is_nan() for value in values]
        others = series.to_native().mask(signalling, None)
        return others.isna().tolist()


# ----------------------------------------------------------------------------------------------------------------------
# Parquet files, read one after another in batches of the columns that are needed.


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
