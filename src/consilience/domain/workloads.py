"""Workloads: the weighted queries that a user cares about."""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Numeric
from consilience.domain.declarations import Declaration
from consilience.domain.domains import Domain
from consilience.domain.factors import Identity, Prefix
from consilience.domain.files import read_toml
from consilience.domain.queries import BoundQuery, Query, Question
from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.linear_maps import Kronecker


@dataclass(frozen=True)
class Workload:
    """Queries with weights: how much each one matters.

    >>> domain = Domain.from_sizes({"a": 2, "b": 3, "c": 2})
    >>> [query.describe() for query, _ in Workload.marginals(domain, ways=2)]
    ['a, b', 'a, c', 'b, c']
    """

    queries: tuple[Query, ...]
    weights: tuple[float, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What was made of texts that are no queries by themselves: means."""

    def __post_init__(self) -> None:
        if len(self.queries) != len(self.weights):
            raise DeclarationError(
                f"{len(self.queries)} queries were given {len(self.weights)} weights; give one for each"
            )
        for query, weight in zip(self.queries, self.weights, strict=True):
            if not 0 < weight < float("inf"):
                raise DeclarationError(
                    f"the query {query.describe()!r} has weight {weight}; a weight is above 0 and finite"
                )

    @staticmethod
    def of(queries: Iterable[Query | str], *, weights: Sequence[float] | None = None) -> "Workload":
        """A workload of queries, or of texts in the query language; equal weights unless given."""
        asked = [Question.parse(query) if isinstance(query, str) else Question(query) for query in queries]
        given = [1.0] * len(asked) if weights is None else list(weights)
        if len(given) != len(asked):
            raise DeclarationError(f"{len(asked)} queries were given {len(given)} weights; give one for each")
        pairs = [
            (query, weight)
            for each, weight in zip(asked, given, strict=True)
            for query in (each.query, each.per)
            if query is not None
        ]
        notes = tuple(_mean_in_words(each) for each in asked if each.per is not None)
        return Workload(tuple(query for query, _ in pairs), tuple(weight for _, weight in pairs), notes)

    @staticmethod
    def marginals(domain: Domain, *, ways: int, among: Sequence[str] | None = None) -> "Workload":
        """All marginals over `ways` attributes."""
        return Workload.of([Query.marginal(*names) for names in attribute_sets(domain, ways, among)])

    @staticmethod
    def prefixes(domain: Domain, *, ways: int, among: Sequence[str] | None = None) -> "Workload":
        """All `ways`-way tables, cumulated along their numeric attributes (McKenna et al. 2019, §5.1)."""
        sets = attribute_sets(domain, ways, among)
        return Workload.of([Query(tuple((name, _by_kind(domain, name)) for name in names)) for names in sets])

    def __iter__(self) -> Iterator[tuple[Query, float]]:
        return iter(zip(self.queries, self.weights, strict=True))

    def __len__(self) -> int:
        return len(self.queries)

    def check(self, domain: Domain) -> None:
        """Refuse queries that do not fit the domain."""
        for query in self.queries:
            query.bind(domain)

    def to_json(self) -> dict[str, Any]:
        return {"queries": [query.to_json() | {"weight": weight} for query, weight in self]}

    @staticmethod
    def from_json(mapping: object, *, where: str = "workload") -> "Workload":
        """The workload that plain data describes: queries as texts (`ask`) or as factors, each with a weight."""
        declared = Declaration(mapping, where)
        queries: list[Query | str] = []
        weights = []
        for table in declared.tables("queries"):
            weights.append(table.number("weight") if "weight" in table else 1.0)
            if "factors" in table:
                queries.append(Query.from_json({"factors": table.raw("factors")}, where=table.where))
            else:
                queries.append(table.text("ask"))
            table.close()
        declared.close()
        return Workload.of(queries, weights=weights)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Workload":
        """The workload of a TOML file: `[[queries]]` tables with `ask = "age by sex"` and an optional `weight`."""
        mapping = read_toml(path, what="workload file", hint="check the path")
        return Workload.from_json(mapping, where=Path(path).name)


def _mean_in_words(question: Question) -> str:
    per = "" if question.per is None else question.per.describe()
    return (
        f"{question.describe()} is a mean, and stands for the two tables that it divides: {question.query.describe()}, "
        f"and {per}. In earlier versions it was the sum alone, which is {question.query.describe()} now."
    )


def is_workload_file(path: Path) -> bool:
    """True of a TOML file that lists queries."""
    return "queries" in read_toml(path, what="domain or workload file", hint="check the path")


def attribute_sets(domain: Domain, ways: int, among: Sequence[str] | None = None) -> list[tuple[str, ...]]:
    """All sets of `ways` attributes, in the domain's order."""
    names = domain.counted_names if among is None else domain.ordered(among)
    if not 0 <= ways <= len(names):
        raise DeclarationError(f"{ways}-way marginals were asked for, but there are {len(names)} attributes")
    return list(itertools.combinations(names, ways))


def _by_kind(domain: Domain, name: str) -> Identity | Prefix:
    return Prefix() if isinstance(domain[name], Numeric) else Identity()


# ----------------------------------------------------------------------------------------------------------------------
# The single answers of a workload, where each of them counts the records of a set.
#
# A marginal, a prefix, a range or a subset is a matrix of zeros and ones, and so is every Kronecker product of them: a
# single answer is the number of records that meet one condition on each of the query's attributes. Such answers have
# complements, can be asked of one record, and can be searched over. Answers that count nothing, or every record that
# can be, tell nothing about the records and are left out.


MOST_ANSWERS = 5_000_000

Array = NDArray[Any]


class AnswerSets:
    """Every single answer of a workload as a set of records; queries that do not count sets are refused.

    >>> domain = Domain.from_sizes({"a": 2, "b": 3})
    >>> sets = AnswerSets(Workload.marginals(domain, ways=2), domain)
    >>> len(sets), sets.holding([1, 2]).tolist()
    (6, [0, 0, 0, 0, 0, 1])
    """

    def __init__(self, workload: Workload, domain: Domain) -> None:
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
