"""The loops of `privacy.partitions`: compiled, and imported only when they are used."""

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit

Integers = NDArray[np.int64]


@njit(nogil=True, cache=True, error_model="numpy")
def scan(counts: Integers, ranks: Integers, values: Integers, width: int, found: Integers) -> None:
    """found[i] is the deviation of the last min(i, width) of the first i counts."""
    numbers = np.zeros(values.size + 1, dtype=np.int64)
    sums = np.zeros(values.size + 1, dtype=np.int64)
    highest = 1
    while 2 * highest <= values.size:
        highest *= 2
    total = np.int64(0)
    for i in range(counts.size):
        _add(numbers, sums, ranks[i], 1, counts[i])
        total += counts[i]
        if i >= width:
            _add(numbers, sums, ranks[i - width], -1, -counts[i - width])
            total -= counts[i - width]
        held = min(i + 1, width)
        # The values before the median are found by descent: the longest stretch that holds fewer than half of them.
        place, before, sum_before = 0, 0, np.int64(0)
        step = highest
        while step > 0:
            if place + step <= values.size and before + numbers[place + step] < (held + 1) // 2:
                place += step
                before += numbers[place]
                sum_before += sums[place]
            step //= 2
        found[i + 1] = values[place] * before - sum_before + (total - sum_before) - values[place] * (held - before)


# With the mean q + r/w of w counts, C and S the number and the sum of those up to q, Σ|xᵢ − mean| is twice the sum of
# what lies below the mean: 2(C·q − S) + 2·C·r/w. All products stay below w² or the number of records, times 2^(b + 1).
@njit(nogil=True, cache=True, error_model="numpy")
def scan_means(counts: Integers, ranks: Integers, values: Integers, width: int, unit: int, found: Integers) -> None:
    """found[i] is ⌊unit · Σ|x − mean|⌋ of the last min(i, width) of the first i counts."""
    numbers = np.zeros(values.size + 1, dtype=np.int64)
    sums = np.zeros(values.size + 1, dtype=np.int64)
    total = np.int64(0)
    for i in range(counts.size):
        _add(numbers, sums, ranks[i], 1, counts[i])
        total += counts[i]
        if i >= width:
            _add(numbers, sums, ranks[i - width], -1, -counts[i - width])
            total -= counts[i - width]
        held = min(i + 1, width)
        whole = total // held
        place = np.searchsorted(values, whole, side="right")
        below, sum_below = np.int64(0), np.int64(0)
        while place > 0:
            below += numbers[place]
            sum_below += sums[place]
            place -= place & -place
        found[i + 1] = 2 * unit * (below * whole - sum_below) + 2 * unit * below * (total - whole * held) // held


@njit(nogil=True, cache=True, error_model="numpy")
def _add(numbers: Integers, sums: Integers, rank: int, number: int, value: int) -> None:
    place = rank + 1
    while place < numbers.size:
        numbers[place] += number
        sums[place] += value
        place += place & -place


# best[j] = min over intervals i … j − 1 of best[i] + cost. Since longer intervals are tried first and only a strictly
# lower cost replaces one, the length kept for j is the greatest that ends a partition of least cost, as the order of
# partitions asks; the same holds for what is left of it.
@njit(nogil=True, cache=True, error_model="numpy")
def best_last_buckets(size: int, widths: Integers, steps: Integers, offsets: Integers, costs: Integers) -> Integers:
    """For each number of codes, how long the last bucket is in the best partition of them."""
    best = np.zeros(size + 1, dtype=np.int64)
    last = np.zeros(size + 1, dtype=np.int64)
    for after in range(1, size + 1):
        for i in range(widths.size):
            first = after - widths[i]
            if first < 0 or first % steps[i]:
                continue
            cost = best[first] + costs[offsets[i] + first // steps[i]]
            if last[after] == 0 or cost < best[after]:
                best[after] = cost
                last[after] = widths[i]
    return last
