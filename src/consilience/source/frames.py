"""Data frames and Parquet files, and everything that produces Arrow batches: lazy frames, relations, datasets, streams.

Frames in memory are read as they lie there: pyarrow tables as they are, polars and pandas through narwhals. A pandas
column of Python objects has no type of its own. Its values are read one by one, never by a type that is
guessed from all of them.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

from consilience.domain.source_format import SourceFormat
from consilience.errors import DeclarationError, SourceError
from consilience.source.readers import ROWS_PER_BATCH, Required, attempt, attempt_each, check_columns, check_types
from consilience.source.records import Batch, Writing, meant_batches, writings_of
from consilience.source.values import array_of_values

dataset: Any = pyarrow.dataset

SHOWN = "the data frame"
REFUSAL = (
    f"{SHOWN} cannot be read; check that it can be converted to an Arrow table, or save it as Parquet and open that"
)


def reader_of_frame(data: object, required: Required, how: SourceFormat) -> "FrameReader | StreamReader":
    """The reader of a frame in memory, or of what produces its batches only when it is read."""
    stream = attempt(lambda: _stream_of(data), REFUSAL)
    return FrameReader(data, required, how) if stream is None else StreamReader(stream, required, how)


class FrameReader:
    """Reads a frame that stays where it is: nothing is copied before it is counted."""

    reads_once = False

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
        self.runs_code = _is_pandas_like(self._frame)  # methods of the objects in a column
        check_types(SHOWN, attempt(lambda: self._types(tuple(required)), REFUSAL), required)

    def batches(self, names: Sequence[str]) -> Generator[Batch]:
        return attempt_each(self._batches(list(names)), REFUSAL)

    def _batches(self, names: list[str]) -> Generator[Batch]:
        frame = self._frame.select(names)
        if not _is_pandas_like(frame):
            batches = (batch for batch in frame.to_arrow().to_batches(max_chunksize=ROWS_PER_BATCH))
            yield from meant_batches(batches, self._writings)
            return
        for begin in range(0, len(frame), ROWS_PER_BATCH):
            part = frame[begin : begin + ROWS_PER_BATCH]
            arrays = [_pandas_array(part[name], self._writings.get(name)) for name in names]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    def _types(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The columns' types as their frame declares them; null where it declares none."""
        frame = self._frame.select(list(names)).head(0)
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
        return nw.from_native(data, eager_only=True)
    except TypeError:
        kind = f"{type(data).__module__}.{type(data).__qualname__}"
    raise DeclarationError(
        "a table is a path, a pandas, polars or pyarrow frame, a pyarrow dataset, a DuckDB relation, an ibis table or "
        f"another Arrow stream, not a {kind}; convert it to one of these, or save it as Parquet and open that"
    )


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
# What produces batches when it is read: a plan, a dataset, a relation, or a stream that somebody handed over.
#
# Its own engine runs it, one batch after the other: no more of it is in memory here than a few batches. Nothing of it
# is run before it is read, so that it is paid for first. A plain stream is gone when it has been read.


class Stream(NamedTuple):
    """What produces batches: the columns it will have, and how it is begun."""

    schema: Any
    read: Callable[[list[str]], Iterable[Any]]
    """Batches of these columns and possibly others."""
    once: bool = False


class StreamReader:
    """Reads batches as they are produced, in bounded memory."""

    runs_code = True

    def __init__(self, stream: Stream, required: Required, how: SourceFormat) -> None:
        self.columns = tuple(stream.schema.names)
        self.reads_once = stream.once
        self._stream = stream
        self._begun = False
        self._writings = writings_of(required, how)
        check_columns(SHOWN, self.columns, required)
        check_types(SHOWN, {name: stream.schema.field(name).type for name in required}, required)

    def batches(self, names: Sequence[str]) -> Generator[Batch]:
        if self._begun and self._stream.once:
            raise SourceError(
                f"{SHOWN} is a stream that can be read once only, and it was read; save it as Parquet and open that"
            )
        self._begun = True
        return attempt_each(meant_batches(self._batches(list(names)), self._writings), REFUSAL)

    def _batches(self, names: list[str]) -> Generator[Batch]:
        for batch in self._stream.read(names):
            some = batch.select(names)
            for begin in range(0, some.num_rows, ROWS_PER_BATCH):
                yield some.slice(begin, ROWS_PER_BATCH)


