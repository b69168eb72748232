"""What plans with private buckets share: the price of a bucket, and the least number of them."""

import math
from collections.abc import Sequence

from consilience.privacy.budgets import Budget


def mean_absolute_noise(budget: Budget) -> float:
    """E|noise| on each of some disjoint counts that are measured with this budget, one record per unit, add-remove.

    Under ε the noise is Laplace of scale 1/ε, and its mean absolute value is that scale; under ρ it is Gaussian of
    stddev 1/√(2ρ), with √(2/π) times that.

    >>> from consilience.privacy.budgets import budget
    >>> mean_absolute_noise(budget(epsilon=0.5)), round(mean_absolute_noise(budget(rho=0.5)), 4)
    (2.0, 0.7979)
    """
    amount = float(budget.amount)
    return 1.0 / amount if budget.additive_unit == "epsilon" else 1.0 / math.sqrt(math.pi * amount)


def at_least_two(starts: Sequence[int], size: int) -> tuple[int, ...]:
    """The buckets, or the two halves of the only one.

    A single bucket would measure nothing but the total.

    >>> at_least_two((0, 3), 8), at_least_two((0,), 8), at_least_two((0,), 1)
    ((0, 3), (0, 4), (0,))
    """
    return tuple(starts) if len(starts) > 1 or size == 1 else (0, size // 2)
