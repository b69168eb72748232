"""Factors that keep, drop, pick or group values."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Hierarchy
from consilience.domain.declarations import (
    Declaration,
    Wording,
    is_number,
    spell,
    spell_attribute,
    spell_end,
    suggestion,
)
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import IdentityMap, LinearMap, SparseMap, SumMap

# ----------------------------------------------------------------------------------------------------------------------
# What every factor is.


NO_WORDS = Wording()


class Factor(ABC):
    """One attribute's part of a query; a `JointFactor` is that of several attributes."""

    kind: ClassVar[str]
    word: ClassVar[str] = ""
    """What people type for the kind, where that is another word: files keep the kind for ever."""
    is_condition: ClassVar[bool] = False
    """True of factors with one row that picks values, which people write before `by`."""

    @abstractmethod
    def bind(self, attribute: Attribute) -> LinearMap:
        """The factor as a matrix over the attribute's codes."""

    @abstractmethod
    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        """What each row of the matrix answers."""

    def attributes_of(self, name: str) -> tuple[str, ...]:
        """The attributes that the factor is about, where a query files it under this name."""
        return (name,)

    def bind_over(self, attributes: Sequence[Attribute]) -> LinearMap:
        """The factor as a matrix over the codes of the attributes that it is about, one for most kinds."""
        return self.bind(attributes[0])

    def labels_over(self, attributes: Sequence[Attribute]) -> tuple[str, ...]:
        """What each row of `bind_over` answers."""
        return self.row_labels(attributes[0])

    def worded_over(self, attributes: Sequence[Attribute]) -> tuple[str, ...]:
        """What each row of `bind_over` answers, in the words of the attributes' titles and labels."""
        plain = len(attributes) > 1 or attributes[0].wording == NO_WORDS
        return self.labels_over(attributes) if plain else self.worded_rows(attributes[0])

    def worded_rows(self, attribute: Attribute) -> tuple[str, ...]:
        """`row_labels` in the words of the attribute's title and labels."""
        return tuple(attribute.say(label) for label in self.row_labels(attribute))

    def in_values(self, attribute: Attribute) -> "Factor":
        """The factor with values in place of labels that people gave them."""
        return self

    def heading(self, attribute: Attribute) -> str:
        """What stands above its rows: the attribute's title with its unit, or its name."""
        return attribute.heading

    def on_lattice(self, bits: int) -> "Factor | None":
        """The factor rounded to the lattice 2^−bits, for kinds that round themselves; None for the others."""
        return None

    def describe(self, name: str) -> str:
        """The factor as people type it, given the attribute's name."""
        return f"{self.word or self.kind}({', '.join((spell_attribute(name), *self._arguments()))})"

    def _arguments(self) -> tuple[str, ...]:
        """What stands after the attribute's name where the factor is typed as a function."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """The factor's own fields; the kind and the attribute are added by the query."""
        return {}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls()


def indicators(attribute: Attribute, groups: Sequence[Sequence[int]]) -> SparseMap:
    """The 0/1 matrix whose row i marks the codes of group i."""
    rows = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    codes = np.array([code for group in groups for code in group], dtype=np.intp)
    return SparseMap(sp.csr_array((np.ones(len(codes)), (rows, codes)), (len(groups), attribute.size)))


# ----------------------------------------------------------------------------------------------------------------------
# Factors that keep, drop, pick or group values.


@dataclass(frozen=True)
class Identity(Factor):
    """Every value by itself."""

    kind: ClassVar[str] = "identity"

    def bind(self, attribute: Attribute) -> LinearMap:
        return IdentityMap(attribute.size)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return attribute.labels

    def describe(self, name: str) -> str:
        return spell_attribute(name)


@dataclass(frozen=True)
class Total(Factor):
    """All values together."""

    kind: ClassVar[str] = "total"

    def bind(self, attribute: Attribute) -> LinearMap:
        return SumMap(attribute.size)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return ("all",)


