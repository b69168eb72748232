"""The nominal wavelet of a tree of cells (Xiao, Wang, Gehrke 2011, section V) in whole numbers, never as one matrix.

Let s_v be the sum of the cells below node v. The weighted coefficients are s at the root, and for each child v of a
node p that has f ≥ 2 children

    W · (s_v − s_p/f)  with  W = f/(2f − 2),   that is   (f · s_v − s_p) / (2(f − 1)).

All are multiplied by one number L that makes them whole, which changes nothing when their noise grows by L as well:

    L · s_root,      ⌊L / (2(f − 1))⌋ · (f · s_v − s_p).

A cell adds at most L · (f − 1)/(2(f − 1)) = L/2 to the row of the child above it and as much to the rows of its
siblings together: at most L per level. The rows of siblings sum to zero.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.kernels.linear_maps import Array, LinearMap, SparseMap


def whole_scale(fanouts: Sequence[int]) -> int:
    """L: the least common multiple of all 2(f − 1); or, where that is large, a power of two that loses at most 1/32.

    >>> whole_scale([2, 3, 5]), whole_scale([]), whole_scale(range(2, 40))
    (8, 1, 4096)
    """
    doubled = [2 * (fanout - 1) for fanout in fanouts]
    return min(math.lcm(*doubled), 2 ** (32 * max(doubled) - 1).bit_length()) if doubled else 1


@dataclass(frozen=True, eq=False)
class NominalMap(LinearMap):
    """Row i is `own[i]` on the cells below `node[i]` and `shared[i]` on the others below `parent[i]`: whole numbers."""

    members: SparseMap
    """A row of zeros and ones for each node: the cells below it."""
    node: NDArray[np.intp]
    parent: NDArray[np.intp]
    own: NDArray[np.float64]
    shared: NDArray[np.float64]

    @property
    def rows(self) -> int:  # type: ignore[override]
        return int(self.node.size)

    @property
    def columns(self) -> int:  # type: ignore[override]
        return self.members.columns

    @cached_property
    def _from_sums(self) -> SparseMap:
        """From the sums of nodes to the rows: (own − shared) s_node + shared s_parent."""
        rows = np.arange(self.rows)
        entries = np.concatenate([self.own - self.shared, self.shared])
        places = (np.concatenate([rows, rows]), np.concatenate([self.node, self.parent]))
        return SparseMap(sp.csr_array((entries, places), (self.rows, self.members.rows)))

    def apply(self, array: Array, axis: int) -> Array:
        return self._from_sums.apply(self.members.apply(array, axis), axis)

    def adjoint(self, array: Array, axis: int) -> Array:
        return self.members.adjoint(self._from_sums.adjoint(array, axis), axis)

    def column_norms(self, power: int) -> NDArray[np.float64]:
        raised = self._with_entries(np.abs(self.own) ** power, np.abs(self.shared) ** power)
        return np.asarray(raised.adjoint(np.ones(self.rows), 0), dtype=np.float64)

    def squared(self) -> LinearMap:
        return self._with_entries(self.own**2, self.shared**2)

    def _with_entries(self, own: NDArray[np.float64], shared: NDArray[np.float64]) -> "NominalMap":
        return NominalMap(self.members, self.node, self.parent, own, shared)

    @property
    def largest_entry(self) -> float:
        return float(max(np.abs(self.own).max(), np.abs(self.shared).max()))

    @property
    def nonnegative(self) -> bool:
        return bool(self.own.min() >= 0 and self.shared.min() >= 0)
