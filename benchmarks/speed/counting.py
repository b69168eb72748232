"""Counting many marginals in one pass, against one pandas group-by for each.

    python -m benchmarks.speed.counting [--quick] [--json FILE]

Twenty eight-way marginals of a Parquet file with 32 binary columns. Both sides open and read the file themselves.
Each is run once before it is timed, so that neither pays for compiling kernels or for a cold file; what the first run
in a new process adds is reported apart. The counts must be equal. Then a file twenty times as long is counted in a
process of its own, for its peak memory.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from consilience.domain import Domain

parquet: Any = pyarrow.parquet

COLUMNS, WAYS, MARGINALS, SEED = 32, 8, 20, 20
ROWS_PER_GROUP = 500_000
DOMAIN = Domain.from_sizes({f"a{i:02}": 2 for i in range(COLUMNS)}, name="binary")

WORKER = """
import resource, sys, time
from benchmarks.speed.counting import count_with_consilience, chosen_marginals
begin = time.perf_counter()
counts = count_with_consilience(sys.argv[1], chosen_marginals())
seconds = time.perf_counter() - begin
begin = time.perf_counter()
if sys.argv[2] == "twice":
    count_with_consilience(sys.argv[1], chosen_marginals())
again = time.perf_counter() - begin
print(seconds, again, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, int(counts[0].sum()))
"""


def chosen_marginals() -> list[tuple[str, ...]]:
    """Twenty sets of eight attributes, always the same."""
    rng = np.random.default_rng(SEED)
    chosen = (np.sort(rng.choice(COLUMNS, WAYS, replace=False)) for _ in range(MARGINALS))
    return [tuple(DOMAIN.names[i] for i in places) for places in chosen]


def write_table(path: Path, rows: int) -> None:
    """Correlated binary columns as 8-bit numbers, written one row group at a time."""
    rng = np.random.default_rng(SEED + 1)
    schema = pa.schema([(name, pa.int8()) for name in DOMAIN.names])
    with parquet.ParquetWriter(path, schema) as writer:
        for begin in range(0, rows, ROWS_PER_GROUP):
            size = min(ROWS_PER_GROUP, rows - begin)
            common = rng.random(size, dtype=np.float32)
            columns = [rng.random(size, dtype=np.float32) < common for _ in DOMAIN.names]
            arrays = [pa.array(column.view(np.int8)) for column in columns]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def count_with_consilience(path: str | Path, marginals: list[tuple[str, ...]]) -> list[np.ndarray[Any, Any]]:
    from consilience.source import open_table

    return [counts.ravel() for counts in open_table(path, DOMAIN).exact_counts(marginals)]


def count_with_pandas(path: str | Path, marginals: list[tuple[str, ...]]) -> list[np.ndarray[Any, Any]]:
    """What a careful analyst writes: read the columns of one marginal, group, and fill in the absent cells."""
    import pandas as pd

    cells = pd.MultiIndex.from_product([[0, 1]] * WAYS)
    found = []
    for names in marginals:
        sizes = pd.read_parquet(path, columns=list(names)).groupby(list(names)).size()
        found.append(sizes.reindex(cells, fill_value=0).to_numpy())
    return found


def run(quick: bool) -> list[dict[str, Any]]:
    """A row for each measurement: what was counted, by whom, and the seconds or the memory it took."""
    rows, long_rows, repeats = (100_000, 2_000_000, 2) if quick else (1_000_000, 20_000_000, 3)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "short.parquet"
        write_table(path, rows)
        results = [*_compare(path, rows, repeats), _first_run(path, rows)]
        path = Path(directory) / "long.parquet"
        write_table(path, long_rows)
        results.append(_long_run(path, long_rows))
    return results


def _compare(path: Path, rows: int, repeats: int) -> list[dict[str, Any]]:
    marginals = chosen_marginals()
    ours, theirs = count_with_consilience(path, marginals), count_with_pandas(path, marginals)
    for own, other, names in zip(ours, theirs, marginals, strict=True):
        if not np.array_equal(own, other):
            raise SystemExit(f"the counts of {names} differ from pandas'")
    own = _best(lambda: count_with_consilience(path, marginals), repeats)
    other = _best(lambda: count_with_pandas(path, marginals), repeats)
    shared = {"rows": rows, "marginals": len(marginals)}
    return [
        {"what": "consilience, one pass", **shared, "seconds": own, "ratio": other / own},
        {"what": "pandas, a group-by each", **shared, "seconds": other, "ratio": 1.0},
    ]


def _best(action: Callable[[], object], repeats: int) -> float:
    """The least of several times, which is the one least disturbed by other work of the machine."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def _first_run(path: Path, rows: int) -> dict[str, Any]:
    """The first count of a process whose kernels have never been compiled, less a second count."""
    with tempfile.TemporaryDirectory() as cache:
        seconds, again, _, _ = _in_own_process(path, "twice", NUMBA_CACHE_DIR=cache)
    return {"what": "imports and compilation, once", "rows": rows, "seconds": seconds - again}


def _long_run(path: Path, rows: int) -> dict[str, Any]:
    seconds, _, peak, counted = _in_own_process(path, "once")
    if counted != rows:
        raise SystemExit("the counts of the long table do not add up to its rows")
    return {
        "what": "consilience, a long table",
        "rows": rows,
        "marginals": MARGINALS,
        "seconds": seconds,
        "peak_mb": peak / 1024,
    }


def _in_own_process(path: Path, times: str, **environment: str) -> tuple[float, ...]:
    command = [sys.executable, "-c", WORKER, str(path), times]
    finished = subprocess.run(command, env=os.environ | environment, check=True, capture_output=True, text=True)
    return tuple(float(number) for number in finished.stdout.split())


def main() -> None:
    parser = argparse.ArgumentParser(description="Counting marginals: consilience against pandas.")
    parser.add_argument("--quick", action="store_true", help="ten times fewer rows")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()
    results = run(arguments.quick)
    for row in results:
        ratio = f"{row['ratio']:6.1f}×" if "ratio" in row else " " * 7
        peak = f"  peak {row['peak_mb']:,.0f} MB" if "peak_mb" in row else ""
        print(f"{row['what']:32} {row['rows']:>12,} rows  {row['seconds']:8.3f} s  {ratio}{peak}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
