"""Private partitions by the distance to the mean of a bucket, as P-HP and DAWA were published.

The cost of a bucket of w counts is D = Σ|xᵢ − mean|, what an even spread of its total gets wrong, plus a public
constant for the noise on that total. `privacy.partitions` takes the median for the mean, which can be told better
through noise; these rules are for comparison.

*On a lattice.* D is a fraction with the denominator w. The cost is ⌊2^b · D⌋, from exact whole numbers.

*One record.* It changes D by at most 2(1 − 1/w) (`privacy.partitions` has the argument). Since |⌊a⌋ − ⌊b⌋| ≤ ⌈|a − b|⌉,
it changes ⌊2^b · D⌋ by at most ⌈2^(b+1) · (1 − 1/w)⌉ ≤ 2 · 2^b.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consilience.domain.sensitivity import Neighbours
from consilience.privacy.noise import NoiseSource
from consilience.privacy.partitions import Bisection, Integers, LeastCostPartition, for_add_remove
from consilience.privacy.scores import select


def mean_deviation_sensitivity(width: int, bits: int) -> int:
    """The most by which one record more or less changes ⌊2^b · D⌋ of so many counts.

    >>> [mean_deviation_sensitivity(width, 10) for width in (1, 2, 3, 1000)]
    [0, 1024, 1366, 2046]
    """
    return -(-(2 ** (bits + 1)) * (width - 1) // width)


def prefix_mean_deviations(counts: Integers, bits: int) -> Integers:
    """⌊2^b · D⌋ of the first 0, 1, …, n counts.

    >>> prefix_mean_deviations(np.array([2, 4, 3]), 0).tolist()
    [0, 0, 2, 2]
    """
    return _scanned(counts, counts.size, bits)


def window_mean_deviations(counts: Integers, width: int, bits: int) -> Integers:
    """⌊2^b · D⌋ of every window of so many neighbouring counts, by its first one.

    >>> window_mean_deviations(np.array([2, 4, 3]), 2, 0).tolist()
    [2, 1]
    """
    return _scanned(counts, width, bits)[width:]


def _scanned(counts: Integers, width: int, bits: int) -> Integers:
    from consilience.privacy.interval_kernels import scan_means

    values, ranks = np.unique(counts, return_inverse=True)
    found = np.zeros(counts.size + 1, dtype=np.int64)
    scan_means(np.ascontiguousarray(counts), ranks.astype(np.int64), values, width, 2**bits, found)
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Stage 1 of DAWA (Li, Hay, Miklau, Wang 2014, section 4) with its own cost.


@dataclass(frozen=True)
class LeastMeanCostPartition(LeastCostPartition):
    """The partition of least noisy cost, where a bucket costs its distance to the mean.

    The noise is that of the proof in `privacy.partitions`, of scale (Δ_w + Δ)/ε for an interval of w codes with Δ_w =
    2(1 − 1/w) and Δ the largest of them. The authors' code has half of it, none on single codes, and clips the
    noisy costs, which that proof does not cover.
    """

    def sensitivity(self, width: int) -> int:
        return mean_deviation_sensitivity(width, self.bits)

    def _prefixes(self, counts: Integers) -> Integers:
        return prefix_mean_deviations(counts, self.bits)

    def _windows(self, counts: Integers, width: int) -> Integers:
        return window_mean_deviations(counts, width, self.bits)

    def fingerprint(self) -> Sequence[object]:
        return ["least-mean-cost-partition", *super().fingerprint()[1:]]


# ----------------------------------------------------------------------------------------------------------------------
# P-HP (Acs, Castelluccia, Chen 2012, section V): bisection, then a choice among all partitions on the way.
#
# It begins with all values in one bucket. Buckets are taken in the order in which they came about, and each is kept or
# cut in two by the exponential mechanism among "keep" and all its cuts, on each of a public number of levels. The
# partitions after 0, 1, 2, … cuts are nested, and the exponential mechanism chooses one of them by the sum of its
# buckets' costs. Both halves of the budget are for sensitivity 2, as the authors take it.
#
# **Privacy.** Fix the outcomes of the selections so far. A record more or less lies in one bucket of each level and
# changes the costs that are compared there by at most 2 · 2^b units; all other selections of the level have the same
# law. So a level is ε/(2·levels)-private (parallel composition), and all levels together are ε/2-private. They
# determine the list of nested partitions; the record lies in one bucket of each, whose sum of costs changes by at most
# 2 · 2^b, so the last selection is ε/2-private. Under replace-one ε/2 takes the place of ε, as for all partitions.


@dataclass(frozen=True)
class NestedBisection(Bisection):
    """One of the partitions met in so many levels of bisection; `bucket_noise` is the |noise| on a bucket's total."""

    def draw(self, counts: Integers, *, epsilon: float, neighbours: Neighbours, noise: NoiseSource) -> Sequence[int]:
        half = math.nextafter(for_add_remove(epsilon, neighbours) / 2, 0.0)
        cuts, costs = self._cuts(counts, math.nextafter(half / self.levels, 0.0), noise)
        kept = self._chosen(np.array(costs, dtype=np.int64), half, noise) if cuts else 0
        return [0, *sorted(cuts[:kept])]

    def _cuts(self, counts: Integers, epsilon: float, noise: NoiseSource) -> tuple[list[int], list[int]]:
        """Where buckets were cut, in this order, and what the partition costs after each number of cuts."""
        growing, cuts = [(0, counts.size)], list[int]()
        totals = [int(self.costs(counts)[0])]
        for _ in range(self.levels):
            cut: list[tuple[int, int]] = []
            for first, after in growing:
                if after - first == 1:
                    continue
                costs = self.costs(counts[first:after])
                place = self._chosen(costs, epsilon, noise)
                if place:
                    cut += [(first, first + place), (first + place, after)]
                    cuts.append(first + place)
                    totals.append(totals[-1] + int(costs[place] - costs[0]))
            growing = cut
        return cuts, totals

    def _chosen(self, costs: Integers, epsilon: float, noise: NoiseSource) -> int:
        return select(-costs, sensitivity=2 * 2**self.bits, epsilon=epsilon, selector="exponential", noise=noise)

    def costs(self, counts: Integers) -> Integers:
        """The cost of keeping these counts together, then of cutting after the first, the second, …; confidential."""
        left = prefix_mean_deviations(counts, self.bits)
        right = prefix_mean_deviations(counts[::-1], self.bits)[::-1]
        once = round(self.bucket_noise * 2**self.bits)
        costs = left[:-1] + right[:-1] + 2 * once
        costs[0] -= once
        return costs

    def fingerprint(self) -> Sequence[object]:
        return ["nested-bisection", self.attribute, self.levels, self.bucket_noise, self.bits]
