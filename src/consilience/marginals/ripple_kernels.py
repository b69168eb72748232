"""Ripple: negative counts become zero, and their neighbours pay for it (Qardaji et al. 2014, §4.4 and §4.7).

Two cells of a table are neighbours if they differ in the value of one attribute; a cell has k = Σ_i (n_i − 1). A cell
with a count c < −θ is set to 0 and |c|/k is taken from each neighbour, so the total stays. All cells below −θ do this
at the same time, then those that are below −θ after it, and so on: the outcome depends on no order of the cells.

It ends. Let P be the matrix that averages over neighbours, x the table with n cells and the total T ≥ 0, and a ≥ 0 the
amounts lifted in a round: a_v = −x_v > θ or a_v = 0. The round takes x to x + (I − P) a. With G the pseudo-inverse of
I − P, which is positive semi-definite, Φ(x) = xᵀ G x ≥ 0 changes by

    2 aᵀ (I − P) G x + aᵀ (I − P) a  =  2 Σ_v a_v (x_v − T/n) + ‖a‖² − aᵀ P a  ≤  −‖a‖²  <  −θ²,

so at most Φ(x₀)/θ² cells are ever lifted. Without T ≥ 0 there is no end: a table of negative total has no table of
counts. Its total is set to 0 first, by raising all cells alike. The bound is far above what happens, about
log(max|x|/θ) divided by the spectral gap of I − P, min n_i / k; a table that takes much longer is left to the caller.
"""

import numba
import numpy as np

FEW = 16
"""A round in which fewer than one cell in so many is lifted goes by a queue of them, and other rounds by whole axes."""


@numba.njit(nogil=True, cache=True)
def ripple(tables, sizes, theta, most_rounds):  # pragma: no cover - compiled
    """Let every row ripple in place; returns the lifts made, and marks the rows that were not done in time.

    `sizes` are the sizes of the attributes, first to last, all at least 2.
    """
    cells = tables.shape[1]
    digits, strides = _digits(cells, sizes)
    now = np.empty(cells, dtype=np.int64)
    following = np.empty(cells, dtype=np.int64)
    amounts = np.empty(cells)
    late = np.zeros(tables.shape[0], dtype=np.bool_)
    lifts = 0
    for row in range(tables.shape[0]):
        table = tables[row]
        _raise_total(table)
        count = _below(table, theta, now) if len(sizes) > 0 else 0
        rounds = 0
        while count > 0:
            if rounds == most_rounds:
                late[row] = True
                break
            rounds += 1
            lifts += count
            if count * FEW > cells:
                _lift_by_axes(table, sizes, theta, amounts)
                count = _below(table, theta, now)
            else:
                count = _lift_queued(table, sizes, theta, amounts, digits, strides, now, count, following)
                now, following = following, now
    return lifts, late


@numba.njit(nogil=True, cache=True)
def _below(table, theta, queue):  # pragma: no cover - compiled
    """Write down the cells below −θ; returns how many there are."""
    count = 0
    for cell in range(table.size):
        queue[count] = cell
        count += table[cell] < -theta
        if count == table.size:
            break
    return count


@numba.njit(nogil=True, cache=True)
def _lift_queued(table, sizes, theta, amounts, digits, strides, now, count, following):  # pragma: no cover - compiled
    """One round for the cells in the queue; counts only fall after, so a cell joins the next queue as it crosses −θ."""
    neighbours = np.sum(sizes) - len(sizes)
    for place in range(count):
        amounts[place] = -table[now[place]] / neighbours
        table[now[place]] = 0.0
    later = 0
    for place in range(count):
        cell, amount = now[place], amounts[place]
        for axis in range(len(sizes)):
            digit, stride = digits[cell, axis], strides[axis]
            for value in range(sizes[axis]):
                if value != digit:
                    other = cell + (value - digit) * stride
                    before = table[other]
                    table[other] = before - amount
                    if before >= -theta and table[other] < -theta:
                        following[later] = other
                        later += 1
    return later


@numba.njit(nogil=True, cache=True)
def _lift_by_axes(table, sizes, theta, amounts):  # pragma: no cover - compiled
    """One round for all cells: along each axis a cell pays what the others on its line were lifted by, over k."""
    neighbours = np.sum(sizes) - len(sizes)
    for cell in range(table.size):
        count = table[cell]
        low = count < -theta
        amounts[cell] = -count / neighbours if low else 0.0
        table[cell] = 0.0 if low else count
    inner = table.size
    for size in sizes:
        outer = inner
        inner //= size
        for block in range(0, table.size, outer):
            if size == 2:
                zero, one = table[block : block + inner], table[block + inner : block + outer]
                for_zero, for_one = amounts[block + inner : block + outer], amounts[block : block + inner]
                for cell in range(inner):
                    zero[cell] -= for_zero[cell]
                    one[cell] -= for_one[cell]
            else:
                for first in range(block, block + inner):
                    paid = 0.0
                    for cell in range(first, first + outer, inner):
                        paid += amounts[cell]
                    for cell in range(first, first + outer, inner):
                        table[cell] -= paid - amounts[cell]


@numba.njit(nogil=True, cache=True)
def _digits(cells, sizes):  # pragma: no cover - compiled
    """Each cell's value on every axis, which is slow to work out again and again, and the strides of the axes."""
    strides = np.ones(len(sizes), dtype=np.int64)
    for axis in range(len(sizes) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * sizes[axis + 1]
    digits = np.empty((cells, len(sizes)), dtype=np.int32)
    for cell in range(cells):
        for axis in range(len(sizes)):
            digits[cell, axis] = cell // strides[axis] % sizes[axis]
    return digits, strides


@numba.njit(nogil=True, cache=True)
def _raise_total(table):  # pragma: no cover - compiled
    """A total below 0 becomes 0, all cells raised alike."""
    total = 0.0
    for cell in range(table.size):
        total += table[cell]
    if total < 0:
        for cell in range(table.size):
            table[cell] -= total / table.size
