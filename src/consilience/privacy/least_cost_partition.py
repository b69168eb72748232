"""A private partition of least noisy cost (stage 1 of DAWA: Li, Hay, Miklau, Wang 2014, section 4).

A family F of intervals of codes is fixed in public. Each has a cost in units of 2^−b, c_B = 2^b · M_B + a public
constant, where M_B = Σ|xᵢ − median| is within a factor of two of what an even spread of the bucket's total gets
wrong, and the constant stands for the noise on that total. Independent discrete Laplace noise z_B is added to every
cost, and the partition P ⊆ F of all codes with the least Σ (c_B + z_B) is released: the partition alone, neither
costs nor noise. Among partitions of equal cost the one whose last bucket is longest wins, then whose last but one is,
and so on: an order that does not look at the data.

**What it costs.** One record more or less, in code t, changes the costs of the intervals that hold t, each by at most
Δ_w for w codes, and no others: Δ₁ = 0, and Δ_w = Δ = 2^b for w > 1 (`privacy.absolute_deviations`). With noise of
scale

    λ_w = (Δ_w + Δ) / ε      for the intervals of w codes,

the partition is ε-private under add-remove. Proof. Let x, x' be neighbours, P a partition, B its one bucket that
holds t, and w its length. Fix the noise of all other intervals.

1. Partitions that share B with P differ from P only in buckets without t. Whether P comes before all of them depends
   neither on z_B nor on whether the table is x or x'. If it does not, P is released on neither table.
2. If it does, P is released exactly when it comes before every Q without B. The cost of P grows with z_B and that of Q
   does not depend on it: P is released on x exactly for z_B ≤ θ, and on x' for z_B ≤ θ', with whole numbers θ and θ'
   (without such a Q it is released on both).
3. θ' ≥ θ − (Δ_w + Δ). Take z_B = θ on x and z_B = θ − Δ_w − Δ on x'. From the first to the second the cost of P falls
   by at least Δ, and that of Q, which has one bucket with t, by at most Δ. So P still costs no more than Q; if now
   they cost the same then they did before, and the order between them is the same.
4. For discrete Laplace noise Pr(z ≤ θ − k) ≥ exp(−k/λ_w) · Pr(z ≤ θ), whatever θ. With k = Δ_w + Δ this is exp(−ε).

Averaging over the noise of the others gives Pr(P | x') ≥ exp(−ε) · Pr(P | x), for all x, x' and P. ∎

The argument is that of report-noisy-max, with one interval's noise moved, so the number of intervals costs nothing. It
needs noise on every interval, single codes too (half as much), and costs that no rounding or clipping distorts
afterwards. The paper takes the mean for the median, with up to twice the sensitivity and no more to see. Under
replace-one a table is two steps of add-remove away, through the table without the record, so ε/2 takes the place of
ε.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.privacy.absolute_deviations import deviation_sensitivity, prefix_deviations, window_deviations
from consilience.privacy.bisection import check_bucket_noise, for_add_remove
from consilience.privacy.interval_partitions import MOST_INTERVALS, IntervalFamily, interval_family, least_cost_starts
from consilience.privacy.noise import NoiseSource, laplace_scale
from consilience.privacy.partitions import Integers

BITS = 10

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
            raise DeclarationError(f"the intervals {self.intervals!r} are not known; use 'dyadic' or 'all'")
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
        unit = 2**self.bits
        noisy = [
            noise.laplace(costs, laplace_scale(per_step, (deviation_sensitivity(width) + 1) * unit))
            for (width, _), costs in zip(family, self.costs(counts, family), strict=True)
        ]
        return least_cost_starts(counts.size, family, noisy)

    def costs(self, counts: Integers, family: Sequence[tuple[int, int]]) -> list[Integers]:
        """For each length the cost of its intervals, first to last; confidential."""
        once = round(self.bucket_noise * 2**self.bits)
        if self.intervals == "all":
            rows = [prefix_deviations(counts[first:]) for first in range(counts.size)]
            found = [np.array([row[width] for row in rows[: counts.size - width + 1]]) for width, _ in family]
        else:
            found = [window_deviations(counts, width)[::step] for width, step in family]
        return [deviations * 2**self.bits + once for deviations in found]

    def fingerprint(self) -> Sequence[object]:
        return ["least-cost-partition", self.attribute, self.bucket_noise, self.intervals, self.bits, MOST_INTERVALS]
