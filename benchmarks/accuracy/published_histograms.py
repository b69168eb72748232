"""How accurate EFPA, P-HP and DAWA are as published, and as they are here, on histograms of 256 bins.

Every plan is fitted as its authors do it, by least squares of least norm. A row is a mechanism on a histogram at one ε:
the mean squared error of all bins and of random ranges (half of the bins long) of both plans, over several draws of the
noise, and what ours has in parts of the published one's. Noise is simulated.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.counted import CountedTable
from benchmarks.problems.histograms import NamedHistogram, nettrace, search_logs, social_network
from consilience import plans
from consilience.estimators import Matrix
from consilience.measuring import measure
from consilience.privacy.measure import Plan

Array = NDArray[np.float64]

BINS = 256
EPSILONS = (0.1, 1.0)
RANGES = 500
LEAST_SQUARES = Matrix(loss="l2", nonnegative=False)
MECHANISMS: dict[str, tuple[Plan, Plan]] = {
    "EFPA": (plans.Efpa("x"), plans.EfpaAsPublished("x")),
    "P-HP": (plans.Php("x"), plans.PhpAsPublished("x")),
    "DAWA": (plans.Dawa("x"), plans.DawaAsPublished("x")),
}


def run(quick: bool) -> list[dict[str, Any]]:
    """A row for each mechanism, histogram and ε; twenty draws of the noise, three if quick."""
    runs = 3 if quick else 20
    histograms = [each.coarsened(BINS) for each in (search_logs(), nettrace(), social_network())]
    return [
        _row(name, histogram, epsilon, runs) for name in MECHANISMS for histogram in histograms for epsilon in EPSILONS
    ]


def _row(name: str, histogram: NamedHistogram, epsilon: float, runs: int) -> dict[str, Any]:
    ours, published = (mean_errors(plan, histogram, epsilon, runs) for plan in MECHANISMS[name])
    return {
        "mechanism": name,
        "histogram": histogram.name,
        "epsilon": epsilon,
        "runs": runs,
        "bins, ours": float(ours[0]),
        "bins, as published": float(published[0]),
        "bins, ours / published": float(ours[0] / published[0]),
        "ranges, ours / published": float(ours[1] / published[1]),
    }


def mean_errors(plan: Plan, histogram: NamedHistogram, epsilon: float, runs: int) -> Array:
    """The mean squared error of the bins, and of ranges over half of them."""
    table, length = CountedTable.histogram(histogram.counts), histogram.counts.size // 2
    found = np.zeros(2)
    for seed in range(runs):
        fitted = LEAST_SQUARES.fit(measure(table, plan, epsilon=epsilon, simulate=seed)).marginal("x")
        errors = fitted - histogram.counts
        sums = np.concatenate([[0.0], np.cumsum(errors)])
        starts = np.random.default_rng(seed).integers(0, errors.size - length + 1, RANGES)
        found += [np.mean(errors**2) / runs, np.mean((sums[starts + length] - sums[starts]) ** 2) / runs]
    return found
