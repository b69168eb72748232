"""McKenna, Sheldon and Miklau (2019), Figure 1: four mechanisms on four tables, with and without graphical estimation.

The workload is 15 random triples of attributes with prefix queries on the numeric ones (`problems/triples.py`), and the
error that of their §5.1, the mean over triples of ‖Wμ − Wμ̂‖₁ / 2‖Wμ‖₁; shown is the median of five runs. Panel a is
PrivBayes, b DualQuery, c MWEM, d HDMM; each is a reproduction of its own, figure_1a to figure_1d.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.mckenna2019.with_and_without import PATIENCE_OF, WITH, WITHOUT, groups, run_apart
from benchmarks.reproduce.per_run import Values, by, ratio
from benchmarks.reproduce.pictures import Picture
from benchmarks.reproduce.verdicts import Claim, brief, factor

RECORDS = ("titanic", "adult-fine", "loans", "stroke")
TITLES = {"titanic": "Titanic", "adult-fine": "Adult", "loans": "Loans", "stroke": "Stroke"}
QUICK_RECORDS = ("titanic",)
"""What a quick look is at, unless a panel makes no claim about it."""
RUNS = "Five runs at ε = 1, the median shown, as in the paper."
TRIPLES = "The triples are drawn by the rule that gives the paper's own number of queries."
DATA = f"Data: the paper's four tables, as the authors publish them. {TRIPLES}"
OPTIMUM = (
    "Method: graphical estimation goes on to the optimum of the L2 loss, where the paper makes 10,000 steps of its "
    "Algorithm 2."
)
FACTORS = "Factors are those of single runs, their geometric mean; the paper's are ratios of medians."


def about(mechanism: str, panel: str, *more: str, estimation: str = OPTIMUM, runs: str = RUNS) -> About:
    item = f"McKenna, Sheldon and Miklau (2019), Figure 1{panel}: {mechanism} with and without graphical estimation"
    return About(item, (DATA, estimation, *more), runs=runs)


def picture(mechanism: str, panel: str) -> Picture:
    return Picture(
        f"{mechanism} with and without graphical estimation (McKenna et al. 2019, Figure 1{panel})",
        "table",
        "",
        "mechanism",
        y="error",
        y_title="workload error",
        bars=True,
        width=620,
        height=240,
        note="Medians of the runs that finish; what failed is written beside its place.",
    )


def run_panel(
    mechanism: str,
    extent: Extent,
    *,
    quick_records: Sequence[str] = QUICK_RECORDS,
    runs: Mapping[str, int] | None = None,
) -> Rows:
    """Five runs on each table unless told otherwise, every way; two on few tables if quick."""
    rows: Rows = []
    for records in quick_records if extent.quick else RECORDS:
        for methods in groups(mechanism):
            found = median_rows(mechanism, methods, records, seeds=extent.seeds((runs or {}).get(records, 5)))
            for row in found:
                print(f"  {records}, {row['method']}: {row['note'] or brief(row['error'])}", flush=True)
            rows += found
    return rows


def median_rows(mechanism: str, methods: Sequence[str], records: str, *, seeds: Sequence[int]) -> Rows:
    """The median errors and seconds of methods that fit the same measurements, a row each.

    Runs that fail are counted, and have no error; after one that took too long there are no more.
    """
    runs: list[dict[str, dict]] = []
    for seed in seeds:
        runs.append(run_apart(mechanism, methods, records, seed))
        if any(each.get("failed") == "time" for each in runs[-1].values()):
            break
    return [_median_row(mechanism, method, records, [each[method] for each in runs]) for method in methods]


FAILURES = {
    "memory": "over 2 GB",
    "time": f"over {PATIENCE_OF['MWEM'] / 60:g} minutes",
    "error": "failed",
}


def _median_row(mechanism: str, method: str, records: str, runs: list[dict]) -> dict:
    done = [each for each in runs if "error" in each]
    failed = [each for each in runs if "error" not in each]
    why = FAILURES[failed[0].get("failed", "error")] if failed else ""
    stood_in = done[0]["records"].removeprefix(records) if done else ""
    notes = [failed[0].get("note", "")] if failed else []
    notes += [f"measured on a stand-in{stood_in}"] if stood_in else []
    return {
        "mechanism": mechanism,
        "records": records,
        "table": TITLES[records],
        "method": method,
        "error": statistics.median(each["error"] for each in done) if done else math.nan,
        "seconds": statistics.median(each["seconds"] for each in done) if done else math.nan,
        "note": "; ".join(notes),
        "values": [each["error"] for each in done],
        "failed": f"{why}, {len(failed)} of {len(runs)} runs" if failed else "",
        "finished": len(done),
        "tried": len(runs),
    }


def reductions(rows: Rows) -> dict[str, Values]:
    """By what factor graphical estimation lowers the error on each table, run by run."""
    found = by(rows, "records", "method")
    return {
        name: ratio(found[name, WITHOUT], found[name, WITH])
        for name in dict.fromkeys(row["records"] for row in rows)
        if found[name, WITHOUT] and found[name, WITH]
    }


def lowers(rows: Rows, records: str, printed: float, words: str) -> Claim:
    """The claim that graphical estimation lowers the error on a table by the factor that the paper prints."""
    medians = {row["method"]: row["error"] for row in rows if row["records"] == records}
    return Claim(
        words,
        f"error without graphical estimation in units of that with it, {TITLES[records]}",
        factor(printed),
        {TITLES[records]: reductions(rows)[records]},
        paper=f"{printed:g} times",
        more=f"Median errors: {brief(medians[WITHOUT])} without, {brief(medians[WITH])} with graphical estimation.",
    )
