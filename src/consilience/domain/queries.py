"""Queries: linear questions about some attributes, combined by Kronecker product.

A `Query` is data: it names attributes and labels and can be written to JSON. Most attributes have a factor each; a
joint factor, such as `home==work`, is about several of them together. `bind` joins a query to a domain and gives a
`BoundQuery`, which computes. Answers are arrays with one axis for each factor, in the query's order; attributes the
query does not name are summed over.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from consilience.domain.attributes import Attribute
from consilience.domain.declarations import Declaration, spell, spell_attribute, suggestion
from consilience.domain.domains import Domain
from consilience.domain.factors import (
    Equal,
    Factor,
    Identity,
    JointFactor,
    JointMatrix,
    Level,
    Matrix,
    Range,
    Subset,
    Value,
    factor_from_json,
    joint_name,
)
from consilience.domain.language import FUNCTIONS, QueryParser, together
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import Array, JointMap, Kronecker, LinearMap, SparseMap


@dataclass(frozen=True)
class Query:
    """A factor for each attribute it names, or for several together; the rest of the domain is summed over.

    >>> Query.marginal("age", "sex").describe()
    'age, sex'
    >>> Query.parse("age=25..34 by sex").describe()
    'age=25..34 by sex'
    """

    factors: tuple[tuple[str, Factor], ...]
    """Each factor under its attribute's name; a joint one under `factors.joint_name` of its attributes."""

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for name in self.attributes:
            if name in seen:
                raise DeclarationError(f"the query names the attribute {name!r} twice; combine its conditions into one")
            seen.add(name)
        for name, factor in self.factors:
            if name != joint_name(factor.attributes_of(name)):
                raise DeclarationError(
                    f"the factor {factor.describe(name)} is filed under {name!r}; file it under "
                    f"{joint_name(factor.attributes_of(name))!r}, or use Query.equal and Query.matrix"
                )

    @staticmethod
    def of(factors: Mapping[str, Factor]) -> "Query":
        """A query from a mapping of attribute names to factors."""
        return Query(tuple(factors.items()))

    @staticmethod
    def marginal(*attributes: str) -> "Query":
        """The counts of every combination of values of some attributes; of none, the total."""
        return Query(tuple((name, Identity()) for name in attributes))

    @staticmethod
    def equal(*attributes: str) -> "Query":
        """The number of records that have the same label in all of these attributes: `home==work`.

        >>> Query.equal("home", "work").by("sex").describe()
        'home==work by sex'
        """
        return Query(((joint_name(attributes), Equal(attributes)),))

    @staticmethod
    def matrix(
        attributes: Sequence[str], matrix: Any, *, sizes: Sequence[int] = (), names: Sequence[str] = ()
    ) -> "Query":
        """Weighted sums over the combinations of values of some attributes, given as an array or a sparse matrix.

        The array has an axis for its rows, which may be left out for a single one, and then one for each attribute. A
        SciPy matrix has a column for each combination, the last attribute varying fastest, and needs the `sizes` of the
        attributes. `names` says what the rows are.

        >>> Query.matrix(("before", "after"), [[0, 1, 1], [0, 0, 1], [0, 0, 0]], names=["rose"]).describe()
        'matrix(before, after)'
        """
        if not sp.issparse(matrix):
            array = np.asarray(matrix, dtype=np.float64)
            array = array[None] if array.ndim == len(attributes) else array
            if array.ndim != len(attributes) + 1:
                raise DeclarationError(
                    f"a matrix over {', '.join(attributes)} is given as an array of {np.ndim(matrix)} axes; give one "
                    "for each attribute, with an axis for the rows before them"
                )
            sizes, matrix = array.shape[1:], array.reshape(len(array), -1)
        if len(attributes) == 1:
            return Query(((attributes[0], Matrix.of(matrix, names=names)),))
        return Query(((joint_name(attributes), JointMatrix.of(attributes, sizes, matrix, names=names)),))

    def by(self, *attributes: str) -> "Query":
        """The same query for each combination of values of some more attributes."""
        return Query((*self.factors, *Query.marginal(*attributes).factors))

    @staticmethod
    def parse(text: str) -> "Query":
        """The query that a person typed, such as "age=25..34 by sex"; the language is in the reference.

        A mean is no query but the ratio of two, a median is made of a table: `Question.parse` reads them.
        """
        return Query(QueryParser(text).whole())

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        return tuple(each for name, factor in self.factors for each in factor.attributes_of(name))

    @property
    def is_product(self) -> bool:
        """True where every factor is about one attribute."""
        return not any(isinstance(factor, JointFactor) for _, factor in self.factors)

    def in_order(self) -> "Query":
        """The same query, the attributes of each joint factor by name: `b==a` is `a==b`."""
        factors = (factor.in_order() if isinstance(factor, JointFactor) else factor for _, factor in self.factors)
        pairs = zip(self.factors, factors, strict=True)
        return self if self.is_product else Query(tuple((joint_name(f.attributes_of(n)), f) for (n, _), f in pairs))

    def with_marginals(self) -> "Query":
        """The query with every value of a joint factor's attributes told apart, whose answers it adds up."""
        pairs = (
            (n, Identity() if isinstance(f, JointFactor) else f) for k, f in self.factors for n in f.attributes_of(k)
        )
        return Query(tuple(pairs))

    def refuse_joint(self, who: str) -> None:
        """Refuse a query about several attributes together where a factor for each is needed."""
        if not self.is_product:
            raise DeclarationError(
                f"the query {self.describe()!r} compares attributes with each other, and {who} takes queries that are "
                "products of one condition or list for each attribute; measure it by itself, or ask for the marginal "
                "of these attributes"
            )

    def describe(self) -> str:
        """The query as a person would type it, where the language has words for it."""
        if not self.factors:
            return "total"
        conditions = [factor.describe(name) for name, factor in self.factors if factor.is_condition]
        conditions += [
            factor.within.describe(name)
            for name, factor in self.factors
            if isinstance(factor, Level) and factor.within is not None
        ]
        first = next((i for i, (_, factor) in enumerate(self.factors) if factor.is_condition), len(self.factors))
        head = [factor.describe(name) for name, factor in self.factors[:first]]
        rest = [factor.describe(name) for name, factor in self.factors[first:] if not factor.is_condition]
        where = " where ".join(part for part in (", ".join(head), " and ".join(conditions)) if part)
        return " by ".join(part for part in (where, ", ".join(rest)) if part)

    def bind(self, domain: Domain) -> "BoundQuery":
        """The query over a domain, ready to compute; unknown attributes and values are refused here."""
        query = self.over(domain)
        if not all(domain[name].release for name in query.attributes):
            domain.refuse_unreleased(query.attributes, f"the query {self.describe()!r}")
        maps = tuple(
            factor.bind_over([domain[each] for each in factor.attributes_of(name)]) for name, factor in query.factors
        )
        return BoundQuery(query, domain, Kronecker(maps))

    def over(self, domain: Domain) -> "Query":
        """The same query in the domain's own words: what is measured and recorded.

        Attributes stand in place of their levels, and values in place of the labels that people gave them.
        """
        for name, factor in self.factors:
            if isinstance(factor, Level) and factor.level is not None and name in domain:
                _refuse_unknown_level(domain[name], factor.level)
        known = all(name in domain for name in self.attributes)
        if known and not any(domain[name].wording.labels for name in self.attributes):
            return self
        pairs = (
            (name, factor)
            if isinstance(factor, JointFactor)
            else (name, factor.in_values(domain[name]))
            if name in domain
            else _of_level(domain, name, factor)
            for name, factor in self.factors
        )
        return Query(together(tuple(pairs)))

    def to_json(self) -> dict[str, Any]:
        """The query as plain data."""
        return {
            "factors": [
                {"kind": factor.kind}
                | ({} if isinstance(factor, JointFactor) else {"attribute": name})
                | factor.to_json()
                for name, factor in self.factors
            ]
        }

    @staticmethod
    def from_json(mapping: object, *, where: str = "query") -> "Query":
        """The query that plain data describes; the inverse of `to_json`."""
        declared = Declaration(mapping, where)
        factors = [_named_factor(table) for table in declared.tables("factors")]
        declared.close()
        return Query(tuple(factors))

    def dumps(self) -> str:
        return json.dumps(self.to_json(), sort_keys=True)


