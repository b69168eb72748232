"""Histograms by DAWA, P-HP, EFPA and wavelets: each with what improves on it here, and three as they were published."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from consilience.domain.attributes import Attribute
from consilience.domain.factors import Factor, Fourier, Haar, Intervals, Nominal
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.kernels.transforms import most_frequencies, rows_of
from consilience.plans.base import (
    DescribedPlan,
    at_least_two,
    best_selector,
    check_share,
    in_two_parts,
    mean_absolute_noise,
)
from consilience.plans.histogram import AskedRanges, best_tree, without_workload
from consilience.privacy.budgets import AdditiveUnit, Budget
from consilience.privacy.gate import Gate
from consilience.privacy.mean_partitions import LeastMeanCostPartition, NestedBisection
from consilience.privacy.network_scores import SpectralTail
from consilience.privacy.partitions import (
    Bisection,
    IntervalFamily,
    LeastCostPartition,
    NestedCostPartition,
    PartitionRule,
)
from consilience.strategies.count_trees import WeightedRanges, branching_for, greedy_level_shares, levels_of

NESTED_PRICE = 27.0
"""What cutting a nested interval costs, in units of the mean noise on a count. At a partition share of 0.1 that is one
and a half times the scale of the noise on its cost, so that one in ten intervals of equal counts is cut for nothing. On
sparse histograms of the tuning half of `python -m benchmarks ranges`, at ε = 0.01, 7 was worse and 70 better."""


@dataclass(frozen=True)
class Dawa(DescribedPlan):
    """The counts of a tree over buckets of neighbouring values, cut privately where counts differ.

    Stage 1 spends `partition_share` on a partition of least noisy cost, where a bucket costs Σ|count − median| and
    the noise on its total (`privacy.partitions` has the mechanism and its proof). `intervals` are the
    buckets it may use: "dyadic", with lengths that are powers of two, or "all", for few values. If all values stay in
    one bucket its halves take its place. Where the noise on costs is large against the costs, the least sum is one of
    many small buckets. "nested" intervals, which are cut into about ∛n parts or kept whole, do not have that fault,
    because their noisy costs are never below zero (`NestedCostPartition`); they follow cuts less exactly.

    Stage 2 measures a tree of counts over the buckets with the rest. With a `workload` its branching and the shares of
    its levels are those of the least expected error of what that asks of the attribute alone (`best_tree`; all ranges
    of values are taken to be all ranges of buckets). Without it all levels get the same share, and the `branching` is
    by default that of `branching_for`. With `ranges`, pairs of labels from and to, levels get shares by GreedyH for
    these ranges, in a binary tree unless a branching is given, as published: on many long ranges that is far from the
    best. A level with no share is left out. Least squares of least norm spreads a bucket evenly over its values.

    A range that consists of whole buckets has the variance of the tree over them; in a bucket that it cuts, an error
    of at most that bucket's Σ|count − mean| joins.
    """

    name = "dawa"
    attribute: str
    partition_share: float = 0.25
    intervals: IntervalFamily = "dyadic"
    branching: int | None = None
    ranges: Sequence[tuple[str, str]] | None = None
    workload: Workload | None = None

    def __post_init__(self) -> None:
        check_share(self.partition_share, "the partition")
        if self.workload is not None and self.ranges is not None:
            raise DeclarationError("ranges and a workload were given; name the ranges in the workload")
        if self.branching is not None and self.branching < 2:
            raise DeclarationError(f"a branching of {self.branching} makes no tree; use 2 or more")
        if self.ranges is not None:
            object.__setattr__(self, "ranges", tuple((str(low), str(high)) for low, high in self.ranges))
            if not self.ranges:
                raise DeclarationError("the list of ranges is empty; name at least one, or leave it out for all alike")

    def run(self, gate: Gate) -> None:
        attribute = gate.domain[self.attribute]
        asked = self._codes(attribute)
        partition, rest = in_two_parts(gate.budget, self.partition_share)
        noise = mean_absolute_noise(rest)
        rule: PartitionRule = LeastCostPartition(self.attribute, noise, self.intervals)
        if self.intervals == "nested":
            rule = NestedCostPartition(self.attribute, NESTED_PRICE * noise)
        starts = at_least_two(gate.partition(rule, partition), attribute.size)
        self._measure_tree(gate, starts, asked, rest)

    def _measure_tree(self, gate: Gate, starts: Sequence[int], asked: Sequence[tuple[int, int]], rest: Budget) -> None:
        """Stage 2."""
        attribute, unit = gate.domain[self.attribute], gate.budget.additive_unit
        if self.workload is not None:
            told = AskedRanges.of(self.workload, gate.domain, self.attribute)
            branching, shares = best_tree(told, tuple(starts), attribute.size, unit, self.branching)
            levels = _widths_of(shares, branching)
        else:
            levels = self._levels(starts, attribute, asked, unit)
        queries = [Query.of({self.attribute: Intervals.from_codes(attribute, starts[::width])}) for width, _ in levels]
        gate.measure(queries, rest, shares=[share for _, share in levels])

    def _levels(
        self, starts: Sequence[int], attribute: Attribute, asked: Sequence[tuple[int, int]], unit: AdditiveUnit
    ) -> list[tuple[int, float]]:
        """How many buckets a node of each level spans, and the level's share; root first."""
        buckets = len(starts)
        branching = self.branching or (2 if asked else branching_for(buckets, unit=unit))
        height = levels_of(buckets, branching)
        shares = [1.0] * height
        if asked:
            ranges = WeightedRanges.of_codes(asked, starts, attribute.size)
            shares, _ = greedy_level_shares(ranges, buckets, branching, unit=unit)
        return _widths_of(shares, branching)

    def to_json(self) -> dict[str, Any]:
        return without_workload(super().to_json())

    def _codes(self, attribute: Attribute) -> Sequence[tuple[int, int]]:
        """The first and last code of each range asked for."""
        found = [attribute.codes_between(low, high) for low, high in self.ranges or ()]
        return [(codes[0], codes[-1]) for codes in found]


