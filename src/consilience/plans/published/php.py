"""P-HP: a histogram of buckets that private bisection found (Acs, Castelluccia, Chen 2012)."""

from dataclasses import dataclass
from typing import Any

from consilience.domain.factors import Intervals
from consilience.domain.queries import Query
from consilience.errors import DeclarationError
from consilience.plans.buckets import at_least_two, mean_absolute_noise
from consilience.plans.budget_parts import check_share, in_two_parts
from consilience.privacy.gate import Gate
from consilience.privacy.partitions import Bisection

MOST_LEVELS = 12


@dataclass(frozen=True)
class Php:
    """The totals of buckets of neighbouring values, cut by private bisection where counts differ.

    A share of the budget chooses the buckets: on each of `levels` levels every bucket is cut in two, or kept, so as to
    lower Σ|count − median of its bucket| (`privacy.partitions` has the rule and its proof). The rest measures
    the bucket totals; least squares of least norm spreads each evenly. By default there are ⌊log₂ n⌋ levels as in the
    paper, and no more than 12. If all values stay in one bucket its two halves are measured. The mean absolute error
    of a bucket of w values is then at most D/w + E|noise|/w, with D the sum of absolute deviations from its mean.
    """

    attribute: str
    partition_share: float = 0.5
    levels: int | None = None

    def __post_init__(self) -> None:
        check_share(self.partition_share, "the partition")
        if self.levels is not None and self.levels < 1:
            raise DeclarationError(f"{self.levels} levels of bisection were asked for; use 1 or more")

    def run(self, gate: Gate) -> None:
        attribute = gate.domain[self.attribute]
        levels = self.levels or max(1, min(attribute.size.bit_length() - 1, MOST_LEVELS))
        partition, rest = in_two_parts(gate.budget, self.partition_share)
        rule = Bisection(self.attribute, levels, mean_absolute_noise(rest))
        starts = at_least_two(gate.partition(rule, partition), attribute.size)
        gate.measure(Query.of({self.attribute: Intervals.from_codes(attribute, starts)}), rest)

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": "php",
            "attribute": self.attribute,
            "partition_share": self.partition_share,
            "levels": self.levels,
        }
