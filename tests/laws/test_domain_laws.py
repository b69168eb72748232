"""Laws of domains, queries and the query language, for anything Hypothesis can think of."""

import json
import string
import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain, Query, Workload, factors, sensitivity
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.factors import Factor
from consilience.domain.public_facts import PublicFacts, PublicMargin
from consilience.errors import ConsilienceError, DeclarationError

law = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Machines may be slow and busy; what takes long is no failure here."""

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
awkward = st.sampled_from(
    [
        "by",
        "and",
        "a..b",
        "..",
        ".",
        "'",
        '"',
        '""',
        "total",
        "count",
        "in",
        "a=b",
        "<=50K",
        "ä",
        "drop",
        "x y",
        "!=",
        "level 2",
    ]
)
words = st.one_of(anything, awkward, st.text(string.ascii_lowercase + " .'\"=()|,<>!", max_size=6))
names = words.filter(lambda word: word.strip() != "")
rules = words.filter(lambda word: word != "clip")


@st.composite
def categoricals(draw: st.DrawFn, name: str) -> Attribute:
    values = draw(st.lists(words, min_size=1, max_size=5, unique=True))
    return Attribute.categorical(name, values, missing=draw(st.none() | rules), unlisted=draw(rules))


@st.composite
def numerics(draw: st.DrawFn, name: str) -> Attribute:
    whole = draw(st.booleans())
    numbers: Any = st.integers(-(10**9), 10**9) if whole else st.floats(-1e9, 1e9)
    edges = draw(st.lists(numbers, min_size=2, max_size=20, unique_by=lambda edge: float(edge)).map(sorted))
    if whole and draw(st.booleans()):
        edges = [edges[0] + 7 * i for i in range(draw(st.integers(2, 20)))]
    missing = draw(st.none() | rules)
    return Attribute.numeric(name, edges, missing=missing, unlisted=draw(rules | st.just("clip")))


@st.composite
def hierarchies(draw: st.DrawFn, name: str) -> Attribute:
    nodes = draw(st.lists(words, min_size=2, max_size=8, unique=True))
    parents = {node: nodes[draw(st.integers(0, i))] for i, node in enumerate(nodes[1:])}
    inner = set(parents.values())
    allowed = rules.filter(lambda word: word not in inner)
    order = draw(st.permutations(list(parents)))
    return Attribute.hierarchy(
        name, {child: parents[child] for child in order}, missing=draw(st.none() | allowed), unlisted=draw(allowed)
    )


@st.composite
def continuous(draw: st.DrawFn, name: str) -> Attribute:
    low, high = sorted(draw(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=2, unique=True)))
    return Attribute.continuous(name, (low, high), unlisted=draw(st.sampled_from(["clip", "drop"])))


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    kinds = [categoricals, numerics, hierarchies, continuous]
    chosen = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    attributes = tuple(draw(draw(st.sampled_from(kinds))(name)) for name in chosen)
    bare = Domain(draw(names), attributes)
    impossible, public = [], PublicFacts()
    if bare.counted:
        for _ in range(draw(st.integers(0, 2))):
            among = draw(st.lists(st.sampled_from(bare.counted_names), min_size=1, unique=True))
            codes = [st.lists(st.integers(0, bare[name].size - 1), min_size=1, unique=True) for name in among]
            impossible.append(ImpossibleCells(tuple((n, tuple(draw(c))) for n, c in zip(among, codes, strict=True))))
        margin = PublicMargin((bare.counted_names[0],), (0,) * bare.counted[0].size)
        public = PublicFacts(draw(st.none() | st.just(0) | st.just(0.0)), (margin,) if draw(st.booleans()) else ())
    return Domain(bare.name, attributes, tuple(impossible), public)


@given(domains())
@law
def test_domains_survive_toml_and_json(domain: Domain) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "d.toml"
        domain.save(path)
        loaded = Domain.from_declaration(tomllib.loads(path.read_text(encoding="utf-8")))
        with suppress(DeclarationError):  # control characters are written as they are, and refused in domain files
            assert Domain.load(path) == domain
    assert loaded == domain
    assert loaded.shape == domain.shape
    assert loaded.fingerprint == domain.fingerprint
    assert Domain.from_declaration(json.loads(json.dumps(domain.to_declaration()))) == domain


@given(domains(), domains())
@law
def test_fingerprints_are_equal_exactly_for_equal_domains(first: Domain, second: Domain) -> None:
    assert (first.fingerprint == second.fingerprint) == (first == second)


@given(domains())
@law
def test_labels_are_distinct_and_know_their_codes(domain: Domain) -> None:
    for attribute in domain.counted:
        assert len(set(attribute.labels)) == attribute.size
        for code, label in enumerate(attribute.labels):
            assert attribute.code(label) == code
            assert attribute.codes(label) == (code,)
            assert Query.of({attribute.name: factors.Value(label)}).bind(domain).answer(
                np.eye(attribute.size)[code]
            ) == [1]


# Queries as data and as text.

conditions: st.SearchStrategy[Factor] = st.one_of(
    words.map(factors.Value),
    st.lists(words, min_size=1, max_size=3).map(lambda labels: factors.Subset(tuple(labels))),
    st.tuples(st.none() | words, st.none() | words).map(lambda ends: factors.Range(*ends)),
)
number = st.integers(0, 10**9 - 1)
terms: st.SearchStrategy[Factor] = st.one_of(
    st.sampled_from([factors.Identity(), factors.Prefix(), factors.AllRanges(), factors.Haar()]),
    st.sampled_from([factors.Mean(), factors.Total()]),
    number.map(factors.Moments),
    st.tuples(st.none() | number, st.none() | number).map(lambda both: factors.Tree(*both)),
)
finite = st.floats(allow_nan=False, allow_infinity=False)
unnamed: st.SearchStrategy[Factor] = st.one_of(
    st.dictionaries(words, st.lists(words, max_size=3), max_size=3).map(factors.Buckets.of),
    st.lists(st.lists(finite, min_size=2, max_size=2), min_size=1, max_size=3).map(factors.Matrix.of),
    st.lists(finite, min_size=2, max_size=2).map(lambda row: factors.Matrix.of(row, names=["ä"])),
)


@st.composite
def typed_queries(draw: st.DrawFn) -> Query:
    """Queries in the order in which the language can say them: terms, conditions, terms."""
    attributes = draw(st.lists(words, max_size=6, unique=True))
    first, second = sorted(draw(st.tuples(st.integers(0, 6), st.integers(0, 6))))
    kinds = [conditions if first <= i < second else terms for i in range(len(attributes))]
    return Query(tuple((name, draw(kind)) for name, kind in zip(attributes, kinds, strict=True)))


@given(typed_queries())
@settings(law, max_examples=120)
def test_descriptions_parse_back_to_the_same_query(query: Query) -> None:
    assert Query.parse(query.describe()) == query


@given(st.lists(st.tuples(words, st.one_of(conditions, terms, unnamed)), max_size=4, unique_by=lambda each: each[0]))
@law
def test_queries_and_workloads_survive_json(parts: list[tuple[str, Factor]]) -> None:
    query = Query(tuple(parts))
    assert Query.from_json(json.loads(query.dumps())) == query
    workload = Workload.of([query, Query.marginal()], weights=[0.5, 3])
    assert Workload.from_json(json.loads(json.dumps(workload.to_json()))) == workload


@given(st.one_of(st.text(max_size=30), st.text("ab =.|,()<>!\"'byandinwhere0123", max_size=30)))
@settings(law, max_examples=300)
def test_any_text_is_a_query_or_is_refused_in_our_words(text: str) -> None:
    try:
        query = Query.parse(text)
    except DeclarationError:
        return
    assert Query.parse(query.describe()) == query


@given(domains(), st.lists(st.one_of(conditions, terms), min_size=1, max_size=4), st.data())
@law
def test_any_query_binds_to_any_domain_or_is_refused_in_our_words(
    domain: Domain, parts: list[Factor], data: st.DataObject
) -> None:
    attributes = data.draw(st.permutations(list(domain.names)))
    query = Query(tuple(zip(attributes, parts, strict=False)))
    try:
        bound = query.bind(domain)
    except ConsilienceError:
        return
    assert tuple(len(labels) for labels in bound.row_labels) == bound.shape
    table = np.ones(bound.table_shape, dtype=np.int64)
    assert bound.answer(table).shape == bound.shape
    assert bound.adjoint(np.zeros(bound.shape)).shape == bound.table_shape


# Sensitivities.

sizes = st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), min_size=1, max_size=3)
plain = st.sampled_from([factors.Identity(), factors.Prefix(), factors.Haar(), factors.Total(), factors.Tree(2)])


@st.composite
def stacks(draw: st.DrawFn) -> list[Any]:
    domain = Domain.from_sizes(draw(sizes))
    queries = draw(st.lists(st.dictionaries(st.sampled_from(domain.names), plain), min_size=1, max_size=4))
    return [Query.of(query).bind(domain) for query in queries]


@given(stacks(), st.sampled_from([1, 2]))
@law
def test_one_relation_bounds_the_other(queries: list[Any], norm: Any) -> None:
    added = sensitivity(queries, norm=norm, neighbours="add-remove").value
    replaced = sensitivity(queries, norm=norm, neighbours="replace-one").value
    assert added <= replaced <= 2 * added * (1 + 1e-12)


@given(stacks(), st.sampled_from([1, 2]), st.sampled_from(["add-remove", "replace-one"]), st.floats(0.1, 10))
@law
def test_sensitivities_scale_with_weights_and_grow_with_queries(
    queries: list[Any], norm: Any, neighbours: Any, weight: float
) -> None:
    whole = sensitivity(queries, norm=norm, neighbours=neighbours).value
    weights = [weight] * len(queries)
    scaled = sensitivity(queries, norm=norm, neighbours=neighbours, weights=weights).value
    np.testing.assert_allclose(scaled, weight * whole, rtol=1e-9)
    fewer = sensitivity(queries[1:], norm=norm, neighbours=neighbours).value
    assert fewer <= whole * (1 + 1e-12)
