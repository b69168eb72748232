"""How accurate the default for one attribute with many values is on ranges and prefixes, against public 1-D methods.

Histograms of DPBench and generated ones of up to 2^15 bins, in two halves fixed beforehand: choices were tuned on the
first (DPBench's at even places), and are judged on the second. A row is a histogram at one ε: the root mean squared
error over all ranges, or all prefixes, averaged over draws of the noise, in parts of the best of

- HB: a tree with the branching of Qardaji, Yang, Li (2013), its levels below the root alike, by least squares;
- DAWA (Li, Hay, Miklau, Wang 2014) with the noise of its authors' code, which is half of what the proof here needs, and
  their clipping; then, in place of GreedyH, our tree of least expected error, which is never much worse and often far
  better, by least squares;
- the total, spread evenly.

`ranges:held-out` runs the second half alone. Noise is simulated, and each histogram has seeds of its own.
"""

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.counted import CountedTable
from benchmarks.problems.histograms import (
    NamedHistogram,
    dpbench_histograms,
    nettrace,
    search_logs,
    social_network,
)
from consilience import plans
from consilience.domain import Query, Workload, factors
from consilience.estimators import Tree
from consilience.measuring import measure
from consilience.plans.histogram import AskedRanges, best_tree
from consilience.privacy.budgets import budget
from consilience.privacy.mean_partitions import window_mean_deviations
from consilience.privacy.partitions import BITS, interval_family, least_cost_starts
from consilience.strategies.count_trees import levels_of

Array = NDArray[np.float64]
Rng = np.random.Generator

EPSILONS = (0.01, 0.1, 1.0)
ASKED = {
    "ranges": (factors.AllRanges(), AskedRanges(ranges=1.0)),
    "prefixes": (factors.Prefix(), AskedRanges(prefixes=1.0)),
}
DAWA_SHARE = 0.25


def run(quick: bool, half: str | None = None) -> list[dict[str, Any]]:
    """A row for each histogram, ε and workload; ten draws of the noise, two if quick."""
    draws = 2 if quick else 10
    halves = {"tuning": tuning(), "held-out": held_out()}
    return [
        {"problem": name} | row(histogram, epsilon, asked, draws)
        for name, histograms in halves.items()
        if half in (None, name)
        for histogram in histograms
        for epsilon in EPSILONS
        for asked in (["ranges"] if quick else ASKED)
    ]


def row(histogram: NamedHistogram, epsilon: float, asked: str, draws: int) -> dict[str, Any]:
    """The errors of the default and of the best tree alone in parts of the best public method's."""
    seed = zlib.crc32(f"{histogram.name} {epsilon} {asked}".encode())
    errors = {
        name: mean_error(way(histogram, epsilon, asked), histogram, asked, seed, draws) for name, way in WAYS.items()
    }
    public = {name: error for name, error in errors.items() if name in PUBLIC}
    best = min(public, key=lambda name: public[name])
    return {
        "histogram": histogram.name,
        "epsilon": epsilon,
        "asked": asked,
        "best public": best,
        "its error": public[best],
        **{f"{name} / best": error / public[best] for name, error in errors.items()},
        "met": "yes" if errors["default"] <= 1.2 * public[best] else "no",
    }


def mean_error(fit: Callable[[int], Array], histogram: NamedHistogram, asked: str, seed: int, draws: int) -> float:
    """The root mean squared error over all ranges or prefixes, averaged over draws."""
    found = [root_mean_square(fit(seed + draw) - histogram.counts, asked) for draw in range(draws)]
    return float(np.mean(found))


def root_mean_square(errors: Array, asked: str) -> float:
    """Over all prefixes, or over all ranges: Σ (E_j − E_i)² over i < j is (n + 1) ΣE² − (ΣE)².

    >>> round(root_mean_square(np.array([3.0, 4.0]), "ranges") ** 2, 6) == round((9 + 16 + 49) / 3, 6)
    True
    """
    sums = np.concatenate([[0.0], np.cumsum(errors)])
    if asked == "prefixes":
        return math.sqrt(float((sums[1:] ** 2).mean()))
    n = errors.size
    return math.sqrt(((n + 1) * float((sums**2).sum()) - float(sums.sum()) ** 2) / (n * (n + 1) / 2))


# ----------------------------------------------------------------------------------------------------------------------
# The ways: what `release` takes, the best tree of counts without joining values, and the public methods.


