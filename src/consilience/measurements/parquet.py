"""Measurement files, format v1: one Parquet file, a row for each measurement. The reference has the full specification.

Files come from anywhere. Reading one either gives contents that were checked, or refuses with a `FileFormatError` that
names the file, the row and the next step.
"""

import json
import math
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import Declaration, suggestion
from consilience.domain.domains import Domain
from consilience.domain.files import write_atomically
from consilience.domain.queries import Query
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError, MeasurementError
from consilience.measurements.further_laws import Exact, Gaussian, Gumbel, Laplace
from consilience.measurements.measurement import RESERVED_EXTRA, Measurement, shortened_text, write_json
from consilience.measurements.noise_laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from consilience.measurements.parquet_sizes import read_bounded
from consilience.measurements.privacy_statement import PrivacyStatement

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "measurements"
VERSION = 1
MAGIC = b"PAR1"
COLUMNS = ("id", "kind", "round", "attributes", "query", "values", "noise_law", "noise_scale", "clipped", "extra")


@dataclass(frozen=True)
class MeasurementFile:
    """What one file holds, each part checked by itself; `MeasurementSet` checks that the parts fit together."""

    domain: Domain
    measurements: tuple[Measurement, ...]
    privacy: PrivacyStatement
    provenance: dict[str, Any]
    private: bool


def write_file(path: str | os.PathLike[str], contents: MeasurementFile) -> None:
    """Write the whole file or nothing."""
    write_atomically(Path(path), to_bytes(contents))


def read_file(path: str | os.PathLike[str]) -> MeasurementFile:
    """The checked contents of a file."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileFormatError(f"there is no measurement file {path}; check the path") from None
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path} cannot be read: {type(error).__name__}") from None
    return from_bytes(content, where=path.name)


def to_bytes(contents: MeasurementFile) -> bytes:
    """The contents as the bytes of a v1 file."""
    import pyarrow.parquet as pq

    metadata = {
        "consilience.format": FORMAT,
        "consilience.version": str(VERSION),
        "consilience.domain": write_json(contents.domain.to_declaration()),
        "consilience.privacy": write_json(contents.privacy.to_json()),
        "consilience.provenance": write_json(contents.provenance),
        "consilience.private": write_json(contents.private),
    }
    stream = BytesIO()
    try:
        table = _table_of(contents.measurements).replace_schema_metadata(metadata)
        # Noisy numbers hardly repeat: a dictionary of them would only cost time.
        pq.write_table(table, stream, use_dictionary=False, write_page_checksum=True)
    except UnicodeEncodeError:
        raise FileFormatError("a name or label is not valid Unicode and cannot be written; rename it") from None
    return stream.getvalue()


def from_bytes(content: bytes, *, where: str) -> MeasurementFile:
    """The checked contents of the bytes of a file; `where` is what messages call it."""
    if content[:4] != MAGIC:
        raise FileFormatError(f"{where} is not a Parquet file; measurements are saved with MeasurementSet.save")
    if len(content) < 12 or content[-4:] != MAGIC:
        raise FileFormatError(f"{where} is truncated: the end of the Parquet file is missing; copy it again")
    with refusing_what_is_odd(where):
        metadata = _read_metadata(content, where)
        _check_version(metadata, where)
        domain = Domain.from_declaration(_json_of(metadata, "domain", where), where=f"{where}: domain")
        privacy = PrivacyStatement.from_json(_json_of(metadata, "privacy", where), where=f"{where}: privacy")
        provenance = _json_of(metadata, "provenance", where)
        private = _json_of(metadata, "private", where)
        if not isinstance(provenance, dict):
            raise FileFormatError(f"{where}: the provenance must be a JSON object")
        if not isinstance(private, bool):
            raise FileFormatError(f"{where}: 'consilience.private' must be true or false")
        measurements = tuple(_read_rows(content, where))
        return MeasurementFile(domain, measurements, privacy, provenance, private)


@contextmanager
def refusing_what_is_odd(where: str, what: str = "measurement file") -> Generator[None]:
    """Turn whatever the contents of a file can provoke into a refusal that names the file.

    Bytes that were damaged or made up reach deep into Arrow and NumPy; these are the errors those raise on such input.
    """
    import pyarrow as pa

    try:
        yield
    except FileFormatError:
        raise
    except ConsilienceError as error:
        text = str(error)
        raise FileFormatError(text if text.startswith(where) else f"{where}: {text}") from None
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(
            f"{where} is damaged: its Parquet contents cannot be read ({_first_line(error)}); copy it again"
        ) from None
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError, RecursionError) as error:
        raise FileFormatError(
            f"{where} holds something that no {what} may hold ({type(error).__name__}: {_first_line(error)})"
        ) from None


def _schema() -> "pa.Schema":
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("kind", pa.string(), nullable=False),
            pa.field("round", pa.int64(), nullable=True),
            pa.field("attributes", pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False),
            pa.field("query", pa.string(), nullable=False),
            pa.field("values", pa.list_(pa.field("element", pa.float64(), nullable=False)), nullable=False),
            pa.field("noise_law", pa.string(), nullable=False),
            pa.field("noise_scale", pa.float64(), nullable=False),
            pa.field("clipped", pa.bool_(), nullable=False),
            pa.field("extra", pa.string(), nullable=False),
        ]
    )


def _table_of(measurements: Sequence[Measurement]) -> "pa.Table":
    """The rows of the file; numbers are handed over as one block."""
    import pyarrow as pa

    rows = [_row(measurement) for measurement in measurements]
    arrays = []
    for field in _schema():
        if field.name == "values":
            ends = np.cumsum([0, *(measurement.values.size for measurement in measurements)])
            numbers = np.concatenate([np.empty(0), *(measurement.values for measurement in measurements)])
            arrays.append(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(numbers), type=field.type))
        else:
            arrays.append(pa.array([row[field.name] for row in rows], field.type))
    return pa.Table.from_arrays(arrays, schema=_schema())


def _row(measurement: Measurement) -> dict[str, Any]:
    """All columns but the values."""
    return {
        "id": measurement.id,
        "kind": measurement.kind,
        "round": measurement.round,
        "attributes": list(measurement.query.attributes),
        "query": write_json(measurement.query.to_json()),
        "noise_law": measurement.noise.law,
        "noise_scale": measurement.noise.scale_parameter,
        "clipped": measurement.clipped,
        "extra": write_json(_own_extra(measurement) | dict(measurement.extra)),
    }


def _own_extra(measurement: Measurement) -> dict[str, Any]:
    """The fields of a measurement that have no column of their own."""
    own: dict[str, Any] = {}
    if measurement.noise.lattice_step is not None:
        own["step"] = measurement.noise.lattice_step
    if measurement.threshold is not None:
        own["threshold"] = measurement.threshold
    if measurement.censored is not None:
        own["censored"] = np.flatnonzero(measurement.censored).tolist()
    return own


def _read_metadata(content: bytes, where: str) -> dict[str, str]:
    """Our keys of the file's key-value metadata, without their prefix."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = pq.ParquetFile(pa.BufferReader(content)).metadata.metadata or {}
    prefix = b"consilience."
    ours = {key: value for key, value in found.items() if key.startswith(prefix)}
    if prefix + b"format" not in ours:
        raise FileFormatError(
            f"{where} is a Parquet file, but not one of measurements: it lacks the metadata 'consilience.format'; "
            "to bring a table of noisy counts use consilience.measurements.from_long_table"
        )
    return {key.removeprefix(prefix).decode(): value.decode() for key, value in ours.items()}


