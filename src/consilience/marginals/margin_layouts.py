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

from consilience.marginals.margin_kernels import (
    announce_once,
    from_contrasts,
    place_cells,
    spread_up,
    sum_down,
    to_contrasts,
)

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
        announce_once(place_cells)
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
        announce_once(sum_down)
        gathered = np.empty(self.numbers.size)
        sum_down(table, self.outer, self.inner, self.even, gathered)
        return gathered

    def spread(self, gathered: Array) -> Array:
        """The flat table in which every cell is the sum of its cells in all margins."""
        announce_once(spread_up)
        table = np.empty(self.cells)
        spread_up(gathered, self.outer, self.inner, self.even, table)
        return table

    def coefficients(self, gathered: Array) -> Array:
        """The coefficients of margins, each as the mean over the margins that have it."""
        announce_once(to_contrasts)
        values = gathered.copy()
        to_contrasts(values, self.starts, self.bounds, self.sizes)
        return self.added_up(values) / self.sharers

    def coefficients_of(self, table: Array) -> Array:
        """The coefficients of a flat table."""
        announce_once(to_contrasts)
        values = self.margins(table)
        to_contrasts(values, self.starts, self.bounds, self.sizes)
        return values[self.homes]

    def of_coefficients(self, coefficients: Array) -> Array:
        """The margins, one after another, that have these coefficients."""
        announce_once(from_contrasts)
        values = coefficients[self.numbers]
        from_contrasts(values, self.starts, self.bounds, self.sizes)
        return values / np.repeat(np.diff(self.starts), np.diff(self.starts))

    def parameters(self, added: Array) -> Array:
        """The λ with Σ_s λ_s contrast_s(x) = the sum over the margins of what they add to cell x."""
        announce_once(to_contrasts)
        values = added.copy()
        to_contrasts(values, self.starts, self.bounds, self.sizes)
        values /= np.repeat(np.diff(self.starts), np.diff(self.starts))
        return self.added_up(values)

    def added_up(self, values: Array) -> Array:
        """For each coefficient, the sum of what the margins hold in its place."""
        return np.bincount(self.numbers, weights=values, minlength=self.rows).astype(np.float64, copy=False)

    def energies(self, parameters: Array) -> Array:
        """Σ_s λ_s contrast_s(x) for every cell x of the table, flat."""
        announce_once(from_contrasts)
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
