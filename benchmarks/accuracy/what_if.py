"""Whether `consilience plan` foretells the errors of releases: told without data, against releases of real tables.

Of each table the first columns of a list are declared as categories, and all their pairs asked for. `plan` is told the
number of records and nothing else. Then the table is released with simulated noise, and what its counts are off by is
divided by what was foretold: by the noise alone, and by the two made-up tables. The constants of the skewed made-up
table were tuned on Adult and Titanic; Loans, Stroke and Kosarak are `judged`. A margin is what 95 % of counts
are off by less than; of a release, of counts that are not zero.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.problems.declared_records import declared
from benchmarks.problems.records import NamedRecords, named_records
from consilience.domain import Workload
from consilience.estimators import estimate
from consilience.measuring import measure
from consilience.planning.expected_errors import AskedQuery, exact_answers, simulated_errors
from consilience.planning.what_if import plan
from consilience.request import Request

Row = dict[str, Any]

EPSILONS = (0.1, 1.0, 10.0)
RELEASES = 3


@dataclass(frozen=True)
class Case:
    """Some columns of a table of `records`, and what the table was used for."""

    table: str
    columns: tuple[int, ...]
    part: str


CASES = (
    Case("adult", (1, 3, 5, 7, 8, 9, 14), "tuned"),
    Case("adult", (0, 3, 6, 12, 13), "tuned"),
    Case("titanic", (0, 1, 3, 4, 6, 7), "tuned"),
    Case("loans", (3, 6, 7, 8, 9, 11, 13, 14), "judged"),
    Case("loans", (0, 4, 10, 16), "judged"),
    Case("stroke", (2, 3, 4, 5, 20, 24, 26, 27, 29), "judged"),
    Case("stroke", (1, 4, 21, 45), "judged"),
    Case("kosarak", tuple(range(12)), "judged"),
)


def run(quick: bool, only: str | None = None) -> list[Row]:
    """A row for each table, ε and way of telling; the smaller tables if quick."""
    cases = [each for each in CASES if only in (None, each.table) and not (quick and each.table == "adult")]
    rows = [row for case in cases for row in compared(case)]
    for part in dict.fromkeys(row["part"] for row in rows):
        for by in ("noise alone", "uniform", "skewed"):
            ratios = [row["error ratio"] for row in rows if row["part"] == part and row["told by"] == by]
            if ratios:
                logs = np.abs(np.log(ratios))
                within = f"{math.exp(np.max(logs)):.2f}, typically {math.exp(float(np.median(logs))):.2f}"
                span = f"{min(ratios):.2f} to {max(ratios):.2f}"
                print(f"  {part}, {by}: real / foretold {span}; off by a factor of at most {within}", flush=True)
    return rows


def compared(case: Case) -> list[Row]:
    """What was foretold of a table, and what releases of it were off by."""
    whole = named_records(case.table)
    sizes = tuple(whole.sizes[place] for place in case.columns)
    records = NamedRecords(whole.name, sizes, whole.codes[:, case.columns])
    table = declared(records, tuple(f"c{place}" for place in case.columns))
    workload = Workload.marginals(table.domain, ways=2)
    told = plan(table.domain, workload, records=len(records.codes), epsilon=EPSILONS)
    asked = tuple(AskedQuery(query.bind(table.domain), weight) for query, weight in workload)
    source = table.source()
    rows = []
    for outcomes in told.by_budget:
        epsilon = outcomes[0].amount
        request = Request(data=None, domain=table.domain, workload=workload, epsilon=epsilon)
        released = [
            estimate(measure(source, request.chosen, epsilon=epsilon, simulate=seed), allow_misfit=True)
            for seed in range(1, 1 + RELEASES)
        ]
        found = simulated_errors(released, exact_answers(source, asked), asked)
        error, margin = (float(np.mean([getattr(each, what) for each in found])) for what in ("error", "margin"))
        rows += [
            {
                "problem": f"{records.name}, {len(sizes)} columns",
                "part": case.part,
                "epsilon": epsilon,
                "told by": outcome.stand_in or "noise alone",
                "foretold error": outcome.error,
                "error": error,
                "error ratio": error / outcome.error,
                "foretold margin": outcome.margin,
                "margin": margin,
                "margin ratio": margin / outcome.margin,
            }
            for outcome in outcomes
        ]
    return rows
