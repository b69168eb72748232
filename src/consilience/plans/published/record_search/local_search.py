"""Good classes where an exact search would be too large: from several random starts, one attribute at a time.

Each step sets one attribute to its best class given all others, until no attribute can gain. What is found is a local
best; nothing bounds how far the best of all is. Conjunctions that are forbidden weigh −∞: a start that breaks one moves
out of it as soon as one attribute alone can.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.rng import Generator
from consilience.plans.published.record_search.conjunctions import Classes, ScoreTable


def good_classes(
    classes: Classes, tables: Sequence[ScoreTable], rng: Generator, *, restarts: int, sweeps: int
) -> tuple[dict[int, int], float]:
    """The best of the local bests that some restarts came to, and its weight."""
    places = sorted(classes.count)
    about = {place: [table for table in tables if place in table.scope] for place in places}
    best: dict[int, int] = {}
    best_weight = -np.inf
    for _ in range(restarts):
        chosen = {place: int(rng.integers(classes.count[place])) for place in places}
        for _ in range(sweeps):
            moved = [_improved(place, chosen, about[place]) for place in rng.permutation(places)]
            if not any(moved):
                break
        weight = float(sum(table.values[tuple(chosen[place] for place in table.scope)] for table in tables))
        if not best or weight > best_weight:
            best, best_weight = chosen, weight
    return best, best_weight


def _improved(place: int, chosen: dict[int, int], tables: Sequence[ScoreTable]) -> bool:
    """Whether another class of the attribute is better, to which it then moves."""
    gains: NDArray[np.float64] = np.zeros(1)
    for table in tables:
        gains = gains + table.values[tuple(slice(None) if each == place else chosen[each] for each in table.scope)]
    better = int(np.argmax(gains))
    if gains[better] <= gains[chosen[place]]:
        return False
    chosen[place] = better
    return True
