"""Queries: linear questions about some attributes, one factor each, combined by Kronecker product.

A `Query` is data: it names attributes and labels and can be written to JSON. `bind` joins it to a domain and gives a
`BoundQuery`, which computes. Answers are arrays with one axis for each factor, in the query's order; attributes the
query does not name are summed over.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.domain.declarations import Declaration
from consilience.domain.domains import Domain
from consilience.domain.factors import Factor, Identity, Matrix, Mean, Range, factor_from_json
from consilience.domain.language import parse
from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.linear_maps import Array, Kronecker, LinearMap, SparseMap


@dataclass(frozen=True)
class Query:
    """A factor for each attribute it names; the rest of the domain is summed over.

    >>> Query.marginal("age", "sex").describe()
    'age, sex'
    >>> Query.parse("age=25..34 by sex").describe()
    'age=25..34 by sex'
    """

    factors: tuple[tuple[str, Factor], ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for name, _ in self.factors:
            if name in seen:
                raise DeclarationError(f"the query names the attribute {name!r} twice; combine its conditions into one")
            seen.add(name)

    @staticmethod
    def of(factors: Mapping[str, Factor]) -> "Query":
        """A query from a mapping of attribute names to factors."""
        return Query(tuple(factors.items()))

    @staticmethod
    def marginal(*attributes: str) -> "Query":
        """The counts of every combination of values of some attributes; of none, the total."""
        return Query(tuple((name, Identity()) for name in attributes))

    @staticmethod
    def parse(text: str) -> "Query":
        """The query that a person typed, such as "age=25..34 by sex"; the language is in the reference.

        A mean is no query but the ratio of two: `Question.parse` reads it.
        """
        asked = Question.parse(text)
        if asked.per is not None:
            raise DeclarationError(
                f"{text!r} is a mean, which divides {asked.query.describe()!r} by {asked.per.describe()!r}, and here a "
                f"query of sums is needed; ask for {asked.query.describe()!r}, or take the mean from answer_table, "
                "interval or the command line"
            )
        return asked.query

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.factors)

    def describe(self) -> str:
        """The query as a person would type it, where the language has words for it."""
        if not self.factors:
            return "total"
        conditions = [factor.describe(name) for name, factor in self.factors if factor.is_condition]
        first = next((i for i, (_, factor) in enumerate(self.factors) if factor.is_condition), len(self.factors))
        head = [factor.describe(name) for name, factor in self.factors[:first]]
        rest = [factor.describe(name) for name, factor in self.factors[first:] if not factor.is_condition]
        where = " where ".join(part for part in (", ".join(head), " and ".join(conditions)) if part)
        return " by ".join(part for part in (where, ", ".join(rest)) if part)

    def bind(self, domain: Domain) -> "BoundQuery":
        """The query over a domain, ready to compute; unknown attributes and values are refused here."""
        if not all(domain[name].release for name, _ in self.factors):
            domain.refuse_unreleased(self.attributes, f"the query {self.describe()!r}")
        maps = tuple(factor.bind(domain[name]) for name, factor in self.factors)
        return BoundQuery(self, domain, Kronecker(maps))

    def to_json(self) -> dict[str, Any]:
        """The query as plain data."""
        return {
            "factors": [{"kind": factor.kind, "attribute": name} | factor.to_json() for name, factor in self.factors]
        }

    @staticmethod
    def from_json(mapping: object, *, where: str = "query") -> "Query":
        """The query that plain data describes; the inverse of `to_json`."""
        declared = Declaration(mapping, where)
        factors = [(table.text("attribute"), factor_from_json(table)) for table in declared.tables("factors")]
        declared.close()
        return Query(tuple(factors))

    def dumps(self) -> str:
        return json.dumps(self.to_json(), sort_keys=True)


@dataclass(frozen=True)
class Question:
    """A query, or the ratio of two: what a text of the query language asks for."""

    query: Query
    per: Query | None = None
    """What the answers are divided by."""

    @staticmethod
    def parse(text: str) -> "Question":
        """What a person typed, such as "mean(age) by sex".

        >>> asked = Question.parse("mean(age) by sex")
        >>> asked.query.describe(), asked.per.describe()
        ('sum(age), sex', 'age=.. by sex')
        """
        parsed = parse(text)
        query = Query(parsed.factors)
        return Question(query, mean_divisor(query) if parsed.is_mean else None)

    @property
    def mean_of(self) -> str | None:
        """The attribute whose mean this is; None of other questions."""
        if self.per is None or self.per != mean_divisor(self.query):
            return None
        return next(name for name, factor in self.query.factors if isinstance(factor, Mean))

    def describe(self) -> str:
        """The question as a person would type it; "per" stands for `--per`."""
        if self.per is None:
            return self.query.describe()
        name = self.mean_of
        if name is None:
            return f"{self.query.describe()} per {self.per.describe()}"
        word = Mean().describe(name)
        return self.query.describe().replace(word, "mean" + word.removeprefix("sum"), 1)


def mean_divisor(query: Query) -> Query | None:
    """The number of records that a sum over one attribute is about, without those that have no number; else None."""
    if sum(isinstance(factor, Mean) for _, factor in query.factors) != 1:
        return None
    counted = ((name, Range(None, None) if isinstance(factor, Mean) else factor) for name, factor in query.factors)
    return Query(tuple(counted))


@dataclass(frozen=True, eq=False)
class BoundQuery:
    """A query over a domain: a linear operator on the marginal table of its attributes."""

    query: Query
    domain: Domain
    operator: Kronecker

    @property
    def attributes(self) -> tuple[str, ...]:
        return self.query.attributes

    @property
    def maps(self) -> tuple[LinearMap, ...]:
        return self.operator.maps

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the answers."""
        return self.operator.shape_out

    @property
    def size(self) -> int:
        """The number of answers."""
        return math.prod(self.shape)

    @property
    def table_shape(self) -> tuple[int, ...]:
        """The shape of the marginal table that the query acts on."""
        return self.operator.shape_in

    def answer(self, table: Array) -> Array:
        """The answers for a marginal table over the query's attributes, in the query's order."""
        self._check_shape("is asked of a table", table.shape, self.table_shape)
        return self.operator.apply(table)

    def adjoint(self, answers: Array) -> Array:
        """The transposed query: from answers back to the marginal table."""
        self._check_shape("is given answers", answers.shape, self.shape)
        return self.operator.adjoint(answers)

    def _check_shape(self, what: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        if found != wanted:
            raise DeclarationError(f"the query {self.query.describe()!r} {what} of shape {found}; it needs {wanted}")

    def answer_full(self, table: Array) -> Array:
        """The answers for the full table over all the domain's counted attributes."""
        return self.answer(self.marginal_of(table))

    def marginal_of(self, table: Array) -> Array:
        """The full table summed down to the query's attributes, in the query's order."""
        names = self.domain.counted_names
        away = tuple(axis for axis, name in enumerate(names) if name not in self.attributes)
        kept = [name for name in names if name in self.attributes]
        return table.sum(axis=away).transpose([kept.index(name) for name in self.attributes])

    def written_out(self, names: Sequence[str] | None = None) -> Array:
        """The query as a matrix: a row for each answer, a column for each cell of the named attributes.

        Without names, of all counted ones. An entry is the product of the factors' entries, the same for all values of
        the attributes that the query does not name.
        """
        over = self.domain.counted_names if names is None else tuple(names)
        cells: Array = np.ones((1,) * (len(self.maps) + len(over)))
        for place, (name, each) in enumerate(zip(self.attributes, self.maps, strict=True)):
            shape = [1] * cells.ndim
            shape[place], shape[len(self.maps) + over.index(name)] = each.rows, each.columns
            cells = cells * each.dense().reshape(shape)
        return np.broadcast_to(cells, (*self.shape, *self.domain.sizes(over))).reshape(self.size, -1)

    def squared(self) -> "BoundQuery":
        """The same query with every entry of its matrix squared."""
        return BoundQuery(self.query, self.domain, Kronecker(tuple(each.squared() for each in self.maps)))

    @cached_property
    def row_labels(self) -> tuple[tuple[str, ...], ...]:
        """For each factor, what its rows answer."""
        return tuple(factor.row_labels(self.domain[name]) for name, factor in self.query.factors)

    def label_rows(self) -> Iterator[tuple[str, ...]]:
        """The labels of each answer, in the order of the flattened answers."""
        return itertools.product(*self.row_labels)

    @property
    def lattice_bits(self) -> int:
        """A number b such that every exact answer about whole records is a multiple of 2^−b."""
        return sum(each.lattice_bits for each in self.maps)

    @property
    def largest_entry(self) -> float:
        return math.prod(each.largest_entry for each in self.maps)

    def rounded(self, bits: int | None = None) -> "BoundQuery":
        """The query with every factor on a public lattice 2^−b, so that answers are exact integers in its units.

        Factors whose entries are integers stay as they are. Others are rounded as matrices; without `bits`, to about
        six digits of their largest entry, or fewer where several factors are real: their digits multiply, and exact
        integers must hold them. The choice looks at the declaration alone.
        """
        real = sum(each.lattice_bits > 0 for each in self.maps)
        kept = RELATIVE_LATTICE_BITS if real <= 1 else SHARED_LATTICE_BITS // real
        factors = tuple(
            (name, _rounded_factor(factor, each, bits, kept, factor.row_labels(self.domain[name])))
            for (name, factor), each in zip(self.query.factors, self.maps, strict=True)
        )
        return Query(factors).bind(self.domain)


RELATIVE_LATTICE_BITS = 20
"""Rounding keeps this many bits below the largest entry of a factor: a relative error of 10⁻⁶."""

SHARED_LATTICE_BITS = 26
"""Where several factors are real they share this many."""


def _rounded_factor(factor: Factor, bound: LinearMap, bits: int | None, kept: int, names: Sequence[str]) -> Factor:
    """The factor itself where it lies on the lattice, else rounded: by itself, or as a matrix with the same names."""
    if not bound.lattice_bits:
        return factor
    if bits is None:
        bits = max(0, kept - math.floor(math.log2(bound.largest_entry)))
    if bound.lattice_bits <= bits:
        return factor
    coarser = factor.on_lattice(bits)
    if coarser is not None:
        return coarser
    explicit = bound if isinstance(bound, SparseMap) else SparseMap(sp.csr_array(bound.dense()))
    return Matrix.of(explicit.rounded(bits).matrix, names=names)


# ----------------------------------------------------------------------------------------------------------------------
# The single answers of a workload, where each of them counts the records of a set.
#
# A marginal, a prefix, a range or a subset is a matrix of zeros and ones, and so is every Kronecker product of them: a
# single answer is the number of records that meet one condition on each of the query's attributes. Such answers have
# complements, can be asked of one record, and can be searched over. Answers that count nothing, or every record that
# can be, tell nothing about the records and are left out.


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
