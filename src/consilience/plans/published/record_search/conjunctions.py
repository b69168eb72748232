"""Weighted conjunctions, and the few classes of values that they tell apart.

A conjunction holds of a record x when x_a ∈ S_a for each of its attributes a. Values of an attribute that lie in the
same sets of all conjunctions are alike to them: they form a *class*, and a search over classes is a search over all
records. A few dozen conjunctions leave a handful of classes of an attribute with hundreds of values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.rng import Generator

Members = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Conjunction:
    """What holds of a record that has one of some values in each of some attributes, and the weight of that.

    A weight of −∞ forbids such records.
    """

    weight: float
    members: tuple[tuple[int, Members], ...]
    """For each attribute named, by its place, which of its values are meant."""

    def holds(self, codes: Sequence[int] | NDArray[np.int64]) -> bool:
        """Whether it holds of one record."""
        return all(bool(chosen[codes[place]]) for place, chosen in self.members)


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """The summed weights of all conjunctions about the same attributes, for each combination of classes."""

    scope: tuple[int, ...]
    values: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Classes:
    """The values of each attribute that conjunctions name, by class."""

    of_value: dict[int, NDArray[np.intp]]
    """For each attribute the class of each of its values."""
    count: dict[int, int]

    @staticmethod
    def of(sizes: Sequence[int], conjunctions: Sequence[Conjunction], rng: Generator) -> "Classes":
        """The classes that the conjunctions tell apart, numbered in a random order: so are ties between them broken."""
        _check(sizes, conjunctions)
        stacked: dict[int, list[Members]] = {}
        for each in conjunctions:
            for place, chosen in each.members:
                stacked.setdefault(place, []).append(chosen)
        of_value, count = {}, {}
        for place in sorted(stacked):
            signatures = np.packbits(np.stack(stacked[place]), axis=0)
            found, inverse = np.unique(signatures, axis=1, return_inverse=True)
            count[place] = found.shape[1]
            of_value[place] = rng.permutation(found.shape[1])[np.ravel(inverse)]
        return Classes(of_value, count)

    def tables(self, conjunctions: Sequence[Conjunction]) -> list[ScoreTable]:
        """One table of weights for each set of attributes that conjunctions are about."""
        found: dict[tuple[int, ...], NDArray[np.float64]] = {}
        for each in conjunctions:
            ordered = sorted(each.members, key=lambda pair: pair[0])
            scope = tuple(place for place, _ in ordered)
            shape = tuple(self.count[place] for place in scope)
            chosen = [np.unique(self.of_value[place][inside]) for place, inside in ordered]
            table = found.setdefault(scope, np.zeros(shape))
            table[np.ix_(*chosen)] += each.weight
        return [ScoreTable(scope, values) for scope, values in found.items()]

    def cells(self, scope: Sequence[int]) -> int:
        """How many combinations of classes some attributes have."""
        return math.prod(self.count[place] for place in scope)

    def record(self, chosen: dict[int, int], sizes: Sequence[int], rng: Generator) -> NDArray[np.int64]:
        """A record of the chosen classes: each value is drawn among those of its class, or of the whole attribute."""
        codes = np.empty(len(sizes), dtype=np.int64)
        for place, size in enumerate(sizes):
            if place in chosen:
                alike = np.flatnonzero(self.of_value[place] == chosen[place])
                codes[place] = alike[rng.integers(alike.size)]
            else:
                codes[place] = rng.integers(size)
        return codes


def _check(sizes: Sequence[int], conjunctions: Sequence[Conjunction]) -> None:
    for each in conjunctions:
        places = [place for place, _ in each.members]
        if not places or len(set(places)) < len(places):
            raise DeclarationError(f"a conjunction names the attributes {places}; name at least one, and each once")
        for place, chosen in each.members:
            if not 0 <= place < len(sizes) or chosen.shape != (sizes[place],):
                raise DeclarationError(
                    f"a conjunction has {chosen.shape} truth values about attribute {place}; there are {len(sizes)} "
                    "attributes, and one truth value belongs to each of an attribute's values"
                )
        if math.isnan(each.weight) or each.weight == math.inf:
            raise DeclarationError(f"a conjunction has the weight {each.weight}; give a finite one, or −∞ to forbid it")
