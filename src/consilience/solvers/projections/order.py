"""Counts in a known order: no cell exceeds the next one of its chain."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.compilation import announce
from consilience.solvers.projections.convex_set import Array, lies_in_subspace

SWEEPS = 100_000
PRECISION = 1e-13
"""Overlapping chains are swept until nothing moves by more than this part of the largest value."""


@dataclass(frozen=True, eq=False)
class Isotonic:
    """{x : x does not fall along any chain}; with `decreasing`, does not rise.

    Without `chains` all cells form one chain in the order in which they lie. Chains are lists of positions; those that
    share no cell are projected exactly, by pooling adjacent violators (Ayer et al. 1955), in linear time. Chains that
    share cells make a partial order, for instance the rows and the columns of a table: Dykstra's sweeps (1983) go over
    the chains until they no longer move, which is slower.

    >>> Isotonic().project(np.array([1.0, 5.0, 3.0, 4.0, 9.0]))
    array([1., 4., 4., 4., 9.])
    >>> Isotonic([[0, 1], [0, 2]]).project(np.array([3.0, 1.0, 1.0])).round(6)
    array([1.666667, 1.666667, 1.666667])
    """

    chains: Sequence[Any] | None = None
    decreasing: bool = False
    name: str = "Isotonic"
    _members: NDArray[np.int64] | None = field(init=False, repr=False, default=None)
    _ends: NDArray[np.int64] | None = field(init=False, repr=False, default=None)
    _disjoint: bool = field(init=False, repr=False, default=True)

    def __post_init__(self) -> None:
        if self.chains is None:
            return
        chains = [np.asarray(chain, dtype=np.int64).ravel() for chain in self.chains]
        members = np.concatenate([np.empty(0, dtype=np.int64), *chains])
        if members.min(initial=0) < 0 or any(len(np.unique(chain)) != len(chain) for chain in chains):
            raise DeclarationError(
                f"a chain of {self.name!r} names a cell twice or by a negative number; "
                "a chain lists positions, counted from 0, each once"
            )
        object.__setattr__(self, "_members", members)
        object.__setattr__(self, "_ends", np.cumsum([len(chain) for chain in chains], dtype=np.int64))
        object.__setattr__(self, "_disjoint", len(np.unique(members)) == len(members))

    def project(self, point: Array) -> Array:
        members, ends = self._chains(point)
        sign = -1.0 if self.decreasing else 1.0
        values = sign * point.ravel()
        announce(_sweep)
        corrections = np.zeros(len(members))
        still = PRECISION * float(np.abs(values).max(initial=0.0))
        for _ in range(1 if self._disjoint else SWEEPS):
            if _sweep(values, members, ends, corrections) <= still:
                break
        return sign * values.reshape(point.shape)

    def violation(self, point: Array) -> float:
        members, ends = self._chains(point)
        rises = np.diff(point.ravel()[members])
        starts = ends[(ends > 0) & (ends < len(members))] - 1
        rises[starts] = 0.0
        return float((rises if self.decreasing else -rises).max(initial=0.0))

    def support(self, direction: Array) -> float:
        return 0.0 if lies_in_subspace(self.project(direction), direction) else float("inf")

    def polar(self, direction: Array) -> Array:
        return direction - self.project(direction)

    def _chains(self, point: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._members is None or self._ends is None:
            return np.arange(point.size, dtype=np.int64), np.array([point.size], dtype=np.int64)
        if self._members.max(initial=-1) >= point.size:
            raise DeclarationError(
                f"a chain of {self.name!r} names cell {self._members.max()} and there are {point.size} cells, "
                "counted from 0; correct the chain"
            )
        return self._members, self._ends


# One sweep of Dykstra's algorithm: each chain's cells, with the correction that the chain took last time given back,
# are replaced by their isotonic regression. The corrections' largest change says how far the sweeps are from resting:
# the values alone can rest for a while and move again.
@numba.njit(nogil=True, cache=True)
def _sweep(values, members, ends, corrections):  # pragma: no cover - compiled
    largest_change = 0.0
    begin = 0
    for end in ends:
        offered = values[members[begin:end]] + corrections[begin:end]
        pooled = _pooled(offered)
        for at in range(end - begin):
            correction = offered[at] - pooled[at]
            largest_change = max(largest_change, abs(correction - corrections[begin + at]))
            corrections[begin + at] = correction
            values[members[begin + at]] = pooled[at]
        begin = end
    return largest_change


# Adjacent violators are pooled into blocks with their common mean; the means of the blocks that remain ascend.
@numba.njit(nogil=True, cache=True)
def _pooled(values):  # pragma: no cover - compiled
    size = values.shape[0]
    mean = np.empty(size)
    length = np.empty(size, dtype=np.int64)
    blocks = 0
    for at in range(size):
        mean[blocks], length[blocks] = values[at], 1
        blocks += 1
        while blocks > 1 and mean[blocks - 2] >= mean[blocks - 1]:
            together = length[blocks - 2] + length[blocks - 1]
            share = length[blocks - 1] / together
            mean[blocks - 2] += share * (mean[blocks - 1] - mean[blocks - 2])
            length[blocks - 2] = together
            blocks -= 1
    pooled = np.empty(size)
    at = 0
    for block in range(blocks):
        pooled[at : at + length[block]] = mean[block]
        at += length[block]
    return pooled
