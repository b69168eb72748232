"""How many children a node of a tree of counts should have, from the number of bins alone.

A tree of counts over n bins is measured level by level and fitted by least squares (Hay et al. 2010). With A its 0/1
matrix and W the diagonal of the counts' precisions, the estimate has the covariance C = (AᵀWA)⁻¹, so a range with the
indicator r has the variance rᵀCr. Qardaji, Yang and Li (2013, section 4) choose the branching that makes the average
of it over all ranges least. Here that average is computed exactly, in O(k log n), also where n is no power of k.

For a node with the precision w above subtrees with covariances C₁, C₂, …, and D their block diagonal,

    C = D − κ · D11ᵀD,    κ = w / (1 + w·1ᵀD1)        (Sherman, Morrison).

What passes from a subtree to the node above it is: its number of bins m; the variance s = 1ᵀC1 of its sum; Σ rᵀCr
over its ranges, over its prefixes and over its suffixes; and Σ f, Σ f² for f(i) = 1ᵀC(first i bins), i = 0 … m. On a
level all nodes are alike but the last one, which may be cut short.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from consilience.errors import DeclarationError

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
    levels = len(precisions)
    variance = 1.0 / precisions[-1]
    leaf = _Subtree(1, variance, variance, variance, variance, variance, variance**2)
    whole, cut = leaf, None
    width = 1
    for level in range(levels - 2, -1, -1):
        below, width = width, width * branching
        in_cut, short = divmod(bins % width, below)
        last = [whole] * in_cut + ([cut] if cut is not None and short else [])
        cut = _joined(last, precisions[level]) if last else None
        if width <= bins:
            whole = _joined([whole] * branching, precisions[level])
    top = whole if cut is None else cut
    return top.ranges / (bins * (bins + 1) / 2)


def _joined(children: Sequence[_Subtree], precision: float) -> _Subtree:
    """The subtree of a node with these children, whose own count has this precision."""
    bins, total, first, second = 0, 0.0, 0.0, 0.0
    ranges, prefixes, suffixes = 0.0, 0.0, 0.0
    for child in children:
        # `suffixes` runs to the end of the children so far: a range that crosses into this one extends such a suffix.
        ranges += child.ranges + suffixes * child.bins + bins * child.prefixes
        prefixes += child.bins * total + child.prefixes
        suffixes += bins * child.total + child.suffixes
        first += child.bins * total + child.covariance
        second += child.bins * total**2 + 2 * total * child.covariance + child.covariance_squared
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
    )
