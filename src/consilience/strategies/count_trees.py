"""Trees of counts over bins: the variance of their ranges, their branching, and what each level should get.

Levels and bins are numbers here; what is asked of them are all ranges, or ranges with weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError

# ----------------------------------------------------------------------------------------------------------------------
# How many children a node of a tree of counts should have, from the number of bins alone.
#
# A tree of counts over n bins is measured level by level and fitted by least squares (Hay et al. 2010). With A its 0/1
# matrix and W the diagonal of the counts' precisions, the estimate has the covariance C = (AᵀWA)⁻¹, so a range with the
# indicator r has the variance rᵀCr. Qardaji, Yang and Li (2013, section 4) choose the branching that makes the average
# of it over all ranges least. Here that average is computed exactly, in O(k log n), also where n is no power of k.
#
# For a node with the precision w above subtrees with covariances C₁, C₂, …, and D their block diagonal,
#
#     C = D − κ · D11ᵀD,    κ = w / (1 + w·1ᵀD1)        (Sherman, Morrison).
#
# What passes from a subtree to the node above it is: its number of bins m; the variance s = 1ᵀC1 of its sum; Σ rᵀCr
# over its ranges, over its prefixes, over its suffixes and over its bins; Σ f, Σ f² for f(i) = 1ᵀC(first i bins),
# i = 0 … m; and Σ c² for the covariance c = 1ᵀCe of each bin with the sum. On a level all nodes are alike but the last
# one, which may be cut short.


LevelBudgets = Literal["uniform", "geometric"]

LARGEST_BRANCHING = 256
"""Wider trees are not tried: for more bins than this the best are far narrower."""


@dataclass(frozen=True)
class _Subtree:
    """What a node above needs to know of a subtree."""

    bins: int
    total: float
    ranges: float
    prefixes: float
    suffixes: float
    covariance: float
    covariance_squared: float
    values: float
    value_covariance_squared: float


@lru_cache(maxsize=1024)
def branching_for(
    bins: int, *, level_budgets: LevelBudgets = "uniform", unit: Literal["epsilon", "rho"] = "epsilon"
) -> int:
    """The branching whose consistent tree has the least variance, averaged over all ranges of the bins.

    `unit` is that of the budget: a share t of it buys a count the variance 1/t² under pure ε and 1/t under ρ, in
    which more levels cost less.

    >>> branching_for(10), branching_for(4096), branching_for(4096, unit="rho")
    (10, 8, 2)
    """
    if bins < 1:
        raise DeclarationError(f"a histogram of {bins} bins was asked for; it has at least 1")
    return min(
        range(2, max(2, min(bins, LARGEST_BRANCHING)) + 1),
        key=lambda k: average_range_variance(bins, k, level_precisions(levels_of(bins, k), level_budgets, unit)),
    )


def levels_of(bins: int, branching: int) -> int:
    """The number of levels of the tree, root and bins included.

    >>> levels_of(1, 2), levels_of(16, 4), levels_of(17, 4)
    (1, 3, 4)
    """
    levels, width = 1, 1
    while width < bins:
        levels, width = levels + 1, width * branching
    return levels


def level_shares(levels: int, level_budgets: LevelBudgets) -> list[float]:
    """What each level gets, root first, before normalisation: the same, or 2^(1/3) times the level above it.

    The second is Cormode et al.'s (2012), which favours short ranges.
    """
    ratio = 1.0 if level_budgets == "uniform" else 2 ** (1 / 3)
    return [ratio**level for level in range(levels)]


def level_precisions(levels: int, level_budgets: LevelBudgets, unit: Literal["epsilon", "rho"]) -> list[float]:
    """1/variance of a count on each level, root first, up to a factor that all trees share."""
    shares = level_shares(levels, level_budgets)
    whole = math.fsum(shares)
    return [(share / whole) ** (2 if unit == "epsilon" else 1) for share in shares]


def average_range_variance(bins: int, branching: int, precisions: Sequence[float]) -> float:
    """The variance of a least-squares answer, averaged over all n(n + 1)/2 ranges; precisions are root first.

    Two bins and their sum, each with variance 1: the ranges have the variances 2/3, 2/3 and 2/3.

    >>> round(average_range_variance(2, 2, [1.0, 1.0]), 12)
    0.666666666667
    """
    return whole_tree(bins, branching, precisions).ranges / (bins * (bins + 1) / 2)


def whole_tree(bins: int, branching: int, precisions: Sequence[float]) -> _Subtree:
    """The sums over all ranges, prefixes and bins; precisions are root first."""
    levels = len(precisions)
    variance = 1.0 / precisions[-1]
    leaf = _Subtree(1, variance, variance, variance, variance, variance, variance**2, variance, variance**2)
    whole, cut = leaf, None
    width = 1
    for level in range(levels - 2, -1, -1):
        below, width = width, width * branching
        in_cut, short = divmod(bins % width, below)
        last = [whole] * in_cut + ([cut] if cut is not None and short else [])
        cut = _joined(last, precisions[level]) if last else None
        if width <= bins:
            whole = _joined([whole] * branching, precisions[level])
    return whole if cut is None else cut


def _joined(children: Sequence[_Subtree], precision: float) -> _Subtree:
    """The subtree of a node with these children, whose own count has this precision."""
    bins, total, first, second = 0, 0.0, 0.0, 0.0
    ranges, prefixes, suffixes = 0.0, 0.0, 0.0
    values, with_sum = 0.0, 0.0
    for child in children:
        # `suffixes` runs to the end of the children so far: a range that crosses into this one extends such a suffix.
        ranges += child.ranges + suffixes * child.bins + bins * child.prefixes
        prefixes += child.bins * total + child.prefixes
        suffixes += bins * child.total + child.suffixes
        first += child.bins * total + child.covariance
        second += child.bins * total**2 + 2 * total * child.covariance + child.covariance_squared
        values += child.values
        with_sum += child.value_covariance_squared
        bins, total = bins + child.bins, total + child.total
    shrink = 1.0 / (1.0 + precision * total)
    lost = precision * shrink
    return _Subtree(
        bins=bins,
        total=total * shrink,
        ranges=ranges - lost * ((bins + 1) * second - first**2),
        prefixes=prefixes - lost * second,
        suffixes=suffixes - lost * ((bins + 1) * total**2 - 2 * total * first + second),
        covariance=first * shrink,
        covariance_squared=second * shrink**2,
        values=values - lost * with_sum,
        value_covariance_squared=with_sum * shrink**2,
    )


# ----------------------------------------------------------------------------------------------------------------------
# The share of the budget that each level of a tree of counts gets for given ranges (GreedyH: Li et al. 2014).
#
# Bottom up: below a level there are subtrees, each measured with a whole budget of 1 and fitted by least squares.
# Giving the share 1 − p to the level's own counts leaves p to the subtrees. Of the shares p on a grid the one is kept
# that makes the ranges' total variance least, as if this level were the top. A share of 0 leaves the level out.
#
# With C the covariance below a node, S = 1ᵀC1, and G = rᵀC1 for a range r, precisions of a share p being p² under ε and
# p under ρ: scaling the subtrees by their precision a and adding a count of precision w gives each node and range
#
#     variance  rᵀCr/a − (G/a)² · w/(1 + wS/a),     G ← (G/a)/(1 + wS/a),     S ← (S/a)/(1 + wS/a).
#
# A range covers all but two nodes of a level entirely or not at all, so a level takes time in the number of ranges and
# of nodes, not in their product. It looks at the ranges and the number of leaves alone.


Array = NDArray[np.float64]

GRID = np.arange(1, 101) / 100


@dataclass(frozen=True)
class WeightedRanges:
    """Ranges over leaves: all of the leaves between `first` and `last`, and of these two the given parts.

    Where the two are the same leaf, `first_part` is what the range holds of it and `last_part` is 0. The `weights` are
    how much the squared error of each counts.
    """

    first: NDArray[np.intp]
    last: NDArray[np.intp]
    first_part: Array
    last_part: Array
    weights: Array

    @staticmethod
    def of_codes(
        ranges: Sequence[tuple[int, int]], starts: Sequence[int], size: int, weights: Sequence[float] | None = None
    ) -> "WeightedRanges":
        """Ranges of codes (first, last) over leaves that begin at these codes, spread evenly inside a leaf."""
        bounds = np.array([*starts, size])
        low = np.array([first for first, _ in ranges], dtype=np.intp)
        high = np.array([last + 1 for _, last in ranges], dtype=np.intp)
        first, last = (np.searchsorted(bounds, ends, side="right") - 1 for ends in (low, high - 1))
        widths = np.diff(bounds)
        held = (np.minimum(high, bounds[first + 1]) - low) / widths[first]
        at_end = (high - bounds[last]) / widths[last]
        counted = np.ones(len(ranges)) if weights is None else np.array(weights, dtype=np.float64)
        return WeightedRanges(first, last, held, np.where(first == last, 0.0, at_end), counted)

    def variance(self, leaves: int, branching: int, precisions: Sequence[float]) -> float:
        """The variances of all ranges, weighted and added up, where levels have these precisions, root first."""
        level, scale = _leaf_level(self, leaves), precisions[-1]
        for precision in precisions[-2::-1]:
            joined = _joined_level(level, branching)
            level = _measured(joined, scale, precision, _error(joined, _inside(joined), scale, precision))
            scale = 1.0
        return level.error / scale


@dataclass
class _Level:
    """The nodes of one level and what the ranges have in them."""

    first: NDArray[np.intp]
    last: NDArray[np.intp]
    first_covariance: Array
    last_covariance: Array
    totals: Array
    error: float
    weights: Array


def greedy_level_shares(
    ranges: WeightedRanges, leaves: int, branching: int, *, unit: Literal["epsilon", "rho"] = "epsilon"
) -> tuple[list[float], float]:
    """The share of the budget for each level, root first, of the tree with so many leaves, and the ranges' variance.

    The shares sum to 1. The variance is that of all ranges together where a count with the whole budget has 1.
    """
    power = 2 if unit == "epsilon" else 1
    level = _leaf_level(ranges, leaves)
    shares = [1.0]
    while level.totals.size > 1:
        joined = _joined_level(level, branching)
        inner = _inside(joined)
        errors = [_error(joined, inner, share**power, (1.0 - share) ** power) for share in GRID.tolist()]
        kept = float(GRID[int(np.argmin(errors))])
        level = _measured(joined, kept**power, (1.0 - kept) ** power, min(errors))
        shares = [1.0 - kept, *(share * kept for share in shares)]
    return shares, level.error


def _leaf_level(ranges: WeightedRanges, leaves: int) -> _Level:
    """Every leaf measured with variance 1."""
    between = np.maximum(ranges.last - ranges.first - 1, 0)
    error = float(((ranges.first_part**2 + ranges.last_part**2 + between) * ranges.weights).sum())
    ends = (ranges.first, ranges.last, ranges.first_part, ranges.last_part)
    return _Level(*ends, np.ones(leaves), error, ranges.weights)


def _joined_level(level: _Level, branching: int) -> _Level:
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
        weights=level.weights,
    )


def _inside(level: _Level) -> Array:
    """For each node, the weight of the ranges that hold it whole, strictly between their ends."""
    steps = np.zeros(level.totals.size + 1)
    begin, end = level.first + 1, np.maximum(level.last, level.first + 1)
    np.add.at(steps, begin, level.weights)
    np.subtract.at(steps, end, level.weights)
    return np.cumsum(steps)[:-1]


def _error(level: _Level, inner: Array, scale: float, precision: float) -> float:
    """The ranges' total variance when subtrees have their precision times `scale`, and the nodes' counts this one."""
    lost = precision / (1.0 + precision * level.totals / scale) / scale**2
    saved = (
        (level.weights * level.first_covariance**2 * lost[level.first]).sum()
        + (level.weights * level.last_covariance**2 * lost[level.last]).sum()
        + (inner * level.totals**2 * lost).sum()
    )
    return float(level.error / scale - saved)


def _measured(level: _Level, scale: float, precision: float, error: float) -> _Level:
    shrink = 1.0 / scale / (1.0 + precision * level.totals / scale)
    return _Level(
        first=level.first,
        last=level.last,
        first_covariance=level.first_covariance * shrink[level.first],
        last_covariance=level.last_covariance * shrink[level.last],
        totals=level.totals * shrink,
        error=error,
        weights=level.weights,
    )
