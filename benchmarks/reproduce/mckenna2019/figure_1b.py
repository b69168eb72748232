"""McKenna et al. (2019), Figure 1b: DualQuery with and without graphical estimation, on four tables."""

from typing import Any

from benchmarks.reproduce.figures import Claim
from benchmarks.reproduce.mckenna2019 import figure_1

NAME, MECHANISM = "mckenna2019-figure-1b", "DualQuery"
PICTURE = figure_1.picture(MECHANISM, "b")
PUBLISHED = {"titanic": 1.2, "adult-fine": 1.8, "loans": 3.5, "stroke": 4.4}
"""By what factor graphical estimation lowers the error in the paper."""


def run(quick: bool) -> bool:
    """Five runs on each table; one on Titanic if quick."""
    return figure_1.run_panel(NAME, MECHANISM, PICTURE, claims, quick=quick)


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """That the error is lower on every table."""
    there = figure_1.reductions(rows)
    return [
        figure_1.lowers(rows, records, 1.0, published, MECHANISM)
        for records, published in PUBLISHED.items()
        if records in there
    ]
