"""Synthetic records: rows with the labels and types of the original, made from an estimate.

Codes come from the estimate, which gives every cell its share of rows, rounded; then labels stand in their place:

- a value of a categorical attribute or a hierarchy is its label;
- a bin becomes a number inside it, by the rule `spread`: "even" draws one evenly from the bin, "midpoint" is its middle
  (of whole numbers the one at or below it), "lower" its lower edge. Whole numbers where the attribute is declared so;
- the label that only the rule for missing values adds becomes null, which is empty in CSV;
- the label that only the rule for unlisted values adds stays a label. In a column of numbers it becomes null, or, where
  missing values have another rule, the first number past the last bin: a number that was declared out of range.

Read again under the same domain, every row has the code that it was made from.

A column of which some values were never told apart by a measurement is left out, or filled with what the account
assumes (`fill_unmeasured`). Columns that no measurement links are independent of each other in the records. The
metadata of the schema and of its fields say what each column stands on.

Cost: the codes are in memory at once, at about 16 bytes for each row and attribute while they are made. Texts and
numbers are made and written in batches of `ROWS_AT_ONCE`.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Numeric
from consilience.domain.domains import Domain
from consilience.domain.record_constraints import holds, numbers_compared
from consilience.errors import DeclarationError, FileFormatError, TooLarge, readable_bytes
from consilience.estimators import Estimate
from consilience.estimators.base import Progress, check_rows
from consilience.kernels.rng import Generator, generator
from consilience.measurements.basis import ColumnsBasis
from consilience.measurements.measurement_set import NOT_PRIVATE
from consilience.publication.bundle import Bundle

if TYPE_CHECKING:
    import pyarrow as pa


# ----------------------------------------------------------------------------------------------------------------------
# Records whose one-way margins are the model's, rounded.
#
# Estimators place synthetic records so that counts follow the model, but where several tables share attributes what
# rounding gained and lost can add up to a little more than one record. Here the few records too many of a value are
# given the value that has too few. A record that changes is one for which there is another, with the wanted value, that
# it has most in common with, so that it becomes a record such as there are already. Impossible records are not made.


Codes = NDArray[np.int64]

COMPARED = 64
"""How many records of each side are compared to find two that are alike."""
MANY, COMPARED_OF_MANY = 2_000, 8
"""Fewer are compared where more than so many records change, as where a method draws records by chance."""
WHOLE = 1e-9
"""A share of records this close to a whole number, in parts of it, is taken to be it."""


def settle_margins(codes: Codes, margins: list[NDArray[np.float64]], domain: Domain, rng: Generator) -> None:
    """Change records, in place, until each value has its share of them rounded down or up.

    `margins` holds the counts that the shares come from, for each column of the codes. Columns whose counts are not
    all from 0 up, or are all 0, stay as they are.
    """
    for column, counts in enumerate(margins):
        if len(codes) and counts.min(initial=0.0) >= 0.0 and counts.sum() > 0.0:
            present = np.bincount(codes[:, column], minlength=counts.size)
            shares = counts / counts.sum() * len(codes)
            _move(codes, column, present - nearest_shares(present, shares), domain, rng)


def nearest_shares(present: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole counts, each its share rounded down or up and with the same sum, that are nearest to those present.

    >>> nearest_shares(np.array([5, 0, 4]), np.array([3.4, 1.8, 3.8]))
    array([4, 1, 4])
    """
    nearest = np.rint(shares)
    settled = np.abs(shares - nearest) <= WHOLE * np.maximum(shares, 1.0)
    low = np.where(settled, nearest, np.floor(shares)).astype(np.int64)
    high = np.where(settled, nearest, np.ceil(shares)).astype(np.int64)
    wanted = np.clip(present, low, high)
    surplus = int(wanted.sum() - present.sum())
    movable = np.flatnonzero(wanted > low) if surplus > 0 else np.flatnonzero(wanted < high)
    # First those whose share is furthest on that side, so that rounding is to the nearest as far as it can be.
    order = np.argsort((shares - wanted)[movable] * np.sign(surplus), kind="stable")
    wanted[movable[order[: abs(surplus)]]] -= np.sign(surplus)
    return wanted


