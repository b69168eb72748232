"""McKenna et al. (2019), Table 1: the tables, their domains, and the number of queries that the workloads ask."""

import math

from benchmarks.problems.records import SHAPES
from benchmarks.problems.triples import PRINTED_QUERIES, triple_problem
from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.mckenna2019.figure_1 import RECORDS, TITLES
from benchmarks.reproduce.verdicts import TRUE, Claim

ABOUT = About(
    "McKenna, Sheldon and Miklau (2019), Table 1: the tables and their workloads",
    (
        "The paper names no triples. Drawn by numpy's RandomState(0) from all triples with no more cells than there "
        "are records, in the order of the authors' domain files, they give the printed number of queries on Titanic "
        "and Adult. On Loans and Stroke they give 352,201 and 17,116 where the paper prints 362,201 and 17,716: one "
        "digit differs in each, so that these are most likely misprints, and the workloads the same.",
        "Adult has 14 attributes in the authors' file, and 15 in the paper.",
    ),
)
PICTURE = None
PRINTED = {
    "titanic": (1304, 9, 3e8),
    "adult-fine": (48842, 15, 1e19),
    "loans": (42535, 48, 5e80),
    "stroke": (19434, 110, 4e104),
}
"""Records, attributes and cells of the domain, as the paper prints them."""


def run(extent: Extent) -> Rows:  # noqa: ARG001 (there is nothing to shorten)
    return [
        {
            "table": TITLES[name],
            "records": SHAPES[name][0],
            "records, paper": PRINTED[name][0],
            "attributes": len(SHAPES[name][1]),
            "attributes, paper": PRINTED[name][1],
            "domain": f"{_power(SHAPES[name][1])}",
            "domain, paper": f"{PRINTED[name][2]:.0e}".replace("e+0", "e").replace("e+", "e"),
            "queries": triple_problem(name).queries,
            "queries, paper": PRINTED_QUERIES[name],
        }
        for name in RECORDS
    ]


def _power(sizes: tuple[int, ...]) -> str:
    """The number of cells, with one digit, as the paper prints it."""
    digits = sum(map(math.log10, sizes))
    return f"{10 ** (digits % 1):.0f}e{int(digits)}"


def claims(rows: Rows) -> list[Claim]:
    """The numbers of the table."""

    def same(what: str) -> dict[str, list[float]]:
        return {row["table"]: [float(row[what]) / float(row[f"{what}, paper"])] for row in rows}

    return [
        Claim(f"the {what} of Table 1", f"{what} here in units of the printed", TRUE, same(what), exact=True)
        for what in ("records", "attributes", "queries")
    ]
