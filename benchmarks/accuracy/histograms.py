"""How accurate each loss is for a noisy tree fitted jointly, on the 18 histograms of DPBench, for bins and for ranges.

All ways fit the same noisy trees: branching 2, and the branching that `plans.Histogram` chooses. Laplace noise for
ε = 0.1 and ε = 1. `HTree` is Hay et al. (2010): least squares without non-negativity, negative answers set to 0, as
Lee et al. (2015) plot it. The others are `Tree` with each of its losses, weights scaled to the noise; the loss of
`auto` is the elastic net with α = 0.7. What `auto` does besides, holding large sums, is the matter of `totals`.

A row of the first part is a histogram: the mean squared error of single bins under that loss against HTree's, and
against the best of our own. A row of the second part is a length of ranges: each loss's error in parts of the best
loss's, averaged (geometric mean) over the histograms, and on how many of them α = 0.7 is within 5 % of the best.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.counted import CountedTable
from benchmarks.problems.histograms import NamedHistogram, dpbench_histograms
from consilience import plans
from consilience.estimators import Tree
from consilience.estimators.evidence import LAPLACE_ALPHA
from consilience.measurements import MeasurementSet
from consilience.measuring import measure

Array = NDArray[np.float64]

EPSILONS = (0.1, 1.0)
LENGTHS = (1, 4, 16, 64, 256, 1024)
RANGES = 1000
OURS = {
    "l1": Tree(loss="l1"),
    "l2": Tree(loss="l2"),
    "elastic 0.9": Tree(loss="elastic", alpha=0.9),
    "elastic 0.5": Tree(loss="elastic", alpha=0.5),
    "elastic 0.7": Tree(loss="elastic", alpha=LAPLACE_ALPHA),
}
CHOSEN = "elastic 0.7"
HAY = Tree(loss="l2", nonnegative=False)


def run(quick: bool) -> list[dict[str, Any]]:
    """The rows of both parts; ten noisy trees for each histogram, three if quick."""
    runs = 3 if quick else 10
    rows: list[dict[str, Any]] = []
    for branching in (2, None):
        tree = plans.Histogram("x", branching=branching)
        for epsilon in EPSILONS:
            errors = {each.name: mean_errors(each, tree, epsilon, runs) for each in dpbench_histograms()}
            empty = {each.name: each.empty_share for each in dpbench_histograms()}
            shared = {"tree": "binary" if branching == 2 else "default branching", "epsilon": epsilon}
            rows += [shared | _bin_row(name, found, empty[name]) for name, found in errors.items()]
            rows += [shared | _length_row(i, list(errors.values())) for i in range(len(LENGTHS))]
    return rows


def mean_errors(histogram: NamedHistogram, tree: plans.Histogram, epsilon: float, runs: int) -> dict[str, Array]:
    """The mean squared error of every way to fit, for every length."""
    table = CountedTable.histogram(histogram.counts)
    total: dict[str, Array] = {}
    for seed in range(runs):
        found = measure(table, tree, epsilon=epsilon, simulate=seed)
        for name, counts in fits(found).items():
            each = errors_by_length(counts, histogram.counts, np.random.default_rng(seed))
            total[name] = total.get(name, np.zeros(len(LENGTHS))) + each / runs
    return total


def fits(found: MeasurementSet) -> dict[str, Array]:
    """The counts of the bins by every way to fit."""
    return {name: way.fit(found).marginal("x") for name, way in (OURS | {"HTree": HAY}).items()}


def errors_by_length(counts: Array, truth: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """The mean squared error of all bins, and of random ranges of each other length; negative answers count as 0."""
    sums, true = np.concatenate([[0.0], np.cumsum(counts)]), np.concatenate([[0], np.cumsum(truth)])
    found = [np.mean((np.maximum(counts, 0.0) - truth) ** 2)]
    for length in LENGTHS[1:]:
        starts = rng.integers(0, truth.size - length + 1, RANGES)
        answers = np.maximum(sums[starts + length] - sums[starts], 0.0)
        found.append(np.mean((answers - (true[starts + length] - true[starts])) ** 2))
    return np.array(found, dtype=np.float64)


def _bin_row(name: str, errors: dict[str, Array], empty: float) -> dict[str, Any]:
    """How the loss of `auto` does on the bins of one histogram."""
    best = min(errors[each][0] for each in OURS)
    ratio = float(errors[CHOSEN][0] / errors["HTree"][0])
    return {
        "histogram": name,
        "empty": f"{empty:.0%}",
        "length": 1,
        f"{CHOSEN} / HTree": ratio,
        f"{CHOSEN} / best of ours": float(errors[CHOSEN][0] / best),
        "non-negative l2 / HTree": float(errors["l2"][0] / errors["HTree"][0]),
        "met": "yes" if ratio <= (1.0 if empty >= 0.3 else 1.01) else "no",
    }


def _length_row(place: int, errors: list[dict[str, Array]]) -> dict[str, Any]:
    """How every way to fit does at one length, over all histograms."""
    ways = tuple(OURS)
    table = np.array([[found[way][place] for way in ways] for found in errors])
    ratios = table / table.min(axis=1, keepdims=True)
    hay = np.array([found["HTree"][place] for found in errors]) / table.min(axis=1)
    near = int(np.sum(ratios[:, ways.index(CHOSEN)] <= 1.05))
    means = dict(zip(ways, np.exp(np.log(ratios).mean(axis=0)).tolist(), strict=True))
    return {
        "histogram": f"all {len(errors)}",
        "length": LENGTHS[place],
        **{f"{way} / best": mean for way, mean in means.items()},
        "HTree / best": float(np.exp(np.log(hay).mean())),
        f"{CHOSEN} within 5 %": near,
        "met": "yes" if near >= 15 else "no",
    }
