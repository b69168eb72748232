"""Files of synthetic records: CSV or Parquet, written in batches, whole or not at all."""

import io
import os
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from consilience.domain.declarations import guarded
from consilience.domain.files import file_in_place_of, write_atomically
from consilience.errors import DeclarationError, FileFormatError
from consilience.estimators import Estimate
from consilience.estimators.base import Progress
from consilience.measurements.parquet_sizes import check_contents
from consilience.publication.about import Publication
from consilience.publication.answers import CsvWriter, cell, heading
from consilience.publication.bundle import Bundle
from consilience.publication.metadata import croissant
from consilience.publication.synthetic import MEMORY_LIMIT, Spread, SyntheticRecords, prepare

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".csv", ".parquet")
LARGEST_GROWTH = 1000
"""A file of records may hold this many times its own size: the same label over and over takes next to nothing."""
UNMEASURED = " (not measured)"
"""Ends the name of a column in CSV that was filled with what the account assumes."""
QUOTED = frozenset(',"\r\n')


def write_synthetic(
    estimate: Estimate | Bundle,
    path: str | os.PathLike[str],
    rows: int | None = None,
    *,
    seed: int = 0,
    spread: Spread = "even",
    fill_unmeasured: bool = False,
    overwrite: bool = False,
    memory_limit: int = MEMORY_LIMIT,
    progress: Progress | None = None,
) -> Path:
    """Write what `synthesize` makes to a file whose name ends in .csv or .parquet, and return its path.

    Beside it lies a description of its columns for programs, `people.csv.croissant.json`, in the words of Croissant.
    Everything is checked before any work. The file takes its place when it is complete. A Parquet file says in its
    metadata what is promised, whether the noise was real, and what each column stands on. CSV has no place for that:
    there a first column says so where the noise was simulated, and the name of a column that was not measured does.

    >>> import tempfile
    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> account = cs.estimate(cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lines = write_synthetic(account, f"{folder}/people.csv", 5).read_text().splitlines()
    >>> lines[0], len(lines)
    ('age,sex', 6)
    """
    target = Path(path)
    check_target(target, overwrite=overwrite)
    made = prepare(estimate, rows, seed=seed, spread=spread, fill_unmeasured=fill_unmeasured, memory_limit=memory_limit)
    write = _write_csv if target.suffix.lower() == ".csv" else _write_parquet
    if write is _write_csv:
        _refuse_alike(made)
    with file_in_place_of(target) as stream:
        write(made, stream, progress)
    columns = tuple(map(guarded, _csv_columns(made))) if write is _write_csv else made.names
    told = estimate.publication if isinstance(estimate, Bundle) else Publication()
    about = croissant.description(made.estimate, made.schema, columns, target, publication=told, seed=seed)
    write_atomically(croissant.path_beside(target), about)
    return target


def _csv_columns(made: SyntheticRecords) -> tuple[str, ...]:
    """What the columns are called in CSV."""
    return tuple(f"{name}{UNMEASURED}" if name in made.filled else name for name in made.names)


def check_target(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a place where records cannot be written, or are not to be."""
    if path.suffix.lower() not in SUFFIXES:
        raise DeclarationError(f"{path} ends neither in .csv nor in .parquet; name the file so")
    if path.is_dir():
        raise DeclarationError(f"{path} is a folder; name a file")
    for each in (path, croissant.path_beside(path)):
        if each.exists() and not overwrite:
            raise DeclarationError(f"{each} exists already; choose another name, or overwrite it on purpose")
    if not path.absolute().parent.is_dir():
        raise DeclarationError(f"there is no folder {path.parent}; create it first")


def _write_parquet(made: SyntheticRecords, stream: BinaryIO, progress: Progress | None) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(stream, made.schema) as writer:
        for batch in made.batches(progress):
            writer.write_batch(batch)


def _write_csv(made: SyntheticRecords, stream: BinaryIO, progress: Progress | None) -> None:
    """A header, and a line for each record; texts are in quotes where some label needs them."""
    import pyarrow as pa
    from pyarrow.csv import CSVWriter, WriteOptions

    private = made.estimate.private
    stream.write(_line([*heading(private=private), *_csv_columns(made)]))
    if private and len(made.schema.names) == 1:
        for batch in made.batches(progress):
            stream.write(b"".join(_line([value]) for value in batch.column(0).to_pylist()))
        return
    labels = [guarded(label) for attribute in made.estimate.domain.counted for label in attribute.labels]
    style = "needed" if any(QUOTED.intersection(label) or not label for label in labels) else "none"
    plain = _plain_schema(made.schema)
    written = pa.schema([*(pa.field(name, pa.string()) for name in heading(private=private)), *plain])
    with CSVWriter(stream, written, write_options=WriteOptions(include_header=False, quoting_style=style)) as writer:
        for batch in made.batches(progress):
            arrays = [_without_formulas(array) for array in batch.columns]
            marks = [pa.repeat(mark, batch.num_rows) for mark in cell(private=private)]
            columns = [*marks, *pa.RecordBatch.from_arrays(arrays, plain.names).cast(plain).columns]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=written))


def _refuse_alike(made: SyntheticRecords) -> None:
    """Refuse labels of which one is written into CSV as another one is declared."""
    for attribute in made.estimate.domain.counted:
        for label in attribute.labels:
            if guarded(label) != label and guarded(label) in attribute.codes_by_label:
                raise DeclarationError(
                    f"attribute {attribute.name!r}: in CSV {label!r} is written {guarded(label)!r}, so that no "
                    "spreadsheet takes it for a formula, and that is a value of its own; write .parquet"
                )


def _line(values: list[object]) -> bytes:
    """One line as any reader takes it: a missing value that stands alone is written as two quotes, not as no line."""
    text = io.StringIO()
    CsvWriter(text).writerow(values)
    return text.getvalue().encode()


def _without_formulas(array: Any) -> Any:
    """A column of labels as it is written into CSV; other columns as they are."""
    import pyarrow as pa

    if not pa.types.is_dictionary(array.type):
        return array
    labels = pa.array([guarded(label) for label in array.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(array.indices, labels)


def _plain_schema(schema: "pa.Schema") -> "pa.Schema":
    """The schema with texts in place of dictionaries."""
    import pyarrow as pa

    fields = [
        pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in schema
    ]
    return pa.schema(fields)


def synthetic_file(path: Path) -> tuple[int, bool] | None:
    """The rows of a Parquet file of synthetic records, every page of it read, and whether the noise was real.

    None where it is something else.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
        if metadata.get(b"consilience.format") != b"synthetic records":
            return None
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            check_contents(content, where=str(path), growth=LARGEST_GROWTH)
        texts = [field.name for field in pq.read_schema(path) if pa.types.is_string(field.type)]
        reader = pq.ParquetFile(path, read_dictionary=texts)
        rows = sum(batch.num_rows for batch in reader.iter_batches(use_threads=False))
    except (pa.ArrowException, OSError, ValueError):
        raise FileFormatError(f"{path} is no Parquet file, or is cut short; write it anew") from None
    return rows, metadata.get(b"consilience.private") == b"true"
