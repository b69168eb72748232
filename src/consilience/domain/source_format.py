"""How a source writes its values as text: the encoding, the delimiter, the marks of numbers, what stands for nothing.

Declared like everything else in a domain, and never guessed from records. It decides what is counted, so it is part of
a domain's declaration and fingerprint wherever it differs from the defaults; a domain that says nothing of it has the
fingerprint that it always had.
"""

import codecs
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import Declaration, format_number, is_number, label_text, suggestion
from consilience.errors import DeclarationError

ENCODINGS = ("utf-8", "latin-1", "cp1252", "utf-16", "iso-8859-2", "iso-8859-15", "cp850", "cp1250", "cp1251")
"""Those that people mostly need, to be suggested; every other text encoding that Python knows works as well."""

NO_FILES = ("idna", "mbcs", "oem", "punycode", "raw_unicode_escape", "undefined", "unicode_escape")
"""Encodings that are not for files, or not the same on every machine."""

MARKS_OF_NUMBERS = frozenset('0123456789+-eE"\r\n')
"""What can be neither a decimal mark nor a mark of thousands."""


@dataclass(frozen=True)
class Notation:
    """How a column writes numbers, and which texts stand for a missing value.

    >>> Notation(decimal=",", thousands=".", missing_tokens=("NA", "?", "NA")).to_declaration()
    {'decimal': ',', 'thousands': '.', 'missing_tokens': ['?', 'NA']}
    """

    decimal: str = "."
    thousands: str | None = None
    """The mark between groups of three digits; None where there is none."""
    missing_tokens: tuple[str, ...] = ()
    """Texts that mean that there is no value. An empty field of delimited text means that anyway."""

    def __post_init__(self) -> None:
        for what, mark in (("decimal", self.decimal), ("thousands", self.thousands)):
            if mark is not None and (not isinstance(mark, str) or len(mark) != 1 or mark in MARKS_OF_NUMBERS):
                raise DeclarationError(
                    f"{what} = {mark!r}: a mark within numbers is one sign, no digit, quote, + or -, such as ',' or '.'"
                )
        if self.decimal == self.thousands:
            raise DeclarationError(f"decimal and thousands are both {self.decimal!r}; they must differ")
        texts = [label_text(token) for token in _as_list(self.missing_tokens)]
        if None in texts:
            raise DeclarationError(f"missing_tokens = {list(self.missing_tokens)!r}: each must be a text or a number")
        object.__setattr__(self, "missing_tokens", tuple(sorted({str(text) for text in texts})))

    def to_declaration(self, default: "Notation | None" = None) -> dict[str, Any]:
        """What differs from the default, as a domain file says it."""
        default = default or Notation()
        declared: dict[str, Any] = {}
        if self.decimal != default.decimal:
            declared["decimal"] = self.decimal
        if self.thousands != default.thousands:
            declared["thousands"] = self.thousands or ""
        if self.missing_tokens != default.missing_tokens:
            declared["missing_tokens"] = list(self.missing_tokens)
        return declared


