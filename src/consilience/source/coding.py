"""Columns into codes: the domain's public rule, carried out for every value there can be.

Each coder turns a column into the codes of its attribute, of the narrowest type that also holds one mark more: `size`
marks a value whose record is dropped. A missing value is one that is null, NaN, or empty in delimited text.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from consilience.domain.attributes import DROP, Attribute, Continuous, Numeric
from consilience.domain.dates import NO_DAY, Date, DateTexts, periods_of
from consilience.domain.declarations import guarded
from consilience.domain.source_format import Summand
from consilience.kernels.kernel_cache import njit
from consilience.source.values import TRUTH_TEXTS, days_of, nulls, numbers_of, places_among, plain, positions, texts_of

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Words = NDArray[np.uint32]
Numbers = NDArray[Any]

# ----------------------------------------------------------------------------------------------------------------------
# The kernels under counting: codes into marginal counts.
#
# *Counting.* A marginal over attributes with sizes n₁ … n_k is a flat array in which the record with codes c₁ … c_k
# falls into cell Σ_j c_j s_j, where s_j = n_{j+1} ⋯ n_k. It adds 1, or a whole number such as its weight.
# Blocks of records that fit the fastest cache are taken through all marginals in turn, so a batch is read once however
# many marginals are counted.
#
# Compiled on first use and cached on disk.


Codes = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]

WIDTHS = (np.uint8, np.uint16, np.uint32)
"""The types of codes, narrow to wide."""

ROWS_PER_BLOCK = 4096
"""Records per block: their cell numbers take 16 kB, half of a usual first-level cache."""


def width_of(size: int) -> int:
    """The place in WIDTHS of the narrowest type that holds the codes 0 … size − 1.

    >>> width_of(256), width_of(257)
    (0, 1)
    """
    return next(place for place, kind in enumerate(WIDTHS) if size - 1 <= np.iinfo(kind).max)


@dataclass(frozen=True)
class MarginalLayout:
    """Where the terms of each marginal come from and where its counts go, as arrays for the kernel.

    Term t of marginal m, for t in bounds[m] … bounds[m + 1], is the row `rows[t]` of the code matrix of width
    `widths[t]`, times `strides[t]`. The counts of marginal m begin at `offsets[m]` and end at `offsets[m + 1]`.
    """

    shapes: tuple[tuple[int, ...], ...]
    bounds: NDArray[np.int64]
    widths: NDArray[np.int64]
    rows: NDArray[np.int64]
    strides: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @staticmethod
    def of(
        marginals: Sequence[Sequence[int]], sizes: Sequence[int], places: Sequence[tuple[int, int]]
    ) -> "MarginalLayout":
        """The layout of marginals over columns that have these sizes and (width, row) places."""
        shapes = tuple(tuple(sizes[column] for column in marginal) for marginal in marginals)
        strides = [int(np.prod(shape[j + 1 :], dtype=np.int64)) for shape in shapes for j in range(len(shape))]
        terms = [places[column] for marginal in marginals for column in marginal]
        return MarginalLayout(
            shapes,
            np.cumsum([0, *(len(shape) for shape in shapes)], dtype=np.int64),
            np.array([width for width, _ in terms], dtype=np.int64),
            np.array([row for _, row in terms], dtype=np.int64),
            np.array(strides, dtype=np.int64),
            np.cumsum([0, *(int(np.prod(shape, dtype=np.int64)) for shape in shapes)], dtype=np.int64),
        )

    def shares(self, parts: int) -> list[NDArray[np.int64]]:
        """The marginals in groups of about equal work, so that threads count without sharing a cell."""
        heaviest_first = np.argsort(-np.diff(self.bounds), kind="stable")
        return [heaviest_first[part::parts] for part in range(min(parts, len(self.shapes)))]

    def split(self, counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The flat counts as one array for each marginal."""
        ends = zip(self.offsets[:-1], self.offsets[1:], strict=True)
        return [counts[a:b].reshape(shape) for (a, b), shape in zip(ends, self.shapes, strict=True)]


