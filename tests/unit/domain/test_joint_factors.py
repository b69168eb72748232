"""Queries about several attributes together, against their definition written out cell by cell."""

import itertools
import json
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.answer_sets import AnswerSets
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import IdentityMap, JointMap, Kronecker, PrefixMap, SumMap
from consilience.plans.answering import single_row

DOMAIN = Domain(
    "commuters",
    (
        Attribute.categorical("home", ["A", "B", "C"], missing="Unknown"),
        Attribute.categorical("sex", ["f", "m"]),
        Attribute.categorical("work", ["B", "X", "A"], missing="Unknown"),
        Attribute.numeric("age", [0, 18, 65]),
    ),
)
COUNTS = np.random.default_rng(0).integers(0, 50, DOMAIN.shape)
RISES = np.random.default_rng(1).integers(-2, 3, (3, 4, 4)).astype(float)


def labelled_cells() -> list[tuple[dict[str, str], int]]:
    """Every cell of the full table as its labels and its count."""
    names = DOMAIN.counted_names
    cells = itertools.product(*(DOMAIN[name].labels for name in names))
    return [(dict(zip(names, labels, strict=True)), int(n)) for labels, n in zip(cells, COUNTS.ravel(), strict=True)]


def test_equal_counts_the_records_with_the_same_label() -> None:
    expected = [
        sum(n for cell, n in labelled_cells() if cell["home"] == cell["work"] and cell["sex"] == sex) for sex in "fm"
    ]
    answers = Query.equal("home", "work").by("sex").bind(DOMAIN).answer_full(COUNTS)
    assert answers.tolist() == [expected]
    assert answers.dtype.kind == "i"
    turned = Query.parse("sex where work==home").bind(DOMAIN).answer_full(COUNTS)
    assert turned[:, 0].tolist() == expected


def test_a_matrix_weighs_every_combination_of_values() -> None:
    query = Query.matrix(("work", "home"), RISES, names=["x", "y", "z"]).by("age")
    joint = COUNTS.sum(axis=1).transpose(1, 0, 2)  # work, home, age
    expected = np.einsum("rwh,wha->ra", RISES, joint)
    bound = query.bind(DOMAIN)
    np.testing.assert_allclose(bound.answer_full(COUNTS), expected)
    assert list(bound.label_rows())[:2] == [("x", "0..17"), ("x", "18..64")]
    sparse = Query.matrix(("work", "home"), sp.csr_array(RISES.reshape(3, -1)), sizes=(4, 4), names=["x", "y", "z"])
    assert sparse.by("age") == query


@pytest.mark.parametrize("text", ["home==work", "home==work by sex", "age where work==home by sex"])
def test_written_out_the_query_gives_the_same_answers_and_its_transpose(text: str) -> None:
    bound = Query.parse(text).bind(DOMAIN)
    matrix = bound.written_out()
    np.testing.assert_allclose(matrix @ COUNTS.ravel(), bound.answer_full(COUNTS).ravel())
    own = bound.written_out(bound.attributes)
    answers = np.arange(1.0, bound.size + 1)
    np.testing.assert_allclose(bound.adjoint(answers.reshape(bound.shape)).ravel(), own.T @ answers)
    np.testing.assert_allclose(bound.squared().written_out(), matrix**2)


def test_a_joint_map_between_others_is_their_kronecker_product() -> None:
    joint = JointMap(sp.csr_array(RISES.reshape(3, 16)), (4, 4))
    product = Kronecker((PrefixMap(2), joint, SumMap(3), IdentityMap(2)))
    dense = np.kron(np.kron(PrefixMap(2).dense(), joint.dense()), np.kron(np.ones((1, 3)), np.eye(2)))
    table = np.random.default_rng(2).normal(size=(2, 4, 4, 3, 2))
    assert (product.shape_in, product.shape_out) == (table.shape, (2, 3, 1, 2))
    np.testing.assert_allclose(product.apply(table).ravel(), dense @ table.ravel())
    answers = np.random.default_rng(3).normal(size=product.shape_out)
    np.testing.assert_allclose(product.adjoint(answers).ravel(), dense.T @ answers.ravel())
    assert product.adjoint(answers).shape == table.shape


@pytest.mark.parametrize(
    "text", ["home==work", "home==work by sex", "home==work and sex=f by age", "age where home==work by sex", "a==b==c"]
)
def test_what_describe_writes_is_read_back(text: str) -> None:
    assert Query.parse(text).describe() == text
    assert Query.parse(Query.parse(text).describe()) == Query.parse(text)


def test_names_with_signs_are_quoted() -> None:
    query = Query.equal("a=b", "by")
    assert query.describe() == '"a=b"=="by"'
    assert Query.parse(query.describe()) == query


