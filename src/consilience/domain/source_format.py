"""How a source writes its values as text: the encoding, the delimiter, the marks of numbers, what stands for nothing.

Declared like everything else in a domain, and never guessed from records. It decides what is counted, so it is part of
a domain's declaration and fingerprint wherever it differs from the defaults; a domain that says nothing of it has the
fingerprint that it always had.
"""

import codecs
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consilience.domain.declarations import Declaration, label_text, suggestion
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