def ours(histogram: NamedHistogram, epsilon: float, asked: str, *, joined: bool) -> Callable[[int], Array]:
    """The chosen plan, or the tree of counts over all values, fitted as `auto` fits them."""
    table, workload = CountedTable.histogram(histogram.counts), Workload.of([Query.of({"x": ASKED[asked][0]})])
    plan, _ = plans.chosen_plan(table.domain, workload, budget(epsilon=epsilon))
    if not joined:
        plan = plans.Histogram("x", workload=workload)
    return lambda seed: Tree().fit(measure(table, plan, epsilon=epsilon, simulate=seed)).marginal("x")


def hb(histogram: NamedHistogram, epsilon: float, _: str) -> Callable[[int], Array]:
    """Equal shares below the root."""
    counts = histogram.counts.astype(np.float64)
    branching = published_branching(counts.size)
    levels = levels_of(counts.size, branching)
    shares = [0.0, *[1.0 / (levels - 1)] * (levels - 1)]
    return lambda seed: noisy_tree(counts, branching, shares, epsilon, np.random.default_rng(seed))


def published_branching(bins: int) -> int:
    """The branching of the least (b − 1)h³ − 2(b + 1)h²/3 with h levels, as Qardaji, Yang, Li print it.

    >>> published_branching(4096)
    16
    """

    def variance(branching: int) -> float:
        height = levels_of(bins, branching) - 1
        return (branching - 1) * height**3 - 2 * (branching + 1) * height**2 / 3

    return min(range(2, min(bins, 256) + 1), key=variance)


def dawa(histogram: NamedHistogram, epsilon: float, asked: str) -> Callable[[int], Array]:
    """The partition as the authors' code makes it, and the best tree over its buckets."""
    counts = histogram.counts
    family = interval_family(counts.size, "dyadic")
    deviations = [window_mean_deviations(counts, width, BITS)[::step] / 2**BITS for width, step in family]
    first, rest = DAWA_SHARE * epsilon, (1.0 - DAWA_SHARE) * epsilon

    def fit(seed: int) -> Array:
        rng, costs = np.random.default_rng(seed), []
        for (width, _), exact in zip(family, deviations, strict=True):
            noise = rng.laplace(0.0, (2 - 1 / width - 1 / counts.size) / first, exact.size) if width > 1 else 0.0
            costs.append(np.round((np.maximum(exact + noise, 0.0) + 1 / rest) * 2**BITS).astype(np.int64))
        starts = np.array(least_cost_starts(counts.size, family, costs))
        totals = np.add.reduceat(counts, starts).astype(np.float64)
        branching, shares = best_tree(ASKED[asked][1], range(totals.size), totals.size)
        widths = np.diff(np.append(starts, counts.size))
        return np.repeat(noisy_tree(totals, branching, shares, rest, rng) / widths, widths)

    return fit


def uniform(histogram: NamedHistogram, epsilon: float, _: str) -> Callable[[int], Array]:
    total, bins = histogram.counts.sum(), histogram.counts.size
    return lambda seed: np.full(bins, (total + np.random.default_rng(seed).laplace(0.0, 1 / epsilon)) / bins)


def noisy_tree(counts: Array, branching: int, shares: Any, epsilon: float, rng: Rng) -> Array:
    """Least squares over a tree of noisy counts: bottom up the best estimate of every node, then down again."""
    levels = [counts]
    for _ in range(len(shares) - 1):
        levels.append(np.add.reduceat(levels[-1], np.arange(0, levels[-1].size, branching)))
    up: list[tuple[Array, Array]] = []
    for exact, share in zip(levels, reversed(shares), strict=True):
        precision = (share * epsilon) ** 2 / 2
        noisy = exact + (rng.laplace(0.0, 1.0 / (share * epsilon), exact.size) if share else 0.0 * exact)
        if up:
            value, variance = (np.add.reduceat(part, np.arange(0, part.size, branching)) for part in up[-1])
            joint = 1.0 / (1.0 / variance + precision)
            up.append((joint * (value / variance + precision * noisy), joint))
        else:
            up.append((noisy, np.full(exact.size, 1.0 / precision)))
    found = up[-1][0]
    for value, variance in up[-2::-1]:
        parent = np.arange(value.size) // branching
        missed = found - np.bincount(parent, value)
        found = value + variance / np.bincount(parent, variance)[parent] * missed[parent]
    return found


