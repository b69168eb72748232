"""The clusterings that Figure 1 compares, each as a function of points, ε and a seed.

All are measured through the library's own plans, with simulated noise and of all records. The number of records is not
told to any of them: grid, hybrid, sample-and-aggregate and PrivGene measure it with a twentieth of their budget. All
iterates are used in two ways: by the chain as the paper has it, and as the library does by default.

The chain as published, `Iterates.as_published()`, has 30,000 steps, δ = 0.001, the values made consistent for its
target (§3.2), the printed ratio of components for its acceptance, the best dataset for its result, and as many points
as the released counts say there are records.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.clusterings import wcss
from benchmarks.problems.points import NamedPoints
from consilience.estimators.clusters import cluster
from consilience.estimators.iterates import Iterates
from consilience.iterates.clustering import lloyd
from consilience.measuring import measure
from consilience.plans.published.clusters import ClusterGrid, HybridClusters, SampleAndAggregate
from consilience.plans.published.privgene import PrivGene
from consilience.plans.rounds import KMeans

DPKM = "DP-KMEANS, last iterate"
MCMC, OURS = "all iterates, chain as published", "all iterates, library's default"
GRID, HYBRID, BLOCKS, GENES = "EUGkM", "hybrid", "GUPT", "PrivGene"
FLOOR = "non-private"
METHODS = (OURS, MCMC, DPKM, GRID, HYBRID, BLOCKS, GENES, FLOOR)

ROUNDS = 5
FLOOR_RESTARTS = 40

Floats = NDArray[np.float64]


def costs_of_run(problem: NamedPoints, epsilon: float, seed: int) -> dict[str, float]:
    """The cost of every noisy method in one run; DP-KMEANS and all its iterates share their measurements."""
    found = {method: _measured(problem, plan, epsilon, seed) for method, plan in _plans(problem, seed).items()}
    found |= iterated(problem, epsilon, seed)
    return {method: wcss(problem.projected, centroids) for method, centroids in found.items()}


def iterated(problem: NamedPoints, epsilon: float, seed: int) -> dict[str, Floats]:
    """The last iterate of DP-KMEANS, and what follows from all of them: normalised centroids."""
    plan = KMeans(problem.clusters, rounds=ROUNDS, region="ball", seed=seed)
    measured = measure(problem.table(), plan, epsilon=epsilon, simulate=seed)
    published = cluster(measured, Iterates.as_published(seed=seed))
    ours = cluster(measured, Iterates(seed=seed))
    found = {DPKM: published.last_iterate, MCMC: published.centroids, OURS: ours.centroids}
    return {method: problem.normalised(centroids) for method, centroids in found.items()}


def floor_cost(problem: NamedPoints) -> float:
    """The cost of the best of many runs of k-means without noise."""
    rng = np.random.default_rng(0)
    return wcss(problem.projected, lloyd(problem.projected, problem.clusters, rng, restarts=FLOOR_RESTARTS))


def _plans(problem: NamedPoints, seed: int) -> dict[str, Any]:
    shared: dict[str, Any] = {"region": "ball", "seed": seed}
    return {
        GRID: ClusterGrid(problem.clusters, **shared),
        HYBRID: HybridClusters(problem.clusters, **shared),
        BLOCKS: SampleAndAggregate(problem.clusters, **shared),
        GENES: PrivGene(problem.clusters, **shared),
    }


def _measured(problem: NamedPoints, plan: Any, epsilon: float, seed: int) -> Floats:
    measured = measure(problem.table(), plan, epsilon=epsilon, simulate=seed)
    return problem.normalised(plan.centroids(measured))
