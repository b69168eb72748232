"""Single answers as sets of records: the same ones that are selected from, asked in every way they can be."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Domain, Query, factors
from consilience.domain.answer_sets import AnswerSets
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError, TooLarge
from consilience.plans.answering import single_row
from consilience.privacy.query_scores import WorkloadRows

DOMAIN = Domain.from_sizes({"a": 3, "b": 2, "c": 4}, name="tiny")
KINDS = {
    "identity": factors.Identity(),
    "prefix": factors.Prefix(),
    "ranges": factors.AllRanges(),
    "total": factors.Total(),
    "value": factors.Value("1"),
    "subset": factors.Subset(("0", "1")),
}


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    queries = []
    for _ in range(draw(st.integers(1, 4))):
        names = draw(st.permutations(["a", "b", "c"]))[: draw(st.integers(1, 3))]
        queries.append(Query.of({name: KINDS[draw(st.sampled_from(sorted(KINDS)))] for name in names}))
    return Workload.of([*queries, Query.marginal("c")])


@settings(max_examples=8, deadline=None)
@given(workload=workloads(), seed=st.integers(0, 100))
def test_they_are_the_candidates_of_selection_in_the_same_order(workload, seed) -> None:
    table = np.random.default_rng(seed).integers(0, 9, DOMAIN.shape)
    sets, rows = AnswerSets(workload, DOMAIN), WorkloadRows(workload, DOMAIN)
    assert len(sets) == len(rows)
    tables = [Query.marginal(*names).bind(DOMAIN).answer_full(table) for names in sets.marginals]
    answers = sets.answers(tables)
    assert answers.dtype == np.int64
    singles = [single_row(*rows.answer(place)).bind(DOMAIN) for place in range(len(rows))]
    assert answers.tolist() == [int(each.answer_full(table).sum()) for each in singles]


@settings(max_examples=15, deadline=None)
@given(workload=workloads())
def test_a_record_is_in_the_sets_that_count_it_and_meets_their_conditions(workload) -> None:
    sets = AnswerSets(workload, DOMAIN)
    for codes in itertools.product(*map(range, DOMAIN.shape)):
        table = np.zeros(DOMAIN.shape)
        table[codes] = 1.0
        tables = [Query.marginal(*names).bind(DOMAIN).answer_full(table) for names in sets.marginals]
        holding = sets.holding(codes)
        assert holding.tolist() == sets.answers(tables).tolist()
        met = [all(chosen[codes[place]] for place, chosen in sets.members(q)) for q in range(len(sets))]
        assert holding.tolist() == [int(each) for each in met]


@settings(max_examples=20, deadline=None)
@given(workload=workloads(), seed=st.integers(0, 100))
def test_the_adjoint_is_the_transpose_of_the_answers(workload, seed) -> None:
    rng = np.random.default_rng(seed)
    sets = AnswerSets(workload, DOMAIN)
    tables = [rng.normal(size=DOMAIN.sizes(names)) for names in sets.marginals]
    weights = rng.normal(size=len(sets))
    inner = sum(float((table * part).sum()) for table, part in zip(tables, sets.adjoint(weights), strict=True))
    assert inner == pytest.approx(float(weights @ sets.answers(tables)))


def test_what_counts_no_sets_is_refused() -> None:
    for matrix in ([[1.0, -1.0, 0.0]], [[0.5, 1.0, 0.0]], [[2.0, 0.0, 0.0]]):
        with pytest.raises(DeclarationError, match="0 and 1"):
            AnswerSets(Workload.of([Query.of({"a": factors.Matrix.of(matrix)})]), DOMAIN)
    with pytest.raises(DeclarationError, match="nothing but the total"):
        AnswerSets(Workload.of([Query(()), Query.of({"a": factors.Total()})]), DOMAIN)
    with pytest.raises(TooLarge):
        AnswerSets(Workload.of([Query.of({"a": factors.AllRanges()})]), Domain.from_sizes({"a": 4000}))
    with pytest.raises(IndexError):
        AnswerSets(Workload.of([Query.marginal("a")]), DOMAIN).members(3)
