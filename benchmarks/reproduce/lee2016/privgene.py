"""PrivGene for k-means (Zhang et al. 2013): a genetic algorithm whose survivors are selected privately.

For comparison; not offered as a private mechanism: the noise is simulated, and scores are sums of floating-point
numbers. Its privacy, if carried out in whole numbers with noise that nobody can repeat, rests on this: a candidate's
score is −Σ over records of the squared distance to its nearest centroid. One record that comes or goes moves all
scores the same way, by at most D², the squared diameter of the region. Survivors of a round are therefore drawn with
probability ∝ exp(score · ε′/D²) one after another, each at the price ε′; adding Gumbel noise once and taking the
greatest is the same (Durfee and Rogers 2019).

As in the paper: m = 200 candidates, m′ = 10 survivors, r = max(8, 1.25·10⁻³ ε N / m′) rounds of ε/r, the last of which
selects one. Children take a part of the numbers of one survivor and the rest of another (crossover), and one of their
numbers is moved (mutation), less so in later rounds. To save time, costs are by default those of 4,000 of the records,
scaled up: an error of a few per cent. With `scored=None` they are those of all records.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.clusterings import wcss
from consilience.kernels.regions import Region

Floats = NDArray[np.float64]

ROUNDS_PER_RECORD = 1.25e-3
LEAST_ROUNDS = 8
SCORED = 4_000
DIAMETER_OF_BALL = 2.0
"""Of the unit L1 ball, in the Euclidean norm."""


@dataclass(frozen=True)
class PrivGene:
    """The settings, with the values that the paper recommends; mutation steps are in normalised coordinates."""

    candidates: int = 200
    survivors: int = 10
    step: float = 0.5
    cooling: float = 0.7
    scored: int | None = SCORED

    def centroids(self, points: Floats, clusters: int, epsilon: float, seed: int) -> Floats:
        """One candidate of the last generation, by a simulation of the private selection."""
        rng = np.random.default_rng(seed)
        region = Region("ball", points.shape[1])
        rounds = max(LEAST_ROUNDS, math.floor(ROUNDS_PER_RECORD * epsilon * len(points) / self.survivors))
        scored = points[np.sort(rng.permutation(len(points))[: self.scored])]
        unit = DIAMETER_OF_BALL**2 * len(scored) / len(points)
        population = uniform_in_ball((self.candidates, clusters, points.shape[1]), rng)
        for generation in range(rounds - 1):
            chosen = select(scored, population, epsilon / rounds, self.survivors, unit, rng)
            children = self.offspring(chosen, self.step * self.cooling**generation, region, rng)
            population = np.concatenate([chosen, children])
        return select(scored, population, epsilon / rounds, 1, unit, rng)[0]

    def offspring(self, parents: Floats, step: float, region: Region, rng: np.random.Generator) -> Floats:
        """Children of random pairs, each with a head of one parent, a tail of the other, and one number moved."""
        count = self.candidates - len(parents)
        flat = parents.reshape(len(parents), -1)
        first, second = rng.integers(len(parents), size=(2, count))
        cut = rng.integers(1, flat.shape[1] + 1, size=count)
        children = np.where(np.arange(flat.shape[1]) < cut[:, None], flat[first], flat[second])
        children[np.arange(count), rng.integers(flat.shape[1], size=count)] += rng.uniform(-step, step, count)
        return region.project(children.reshape(count, *parents.shape[1:]))


def uniform_in_ball(shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Points uniform in the unit L1 ball: d of d + 1 shares of a random partition of 1, with random signs."""
    parts = rng.exponential(size=(*shape[:-1], shape[-1] + 1))
    return parts[..., :-1] / parts.sum(axis=-1, keepdims=True) * rng.choice((-1.0, 1.0), size=shape)


def select(
    points: Floats, population: Floats, epsilon: float, count: int, unit: float, rng: np.random.Generator
) -> Floats:
    """Some candidates of low cost, drawn without replacement by the exponential mechanism at ε/count each.

    `unit` is the most that one record adds to a cost.
    """
    costs = np.array([wcss(points, each) for each in population])
    noisy = -costs * epsilon / (unit * count) + rng.gumbel(size=len(costs))
    return population[np.argsort(-noisy)[:count]]
