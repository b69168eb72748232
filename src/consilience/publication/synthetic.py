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

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Numeric
from consilience.errors import DeclarationError, FileFormatError, TooLarge, readable_bytes
from consilience.estimators import Estimate
from consilience.estimators.base import Progress, check_rows
from consilience.kernels.rng import Generator, generator
from consilience.measurements.basis import ColumnsBasis, columns_basis
from consilience.measurements.measurement_set import NOT_PRIVATE
from consilience.publication.row_margins import settle_margins

if TYPE_CHECKING:
    import pyarrow as pa

Spread = Literal["even", "midpoint", "lower"]

ROWS_AT_ONCE = 2**16
MEMORY_LIMIT = 4_000_000_000
BYTES_PER_CODE = 16
"""A code and a copy of it while the codes are made."""
WORKING_COLUMNS = 3
LARGEST_WHOLE = 2.0**53
"""Whole numbers beyond this are written as floating-point numbers."""


def synthesize(
    estimate: Estimate,
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
        domain = self.estimate.domain
        places = [domain.counted_names.index(name) for name in self.names]
        columns = [_Column.of(domain[name], self.spread) for name in self.names]
        for first in range(0, self.rows, ROWS_AT_ONCE):
            part = codes[order[first : first + ROWS_AT_ONCE]]
            arrays = [column.array(part[:, place], rng) for place, column in zip(places, columns, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            if progress is not None:
                progress("writing records", first + len(part), self.rows)

    def _codes(self, rng: Generator) -> NDArray[np.int64]:
        codes = self.estimate.sample(self.rows, rng)
        domain = self.estimate.domain
        settle_margins(codes, [self.estimate.marginal(name) for name in domain.counted_names], domain, rng)
        return codes


def prepare(
    estimate: Estimate,
    rows: int | None,
    *,
    seed: int,
    spread: Spread,
    fill_unmeasured: bool = False,
    memory_limit: int = MEMORY_LIMIT,
) -> SyntheticRecords:
    """The request, checked before any work."""
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
    basis = columns_basis(estimate.measurements)
    left_out = () if fill_unmeasured else basis.not_measured
    names = tuple(attribute.name for attribute in attributes if attribute.name not in left_out)
    if not names:
        raise DeclarationError(
            f"nothing was measured that tells values of {', '.join(map(repr, left_out))} apart, so there is no column "
            "to write; have them filled with what the account assumes: --fill-unmeasured, or fill_unmeasured=True"
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

    def array(self, codes: NDArray[np.int64], rng: Generator) -> Any:
        import pyarrow as pa

        missing = np.zeros(len(codes), dtype=np.bool_) if self.null_code is None else codes == self.null_code
        if isinstance(self.attribute, Numeric):
            numbers = numbers_in_bins(self.attribute, codes, self.spread, rng)
            if pa.types.is_integer(self.type):
                numbers = numbers.astype(np.int64)
            return pa.array(numbers, self.type, mask=missing)
        places = pa.array(codes.astype(np.int32), mask=missing)
        labels = pa.array(self.attribute.labels, pa.string())
        return pa.DictionaryArray.from_arrays(places, labels)


def _missing_label(attribute: Attribute) -> int | None:
    """The code of the label that only the rule for missing values adds."""
    if attribute.missing in (None, "drop") or attribute.missing in attribute.ordinary_labels:
        return None
    return attribute.missing_code


def numbers_in_bins(
    attribute: Numeric, codes: NDArray[np.int64], spread: Spread, rng: Generator
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
    if spread == "lower":
        numbers = low
    elif spread == "midpoint":
        numbers = low / 2 + (last if attribute.integer else high) / 2
    else:
        share = rng.random(len(codes))
        numbers = low * (1.0 - share) + high * share
    if attribute.integer:
        numbers = np.floor(numbers)
    return np.where(codes < len(edges) - 1, np.clip(numbers, low, last), past)
