"""Values of any column type as the texts and numbers by which a domain knows them.

A value is matched to a label by its text: whole numbers in decimal, also where a column stores them as floats (pandas
does so beside nulls); other floats by the shortest text that reads back; truth values as `true` and `false` (see
`coding`); dates in ISO 8601; timestamps likewise, without zero fractions, in UTC where they have a zone, and as a date
alone at midnight.
Texts are bytes here: what is no valid UTF-8 is simply a text that no label equals.

No column is typed by looking at its values, because then one record could change how another is read. Nothing here
raises for a value: what has no text equals no label, and what is no number is not a number.
"""

import datetime
import decimal
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from consilience.domain.declarations import format_number

compute: Any = pyarrow.compute

NO_TEXT = b"\xff"
"""Stands for values without a text. It is no valid UTF-8, so it equals no label."""

TRUTH_TEXTS = (b"\xff0", b"\xff1")
"""The texts of false and true, apart from those of strings: what labels may write for them is the coder's matter."""

NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(?i:inf|infinity)$"
"""Texts that are numbers: decimal, with an optional exponent, or infinite. The texts of NaN are not."""


def plain(array: Any) -> Any:
    """The array with extension types stored plainly, view types as ordinary ones, and NaN as null."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return plain(array.storage)
    if pa.types.is_run_end_encoded(kind):
        return plain(compute.run_end_decode(array))
    if kind in (pa.string_view(), pa.binary_view()):
        return array.cast(pa.large_binary())
    if pa.types.is_float16(kind):
        array = array.cast(pa.float32())
    if pa.types.is_floating(kind):
        is_nan = array.is_nan()
        return compute.if_else(is_nan, None, array) if compute.any(is_nan).as_py() else array
    return array


def decoded(array: Any) -> Any:
    """The array made plain, without a dictionary."""
    array = plain(array)
    return plain(array.dictionary_decode()) if pa.types.is_dictionary(array.type) else array


def is_text(kind: Any) -> bool:
    return (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def texts_of(array: Any) -> Any:
    """The text of each value of a plain array, as bytes; null stays null."""
    kind = array.type
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return array.cast(pa.large_binary())
    if is_text(kind):
        return array.cast(pa.binary())
    if pa.types.is_nested(kind):
        return _constant_text(array, NO_TEXT)
    if pa.types.is_boolean(kind):
        return pa.array(TRUTH_TEXTS, pa.binary()).take(array.cast(pa.int8()))
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        return array.cast(pa.string()).cast(pa.binary())
    distinct = array.dictionary_encode()
    return pa.array(_distinct_texts(distinct.dictionary), pa.binary()).take(distinct.indices)


def _distinct_texts(array: Any) -> list[bytes | None]:
    """The texts of distinct values of a type that is rare among categories."""
    kind = array.type
    if pa.types.is_floating(kind):
        return [float_text(value).encode() for value in array.to_numpy(zero_copy_only=False)]
    if pa.types.is_timestamp(kind):
        moments = array.cast(pa.int64()).to_numpy(zero_copy_only=False).view(f"M8[{kind.unit}]")
        return [_iso_text(str(text)).encode() for text in np.datetime_as_string(moments)]
    if pa.types.is_interval(kind):
        return [NO_TEXT] * len(array)
    return [_without_zeros(text).encode() for text in array.cast(pa.string()).to_pylist()]


def float_text(value: np.floating[Any]) -> str:
    return format_number(float(value)) if value.is_integer() else str(value)


def _iso_text(text: str) -> str:
    """A timestamp's text without zeros at the end of its fraction, and without midnight.

    >>> _iso_text("2020-01-31T00:00:00.000"), _iso_text("2020-01-31T12:30:00.500")
    ('2020-01-31', '2020-01-31T12:30:00.5')
    """
    return _without_zeros(text).removesuffix("T00:00:00")


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text and "E" not in text else text


def _constant_text(array: Any, text: bytes) -> Any:
    filled = pa.array([text], pa.binary()).take(pa.array(np.zeros(len(array), dtype=np.int8)))
    return compute.if_else(array.is_valid(), filled, None)


def numbers_of(array: Any) -> NDArray[np.float64]:
    """The number of each value of a plain array, compared as a double; NaN where it is missing or no number."""
    kind = array.type
    if is_text(kind):
        return _numbers_of_text(array)
    if pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return np.full(len(array), np.nan)
    numbers = array.fill_null(False if pa.types.is_boolean(kind) else 0)
    numbers = numbers.to_numpy(zero_copy_only=False).astype(np.float64)
    if array.null_count:
        numbers[nulls(array)] = np.nan
    return numbers


def _numbers_of_text(array: Any) -> NDArray[np.float64]:
    distinct = texts_of(array).dictionary_encode()
    texts = distinct.dictionary
    readable = compute.if_else(compute.match_substring_regex(texts, NUMBER), texts, None)
    small = pa.string() if pa.types.is_binary(texts.type) else pa.large_string()
    table = readable.cast(small).cast(pa.float64()).to_numpy(zero_copy_only=False)
    table = np.fmax(table, np.array([0.0, 1.0, np.nan])[places_among(texts, TRUTH_TEXTS)])
    return np.append(table, np.nan)[positions(distinct)]


def days_of(array: Any) -> NDArray[np.int64]:
    """The day of each date or timestamp of a plain array, counted from 1 January 1970, in UTC where it has a zone."""
    whole = array.cast(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    moments = (whole.fill_null(0) if whole.null_count else whole).to_numpy().astype(np.int64)
    unit = "ms" if pa.types.is_date64(array.type) else getattr(array.type, "unit", "D")
    return moments // {"D": 1, "s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}[unit]


def places_among(texts: Any, known: Sequence[bytes]) -> NDArray[np.int32]:
    """The place of each text among those known; one past their end for others and for null."""
    found = compute.index_in(texts, value_set=pa.array(known, texts.type))
    return found.fill_null(len(known)).to_numpy()


def bytes_of(texts: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of all texts end to end, and the offsets at which each begins."""
    texts = texts.cast(pa.large_binary())
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data or b"", dtype=np.uint8), places