def _move(codes: Codes, column: int, surplus: NDArray[np.int64], domain: Domain, rng: Generator) -> None:
    """Give records of values with a surplus the values that lack some."""
    lacking = np.repeat(np.arange(surplus.size), np.maximum(-surplus, 0))
    giving = np.repeat(np.arange(surplus.size), np.maximum(surplus, 0))
    rng.shuffle(lacking)
    compared = COMPARED if lacking.size <= MANY else COMPARED_OF_MANY
    having = {value: np.flatnonzero(codes[:, column] == value) for value in np.flatnonzero(surplus)}
    for given, wanted in zip(giving, lacking, strict=True):
        pool = having[given]
        models = codes[having[wanted][_some(having[wanted].size, compared, rng)]]
        place = _most_alike(codes, pool, _some(pool.size, compared, rng), models, column, int(wanted), domain)
        if place is None:
            continue
        codes[pool[place], column] = wanted
        pool[place] = pool[-1]
        having[given] = pool[:-1]


def _some(size: int, compared: int, rng: Generator) -> NDArray[np.intp]:
    """Places below `size`: all of them, or some by chance."""
    return np.arange(size) if size <= compared else np.unique(rng.integers(0, size, compared))


def _most_alike(
    codes: Codes,
    pool: NDArray[np.intp],
    places: NDArray[np.intp],
    models: Codes,
    column: int,
    wanted: int,
    domain: Domain,
) -> int | None:
    """Where in the pool the record is that may take the wanted value and is most like a model; None where none may.

    Those at `places` are tried first, then all others.
    """
    for tried in (places, np.arange(pool.size)):
        records = codes[pool[tried]]
        records[:, column] = wanted
        possible = np.flatnonzero(are_possible(records, domain))[:COMPARED]
        if possible.size:
            alike = (records[possible][:, None, :] == models[None, :, :]).sum(axis=2).max(axis=1, initial=0)
            return int(tried[possible[np.argmax(alike)]])
    return None


def are_possible(records: Codes, domain: Domain) -> NDArray[np.bool_]:
    possible = np.ones(len(records), dtype=np.bool_)
    names = domain.counted_names
    for rule in domain.impossible:
        broken = [np.isin(records[:, names.index(name)], codes) for name, codes in rule.codes]
        possible &= ~np.logical_and.reduce(broken)
    return possible


# ----------------------------------------------------------------------------------------------------------------------
# Synthetic records: rows with the labels and types of the original, made from an estimate.


Spread = Literal["even", "midpoint", "lower"]

ROWS_AT_ONCE = 2**16
MEMORY_LIMIT = 4_000_000_000
BYTES_PER_CODE = 16
"""A code and a copy of it while the codes are made."""
WORKING_COLUMNS = 3
LARGEST_WHOLE = 2.0**53
"""Whole numbers beyond this are written as floating-point numbers."""


def synthesize(
    estimate: Estimate | Bundle,
    rows: int | None = None,
    *,
    seed: int = 0,
    spread: Spread = "even",
    fill_unmeasured: bool = False,
    memory_limit: int = MEMORY_LIMIT,
    progress: Progress | None = None,
) -> "pa.Table":
    """Synthetic records in random order: a column for each measured attribute, the same rows for the same seed.

    Attributes that were not measured are left out, or with `fill_unmeasured` filled with what the account assumes.

    Without `rows` there are as many as the estimate has records. Texts are dictionary-encoded. The schema's metadata
    holds the privacy statement, and whether the noise was real.

    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> account = cs.estimate(cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0)))
    >>> records = synthesize(account, 5)
    >>> records.num_rows, records.column_names
    (5, ['age', 'sex'])
    """
    import pyarrow as pa

    made = prepare(estimate, rows, seed=seed, spread=spread, fill_unmeasured=fill_unmeasured, memory_limit=memory_limit)
    return pa.Table.from_batches(made.batches(progress), schema=made.schema)


def expected_rows(estimate: Estimate) -> int:
    """How many records the estimate has: more rows than these add no information."""
    return max(0, round(estimate.total))


