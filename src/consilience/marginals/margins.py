"""Margins of a wanted table: what views tell about it, read from their common attributes, and what was made of them.

A margin of a table is its sum over some axes. The view of attributes V tells the margin of a target A over A ∩ V. Where
views agree, an intersection inside a larger one tells nothing new, so only the largest are read; which view an
intersection is read from then makes no difference, and the smallest is the quickest. Intersections are found on bit
masks, and all sums are taken by one kernel.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError, MeasurementError, TooLarge, readable_bytes, readable_count
from consilience.kernels.kernel_cache import njit
from consilience.marginals.margin_layouts import (
    from_contrasts,
    largest_difference,
    sum_views,
    to_contrasts,
)
from consilience.marginals.table_stacks import Scope, TableStack
from consilience.solvers.fit import Status
from consilience.solvers.marginal_sums import spread_up, sum_down, transform_rows

Array = NDArray[np.float64]
Axes = tuple[int, ...]
Margin = tuple[Axes, Array]
"""Ascending axes (from 0) of the wanted table, and its marginal over them."""

LARGEST_RECONSTRUCTED = 2**26
"""The cells of the largest table that is put together; with what is needed beside it, it takes about 4 GB."""

TRACE = 1e-14
"""What is below this part of the total is rounding, and counts as nothing."""


@dataclass(frozen=True, eq=False)
class Reconstructed:
    """A non-negative table, and how it stands to the margins that it was made from."""

    table: Array
    violation: float
    """The largest absolute difference between a cell of the given margins and of the table's, in counts."""
    relaxed: bool
    """Whether no table was found that has all the given margins, so that they are met as nearly as can be."""
    steps: int
    status: Status


def check_target(shape: Sequence[int]) -> int:
    """The cells of a table, where they are not too many to be put together."""
    cells = math.prod(shape)
    if cells > LARGEST_RECONSTRUCTED:
        raise TooLarge(
            f"a marginal of {len(shape)} attributes with {readable_count(cells)} cells would take about "
            f"{readable_bytes(64 * cells)}, and at most "
            f"{LARGEST_RECONSTRUCTED:,} cells are put together; ask for fewer attributes, or for coarser ones"
        )
    return cells


def checked_total(total: float) -> float:
    """A total that is a number."""
    if not math.isfinite(total):
        raise DeclarationError(f"the total must be finite, got {total}; give the total of the table")
    return float(total)


class ViewReader:
    """Views prepared for being asked about many targets: the tables of a stack, in one flat vector."""

    def __init__(self, stack: TableStack, flat: Array) -> None:
        if flat.shape != (stack.size,):
            raise DeclarationError(
                f"the views have {stack.size:,} cells together, and {flat.size:,} numbers of shape {flat.shape} were "
                "given; give one number for each cell, in the order of the stack"
            )
        self.sizes = stack.sizes
        self.flat = np.ascontiguousarray(flat, dtype=np.float64)
        placed = [
            (group.cells, group.start + row * group.cells, scope)
            for group in stack.groups
            for row, scope in enumerate(group.scopes)
        ]
        self._views = sorted(placed)
        self._masks = [sum(1 << attribute for attribute in scope) for _, _, scope in self._views]

    def margins(self, target: Scope, *, maximal: bool = True) -> list[Margin]:
        """The target's margins over its intersections with the views: the largest, or those with every view.

        Axes are those of the target, in its order. A view that shares no attribute with the target tells nothing.
        """
        if len(set(target)) < len(target) or any(not 0 <= each < len(self.sizes) for each in target):
            raise DeclarationError(
                f"the target {target} must name distinct attributes between 0 and {len(self.sizes) - 1}; correct it"
            )
        wanted = sum(1 << attribute for attribute in target)
        shared = [mask & wanted for mask in self._masks]
        if maximal:
            first: dict[int, int] = {}
            for view, mask in enumerate(shared):
                first.setdefault(mask, view)
            views = [first[mask] for mask in largest_masks(first)]
        else:
            views = [view for view, mask in enumerate(shared) if mask]
        return self._summed(target, views)

    def _summed(self, target: Scope, views: Sequence[int]) -> list[Margin]:
        """The sums of views down to the target's attributes, by one call of the kernel."""
        places = {attribute: axis for axis, attribute in enumerate(target)}
        starts, ends, bounds, sizes, strides, axis_sets, shapes = [], [0], [0], [], [], [], []
        for view in views:
            _, start, scope = self._views[view]
            axes = sorted(places[attribute] for attribute in scope if attribute in places)
            stride, steps = 1, {}
            for axis in reversed(axes):
                steps[target[axis]] = stride
                stride *= self.sizes[target[axis]]
            starts.append(start)
            ends.append(ends[-1] + stride)
            sizes.extend(self.sizes[attribute] for attribute in scope)
            strides.extend(steps.get(attribute, 0) for attribute in scope)
            bounds.append(len(sizes))
            axis_sets.append(tuple(axes))
            shapes.append(tuple(self.sizes[target[axis]] for axis in axes))
        found = np.zeros(ends[-1])
        sum_views(self.flat, _whole(starts), _whole(bounds), _whole(sizes), _whole(strides), _whole(ends), found)
        return [
            (axes, found[begin:end].reshape(shape))
            for axes, shape, begin, end in zip(axis_sets, shapes, ends, ends[1:], strict=False)
        ]


