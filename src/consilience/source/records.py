"""Which records count, and where: batches of columns into codes, with one decision for each record.

A record is dropped from every count alike: because a rule of an attribute drops it, because it has no weight and the
domain says so, because it lies in cells declared impossible, or because its unit has more rows than it may. That last
choice is made among the rows that the others leave, by `source.unit_rows`, from the codes of *all* attributes and what
is added up, so that it is the same whatever is counted.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from consilience.domain.attributes import Continuous, Numeric
from consilience.domain.declarations import visible
from consilience.domain.domains import Domain, ImpossibleCells
from consilience.domain.source_format import Notation, SourceFormat
from consilience.source.coding import WIDTHS, BoundsCoder, CodeMatrices, SummandCoder, coder_of
from consilience.source.unit_rows import Part, UnitRows
from consilience.source.values import (
    NO_TEXT,
    TRUTH_TEXTS,
    array_of_values,
    bytes_of,
    decoded,
    is_text,
    nulls,
    places_among,
    plain,
    texts_of,
)


class Batch(Protocol):
    """Some records in the order of the source, column by column. An Arrow record batch is one."""

    @property
    def num_rows(self) -> int: ...

    def column(self, name: str, /) -> Any:
        """The Arrow array of one column."""
        ...


Column = str | tuple[str, str]
"""A column of coded records: an attribute's, or that of a number that is added up: ("weight", ""), ("amount", name)."""

WEIGHT = ("weight", "")


class CodedRecords(NamedTuple):
    """The codes of a batch, and which of its records are kept; the codes of others mean nothing."""

    codes: CodeMatrices
    lattice: NDArray[np.int64]
    """A row for each continuous attribute, and each number that is added up: its values as lattice points."""
    kept: NDArray[np.bool_]


