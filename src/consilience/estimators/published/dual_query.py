"""`DualQuery`: the synthetic records of a run of DualQuery, each as likely as the other (Gaboardi et al. 2014).

The records answer every query, not only those of the workload: with T of them and N records in the data, each stands
for N/T. Answers are whole multiples of that, so a few dozen records are a coarse account. `DualQueryModel` reads the
same draws for more.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Query
from consilience.domain.answer_sets import AnswerSets
from consilience.domain.domains import Domain
from consilience.domain.workloads import Workload
from consilience.errors import ConsilienceError, FileFormatError, MeasurementError
from consilience.estimators.base import (
    LARGEST_ANSWER,
    Estimate,
    Progress,
    SavedModel,
    Suitability,
    are_codes,
    check_rows,
    drawn_cells,
)
from consilience.estimators.evidence import first_fact
from consilience.kernels.rng import Generator
from consilience.measurements import Exact, Gumbel, Measurement, MeasurementSet
from consilience.solvers.fit import Status

# ----------------------------------------------------------------------------------------------------------------------
# What a run of DualQuery leaves behind: the queries that were drawn, and the records that answer them.
#
# It is kept as one measurement of kind "selections". Its values are the candidates drawn in rounds 2 … T, round after
# round: a place among the single answers of the workload, or, from their number on, the complement of one. The first
# round draws evenly and costs nothing. `extra["selection"]` holds the workload, the number N of records that the scores
# were made with, how many draws a round has, and the T records found. The scale b of its Gumbel noise is in units of
# the scores N·h − k·n, so that the learning rate is η = N/b.


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


# ----------------------------------------------------------------------------------------------------------------------
# `DualQuery`: the synthetic records of a run of DualQuery, each as likely as the other (Gaboardi et al. 2014).


Array = NDArray[np.float64]


@dataclass(frozen=True)
class DualQuery:
    """The records that a run of DualQuery found, evenly weighted."""

    name: ClassVar[str] = "dual-query"

    def suitability(self, measured: MeasurementSet) -> Suitability:
        run = run_or_reason(measured)
        if isinstance(run, str):
            return Suitability(False, run)
        return Suitability(True, f"{len(run.found)} synthetic records were found", run.found.nbytes)

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "SyntheticRecords":
        suitable = self.suitability(measured)
        if not suitable.possible:
            raise MeasurementError(f"dual-query cannot fit these measurements: {suitable.reason}")
        began = time.perf_counter()
        run = DualQueryRun.of(measured)
        stats: dict[str, float | int | str] = {"records_found": len(run.found), "draws": run.drawn.size}
        stats |= {"rate": run.rate, "seconds": time.perf_counter() - began}
        total = run_total(measured, run)
        return SyntheticRecords(measured, {"method": self.name}, Status.CONVERGED, stats, run.found, total)


def run_or_reason(measured: MeasurementSet) -> DualQueryRun | str:
    """The run in a measurement set, or why there is none whose account would keep what is known."""
    try:
        run = DualQueryRun.of(measured)
    except ConsilienceError as error:
        return str(error)
    fact = first_fact(measured)
    return run if fact is None else f"{fact} is known exactly, and the account of a run keeps a total only; use Table"


def run_total(measured: MeasurementSet, run: DualQueryRun) -> float:
    """The number of records: public where it is, else as the run measured it."""
    public = measured.domain.public.total
    exact = [float(each.values[0]) for each in measured if isinstance(each.noise, Exact) and not each.query.factors]
    if public is not None:
        return float(public)
    return exact[0] if exact else float(run.records)


@dataclass(frozen=True, eq=False)
class SyntheticRecords(Estimate):
    """An estimate as a list of records that stand for equally many each."""

    codes: NDArray[np.int64]
    """A row for each record, a column for each counted attribute."""
    count: float
    """The estimated number of records in the data."""

    @property
    def total(self) -> float:
        return self.count

    def marginal(self, *attributes: str) -> Array:
        self.check_names(attributes, LARGEST_ANSWER)
        table = np.zeros(self.domain.sizes(attributes))
        columns = [self.domain.counted_names.index(name) for name in attributes]
        np.add.at(table, tuple(self.codes[:, column] for column in columns), self.count / len(self.codes))
        return table if attributes else np.asarray(self.count)

    @cached_property
    def _distinct(self) -> tuple[NDArray[np.int64], Array]:
        """Each record once, and how often it was found."""
        records, often = np.unique(self.codes, axis=0, return_counts=True)
        return records, often.astype(np.float64)

    def draw(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        records, often = self._distinct
        return records[drawn_cells(often, check_rows(rows), rng)]

    def arrays(self) -> Mapping[str, Array]:
        return {"codes": self.codes.astype(np.float64), "total": np.array([self.count])}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "SyntheticRecords":
        saved.check_arrays("a model of records", ["codes", "total"])
        codes = saved.arrays["codes"]
        if not are_codes(codes, measured.domain):
            raise FileFormatError(
                f"a model of records of the shape {codes.shape} does not fit the domain {measured.domain.name!r}; "
                "write the bundle anew"
            )
        return cls(measured, saved.method, saved.status, saved.stats, codes.astype(np.int64), saved.total)