def largest_masks(masks: Iterable[int]) -> list[int]:
    """The sets, as bit masks, that are part of no other and not empty, the larger first.

    >>> largest_masks([0b011, 0b001, 0b100, 0])
    [3, 4]
    """
    kept: list[int] = []
    for mask in sorted({each for each in masks if each}, key=lambda each: (-each.bit_count(), each)):
        for other in kept:
            if mask & other == mask:
                break
        else:
            kept.append(mask)
    return kept


def _whole(numbers: Sequence[int]) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class GivenMargins:
    """Margins as they were given, one after another in one vector."""

    shape: tuple[int, ...]
    axis_sets: tuple[Axes, ...]
    starts: tuple[int, ...]
    values: Array

    @staticmethod
    def of(shape: Sequence[int], margins: Sequence[Margin]) -> "GivenMargins":
        """The margins of a table of this shape, checked."""
        for axes, table in margins:
            if list(axes) != sorted(set(axes)) or (axes and not 0 <= axes[0] <= axes[-1] < len(shape)):
                raise DeclarationError(
                    f"a margin names the axes {axes} of a table of {len(shape)} axes; name distinct ones, in "
                    f"ascending order, from 0 to {len(shape) - 1}"
                )
            expected = tuple(shape[axis] for axis in axes)
            if table.shape != expected:
                raise DeclarationError(
                    f"the margin over the axes {axes} has shape {table.shape}, and the table's would have {expected}; "
                    "give the axes in the order of the table's"
                )
        flats = [table.ravel() for _, table in margins]
        starts = itertools.accumulate((each.size for each in flats), initial=0)
        values = np.concatenate([np.zeros(0), *flats])
        if not np.isfinite(values).all():
            raise MeasurementError("a margin holds NaN or infinite values; every cell needs a number")
        return GivenMargins(tuple(shape), tuple(tuple(axes) for axes, _ in margins), tuple(starts), values)

    @property
    def sums(self) -> Array:
        """What the cells of each margin sum to."""
        if not self.axis_sets:
            return np.zeros(0)
        return np.add.reduceat(self.values, self.starts[:-1]) if self.values.size else np.zeros(len(self.axis_sets))

    def part(self, index: int) -> Array:
        """The cells of one margin, flat."""
        return self.values[self.starts[index] : self.starts[index + 1]]

    def scaled(self, total: float) -> "GivenMargins":
        """The margins over the largest sets of axes, in parts of the total; those over the same axes as their mean.

        Each is scaled to sum to 1; where it sums to nothing it cannot be, and tells nothing.
        """
        sums = self.sums
        by_axes: dict[int, list[Array]] = {}
        for index, axes in enumerate(self.axis_sets):
            if sums[index] > TRACE * total:
                by_axes.setdefault(sum(1 << axis for axis in axes), []).append(self.part(index) / sums[index])
        kept, flats = [], [np.zeros(0)]
        for mask in largest_masks(by_axes):
            same = by_axes[mask]
            kept.append(tuple(axis for axis in range(len(self.shape)) if mask >> axis & 1))
            flats.append(same[0] if len(same) == 1 else np.mean(same, axis=0))
        starts = itertools.accumulate(each.size for each in flats)
        return GivenMargins(self.shape, tuple(kept), tuple(starts), np.concatenate(flats))

    def nothing(self) -> Reconstructed:
        """The table of zeros, for a total of 0."""
        zeros = np.zeros(self.shape)
        violation = self.violation(zeros)
        return Reconstructed(zeros, violation, violation > 0.0, 0, Status.CONVERGED)

    def violation(self, table: Array) -> float:
        """The largest difference between a given margin and the table's."""
        member = np.zeros((len(self.axis_sets), len(self.shape)), dtype=np.bool_)
        for row, axes in enumerate(self.axis_sets):
            member[row, list(axes)] = True
        return largest_difference(table.ravel(), _whole(self.shape), member, _whole(self.starts), self.values)


