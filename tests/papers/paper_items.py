"""What a paper has, where it is here, and how far it is from an independent twin: the entries of the papers' tables.

An `Item` is an algorithm, an equation, a theorem, a baseline, a figure or a table of a paper. Its check computes the
largest difference to its twin on small problems with fixed seeds, as a share of the size of the answer or of 1. The
module of the paper asserts that the difference is within a rung of `LADDER`, and `docs/generate.py` prints the rung: a
number that no processor's rounding changes. To add an item is to add an entry; `python tests/papers/paper_items.py`
prints the differences themselves and the seconds they took.

Slow twins that the tests in `tests/unit` have already are read from there with `twins`.
"""

import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LADDER = (0.0, 1e-12, 1e-9, 1e-6, 1e-3, 1e-2)
"""Differences that are told apart on the page; 0 is for whole numbers and for words."""

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


@dataclass(frozen=True)
class Item:
    """One thing of a paper.

    `where` is a name that can be imported, or nothing if it is missing here. `differs` says what is not as published.
    """

    name: str
    where: str
    against: str
    check: Callable[[], float] | None = None
    within: float = 0.0
    differs: str = ""

    @property
    def state(self) -> str:
        """How the item stands to the paper."""
        return "missing" if not self.where else "differs" if self.differs else "as published"

    @property
    def place(self) -> str:
        """Where it is, in Markdown."""
        return f"`{self.where.removeprefix('consilience.')}`" if self.where else ""

    @property
    def largest(self) -> str:
        """The rung that the largest difference does not exceed."""
        if self.check is None:
            return ""
        return "none" if self.within == 0 else f"≤ {self.within:.0e}".replace("e-0", "e-")


@dataclass(frozen=True)
class Reproduced(Item):
    """A figure or table of experiments: run again under a name, with a CSV, a picture and verdicts."""

    against: str = "the paper's claims, [verdicts](../concepts/reproductions.md)"

    @property
    def place(self) -> str:
        return f"`python -m benchmarks.reproduce {self.where}`"

    @property
    def outcomes(self) -> list[str]:
        """What became of each claim of the paper; what is said here, and not there, does not count."""
        document = json.loads(self.judged.read_text(encoding="utf-8"))
        return [claim["outcome"] for claim in document["claims"] if not claim["ours"]]

    @property
    def judged(self) -> Path:
        return RESULTS / f"{self.where}.json"

    @property
    def largest(self) -> str:
        if not self.judged.exists():
            return "from an earlier run"
        found = self.outcomes
        if not found:
            return "the paper claims nothing"
        untold = found.count("cannot be told")
        return f"{found.count('held')} of {len(found)} claims held" + (f", {untold} cannot be told" if untold else "")


@dataclass(frozen=True)
class Paper:
    """A paper and everything in it that can be checked."""

    title: str
    items: tuple[Item, ...]


def difference(found: Any, expected: Any) -> float:
    """The largest difference of two answers, as a share of the largest expected number, or of 1 if that is larger."""
    one, other = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if one.shape != other.shape:
        return float("inf")
    return float(np.abs(one - other).max(initial=0.0) / max(1.0, np.abs(other).max(initial=0.0)))


def beyond(found: Any, most: Any) -> float:
    """By how much something is larger than a bound on it allows; 0 where the bound holds."""
    return float(np.maximum(np.asarray(found) - np.asarray(most), 0.0).max(initial=0.0))


@cache
def twins(path: str) -> ModuleType:
    """A module of `tests/unit`, for its slow twins."""
    name = "twins_" + path.removesuffix(".py").replace("/", "_")
    specification = importlib.util.spec_from_file_location(name, HERE.parent / "unit" / path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def imported(where: str) -> Any:
    """What a dotted name stands for."""
    parts = where.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(where)


def checked(paper: Paper):
    """The decorator of a test of every item of a paper."""
    return pytest.mark.parametrize("item", paper.items, ids=lambda item: item.name)


def assert_true(item: Item) -> None:
    """The item is where it is said to be, and as near to its twin as the page says."""
    assert item.within in LADDER
    if isinstance(item, Reproduced):
        from benchmarks.reproduce.__main__ import REPRODUCTIONS

        assert item.where in REPRODUCTIONS
        missing = [kind for kind in ("csv", "png", "txt") if not (RESULTS / f"{item.where}.{kind}").exists()]
        assert not missing
        assert item.largest
    elif not item.where:
        assert item.differs, "say what is missing"
        assert item.check is None
    else:
        assert imported(item.where) is not None
        assert item.check is not None, "nothing checks it"
        assert item.check() <= item.within


def papers() -> list[Paper]:
    """The papers, each from its module."""
    found = []
    for path in sorted(HERE.glob("test_*.py")):
        specification = importlib.util.spec_from_file_location(f"paper_{path.stem}", path)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        found.append(module.PAPER)
    return found


def tables(found: Sequence[Paper]) -> str:
    """The page of all papers, in Markdown."""
    lines = [
        "# The papers, item by item",
        "",
        "What each of the four papers has that can be checked, where it is here, and what it is checked against. Names "
        "are those of the paper; places are below `consilience`, or in `benchmarks`. A *difference* is a share of the "
        "largest number of the answer, or of 1 if that is larger, on small problems with fixed seeds; the page "
        "shows a bound on it that a test in `tests/papers` keeps. Generated from these tests by `make docs`.",
        "",
    ]
    for paper in found:
        counts = {state: sum(item.state == state for item in paper.items) for state in ("as published", "differs")}
        missing = [item for item in paper.items if item.state == "missing"]
        lines += [f"## {paper.title}", ""]
        lines += [
            f"{len(paper.items)} items: {counts['as published']} as published, {counts['differs']} that differ, "
            f"{len(missing)} missing.",
            "",
            "| item | where it is | checked against | largest difference | |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [
            f"| {item.name} | {item.place} | {item.against} | {item.largest} | {item.state} |" for item in paper.items
        ]
        told = [f"- **{item.name}**: {item.differs}" for item in paper.items if item.differs]
        lines += ["", "What differs or is missing:", "", *told, ""] if told else [""]
    return "\n".join(lines)


if __name__ == "__main__":
    for paper in papers():
        for item in paper.items:
            begun = time.perf_counter()
            shown = "" if item.check is None else f"{item.check():.1e} (within {item.within:.0e})"
            print(f"{time.perf_counter() - begun:6.2f} s  {shown:28} {item.name}", flush=True)
