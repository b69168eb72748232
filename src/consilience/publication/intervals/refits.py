"""Refits: what an estimate would have been, had its noise come out differently. They are found once, and kept.

    account θ₀ ──► its answers + new noise ──► the same method ──► refits θ*         (each takes as long as a fit)
                                                                     │
                                        `KeptRefits`, `refits.parquet` of a bundle
                                                                     │
                                                     replicates of any query         (each takes as long as an answer)

An account stands in for the data: the estimate, or one less smooth (`Estimate.stand_in`). Each refit answers the
measured queries from it, adds new noise of the laws that the measurements state, clips and withholds as they were, and
fits by the same method. Only public numbers are used: nothing is spent. Refit i draws from the stream (seed, i), so
that results depend on neither the number of threads nor their order, and more refits are added to those there are.

What is kept of a refit is how far its numbers are from the account's, in single precision: an error of 6·10⁻⁸ of what
the noise does, whatever the size of the counts. Where numbers move much further than answers do, so that this error is
felt, refits are made anew for each question.
"""

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import Declaration
from consilience.domain.queries import Query
from consilience.errors import FileFormatError, MeasurementError, TooLarge, readable_bytes
from consilience.estimators.base import Estimate, Estimator, Progress, SavedModel, check_whole
from consilience.estimators.choose import ESTIMATES, ESTIMATORS
from consilience.kernels.rng import Generator, generator
from consilience.measurements import Exact, Measurement, MeasurementSet
from consilience.measurements.parquet import refusing_what_is_odd
from consilience.measurements.parquet_sizes import read_bounded
from consilience.solvers.fit import Status

Array = NDArray[np.float64]


# ----------------------------------------------------------------------------------------------------------------------
# The same method on other noise.
#
# A refit is the estimator with its settings on a simulated measurement set. Where a fit decides by the data when to
# stop (`Estimate.refitter`), a refit goes as far as the first fit did, by the same steps, which takes a third of the
# time and repeats the fit rather than the decision. Other fits begin anew.


def estimator_of(fitted: Estimate) -> Estimator:
    """The estimator that made an estimate, with its settings; refused where they are not all known.

    >>> from consilience.domain import Domain
    >>> from consilience.measurements import Laplace
    >>> domain = Domain.from_sizes({"a": 2})
    >>> measured = MeasurementSet.from_marginals(domain, {"a": [3.0, 4.0]}, noise=Laplace(1.0))
    >>> from consilience.estimators import Table
    >>> estimator_of(Table(tolerance=1e-6).fit(measured)).tolerance
    1e-06
    """
    method = dict(fitted.method)
    name = str(method.get("method"))
    if name not in ESTIMATORS or method.get("loss") == "custom":
        raise MeasurementError(
            f"an estimate by {name!r} with a loss of its own cannot be fitted again; ask for intervals of an estimate "
            "whose settings are all in its method"
        )
    known = {each.name for each in fields(ESTIMATORS[name])}  # type: ignore[arg-type]
    settings: dict[str, Any] = {key: _frozen(value) for key, value in method.items() if key in known}
    settings |= fitted.inputs
    if "total" in known and fitted.stats.get("total_from") == "the caller":
        settings["total"] = fitted.total
    return ESTIMATORS[name](**settings)


def _frozen(value: Any) -> Any:
    """Lists of saved settings as the tuples that estimators take."""
    return tuple(_frozen(each) for each in value) if isinstance(value, list | tuple) else value


def noisy_answers(fitted: Estimate) -> list[Array]:
    """What the estimate itself says to every measured query, flat; refused where a measurement is no linear query."""
    for each in fitted.measurements:
        if each.kind != "linear":
            raise MeasurementError(
                f"measurement {each.name} is of kind {each.kind!r}: its noise cannot be drawn again around an account "
                "of the cells, so there are no intervals"
            )
    asking = fitted.asking([each.query for each in fitted.measurements])
    return [np.ravel(found) for found in asking(fitted)]