def _check_version(metadata: dict[str, str], where: str) -> None:
    if metadata["format"] != FORMAT:
        raise FileFormatError(
            f"{where} holds {metadata['format']!r}, but {FORMAT!r} were expected; choose another file"
        )
    version = metadata.get("version", "missing")
    if not (version.isascii() and version.isdigit() and len(version) < 10):
        raise FileFormatError(f"{where}: 'consilience.version' is {version[:40]!r}, but must be a whole number")
    if int(version) > VERSION:
        raise FileFormatError(
            f"{where} is of version {version}, and this consilience reads up to version {VERSION}; upgrade consilience"
        )
    if int(version) < 1:
        raise FileFormatError(f"{where} is of version {version}, but versions start at 1")


def _json_of(metadata: dict[str, str], key: str, where: str) -> Any:
    if key not in metadata:
        raise FileFormatError(f"{where} lacks the metadata 'consilience.{key}', which every measurement file has")
    return read_json(metadata[key], where=f"{where}: consilience.{key}")


def _read_rows(content: bytes, where: str) -> Iterator[Measurement]:
    table = _read_table(content, where)
    columns = {name: table.column(name).to_pylist() for name in COLUMNS if name != "values"}
    values = table.column("values")
    for i in range(table.num_rows):
        row = {name: column[i] for name, column in columns.items()}
        place = f"{where}: row {i + 1} ({_shown_id(row['id'])})"
        try:
            yield _read_row(row, _values_of(values[i], place), place)
        except FileFormatError:
            raise
        except ConsilienceError as error:
            text = str(error)
            raise FileFormatError(text if text.startswith(where) else f"{place}: {text}") from None


