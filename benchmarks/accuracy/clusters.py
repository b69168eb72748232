"""Clusters from all rounds of noisy k-means: which way to read them.

Five rounds of DP-KMEANS with simulated noise. For each way to read all rounds together a row has the mean cost over
runs (within-cluster sum of squares), next to that of the last round. *Published* is the chain of the paper; the two
rows after it differ from it in one thing each: values corrected to agree (§3.2) in the target, and the ratio of
component densities as printed. How often error bars hold is another benchmark: iterate-coverage.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.problems.clusterings import wcss
from benchmarks.problems.points import NamedPoints, published_points
from consilience.estimators.clusters import cluster
from consilience.estimators.iterates import Iterates
from consilience.kernels.regions import Region, RegionKind, normalised
from consilience.measurements import MeasurementSet
from consilience.measuring import measure
from consilience.plans.rounds import KMeans

Row = dict[str, Any]

PUBLISHED = replace(Iterates.as_published(), target="released", ratio="mixture")
WAYS = {
    "default": Iterates(),
    "uniform prior": Iterates(prior_power=0.0),
    "published": PUBLISHED,
    "published, corrected values": replace(PUBLISHED, target="corrected"),
    "published, component ratio": replace(PUBLISHED, ratio="component"),
}
EPSILONS = (0.1, 0.5)
RUNS = 10
REGIONS: dict[str, tuple[RegionKind, ...]] = {"S1": ("ball", "box"), "Adult (numeric)": ("ball",)}


def run(quick: bool) -> list[Row]:
    """S1 in both regions and Adult in the ball, 10 runs; S1 alone, 3 runs of shorter chains, if quick."""
    problems = [each for each in published_points() if each.name in (("S1",) if quick else REGIONS)]
    rows = []
    for problem in problems:
        for region in REGIONS[problem.name][:1] if quick else REGIONS[problem.name]:
            for epsilon in (0.5,) if quick else EPSILONS:
                rows += compared(problem, region, epsilon, runs=3 if quick else RUNS, quick=quick)
                print(f"  {problem.name}, {region}, ε = {epsilon:g}: done", flush=True)
    return rows


def compared(problem: NamedPoints, region: RegionKind, epsilon: float, *, runs: int, quick: bool = False) -> list[Row]:
    """A row for each way, all from the same measurements."""
    plan = KMeans(problem.clusters, region=region)
    measured = [
        measure(problem.table(), replace_seed(plan, seed), epsilon=epsilon, simulate=seed) for seed in range(runs)
    ]
    rows = []
    for name, settings in WAYS.items():
        asked = replace(settings, steps=6_000) if quick else settings
        found = [one_run(problem, region, each, replace(asked, seed=seed)) for seed, each in enumerate(measured)]
        mean = {key: float(np.mean([each[key] for each in found])) for key in found[0]}
        rows.append({"points": problem.name, "region": region, "epsilon": epsilon, "way": name, "runs": runs} | mean)
    return rows


def replace_seed(plan: KMeans, seed: int) -> KMeans:
    """The plan with other first centroids."""
    return KMeans(plan.clusters, rounds=plan.rounds, region=plan.region, seed=seed)


def one_run(problem: NamedPoints, region: RegionKind, measured: MeasurementSet, settings: Iterates) -> dict[str, float]:
    """Costs on the real points."""
    began = time.perf_counter()
    found = cluster(measured, settings)
    seconds = time.perf_counter() - began
    points = Region(region, problem.points.shape[1]).project(normalised(problem.points, found.bounds))
    return {
        "last round": wcss(points, normalised(found.last_iterate, found.bounds)),
        "all rounds": wcss(points, normalised(found.centroids, found.bounds)),
        "R-hat": found.diagnostics["rhat"] or np.inf,
        "seconds": seconds,
    }
