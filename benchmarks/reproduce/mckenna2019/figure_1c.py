"""McKenna et al. (2019), Figure 1c: MWEM with and without graphical estimation, on four tables."""

from benchmarks.reproduce.figures import Extent, Row, Rows
from benchmarks.reproduce.mckenna2019 import figure_1
from benchmarks.reproduce.mckenna2019.with_and_without import MWEM_ROUNDS, PATIENCE_OF, WITH, WITHOUT
from benchmarks.reproduce.verdicts import TRUE, Claim, Threshold, brief

MECHANISM = "MWEM"
ABOUT = figure_1.about(
    MECHANISM,
    "c",
    f"MWEM as published: T = {MWEM_ROUNDS} rounds, each of which selects and measures a single answer (the paper does "
    "not print its T; Hardt et al. use 10). The factored tables may have 250 million numbers, 2 GB, where the paper's "
    "runs ended; our code holds a table once for each answer about it, and all count. A run may take "
    f"{PATIENCE_OF[MECHANISM] / 60:g} minutes of the processor, and after one that took longer there are no more of "
    "its kind; the paper does not print its limit of time. The library's default selects whole marginals in more "
    "rounds.",
)
PICTURE = figure_1.picture(MECHANISM, "c")


def run(extent: Extent) -> Rows:
    """Five runs on each table; two on Titanic if quick."""
    return figure_1.run_panel(MECHANISM, extent)


def claims(rows: Rows) -> list[Claim]:
    """Where the two ways run."""
    done = {(row["records"], row["method"]): float(row["finished"]) / float(row["tried"]) for row in rows}
    names = list(dict.fromkeys(row["records"] for row in rows))
    reasons = "; ".join(
        f"{figure_1.TITLES[row['records']]}: " + " and ".join(each for each in (row["failed"], _ran(row)) if each)
        for row in rows
        if row["method"] == WITHOUT
    )
    without = {figure_1.TITLES[name]: [done[name, WITHOUT]] for name in names}
    stroke = {title: found for title, found in without.items() if title == "Stroke"}
    others = {title: found for title, found in without.items() if title != "Stroke"}
    finished = "share of the runs that were completed"
    told = [
        Claim(
            "incorporating PGM estimation makes these algorithms feasible, here MWEM",
            finished,
            TRUE,
            {figure_1.TITLES[name]: [done[name, WITH]] for name in names},
            ratio=False,
            exact=True,
        ),
        Claim(
            "for the first three datasets, MWEM crashed before completing because it ran out of memory or timed out",
            finished,
            Threshold(high=0.0),
            others,
            more=f"Without graphical estimation: {reasons}.",
            ratio=False,
            exact=True,
        ),
    ]
    if stroke:
        told.append(
            Claim("MWEM was able to run on the stroke dataset", finished, TRUE, stroke, ratio=False, exact=True)
        )
    return told


def _ran(row: Row) -> str:
    return f"{row['finished']:g} ran, median error {brief(row['error'])}" if row["finished"] else ""
