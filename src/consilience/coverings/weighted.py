"""Coverings whose blocks are bounded by their cells, the product of their attributes' sizes.

A greedy covering comes first. Then the block that covers fewest sets alone is taken out, and annealing moves attributes
between the others until everything is covered again; this goes on while it succeeds. At the end attributes that a block
does not need leave it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from consilience.coverings.designs import covering
from consilience.coverings.sets import (
    Block,
    add_sets,
    among,
    binomials,
    chance,
    chance_below,
    chance_state,
    count_alone,
    insert,
    next_places,
    set_rank,
    strike_off,
    uncovered_sets,
    unranked,
)
from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.kernel_cache import njit

# ----------------------------------------------------------------------------------------------------------------------
# Kernels for blocks bounded by their cells: greedy building, annealing and trimming.
#
# A block is an ascending row of points, with its length and its cells (the product of its points' sizes) beside it.
# `counts` says for each t-set in how many blocks it lies; one that no block may hold is counted once from the start.


BOUNDED_BLOCKS_TRIED = 40
"""How many blocks are looked at for one that nearly holds an uncovered set."""

FILLING_TRIES = 3
"""How many points are tried to fill a changed block up with."""


@njit(nogil=True, cache=True)
def build(sizes, most_cells, order, sets, strength, coefficients, counts, rows, lengths, cells):  # pragma: no cover
    """Blocks around uncovered sets in a given order, grown by the point with most newly covered sets for its size.

    Returns the number of blocks. The worth of a point of size n is gain / log n: cells multiply, so their logarithms
    are what a block has to share out.
    """
    points = len(sizes)
    blocks = 0
    inside = np.zeros(points, dtype=np.uint8)
    for first in order:
        if counts[first] > 0:
            continue
        row = rows[blocks]
        inside[:] = 0
        length, product = 0, 1
        for point in sets[first]:
            length = insert(row, length, point)
            inside[point] = 1
            product *= sizes[point]
        growing = True
        while growing:
            best, most = -1, 0.0
            for point in range(points):
                if inside[point] or product * sizes[point] > most_cells:
                    continue
                worth = _gain(row, length, point, strength, coefficients, counts) / np.log(sizes[point] + 0.01)
                if worth > most:
                    best, most = point, worth
            growing = best >= 0
            if growing:
                length = insert(row, length, best)
                inside[best] = 1
                product *= sizes[best]
        lengths[blocks], cells[blocks] = length, product
        add_sets(row, length, 1, strength, coefficients, counts)
        blocks += 1
    return blocks


@njit(nogil=True, cache=True)
def _gain(row, length, point, strength, coefficients, counts):  # pragma: no cover - compiled
    """How many uncovered t-sets a point would complete in a block."""
    gain = 0
    place = np.arange(strength - 1)
    running = length >= strength - 1
    while running:
        rank, before = 0, 0
        for i in range(strength - 1):
            other = row[place[i]]
            if other < point:
                before = i + 1
                rank += coefficients[other, i + 1]
            else:
                rank += coefficients[other, i + 2]
        gain += counts[rank + coefficients[point, before + 1]] == 0
        running = strength > 1 and next_places(place, length)
    return gain


@njit(nogil=True, cache=True)
def anneal(
    rows, lengths, cells, sizes, most_cells, sets, coefficients, counts, moves, hot, cold, state
):  # pragma: no cover - compiled
    """Move points until every set is covered or the moves are used up; returns the sets left uncovered and the moves.

    A move takes an uncovered set and a block that nearly holds it, puts the rest of the set in, and takes out others by
    chance until the block has few enough cells again.
    """
    strength = sets.shape[1]
    points = len(sizes)
    open_sets, where, left = uncovered_sets(counts)
    inside = np.zeros((len(rows), points), dtype=np.uint8)
    for number in range(len(rows)):
        for i in range(lengths[number]):
            inside[number, rows[number, i]] = 1
    moved = np.empty(rows.shape[1] + strength, dtype=np.int16)
    temperature = hot
    cooling = (cold / hot) ** (1000.0 / max(moves, 1))
    move = 0
    while move < moves and left > 0:
        move += 1
        if move % 1000 == 0:
            temperature *= cooling
        chosen = sets[open_sets[chance_below(state, left)]]
        number = _nearest(chosen, inside, state)
        length, product = _changed(
            chosen, rows[number], lengths[number], sizes, cells[number], most_cells, moved, state
        )
        lost = add_sets(rows[number], lengths[number], -1, strength, coefficients, counts)
        won = add_sets(moved, length, 1, strength, coefficients, counts)
        if lost > won and chance(state) >= np.exp((won - lost) / temperature):
            add_sets(moved, length, -1, strength, coefficients, counts)
            add_sets(rows[number], lengths[number], 1, strength, coefficients, counts)
            continue
        left = _refresh(rows[number], lengths[number], strength, coefficients, counts, open_sets, where, left)
        left = _refresh(moved, length, strength, coefficients, counts, open_sets, where, left)
        for i in range(lengths[number]):
            inside[number, rows[number, i]] = 0
        for i in range(length):
            inside[number, moved[i]] = 1
        rows[number, :length] = moved[:length]
        lengths[number], cells[number] = length, product
    return left, move


@njit(nogil=True, cache=True)
def _nearest(chosen, inside, state):  # pragma: no cover - compiled
    """Of some blocks met by chance, one that holds most of a set."""
    best, most = 0, -1
    for _ in range(BOUNDED_BLOCKS_TRIED):
        number = chance_below(state, len(inside))
        held = 0
        for point in chosen:
            held += inside[number, point]
        if held > most:
            best, most = number, held
            if held >= len(chosen) - 1:
                break
    return best


@njit(nogil=True, cache=True)
def _changed(chosen, row, length, sizes, product, most_cells, moved, state):  # pragma: no cover - compiled
    """A block with a set put in and others taken out until it fits; returns its length and its cells."""
    moved[:length] = row[:length]
    for point in chosen:
        if not among(moved[:length], point):
            length = insert(moved, length, point)
            product *= sizes[point]
    while product > most_cells:
        place = chance_below(state, length)
        if sizes[moved[place]] > 1 and not among(chosen, moved[place]):
            product //= sizes[moved[place]]
            length -= 1
            for i in range(place, length):
                moved[i] = moved[i + 1]
    for _ in range(FILLING_TRIES):
        point = chance_below(state, len(sizes))
        if product * sizes[point] <= most_cells and not among(moved[:length], point):
            length = insert(moved, length, point)
            product *= sizes[point]
    return length, product


@njit(nogil=True, cache=True)
def _refresh(row, length, strength, coefficients, counts, open_sets, where, left):  # pragma: no cover - compiled
    """Put the block's sets on the list of uncovered ones or take them off it, as their counts say."""
    place = np.arange(strength)
    running = length >= strength
    while running:
        rank = set_rank(row, place, coefficients)
        if counts[rank] == 0 and where[rank] < 0:
            open_sets[left], where[rank] = rank, left
            left += 1
        elif counts[rank] > 0 and where[rank] >= 0:
            left = strike_off(rank, open_sets, where, left)
        running = next_places(place, length)
    return left


