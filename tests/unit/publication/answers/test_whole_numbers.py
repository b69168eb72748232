"""Whole numbers: next to their estimates, adding up, and in agreement with each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Domain
from consilience.errors import DeclarationError
from consilience.estimators import Estimate, estimate
from consilience.measurements import Laplace, MeasurementSet
from consilience.publication import whole_answers
from consilience.publication.answers import whole_numbers

DOMAIN = Domain.from_sizes({"a": 4, "b": 3, "c": 5})


def fit(seed: int) -> Estimate:
    rng = np.random.default_rng(seed)
    tables = {("a", "b"): rng.gamma(0.7, 20, (4, 3)), ("b", "c"): rng.gamma(0.7, 20, (3, 5))}
    return estimate(MeasurementSet.from_marginals(DOMAIN, tables, noise=Laplace(2.0)), allow_misfit=True)


@given(st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_several_tables_agree_where_they_share_margins(seed: int) -> None:
    fitted = fit(seed)
    queries = ["by a, b", "by c, b", "by a", "total"]
    found = whole_answers(fitted, queries)
    for query, answers in zip(queries, found.answers, strict=True):
        assert np.abs(answers - fitted.answer(query).ravel()).max() < 1.0 + 1e-6
    by_ab, by_cb, by_a, total = (
        answers.reshape(fitted.answer(query).shape) for query, answers in zip(queries, found.answers, strict=True)
    )
    assert by_ab.sum() == by_cb.sum() == by_a.sum() == total == round(fitted.total)
    if found.together:
        assert np.array_equal(by_ab.sum(axis=1), by_a)
        assert np.array_equal(by_ab.sum(axis=0), by_cb.sum(axis=0))
    else:
        assert "by itself" in found.note


def test_conditions_and_prefixes_are_sums_of_the_same_whole_table() -> None:
    found = whole_answers(fit(3), ["by a, b", "b=1 by a", "by prefix(a)"])
    by_ab, at_b, prefixes = found.answers
    assert found.together
    assert np.array_equal(by_ab.reshape(4, 3)[:, 1], at_b)
    assert np.array_equal(by_ab.reshape(4, 3).sum(axis=1).cumsum(), prefixes)


@pytest.mark.parametrize("limit", ["LARGEST_JOINT", "LARGEST_PROGRAMME"])
def test_large_joint_tables_are_rounded_apart_and_it_is_said(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_numbers, limit, 13)
    fitted = fit(5)
    found = whole_answers(fitted, ["by a, b", "by b, c", "c=1 by prefix(a)"])
    assert not found.together
    assert "rounded by itself" in found.note
    assert found.answers[0].sum() == found.answers[1].sum() == round(fitted.total)
    for query, answers in zip(["by a, b", "by b, c", "c=1 by prefix(a)"], found.answers, strict=True):
        assert np.abs(answers - fitted.answer(query).ravel()).max() < 1.0 + 1e-6


def test_of_one_table_the_rounding_is_the_nearest_that_adds_up() -> None:
    domain = Domain.from_sizes({"a": 2, "b": 2})
    table = np.array([[1.4, 2.4], [3.4, 4.4]])
    fitted = estimate(MeasurementSet.from_marginals(domain, {("a", "b"): table}, noise=Laplace(1.0)))
    cells = whole_answers(fitted, ["by a, b"]).answers[0].reshape(2, 2)
    assert cells.sum() == 12  # of 11.6, while the nearest of each cell sum to 10
    assert np.abs(cells.sum(axis=0) - table.sum(axis=0)).max() < 1
    assert np.abs(cells.sum(axis=1) - table.sum(axis=1)).max() < 1


def test_sums_of_numbers_are_refused() -> None:
    domain = Domain("n", (Domain.from_sizes({"b": 2}).attributes[0], _ages()))
    fitted = estimate(MeasurementSet.from_marginals(domain, {("age", "b"): np.ones((2, 2))}, noise=Laplace(1.0)))
    with pytest.raises(DeclarationError, match="is no count"):
        whole_answers(fitted, ["sum(age) by b"])
    assert whole_answers(fitted, []).answers == ()


def _ages():
    from consilience.domain import Attribute

    return Attribute.numeric("age", [0, 18, 65])
