"""How many t-sets of points lie in no block, counted exhaustively on a bitmap of all of them."""

from collections.abc import Iterable, Sequence
from itertools import chain
from math import comb

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.coverings.set_kernels import next_places, set_rank
from consilience.coverings.set_ranks import binomials
from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.compilation import announce
from consilience.kernels.rng import generator

Block = tuple[int, ...]
"""Points of a block, ascending, numbered from 0."""

MOST_SETS_ON_A_BITMAP = 1 << 32
"""The most t-sets that are counted one by one: a bitmap of half a gigabyte."""

MOST_SETS_EXACTLY = 100_000_000
"""`coverage` looks at every t-set up to this number, and at a sample above it."""

SAMPLED_SETS = 200_000
"""How many t-sets the sample holds: the share then has a standard error of at most 0.0012."""

MOST_WORDS = 1 << 27
"""The most words of blocks as bits that a sampled coverage holds at once."""


def uncovered(blocks: Iterable[Sequence[int]], points: int, strength: int) -> int:
    """The number of `strength`-sets of points that lie in no block.

    >>> uncovered([(0, 1, 2), (0, 3)], points=4, strength=2)
    2
    """
    checked = _checked(blocks, points, strength)
    sets = comb(points, strength)
    if sets > MOST_SETS_ON_A_BITMAP:
        raise TooLarge(
            f"there are {sets:,} sets of {strength} of {points} points and at most {MOST_SETS_ON_A_BITMAP:,} are "
            f"counted one by one: ask `coverage` for the share of a sample, or lower the strength"
        )
    if strength == 0:
        return 0 if checked else 1
    if sets == 0:
        return 0
    bitmap = np.zeros((sets + 63) // 64, dtype=np.uint64)
    starts, flat = _flattened(checked)
    announce(_mark)
    return sets - int(_mark(starts, flat, strength, binomials(points, strength), bitmap))


def coverage(blocks: Iterable[Sequence[int]], points: int, strength: int) -> float:
    """The share of the `strength`-sets of points that lie in some block.

    It is exact up to a hundred million sets, and above that the share among the same 200,000 sets every time.

    >>> coverage([(0, 1, 2), (0, 3)], points=4, strength=2)
    0.6666666666666666
    """
    checked = _checked(blocks, points, strength)
    sets = comb(points, strength)
    if sets == 0:
        return 1.0
    if sets <= MOST_SETS_EXACTLY:
        return (sets - uncovered(checked, points, strength)) / sets
    members = np.zeros((points, (len(checked) + 63) // 64), dtype=np.uint64)
    if members.size > MOST_WORDS:
        raise TooLarge(f"{len(checked):,} blocks of {points:,} points are too many to sample: give fewer blocks")
    for number, block in enumerate(checked):
        members[list(block), number // 64] |= np.uint64(1 << (number % 64))
    rng = generator(0)
    drawn = np.sort(rng.integers(0, points, size=(SAMPLED_SETS, strength)), axis=1)
    drawn = drawn[(np.diff(drawn, axis=1) > 0).all(axis=1)]
    announce(_shared)
    return int(_shared(members, drawn)) / len(drawn)


def block_rows(blocks: Sequence[Sequence[int]], width: int) -> NDArray[np.int16]:
    """The blocks as rows of one array, ascending, with −1 behind the points of a shorter block."""
    rows = np.full((len(blocks), width), -1, dtype=np.int16)
    for row, block in zip(rows, blocks, strict=True):
        row[: len(block)] = sorted(block)
    return rows


def row_blocks(rows: NDArray[np.integer]) -> tuple[Block, ...]:
    """The blocks that some rows hold, in lexicographic order."""
    return tuple(sorted(tuple(point for point in row if point >= 0) for row in rows.tolist()))


def _checked(blocks: Iterable[Sequence[int]], points: int, strength: int) -> list[Block]:
    if points < 0 or strength < 0:
        raise DeclarationError(f"{points} points and strength {strength}: both are counts, give 0 or more")
    checked = [tuple(sorted(set(block))) for block in blocks]
    for block in checked:
        if block and not 0 <= block[0] <= block[-1] < points:
            raise DeclarationError(f"the block {block} has points outside 0..{points - 1}: number the points from 0")
    return checked


def _flattened(blocks: Sequence[Block]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    starts = np.cumsum([0, *(len(block) for block in blocks)]).astype(np.int64)
    return starts, np.fromiter(chain.from_iterable(blocks), dtype=np.int64, count=int(starts[-1]))


@numba.njit(nogil=True, cache=True)
def _mark(starts, flat, strength, coefficients, bitmap):  # pragma: no cover - compiled
    """Set the bit of every t-set inside a block; returns how many bits are set."""
    marked = 0
    for block in range(len(starts) - 1):
        row = flat[starts[block] : starts[block + 1]]
        place = np.arange(strength)
        running = len(row) >= strength
        while running:
            rank = set_rank(row, place, coefficients)
            bit = np.uint64(1) << np.uint64(rank & 63)
            if bitmap[rank >> 6] & bit == 0:
                bitmap[rank >> 6] |= bit
                marked += 1
            running = next_places(place, len(row))
    return marked


@numba.njit(nogil=True, cache=True)
def _shared(members, drawn):  # pragma: no cover - compiled
    """How many of the drawn sets have a block in common."""
    found = 0
    for number in range(len(drawn)):
        for word in range(members.shape[1]):
            common = members[drawn[number, 0], word]
            for i in range(1, drawn.shape[1]):
                common &= members[drawn[number, i], word]
            if common != 0:
                found += 1
                break
    return found
