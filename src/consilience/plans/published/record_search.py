"""`best_record`: the exact search where it is small enough, else the local one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.rng import Generator

# ----------------------------------------------------------------------------------------------------------------------
# Weighted conjunctions, and the few classes of values that they tell apart.
#
# A conjunction holds of a record x when x_a ∈ S_a for each of its attributes a. Values of an attribute that lie in the
# same sets of all conjunctions are alike to them: they form a *class*, and a search over classes is a search over all
# records. A few dozen conjunctions leave a handful of classes of an attribute with hundreds of values.


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


# ----------------------------------------------------------------------------------------------------------------------
# The best classes, exactly: attributes are maximised away one after the other (Dechter 1999, bucket elimination).
#
#     max over x of Σ_k f_k(x) :   for each attribute a in turn, replace all tables that name a by
#                                  g(rest) = max over x_a of Σ f_k(x_a, rest),
#
# and read the best values back in the opposite order. The next attribute is one whose table Σ f_k is smallest.


Scope = tuple[int, ...]


def elimination_order(classes: Classes, scopes: Sequence[Scope], largest: int) -> list[Scope] | None:
    """For each step the attributes of its table, the one to be eliminated first; None where a table is too large."""
    left = [frozenset(scope) for scope in scopes]
    remaining = {place for scope in left for place in scope}
    order: list[Scope] = []
    while remaining:
        joined = {place: frozenset().union(*(s for s in left if place in s), {place}) for place in remaining}
        # The smallest table, and of equal ones that of the first attribute, so that the order is always the same.
        place = min(sorted(remaining), key=lambda each: classes.cells(tuple(joined[each])))
        if classes.cells(tuple(joined[place])) > largest:
            return None
        rest = joined[place] - {place}
        order.append((place, *sorted(rest)))
        left = [scope for scope in left if place not in scope] + ([rest] if rest else [])
        remaining.remove(place)
    return order


def best_classes(
    classes: Classes, tables: Sequence[ScoreTable], order: Sequence[Scope]
) -> tuple[dict[int, int], float]:
    """The class of each attribute in a best record, and the weight of that record."""
    pending = list(tables)
    constant = 0.0
    steps: list[tuple[Scope, NDArray[np.float64]]] = []
    for scope in order:
        here = [table for table in pending if scope[0] in table.scope]
        pending = [table for table in pending if scope[0] not in table.scope]
        joint = np.zeros([classes.count[place] for place in scope])
        for table in here:
            joint = joint + _spread(table, scope)
        steps.append((scope, joint))
        rest = ScoreTable(scope[1:], joint.max(axis=0))
        if rest.scope:
            pending.append(rest)
        else:
            constant += float(rest.values)
    chosen: dict[int, int] = {}
    for scope, joint in reversed(steps):
        known = tuple(chosen[place] for place in scope[1:])
        chosen[scope[0]] = int(np.argmax(joint[(slice(None), *known)]))
    return chosen, constant


def _spread(table: ScoreTable, scope: Scope) -> NDArray[np.float64]:
    """The table with its axes in the order of a larger scope, ready to be added."""
    within = [place for place in scope if place in table.scope]
    turned = table.values.transpose([table.scope.index(place) for place in within])
    sizes = dict(zip(within, turned.shape, strict=True))
    return turned.reshape([sizes.get(place, 1) for place in scope])


# ----------------------------------------------------------------------------------------------------------------------
# Good classes where an exact search would be too large: from several random starts, one attribute at a time.
#
# Each step sets one attribute to its best class given all others, until no attribute can gain. What is found is a local
# best; nothing bounds how far the best of all is. Conjunctions that are forbidden weigh −∞: a start that breaks one
# moves out of it as soon as one attribute alone can.


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


# ----------------------------------------------------------------------------------------------------------------------
# `best_record`: the exact search where it is small enough, else the local one.


@dataclass(frozen=True)
class RecordSearchSettings:
    """How far a record is searched for."""

    largest_table: int = 2**20
    """The most cells, in classes, of a table of the exact search: some milliseconds each."""
    restarts: int = 30
    """Local searches from random records; by trial, no figure kept."""
    sweeps: int = 100
    """Sweeps through all classes in each of them, at most; by trial, no figure kept."""


RECORD_SEARCH = RecordSearchSettings()


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
    largest_table: int = RECORD_SEARCH.largest_table,
    restarts: int = RECORD_SEARCH.restarts,
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
        chosen, weight = good_classes(classes, tables, rng, restarts=restarts, sweeps=RECORD_SEARCH.sweeps)
    if weight == -math.inf:
        raise DeclarationError("no record was found that is not forbidden; forbid fewer records, or search longer")
    return FoundRecord(classes.record(chosen, sizes, rng), weight, order is not None)
