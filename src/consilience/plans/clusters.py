"""Which private clustering: rounds of k-means, a grid, their hybrid, or the one that suits dimensions, records and ε.

With K clusters of N/K records each, a round of noisy sums that gets ε moves a centroid of d coordinates by about
Δ√d·K/(Nε), Δ the most that one record adds to the sums in the L1 norm (L2, and 2√ρ in place of ε, under ρ). So what
decides is how far a centroid is from being moved at all,

    signal = N ε / (K √d),        and signal / Δ for sums.

Cells of a grid are found whatever Δ is, while rounds have to find their clusters by sums. The hybrid stakes half of the
budget on a single round, which takes a signal; a grid alone takes few dimensions.

                                     up to 4 attributes      more
    rounds    where signal · Δ² <    58                      280
    hybrid    else, where signal / Δ ≥    280                22
    grid      else

*Evidence.* Cells of `benchmarks/results/lee2016-figure-1.csv`, all in the L1 ball (Δ = 1), of S1, Image and Adult: the
hybrid fails on Adult (6 attributes) at 199 and wins at 399, and 280 is their geometric mean; on S1 (2) rounds win at 47
and the grid at 71, and 58 is theirs. Six generated mixtures of 2 to 8 attributes with ε = 0.05, 0.2 and 1 say the rest.
In the ball a grid wins over 4 attributes and fails over 5. In the box (Δ = d) rounds are never best, and over 5
attributes the hybrid loses to the grid at 11 and wins at 45, whose geometric mean is 22. A test computes from the file
how the rule does on TIGER, Gowalla and Lifesci, too; these had been looked at. docs/how-to/cluster-points.md says how
it does on sets that nobody had looked at.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from consilience.errors import DeclarationError
from consilience.estimators.base import check_choice
from consilience.iterates.clustering import suggested_divisions
from consilience.kernels.regions import Region, RegionKind
from consilience.measurements import MeasurementSet
from consilience.plans.base import PUBLISHED_TOTAL_SHARE, DescribedPlan, PartialGate, check_share, in_two_parts
from consilience.plans.published.clusters import (
    ClusterGrid,
    HybridClusters,
    SampleAndAggregate,
    count_records,
    equivalent_epsilon,
)
from consilience.plans.published.privgene import PrivGene
from consilience.plans.rounds import KMEANS_ROUNDS, KMeans, asked_names
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.measure import Plan

Method = Literal["auto", "rounds", "grid", "hybrid", "gupt", "privgene"]
METHODS: tuple[str, ...] = get_args(Method)


@dataclass(frozen=True)
class MethodSettings:
    """Where which clustering suits, over few attributes and over more; the evidence is above."""

    few_attributes: int = 4
    """d up to which attributes are few."""
    least_signal: tuple[float, float] = (58.0, 280.0)
    """Times Δ²; below it rounds are best."""
    least_signal_of_hybrid: tuple[float, float] = (280.0, 22.0)
    """In units of Δ."""


SUITED = MethodSettings()


def suggested_method(
    records: float, epsilon: float, clusters: int, dimensions: int, *, sensitivity: float = 1.0, rule: int = 2
) -> Literal["rounds", "grid", "hybrid"]:
    """The clustering that suits; `sensitivity` is Δ, what one record adds to the sums at most.

    >>> suggested_method(5_000, 0.1, 15, 2), suggested_method(5_000, 0.5, 15, 2), suggested_method(50_000, 0.5, 5, 6)
    ('rounds', 'grid', 'hybrid')
    """
    signal = records * epsilon / (clusters * math.sqrt(dimensions))
    if rule == 1:
        if signal / sensitivity >= 280.0:
            return "hybrid"
        return "grid" if signal >= 58.0 and dimensions <= 3 else "rounds"
    more = int(dimensions > SUITED.few_attributes)
    if signal * sensitivity**2 < SUITED.least_signal[more]:
        return "rounds"
    return "hybrid" if signal / sensitivity >= SUITED.least_signal_of_hybrid[more] else "grid"


@dataclass(frozen=True)
class AutoClusters(DescribedPlan):
    """A noisy number of records, and with the rest of the budget the clustering that suits it.

    The number of records gets `total_share` of the budget unless it is public; the choice then follows from public
    numbers alone. `rounds` is how many there are where rounds are chosen. The other options are those of `KMeans`.

    >>> AutoClusters(3).to_json()["total_share"]
    0.05
    """

    name = "auto-clusters"
    clusters: int
    attributes: tuple[str, ...] | None = None
    rounds: int = KMEANS_ROUNDS
    region: RegionKind = "box"
    total_share: float = PUBLISHED_TOTAL_SHARE
    seed: int = 0
    rule: int = 2
    """1 is that of earlier versions."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", asked_names(self.attributes))
        self._points()
        if self.rule not in (1, 2):
            raise DeclarationError(f"there is no rule {self.rule!r}; use 2, or 1 for that of earlier versions")
        check_share(self.total_share, "the number of records")

    @property
    def earlier(self) -> Plan | None:
        """What this was before the rule changed: such a request is answered from the ledger that holds it."""
        return replace(self, rule=1) if self.rule == 2 else None

    def to_json(self) -> dict[str, Any]:
        found = super().to_json()
        if self.rule == 1:
            del found["rule"]
        return found

    def run(self, gate: Gate) -> None:
        names = self._points().names(gate.domain)
        records, _, rest = count_records(gate, names, gate.budget, self.total_share)
        self.chosen(records, rest, len(names)).run(PartialGate(gate, rest))

    def chosen(self, records: float, budget: Budget, dimensions: int) -> Plan:
        """The plan for so many records and this budget."""
        norm = 1 if budget.additive_unit == "epsilon" else 2
        largest = Region(self.region, dimensions).sensitivity(norm)
        epsilon = equivalent_epsilon(budget)
        method = suggested_method(records, epsilon, self.clusters, dimensions, sensitivity=largest, rule=self.rule)
        if method == "rounds":
            return self._points()
        shared: dict[str, Any] = {"region": self.region, "seed": self.seed}
        if method == "hybrid":
            part = equivalent_epsilon(in_two_parts(budget, HybridClusters.grid_share)[0])
            cuts = suggested_divisions(records, part, dimensions)
            return HybridClusters(self.clusters, self.attributes, divisions=cuts, **shared)
        cuts = suggested_divisions(records, epsilon, dimensions)
        return ClusterGrid(self.clusters, self.attributes, divisions=cuts, **shared)

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What the choice will rest on, where a preview cannot know."""
        rule = (
            f"Where the records of a cluster are few for the noise, {self.rounds} rounds of k-means are chosen; where "
            "they are more, a grid, or a hybrid of a grid and one round."
        )
        if example.domain.public.total is not None:
            return ("The choice follows from the public number of records.", rule)
        return (
            f"A share of {self.total_share:g} of the budget measures the number of records, from which the choice "
            "follows: a preview shows the choice for one record.",
            rule,
        )

    def _points(self) -> KMeans:
        """The plan whose attributes and region these are."""
        return KMeans(self.clusters, self.attributes, rounds=self.rounds, region=self.region, seed=self.seed)


@dataclass(frozen=True)
class ClustersByDefault(AutoClusters):
    """What is done where no method was asked for: `AutoClusters`, in place of the rounds of earlier versions."""

    @property
    def earlier(self) -> Plan | None:
        """What was done before: such a request is answered from the ledger that holds it."""
        return self._points()


def cluster_plan(
    method: str | None,
    clusters: int,
    attributes: Sequence[str] | None = None,
    *,
    rounds: int = KMEANS_ROUNDS,
    region: RegionKind = "box",
    seed: int = 0,
) -> Plan:
    """The plan of a method of clustering, "auto" by default; `rounds` is refused where there is but one.

    >>> cluster_plan("grid", 3).name, cluster_plan(None, 3).name
    ('cluster-grid', 'auto-clusters')
    """
    names = asked_names(attributes)
    if method is None:
        return ClustersByDefault(clusters, names, rounds=rounds, region=region, seed=seed)
    check_choice(method, "the method", METHODS)
    if rounds != KMEANS_ROUNDS and method not in ("auto", "rounds"):
        raise DeclarationError(f"the method {method!r} takes no number of rounds; leave rounds={rounds} out")
    if method == "rounds":
        return KMeans(clusters, names, rounds=rounds, region=region, seed=seed)
    if method == "auto":
        return AutoClusters(clusters, names, rounds=rounds, region=region, seed=seed)
    if method == "privgene":
        return PrivGene(clusters, attributes=names, region=region, seed=seed)
    kinds = {"grid": ClusterGrid, "hybrid": HybridClusters, "gupt": SampleAndAggregate}
    return kinds[method](clusters, names, region=region, seed=seed)