@dataclass(frozen=True, eq=False)
class SyntheticRecords:
    """Records that were asked for and checked; `batches` makes them."""

    estimate: Estimate
    rows: int
    seed: int
    spread: Spread
    names: tuple[str, ...]
    """The attributes that are written."""
    basis: ColumnsBasis
    """What the attributes stand on, those that are left out among them."""
    schema: "pa.Schema"

    @property
    def left_out(self) -> tuple[str, ...]:
        """The attributes that were not measured and are not written."""
        return tuple(name for name in self.basis.not_measured if name not in self.names)

    @property
    def filled(self) -> tuple[str, ...]:
        """The attributes that were not measured and are written all the same."""
        return tuple(name for name in self.basis.not_measured if name in self.names)

    def batches(self, progress: Progress | None = None) -> "Iterator[pa.RecordBatch]":
        """The records, some at a time."""
        import pyarrow as pa

        rng = generator(self.seed)
        if progress is not None:
            progress("placing records", 0, self.rows)
        codes = self._codes(rng)
        order = rng.permutation(self.rows)
        for first in range(0, self.rows, ROWS_AT_ONCE):
            part = codes[order[first : first + ROWS_AT_ONCE]]
            arrays = record_arrays(self.estimate.domain, self.names, part, self.spread, rng)
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            if progress is not None:
                progress("writing records", first + len(part), self.rows)

    def _codes(self, rng: Generator) -> NDArray[np.int64]:
        codes = self.estimate.sample(self.rows, rng)
        domain = self.estimate.domain
        settle_margins(codes, [self.estimate.marginal(name) for name in domain.counted_names], domain, rng)
        return codes


def record_arrays(
    domain: Domain, names: Sequence[str], codes: Codes, spread: Spread, rng: Generator
) -> "list[pa.Array]":
    """The values of records with these codes of all counted attributes: an array for each attribute that is named.

    Records whose numbers could break no rule by another choice within their bins are changed, in place.
    """
    places = [domain.counted_names.index(name) for name in names]
    columns = [_Column.of(domain[name], spread) for name in names]
    numbers = {
        column.attribute.name: numbers_in_bins(column.attribute, codes[:, place], spread, rng)
        for place, column in zip(places, columns, strict=True)
        if isinstance(column.attribute, Numeric)
    }
    keep_constraints(domain, codes, numbers, spread, rng)
    return [
        column.array(codes[:, place], numbers.get(column.attribute.name))
        for place, column in zip(places, columns, strict=True)
    ]


def prepare(
    source: Estimate | Bundle,
    rows: int | None,
    *,
    seed: int,
    spread: Spread,
    fill_unmeasured: bool = False,
    memory_limit: int = MEMORY_LIMIT,
) -> SyntheticRecords:
    """The request, checked before any work."""
    estimate = source.estimate if isinstance(source, Bundle) else source
    check_wishes(rows, seed=seed, spread=spread)
    count = expected_rows(estimate) if rows is None else int(rows)
    attributes = estimate.domain.counted
    if not attributes:
        raise DeclarationError(f"the domain {estimate.domain.name!r} counts no attribute; records need at least one")
    _refuse_odd_texts(attributes)
    need = BYTES_PER_CODE * count * (len(attributes) + WORKING_COLUMNS)
    if need > memory_limit:
        raise TooLarge(
            f"{count:,} rows of {len(attributes)} attributes need {readable_bytes(need)}; the limit is "
            f"{readable_bytes(memory_limit)}. Ask for fewer rows, or raise memory_limit in Python"
        )
    basis = estimate.columns_basis
    left_out = () if fill_unmeasured else basis.not_measured
    names = tuple(attribute.name for attribute in attributes if attribute.name not in left_out)
    if not names:
        raise DeclarationError(
            f"nothing was measured that tells values of {', '.join(map(repr, left_out))} apart, so there is no column "
            "to write; have them filled with what the account assumes: fill_unmeasured=True"
        )
    return SyntheticRecords(
        estimate, count, seed, spread, names, basis, _schema(estimate, names, basis, count, seed, spread)
    )