PUBLIC = ("HB", "DAWA", "uniform")
WAYS: dict[str, Callable[[NamedHistogram, float, str], Callable[[int], Array]]] = {
    "default": lambda *asked: ours(*asked, joined=True),
    "tree": lambda *asked: ours(*asked, joined=False),
    "HB": hb,
    "DAWA": dawa,
    "uniform": uniform,
}


# ----------------------------------------------------------------------------------------------------------------------
# The histograms.


def tuning() -> list[NamedHistogram]:
    """DPBench's at even places, and six generated ones."""
    return [
        *dpbench_histograms()[::2],
        steps("steps", 2**11, 200_000, pieces=12, seed=1),
        smooth("smooth", 2**13, 100_000, bumps=6, seed=2),
        of_shares("spikes", np.random.default_rng(3).permutation(np.arange(1, 2**12 + 1.0) ** -1.1), 300_000, seed=3),
        clusters("clusters", 2**15, 500_000, number=20, seed=4),
        of_shares("flat", np.ones(2**14), 50_000, seed=5),
        lognormal("lognormal", 2**15, 1_000_000, seed=6),
    ]


def held_out() -> list[NamedHistogram]:
    """DPBench's at odd places, Lee, Wang and Kifer's three, and five generated ones of other shapes."""
    hours = np.arange(2**13)
    weekly = (1.2 + np.sin(hours / 24 * 2 * np.pi)) * (1.1 + np.sin(hours / 168 * 2 * np.pi)) * np.exp(-hours / 2**13)
    return [
        *dpbench_histograms()[1::2],
        of_shares("hours of weeks", weekly, 400_000, seed=11),
        rounded("rounded amounts", 2**15, 300_000, seed=12),
        steps("many steps", 2**15, 2_000_000, pieces=60, seed=13),
        clusters("few clusters", 2**12, 30_000, number=8, seed=14),
        smooth("few bumps", 2**15, 20_000, bumps=3, seed=15),
        search_logs(),
        nettrace().coarsened(2**15),
        social_network(),
    ]


def of_shares(name: str, shares: Array, records: int, *, seed: int) -> NamedHistogram:
    return NamedHistogram(name, np.random.default_rng(seed).multinomial(records, shares / shares.sum()))


def steps(name: str, bins: int, records: int, *, pieces: int, seed: int) -> NamedHistogram:
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.choice(bins, pieces - 1, replace=False))
    levels = rng.lognormal(0.0, 1.5, pieces)
    return of_shares(name, levels[np.searchsorted(cuts, np.arange(bins), side="right")], records, seed=seed)


def smooth(name: str, bins: int, records: int, *, bumps: int, seed: int) -> NamedHistogram:
    rng, place = np.random.default_rng(seed), np.arange(bins) / bins
    shares = np.full(bins, 1e-3)
    for _ in range(bumps):
        height, centre, width = rng.random(), rng.random(), 0.01 + 0.1 * rng.random()
        shares += height * np.exp(-0.5 * ((place - centre) / width) ** 2)
    return of_shares(name, shares, records, seed=seed)


def clusters(name: str, bins: int, records: int, *, number: int, seed: int) -> NamedHistogram:
    """Few stretches of at most a half per cent of the bins, and nothing between them."""
    rng, shares = np.random.default_rng(seed), np.zeros(bins)
    for _ in range(number):
        first, length = rng.integers(0, bins - bins // 200), rng.integers(1, bins // 200)
        shares[first : first + length] += rng.pareto(1.2) / length
    return of_shares(name, shares, records, seed=seed)


def lognormal(name: str, bins: int, records: int, *, seed: int) -> NamedHistogram:
    values = np.random.default_rng(seed).lognormal(math.log(bins / 20), 0.8, records).astype(np.int64)
    return NamedHistogram(name, np.bincount(values[values < bins], minlength=bins))


def rounded(name: str, bins: int, records: int, *, seed: int) -> NamedHistogram:
    """Amounts, of which people round four in ten to hundreds and three in ten to tens."""
    rng = np.random.default_rng(seed)
    values, habit = rng.gamma(2.0, bins / 10, records).astype(np.int64), rng.random(records)
    values = np.where(habit < 0.4, values // 100 * 100, np.where(habit < 0.7, values // 10 * 10, values))
    return NamedHistogram(name, np.bincount(values[values < bins], minlength=bins))