@dataclass(frozen=True)
class Value(Factor):
    """One value; in a hierarchy, a node with all below it."""

    label: str
    kind: ClassVar[str] = "value"
    is_condition: ClassVar[bool] = True

    def bind(self, attribute: Attribute) -> LinearMap:
        return indicators(attribute, [attribute.codes(self.label)])

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return (self.label,)

    def in_values(self, attribute: Attribute) -> Factor:
        return Value(attribute.value_of(self.label))

    def describe(self, name: str) -> str:
        return f"{spell_attribute(name)}={spell(self.label)}"

    def to_json(self) -> dict[str, Any]:
        return {"label": self.label}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls(declared.text("label"))


@dataclass(frozen=True)
class Subset(Factor):
    """Several values together."""

    labels: tuple[str, ...]
    kind: ClassVar[str] = "subset"
    is_condition: ClassVar[bool] = True

    def bind(self, attribute: Attribute) -> LinearMap:
        if not self.labels:
            raise DeclarationError(f"a subset of {attribute.name!r} names no values; it needs at least one")
        codes = [code for label in self.labels for code in attribute.codes(label)]
        return indicators(attribute, [tuple(dict.fromkeys(codes))])

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return ("|".join(self.labels),)

    def worded_rows(self, attribute: Attribute) -> tuple[str, ...]:
        return ("|".join(attribute.say(label) for label in self.labels),)

    def in_values(self, attribute: Attribute) -> Factor:
        return Subset(tuple(attribute.value_of(label) for label in self.labels))

    def describe(self, name: str) -> str:
        labels = [spell(label) for label in self.labels]
        if len(labels) == 1:
            return f"{spell_attribute(name)} in ({labels[0]})"
        return f"{spell_attribute(name)}={'|'.join(labels)}"

    def to_json(self) -> dict[str, Any]:
        return {"labels": list(self.labels)}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls(declared.texts("labels"))


@dataclass(frozen=True)
class Range(Factor):
    """All values from `low` to `high`, both included (real numbers: before `high`); None is the open end."""

    low: str | None
    high: str | None
    kind: ClassVar[str] = "range"
    is_condition: ClassVar[bool] = True

    def bind(self, attribute: Attribute) -> LinearMap:
        return indicators(attribute, [attribute.codes_between(self.low, self.high)])

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return (f"{self.low or ''}..{self.high or ''}",)

    def worded_rows(self, attribute: Attribute) -> tuple[str, ...]:
        low, high = ("" if end is None else attribute.say(end) for end in (self.low, self.high))
        return (f"{low}..{high}",)

    def in_values(self, attribute: Attribute) -> Factor:
        low, high = (None if end is None else attribute.value_of(end) for end in (self.low, self.high))
        return Range(low, high)

    def describe(self, name: str) -> str:
        return f"{spell_attribute(name)}={spell_end(self.low)}..{spell_end(self.high)}"

    def to_json(self) -> dict[str, Any]:
        ends = {"low": self.low, "high": self.high}
        return {key: end for key, end in ends.items() if end is not None}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls(declared.optional_text("low"), declared.optional_text("high"))


@dataclass(frozen=True)
class Buckets(Factor):
    """Named groups of values, each value in at most one group."""

    groups: tuple[tuple[str, tuple[str, ...]], ...]
    kind: ClassVar[str] = "buckets"

    @staticmethod
    def of(groups: Mapping[str, Sequence[str]]) -> "Buckets":
        """Groups from a mapping of names to labels."""
        return Buckets(tuple((str(name), tuple(str(label) for label in labels)) for name, labels in groups.items()))

    @staticmethod
    def at_depth(attribute: Hierarchy, depth: int) -> "Buckets":
        """The nodes of a hierarchy at one depth (1 is the roots); values above that depth stand for themselves."""
        if depth < 1:
            raise DeclarationError(f"depth {depth} of {attribute.name!r} was asked for; the roots are at depth 1")
        groups: dict[str, list[str]] = {}
        for label in attribute.labels:
            path = attribute.path(label)[::-1]
            groups.setdefault(path[min(depth, len(path)) - 1], []).append(label)
        return Buckets.of(groups)

    def bind(self, attribute: Attribute) -> LinearMap:
        names = [name for name, _ in self.groups]
        if not names or len(set(names)) < len(names):
            raise DeclarationError(
                f"the buckets of {attribute.name!r} are named {names}; at least one is needed, each under its own name"
            )
        codes = [tuple(code for label in labels for code in attribute.codes(label)) for _, labels in self.groups]
        seen: set[int] = set()
        for (name, _), group in zip(self.groups, codes, strict=True):
            if seen & set(group) or len(set(group)) < len(group):
                raise DeclarationError(
                    f"bucket {name!r} of {attribute.name!r} holds a value that is already in a bucket"
                )
            seen |= set(group)
        return indicators(attribute, codes)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return tuple(name for name, _ in self.groups)

    def worded_rows(self, attribute: Attribute) -> tuple[str, ...]:
        return self.row_labels(attribute)

    def in_values(self, attribute: Attribute) -> Factor:
        groups = ((name, tuple(attribute.value_of(label) for label in labels)) for name, labels in self.groups)
        return Buckets(tuple(groups))

    def to_json(self) -> dict[str, Any]:
        return {"groups": [{"name": name, "labels": list(labels)} for name, labels in self.groups]}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        groups = []
        for group in declared.tables("groups"):
            groups.append((group.text("name"), group.texts("labels")))
            group.close()
        return cls(tuple(groups))


