"""How a domain fits the data: NOT PRIVATE, for the curator's eyes only.

`check_domain` counts the rows that each rule drops or moves, and looks for the declaration under which fewer would be.
Its numbers are exact and its words hold values of the data: nothing of it may be published or passed on, and a
measurement never calls it. `fit_lines` says what to write, `fit_report` how the curator reads it.

    data, domain ──► observe ──► Observation ──► fit_lines ──► the declaration that would fit ──► DomainFit
"""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Categorical, Continuous, Numeric
from consilience.domain.dates import Date
from consilience.domain.domains import Domain, ImpossibleCells
from consilience.domain.source_format import Notation
from consilience.source.coding import LabelCoder, coder_of
from consilience.source.readers import Reader
from consilience.source.records import Batch, ImpossibleRule, with_points
from consilience.source.tables import reader_of
from consilience.source.values import decoded, is_text, nulls, numbers_of, texts_of

compute: Any = pyarrow.compute

MOST_DISTINCT = 20_000
"""Different texts of a column that are remembered; later ones are counted and not told apart."""


@dataclass
class ColumnFit:
    """What one column holds that its attribute lists, moves or drops: exact numbers of rows."""

    attribute: Attribute
    missing: int = 0
    not_numbers: int = 0
    unlisted: int = 0
    """Values that are not listed; for numbers, those outside the bins or bounds."""
    below: int = 0
    above: int = 0
    low: float = float("inf")
    high: float = float("-inf")
    """The least and the largest number, infinite ones aside."""
    dropped: int = 0
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The rows of each listed value or bin."""
    texts: Counter[bytes] = field(default_factory=Counter)
    """Texts as they are written: those not listed or, in a column of texts declared numeric, all."""
    complete: bool = True
    """Whether all such texts are remembered."""

    @property
    def numeric(self) -> bool:
        return isinstance(self.attribute, Numeric | Continuous)

    @property
    def never(self) -> tuple[str, ...]:
        """The listed values, or bins, that no row has."""
        if isinstance(self.attribute, Continuous):
            return ()
        listed = self.attribute.ordinary_labels
        return tuple(label for label, count in zip(listed, self.counts, strict=False) if count == 0)

    def no_numbers(self, notation: Notation) -> dict[bytes, int]:
        """The texts of a numeric column that are no numbers in this notation, and their rows."""
        texts = pa.array(list(self.texts), pa.large_binary())
        absent = np.isnan(numbers_of(with_points(texts, notation.decimal, notation.thousands or "")))
        return {text: self.texts[text] for text in texts.filter(pa.array(absent)).to_pylist()}

    def add(self, array: Any) -> NDArray[np.bool_]:
        """Take in a batch of the column, as its notation means it; which rows are dropped."""
        values = decoded(array)
        absent = nulls(values) if len(values) else np.zeros(0, dtype=np.bool_)
        self.missing += int(absent.sum())
        if self.numeric:
            self._add_numbers(values, absent)
        else:
            self._add_labels(values, absent)
        coder = coder_of(self.attribute)
        dropped = np.asarray(coder.codes(array) == coder.size)
        self.dropped += int(dropped.sum())
        return dropped

    def remember(self, array: Any) -> None:
        """Keep the texts of a batch, as they are written, where the column is one of texts."""
        array = decoded(array)
        if not is_text(array.type):
            return
        for pair in compute.value_counts(texts_of(array).cast(pa.large_binary())).to_pylist():
            if pair["values"] is None:
                continue
            if pair["values"] in self.texts or len(self.texts) < MOST_DISTINCT:
                self.texts[pair["values"]] += pair["counts"]
            else:
                self.complete = False

    def _add_labels(self, values: Any, absent: NDArray[np.bool_]) -> None:
        known = (
            coder_of(replace(self.attribute, missing="drop", unlisted="drop"))
            if isinstance(self.attribute, Date)
            else LabelCoder(Categorical(self.attribute.name, "drop", "drop", values=self.attribute.labels))
        )
        codes = known.codes(values)
        odd = (codes == known.size) & ~absent
        self.unlisted += int(odd.sum())
        self._count(codes[codes < known.size])
        self.remember(texts_of(values).filter(pa.array(odd)))

    def _add_numbers(self, values: Any, absent: NDArray[np.bool_]) -> None:
        numbers = numbers_of(values)
        self.not_numbers += int((np.isnan(numbers) & ~absent).sum())
        low, high = ends(self.attribute)
        closed = not (isinstance(self.attribute, Numeric) and self.attribute.integer)
        above = numbers > high if closed else numbers >= high
        self.below += int((numbers < low).sum())
        self.above += int(above.sum())
        self.unlisted = self.below + self.above
        finite = numbers[np.isfinite(numbers)]
        if finite.size:
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
        if isinstance(self.attribute, Numeric):
            inside = numbers[(numbers >= low) & ~above]
            bins = np.searchsorted(np.array(self.attribute.edges), inside, side="right") - 1
            self._count(np.minimum(bins, len(self.attribute.bins) - 1))

    def _count(self, codes: NDArray[Any]) -> None:
        if not self.counts.size:
            self.counts = np.zeros(self.attribute.size, dtype=np.int64)
        self.counts += np.bincount(codes, minlength=self.attribute.size)


@dataclass
class Observation:
    """A pass over the data under one declaration: the rows, and what becomes of them."""

    domain: Domain
    there: tuple[str, ...]
    """The columns of the source."""
    columns: dict[str, ColumnFit]
    rows: int = 0
    kept: int = 0
    """Rows that no rule of the domain drops; those of a unit beyond its limit are among them."""
    impossible: Counter[tuple[tuple[str, ...], str]] = field(default_factory=Counter)
    """Rows that impossible cells drop, of those that the attributes' rules left: by attributes and constraint."""
    without_unit: int = 0
    counted: int = 0
    """Rows that are counted in the end."""

    @property
    def absent(self) -> tuple[str, ...]:
        """The declared attributes that are no column."""
        return tuple(name for name in self.domain.names if name not in self.there)


