"""Queries over a domain: answers, transposes, labels, lattices and JSON."""

import itertools
import json
from fractions import Fraction

import numpy as np
import pytest

from consilience.domain import Attribute, BoundQuery, Domain, Query, factors
from consilience.errors import DeclarationError

DOMAIN = Domain(
    "people",
    (
        Attribute.numeric("age", [0, 10, 20, 30], missing="Unknown"),
        Attribute.categorical("sex", ["F", "M"]),
        Attribute.continuous("height", (0, 3)),
        Attribute.numeric("income", [0.0, 0.1, 0.7, 3.3], unlisted="drop"),
    ),
)
QUERIES = {
    "total": Query.marginal(),
    "full": Query.marginal("age", "sex", "income"),
    "reordered": Query.marginal("income", "age"),
    "one condition": Query.of({"sex": factors.Value("F"), "age": factors.Prefix()}),
    "three factors": Query.of({"income": factors.Mean(), "age": factors.Haar(), "sex": factors.Total()}),
    "ranges": Query.of({"age": factors.AllRanges(), "income": factors.Tree(2)}),
    "matrix": Query.of({"sex": factors.Matrix.of([[1, -1], [0.5, 0.25], [0, 3]])}),
}


def dense(bound: BoundQuery) -> np.ndarray:
    """The query's matrix over its own marginal table, by the Kronecker product."""
    matrix = np.ones((1, 1))
    for each in bound.maps:
        matrix = np.kron(matrix, each.dense())
    return matrix


def full_table() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 1000, DOMAIN.shape)


@pytest.mark.parametrize("name", QUERIES)
def test_answers_are_those_of_the_kronecker_product(name: str) -> None:
    bound = QUERIES[name].bind(DOMAIN)
    rng = np.random.default_rng(1)
    table, answers = rng.integers(0, 99, bound.table_shape), rng.normal(size=bound.shape)
    np.testing.assert_allclose(np.ravel(bound.answer(table)), dense(bound) @ np.ravel(table), rtol=1e-12)
    np.testing.assert_allclose(np.ravel(bound.adjoint(answers)), dense(bound).T @ np.ravel(answers), atol=1e-10)
    assert np.vdot(bound.answer(table), answers) == pytest.approx(np.vdot(table, bound.adjoint(answers)))


@pytest.mark.parametrize("name", QUERIES)
def test_answers_from_the_full_table_sum_over_what_is_not_named(name: str) -> None:
    bound = QUERIES[name].bind(DOMAIN)
    table = full_table()
    letters = dict(zip(DOMAIN.counted_names, "abc", strict=True))
    wanted = "".join(letters[each] for each in bound.attributes)
    marginal = np.einsum(f"abc->{wanted}", table)
    np.testing.assert_array_equal(bound.marginal_of(table), marginal)
    np.testing.assert_array_equal(bound.answer_full(table), bound.answer(np.asarray(marginal)))


@pytest.mark.parametrize("name", QUERIES)
def test_each_answer_has_its_labels(name: str) -> None:
    bound = QUERIES[name].bind(DOMAIN)
    rows = list(bound.label_rows())
    assert len(rows) == bound.size
    assert rows == list(itertools.product(*bound.row_labels))


def test_the_labels_of_a_marginal_name_its_cells() -> None:
    bound = Query.marginal("sex", "age").bind(DOMAIN)
    table = np.zeros((2, 4))
    table[1, 3] = 1
    answers = bound.answer(table).ravel()
    assert list(bound.label_rows())[int(answers.argmax())] == ("M", "Unknown")


@pytest.mark.parametrize("name", QUERIES)
def test_queries_survive_json(name: str) -> None:
    query = QUERIES[name]
    assert Query.from_json(json.loads(query.dumps())) == query
    assert Query.from_json(json.loads(json.dumps(query.to_json()))) == query