# ----------------------------------------------------------------------------------------------------------------------
# Tables of greatest entropy with given marginals, by iterative proportional fitting, many of one shape at a time.
#
# Each pass multiplies the table so that one of the given marginals holds, and goes through all of them in turn (Deming
# and Stephan 1940). Where some table has all these marginals the passes lead to the one of greatest entropy; where none
# has, they end near a compromise, and `violation` says how far from the marginals it is.


MarginOnAxes = tuple[tuple[int, ...], Array]
"""Ascending axes (from 0) of the tables, and their marginals over these, with a first axis for the tables."""

LEAST_MARGIN = 1e-300
"""A marginal that is found to be less than this part of what it should be is 0: no factor may overflow."""


@dataclass(frozen=True, eq=False)
class FittedTables:
    """Non-negative tables, and the largest difference between their marginals and the given ones."""

    tables: Array
    violation: float
    passes: int


def greatest_entropy(
    start: Array, margins: Sequence[MarginOnAxes], *, tolerance: float = 1e-9, most_passes: int = 200
) -> FittedTables:
    """The tables in proportion to `start` whose marginals are as given; `tolerance` is in parts of the totals.

    >>> pair = [((0,), np.array([[2.0, 6.0]])), ((1,), np.array([[4.0, 4.0]]))]
    >>> greatest_entropy(np.ones((1, 2, 2)), pair).tables
    array([[[1., 1.],
            [3., 3.]]])
    """
    tables = np.array(start, dtype=np.float64)
    violation, passes = math.inf, 0
    size = max((float(margin.sum()) / len(margin) for _, margin in margins), default=0.0)
    while margins and violation > tolerance * size and passes < most_passes:
        violation = 0.0
        for axes, margin in margins:
            away = tuple(axis + 1 for axis in range(tables.ndim - 1) if axis not in axes)
            found = tables.sum(axis=away, keepdims=True)
            wanted = margin.reshape(found.shape)
            violation = max(violation, float(np.abs(found - wanted).max(initial=0.0)) if passes else math.inf)
            tables *= np.divide(wanted, found, out=np.zeros_like(found), where=found > LEAST_MARGIN * wanted)
        passes += 1
    return FittedTables(tables, 0.0 if not margins else violation, passes)


# ----------------------------------------------------------------------------------------------------------------------
# Iterative proportional fitting, and what the cells of log-linear and of cut-off linear tables are, compiled.


# One pass goes through the margins in turn and multiplies the table by wanted / found (Deming and Stephan 1940). The
# logarithms of the factors, added up in `logs`, are parameters of the log-linear table that it is on its support.
@njit(nogil=True, cache=True)
def fit_proportionally(
    table, wanted, outer, inner, starts, tolerance, most_passes, patience, logs
):  # pragma: no cover - compiled
    """Fit the table in place; return the passes made and the largest misfit met in the last one.

    Passes end early where, at the rate of the last four, they would not reach the tolerance within `most_passes`;
    the first `patience` passes are always made.
    """
    factors = np.empty(wanted.size)
    width = inner.shape[1]
    misfit, before = np.inf, np.inf
    passes = 0
    while passes < most_passes and misfit > tolerance:
        misfit = 0.0
        for margin in range(outer.shape[0]):
            begin, end = starts[margin], starts[margin + 1]
            factors[begin:end] = 0.0
            rows, offsets = outer[margin], inner[margin]
            for i in range(outer.shape[1]):
                first = i * width
                for j in range(width):
                    factors[rows[i] + offsets[j]] += table[first + j]
            for cell in range(begin, end):
                found = factors[cell]
                misfit = max(misfit, abs(found - wanted[cell]))
                if found > 0.0 and wanted[cell] > 0.0:
                    factors[cell] = wanted[cell] / found
                    logs[cell] += np.log(factors[cell])
                else:
                    factors[cell] = 0.0
            for i in range(outer.shape[1]):
                first = i * width
                for j in range(width):
                    table[first + j] *= factors[rows[i] + offsets[j]]
        passes += 1
        if passes % 4 == 0:
            if passes >= patience and misfit > tolerance:
                rate = (misfit / before) ** 0.25
                if rate >= 1.0 or passes + np.log(tolerance / misfit) / np.log(rate) > most_passes:
                    break
            before = misfit
    return passes, misfit