def simulated(measured: MeasurementSet, answers: Sequence[Array], rng: Generator) -> MeasurementSet:
    """A measurement set with the given answers and new noise of the same laws, clipped and withheld as before.

    Facts stay as they are. The set is marked as not private: its noise protects nothing.
    """
    pairs = zip(measured, answers, strict=True)
    return replace(measured, measurements=tuple(_simulated(each, found, rng) for each, found in pairs), private=False)


def _simulated(measurement: Measurement, answers: Array, rng: Generator) -> Measurement:
    if isinstance(measurement.noise, Exact):
        return measurement
    values = answers + measurement.noise.simulate(answers.size, rng)
    if measurement.clipped:
        values = np.maximum(values, 0.0)
    censored = None
    if measurement.threshold is not None:
        censored = values < measurement.threshold
    return replace(measurement, values=values, censored=censored)


def refit(fitted: Estimate, measured: MeasurementSet) -> Estimate:
    """The estimate by the same method from other measurements of the same queries."""
    return fitted.refitter(estimator_of(fitted))(measured)


@dataclass(frozen=True, eq=False)
class Refitting:
    """Everything that the refits of one estimate share."""

    fitted: Estimate
    account: Estimate
    """The account that stands in for the data."""
    exact: list[Array]
    """What it says to every measured query."""
    again: Callable[[MeasurementSet], Estimate]
    """The refit to other noise."""

    @classmethod
    def of(cls, fitted: Estimate) -> "Refitting":
        """Prepare refits: find the account that stands in for the data, and what it says of all that was measured."""
        estimator = estimator_of(fitted)
        account = fitted.stand_in(estimator)
        exact = noisy_answers(account)
        pairs = zip(fitted.measurements, exact, strict=True)
        told = tuple(replace(each, values=found) for each, found in pairs)
        without_noise = replace(fitted.measurements, measurements=told, private=False)
        again = fitted.refitter(estimator, None if account is fitted else without_noise)
        return cls(fitted, account, exact, again)

    def draw(self, rng: Generator) -> Estimate:
        """One refit, to new noise."""
        return self.again(simulated(self.fitted.measurements, self.exact, rng))


# ----------------------------------------------------------------------------------------------------------------------
# Refits that are kept with their estimate.


LEAST_SQUARES = "least squares"
"""Where an estimate that smooths keeps that of least squares (`drawn_errors.unbiased`), whose refits a file holds, too.
"""

LARGEST_ROUNDING = 0.02
"""Standard deviations of an answer's noise that single precision may move it by."""
MOST_KEPT = 2**27
"""Bytes of the refits of one estimate that are kept; of a larger one they are fitted again whenever they are needed."""

KEPT_SEED = 0
"""The seed of the refits that are kept, which is the one that everybody gets who asks for none."""

FEWEST_REFITS = 20
"""With fewer, the tails of the answers are not seen at all."""

QUICK = 0.1
"""Seconds of a refit below which threads do not pay."""


def check_refits(refits: int) -> None:
    """Refuse a number of refits that is none, or too small to say anything."""
    check_whole(refits, "the number of refits", FEWEST_REFITS)