@dataclass(frozen=True)
class SourceFormat:
    """How the files of a source are to be read: text and fields, and the notation of all columns or of some."""

    encoding: str = "utf-8"
    delimiter: str | None = None
    """None where the header decides among comma, semicolon, tab and bar."""
    notation: Notation = field(default_factory=Notation)
    by_attribute: tuple[tuple[str, Notation], ...] = ()
    """Attributes that write their values in another way."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", known_encoding(self.encoding))
        sign = self.delimiter
        if sign is not None and (not isinstance(sign, str) or len(sign) != 1 or not sign.isascii() or sign in '"\r\n'):
            raise DeclarationError(f"delimiter = {sign!r}: it is one ASCII sign, such as ',', ';', a tab or '|'")
        kept = {name: notation for name, notation in self.by_attribute if notation != self.notation}
        object.__setattr__(self, "by_attribute", tuple(kept.items()))

    def notation_of(self, name: str) -> Notation:
        """The notation of one column."""
        return dict(self.by_attribute).get(name, self.notation)

    def with_notation(self, notation: Notation) -> "SourceFormat":
        """The format with this notation of all columns; what attributes write otherwise than before they keep."""
        before = self.notation
        own = (
            (
                name,
                Notation(
                    notation.decimal if each.decimal == before.decimal else each.decimal,
                    notation.thousands if each.thousands == before.thousands else each.thousands,
                    notation.missing_tokens if each.missing_tokens == before.missing_tokens else each.missing_tokens,
                ),
            )
            for name, each in self.by_attribute
        )
        return SourceFormat(self.encoding, self.delimiter, notation, tuple(own))

    def to_declaration(self) -> dict[str, Any]:
        """The `[source]` table of a domain file; what single attributes say stands with them."""
        declared: dict[str, Any] = {} if self.encoding == "utf-8" else {"encoding": self.encoding}
        if self.delimiter is not None:
            declared["delimiter"] = self.delimiter
        return declared | self.notation.to_declaration()

    def attribute_declaration(self, name: str) -> dict[str, Any]:
        """What the table of an attribute says of its notation; nothing where it is that of all columns."""
        return self.notation_of(name).to_declaration(self.notation)

    @staticmethod
    def from_declarations(shared: Declaration | None, attributes: Mapping[str, Declaration]) -> "SourceFormat":
        """The format that `[source]` and the tables of attributes declare."""
        if shared is None:
            found = SourceFormat()
        else:
            encoding, delimiter = shared.optional_text("encoding"), shared.optional_text("delimiter")
            notation = _read_notation(shared, Notation())
            found = _at(shared, lambda: SourceFormat(encoding or "utf-8", delimiter, notation))
            shared.close()
        own = ((name, _read_notation(table, found.notation)) for name, table in attributes.items())
        return SourceFormat(found.encoding, found.delimiter, found.notation, tuple(own))


def known_encoding(name: str) -> str:
    """The one name of a text encoding, whichever of its names was given.

    >>> known_encoding("Latin1"), known_encoding("UTF8"), known_encoding("windows-1252")
    ('latin-1', 'utf-8', 'cp1252')
    """
    try:
        found = codecs.lookup(name).name
        b"a".decode(found, "replace")  # refuses what is no encoding of text
    except (LookupError, TypeError, ValueError):
        found = None
    if found is None or found.replace("-", "_") in NO_FILES:
        raise DeclarationError(f"encoding = {name!r} is not known; {suggestion(str(name), ENCODINGS)}")
    return {"iso8859-1": "latin-1", "utf-8-sig": "utf-8", "ascii": "utf-8"}.get(found, found)


def _read_notation(declared: Declaration, default: Notation) -> Notation:
    decimal, thousands = declared.optional_text("decimal"), declared.optional_text("thousands")
    tokens = declared.labels("missing_tokens") if "missing_tokens" in declared else default.missing_tokens
    return _at(
        declared,
        lambda: Notation(
            default.decimal if decimal is None else decimal,
            default.thousands if thousands is None else thousands or None,
            tokens,
        ),
    )


def _at(declared: Declaration, make: Any) -> Any:
    """What is made, or a refusal that names the place in the file."""
    try:
        return make()
    except DeclarationError as error:
        declared.refuse(str(error))


def _as_list(tokens: Sequence[object]) -> Iterable[object]:
    if isinstance(tokens, str) or not isinstance(tokens, Sequence):
        raise DeclarationError(f"missing_tokens = {tokens!r}: it is a list of texts, such as ['NA', '?']")
    return tokens


# ----------------------------------------------------------------------------------------------------------------------
# Numbers of a record that are added up: its weight.
#
# A number x is clipped to declared bounds and rounded to a whole number of 2^−bits, so that sums over records are exact
# integers, whatever their order. The lattice follows from the declaration alone. What one record adds to a sum is then
# at most the larger bound, rounded likewise: this is what the noise is scaled by.


RELATIVE_BITS = 16
"""Without a declared step, numbers have this many bits below the larger bound, an error of 10⁻⁵ of it, or are whole."""

LARGEST_UNITS = 2**27
"""Bounds are at most so many steps, so that sums over 2^33 records stay exact."""


@dataclass(frozen=True)
class Summand:
    """A number of each record that is added up: the column, its bounds, its lattice, and what a missing one counts as.

    >>> weight = Summand("pweight", (0, 50), missing=1.0)
    >>> weight.step, weight.units(np.array([2.5, 1000, np.nan])).tolist()
    (0.00048828125, [5120, 102400, 2048])
    """

    column: str
    bounds: tuple[float, float]
    missing: float | None = None
    """What a record without a number counts as, before clipping; None where such a record is dropped."""
    step: float = 0.0
    """Numbers are rounded to multiples of it; a power of two."""

    def __post_init__(self) -> None:
        low, high = self.bounds
        if not (is_number(low) and is_number(high) and low < high):
            raise DeclarationError(f"bounds = [{low}, {high}] of {self.column!r}: give two increasing numbers")
        object.__setattr__(self, "bounds", (float(low), float(high)))
        if self.missing is not None and not is_number(self.missing):
            raise DeclarationError(f"missing = {self.missing!r} of {self.column!r}: give a finite number")
        larger = max(abs(low), abs(high))
        if self.step == 0:
            size = math.frexp(larger)[1]
            step = 2.0 ** max(min(0, size - 1 - RELATIVE_BITS), size - (LARGEST_UNITS.bit_length() - 1))
            object.__setattr__(self, "step", step)
        if not (is_number(self.step) and self.step > 0 and math.frexp(self.step)[0] == 0.5):
            below = 2.0 ** math.floor(math.log2(self.step)) if is_number(self.step) and self.step > 0 else 0.125
            raise DeclarationError(
                f"step = {self.step!r} of {self.column!r}: sums are exact on powers of two alone, such as {below:g}"
            )
        if not self.step / 2 < larger <= LARGEST_UNITS * self.step:
            raise DeclarationError(
                f"bounds = [{low}, {high}] of {self.column!r} are {larger / self.step:.3g} steps of {self.step:g}, and "
                f"from 1 to {LARGEST_UNITS:,} are possible; narrow the bounds, or declare another step"
            )

    @property
    def bits(self) -> int:
        """Sums are whole numbers of 2^−bits."""
        return 1 - math.frexp(self.step)[1]

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest number that a record adds: the bounds on the lattice."""
        low, high = (float(each) * self.step for each in np.rint(np.array(self.bounds) / self.step))
        return low, high

    @property
    def largest(self) -> float:
        """How much a record adds at most, in absolute value; a record that is dropped adds 0."""
        return max(map(abs, self.range))

    def units(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """The numbers in whole steps; what is not a number as `missing` has it, and 0 where that drops the record."""
        known = np.where(np.isnan(numbers), 0.0 if self.missing is None else self.missing, numbers)
        units = np.rint(np.clip(known, *self.bounds) / self.step).astype(np.int64)
        return np.where(np.isnan(numbers), 0, units) if self.missing is None else units

    def to_declaration(self) -> dict[str, Any]:
        """What a domain file says of it; the step as well, so that a file means the same in later versions."""
        missing = "drop" if self.missing is None else self.missing
        return {"column": self.column, "bounds": list(self.bounds), "missing": missing, "step": self.step}


def read_weight(domain: Declaration) -> Summand | None:
    """The `[weight]` table of a domain file: how many people, or other units, a record stands for."""
    if "weight" not in domain:
        return None
    if isinstance(domain.raw("weight"), str):
        domain.refuse(
            f"weight = {domain.raw('weight')!r} needs bounds, by which the noise is scaled; write a table: "
            "[weight], with column and bounds = [least, largest]"
        )
    declared = domain.table("weight")
    column, bounds = declared.text("column"), declared.numbers("bounds")
    if len(bounds) != 2 or bounds[0] < 0:
        declared.refuse(f"'bounds' of a weight are two numbers from 0 up, found {list(bounds)}")
    missing: float | None = None
    if "missing" in declared and isinstance(declared.raw("missing"), str):
        word = declared.text("missing")
        if word not in ("drop", "lowest"):
            declared.refuse(f"'missing' must be 'drop', 'lowest' or a number, found {word!r}")
        missing = bounds[0] if word == "lowest" else None
    elif "missing" in declared:
        missing = declared.number("missing")
    step = declared.number("step") if "step" in declared else 0.0
    found = _at(declared, lambda: Summand(column, (bounds[0], bounds[1]), missing, step))
    declared.close()
    return found


def describe_amount(added: Summand) -> str:
    """What privacy statements and reports say of sums of an amount.

    >>> describe_amount(Summand("income", (0, 250000)))[:80]
    "Sums of 'income' add up each record's number, clipped: a record adds 0 to 250000"
    """
    low, high = map(format_number, added.bounds)
    return (
        f"Sums of {added.column!r} add up each record's number, clipped: a record adds {low} to {high}, times its "
        "weight where it has one, and 0 where it has no number. What clipping leaves out is not known."
    )


def describe_weight(weight: Summand) -> str:
    """What privacy statements and reports say of weighted counts.

    >>> describe_weight(Summand("pweight", (0, 50)))
    "Counts are sums of weights: each record counts as its number in the column 'pweight', clipped to 0 to 50."
    """
    low, high = map(format_number, weight.bounds)
    return (
        f"Counts are sums of weights: each record counts as its number in the column {weight.column!r}, clipped to "
        f"{low} to {high}."
    )
