"""Plans whose rounds follow from those before: k-means, logistic regression, and an algorithm of one's own."""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.domain.attributes import Continuous
from consilience.domain.domains import Domain
from consilience.errors import DeclarationError, TooLarge
from consilience.estimators.base import check_choice, check_whole
from consilience.iterates.clustering import initial_centroids, next_centroids
from consilience.iterates.problems import next_coefficients
from consilience.kernels.record_functions import RecordFunction, code_digest
from consilience.kernels.regions import REGION_KINDS, Region, RegionKind, normalised
from consilience.measurements import MeasurementSet
from consilience.plans.base import DescribedPlan, check_share
from consilience.privacy.budgets import Budget
from consilience.privacy.cluster_statistics import cluster_statistics, declared_bounds
from consilience.privacy.gate import Gate
from consilience.privacy.model_statistics import gradient_statistics, largest_gradient, own_statistics

# ----------------------------------------------------------------------------------------------------------------------
# Logistic regression in rounds of noisy gradients, each record's clipped (Song et al. 2013; Abadi et al. 2016).
#
# Round t = 1 … T measures, with the coefficients θ_{t−1} of the round before, how many records there are and the sum of
# the gradients of their losses, each clipped (privacy/model_statistics.py proves the sensitivities), and takes the step
#
#     θ_t = θ_{t−1} − step · gradient / n̂,      n̂ = the mean of the noisy counts so far,
#
# then moves θ_t to the nearest point with ‖θ‖₂ ≤ radius. Where n̂ is below 1 the coefficients stay where they were. The
# rounds share the budget equally; within a round the count gets `count_share` of it.
#
# θ₀ = 0. Measurements keep θ_{t−1} with every answer, so that all rounds can be used afterwards, not only the last.


LOGISTIC_ROUNDS = 20
LOGISTIC_STEP = 4.0
"""Rounds and the step along a gradient, unless asked otherwise."""

EXAMPLE_RECORDS = 10_000
"""The records by which noise is described."""


@dataclass(frozen=True)
class Logistic(DescribedPlan):
    """Rounds of noisy gradient sums of a logistic regression of `label` on `attributes`.

    The label is a continuous attribute: the upper half of its bounds is one class, the lower half the other.
    `attributes` are continuous ones, by default all the others that the domain declares. `region` is where points live
    after their bounds were mapped to −1 and 1: "box" leaves them there, "ball" moves them to the nearest point of the
    L1 ball, and "radial-ball" to the one on the line to the origin. `clip` bounds the gradient of one record, as a part
    of the largest that the region allows, in the L1 norm for pure ε and in the L2 norm for ρ. At θ = 0 half of the
    largest clips nothing. A `step` of 4 suits attributes of which few lie at the same end of their bounds; where rounds
    swing to and fro, which θ_{t−1} in the measurements show, take a smaller one.

    Records with a missing value are dropped, and those out of bounds follow the attribute's `unlisted`.

    >>> Logistic("income", rounds=5).to_json()["rounds"]
    5
    """

    name = "logistic"
    label: str
    attributes: Sequence[str] | None = None
    _: KW_ONLY
    rounds: int = LOGISTIC_ROUNDS
    step: float = LOGISTIC_STEP
    region: RegionKind = "box"
    clip: float = 0.5
    count_share: float = 0.1
    radius: float = 10.0

    def __post_init__(self) -> None:
        if not isinstance(self.label, str):
            raise DeclarationError(f"the label is {self.label!r}; name one attribute")
        check_choice(self.region, "the region", REGION_KINDS)
        check_whole(self.rounds, "the number of rounds")
        check_share(self.count_share, "the count")
        names = asked_names(self.attributes)
        if names is not None and self.label in names:
            raise DeclarationError(f"the label {self.label!r} is also among the attributes; leave it out of them")
        object.__setattr__(self, "attributes", names)
        for option, what, most in (
            ("step", "the step", math.inf),
            ("clip", "the part of the largest gradient that is kept", 1.0),
            ("radius", "the radius", math.inf),
        ):
            object.__setattr__(self, option, _number(getattr(self, option), what, most=most))

    def run(self, gate: Gate) -> None:
        names = self.names(gate.domain)
        coefficients = np.zeros(len(names) + 1)
        part = gate.budget.scaled(Fraction(1, self.rounds))
        shares = (self.count_share, 1 - self.count_share)
        norm = 1 if gate.budget.additive_unit == "epsilon" else 2
        clip = self.clip * largest_gradient(self.region, len(names), norm)
        counts: list[float] = []
        for round_number in range(1, self.rounds + 1):
            asked = gradient_statistics(
                gate.domain,
                names,
                self.label,
                self.region,
                coefficients,
                clip=clip,
                clip_norm=norm,
                step=self.step,
                radius=self.radius,
            )
            count, gradient = gate.sum_records(asked, part, shares=shares, round=round_number)
            counts.append(float(count.values[0]))
            records = float(np.mean(counts))
            coefficients = next_coefficients(coefficients, gradient.values, records, step=self.step, radius=self.radius)

    def names(self, domain: Domain) -> tuple[str, ...]:
        """The attributes that the label is explained by: those asked for, or all continuous ones but the label."""
        continuous = [each.name for each in domain.attributes if isinstance(each, Continuous)]
        others = [name for name in continuous if name != self.label]
        names = tuple(others if self.attributes is None else self.attributes)
        if not names:
            raise DeclarationError(
                f"the domain {domain.name!r} declares no continuous attribute besides the label {self.label!r}; "
                'declare kind = "continuous" and bounds = [low, high]'
            )
        declared_bounds(domain, (*names, self.label))
        return names

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What each round costs, and how far its noise moves a coefficient."""
        count, gradient = example.measurements[:2]
        part = budget.scaled(Fraction(1, self.rounds))
        spread = [math.sqrt(each.noise.variance) for each in (count, gradient)]
        return (
            f"{self.rounds} rounds spend {part.describe()} each, a share of {self.count_share:g} of it on the number "
            "of records and the rest on the sum of their gradients.",
            f"In each round the noise on the count has the standard deviation {spread[0]:.3g}, and that on the sum "
            f"moves each coefficient by about {self.step * spread[1] / EXAMPLE_RECORDS:.2g} where there are "
            f"{EXAMPLE_RECORDS:,} records, and by less in proportion where there are more.",
        )


def _number(value: object, what: str, *, most: float) -> float:
    """A finite number above 0 and up to `most`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (0 < value <= most and math.isfinite(value))
    ):
        upper = "" if math.isinf(most) else f" and up to {most:.3g}"
        raise DeclarationError(f"{what} is {value!r}; give a finite number above 0{upper}")
    return float(value)