def _read_table(content: bytes, where: str) -> "pa.Table":
    """The ten columns in the types of the specification, without nulls where there may be none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pq.ParquetFile(pa.BufferReader(content)).schema_arrow.names
    for name in COLUMNS:
        if name not in names:
            raise FileFormatError(
                f"{where} lacks the column {name!r}; a measurement file has the columns {', '.join(COLUMNS)}"
            )
    table = read_bounded(content, where=where, columns=COLUMNS)
    arrays = []
    for field in _schema():
        column = table.column(field.name)
        try:
            arrays.append(column.cast(field.type))
        except pa.ArrowException:
            raise FileFormatError(
                f"{where}: the column {field.name!r} is of type {column.type}, but must be {field.type}"
            ) from None
        if not field.nullable and column.null_count:
            raise FileFormatError(f"{where}: the column {field.name!r} has empty places; only 'round' may have them")
    found = pa.table(arrays, names=[field.name for field in _schema()])
    found.validate(full=True)
    return found


def _values_of(cell: Any, place: str) -> NDArray[np.float64]:
    numbers = cell.values
    if numbers.null_count:
        raise FileFormatError(f"{place}: 'values' has an empty place; write NaN, and only where 'censored' lists it")
    return np.asarray(np.from_dlpack(numbers), dtype=np.float64)  # `to_numpy` would import pandas


def _read_row(row: dict[str, Any], values: NDArray[np.float64], place: str) -> Measurement:
    query = Query.from_json(read_json(row["query"], where=f"{place}: query"), where=f"{place}: query")
    if tuple(row["attributes"]) != query.attributes:
        raise FileFormatError(
            f"{place}: 'attributes' is {row['attributes']}, but the query names {list(query.attributes)}; "
            "they must be equal"
        )
    extra = read_json(row["extra"], where=f"{place}: extra")
    declared = Declaration(extra, f"{place}: extra")
    step = declared.number("step") if "step" in declared else None
    threshold = declared.number("threshold") if "threshold" in declared else None
    return Measurement(
        query,
        values,
        noise_law(row["noise_law"], row["noise_scale"], step=step),
        id=row["id"],
        kind=row["kind"],
        clipped=row["clipped"],
        censored=_read_marks(declared, values.size),
        threshold=threshold,
        round=row["round"],
        extra={key: value for key, value in extra.items() if key not in RESERVED_EXTRA},
    )


def _read_marks(declared: Declaration, size: int) -> NDArray[np.bool_] | None:
    """The marks of the censored places, listed as positions in increasing order."""
    if "censored" not in declared:
        return None
    places = declared.numbers("censored")
    _refuse_bad_places(declared, places, size)
    marks = np.zeros(size, dtype=np.bool_)
    marks[np.array(places, dtype=np.intp)] = True
    return marks


def _refuse_bad_places(declared: Declaration, places: Sequence[float], size: int) -> None:
    previous = -1.0
    for place in places:
        if place != int(place) or not previous < place < size:
            declared.refuse(f"'censored' must list increasing positions from 0 to {size - 1}, found {place}")
        previous = place


def _shown_id(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...") if text else "no id"


def _first_line(error: BaseException) -> str:
    line = (str(error).splitlines() or [""])[0]
    return line if len(line) <= 120 else line[:117] + "..."


# ----------------------------------------------------------------------------------------------------------------------
# JSON inside measurement files, read with suspicion.
#
# A measurement file may come from anyone. What this module reads is one well-formed JSON text without repeated keys,
# without numbers that no float can hold, and without text that UTF-8 cannot write.


LONGEST_INTEGER = 300
"""Digits of the longest whole number that is read: those beyond do not fit a float."""


def read_json(text: str, *, where: str) -> Any:
    """The value that a JSON text holds, refused where JSON readers could disagree about it."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=_without_repeats,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            parse_int=_bounded_integer,
        )
        if "\\ud" in text.lower():
            write_json(value).encode()
    except RecursionError:
        raise FileFormatError(f"{where}: the JSON is nested too deeply to be read") from None
    except ValueError as error:
        raise FileFormatError(
            f"{where}: this is not the JSON it should be: {shortened_text(str(error), length=120)}"
        ) from None
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shortened_text(repeated)!r} appears twice in one object")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {shortened_text(text)} is too large")
    return value


def _bounded_integer(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"the number {shortened_text(text)} is too large")
    return int(text)


# ----------------------------------------------------------------------------------------------------------------------
# Noise laws by the names that files have for them.


LAWS: dict[str, type[NoiseLaw]] = {
    law.law: law for law in (Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian, Exact, Gumbel)
}


def noise_law(name: str, scale: float, *, step: float | None = None) -> NoiseLaw:
    """The law of this name; `step` is for discrete laws, and 1 where it is left out.

    >>> noise_law("discrete-laplace", 2.0)
    DiscreteLaplace(scale=2.0, step=1.0)
    """
    found = LAWS.get(name)
    if found is None:
        raise MeasurementError(f"the noise law {name!r} is not known; {suggestion(str(name), LAWS)}")
    if step is not None and not found.discrete:
        raise MeasurementError(f"{name} noise has no step, but step {step} was given; only discrete laws have one")
    if found is Exact:
        if scale != 0:
            raise MeasurementError(f"the noise law 'exact' was given the scale {scale}; exact values have scale 0")
        return Exact()
    options = {} if step is None else {"step": step}
    return found(scale, **options)  # pyright: ignore[reportCallIssue]


def noise_law_from_json(mapping: object, *, where: str = "noise") -> NoiseLaw:
    """The law that plain data describes; the inverse of `NoiseLaw.to_json`."""
    try:
        declared = Declaration(mapping, where)
        name, scale = declared.text("law"), declared.number("scale")
        step = declared.number("step") if "step" in declared else None
        declared.close()
    except DeclarationError as error:
        raise MeasurementError(str(error)) from None
    return noise_law(name, scale, step=step)
