"""The share of the budget that each level of a tree of counts gets for given ranges (GreedyH: Li et al. 2014).

Bottom up: below a level there are subtrees, each measured with a whole budget of 1 and fitted by least squares.
Giving the share 1 − p to the level's own counts leaves p to the subtrees. Of the shares p on a grid the one is kept
that makes the ranges' total variance least, as if this level were the top. A share of 0 leaves the level out.

With C the covariance below a node, S = 1ᵀC1, and G = rᵀC1 for a range r, precisions of a share p being p² under ε and p
under ρ: scaling the subtrees by their precision a and adding a count of precision w gives each node and range

    variance  rᵀCr/a − (G/a)² · w/(1 + wS/a),     G ← (G/a)/(1 + wS/a),     S ← (S/a)/(1 + wS/a).

A range covers all but two nodes of a level entirely or not at all, so a level takes time in the number of ranges and of
nodes, not in their product. It looks at the ranges and the number of leaves alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

GRID = np.arange(1, 101) / 100


@dataclass(frozen=True)
class WeightedRanges:
    """Ranges over leaves: all of the leaves between `first` and `last`, and of these two the given parts.

    Where the two are the same leaf, `first_part` is what the range holds of it and `last_part` is 0.
    """

    first: NDArray[np.intp]
    last: NDArray[np.intp]
    first_part: Array
    last_part: Array

    @staticmethod
    def of_codes(ranges: Sequence[tuple[int, int]], starts: Sequence[int], size: int) -> "WeightedRanges":
        """Ranges of codes (first, last) over leaves that begin at these codes, spread evenly inside a leaf."""
        bounds = np.array([*starts, size])
        low = np.array([first for first, _ in ranges], dtype=np.intp)
        high = np.array([last + 1 for _, last in ranges], dtype=np.intp)
        first, last = (np.searchsorted(bounds, ends, side="right") - 1 for ends in (low, high - 1))
        widths = np.diff(bounds)
        held = (np.minimum(high, bounds[first + 1]) - low) / widths[first]
        at_end = (high - bounds[last]) / widths[last]
        return WeightedRanges(first, last, held, np.where(first == last, 0.0, at_end))


@dataclass
class _Level:
    """The nodes of one level and what the ranges have in them."""

    first: NDArray[np.intp]
    last: NDArray[np.intp]
    first_covariance: Array
    last_covariance: Array
    totals: Array
    error: float


def greedy_level_shares(
    ranges: WeightedRanges, leaves: int, branching: int, *, unit: Literal["epsilon", "rho"] = "epsilon"
) -> list[float]:
    """The share of the budget for each level, root first, of the tree with so many leaves; they sum to 1."""
    shares, _ = greedy_shares_and_error(ranges, leaves, branching, unit=unit)
    return shares


def greedy_shares_and_error(
    ranges: WeightedRanges, leaves: int, branching: int, *, unit: Literal["epsilon", "rho"] = "epsilon"
) -> tuple[list[float], float]:
    """The shares, and the ranges' total variance where a count with the whole budget has the variance 1."""
    power = 2 if unit == "epsilon" else 1
    level = _leaf_level(ranges, leaves)
    shares = [1.0]
    while level.totals.size > 1:
        joined = _joined(level, branching)
        inner = _inside(joined)
        errors = [_error(joined, inner, share, power) for share in GRID.tolist()]
        kept = float(GRID[int(np.argmin(errors))])
        level = _measured(joined, kept, power, min(errors))
        shares = [1.0 - kept, *(share * kept for share in shares)]
    return shares, level.error


def _leaf_level(ranges: WeightedRanges, leaves: int) -> _Level:
    """Every leaf measured with variance 1."""
    level = _Level(ranges.first, ranges.last, ranges.first_part, ranges.last_part, np.ones(leaves), 0.0)
    between = np.maximum(ranges.last - ranges.first - 1, 0).sum()
    level.error = float((ranges.first_part**2).sum() + (ranges.last_part**2).sum() + between)
    return level


def _joined(level: _Level, branching: int) -> _Level:
    """The level above, before it is measured: independent children added up."""
    nodes = -(-level.totals.size // branching)
    summed = np.concatenate([[0.0], np.cumsum(level.totals)])
    totals = np.add.reduceat(level.totals, np.arange(0, level.totals.size, branching))
    first, last = level.first // branching, level.last // branching
    ends = np.minimum((first + 1) * branching, level.totals.size)
    one = first == last
    from_first = summed[np.where(one, np.maximum(level.last, level.first + 1), ends)] - summed[level.first + 1]
    to_last = summed[level.last] - summed[last * branching]
    return _Level(
        first=first,
        last=last,
        first_covariance=level.first_covariance + from_first + np.where(one, level.last_covariance, 0.0),
        last_covariance=np.where(one, 0.0, level.last_covariance + to_last),
        totals=totals[:nodes],
        error=level.error,
    )


def _inside(level: _Level) -> Array:
    """For each node, how many ranges hold it whole, strictly between their ends."""
    steps = np.zeros(level.totals.size + 1)
    begin, end = level.first + 1, np.maximum(level.last, level.first + 1)
    np.add.at(steps, begin, 1.0)
    np.subtract.at(steps, end, 1.0)
    return np.cumsum(steps)[:-1]


def _error(level: _Level, inner: Array, share: float, power: int) -> float:
    """The ranges' total variance when the subtrees get the share and the nodes' own counts the rest."""
    scale, precision = share**power, (1.0 - share) ** power
    lost = precision / (1.0 + precision * level.totals / scale) / scale**2
    saved = (
        (level.first_covariance**2 * lost[level.first]).sum()
        + (level.last_covariance**2 * lost[level.last]).sum()
        + (inner * level.totals**2 * lost).sum()
    )
    return float(level.error / scale - saved)


def _measured(level: _Level, share: float, power: int, error: float) -> _Level:
    scale, precision = share**power, (1.0 - share) ** power
    shrink = 1.0 / scale / (1.0 + precision * level.totals / scale)
    return _Level(
        first=level.first,
        last=level.last,
        first_covariance=level.first_covariance * shrink[level.first],
        last_covariance=level.last_covariance * shrink[level.last],
        totals=level.totals * shrink,
        error=error,
    )
