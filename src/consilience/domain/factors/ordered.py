"""Factors over the declared order of values: prefixes, ranges, trees and wavelets."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from consilience.domain.attributes import Attribute, Hierarchy, Numeric
from consilience.domain.declarations import Declaration
from consilience.domain.factors.selections import Factor, indicators
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import AllRangesMap, LinearMap, PrefixMap, SparseMap
from consilience.kernels.transforms import FourierMap, NominalMap, rows_of, whole_scale


@dataclass(frozen=True)
class Prefix(Factor):
    """Row i sums the values up to and including the i-th: the cumulative distribution."""

    kind: ClassVar[str] = "prefix"

    def bind(self, attribute: Attribute) -> LinearMap:
        return PrefixMap(attribute.size)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return tuple(f"up to {label}" for label in attribute.labels)

    def worded_rows(self, attribute: Attribute) -> tuple[str, ...]:
        return tuple(f"up to {attribute.say(label)}" for label in attribute.labels)


@dataclass(frozen=True)
class AllRanges(Factor):
    """Every contiguous range of values."""

    kind: ClassVar[str] = "ranges"

    def bind(self, attribute: Attribute) -> LinearMap:
        return AllRangesMap(attribute.size)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return self._named(attribute.labels)

    def worded_rows(self, attribute: Attribute) -> tuple[str, ...]:
        return self._named(tuple(attribute.say(label) for label in attribute.labels))

    def _named(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        first, last = AllRangesMap(len(labels)).ends
        return tuple(labels[i] if i == j else f"{labels[i]} to {labels[j]}" for i, j in zip(first, last, strict=True))


@dataclass(frozen=True)
class Intervals(Factor):
    """All values, cut into intervals of neighbours: each begins at one of the `starts` and ends before the next."""

    starts: tuple[str, ...]
    kind: ClassVar[str] = "intervals"

    @staticmethod
    def from_codes(attribute: Attribute, starts: Sequence[int]) -> "Intervals":
        """The intervals that begin at these codes."""
        return Intervals(tuple(attribute.labels[start] for start in starts))

    def bind(self, attribute: Attribute) -> LinearMap:
        size = attribute.size
        bounds = np.array([*self._codes(attribute), size])
        return SparseMap(sp.csr_array((np.ones(size), np.arange(size), bounds), (len(bounds) - 1, size)))

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        bounds = [*self._codes(attribute), attribute.size]
        return tuple(_interval_name(attribute, first, after - 1) for first, after in itertools.pairwise(bounds))

    def _codes(self, attribute: Attribute) -> list[int]:
        codes = [attribute.code(label) for label in self.starts]
        if codes[:1] != [0] or any(after <= first for first, after in itertools.pairwise(codes)):
            raise DeclarationError(
                f"the intervals of {attribute.name!r} start at {', '.join(self.starts[:5]) or 'no value'}; they start "
                f"at the first value, {attribute.labels[0]!r}, and go on in the declared order"
            )
        return codes

    def to_json(self) -> dict[str, Any]:
        return {"starts": list(self.starts)}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls(declared.texts("starts"))


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
            return indicators(attribute, [hierarchy.codes(node) for node in self._own_nodes(hierarchy)])
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
    firsts = range(0, attribute.size, width)
    return [_interval_name(attribute, first, min(first + width, attribute.size) - 1) for first in firsts]


def _interval_name(attribute: Attribute, first: int, last: int) -> str:
    if first == last:
        return attribute.labels[first]
    return f"{_start(attribute, first)}..{_end(attribute, last)}"


def _start(attribute: Attribute, code: int) -> str:
    return attribute.labels[code].partition("..")[0] if isinstance(attribute, Numeric) else attribute.labels[code]


def _end(attribute: Attribute, code: int) -> str:
    label = attribute.labels[code]
    return (label.partition("..")[2] or label) if isinstance(attribute, Numeric) else label


# ----------------------------------------------------------------------------------------------------------------------
# Factors that are transforms: the nominal wavelet, in whole numbers, and the Fourier basis on a lattice.


DEFAULT_BITS = 20
"""Entries near 1 keep six digits."""


@dataclass(frozen=True)
class Nominal(Factor):
    """The nominal wavelet of the attribute's tree: the total, then each node against the mean of its siblings.

    With s_v the count of node v, and f children below its parent p, the rows are L · total and
    ⌊L / (2(f − 1))⌋ · (f · s_v − s_p): the weighted coefficients of Xiao, Wang and Gehrke (2011, section V), times a
    number L that makes them whole. It is the least common multiple of all 2(f − 1), or 2^⌈log₂ 64(f − 1)⌉ for the
    largest f where that is less. The tree is that of a hierarchy, several roots joined under one; over any other
    attribute all values hang from the root. An only child has no row, for it equals its parent.
    """

    kind: ClassVar[str] = "nominal"

    def bind(self, attribute: Attribute) -> LinearMap:
        tree = _Tree(attribute)
        children = np.array(tree.rows, dtype=np.intp)
        parents = np.array([tree.parents[node] for node in tree.rows], dtype=np.intp)
        fanouts = np.array([tree.fanouts[parent] for parent in parents], dtype=np.int64)
        scale = whole_scale(np.unique(fanouts).tolist())
        weights = (scale // np.maximum(2 * (fanouts - 1), 1)).astype(np.float64)
        return NominalMap(
            indicators(attribute, tree.codes),
            node=np.concatenate([[0], children]),
            parent=np.concatenate([[0], parents]),
            own=np.concatenate([[float(scale)], weights * (fanouts - 1)]),
            shared=np.concatenate([[0.0], -weights]),
        )

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        tree = _Tree(attribute)
        return (
            "all",
            *(f"{tree.names[node]} against the mean of {tree.names[tree.parents[node]]}" for node in tree.rows),
        )


class _Tree:
    """The nodes of an attribute with one root, parents first; `rows` are those that have siblings."""

    def __init__(self, attribute: Attribute) -> None:
        labels = range(attribute.size)
        self.names, self.codes, self.parents = ["all"], [tuple(labels)], [-1]
        if isinstance(attribute, Hierarchy):
            self._add_hierarchy(attribute)
        else:
            self.names += attribute.labels
            self.codes += [(code,) for code in labels]
            self.parents += [0] * attribute.size
        self.fanouts = [0] * len(self.names)
        for parent in self.parents[1:]:
            self.fanouts[parent] += 1
        self.rows = [node for node in range(1, len(self.names)) if self.fanouts[self.parents[node]] > 1]

    def _add_hierarchy(self, attribute: Hierarchy) -> None:
        places: dict[str, int] = {}
        for node in attribute.nodes:
            places[node] = len(self.names)
            above = attribute.path(node)[1:2]
            self.names.append(node)
            self.codes.append(attribute.codes(node))
            self.parents.append(places[above[0]] if above else 0)


@dataclass(frozen=True)
class Fourier(Factor):
    """The first so many frequencies of the real Fourier basis over the codes in order, from frequency 0 (the total) up.

    With n codes t = 0 … n − 1 the rows are 1, then √2 cos(2πjt/n) and √2 sin(2πjt/n) for j = 1, 2, …, and (−1)^t for
    j = n/2: an orthogonal basis whose rows all have the squared norm n. Entries are rounded to multiples of 2^−bits.
    """

    frequencies: int
    bits: int = DEFAULT_BITS
    kind: ClassVar[str] = "fourier"

    def bind(self, attribute: Attribute) -> LinearMap:
        return FourierMap.on_lattice(attribute.size, self.frequencies, self.bits)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        names = ["all"]
        for frequency in range(1, self.frequencies):
            names += [f"cosine {frequency}", f"sine {frequency}"]
        return tuple(names[: rows_of(attribute.size, self.frequencies)])

    def on_lattice(self, bits: int) -> "Factor | None":
        return Fourier(self.frequencies, max(bits, 1))

    def to_json(self) -> dict[str, Any]:
        return {"frequencies": self.frequencies, "bits": self.bits}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls(declared.integer("frequencies"), declared.integer("bits"))