def _widths_of(shares: Sequence[float], branching: int) -> list[tuple[int, float]]:
    """How many leaves a node of each level spans, and the level's share, root first; without levels of no share."""
    widths = [branching ** (len(shares) - 1 - level) for level in range(len(shares))]
    return [(width, share) for width, share in zip(widths, shares, strict=True) if share > 0]


# ----------------------------------------------------------------------------------------------------------------------
# P-HP: a histogram of buckets that private bisection found (Acs, Castelluccia, Chen 2012).


MOST_BISECTIONS = 12
"""Levels of bisection at most, where they are not given; by trial, no figure kept."""


@dataclass(frozen=True)
class Php(DescribedPlan):
    """The totals of buckets of neighbouring values, cut by private bisection where counts differ.

    A share of the budget chooses the buckets: on each of `levels` levels every bucket is cut in two, or kept, so as to
    lower Σ|count − median of its bucket| (`privacy.partitions` has the rule and its proof). The rest measures
    the bucket totals; least squares of least norm spreads each evenly. By default there are ⌊log₂ n⌋ levels as in the
    paper, and no more than 12. If all values stay in one bucket its two halves are measured. The mean absolute error
    of a bucket of w values is then at most D/w + E|noise|/w, with D the sum of absolute deviations from its mean.
    """

    name = "php"
    attribute: str
    partition_share: float = 0.5
    levels: int | None = None

    def __post_init__(self) -> None:
        check_share(self.partition_share, "the partition")
        if self.levels is not None and self.levels < 1:
            raise DeclarationError(f"{self.levels} levels of bisection were asked for; use 1 or more")

    def run(self, gate: Gate) -> None:
        attribute = gate.domain[self.attribute]
        levels = self.levels or max(1, min(attribute.size.bit_length() - 1, MOST_BISECTIONS))
        partition, rest = in_two_parts(gate.budget, self.partition_share)
        rule = Bisection(self.attribute, levels, mean_absolute_noise(rest))
        starts = at_least_two(gate.partition(rule, partition), attribute.size)
        gate.measure(Query.of({self.attribute: Intervals.from_codes(attribute, starts)}), rest)


# ----------------------------------------------------------------------------------------------------------------------
# EFPA: a histogram through as many low frequencies as are worth their noise (Acs, Castelluccia, Chen 2012).


@dataclass(frozen=True)
class Efpa(DescribedPlan):
    """The Fourier coefficients of one attribute's counts, up to a frequency that is chosen privately.

    With the counts' coefficients c₀, c₁, … in an orthonormal basis, keeping the first k leaves out the norm of the
    others and adds the norm of the noise. A share of the budget selects the number of frequencies by

        ‖(c_k, c_{k+1}, …)‖₂ + √(k · variance of one coefficient's noise),

    the rest measures the coefficients kept (paper, section IV). Two things are better than in `EfpaAsPublished`:

    - *The noise.* The paper takes the L1 sensitivity of k coefficients to be √k, by ‖·‖₁ ≤ √k ‖·‖₂ and the L2
      sensitivity 1 of the whole histogram. A column of the first k rows has the squared L2 norm k/n, so that its L1
      norm is at most k/√n ≤ √k. The gate takes the largest column norm of the rows as they are, rounded to their
      lattice, which is at most that up to the rounding. For k much smaller than n, where EFPA is used, this is less
      noise by √(n/k).
    - *The selection.* Candidates end with `largest` frequencies, and what lies beyond counts for none of them: it is
      lost whichever is chosen, so no choice should depend on it. They begin with frequencies 0 and 1, because frequency
      0 alone is nothing but the total.
    """

    name = "efpa"
    attribute: str
    selection_share: float = 0.5
    largest: int = 2048

    def __post_init__(self) -> None:
        check_share(self.selection_share, "the selection")
        if self.largest < 2:
            raise DeclarationError(f"at most {self.largest} frequencies were asked for; allow 2 or more")

    def run(self, gate: Gate) -> None:
        size = gate.domain[self.attribute].size
        fewest = min(2, most_frequencies(size))
        candidates = range(fewest, max(fewest, min(most_frequencies(size), self.largest)) + 1)
        selection, rest = in_two_parts(gate.budget, self.selection_share)
        penalties = tuple(noise_norm(size, frequencies, rest) for frequencies in candidates)
        selector = best_selector(gate.budget.additive_unit)
        chosen = gate.select(SpectralTail(self.attribute, size, penalties, fewest), selection, selector=selector)
        gate.measure(Query.of({self.attribute: Fourier(chosen)}), rest)


