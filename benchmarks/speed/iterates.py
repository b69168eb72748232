"""Chains over datasets: seconds of 30,000 steps, and how they grow with rounds, clusters and dimensions.

A step finds the nearest of K centroids in d dimensions under each of T rounds, and the density of a mixture of T·K
components: O(T·K·d). Around the size of S1 one of the three is varied at a time; the last rows say which power of it
the seconds grow with, which is at most 1 where the cost is linear. These points lie in a box and components are narrow:
next to no proposal leaves the region, where it would be rejected for nothing. Seconds are processor time of one chain,
after compilation, the best of several runs.

The last row is a statistic of one's own (kernels/record_functions.py): clipped gradients of a logistic regression,
written as a user would, in units of the built-in ones on the same rounds.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.problems.points import mixture, s1
from benchmarks.speed.timing import best_time
from consilience.iterates.chain import ChainProblem, ChainSettings, run_chains
from consilience.iterates.chain_kernels import OWN
from consilience.iterates.clustering import initial_centroids
from consilience.iterates.problems import NoisyGradients, NoisyRounds, cluster_problem, logistic_problem
from consilience.kernels.record_functions import RecordFunction
from consilience.kernels.regions import Region, RegionKind, lattice_points
from consilience.privacy.cluster_statistics import cluster_sums

STEPS = 30_000
LARGEST_S1_SECONDS = 0.5
STEEPEST = 1.1
"""A power that still counts as linear, given how exactly seconds can be measured."""
USUAL = {"rounds": 5, "clusters": 15, "dimensions": 2}
VARIED = {"rounds": (5, 10, 20, 40), "clusters": (15, 30, 60, 120), "dimensions": (2, 4, 8, 16, 32)}
QUICK = {"rounds": (5, 20), "clusters": (15, 60), "dimensions": (2, 16)}
EPSILON = 10.0
LARGEST_OWN_RATIO = 1.5

Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """A row for S1 and for each size, and for each of the three the power with which seconds grow."""
    rows = [judged("S1, K = 15, T = 5", noisy_rounds(s1().projected, "ball", **USUAL))]
    powers = []
    for what, values in (QUICK if quick else VARIED).items():
        seconds = []
        for value in values:
            size = USUAL | {what: value}
            named = mixture("clusters", (2_000, size["dimensions"], size["clusters"]))
            rounds = noisy_rounds(0.8 * named.normalised(named.points), "box", **size)
            found = chain_seconds(cluster_problem(rounds, allow_for_noise=False, anywhere=0.0))
            product = int(np.prod(list(size.values())))
            seconds.append(found)
            rows.append(
                {"problem": f"{value} {what}", "seconds": found, "T·K·d": product}
                | {"ns a step and T·K·d": 1e9 * found / STEPS / product}
            )
        power = float(np.polyfit(np.log(values), np.log(seconds), 1)[0])
        met = "yes" if power <= STEEPEST else "no"
        powers.append(
            {"problem": f"seconds grow with {what} to the power", "power": power}
            | {"target": f"<= {STEEPEST:g}", "met": met}
        )
    return [*rows, *powers, own_row()]


def gradient(theta, record, found):
    """The gradient of a record's logistic loss; the label is its last coordinate."""
    last = theta.shape[1] - 1
    margin = theta[0, last]
    for j in range(last):
        margin += theta[0, j] * record[j]
    slope = -record[last] / (1.0 + np.exp(record[last] * margin))
    for j in range(last):
        found[j] = slope * record[j]
    found[last] = slope


def own_row(dimensions: int = 6, number: int = 20) -> Row:
    """A user's gradients in units of the built-in ones: the same problem but for who computes them."""
    rng = np.random.default_rng(0)
    thetas, scales = rng.normal(0.0, 0.5, (number, dimensions + 1)), np.full(number, 100.0)
    rounds = NoisyGradients(
        thetas, np.full(number, 1e4), rng.normal(0.0, 500.0, thetas.shape), scales, scales, laplace=True,
        clip=3.5, clip_norm=1, region=Region("box", dimensions),
    )  # fmt: skip
    built_in = logistic_problem(rounds)
    asked = RecordFunction("gradient", gradient, size=dimensions + 1, clip=3.5)
    target = built_in.target._replace(kind=OWN, thetas=thetas[:, None].copy(), own=asked.compiled)
    seconds = [chain_seconds(each, size=50) for each in (built_in, replace(built_in, target=target))]
    ratio = seconds[1] / seconds[0]
    met = "yes" if ratio <= LARGEST_OWN_RATIO else "no"
    return {"problem": "a statistic of one's own, in units of the built-in", "seconds": seconds[1], "ratio": ratio} | {
        "target": f"<= {LARGEST_OWN_RATIO:g}", "met": met
    }  # fmt: skip


def judged(problem: str, rounds: NoisyRounds) -> Row:
    """The seconds of 30,000 steps with the exact ratio of mixtures, as the paper runs them."""
    seconds = chain_seconds(cluster_problem(rounds, allow_for_noise=False, anywhere=0.0), size=5_000)
    met = "yes" if seconds < LARGEST_S1_SECONDS else "no"
    return {"problem": problem, "seconds": seconds, "target": f"< {LARGEST_S1_SECONDS:g} s", "met": met}


def chain_seconds(problem: ChainProblem, *, size: int = 1_000) -> float:
    """Seconds of one chain of so many points, after a short one that compiles."""
    settings = ChainSettings(size=size, steps=STEPS, burn_in=0, tune=False, draws=1)
    run_chains(problem, ChainSettings(size=size, steps=100, burn_in=0, tune=False, draws=1), chains=1)
    best, _ = best_time(lambda: run_chains(problem, settings, chains=1), least=3, clock=time.process_time)
    return best


def noisy_rounds(points: np.ndarray, kind: RegionKind, *, rounds: int, clusters: int, dimensions: int) -> NoisyRounds:
    """What some rounds of k-means would release of points in a region, each from a start of its own."""
    rng = np.random.default_rng(0)
    region = Region(kind, dimensions)
    units = lattice_points(points, ((-1.0, 1.0),) * dimensions, region)
    thetas = np.array([initial_centroids(clusters, dimensions, region, seed) for seed in range(rounds)])
    exact = [cluster_sums(units, theta) for theta in thetas]
    scale = 2.0 * rounds / EPSILON
    counts = np.array([each for each, _ in exact]) + rng.laplace(0.0, scale, (rounds, clusters))
    sums = np.array([each for _, each in exact]) * 2.0**-20 + rng.laplace(0.0, scale, thetas.shape)
    scales = np.full(rounds, scale)
    return NoisyRounds(thetas, counts, sums, scales, scales, laplace=True, region=region)