# All margins at once, each with the power 1/m of its factor. Where no table has the margins b_j, passes through one
# after the other go in circles; these converge to the table whose own margins are nearest to them in the sense of
# Σ_j KL(margin_j ‖ b_j), and of greatest entropy among the nearest (the simultaneous algorithm SMART; Byrne 1993).
@njit(nogil=True, cache=True)
def fit_simultaneously(table, wanted, outer, inner, most_passes, gain):  # pragma: no cover - compiled
    """Fit the table in place; return the passes made, and whether the misfit had stopped falling by `gain` in ten."""
    margins, width = outer.shape[0], inner.shape[1]
    factors = np.empty(wanted.size)
    before = np.inf
    for passes in range(most_passes):
        factors[:] = 0.0
        for i in range(outer.shape[1]):
            first = i * width
            for margin in range(margins):
                row = outer[margin, i]
                for j in range(width):
                    factors[row + inner[margin, j]] += table[first + j]
        misfit = 0.0
        for cell in range(wanted.size):
            found = factors[cell]
            misfit += abs(found - wanted[cell])
            factors[cell] = (wanted[cell] / found) ** (1.0 / margins) if found > 0.0 and wanted[cell] > 0.0 else 0.0
        if passes % 10 == 9:
            if misfit > (1.0 - gain) * before:
                return passes, True
            before = misfit
        for i in range(outer.shape[1]):
            first = i * width
            for margin in range(margins):
                row = outer[margin, i]
                for j in range(width):
                    table[first + j] *= factors[row + inner[margin, j]]
    return most_passes, False


# log Σ_x exp(E_x) over the support, with E = Σ_s λ_s contrast_s; its gradient is the coefficients of p = exp(E)/Σ.
@njit(nogil=True, cache=True)
def respond_with_shares(
    parameters, support, outer, inner, even, starts, bounds, sizes, homes, gathered, table, coefficients
):  # pragma: no cover - compiled
    """Write p and its coefficients; return the logarithm of the sum."""
    _energies(parameters, outer, inner, even, starts, bounds, sizes, homes, gathered, table)
    highest = -np.inf
    for cell in range(table.size):
        if support[cell] and table[cell] > highest:
            highest = table[cell]
    total = 0.0
    for cell in range(table.size):
        value = np.exp(table[cell] - highest) if support[cell] else 0.0
        table[cell] = value
        total += value
    for cell in range(table.size):
        table[cell] /= total
    _gather(table, outer, inner, even, starts, bounds, sizes, homes, gathered, coefficients)
    return highest + np.log(total)


# ½ Σ_x max(0, E_x)² / n over the support; its gradient is the coefficients of max(0, E)/n, n the cells of the table.
@njit(nogil=True, cache=True)
def respond_with_squares(
    parameters, support, outer, inner, even, starts, bounds, sizes, homes, gathered, table, coefficients
):  # pragma: no cover - compiled
    """Write max(0, E)/n and its coefficients; return the half sum of squares."""
    _energies(parameters, outer, inner, even, starts, bounds, sizes, homes, gathered, table)
    value = 0.0
    for cell in range(table.size):
        energy = max(table[cell], 0.0) if support[cell] else 0.0
        value += 0.5 * energy * energy
        table[cell] = energy / table.size
    _gather(table, outer, inner, even, starts, bounds, sizes, homes, gathered, coefficients)
    return value / table.size


@njit(nogil=True, cache=True)
def _energies(parameters, outer, inner, even, starts, bounds, sizes, homes, gathered, table):  # pragma: no cover
    gathered[:] = 0.0
    for number in range(homes.size):
        gathered[homes[number]] = parameters[number]
    from_contrasts(gathered, starts, bounds, sizes)
    spread_up(gathered, outer, inner, even, table)


@njit(nogil=True, cache=True)
def _gather(table, outer, inner, even, starts, bounds, sizes, homes, gathered, coefficients):  # pragma: no cover
    sum_down(table, outer, inner, even, gathered)
    to_contrasts(gathered, starts, bounds, sizes)
    for number in range(homes.size):
        coefficients[number] = gathered[homes[number]]


# Where no axis has more than two values, contrast_s × contrast_t is the contrast at s xor t, so that all second moments
# Σ_x w_x contrast_s(x) contrast_t(x) are among the coefficients of w: one Walsh transform.
@njit(nogil=True, cache=True)
def fill_walsh_moments(weights, places, means, damping, moments):  # pragma: no cover - compiled
    """Write Σ_x w_x c_s c_t − mean_s mean_t, plus the damping on the diagonal, at and below the diagonal."""
    values = weights.copy()
    transform_rows(values.reshape(1, values.size))
    for s in range(places.size):
        for t in range(s + 1):
            moments[s, t] = values[places[s] ^ places[t]] - means[s] * means[t]
        moments[s, s] += damping[s]


@njit(nogil=True, cache=True)
def substitute(factor, values):  # pragma: no cover - compiled
    """Replace the right side of L Lᵀ x = values by the solution, L lower triangular with rows next to each other."""
    for i in range(values.size):
        left = values[i]
        for j in range(i):
            left -= factor[i, j] * values[j]
        values[i] = left / factor[i, i]
    for i in range(values.size - 1, -1, -1):
        values[i] /= factor[i, i]
        for j in range(i):
            values[j] -= factor[i, j] * values[i]
