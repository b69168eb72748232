"""One measurement: a query, its noisy answers, and the law of their noise."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import is_number, spell_attribute, suggestion
from consilience.domain.domains import Domain
from consilience.domain.factors import Haar, JointMatrix, Matrix, Moments
from consilience.domain.queries import BoundQuery, Query
from consilience.errors import MeasurementError
from consilience.measurements.noise_laws import NoiseLaw, what_to_write

KINDS = ("linear", "amount-sums", "record-sums", "selections")
"""The kinds of measurement that this version knows.

linear:       values = query(table) + noise.
amount-sums:  values = query(sums of an attribute's amounts over the records of each cell) + noise. `extra["amount"]`
              says which attribute, and between which bounds lies what one record adds.
record-sums:  values = Σ over records of a bounded vector + noise. `extra["statistic"]` says in plain data which vector;
              the query has no factors, because points have no cells.
selections:   values = the places, from 0 up, of candidates that were chosen one after the other, each as the greatest
              of scores + Gumbel noise. `extra["selection"]` says in plain data which candidates and scores.
"""

DESCRIBED_BY = {"amount-sums": "amount", "record-sums": "statistic", "selections": "selection"}
"""Where `extra` says what the values of a kind other than "linear" are."""

OF_CELLS = ("linear", "amount-sums")
"""The kinds whose values are answers to their query."""

NAMELESS = {"record-sums": "sums over records", "selections": "choices among candidates"}
"""What measurements of a kind are called that do not say by which algorithm they were made."""

RESERVED_EXTRA = ("step", "censored", "threshold")
"""Keys that a file's `extra` uses for fields of the measurement itself."""

LARGEST_ROUND = 2**31 - 1
LARGEST_PLACE = 2**53


@dataclass(frozen=True, eq=False)
class Measurement:
    """Noisy answers to one query.

    `values` holds one number for each answer, in the C order of the bound query's shape: the last factor varies
    fastest. `clipped` says that negative noisy values were published as 0. `threshold` says that noisy values below it
    were not released, and `censored` marks those: of them nothing is known but that (they are stored as NaN).
    Of the kind "record-sums" the values are what `statistic` describes, in its order, and of the kind "selections" the
    candidates that were chosen by what `selection` describes.

    >>> from consilience.measurements import Laplace
    >>> Measurement(Query.marginal("sex"), [12.0, 9.0], noise=Laplace(2.0)).describe()
    'sex: 2 values with laplace noise of scale 2'
    """

    query: Query
    values: NDArray[np.float64]
    noise: NoiseLaw
    id: str = ""
    kind: str = "linear"
    clipped: bool = False
    censored: NDArray[np.bool_] | None = None
    threshold: float | None = None
    round: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_fields()
        values = _as_values(self.values, self.name)
        censored = _as_marks(self.censored, values, self.name)
        if censored is not None:
            values[censored] = np.nan
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "censored", censored)
        object.__setattr__(self, "extra", plain_mapping(self.extra, what=f"the extra of measurement {self.name}"))
        self._check_values()
        for array in (values, censored):
            if array is not None:
                array.setflags(write=False)

    def _check_fields(self) -> None:
        if not isinstance(self.query, Query):
            raise MeasurementError(f"a measurement needs a Query, found {type(self.query).__name__}")
        if not isinstance(self.noise, NoiseLaw):
            raise MeasurementError(
                f"measurement {self.name} needs its noise law, found {self.noise!r}; {what_to_write(self.noise)}"
            )
        if not isinstance(self.id, str):
            raise MeasurementError(f"the id of a measurement is a text, found {self.id!r}")
        if self.kind not in KINDS:
            raise MeasurementError(
                f"measurement {self.name} is of kind {self.kind!r}, which this version does not know; "
                f"{suggestion(str(self.kind), KINDS)}"
            )
        if self.kind != "linear":
            self._check_description()
        if (self.noise.law == "gumbel") != (self.kind == "selections"):
            raise MeasurementError(
                f"measurement {self.name} is of kind {self.kind!r} with {self.noise.law} noise; selections, and "
                "nothing else, are made with gumbel noise: correct one of the two"
            )
        if not isinstance(self.clipped, bool):
            raise MeasurementError(f"measurement {self.name}: clipped is True or False, found {self.clipped!r}")
        self._check_round()
        for key in RESERVED_EXTRA:
            if isinstance(self.extra, Mapping) and key in self.extra:
                raise MeasurementError(
                    f"measurement {self.name}: {key!r} may not be a key of extra; "
                    "it is a field of the measurement or of its noise law"
                )

    def _check_description(self) -> None:
        """What is no linear query of the cells says in `extra` what it is."""
        key = DESCRIBED_BY[self.kind]
        described = self.extra.get(key) if isinstance(self.extra, Mapping) else None
        if not isinstance(described, Mapping) or not described:
            raise MeasurementError(
                f"measurement {self.name} is of kind {self.kind!r} but does not say of what; "
                f'give extra={{"{key}": {{...}}}} with the description of the {key}'
            )
        if self.kind == "amount-sums":
            self._check_amount(described)
        elif self.query.factors:
            raise MeasurementError(
                f"measurement {self.name} is of kind {self.kind!r}, which has no query of cells, but names the query "
                f"{self.query.describe()!r}; use Query(())"
            )

    def _check_amount(self, described: Mapping[str, Any]) -> None:
        """Refuse a description of amounts without an attribute, or without bounds."""
        name, bounds = described.get("attribute"), described.get("bounds")
        numbers = bounds if isinstance(bounds, list | tuple) and all(map(is_number, bounds)) else ()
        if not isinstance(name, str) or len(numbers) != 2 or not numbers[0] < numbers[1]:
            raise MeasurementError(
                f"measurement {self.name} is of sums of amounts, and says {dict(described)!r} of them; give the "
                '"attribute", and as "bounds" the least and the largest that one record adds'
            )

    def _check_round(self) -> None:
        if self.round is None:
            return
        whole = isinstance(self.round, int | np.integer) and not isinstance(self.round, bool)
        if not whole or not 0 <= self.round <= LARGEST_ROUND:
            raise MeasurementError(f"measurement {self.name}: a round is a whole number from 0 up, found {self.round}")
        object.__setattr__(self, "round", int(self.round))

    def _check_values(self) -> None:
        known = self.values if self.censored is None else self.values[~self.censored]
        wrong = ~np.isfinite(known)
        if np.any(wrong):
            raise MeasurementError(
                f"measurement {self.name} has {int(wrong.sum())} of {self.values.size} values that are NaN or "
                "infinite; give every value, or mark those below a threshold as censored"
            )
        if self.clipped and np.any(known < 0):
            raise MeasurementError(
                f"measurement {self.name} is called clipped at 0 but has the value {known.min():g}; "
                "use clipped=False if negative values were published"
            )
        if self.kind == "selections":
            self._check_places()
        self._check_threshold(known)

    def _check_places(self) -> None:
        """Chosen candidates are whole numbers from 0 up, all of them released as they are."""
        if self.censored is not None or self.threshold is not None or self.clipped:
            raise MeasurementError(f"measurement {self.name} is of selections, which are neither clipped nor withheld")
        wrong = (self.values < 0) | (self.values != np.floor(self.values)) | (self.values > LARGEST_PLACE)
        if np.any(wrong):
            raise MeasurementError(
                f"measurement {self.name} has the value {self.values[wrong][0]:g}, but a selection is the place of a "
                "candidate: a whole number from 0 up"
            )

    def _check_threshold(self, known: NDArray[np.float64]) -> None:
        if self.threshold is None:
            if self.censored is not None:
                raise MeasurementError(
                    f"measurement {self.name} has censored values but no threshold; "
                    "give the threshold below which values were not released"
                )
            return
        threshold = finite_number(self.threshold, f"the threshold of measurement {self.name}")
        object.__setattr__(self, "threshold", threshold)
        if np.any(known < threshold):
            raise MeasurementError(
                f"measurement {self.name} released the value {known.min():g}, below its threshold {threshold:g}; "
                "one of the two is wrong"
            )

    @cached_property
    def name(self) -> str:
        """What messages call the measurement: its id, or else what it asks."""
        return repr(self.id or self.asks)

    @property
    def asks(self) -> str:
        """What was measured, in words: the query, or the algorithm and the part of it that is no query of cells."""
        if self.amount is not None:
            return f"sum({spell_attribute(self.amount)}){f' by {self.query.describe()}' * bool(self.query.factors)}"
        described = self.statistic or self.selection
        if described is None:
            return self.query.describe()
        words = [described.get(key) for key in ("algorithm", "part")]
        return " ".join(word for word in words if isinstance(word, str)) or NAMELESS[self.kind]

    @property
    def amount(self) -> str | None:
        """The attribute whose numbers are added up; None of other kinds."""
        found = self._described("amount-sums")
        return None if found is None else str(found.get("attribute"))

    @property
    def statistic(self) -> Mapping[str, Any] | None:
        """The description of the statistic that sums over records; None of other kinds."""
        return self._described("record-sums")

    @property
    def selection(self) -> Mapping[str, Any] | None:
        """The description of the candidates and scores that were selected by; None of other kinds."""
        return self._described("selections")

    def _described(self, kind: str) -> Mapping[str, Any] | None:
        found = self.extra.get(DESCRIBED_BY[kind]) if isinstance(self.extra, Mapping) else None
        return found if self.kind == kind and isinstance(found, Mapping) else None

    def bind(self, domain: Domain) -> BoundQuery:
        """The query over the domain; refused when it has another number of answers than there are values."""
        if self.kind not in OF_CELLS:
            raise MeasurementError(
                f"measurement {self.name} is of kind {self.kind!r}: {NAMELESS[self.kind]} of one algorithm, which "
                "answer no query of cells; fit it with the estimator of that algorithm"
            )
        size = self.values.size
        # Some factors say how many rows they have: a claim that no list of values backs is refused before it is built.
        for name, factor in self.query.factors:
            rows = domain[name].size if isinstance(factor, Haar) else 0
            rows = factor.order if isinstance(factor, Moments) else rows
            rows = factor.rows if isinstance(factor, Matrix | JointMatrix) else rows
            if rows > max(size, 1):
                self._refuse_length(f"at least {rows}", domain)
        bound = self.query.bind(domain)
        if bound.size != size:
            self._refuse_length(f"{bound.size} (shape {' × '.join(map(str, bound.shape)) or 'one number'})", domain)
        return bound

    def check(self, domain: Domain) -> None:
        """Refuse a measurement that does not fit the domain."""
        if self.kind in OF_CELLS:
            self.bind(domain)
        if self.amount is not None:
            self._check_bounds(domain)

    def _check_bounds(self, domain: Domain) -> None:
        """Refuse sums of amounts between other bounds than the domain declares."""
        declared = domain.summand(self.amount)
        said = self.extra["amount"]["bounds"]
        if declared is None or list(declared.range) != [float(each) for each in said]:
            raise MeasurementError(
                f"measurement {self.name} adds between {said[0]:g} and {said[1]:g} for each record, and by the domain "
                f"{domain.name!r} it would be {domain.amount(str(self.amount))[0].bounds}, times the weight if there "
                "is one; the two belong to different declarations"
            )

    def _refuse_length(self, expected: str, domain: Domain) -> NoReturn:
        raise MeasurementError(
            f"measurement {self.name} has {self.values.size} values, but its query {self.query.describe()!r} has "
            f"{expected} answers over the domain {domain.name!r}; give one value for each answer"
        )

    def describe(self) -> str:
        """The measurement in one line."""
        count = f"{self.values.size} value{'' if self.values.size == 1 else 's'}"
        words = [f"{self.asks}: {count}"]
        words.append("known exactly from outside" if self.noise.law == "exact" else f"with {self.noise.describe()}")
        if self.clipped:
            words.append("clipped at 0")
        if self.threshold is not None:
            censored = 0 if self.censored is None else int(self.censored.sum())
            words.append(f"released from {self.threshold:g} up ({censored} were not)")
        if self.round is not None:
            words.append(f"in round {self.round}")
        first, *rest = words
        return ", ".join([f"{first} {rest[0]}", *rest[1:]])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Measurement):
            return NotImplemented
        return self._plain_fields() == other._plain_fields() and all(
            _equal_arrays(mine, theirs)
            for mine, theirs in ((self.values, other.values), (self.censored, other.censored))
        )

    def __hash__(self) -> int:
        return hash((self.query, self.noise, self.id, self.values.size))

    def _plain_fields(self) -> tuple[object, ...]:
        fields = (self.query, self.noise, self.id, self.kind, self.clipped, self.threshold, self.round, self.extra)
        return fields