def check_wishes(rows: int | None, *, seed: int, spread: str) -> Spread:
    """The rule for numbers in bins; what can be refused without an estimate is refused here."""
    if rows is not None:
        check_rows(rows)
    generator(seed)
    for rule in get_args(Spread):
        if spread == rule:
            return rule
    raise DeclarationError(f"{spread!r} is no rule for numbers in bins; there is {', '.join(get_args(Spread))}")


def _refuse_odd_texts(attributes: Sequence[Attribute]) -> None:
    try:
        for attribute in attributes:
            "".join([attribute.name, *attribute.labels]).encode()
    except UnicodeEncodeError:
        raise FileFormatError("a name or label is not valid Unicode and cannot be written; rename it") from None


def _schema(
    estimate: Estimate, names: Sequence[str], basis: ColumnsBasis, rows: int, seed: int, spread: Spread
) -> "pa.Schema":
    import pyarrow as pa

    fields = [
        pa.field(
            name,
            _Column.of(estimate.domain[name], spread).type,
            nullable=True,
            metadata={"consilience.basis": basis.columns[name]},
        )
        for name in names
    ]
    written = {"rows": str(rows), "seed": str(seed), "spread": spread}
    unmeasured = basis.not_measured
    written |= {
        "basis": json.dumps(basis.to_json()),
        "left_out": json.dumps([name for name in unmeasured if name not in names]),
        "filled": json.dumps([name for name in unmeasured if name in names]),
    }
    return pa.schema(fields, metadata=_metadata(estimate, written))


def _metadata(estimate: Estimate, written: Mapping[str, str]) -> Mapping[Any, Any]:
    """What whoever opens the file has to know: that the records are made up, from what, and what is promised."""
    privacy = estimate.measurements.privacy
    metadata = {
        "consilience.format": "synthetic records",
        "consilience.version": "1",
        "consilience.tool": f"consilience {version('consilience')}",
        "consilience.dataset": estimate.domain.name,
        "consilience.private": json.dumps(estimate.private),
        "consilience.privacy": json.dumps(privacy.to_json()),
        "consilience.statement": privacy.describe() if estimate.private else NOT_PRIVATE,
        "consilience.method": str(estimate.method.get("method", "")),
    }
    metadata |= {f"consilience.{key}": value for key, value in written.items()}
    return {key: value.encode("utf-8", "replace") for key, value in metadata.items()}


@dataclass(frozen=True, eq=False)
class _Column:
    """How the codes of one attribute become values."""

    attribute: Attribute
    spread: Spread
    type: "pa.DataType"
    null_code: int | None
    """The code that stands for missing values and nothing else."""

    @staticmethod
    def of(attribute: Attribute, spread: Spread) -> "_Column":
        import pyarrow as pa

        if not isinstance(attribute, Numeric):
            return _Column(attribute, spread, pa.dictionary(pa.int32(), pa.string()), _missing_label(attribute))
        small = max(abs(edge) for edge in attribute.edges) <= LARGEST_WHOLE
        kind = pa.int64() if attribute.integer and small else pa.float64()
        added = range(len(attribute.bins), attribute.size)
        null = attribute.missing_code if attribute.missing_code in added else None
        return _Column(attribute, spread, kind, null)

    def array(self, codes: NDArray[np.int64], numbers: NDArray[np.float64] | None) -> Any:
        import pyarrow as pa

        missing = np.zeros(len(codes), dtype=np.bool_) if self.null_code is None else codes == self.null_code
        if numbers is not None:
            written = numbers.astype(np.int64) if pa.types.is_integer(self.type) else numbers
            return pa.array(written, self.type, mask=missing)
        places = pa.array(codes.astype(np.int32), mask=missing)
        labels = pa.array(self.attribute.labels, pa.string())
        return pa.DictionaryArray.from_arrays(places, labels)


# Numbers are drawn within their bins, one attribute by itself, so that `worked <= paid` may come out false of a record
# whose bins allow it. Such records draw again; what is left gets ends of its bins, or of the others' bins where these
# lie within its own, for any number of attributes up to three; and if no choice of them will do, because constraints
# contradict each other within these cells, it becomes a copy of a record that breaks none.

DRAWS, MOST_CHOSEN = 20, 3


