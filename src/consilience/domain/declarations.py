"""Reading what a person or another program declared: typed look-ups whose errors say where and what.

A `Declaration` wraps one mapping from a TOML or JSON file. Every look-up checks the type, every error names the
place in the file, and `close` refuses keys that nobody asked for, suggesting the nearest known one.
"""

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, Protocol

import numpy as np

from consilience.errors import DeclarationError


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known word, or the list of what there is.

    >>> suggestion("agee", ["age", "sex"])
    "did you mean 'age'?"
    >>> suggestion("zzz", ["age", "sex"])
    'there is: age, sex'
    """
    known = [str(name) for name in known]
    folded = {name.casefold(): name for name in known}
    nearest = difflib.get_close_matches(word.casefold(), folded, n=1)
    if nearest:
        return f"did you mean {folded[nearest[0]]!r}?"
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"there is: {shown}" if known else "there is none"


def is_number(value: object) -> bool:
    """True of floats and of integers that a float can hold, and not of booleans, NaN or infinities."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) if isinstance(value, float) else value.bit_length() <= 1023


class Declaration:
    """One mapping of a declared file, read key by key."""

    def __init__(self, mapping: object, where: str) -> None:
        if not isinstance(mapping, Mapping) or not all(isinstance(key, str) for key in mapping):
            raise DeclarationError(f"{where}: expected a table of named values, found {_kind(mapping)}")
        self.where = where
        self._mapping: Mapping[str, Any] = mapping
        self._read: set[str] = set()
        self._known: set[str] = set()

    def __contains__(self, key: str) -> bool:
        self._known.add(key)
        return key in self._mapping

    def keys(self) -> tuple[str, ...]:
        return tuple(self._mapping)

    def refuse(self, message: str) -> NoReturn:
        raise DeclarationError(f"{self.where}: {message}")

    def _look_up(self, key: str, wanted: str) -> Any:
        self._read.add(key)
        if key not in self._mapping:
            self.refuse(f"{key!r} is missing; it must be {wanted}")
        return self._mapping[key]

    def _wrong(self, key: str, wanted: str) -> NoReturn:
        self.refuse(f"{key!r} must be {wanted}, found {_kind(self._mapping[key])}")

    def _wrong_item(self, key: str, wanted: str, item: object) -> NoReturn:
        self.refuse(f"{key!r} must be {wanted}, found {_kind(item)} in it")

    def text(self, key: str) -> str:
        value = self._look_up(key, "a text")
        return value if isinstance(value, str) else self._wrong(key, "a text")

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if key in self else None

    def flag(self, key: str) -> bool:
        value = self._look_up(key, "true or false")
        return value if isinstance(value, bool) else self._wrong(key, "true or false")

    def number(self, key: str) -> float:
        value = self._look_up(key, "a finite number")
        return value if is_number(value) else self._wrong(key, "a finite number")

    def integer(self, key: str) -> int:
        value = self._look_up(key, "a whole number")
        return int(value) if is_number(value) and value == int(value) else self._wrong(key, "a whole number")

    def numbers(self, key: str) -> tuple[float, ...]:
        return self._items_that(is_number, key, "a list of finite numbers")

    def texts(self, key: str) -> tuple[str, ...]:
        return self._items_that(lambda value: isinstance(value, str), key, "a list of texts")

    def labels(self, key: str) -> tuple[str, ...]:
        """Texts, or numbers and truth values that stand for their text, as people write `values = [0, 1]`."""
        wanted = "a list of texts, numbers or truth values"
        values = self._items_that(lambda value: label_text(value) is not None, key, wanted)
        return tuple(str(label_text(value)) for value in values)

    def label(self, key: str) -> str:
        text = label_text(self._look_up(key, "a value"))
        return text if text is not None else self._wrong(key, "a text, a number or a truth value")

    def optional_label(self, key: str) -> str | None:
        return self.label(key) if key in self else None

    def table(self, key: str) -> "Declaration":
        return Declaration(self._look_up(key, "a table"), f"{self.where}.{key}")

    def tables(self, key: str) -> tuple["Declaration", ...]:
        values = self._items(key, "a list of tables")
        return tuple(Declaration(value, f"{self.where}.{key}[{i}]") for i, value in enumerate(values))

    def raw(self, key: str) -> Any:
        """The value as it stands, for keys whose type depends on another declaration."""
        return self._look_up(key, "present")

    def close(self) -> None:
        """Refuse keys that nobody read."""
        for key in self._mapping:
            if key not in self._read:
                self.refuse(f"{key!r} is not known here; {suggestion(key, sorted(self._read | self._known))}")

    def _items(self, key: str, wanted: str) -> tuple[Any, ...]:
        values = self._look_up(key, wanted)
        if not isinstance(values, Sequence) or isinstance(values, str | bytes):
            self._wrong(key, wanted)
        return tuple(values)

    def _items_that(self, fits: Callable[[object], bool], key: str, wanted: str) -> tuple[Any, ...]:
        values = self._items(key, wanted)
        for value in values:
            if not fits(value):
                self._wrong_item(key, wanted, value)
        return values


