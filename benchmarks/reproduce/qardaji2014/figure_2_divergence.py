"""Qardaji, Yang and Li (2014), the lower half of Figure 2: the same comparison by Jensen–Shannon divergence.

Flat has no divergence, for only its expected L2 error is known.
"""

import itertools
from dataclasses import replace

from benchmarks.reproduce.figures import Extent, Rows
from benchmarks.reproduce.per_run import Values, ratio
from benchmarks.reproduce.qardaji2014 import figure_2
from benchmarks.reproduce.qardaji2014.asked import Medians, medians, told
from benchmarks.reproduce.qardaji2014.errors import DISTANCE, DIVERGENCE
from benchmarks.reproduce.verdicts import TWO_ORDERS, Claim, Threshold

ABOUT = replace(
    figure_2.ABOUT,
    item="Qardaji, Yang and Li (2014), the lower half of Figure 2: the same by Jensen–Shannon divergence",
)
PICTURE = replace(
    figure_2.PICTURE,
    title="PriView against Direct and Fourier, by divergence (Qardaji et al. 2014, Figure 2)",
    note="Ct(ℓ,w): PriView with w views of ℓ attributes that cover all sets of t; *: without noise.\n"
    "A method without a mark is exact, or below the scale.",
)


def run(extent: Extent) -> Rows:
    """200 marginals of each size, five runs, as in the paper; few if quick."""
    rows = figure_2.all_rows(extent)
    distances = {(row["panel"], row["k"], row["method"]): row["values"] for row in rows if row["measure"] == DISTANCE}
    return [
        row | {"distance_values": distances[row["panel"], row["k"], row["method"]]}
        for row in rows
        if row["measure"] == DIVERGENCE
    ]


def claims(rows: Rows) -> list[Claim]:
    """What §5 and §5.2 say of the two measures."""
    found = medians(rows, measure=DIVERGENCE)
    distances = medians(rows, measure=DIVERGENCE, values="distance_values")
    return [
        Claim(
            "L2 error distance and Jensen-Shannon divergence are similar",
            "share of the pairs of methods in one panel that both measures rank in the same order",
            Threshold(low=0.9),
            {"all panels": same_order(found, distances)},
            ratio=False,
        ),
        Claim(
            "by divergence, too, 2 to 3 orders of magnitude of improvement",
            "divergence of Direct in units of that of PriView",
            TWO_ORDERS,
            {
                told(place): ratio(each[figure_2.DIRECT], each[figure_2.chosen(place, each)])
                for place, each in found.items()
                if figure_2.PART not in place[0]
            },
            paper="100 to 1,000 times",
        ),
    ]


def same_order(first: Medians, second: Medians) -> Values:
    """The share of pairs that two measures rank alike, run by run."""
    runs = min(len(values) for each in first.values() for values in each.values())
    shares = []
    for run in range(runs):
        same = [
            (each[one][run] - each[other][run]) * (second[place][one][run] - second[place][other][run]) >= 0
            for place, each in first.items()
            for one, other in itertools.combinations(each, 2)
        ]
        shares.append(sum(same) / len(same))
    return shares