def _refuse_unknown_level(attribute: Attribute, level: str) -> None:
    if level not in attribute.levels:
        raise DeclarationError(
            f"{level!r} is no function, and no level of {attribute.name!r}; "
            + suggestion(level, (*FUNCTIONS, *attribute.levels))
        )


def _of_level(domain: Domain, level: str, factor: Factor) -> tuple[str, Factor]:
    """The attribute that has the level, and what the query asks of it: rows of the level, or some of its groups."""
    having = [each for each in domain.attributes if level in each.levels]
    if not having:
        return level, factor.in_values(domain[level])  # refused there: no attribute is called so
    if len(having) > 1:
        ways = " or ".join(f"{spell(level)}({spell_attribute(each.name)})" for each in having)
        raise DeclarationError(f"{level!r} is a level of {len(having)} attributes; write {ways}")
    attribute = having[0]
    groups = attribute.groups(level)
    if isinstance(factor, Identity):
        single = all(len(codes) == 1 for codes in groups.values())
        return attribute.name, factor if single else Level(level)
    if not isinstance(factor, Value | Subset | Range):
        raise DeclarationError(
            f"{factor.describe(level)} asks for a level of {attribute.name!r}; write {factor.describe(attribute.name)}"
        )
    factor = factor.in_values(attribute)
    named = [factor.label] if isinstance(factor, Value) else factor.labels if isinstance(factor, Subset) else []
    for label in named:
        if label not in groups:
            raise DeclarationError(f"{label!r} is no {level} of {attribute.name!r}; {suggestion(label, groups)}")
    return attribute.name, factor