# ----------------------------------------------------------------------------------------------------------------------
# K-means in rounds of noisy counts and sums: DP-KMEANS (Blum et al. 2005; Algorithm 1 of Lee and Kifer 2016).
#
# Round t = 1 … T measures, with the centroids θ_{t−1} of the round before, how many points each cluster has and their
# sums (privacy/cluster_statistics.py proves the sensitivities), and moves every centroid to sum / count. A centroid
# whose noisy count is below 1 stays where it was, and every centroid is moved into the region. The rounds share the
# budget equally; within a round the counts get `count_share` of it.
#
# The first centroids are a function of the declaration and a public seed. Measurements keep θ_{t−1} with every answer,
# so that all rounds can be used afterwards, not only the last.


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


# ----------------------------------------------------------------------------------------------------------------------
# Rounds of a private algorithm of one's own: noisy sums of a user's statistic, and a rule that says where they lead.
#
# Round t = 1 … T measures, with the θ_{t−1} of the round before, how many records there are and the sum over them of
# φ(x, θ_{t−1}), clipped (privacy/model_statistics.py), and takes θ_t = step(θ_{t−1}, number of records, sums). The
# rounds share the budget equally; within a round the count gets `count_share` of it. Measurements keep θ_{t−1} with
# every answer, so that all rounds can be used afterwards (estimators/own_records.py), not only the last.


Step = Callable[[NDArray[np.float64], float, NDArray[np.float64]], ArrayLike]
"""The next θ, from this one, the noisy number of records (at least 1) and the noisy sums."""


@dataclass(frozen=True, eq=False)
class OwnRounds(DescribedPlan):
    """Rounds of noisy sums of `statistic` over records, of which each leads to the next θ by `step`.

    `start` is the first θ, a matrix. `attributes` are continuous ones, all that the domain declares by default, and
    `region` is as for `KMeans`. Both functions are part of the plan: with other ones it is another request, and so it
    is in another version of Python, which compiles them otherwise.

    >>> def squares(theta, record, found):
    ...     found[0] = (record[0] - theta[0, 0]) ** 2
    >>> plan = OwnRounds(RecordFunction("squares", squares, 1, 4.0), [[0.0]], lambda theta, records, sums: theta)
    >>> plan.to_json()["name"], plan.to_json()["rounds"]
    ('squares', 10)
    """

    name = "own-rounds"
    statistic: RecordFunction
    start: ArrayLike
    step: Step
    attributes: Sequence[str] | None = None
    _: KW_ONLY
    rounds: int = 10
    region: RegionKind = "box"
    count_share: float = 0.1

    def __post_init__(self) -> None:
        check_choice(self.region, "the region", REGION_KINDS)
        check_whole(self.rounds, "the number of rounds")
        check_share(self.count_share, "the count")
        object.__setattr__(self, "attributes", asked_names(self.attributes))
        object.__setattr__(self, "start", _matrix(self.start))

    def to_json(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("rounds", "region", "count_share")}
        names = None if self.attributes is None else list(self.attributes)
        asked = {"plan": "own-rounds", "attributes": names, "start": np.asarray(self.start).tolist()}
        rule = {"step": code_digest(self.step), "size": self.statistic.size}
        return asked | options | self.statistic.describe() | rule

    def run(self, gate: Gate) -> None:
        names = KMeans(1, self.attributes, region=self.region).names(gate.domain)
        theta = _matrix(self.start)
        part = gate.budget.scaled(Fraction(1, self.rounds))
        shares = (self.count_share, 1 - self.count_share)
        counts: list[float] = []
        for number in range(1, self.rounds + 1):
            asked = own_statistics(gate.domain, names, self.region, self.statistic, theta)
            count, values = gate.sum_records(asked, part, shares=shares, round=number)
            counts.append(float(count.values[0]))
            theta = _matrix(self.step(theta.copy(), max(1.0, float(np.mean(counts))), values.values.copy()))


def _matrix(theta: ArrayLike) -> NDArray[np.float64]:
    found = np.array(theta, dtype=np.float64)
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise DeclarationError(
            f"theta of the shape {found.shape} is no matrix of finite numbers; give one to start from, and by each step"
        )
    return found
