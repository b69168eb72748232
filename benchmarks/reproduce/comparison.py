"""Which verdicts change when everything is run again with other seeds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.reproduce import figures
from benchmarks.reproduce.figures import Extent
from benchmarks.reproduce.verdicts import Outcome

SUMMARY = "reproduce-other-seeds.json"


@dataclass(frozen=True)
class Change:
    """A claim whose outcome differs."""

    name: str
    words: str
    first: str
    second: str

    @property
    def turned(self) -> bool:
        """Whether it went from held to did not hold, or back, rather than to or from what cannot be told."""
        return Outcome.UNTOLD not in (self.first, self.second)

    def line(self) -> str:
        return f"{self.name}: {self.first} → {self.second}: {self.words}"


def compare(names: Sequence[str], seed: int) -> int:
    """Print what changed and write a summary; 1 if a verdict turned into its opposite."""
    there = [name for name in names if _path(name, seed).exists() and _path(name, 0).exists()]
    if not there:
        print(f"there are no results of seed {seed}; run `python -m benchmarks.reproduce --seed {seed}` first")
        return 1
    found = {name: changes(name, _read(name, 0), _read(name, seed)) for name in there}
    every = [change for each in found.values() for change in each]
    for change in every:
        print(change.line())
    claims = sum(len(_read(name, 0)["claims"]) for name in there)
    turned = [change for change in every if change.turned]
    print(f"{len(there)} reproductions, {claims} claims: {len(every)} changed, {len(turned)} into the opposite")
    summary = {
        "seed": seed,
        "reproductions": there,
        "claims": claims,
        "changes": [vars(change) for change in every],
    }
    text = json.dumps(summary, indent=1, ensure_ascii=False)
    (figures.RESULTS / SUMMARY).write_text(text + "\n", encoding="utf-8")
    return 1 if turned else 0


def changes(name: str, first: dict[str, Any], second: dict[str, Any]) -> list[Change]:
    """The claims of a reproduction whose outcome differs between two runs."""
    other = {claim["words"]: claim["outcome"] for claim in second["claims"]}
    return [
        Change(name, claim["words"], claim["outcome"], other[claim["words"]])
        for claim in first["claims"]
        if other.get(claim["words"], claim["outcome"]) != claim["outcome"]
    ]


def _path(name: str, seed: int) -> Path:
    return Extent(first_seed=seed).folder / f"{name}.json"


def _read(name: str, seed: int) -> dict[str, Any]:
    return json.loads(_path(name, seed).read_text(encoding="utf-8"))
