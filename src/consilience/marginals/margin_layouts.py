"""Where the cells of a table lie in its margins, and the coefficients that several margins share.

Every margin consists of coefficients, one for each contrast over some of its axes (see `margin_kernels`). A coefficient
over the axes S is the same in every margin whose axes include S, so margins that agree are one vector of coefficients,
each once: the parameters of log-linear models, and what "the margins" means when they do not quite agree.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.solvers.marginal_sums import spread_up, sum_down

# ----------------------------------------------------------------------------------------------------------------------
# Sums between a table and its margins, and their contrasts, for all margins of a table in one call.
#
# The axes of the table are cut into an outer and an inner part, as in `solvers.marginal_sums`. With x[i, j] the cell of
# outer index i and inner index j, its cell of margin g is outer[g, i] + inner[g, j] in the vector of all margins, one
# after another.
#
# *Contrasts.* Along an axis of n values, x becomes its sum and, for s = 1 … n − 1,
#
#     c_s = w_s (x_0 + … + x_{s−1} − s x_s),      w_s = √(n / (s (s + 1))),
#
# so that the rows of this map are orthogonal and have mean square 1 (Helmert's contrasts; for n = 2 Walsh's). Done
# along all axes of a margin, the cell with digits s holds a *coefficient* that any margin with the axes {i : s_i > 0}
# shares.


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def _add_places(shape, first, last, own, start, out):  # pragma: no cover - compiled
    for cell in range(out.size):
        rest, place = cell, start
        for axis in range(last - 1, first - 1, -1):
            place += (rest % shape[axis]) * own[axis]
            rest //= shape[axis]
        out[cell] = place


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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


# ----------------------------------------------------------------------------------------------------------------------
# Where the cells of a table lie in its margins, and the coefficients that several margins share.


Array = NDArray[np.float64]
Whole = NDArray[np.int64]

INNER_CELLS = 64
"""The cells of the inner part of the axes, at most, unless the last axis alone is longer."""


@dataclass(frozen=True, eq=False)
class MarginLayout:
    """Margins of tables of one shape, over sets of axes none of which is part of another."""

    shape: Whole
    cells: int
    outer: Whole
    inner: Whole
    even: NDArray[np.bool_]
    starts: Whole
    bounds: Whole
    sizes: Whole
    numbers: Whole
    """For each cell of the margins, the number of its coefficient."""
    homes: Whole
    """For each coefficient, the cell of the margin that speaks for it."""
    places: Whole
    """For each coefficient, the cell with the same digits in the whole table. The first is that of the total."""
    sharers: Array
    """For each coefficient, how many margins have it."""

    @staticmethod
    def of(shape: Sequence[int], axis_sets: Sequence[tuple[int, ...]]) -> "MarginLayout":
        """The layout of margins over these axes, in this order."""
        lengths = np.array(shape, dtype=np.int64)
        member = np.zeros((len(axis_sets), len(shape)), dtype=np.bool_)
        sizes: list[int] = []
        starts, bounds = [0], [0]
        for row, axes in enumerate(axis_sets):
            member[row, list(axes)] = True
            own = [shape[axis] for axis in axes]
            sizes += own
            starts.append(starts[-1] + math.prod(own))
            bounds.append(len(sizes))
        cut = _cut(shape)
        outer = np.empty((len(axis_sets), math.prod(shape[:cut])), dtype=np.int64)
        inner = np.empty((len(axis_sets), math.prod(shape[cut:])), dtype=np.int64)
        even = np.empty(len(axis_sets), dtype=np.bool_)
        every = np.empty(starts[-1], dtype=np.int64)
        begins = np.array(starts, dtype=np.int64)
        place_cells(lengths, cut, member, begins, outer, inner, even, every)
        places, homes, numbers = np.unique(every, return_index=True, return_inverse=True)
        return MarginLayout(
            shape=lengths,
            cells=math.prod(shape),
            outer=outer,
            inner=inner,
            even=even,
            starts=begins,
            bounds=np.array(bounds, dtype=np.int64),
            sizes=np.array(sizes, dtype=np.int64),
            numbers=numbers.astype(np.int64, copy=False),
            homes=homes.astype(np.int64, copy=False),
            places=places,
            sharers=np.bincount(numbers, minlength=places.size).astype(np.float64),
        )

    @property
    def rows(self) -> int:
        """How many coefficients there are."""
        return self.places.size

    @property
    def is_binary(self) -> bool:
        """Whether no axis has more than two values, so that products of contrasts are contrasts."""
        return bool((self.shape <= 2).all())

    def margins(self, table: Array) -> Array:
        """All margins of a flat table, one after another."""
        gathered = np.empty(self.numbers.size)
        sum_down(table, self.outer, self.inner, self.even, gathered)
        return gathered

    def spread(self, gathered: Array) -> Array:
        """The flat table in which every cell is the sum of its cells in all margins."""
        table = np.empty(self.cells)
        spread_up(gathered, self.outer, self.inner, self.even, table)
        return table

    def coefficients(self, gathered: Array) -> Array:
        """The coefficients of margins, each as the mean over the margins that have it."""
        values = gathered.copy()
        to_contrasts(values, self.starts, self.bounds, self.sizes)
        return self.added_up(values) / self.sharers

    def coefficients_of(self, table: Array) -> Array:
        """The coefficients of a flat table."""
        values = self.margins(table)
        to_contrasts(values, self.starts, self.bounds, self.sizes)
        return values[self.homes]

    def of_coefficients(self, coefficients: Array) -> Array:
        """The margins, one after another, that have these coefficients."""
        values = coefficients[self.numbers]
        from_contrasts(values, self.starts, self.bounds, self.sizes)
        return values / np.repeat(np.diff(self.starts), np.diff(self.starts))

    def parameters(self, added: Array) -> Array:
        """The λ with Σ_s λ_s contrast_s(x) = the sum over the margins of what they add to cell x."""
        values = added.copy()
        to_contrasts(values, self.starts, self.bounds, self.sizes)
        values /= np.repeat(np.diff(self.starts), np.diff(self.starts))
        return self.added_up(values)

    def added_up(self, values: Array) -> Array:
        """For each coefficient, the sum of what the margins hold in its place."""
        return np.bincount(self.numbers, weights=values, minlength=self.rows).astype(np.float64, copy=False)

    def energies(self, parameters: Array) -> Array:
        """Σ_s λ_s contrast_s(x) for every cell x of the table, flat."""
        values = np.zeros(self.numbers.size)
        values[self.homes] = parameters
        from_contrasts(values, self.starts, self.bounds, self.sizes)
        return self.spread(values)


def _cut(shape: Sequence[int]) -> int:
    """Where the outer axes end and the inner ones begin."""
    cut = max(len(shape) - 1, 0)
    while cut > 0 and math.prod(shape[cut - 1 :]) <= INNER_CELLS:
        cut -= 1
    return cut