@dataclass(eq=False)
class KeptRefits:
    """The refits of one estimate to noise of one seed: the account, and how far each refit's numbers are from it."""

    fitted: Estimate
    seed: int
    account: Estimate
    steps: list[NDArray[np.float32]] = field(default_factory=list)
    refitting: Refitting | None = field(default=None, repr=False)

    @staticmethod
    def of(fitted: Estimate, seed: int) -> "KeptRefits":
        """Those of a seed: of the usual one they are kept with the estimate, of others they are made anew."""
        found = kept_with(fitted)
        if found is not None and found.seed == seed:
            return found
        refitting = Refitting.of(fitted)
        made = KeptRefits(fitted, seed, refitting.account, refitting=refitting)
        if found is None and seed == KEPT_SEED:
            vars(fitted)["_refits"] = made
        return made

    @property
    def arrays(self) -> dict[str, Array]:
        """The numbers of the account, by name."""
        return {name: np.asarray(array, dtype=np.float64) for name, array in self.account.arrays().items()}

    def can_hold(self, refits: int) -> bool:
        return 4 * refits * sum(array.size for array in self.arrays.values()) <= MOST_KEPT

    def add(self, refits: int, progress: Progress | None) -> bool:
        """Fit until there are so many; False where refits of this estimate are no steps from its account."""
        if len(self.steps) >= refits:
            return True
        first, account = len(self.steps), _flat(self.account)
        for found in _in_threads(self.draw, range(first, refits), refits, progress):
            flat = _flat(found)
            if flat.shape != account.shape or type(found) is not type(self.account):
                self.steps.clear()
                return False
            self.steps.append((flat - account).astype(np.float32))
            if len(self.steps) == 1 and not self._is_told(found):
                self.steps.clear()
                return False
        return True

    def _is_told(self, first: Estimate) -> bool:
        """Whether the first refit's measured answers are left as they are by single precision, beside their noise.

        Parameters that no answer depends on may move much further than answers do, and round them off by more than
        noise where counts are 10⁸ times as large.
        """
        noisy = [each for each in self.fitted.measurements if each.kind == "linear" and each.noise.variance > 0.0]
        queries = [each.query for each in noisy]
        pairs = zip(noisy, first.answers(queries), self.estimate(0).answers(queries), strict=True)
        return all(
            np.abs(as_fitted - kept).max(initial=0.0) <= LARGEST_ROUNDING * each.noise.stddev_of_noise
            for each, as_fitted, kept in pairs
        )

    def draw(self, number: int) -> Estimate:
        """The refit of this number, fitted now."""
        if self.refitting is None:
            self.refitting = Refitting.of(self.fitted)
        return self.refitting.draw(generator(self.seed, number))

    def estimate(self, number: int) -> Estimate:
        """The refit of this number, as it is kept."""
        account = self.arrays
        ends = np.cumsum([array.size for array in account.values()])[:-1]
        parts = np.split(self.steps[number].astype(np.float64), ends)
        moved = {
            name: _moved(array, step.reshape(array.shape))
            for (name, array), step in zip(account.items(), parts, strict=True)
        }
        return _restored(self.account, moved)


def kept_with(fitted: Estimate) -> KeptRefits | None:
    """The refits that are kept with an estimate, read from its bundle at the first need; None where there are none."""
    if "_stored_refits" in vars(fitted):
        read = vars(fitted).pop("_stored_refits")
        read()
    return vars(fitted).get("_refits")


def without_rules(measured: MeasurementSet) -> MeasurementSet:
    """The measurements without impossible cells: what least squares with counts of either sign is fitted to."""
    return replace(measured, domain=replace(measured.domain, impossible=()))


def _flat(estimate: Estimate) -> Array:
    return np.concatenate([np.ravel(array) for array in estimate.arrays().values()]).astype(np.float64)


def _moved(array: Array, step: Array) -> Array:
    """The numbers a step away; those that an account has from 0 up do not fall below by rounding alone."""
    found = array + step
    return np.where((found < 0.0) & (array >= 0.0) & (found > -1e-6 * np.abs(step)), 0.0, found)


def _restored(like: Estimate, arrays: Mapping[str, Array]) -> Estimate:
    saved = SavedModel(like.method, like.status, like.stats, arrays)
    return type(like).restore(saved, like.measurements)


def _in_threads(
    work: Callable[[int], Any], numbers: range, of: int, progress: Progress | None, doing: str = "refitting"
) -> Any:
    """What is found for each number, in order. What takes long runs on the machine's cores, whose kernels work outside
    the interpreter's lock; quick work is mostly Python, to which threads are a hindrance."""
    began = time.perf_counter()
    yield work(numbers[0])
    threads = 1 if time.perf_counter() - began < QUICK else os.cpu_count() or 1
    with ThreadPoolExecutor(max_workers=threads) as pool:
        for done, found in enumerate(pool.map(work, numbers[1:]), start=numbers[0] + 2):
            if progress is not None:
                progress(doing, done, of)
            yield found


