"""Lee, Wang and Kifer (2015), Figure 5.2.1: the error of single bins against ε on three histograms."""

from typing import Any

import numpy as np

from benchmarks.problems.counted import CountedTable
from benchmarks.problems.histograms import NamedHistogram, nettrace, search_logs, social_network
from benchmarks.reproduce.figures import Claim, Picture, brief, publish
from benchmarks.reproduce.lee2015.methods import Answers, best_branching, histogram_methods

NAME = "lee2015-figure-5.2.1"
PICTURE = Picture("Error of single bins (Lee et al. 2015, Figure 5.2.1)", "epsilon", "ε", "dataset")
EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0)


def run(quick: bool) -> bool:
    """Ten runs of every method, as in the paper; two if quick."""
    runs = 2 if quick else 10
    histograms = [search_logs(), nettrace(), social_network()]
    rows = [row for histogram in histograms for epsilon in EPSILONS for row in errors(histogram, epsilon, runs)]
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def errors(histogram: NamedHistogram, epsilon: float, runs: int) -> list[dict[str, Any]]:
    table = CountedTable.histogram(histogram.counts)
    every = np.arange(histogram.counts.size)

    def error(answers: Answers) -> float:
        return float(np.mean((answers(every, 1) - histogram.counts) ** 2))

    branching = best_branching(table, epsilon, error, runs=min(runs, 3))
    rows = []
    for method in histogram_methods(table.domain.names[0], branching=branching):
        found = [error(method.run(table, epsilon, seed)) for seed in range(runs)]
        rows.append(
            {
                "dataset": histogram.name,
                "epsilon": epsilon,
                "method": method.name,
                "mse": float(np.mean(found)),
                "standard_error": float(np.std(found) / np.sqrt(runs)),
                "runs": runs,
                "htree_branching": branching,
            }
        )
        print(f"  {histogram.name}, ε = {epsilon:g}, {method.name}: {rows[-1]['mse']:.4g}", flush=True)
    return rows


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """What §5.2 says of the figure."""
    ratio = ratios(rows, "HTree", "ADMM(ℓ1), as printed")
    sparse = [value for (dataset, _), value in ratio.items() if not dataset.startswith("Social")]
    dense = [value for (dataset, _), value in ratio.items() if dataset.startswith("Social")]
    ours = ratios(rows, "HTree", "Consilience, auto")
    return [
        Claim(
            "on the sparse histograms ADMM(ℓ1) clearly outperforms HTree",
            min(sparse) > 1.5,
            f"HTree's error is {brief(min(sparse))} to {brief(max(sparse))} times as large",
        ),
        Claim(
            "on Social Network the two perform similarly",
            max(dense) < 1.5 and min(dense) > 0.67,
            f"HTree's error is {brief(min(dense))} to {brief(max(dense))} times ADMM's",
        ),
        Claim(
            "beyond the paper: `auto` is nowhere worse than HTree with the branching that suits it best",
            min(ours.values()) >= 0.99,
            f"HTree's error is {brief(min(ours.values()))} to {brief(max(ours.values()))} times that of auto",
        ),
    ]


def ratios(rows: list[dict[str, Any]], above: str, below: str) -> dict[tuple[str, float], float]:
    """For each data set and abscissa, the error of one method over that of another."""
    key = "length" if "length" in rows[0] else "epsilon"
    found = {(row["dataset"], row.get("panel", ""), row[key], row["method"]): row["mse"] for row in rows}
    return {
        (dataset, x): value / found[dataset, panel, x, below]
        for (dataset, panel, x, method), value in found.items()
        if method == above
    }
