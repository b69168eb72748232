"""McKenna, Sheldon and Miklau (2019), Figure 1: four mechanisms on four tables, with and without graphical estimation.

The workload is 15 random triples of attributes with prefix queries on the numeric ones (`problems/triples.py`), and the
error that of their §5.1, the mean over triples of ‖Wμ − Wμ̂‖₁ / 2‖Wμ‖₁; the median of five runs. Panel a is PrivBayes,
b DualQuery, c MWEM, d HDMM; each is a reproduction of its own, figure_1a to figure_1d.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.reproduce.figures import Claim, Picture, brief, publish
from benchmarks.reproduce.mckenna2019.with_and_without import WITH, WITHOUT, groups, run_apart

RECORDS = ("titanic", "adult-fine", "loans", "stroke")
QUICK_RECORDS = ("titanic",)
"""What a quick look is at, unless a panel makes no claim about it."""

Row = dict[str, Any]
Claims = Callable[[list[Row]], list[Claim]]


def picture(mechanism: str, panel: str) -> Picture:
    return Picture(
        f"{mechanism} with and without graphical estimation (McKenna et al. 2019, Figure 1{panel})",
        "records",
        "",
        "mechanism",
        y="error",
        y_title="workload error",
        bars=True,
    )


def run_panel(
    name: str,
    mechanism: str,
    drawing: Picture,
    claims: Claims,
    *,
    quick: bool,
    quick_records: Sequence[str] = QUICK_RECORDS,
) -> bool:
    """Five runs on each table, every way; one on few tables if quick."""
    rows = []
    for records in quick_records if quick else RECORDS:
        for methods in groups(mechanism):
            found = median_rows(mechanism, methods, records, seeds=range(1 if quick else 5))
            for row in found:
                print(f"  {records}, {row['method']}: {row['note'] or brief(row['error'])}", flush=True)
            rows += found
    return publish(name, rows, drawing, claims(rows), quick=quick)


def median_rows(mechanism: str, methods: Sequence[str], records: str, *, seeds: Sequence[int]) -> list[Row]:
    """The median errors and seconds of methods that fit the same measurements, a row each.

    After a run that fails there are no more, and the error is not a number.
    """
    runs: list[dict[str, Row]] = []
    for seed in seeds:
        found = run_apart(mechanism, methods, records, seed)
        if any("error" not in each for each in found.values()):
            return [
                {"mechanism": mechanism, "records": records, "method": method, "error": math.nan}
                | {"seconds": math.nan, "runs": len(runs), "note": found[method].get("note", "")}
                for method in methods
            ]
        runs.append(found)
    return [_median_row(mechanism, method, records, [each[method] for each in runs]) for method in methods]


def _median_row(mechanism: str, method: str, records: str, runs: list[Row]) -> Row:
    stood_in = runs[0]["records"].removeprefix(records)
    return {
        "mechanism": mechanism,
        "records": records,
        "method": method,
        "error": statistics.median(each["error"] for each in runs),
        "seconds": statistics.median(each["seconds"] for each in runs),
        "runs": len(runs),
        "note": f"measured on a stand-in{stood_in}" if stood_in else "",
    }


def errors_of(rows: list[Row]) -> dict[tuple[str, str], float]:
    """The error by table and method; not a number where a run failed."""
    return {(str(row["records"]), str(row["method"])): float(row["error"]) for row in rows}


def reductions(rows: list[Row]) -> dict[str, float]:
    """By what factor graphical estimation lowers the error on each table."""
    errors = errors_of(rows)
    return {name: errors[name, WITHOUT] / errors[name, WITH] for name, method in errors if method == WITH}


def lowers(rows: list[Row], records: str, factor: float, published: float, mechanism: str) -> Claim:
    """The claim that graphical estimation lowers the error on a table by a factor or more."""
    found, errors = reductions(rows)[records], errors_of(rows)
    by = f" by a factor of {factor:g} or more" if factor > 1 else ""
    return Claim(
        f"graphical estimation lowers {mechanism}'s error on {records}{by}",
        found >= factor if factor > 1 else found > 1,
        f"{brief(found)} times, from {brief(errors[records, WITHOUT])} to {brief(errors[records, WITH])}; "
        f"the paper: {published:g} times",
    )
