"""What a pass over the data remembers of a column, in bounded memory and whatever the order of the rows.

Of a column with many different texts those with the smallest hashes are kept, each with its exact number of rows: a
text that belongs to them in the end belonged to them from its first row on, so that the same are kept in every order.
They are a random sample of the different texts, and their largest hash tells how many there are (Bar-Yossef et al.
2002). What the rules that recognise columns see of one is made of that.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from consilience.curation.cells import Cutting, Numbers
from consilience.curation.code_books import Entry, spelled
from consilience.curation.vocabulary import (
    ASIDE,
    HIGH_SENTINELS,
    NUMBER_TOKENS,
    PATTERNS,
    SENTINELS,
    TOKENS,
    WATCHED,
    folded,
    words_of,
)
from consilience.domain.source_format import Notation
from consilience.source.records import with_points
from consilience.source.values import NO_TEXT, TRUTH_TEXTS, decoded, is_text, numbers_of, texts_of

compute: Any = pyarrow.compute

HASHES = 2**32


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


# ----------------------------------------------------------------------------------------------------------------------
# A column as the rules see it: without its texts for missing values, and with what is said of it.


@dataclass(frozen=True)
class Thresholds:
    """When a column is taken for what it is; shares are of the rows that have a value.

    Tuned on five tables and judged on others: `docs/decisions/0048-a-draft-is-what-a-statistician-would-write.md`.
    """

    texts: int = 4096
    """Different texts of a column that are remembered: 200 columns of them take about 100 MB."""
    near_unique: float = 0.9
    """Values that tell rows apart: so many different ones per row. Measurements come near this too, whole numbers that
    count or have all the same length do not."""
    repeats: float = 3.0
    """Rows per value below which a text tells rows apart rather than groups."""
    numbers: float = 0.9
    """The share of numbers from which on a column of texts is one of numbers."""
    categories: int = 12
    """Whole numbers with at most so many different values are a list, as answers of a questionnaire are."""
    listed: int = 100
    """Values that a list without an order of its own has at most; the others become Other."""
    rare: int = 5
    """In longer lists a value of fewer rows becomes Other: it may be a name, or misspelt."""
    codes: int = 1200
    """Codes that are listed at most; the longest classifications in use, ICD chapters and occupations in four digits,
    have up to 900."""
    words: float = 4.0
    """Words per value from which on texts that are sentences are free text."""
    exact: float = 0.98
    """The share that has to fit where a pattern is looked for; the rest may be mistyped."""
    cutting: Cutting = field(default_factory=Cutting)


class Look:
    """A column without its texts for missing values, and what is said of it."""

    def __init__(
        self,
        column: Column,
        notation: Notation,
        thresholds: Thresholds,
        *,
        tokens: Sequence[str] = (),
        entry: Entry | None = None,
    ) -> None:
        self.column, self.thresholds = column, thresholds
        self.entry = None if entry is None else spelled(entry, column.texts)
        """What the code book says of it."""
        self._given = [*tokens, *(self.entry.missing if self.entry else ())]
        self.name = words_of(column.name)
        self._marks = notation
        self.tokens = self._missing_tokens()
        self.numbers: Numbers | None = None
        """The exact range and quantiles, once a second pass has read them."""

    @property
    def notation(self) -> Notation:
        return Notation(self._marks.decimal, self._marks.thousands, self.tokens)

    @cached_property
    def texts(self) -> Counter[str]:
        """The texts that stand for values, with their rows."""
        return Counter({text: rows for text, rows in self.column.texts.items() if text not in self.tokens})

    @cached_property
    def rows(self) -> int:
        """The rows that have a value."""
        seen, texts = self.column.tokens, self.column.texts
        return self.column.present - sum(seen[token] or texts[token] for token in self.tokens)

    @property
    def missing(self) -> int:
        return self.column.rows - self.rows

    @cached_property
    def distinct(self) -> int:
        return max(min(self.column.distinct, self.column.present) - len(self.tokens), 0)

    @property
    def repeats(self) -> float:
        """The rows per value."""
        return self.rows / max(self.distinct, 1)

    @property
    def unique(self) -> bool:
        """Whether values tell nearly all rows apart."""
        return self.rows >= 20 and self.distinct >= self.thresholds.near_unique * self.rows

    def named(self, what: str) -> bool:
        """Whether the column has such a name."""
        return PATTERNS[what].fullmatch(self.name) is not None

    def share(self, fits: Callable[[str], object], *, of_rows: bool = True) -> float:
        """The share of rows, or of different texts, that fit."""
        counted = [(rows if of_rows else 1, bool(fits(text))) for text, rows in self.texts.items()]
        whole = sum(rows for rows, _ in counted)
        return sum(rows for rows, good in counted if good) / whole if whole else 0.0

    @cached_property
    def is_numeric(self) -> bool:
        """Whether its texts are numbers, not codes with leading zeros, but for a few."""
        if self.column.stored in ("truth", "date", "time", "other") or not self.texts:
            return False
        values = read_numbers(list(self.texts), self._marks)
        rows = np.array(list(self.texts.values()))
        zeros = self.column.stored == "text" and self.share(lambda text: re.fullmatch(r"0\d+", text)) > 0.005
        return rows[np.isfinite(values)].sum() >= self.thresholds.numbers * rows.sum() and not zeros

    def _missing_tokens(self) -> tuple[str, ...]:
        """The texts of the column that stand for a missing value."""
        seen, texts = self.column.tokens, self.column.texts
        listed = [text for text in texts if text.casefold() not in WATCHED]
        found = [text for text in seen if text.casefold() in TOKENS]
        if "NA" in found and sum(bool(re.fullmatch("[A-Z]{2}", text)) for text in listed) >= 10:
            found.remove("NA")  # Namibia, among codes of countries
        digits = [text for text in listed if any(map(str.isdigit, text))]
        if len(digits) == len(listed) > 0 and self.column.stored in ("text", "number"):
            found += [text for text in seen if text.casefold() in NUMBER_TOKENS and text]
        if self.entry is not None:  # what the book labels is a value, if it is no missing one
            coded = {code for code, label in self.entry.labels if folded(label) not in ASIDE}
            found = [text for text in found if text not in coded]
            aside = [code for code, label in self.entry.labels if folded(label) in ASIDE]
            found += [code for code in aside if len(listed) > self.thresholds.categories and code in texts]
        found += [text for text in self._given if text in texts]
        return tuple(sorted({*found, *self._sentinels(found)}))

    def _sentinels(self, tokens: Sequence[str]) -> list[str]:
        """Numbers that lie apart from all others, as -9 below counts and 999 above ages do."""
        present = [text for text in self.column.tokens if text in (*SENTINELS, *HIGH_SENTINELS)]
        if not present or self.column.stored not in ("text", "number"):
            return []
        others = [text for text in self.column.texts if text not in tokens and text not in present]
        values = read_numbers(others, self._marks)
        rows = np.array([self.column.texts[text] for text in others])[np.isfinite(values)]
        values = values[np.isfinite(values)]
        if values.size < max(1, 0.9 * len(others)):
            return []
        low, high, middle = float(values.min()), float(values.max()), float(np.median(np.repeat(values, rows)))
        found = [
            text for text in present if text in SENTINELS and float(text) < (0 if low >= 0 else 4 * low - abs(middle))
        ]
        long_tail = high > 20 * max(abs(middle), 1)
        if values.size > self.thresholds.categories and not long_tail:
            found += [text for text in present if text in HIGH_SENTINELS and float(text) > 2 * high]
            if any(text in HIGH_SENTINELS for text in found):
                digits = {len(text) for text in found if text in HIGH_SENTINELS}
                found += [text for text in present if len(text) in digits and float(text) > high]
        return found