@pytest.mark.parametrize("shape", [(4,), (2, 4), (4, 2, 1), ()])
def test_tables_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    bound = Query.marginal("age", "sex").bind(DOMAIN)
    with pytest.raises(DeclarationError, match=r"needs \(4, 2\)"):
        bound.answer(np.zeros(shape))
    with pytest.raises(DeclarationError, match=r"needs \(4, 2\)"):
        bound.adjoint(np.zeros(shape))


def test_the_total_is_not_answered_from_a_table_with_axes() -> None:
    with pytest.raises(DeclarationError, match=r"'total' is asked of a table of shape \(4,\)"):
        Query.marginal().bind(DOMAIN).answer(np.zeros(4))


# Lattices: entries are multiples of 2^−b, so that integer counts have integer answers in units of 2^−b.

REAL_QUERIES = {
    "mean": Query.of({"income": factors.Mean()}),
    "moments": Query.of({"income": factors.Moments(3)}),
    "mean of whole numbers": Query.of({"age": factors.Mean()}),
    "matrix": Query.of({"sex": factors.Matrix.of([[0.1, 1 / 3], [2.5, -7.7]], names=["p", "q"])}),
    "product": Query.of({"income": factors.Mean(), "sex": factors.Matrix.of([[0.1, 1 / 3]])}),
    "tiny entries": Query.of({"sex": factors.Matrix.of([[1e-9, 1.7e-9]])}),
    "huge entries": Query.of({"sex": factors.Matrix.of([[1e9 + 0.3, 1.0]])}),
}


def exact_answers(bound: BoundQuery, table: np.ndarray) -> list[Fraction]:
    rows = [[Fraction(entry) for entry in row] for row in dense(bound).tolist()]
    return [sum((a * int(n) for a, n in zip(row, table.ravel(), strict=True)), Fraction()) for row in rows]


@pytest.mark.parametrize("bits", [None, 4, 12])
@pytest.mark.parametrize("name", REAL_QUERIES)
def test_rounded_queries_have_integer_answers_in_lattice_units(name: str, bits: int | None) -> None:
    rounded = REAL_QUERIES[name].bind(DOMAIN).rounded(bits)
    units = dense(rounded) * 2.0**rounded.lattice_bits
    np.testing.assert_array_equal(units, np.round(units))
    table = np.random.default_rng(9).integers(0, 1000, rounded.table_shape)
    answers = rounded.answer(table).ravel() * 2.0**rounded.lattice_bits
    np.testing.assert_array_equal(answers, np.round(answers))
    assert [Fraction(float(each)) for each in answers] == [
        each * 2**rounded.lattice_bits for each in exact_answers(rounded, table)
    ]


@pytest.mark.parametrize("name", REAL_QUERIES)
def test_rounding_keeps_six_digits_of_the_largest_entry_and_fewer_where_factors_share_them(name: str) -> None:
    bound = REAL_QUERIES[name].bind(DOMAIN)
    real = sum(each.lattice_bits > 0 for each in bound.maps)
    error = 2e-6 if real == 1 else 4e-4
    rounded = bound.rounded()
    assert np.abs(dense(rounded) - dense(bound)).max() <= error * bound.largest_entry
    assert rounded.largest_entry == pytest.approx(bound.largest_entry, rel=error)


def test_bits_bound_the_lattice_of_each_factor() -> None:
    for name, query in REAL_QUERIES.items():
        assert query.bind(DOMAIN).rounded(4).lattice_bits <= 4 * len(query.factors), name
    sixteenth = Query.of({"sex": factors.Matrix.of([[1 / 16, 1.0]])}).bind(DOMAIN)
    assert [sixteenth.rounded(bits).lattice_bits for bits in (3, 4, 5)] == [0, 4, 4]