def checksum(measurements: Iterable[Measurement]) -> str:
    """The SHA-256 of queries, noisy values and noise laws under their ids, whatever their order."""
    found = hashlib.sha256()
    for each in sorted(measurements, key=lambda each: each.id):
        law = [each.noise.law, float(each.noise.scale_parameter), each.noise.lattice_step]
        about = [each.id, each.kind, each.query.to_json(), law, each.clipped, dict(each.extra), each.values.size]
        found.update(json.dumps(about, sort_keys=True).encode())
        found.update(each.values.astype("<f8").tobytes())
    return found.hexdigest()


def _equal_arrays(mine: NDArray[Any] | None, theirs: NDArray[Any] | None) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    return np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f")


def _as_values(values: Any, name: str) -> NDArray[np.float64]:
    """A flat copy in C order, of numbers only."""
    if np.ma.isMaskedArray(values):
        raise MeasurementError(
            f"measurement {name} was given a masked array; mark missing values with censored= instead"
        )
    try:
        found = np.asarray(values)
        if found.dtype.kind not in "iufO":
            raise TypeError(f"the type {found.dtype}")
        return np.array(found, dtype=np.float64, order="C").reshape(-1)
    except (TypeError, ValueError, OverflowError) as error:
        raise MeasurementError(f"the values of measurement {name} must be numbers, found {error}") from None


