"""McKenna et al. (2019), Figure 1a: PrivBayes with and without graphical estimation, on four tables."""

from typing import Any

from benchmarks.reproduce.figures import Claim
from benchmarks.reproduce.mckenna2019 import figure_1

NAME, MECHANISM = "mckenna2019-figure-1a", "PrivBayes"
PICTURE = figure_1.picture(MECHANISM, "a")
FACTORS = {"adult-fine": (1.3, 1.3), "loans": (4.0, 6.0), "stroke": (4.0, 7.0)}
"""The factor that is asked for, and the paper's."""


def run(quick: bool) -> bool:
    """Five runs on each table; one on Adult if quick: the paper names no factor for Titanic."""
    return figure_1.run_panel(NAME, MECHANISM, PICTURE, claims, quick=quick, quick_records=("adult-fine",))


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """The reductions of §5.1, on the tables that it names one for."""
    there = figure_1.reductions(rows)
    return [
        figure_1.lowers(rows, records, factor, published, MECHANISM)
        for records, (factor, published) in FACTORS.items()
        if records in there
    ]
