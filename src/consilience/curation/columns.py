"""What a pass over the data remembers of a column, in bounded memory and whatever the order of the rows.

Of a column with many different texts those with the smallest hashes are kept, each with its exact number of rows: a
text that belongs to them in the end belonged to them from its first row on, so that the same are kept in every order.
They are a random sample of the different texts, and their largest hash tells how many there are (Bar-Yossef et al.
2002). Numbers are counted in buckets that keep their leading twelve binary digits: whole numbers up to 4,096 are exact,
and every quantile is to 0.05 %.
"""

import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from consilience.domain.source_format import Notation
from consilience.source.records import with_points
from consilience.source.values import NO_TEXT, TRUTH_TEXTS, decoded, is_text, numbers_of, texts_of

compute: Any = pyarrow.compute

HASHES = 2**32
DROPPED_BITS = 52 - 11
"""Of the 52 binary digits that a double keeps after its first, all but eleven are forgotten."""


class Texts:
    """The different texts of a column with their rows: all of them, or a sample where there are more than `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: Counter[str] = Counter()
        self._below = HASHES

    def add(self, texts: Iterable[tuple[str, int]]) -> None:
        for text, rows in texts:
            if text in self._rows or self._below == HASHES or _hash(text) < self._below:
                self._rows[text] += rows
        if len(self._rows) > 2 * self._most:
            self._prune()

    def _prune(self) -> None:
        order = sorted((_hash(text), text) for text in self._rows)
        self._below = order[self._most][0]
        self._rows = Counter({text: self._rows[text] for key, text in order if key < self._below})

    @property
    def rows(self) -> Counter[str]:
        """The rows of each text that is kept."""
        if len(self._rows) > self._most:
            self._prune()
        return self._rows

    @property
    def complete(self) -> bool:
        """Whether all texts are kept."""
        return len(self.rows) > 0 and self._below == HASHES

    @property
    def distinct(self) -> int:
        """How many different texts there are: exact where all are kept, and an estimate else."""
        kept = len(self.rows)
        return kept if self._below == HASHES else round(kept * HASHES / self._below)


def _hash(text: str) -> int:
    """A number below 2³² that looks like chance, and is the same everywhere."""
    spread = zlib.crc32(text.encode("utf-8", "surrogateescape")) * 0x9E3779B97F4A7C15 % 2**64
    return (spread ^ spread >> 29) * 0xBF58476D1CE4E5B9 % 2**64 >> 32


class Column:
    """What was seen of one column: how it is stored, how many rows it has, and its texts."""

    def __init__(self, name: str, most: int, tokens: Collection[str]) -> None:
        self.name = name
        self.rows = self.missing = 0
        self.stored = "text"
        """How the source stores it: text, number, truth, date, time, or other where it has no texts."""
        self.readable = True
        """Whether all texts are UTF-8."""
        self.wordy, self.numbered = Texts(most), Texts(most)
        """The texts without a digit, and those with one: words for a missing number are few among many numbers."""
        self._tokens = frozenset(tokens)
        self.tokens: Counter[str] = Counter()
        """The rows of texts that often stand for a missing value, written as the column has them."""

    def add(self, array: object) -> None:
        values = decoded(array)
        self.rows += len(values)
        self.missing += values.null_count
        self.stored = _stored(values.type)
        if self.stored == "other":
            return
        counted = compute.value_counts(texts_of(values.drop_null())).to_pylist()
        texts = [(self._text(each["values"]), each["counts"]) for each in counted]
        for text, rows in texts:
            if text.casefold() in self._tokens:
                self.tokens[text] += rows
        with_digits = [(text, rows) for text, rows in texts if not text.isalpha() and any(map(str.isdigit, text))]
        digits = {text for text, _ in with_digits}
        self.numbered.add(with_digits)
        self.wordy.add((text, rows) for text, rows in texts if text and text not in digits)
        self.missing += sum(rows for text, rows in texts if not text)

    def _text(self, value: bytes) -> str:
        if value in TRUTH_TEXTS:
            return ("false", "true")[TRUTH_TEXTS.index(value)]
        self.readable &= value == NO_TEXT or _is_utf8(value)
        return value.decode("utf-8", "surrogateescape")

    @property
    def present(self) -> int:
        return self.rows - self.missing

    @property
    def texts(self) -> Counter[str]:
        """All texts that are kept, with their rows."""
        return self.wordy.rows + self.numbered.rows

    @property
    def distinct(self) -> int:
        return self.wordy.distinct + self.numbered.distinct

    @property
    def complete(self) -> bool:
        return all(each.complete or not each.rows for each in (self.wordy, self.numbered))


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _stored(kind: Any) -> str:
    types = pa.types
    if is_text(kind) or types.is_null(kind):
        return "text"
    if types.is_boolean(kind):
        return "truth"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "date"
    return "time" if types.is_time(kind) else "other"


class Numbers:
    """The numbers of a column: their range, whether all are whole, and where any share of them lies."""

    def __init__(self) -> None:
        self.count = 0
        self.low, self.high = np.inf, -np.inf
        self.whole = True
        self._keys, self._rows = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)

    def add(self, numbers: NDArray[np.float64]) -> None:
        """Take in the finite numbers of a batch."""
        numbers = numbers[np.isfinite(numbers)]
        if not numbers.size:
            return
        self.count += numbers.size
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        self.whole &= bool((numbers == np.floor(numbers)).all())
        keys, rows = np.unique(_bucket(numbers), return_counts=True)
        self._keys, places = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        self._rows = np.bincount(places, np.concatenate([self._rows, rows])).astype(np.int64)

    @property
    def values(self) -> NDArray[np.float64]:
        """The buckets in order, each by its number nearest to zero."""
        return _number(self._keys)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows of each bucket."""
        return self._rows

    def at(self, share: float) -> float:
        """The number below which this share of all lies, ends included."""
        if share <= 0 or share >= 1:
            return self.low if share <= 0 else self.high
        place = np.searchsorted(np.cumsum(self._rows), share * self.count, side="left")
        return float(np.clip(self.values[min(place, len(self._keys) - 1)], self.low, self.high))

    def share(self, low: float, high: float) -> float:
        """The share of numbers from low to high, both included, as far as buckets tell them apart."""
        inside = (self.values >= low) & (self.values <= high)
        return float(self._rows[inside].sum()) / max(self.count, 1)


