"""Answers from one pass over a tree that holds the queries too, against those by elimination."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Domain, Query
from consilience.domain.domains import ImpossibleCells
from consilience.estimators import Graphical
from consilience.estimators import graphical_model as model_answers
from consilience.estimators.graphical_model import GraphicalEstimate, ModelAnswers
from consilience.kernels.rng import generator
from consilience.measurements import Gaussian, MeasurementSet
from consilience.publication.intervals.refits import Refitting

SIZES = {"a": 3, "b": 4, "c": 1, "d": 5, "e": 2, "f": 3}
DOMAIN = Domain.from_sizes(SIZES)
ASKED = ["total", "by a", "by d, b", "by b, d", "a=0..1 by e", "by f", "by c, f", "by e, d, a", "b=1..2 by d"]


def model(scopes: list[tuple[str, ...]], seed: int = 0) -> GraphicalEstimate:
    rng = generator(seed)
    tables: dict[str | tuple[str, ...], np.ndarray] = {
        scope: rng.gamma(2.0, 10.0, [SIZES[name] for name in scope]) for scope in scopes
    }
    return Graphical().fit(MeasurementSet.from_marginals(DOMAIN, tables, noise=Gaussian(5.0), private=False))


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sets(st.sampled_from("abcdef"), min_size=1, max_size=3), min_size=1, max_size=5, unique_by=frozenset),
    st.lists(st.sampled_from(ASKED), min_size=1, max_size=5),
    st.integers(0, 100),
)
def test_answers_are_those_of_elimination(scopes: list[set[str]], asked: list[str], seed: int) -> None:
    estimate = model([tuple(sorted(scope)) for scope in scopes], seed)
    queries = [Query.parse(each) for each in asked]
    prepared = ModelAnswers.of(estimate, queries)
    if prepared is not None:
        for found, wanted in zip(prepared.answers(estimate), estimate.answers(queries), strict=True):
            assert np.shape(found) == np.shape(wanted)
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * estimate.total)


def test_impossible_cells_stay_empty() -> None:
    rule = ImpossibleCells((("a", (0,)), ("b", (2,))))
    domain = Domain("two", Domain.from_sizes({"a": 2, "b": 3}).attributes, impossible=(rule,))
    tables: dict[str | tuple[str, ...], np.ndarray] = {"a": np.array([40.0, 60.0]), "b": np.array([20.0, 30.0, 50.0])}
    estimate = Graphical().fit(MeasurementSet.from_marginals(domain, tables, noise=Gaussian(5.0), private=False))
    prepared = ModelAnswers.of(estimate, [Query.marginal("a", "b")])
    assert prepared is not None
    found = prepared.answers(estimate)[0]
    np.testing.assert_allclose(found, estimate.answer("by a, b"), rtol=1e-9)
    assert found[0, 2] == 0.0


@pytest.mark.parametrize("most", [0.0, 1e9])
def test_queries_that_make_the_tree_much_larger_are_left_to_elimination(
    most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_answers, "MOST_LARGER", most)
    estimate = model([("a", "b"), ("b", "d"), ("d", "f")])
    queries = [Query.parse("by a, f"), Query.parse("by b")]
    assert (ModelAnswers.of(estimate, queries) is None) == (most == 0.0)
    shared, asking = Refitting.of(estimate), estimate.asking(queries)
    found = asking(shared.draw(generator(3)))
    assert [np.shape(each) for each in found] == [(3, 3), (4,)]
    for each, wanted in zip(asking(shared.account), shared.account.answers(queries), strict=True):
        np.testing.assert_allclose(each, wanted, rtol=1e-9)
