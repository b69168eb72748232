"""`best_record`: the exact search where it is small enough, else the local one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.rng import Generator
from consilience.plans.published.record_search.conjunctions import Classes, Conjunction
from consilience.plans.published.record_search.elimination import best_classes, elimination_order
from consilience.plans.published.record_search.local_search import good_classes

LARGEST_TABLE = 2**20
"""The most cells, in classes, of a table of the exact search: some milliseconds each."""

RESTARTS = 30
SWEEPS = 100


@dataclass(frozen=True, eq=False)
class FoundRecord:
    """A record, the weight of the conjunctions that hold of it, and whether no record has more."""

    codes: NDArray[np.int64]
    weight: float
    exact: bool


def best_record(
    sizes: Sequence[int],
    conjunctions: Sequence[Conjunction],
    rng: Generator,
    *,
    largest_table: int = LARGEST_TABLE,
    restarts: int = RESTARTS,
) -> FoundRecord:
    """The record over attributes of these sizes whose conjunctions weigh most, ties broken by the generator.

    Values that no conjunction tells apart are drawn evenly. Where some table of the exact search would have more than
    `largest_table` cells, the best of `restarts` local searches is returned instead.

    >>> from consilience.kernels.rng import generator
    >>> even = Conjunction(1.0, ((0, np.array([True, False, True])), (1, np.array([True, False]))))
    >>> first = Conjunction(-0.5, ((0, np.array([True, False, False])),))
    >>> best_record([3, 2], [even, first], generator(0)).codes.tolist()
    [2, 0]
    """
    classes = Classes.of(sizes, conjunctions, rng)
    tables = classes.tables(conjunctions)
    order = elimination_order(classes, [table.scope for table in tables], largest_table)
    if order is not None:
        chosen, weight = best_classes(classes, tables, order)
    else:
        chosen, weight = good_classes(classes, tables, rng, restarts=restarts, sweeps=SWEEPS)
    if weight == -math.inf:
        raise DeclarationError("no record was found that is not forbidden; forbid fewer records, or search longer")
    return FoundRecord(classes.record(chosen, sizes, rng), weight, order is not None)
