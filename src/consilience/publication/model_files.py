"""Model files: the numbers of an estimate in one Parquet file, a row for each array.

The metadata holds the method, the status, the statistics, and where the estimate comes from: the dataset, its
domain's fingerprint, the privacy statement, the request, and whether the noise was real. Files of earlier versions
lack the latter.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import Declaration
from consilience.domain.files import write_atomically
from consilience.errors import FileFormatError
from consilience.estimators import Estimate
from consilience.estimators.base import SavedModel
from consilience.measurements import MeasurementSet
from consilience.measurements.parquet import refusing_what_is_odd
from consilience.measurements.parquet_sizes import read_bounded
from consilience.solvers.fit import Status

MODEL_VERSION = "1"


def origin(measured: MeasurementSet) -> dict[str, Any]:
    """What everything that is made from some measurements must agree on with them, as plain data."""
    return {
        "dataset": measured.domain.name,
        "domain": measured.domain.fingerprint,
        "private": measured.private,
        **measured.privacy.to_json(),
        "release": measured.provenance.get("release"),
        "ledger": measured.provenance.get("ledger"),
    }


def save_model(estimate: Estimate, path: Path) -> None:
    """Write the estimate's numbers, method, status and statistics."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = estimate.arrays()
    columns: dict[str, Any] = {
        "name": pa.array(list(arrays), pa.string()),
        "shape": pa.array([list(array.shape) for array in arrays.values()], pa.list_(pa.int64())),
        "values": pa.array([array.ravel() for array in arrays.values()], pa.list_(pa.float64())),
    }
    metadata = {
        "consilience.format": "model",
        "consilience.version": MODEL_VERSION,
        "consilience.method": json.dumps(dict(estimate.method)),
        "consilience.status": estimate.status.value,
        "consilience.stats": json.dumps(dict(estimate.stats)),
        "consilience.origin": json.dumps(origin(estimate.measurements)),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), sink)
    write_atomically(path, sink.getvalue().to_pybytes())


def load_model(path: Path) -> SavedModel:
    """What `save_model` wrote; anything else is refused."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileFormatError(f"there is no model file {path}") from None
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read: {error.strerror}") from None
    with refusing_what_is_odd(str(path), "model file"):
        return _read(content, str(path))


def is_model(path: Path) -> bool:
    """True of a Parquet file that calls itself a model."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError, ValueError):
        return False
    return metadata.get(b"consilience.format") == b"model"


def _read(content: bytes, where: str) -> SavedModel:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = pq.ParquetFile(pa.BufferReader(content)).metadata.metadata or {}
    metadata = {key.decode(): value.decode() for key, value in found.items() if key.startswith(b"consilience.")}
    declared = Declaration(metadata, where)
    if declared.text("consilience.format") != "model" or declared.text("consilience.version") != MODEL_VERSION:
        declared.refuse(f"expected a model of version {MODEL_VERSION}, found {metadata.get('consilience.version')!r}")
    said = json.loads(declared.text("consilience.origin")) if "consilience.origin" in declared else None
    if said is not None:
        Declaration(said, "origin").flag("private")
    return SavedModel(
        method=_object_of(declared, "consilience.method"),
        status=Status(declared.text("consilience.status")),
        stats=_object_of(declared, "consilience.stats"),
        arrays=_arrays(read_bounded(content, where=where, columns=("name", "shape", "values")), declared),
        origin=said,
    )


def _object_of(declared: Declaration, key: str) -> dict[str, Any]:
    found = json.loads(declared.text(key))
    return found if isinstance(found, dict) else declared.refuse(f"{key!r} must be a JSON object")


def _arrays(table: Any, declared: Declaration) -> dict[str, NDArray[np.float64]]:
    """The arrays by their names, each of the shape that it declares."""
    arrays = {}
    for name, shape, numbers in zip(*(table.column(name) for name in ("name", "shape", "values")), strict=True):
        sizes = [int(size) for size in shape.as_py()]
        array = np.array(np.from_dlpack(numbers.values), dtype=np.float64)  # `to_numpy` would import pandas
        if min(sizes, default=1) < 0 or math.prod(sizes) != array.size:
            declared.refuse(f"the array {name.as_py()!r} has {array.size:,} values for the shape {sizes}")
        if not np.isfinite(array).all():
            declared.refuse(f"the array {name.as_py()!r} has values that are not finite")
        arrays[str(name.as_py())] = array.reshape(sizes)
    return arrays
