"""K-means in rounds of noisy counts and sums: DP-KMEANS (Blum et al. 2005; Algorithm 1 of Lee and Kifer 2016).

Round t = 1 … T measures, with the centroids θ_{t−1} of the round before, how many points each cluster has and their
sums (privacy/cluster_statistics.py proves the sensitivities), and moves every centroid to sum / count. A centroid whose
noisy count is below 1 stays where it was, and every centroid is moved into the region. The rounds share the budget
equally; within a round the counts get `count_share` of it.

The first centroids are a function of the declaration and a public seed. Measurements keep θ_{t−1} with every answer, so
that all rounds can be used afterwards, not only the last.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Continuous
from consilience.domain.domains import Domain
from consilience.errors import DeclarationError, TooLarge
from consilience.estimators.base import check_choice, check_whole
from consilience.iterates.clustering import initial_centroids, next_centroids
from consilience.kernels.regions import REGION_KINDS, Region, RegionKind, normalised
from consilience.measurements import MeasurementSet
from consilience.plans.base import DescribedPlan, check_share
from consilience.privacy.budgets import Budget
from consilience.privacy.cluster_statistics import cluster_statistics, declared_bounds
from consilience.privacy.gate import Gate

KMEANS_ROUNDS = 5
"""Rounds, unless asked otherwise."""

MOST_COORDINATES = 100_000
"""The most coordinates that all centroids have together; every measurement keeps them."""

EXAMPLE_CLUSTER = 1000
"""The records of a cluster by which noise is described."""


@dataclass(frozen=True)
class KMeans(DescribedPlan):
    """Rounds of noisy counts and sums of the clusters around the centroids of the round before.

    `attributes` are continuous ones, all that the domain declares by default. `region` is where points live after their
    bounds were mapped to −1 and 1: "box" leaves them there; "ball" moves them to the nearest point of the L1 ball, in
    which sums need less noise when dimensions are many, and "radial-ball" to the one on the line to the origin.
    `initial` gives the first centroids in original units, a row each; they must be public. Without it they are drawn
    far apart from `seed`.

    Records with a missing value are dropped, and those out of bounds follow the attribute's `unlisted`. The points take
    8 bytes of memory for each coordinate of each record.

    >>> KMeans(3, initial=[[0, 0], [1, 5], [2, 9]]).initial
    ((0.0, 0.0), (1.0, 5.0), (2.0, 9.0))
    """

    name = "k-means"
    clusters: int
    attributes: Sequence[str] | None = None
    _: KW_ONLY
    rounds: int = KMEANS_ROUNDS
    region: RegionKind = "box"
    count_share: float = 0.5
    seed: int = 0
    initial: Sequence[Sequence[float]] | NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        check_choice(self.region, "the region", REGION_KINDS)
        check_whole(self.clusters, "the number of clusters")
        check_whole(self.rounds, "the number of rounds")
        check_whole(self.seed, "the seed", 0)
        check_share(self.count_share, "the counts")
        object.__setattr__(self, "attributes", asked_names(self.attributes))
        if self.initial is not None:
            object.__setattr__(self, "initial", _rows(self.initial, self.clusters))

    def run(self, gate: Gate) -> None:
        names = self.names(gate.domain)
        region = Region(self.region, len(names))
        centroids = self.start(gate.domain)
        part = gate.budget.scaled(Fraction(1, self.rounds))
        shares = (self.count_share, 1 - self.count_share)
        for round_number in range(1, self.rounds + 1):
            asked = cluster_statistics(gate.domain, names, self.region, centroids)
            counts, sums = gate.sum_records(asked, part, shares=shares, round=round_number)
            centroids = next_centroids(counts.values, sums.values.reshape(centroids.shape), centroids, region)

    def names(self, domain: Domain) -> tuple[str, ...]:
        """The attributes whose points are clustered: those asked for, or all continuous ones."""
        continuous = [each.name for each in domain.attributes if isinstance(each, Continuous)]
        names = tuple(continuous if self.attributes is None else self.attributes)
        if not names:
            raise DeclarationError(
                f"the domain {domain.name!r} declares no continuous attribute, and clusters need one or more; "
                'declare kind = "continuous" and bounds = [low, high]'
            )
        declared_bounds(domain, names)
        if self.clusters * len(names) > MOST_COORDINATES:
            raise TooLarge(
                f"{self.clusters:,} clusters over {len(names)} attributes have {self.clusters * len(names):,} "
                f"coordinates, and {MOST_COORDINATES:,} are the most; ask for fewer clusters or attributes"
            )
        return names

    def start(self, domain: Domain) -> NDArray[np.float64]:
        """The first centroids, in normalised coordinates: a function of declarations alone."""
        names = self.names(domain)
        region = Region(self.region, len(names))
        if self.initial is None:
            return initial_centroids(self.clusters, len(names), region, self.seed)
        if len(self.initial[0]) != len(names):
            raise DeclarationError(
                f"the initial centroids have {len(self.initial[0])} coordinates, and there are {len(names)} attributes "
                f"({', '.join(names)}); give one coordinate for each"
            )
        found = normalised(self.initial, declared_bounds(domain, names))
        outside = np.argwhere(np.abs(found) > 1 + 1e-9)
        if len(outside):
            row, column = outside[0]
            raise DeclarationError(
                f"initial centroid {row + 1} has {self.initial[row][column]:g} for {names[column]!r}, whose bounds are "
                f"{list(declared_bounds(domain, names)[column])}; start within the bounds"
            )
        return region.project(found)

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What each round costs, and how far the noise of one round moves a centroid."""
        counts, sums = example.measurements[:2]
        part = budget.scaled(Fraction(1, self.rounds))
        spread = [math.sqrt(each.noise.variance) for each in (counts, sums)]
        return (
            f"{self.rounds} rounds spend {part.describe()} each, a share of {self.count_share:g} of it on the counts "
            f"of {self.clusters} clusters and the rest on the sums of their points.",
            f"In each round the noise on a count has the standard deviation {spread[0]:.3g}; a cluster that seems to "
            "have less than 1 record keeps its centroid.",
            f"The noise on the sums moves the centroid of {EXAMPLE_CLUSTER:,} records by about "
            f"{100 * spread[1] / EXAMPLE_CLUSTER / 2:.2g} % of an attribute's bounds, and of more records by less in "
            "proportion.",
        )


def asked_names(attributes: Sequence[str] | None) -> tuple[str, ...] | None:
    """The names of attributes that were asked for, each once; None for all."""
    if attributes is None:
        return None
    if isinstance(attributes, str):
        raise DeclarationError(f"attributes is a list of names; {attributes!r} is one text: write [{attributes!r}]")
    names = tuple(attributes)
    if not names or len(set(names)) < len(names):
        raise DeclarationError(f"the attributes are {list(names)}; name one or more, each once")
    return names


def _rows(initial: Sequence[Sequence[float]] | NDArray[np.float64], clusters: int) -> tuple[tuple[float, ...], ...]:
    """The initial centroids as plain numbers."""
    try:
        found = np.array(initial, dtype=np.float64)
    except (TypeError, ValueError):
        raise DeclarationError("the initial centroids must be rows of numbers, as many in each") from None
    if found.ndim != 2 or len(found) != clusters or found.shape[1] < 1 or not np.isfinite(found).all():
        raise DeclarationError(
            f"initial centroids of the shape {found.shape} were given for {clusters} clusters; give a row of finite "
            "numbers for each"
        )
    return tuple(tuple(row) for row in found.tolist())
