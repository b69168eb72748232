"""Qardaji, Yang and Li (2014), the table of §3.2: from how many attributes on Direct has less error than Flat."""

from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.pictures import Picture
from benchmarks.reproduce.qardaji2014.expected_errors import (
    direct_beats_flat_from,
    direct_error,
    flat_error,
    unit_variance,
)
from benchmarks.reproduce.verdicts import TRUE, Claim

ABOUT = About(
    "Qardaji, Yang and Li (2014), the table of §3.2: from how many attributes on Direct has less error than Flat",
    ("Nothing: both are formulas.",),
)
PICTURE = Picture(
    "Expected squared error of Flat and Direct (Qardaji et al. 2014, table of §3.2)",
    "attributes",
    "attributes d",
    "panel",
    y="error",
    y_title="squared error, in units of 2/ε²",
    x_log=False,
    apart=False,
    across=2,
    width=340,
)
PRINTED = {2: 16, 3: 26, 4: 36, 5: 46}
"""For each k the least d, as the paper has it."""
MOST_ATTRIBUTES = 56


def run(extent: Extent) -> Rows:  # noqa: ARG001 (there is nothing to shorten)
    """Equations (3) and (4)."""
    return [
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


def claims(rows: Rows) -> list[Claim]:
    least = {int(row["k"]): float(row["least"]) for row in rows}
    return [
        Claim(
            "Direct has less error than Flat from 16, 26, 36 and 46 attributes on, for k = 2, 3, 4 and 5",
            "the least number of attributes in units of the printed one",
            TRUE,
            {f"k = {k}": [least[k] / printed] for k, printed in PRINTED.items()},
            paper="16, 26, 36, 46",
            more=f"By equations (3) and (4): {', '.join(f'{each:g}' for each in least.values())}.",
            exact=True,
        )
    ]
