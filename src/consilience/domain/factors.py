"""Factors: what a query asks of one attribute. Plain data that names labels and serialises to JSON.

A factor bound to an attribute is a matrix F whose columns are the attribute's codes and whose rows are answers
(McKenna et al. 2019, Table 2, and more). `bind` gives it as a `LinearMap`; `row_labels` says what each row is.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from consilience.domain.attributes import Attribute, Hierarchy, Numeric
from consilience.domain.declarations import Declaration, is_number, suggestion
from consilience.domain.spelling import spell, spell_attribute, spell_end
from consilience.errors import DeclarationError
from consilience.numerics.linear_maps import (
    AllRangesMap,
    IdentityMap,
    LinearMap,
    PrefixMap,
    SparseMap,
    SumMap,
)


class Factor(ABC):
    """One attribute's part of a query."""

    kind: ClassVar[str]
    is_condition: ClassVar[bool] = False
    """True of factors with one row that picks values, which people write before `by`."""

    @abstractmethod
    def bind(self, attribute: Attribute) -> LinearMap:
        """The factor as a matrix over the attribute's codes."""

    @abstractmethod
    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        """What each row of the matrix answers."""

    def describe(self, name: str) -> str:
        """The factor as people type it, given the attribute's name."""
        return f"{self.kind}({', '.join((spell_attribute(name), *self._arguments()))})"

    def _arguments(self) -> tuple[str, ...]:
        """What stands after the attribute's name where the factor is typed as a function."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """The factor's own fields; the kind and the attribute are added by the query."""
        return {}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls()


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
        return _indicators(attribute, [attribute.codes(self.label)])

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return (self.label,)

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
        return _indicators(attribute, [tuple(dict.fromkeys(codes))])

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return ("|".join(self.labels),)

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
        return _indicators(attribute, [attribute.codes_between(self.low, self.high)])

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return (f"{self.low or ''}..{self.high or ''}",)

    def describe(self, name: str) -> str:
        return f"{spell_attribute(name)}={spell_end(self.low)}..{spell_end(self.high)}"

    def to_json(self) -> dict[str, Any]:
        ends = {"low": self.low, "high": self.high}
        return {key: end for key, end in ends.items() if end is not None}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls(declared.optional_text("low"), declared.optional_text("high"))


@dataclass(frozen=True)
class Prefix(Factor):
    """Row i sums the values up to and including the i-th: the cumulative distribution."""

    kind: ClassVar[str] = "prefix"

    def bind(self, attribute: Attribute) -> LinearMap:
        return PrefixMap(attribute.size)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return tuple(f"up to {label}" for label in attribute.labels)


@dataclass(frozen=True)
class AllRanges(Factor):
    """Every contiguous range of values."""

    kind: ClassVar[str] = "ranges"

    def bind(self, attribute: Attribute) -> LinearMap:
        return AllRangesMap(attribute.size)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        first, last = AllRangesMap(attribute.size).ends
        labels = attribute.labels
        return tuple(labels[i] if i == j else f"{labels[i]} to {labels[j]}" for i, j in zip(first, last, strict=True))


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
        return _indicators(attribute, codes)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return tuple(name for name, _ in self.groups)

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
class Mean(Factor):
    """Σ value × count, with each bin's midpoint for value: the mean times the total."""

    kind: ClassVar[str] = "mean"

    def bind(self, attribute: Attribute) -> LinearMap:
        return SparseMap(sp.csr_array(attribute.midpoints()[None, :]))

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return (f"sum of {attribute.name}",)


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
class Tree(Factor):
    """The nodes of a tree over the values, root first, level by level; or one `level` of it (0 is the root).

    With a `branching` k the tree is the complete k-ary one over the codes in order, padded to a power of k; nodes
    above padding alone are left out. Without it the attribute must be a hierarchy, whose own nodes are used.
    """

    branching: int | None = None
    level: int | None = None
    kind: ClassVar[str] = "tree"

    def bind(self, attribute: Attribute) -> LinearMap:
        if self.branching is None:
            hierarchy = _as_hierarchy(attribute)
            return _indicators(attribute, [hierarchy.codes(node) for node in self._own_nodes(hierarchy)])
        return SparseMap(_interval_sums(attribute.size, self._widths(attribute)))

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        if self.branching is None:
            return self._own_nodes(_as_hierarchy(attribute))
        return tuple(name for width in self._widths(attribute) for name in _interval_names(attribute, width))

    def levels(self, attribute: Attribute) -> int:
        """The number of levels, root and values included."""
        if self.branching is None:
            hierarchy = _as_hierarchy(attribute)
            return 1 + max(hierarchy.depths.values())
        if self.branching < 2:
            raise DeclarationError(f"a tree needs a branching of at least 2, found {self.branching}")
        return len(_level_widths(attribute.size, self.branching))

    def _chosen_levels(self, attribute: Attribute) -> range:
        levels = self.levels(attribute)
        if self.level is None:
            return range(levels)
        if not 0 <= self.level < levels:
            raise DeclarationError(f"the tree over {attribute.name!r} has levels 0 to {levels - 1}, not {self.level}")
        return range(self.level, self.level + 1)

    def _own_nodes(self, hierarchy: Hierarchy) -> tuple[str, ...]:
        chosen = self._chosen_levels(hierarchy)
        return tuple(node for node in hierarchy.nodes if hierarchy.depths[node] in chosen)

    def _widths(self, attribute: Attribute) -> list[int]:
        chosen = self._chosen_levels(attribute)
        return _level_widths(attribute.size, self.branching or 2)[chosen.start : chosen.stop]

    def _arguments(self) -> tuple[str, ...]:
        branching = () if self.branching is None else (str(self.branching),)
        return branching if self.level is None else (*branching, f"level {self.level}")

    def to_json(self) -> dict[str, Any]:
        fields = {"branching": self.branching, "level": self.level}
        return {key: value for key, value in fields.items() if value is not None}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        branching = declared.integer("branching") if "branching" in declared else None
        return cls(branching, declared.integer("level") if "level" in declared else None)


