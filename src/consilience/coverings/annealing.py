"""Covering designs with a given number of blocks, found by moving points between blocks.

The cost of a set of blocks is the number of t-sets in none of them. A move picks an uncovered t-set T by chance, and a
block that holds all but one of its points, and puts the missing point there in place of one outside T; it is taken
with probability min(1, exp(−Δcost / temperature)). Simulated annealing for coverings is due to Nurmela and Östergård
(1993); directing the moves at uncovered sets follows the problem-dependent optimisation of Bluskov.
"""

from math import comb

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.coverings.greedy import alone_counts
from consilience.coverings.sets import (
    add_sets,
    among,
    binomials,
    chance,
    chance_below,
    chance_state,
    places_with,
    set_rank,
    strike_off,
    uncovered_sets,
    unrank_set,
)
from consilience.kernels.compilation import announce

BLOCKS_TRIED = 400
"""How many blocks are looked at for one that nearly holds a set, before the move is given up."""


def annealed(
    rows: NDArray[np.int16], points: int, strength: int, *, moves: int, hot: float, cold: float, seed: int
) -> tuple[NDArray[np.int16], int]:
    """As many blocks as were given, moved towards covering everything, and how many t-sets they leave uncovered.

    The temperature falls geometrically from `hot` to `cold`; the search ends early when nothing is left uncovered.
    """
    block = rows.shape[1]
    current = np.sort(rows, axis=1).astype(np.int16)
    announce(_anneal)
    left, best = _anneal(
        current,
        points,
        strength,
        binomials(points, strength),
        places_with(block, strength),
        np.zeros(comb(points, strength), dtype=np.int16),
        moves,
        hot,
        cold,
        chance_state(seed),
    )
    return best, int(left)


def fewer_blocks(
    rows: NDArray[np.int16], points: int, strength: int, *, moves: int, seed: int = 0
) -> NDArray[np.int16]:
    """Blocks that still cover everything, fewer of them where annealing with one block less succeeds.

    Each time the block goes that covers fewest sets alone; after two failures in a row the search ends.
    """
    failures = 0
    while failures < 2 and len(rows) > 1:
        order = np.argsort(alone_counts(rows, points, strength), kind="stable")
        tried, left = annealed(
            np.delete(rows, order[failures], axis=0),
            points,
            strength,
            moves=moves,
            hot=0.6 if failures == 0 else 0.3,
            cold=0.15,
            seed=seed + failures,
        )
        failures = failures + 1 if left else 0
        rows = rows if left else tried
    return rows


@numba.njit(nogil=True, cache=True)
def _anneal(
    rows, points, strength, coefficients, parts_with, counts, moves, hot, cold, state
):  # pragma: no cover - compiled
    inside = np.zeros((len(rows), points), dtype=np.uint8)
    for number in range(len(rows)):
        add_sets(rows[number], rows.shape[1], 1, strength, coefficients, counts)
        for point in rows[number]:
            inside[number, point] = 1
    open_sets, where, left = uncovered_sets(counts)
    best, best_left = rows.copy(), left
    moved = np.empty(rows.shape[1], dtype=np.int16)
    chosen = np.empty(strength, dtype=np.int64)
    temperature = hot
    cooling = (cold / hot) ** (1000.0 / moves) if moves > 0 else 1.0
    for move in range(moves):
        if left == 0:
            break
        if move % 1000 == 999:
            temperature *= cooling
        unrank_set(open_sets[chance_below(state, left)], coefficients, chosen)
        number, missing = _near(chosen, inside, state)
        if number < 0:
            continue
        row = rows[number]
        place = chance_below(state, len(row))
        if among(chosen, row[place]):
            continue
        _replaced(row, place, missing, moved)
        at = 0
        while moved[at] != missing:
            at += 1
        lost = _held_by(1, row, parts_with[place], coefficients, counts)
        change = lost - _held_by(0, moved, parts_with[at], coefficients, counts)
        if change > 0 and chance(state) >= np.exp(-change / temperature):
            continue
        left = _take(row, parts_with[place], coefficients, counts, open_sets, where, left)
        inside[number, row[place]] = 0
        inside[number, missing] = 1
        row[:] = moved
        left = _give(row, parts_with[at], coefficients, counts, open_sets, where, left)
        if left < best_left:
            best_left = left
            best[:] = rows
    return best_left, best


@numba.njit(nogil=True, cache=True)
def _near(chosen, inside, state):  # pragma: no cover - compiled
    """A block by chance that holds all points of a set but one, and that one; −1 where none was met."""
    for _ in range(BLOCKS_TRIED):
        number = chance_below(state, len(inside))
        held, missing = 0, -1
        for point in chosen:
            if inside[number, point]:
                held += 1
            else:
                missing = point
        if held == len(chosen) - 1:
            return number, missing
    return -1, -1


@numba.njit(nogil=True, cache=True)
def _replaced(row, place, point, moved):  # pragma: no cover - compiled
    """The ascending block with the point at a place exchanged."""
    at = 0
    for i in range(len(row)):
        if i != place:
            moved[at] = row[i]
            at += 1
    while at > 0 and moved[at - 1] > point:
        moved[at] = moved[at - 1]
        at -= 1
    moved[at] = point


@numba.njit(nogil=True, cache=True)
def _held_by(number, row, parts, coefficients, counts):  # pragma: no cover - compiled
    """How many of the t-sets at some places of a block lie in so many blocks."""
    found = 0
    for part in parts:
        found += counts[set_rank(row, part, coefficients)] == number
    return found


@numba.njit(nogil=True, cache=True)
def _take(row, parts, coefficients, counts, open_sets, where, left):  # pragma: no cover - compiled
    for part in parts:
        rank = set_rank(row, part, coefficients)
        counts[rank] -= 1
        if counts[rank] == 0:
            open_sets[left], where[rank] = rank, left
            left += 1
    return left


@numba.njit(nogil=True, cache=True)
def _give(row, parts, coefficients, counts, open_sets, where, left):  # pragma: no cover - compiled
    for part in parts:
        rank = set_rank(row, part, coefficients)
        counts[rank] += 1
        if counts[rank] == 1:
            left = strike_off(rank, open_sets, where, left)
    return left