def noise_norm(size: int, frequencies: int, budget: Budget) -> float:
    """The expected norm (root of the mean square) of the noise on the counts that these frequencies bring.

    With k rows of squared norm n, equal noise of variance v on each puts a squared norm of k·v/n on the counts. Under
    ρ the L2 sensitivity is √k and v = k/(2ρ). Under ε it is v = 2(S/ε)², with S ≈ 1 + (4√2/π) · pairs: the mean of
    √2(|cos| + |sin|) over all angles. One record per unit and add-remove are taken for granted; the choice is public
    either way, and other units scale all candidates alike.

    >>> from consilience.privacy.budgets import budget
    >>> noise_norm(2, 1, budget(epsilon=2)), noise_norm(64, 5, budget(rho=0.5))
    (0.5, 1.125)
    """
    rows = rows_of(size, frequencies)
    amount = float(budget.amount)
    if budget.additive_unit == "rho":
        return math.sqrt(rows * rows / (2 * amount) / size)
    sensitivity = 1 + 4 * math.sqrt(2) / math.pi * (rows - 1) / 2
    return math.sqrt(2 * rows / size) * sensitivity / amount


# ----------------------------------------------------------------------------------------------------------------------
# Privlet: the wavelet transform of a table, each coefficient with the same noise (Xiao, Wang, Gehrke 2011).


@dataclass(frozen=True)
class Wavelet(DescribedPlan):
    """The wavelet coefficients of the table over some attributes (by default all), in one query.

    Numbers and dates get the Haar wavelet, hierarchies and categorical attributes the nominal one; several attributes
    their Kronecker product (the paper's "standard decomposition").

    *Equal noise on these rows is Privlet.* The paper adds noise of scale λ/W(c) to the coefficient c. Haar: c is half
    the difference between the averages of the two halves of an interval of m bins, and W(c) = m, so

        W(c) · c = m · (S_left/(m/2) − S_right/(m/2)) / 2 = S_left − S_right,

    and W = n for the average of all n bins gives their sum: the ±1 rows of `Haar` are the weighted coefficients.
    Nominal: c is a node's sum less the average over its f siblings, and W(c) = f/(2f − 2), so W(c) · c = (f·s_v −
    s_p)/(2(f − 1)), the rows of `Nominal` up to a factor that all of them share. Scaling rows and their noise alike
    changes nothing. In a product weights multiply, and so do rows.

    *Sensitivity.* A record is in 1 + ⌈log₂ n⌉ rows of `Haar` with ±1, and adds at most 1 in absolute value per level
    to the weighted rows of `Nominal`; products multiply (the paper's Theorem 2). The gate computes it from the columns.

    *Variance.* Let n = 2^l and let each row have noise of variance σ². The rows are orthogonal, so least squares
    inverts them, and a range with the indicator r has the variance

        σ² · [ (|r|/n)² + Σ over intervals h of m bins of ((r ∩ left) − (r ∩ right))² / m² ]  ≤  σ² · (1 + l/2),

    because a range cuts at most two intervals of each size, each with a difference of at most m/2, and only one of the
    largest. A nominal row group of f siblings sums to zero, and least squares takes the mean of their noise away, as
    the paper's "mean subtraction" does. Other lengths are padded with zeros that nobody needs to measure.
    """

    name = "wavelet"
    attributes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.attributes is None:
            return
        names = (self.attributes,) if isinstance(self.attributes, str) else tuple(self.attributes)
        object.__setattr__(self, "attributes", names)
        if not names:
            raise DeclarationError("a wavelet of no attributes was asked for; name at least one, or None for all")

    def run(self, gate: Gate) -> None:
        names = gate.domain.counted_names if self.attributes is None else self.attributes
        wavelets: dict[str, Factor] = {name: Haar() if gate.domain[name].is_ordered else Nominal() for name in names}
        gate.measure(Query.of(wavelets), gate.budget)


# ----------------------------------------------------------------------------------------------------------------------
# EFPA, P-HP and DAWA as they were published, to be compared with the plans above, which improve on them.
#
# Everything goes through the gate like any other plan, so that discrete noise on public lattices takes the place of
# real noise; what else differs from the authors' own code is said with each.


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