@dataclass(frozen=True)
class Haar(Factor):
    """The unnormalised Haar wavelet: the total, then left half minus right half of every dyadic interval.

    Codes are padded to a power of two; intervals without a code are left out (Xiao, Wang, Gehrke 2011).
    """

    kind: ClassVar[str] = "haar"

    def bind(self, attribute: Attribute) -> LinearMap:
        size = attribute.size
        widths = _level_widths(size, 2)[:-1]
        matrix: Any = _interval_sums(size, [size, *widths])
        place = np.arange(size)
        halves = [np.where(place % width < width // 2, 1.0, -1.0) for width in widths]
        matrix.data = np.concatenate([np.ones(size), *halves])
        return SparseMap(matrix)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        labels = attribute.labels
        names = ["all"]
        for width in _level_widths(attribute.size, 2)[:-1]:
            for first in range(0, attribute.size, width):
                names.append(f"{labels[first]} to {labels[min(first + width, len(labels)) - 1]}: left − right")
        return tuple(names)


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
        for row, code, value in self.entries:
            if not (0 <= row < self.rows and 0 <= code < attribute.size and is_number(value)):
                raise DeclarationError(
                    f"matrix entry ({row}, {code}) = {value} does not fit {self.rows} rows "
                    f"and the {attribute.size} values of {attribute.name!r}"
                )
        rows, codes, values = zip(*self.entries, strict=True) if self.entries else ((), (), ())
        shape = (self.rows, attribute.size)
        return SparseMap(
            sp.csr_array(
                (np.array(values, dtype=np.float64), (np.array(rows, np.intp), np.array(codes, np.intp))),
                shape,
            )
        )

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


FACTORS: dict[str, type[Factor]] = {
    factor.kind: factor
    for factor in (
        Identity,
        Total,
        Value,
        Subset,
        Range,
        Prefix,
        AllRanges,
        Buckets,
        Mean,
        Moments,
        Tree,
        Haar,
        Matrix,
    )
}


def factor_from_json(declared: Declaration) -> Factor:
    """The factor that one JSON table describes; the table's `attribute` must have been read by the caller."""
    kind = declared.text("kind")
    if kind not in FACTORS:
        declared.refuse(f"factor kind {kind!r} is not known; {suggestion(kind, FACTORS)}")
    factor = FACTORS[kind].from_json(declared)
    declared.close()
    return factor


def _indicators(attribute: Attribute, groups: Sequence[Sequence[int]]) -> SparseMap:
    """The 0/1 matrix whose row i marks the codes of group i."""
    rows = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    codes = np.array([code for group in groups for code in group], dtype=np.intp)
    return SparseMap(sp.csr_array((np.ones(len(codes)), (rows, codes)), (len(groups), attribute.size)))


def _as_hierarchy(attribute: Attribute) -> Hierarchy:
    if not isinstance(attribute, Hierarchy):
        raise DeclarationError(f"attribute {attribute.name!r} is no hierarchy; give the tree a branching, such as 2")
    return attribute


def _level_widths(size: int, branching: int) -> list[int]:
    """How many codes a node spans on each level, root first."""
    widths = [1]
    while widths[-1] < size:
        widths.append(widths[-1] * branching)
    return widths[::-1]


def _interval_sums(size: int, widths: Sequence[int]) -> sp.csr_array:
    """For each width in turn, the rows that sum consecutive intervals of so many codes, the last one cut short."""
    ends = [np.minimum(np.arange(width, size + width, width), size) for width in widths]
    starts = np.concatenate([[0], *(level * size + end for level, end in enumerate(ends))])
    codes = np.tile(np.arange(size), len(widths))
    return sp.csr_array((np.ones(len(codes)), codes, starts), (len(starts) - 1, size))


def _interval_names(attribute: Attribute, width: int) -> list[str]:
    """What consecutive intervals of so many codes are called."""
    labels = attribute.labels
    names = []
    for first in range(0, attribute.size, width):
        last = min(first + width, attribute.size) - 1
        names.append(labels[first] if first == last else f"{_start(attribute, first)}..{_end(attribute, last)}")
    return names


def _start(attribute: Attribute, code: int) -> str:
    return attribute.labels[code].partition("..")[0] if isinstance(attribute, Numeric) else attribute.labels[code]


def _end(attribute: Attribute, code: int) -> str:
    label = attribute.labels[code]
    return (label.partition("..")[2] or label) if isinstance(attribute, Numeric) else label
