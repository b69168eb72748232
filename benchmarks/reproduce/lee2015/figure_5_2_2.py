"""Lee, Wang and Kifer (2015), Figure 5.2.2: the error of ranges against their length, at ε = 0.1 and ε = 1."""

import math

import numpy as np

from benchmarks.problems.counted import CountedTable
from benchmarks.problems.histograms import NamedHistogram, nettrace, search_logs, social_network
from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.lee2015.methods import (
    DATA_DIFFERS,
    METHOD_DIFFERS,
    Answers,
    best_branching,
    histogram_methods,
    run_all,
)
from benchmarks.reproduce.per_run import Values, by, geometric, ratio, slope
from benchmarks.reproduce.pictures import Picture
from benchmarks.reproduce.verdicts import BETTER, MUCH, SIMILAR, Claim, Threshold

ABOUT = About(
    "Lee, Wang and Kifer (2015), Figure 5.2.2: the error of ranges by their length",
    (
        DATA_DIFFERS,
        METHOD_DIFFERS,
        "The paper prints curves without numbers; its axes reach from 0.1, 10 or 1,000 to 10⁷.",
    ),
    runs="Ten runs, ε = 0.1 and 1, 1,000 random ranges of each length 2, 4, … 2^(h−2), as in the paper.",
)
PICTURE = Picture(
    "Error of ranges (Lee et al. 2015, Figure 5.2.2)",
    "length",
    "length of the range",
    "dataset",
    row="panel",
    height=250,
    note="Means of ten runs. Marks of one length are moved sideways so that none hides another.",
)
RANGES = 1000
HTREE, ADMM, AUTO, PRIVLET, PHP = "HTree", "ADMM(ℓ1), as printed", "Consilience, auto", "Privlet", "P-HP"
LINEAR = Threshold(0.8, 1.2)
"""The exponents p of length^p that count as linear."""


def run(extent: Extent) -> Rows:
    """Ten runs of every method, as in the paper; two if quick."""
    histograms = [search_logs(), nettrace(), social_network()]
    return [row for epsilon in (0.1, 1.0) for each in histograms for row in errors(each, epsilon, extent.seeds(10))]


def lengths_of(bins: int) -> list[int]:
    """2, 4, … 2^(h − 2), where h is the height of a binary tree over the bins, its root included."""
    height = math.ceil(math.log2(bins)) + 1
    return [2**power for power in range(1, height - 1)]


def errors(histogram: NamedHistogram, epsilon: float, seeds: range) -> Rows:
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

    branching = best_branching(table, epsilon, typical_error, runs=min(len(seeds), 3))
    rows: Rows = []
    methods = histogram_methods(table.domain.names[0], histogram.counts.size, branching=branching)
    released = [run_all(methods, table, epsilon, seed) for seed in seeds]
    for method in methods:
        found = np.array([errors_by_length(answers[method.name]) for answers in released])
        rows += [
            {"panel": f"ε = {epsilon:g}", "dataset": histogram.name, "length": length, "method": method.name}
            | {"mse": float(of_length.mean()), "htree_branching": branching, "values": of_length.tolist()}
            for length, of_length in zip(lengths, found.T, strict=True)
        ]
    print(f"  {histogram.name}, ε = {epsilon:g}: done", flush=True)
    return rows


def claims(rows: Rows) -> list[Claim]:
    """What §5.2 says of the figure."""
    found = Curves(rows)
    sparse = [panel for panel in found.panels if not panel[1].startswith("Social")]
    social = [panel for panel in found.panels if panel[1].startswith("Social")]
    logs = [panel for panel in found.panels if panel[1].startswith("Search") and panel[0] == "ε = 1"]
    rivals = (HTREE, PRIVLET)
    return [
        Claim(
            "HTree and Privlet … show similar performances throughout all range sizes",
            "Privlet's error in units of HTree's, at each length",
            SIMILAR,
            {
                f"{told(panel)}, length {n:g}": found.ratio(panel, n, PRIVLET, HTREE)
                for panel in found.panels
                for n in found.lengths(panel)
            },
            more="HTree's branching is tuned on the truth, Privlet is binary.",
        ),
        Claim(
            "the error of the LM(H) and LM(L) increases linearly with the size of the range",
            "exponent p of length^p",
            LINEAR,
            {
                f"{name}, {told(panel)}": found.slope(panel, name)
                for panel in found.panels
                for name in ("LM(L)", "LM(H)")
            },
            ratio=False,
        ),
        Claim(
            "ADMM(ℓ1) is much more accurate for smaller ranges than HTree and Privlet (sparse data, length 2)",
            "error of HTree and Privlet in units of ADMM's",
            MUCH,
            {f"{other}, {told(panel)}": found.ratio(panel, 2, other, ADMM) for panel in sparse for other in rivals},
        ),
        Claim(
            "the performance of ADMM(ℓ1) on large ranges is not as good as them (sparse data, the longest ranges)",
            "ADMM's error in units of HTree's and Privlet's",
            BETTER,
            {
                f"{other}, {told(panel)}": found.ratio(panel, max(found.lengths(panel)), ADMM, other)
                for panel in sparse
                for other in rivals
            },
        ),
        Claim(
            "P-HP shows a good performance on Social Network, because the dataset is sorted (judged against HTree)",
            "HTree's error in units of P-HP's, over all lengths",
            BETTER,
            {told(panel): found.over_lengths(panel, HTREE, PHP) for panel in social},
        ),
        Claim(
            "however, it performs poorly on Search Log dataset (judged against HTree)",
            "P-HP's error in units of HTree's, over all lengths",
            BETTER,
            {told(panel): found.over_lengths(panel, PHP, HTREE) for panel in sparse if panel[1].startswith("Search")},
        ),
        Claim(
            "on Search Logs at ε = 1 its performance is even worse than that of naive Laplace mechanism",
            "P-HP's error in units of LM(L)'s, over all lengths",
            BETTER,
            {told(panel): found.over_lengths(panel, PHP, "LM(L)") for panel in logs},
        ),
        Claim(
            "`auto` is not worse than HTree on the longest ranges of sparse data",
            "HTree's error in units of auto's",
            Threshold(low=0.99),
            {told(panel): found.ratio(panel, max(found.lengths(panel)), HTREE, AUTO) for panel in sparse},
            ours=True,
        ),
    ]


def told(panel: tuple[str, str]) -> str:
    return f"{panel[1].split(' (')[0]}, {panel[0]}"


class Curves:
    """The errors by panel, length and method."""

    def __init__(self, rows: Rows) -> None:
        self._found = by(rows, "panel", "dataset", "length", "method")
        self.panels: list[tuple[str, str]] = list(dict.fromkeys((row["panel"], row["dataset"]) for row in rows))

    def lengths(self, panel: tuple[str, str]) -> list[float]:
        return [length for *at, length, method in self._found if tuple(at) == panel and method == HTREE]

    def ratio(self, panel: tuple[str, str], length: float, above: str, below: str) -> Values:
        return ratio(self._found[(*panel, length, above)], self._found[(*panel, length, below)])

    def over_lengths(self, panel: tuple[str, str], above: str, below: str) -> Values:
        return geometric(self.ratio(panel, length, above, below) for length in self.lengths(panel))

    def slope(self, panel: tuple[str, str], method: str) -> Values:
        lengths = self.lengths(panel)
        return slope(lengths, [self._found[(*panel, length, method)] for length in lengths])