def positions(array: Any) -> NDArray[np.int64]:
    """The places of a dictionary array's values in its dictionary; one past its end for null."""
    return array.indices.cast(pa.int64()).fill_null(len(array.dictionary)).to_numpy()


def nulls(array: Any) -> NDArray[np.bool_]:
    return array.is_null().to_numpy(zero_copy_only=False)


def array_of_values(values: Sequence[object], *, missing: Iterable[bool] | None = None) -> Any:
    """An array of Python values that may be of different types, each read by itself."""
    if missing is not None:
        values = [None if absent else value for value, absent in zip(values, missing, strict=True)]
    kinds = set(map(type, values)) - {type(None)}
    if kinds <= {bytes}:
        return pa.array(values, pa.large_binary())
    if kinds == {float}:
        return pa.array(values, pa.float64())
    return pa.array([None if value is None else text_of_value(value) for value in values], pa.large_binary())


def text_of_value(value: object) -> bytes | None:
    """The text of one Python value as bytes, or None where it is not a number."""
    try:
        return _text_of_value(value)
    except (OverflowError, ValueError):
        return NO_TEXT


def _text_of_value(value: object) -> bytes | None:
    if isinstance(value, np.datetime64):
        return _iso_text(str(np.datetime_as_string(value))).encode()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return TRUTH_TEXTS[value]
    if isinstance(value, int):
        return str(value).encode()
    if isinstance(value, float):
        return None if value != value else float_text(np.float64(value)).encode()
    if isinstance(value, decimal.Decimal):
        return None if value.is_nan() else _without_zeros(str(value)).encode()
    return _text_of_moment(value)


def _text_of_moment(value: object) -> bytes:
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
        return _iso_text(moment.isoformat()).encode()
    if isinstance(value, datetime.date | datetime.time):
        return _without_zeros(value.isoformat()).encode()
    return NO_TEXT
