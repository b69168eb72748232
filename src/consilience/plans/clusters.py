"""Which private clustering: rounds of k-means, a grid, their hybrid, or the one that suits dimensions, records and ε.

With K clusters of N/K records each, a round of noisy sums that gets ε moves a centroid of d coordinates by about
Δ√d·K/(Nε), Δ the most that one record adds to the sums in the L1 norm (L2, and 2√ρ in place of ε, under ρ). So what
decides is how far a centroid is from being moved at all,

    signal = N ε / (K √d),        and signal / Δ for sums.

The hybrid stakes half of the budget on a single round: it takes a signal. A grid needs no sums and few dimensions.
Rounds read together are what is left where both fail: little signal, or many dimensions.

    hybrid    where signal / Δ ≥ 280
    grid      else, where signal ≥ 58 and there are at most 3 attributes
    rounds    else

*Evidence.* Cells of `benchmarks/results/lee2016-figure-1.csv`, all in the L1 ball (Δ = 1). The thresholds are from S1,
Image and Adult alone: the hybrid fails on Adult at 199 and wins at 399, and 280 is their geometric mean; on S1 rounds
win at 47 and the grid at 71, and 58 is theirs; a grid is as good as any on Image (3 attributes) and fails on Adult (6).
A test computes from the file how they do on these and on TIGER, Gowalla and Lifesci. All cells had been looked at
before the thresholds were set, so that the second half shows that they fit, not that they would on other records.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from consilience.errors import DeclarationError
from consilience.estimators.base import check_choice
from consilience.iterates.clustering import suggested_divisions
from consilience.kernels.regions import Region, RegionKind
from consilience.measurements import MeasurementSet
from consilience.plans.base import PUBLISHED_TOTAL_SHARE, DescribedPlan, PartialGate, check_share, in_two_parts
from consilience.plans.kmeans import KMEANS_ROUNDS, KMeans, asked_names
from consilience.plans.published.clusters import (
    ClusterGrid,
    HybridClusters,
    SampleAndAggregate,
    count_records,
    equivalent_epsilon,
)
from consilience.plans.published.privgene import PrivGene
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.measure import Plan

Method = Literal["auto", "rounds", "grid", "hybrid", "gupt", "privgene"]
METHODS: tuple[str, ...] = get_args(Method)


@dataclass(frozen=True)
class MethodSettings:
    """Where which clustering suits; the evidence is above."""

    least_signal_of_hybrid: float = 280.0
    """In units of Δ."""
    least_signal_of_grid: float = 58.0
    """In records times ε for each cluster, divided by √d."""
    most_attributes_of_grid: int = 3
    """d."""


SUITED = MethodSettings()


def suggested_method(
    records: float, epsilon: float, clusters: int, dimensions: int, *, sensitivity: float = 1.0
) -> Literal["rounds", "grid", "hybrid"]:
    """The clustering that suits; `sensitivity` is Δ, what one record adds to the sums at most.

    >>> suggested_method(5_000, 0.1, 15, 2), suggested_method(5_000, 0.5, 15, 2), suggested_method(50_000, 0.5, 5, 6)
    ('rounds', 'grid', 'hybrid')
    """
    signal = records * epsilon / (clusters * math.sqrt(dimensions))
    if signal / sensitivity >= SUITED.least_signal_of_hybrid:
        return "hybrid"
    return (
        "grid" if signal >= SUITED.least_signal_of_grid and dimensions <= SUITED.most_attributes_of_grid else "rounds"
    )


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", asked_names(self.attributes))
        self._points()
        check_share(self.total_share, "the number of records")

    def run(self, gate: Gate) -> None:
        names = self._points().names(gate.domain)
        records, _, rest = count_records(gate, names, gate.budget, self.total_share)
        self.chosen(records, rest, len(names)).run(PartialGate(gate, rest))

    def chosen(self, records: float, budget: Budget, dimensions: int) -> Plan:
        """The plan for so many records and this budget."""
        norm = 1 if budget.additive_unit == "epsilon" else 2
        largest = Region(self.region, dimensions).sensitivity(norm)
        epsilon = equivalent_epsilon(budget)
        method = suggested_method(records, epsilon, self.clusters, dimensions, sensitivity=largest)
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
            f"A hybrid of a grid and one round is chosen where the records of a cluster are many for the noise, a grid "
            f"where they are fewer and there are at most {SUITED.most_attributes_of_grid} attributes, and else "
            f"{self.rounds} rounds of k-means."
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


def cluster_plan(
    method: str,
    clusters: int,
    attributes: Sequence[str] | None = None,
    *,
    rounds: int = KMEANS_ROUNDS,
    region: RegionKind = "box",
    seed: int = 0,
) -> Plan:
    """The plan of a method of clustering; `rounds` is refused where there is but one.

    >>> cluster_plan("grid", 3).name
    'cluster-grid'
    """
    check_choice(method, "the method", METHODS)
    if rounds != KMEANS_ROUNDS and method not in ("auto", "rounds"):
        raise DeclarationError(f"the method {method!r} takes no number of rounds; leave rounds={rounds} out")
    names = asked_names(attributes)
    if method == "rounds":
        return KMeans(clusters, names, rounds=rounds, region=region, seed=seed)
    if method == "auto":
        return AutoClusters(clusters, names, rounds=rounds, region=region, seed=seed)
    if method == "privgene":
        return PrivGene(clusters, attributes=names, region=region, seed=seed)
    kinds = {"grid": ClusterGrid, "hybrid": HybridClusters, "gupt": SampleAndAggregate}
    return kinds[method](clusters, names, region=region, seed=seed)
