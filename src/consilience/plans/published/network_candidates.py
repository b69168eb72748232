"""The families, a child with parents among the attributes placed so far, that a network may grow by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from consilience.kernels.rng import Generator
from consilience.plans.published.parent_sets import ParentSet, all_maximal_sets, sets_of_degree, some_maximal_sets

Families = list[tuple[int, ParentSet]]


@dataclass(frozen=True)
class CandidateLimits:
    """What is declared about the families of a round: how large a table may be, how many there are, and together.

    With a `degree` sets of parents have at most so many attributes; `exactly` takes sets of just that many.
    """

    cells: float
    families: int
    cells_together: int
    degree: int | None = None
    exactly: bool = False


def candidate_families(
    sizes: Sequence[int], placed: Sequence[int], waiting: Sequence[int], limits: CandidateLimits, rng: Generator
) -> Families:
    """Families for every waiting child, as many for each: all that are maximal, or as many drawn as are allowed.

    Where the tables together have too many cells, a random part of them is kept.

    >>> from consilience.kernels.rng import generator
    >>> limits = CandidateLimits(cells=12, families=10, cells_together=1000)
    >>> candidate_families([2, 3, 2, 9], [0, 1], [2, 3], limits, generator(0))
    [(2, (0, 1)), (3, ())]
    """
    each = max(1, limits.families // max(1, len(waiting)))
    known: dict[int, list[ParentSet] | None] = {}
    found: Families = []
    for child in waiting:
        for parents in _parent_sets(sizes, placed, sizes[child], limits, each, rng, known):
            found.append((child, tuple(placed[place] for place in parents)))
    return _within(found, sizes, limits.cells_together, rng)


def _parent_sets(
    sizes: Sequence[int],
    placed: Sequence[int],
    child_size: int,
    limits: CandidateLimits,
    most: int,
    rng: Generator,
    known: dict[int, list[ParentSet] | None],
) -> list[ParentSet]:
    if limits.exactly and limits.degree is not None:
        return sets_of_degree(len(placed), min(limits.degree, len(placed)), most=most, rng=rng)
    own, room = [sizes[place] for place in placed], limits.cells / child_size
    if child_size not in known:
        known[child_size] = all_maximal_sets(own, room, most=most, degree=limits.degree)
    listed = known[child_size]
    return some_maximal_sets(own, room, count=most, rng=rng, degree=limits.degree) if listed is None else listed


def _within(found: Families, sizes: Sequence[int], most_cells: int, rng: Generator) -> Families:
    """The families, or some of them whose tables have at most so many cells together; one at least."""
    cells = [sizes[child] * math.prod(sizes[place] for place in parents) for child, parents in found]
    if sum(cells) <= most_cells:
        return found
    kept, used = [], 0
    for place in rng.permutation(len(found)).tolist():
        if used + cells[place] <= most_cells or not kept:
            kept.append(place)
            used += cells[place]
    return [found[place] for place in sorted(kept)]
