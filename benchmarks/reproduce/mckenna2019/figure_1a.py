"""McKenna et al. (2019), Figure 1a: PrivBayes with and without graphical estimation, on four tables."""

from benchmarks.reproduce.figures import Extent, Rows
from benchmarks.reproduce.mckenna2019 import figure_1
from benchmarks.reproduce.verdicts import BETTER, Claim

MECHANISM = "PrivBayes"
ABOUT = figure_1.about(
    MECHANISM,
    "a",
    "PrivBayes is this library's, with the published score and a θ-useful network; the paper does not print its "
    "settings. A network is drawn in each run, and with it the factor changes by a third.",
    figure_1.FACTORS,
    runs="Ten runs at ε = 1, the median shown; the paper has five.",
)
PICTURE = figure_1.picture(MECHANISM, "a")
PRINTED = {
    "adult-fine": (1.3, "workload error is reduced by … a modest 30% for Adult"),
    "loans": (6.0, "workload error is reduced by a factor of 6× … on the Loans dataset"),
    "stroke": (7.0, "workload error is reduced by a factor of … 7× on the … Stroke dataset"),
}


def run(extent: Extent) -> Rows:
    """Ten runs on each table; two on Adult if quick: the paper names no factor for Titanic."""
    runs: dict[str, int] = dict.fromkeys(figure_1.RECORDS, 10)
    return figure_1.run_panel(MECHANISM, extent, quick_records=("adult-fine",), runs=runs)


def claims(rows: Rows) -> list[Claim]:
    """The reductions of §5.1, on the tables that it names one for."""
    there = figure_1.reductions(rows)
    return [
        Claim(
            "incorporating PGM estimation significantly improves accuracy (Figures 1a and 1b), here of PrivBayes",
            "error without graphical estimation in units of that with it",
            BETTER,
            {figure_1.TITLES[name]: values for name, values in there.items()},
        ),
        *(figure_1.lowers(rows, name, *printed) for name, printed in PRINTED.items() if name in there),
    ]
