"""Few flats of a geometry that hold all of its smaller flats, chosen by ruin and recreate.

Any three points of AG(n, 2) lie in exactly one plane, so 3-flats that hold every plane cover all triples by blocks of
eight: of the 620 3-flats of AG(5, 2), 108 suffice. This is a set cover of flats by flats, far smaller than one of
triples by all possible blocks. A round takes some chosen flats out, puts the best ones in until all is covered, drops
those that have become needless, and stays where it is no worse.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.coverings.geometries import affine_flats
from consilience.coverings.sets import Block, chance, chance_below, chance_state
from consilience.kernels.kernel_cache import njit


def chosen_flats(
    dimension: int, order: int, flat: int, smaller: int, *, rounds: int, seed: int = 0
) -> tuple[Block, ...]:
    """Some of the `flat`-dimensional flats of AG(dimension, order) that hold all the `smaller`-dimensional ones.

    >>> len(chosen_flats(4, 2, 3, 1, rounds=200))
    6
    """
    candidates = affine_flats(dimension, order, flat)
    chosen = few_holders(_held(candidates, affine_flats(dimension, order, smaller)), rounds=rounds, seed=seed)
    return tuple(candidates[number] for number in chosen)


def few_holders(held: NDArray[np.int32], *, rounds: int, seed: int = 0) -> list[int]:
    """The numbers of few rows that together hold every element 0..max; each row lists what one candidate holds."""
    holders = _holders(held)
    chosen = _ruin_and_recreate(held, holders, rounds, chance_state(seed))
    return np.flatnonzero(chosen).tolist()


def _held(candidates: Sequence[Block], elements: Sequence[Block]) -> NDArray[np.int32]:
    """For each candidate the numbers of the elements inside it: all have equally many."""
    points = 1 + max(block[-1] for block in candidates)
    large, small = np.zeros((len(candidates), points), np.float32), np.zeros((len(elements), points), np.float32)
    large[np.arange(len(candidates))[:, None], np.array(candidates)] = 1
    small[np.arange(len(elements))[:, None], np.array(elements)] = 1
    inside = large @ small.T == len(elements[0])
    return np.nonzero(inside)[1].reshape(len(candidates), -1).astype(np.int32)


def _holders(held: NDArray[np.int32]) -> NDArray[np.int32]:
    """For each element the candidates that hold it, with −1 behind where there are fewer than for another."""
    elements = int(held.max()) + 1
    times = np.bincount(held.ravel(), minlength=elements)
    holders = np.full((elements, int(times.max())), -1, dtype=np.int32)
    order = np.argsort(held.ravel(), kind="stable")
    owners = (order // held.shape[1]).astype(np.int32)
    place = np.arange(owners.size) - np.repeat(np.cumsum(times) - times, times)
    holders[held.ravel()[order], place] = owners
    return holders


@njit(nogil=True, cache=True)
def _ruin_and_recreate(held, holders, rounds, state):  # pragma: no cover - compiled
    candidates, elements = len(held), len(holders)
    chosen = np.zeros(candidates, dtype=np.uint8)
    counts = np.zeros(elements, dtype=np.int32)
    gains = np.full(candidates, held.shape[1], dtype=np.int32)
    size = _recreate(held, holders, chosen, counts, gains, state)
    best = chosen.copy()
    least = size
    kept = chosen.copy()
    for _ in range(rounds):
        ruined = 2 + chance_below(state, max(2, size // 6))
        element = chance_below(state, elements)
        for _ in range(ruined):
            # Neighbours go together: flats through one element, then through an element of one that has gone.
            victim = -1
            for holder in holders[element]:
                if holder >= 0 and chosen[holder] and (victim < 0 or chance(state) < 0.5):
                    victim = holder
            if victim >= 0:
                _drop(victim, held, holders, chosen, counts, gains)
                element = held[victim, chance_below(state, held.shape[1])]
            else:
                element = chance_below(state, elements)
        _recreate(held, holders, chosen, counts, gains, state)
        now = chosen.sum()
        if now <= size:
            size = now
            kept[:] = chosen
        else:
            for candidate in range(candidates):
                if chosen[candidate] and not kept[candidate]:
                    _drop(candidate, held, holders, chosen, counts, gains)
            for candidate in range(candidates):
                if kept[candidate] and not chosen[candidate]:
                    _choose(candidate, held, holders, chosen, counts, gains)
        if size < least:
            least = size
            best[:] = kept
    return best


@njit(nogil=True, cache=True)
def _choose(candidate, held, holders, chosen, counts, gains):  # pragma: no cover - compiled
    chosen[candidate] = 1
    for element in held[candidate]:
        counts[element] += 1
        if counts[element] == 1:
            for holder in holders[element]:
                if holder >= 0:
                    gains[holder] -= 1


@njit(nogil=True, cache=True)
def _drop(candidate, held, holders, chosen, counts, gains):  # pragma: no cover - compiled
    chosen[candidate] = 0
    for element in held[candidate]:
        counts[element] -= 1
        if counts[element] == 0:
            for holder in holders[element]:
                if holder >= 0:
                    gains[holder] += 1


@njit(nogil=True, cache=True)
def _recreate(held, holders, chosen, counts, gains, state):  # pragma: no cover - compiled
    """Put in the candidate that holds most uncovered elements, ties by chance, until all is covered; then prune."""
    while True:
        best, ties = -1, 0
        for candidate in range(len(held)):
            if best < 0 or gains[candidate] > gains[best]:
                best, ties = candidate, 1
            elif gains[candidate] == gains[best]:
                ties += 1
                if chance(state) * ties < 1.0:
                    best = candidate
        if gains[best] == 0:
            break
        _choose(best, held, holders, chosen, counts, gains)
    size = 0
    start = chance_below(state, len(held))
    for step in range(len(held)):
        candidate = (start + step) % len(held)
        if not chosen[candidate]:
            continue
        needless = True
        for element in held[candidate]:
            needless = needless and counts[element] > 1
        if needless:
            _drop(candidate, held, holders, chosen, counts, gains)
        else:
            size += 1
    return size
