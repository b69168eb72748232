"""How much one attribute depends on others, in whole numbers (Zhang et al. 2017, section 4).

Tables are counts n(π, x), a row for each combination π of the parents' values and a column for each value x of the
child; n(π) and n(x) are the sums of rows and columns, and M is the sum of all. Three measures of dependence:

    R = ½ Σ |n(π, x) − n(π) n(x) / M|                 the distance from independence, in records
    F = −min over halves (½N − K₀)₊ + (½N − K₁)₊      the distance to the nearest perfect dependence, for two columns
    I = Σ n(π, x) log(n(π, x) M / (n(π) n(x)))        the mutual information, times M

In F every row π belongs to one of two halves, and K_x is the sum of n(π, x) over the rows of half x: a table in which
one half has x = 0 alone and the other x = 1 alone, with N/2 records each, is as dependent as can be. N is a public
number. The paper divides all three by the number of records; as counts they need not know it.

Each is an exact whole number of units, so that a sensitivity proven for it is the sensitivity of what is computed.
"""

from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.errors import TooLarge
from consilience.kernels.compilation import announce

Integers = NDArray[np.int64]

MOST_RECORDS_IN_WORDS = 2**30
"""Up to so many records M · n(π, x), summed over all cells, fits in 63 bits; more are counted in unbounded integers."""

LONGEST_LADDER = 2**24


def distances_from_independence(tables: Sequence[Integers], bits: int) -> Integers:
    """⌊2^bits R⌋ of each table, exactly.

    >>> distances_from_independence([np.array([[2, 0], [0, 2]]), np.array([[1, 1], [1, 1]])], 3).tolist()
    [16, 0]
    """
    found = np.zeros(len(tables), dtype=np.int64)
    for places, stack in _by_shape(tables):
        records = stack.sum(axis=(1, 2))
        wide = int(records.max(initial=0)) > MOST_RECORDS_IN_WORDS
        exact = stack.astype(object) if wide else stack
        products = exact.sum(axis=2, keepdims=True) * exact.sum(axis=1, keepdims=True)
        twice = np.abs(exact.sum(axis=(1, 2), keepdims=True) * exact - products).sum(axis=(1, 2))
        # 2^bits · Σ|M n − n n| needs more than 63 bits for many records: the quotient is taken in unbounded integers.
        pairs = zip(twice.tolist(), records.tolist(), strict=True)
        found[places] = [(int(sum_) << bits) // (2 * total) if total else 0 for sum_, total in pairs]
    return found


def ladder(records: int, bits: int) -> Integers:
    """Whole steps γ(0) ≤ γ(1) ≤ …, one for each number up to `records`, of about 2^bits (h(n + 1) − h(n)).

    Here h(n) = n log n. The steps never fall and begin at 0, whatever floating point did to them: that is all a proof
    of sensitivity needs.
    """
    if records > LONGEST_LADDER:
        raise TooLarge(
            f"mutual information looks up n log n for up to {records:,} records, and {LONGEST_LADDER:,} are allowed; "
            'use the score "R"'
        )
    numbers = np.arange(1, records + 1, dtype=np.float64)
    steps = numbers * np.log1p(1.0 / numbers) + np.log(numbers)
    steps = np.concatenate([[0.0], steps + np.log1p(1.0 / numbers)])
    return np.maximum.accumulate(np.rint(np.ldexp(steps, bits)).astype(np.int64))


def informations(tables: Sequence[Integers], steps: Integers) -> Integers:
    """I of each table in the units of the ladder: H(M) + Σ H(n(π, x)) − Σ H(n(π)) − Σ H(n(x)), H the sum of steps.

    Beyond the last step all steps are alike.
    """
    heights = np.concatenate([[0], np.cumsum(steps)])
    last = len(steps)

    def height(counts: Integers) -> Integers:
        return heights[np.minimum(counts, last)] + np.maximum(counts - last, 0) * steps[-1]

    found = np.zeros(len(tables), dtype=np.int64)
    for places, stack in _by_shape(tables):
        found[places] = (
            height(stack.sum(axis=(1, 2)))
            + height(stack).sum(axis=(1, 2))
            - height(stack.sum(axis=2)).sum(axis=1)
            - height(stack.sum(axis=1)).sum(axis=1)
        )
    return found


def distances_to_dependence(tables: Sequence[Integers], records: int) -> Integers:
    """2F of each table of two columns, in records: −min over halves (N − 2K₀)₊ + (N − 2K₁)₊ with N = `records`.

    Row by row, the greatest K₁ that goes with each K₀ is kept (K₀ beyond N/2 is worth no more than N/2), which takes
    rows · N/2 steps where trying all halves takes 2^rows. Where a table has few rows, all halves are tried.

    >>> distances_to_dependence([np.array([[2, 0], [0, 2]]), np.array([[1, 1], [1, 1]])], 4).tolist()
    [0, -4]
    """
    announce(_nearest_dependence)
    return np.array([-_nearest_dependence(np.ascontiguousarray(each), records) for each in tables], dtype=np.int64)


@numba.njit(nogil=True, cache=True)
def _nearest_dependence(table, records):  # pragma: no cover - compiled
    rows, enough = table.shape[0], (records + 1) // 2
    if rows < 62 and rows * enough > (1 << rows) * rows:
        least = 2 * records
        for halves in range(1 << rows):
            first, second = 0, 0
            for row in range(rows):
                if (halves >> row) & 1:
                    second += table[row, 1]
                else:
                    first += table[row, 0]
            least = min(least, max(records - 2 * first, 0) + max(records - 2 * second, 0))
        return least
    # best[K₀] is the greatest K₁ that goes with K₀, below 0 where none does; K₀ stands for itself or more at the end.
    best = np.full(enough + 1, -(1 << 60), dtype=np.int64)
    after = np.empty(enough + 1, dtype=np.int64)
    best[0] = 0
    for row in range(rows):
        zeros, ones = min(table[row, 0], enough), table[row, 1]
        for first in range(zeros):
            after[first] = best[first] + ones
        kept, moved = best[zeros:], best[: enough + 1 - zeros]
        target = after[zeros:]
        for place in range(target.shape[0]):
            target[place] = max(kept[place] + ones, moved[place])
        beyond = best[enough] + ones
        for first in range(enough - zeros, enough + 1):
            beyond = max(beyond, best[first])
        after[enough] = beyond
        best, after = after, best
    least = 2 * records
    for first in range(enough + 1):
        if best[first] >= 0:
            least = min(least, max(records - 2 * first, 0) + max(records - 2 * best[first], 0))
    return least


def _by_shape(tables: Sequence[Integers]) -> list[tuple[Integers, Integers]]:
    """The tables of each shape in one array, with their places, so that thousands of small ones are few operations."""
    places: dict[tuple[int, ...], list[int]] = {}
    for place, table in enumerate(tables):
        places.setdefault(table.shape, []).append(place)
    return [
        (np.array(found, dtype=np.int64), np.stack([tables[place] for place in found])) for found in places.values()
    ]
