"""The lines of a domain file under which more rows of the data would be counted. NOT PRIVATE: they follow the data.

Found in this order, each with what was found before: the encoding and the delimiter of the text, the marks of numbers,
the texts for missing values, then values, bins and rules of single attributes. Lines that hold values or edges of the
data are marked `reviewed = false`, so that nothing can be measured with them until a person made them public knowledge.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from consilience.curation.fit import ColumnFit, Observation, Opened, ends, observe
from consilience.domain.attributes import DROP, Categorical, Continuous, Numeric
from consilience.domain.declarations import format_number
from consilience.domain.domains import Domain
from consilience.domain.source_format import Notation, SourceFormat
from consilience.errors import DeclarationError, SourceError
from consilience.source.delimited import (
    BYTE_ORDER_MARK,
    BYTES_PER_BATCH,
    beginning,
    first_record,
    open_bytes,
    read_header,
)
from consilience.source.readers import attempt
from consilience.source.records import with_points
from consilience.source.tables import DELIMITED, matching_files
from consilience.source.values import numbers_of

UNREADABLE = "the source cannot be read; check that every file is whole and that you may read it"

MOST_VALUES = 50
"""More different values than these are not listed, but counted together."""

NOTABLE = 0.01
"""Out-of-range numbers and values not listed get a line of their own from this share of the rows on."""

ONE_BYTE = (
    "latin-1",
    "cp1252",
    "iso8859-15",
    "cp850",
    "mac-roman",
    "iso8859-2",
    "cp1250",
    "cp1251",
    "cp1253",
    "cp1254",
)
"""Encodings in which every byte is a sign, so that only the declared labels can tell them apart; commonest first."""

MOST_TEXTS = 2000
"""The most frequent texts of a column decide about its marks."""

OTHER_DELIMITERS = ",;\t|:^~ "

MARKS: tuple[tuple[str, str | None], ...] = (
    (".", None),
    (",", None),
    (",", "."),
    (".", ","),
    *((",", sign) for sign in " \u00a0\u202f'"),
    *((".", sign) for sign in " \u00a0\u202f'\u2019"),
)
"""Decimal marks and marks of thousands that people use, the simplest first."""

TOKENS = ("", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing", "(blank)", "-", "--", ".", "..", "?", "*")
SENTINELS = ("-1", "-7", "-8", "-9", "-77", "-88", "-98", "-99", "-999", "-9999")
"""Texts, in capitals or not, and numbers that mean a missing value in many files."""


class Lines(NamedTuple):
    """What to write: keys of `[source]`, and keys of attributes."""

    source: dict[str, Any]
    attributes: dict[str, dict[str, Any]]

    def __bool__(self) -> bool:
        return bool(self.source) or any(self.attributes.values())

    def to_toml(self) -> str:
        """The lines as they stand in a domain file."""
        blocks = [
            ("source", self.source),
            *((f"attributes.{toml_key(n)}", keys) for n, keys in self.attributes.items()),
        ]
        written = [
            "\n".join([f"[{head}]", *(f"{key} = {toml_value(value)}" for key, value in keys.items())])
            for head, keys in blocks
            if keys
        ]
        return "\n\n".join(written)

    def applied(self, domain: Domain) -> Domain | None:
        """The domain with these lines; None where other declarations contradict them."""
        declared = domain.to_declaration()
        declared["source"] = declared.get("source", {}) | self.source
        for name, keys in self.attributes.items():
            declared["attributes"][name] |= keys
        try:
            return Domain.from_declaration(declared)
        except DeclarationError:
            return None


def fitting_lines(opened: Opened, domain: Domain, declared: Observation | None) -> Lines:
    """The lines under which more rows would be counted; `declared` is the observation without them, if there is one."""
    how = attempt(lambda: _fitting_text(opened, domain, declared), UNREADABLE)
    again = declared if declared is not None and how == domain.source_format else _observed(opened, domain, how)
    if again is None:
        return Lines({}, {})
    marked = _fitting_marks(again, how)
    if marked != how:
        how, again = marked, _observed(opened, domain, marked) or again
    tokens = _fitting_tokens(again, how)
    if tokens != how:
        how, again = tokens, _observed(opened, domain, tokens) or again
    attributes = {
        name: _notation_lines(how, domain.source_format, name) | attribute_lines(column, again.rows)
        for name, column in again.columns.items()
    }
    return Lines(_source_lines(how, domain.source_format), {name: keys for name, keys in attributes.items() if keys})


def _observed(opened: Opened, domain: Domain, how: SourceFormat) -> Observation | None:
    try:
        return observe(opened, replace(domain, source_format=how))
    except (SourceError, DeclarationError):
        return None


def _fitting_text(opened: Opened, domain: Domain, declared: Observation | None) -> SourceFormat:
    """The declared format, with the encoding and the delimiter under which more is found."""
    how = domain.source_format
    if opened.given is None or not opened.given.lower().endswith(DELIMITED):
        return how
    path = matching_files(opened.given)[0]
    how = replace(how, encoding=wide_encoding(path, how.encoding))
    start = beginning(path, how.encoding)

    def named(delimiter: str | None) -> int:
        header = read_header(start, wanted=domain.names, delimiter=delimiter)
        return 0 if header is None else len(set(domain.names) & set(header.names))

    best = max(OTHER_DELIMITERS, key=named)
    if named(best) > named(how.delimiter):
        how = replace(how, delimiter=best)
    if how.encoding.startswith("utf-16"):
        return how
    changed = declared is None or how != domain.source_format or how.encoding != "utf-8"
    raw = _observed(opened, domain, replace(how, encoding="utf-8")) if changed else declared
    return replace(how, encoding=_narrow_encoding(path, domain, how, raw))


def wide_encoding(path: Path, now: str) -> str:
    """UTF-16 where the bytes say so, and what is declared else."""
    start = beginning(path, "utf-8")[:1000]
    marked = start.startswith((b"\xff\xfe", b"\xfe\xff"))
    if marked or b"\0" in start:
        little = start[::2].count(0) < start[1::2].count(0)
        return now if now.startswith("utf-16") else "utf-16" if marked else "utf-16-le" if little else "utf-16-be"
    return "utf-8" if now.startswith("utf-16") else now


def _narrow_encoding(path: Path, domain: Domain, how: SourceFormat, raw: Observation | None) -> str:
    """The encoding in which most labels and names are found; the declared one where no other does better.

    `raw` is the observation in UTF-8, which keeps the bytes of every text.
    """
    now = how.encoding
    valid, accented, controls = signs_in(path)
    if valid:
        return "utf-8" if accented else now
    start = beginning(path, "utf-8")
    names = first_record(start.removeprefix(BYTE_ORDER_MARK), how.delimiter or _delimiter(start))

    def found(encoding: str) -> int:
        """Rows whose value becomes a listed one, and, above all, declared columns that the header then names."""
        read = {_as(name.encode("utf-8", "surrogateescape"), encoding) for name in names}
        labels = 0 if raw is None else sum(_listed(column, encoding) for column in raw.columns.values())
        return 10**12 * len(read & set(domain.names)) + labels

    usual = "cp1252" if controls else "latin-1"
    candidates = [usual, *(each for each in ONE_BYTE if each != usual)]
    best = max(candidates, key=found)
    if found(best) > found(now):
        return best
    texts = [text for column in (raw.columns.values() if raw else ()) for text in column.texts]
    garbled = any(_as(text, "utf-8") is None for text in texts)
    return usual if now == "utf-8" and garbled else now


def _delimiter(start: bytes) -> str:
    header = read_header(start, wanted=())
    return "," if header is None else header.delimiter


def signs_in(path: Path) -> tuple[bool, bool, bool]:
    """Whether a file is valid UTF-8, has signs beyond ASCII, and bytes from 0x80 to 0x9f."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    valid, accented, controls = True, False, False
    with open_bytes(path) as file:
        while piece := file.read(BYTES_PER_BATCH):
            signs = np.frombuffer(piece, dtype=np.uint8)
            accented |= bool((signs >= 0x80).any())
            controls |= bool(((signs >= 0x80) & (signs < 0xA0)).any())
            try:
                if valid:
                    decoder.decode(piece)
            except UnicodeDecodeError:
                valid = False
    return valid, accented, controls


