"""Sums between a table and its margins, and their contrasts, for all margins of a table in one call.

The axes of the table are cut into an outer and an inner part. With x[i, j] the cell of outer index i and inner index j,
its cell of margin g is outer[g, i] + inner[g, j] in the vector of all margins, one after another.

*Contrasts.* Along an axis of n values, x becomes its sum and, for s = 1 … n − 1,

    c_s = w_s (x_0 + … + x_{s−1} − s x_s),      w_s = √(n / (s (s + 1))),

so that the rows of this map are orthogonal and have mean square 1 (Helmert's contrasts; for n = 2 Walsh's). Done along
all axes of a margin, the cell with digits s holds a *coefficient* that any margin with the axes {i : s_i > 0} shares.
"""

from functools import cache

import numba
import numpy as np

from consilience.kernels.compilation import announce

announce_once = cache(announce)
"""`announce`, which is slow beside a small table, once for each kernel."""


@numba.njit(nogil=True, cache=True)
def sum_views(flat, starts, bounds, sizes, strides, ends, found):  # pragma: no cover - compiled
    """Add each view, from starts[v] on, into found[ends[v]:]; strides say how far each of its axes moves there."""
    digits = np.zeros(max(1, sizes.size), dtype=np.int64)
    for view in range(starts.size):
        first, last = bounds[view], bounds[view + 1]
        cells = 1
        for axis in range(first, last):
            cells *= sizes[axis]
            digits[axis] = 0
        place = ends[view]
        begin = starts[view]
        for cell in range(begin, begin + cells):
            found[place] += flat[cell]
            axis = last - 1
            while axis >= first:
                digits[axis] += 1
                place += strides[axis]
                if digits[axis] < sizes[axis]:
                    break
                place -= digits[axis] * strides[axis]
                digits[axis] = 0
                axis -= 1


@numba.njit(nogil=True, cache=True)
def place_cells(shape, cut, member, starts, outer, inner, even, places):  # pragma: no cover - compiled
    """Write where the cells of the table lie in the margins, and where coefficients of margins lie in the table's."""
    axes = shape.size
    whole = np.ones(axes, dtype=np.int64)
    for axis in range(axes - 2, -1, -1):
        whole[axis] = whole[axis + 1] * shape[axis + 1]
    for margin in range(member.shape[0]):
        even[margin] = True
        stride = 1
        own = np.zeros(axes, dtype=np.int64)
        for axis in range(axes - 1, -1, -1):
            if member[margin, axis]:
                own[axis] = stride
                stride *= shape[axis]
                if axis >= cut:
                    even[margin] = False
        _add_places(shape, 0, cut, own, starts[margin], outer[margin])
        _add_places(shape, cut, axes, own, 0, inner[margin])
        for cell in range(stride):
            rest, place = cell, 0
            for axis in range(axes - 1, -1, -1):
                if member[margin, axis]:
                    place += (rest % shape[axis]) * whole[axis]
                    rest //= shape[axis]
            places[starts[margin] + cell] = place


@numba.njit(nogil=True, cache=True)
def _add_places(shape, first, last, own, start, out):  # pragma: no cover - compiled
    for cell in range(out.size):
        rest, place = cell, start
        for axis in range(last - 1, first - 1, -1):
            place += (rest % shape[axis]) * own[axis]
            rest //= shape[axis]
        out[cell] = place


@numba.njit(nogil=True, cache=True)
def sum_down(table, outer, inner, even, gathered):  # pragma: no cover - compiled
    """Write all margins of a flat table."""
    gathered[:] = 0.0
    width = inner.shape[1]
    for i in range(outer.shape[1]):
        row = table[i * width : (i + 1) * width]
        total = 0.0
        for j in range(width):
            total += row[j]
        for margin in range(outer.shape[0]):
            start = outer[margin, i]
            if even[margin]:
                gathered[start] += total
            else:
                offsets = inner[margin]
                for j in range(width):
                    gathered[start + offsets[j]] += row[j]