class RecordCoder:
    """Codes batches of records for marginals over some of a domain's attributes, and points over continuous ones.

    The weights of records are always coded, and the `amounts` that are named.
    """

    def __init__(
        self, domain: Domain, counted: Sequence[str], continuous: Sequence[str] = (), amounts: Sequence[str] = ()
    ) -> None:
        in_rules = {name for rule in domain.impossible for name in rule.attributes}
        coders = {attribute.name: coder_of(attribute) for attribute in domain.attributes}
        self._coders = {
            name: coder for name, coder in coders.items() if coder.drops or name in in_rules or name in counted
        }
        self._bounds = {name: coder for name in continuous if isinstance(coder := coders[name], BoundsCoder)}
        self._domain = domain
        self._summands: dict[Column, SummandCoder] = {}
        if domain.weight is not None:
            self._summands[WEIGHT] = SummandCoder(domain.weight)
        for name in amounts:
            self._summands["amount", name] = SummandCoder(*domain.amount(name))
        self._rules = tuple(ImpossibleRule(rule, domain) for rule in domain.impossible)
        self._in_rules = in_rules
        rows = [0] * len(WIDTHS)
        self.places: dict[str, tuple[int, int]] = {}
        for name in counted:
            width = coders[name].width
            self.places[name] = (width, rows[width])
            rows[width] += 1
        self._rows = tuple(rows)

    @staticmethod
    def of_rows(domain: Domain) -> "RecordCoder":
        """Codes all attributes and all that is added up: what the rows of a unit are told apart by."""
        continuous = [each.name for each in domain.attributes if isinstance(each, Continuous)]
        in_cells = [name for name in domain.names if name not in continuous]
        return RecordCoder(domain, in_cells, continuous, domain.amounts)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that decide about the counts."""
        return tuple(dict.fromkeys((*self._coders, *(each.summand.column for each in self._summands.values()))))

    def code(self, batch: Batch, threads: Executor) -> CodedRecords:
        """The codes of a batch; a task for each column."""
        rows = batch.num_rows
        matrices = CodeMatrices.empty(self._rows, rows)
        tasks = threads.map(lambda name: self._code_column(batch, name, matrices), self._coders)
        coded = dict(zip(self._coders, tasks, strict=True))
        kept = np.ones(rows, dtype=np.bool_)
        for _, dropped in coded.values():
            if dropped is not None:
                kept &= ~dropped
        for rule in self._rules:
            kept &= ~rule.matches({name: coded[name][0] for name in rule.names})
        lattice = np.empty((len(self._bounds) + len(self._summands), rows), dtype=np.int64)
        for row, (name, coder) in enumerate(self._bounds.items()):
            lattice[row] = coder.lattice(batch.column(name))
        for row, coder in enumerate(self._summands.values(), len(self._bounds)):
            lattice[row], dropped = coder.units(batch.column(coder.summand.column))
            if dropped is not None:
                kept &= ~dropped
        return CodedRecords(matrices, lattice, kept)

    def times(self, coded: CodedRecords, amount: str | None) -> NDArray[np.bool_] | NDArray[np.int64]:
        """What each record adds to counts, or to sums of an amount: 1, its weight, its amount, or the product of both.

        In whole steps of `Domain.summand`, which clips a product as one number; 0 where it is not kept.
        """
        numbers = dict(zip(self._summands, coded.lattice[len(self._bounds) :], strict=True))
        factors = [numbers[key] for key in (WEIGHT, ("amount", amount or "")) if key in numbers]
        if not factors:
            return coded.kept
        if len(factors) == 1:
            return np.where(coded.kept, factors[0], 0)
        steps = (coder.summand.step for coder in self._summands.values())
        weights, amounts = (units * step for units, step in zip(factors, steps, strict=True))
        product = self._domain.summand(amount)
        return np.where(coded.kept, 0 if product is None else product.units(weights * amounts), 0)

    def _code_column(
        self, batch: Batch, name: str, matrices: CodeMatrices
    ) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """The codes of one column, also put in their place, and which of them drop their record."""
        coder = self._coders[name]
        codes = coder.codes(batch.column(name))
        dropped = codes == coder.size if coder.drops else None
        if dropped is not None and dropped.any():
            codes[dropped] = 0
        if name in self.places:
            width, row = self.places[name]
            matrices[width][row] = codes
        return (codes if name in self._in_rules else codes[:0]), dropped

    @property
    def column_types(self) -> dict[Column, np.dtype[Any]]:
        """The type of each column of codes or lattice points, in the order of the domain; what is added up is last."""
        types = {name: np.dtype(WIDTHS[width]) for name, (width, _) in self.places.items()}
        types |= dict.fromkeys(self._bounds, np.dtype(np.int64))
        found: dict[Column, np.dtype[Any]] = {name: types[name] for name in self._domain.names if name in types}
        return found | dict.fromkeys(self._summands, np.dtype(np.int64))

    def columns(self, coded: CodedRecords) -> dict[Column, NDArray[Any]]:
        """Coded records column by column, in the same order."""
        found: dict[Column, NDArray[Any]] = {
            name: coded.codes[width][row] for name, (width, row) in self.places.items()
        }
        found |= dict(zip((*self._bounds, *self._summands), coded.lattice, strict=True))
        return {name: found[name] for name in self.column_types}

    def records(self, columns: dict[Column, NDArray[Any]]) -> CodedRecords:
        """Coded records that are all kept, of columns among which may be more than are needed."""
        rows = len(next(iter(columns.values())))
        matrices = CodeMatrices.empty(self._rows, rows)
        for name, (width, row) in self.places.items():
            matrices[width][row] = columns[name]
        numbers = [columns[key] for key in (*self._bounds, *self._summands)]
        lattice = np.array(numbers, dtype=np.int64).reshape(len(numbers), rows)
        return CodedRecords(matrices, lattice, np.ones(rows, dtype=np.bool_))

    def points(self, coded: CodedRecords) -> NDArray[np.float64]:
        """The points that the kept records are, one row for each, over the continuous attributes."""
        rows = zip(self._bounds.values(), coded.lattice[: len(self._bounds)], strict=True)
        return np.stack([coder.points(lattice[coded.kept]) for coder, lattice in rows], axis=1)


class ImpossibleRule:
    """One declaration of impossible cells, as a table of codes for each attribute."""

    def __init__(self, rule: ImpossibleCells, domain: Domain) -> None:
        self.names = rule.attributes
        self._members: dict[str, NDArray[np.bool_]] = {}
        for name, codes in rule.codes:
            self._members[name] = np.zeros(domain[name].size, dtype=np.bool_)
            self._members[name][list(codes)] = True

    def matches(self, codes: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Where all attributes of the rule have one of its codes."""
        return np.logical_and.reduce([self._members[name][codes[name]] for name in self.names])


class BoundedRows:
    """At most so many rows of each unit that lies in one part of all units."""

    def __init__(self, coder: RecordCoder, limit: int, part: Part) -> None:
        self._coder = coder
        self._limit = limit
        self._rows = UnitRows(list(coder.column_types.values()), part)

    @property
    def nbytes(self) -> int:
        """The memory taken."""
        return self._rows.nbytes

    def add(self, units: Any, coded: CodedRecords) -> None:
        """Add the records that the domain keeps, given their units; those whose unit is missing are never counted."""
        texts = _unit_texts(units)
        if texts is not None:
            self._rows.add(*bytes_of(texts), _of_units(texts, coded), self._packed(coded))

    def packed(self, units: Any, coded: CodedRecords) -> tuple[Any, Any]:
        """The same records as they may be sent to where the other rows of their units are: units' texts and codes."""
        texts = _unit_texts(units)
        if texts is None:
            return pa.array([], pa.binary()), pa.array([], pa.binary())
        present = _of_units(texts, coded)
        codes = np.ascontiguousarray(self._packed(coded)[present])
        offsets = np.arange(0, codes.size + 1, max(1, codes.shape[1]), dtype=np.int32)[: len(codes) + 1]
        rows = pa.Array.from_buffers(pa.binary(), len(codes), [None, pa.py_buffer(offsets), pa.py_buffer(codes)])
        return texts.cast(pa.binary()).filter(pa.array(present)), rows

    def add_packed(self, texts: Any, rows: Any) -> None:
        """Add records that were sent here."""
        if len(rows):
            data, places = bytes_of(rows)
            codes = data[places[0] : places[-1]].reshape(len(rows), -1)
            self._rows.add(*bytes_of(texts), np.ones(len(rows), dtype=np.bool_), codes)

    def _packed(self, coded: CodedRecords) -> NDArray[np.uint8]:
        return self._rows.packed(list(self._coder.columns(coded).values()))

    def chosen(self, workers: Executor, *, shares: int, size: int) -> Generator[dict[Column, NDArray[Any]]]:
        """The columns of the rows that are counted, so many rows at a time."""
        for columns in self._rows.chosen(self._limit, workers, shares=shares, size=size):
            yield dict(zip(self._coder.column_types, columns, strict=True))