def _as_marks(censored: Any, values: NDArray[np.float64], name: str) -> NDArray[np.bool_] | None:
    """A flat copy of the marks, or None when nothing is censored."""
    if censored is None:
        return None
    marks = np.array(censored)
    if marks.dtype != np.bool_ or marks.size != values.size:
        raise MeasurementError(
            f"measurement {name}: censored must be {values.size} truth values, one for each value, "
            f"found {marks.size} of type {marks.dtype}"
        )
    return marks.reshape(-1) if marks.any() else None


def finite_number(value: Any, what: str) -> float:
    """The value as a float, refused where it is no finite number."""
    plain = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not plain or not np.isfinite(value):
        raise MeasurementError(f"{what} must be a finite number, found {value!r}")
    return float(value)


def write_json(value: Any) -> str:
    """The value as compact JSON, keys in their order."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def plain_mapping(value: object, *, what: str) -> dict[str, Any]:
    """A copy of a mapping as JSON would give it back; what JSON cannot hold is refused.

    >>> plain_mapping({"levels": (1, 2)}, what="extra")
    {'levels': [1, 2]}
    """
    if not isinstance(value, Mapping):
        raise MeasurementError(f"{what} must be a mapping of names to plain data, found {type(value).__name__}")
    try:
        text = write_json(dict(value))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MeasurementError(
            f"{what} cannot be written as JSON: {shortened_text(str(error), length=120)}; "
            "use texts, finite numbers, lists and mappings"
        ) from None
    return json.loads(text)


def shortened_text(text: str, *, length: int = 40) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
