"""Qardaji, Yang and Li (2014), the table of §3.2: from how many attributes on Direct has less error than Flat."""

from benchmarks.reproduce.figures import Claim, Picture, publish
from benchmarks.reproduce.qardaji2014.asked import Rows
from benchmarks.reproduce.qardaji2014.expected_errors import (
    direct_beats_flat_from,
    direct_error,
    flat_error,
    unit_variance,
)

NAME = "qardaji2014-table-flat-direct"
PICTURE = Picture(
    "Expected squared error of Flat and Direct (Qardaji et al. 2014, table of §3.2)",
    "attributes",
    "attributes d",
    "panel",
    y="error",
    y_title="squared error, in units of 2/ε²",
    x_log=False,
)
PRINTED = {2: 16, 3: 26, 4: 36, 5: 46}
"""For each k the least d, as the paper has it."""
MOST_ATTRIBUTES = 56


def run(quick: bool) -> bool:
    """Equations (3) and (4); there is nothing to shorten."""
    rows: Rows = [
        {
            "panel": f"k = {k}",
            "k": k,
            "attributes": d,
            "method": method,
            "error": error,
            "least": direct_beats_flat_from(k),
        }
        for k in PRINTED
        for d in range(6, MOST_ATTRIBUTES + 1, 2)
        for method, error in (
            ("Flat", flat_error(d) / unit_variance()),
            ("Direct", direct_error(d, k) / unit_variance()),
        )
    ]
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def claims(rows: Rows) -> list[Claim]:
    least = {int(row["k"]): int(row["least"]) for row in rows}
    return [
        Claim(
            "Direct has less error than Flat from 16, 26, 36 and 46 attributes on, for k = 2, 3, 4 and 5",
            least == PRINTED,
            f"by equations (3) and (4) from {', '.join(map(str, least.values()))} on",
        )
    ]
