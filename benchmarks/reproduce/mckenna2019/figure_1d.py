"""McKenna et al. (2019), Figure 1d: HDMM with local least squares and with graphical estimation, on four tables."""

from benchmarks.reproduce.figures import Extent, Rows
from benchmarks.reproduce.mckenna2019 import figure_1
from benchmarks.reproduce.per_run import Values, ratio
from benchmarks.reproduce.verdicts import BETTER, CLEARLY, Claim

MECHANISM = "HDMM"
ABOUT = figure_1.about(
    MECHANISM,
    "d",
    "HDMM is this library's, with equal shares of the budget for all triples, as in the authors' code.",
    figure_1.FACTORS,
    runs="Twenty runs on Titanic and Stroke, five on Adult and Loans, ε = 1, the median shown; the paper has five.",
)
PICTURE = figure_1.picture(MECHANISM, "d")
PRINTED = {"titanic": 6.6, "adult-fine": 3.2, "loans": 27.0, "stroke": 6.3}
"""By what factor graphical estimation lowers the error in the paper."""


def run(extent: Extent) -> Rows:
    """Five runs on each table, twenty where they are fast; two on Titanic if quick."""
    return figure_1.run_panel(MECHANISM, extent, runs={"titanic": 20, "stroke": 20})


def claims(rows: Rows) -> list[Claim]:
    """That local least squares is substantially worse, and by the printed factors."""
    there = figure_1.reductions(rows)
    return [
        Claim(
            "this estimation [local least squares] is substantially worse than PGM estimation",
            "error of local least squares in units of that of graphical estimation",
            CLEARLY,
            {figure_1.TITLES[name]: values for name, values in there.items()},
        ),
        *(
            figure_1.lowers(rows, name, printed, f"PGM estimation offers error reductions of … {printed:g}× ({title})")
            for (name, printed), title in zip(PRINTED.items(), figure_1.TITLES.values(), strict=True)
            if name in there
        ),
        *([_especially(there)] if len(there) == len(PRINTED) else []),
    ]


ESPECIALLY = ("titanic", "loans")


def _especially(there: dict[str, Values]) -> Claim:
    """The gain on the two tables that the paper names, against that on the two others."""
    return Claim(
        "… especially on the titanic and loans dataset",
        "the gain on these two in units of that on each of the others",
        BETTER,
        {
            f"{figure_1.TITLES[name]} and {figure_1.TITLES[other]}": ratio(there[name], there[other])
            for name in ESPECIALLY
            for other in there
            if other not in ESPECIALLY
        },
    )
