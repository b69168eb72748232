"""What the kernels share: running through the t-subsets of a block, and numbering them (see `set_ranks`)."""

import numba


@numba.njit(nogil=True, cache=True)
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


@numba.njit(nogil=True, cache=True)
def set_rank(row, place, coefficients):  # pragma: no cover - compiled
    """The number of the t-set at some ascending places of an ascending row."""
    rank = 0
    for i in range(len(place)):
        rank += coefficients[row[place[i]], i + 1]
    return rank


@numba.njit(nogil=True, cache=True)
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


@numba.njit(nogil=True, cache=True)
def among(points, point):  # pragma: no cover - compiled
    """Whether a point is one of some."""
    for other in points:  # noqa: SIM110 - kernels have no generators
        if other == point:
            return True
    return False


@numba.njit(nogil=True, cache=True)
def insert(row, length, point):  # pragma: no cover - compiled
    """Put a point into an ascending row; returns its new length."""
    at = length
    while at > 0 and row[at - 1] > point:
        row[at] = row[at - 1]
        at -= 1
    row[at] = point
    return length + 1