def _as(text: bytes, encoding: str) -> str | None:
    try:
        return text.decode(encoding)
    except UnicodeDecodeError:
        return None


def _listed(column: ColumnFit, encoding: str) -> int:
    """The rows of a column whose text is a label in this encoding and was none before."""
    if column.numeric:
        return 0
    labels = column.attribute.codes_by_label
    return sum(count for text, count in column.texts.items() if _as(text, encoding) in labels)


def _fitting_marks(found: Observation, how: SourceFormat) -> SourceFormat:
    """The format with marks under which more texts are numbers: for all columns, or for those that need them."""
    numeric = {name: column for name, column in found.columns.items() if column.numeric and column.texts}
    better: dict[str, Notation] = {}
    for name, column in numeric.items():
        now = how.notation_of(name)
        best = max(MARKS, key=lambda marks, column=column: _numbers(column, *marks))
        if _numbers(column, *best)[0] > _numbers(column, now.decimal, now.thousands)[0]:
            better[name] = replace(now, decimal=best[0], thousands=best[1])
    marks = {(notation.decimal, notation.thousands) for notation in better.values()}
    if len(marks) == 1:
        decimal, thousands = next(iter(marks))
        everywhere = how.with_notation(replace(how.notation, decimal=decimal, thousands=thousands))
        if all(
            _numbers(column, decimal, thousands) >= _numbers(column, how.notation.decimal, how.notation.thousands)
            for column in numeric.values()
        ):
            return everywhere
    return replace(how, by_attribute=tuple((dict(how.by_attribute) | better).items()))


