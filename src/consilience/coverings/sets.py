"""Numbers of small sets: the t-sets {p₁ < p₂ < … < p_t} of points in colexicographic order.

    rank = C(p₁, 1) + C(p₂, 2) + … + C(p_t, t),

so that a table over all t-sets of v points is a plain array of C(v, t) entries, and a set keeps its number when points
are added behind.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.kernel_cache import njit
from consilience.kernels.rng import generator

MOST_PAIRED = 1 << 62
"""Binomial coefficients above this are cut off; no table that is ever allocated reaches it."""


@lru_cache(maxsize=256)
def binomials(points: int, strength: int) -> NDArray[np.int64]:
    """The coefficients C(p, i) for p up to `points` and i up to `strength`."""
    entries = [[min(comb(p, i), MOST_PAIRED) for i in range(strength + 1)] for p in range(points + 1)]
    return np.array(entries, dtype=np.int64)


@lru_cache(maxsize=256)
def places(block: int, strength: int) -> NDArray[np.int64]:
    """The `strength`-subsets of the places 0..block−1 of a block, one in each row.

    >>> places(3, 2).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    chosen = list(combinations(range(block), strength))
    return np.array(chosen, dtype=np.int64).reshape(len(chosen), strength)


@lru_cache(maxsize=256)
def places_with(block: int, strength: int) -> NDArray[np.int64]:
    """For each place of a block, the subsets of its places that hold it: shape (block, C(block−1, t−1), t)."""
    chosen = places(block, strength)
    return np.stack([chosen[(chosen == place).any(axis=1)] for place in range(block)])


def unranked(ranks: NDArray[np.int64], points: int, size: int) -> NDArray[np.int64]:
    """The sets with these numbers, one ascending row each.

    >>> unranked(np.array([0, 1, 5]), points=4, size=2).tolist()
    [[0, 1], [0, 2], [2, 3]]
    """
    coefficients = binomials(points, size)
    left = np.array(ranks, dtype=np.int64)
    sets = np.empty((left.size, size), dtype=np.int64)
    for i in range(size, 0, -1):
        sets[:, i - 1] = np.searchsorted(coefficients[:, i], left, side="right") - 1
        left -= coefficients[sets[:, i - 1], i]
    return sets


# ----------------------------------------------------------------------------------------------------------------------
# What the kernels share: running through the t-subsets of a block, and numbering them (see `set_ranks`).


@njit(nogil=True, cache=True)
def next_places(place, size):  # pragma: no cover - compiled
    """Move on to the next ascending choice of places below `size`; False after the last one.

    Like an odometer: the last place that can still move does, and those behind it follow directly.
    """
    chosen = len(place)
    moving = chosen - 1
    while moving >= 0 and place[moving] == size - chosen + moving:
        moving -= 1
    if moving < 0:
        return False
    place[moving] += 1
    for i in range(moving + 1, chosen):
        place[i] = place[i - 1] + 1
    return True


@njit(nogil=True, cache=True)
def set_rank(row, place, coefficients):  # pragma: no cover - compiled
    """The number of the t-set at some ascending places of an ascending row."""
    rank = 0
    for i in range(len(place)):
        rank += coefficients[row[place[i]], i + 1]
    return rank


@njit(nogil=True, cache=True)
def add_sets(row, length, step, strength, coefficients, counts):  # pragma: no cover - compiled
    """Add a step to the counts of a block's t-sets; returns how many are at 0 on the lower side of the step."""
    met = 0
    place = np.arange(strength)
    running = length >= strength
    while running:
        rank = set_rank(row, place, coefficients)
        met += counts[rank] == (1 if step < 0 else 0)
        counts[rank] += step
        running = next_places(place, length)
    return met


@njit(nogil=True, cache=True)
def count_sets(rows, lengths, strength, coefficients, counts):  # pragma: no cover - compiled
    """Count for each t-set the blocks that hold it."""
    for number in range(len(rows)):
        add_sets(rows[number], lengths[number], 1, strength, coefficients, counts)


@njit(nogil=True, cache=True)
def count_alone(rows, lengths, strength, coefficients, counts):  # pragma: no cover - compiled
    """For each block, the number of its t-sets that lie in no other."""
    alone = np.zeros(len(rows), dtype=np.int64)
    for number in range(len(rows)):
        place = np.arange(strength)
        running = lengths[number] >= strength
        while running:
            alone[number] += counts[set_rank(rows[number], place, coefficients)] == 1
            running = next_places(place, lengths[number])
    return alone


@njit(nogil=True, cache=True)
def uncovered_sets(counts):  # pragma: no cover - compiled
    """The t-sets in no block: a list with room for all, where each is in it (−1 elsewhere), and how many there are."""
    listed = np.empty(len(counts), dtype=np.int32)
    where = np.full(len(counts), -1, dtype=np.int32)
    left = 0
    for rank in range(len(counts)):
        if counts[rank] == 0:
            listed[left], where[rank] = rank, left
            left += 1
    return listed, where, left


@njit(nogil=True, cache=True)
def strike_off(rank, listed, where, left):  # pragma: no cover - compiled
    """Take a t-set off the list, whose last one takes its place; returns how many are left."""
    left -= 1
    last = listed[left]
    listed[where[rank]], where[last] = last, where[rank]
    where[rank] = -1
    return left


@njit(nogil=True, cache=True)
def unrank_set(rank, coefficients, chosen):  # pragma: no cover - compiled
    """Write the t-set with a number: its largest point p is the last one with C(p, t) ≤ rank, and so on downwards."""
    for i in range(len(chosen), 0, -1):
        low, high = i - 1, len(coefficients) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if coefficients[middle, i] <= rank:
                low = middle
            else:
                high = middle - 1
        chosen[i - 1] = low
        rank -= coefficients[low, i]


@njit(nogil=True, cache=True)
def among(points, point):  # pragma: no cover - compiled
    """Whether a point is one of some."""
    for other in points:  # noqa: SIM110 - kernels have no generators
        if other == point:
            return True
    return False


@njit(nogil=True, cache=True)
def insert(row, length, point):  # pragma: no cover - compiled
    """Put a point into an ascending row; returns its new length."""
    at = length
    while at > 0 and row[at - 1] > point:
        row[at] = row[at - 1]
        at -= 1
    row[at] = point
    return length + 1


# ----------------------------------------------------------------------------------------------------------------------
# Pseudo-random numbers inside kernels: the generator "splitmix64", whose stream is a function of its state alone.
#
# Kernels cannot take a `Generator`; they take an array with one word of state, which `chance_state` derives from a
# seed.


def chance_state(seed: int) -> NDArray[np.uint64]:
    """The state from which kernels draw; kernels change it in place.

    It comes from the seed by arithmetic alone, so that a search gives the same blocks under every version of numpy.
    """
    if seed < 0:
        raise DeclarationError(f"the seed is {seed}; a seed is a non-negative integer: give one, such as 0")
    return np.array([(seed + 1) * 0xD1342543DE82EF95 % (1 << 64)], dtype=np.uint64)


@njit(nogil=True, cache=True)
def chance(state):  # pragma: no cover - compiled
    """A number in [0, 1) with 53 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    word = state[0]
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word = word ^ (word >> np.uint64(31))
    return np.float64(word >> np.uint64(11)) / 9007199254740992.0


@njit(nogil=True, cache=True)
def chance_below(state, bound):  # pragma: no cover - compiled
    """A whole number in 0..bound−1."""
    return np.int64(chance(state) * bound)


# ----------------------------------------------------------------------------------------------------------------------
# How many t-sets of points lie in no block, counted exhaustively on a bitmap of all of them.


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


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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
