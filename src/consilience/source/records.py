"""Which records count, and where: batches of columns into codes, with one decision for each record.

A record is dropped from every count alike: because it is beyond the first rows of its unit, because a rule of an
attribute drops it, or because it lies in cells declared impossible. The unit decides first, by the order of rows
alone, so that what a row says has no influence on which rows of its unit are kept.
"""

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from consilience.domain.domains import Domain, ImpossibleCells
from consilience.numerics.counting import WIDTHS, CodeMatrices, UnitTable
from consilience.source.coding import BoundsCoder, coder_of
from consilience.source.values import NO_TEXT, bytes_of, nulls, places_among, plain, texts_of


class Batch(Protocol):
    """Some records in the order of the source, column by column. An Arrow record batch is one."""

    @property
    def num_rows(self) -> int: ...

    def column(self, name: str, /) -> Any:
        """The Arrow array of one column."""
        ...


class CodedRecords(NamedTuple):
    """The codes of a batch, and which of its records are kept; the codes of others mean nothing."""

    codes: CodeMatrices
    kept: NDArray[np.bool_]


class RecordCoder:
    """Codes batches of records for marginals over some of a domain's attributes."""

    def __init__(self, domain: Domain, counted: Sequence[str]) -> None:
        in_rules = {name for rule in domain.impossible for name in rule.attributes}
        coders = {attribute.name: coder_of(attribute) for attribute in domain.attributes}
        self._coders = {
            name: coder for name, coder in coders.items() if coder.drops or name in in_rules or name in counted
        }
        self._rules = tuple(_Rule(rule, domain) for rule in domain.impossible)
        self._in_rules = in_rules
        rows = [0] * len(WIDTHS)
        self.places: dict[str, tuple[int, int]] = {}
        for name in counted:
            width = coders[name].width
            self.places[name] = (width, rows[width])
            rows[width] += 1
        self._rows = tuple(rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that decide about the counts."""
        return tuple(self._coders)

    def code(self, batch: Batch, kept: NDArray[np.bool_] | None, threads: Executor) -> CodedRecords:
        """The codes of a batch, given which rows their units keep (None: all); a task for each column."""
        rows = batch.num_rows
        matrices = CodeMatrices.empty(self._rows, rows)
        tasks = threads.map(lambda name: self._code_column(batch, name, matrices), self._coders)
        coded = dict(zip(self._coders, tasks, strict=True))
        kept = np.ones(rows, dtype=np.bool_) if kept is None else kept.copy()
        for _, dropped in coded.values():
            if dropped is not None:
                kept &= ~dropped
        for rule in self._rules:
            kept &= ~rule.matches({name: coded[name][0] for name in rule.names})
        return CodedRecords(matrices, kept)

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

    def points(self, batch: Batch, names: Sequence[str], kept: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The points that the kept records are, one row for each, over continuous attributes."""
        columns = [
            coder.points(batch.column(name))[kept]
            for name in names
            if isinstance(coder := self._coders[name], BoundsCoder)
        ]
        return np.stack(columns, axis=1)


class _Rule:
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


class UnitLimit:
    """Keeps the first rows of each unit, in the order of the source.

    Units are told apart by their texts, compared in full. A row whose unit is missing or has no text is dropped.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._table = UnitTable()

    def keep(self, units: Any) -> NDArray[np.bool_]:
        """Which of the next rows are kept, given their units."""
        units = plain(units)
        if pa.types.is_null(units.type) or not len(units):
            return np.zeros(len(units), dtype=np.bool_)
        if pa.types.is_dictionary(units.type):
            texts = texts_of(plain(units.dictionary)).take(units.indices)
        else:
            texts = texts_of(units)
        present = ~nulls(texts) & (places_among(texts, [NO_TEXT]) == 1)
        return self._table.keep_first(*bytes_of(texts), present, self._limit)
