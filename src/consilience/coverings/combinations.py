"""Covering designs from others: points multiplied or taken away, and the points split in two parts.

**Weighted points.** Each point of a design becomes as many points as its weight says; 0 takes it away. A block that is
then too long is covered in turn; one that is too short is filled up later. (The induced coverings of Gordon, Kuperberg
and Patashnik 1995.)

**Split points.** Let the points be v₁ + v₂. A t-set with s points in the first part lies in a product of two blocks,
one from a design for s on the first part and one from a design for t−s on the second; so products of designs over all
s cover everything. A group of values s = a..b is served at once by designs for b and for t−a with blocks of k and ℓ−k
points, and the sum over the groups is what the dynamic programming of the same paper makes small:

    C(v, ℓ, t) ≤ Σ_groups C(v₁, k, b) · C(v₂, ℓ−k, t−a)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.coverings.coverage import Block, block_rows
from consilience.errors import DeclarationError

Design = Callable[[int, int, int], NDArray[np.int16]]
"""The rows of a covering design with these points, block size and strength."""


@dataclass(frozen=True)
class Group:
    """What covers the t-sets with `low`..`high` points in the first part: blocks with `first` points there."""

    low: int
    high: int
    first: int


def spread_weights(points: int, base: int, order: Sequence[int]) -> list[int]:
    """Weights of `base` points that add up to `points`, as equal as can be, the larger ones first in `order`.

    >>> spread_weights(5, 3, [2, 0, 1])
    [2, 1, 2]
    """
    weights = [points // base] * base
    for point in order[: points % base]:
        weights[point] += 1
    return weights


def weighted_rows(
    blocks: Sequence[Block], weights: Sequence[int], block: int, strength: int, design: Design
) -> NDArray[np.int16]:
    """Blocks of at most `block` points over Σ weights points, from a design over the points that have the weights."""
    ends = np.cumsum(weights).tolist()
    copies = [range(end - weight, end) for end, weight in zip(ends, weights, strict=True)]
    fitting: list[Sequence[int]] = []
    parts: list[NDArray[np.int16]] = []
    for each in blocks:
        replaced = [copy for point in each for copy in copies[point]]
        if len(replaced) > block:
            parts.append(np.array(replaced, dtype=np.int16)[design(len(replaced), block, strength)])
        elif len(replaced) >= strength:
            fitting.append(replaced)
    return np.concatenate([block_rows(fitting, block), *parts])


def split_rows(
    first: int, points: int, block: int, strength: int, groups: Sequence[Group], design: Design
) -> NDArray[np.int16]:
    """The products of designs on the points 0..first−1 and on the others, group by group."""
    parts = []
    for group in groups:
        if not 0 <= group.first <= min(first, block):
            raise DeclarationError(f"a block of {block} cannot hold {group.first} of the first {first} points")
        left = _part(first, group.first, group.high, design)
        right = _part(points - first, block - group.first, strength - group.low, design)
        shifted = np.where(right >= 0, right + first, -1)
        pairs = np.concatenate([np.repeat(left, len(right), axis=0), np.tile(shifted, (len(left), 1))], axis=1)
        parts.append(_packed(pairs, block))
    return np.concatenate(parts)


def _part(points: int, block: int, strength: int, design: Design) -> NDArray[np.int16]:
    """A design on one part; all of its points in one block where they fit, and any points where none is asked for."""
    if block >= points or strength == 0:
        return np.arange(min(points, block), dtype=np.int16)[None, :]
    return design(points, block, strength)


def _packed(rows: NDArray[np.int16], block: int) -> NDArray[np.int16]:
    """Ascending rows with −1 at the end, as wide as a block."""
    wide = np.full((len(rows), max(block, rows.shape[1])), np.int16(32767))
    wide[:, : rows.shape[1]] = np.where(rows < 0, np.int16(32767), rows)
    wide.sort(axis=1)
    return np.where(wide == 32767, np.int16(-1), wide)[:, :block]
