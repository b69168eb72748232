"""Columns as the declared notation means them: texts for a missing value become null, numbers get a decimal point.

Marks of numbers matter in columns of text that are declared numeric; a value that a source stores as a number is that
number, whatever its neighbours in the column are. A text that is no number by the declared marks is no number: with a
decimal comma `12,5` is one and `12.5` is not, and a mark of thousands stands between groups of three digits. Texts for
missing values are compared with the text of a value of any type. Nothing here raises for a value.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

from consilience.domain.attributes import Continuous, Numeric
from consilience.domain.source_format import Notation, SourceFormat
from consilience.source.records import Batch
from consilience.source.values import NO_TEXT, array_of_values, decoded, is_text, places_among, plain, texts_of

compute: Any = pyarrow.compute


class Writing:
    """How one column is written, ready to be applied."""

    def __init__(self, notation: Notation, *, numeric: bool) -> None:
        self._tokens = [token.encode("utf-8", "surrogatepass") for token in notation.missing_tokens]
        marked = numeric and (notation.decimal, notation.thousands) != (".", None)
        self._marks = (notation.decimal, notation.thousands or "") if marked else None

    def __bool__(self) -> bool:
        """Whether any value is meant otherwise than it is written."""
        return bool(self._tokens) or self._marks is not None

    def meant(self, array: Any) -> Any:
        """The column with nulls for missing values and with decimal points."""
        array = plain(array)
        if pa.types.is_dictionary(array.type):
            return pa.DictionaryArray.from_arrays(array.indices, decoded(self.meant(array.dictionary)))
        array = self._without_tokens(array)
        if self._marks is None or not is_text(array.type):
            return array
        distinct = texts_of(array).dictionary_encode()
        return pa.DictionaryArray.from_arrays(distinct.indices, with_points(distinct.dictionary, *self._marks))

    def meant_by_each(self, values: Sequence[object], *, missing: Sequence[bool] | None = None) -> Any:
        """The same for Python values, of which some may be texts and others numbers."""
        texts = [isinstance(value, str | bytes) for value in values]
        absent = [False] * len(texts) if missing is None else missing
        written = array_of_values(values, missing=[no or not text for no, text in zip(absent, texts, strict=True)])
        if self._marks is None or not any(texts):
            return self._without_tokens(array_of_values(values, missing=missing))
        others = array_of_values(values, missing=[no or text for no, text in zip(absent, texts, strict=True)])
        if others.null_count == len(others):
            return self.meant(written)
        read = self.meant(written).dictionary_decode().cast(pa.large_binary())
        return compute.coalesce(read, texts_of(plain(self._without_tokens(others))).cast(pa.large_binary()))

    def _without_tokens(self, array: Any) -> Any:
        if not self._tokens or pa.types.is_null(array.type):
            return array
        is_token = places_among(texts_of(plain(array)), self._tokens) < len(self._tokens)
        return compute.if_else(pa.array(is_token), None, array) if is_token.any() else array


def with_points(texts: Any, decimal: str, thousands: str) -> Any:
    """Texts of numbers with these marks, with a point and no mark of thousands; other texts equal nothing.

    >>> with_points(pa.array([b"1.234,5", b"-7", b"1.23", b"12.5", b"x"]), ",", ".").to_pylist()
    [b'1234.5', b'-7', b'\\xff', b'\\xff', b'\\xff']
    """
    point, groups = re.escape(decimal), rf"[0-9]{{1,3}}(?:{re.escape(thousands)}[0-9]{{3}})+|" if thousands else ""
    number = rf"^[+-]?(?:(?:{groups}[0-9]+)(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?$"
    is_number = compute.match_substring_regex(texts, rf"{number}|^[+-]?(?i:inf|infinity)$")
    plain_texts = compute.replace_substring(texts, thousands, "") if thousands else texts
    pointed = compute.replace_substring(plain_texts, decimal, ".")
    return compute.if_else(is_number, pointed, pa.scalar(NO_TEXT, texts.type))


class MeantBatch:
    """Records whose columns are read by their notation when they are asked for."""

    def __init__(self, batch: Batch, writings: Mapping[str, Writing]) -> None:
        self._batch = batch
        self._writings = writings

    @property
    def num_rows(self) -> int:
        return self._batch.num_rows

    def column(self, name: str, /) -> Any:
        array = self._batch.column(name)
        return self._writings[name].meant(array) if name in self._writings else array


def writings_of(required: Mapping[str, Any], how: SourceFormat) -> dict[str, Writing]:
    """The columns whose values are not all meant as they are written."""
    found = {
        name: Writing(how.notation_of(name), numeric=isinstance(attribute, Numeric | Continuous))
        for name, attribute in required.items()
    }
    return {name: writing for name, writing in found.items() if writing}


def meant_batches(batches: Generator[Batch], writings: Mapping[str, Writing]) -> Generator[Batch]:
    """The batches, read by the notations of their columns."""
    if not writings:
        yield from batches
        return
    for batch in batches:
        yield MeantBatch(batch, writings)