def _stream_of(data: Any) -> Stream | None:
    """The data as a stream of batches; None for what is a frame in memory, and for what is neither."""
    kind = type(data)
    package = kind.__module__.partition(".")[0]
    if isinstance(data, pa.Table | pa.RecordBatch) or (package == "polars" and kind.__name__ != "LazyFrame"):
        return None
    if package == "polars":
        return _stream_of_plan(data)
    if package in ("duckdb", "_duckdb"):
        return _stream_of_relation(data)
    if package == "ibis":
        return Stream(
            data.schema().to_pyarrow(),
            lambda names: data.select(*names).to_pyarrow_batches(chunk_size=ROWS_PER_BATCH),
        )
    if isinstance(data, dataset.Dataset):
        few: dict[str, Any] = {"batch_size": ROWS_PER_BATCH, "batch_readahead": 2, "fragment_readahead": 1}
        return Stream(data.schema, lambda names: data.to_batches(columns=names, use_threads=False, **few))
    if hasattr(data, "iloc") or not hasattr(data, "__arrow_c_stream__"):
        return None
    begun = pa.RecordBatchReader.from_stream(data)
    return Stream(begun.schema, lambda _: begun, once=True)


def _stream_of_plan(plan: Any) -> Stream:
    """A polars plan, run by polars' own streaming engine."""

    def read(names: list[str]) -> Generator[Any]:
        frames = plan.select(names).collect_batches(chunk_size=ROWS_PER_BATCH, maintain_order=False, engine="streaming")
        for frame in frames:
            yield from frame.to_arrow().to_batches()

    if not hasattr(plan, "collect_batches"):
        raise DeclarationError(
            "a lazy polars frame is read batch by batch from polars 1.34 on, and this is an earlier version; update "
            "polars, or collect the frame"
        )
    return Stream(plan.clear().collect().to_arrow().schema, read)


def _stream_of_relation(relation: Any) -> Stream:
    """A DuckDB relation, with the types its plan has: a limit of no rows would run parts of it in some versions."""
    import duckdb

    from consilience.source.databases import batch_reader, quoted

    nothing = ", ".join(f"CAST(NULL AS {kind}) AS c{i}" for i, kind in enumerate(relation.types))
    with duckdb.connect(":memory:") as connection:
        types = [field.type for field in batch_reader(connection.sql(f"SELECT {nothing}")).schema]
    return Stream(
        pa.schema(list(zip(relation.columns, types, strict=True))),
        lambda names: batch_reader(relation.project(", ".join(quoted(name) for name in names))),
    )


# ----------------------------------------------------------------------------------------------------------------------
# Parquet files, read one after another in batches of the columns that are needed.


parquet: Any = pyarrow.parquet

BYTES_AT_ONCE = 2**20
"""Bytes of each column that are read from disk at once."""


class ParquetReader:
    """Reads Parquet files in the order given; texts arrive as dictionaries, as Parquet stores them."""

    runs_code = False
    reads_once = False

    def __init__(
        self,
        shown: str,
        paths: Sequence[Path],
        required: Required,
        how: SourceFormat,
        groups: Mapping[Path, Sequence[int]] | None = None,
    ) -> None:
        """`groups` are the row groups to read of each file; all of them where they are not named."""
        self._paths = tuple(paths)
        self._groups = groups
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
                groups = range(file.num_row_groups) if self._groups is None else self._groups[path]
                yield from file.iter_batches(ROWS_PER_BATCH, groups, columns=list(names), use_threads=False)


def _schema(path: Path) -> Any:
    with parquet.ParquetFile(path) as file:
        return file.schema_arrow