# ----------------------------------------------------------------------------------------------------------------------
# The file of refits in a bundle: a row for each array of an account, with the steps of every refit from it.
#
# The metadata say of which measurements, and of which method, they are refits.


VERSION = "1"
OWN = "estimate"


def refits_made(fitted: Estimate) -> dict[str, dict[str, int]]:
    """How many refits are kept with an estimate, and of which seed: of its own and of least squares."""
    return {name: {"refits": len(kept.steps), "seed": kept.seed} for name, kept in _sets(fitted).items()}


def _sets(fitted: Estimate) -> dict[str, KeptRefits]:
    own, least_squares = kept_with(fitted), vars(fitted).get(LEAST_SQUARES)
    found = {OWN: own, LEAST_SQUARES: None if least_squares is None else kept_with(least_squares)}
    return {name: kept for name, kept in found.items() if kept is not None and kept.steps}


def refits_file(fitted: Estimate, of: str) -> bytes | None:
    """The refits that are kept with an estimate, and with that of least squares, for a bundle; None without any.

    `of` tells measurements, domain and method from others.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    sets = _sets(fitted)
    if not sets:
        return None
    rows: list[dict[str, Any]] = []
    for name, kept in sets.items():
        start, steps = 0, np.array(kept.steps)
        for array_name, array in kept.arrays.items():
            own = steps[:, start : (start := start + array.size)]
            rows.append({"of": name, "name": array_name, "shape": array.shape, "account": array, "steps": own})
    columns = {
        "of": pa.array([row["of"] for row in rows], pa.string()),
        "name": pa.array([row["name"] for row in rows], pa.string()),
        "shape": pa.array([list(row["shape"]) for row in rows], pa.list_(pa.int64())),
        "account": pa.array([np.ravel(row["account"]) for row in rows], pa.list_(pa.float64())),
        "steps": pa.array([np.ravel(row["steps"]) for row in rows], pa.list_(pa.float32())),
    }
    metadata = {
        "consilience.format": "refits",
        "consilience.version": VERSION,
        "consilience.of": of,
        "consilience.private": json.dumps(fitted.private),
        "consilience.sets": json.dumps({name: _described(kept) for name, kept in sets.items()}),
    }
    sink = pa.BufferOutputStream()
    table = pa.table(columns).replace_schema_metadata(metadata)
    split: Any = ["steps.list.element"]  # bytes of like weight lie together, which shrinks them by a fifth
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, use_byte_stream_split=split)
    return sink.getvalue().to_pybytes()


def _described(kept: KeptRefits) -> dict[str, Any]:
    account = kept.account
    return {
        "refits": len(kept.steps),
        "seed": kept.seed,
        "method": dict(account.method),
        "status": account.status.value,
        "stats": dict(account.stats),
    }


def attach_refits(fitted: Estimate, path: Path, of: str) -> None:
    """Let the estimate of a bundle find the refits in its file at the first need."""
    vars(fitted)["_stored_refits"] = lambda: _read(fitted, path, of)


def _read(fitted: Estimate, path: Path, of: str) -> None:
    with refusing_what_is_odd(str(path), "file of refits"):
        content = path.read_bytes()
        sets, rows = _contents(content, path, of)
        for name, told in sets.items():
            _keep(fitted, name, told, [row for row in rows if row[0] == name], str(path))


def _contents(content: bytes, path: Path, of: str) -> tuple[dict[str, Any], list[tuple[str, str, Any, Array, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = pq.ParquetFile(pa.BufferReader(content)).metadata.metadata or {}
    declared = Declaration({key.decode(): value.decode() for key, value in found.items()}, str(path))
    if declared.text("consilience.format") != "refits" or declared.text("consilience.version") != VERSION:
        declared.refuse(f"expected refits of version {VERSION}")
    if declared.text("consilience.of") != of:
        raise FileFormatError(
            f"{path} holds refits of other measurements, or by another method, than those of its bundle; write the "
            "bundle anew"
        )
    columns = ("of", "name", "shape", "account", "steps")
    table = read_bounded(content, where=str(path), columns=columns)
    rows = []
    for own, name, shape, account, steps in zip(*(table.column(each) for each in columns), strict=True):
        sizes = tuple(int(size) for size in shape.as_py())
        numbers = np.array(np.from_dlpack(account.values), dtype=np.float64)
        rows.append((own.as_py(), name.as_py(), sizes, numbers, np.array(np.from_dlpack(steps.values))))
    return json.loads(declared.text("consilience.sets")), rows


def _keep(fitted: Estimate, name: str, told: Mapping[str, Any], rows: Sequence[Any], where: str) -> None:
    """Keep one set of refits with the estimate that they are refits of."""
    declared = Declaration(told, where)
    refits, seed, method = (told[key] for key in ("refits", "seed", "method"))
    arrays, steps = {}, []
    for _, array_name, sizes, account, moves in rows:
        if min(sizes, default=1) < 0 or account.size != math.prod(sizes) or moves.size != refits * account.size:
            declared.refuse(f"{array_name!r} has {account.size:,} numbers and {moves.size:,} steps for {refits} refits")
        if not (np.isfinite(account).all() and np.isfinite(moves).all()):
            declared.refuse(f"{array_name!r} has values that are not finite")
        arrays[array_name] = account.reshape(sizes)
        steps.append(moves.reshape(refits, -1).astype(np.float32))
    saved = SavedModel(method, Status(told["status"]), told["stats"], arrays)
    measured = without_rules(fitted.measurements) if name == LEAST_SQUARES else fitted.measurements
    account = ESTIMATES[method["method"]].restore(saved, measured)
    of = account if name == LEAST_SQUARES else fitted
    if name == LEAST_SQUARES:
        vars(fitted)[LEAST_SQUARES] = account
    vars(of)["_refits"] = KeptRefits(of, seed, account, list(np.concatenate(steps, axis=1)))


# ----------------------------------------------------------------------------------------------------------------------
# Replicates: the answers of an account, and of every refit around it (parametric bootstrap).


MOST_BYTES = 2_000_000_000


@dataclass(frozen=True, eq=False)
class Replicates:
    """Of one query the answers of the account that stood in for the data, and those of every refit, a row each."""

    truth: Array
    answers: Array


def replicates(
    fitted: Estimate, queries: Sequence[Query], *, refits: int, seed: int, progress: Progress | None = None
) -> list[Replicates]:
    """The replicates of each query."""
    check_refits(refits)
    sizes = [query.bind(fitted.domain).size for query in queries]
    need = 8 * refits * sum(sizes)
    if need > MOST_BYTES:
        raise TooLarge(
            f"{sum(sizes):,} answers in {refits} refits take {readable_bytes(need)}, and the limit is "
            f"{readable_bytes(MOST_BYTES)}; ask for fewer answers at a time, or for fewer refits"
        )
    redrawn = fitted.redrawn(queries, refits, seed) if kept_with(fitted) is None else None
    if redrawn is not None:
        return [Replicates(truth, answers) for truth, answers in redrawn]
    kept = KeptRefits.of(fitted, seed)
    is_kept = kept.can_hold(refits) and kept.add(refits, progress)
    asking = fitted.asking(queries)
    found = [np.empty((refits, size)) for size in sizes]

    def run(number: int) -> list[Array]:
        refit = kept.estimate(number) if is_kept else kept.draw(number)
        return [np.ravel(values) for values in asking(refit)]

    for number, answers in enumerate(_in_threads(run, range(refits), refits, None if is_kept else progress)):
        for place, values in enumerate(answers):
            found[place][number] = values
    truths = [np.ravel(values) for values in asking(kept.account)]
    return [Replicates(truth, answers) for truth, answers in zip(truths, found, strict=True)]
