"""K-means as a problem for the chain: the target, the mixture that points are drawn from, and where chains start.

The target is about what was released: raw noisy counts and sums, under the centroids θ_{t−1} that were in force. The
corrected counts of §3.2 (iterates/consistency.py) give the number of records, the weights of the mixture and
the start. The paper takes the corrected values in the target too (`target="corrected"`); they no longer scatter around
the exact ones by the law of the noise.

The mixture has a component for each cluster of each round, N(c, δI) around the centroid c that the round led to
(eq. 1). Beyond the paper it may allow for the noise in c, whose standard deviation is about σ/n for a cluster of n
records, and keep a small share for points anywhere.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.iterates.chain import ChainProblem, Mixture
from consilience.iterates.chain_kernels import Target
from consilience.iterates.consistency import Sense, consistent_counts, consistent_sums
from consilience.iterates.contributions import KMEANS, most_places
from consilience.kernels.clustering import next_centroids
from consilience.kernels.regions import BOX, Region

Array = NDArray[np.float64]
TargetValues = Literal["released", "corrected"]

ANYWHERE_SPREAD = 0.5
"""The standard deviation of the component for points anywhere, around the middle of the region."""
LARGEST_NOISE_SPREAD = 0.5


@dataclass(frozen=True, eq=False)
class NoisyRounds:
    """What T rounds of k-means released, in normalised coordinates."""

    thetas: Array
    """The centroids in force, with axes for rounds, clusters and coordinates."""
    counts: Array
    sums: Array
    count_scales: Array
    """The scale of Laplace noise, or the standard deviation of Gaussian noise, for each round."""
    sum_scales: Array
    laplace: bool
    region: Region

    @property
    def last_iterate(self) -> Array:
        """The centroids that the last round led to: the result of DP-KMEANS alone."""
        return self.iterates[-1]

    @property
    def iterates(self) -> Array:
        """The centroids that each round led to."""
        rounds = zip(self.counts, self.sums, self.thetas, strict=True)
        return np.array([next_centroids(counts, sums, before, self.region) for counts, sums, before in rounds])

    def corrected(self) -> tuple[Array, Array]:
        """Counts and sums that agree on their totals, with counts that are not negative."""
        sense: Sense = "absolute" if self.laplace else "squares"
        power = 1 if self.laplace else 2
        counts = consistent_counts(self.counts, self.count_scales**-power, sense=sense)
        return counts, consistent_sums(self.sums, self.sum_scales**-power, sense=sense)


def cluster_problem(
    rounds: NoisyRounds,
    *,
    target: TargetValues = "released",
    allow_for_noise: bool = True,
    anywhere: float = 0.05,
    overdispersed: bool = True,
    simulate_images: bool = False,
) -> ChainProblem:
    """The problem that k-means poses.

    The mixture keeps the share `anywhere` for points anywhere. Where `overdispersed`, chain i starts from the centroids
    of the i-th last round; else all start from the last. Records that were moved to a ball are simulated in the box
    they came from, unless `simulate_images`, as published, simulates them in the ball. If no count is left after
    correction, there is one record in all, and every cluster is as likely.
    """
    corrected, corrected_sums = rounds.corrected()
    total = float(corrected[0].sum())
    weights = corrected / total if total >= 1 else np.full(corrected.shape, 1 / corrected.shape[1])
    values = (corrected, corrected_sums) if target == "corrected" else (rounds.counts, rounds.sums)
    mixture = _mixture(rounds, corrected, weights, allow_for_noise=allow_for_noise, anywhere=anywhere)
    starts = []
    for last in range(len(weights) if overdispersed else 1):
        shares = np.zeros(weights.shape)
        shares[len(weights) - 1 - last] = weights[len(weights) - 1 - last]
        starts.append(np.append(shares.ravel(), 0.0))
    return ChainProblem(
        _target(rounds, *values, simulate_images=simulate_images), mixture, max(total, 1.0), tuple(starts)
    )


def _target(rounds: NoisyRounds, counts: Array, sums: Array, *, simulate_images: bool) -> Target:
    number, clusters, dimensions = rounds.thetas.shape
    released = np.concatenate([counts, sums.reshape(number, -1)], axis=1)
    scales = np.repeat(
        np.column_stack([rounds.count_scales, rounds.sum_scales]), [clusters, clusters * dimensions], axis=1
    )
    nothing = np.zeros(released.shape)
    return Target(
        kind=KMEANS,
        region=rounds.region.code if simulate_images else BOX,
        bounded=dimensions,
        places=most_places(KMEANS, (clusters, dimensions)),
        thetas=np.ascontiguousarray(rounds.thetas, dtype=np.float64),
        released=released,
        linear=1 / scales if rounds.laplace else nothing,
        quadratic=nothing if rounds.laplace else 0.5 / scales**2,
        image=BOX if simulate_images else rounds.region.code,
    )


def _mixture(
    rounds: NoisyRounds, corrected: Array, weights: Array, *, allow_for_noise: bool, anywhere: float
) -> Mixture:
    dimensions = rounds.thetas.shape[2]
    centres = rounds.iterates.reshape(-1, dimensions)
    extra = np.zeros(len(centres))
    if allow_for_noise:
        deviations = rounds.sum_scales * (np.sqrt(2) if rounds.laplace else 1.0)
        extra = (deviations[:, None] / np.maximum(corrected, 1.0)).clip(max=LARGEST_NOISE_SPREAD).ravel()
    each = np.append((1 - anywhere) * weights.ravel() / len(weights), anywhere)
    return Mixture(
        centres=np.vstack([centres, np.zeros(dimensions)]),
        weights=each,
        widths=np.append(np.ones(len(centres)), 0.0)[:, None].repeat(dimensions, axis=1),
        extra=np.append(extra, ANYWHERE_SPREAD)[:, None].repeat(dimensions, axis=1),
    )
