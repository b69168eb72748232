"""Run benchmarks: `python -m benchmarks [NAME ...] [--quick] [--json FILE]`; without a name, all of them.

A benchmark is a module with `run(quick) -> list of rows`; a row is a mapping from column names to text or numbers. One
that takes long also takes the name of a problem, `python -m benchmarks coverage:loans`, whose rows take the place of
earlier ones in the file.
Peers are measured in the same run, because only ratios mean anything on a shared machine.
"""

import argparse
import importlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = {
    "consistency": "benchmarks.speed.consistency",
    "counting": "benchmarks.speed.counting",
    "histograms": "benchmarks.accuracy.histograms",
    "marginals": "benchmarks.accuracy.marginals",
    "memory": "benchmarks.speed.memory",
    "spark": "benchmarks.speed.spark",
    "estimation": "benchmarks.speed.estimation",
    "geography": "benchmarks.accuracy.geography",
    "graphical": "benchmarks.speed.graphical",
    "cluster-choice": "benchmarks.accuracy.cluster_choice",
    "clusters": "benchmarks.accuracy.clusters",
    "coverage": "benchmarks.accuracy.coverage",
    "diagnostics": "benchmarks.accuracy.diagnostics",
    "intervals": "benchmarks.speed.intervals",
    "iterate-coverage": "benchmarks.accuracy.iterate_coverage",
    "iterates": "benchmarks.speed.iterates",
    "league": "benchmarks.accuracy.league",
    "mechanisms": "benchmarks.accuracy.mechanisms",
    "plan-choice": "benchmarks.accuracy.plan_choice",
    "public-records": "benchmarks.accuracy.public_records",
    "published-histograms": "benchmarks.accuracy.published_histograms",
    "ranges": "benchmarks.accuracy.ranges",
    "reconstruction": "benchmarks.accuracy.reconstruction",
    "regression": "benchmarks.accuracy.regression",
    "scale": "benchmarks.speed.scale",
    "startup": "benchmarks.speed.startup",
    "synthetic": "benchmarks.accuracy.synthetic",
    "totals": "benchmarks.accuracy.totals",
    "views": "benchmarks.accuracy.views",
    "what-if": "benchmarks.accuracy.what_if",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a first look")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows to a file")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name.partition(":")[0] not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there is: {', '.join(BENCHMARKS)}")
    results: dict[str, list[dict[str, Any]]] = {}
    for wanted in arguments.names or BENCHMARKS:
        print(f"== {wanted}", flush=True)
        name, _, problem = wanted.partition(":")
        rows = importlib.import_module(BENCHMARKS[name]).run(arguments.quick, *([problem] if problem else []))
        print_rows(rows)
        if problem and arguments.json and arguments.json.exists():
            rows = merged(json.loads(arguments.json.read_text(encoding="utf-8"))["results"].get(name, []), rows)
        results[name] = rows
    if arguments.json:
        document = {"python": platform.python_version(), "machine": platform.machine(), "results": results}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


def merged(earlier: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The earlier rows, with those of the problems that were run again in place of theirs."""
    again = {row["problem"] for row in rows}
    first = next((place for place, row in enumerate(earlier) if row["problem"] in again), len(earlier))
    kept = [row for row in earlier if row["problem"] not in again]
    return [*kept[:first], *rows, *kept[first:]]


def print_rows(rows: list[dict[str, Any]]) -> None:
    """The rows as an aligned table."""
    if not rows:
        return
    header = list(dict.fromkeys(key for row in rows for key in row))
    cells = [header, *([_shown(row.get(key, "")) for key in header] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for row in cells:
        print("  ".join(part.ljust(width) for part, width in zip(row, widths, strict=True)).rstrip())


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
