"""Qardaji, Yang and Li (2014), the lower half of Figure 2: the same comparison by Jensen–Shannon divergence.

Flat has no divergence, for only its expected L2 error is known.
"""

import itertools
from dataclasses import replace

from benchmarks.reproduce.figures import Claim, publish
from benchmarks.reproduce.qardaji2014 import figure_2
from benchmarks.reproduce.qardaji2014.asked import PRIVIEW, Rows, between, medians
from benchmarks.reproduce.qardaji2014.errors import DISTANCE, DIVERGENCE

NAME = "qardaji2014-figure-2-divergence"
PICTURE = replace(
    figure_2.PICTURE,
    title="PriView against Direct and Fourier, by divergence (Qardaji et al. 2014, Figure 2)",
    note="Ct(ℓ,w): PriView with w views of ℓ attributes that cover all sets of t; *: without noise.\n"
    "A method without a mark is exact, or below the scale.",
)


def run(quick: bool) -> bool:
    """200 marginals of each size, five runs, as in the paper; few if quick."""
    distances = {
        (row["panel"], row["k"], row["method"]): row["p50"]
        for row in figure_2.all_rows(quick)
        if row["measure"] == DISTANCE
    }
    rows = [
        row | {"distance": distances[row["panel"], row["k"], row["method"]]}
        for row in figure_2.all_rows(quick)
        if row["measure"] == DIVERGENCE
    ]
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def claims(rows: Rows) -> list[Claim]:
    """What §5 and §5.2 say of the two measures."""
    found = medians(rows, measure=DIVERGENCE)
    families = {row["method"]: row["family"] for row in rows}
    gains = [
        each[figure_2.DIRECT] / min(error for name, error in each.items() if families[name] == PRIVIEW)
        for (panel, _, _), each in found.items()
        if figure_2.PART not in panel
    ]
    same = [
        (one["p50"] - other["p50"]) * (one["distance"] - other["distance"]) >= 0
        for one, other in itertools.combinations(rows, 2)
        if (one["panel"], one["k"]) == (other["panel"], other["k"])
    ]
    return [
        Claim(
            "L2 error and divergence are similar",
            sum(same) >= 0.9 * len(same),
            f"they rank {sum(same)} of {len(same)} pairs of methods in the same order",
        ),
        Claim(
            "by divergence, too, PriView has 2 to 3 orders of magnitude less error",
            min(gains) >= figure_2.TWO_ORDERS,
            f"Direct's is {between(gains)} times that of the best design",
        ),
    ]
