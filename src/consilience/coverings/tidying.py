"""Fewer blocks that still cover every t-set: needless blocks and points go, short blocks merge, and all are filled up.

A block is needless where each of its t-sets lies in another block too; a point of a block is needless where that holds
for its t-sets with the point. Two blocks whose union is not too long become one. Points to fill a block up are those
that the other blocks use least.
"""

from math import comb

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.coverings.set_kernels import next_places, set_rank
from consilience.coverings.set_ranks import binomials
from consilience.errors import DeclarationError
from consilience.kernels.compilation import announce

MOST_MERGED = 1500
"""Merging compares each short block with each other one: beyond this number only the shortest are compared."""

ROUNDS = 4


def tidied(rows: NDArray[np.integer], points: int, strength: int) -> NDArray[np.int16]:
    """Full blocks, at most as many as were given, that cover every t-set that the given ones cover.

    Rows are ascending, with −1 behind the points of a short block.

    >>> tidied(np.array([[0, 1, 2], [1, 2, -1], [3, -1, -1]]), points=4, strength=2).tolist()
    [[0, 1, 2]]
    """
    block = rows.shape[1]
    if points < block:
        raise DeclarationError(
            f"blocks of {block} among {points} points cannot be filled up: give one block of them all"
        )
    current = np.unique(rows.astype(np.int16), axis=0)
    coefficients = binomials(points, strength)
    announce(_thin)
    for _ in range(ROUNDS):
        before = len(current)
        counts = np.zeros(comb(points, strength), dtype=np.int32)
        lengths = (current >= 0).sum(axis=1)
        _count(current, lengths, strength, coefficients, counts, 1)
        alone = _count_alone(current, lengths, strength, coefficients, counts)
        _thin(current, lengths, np.argsort(alone, kind="stable"), strength, coefficients, counts)
        kept = lengths >= strength
        current, lengths = current[kept], lengths[kept]
        short = np.flatnonzero(lengths < block)
        short = short[np.argsort(-lengths[short], kind="stable")][-MOST_MERGED:]
        _merge(current, lengths, short, points)
        current, lengths = current[lengths > 0], lengths[lengths > 0]
        _fill(current, lengths, points)
        if before - len(current) <= before // 1000:
            break
    return np.sort(current, axis=1)


def alone_counts(rows: NDArray[np.int16], points: int, strength: int) -> NDArray[np.int64]:
    """For each block, the number of its t-sets that lie in no other: what would be uncovered without it."""
    coefficients = binomials(points, strength)
    lengths = (rows >= 0).sum(axis=1)
    counts = np.zeros(comb(points, strength), dtype=np.int32)
    _count(rows, lengths, strength, coefficients, counts, 1)
    return _count_alone(rows, lengths, strength, coefficients, counts)


@numba.njit(nogil=True, cache=True)
def _count(rows, lengths, strength, coefficients, counts, step):  # pragma: no cover - compiled
    for number in range(len(rows)):
        if lengths[number] < strength:
            continue
        place = np.arange(strength)
        running = True
        while running:
            counts[set_rank(rows[number], place, coefficients)] += step
            running = next_places(place, lengths[number])


@numba.njit(nogil=True, cache=True)
def _count_alone(rows, lengths, strength, coefficients, counts):  # pragma: no cover - compiled
    """For each block, the number of its t-sets that lie in no other."""
    alone = np.zeros(len(rows), dtype=np.int64)
    for number in range(len(rows)):
        if lengths[number] < strength:
            continue
        place = np.arange(strength)
        running = True
        while running:
            alone[number] += counts[set_rank(rows[number], place, coefficients)] == 1
            running = next_places(place, lengths[number])
    return alone


@numba.njit(nogil=True, cache=True)
def _thin(rows, lengths, order, strength, coefficients, counts):  # pragma: no cover - compiled
    """Take needless blocks out (length 0), then needless points out of the others; `counts` follows."""
    needed = np.zeros(rows.shape[1], dtype=np.int64)
    for number in order:
        _need(rows[number], lengths[number], strength, coefficients, counts, needed)
        if needed[: lengths[number]].sum() == 0:
            _count(rows[number : number + 1], lengths[number : number + 1], strength, coefficients, counts, -1)
            rows[number] = -1
            lengths[number] = 0
    for number in order:
        while lengths[number] > 0:
            _need(rows[number], lengths[number], strength, coefficients, counts, needed)
            out = -1
            for i in range(lengths[number]):
                if needed[i] == 0:
                    out = i
            if out < 0:
                break
            _count(rows[number : number + 1], lengths[number : number + 1], strength, coefficients, counts, -1)
            rows[number, out:-1] = rows[number, out + 1 :].copy()
            rows[number, -1] = -1
            lengths[number] -= 1
            _count(rows[number : number + 1], lengths[number : number + 1], strength, coefficients, counts, 1)


@numba.njit(nogil=True, cache=True)
def _need(row, length, strength, coefficients, counts, needed):  # pragma: no cover - compiled
    """For each place, the number of t-sets with it that lie in no other block."""
    needed[:] = 0
    if length < strength:
        return
    place = np.arange(strength)
    running = True
    while running:
        if counts[set_rank(row, place, coefficients)] == 1:
            for i in range(strength):
                needed[place[i]] += 1
        running = next_places(place, length)


@numba.njit(nogil=True, cache=True)
def _merge(rows, lengths, short, points):  # pragma: no cover - compiled
    """Put each short block, longest first, into the one before it with which it shares most and still fits."""
    inside = np.zeros((len(short), points), dtype=np.uint8)
    block = rows.shape[1]
    for i in range(len(short)):
        row, best, most = rows[short[i]], -1, -1
        for j in range(i):
            if lengths[short[j]] == 0 or lengths[short[j]] == block:
                continue
            shared = 0
            for place in range(lengths[short[i]]):
                shared += inside[j, row[place]]
            if lengths[short[j]] + lengths[short[i]] - shared <= block and shared > most:
                best, most = j, shared
        into = i if best < 0 else best
        for place in range(lengths[short[i]]):
            inside[into, row[place]] = 1
        if best >= 0:
            lengths[short[i]] = 0
            length = 0
            for p in range(points):
                if inside[best, p]:
                    rows[short[best], length] = p
                    length += 1
            lengths[short[best]] = length


@numba.njit(nogil=True, cache=True)
def _fill(rows, lengths, points):  # pragma: no cover - compiled
    """Fill every block up with the points that are used least so far."""
    used = np.zeros(points, dtype=np.int64)
    for number in range(len(rows)):
        for i in range(lengths[number]):
            used[rows[number, i]] += 1
    inside = np.zeros(points, dtype=np.uint8)
    for number in range(len(rows)):
        if lengths[number] == rows.shape[1]:
            continue
        inside[:] = 0
        for i in range(lengths[number]):
            inside[rows[number, i]] = 1
        for _ in range(lengths[number], rows.shape[1]):
            least = -1
            for p in range(points):
                if not inside[p] and (least < 0 or used[p] < used[least]):
                    least = p
            inside[least] = 1
            used[least] += 1
        length = 0
        for p in range(points):
            if inside[p]:
                rows[number, length] = p
                length += 1