@dataclass(frozen=True)
class Level(Factor):
    """The groups of a named level, such as the months of days; of no level, the values themselves.

    `within` keeps those whose values it picks: the counties of one state.
    """

    level: str | None = None
    within: Factor | None = None
    kind: ClassVar[str] = "level"

    def bind(self, attribute: Attribute) -> LinearMap:
        return indicators(attribute, list(self._groups(attribute).values()))

    def _groups(self, attribute: Attribute) -> dict[str, tuple[int, ...]]:
        if self.level is None:
            groups: dict[str, tuple[int, ...]] = {label: (code,) for code, label in enumerate(attribute.labels)}
        else:
            groups = attribute.groups(self.level)
        if self.within is None:
            return groups
        picked = set(np.flatnonzero(self.within.bind(attribute).dense()[0]).tolist())
        kept = {label: codes for label, codes in groups.items() if picked.intersection(codes)}
        for label, codes in kept.items():
            if not picked.issuperset(codes):
                raise DeclarationError(
                    f"the condition {self.within.describe(attribute.name)} cuts through {label!r} of the level "
                    f"{self.level!r}; ask by a finer level, or move the condition to where the groups begin and end"
                )
        return kept

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return tuple(self._groups(attribute))

    def heading(self, attribute: Attribute) -> str:
        if self.level is None or attribute.is_ordered:
            return attribute.heading + (f": {self.level}" if self.level else "")
        return self.level

    def in_values(self, attribute: Attribute) -> Factor:
        return Level(self.level, None if self.within is None else self.within.in_values(attribute))

    def describe(self, name: str) -> str:
        return spell_attribute(name) if self.level is None else f"{spell(self.level)}({spell_attribute(name)})"

    def to_json(self) -> dict[str, Any]:
        within = self.within
        fields = {} if self.level is None else {"level": self.level}
        return fields if within is None else fields | {"within": {"kind": within.kind} | within.to_json()}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        within = None
        if "within" in declared:
            table = declared.table("within")
            kind = table.text("kind")
            picks = {each.kind: each for each in (Value, Subset, Range)}
            if kind not in picks:
                table.refuse(f"the kind {kind!r} picks no values; {suggestion(kind, picks)}")
            within = picks[kind].from_json(table)
            table.close()
        return cls(declared.optional_text("level"), within)


# ----------------------------------------------------------------------------------------------------------------------
# Factors whose entries are numbers: means, moments and explicit matrices.


@dataclass(frozen=True)
class Mean(Factor):
    """Σ value × count, with each bin's midpoint for value: the mean times the total, `sum(age)` to people."""

    kind: ClassVar[str] = "mean"
    word: ClassVar[str] = "sum"

    def bind(self, attribute: Attribute) -> LinearMap:
        return SparseMap(sp.csr_array(attribute.midpoints()[None, :]))

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return (f"sum of {attribute.name}",)

    def worded_rows(self, attribute: Attribute) -> tuple[str, ...]:
        return (f"sum of {attribute.heading}",)