def test_rounding_leaves_integer_queries_and_queries_on_the_lattice_alone() -> None:
    for name in ("total", "full", "one condition", "ranges"):
        assert QUERIES[name].bind(DOMAIN).rounded().query == QUERIES[name]
        assert QUERIES[name].bind(DOMAIN).lattice_bits == 0
    mean = Query.of({"age": factors.Mean()})
    assert mean.bind(DOMAIN).lattice_bits == 1
    assert mean.bind(DOMAIN).rounded().query == mean


def test_rounded_queries_keep_the_labels_of_their_rows() -> None:
    for query in REAL_QUERIES.values():
        bound = query.bind(DOMAIN)
        assert bound.rounded().row_labels == bound.row_labels


def test_rounding_does_not_build_dense_matrices() -> None:
    wide = Domain.from_sizes({"a": 2**16})
    entries = tuple((row, row, 1 / 3) for row in range(2**16))
    rounded = Query.of({"a": factors.Matrix(2**16, entries)}).bind(wide).rounded()
    assert rounded.largest_entry == pytest.approx(1 / 3, rel=1e-6)


BAD_JSON: list[tuple[object, list[str]]] = [
    ([], ["query", "found a list"]),
    ({}, ["'factors' is missing"]),
    ({"factors": "age"}, ["list of tables", "'age'"]),
    ({"factors": [3]}, ["query.factors[0]", "found 3"]),
    ({"factors": [], "extra": 1}, ["'extra' is not known"]),
    ({"factors": [{"attribute": "age"}]}, ["'kind' is missing"]),
    ({"factors": [{"kind": "identity"}]}, ["'attribute' is missing"]),
    ({"factors": [{"kind": "identiti", "attribute": "age"}]}, ["'identiti'", "did you mean 'identity'?"]),
    ({"factors": [{"kind": "identity", "attribute": "age", "lable": 1}]}, ["'lable' is not known here"]),
    ({"factors": [{"kind": "value", "attribute": "age", "label": 3}]}, ["'label' must be a text", "found 3"]),
    ({"factors": [{"kind": "subset", "attribute": "age", "labels": "x"}]}, ["'labels' must be a list of texts"]),
    ({"factors": [{"kind": "subset", "attribute": "age", "labels": ["x", 3]}]}, ["list of texts", "found 3 in it"]),
    ({"factors": [{"kind": "moments", "attribute": "age", "order": 1.5}]}, ["whole number", "1.5"]),
    ({"factors": [{"kind": "tree", "attribute": "age", "branching": True}]}, ["whole number", "True"]),
    ({"factors": [{"kind": "matrix", "attribute": "age", "rows": 1, "entries": {}}]}, ["list of [row, code, value]"]),
    ({"factors": [{"kind": "matrix", "attribute": "age", "rows": 1, "entries": [[0, 1]]}]}, ["found [0, 1] in it"]),
    ({"factors": [{"kind": "matrix", "attribute": "age", "rows": 1, "entries": [[0.5, 1, 1]]}]}, ["whole numbers"]),
    ({"factors": [{"kind": "buckets", "attribute": "age", "groups": [{"name": "x"}]}]}, ["'labels' is missing"]),
    ({"factors": [{"kind": "identity", "attribute": "age"}] * 2}, ["'age' twice"]),
]


@pytest.mark.parametrize(("mapping", "fragments"), BAD_JSON)
def test_json_that_is_no_query_is_refused(mapping: object, fragments: list[str]) -> None:
    with pytest.raises(DeclarationError) as caught:
        Query.from_json(mapping)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_unknown_attributes_are_refused_with_the_nearest() -> None:
    with pytest.raises(DeclarationError, match="no attribute 'agee'; did you mean 'age'"):
        Query.marginal("agee").bind(DOMAIN)


def test_an_attribute_can_be_named_once() -> None:
    with pytest.raises(DeclarationError, match="'sex' twice; combine"):
        Query.marginal("sex", "sex")


def test_continuous_attributes_have_no_cells_to_query() -> None:
    with pytest.raises(DeclarationError, match="'height' is continuous"):
        Query.marginal("height").bind(DOMAIN)
