"""Which marginals are asked, and the distribution of their errors (Qardaji, Yang and Li 2014, §5).

For each k 200 sets of k attributes are drawn. A method answers all of them in each of five runs, in which it draws its
noise anew. A set's error is the mean of its five; what is shown is the distribution of these 200 numbers.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.flags import FlagRecords
from benchmarks.reproduce.candlesticks import candlestick
from benchmarks.reproduce.figures import brief
from benchmarks.reproduce.qardaji2014.errors import DISTANCE, DIVERGENCE, distances, divergences

Array = NDArray[np.float64]
Scope = tuple[int, ...]
Rows = list[dict[str, Any]]
Place = tuple[str, float, int]
"""Panel, ε and k."""
Medians = dict[Place, dict[str, float]]
"""For each place a number for each method."""

PRIVIEW, WITHOUT_NOISE, OTHERS = "PriView", "PriView without noise", "other methods"


@dataclass(frozen=True)
class Size:
    """How many sets of attributes are asked, and in how many runs."""

    sets: int
    runs: int


FULL, QUICK = Size(200, 5), Size(12, 2)


@dataclass(frozen=True, eq=False)
class Asked:
    """Some marginals of k flags each, and their exact counts, one in each row of `exact`."""

    records: FlagRecords
    k: int
    sets: tuple[Scope, ...]
    exact: Array

    @staticmethod
    def of(records: FlagRecords, sets: Sequence[Scope]) -> "Asked":
        return Asked(records, len(sets[0]), tuple(sets), np.array([records.counts(scope) for scope in sets]))

    @staticmethod
    def at_random(records: FlagRecords, k: int, sets: int) -> "Asked":
        """Different sets drawn at random, always the same; all of them where there are no more."""
        return Asked.of(records, random_sets(records.flags, k, sets))

    def first(self, sets: int) -> "Asked":
        """The first of these marginals, where a method is too slow for all."""
        return self if sets >= len(self.sets) else Asked(self.records, self.k, self.sets[:sets], self.exact[:sets])

    @property
    def uniform(self) -> Array:
        """The records spread evenly over each marginal."""
        return np.full_like(self.exact, self.records.total / self.exact.shape[1])


def random_sets(flags: int, k: int, sets: int) -> list[Scope]:
    if math.comb(flags, k) <= sets:
        return list(itertools.combinations(range(flags), k))
    rng = np.random.default_rng([flags, k])
    found: dict[Scope, None] = {}
    while len(found) < sets:
        found[tuple(np.sort(rng.choice(flags, k, replace=False)).tolist())] = None
    return list(found)


@dataclass(frozen=True)
class Setting:
    """Where a row of the results belongs: its panel, the data, ε and k."""

    panel: str
    asked: Asked
    epsilon: float

    def noise(self, method: str, run: int) -> np.random.Generator:
        """The noise of one run: the same for all k, another for each set of records, ε and method."""
        words = f"{self.asked.records.name}|{self.epsilon:g}|{method}".encode()
        return np.random.default_rng([*words, run])

    def rows(
        self,
        method: str,
        family: str,
        answers: Iterable[Array],
        *,
        measures: Sequence[str] = (DISTANCE,),
        **more: Any,
    ) -> Rows:
        """A row for each measure: the distribution over the sets of the mean error over the runs."""
        asked, total = self.asked, float(self.asked.records.total)
        found: dict[str, list[Array]] = {measure: [] for measure in measures}
        for tables in answers:
            if DISTANCE in found:
                found[DISTANCE].append(distances(tables, asked.exact, total))
            if DIVERGENCE in found:
                found[DIVERGENCE].append(divergences(tables, asked.exact))
        return [
            self._row(measure, method, family)
            | candlestick(np.mean(errors, axis=0))
            | {"sets": len(asked.sets), "runs": len(errors)}
            | more
            for measure, errors in found.items()
        ]

    def expected(self, method: str, family: str, error: float) -> Rows:
        """The row of a method of which only the expected distance is known."""
        empty = dict.fromkeys(("p25", "p50", "p75", "p95"), "")
        return [self._row(DISTANCE, method, family) | empty | {"mean": error, "sets": len(self.asked.sets), "runs": 0}]

    def _row(self, measure: str, method: str, family: str) -> dict[str, Any]:
        return {
            "panel": self.panel,
            "dataset": self.asked.records.name,
            "records": self.asked.records.total,
            "epsilon": self.epsilon,
            "k": self.asked.k,
            "measure": measure,
            "method": method,
            "family": family,
        }


def medians(rows: Rows, *, measure: str = DISTANCE) -> Medians:
    """For each panel, ε and k the median error of each method, or its expected error where that is all there is."""
    found: Medians = {}
    for row in rows:
        if row["measure"] == measure:
            place = (str(row["panel"]), float(row["epsilon"]), int(row["k"]))
            value = row["mean"] if row["p50"] == "" else row["p50"]
            found.setdefault(place, {})[row["method"]] = float(value)
    return found


def between(values: Iterable[float]) -> str:
    """The range of some ratios, in words."""
    found = list(values)
    return f"{brief(min(found))} to {brief(max(found))}" if found else "none"


def judged(ratios: Mapping[Place, float], fine: Callable[[float], bool]) -> tuple[bool, str]:
    """Whether all ratios are fine; in words, their range and where they are not."""
    off = [f"{panel}, k = {k}: {brief(ratio)}" for (panel, _, k), ratio in ratios.items() if not fine(ratio)]
    return not off, between(ratios.values()) + (f" (not so for {'; '.join(off)})" if off else "")


def ordered(rows: Rows) -> Rows:
    """The rows panel by panel, each measure by measure and k by k, as pictures need them; otherwise as they came."""
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    measures = [DISTANCE, DIVERGENCE]
    return sorted(rows, key=lambda row: (panels.index(row["panel"]), measures.index(row["measure"]), row["k"]))