def look_up(table: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    """The entries of a table at these places, none of which lies outside it."""
    found = np.empty(len(places), dtype=table.dtype)
    _look_up(table, places, found)
    return found


@njit(nogil=True, cache=True)
def _look_up(table: Numbers, places: Numbers, found: Numbers) -> None:  # pragma: no cover - compiled
    for i in range(places.shape[0]):
        found[i] = table[places[i]]


class CodeMatrices(NamedTuple):
    """Codes of a batch of records, a row for each column, in one matrix for each width."""

    narrow: NDArray[np.uint8]
    medium: NDArray[np.uint16]
    wide: NDArray[np.uint32]

    @staticmethod
    def empty(rows: Sequence[int], records: int) -> "CodeMatrices":
        """Room for codes: so many rows of each width."""
        narrow, medium, wide = rows
        return CodeMatrices(
            np.empty((narrow, records), dtype=np.uint8),
            np.empty((medium, records), dtype=np.uint16),
            np.empty((wide, records), dtype=np.uint32),
        )


def add_counts(
    layout: MarginalLayout,
    codes: CodeMatrices,
    times: NDArray[np.bool_] | NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    chosen: NDArray[np.int64] | None = None,
) -> None:
    """Add the records, each as often as it counts, to the counts of the chosen marginals, by default of all."""
    chosen = np.arange(len(layout.shapes)) if chosen is None else chosen
    _add_counts(
        codes.narrow, codes.medium, codes.wide, times.view(np.uint8) if times.dtype == np.bool_ else times,
        layout.bounds, layout.widths, layout.rows, layout.strides, layout.offsets, chosen, counts,
    )  # fmt: skip


@njit(nogil=True, cache=True)
def _add_counts(
    narrow: Bytes,
    medium: NDArray[np.uint16],
    wide: Words,
    times: Numbers,
    bounds: Integers,
    widths: Integers,
    rows: Integers,
    strides: Integers,
    offsets: Integers,
    chosen: Integers,
    counts: Integers,
) -> None:  # pragma: no cover - compiled
    records = times.shape[0]
    cells = np.empty(ROWS_PER_BLOCK, dtype=np.uint32)
    for begin in range(0, records, ROWS_PER_BLOCK):
        length = min(ROWS_PER_BLOCK, records - begin)
        for marginal in chosen:
            for i in range(length):
                cells[i] = 0
            for term in range(bounds[marginal], bounds[marginal + 1]):
                stride = np.uint32(strides[term])
                if widths[term] == 0:
                    _add_term(cells, narrow[rows[term], begin : begin + length], stride)
                elif widths[term] == 1:
                    _add_term(cells, medium[rows[term], begin : begin + length], stride)
                else:
                    _add_term(cells, wide[rows[term], begin : begin + length], stride)
            own = counts[offsets[marginal] : offsets[marginal + 1]]
            for i in range(length):
                own[cells[i]] += times[begin + i]


@njit(nogil=True, cache=True)
def _add_term(cells: Words, codes: Numbers, stride: np.uint32) -> None:  # pragma: no cover - compiled
    for i in range(codes.shape[0]):
        cells[i] += np.uint32(codes[i]) * stride


# ----------------------------------------------------------------------------------------------------------------------
# Columns into codes: the domain's public rule, carried out for every value there can be.


WIDEST_TABLE = 2**20
"""Whole numbers are coded by a table where those that matter span no more than this."""

TRUTH_LABELS = (("false", "true"), ("False", "True"), ("0", "1"))
"""How labels may write truth values; the first pair of which a label is declared is meant."""


class Coder(ABC):
    """Turns columns of any type into the codes of one attribute.

    `span` says that whole numbers below the first are all coded alike, and those above the second; None that whole
    numbers are not coded by table.
    """

    def __init__(self, *, size: int, missing: int, unlisted: int, drops: bool, span: tuple[int, int] | None) -> None:
        self.size = size
        self.drops = drops
        self.width = width_of(size + 1)
        self.kind = WIDTHS[self.width]
        self.missing = size if missing == DROP else missing
        self.unlisted = size if unlisted == DROP else unlisted
        self._span = span
        self._tables: dict[np.dtype[Any], tuple[int, NDArray[Any]]] = {}

    def codes(self, array: Any) -> NDArray[Any]:
        """The code of each value, or the mark `size`."""
        array = plain(array)
        if pa.types.is_null(array.type):
            return np.full(len(array), self.missing, dtype=self.kind)
        if pa.types.is_dictionary(array.type):
            table = np.append(self.codes(array.dictionary), self.kind(self.missing))
            return np.take(table, positions(array), mode="clip")
        found = self._codes_of_integers(array) if self._has_table(array.type) else self.codes_of_plain(array)
        if array.null_count:
            found[nulls(array)] = self.missing
        return found

    @abstractmethod
    def codes_of_plain(self, array: Any) -> NDArray[Any]:
        """The codes of a plain array; what it says of nulls does not matter."""

    def _has_table(self, kind: Any) -> bool:
        if self._span is None or not pa.types.is_integer(kind):
            return False
        return kind.bit_width <= 16 or self._span[1] - self._span[0] <= WIDEST_TABLE

    def _codes_of_integers(self, array: Any) -> NDArray[Any]:
        """Codes by table: of all 8- and 16-bit numbers, or of those within the span, to which others are moved."""
        values = (array.fill_null(0) if array.null_count else array).to_numpy()
        first, table = self._table(values.dtype)
        if values.itemsize <= 2:
            return look_up(table, values.view(f"u{values.itemsize}"))
        places = np.clip(values, first, first + len(table) - 1)
        places -= values.dtype.type(first)
        return look_up(table, places.astype(np.int64, copy=False))

    def _table(self, dtype: np.dtype[Any]) -> tuple[int, NDArray[Any]]:
        """The codes of the whole numbers from the first on."""
        if dtype not in self._tables:
            if dtype.itemsize <= 2:
                numbers = np.arange(2 ** (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)
            else:
                least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
                low, high = (max(least, min(end, most)) for end in self._span or (0, 0))
                numbers = np.array(range(low, high + 1), dtype=dtype)
            self._tables[dtype] = int(numbers[0]), self.codes_of_plain(pa.array(numbers))
        return self._tables[dtype]


class LabelCoder(Coder):
    """Codes by the texts of labels, for categorical attributes and hierarchies; also as our CSV files write them."""

    def __init__(self, attribute: Attribute) -> None:
        missing, unlisted = attribute.missing_code, attribute.unlisted_code
        whole = [int(label) for label in attribute.labels if _is_whole(label)]
        super().__init__(
            size=attribute.size,
            missing=missing,
            unlisted=unlisted,
            drops=DROP in (missing, unlisted),
            span=(min(whole, default=0) - 1, max(whole, default=0) + 1),
        )
        known = attribute.codes_by_label
        truths = next((pair for pair in TRUTH_LABELS if known.keys() & set(pair)), TRUTH_LABELS[0])
        written = {guarded(label): code for label, code in known.items() if guarded(label) not in known}
        texts = [label.encode("utf-8", "surrogatepass") for label in (*attribute.labels, *written)]
        self._texts = [*texts, *TRUTH_TEXTS]
        truth_codes = [known.get(text, self.unlisted) for text in truths]
        codes = [*range(self.size), *written.values(), *truth_codes, self.unlisted]
        self._code_at = np.array(codes, dtype=self.kind)

    def codes_of_plain(self, array: Any) -> NDArray[Any]:
        return np.take(self._code_at, places_among(texts_of(array), self._texts), mode="clip")


class BinCoder(Coder):
    """Codes by the bins of a numeric attribute: [edge, next edge), the last one closed unless integer."""

    def __init__(self, attribute: Numeric) -> None:
        missing, unlisted = attribute.missing_code, attribute.unlisted_code
        super().__init__(
            size=attribute.size,
            missing=missing,
            unlisted=unlisted,
            drops=missing == DROP or (unlisted == DROP and not attribute.clips),
            span=(math.floor(attribute.edges[0]) - 1, math.ceil(attribute.edges[-1]) + 1),
        )
        bins = len(attribute.edges) - 1
        below, above = (0, bins - 1) if attribute.clips else (self.unlisted, self.unlisted)
        self._edges = np.array(attribute.edges)
        self._closed = not attribute.integer
        self._code_at = np.array([below, *range(bins), above], dtype=self.kind)

    def codes_of_plain(self, array: Any) -> NDArray[Any]:
        numbers = numbers_of(array)
        found = np.take(self._code_at, np.searchsorted(self._edges, numbers, side="right"), mode="clip")
        if self._closed:
            found[numbers == self._edges[-1]] = len(self._edges) - 2
        found[np.isnan(numbers)] = self.missing
        return found


class BoundsCoder(Coder):
    """Code 0 for a point that a continuous attribute keeps; the mark for one that it drops."""

    def __init__(self, attribute: Continuous) -> None:
        super().__init__(size=1, missing=DROP, unlisted=DROP, drops=True, span=None)
        self._low, self._high = attribute.bounds
        self._clips = attribute.unlisted == "clip"
        self._bits = 63 - math.frexp(max(abs(self._low), abs(self._high)))[1]

    def codes_of_plain(self, array: Any) -> NDArray[Any]:
        numbers = numbers_of(array)
        dropped = np.isnan(numbers)
        if not self._clips:
            dropped |= (numbers < self._low) | (numbers > self._high)
        return dropped.astype(self.kind)

    def lattice(self, array: Any) -> NDArray[np.int64]:
        """The numbers, moved to the bounds and down to a multiple of 2^−bits; of no meaning where the code is the mark.

        The lattice depends on the bounds alone and has 2^63 points up to the larger of them, so that only numbers a
        thousand times smaller than that are moved at all. Its points are what is counted and told apart.
        """
        array = plain(array)
        if pa.types.is_dictionary(array.type):
            return np.append(self.lattice(array.dictionary), np.int64(0))[positions(array)]
        numbers = np.nan_to_num(np.clip(numbers_of(array), self._low, self._high))
        return np.floor(np.ldexp(numbers, self._bits)).astype(np.int64)

    def points(self, lattice: NDArray[np.int64]) -> NDArray[np.float64]:
        """The numbers that lattice points are."""
        return np.ldexp(lattice.astype(np.float64), -self._bits)


class SummandCoder:
    """What the records of a batch add to sums: whole steps of a declared lattice."""

    def __init__(self, summand: Summand, attribute: Numeric | None = None) -> None:
        self.summand = summand
        self._attribute = attribute

    def units(self, array: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """The steps that each record adds, and which records are dropped for want of a number.

        Of an attribute a number that lies in none of its bins is none.
        """
        array = plain(array)
        if pa.types.is_dictionary(array.type):
            numbers = np.append(numbers_of(array.dictionary), np.nan)[positions(array)]
        else:
            numbers = numbers_of(array)
        if self._attribute is not None and not self._attribute.clips:
            low, high = self._attribute.edges[0], self._attribute.edges[-1]
            beyond = numbers >= high if self._attribute.integer else numbers > high
            numbers = np.where((numbers < low) | beyond, np.nan, numbers)
        return self.summand.units(numbers), np.isnan(numbers) if self.summand.missing is None else None


class PeriodCoder(Coder):
    """Codes by the periods of a date: of dates and timestamps by their day, of texts as the format reads them."""

    def __init__(self, attribute: Date) -> None:
        missing, unlisted = attribute.missing_code, attribute.unlisted_code
        drops = missing == DROP or (unlisted == DROP and not attribute.clips)
        super().__init__(size=attribute.size, missing=missing, unlisted=unlisted, drops=drops, span=None)
        periods = len(attribute.ordinary_labels)
        below, above = (0, periods - 1) if attribute.clips else (self.unlisted, self.unlisted)
        self._first, self._by = attribute.first, attribute.by
        self._code_at = np.array([below, *range(periods), above], dtype=self.kind)
        self._added = {label.encode(): code for label, code in attribute.codes_by_label.items() if code >= periods}
        self._texts = DateTexts(attribute.name, attribute.format, attribute.by)

    def codes_of_plain(self, array: Any) -> NDArray[Any]:
        if pa.types.is_date(array.type) or pa.types.is_timestamp(array.type):
            return self._codes_of_days(days_of(array))
        texts = texts_of(array).dictionary_encode()
        known = texts.dictionary.to_pylist()
        codes = self._codes_of_days(self._texts.days(text.decode("utf-8", "replace") for text in known))
        for place, text in enumerate(known):
            codes[place] = self._added.get(text, codes[place])
        return np.append(codes, self.kind(self.missing))[positions(texts)]

    def _codes_of_days(self, days: NDArray[np.int64]) -> NDArray[Any]:
        no_date = days == NO_DAY
        places = periods_of(np.where(no_date, 0, days), self._by) - (self._first - 1)
        found = np.take(self._code_at, places, mode="clip")
        found[no_date] = self.missing
        return found


def coder_of(attribute: Attribute) -> Coder:
    """The coder that carries out an attribute's rule."""
    if isinstance(attribute, Date):
        return PeriodCoder(attribute)
    if isinstance(attribute, Numeric):
        return BinCoder(attribute)
    return BoundsCoder(attribute) if isinstance(attribute, Continuous) else LabelCoder(attribute)


def unsuitable(attribute: Attribute | None, kind: Any) -> str | None:
    """What a column's type holds that the attribute (None: a unit) can never match, or None if it can."""
    if pa.types.is_dictionary(kind):
        return unsuitable(attribute, kind.value_type)
    if pa.types.is_nested(kind) and not pa.types.is_run_end_encoded(kind):
        return "nested values"
    if isinstance(attribute, Numeric | Continuous) and pa.types.is_temporal(kind):
        return "dates, times or durations"
    if isinstance(attribute, Date) and pa.types.is_temporal(kind):
        return None if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else "times or durations"
    return None


def _is_whole(label: str) -> bool:
    """True of the decimal texts of whole numbers.

    >>> [_is_whole(text) for text in ("12", "-3", "007", "1.0", "٣")]
    [True, True, False, False, False]
    """
    digits = label.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 40 and str(int(label)) == label
