"""Mechanisms that choose what to measure, on all 3-way marginals at ε = 1, δ = 10⁻⁹: error, seconds and memory.

The error is the mean L1 distance in parts of 2N; a row has the median of three seeds, each run in a process of its own.
The references are the public implementations, measured once on the same data: their errors, and their seconds. MSNBC
was used for no tuning. On Loans and Stroke 500 of the marginals are judged, of no more cells than there are records.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.accuracy.mechanism_runs import MECHANISMS, apart

Row = dict[str, Any]

RECORDS = ("titanic", "adult", "msnbc", "loans", "stroke")
QUICK_RECORDS = ("titanic",)
QUICK_MECHANISMS = ("independent", "MST", "release's choice")
PATIENCE = {"loans": 1_800.0, "stroke": 1_800.0}
USUAL_PATIENCE = 900.0
"""Seconds after which a run is ended."""


FOR_MANY_ATTRIBUTES = ("independent", "MST", "forest", "AIM on residual", "release's choice")
"""What is run on Loans and Stroke, whose junction trees and numbers of triples are too much for the others."""
MANY_ATTRIBUTES = ("loans", "stroke")


@dataclass(frozen=True)
class Reference:
    """What a public implementation reached: its error, and its seconds where they are known."""

    error: float
    seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.error:g}" if self.seconds is None else f"{self.error:g} in {self.seconds:g} s"


REFERENCES = {
    ("titanic", "MST"): Reference(0.360, 36),
    ("adult", "MST"): Reference(0.118, 119),
    ("titanic", "AIM"): Reference(0.447, 123),
    ("titanic", "MWEM+graphical"): Reference(0.426, 170),
    ("titanic", "independent"): Reference(0.344),
    ("adult", "independent"): Reference(0.175),
}
FASTER = 5.0
"""By what factor our MST has to be faster than the reference."""
CHOICE_TARGETS = {"adult": 0.105, "titanic": 0.33}
"""The most error of what `release` chooses by itself."""
AIM_SECONDS, AIM_MEGABYTES = 600.0, 3_000.0


def run(quick: bool) -> list[Row]:
    """The rows of all mechanisms on all records, three seeds each; if quick, one seed of the quickest on Titanic."""
    records, mechanisms = (QUICK_RECORDS, QUICK_MECHANISMS) if quick else (RECORDS, tuple(MECHANISMS))
    rows: list[Row] = []
    for name in records:
        found = []
        for mechanism in FOR_MANY_ATTRIBUTES if name in MANY_ATTRIBUTES else mechanisms:
            found.append(summary(name, mechanism, seeds=1 if quick else 3))
            print(f"  {name}, {mechanism}: {found[-1].get('error', found[-1].get('note'))}", flush=True)
        rows += judged(found)
    return rows


def summary(records: str, mechanism: str, *, seeds: int) -> Row:
    """The medians of some runs; where the first one fails, why, and no more runs."""
    runs: list[Row] = []
    for seed in range(seeds):
        found = apart(records, mechanism, seed, timeout=PATIENCE.get(records, USUAL_PATIENCE))
        if "error" not in found:
            return {"records": records, "mechanism": mechanism, "runs": len(runs), "note": found["note"]}
        runs.append(found)
    return {
        "records": runs[0]["name"],
        "mechanism": mechanism,
        "runs": seeds,
        "plan": " ".join(sorted({each["plan"] for each in runs})),
        "estimator": runs[0]["estimator"],
        "measured": round(statistics.median(each["measurements"] for each in runs)),
        "error": statistics.median(each["error"] for each in runs),
        "seconds": statistics.median(each["seconds"] for each in runs),
        "peak MB": round(max(each["megabytes"] for each in runs)),
    }


def judged(rows: Sequence[Row]) -> list[Row]:
    """The rows of one table of records, with references, targets, and whether these were met."""
    by_mechanism = {row["mechanism"]: row for row in rows if "error" in row}
    told = []
    for row in rows:
        records = str(row["records"]).removesuffix(" (stand-in)")
        reference = REFERENCES.get((records, row["mechanism"]))
        more: Row = {} if reference is None else {"reference": str(reference)}
        if "error" in row:
            targets = list(_targets(records, row, by_mechanism))
            if targets:
                more["target"] = ", ".join(text for text, _ in targets)
                more["met"] = all(met for _, met in targets)
        told.append(row | more)
    return told


def _targets(records: str, row: Row, others: dict[str, Row]) -> Iterator[tuple[str, bool]]:
    """What this row has to reach, in words, and whether it did."""
    mechanism, error = row["mechanism"], row["error"]
    reference = REFERENCES.get((records, mechanism))
    if mechanism == "MST" and reference is not None and reference.seconds is not None:
        yield f"error <= {reference.error:g}", error <= reference.error
        yield f"{FASTER:g}x faster", row["seconds"] * FASTER <= reference.seconds
    if mechanism == "AIM" and records == "adult":
        if "MST" in others:
            yield "error below MST's", error < others["MST"]["error"]
        yield f"< {AIM_SECONDS:g} s", row["seconds"] < AIM_SECONDS
        yield f"< {AIM_MEGABYTES:g} MB", row["peak MB"] < AIM_MEGABYTES
    if mechanism == "release's choice" and records in CHOICE_TARGETS:
        yield f"error <= {CHOICE_TARGETS[records]:g}", error <= CHOICE_TARGETS[records]
    if mechanism == "AIM on residual" and records in ("loans", "stroke") and "independent" in others:
        yield "error below independent's", error < others["independent"]["error"]
