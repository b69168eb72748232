"""Factors that are transforms: the nominal wavelet, in whole numbers, and the Fourier basis on a lattice."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from consilience.domain.attributes import Attribute, Hierarchy
from consilience.domain.declarations import Declaration
from consilience.domain.factors.base import Factor, indicators
from consilience.kernels.linear_maps import LinearMap
from consilience.kernels.transforms import FourierMap, NominalMap, rows_of, whole_scale

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
