"""The single answers of a workload, where each of them counts the records of a set.

A marginal, a prefix, a range or a subset is a matrix of zeros and ones, and so is every Kronecker product of them: a
single answer is the number of records that meet one condition on each of the query's attributes. Such answers have
complements, can be asked of one record, and can be searched over. Answers that count nothing, or every record that can
be, tell nothing about the records and are left out.
"""

import itertools
from collections.abc import Sequence
from functools import reduce
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery, Query
from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.linear_maps import Array, Kronecker

MOST_ANSWERS = 5_000_000


class WeightedQueries(Protocol):
    """What a workload says of itself: its queries, and how much each matters."""

    @property
    def queries(self) -> tuple[Query, ...]: ...
    @property
    def weights(self) -> tuple[float, ...]: ...
    def to_json(self) -> dict[str, Any]: ...


class AnswerSets:
    """Every single answer of a workload as a set of records; queries that do not count sets are refused.

    >>> from consilience import Workload
    >>> domain = Domain.from_sizes({"a": 2, "b": 3})
    >>> sets = AnswerSets(Workload.marginals(domain, ways=2), domain)
    >>> len(sets), sets.holding([1, 2]).tolist()
    (6, [0, 0, 0, 0, 0, 1])
    """

    def __init__(self, workload: WeightedQueries, domain: Domain) -> None:
        self.domain = domain
        self.workload = workload
        self.bounds = tuple(query.bind(domain) for query in workload.queries)
        answers = sum(bound.size for bound in self.bounds)
        if answers > MOST_ANSWERS:
            raise TooLarge(
                f"the workload has {answers:,} single answers, and up to {MOST_ANSWERS:,} are taken; name fewer "
                "queries, or coarser ones"
            )
        for bound in self.bounds:
            bound.query.refuse_joint("a search over sets of records")
            _refuse_weighted_records(bound)
        # Integer matrices, under which whole numbers stay whole numbers.
        self._operators = tuple(Kronecker(tuple(each.in_lattice_units() for each in b.maps)) for b in self.bounds)
        self.kept = tuple(_telling(bound) for bound in self.bounds)
        self.starts = tuple(itertools.accumulate((each.size for each in self.kept), initial=0))
        if not len(self):
            raise DeclarationError("the workload asks for nothing but the total; name queries that tell records apart")
        names = domain.counted_names
        self.places = tuple(tuple(names.index(name) for name in bound.attributes) for bound in self.bounds)

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        """The attributes of the queries, each combination once."""
        return tuple(dict.fromkeys(bound.attributes for bound in self.bounds))

    def answers(self, tables: Sequence[Array]) -> Array:
        """The answers from the tables of `marginals`, of whole numbers where these are."""
        given = dict(zip(self.marginals, tables, strict=True))
        parts = zip(self.bounds, self._operators, self.kept, strict=True)
        return np.concatenate([each.apply(given[bound.attributes]).ravel()[kept] for bound, each, kept in parts])

    def adjoint(self, weights: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """The sum of the sets with these weights, as tables of `marginals`."""
        found: dict[tuple[str, ...], NDArray[np.float64]] = {}
        ends = itertools.pairwise(self.starts)
        for bound, kept, (start, end) in zip(self.bounds, self.kept, ends, strict=True):
            full = np.zeros(bound.size)
            full[kept] = weights[start:end]
            table = np.asarray(bound.adjoint(full.reshape(bound.shape)), dtype=np.float64)
            found[bound.attributes] = found[bound.attributes] + table if bound.attributes in found else table
        return [found[names] for names in self.marginals]

    def holding(self, codes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.uint8]:
        """1 for each set that holds a record, given by its code of each counted attribute; else 0."""
        parts = []
        for bound, kept, places in zip(self.bounds, self.kept, self.places, strict=True):
            columns = [each.apply(_unit(each.columns, codes[p]), 0) for each, p in zip(bound.maps, places, strict=True)]
            parts.append(_product(columns).astype(np.uint8)[kept])
        return np.concatenate(parts)

    def members(self, answer: int) -> tuple[tuple[int, NDArray[np.bool_]], ...]:
        """The conditions of one set: for each attribute, by its place among the counted ones, the values meant."""
        if not 0 <= answer < len(self):
            raise IndexError(f"the workload has {len(self)} single answers, number {answer} is none of them")
        which = int(np.searchsorted(self.starts, answer, side="right")) - 1
        bound = self.bounds[which]
        rows = np.unravel_index(self.kept[which][answer - self.starts[which]], bound.shape)
        parts = zip(self.places[which], bound.maps, rows, strict=True)
        return tuple((place, each.adjoint(_unit(each.rows, row), 0) > 0) for place, each, row in parts)


def _refuse_weighted_records(bound: BoundQuery) -> None:
    if not all(each.nonnegative and each.lattice_bits == 0 and each.largest_entry <= 1 for each in bound.maps):
        raise DeclarationError(
            f"the query {bound.query.describe()!r} weighs records by numbers other than 0 and 1, and each answer is to "
            "count a set of records; ask for marginals, prefixes, ranges or subsets"
        )


def _telling(bound: BoundQuery) -> NDArray[np.intp]:
    """The rows that hold some cell and leave some cell out."""
    held = _product([np.asarray(each.apply(np.ones(each.columns), 0)) for each in bound.maps])
    cells = float(np.prod([float(each.columns) for each in bound.maps]))
    return np.flatnonzero((held > 0.5) & (held < cells - 0.5))


def _product(parts: Sequence[Array]) -> Array:
    """The flat outer product of vectors."""
    return reduce(lambda one, other: np.multiply.outer(one, other).ravel(), parts, np.ones(1))


def _unit(size: int, place: Any) -> NDArray[np.float64]:
    unit = np.zeros(size)
    unit[place] = 1.0
    return unit
