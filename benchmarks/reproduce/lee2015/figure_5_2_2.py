"""Lee, Wang and Kifer (2015), Figure 5.2.2: the error of ranges against their length, at ε = 0.1 and ε = 1."""

import math
from typing import Any

import numpy as np

from benchmarks.problems.counted import CountedTable
from benchmarks.problems.histograms import NamedHistogram, nettrace, search_logs, social_network
from benchmarks.reproduce.figures import Claim, Picture, brief, publish
from benchmarks.reproduce.lee2015.methods import Answers, best_branching, histogram_methods

NAME = "lee2015-figure-5.2.2"
PICTURE = Picture(
    "Error of ranges (Lee et al. 2015, Figure 5.2.2)", "length", "length of the range", "dataset", row="panel"
)
RANGES = 1000


def run(quick: bool) -> bool:
    """Ten runs of every method, as in the paper; two if quick."""
    runs = 2 if quick else 10
    histograms = [search_logs(), nettrace(), social_network()]
    rows = [row for epsilon in (0.1, 1.0) for histogram in histograms for row in errors(histogram, epsilon, runs)]
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def lengths_of(bins: int) -> list[int]:
    """2, 4, … 2^(h − 2), where h is the height of a binary tree over the bins, its root included."""
    height = math.ceil(math.log2(bins)) + 1
    return [2**power for power in range(1, height - 1)]


def errors(histogram: NamedHistogram, epsilon: float, runs: int) -> list[dict[str, Any]]:
    table = CountedTable.histogram(histogram.counts)
    sums = np.concatenate([[0], np.cumsum(histogram.counts)])
    rng = np.random.default_rng(5)
    lengths = [length for length in lengths_of(histogram.counts.size) if length < histogram.counts.size]
    places = {length: rng.integers(0, histogram.counts.size - length + 1, RANGES) for length in lengths}

    def errors_by_length(answers: Answers) -> list[float]:
        truth = {length: sums[starts + length] - sums[starts] for length, starts in places.items()}
        return [float(np.mean((answers(starts, n) - truth[n]) ** 2)) for n, starts in places.items()]

    def typical_error(answers: Answers) -> float:
        return float(np.exp(np.mean(np.log(errors_by_length(answers)))))

    branching = best_branching(table, epsilon, typical_error, runs=min(runs, 3))
    rows = []
    for method in histogram_methods(table.domain.names[0], branching=branching):
        found = np.mean([errors_by_length(method.run(table, epsilon, seed)) for seed in range(runs)], axis=0)
        print(f"  {histogram.name}, ε = {epsilon:g}, {method.name}: {found[0]:.4g} … {found[-1]:.4g}", flush=True)
        rows += [
            {
                "panel": f"ε = {epsilon:g}",
                "dataset": histogram.name,
                "length": length,
                "method": method.name,
                "mse": float(mse),
                "runs": runs,
                "htree_branching": branching,
            }
            for length, mse in zip(lengths, found, strict=True)
        ]
    return rows


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """What §5.2 says of the figure."""
    return [_trees_and_wavelets(rows), _flat_error_grows(rows), _short_ranges(rows), _long_ranges(rows), *_php(rows)]


def _table(rows: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[int, float]]:
    """(panel, data set, method) → length → error."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        found.setdefault((row["panel"], row["dataset"], row["method"]), {})[row["length"]] = row["mse"]
    return found


def _panels(rows: list[dict[str, Any]], *, sparse: bool = False) -> list[tuple[str, str]]:
    panels = dict.fromkeys((row["panel"], row["dataset"]) for row in rows)
    return [each for each in panels if not (sparse and each[1].startswith("Social"))]


def _compared(rows: list[dict[str, Any]], above: str, below: str, *, sparse: bool, long: bool) -> list[float]:
    """The error of one method over that of another, for the shortest or the longest ranges of each panel."""
    table = _table(rows)
    found = []
    for panel in _panels(rows, sparse=sparse):
        upper, lower = table[(*panel, above)], table[(*panel, below)]
        length = max(upper) if long else min(upper)
        found.append(upper[length] / lower[length])
    return found


def _trees_and_wavelets(rows: list[dict[str, Any]]) -> Claim:
    table = _table(rows)
    found = [
        table[(*panel, "Privlet")][n] / table[(*panel, "HTree")][n]
        for panel in _panels(rows)
        for n in table[(*panel, "HTree")]
    ]
    return Claim(
        "HTree and Privlet perform similarly at all lengths",
        min(found) > 0.2 and max(found) < 5,
        f"Privlet's error is {brief(min(found))} to {brief(max(found))} times HTree's, whose branching was tuned",
    )


def _flat_error_grows(rows: list[dict[str, Any]]) -> Claim:
    table = _table(rows)
    slopes = {}
    for name in ("LM(L)", "LM(H)"):
        curve = table[("ε = 1", _panels(rows)[-1][1], name)]
        first, last = min(curve), max(curve)
        slopes[name] = math.log(curve[last] / curve[first]) / math.log(last / first)
    return Claim(
        "the error of LM(L) and LM(H) grows linearly with the length",
        slopes["LM(L)"] > 0.8 and slopes["LM(H)"] > 0.8,
        f"it grows as length^{slopes['LM(L)']:.2f} for LM(L), length^{slopes['LM(H)']:.2f} for LM(H)",
    )


def _short_ranges(rows: list[dict[str, Any]]) -> Claim:
    found = _compared(rows, "HTree", "ADMM(ℓ1), as printed", sparse=True, long=False)
    return Claim(
        "ADMM(ℓ1) is much more accurate than HTree on short ranges (sparse data)",
        min(found) > 2,
        f"HTree's error is {brief(min(found))} to {brief(max(found))} times as large at length 2",
    )


def _long_ranges(rows: list[dict[str, Any]]) -> Claim:
    found = _compared(rows, "HTree", "ADMM(ℓ1), as printed", sparse=True, long=True)
    ours = _compared(rows, "HTree", "Consilience, auto", sparse=True, long=True)
    return Claim(
        "on the longest ranges ADMM(ℓ1) is not as good as HTree",
        all(each < 1 for each in found),
        f"HTree's error is {brief(min(found))} to {brief(max(found))} times ADMM's, "
        f"and {brief(min(ours))} to {brief(max(ours))} times that of auto",
    )


def _php(rows: list[dict[str, Any]]) -> list[Claim]:
    table = _table(rows)
    names = {dataset.split(" (")[0]: dataset for _, dataset in _panels(rows)}
    sorted_data, logs = names["Social Network"], names["Search Logs"]
    good = [
        table[(panel, sorted_data, "P-HP")][n] / table[(panel, sorted_data, "HTree")][n]
        for panel in ("ε = 0.1", "ε = 1")
        for n in table[(panel, sorted_data, "HTree")]
    ]
    poor = [value / table[("ε = 1", logs, "LM(L)")][n] for n, value in table[("ε = 1", logs, "P-HP")].items()]
    return [
        Claim(
            "P-HP does well on Social Network, which is sorted",
            float(np.median(good)) < 1,
            f"its error is {brief(np.median(good))} times HTree's in the median over lengths",
        ),
        Claim(
            "on Search Logs at ε = 1 P-HP is worse than the plain Laplace mechanism",
            float(np.median(poor)) > 1,
            f"its error is {brief(np.median(poor))} times that of LM(L) in the median over lengths",
        ),
    ]
