"""Private partitions: the values of one attribute cut into buckets of neighbouring values that are alike.

A partition is a private choice like any selection, but from exponentially many candidates, so each rule comes with a
sampler and a proof of its own. What leaves it is the first code of every bucket, nothing else.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.privacy.noise import NoiseSource, laplace_scale
from consilience.privacy.scores import select

Integers = NDArray[np.int64]


class PartitionRule(Protocol):
    """What the Gate needs to know of a way to cut an attribute's values into buckets."""

    @property
    def attribute(self) -> str:
        """The attribute whose values are cut."""
        ...

    def check(self, domain: Domain) -> None:
        """Refuse a rule that does not fit the domain."""
        ...

    def draw(self, counts: Integers, *, epsilon: float, neighbours: Neighbours, noise: NoiseSource) -> Sequence[int]:
        """The first code of each bucket, ascending from 0; ε-private between tables that differ in one record."""
        ...

    def fingerprint(self) -> Sequence[object]:
        """Plain data that identifies the rule, for the ledger."""
        ...


# ----------------------------------------------------------------------------------------------------------------------
# Sums of absolute deviations from the median, of every prefix or window of a list of whole numbers, in whole numbers.
#
# M(x) = Σ|xᵢ − median| = min over c of Σ|xᵢ − c|. With m the median of w numbers, C and S the number and the sum of
# those below m,
#
#     M = (m · C − S) + (sum of all − S) − m · (w − C).
#
# Two Fenwick trees over the sorted values hold C and S and find m, so that each number that comes or goes, and each M,
# costs O(log n).
#
# *One record.* Σ|xᵢ − c| changes by at most 1 for every c when one xᵢ changes by 1, and so does its minimum. A single
# number has M = 0 always.
#
# *Against the mean.* What an even spread of a bucket's total over its w values gets wrong is D(x) = Σ|xᵢ − mean|. One
# record changes it by up to 2(1 − 1/w): if x_j grows by 1, |x_j − mean| changes by up to 1 − 1/w, and each of the
# others by up to 1/w. D is 0 on constants, and x is M away from one, so M ≤ D ≤ 2(1 − 1/w) · M. In units of what one
# record can change, M is therefore never smaller than D, and up to twice as large: the better one to look at through
# noise.


def deviation_sensitivity(width: int) -> int:
    """The most by which one record more or less changes M of so many counts.

    >>> [deviation_sensitivity(width) for width in (1, 2, 100)]
    [0, 1, 1]
    """
    return min(width - 1, 1)


def prefix_deviations(counts: Integers) -> Integers:
    """M of the first 0, 1, …, n counts.

    >>> prefix_deviations(np.array([2, 4, 3])).tolist()
    [0, 0, 2, 2]
    """
    return _scanned(counts, counts.size)


def window_deviations(counts: Integers, width: int) -> Integers:
    """M of every window of so many neighbouring counts, by its first one.

    >>> window_deviations(np.array([2, 4, 3]), 2).tolist()
    [2, 1]
    """
    return _scanned(counts, width)[width:]


def _scanned(counts: Integers, width: int) -> Integers:
    from consilience.privacy.interval_kernels import scan

    values, ranks = np.unique(counts, return_inverse=True)
    found = np.zeros(counts.size + 1, dtype=np.int64)
    scan(np.ascontiguousarray(counts), ranks.astype(np.int64), values, width, found)
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Partitions of n codes into intervals of a fixed family, and the one of least cost.


IntervalFamily = Literal["dyadic", "all", "nested"]

MOST_INTERVALS = 2**18
"""Each interval's cost takes a draw of noise, about twenty microseconds."""


