"""Lee, Wang and Kifer (2015), Figure 5.2.1: the error of single bins against ε on three histograms."""

import numpy as np

from benchmarks.problems.counted import CountedTable
from benchmarks.problems.histograms import NamedHistogram, nettrace, search_logs, social_network
from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.lee2015.methods import (
    DATA_DIFFERS,
    EPSILONS,
    METHOD_DIFFERS,
    Answers,
    best_branching,
    histogram_methods,
    run_all,
)
from benchmarks.reproduce.per_run import by, ratio
from benchmarks.reproduce.pictures import Picture
from benchmarks.reproduce.verdicts import CLEARLY, SIMILAR, Claim, Threshold

ABOUT = About(
    "Lee, Wang and Kifer (2015), Figure 5.2.1: the error of single bins",
    (DATA_DIFFERS, METHOD_DIFFERS, "The paper prints curves without numbers; its axes reach from 0.1 or 1 to 10⁴."),
    runs="Ten runs, ε = 0.1, 0.2, … 1, as in the paper.",
)
PICTURE = Picture(
    "Error of single bins (Lee et al. 2015, Figure 5.2.1)",
    "epsilon",
    "ε",
    "dataset",
    x_log=False,
    height=280,
    note="Means of ten runs. Marks of one ε are moved sideways so that none hides another.",
)
HTREE, ADMM, AUTO = "HTree", "ADMM(ℓ1), as printed", "Consilience, auto"


def run(extent: Extent) -> Rows:
    """Ten runs of every method, as in the paper; two of two ε if quick."""
    histograms = [search_logs(), nettrace(), social_network()]
    epsilons = EPSILONS[::9] if extent.quick else EPSILONS
    return [row for each in histograms for epsilon in epsilons for row in errors(each, epsilon, extent.seeds(10))]


def errors(histogram: NamedHistogram, epsilon: float, seeds: range) -> Rows:
    table = CountedTable.histogram(histogram.counts)
    every = np.arange(histogram.counts.size)

    def error(answers: Answers) -> float:
        return float(np.mean((answers(every, 1) - histogram.counts) ** 2))

    branching = best_branching(table, epsilon, error, runs=min(len(seeds), 3))
    rows: Rows = []
    methods = histogram_methods(table.domain.names[0], every.size, branching=branching)
    released = [run_all(methods, table, epsilon, seed) for seed in seeds]
    for method in methods:
        found = [error(answers[method.name]) for answers in released]
        rows.append(
            {"dataset": histogram.name, "epsilon": epsilon, "method": method.name, "mse": float(np.mean(found))}
            | {"htree_branching": branching, "values": found}
        )
    print(f"  {histogram.name}, ε = {epsilon:g}: done", flush=True)
    return rows


def claims(rows: Rows) -> list[Claim]:
    """What §5.2 says of the figure."""
    found = by(rows, "dataset", "epsilon", "method")
    places = list(dict.fromkeys((row["dataset"], row["epsilon"]) for row in rows))

    def against(other: str, *, social: bool | None) -> dict[str, list[float]]:
        return {
            f"{dataset.split(' (')[0]}, ε = {epsilon:g}": ratio(
                found[dataset, epsilon, HTREE], found[dataset, epsilon, other]
            )
            for dataset, epsilon in places
            if social is None or dataset.startswith("Social") is social
        }

    return [
        Claim(
            "on sparse datasets, Search Logs and Nettrace, ADMM(ℓ1) clearly outperforms HTree",
            "HTree's error in units of ADMM's, at each ε",
            CLEARLY,
            against(ADMM, social=False),
        ),
        Claim(
            "they perform similarly on the Social Network dataset",
            "HTree's error in units of ADMM's, at each ε",
            SIMILAR,
            against(ADMM, social=True),
        ),
        Claim(
            "`auto` is nowhere worse than HTree with the branching that suits it best",
            "HTree's error in units of auto's, at each ε",
            Threshold(low=0.99),
            against(AUTO, social=None),
            ours=True,
        ),
    ]
