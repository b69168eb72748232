"""Tables of greatest entropy with given marginals, by iterative proportional fitting, many of one shape at a time.

Each pass multiplies the table so that one of the given marginals holds, and goes through all of them in turn (Deming
and Stephan 1940). Where some table has all these marginals the passes lead to the one of greatest entropy; where none
has, they end near a compromise, and `violation` says how far from the marginals it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.marginals.margin_layouts import from_contrasts, to_contrasts
from consilience.solvers.marginal_sums import spread_up, sum_down
from consilience.solvers.marginal_tables.marginal_basis import transform_rows

Array = NDArray[np.float64]
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
@numba.njit(nogil=True, cache=True)
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
@numba.njit(nogil=True, cache=True)
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
@numba.njit(nogil=True, cache=True)
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
@numba.njit(nogil=True, cache=True)
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


@numba.njit(nogil=True, cache=True)
def _energies(parameters, outer, inner, even, starts, bounds, sizes, homes, gathered, table):  # pragma: no cover
    gathered[:] = 0.0
    for number in range(homes.size):
        gathered[homes[number]] = parameters[number]
    from_contrasts(gathered, starts, bounds, sizes)
    spread_up(gathered, outer, inner, even, table)


@numba.njit(nogil=True, cache=True)
def _gather(table, outer, inner, even, starts, bounds, sizes, homes, gathered, coefficients):  # pragma: no cover
    sum_down(table, outer, inner, even, gathered)
    to_contrasts(gathered, starts, bounds, sizes)
    for number in range(homes.size):
        coefficients[number] = gathered[homes[number]]


# Where no axis has more than two values, contrast_s × contrast_t is the contrast at s xor t, so that all second moments
# Σ_x w_x contrast_s(x) contrast_t(x) are among the coefficients of w: one Walsh transform.
@numba.njit(nogil=True, cache=True)
def fill_walsh_moments(weights, places, means, damping, moments):  # pragma: no cover - compiled
    """Write Σ_x w_x c_s c_t − mean_s mean_t, plus the damping on the diagonal, at and below the diagonal."""
    values = weights.copy()
    transform_rows(values.reshape(1, values.size))
    for s in range(places.size):
        for t in range(s + 1):
            moments[s, t] = values[places[s] ^ places[t]] - means[s] * means[t]
        moments[s, s] += damping[s]


@numba.njit(nogil=True, cache=True)
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
