"""The workloads of McKenna et al. (2019) have the shapes that the paper prints, or are said to differ."""

import numpy as np
import pytest

from benchmarks.problems import declared_records
from benchmarks.problems.noisy_marginals import ADULT_TRIPLES
from benchmarks.problems.records import ADULT_FINE, SHAPES, NamedRecords
from benchmarks.problems.triples import PRINTED_QUERIES, TRIPLES, drawn_triples, triple_problem
from consilience.domain.attributes import Numeric
from consilience.domain.factors import Identity, Prefix
from consilience.measuring import measure
from consilience.plans import Direct


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    declared_records.column_names.cache_clear()
    yield
    declared_records.column_names.cache_clear()


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize(
    ("name", "queries"), [("titanic", 4_851), ("adult-fine", 62_876), ("loans", 352_201), ("stroke", 17_116)]
)
def test_fifteen_triples_with_the_printed_number_of_queries_or_one_digit_off(name: str, queries: int) -> None:
    sizes = SHAPES[name][1]
    assert len(set(TRIPLES[name])) == 15
    assert sum(int(np.prod([sizes[place] for place in places])) for places in TRIPLES[name]) == queries
    printed = str(PRINTED_QUERIES[name])
    assert sum(a != b for a, b in zip(str(queries), printed, strict=True)) == (name in ("loans", "stroke"))


@pytest.mark.usefixtures("no_data")
def test_prefixes_are_asked_of_numeric_attributes_alone() -> None:
    problem = triple_problem("titanic")
    assert problem.queries == 4_851
    assert problem.records.domain.public.total == problem.records.rows == 1_304
    for query in problem.workload.queries:
        for name, factor in query.factors:
            numeric = isinstance(problem.records.domain[name], Numeric)
            assert isinstance(factor, Prefix if numeric else Identity)
            assert numeric == (problem.records.domain[name].size in (91, 100))
    assert all(isinstance(factor, Identity) for query in problem.marginals().queries for _, factor in query.factors)


def test_the_triples_of_adult_come_out_of_the_draw() -> None:
    assert drawn_triples(ADULT_FINE, 48_842) == list(ADULT_TRIPLES)


@pytest.mark.usefixtures("no_data")
def test_the_problem_can_be_measured_with_simulated_noise() -> None:
    problem = triple_problem("titanic")
    plan = Direct(ways=1)
    measured = measure(problem.records.source(), plan, epsilon=1e6, simulate=1, neighbours="replace-one")
    assert not measured.private
    assert next(iter(measured)).values.sum() == pytest.approx(1_304, abs=1)


def test_columns_have_their_codes_as_cells() -> None:
    records = NamedRecords("small", (3, 2), np.array([[0, 1], [2, 0], [2, 1]]))
    found = declared_records.declared(records, ("a", "b"), numeric=[0], public_total=False)
    assert found.domain.public.total is None
    (counts,) = found.source().exact_counts([("a", "b")])
    assert counts.tolist() == [[0, 1], [0, 0], [1, 1]]
