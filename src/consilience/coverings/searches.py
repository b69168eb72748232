"""Covering designs by search: built block by block, and made smaller by moving points between blocks.

Each block is grown point by point around a t-set that no block covers yet.

The gain of a point p for a block B under construction is the number of uncovered t-sets in B ∪ {p} that hold p. When a
point x joins B, exactly the (t−1)-subsets S of B with x ∈ S are new, and gain(p) grows by one for each of them whose
S ∪ {p} is uncovered; so a block of ℓ points takes v·C(ℓ, t−1) steps.
"""

from math import comb

import numpy as np
from numpy.typing import NDArray

from consilience.coverings.sets import (
    add_sets,
    among,
    binomials,
    chance,
    chance_below,
    chance_state,
    count_alone,
    count_sets,
    insert,
    next_places,
    places,
    places_with,
    set_rank,
    strike_off,
    uncovered_sets,
    unrank_set,
)
from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.kernel_cache import njit

MOST_BUILDING_STEPS = 2_000_000_000
"""The most v·C(v, t), which is how long building takes up to a factor: about ten seconds."""


def refuse_large(points: int, block: int, strength: int) -> None:
    """An error, before anything is allocated, where building would take minutes or gigabytes."""
    sets = comb(points, strength)
    steps = sets * points * max(1, block // 8)
    if steps > MOST_BUILDING_STEPS:
        raise TooLarge(
            f"a covering of the {sets:,} sets of {strength} of {points} points would take about {steps:,} steps, and "
            f"at most {MOST_BUILDING_STEPS:,} are taken: lower the strength, cover fewer points, or name the blocks "
            "yourself"
        )


def greedy_rows(points: int, block: int, strength: int, *, seed: int = 0) -> NDArray[np.int16]:
    """Blocks, one in each row, that cover every t-set; a seed other than 0 breaks ties by chance.

    >>> len(greedy_rows(9, 6, 2))
    3
    """
    refuse_large(points, block, strength)
    covered = np.zeros(comb(points, strength), dtype=np.uint8)
    parts = places(block, strength - 1)
    rows = np.empty((64 + 4 * comb(points, strength) // comb(block, strength), block), dtype=np.int16)
    progress = np.zeros(2, dtype=np.int64)
    state = chance_state(seed)
    coefficients = binomials(max(points, block), strength)
    while not _grow(points, strength, seed > 0, coefficients, parts, covered, progress, rows, state):
        rows = np.concatenate([rows, np.empty_like(rows)])
    return np.sort(rows[: progress[1]], axis=1)


@njit(nogil=True, cache=True)
def _grow(
    points, strength, shuffled, coefficients, parts, covered, progress, rows, state
):  # pragma: no cover - compiled
    """Fill rows with blocks; returns False when there is no room. `progress`: the next set to look at, and blocks."""
    block = rows.shape[1]
    gains = np.empty(points, dtype=np.int64)
    inside = np.empty(points, dtype=np.uint8)
    seed_set = np.empty(strength, dtype=np.int64)
    kept = np.empty(strength, dtype=np.int64)
    while True:
        while progress[0] < len(covered) and covered[progress[0]]:
            progress[0] += 1
        if progress[0] == len(covered):
            return True
        if progress[1] == len(rows):
            return False
        row = rows[progress[1]]
        gains[:] = 0
        inside[:] = 0
        unrank_set(progress[0], coefficients, seed_set)
        size = 0
        for i in range(strength):
            size = _join(seed_set[i], row, size, inside, points, strength, coefficients, parts, covered, gains, kept)
        while size < block:
            best = _best(gains, inside, points, shuffled, state)
            if gains[best] == 0:
                best = _start_of_next(progress[0], best, size, row, inside, strength, coefficients, covered, seed_set)
            size = _join(best, row, size, inside, points, strength, coefficients, parts, covered, gains, kept)
        _cover(row, strength, coefficients, covered)
        progress[1] += 1


@njit(nogil=True, cache=True)
def _join(point, row, size, inside, points, strength, coefficients, parts, covered, gains, kept):  # pragma: no cover
    """Put a point into the ascending block and add what it makes others gain; returns the new size."""
    size = insert(row, size, point)
    inside[point] = 1
    at = 0
    while row[at] != point:
        at += 1
    for part in range(len(parts)):
        holds = strength == 1
        fits = True
        for i in range(strength - 1):
            place = parts[part, i]
            fits = fits and place < size
            holds = holds or place == at
        if not (fits and holds):
            continue
        for i in range(strength - 1):
            kept[i] = row[parts[part, i]]
        _add_gains(kept, strength, points, coefficients, covered, gains)
    return size


@njit(nogil=True, cache=True)
def _add_gains(kept, strength, points, coefficients, covered, gains):  # pragma: no cover - compiled
    """Add 1 to the gain of every p outside S = kept[: t−1] for which S ∪ {p} is uncovered, gap by gap of S."""
    for gap in range(strength):
        base = 0
        for i in range(strength - 1):
            base += coefficients[kept[i], i + 1 if i < gap else i + 2]
        low = 0 if gap == 0 else kept[gap - 1] + 1
        high = points if gap == strength - 1 else kept[gap]
        for p in range(low, high):
            gains[p] += 1 - covered[base + coefficients[p, gap + 1]]


@njit(nogil=True, cache=True)
def _best(gains, inside, points, shuffled, state):  # pragma: no cover - compiled
    best, ties = -1, 0
    for p in range(points):
        if inside[p]:
            continue
        if best < 0 or gains[p] > gains[best]:
            best, ties = p, 1
        elif shuffled and gains[p] == gains[best]:
            ties += 1
            if chance(state) * ties < 1.0:
                best = p
    return best


@njit(nogil=True, cache=True)
def _start_of_next(first, otherwise, size, row, inside, strength, coefficients, covered, chosen):  # pragma: no cover
    """A point of an uncovered set that still fits into the block and shares most points with it."""
    best, most, looked = otherwise, -1, 0
    rank = first
    while rank < len(covered) and looked < 64:
        if not covered[rank]:
            looked += 1
            unrank_set(rank, coefficients, chosen)
            shared, missing = 0, -1
            for i in range(strength):
                if inside[chosen[i]]:
                    shared += 1
                else:
                    missing = chosen[i]
            if missing >= 0 and strength - shared <= len(row) - size and shared > most:
                best, most = missing, shared
        rank += 1
    return best


@njit(nogil=True, cache=True)
def _cover(row, strength, coefficients, covered):  # pragma: no cover - compiled
    """Mark every t-subset of a full ascending block."""
    place = np.arange(strength)
    running = True
    while running:
        covered[set_rank(row, place, coefficients)] = 1
        running = next_places(place, len(row))


# ----------------------------------------------------------------------------------------------------------------------
# Fewer blocks that still cover every t-set: needless blocks and points go, short blocks merge, and all are filled up.
#
# A block is needless where each of its t-sets lies in another block too; a point of a block is needless where that
# holds for its t-sets with the point. Two blocks whose union is not too long become one. Points to fill a block up are
# those that the other blocks use least.


MOST_MERGED = 1500
"""Merging compares each short block with each other one: beyond this number only the shortest are compared."""

TIDYING_ROUNDS = 4
"""Rounds at the most; they end before when one takes less than a thousandth of the blocks away."""


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
    for _ in range(TIDYING_ROUNDS):
        before = len(current)
        counts = np.zeros(comb(points, strength), dtype=np.int32)
        lengths = (current >= 0).sum(axis=1)
        count_sets(current, lengths, strength, coefficients, counts)
        alone = count_alone(current, lengths, strength, coefficients, counts)
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
    count_sets(rows, lengths, strength, coefficients, counts)
    return count_alone(rows, lengths, strength, coefficients, counts)


@njit(nogil=True, cache=True)
def _thin(rows, lengths, order, strength, coefficients, counts):  # pragma: no cover - compiled
    """Take needless blocks out (length 0), then needless points out of the others; `counts` follows."""
    needed = np.zeros(rows.shape[1], dtype=np.int64)
    for number in order:
        _need(rows[number], lengths[number], strength, coefficients, counts, needed)
        if needed[: lengths[number]].sum() == 0:
            add_sets(rows[number], lengths[number], -1, strength, coefficients, counts)
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
            add_sets(rows[number], lengths[number], -1, strength, coefficients, counts)
            rows[number, out:-1] = rows[number, out + 1 :].copy()
            rows[number, -1] = -1
            lengths[number] -= 1
            add_sets(rows[number], lengths[number], 1, strength, coefficients, counts)


@njit(nogil=True, cache=True)
def _need(row, length, strength, coefficients, counts, needed):  # pragma: no cover - compiled
    """For each place, the number of t-sets with it that lie in no other block."""
    needed[:] = 0
    place = np.arange(strength)
    running = length >= strength
    while running:
        if counts[set_rank(row, place, coefficients)] == 1:
            for i in range(strength):
                needed[place[i]] += 1
        running = next_places(place, length)


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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


# ----------------------------------------------------------------------------------------------------------------------
# Covering designs with a given number of blocks, found by moving points between blocks.
#
# The cost of a set of blocks is the number of t-sets in none of them. A move picks an uncovered t-set T by chance, and
# a block that holds all but one of its points, and puts the missing point there in place of one outside T; it is taken
# with probability min(1, exp(−Δcost / temperature)). Simulated annealing for coverings is due to Nurmela and Östergård
# (1993); directing the moves at uncovered sets follows the problem-dependent optimisation of Bluskov.


BLOCKS_TRIED = 400
"""How many blocks are looked at for one that nearly holds a set, before the move is given up."""


def annealed(
    rows: NDArray[np.int16], points: int, strength: int, *, moves: int, hot: float, cold: float, seed: int
) -> tuple[NDArray[np.int16], int]:
    """As many blocks as were given, moved towards covering everything, and how many t-sets they leave uncovered.

    The temperature falls geometrically from `hot` to `cold`; the search ends early when nothing is left uncovered.
    """
    current = np.sort(rows, axis=1).astype(np.int16)
    coefficients, parts_with = binomials(points, strength), places_with(rows.shape[1], strength)
    counts, state = np.zeros(comb(points, strength), dtype=np.int16), chance_state(seed)
    left, best = _anneal(current, points, strength, coefficients, parts_with, counts, moves, hot, cold, state)
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


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def _held_by(number, row, parts, coefficients, counts):  # pragma: no cover - compiled
    """How many of the t-sets at some places of a block lie in so many blocks."""
    found = 0
    for part in parts:
        found += counts[set_rank(row, part, coefficients)] == number
    return found


@njit(nogil=True, cache=True)
def _take(row, parts, coefficients, counts, open_sets, where, left):  # pragma: no cover - compiled
    for part in parts:
        rank = set_rank(row, part, coefficients)
        counts[rank] -= 1
        if counts[rank] == 0:
            open_sets[left], where[rank] = rank, left
            left += 1
    return left


@njit(nogil=True, cache=True)
def _give(row, parts, coefficients, counts, open_sets, where, left):  # pragma: no cover - compiled
    for part in parts:
        rank = set_rank(row, part, coefficients)
        counts[rank] += 1
        if counts[rank] == 1:
            left = strike_off(rank, open_sets, where, left)
    return left
