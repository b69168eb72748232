"""The workloads of McKenna et al. (2019), §5.1: 15 random triples of attributes, with prefix queries on numeric ones.

The paper names no triples, but the published ones of Adult tell how they were drawn: of all triples with no more cells
than there are records, in the order of the domain file, 15 without replacement by numpy's `RandomState(0)`. That gives
exactly the paper's number of queries on Titanic and Adult, and on Loans and Stroke a number that differs from the
printed one in a single digit (352,201 for 362,201 and 17,116 for 17,716), so that these, too, may be the paper's own.

Numeric attributes are those in 100 bins, with one more where values are missing, and the ages and hours that have fewer
different values. An attribute that is numeric by nature but has a few values only, such as a number of siblings, is
asked value by value.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.problems.declared_records import DeclaredRecords, column_names, declared_records
from benchmarks.problems.noisy_marginals import ADULT_TRIPLES
from benchmarks.problems.records import ADULT_FINE, SHAPES
from consilience.domain import Query, Workload
from consilience.domain.attributes import Numeric
from consilience.domain.factors import Identity, Prefix

Places = tuple[int, int, int]

TRIPLES: dict[str, tuple[Places, ...]] = {
    "titanic": (
        (0, 3, 7), (8, 0, 5), (0, 1, 6), (0, 3, 6), (0, 4, 6), (1, 3, 4), (0, 7, 6), (1, 4, 7),
        (8, 1, 2), (8, 1, 5), (8, 1, 7), (0, 4, 7), (0, 5, 7), (0, 2, 7), (4, 7, 6),
    ),
    "adult-fine": tuple(
        (list(ADULT_FINE).index(a), list(ADULT_FINE).index(b), list(ADULT_FINE).index(c)) for a, b, c in ADULT_TRIPLES
    ),
    "loans": (
        (18, 30, 41), (25, 11, 19), (17, 23, 9), (25, 13, 19), (17, 40, 12), (20, 47, 7), (1, 24, 13), (22, 47, 41),
        (24, 34, 16), (3, 35, 43), (40, 19, 44), (5, 10, 40), (25, 40, 45), (20, 40, 19), (1, 47, 13),
    ),
    "stroke": (
        (42, 15, 8), (43, 58, 81), (84, 88, 76), (105, 6, 1), (84, 85, 103), (84, 87, 101), (35, 57, 46), (62, 89, 8),
        (28, 10, 9), (29, 88, 15), (62, 87, 8), (56, 15, 11), (42, 76, 11), (29, 23, 92), (84, 51, 95),
    ),
}  # fmt: skip
"""The triples of each table, as places of columns in its file."""

PRINTED_QUERIES = {"titanic": 4_851, "adult-fine": 62_876, "loans": 362_201, "stroke": 17_716}
"""The number of queries in the paper's Table 1."""

FEWER_VALUES = {"titanic": {91}, "adult-fine": {85, 99}, "loans": set(), "stroke": {84}}
"""How many values the numeric attributes have that need fewer than 100 bins: ages, and hours a week."""


@dataclass(frozen=True, eq=False)
class TripleProblem:
    """Records and the prefix queries that are asked about 15 triples of their attributes."""

    name: str
    records: DeclaredRecords
    workload: Workload

    @property
    def queries(self) -> int:
        """The number of single answers."""
        return sum(query.bind(self.records.domain).size for query in self.workload.queries)

    def marginals(self) -> Workload:
        """The same triples as plain marginals."""
        return Workload.of([Query.marginal(*query.attributes) for query in self.workload.queries])


def triple_problem(name: str, *, public_total: bool = True) -> TripleProblem:
    """The problem of a name of TRIPLES; the number of records is public, as the paper has it, unless told."""
    sizes = SHAPES[name][1]
    wide = {100, 101} | FEWER_VALUES[name]
    numeric = [place for place, size in enumerate(sizes) if size in wide]
    records = declared_records(name, numeric=numeric, public_total=public_total)
    columns = column_names(name)
    asked = [asked_about(records, [columns[place] for place in places]) for places in TRIPLES[name]]
    return TripleProblem(name, records, Workload.of(asked))


def asked_about(records: DeclaredRecords, names: Sequence[str]) -> Query:
    """Every value of the unordered attributes by every prefix of the numeric ones."""
    kinds = {name: Prefix() if isinstance(records.domain[name], Numeric) else Identity() for name in names}
    return Query.of({name: kinds[name] for name in records.domain.ordered(names)})


def drawn_triples(sizes: dict[str, int], rows: int, *, number: int = 15) -> list[tuple[str, ...]]:
    """The triples as the paper seems to have drawn them, from the sizes in the order of its domain file."""
    small = [names for names in itertools.combinations(sizes, 3) if math.prod(sizes[name] for name in names) <= rows]
    places = np.random.RandomState(0).choice(len(small), number, replace=False)
    return [small[place] for place in places]
