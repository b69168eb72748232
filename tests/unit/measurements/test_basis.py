"""What answers stand on, against its definition written out cell by cell."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import consilience as cs
from consilience.domain import Domain, Query
from consilience.domain.factors import (
    AllRanges,
    Buckets,
    Fourier,
    Haar,
    Identity,
    Intervals,
    Matrix,
    Mean,
    Moments,
    Nominal,
    Prefix,
    Range,
    Subset,
    Total,
    Tree,
    Value,
)
from consilience.domain.public_facts import PublicFacts, PublicMargin
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, PrefixMap
from consilience.measurements import DiscreteLaplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.measurements.basis import BASES, Basis, basis
from consilience.measurements.row_spaces import RowSpace, alike

NUMBERS = cs.Attribute.numeric("n", edges=[0, 1, 2, 3, 4])
DOMAIN = Domain("d", (*Domain.from_sizes({"a": 2, "b": 3, "c": 2}).attributes, NUMBERS))

FACTORS = {
    name: st.sampled_from(
        [
            Identity(), Total(), Value("1"), Subset(("0", "1")), Prefix(), AllRanges(), Haar(), Nominal(),
            Matrix.of(np.eye(size)[:1] - np.eye(size)[1:2]), Matrix.of(np.ones((2, size))), Fourier(1), Fourier(2),
            Buckets.of({"low": ["0"], "high": [str(code) for code in range(1, size)]}), Tree(2), Tree(2, 1),
        ]
    )
    for name, size in (("a", 2), ("b", 3), ("c", 2))
}  # fmt: skip
FACTORS["n"] = st.sampled_from([Identity(), Range("1", "2"), Mean(), Moments(2), Intervals(("0", "2"))])


@st.composite
def queries(draw: st.DrawFn) -> Query:
    names = draw(st.lists(st.sampled_from(list(FACTORS)), unique=True, max_size=3))
    return Query.of({name: draw(FACTORS[name]) for name in names})


def measured(*asked: Query | str, domain: Domain = DOMAIN, **provenance: object) -> MeasurementSet:
    found = [Query.parse(each) if isinstance(each, str) else each for each in asked]
    made = [Measurement(each, np.zeros(each.bind(domain).size), cs.Laplace(1.0)) for each in found]
    return MeasurementSet(domain, tuple(made), PrivacyStatement(), provenance)


def by_definition(known: list[Query], query: Query) -> list[str]:
    """The definition of each basis, on the full table: spans by rank, values and attributes by what changes."""
    names, cells = DOMAIN.counted_names, DOMAIN.cells
    rows = [each.bind(DOMAIN).written_out() for each in known]
    stack = np.concatenate([np.zeros((0, cells)), *rows])
    rank = np.linalg.matrix_rank(stack) if stack.size else 0
    links = {name: {name} for name in names}
    for matrix in rows:
        telling = [name for axis, name in enumerate(names) if _spread(matrix, axis)]
        joined = set().union(*(links[name] for name in telling))
        links |= dict.fromkeys(joined, joined)
    found = []
    for row in query.bind(DOMAIN).written_out():
        asked = [axis for axis in range(len(names)) if _spread(row[None], axis)]
        told = all(
            any(_differs(matrix, axis, pair) for matrix in rows)
            for axis in asked
            for pair in itertools.combinations(range(DOMAIN.shape[axis]), 2)
            if _differs(row[None], axis, pair)
        )
        linked = all(names[other] in links[names[axis]] for axis in asked for other in asked)
        if np.linalg.matrix_rank(np.vstack([stack, row])) == rank:
            found.append("measured")
        else:
            found.append("modelled" if known and told and linked else "not measured")
    return found


def _differs(matrix: np.ndarray, axis: int, pair: tuple[int, int]) -> bool:
    table = matrix.reshape(len(matrix), *DOMAIN.shape)
    return not np.allclose(table.take(pair[0], axis + 1), table.take(pair[1], axis + 1))


def _spread(matrix: np.ndarray, axis: int) -> bool:
    return any(_differs(matrix, axis, pair) for pair in itertools.combinations(range(DOMAIN.shape[axis]), 2))


@settings(max_examples=40, deadline=None)
@given(st.lists(queries(), max_size=5), queries())
def test_every_answer_has_the_basis_that_the_definition_gives_it(known: list[Query], query: Query):
    assert list(basis(measured(*known), query).names) == by_definition(known, query)


def test_every_answer_of_a_query_has_a_basis_of_its_own():
    found = basis(measured("n=1..2"), "ranges(n)")
    by_label = dict(zip(Query.parse("ranges(n)").bind(DOMAIN).row_labels[0], found.names, strict=True))
    assert [label for label, name in by_label.items() if name == "measured"] == ["1 to 2"]
    assert sorted(set(found.names)) == ["measured", "modelled", "not measured"]


@pytest.mark.parametrize(
    ("known", "query", "per", "expected"),
    [
        (["by a", "by b"], "by a, b", None, "not measured"),
        (["by a, b", "by b, c"], "by a, c", None, "modelled"),
        (["by a, b", "by b, c"], "by a, b, c", None, "modelled"),
        (["by a, b"], "by c", None, "not measured"),
        (["by a, b"], "total", None, "measured"),
        (["a=0 by b"], "by b", None, "modelled"),
        (["by a, b"], "a=0 by b", "by b", "measured"),
        (["by a, b"], "by b", "c=0", "not measured"),
        (["by a", "by n"], "sum(n) by a", "by a", "not measured"),
        (["by a, n"], "sum(n) by a", "by a", "measured"),
        ([], "total", None, "not measured"),
    ],
)
def test_the_basis_of_a_query_is_that_of_its_worst_answer(known, query, per, expected):
    assert basis(measured(*known), query, per).worst == expected


def test_public_facts_are_known_and_impossible_cells_are_no_evidence():
    facts = PublicFacts(10.0, (PublicMargin(("c",), (4.0, 6.0)),))
    rule = cs.Domain.from_declaration(DOMAIN.to_declaration() | {"impossible": [{"a": ["0"], "b": ["1"]}]}).impossible
    domain = Domain("d", DOMAIN.attributes, rule, facts)
    found = [basis(measured("by a", "by b", domain=domain), text).worst for text in ("by c", "total", "by a, b")]
    assert found == ["measured", "measured", "not measured"]


def test_what_was_withheld_is_modelled_and_what_was_released_is_measured():
    values = np.array([5.0, 9.0, np.nan])
    withheld = Measurement(
        Query.marginal("b"), values, DiscreteLaplace(1.0), threshold=3.0, censored=np.array([False, False, True])
    )
    found = MeasurementSet(DOMAIN, (withheld,))
    assert basis(found, "by b").names == ("measured", "measured", "modelled")
    assert basis(found, "b=0").worst == "modelled"


def test_values_in_a_bin_that_a_plan_cut_by_looking_at_each_are_modelled():
    bins = Query.of({"n": Intervals(("0", "2"))})
    assert basis(measured(bins), "by n").worst == "not measured"
    assert basis(measured(bins, plan={"plan": "dawa", "attribute": "n"}), "by n").worst == "modelled"
    assert basis(measured(bins, merged=[{"plan": {"plan": "php", "attribute": "n"}}]), "by n").worst == "modelled"


def test_the_reason_names_what_is_missing_and_what_to_measure():
    found = basis(measured("by a, b", "by c"), "by a, c, n")
    assert found.why() == "'n' was never measured, and no measurement links 'a' with 'c'"
    assert found.next_time() == ("by a, c, n",)
    found = basis(measured("by a", "n=1..2"), "by n")
    assert found.explain() == (
        "not measured: no measurement tells the values of 'n' apart that are asked for; next time, measure \"by n\""
    )
    assert basis(measured("by a"), "by a").why() == ""


def test_many_attributes_and_pairs_take_no_large_table():
    domain = Domain.from_sizes({f"x{i}": 50 for i in range(300)})
    pairs = [Query.marginal(f"x{i}", f"x{i + 1}") for i in range(298)]
    found = measured(*pairs, domain=domain)
    assert basis(found, "by x0, x1").worst == "measured"
    assert basis(found, "by x0, x298").worst == "modelled"
    assert basis(found, "by x0, x299").worst == "not measured"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), st.booleans())
def test_spaces_of_many_columns_are_searched_like_small_ones(groups: list[int], drop: bool):
    codes = np.unique(groups, return_inverse=True)[1]
    space = RowSpace.of_groups(codes)
    if drop and not space.full:
        space = RowSpace(space.columns, basis=space.basis[:, 1:])
    for asked in (IdentityMap(len(codes)), PrefixMap(len(codes)), AllRangesMap(len(codes))):
        exact = space.contains(asked)
        large = exact if space.full else space._contains_large(asked)
        contiguous = np.all(np.diff(codes) >= 0)
        assert np.all(exact >= large)
        if isinstance(asked, IdentityMap) or (contiguous and not drop):
            np.testing.assert_array_equal(exact, large)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 10**6))
def test_columns_are_alike_where_no_row_differs(rows: int, columns: int, seed: int):
    matrix = np.random.default_rng(seed).integers(0, 2, (rows, columns)).astype(float)
    groups = alike([Matrix.of(matrix).bind(Domain.from_sizes({"x": columns})["x"])], columns)
    for one, other in itertools.combinations(range(columns), 2):
        assert (groups[one] == groups[other]) == np.array_equal(matrix[:, one], matrix[:, other])


def test_bases_go_from_the_best_to_the_worst():
    assert [Basis(np.array([0, place], dtype=np.int8)).worst for place in range(4)] == list(BASES)