def _numbers(column: ColumnFit, decimal: str, thousands: str | None) -> tuple[int, int]:
    """The rows of texts that are numbers with these marks, and those that are also in range."""
    often = column.texts.most_common(MOST_TEXTS)
    counts = np.array([count for _, count in often])
    texts = pa.array([text for text, _ in often], pa.large_binary())
    numbers = numbers_of(with_points(texts, decimal, thousands or ""))
    low, high = ends(column.attribute)
    return int(counts[~np.isnan(numbers)].sum()), int(counts[(numbers >= low) & (numbers <= high)].sum())


def _fitting_tokens(found: Observation, how: SourceFormat) -> SourceFormat:
    """The format with texts for missing values that columns hold and do not list."""
    better: dict[str, Notation] = {}
    for name, column in found.columns.items():
        if column.numeric:
            low, high = ends(column.attribute)
            new = {text for text in SENTINELS if not low <= float(text) <= high and text.encode() in column.texts}
        else:
            texts = (text.decode("utf-8", "replace") for text in column.texts)
            new = {text for text in texts if text.lower() in TOKENS}
        if new:
            now = how.notation_of(name)
            better[name] = replace(now, missing_tokens=(*now.missing_tokens, *new))
    shared = {token for notation in better.values() for token in notation.missing_tokens} - set(
        how.notation.missing_tokens
    )
    known = [column.attribute.codes_by_label for column in found.columns.values() if not column.numeric]
    numbers = any(column.numeric for name, column in found.columns.items() if name in better)
    if better and not numbers and not how.by_attribute and not any(token in each for token in shared for each in known):
        tokens = (*how.notation.missing_tokens, *shared)
        return how.with_notation(replace(how.notation, missing_tokens=tokens))
    return replace(how, by_attribute=tuple((dict(how.by_attribute) | better).items()))


def _source_lines(how: SourceFormat, declared: SourceFormat) -> dict[str, Any]:
    lines: dict[str, Any] = {"encoding": how.encoding} if how.encoding != declared.encoding else {}
    if how.delimiter != declared.delimiter:
        lines["delimiter"] = how.delimiter
    return lines | how.notation.to_declaration(declared.notation)