def interval_family(size: int, intervals: IntervalFamily) -> list[tuple[int, int]]:
    """The lengths of the intervals over so many codes, each with the step between its first codes.

    >>> interval_family(5, "all")
    [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]
    >>> interval_family(5, "dyadic")
    [(1, 1), (2, 1), (4, 1)]
    >>> interval_family(2**16, "dyadic")[:5]
    [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4)]
    """
    if intervals == "all":
        return [(width, 1) for width in range(1, size + 1)]
    widths = [2**power for power in range(size.bit_length())]
    finest = widths[-1]
    while finest > 1:
        family = [(width, max(1, width // finest)) for width in widths]
        if sum((size - width) // step + 1 for width, step in family) <= MOST_INTERVALS:
            return family
        finest //= 2
    return [(width, width) for width in widths]


def least_cost_starts(size: int, family: Sequence[tuple[int, int]], costs: Sequence[Integers]) -> list[int]:
    """The first codes of the partition of least cost; among equals, the one with the longest last bucket, and so on.

    >>> least_cost_starts(2, [(1, 1), (2, 1)], [np.array([1, 2]), np.array([3])])
    [0]
    """
    from consilience.privacy.interval_kernels import best_last_buckets

    longest_first = sorted(range(len(family)), key=lambda i: -family[i][0])
    offsets = np.cumsum([0, *(costs[i].size for i in longest_first)])[:-1].astype(np.int64)
    widths, steps = (np.array([family[i][part] for i in longest_first], dtype=np.int64) for part in (0, 1))
    last = best_last_buckets(size, widths, steps, offsets, np.concatenate([costs[i] for i in longest_first]))
    starts, after = [], size
    while after > 0:
        after -= int(last[after])
        starts.append(after)
    return starts[::-1]


# ----------------------------------------------------------------------------------------------------------------------
# A private partition by repeated bisection (after the P-HP of Acs, Castelluccia and Chen 2012).
#
# It begins with all values in one bucket. On each of a public number of levels every bucket is kept or cut in two, by a
# private selection among "keep" and all its cuts; what is kept stays. The cost of a bucket is M = Σ|xᵢ − median|,
# within a factor of two of what an even spread of its total gets wrong, plus a public constant for the noise on that
# total; the selection prefers the least sum of costs. The paper takes the mean for the median, which doubles the
# sensitivity and gains nothing (above).
#
# **Sensitivity of a selection.** A record more or less lies in one bucket, and in one side of each cut. It changes M of
# that side, or of the whole, by at most 1, and nothing else: 2^b in units of 2^−b. Buckets of one value have nothing to
# select.
#
# **Privacy.** Fix the outcome of the levels so far: the buckets of the next level are then the same on both tables.
# Under add-remove the tables differ in one bucket's counts; all other buckets' selections have the same law, and that
# one is ε/levels-private (`privacy.scores`). So a level is ε/levels-private whatever the number of buckets (parallel
# composition), and all levels together are ε-private (adaptive composition). Under replace-one a table is two steps of
# add-remove away, through the table without the record, so ε/2 takes the place of ε.


BITS = 10
"""The noise on a bucket is rounded to 2^−10 records."""

LARGEST_BUCKET_NOISE = 2.0**32


@dataclass(frozen=True)
class Bisection:
    """The buckets after so many levels of bisection; `bucket_noise` is the expected |noise| on a bucket's total."""

    attribute: str
    levels: int
    bucket_noise: float
    bits: int = BITS

    def check(self, domain: Domain) -> None:
        size = domain[self.attribute].size
        if not 1 <= self.levels <= size:
            raise DeclarationError(
                f"{self.levels} levels of bisection of the {size} values of {self.attribute!r}; use 1 to {size}"
            )
        check_bucket_noise(self.bucket_noise)

    def draw(self, counts: Integers, *, epsilon: float, neighbours: Neighbours, noise: NoiseSource) -> Sequence[int]:
        for_level = math.nextafter(for_add_remove(epsilon, neighbours) / self.levels, 0.0)
        final: list[int] = []
        growing = [(0, counts.size)]
        for _ in range(self.levels):
            cut: list[tuple[int, int]] = []
            for first, after in growing:
                place = self._select(counts[first:after], for_level, noise) if after - first > 1 else 0
                if place:
                    cut += [(first, first + place), (first + place, after)]
                else:
                    final.append(first)
            growing = cut
        return sorted(final + [first for first, _ in growing])

    def _select(self, counts: Integers, epsilon: float, noise: NoiseSource) -> int:
        """How many values go left of the cut; 0 keeps the bucket whole."""
        return select(
            -self.costs(counts),
            sensitivity=deviation_sensitivity(counts.size) * 2**self.bits,
            epsilon=epsilon,
            noise=noise,
        )

    def costs(self, counts: Integers) -> Integers:
        """The cost of keeping these counts together, then of cutting after the first, the second, …; confidential."""
        left, right = prefix_deviations(counts), prefix_deviations(counts[::-1])[::-1]
        once = round(self.bucket_noise * 2**self.bits)
        costs = (left[:-1] + right[:-1]) * 2**self.bits + 2 * once
        costs[0] -= once
        return costs

    def fingerprint(self) -> Sequence[object]:
        return ["bisection", self.attribute, self.levels, self.bucket_noise, self.bits]


def for_add_remove(epsilon: float, neighbours: Neighbours) -> float:
    """The ε under add-remove that gives ε under the relation: replacing a record is removing one and adding one."""
    return epsilon if neighbours == "add-remove" else epsilon / 2


def check_bucket_noise(bucket_noise: float) -> None:
    """Refuse a cost per bucket that is no such number, or would not leave room for sums of costs."""
    if not 0 <= bucket_noise <= LARGEST_BUCKET_NOISE:
        raise DeclarationError(
            f"the noise on a bucket is {bucket_noise}; it lies from 0 to {LARGEST_BUCKET_NOISE:g} records: "
            "partition with a larger budget"
        )


# ----------------------------------------------------------------------------------------------------------------------
# A private partition of least noisy cost (stage 1 of DAWA: Li, Hay, Miklau, Wang 2014, section 4).
#
# A family F of intervals of codes is fixed in public. Each has a cost in units of 2^−b, c_B = 2^b · M_B + a public
# constant, where M_B = Σ|xᵢ − median| is within a factor of two of what an even spread of the bucket's total gets
# wrong, and the constant stands for the noise on that total. Independent discrete Laplace noise z_B is added to every
# cost, and the partition P ⊆ F of all codes with the least Σ (c_B + z_B) is released: the partition alone, neither
# costs nor noise. Among partitions of equal cost the one whose last bucket is longest wins, then whose last but one is,
# and so on: an order that does not look at the data.
#
# **What it costs.** One record more or less, in code t, changes the costs of the intervals that hold t, each by at most
# Δ_w for w codes, and no others: Δ₁ = 0, and Δ_w = Δ = 2^b for w > 1 (above). With noise of scale
#
#     λ_w = (Δ_w + Δ) / ε      for the intervals of w codes,
#
# the partition is ε-private under add-remove. Proof. Let x, x' be neighbours, P a partition, B its one bucket that
# holds t, and w its length. Fix the noise of all other intervals.
#
# 1. Partitions that share B with P differ from P only in buckets without t. Whether P comes before all of them depends
#    neither on z_B nor on whether the table is x or x'. If it does not, P is released on neither table.
# 2. If it does, P is released exactly when it comes before every Q without B. The cost of P grows with z_B and that of
#    Q does not depend on it: P is released on x exactly for z_B ≤ θ, and on x' for z_B ≤ θ', with whole numbers θ and
#    θ' (without such a Q it is released on both).
# 3. θ' ≥ θ − (Δ_w + Δ). Take z_B = θ on x and z_B = θ − Δ_w − Δ on x'. From the first to the second the cost of P falls
#    by at least Δ, and that of Q, which has one bucket with t, by at most Δ. So P still costs no more than Q; if now
#    they cost the same then they did before, and the order between them is the same.
# 4. For discrete Laplace noise Pr(z ≤ θ − k) ≥ exp(−k/λ_w) · Pr(z ≤ θ), whatever θ. With k = Δ_w + Δ this is exp(−ε).
#
# Averaging over the noise of the others gives Pr(P | x') ≥ exp(−ε) · Pr(P | x), for all x, x' and P. ∎
#
# The argument is that of report-noisy-max, with one interval's noise moved, so the number of intervals costs nothing.
# It needs noise on every interval, single codes too (half as much), and costs that no rounding or clipping distorts
# afterwards. The paper takes the mean for the median, with up to twice the sensitivity and no more to see. Under
# replace-one a table is two steps of add-remove away, through the table without the record, so ε/2 takes the place of
# ε.


SMALLEST_EPSILON = 1e-6
"""Below it noise might overflow sums of costs, and drowns any histogram: all values stay in one bucket."""


@dataclass(frozen=True)
class LeastCostPartition:
    """The partition of least noisy cost; `bucket_noise` is the expected |noise| on a bucket's total.

    `intervals` is "dyadic": lengths that are powers of two, at every code where that makes at most 2¹⁸ intervals, and
    else at multiples of a fraction of their length; or "all", for few values.
    """

    attribute: str
    bucket_noise: float
    intervals: IntervalFamily = "dyadic"
    bits: int = BITS

    def check(self, domain: Domain) -> None:
        size = domain[self.attribute].size
        check_bucket_noise(self.bucket_noise)
        if self.intervals not in ("dyadic", "all"):
            raise DeclarationError(f"the intervals {self.intervals!r} are not known; use 'dyadic', 'all' or 'nested'")
        if self.intervals == "all" and size * (size + 1) // 2 > MOST_INTERVALS:
            raise DeclarationError(
                f"{self.attribute!r} has {size} values and {size * (size + 1) // 2} intervals, {MOST_INTERVALS} are "
                "allowed; use intervals='dyadic'"
            )

    def draw(self, counts: Integers, *, epsilon: float, neighbours: Neighbours, noise: NoiseSource) -> Sequence[int]:
        per_step = for_add_remove(epsilon, neighbours)
        if counts.size == 1 or per_step < SMALLEST_EPSILON:
            return [0]
        family = interval_family(counts.size, self.intervals)
        largest = max(self.sensitivity(width) for width, _ in family)
        noisy = [
            noise.laplace(costs, laplace_scale(per_step, self.sensitivity(width) + largest))
            for (width, _), costs in zip(family, self.costs(counts, family), strict=True)
        ]
        return least_cost_starts(counts.size, family, noisy)

    def sensitivity(self, width: int) -> int:
        """By how many units of 2^−b one record more or less changes the cost of an interval of so many codes."""
        return deviation_sensitivity(width) * 2**self.bits

    def costs(self, counts: Integers, family: Sequence[tuple[int, int]]) -> list[Integers]:
        """For each length the cost of its intervals, first to last; confidential."""
        once = round(self.bucket_noise * 2**self.bits)
        if self.intervals == "all":
            rows = [self._prefixes(counts[first:]) for first in range(counts.size)]
            found = [np.array([row[width] for row in rows[: counts.size - width + 1]]) for width, _ in family]
        else:
            found = [self._windows(counts, width)[::step] for width, step in family]
        return [deviations + once for deviations in found]

    def _prefixes(self, counts: Integers) -> Integers:
        return prefix_deviations(counts) * 2**self.bits

    def _windows(self, counts: Integers, width: int) -> Integers:
        return window_deviations(counts, width) * 2**self.bits

    def fingerprint(self) -> Sequence[object]:
        return ["least-cost-partition", self.attribute, self.bucket_noise, self.intervals, self.bits, MOST_INTERVALS]


# ----------------------------------------------------------------------------------------------------------------------
# A private partition into nested intervals, by noisy costs that are never below zero.
#
# Codes are cut into intervals of w² codes, these into intervals of w, these into single codes, with w about the third
# root of their number. M_B = Σ|xᵢ − median| of every interval of w and of w² codes gets independent discrete Laplace
# noise, and all that follows looks at the noisy costs alone: below zero they are set to zero, and bottom up an interval
# is kept whole where its cost is at most that of a cut: a public price, for what its noise adds, and the mean of what
# its parts cost. The mean, because a range ends in one of the parts, and its error there is what counts. Noise below
# zero would make many small buckets look cheap together: that is what the least sum over all intervals suffers from
# where the noise is large against the costs.
#
# **Privacy.** A record more or less lies in one interval of each width and changes its M by at most 1, and no other: so
# the costs of a width, with noise of scale 1/ε', are ε'-private, and those of two widths with ε' = ε/2 are ε-private.
# What is computed from them costs nothing. Under replace-one ε/2 takes the place of ε, as above.


def nested_widths(size: int) -> tuple[int, ...]:
    """How many codes the intervals have between single codes and all, a power of two and its square.

    >>> nested_widths(4096), nested_widths(2**15), nested_widths(7), nested_widths(2)
    ((16, 256), (32, 1024), (2, 4), ())
    """
    width = 2 ** -(-(size - 1).bit_length() // 3)
    return tuple(each for each in (width, width * width) if 1 < each < size)


@dataclass(frozen=True)
class NestedCostPartition:
    """The partition into nested intervals of least noisy cost; `cut_price` is in records."""

    attribute: str
    cut_price: float
    bits: int = BITS

    def check(self, domain: Domain) -> None:
        domain[self.attribute]
        check_bucket_noise(self.cut_price)

    def draw(self, counts: Integers, *, epsilon: float, neighbours: Neighbours, noise: NoiseSource) -> Sequence[int]:
        widths, spent = nested_widths(counts.size), for_add_remove(epsilon, neighbours)
        if spent < SMALLEST_EPSILON:
            return range(0, counts.size, widths[-1] if widths else 1)
        scale = laplace_scale(math.nextafter(spent / max(len(widths), 1), 0.0), 1)
        noisy = [noise.laplace(nested_deviations(counts, width), scale) for width in widths]
        return self.least_cost_starts(counts.size, noisy)

    def least_cost_starts(self, size: int, noisy: Sequence[Integers]) -> list[int]:
        """The first codes of the partition, from the noisy deviations of the intervals of each width; public."""
        price = round(self.cut_price * 2**self.bits)
        starts, within = np.arange(size), 1
        best = np.zeros(size, dtype=np.int64)
        for width, deviations in zip(nested_widths(size), noisy, strict=True):
            whole = np.maximum(deviations, 0) * 2**self.bits
            firsts = np.arange(0, best.size, width // within)
            cut = price + np.add.reduceat(best, firsts) // np.diff(np.append(firsts, best.size))
            kept = (whole <= cut)[np.arange(size) // width]
            starts = np.where(kept, np.arange(size) // width * width, starts)
            best, within = np.minimum(whole, cut), width
        return np.unique(starts).tolist()

    def fingerprint(self) -> Sequence[object]:
        return ["nested-cost-partition", self.attribute, self.cut_price, self.bits]


def nested_deviations(counts: Integers, width: int) -> Integers:
    """M of consecutive intervals of so many counts, the last one cut short; confidential.

    >>> nested_deviations(np.array([2, 4, 3, 3, 9]), 2).tolist()
    [2, 0, 0]
    """
    whole = counts.size - counts.size % width
    intervals = np.sort(counts[:whole].reshape(-1, width), axis=1)
    found = np.abs(intervals - intervals[:, width // 2, None]).sum(axis=1)
    rest = np.sort(counts[whole:])
    return np.append(found, np.abs(rest - rest[rest.size // 2]).sum()) if rest.size else found
