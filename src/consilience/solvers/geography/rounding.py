"""Whole numbers in place of a table's, each next to its fitted value, with the whole margins of the table kept.

Every number is rounded down; what a row lacks of its sum, and a column of its own, are then whole numbers, and the
entries that go up are a choice of fractional ones with that many in each row and column. Such a choice exists, since
the fractions themselves are a fractional one (Cox 1987). The entries with the largest fractions go up first, as long as
their row and column lack something; what is lacking then is supplied along alternating paths of entries that go up and
entries that do not.
"""

import numpy as np

from consilience.kernels.kernel_cache import njit

SMALLEST_FRACTION = 1e-9
"""A fraction below this is that of a whole number."""


@njit(nogil=True, cache=True, error_model="numpy")
def _largest_first(fractions):  # pragma: no cover - compiled
    """The order of fractions; those that differ by rounding errors alone stay in their places."""
    return np.argsort(-np.floor(fractions / SMALLEST_FRACTION + 0.5), kind="mergesort")


@njit(nogil=True, cache=True, error_model="numpy")
def round_rows(table, totals):  # pragma: no cover - compiled
    """Round each column so that it keeps its whole total: the largest fractions go up."""
    rows, width = table.shape
    fractions = np.empty(rows)
    for h in range(width):
        lacking = totals[h]
        for c in range(rows):
            below = np.floor(table[c, h] + SMALLEST_FRACTION)
            fractions[c] = max(table[c, h] - below, 0.0)
            table[c, h] = below
            lacking -= below
        order = _largest_first(fractions)
        for place in range(min(rows, max(0, int(np.round(lacking))))):
            table[order[place], h] += 1.0


@njit(nogil=True, cache=True, error_model="numpy")
def round_table(table, rows, columns):  # pragma: no cover - compiled
    """Round a non-negative table in place so that it keeps its whole sums of rows and columns."""
    count, width = table.shape
    up = np.zeros((count, width), dtype=np.int8)  # 0: whole, 1: may go up, 2: goes up
    row_lacks, column_lacks = np.zeros(count, dtype=np.int64), np.zeros(width, dtype=np.int64)
    fractional = 0
    for c in range(count):
        for h in range(width):
            if table[c, h] - np.floor(table[c, h] + SMALLEST_FRACTION) > SMALLEST_FRACTION:
                fractional += 1
    fractions, places = np.empty(fractional), np.empty(fractional, dtype=np.int64)
    fractional = 0
    for c in range(count):
        lacking = rows[c]
        for h in range(width):
            below = np.floor(table[c, h] + SMALLEST_FRACTION)
            if table[c, h] - below > SMALLEST_FRACTION:
                fractions[fractional], places[fractional] = table[c, h] - below, c * width + h
                up[c, h] = 1
                fractional += 1
            table[c, h] = below
            lacking -= below
        row_lacks[c] = int(np.round(lacking))
    for h in range(width):
        lacking = columns[h]
        for c in range(count):
            lacking -= table[c, h]
        column_lacks[h] = int(np.round(lacking))
    for place in _largest_first(fractions):
        c, h = places[place] // width, places[place] % width
        if row_lacks[c] > 0 and column_lacks[h] > 0:
            up[c, h] = 2
            row_lacks[c] -= 1
            column_lacks[h] -= 1
    for c in range(count):
        while row_lacks[c] > 0 and _supply(up, c, column_lacks):
            row_lacks[c] -= 1
    for c in range(count):
        for h in range(width):
            if up[c, h] == 2:
                table[c, h] += 1.0
    _force(table, row_lacks, column_lacks)


@njit(nogil=True, cache=True, error_model="numpy")
def _supply(up, start, column_lacks):  # pragma: no cover - compiled
    """One more entry of a row goes up, by a shortest alternating path to a column that lacks something."""
    count, width = up.shape
    row_from, column_from = np.full(count, -1, dtype=np.int64), np.full(width, -1, dtype=np.int64)
    queue, reached, done = np.empty(count, dtype=np.int64), 1, 0
    queue[0] = start
    row_from[start] = width
    while done < reached:
        c = queue[done]
        done += 1
        for h in range(width):
            if up[c, h] != 1 or column_from[h] >= 0:
                continue
            column_from[h] = c
            if column_lacks[h] > 0:
                column_lacks[h] -= 1
                while True:
                    row = column_from[h]
                    up[row, h] = 2
                    h = row_from[row]
                    if h == width:
                        return True
                    up[row, h] = 1
            for d in range(count):
                if up[d, h] == 2 and row_from[d] < 0:
                    row_from[d] = h
                    queue[reached] = d
                    reached += 1
    return False


@njit(nogil=True, cache=True, error_model="numpy")
def _force(table, row_lacks, column_lacks):  # pragma: no cover - compiled
    """Keep the margins where rounding errors left no choice among the fractions: the last units go where they must.

    A row or a column with a unit too many gives one up first.
    """
    count, width = table.shape
    for c in range(count):
        h = 0
        while row_lacks[c] < 0 and h < width:
            if table[c, h] > 0.0:
                table[c, h] -= 1.0
                row_lacks[c] += 1
                column_lacks[h] += 1
            else:
                h += 1
    for h in range(width):
        c = 0
        while column_lacks[h] < 0 and c < count:
            if table[c, h] > 0.0:
                table[c, h] -= 1.0
                row_lacks[c] += 1
                column_lacks[h] += 1
            else:
                c += 1
    for c in range(count):
        for h in range(width):
            while row_lacks[c] > 0 and column_lacks[h] > 0:
                table[c, h] += 1.0
                row_lacks[c] -= 1
                column_lacks[h] -= 1