def _notation_lines(how: SourceFormat, declared: SourceFormat, name: str) -> dict[str, Any]:
    if how.notation_of(name) == declared.notation_of(name):
        return {}
    return how.attribute_declaration(name)


def attribute_lines(column: ColumnFit, rows: int) -> dict[str, Any]:
    """Values, edges and rules of one attribute under which fewer rows would be dropped or moved."""
    attribute = column.attribute
    lines: dict[str, Any] = {}
    if not column.numeric and column.unlisted:
        lines |= _value_lines(column, rows)
    if column.numeric and column.unlisted >= max(1, NOTABLE * rows) and math.isfinite(column.low):
        lines |= _range_lines(column)
    dropped = attribute.missing is None and attribute.missing_code == DROP and not isinstance(attribute, Continuous)
    if dropped and column.missing + column.not_numbers and "unlisted" not in lines:
        lines["missing"] = "Unknown"
    return lines


def _value_lines(column: ColumnFit, rows: int) -> dict[str, Any]:
    """The values that the column has, or a value for all others where they are too many or too few to be listed."""
    attribute = column.attribute
    new = [text for text in (shown(each) for each in column.texts) if text is not None]
    few = column.complete and len(new) == len(column.texts) <= MOST_VALUES
    if isinstance(attribute, Categorical) and few and column.unlisted >= NOTABLE * rows:
        others = column.unlisted > column.counts.sum()  # most are not listed: the data has other values, not more
        kept = [value for value in attribute.values if not (others and value in column.never)]
        return {"reviewed": False, "values": [*kept, *in_order(new)]}
    return {"unlisted": "Other"} if attribute.unlisted_code == DROP else {}


def in_order(texts: Sequence[str]) -> list[str]:
    """Numbers by size, other texts by their letters."""
    numbers = all(re.fullmatch(r"[+-]?\d+(\.\d+)?", text) for text in texts)
    return sorted(texts, key=float) if numbers else sorted(texts)


def shown(text: bytes) -> str | None:
    """A text of the data as a label, or None where it can be none."""
    read = _as(text, "utf-8")
    return read if read and read.isprintable() and read not in ("drop", "clip") else None


def _range_lines(column: ColumnFit) -> dict[str, Any]:
    """Edges, ends of even steps, or bounds that hold all numbers; nothing where that takes twice as many steps."""
    if isinstance(column.attribute, Continuous):
        return {"reviewed": False, "bounds": _wider(column)}
    declared = column.attribute.to_declaration()
    if "step" not in declared:
        return {"reviewed": False, "edges": _wider(column)}
    first, last, step = declared["from"], declared["to"], declared["step"]
    below = max(0, math.ceil((first - column.low) / step))
    above = max(0, math.floor((column.high - last) / step) + 1)
    if below + above > (last - first) / step:
        return {}
    ends_at = {"from": first - below * step, "to": last + above * step}
    return {"reviewed": False} | {key: end for key, end in ends_at.items() if end != declared[key]}


def _wider(column: ColumnFit) -> list[float]:
    """The edges with a round one more at each end that numbers lie beyond; or the bounds moved there."""
    attribute = column.attribute
    whole = isinstance(attribute, Numeric) and attribute.integer
    low, high = ends(attribute)
    edges = list(attribute.edges) if isinstance(attribute, Numeric) else []
    if column.low < low:
        edges.insert(0, _round_out(column.low, math.floor))
    if column.high > high or (whole and column.high == high):
        high = _round_out(column.high, math.ceil)
        edges.append(high + 1 if whole and high <= column.high else high)
    if isinstance(attribute, Continuous):
        edges = [min(low, *edges), max(high, *edges)]
    return [int(edge) if whole else edge for edge in edges]


def _round_out(number: float, to: Any) -> float:
    """A number of two digits at least as far out."""
    if number == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(number))) - 1)
    return float(format_number(round(to(number / unit) * unit, 12))) if unit < 1 else float(to(number / unit) * unit)


def toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def toml_value(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(toml_value(each) for each in value)}]"
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, Mapping) else ""
