"""EFPA, P-HP and DAWA as they were published, beside the plans of `published.histograms` that improve on them.

They are here to be compared with. Everything goes through the gate like any other plan, so that discrete noise on
public lattices takes the place of real noise; what else differs from the authors' own code is said with each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from consilience.domain.attributes import Attribute
from consilience.domain.factors import Fourier, Intervals
from consilience.domain.queries import Query
from consilience.errors import DeclarationError
from consilience.kernels.transforms import most_frequencies, rows_of
from consilience.plans.base import DescribedPlan, check_share, in_two_parts, mean_absolute_noise
from consilience.plans.published.histograms import Dawa
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.mean_partitions import LeastMeanCostPartition, NestedBisection
from consilience.privacy.network_scores import SpectralTail


@dataclass(frozen=True)
class EfpaAsPublished(DescribedPlan):
    """As many Fourier coefficients of one attribute's counts as EFPA keeps, with the noise that it adds.

    Acs, Castelluccia, Chen 2012, section IV. With the coefficients c₀, c₁, … in an orthonormal basis and ε₁ = ε₂ = ε/2,
    the exponential mechanism spends ε₁ on the number of rows k, with sensitivity 1, by

        −( ‖(c_k, c_{k+1}, …)‖₂ + √2 · k/ε₂ ),

    and the k coefficients get Laplace noise of scale √k/ε₂, by ‖·‖₁ ≤ √k ‖·‖₂ and the L2 sensitivity 1 of a histogram.
    All numbers of frequencies are candidates, the total alone, too; time grows with the square of the number of values.

    What `Efpa` does better: its noise follows the sensitivity of the rows that are kept, smaller by up to √(n/k); it
    chooses by permute-and-flip under ε; and its candidates end with `largest`.

    Under ρ, of which the paper does not speak, the same argument is made with Gaussian noise for the L2 sensitivity 1.
    The authors' code adds noise to the magnitudes of complex coefficients and none to their phases, which is not
    private; here their real and imaginary parts have noise of the scale that the paper states.
    """

    name = "efpa-published"
    attribute: str
    selection_share: float = 0.5

    def __post_init__(self) -> None:
        check_share(self.selection_share, "the selection")

    def run(self, gate: Gate) -> None:
        size = gate.domain[self.attribute].size
        selection, rest = in_two_parts(gate.budget, self.selection_share)
        penalties = tuple(published_noise_norm(size, 1 + place, rest) for place in range(most_frequencies(size)))
        chosen = gate.select(SpectralTail(self.attribute, size, penalties), selection, selector="exponential")
        rows = rows_of(size, chosen) if rest.additive_unit == "epsilon" else 1
        # Rows of an orthonormal basis are shorter than ours by √n.
        gate.measure(Query.of({self.attribute: Fourier(chosen)}), rest, sensitivity_at_least=math.sqrt(rows * size))


def published_noise_norm(size: int, frequencies: int, budget: Budget) -> float:
    """The norm (root of the mean square) of the noise that the paper puts on the counts: √2 · k/ε, or √(k/2ρ).

    >>> from consilience.privacy.budgets import budget
    >>> published_noise_norm(64, 5, budget(rho=0.5)), round(published_noise_norm(64, 5, budget(epsilon=2)), 4)
    (3.0, 6.364)
    """
    rows, amount = rows_of(size, frequencies), float(budget.amount)
    return math.sqrt(rows / (2 * amount)) if budget.additive_unit == "rho" else math.sqrt(2) * rows / amount


@dataclass(frozen=True)
class PhpAsPublished(DescribedPlan):
    """The totals of the buckets that P-HP chooses among the partitions of a private bisection.

    Acs, Castelluccia, Chen 2012, section V. Half of `partition_share` bisects buckets on ⌊log₂ n⌋ levels by the
    exponential mechanism, so as to lower Σ|count − mean of its bucket|; the other half chooses among the
    partitions met on the way (`privacy.mean_partitions` has the rule and its proof). The rest measures the totals of
    the chosen buckets, and least squares of least norm spreads each evenly. A single bucket is nothing but the total.

    What `Php` does differently: it takes the median for the mean, with half the sensitivity; it selects by
    permute-and-flip; it spends nothing on a choice afterwards, because a bucket that is not worth its noise is kept
    whole on the way; and never measures the total alone. The authors' code stops at 200 buckets; here nothing does.
    """

    name = "php-published"
    attribute: str
    partition_share: float = 0.5
    levels: int | None = None

    def __post_init__(self) -> None:
        check_share(self.partition_share, "the partition")
        if self.levels is not None and self.levels < 1:
            raise DeclarationError(f"{self.levels} levels of bisection were asked for; use 1 or more")

    def run(self, gate: Gate) -> None:
        attribute = gate.domain[self.attribute]
        levels = self.levels or max(1, attribute.size.bit_length() - 1)
        partition, rest = in_two_parts(gate.budget, self.partition_share)
        starts = gate.partition(NestedBisection(self.attribute, levels, mean_absolute_noise(rest)), partition)
        gate.measure(Query.of({self.attribute: Intervals.from_codes(attribute, starts)}), rest)


@dataclass(frozen=True)
class DawaAsPublished(Dawa):
    """The counts of a binary tree over DAWA's buckets, each level with the share that GreedyH gives it.

    Li, Hay, Miklau, Wang 2014. Stage 1 spends `partition_share` on a partition of least noisy cost, where a bucket
    costs Σ|count − mean| and the noise on its total (`privacy.mean_partitions`). Stage 2 measures a binary tree over
    the buckets, with shares by GreedyH for the `ranges` that people will ask for, pairs of labels from and to; by
    default for all that begin with the first value. A single bucket is nothing but the total.

    What `Dawa` does differently: it takes the median for the mean, with half the sensitivity; without `ranges` it
    chooses a branching and gives all levels the same share; and never measures the total alone. The noise in stage 1
    is what the proof needs, here as there: twice that of the authors' code.
    """

    name = "dawa-published"
    branching: int | None = 2

    def run(self, gate: Gate) -> None:
        partition, rest = in_two_parts(gate.budget, self.partition_share)
        attribute = gate.domain[self.attribute]
        asked = self._codes(attribute)
        rule = LeastMeanCostPartition(self.attribute, mean_absolute_noise(rest), self.intervals)
        self._measure_tree(gate, gate.partition(rule, partition), asked, rest)

    def _codes(self, attribute: Attribute) -> Sequence[tuple[int, int]]:
        return super()._codes(attribute) or [(0, last) for last in range(attribute.size)]
