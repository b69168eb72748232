"""What a reproduction leaves behind: a CSV of its numbers, a PNG of its picture, and verdicts as text and as JSON.

A reproduction is a module with `ABOUT`, `PICTURE`, `run(extent)`, which gives the rows of the CSV, and `claims(rows)`.
A row is what a mark of the picture shows; columns whose name ends in `values` hold the numbers of all runs, from which
verdicts are made.
"""

import csv
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from benchmarks.reproduce.verdicts import Outcome

RESULTS = Path(__file__).parents[1] / "results"

Row = Mapping[str, Any]
Rows = list[dict[str, Any]]


class Drawing(Protocol):
    """What can draw the rows of a reproduction."""

    def draw(self, path: Path, rows: Sequence[Row]) -> None:
        """Write the picture of the rows to the path, as a PNG."""
        ...


@dataclass(frozen=True)
class About:
    """What is reproduced, and what differs from the paper: in data, ε, runs or method."""

    item: str
    differs: tuple[str, ...]
    runs: str = ""
    timed: bool = False
    """Whether it measures seconds, and should have the machine to itself."""


@dataclass(frozen=True)
class Extent:
    """How much of a reproduction is run, and with which seeds."""

    quick: bool = False
    first_seed: int = 0

    def seeds(self, usual: int, quick: int = 2) -> range:
        """The seeds of the runs."""
        return range(self.first_seed, self.first_seed + (quick if self.quick else usual))

    @property
    def folder(self) -> Path:
        """Where results go: a quick look and other seeds have folders of their own, which are not kept."""
        if self.quick:
            return RESULTS / "quick"
        return RESULTS / f"seed-{self.first_seed}" if self.first_seed else RESULTS


def reproduce(name: str, module: ModuleType, extent: Extent) -> bool:
    """Run a reproduction and write all that it leaves; True when no claim failed."""
    made_with, began = provenance(extent), processor_seconds()
    rows = module.run(extent)
    made_with["processor seconds"] = round(processor_seconds() - began)
    extent.folder.mkdir(parents=True, exist_ok=True)
    write_csv(extent.folder / f"{name}.csv", rows)
    return judge(name, module, rows, extent, {"runs": module.ABOUT.runs, "provenance": made_with})


def judge_again(name: str, module: ModuleType, extent: Extent) -> bool:
    """The picture and the verdicts anew, from the CSV that is there; what runs it came from is kept."""
    before = json.loads((extent.folder / f"{name}.json").read_text(encoding="utf-8"))
    return judge(name, module, read_csv(extent.folder / f"{name}.csv"), extent, before)


def judge(name: str, module: ModuleType, rows: Rows, extent: Extent, ran: Mapping[str, Any]) -> bool:
    """Draw the picture; write and print the verdicts. What `ran` are the runs in words, and their provenance."""
    verdicts = [claim.judged() for claim in module.claims(rows)]
    if module.PICTURE is not None:
        module.PICTURE.draw(extent.folder / f"{name}.png", rows)
    document = {
        "item": module.ABOUT.item,
        "runs": ran["runs"],
        "differs": module.ABOUT.differs,
        "picture": module.PICTURE is not None,
        "provenance": ran["provenance"],
        "claims": [verdict.to_json() for verdict in verdicts],
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (extent.folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    told = told_as_text(document)
    (extent.folder / f"{name}.txt").write_text(told, encoding="utf-8")
    print(told, flush=True)
    return not any(verdict.outcome is Outcome.NOT for verdict in verdicts)


def told_as_text(document: Mapping[str, Any]) -> str:
    """The verdicts for readers of a terminal."""
    lines = [document["item"], document["runs"], *(f"differs: {each}" for each in document["differs"]), ""]
    for claim in document["claims"]:
        whose = "ours, not the paper's: " if claim["ours"] else ""
        lines += [
            f"{claim['outcome'].upper()}: {whose}{claim['words']}",
            f"    {claim['statistic']}: {claim['evidence']}",
            f"    holds if {claim['threshold']}" + (f"; the paper: {claim['paper']}" if claim["paper"] else ""),
        ]
        lines += [f"    {claim['more']}"] if claim["more"] else []
    return "\n".join(lines) + "\n"


def provenance(extent: Extent) -> dict[str, Any]:
    """What the numbers were made with: the commit, seeds and versions."""
    libraries = ("consilience", "numpy", "scipy", "numba", "opendp")
    return {
        "commit": commit(),
        "first seed": extent.first_seed,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in libraries},
    }


def processor_seconds() -> float:
    """What this process has used of the processors, with the processes that it started and that have ended."""
    return sum(os.times()[:4])


CODE = ("src", "benchmarks", ":!benchmarks/results")
"""What makes the numbers: other commits, results among them, leave them as they are."""


def commit(repository: Path = RESULTS.parents[1]) -> str:
    """The last commit that changed the code, with " and changes" where files of it differ from that; or unknown."""
    git = ["git", "-C", str(repository)]
    changes = ["status", "--porcelain", "--untracked-files=no", "--", *CODE]
    try:
        found, changed = (
            subprocess.run([*git, *command], capture_output=True, text=True, check=True).stdout.strip()
            for command in (["log", "-1", "--format=%h", "--abbrev=10", "--", *CODE], changes)
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{found} and changes" if changed else found


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """The rows as a table; numbers with six digits, the numbers of several runs with spaces between them."""
    header = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([_written(row.get(key, "")) for key in header] for row in rows)


def read_csv(path: Path) -> Rows:
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: _read(key, value) for key, value in row.items()} for row in csv.DictReader(file)]


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(f"{each:.6g}" for each in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _read(key: str, text: str) -> float | str | list[float]:
    if key.endswith("values"):
        return [float(each) for each in text.split()]
    try:
        return float(text)
    except ValueError:
        return text