NAMES = st.lists(st.sampled_from("abcd"), min_size=2, max_size=4, unique=True)


@st.composite
def joint_queries(draw: st.DrawFn) -> Query:
    names = draw(NAMES)
    if draw(st.booleans()):
        query = Query.equal(*names)
    else:
        sizes = draw(st.lists(st.integers(1, 3), min_size=len(names), max_size=len(names)))
        rows = draw(st.integers(1, 3))
        cells = rows * math.prod(sizes)
        entries = draw(st.lists(st.integers(-9, 9).map(lambda each: each / 4), min_size=cells, max_size=cells))
        query = Query.matrix(names, np.reshape(entries, (rows, *sizes)), names=[f"n{i}" for i in range(rows)])
    return query.by(*draw(st.lists(st.sampled_from("ef"), unique=True)))


@given(joint_queries())
def test_joint_queries_survive_json(query: Query) -> None:
    assert Query.from_json(json.loads(query.dumps())) == query


@given(joint_queries())
def test_attributes_in_order_are_the_same_rows(query: Query) -> None:
    domain = Domain.from_sizes(dict.fromkeys("abcdef", 3))
    np.testing.assert_array_equal(query.in_order().bind(domain).written_out(), query.bind(domain).written_out())


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "equals", "attributes": ["a", "b"]}, "'equals' is not known; did you mean 'equal'"),
        ({"kind": "equal", "attributes": ["a"]}, "at least two"),
        ({"kind": "equal", "attribute": "a", "attributes": ["a", "b"]}, "names the 'attribute' 'a'"),
        ({"kind": "identity"}, "'attribute' is missing"),
        ({"kind": "joint-matrix", "attributes": ["a", "b"], "rows": 1, "entries": [[0, 1, 2.0]]}, "found [0, 1, 2.0]"),
        ({"kind": "joint-matrix", "attributes": ["a", "b"], "rows": 0, "entries": []}, "has 0 rows"),
    ],
)
def test_json_that_does_not_fit_is_refused_by_name(table: dict, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        Query.from_json({"factors": [table]})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Query.parse("home==sex").bind(DOMAIN), "no label in common"),
        (lambda: Query.parse("home==work by home"), "names the attribute 'home' twice"),
        (lambda: Query.equal("home", "home"), "at least two, each once"),
        (lambda: Query.matrix(("home", "work"), np.ones((2, 3))).bind(DOMAIN).answer_full(COUNTS), None),
        (
            lambda: Query.matrix(("home", "work"), np.ones((1, 5, 4))).bind(DOMAIN),
            "outside 1 rows × 4 values of 'home'",
        ),
        (lambda: Query.matrix(("home", "work"), np.ones(3)), "an array of 1 axes"),
        (lambda: Query.matrix(("home", "work"), sp.eye_array(3), sizes=(2, 2)), "has 3 columns"),
        (lambda: Query.matrix(("home", "work"), np.ones((2, 2, 2)), names=["one"]), "2 rows and 1 row names"),
        (lambda: Query((("home", factors.Equal(("home", "work"))),)), "file it under 'home × work'"),
        (lambda: factors.Equal(("home", "work")).bind(DOMAIN["home"]), "about 2 attributes together"),
        (lambda: AnswerSets(Workload.of([Query.equal("home", "work")]), DOMAIN), "compares attributes with each other"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_sides(make, message: str | None) -> None:
    if message is None:  # a smaller matrix has zeros elsewhere, like that of one attribute
        make()
        return
    with pytest.raises(DeclarationError) as caught:
        make()
    assert message in str(caught.value)


def test_real_entries_are_rounded_to_a_public_lattice() -> None:
    weights = np.random.default_rng(4).normal(size=(2, 4, 4))
    bound = Query.matrix(("home", "work"), weights, names=["p", "q"]).bind(DOMAIN)
    rounded = bound.rounded()
    assert bound.lattice_bits > 30 >= rounded.lattice_bits > 0
    np.testing.assert_allclose(rounded.written_out(), bound.written_out(), atol=1e-5)
    assert rounded.row_labels == bound.row_labels
    units = Kronecker(tuple(each.in_lattice_units() for each in rounded.maps)).apply(rounded.marginal_of(COUNTS))
    np.testing.assert_array_equal(np.ldexp(units, -rounded.lattice_bits), rounded.answer_full(COUNTS))


def test_one_answer_of_a_joint_query_is_a_query() -> None:
    bound = Query.matrix(("home", "work"), RISES, names=["x", "y", "z"]).by("sex").bind(DOMAIN)
    answers = bound.answer_full(COUNTS)
    for index in range(bound.size):
        assert single_row(bound, index).bind(DOMAIN).answer_full(COUNTS).item() == answers.flat[index]