@njit(nogil=True, cache=True)
def trim(rows, lengths, cells, sizes, order, strength, coefficients, counts):  # pragma: no cover - compiled
    """Take points out of blocks, in their order, where every set that they complete lies in another block too."""
    for number in order:
        row = rows[number]
        for point in row[: lengths[number]].copy():
            length = 0
            kept = np.empty(lengths[number], dtype=np.int16)
            for i in range(lengths[number]):
                if row[i] != point:
                    kept[length] = row[i]
                    length += 1
            add_sets(row, lengths[number], -1, strength, coefficients, counts)
            add_sets(kept, length, 1, strength, coefficients, counts)
            if _all_covered(row, lengths[number], strength, coefficients, counts):
                row[:length] = kept[:length]
                lengths[number] = length
                cells[number] //= sizes[point]
            else:
                add_sets(kept, length, -1, strength, coefficients, counts)
                add_sets(row, lengths[number], 1, strength, coefficients, counts)


@njit(nogil=True, cache=True)
def _all_covered(row, length, strength, coefficients, counts):  # pragma: no cover - compiled
    place = np.arange(strength)
    running = length >= strength
    while running:
        if counts[set_rank(row, place, coefficients)] == 0:
            return False
        running = next_places(place, length)
    return True


# ----------------------------------------------------------------------------------------------------------------------
# Coverings whose blocks are bounded by their cells, the product of their attributes' sizes.