@dataclass(frozen=True)
class Moments(Factor):
    """Row b sums value^b × count for b = 1 … order."""

    order: int
    kind: ClassVar[str] = "moments"
    largest_order: ClassVar[int] = 32

    def bind(self, attribute: Attribute) -> LinearMap:
        if not 1 <= self.order <= self.largest_order:
            raise DeclarationError(
                f"moments of order {self.order}: the order is a whole number from 1 to {self.largest_order}"
            )
        with np.errstate(over="ignore"):
            powers = attribute.midpoints()[None, :] ** np.arange(1, self.order + 1)[:, None]
        if not np.all(np.isfinite(powers)):
            raise DeclarationError(
                f"moments of {attribute.name!r} up to order {self.order} exceed the range of numbers; lower the order"
            )
        return SparseMap(sp.csr_array(powers))

    def _arguments(self) -> tuple[str, ...]:
        return (str(self.order),)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return tuple(f"sum of {attribute.name}^{b}" for b in range(1, self.order + 1))

    def to_json(self) -> dict[str, Any]:
        return {"order": self.order}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls(declared.integer("order"))


@dataclass(frozen=True)
class Matrix(Factor):
    """An explicit sparse matrix: entries (row, code, value)."""

    rows: int
    entries: tuple[tuple[int, int, float], ...]
    names: tuple[str, ...] = ()
    kind: ClassVar[str] = "matrix"
    most_rows: ClassVar[int] = 10**8

    @staticmethod
    def of(matrix: Any, *, names: Sequence[str] = ()) -> "Matrix":
        """The factor of a NumPy or SciPy matrix with a column for each code; a vector is a matrix with one row."""
        found: Any = sp.coo_array(matrix if sp.issparse(matrix) else np.atleast_2d(matrix))
        entries = sorted(zip(found.row.tolist(), found.col.tolist(), found.data.tolist(), strict=True))
        return Matrix(int(found.shape[0]), tuple((r, c, float(v)) for r, c, v in entries if v != 0), tuple(names))

    def bind(self, attribute: Attribute) -> LinearMap:
        if not 1 <= self.rows <= self.most_rows:
            raise DeclarationError(
                f"a matrix over {attribute.name!r} has {self.rows} rows; it needs 1 to {self.most_rows}"
            )
        if self.names and len(self.names) != self.rows:
            raise DeclarationError(
                f"a matrix factor with {self.rows} rows has {len(self.names)} row names; give all or none"
            )
        rows, codes, values = self._columns
        wrong = (rows < 0) | (rows >= self.rows) | (codes < 0) | (codes >= attribute.size) | ~np.isfinite(values)
        if wrong.any():
            row, code, value = self.entries[int(np.argmax(wrong))]
            raise DeclarationError(
                f"matrix entry ({row}, {code}) = {value} does not fit {self.rows} rows "
                f"and the {attribute.size} values of {attribute.name!r}"
            )
        whole: Any = (rows.astype(np.intp), codes.astype(np.intp))
        return SparseMap(sp.csr_array((values, whole), (self.rows, attribute.size)))

    @cached_property
    def _columns(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Rows, codes and values of the entries; what is no number there becomes NaN."""
        try:
            table = np.array(self.entries, dtype=np.float64).reshape(-1, 3)
        except (TypeError, ValueError, OverflowError):
            table = np.array([[part if is_number(part) else np.nan for part in each] for each in self.entries])
        return table[:, 0], table[:, 1], table[:, 2]

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return self.names or tuple(f"row {i}" for i in range(self.rows))

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"rows": self.rows, "entries": [list(entry) for entry in self.entries]}
        return fields | ({"names": list(self.names)} if self.names else {})

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        found = declared.raw("entries")
        if not isinstance(found, list):
            declared.refuse("'entries' must be a list of [row, code, value]")
        entries = []
        for entry in found:
            if not (isinstance(entry, list) and len(entry) == 3 and all(is_number(part) for part in entry)):
                declared.refuse(f"'entries' must be a list of [row, code, value], found {entry!r:.60} in it")
            if any(part != int(part) for part in entry[:2]):
                declared.refuse(f"the matrix entry {entry} must have whole numbers for row and code")
            entries.append((int(entry[0]), int(entry[1]), float(entry[2])))
        names = declared.texts("names") if "names" in declared else ()
        return cls(declared.integer("rows"), tuple(entries), names)
