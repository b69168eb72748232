"""JSON inside measurement files: written plainly, read with suspicion.

A measurement file may come from anyone. What this module reads is one well-formed JSON text without repeated keys,
without numbers that no float can hold, and without text that UTF-8 cannot write.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from consilience.errors import FileFormatError, MeasurementError

LONGEST_INTEGER = 300
"""Digits of the longest whole number that is read: those beyond do not fit a float."""


def write_json(value: Any) -> str:
    """The value as compact JSON, keys in their order."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read_json(text: str, *, where: str) -> Any:
    """The value that a JSON text holds, refused where JSON readers could disagree about it."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=_without_repeats,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            parse_int=_bounded_integer,
        )
        if "\\ud" in text.lower():
            write_json(value).encode()
    except RecursionError:
        raise FileFormatError(f"{where}: the JSON is nested too deeply to be read") from None
    except ValueError as error:
        raise FileFormatError(
            f"{where}: this is not the JSON it should be: {_shortened(str(error), length=120)}"
        ) from None
    return value


def plain_mapping(value: object, *, what: str) -> dict[str, Any]:
    """A copy of a mapping as JSON would give it back; what JSON cannot hold is refused.

    >>> plain_mapping({"levels": (1, 2)}, what="extra")
    {'levels': [1, 2]}
    """
    if not isinstance(value, Mapping):
        raise MeasurementError(f"{what} must be a mapping of names to plain data, found {type(value).__name__}")
    try:
        text = write_json(dict(value))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MeasurementError(
            f"{what} cannot be written as JSON: {_shortened(str(error), length=120)}; "
            "use texts, finite numbers, lists and mappings"
        ) from None
    return json.loads(text)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {_shortened(repeated)!r} appears twice in one object")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {_shortened(text)} is too large")
    return value


def _bounded_integer(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"the number {_shortened(text)} is too large")
    return int(text)


def _shortened(text: str, *, length: int = 40) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
