"""What a run of DualQuery leaves behind: the queries that were drawn, and the records that answer them.

It is kept as one measurement of kind "selections". Its values are the candidates drawn in rounds 2 … T, round after
round: a place among the single answers of the workload, or, from their number on, the complement of one. The first
round draws evenly and costs nothing. `extra["selection"]` holds the workload, the number N of records that the scores
were made with, how many draws a round has, and the T records found. The scale b of its Gumbel noise is in units of the
scores N·h − k·n, so that the learning rate is η = N/b.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Query
from consilience.domain.domains import Domain
from consilience.domain.workloads import AnswerSets, Workload
from consilience.errors import MeasurementError
from consilience.measurements import Gumbel, Measurement, MeasurementSet

ALGORITHM = "dual-query"
KEYS = {"algorithm", "part", "workload", "records", "draws", "found"}


@dataclass(frozen=True, eq=False)
class DualQueryRun:
    """The draws and the records of one run."""

    sets: AnswerSets
    records: int
    """N, as the scores had it."""
    drawn: NDArray[np.int64]
    """The candidates of rounds 2 … T, a row for each round."""
    found: NDArray[np.int64]
    """The records x^1 … x^T as codes of the counted attributes, a row each."""
    rate: float

    @staticmethod
    def of(measured: MeasurementSet) -> "DualQueryRun":
        """The run in a measurement set; refused where there is none or more than one."""
        runs = [each for each in measured if (each.selection or {}).get("algorithm") == ALGORITHM]
        if len(runs) != 1:
            raise MeasurementError(
                f"a run of DualQuery is one measurement of its selections, found {len(runs)} of them; fit what the "
                "plan dual-query measured, one run at a time"
            )
        return _read(runs[0], measured.domain)


def selections(
    sets: AnswerSets,
    *,
    records: int,
    drawn: Sequence[Sequence[int]],
    found: Sequence[NDArray[np.int64]],
    scale: float,
) -> Measurement:
    """The measurement that a run leaves behind."""
    description = {
        "algorithm": ALGORITHM,
        "part": "draws",
        "workload": sets.workload.to_json(),
        "records": records,
        "draws": len(drawn[0]),
        "found": [each.tolist() for each in found],
    }
    values = np.array(drawn, dtype=np.float64).ravel()
    return Measurement(Query(()), values, Gumbel(scale), kind="selections", extra={"selection": description})


def _read(measurement: Measurement, domain: Domain) -> DualQueryRun:
    described = measurement.selection or {}
    if set(described) != KEYS:
        raise _refusal(measurement, f"describes {sorted(described)} in place of {sorted(KEYS)}")
    sets = AnswerSets(Workload.from_json(described["workload"], where=measurement.name), domain)
    records, draws = _whole(measurement, described, "records"), _whole(measurement, described, "draws")
    found = _codes(measurement, described["found"], domain)
    if measurement.values.size != draws * (len(found) - 1):
        raise _refusal(measurement, f"has {measurement.values.size} draws for {len(found) - 1} rounds of {draws}")
    drawn = measurement.values.astype(np.int64).reshape(len(found) - 1, draws)
    if drawn.max() >= 2 * len(sets):
        raise _refusal(measurement, f"drew candidate {drawn.max()} of {2 * len(sets)}")
    return DualQueryRun(sets, records, drawn, found, records / measurement.noise.scale_parameter)


def _whole(measurement: Measurement, described: Mapping[str, Any], key: str) -> int:
    value = described[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _refusal(measurement, f"has {value!r} {key}")
    return value


def _codes(measurement: Measurement, listed: Any, domain: Domain) -> NDArray[np.int64]:
    """The records, each with a code that its attribute has."""
    try:
        codes = np.array(listed, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        raise _refusal(measurement, "lists records that are no whole numbers, or of different lengths") from None
    if codes.ndim != 2 or len(codes) < 2 or codes.shape[1] != len(domain.shape):
        raise _refusal(measurement, f"lists records of the shape {codes.shape} for {len(domain.shape)} attributes")
    if codes.min() < 0 or np.any(codes >= np.array(domain.shape)):
        raise _refusal(measurement, "lists a record with a code that its attribute does not have")
    return codes


def _refusal(measurement: Measurement, what: str) -> MeasurementError:
    return MeasurementError(
        f"the run of DualQuery {measurement.name} {what}; fit the measurements as the plan left them"
    )
