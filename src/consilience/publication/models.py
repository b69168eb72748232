"""Model files: the numbers of an estimate in one Parquet file, a row for each array.

The metadata holds the method, the status, the statistics, and where the estimate comes from: the dataset, its domain's
fingerprint, the privacy statement, the request, and whether the noise was real. Files of earlier versions lack the
latter.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from consilience.domain.declarations import Declaration
from consilience.domain.files import write_atomically
from consilience.errors import ConsilienceError, FileFormatError
from consilience.estimators import Estimate
from consilience.estimators.base import SavedModel
from consilience.measurements import MeasurementSet
from consilience.numerics.fit import Status

VERSION = "1"


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
        "consilience.version": VERSION,
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:  # unlike `read_table`, it imports neither datasets nor pandas
            table = file.read(use_threads=False)
    except FileNotFoundError:
        raise FileFormatError(f"there is no model file {path}") from None
    except (pa.ArrowException, OSError):
        raise FileFormatError(f"{path} is no Parquet file, or is cut short; write the bundle anew") from None
    try:
        return _read(table)
    except (KeyError, TypeError, ValueError, RecursionError, ConsilienceError) as error:
        reason = f": {error}" if isinstance(error, ConsilienceError) else ""
        raise FileFormatError(f"{path} is not a consilience model file of version {VERSION}{reason}") from None


def is_model(path: Path) -> bool:
    """True of a Parquet file that calls itself a model."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError):
        return False
    return metadata.get(b"consilience.format") == b"model"


def _read(table: Any) -> SavedModel:
    metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    declared = Declaration(metadata, "model file")
    if declared.text("consilience.format") != "model" or declared.text("consilience.version") != VERSION:
        declared.refuse(f"expected a model of version {VERSION}, found {metadata.get('consilience.version')!r}")
    arrays = {}
    for row in table.to_pylist():
        array = np.array(row["values"], dtype=np.float64).reshape(row["shape"])
        if not np.isfinite(array).all():
            declared.refuse(f"the array {row['name']!r} has values that are not finite")
        arrays[str(row["name"])] = array
    said = json.loads(metadata["consilience.origin"]) if "consilience.origin" in declared else None
    if said is not None:
        Declaration(said, "origin").flag("private")
    return SavedModel(
        method=json.loads(metadata["consilience.method"]),
        status=Status(metadata["consilience.status"]),
        stats=json.loads(metadata["consilience.stats"]),
        arrays=arrays,
        origin=said,
    )
