"""Which marginals are asked, and the distribution of their errors (Qardaji, Yang and Li 2014, §5).

For each k 200 sets of k attributes are drawn. A method answers all of them in each of five runs, in which it draws its
noise anew. A set's error is the mean of its five; what is shown is the distribution of these 200 numbers.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.flags import FlagRecords
from benchmarks.reproduce.candlesticks import candlestick
from benchmarks.reproduce.figures import Extent, Rows
from benchmarks.reproduce.per_run import Values, ratio
from benchmarks.reproduce.qardaji2014.errors import DISTANCE, DIVERGENCE, distances, divergences

Array = NDArray[np.float64]
Scope = tuple[int, ...]
Place = tuple[str, float, int]
"""Panel, ε and k."""
Medians = dict[Place, dict[str, Values]]
"""For each place the numbers of all runs of each method."""

PRIVIEW, WITHOUT_NOISE, OTHERS = "PriView", "PriView without noise", "other methods"


@dataclass(frozen=True)
class Size:
    """How many sets of attributes are asked, and the seeds of the runs."""

    sets: int
    seeds: range

    @staticmethod
    def of(extent: Extent, sets: int = 200, runs: int = 5) -> "Size":
        """As in the paper; 12 sets and two runs if quick."""
        return Size(min(sets, 12) if extent.quick else sets, extent.seeds(runs))


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

    def noise(self, method: str, seed: int) -> np.random.Generator:
        """The noise of one run: the same for all k, another for each set of records, ε and method."""
        words = f"{self.asked.records.name}|{self.epsilon:g}|{method}".encode()
        return np.random.default_rng([*words, seed])

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
            | by_run(errors)
            for measure, errors in found.items()
        ]

    def expected(self, method: str, family: str, error: float) -> Rows:
        """The row of a method of which only the expected distance is known."""
        empty = dict.fromkeys(("p25", "p50", "p75", "p95"), "")
        counts = {"sets": len(self.asked.sets), "runs": 0}
        return [self._row(DISTANCE, method, family) | empty | {"mean": error} | counts | {"values": [error]}]

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


def by_run(errors: list[Array]) -> dict[str, Values]:
    """The median of the sets in each run, their 25th and 95th percentile, and their mean."""
    table = np.array(errors)
    return {
        "values": np.median(table, axis=1).tolist(),
        "low_values": np.percentile(table, 25, axis=1).tolist(),
        "high_values": np.percentile(table, 95, axis=1).tolist(),
        "mean_values": table.mean(axis=1).tolist(),
    }


def medians(rows: Rows, *, measure: str = DISTANCE, values: str = "values") -> Medians:
    """For each panel, ε and k the median error of each method in all runs.

    What no run changes, an expected error or one without noise, is repeated for as many runs as the others have.
    """
    found: Medians = {}
    for row in rows:
        if row["measure"] == measure:
            place = (str(row["panel"]), float(row["epsilon"]), int(row["k"]))
            numbers = row.get(values) or []
            if numbers:
                found.setdefault(place, {})[row["method"]] = list(numbers)
    for each in found.values():
        most = max(map(len, each.values()))
        each.update({name: numbers * most for name, numbers in each.items() if len(numbers) == 1})
    return found


def told(place: Place) -> str:
    """A place in words; panels that name ε do so once."""
    panel, epsilon, k = place
    return f"{panel}, k = {k}" if "ε" in panel else f"{panel}, ε = {epsilon:g}, k = {k}"


def ratios(found: Medians, above: str, below: str) -> dict[str, Values]:
    """In each place the error of one method in units of another's."""
    return {told(place): ratio(each[above], each[below]) for place, each in found.items()}


def ordered(rows: Rows) -> Rows:
    """The rows panel by panel, each measure by measure and k by k, as pictures need them; otherwise as they came."""
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    measures = [DISTANCE, DIVERGENCE]
    return sorted(rows, key=lambda row: (panels.index(row["panel"]), measures.index(row["measure"]), row["k"]))