@dataclass(frozen=True)
class BoundedSettings:
    """How blocks bounded by their cells are searched for; by trial, and no figures were kept."""

    most_sets: int = 2_000_000
    """The most sets of attributes that are covered by search."""
    largest_bound: int = 1 << 40
    """The most cells that a block may be given."""
    hot: float = 0.2
    """The first temperature of annealing, in sets that a move may leave uncovered."""
    cold: float = 0.1
    """The last one."""
    attempts: int = 3
    """How often annealing may fail in a row before the search ends."""


BOUNDED = BoundedSettings()


@dataclass(eq=False)
class _Blocks:
    """Blocks under construction: ascending rows, their lengths and cells, and how often each t-set is covered."""

    rows: NDArray[np.int16]
    lengths: NDArray[np.int64]
    cells: NDArray[np.int64]
    counts: NDArray[np.int32]

    def without(self, numbers: NDArray[np.int64], strength: int, coefficients: NDArray[np.int64]) -> "_Blocks":
        """The others; the counts follow."""
        counts = self.counts.copy()
        for number in numbers:
            add_sets(self.rows[number], self.lengths[number], -1, strength, coefficients, counts)
        kept = np.delete(np.arange(len(self.rows)), numbers)
        return _Blocks(self.rows[kept], self.lengths[kept], self.cells[kept], counts)


def weighted_covering(sizes: Sequence[int], most_cells: int, strength: int, *, seed: int = 0) -> tuple[Block, ...]:
    """Sets of attributes with at most `most_cells` cells, few of them, that hold every `strength` attributes together.

    A set of `strength` attributes that has more cells by itself gets a block of its own. Where all attributes have the
    same size the blocks are those of `covering`.

    >>> weighted_covering([10, 10, 2, 2], most_cells=40, strength=2)
    ((0, 1), (0, 2, 3), (1, 2, 3))
    """
    _check(sizes, most_cells, strength)
    attributes = len(sizes)
    if prod(sizes) <= most_cells or strength >= attributes:
        return (tuple(range(attributes)),)
    if min(sizes) == max(sizes):
        block = _exponent(sizes[0], most_cells)
        return covering(attributes, max(block, strength), strength)
    # Attributes go by falling size: blocks do not depend on how they are declared, and trimming takes large ones first.
    order = sorted(range(attributes), key=lambda attribute: -sizes[attribute])
    found = _searched(np.array([sizes[attribute] for attribute in order]), most_cells, strength, seed)
    return tuple(sorted(tuple(sorted(order[point] for point in block)) for block in found))


def _check(sizes: Sequence[int], most_cells: int, strength: int) -> None:
    if not sizes or min(sizes) < 1:
        raise DeclarationError(
            f"the sizes {tuple(sizes)} are not the sizes of attributes: give at least one, all above 0"
        )
    if not 1 <= most_cells <= BOUNDED.largest_bound or strength < 1:
        raise DeclarationError(
            f"blocks of at most {most_cells} cells and strength {strength}: give 1 to {BOUNDED.largest_bound:,} cells "
            f"and a strength of at least 1"
        )
    sets = comb(len(sizes), strength)
    if sets > BOUNDED.most_sets:
        raise TooLarge(
            f"there are {sets:,} sets of {strength} of {len(sizes)} attributes, and at most {BOUNDED.most_sets:,} are "
            f"covered by search: lower the strength, or name the blocks yourself"
        )


