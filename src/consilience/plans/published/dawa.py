"""DAWA: a histogram of private buckets, measured by a tree over them (Li, Hay, Miklau, Wang 2014)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from consilience.domain.attributes import Attribute
from consilience.domain.factors import Intervals
from consilience.domain.queries import Query
from consilience.errors import DeclarationError
from consilience.plans.branching import branching_for, levels_of
from consilience.plans.buckets import at_least_two, mean_absolute_noise
from consilience.plans.budget_parts import check_share, in_two_parts
from consilience.plans.published.greedy_hierarchy import WeightedRanges, greedy_level_shares
from consilience.privacy.budgets import AdditiveUnit
from consilience.privacy.gate import Gate
from consilience.privacy.partitions import IntervalFamily, LeastCostPartition


@dataclass(frozen=True)
class Dawa:
    """The counts of a tree over buckets of neighbouring values, cut privately where counts differ.

    Stage 1 spends `partition_share` on a partition of least noisy cost, where a bucket costs Σ|count − median| and
    the noise on its total (`privacy.partitions` has the mechanism and its proof). `intervals` are the
    buckets it may use: "dyadic", with lengths that are powers of two, or "all", for few values. If all values stay in
    one bucket its halves take its place. Where the noise on costs is large against the costs, the least sum is one of
    many small buckets.

    Stage 2 measures a tree of counts over the buckets with the rest. Without `ranges` all levels get the same share,
    and the `branching` is by default that of `branching_for`. With `ranges`, pairs of labels from and to, that people
    will ask for, levels get shares by GreedyH for these ranges, in a binary tree unless a branching is given; a level
    with no share is left out. Least squares of least norm spreads a bucket evenly over its values.

    A range that consists of whole buckets has the variance of the tree over them; in a bucket that it cuts, an error
    of at most that bucket's Σ|count − mean| joins.
    """

    attribute: str
    partition_share: float = 0.25
    intervals: IntervalFamily = "dyadic"
    branching: int | None = None
    ranges: Sequence[tuple[str, str]] | None = None

    def __post_init__(self) -> None:
        check_share(self.partition_share, "the partition")
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
        rule = LeastCostPartition(self.attribute, mean_absolute_noise(rest), self.intervals)
        starts = at_least_two(gate.partition(rule, partition), attribute.size)
        levels = self._levels(starts, attribute, asked, gate.budget.additive_unit)
        queries = [Query.of({self.attribute: Intervals.from_codes(attribute, starts[::width])}) for width, _ in levels]
        gate.measure(queries, rest, shares=[share for _, share in levels])

    def _levels(
        self, starts: Sequence[int], attribute: Attribute, asked: list[tuple[int, int]], unit: AdditiveUnit
    ) -> list[tuple[int, float]]:
        """How many buckets a node of each level spans, and the level's share; root first."""
        buckets = len(starts)
        branching = self.branching or (2 if asked else branching_for(buckets, unit=unit))
        height = levels_of(buckets, branching)
        shares = [1.0] * height
        if asked:
            ranges = WeightedRanges.of_codes(asked, starts, attribute.size)
            shares = greedy_level_shares(ranges, buckets, branching, unit=unit)
        widths = [branching ** (height - 1 - level) for level in range(height)]
        return [(width, share) for width, share in zip(widths, shares, strict=True) if share > 0]

    def _codes(self, attribute: Attribute) -> list[tuple[int, int]]:
        """The first and last code of each range asked for."""
        found = [attribute.codes_between(low, high) for low, high in self.ranges or ()]
        return [(codes[0], codes[-1]) for codes in found]

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": "dawa",
            "attribute": self.attribute,
            "partition_share": self.partition_share,
            "intervals": self.intervals,
            "branching": self.branching,
            "ranges": None if self.ranges is None else [list(ends) for ends in self.ranges],
        }
