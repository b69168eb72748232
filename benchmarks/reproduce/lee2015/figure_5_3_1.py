"""Lee, Wang and Kifer (2015), Figure 5.3.1: the matrix mechanism against ε, for queries of random signs."""

from typing import Any

import numpy as np

from benchmarks.reproduce.figures import Claim, Picture, brief, publish
from benchmarks.reproduce.lee2015.strategies import error_rows, histograms, signs

NAME = "lee2015-figure-5.3.1"
PICTURE = Picture("Error of 1,024 queries of random signs (Lee et al. 2015, Figure 5.3.1)", "epsilon", "ε", "dataset")
EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0)


def run(quick: bool) -> bool:
    """Ten runs of every method, as in the paper; one, and two ε, if quick."""
    runs, epsilons = (1, EPSILONS[::4]) if quick else (10, EPSILONS)
    task = signs()
    rows = [
        row
        for histogram in histograms()
        for epsilon in epsilons
        for row in error_rows(task, histogram, epsilon, runs=runs)
    ]
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