def _exponent(base: int, bound: int) -> int:
    """The largest n with baseⁿ ≤ bound."""
    exponent, power = 0, base
    while power <= bound:
        exponent, power = exponent + 1, power * base
    return exponent


def _searched(sizes: NDArray[np.int64], most_cells: int, strength: int, seed: int) -> list[list[int]]:
    """Blocks over attributes that are ordered by falling size."""
    coefficients = binomials(len(sizes), strength)
    sets = unranked(np.arange(comb(len(sizes), strength)), len(sizes), strength)
    set_cells = np.prod(sizes[sets].astype(float), axis=1)
    own = set_cells > most_cells
    blocks = _greedy(sizes, most_cells, sets, own, np.argsort(-set_cells, kind="stable"), coefficients)
    blocks = _fewer(blocks, sizes, most_cells, sets, coefficients, seed)
    order = np.argsort(-blocks.cells, kind="stable")
    trim(blocks.rows, blocks.lengths, blocks.cells, sizes, order, strength, coefficients, blocks.counts)
    kept = [
        row[:length].tolist() for row, length in zip(blocks.rows, blocks.lengths, strict=True) if length >= strength
    ]
    return kept + sets[own].tolist()


def _greedy(
    sizes: NDArray[np.int64],
    most_cells: int,
    sets: NDArray[np.int64],
    own: NDArray[np.bool_],
    order: NDArray[np.int64],
    coefficients: NDArray[np.int64],
) -> _Blocks:
    points, most = len(sizes), int((~own).sum())
    # No block is longer than the smallest attributes that fit together.
    longest = int((np.cumprod(np.sort(sizes).astype(float)) <= most_cells).sum())
    width = min(points, max(longest, sets.shape[1]) + 1)
    rows, lengths = np.zeros((most, width), dtype=np.int16), np.zeros(most, dtype=np.int64)
    cells, counts = np.ones(most, dtype=np.int64), own.astype(np.int32)
    made = build(sizes, most_cells, order, sets, sets.shape[1], coefficients, counts, rows, lengths, cells)
    return _Blocks(rows[:made].copy(), lengths[:made].copy(), cells[:made].copy(), counts)


def _fewer(
    blocks: _Blocks,
    sizes: NDArray[np.int64],
    most_cells: int,
    sets: NDArray[np.int64],
    coefficients: NDArray[np.int64],
    seed: int,
) -> _Blocks:
    """As few of the blocks, with attributes moved, as the search can do with."""
    strength = sets.shape[1]
    state = chance_state(seed)
    budget = _moves(len(sets), strength)
    share = budget // (2 * BOUNDED.attempts)
    step, failures = max(1, len(blocks.rows) // 30), 0
    while failures < BOUNDED.attempts and len(blocks.rows) > step and budget > 0:
        worth = count_alone(blocks.rows, blocks.lengths, strength, coefficients, blocks.counts)
        # After a failure other blocks are taken out, so that it is not simply repeated.
        first = min(failures, len(worth) - step)
        out = np.argsort(worth, kind="stable")[first : first + step]
        tried = blocks.without(out, strength, coefficients)
        left, used = anneal(
            tried.rows,
            tried.lengths,
            tried.cells,
            sizes,
            most_cells,
            sets,
            coefficients,
            tried.counts,
            min(budget, share),
            BOUNDED.hot,
            BOUNDED.cold,
            state,
        )
        budget -= used
        if left == 0:
            blocks, failures = tried, 0
        elif step > 1:
            step //= 2
        else:
            failures += 1
    return blocks


def _moves(sets: int, strength: int) -> int:
    """How many moves one search may make: more for more sets, within seconds."""
    return min(6_000 * sets, 500_000 + 150 * sets, 1_200_000 if strength <= 2 else 600_000)
