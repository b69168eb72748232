"""Values that nobody has to declare: those of an attribute that enough units have, and nothing else of it.

Only values that occur can be counted where nobody has listed them, and that a value occurs may give one unit away. So
each unit counts for at most m values, once each; every count c ≥ 1 gets discrete Gaussian noise Z of standard deviation
σ, and the values with c + Z ≥ t are kept (stability-based selection: Korolova, Kenthapadi, Mishra, Ntoulas 2009; Bun,
Nissim, Stemmer 2016). What leaves is the set of kept values: no count, and not how many values were not kept.

**Privacy.** Let the tables D and D' be neighbours, and let A be the values that both have. Of the values that D alone
has each has a count of 1, because all of its units but one are in D' as well, and there are at most m of them; likewise
of those of D'. Let E be the event that no value of D alone is kept, and E' that none of D' alone is.

1. E fails with a probability of at most m · P(1 + Z ≥ t) by the union bound, and so does E'. With

       m · P(1 + Z ≥ t) ≤ δ                                                                                     (*)

   both hold with a probability of at least 1 − δ.
2. Given E, what D shows is which of the values in A are kept, and so it is for D' given E', since all noise is
   independent. Over A the counts of D and D' differ by at most 1 in at most m places under add-remove, and in at most
   2m under replace-one: their squared distance is at most d = m or d = 2m. Discrete Gaussian noise with σ² ≥ d/2ρ makes
   them ρ-zCDP (Canonne, Kamath, Steinke 2020, Theorem 4), and looking only at which of them reach t does not undo that.

So the selection is ρ-zCDP but for a failure of probability δ: δ-approximately ρ-zCDP (Bun, Steinke 2016, Definition
8.1). Failures add up as ρ does, and a total of (ε, δ) is kept by holding ρ to what (ε, δ − Σδ) allows (their Lemmas 8.2
and 8.8). No pure ε can do it: whether a value may be shown would have to be the same where nobody has it. ∎

**The threshold** is the least whole number t for which (*) is certain. With T(z) = Σ_{k ≥ z} exp(−k²/2σ²), of which
the part from s on is at most exp(−s²/2σ²)/(1 − exp(−(2s + 1)/2σ²)), and the sum over all whole numbers, which is at
least √(2π)·σ (Poisson summation) and at least any part of it, P(Z ≥ z) is bounded from above in 60 digits.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np

from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.privacy.budgets import Budget
from consilience.privacy.noise import NoiseSource

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
DIGITS = 60
MARGIN = Decimal("1e-40")
"""What is computed with 60 digits is off by far less than this part of itself; bounds are moved by it."""

LARGEST_STDDEV = 2e4
"""With more noise only values that tens of thousands of units have would be kept, and the bound takes seconds."""


@dataclass(frozen=True)
class ValueSelection:
    """Which values to keep: those whose count with noise of this standard deviation reaches the threshold."""

    stddev: float
    threshold: int

    @staticmethod
    def priced(budget: Budget, *, neighbours: Neighbours, values_per_unit: int) -> "ValueSelection":
        """The selection that costs this ρ and fails with this probability, where a unit counts for so many values."""
        if budget.additive_unit == "epsilon":
            raise DeclarationError(
                f"values cannot be discovered with a pure {budget.describe()}: a value that one unit alone has could "
                "never be told from one that nobody has, so that nothing could be shown; give epsilon a delta, such as "
                "1e-9, or declare the values"
            )
        if not budget.failure:
            raise DeclarationError(
                f"values cannot be discovered with {budget.describe()} alone: a value that one unit has may only be "
                "shown with a probability that you set; add a failure delta, such as 1e-10"
            )
        distance = values_per_unit * (1 if neighbours == "add-remove" else 2)
        stddev = _least_stddev(Fraction(distance) / (2 * Fraction(budget.amount)))
        if stddev > LARGEST_STDDEV:
            raise DeclarationError(
                f"{budget.describe()} is too little to discover values: only those that more than "
                f"{stddev:,.0f} units have would be kept; ask with a larger budget"
            )
        return ValueSelection(stddev, least_threshold(stddev, budget.failure, values_per_unit))

    def kept(self, counts: Mapping[str, int], noise: NoiseSource) -> list[str]:
        """The values that are kept, of those that occur with these counts."""
        values = sorted(counts)
        noisy = noise.gaussian(np.array([counts[value] for value in values], dtype=np.int64), self.stddev)
        return [value for value, count in zip(values, noisy.tolist(), strict=True) if count >= self.threshold]


def _least_stddev(variance: Fraction) -> float:
    """A float, close to the root, whose square is no less than this."""
    stddev = math.sqrt(variance)
    while Fraction(stddev) ** 2 < variance:
        stddev = math.nextafter(stddev, math.inf)
    return stddev


@lru_cache(maxsize=256)
def least_threshold(stddev: float, failure: Decimal, values_per_unit: int) -> int:
    """The least whole number t from 2 up for which so many values of one unit all stay below it but for this chance.

    >>> least_threshold(1.0, Decimal("0.01"), 1), least_threshold(10.0, Decimal("1e-10"), 1)
    (4, 66)
    """
    with localcontext(Context(prec=DIGITS)):
        twice = 2 * Decimal(stddev) ** 2

        def term(z: int) -> Decimal:
            return (-Decimal(z * z) / twice).exp()

        whole = max((PI * twice).sqrt(), 1 + 2 * sum(map(term, range(1, 5)), Decimal(0))) * (1 - MARGIN)
        allowed = failure / values_per_unit * whole * (1 - MARGIN)
        far = int((twice * (25 - allowed.ln())).sqrt()) + 2  # what lies beyond is 10^−10 of what is allowed, or less
        tail = term(far) / (1 - (-Decimal(2 * far + 1) / twice).exp())
        while far > 1 and (tail := tail + term(far - 1)) <= allowed:
            far -= 1
        return far + 1
