"""Lee, Wang and Kifer (2015), Figure 5.3.1: the matrix mechanism against ε, for queries of random signs."""

from typing import Any

import numpy as np

from benchmarks.reproduce.figures import Claim, Picture, brief, publish
from benchmarks.reproduce.lee2015.strategies import METHODS, histograms, released, signs

NAME = "lee2015-figure-5.3.1"
PICTURE = Picture("Error of 1,024 queries of random signs (Lee et al. 2015, Figure 5.3.1)", "epsilon", "ε", "dataset")
EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0)


def run(quick: bool) -> bool:
    """Ten runs of every method, as in the paper; one, and two ε, if quick."""
    runs, epsilons = (1, EPSILONS[::4]) if quick else (10, EPSILONS)
    task = signs()
    rows: list[dict[str, Any]] = []
    for histogram in histograms():
        truth = histogram.counts.astype(np.float64)
        for epsilon in epsilons:
            found = [released(task, histogram, epsilon, seed) for seed in range(runs)]
            for method in METHODS:
                errors = [task.error(counts[method], truth) for counts in found]
                rows.append(
                    {
                        "dataset": histogram.name,
                        "epsilon": epsilon,
                        "method": method,
                        "mse": float(np.mean(errors)),
                        "standard_error": float(np.std(errors) / np.sqrt(runs)),
                        "runs": runs,
                    }
                )
            print(f"  {histogram.name}, ε = {epsilon:g}: done", flush=True)
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """What §5.3 says of the figure."""
    found = {(row["dataset"], row["epsilon"], row["method"]): row["mse"] for row in rows}
    panels = dict.fromkeys((row["dataset"], row["epsilon"]) for row in rows)
    others = ("HTree", "Privlet", "LM", "LRM")
    worse = [
        found[(*panel, "MM(ℓ2)")] / float(np.median([found[(*panel, name)] for name in others])) for panel in panels
    ]
    gain = [found[(*panel, "MM(ℓ2)")] / found[(*panel, "MM(ℓ1), as printed")] for panel in panels]
    return [
        Claim(
            "the matrix mechanism performs worse than the other mechanisms",
            min(worse) > 1,
            f"MM(ℓ2) has {brief(min(worse))} to {brief(max(worse))} times the median error of the others",
        ),
        Claim(
            "fitting by likelihood improves it on all three histograms",
            min(gain) > 1,
            f"MM(ℓ2) has {min(gain):.3g} to {max(gain):.3g} times the error of MM(ℓ1)",
        ),
    ]