def _bucket(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """A whole number for each number that keeps their order: its sign, its exponent and eleven binary digits."""
    magnitude = np.abs(numbers).view(np.int64) >> DROPPED_BITS
    return np.where(numbers < 0, -magnitude, magnitude)


def _number(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.copysign((np.abs(keys) << DROPPED_BITS).view(np.float64), keys)


# ----------------------------------------------------------------------------------------------------------------------
# How numbers are written: the marks of a column, read off its texts, and then those of the whole file.


NUMBER_SHAPE = re.compile(r"[+-]?[0-9][0-9.,'’ \u00a0\u202f]*(?:[eE][+-]?[0-9]+)?|[+-]?[.,][0-9]+")
GROUPED = r"[+-]?[1-9][0-9]{{0,2}}(?:{sign}[0-9]{{3}})+"


def marks_of(texts: Counter[str]) -> tuple[str, str | None] | None:
    """The decimal mark and the mark of thousands that the texts can only have; None where they leave it open.

    >>> marks_of(Counter(["1.234,5", "12"])), marks_of(Counter(["1,234", "950"])), marks_of(Counter(["12", "7"]))
    ((',', '.'), ('.', ','), None)
    """
    shapes = [text for text in texts if NUMBER_SHAPE.fullmatch(text)]
    spaces = next((sign for sign in " \u00a0\u202f'’" if any(sign in text for text in shapes)), None)
    bare = [re.sub(r"[ \u00a0\u202f'’]", "", text) for text in shapes]
    comma, point = (any(sign in text for text in bare) for sign in ",.")
    if comma and point:
        both = next((text for text in bare if "," in text and "." in text), "")
        last = max(both.rfind(","), both.rfind("."))
        grouped_comma, grouped_point = _all_grouped(bare, ","), _all_grouped(bare, ".")
        if both:
            return (both[last], "," if both[last] == "." else ".")
        if grouped_comma != grouped_point:
            return (".", ",") if grouped_comma else (",", ".")
        return None
    if comma:
        return (".", ",") if _all_grouped(bare, ",") else (",", spaces)
    if point:
        twice = any(text.count(".") > 1 for text in bare)
        return (",", ".") if twice else (".", spaces)
    return (".", spaces) if spaces else None


def _all_grouped(texts: Sequence[str], sign: str) -> bool:
    """Whether each text with the sign has groups of three digits after it, and a digit that is not 0 before."""
    pattern = re.compile(GROUPED.format(sign=re.escape(sign)) + r"(?:[.,][0-9]*)?")
    marked = [text for text in texts if sign in text]
    return bool(marked) and all(pattern.fullmatch(text) for text in marked)


def notations(columns: Sequence[Column]) -> dict[str, Notation]:
    """How each column writes its numbers; where its own texts leave it open, as the others do.

    A column in which each mark stands before three digits may mean thousands or thousandths: it follows the others, and
    without them a comma means thousands and a point decimals.
    """
    texts = {column.name: column.numbered.rows for column in columns if column.stored == "text"}
    own = {name: marks for name, rows in texts.items() if (marks := marks_of(rows)) is not None}
    open_marks = {name: sign for name in own if (sign := _one_grouped_mark(texts[name])) is not None}
    settled = Counter(marks[0] for name, marks in own.items() if name not in open_marks)
    decimal = "," if settled[","] > settled["."] else "."
    found = {name: Notation(*marks) for name, marks in own.items() if name not in open_marks}
    if settled:
        found |= {name: Notation(decimal, None if sign == decimal else sign) for name, sign in open_marks.items()}
    else:
        found |= {name: Notation(".", "," if sign == "," else None) for name, sign in open_marks.items()}
    plain = {column.name: Notation(decimal if column.name in texts else ".") for column in columns}
    return plain | found


def _one_grouped_mark(texts: Counter[str]) -> str | None:
    """The only mark in the texts, where each has at most one and three digits after it; None else."""
    marked = [text for text in texts if re.search(r"[.,]", text)]
    signs = {sign for sign in ",." if any(sign in text for text in marked)}
    if len(signs) != 1 or any(len(re.findall(r"[.,]", text)) > 1 for text in marked):
        return None
    sign = signs.pop()
    return sign if _all_grouped(marked, sign) else None


def read_numbers(texts: Sequence[str], notation: Notation) -> NDArray[np.float64]:
    """The number of each text, NaN where it is none."""
    written = pa.array([text.encode("utf-8", "surrogateescape") for text in texts], pa.large_binary())
    if (notation.decimal, notation.thousands) == (".", None):
        return numbers_of(written)
    return numbers_of(with_points(written, notation.decimal, notation.thousands or ""))
