"""Workloads: the weighted queries that a user cares about."""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from consilience.domain.declarations import Declaration
from consilience.domain.domains import Domain
from consilience.domain.factors import Identity, Prefix
from consilience.domain.files import read_toml
from consilience.domain.queries import Query
from consilience.domain.questions import Question
from consilience.errors import DeclarationError


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
    """What was made of texts that are no queries by themselves, such as means."""

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
        pairs = [(query, weight) for each, weight in zip(asked, given, strict=True) for query in each.parts]
        notes = tuple(_parts_in_words(each) for each in asked if each != Question(each.query))
        return Workload(tuple(query for query, _ in pairs), tuple(weight for _, weight in pairs), notes)

    @staticmethod
    def marginals(domain: Domain, *, ways: int, among: Sequence[str] | None = None) -> "Workload":
        """All marginals over `ways` attributes."""
        return Workload.of([Query.marginal(*names) for names in attribute_sets(domain, ways, among)])

    @staticmethod
    def prefixes(domain: Domain, *, ways: int, among: Sequence[str] | None = None) -> "Workload":
        """All `ways`-way tables, cumulated along numbers and dates (McKenna et al. 2019, §5.1)."""
        sets = attribute_sets(domain, ways, among)
        return Workload.of([Query(tuple((name, _by_kind(domain, name)) for name in names)) for names in sets])

    def __iter__(self) -> Iterator[tuple[Query, float]]:
        return iter(zip(self.queries, self.weights, strict=True))

    def __len__(self) -> int:
        return len(self.queries)

    def over(self, domain: Domain) -> "Workload":
        """The same workload in the domain's own words: attributes for their levels, values for their labels."""
        return replace(self, queries=tuple(query.over(domain) for query in self.queries))

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


def _parts_in_words(question: Question) -> str:
    if question.mean_of is None or question.per is None:
        tables = ", and ".join(query.describe() for query in question.parts)
        return f"{question.describe()} stands for what it is made of: {tables}."
    return (
        f"{question.describe()} is a mean, and stands for the two tables that it divides: {question.query.describe()}, "
        f"and {question.per.describe()}. In earlier versions it was the sum alone, which is "
        f"{question.query.describe()} now."
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
    return Prefix() if domain[name].is_ordered else Identity()