def _of_units(texts: Any, coded: CodedRecords) -> NDArray[np.bool_]:
    """Which records are kept and have a unit."""
    return coded.kept & ~nulls(texts) & (places_among(texts, [NO_TEXT]) == 1)


def _unit_texts(units: Any) -> Any:
    """The text of each unit; None where there are none."""
    units = plain(units)
    if pa.types.is_null(units.type) or not len(units):
        return None
    if pa.types.is_dictionary(units.type):
        return texts_of(plain(units.dictionary)).take(units.indices)
    return texts_of(units)


# ----------------------------------------------------------------------------------------------------------------------
# Values that nobody has declared, by their texts: which occur, and how many units have each.
#
# What can be a value is a public rule: a text in UTF-8 that is not blank, of at most LONGEST_VALUE bytes and without
# control characters, so that it can be a label. A unit counts for at most m values, once each: for those of its values
# with the smallest SHA-256( "consilience value 1" LF length of unit LF unit value ), which depend on this unit alone.


LONGEST_VALUE = 200


def value_counts(column: Any) -> dict[bytes, int]:
    """How often each text that can be a value stands in a column."""
    found = compute.value_counts(_values_in(column))
    return {text: count for text, count in zip(*(part.to_pylist() for part in found.flatten()), strict=True) if text}


def _values_in(column: Any) -> Any:
    """The column's texts as bytes; null for those that can be no value."""
    array = decoded(column)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.large_binary())
    texts = texts_of(array).dictionary_encode()
    values = pa.array(map(_value_of, texts.dictionary.to_pylist()), pa.large_binary())
    return values.take(texts.indices)


def _value_of(text: bytes) -> bytes | None:
    if text in TRUTH_TEXTS:
        return (b"false", b"true")[TRUTH_TEXTS.index(text)]
    try:
        word = text.decode()
    except UnicodeDecodeError:
        return None
    return text if word.strip() and len(text) <= LONGEST_VALUE and visible(word) == word else None


def values_of_units(units: Any, column: Any) -> Any:
    """The distinct values of each unit in some rows, as a table; rows without a unit count for nothing."""
    texts = _unit_texts(units)
    if texts is None:
        return pa.table({"unit": pa.array([], pa.binary()), "value": pa.array([], pa.binary())})
    texts = compute.if_else(pa.array(places_among(texts, [NO_TEXT]) == 1), texts, None)
    kinds = {"unit": texts.cast(pa.binary()), "value": _values_in(column).cast(pa.binary())}
    return pa.table(kinds).drop_null().group_by(["unit", "value"]).aggregate([])


class UnitValues:
    """The values that units of one part count for, at most so many of each."""

    def __init__(self, limit: int, part: Part) -> None:
        self._limit = limit
        self._part = part
        self._held: dict[bytes, dict[bytes, bytes]] = {}
        self.size = 0
        """How many values are held, of all units together."""

    def add(self, pairs: Any) -> None:
        """Take in the values of some units."""
        for unit, value in zip(pairs["unit"].to_pylist(), pairs["value"].to_pylist(), strict=True):
            if not self._part.holds(unit):
                continue
            held = self._held.setdefault(unit, {})
            before = len(held)
            held[hashlib.sha256(b"consilience value 1\n%d\n" % len(unit) + unit + value).digest()] = value
            if len(held) > self._limit:
                del held[max(held)]
            self.size += len(held) - before

    def counts(self) -> dict[bytes, int]:
        """How many units count for each value."""
        return Counter(value for held in self._held.values() for value in held.values())


# ----------------------------------------------------------------------------------------------------------------------
# Columns as the declared notation means them: texts for a missing value become null, numbers get a decimal point.
#
# Marks of numbers matter in columns of text that are declared numeric; a value that a source stores as a number is that
# number, whatever its neighbours in the column are. A text that is no number by the declared marks is no number: with a
# decimal comma `12,5` is one and `12.5` is not, and a mark of thousands stands between groups of three digits. Texts
# for missing values are compared with the text of a value of any type. Nothing here raises for a value.


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