def label_text(value: object) -> str | None:
    """The text by which a declared value is known, or None when it cannot be a value.

    >>> label_text(3), label_text(2.0), label_text(True), label_text("x")
    ('3', '2', 'true', 'x')
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_number(value):
        return format_number(value) if isinstance(value, float) else str(value)
    return None


def format_number(value: float) -> str:
    """The shortest text that reads back as this number, without a trailing `.0`.

    >>> format_number(25.0), format_number(0.1)
    ('25', '0.1')
    """
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 1023:
        return "a number beyond the range of numbers"
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


# ----------------------------------------------------------------------------------------------------------------------
# How attributes and values are spelled: in the query language, on terminals, and in CSV files.


KEYWORDS = ("by", "and", "where", "in", "per", "minus")
HEADS = ("total", "count")
"""Words that ask for the number of records where a query starts with them."""

_INVISIBLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
"""Control characters, ends of lines and paragraphs, signs that turn the direction of writing, and halves of signs."""
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBERS = re.compile(rf"{_NUMBER}(?:\.\.{_NUMBER})?")

_BARE = re.compile(r"""[^\s=<>(),|"'!]+(?: [^\s=<>(),|"'!]+)*""")


def spell(word: str) -> str:
    """The word as the query language reads it back; inside quotes a quote is written twice.

    >>> print(spell("Never married"), spell("<=50K"), spell('5" pipe'))
    Never married "<=50K" "5"" pipe"
    """
    keyword = any(part.lower() in KEYWORDS for part in word.split(" "))
    return word if _BARE.fullmatch(word) and ".." not in word and not keyword else quoted(word)


def spell_attribute(name: str) -> str:
    """An attribute's name, in quotes where it could be taken for the start of a query."""
    return quoted(name) if name.lower() in HEADS else spell(name)


def spell_end(end: str | None) -> str:
    """One end of a range; nothing where it is open."""
    if end is None:
        return ""
    return quoted(end) if end.startswith(".") or end.endswith(".") else spell(end)


def quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def visible(text: str) -> str:
    """The text with what a terminal would obey, or not show, written out as JSON writes it.

    >>> print(visible("red\\x1b[31m alert"))
    red\\u001b[31m alert
    """
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def guarded(text: str) -> str:
    """The text as it is written into CSV: with an apostrophe before what a spreadsheet would take for a formula.

    Numbers, and ranges of them, stay as they are. Texts that begin with apostrophes and then so get one more, so that
    no two texts are written alike.

    >>> [guarded(text) for text in ("=1+2", "-5", "-9..0", "- none", "'=1", "fine")]
    ["'=1+2", '-5', '-9..0', "'- none", "''=1", 'fine']
    """
    return "'" + text if _FORMULA.match(text) and not _NUMBERS.fullmatch(text) else text


# ----------------------------------------------------------------------------------------------------------------------
# How people read an attribute: its title, its unit, and labels of its values, as code books call them.
#
# Codes such as 1 or "A02" stay what is counted, and what files and ledgers know. A wording changes no count and no
# promise, so that it is no part of what a request is known by: a title can be corrected after the release.


class Named(Protocol):
    """What is worded: an attribute."""

    @property
    def name(self) -> str: ...
    @property
    def nameable(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Wording:
    """A title, a unit, and a label for some of the values; all of them may be absent.

    >>> Wording("Income", "dollars").heading("income")
    'Income (dollars)'
    """

    title: str = ""
    unit: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """Pairs of a value, as the domain lists it, and its label."""

    def heading(self, name: str) -> str:
        """The title, or else this name, with the unit."""
        return f"{self.title or name}{f' ({self.unit})' if self.unit else ''}"

    @cached_property
    def by_value(self) -> dict[str, str]:
        return dict(self.labels)

    @cached_property
    def _values_by_label(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for value, label in self.labels:
            found.setdefault(label, []).append(value)
        return found

    def value_of(self, name: str, text: str) -> str:
        """The one value with this label; the text itself where it is no label. A label of several is refused."""
        values = self._values_by_label.get(text, [text])
        if len(values) > 1:
            shown = ", ".join(map(repr, values[:6])) + (", ..." if len(values) > 6 else "")
            raise DeclarationError(
                f"attribute {name!r}: {text!r} is the label of {len(values)} values, {shown}; name the value instead"
            )
        return values[0]

    def check(self, name: str, values: Collection[str]) -> None:
        """Refuse labels of values that the attribute does not have."""
        known = set(values)
        for value, label in self.labels:
            if value not in known:
                raise DeclarationError(
                    f"attribute {name!r}: 'labels' names {value!r}, which is none of its values; "
                    + suggestion(value, values)
                )
            if not label.strip():
                raise DeclarationError(f"attribute {name!r}: the label of {value!r} is empty; leave the entry out")

    def to_declaration(self) -> dict[str, Any]:
        """What the attribute's table in a domain file says of it; nothing where there is no wording."""
        declared: dict[str, Any] = {"title": self.title} if self.title else {}
        declared |= {"unit": self.unit} if self.unit else {}
        return declared | ({"labels": dict(self.labels)} if self.labels else {})

    @staticmethod
    def read(declared: Declaration, attribute: Named) -> "Wording":
        """What the table of an attribute says: `title`, `unit`, and `labels`, a table of value = label."""
        title, unit = (declared.text(key) if key in declared else "" for key in ("title", "unit"))
        pairs: tuple[tuple[str, str], ...] = ()
        if "labels" in declared:
            table = declared.table("labels")
            pairs = tuple((str(label_text(value)), table.label(value)) for value in table.keys())
        wording = Wording(title, unit, pairs)
        if pairs:
            wording.check(attribute.name, attribute.nameable)
        return wording


WORDS = ("title", "unit", "labels")
"""The keys of an attribute's table that are for people alone."""