def keep_constraints(
    domain: Domain, codes: Codes, numbers: dict[str, NDArray[np.float64]], spread: Spread, rng: Generator
) -> None:
    """Change numbers within their bins, in place, until no constraint between them is broken."""
    attributes = {each.name: each for each in domain.counted}
    written = {name: each for name, each in attributes.items() if isinstance(each, Numeric) and name in numbers}
    compared = {text: _compared(text, attributes) for text in domain.constraints}
    compared = {text: names for text, names in compared.items() if names and set(names) <= set(written)}
    if not compared or not len(codes):
        return
    involved = list(dict.fromkeys(name for names in compared.values() for name in names))

    def broken(rows: NDArray[np.intp], tried: dict[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
        those = {name: codes[rows, place] for place, name in enumerate(domain.counted_names)}
        return ~np.logical_and.reduce([holds(text, attributes, those, tried) for text in compared])

    def settle(rows: NDArray[np.intp], tried: dict[str, NDArray[np.float64]]) -> NDArray[np.intp]:
        """Take what is tried where nothing is broken by it; the rest of the rows."""
        bad = broken(rows, tried)
        for name in involved:
            numbers[name][rows[~bad]] = tried[name][~bad]
        return rows[bad]

    left = np.flatnonzero(broken(np.arange(len(codes)), numbers))
    places = {name: domain.counted_names.index(name) for name in involved}
    for _ in range(DRAWS if spread == "even" else 0):
        drawn = {
            name: numbers_in_bins(written[name], codes[left, place], spread, rng) for name, place in places.items()
        }
        left = settle(left, drawn)
    ends = {
        (name, end): numbers_in_bins(written[name], codes[:, place], end, rng)
        for name, place in places.items()
        for end in ("lower", "upper")
    }
    many = len(involved) > MOST_CHOSEN
    for choice in itertools.product(*[[key for key in ends if not many or key[0] == name] for name in involved]):
        if not left.size:
            return
        tried = {
            name: np.clip(ends[key][left], ends[name, "lower"][left], ends[name, "upper"][left])
            for name, key in zip(involved, choice, strict=True)
        }
        left = settle(left, tried)
    good = np.setdiff1d(np.arange(len(codes)), left)
    if left.size and good.size:
        models = good[rng.integers(0, good.size, left.size)]
        codes[left] = codes[models]
        for drawn_numbers in numbers.values():
            drawn_numbers[left] = drawn_numbers[models]


def _compared(text: str, attributes: Mapping[str, Attribute]) -> tuple[str, ...]:
    """The attributes whose numbers a constraint compares; none where it names others than are counted."""
    try:
        return numbers_compared(text, attributes)
    except DeclarationError:
        return ()


def _missing_label(attribute: Attribute) -> int | None:
    """The code of the label that only the rule for missing values adds."""
    if attribute.missing in (None, "drop") or attribute.missing in attribute.ordinary_labels:
        return None
    return attribute.missing_code


def numbers_in_bins(
    attribute: Numeric, codes: NDArray[np.int64], spread: Spread | Literal["upper"], rng: Generator
) -> NDArray[np.float64]:
    """A number inside each bin; for codes of no bin, the first number past the last one.

    A real number is l + u (h − l) for a bin from l to h, kept below h against rounding; a whole one of l … h − 1.
    """
    edges = np.array(attribute.edges)
    past = edges[-1] if attribute.integer else np.nextafter(edges[-1], np.inf)
    bins = np.minimum(codes, len(edges) - 2)
    low, high = edges[:-1][bins], edges[1:][bins]
    last = np.maximum(np.nextafter(high, -np.inf), low)
    if attribute.integer:
        last = np.maximum(np.minimum(high - 1.0, last), low)
    if spread in ("lower", "upper"):
        numbers = low if spread == "lower" else last
    elif spread == "midpoint":
        numbers = low / 2 + (last if attribute.integer else high) / 2
    else:
        share = rng.random(len(codes))
        numbers = low * (1.0 - share) + high * share
    if attribute.integer:
        numbers = np.floor(numbers)
    return np.where(codes < len(edges) - 1, np.clip(numbers, low, last), past)
