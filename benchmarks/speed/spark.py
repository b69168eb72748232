"""Counting on a Spark of two cores against counting here: the same Parquet file, the same counts, processor seconds.

    python -m benchmarks spark [--quick]

32 binary columns; twenty eight-way marginals, and all 496 pairs. Executors read row groups of the file themselves
("files"), or Spark reads it and hands its rows to them ("rows"). Processor time is that of all processes of the cluster
(driver, Java, Python workers) or of this process, after a first run that compiles and starts what is needed. `ratio`
is that time in units of the local run's; `driver MB` the most memory that driver and Java together have held: they are
one process of Java here, which reads all records and whose heap is limited to 700 MB.
"""

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.counting import DOMAIN, chosen_marginals, write_table

Marginals = list[tuple[str, ...]]
WORK: dict[str, Marginals] = {
    "20 eight-way": chosen_marginals(),
    "496 pairs": list(itertools.combinations(DOMAIN.names, 2)),
}
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "700m",
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR",
    "spark.driver.maxResultSize": "128m",
}  # fmt: skip
TICKS = os.sysconf("SC_CLK_TCK")


def run(quick: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, Session() as session:
        for rows in (10**6,) if quick else (10**6, 10**7):
            path = Path(folder) / f"{rows}.parquet"
            write_table(path, rows)
            for work, marginals in WORK.items():
                found += _compared(session, path, rows, work, marginals)
    return found


def _compared(session: Any, path: Path, rows: int, work: str, marginals: Marginals) -> list[dict[str, Any]]:
    from consilience.source import open_table

    frame = session.read.parquet(str(path))
    ways = {"local": str(path), "files": frame, "rows": frame.where("true")}
    found: list[dict[str, Any]] = []
    local, counted = 0.0, None
    for by, data in ways.items():
        source: Any = open_table(data, DOMAIN)
        source.exact_counts(marginals[:1])  # compiles, and starts the workers
        processor = time.process_time if by == "local" else _cluster_seconds
        seconds, wall, counts = _timed(lambda source=source: source.exact_counts(marginals), processor)
        if by == "local":
            local, counted = seconds, counts
        assert counted is not None
        same = all(map(np.array_equal, counts, counted))
        row = {"rows": rows, "work": work, "by": by, "cpu seconds": seconds, "wall seconds": wall}
        memory = {} if by == "local" else {"driver MB": _driver_megabytes()}
        found.append(row | {"ratio": seconds / local, "same counts": "yes" if same else "NO"} | memory)
    return found


def _timed(count: Callable[[], Any], processor: Callable[[], float]) -> tuple[float, float, Any]:
    begin, wall = processor(), time.perf_counter()
    counts = count()
    return processor() - begin, time.perf_counter() - wall, counts


class Session:
    """A Spark within this process, of two cores; it ends with the block."""

    def __enter__(self) -> Any:
        from importlib import import_module

        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder: Any = import_module("pyspark.sql").SparkSession.builder
        self._session = builder.master("local[2]").config(map=SETTINGS).getOrCreate()
        return self._session

    def __exit__(self, *_: object) -> None:
        self._session.stop()


def _tree() -> list[int]:
    """This process and all below it."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    found = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def _cluster_seconds() -> float:
    """The processor time of all of them, and of those that have ended."""
    total = 0
    for process in _tree():
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, state[11:15]))
    return total / TICKS


def _driver_megabytes() -> float:
    """The most memory of this process and of Java."""
    found = 0.0
    for process in _tree():
        state = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
        if process == os.getpid() or state["Name"].strip() == "java":
            found += float(state["VmHWM"].split()[0]) / 1024
    return found
