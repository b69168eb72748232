"""Statistics of single runs: lists of numbers, one for each run, taken together run by run."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.reproduce.figures import Row

Values = list[float]


def by(rows: Iterable[Row], *keys: str, values: str = "values") -> dict[Any, Values]:
    """For each combination of keys the numbers of all runs, in the order of the rows."""
    found: dict[Any, Values] = {}
    for row in rows:
        place = tuple(row[key] for key in keys)
        found[place if len(keys) > 1 else place[0]] = list(row[values])
    return found


def ratio(above: Sequence[float], below: Sequence[float]) -> Values:
    """The one in units of the other, run by run; where runs are fewer on one side, those that both have.

    >>> ratio([2.0, 9.0], [1.0, 3.0])
    [2.0, 3.0]
    """
    return [
        float(np.inf) if second == 0 and first > 0 else 1.0 if second == 0 else first / second
        for first, second in zip(above, below, strict=False)
    ]


def geometric(lists: Iterable[Sequence[float]]) -> Values:
    """The geometric mean over several lists, run by run.

    >>> [round(each, 9) for each in geometric([[1.0, 2.0], [4.0, 8.0]])]
    [2.0, 4.0]
    """
    return np.exp(np.mean(np.log(np.array(list(lists), dtype=np.float64)), axis=0)).tolist()


def least(lists: Iterable[Sequence[float]]) -> Values:
    """The smallest of several, run by run."""
    return [min(values) for values in zip(*lists, strict=False)]


def greatest(lists: Iterable[Sequence[float]]) -> Values:
    """The greatest of several, run by run."""
    return [max(values) for values in zip(*lists, strict=False)]


def slope(xs: Sequence[float], lists: Iterable[Sequence[float]]) -> Values:
    """The exponent p with which numbers grow as x^p, by least squares in logarithms, run by run.

    >>> [round(each, 9) for each in slope([1.0, 2.0, 4.0], [[1.0], [4.0], [16.0]])]
    [2.0]
    """
    logs = np.log(np.array(list(lists), dtype=np.float64))
    return np.polyfit(np.log(np.asarray(xs, dtype=np.float64)), logs, 1)[0].tolist()
