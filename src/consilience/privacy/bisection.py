"""A private partition by repeated bisection (after the P-HP of Acs, Castelluccia and Chen 2012).

It begins with all values in one bucket. On each of a public number of levels every bucket is kept or cut in two, by a
private selection among "keep" and all its cuts; what is kept stays. The cost of a bucket is M = Σ|xᵢ − median|,
within a factor of two of what an even spread of its total gets wrong, plus a public constant for the noise on that
total; the selection prefers the least sum of costs. The paper takes the mean for the median, which doubles the
sensitivity and gains nothing (`privacy.absolute_deviations`).

**Sensitivity of a selection.** A record more or less lies in one bucket, and in one side of each cut. It changes M of
that side, or of the whole, by at most 1, and nothing else: 2^b in units of 2^−b. Buckets of one value have nothing to
select.

**Privacy.** Fix the outcome of the levels so far: the buckets of the next level are then the same on both tables. Under
add-remove the tables differ in one bucket's counts; all other buckets' selections have the same law, and that one is
ε/levels-private (`privacy.selection`). So a level is ε/levels-private whatever the number of buckets (parallel
composition), and all levels together are ε-private (adaptive composition). Under replace-one a table is two steps of
add-remove away, through the table without the record, so ε/2 takes the place of ε.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.privacy.absolute_deviations import deviation_sensitivity, prefix_deviations
from consilience.privacy.noise import NoiseSource
from consilience.privacy.partitions import Integers
from consilience.privacy.selection import select

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