@dataclass(frozen=True)
class Opened:
    """What the curator gave: data, where in it, and what is protected."""

    data: object
    table: str | None = None
    query: str | None = None
    unit: str | None = None
    max_rows_per_unit: int | None = None

    @property
    def given(self) -> str | None:
        """The path or pattern, or None for a frame."""
        return os.fsdecode(self.data) if isinstance(self.data, str | os.PathLike) else None

    def reader(self, required: Mapping[str, Attribute | None], domain: Domain) -> Reader:
        return reader_of(self.data, required, domain.source_format, table=self.table, query=self.query)


def observe(opened: Opened, domain: Domain) -> Observation:
    """What becomes of every row under the domain; declared columns that are absent are passed over."""
    there = opened.reader({}, domain).columns
    present: dict[str, Attribute | None] = {each.name: each for each in domain.attributes if each.name in there}
    if opened.unit is not None:
        present = {opened.unit: None, **present}
    found = Observation(domain, there, {name: ColumnFit(domain[name]) for name in present if name in domain})
    rules = {rule: ImpossibleRule(rule, domain) for rule in domain.impossible if set(rule.attributes) <= set(there)}
    plainly = replace(domain, source_format=replace(domain.source_format, notation=Notation(), by_attribute=()))
    numeric = {name: column for name, column in found.columns.items() if column.numeric}
    alike = plainly.source_format == domain.source_format
    for batch in opened.reader(present, domain).batches(tuple(present)):
        _add_batch(found, batch, rules, opened.unit)
        for name in numeric if alike else ():
            numeric[name].remember(batch.column(name))
    for batch in [] if alike else opened.reader(present, plainly).batches(tuple(present)):
        for name, column in numeric.items():
            column.remember(batch.column(name))
    found.counted = found.kept if opened.unit is None or found.absent else _counted(opened, domain)
    return found


def _add_batch(
    found: Observation, batch: Batch, rules: Mapping[ImpossibleCells, ImpossibleRule], unit: str | None
) -> None:
    kept = np.ones(batch.num_rows, dtype=np.bool_)
    codes: dict[str, NDArray[Any]] = {}
    in_rules = {name for rule in rules for name in rule.attributes}
    for name, column in found.columns.items():
        array = batch.column(name)
        kept &= ~column.add(array)
        if name in in_rules:
            coder = coder_of(column.attribute)
            codes[name] = np.minimum(coder.codes(array), coder.size - 1)
    for declared, rule in rules.items():
        hit = kept & rule.matches(codes)
        found.impossible[declared.attributes, declared.because] += int(hit.sum())
        kept &= ~hit
    found.rows += batch.num_rows
    found.kept += int(kept.sum())
    if unit is not None:
        found.without_unit += int(nulls(decoded(batch.column(unit))).sum())


def _counted(opened: Opened, domain: Domain) -> int:
    """The rows that are counted when at most so many of each unit are."""
    from consilience.source.tables import open_table

    reviewed = replace(domain, draft=False, unreviewed=(), quotes_data=False, weight=None)
    source = open_table(
        opened.data,
        reviewed,
        table=opened.table,
        query=opened.query,
        unit=opened.unit,
        max_rows_per_unit=opened.max_rows_per_unit,
    )
    if domain.counted_names:
        return int(source.exact_counts([domain.counted_names[:1]])[0].sum())
    return int(source.exact_sums(domain.names[:1], [lambda points: np.array([len(points)])])[0][0])


def ends(attribute: Attribute) -> tuple[float, float]:
    """The least and the largest number that a numeric or continuous attribute declares."""
    if isinstance(attribute, Numeric):
        return attribute.edges[0], attribute.edges[-1]
    return attribute.bounds if isinstance(attribute, Continuous) else (float("-inf"), float("inf"))
