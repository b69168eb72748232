"""McKenna et al. (2019), Figure 1d: HDMM with local least squares and with graphical estimation, on four tables."""

from typing import Any

from benchmarks.reproduce.figures import Claim, brief
from benchmarks.reproduce.mckenna2019 import figure_1

NAME, MECHANISM = "mckenna2019-figure-1d", "HDMM"
PICTURE = figure_1.picture(MECHANISM, "d")
PUBLISHED = {"titanic": 6.6, "adult-fine": 3.2, "loans": 27.0, "stroke": 6.3}
"""By what factor graphical estimation lowers the error in the paper."""
ENOUGH, TABLES = 3.0, 3


def run(quick: bool) -> bool:
    """Five runs on each table; one on Titanic if quick."""
    return figure_1.run_panel(NAME, MECHANISM, PICTURE, claims, quick=quick)


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """That the error is several times lower, on at least three of the four tables."""
    found = figure_1.reductions(rows)
    enough = [name for name, factor in found.items() if factor >= ENOUGH]
    evidence = ", ".join(f"{name} {brief(factor)} (the paper {PUBLISHED[name]:g})" for name, factor in found.items())
    errors = figure_1.errors_of(rows)
    every = ", ".join(f"{name}, {method}: {brief(error)}" for (name, method), error in errors.items())
    wanted = min(TABLES, len(found))
    return [
        Claim(
            f"graphical estimation lowers HDMM's error by a factor of {ENOUGH:g} or more on at least {wanted} of "
            f"{len(found)} tables",
            len(enough) >= wanted,
            f"{evidence}; errors: {every}",
        )
    ]