@numba.njit(nogil=True, cache=True)
def spread_up(gathered, outer, inner, even, table):  # pragma: no cover - compiled
    """Write the flat table in which every cell is the sum of its cells in all margins."""
    width = inner.shape[1]
    for i in range(outer.shape[1]):
        row = table[i * width : (i + 1) * width]
        common = 0.0
        for margin in range(outer.shape[0]):
            if even[margin]:
                common += gathered[outer[margin, i]]
        row[:] = common
        for margin in range(outer.shape[0]):
            if not even[margin]:
                start, offsets = outer[margin, i], inner[margin]
                for j in range(width):
                    row[j] += gathered[start + offsets[j]]


@numba.njit(nogil=True, cache=True)
def to_contrasts(values, starts, bounds, sizes):  # pragma: no cover - compiled
    """Replace every margin by its coefficients."""
    for margin in range(starts.size - 1):
        cells = starts[margin + 1] - starts[margin]
        stride = cells
        for axis in range(bounds[margin], bounds[margin + 1]):
            count = sizes[axis]
            stride //= count
            for block in range(0, cells, count * stride):
                for begin in range(starts[margin] + block, starts[margin] + block + stride):
                    so_far = values[begin]
                    for s in range(1, count):
                        here = begin + s * stride
                        value = values[here]
                        values[here] = np.sqrt(count / (s * (s + 1.0))) * (so_far - s * value)
                        so_far += value
                    values[begin] = so_far


@numba.njit(nogil=True, cache=True)
def from_contrasts(values, starts, bounds, sizes):  # pragma: no cover - compiled
    """Replace the coefficients of every margin by Σ coefficient × contrast: the transpose of `to_contrasts`."""
    for margin in range(starts.size - 1):
        cells = starts[margin + 1] - starts[margin]
        stride = cells
        for axis in range(bounds[margin], bounds[margin + 1]):
            count = sizes[axis]
            stride //= count
            for block in range(0, cells, count * stride):
                for begin in range(starts[margin] + block, starts[margin] + block + stride):
                    above = values[begin]
                    for s in range(count - 1, 0, -1):
                        here = begin + s * stride
                        share = np.sqrt(count / (s * (s + 1.0))) * values[here]
                        values[here] = above - s * share
                        above += share
                    values[begin] = above


@numba.njit(nogil=True, cache=True)
def write_contrasts(shape, places, cells, out):  # pragma: no cover - compiled
    """Write, for some cells of a table and some coefficients, the values of the contrasts: a row for each cell."""
    axes = shape.size
    digits = np.empty((places.size, axes), dtype=np.int64)
    for column in range(places.size):
        rest = places[column]
        for axis in range(axes - 1, -1, -1):
            digits[column, axis] = rest % shape[axis]
            rest //= shape[axis]
    here = np.empty(axes, dtype=np.int64)
    for row in range(cells.size):
        rest = cells[row]
        for axis in range(axes - 1, -1, -1):
            here[axis] = rest % shape[axis]
            rest //= shape[axis]
        for column in range(places.size):
            value = 1.0
            for axis in range(axes):
                s = digits[column, axis]
                if s > 0:
                    if here[axis] > s:
                        value = 0.0
                        break
                    value *= np.sqrt(shape[axis] / (s * (s + 1.0)))
                    if here[axis] == s:
                        value *= -s
            out[row, column] = value


@numba.njit(nogil=True, cache=True)
def largest_difference(table, shape, member, starts, values):  # pragma: no cover - compiled
    """The largest absolute difference between margins of a flat table and the given ones."""
    axes = shape.size
    worst = 0.0
    steps = np.zeros(axes, dtype=np.int64)
    digits = np.zeros(axes, dtype=np.int64)
    for margin in range(member.shape[0]):
        stride = 1
        for axis in range(axes - 1, -1, -1):
            steps[axis] = stride if member[margin, axis] else 0
            if member[margin, axis]:
                stride *= shape[axis]
        left = values[starts[margin] : starts[margin + 1]].copy()
        digits[:] = 0
        place = 0
        for cell in range(table.size):
            left[place] -= table[cell]
            axis = axes - 1
            while axis >= 0:
                digits[axis] += 1
                place += steps[axis]
                if digits[axis] < shape[axis]:
                    break
                place -= digits[axis] * steps[axis]
                digits[axis] = 0
                axis -= 1
        for cell in range(left.size):
            worst = max(worst, abs(left[cell]))
    return worst