def _named_factor(table: Declaration) -> tuple[str, Factor]:
    """The factor of one JSON table under its name; of joint factors, that of the attributes they list."""
    name = table.text("attribute") if "attribute" in table else None
    factor = factor_from_json(table)
    if not isinstance(factor, JointFactor):
        return table.text("attribute") if name is None else name, factor
    if name is not None:
        table.refuse(f"the kind {factor.kind!r} is about several 'attributes', and names the 'attribute' {name!r}")
    return joint_name(factor.attributes), factor


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
        """One for each factor."""
        return self.operator.maps

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The attributes of each factor: one, or several of a joint factor."""
        return tuple(factor.attributes_of(name) for name, factor in self.query.factors)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """What the axes of the answers are called: the attribute of each factor, or those of a joint one."""
        return tuple(name for name, _ in self.query.factors)

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
        for place, (names_here, each) in enumerate(zip(self.groups, self.maps, strict=True)):
            sizes = self.domain.sizes(names_here)
            own = np.argsort([over.index(name) for name in names_here])
            entries = each.dense().reshape(each.rows, *sizes).transpose(0, *(1 + axis for axis in own))
            shape = [1] * cells.ndim
            shape[place] = each.rows
            for name, size in zip(names_here, sizes, strict=True):
                shape[len(self.maps) + over.index(name)] = size
            cells = cells * entries.reshape(shape)
        return np.broadcast_to(cells, (*self.shape, *self.domain.sizes(over))).reshape(self.size, -1)

    def squared(self) -> "BoundQuery":
        """The same query with every entry of its matrix squared."""
        return BoundQuery(self.query, self.domain, Kronecker(tuple(each.squared() for each in self.maps)))

    @cached_property
    def row_labels(self) -> tuple[tuple[str, ...], ...]:
        """For each factor, what its rows answer."""
        return tuple(
            factor.labels_over([self.domain[each] for each in factor.attributes_of(name)])
            for name, factor in self.query.factors
        )

    @cached_property
    def worded_rows(self) -> tuple[tuple[str, ...], ...]:
        """`row_labels` in the words of titles and labels."""
        return tuple(
            factor.worded_over([self.domain[each] for each in factor.attributes_of(name)])
            for name, factor in self.query.factors
        )

    @property
    def axis_headings(self) -> tuple[str, ...]:
        """What stands above each axis of the answers: titles with units, or names."""
        return tuple(
            factor.heading(self.domain[name]) if name in self.domain else name for name, factor in self.query.factors
        )

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

    def rounded(self, bits: int | None = None, *, digits: int | None = None) -> "BoundQuery":
        """The query with every factor on a public lattice 2^−b, so that answers are exact integers in its units.

        Factors whose entries are integers stay as they are. Others are rounded as matrices; without `bits`, to about
        six digits of their largest entry, or fewer where several factors are real: their digits multiply, and exact
        integers must hold them, or where fewer binary `digits` are left. The choice looks at the declaration alone.
        """
        real = sum(each.lattice_bits > 0 for each in self.maps)
        most = (
            (RELATIVE_LATTICE_BITS, SHARED_LATTICE_BITS)
            if digits is None
            else (min(digits, RELATIVE_LATTICE_BITS),) * 2
        )
        kept = most[0] if real <= 1 else most[1] // real
        factors = tuple(
            (name, _rounded_factor(factor, each, bits, kept, labels))
            for (name, factor), each, labels in zip(self.query.factors, self.maps, self.row_labels, strict=True)
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
    if isinstance(bound, JointMap):
        return JointMatrix.of(factor.attributes_of(""), bound.sizes, bound.rounded(bits).matrix, names=names)
    explicit = bound if isinstance(bound, SparseMap) else SparseMap(sp.csr_array(bound.dense()))
    return Matrix.of(explicit.rounded(bits).matrix, names=names)
